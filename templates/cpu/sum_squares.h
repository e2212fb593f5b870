/* The squared norm of a unit's resident gradients, in double precision, range by range. The padding
 * of a shard is in no range and may contain anything. Called once without a range, to begin. */
#ifndef TEMPLATE_SUM_SQUARES_H
#define TEMPLATE_SUM_SQUARES_H

#include "device.h"
#include "op_math.h"

static inline void sum_squares(const float *restrict x, const struct stretch *s,
                               double *restrict out)
{
    if (!s) {
        *out = 0.0;
        return;
    }
    if (s->balance_mean > 0) return; /* the bias of a router: its gradient is a count */
    double lane[OP_LANES] = {0};
    int64_t end = s->from + s->count, whole = s->from + s->count / OP_LANES * OP_LANES;
    for (int64_t j = s->from; j < whole; j += OP_LANES) {
#pragma omp simd
        for (int k = 0; k < OP_LANES; k++) lane[k] += (double)x[j + k] * (double)x[j + k];
    }
    for (int64_t j = whole; j < end; j++) lane[j - whole] += (double)x[j] * (double)x[j];
    *out += op_sum_lanes_f64(lane);
}

#endif
