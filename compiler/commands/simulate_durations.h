/* --durations of `planc simulate`: a run's own durations in the place of predicted ones. */
#ifndef PLANC_COMMAND_SIMULATE_DURATIONS_H
#define PLANC_COMMAND_SIMULATE_DURATIONS_H

#include "analysis/rungs.h"

/* What a run took, and what the model says of each class beside it. */
struct measured_run {
    const char *path; /* NULL: no --durations */
    double step_seconds;
    double model_step, model[COST_CLASSES], model_contention, model_exposed; /* seconds */
};

/* Puts the durations of a file of --profile-out into a rung that was filled, and simulates it
 * again. False after a message; *status says how to exit. */
bool durations_apply(const char *path, struct rung *r, struct measured_run *m, int *status);

#endif
