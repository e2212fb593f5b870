/* The learning rate of a step: a pure function of the plan and the step number, in double
 * precision, so that a resumed run, another mesh or a shorter run never sees another rate. Warm-up
 * is peak x (from + (to - from) x (s + 1) / W), so step W - 1 has `to`; what falls has floor x peak
 * in the horizon's last step, S - 1, and in every step beyond it. Where there is nothing to fall
 * over (W = S - 1, a decay of no steps) the rate is the peak to the horizon, and nothing is divided
 * by zero. */
#include "trainer.h"

#include <math.h>

/* How far a fall has come that begins after step `from` and ends in step `to`: 0 … 1. */
static double progress(int64_t step, int64_t from, int64_t to)
{
    if (step <= from) return 0;
    return (double)(step - from) / (double)(to - from);
}

/* What is left of the way when the part `over` of a decay is over. 1 - sqrt: Hägele et al.,
 * "Scaling laws and compute-optimal training beyond fixed training durations", 2024. */
static double fallen(enum decay_shape shape, double over)
{
    const double pi = 3.14159265358979323846;
    switch (shape) {
    case SHAPE_LINEAR: return 1 - over;
    case SHAPE_SQRT: return 1 - sqrt(over);
    case SHAPE_COSINE: return (1 + cos(pi * over)) / 2;
    }
    return 0;
}

double schedule_lr(const struct program *p, int64_t step)
{
    const double pi = 3.14159265358979323846;
    const int64_t last = p->schedule_steps - 1;
    double left = 0; /* of the way from floor to peak */
    if (step < p->warmup)
        return p->lr *
               (p->warmup_from * (double)p->warmup +
                (p->warmup_to - p->warmup_from) * (double)(step + 1)) /
               (double)p->warmup;
    if (step > last && p->schedule != RATE_CONSTANT) return p->lr * p->floor;
    switch (p->schedule) {
    case RATE_CONSTANT: return p->lr;
    case RATE_COSINE: left = (1 + cos(pi * progress(step, p->warmup, last))) / 2; break;
    case RATE_LINEAR: left = 1 - progress(step, p->warmup, last); break;
    /* of its last `decay` steps each is one part lower */
    case RATE_WSD: left = fallen(p->decay_shape, progress(step, last - p->decay, last)); break;
    }
    return p->lr * (p->floor + (1 - p->floor) * left);
}
