/* The squared norm of a unit's resident gradients, in double precision, range by range. The padding
 * of a shard is in no range and may contain anything. A range is divided among the blocks of its
 * launch, whose number depends on its length; a second launch adds their sums, in order, to the
 * total. */
#ifndef CUDA_SUM_SQUARES_CUH
#define CUDA_SUM_SQUARES_CUH

#include "machine.cuh"

/* The sum of 256 threads' x, for thread 0. */
DEVICE double sum_squares_block(double x)
{
    __shared__ double room[8];
    int lane = (int)threadIdx.x & 31, warp = (int)threadIdx.x / 32;
#pragma unroll
    for (int d = 16; d; d /= 2) x += __shfl_down_sync(0xffffffffu, x, d);
    if (lane == 0) room[warp] = x;
    __syncthreads();
    double sum = 0.0;
    for (int w = 0; w < 8; w++) sum += room[w];
    return sum;
}

/* The block's share of x[from .. from + count)^2, for thread 0; 256 threads. */
DEVICE double sum_squares_share(const float *x, int64_t from, int64_t count)
{
    int64_t head = (4 - from % 4) % 4 < count ? (4 - from % 4) % 4 : count,
            whole = (count - head) / 4, step = (int64_t)gridDim.x * 256;
    int64_t i = (int64_t)blockIdx.x * 256 + (int)threadIdx.x;
    const float4 *four = (const float4 *)(x + from + head);
    double sum[4] = {0.0, 0.0, 0.0, 0.0};
    for (int64_t j = i; j < whole; j += step) {
        float4 v = four[j];
        sum[0] += (double)v.x * (double)v.x;
        sum[1] += (double)v.y * (double)v.y;
        sum[2] += (double)v.z * (double)v.z;
        sum[3] += (double)v.w * (double)v.w;
    }
    int64_t rest = count - head - whole * 4; /* with the head at most six elements */
    if (i < head + rest) {
        float v = x[i < head ? from + i : from + whole * 4 + i];
        sum[0] += (double)v * (double)v;
    }
    return sum_squares_block((sum[0] + sum[1]) + (sum[2] + sum[3]));
}
DEVICE void sum_squares_parts(const float *x, double *part, int64_t from, int64_t count)
{
    double share = sum_squares_share(x, from, count);
    if (threadIdx.x == 0) part[blockIdx.x] = share;
}

/* A short stretch, by one block in one launch. */
DEVICE void sum_squares_short(const float *x, double *out, int64_t from, int64_t count)
{
    double all = sum_squares_share(x, from, count);
    if (threadIdx.x == 0) *out += all;
}

/* out += the parts; one block of 256 threads. */
DEVICE void sum_squares_add(const double *part, double *out, int parts)
{
    double sum = 0.0;
    for (int i = (int)threadIdx.x; i < parts; i += 256) sum += part[i];
    double all = sum_squares_block(sum);
    if (threadIdx.x == 0) *out += all;
}

#endif
