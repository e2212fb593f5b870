/* The sum over an axis that lies between two that stay: y[a, c] = sum over m of x[a, m, c], added
 * in the order of m. It is the gradient of what was spread over such an axis (a table by position
 * over the heads, say); sums over the first and the last axes are loops of fused kernels. */
#ifndef TEMPLATE_SUM_MIDDLE_H
#define TEMPLATE_SUM_MIDDLE_H

#include <stdint.h>

static inline void sum_middle(const float *restrict x, float *restrict y, int64_t outer,
                              int64_t middle, int64_t inner)
{
    for (int64_t a = 0; a < outer; a++, y += inner) {
        for (int64_t c = 0; c < inner; c++) y[c] = 0;
        for (int64_t m = 0; m < middle; m++, x += inner)
            for (int64_t c = 0; c < inner; c++) y[c] += x[c];
    }
}

#endif
