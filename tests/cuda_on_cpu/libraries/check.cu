/* Two kernels for check.c: one that adds, slowly enough to be overtaken, and one that leaves its
 * memory. */
#include "machine.cuh"

KERNEL(128) add_one(const float *from, float *to, int64_t n)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) to[i] = from[i] + 1.0f;
}
KERNEL(32) deadlock(float *to)
{
    if (threadIdx.x != 7)
        __syncthreads();
    else
        __syncwarp();
    to[threadIdx.x] = 1.0f;
}
KERNEL(32) strays(float *to) { to[(int64_t)threadIdx.x * (1 << 20)] = 1.0f; }
