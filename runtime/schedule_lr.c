/* The learning rate of a step: a pure function of the plan and the step number, in double precision, so that a resumed
 * run, another mesh or a shorter run never sees another rate. Warm-up is peak x (s + 1) / W, so step W - 1 and step W
 * both have the peak; the horizon's last step, S - 1, has floor x peak, and steps beyond keep it. Where there
 * is nothing to decay over (W = S - 1) the rate stays at the peak to the horizon, and nothing is divided by zero. */
#include "trainer.h"

#include <math.h>

/* How far a decay from `from` to `to` (its last step) has come: 0 … 1. */
static double progress(int64_t step, int64_t from, int64_t to)
{
    if (step <= from)
        return 0;
    if (step >= to)
        return 1;
    return (double)(step - from) / (double)(to - from);
}

double schedule_lr(const struct program *p, int64_t step)
{
    const double pi = 3.14159265358979323846;
    const int64_t last = p->schedule_steps - 1;
    if (step < p->warmup)
        return p->lr * (double)(step + 1) / (double)p->warmup;
    double fraction = 1;   /* of the way from floor to peak */
    switch (p->schedule) {
    case 0: return p->lr;
    case 1: fraction = (1 + cos(pi * progress(step, p->warmup, last))) / 2; break;
    case 2: fraction = 1 - progress(step, p->warmup, last); break;
    case 3: /* stable until `decay` steps are left */ fraction = 1 - progress(step, last - p->decay, last); break;
    }
    return p->lr * (p->floor + (1 - p->floor) * fraction);
}
