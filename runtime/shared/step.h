/* One step of a run, and the validation behind it. */
#ifndef PLANC_STEP_H
#define PLANC_STEP_H

#include "checkpoint.h"

/* What the ranks agreed on in the last step or validation; the same on all of them. */
struct agreed {
    int stop;         /* what signals_stop() is on the lowest rank that was asked; 0: none */
    bool save;        /* asked to save at the end of this step, and to go on */
    int suspect;      /* lowest rank whose own loss was not finite; -1: none */
    bool other_data;  /* two ranks have read other samples where they should be equal */
    bool out_of_time; /* run.time_limit has ended a validation */
};
const struct agreed *step_agreed(void);

/* Takes the memory that steps need, once; the metrics of the plan are known, and the ranks. */
void step_open(void);
/* Does the step that `run` stands at, and moves `run` behind it. `first`: the first step of this
 * process, from which --profile and the others count. The metrics in the result live until the next
 * step. Ends the run when samples cannot be read. */
struct measured step_train(struct device *d, struct counters *run, int64_t first);
/* The mean cross-entropy of a target of data.validation, whatever the mesh, into `m`. A request to
 * stop, and run.time_limit, end it after a batch: m->validation_cut. */
void step_validate(struct device *d, struct counters *run, struct measured *m);
/* The validation that a stop has cut in the process before, behind the last step that it did; none,
 * mostly. False: it was cut again. */
bool step_validate_again(struct device *d, struct counters *run);

#endif
