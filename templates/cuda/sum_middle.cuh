/* The sum over an axis that lies between two that stay, as in templates/cpu/sum_middle.h: a thread
 * adds up one element of the result, in the order of the axis. Neighbouring threads read
 * neighbouring elements. */
#ifndef CUDA_SUM_MIDDLE_CUH
#define CUDA_SUM_MIDDLE_CUH

#include "machine.cuh"

/* 256 threads per block. */
DEVICE void sum_middle(const float *x, float *y, int64_t outer, int64_t middle, int64_t inner)
{
    int64_t i = (int64_t)blockIdx.x * 256 + (int)threadIdx.x;
    if (i >= outer * inner) return;
    x += i / inner * middle * inner + i % inner;
    float sum = 0.0f;
    for (int64_t m = 0; m < middle; m++) sum += x[m * inner];
    y[i] = sum;
}

#endif
