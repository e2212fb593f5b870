/* How often a run should be saved: the interval that loses least between the time that saves take
 * and the work that a failure undoes. Young, "A first order approximation to the optimum checkpoint
 * interval", 1974: sqrt(2 x stall x mean time between failures), good while that is much shorter
 * than the time between failures. */
#include "commands/simulate_saving.h"

#include <math.h>

bool saving_read(const struct arguments *a, struct saving_times *t)
{
    *t = (struct saving_times){0};
    if (!a->failures && !a->stall) return true;
    if (!a->failures || !a->stall) {
        command_fail(EXIT_USAGE,
                     "--failures and --stall go together: the time between two failures "
                     "of the run, and how long a save holds it up");
        return false;
    }
    static const struct option_range time = {UNIT_SECONDS, 1e-12,
                                             "a time, such as 20s, 30min or 3.1h"};
    if (!option_quantity("--failures", a->failures, time, &t->failures) ||
        !option_quantity("--stall", a->stall, time, &t->stall))
        return false;
    t->interval = sqrt(2 * t->stall * t->failures);
    t->lost = t->stall / t->interval + t->interval / (2 * t->failures);
    if (t->interval < t->failures) return true;
    command_fail(EXIT_USAGE,
                 "--stall %s is too long for failures every %s: no interval of checkpoints gets "
                 "such a run forward",
                 a->stall, a->failures);
    return false;
}

int64_t saving_steps(const struct saving_times *t, double step_seconds)
{
    const double steps = t->interval / step_seconds;
    return steps < 1 ? 1 : (int64_t)(steps + 0.5);
}

void saving_print(const struct saving_times *t, double step_seconds, int64_t parameters)
{
    const int64_t bytes = 12 * parameters;
    printf("checkpoints\n");
    printf("  every            %.0f s, which is %ld steps: checkpoint { every = %ld }\n",
           t->interval, saving_steps(t, step_seconds), saving_steps(t, step_seconds));
    printf("  lost             %.2f %% of the time to saves and to work that failures undo\n",
           100 * t->lost);
    printf("  size             %s; written while steps run if the disk takes %s/s\n",
           text_bytes(bytes), text_bytes((int64_t)((double)bytes / t->interval)));
}
