/* The interval of checkpoints that loses least, for `planc simulate --failures 3.1h --stall 2s`. */
#ifndef PLANC_SIMULATE_SAVING_H
#define PLANC_SIMULATE_SAVING_H

#include "commands/command.h"

/* Seconds: mean time between failures of the run, how long a save holds it up (0: not asked for);
 * the best interval, and the part of the time that is lost with it. */
struct saving_times {
    double failures, stall, interval, lost;
};
/* False after a message. */
bool saving_read(const struct arguments *a, struct saving_times *t);
int64_t saving_steps(const struct saving_times *t, double step_seconds);
void saving_print(const struct saving_times *t, double step_seconds, int64_t parameters);

#endif
