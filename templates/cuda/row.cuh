/* Building blocks of fused kernels: eight elements at a time, sums and maxima over the threads of a
 * row, partial sums over rows. The order of additions is fixed: eight neighbours of a row belong to
 * one thread, its elements are added in the order of their columns, then the threads of the row in
 * one tree. So it depends only on the length of the row. G is the number of threads of a row, a
 * power of two. Groups of up to 32 lie side by side in a block of 256; a larger one is a block. */
#ifndef CUDA_ROW_CUH
#define CUDA_ROW_CUH

#include "machine.cuh"
#include "op_math.h"

/* ── neighbours, four or eight, as aligned as they are long ──────────────────── */
DEVICE void load(float (&to)[4], const float *from)
{
    const float4 a = *(const float4 *)from;
    to[0] = a.x, to[1] = a.y, to[2] = a.z, to[3] = a.w;
}
DEVICE void load(int32_t (&to)[4], const int32_t *from)
{
    const int4 a = *(const int4 *)from;
    to[0] = a.x, to[1] = a.y, to[2] = a.z, to[3] = a.w;
}
DEVICE void load(float (&to)[4], const bf16 *from)
{
    const uint2 a = *(const uint2 *)from;
    to[0] = op_from_bits((int32_t)(a.x << 16)), to[1] = op_from_bits((int32_t)(a.x & 0xffff0000u));
    to[2] = op_from_bits((int32_t)(a.y << 16)), to[3] = op_from_bits((int32_t)(a.y & 0xffff0000u));
}
DEVICE void load(float (&to)[8], const bf16 *from)
{
    const uint4 all = *(const uint4 *)from;
    const uint32_t two[4] = {all.x, all.y, all.z, all.w};
    for (int i = 0; i < 4; i++) {
        to[2 * i] = op_from_bits((int32_t)(two[i] << 16));
        to[2 * i + 1] = op_from_bits((int32_t)(two[i] & 0xffff0000u));
    }
}
template <class T> DEVICE void load(T (&to)[8], const T *from)
{
    T half[4];
    for (int h = 0; h < 8; h += 4) {
        load(half, from + h);
        for (int i = 0; i < 4; i++) to[h + i] = half[i];
    }
}

DEVICE void store(float *to, const float (&x)[4])
{
    float4 a;
    a.x = x[0], a.y = x[1], a.z = x[2], a.w = x[3];
    *(float4 *)to = a;
}
DEVICE void store(int32_t *to, const int32_t (&x)[4])
{
    int4 a;
    a.x = x[0], a.y = x[1], a.z = x[2], a.w = x[3];
    *(int4 *)to = a;
}
/* Of floats that are rounded to bf16 already. */
DEVICE uint32_t two_halves(float low, float high)
{
    return (uint32_t)op_to_bits(low) >> 16 | ((uint32_t)op_to_bits(high) & 0xffff0000u);
}
DEVICE void store(bf16 *to, const float (&x)[4])
{
    uint2 a;
    a.x = two_halves(x[0], x[1]), a.y = two_halves(x[2], x[3]);
    *(uint2 *)to = a;
}
DEVICE void store(bf16 *to, const float (&x)[8])
{
    uint4 a;
    a.x = two_halves(x[0], x[1]), a.y = two_halves(x[2], x[3]), a.z = two_halves(x[4], x[5]),
    a.w = two_halves(x[6], x[7]);
    *(uint4 *)to = a;
}
template <class T> DEVICE void store(T *to, const T (&x)[8])
{
    T half[4];
    for (int h = 0; h < 8; h += 4) {
        for (int i = 0; i < 4; i++) half[i] = x[h + i];
        store(to + h, half);
    }
}

/* ── one number of the threads of a row ──────────────────────────────────────── */
struct row_add {
    template <class T> DEVICE T of(T a, T b) { return a + b; }
};
struct row_most {
    template <class T> DEVICE T of(T a, T b) { return op_max(a, b); }
};

/* The first USED threads of the group have one each (both powers of two); all of the group receive
 * the result. G > 32: `shared` is a place of this call alone, 16 numbers, read until the next
 * barrier. */
template <class OP, int G, int USED, class T> DEVICE T row_combined(T x, T *shared)
{
    const uint32_t mask =
        G >= 32 ? 0xffffffffu : ((1u << (G & 31)) - 1) << (threadIdx.x % 32 / G * G);
    for (int far = (USED < 32 ? USED : 32) / 2; far > 0; far /= 2)
        x = OP::of(x, __shfl_xor_sync(mask, x, far));
    if (G <= 32) return USED < G ? __shfl_sync(mask, x, 0, G) : x;
    const int warps = USED > 32 ? USED / 32 : 1;
    if (threadIdx.x % 32 == 0 && threadIdx.x / 32 < warps) shared[threadIdx.x / 32] = x;
    __syncthreads();
    x = shared[threadIdx.x % warps];
    for (int far = warps / 2; far > 0; far /= 2)
        x = OP::of(x, __shfl_xor_sync(0xffffffffu, x, far));
    return x;
}
/* What a thread of the group has read before is read before another one writes over it. G > 32: the
 * barrier of the next sum does that. */
template <int G> DEVICE void row_meet()
{
    __syncwarp(G >= 32 ? 0xffffffffu : ((1u << (G & 31)) - 1) << (threadIdx.x % 32 / G * G));
}
template <int G, int USED, class T> DEVICE T row_sum(T x, T *shared = 0)
{
    return row_combined<row_add, G, USED>(x, shared);
}
template <int G, int USED, class T> DEVICE T row_max(T x, T *shared = 0)
{
    return row_combined<row_most, G, USED>(x, shared);
}

/* ── the largest of a row ────────────────────────────────────────────────────── */
/* Which K of the C numbers of a row are the largest, largest first, ties to the lowest; a NaN ranks
 * with -infinity. The first USED threads of the group have them: own[i][k] is column 8 (t + i G) +
 * k. `to`: K numbers, written by one thread and seen by all of the group; with EACH every thread
 * has its own. */
template <int G, int USED, int C, int K, bool EACH, int ROUNDS>
DEVICE void row_top(int32_t *to, const float (&own)[ROUNDS][8])
{
    const uint32_t mask =
        G >= 32 ? 0xffffffffu : ((1u << (G & 31)) - 1) << (threadIdx.x % 32 / G * G);
    const int t = (int)threadIdx.x % G, warps = USED > 32 ? USED / 32 : 1;
    float last = INFINITY;
    int last_id = -1;
    for (int n = 0; n < K; n++) {
        float best = 0.0f;
        int id = -1;
#pragma unroll
        for (int i = 0; i < ROUNDS; i++)
#pragma unroll
            for (int k = 0; k < 8; k++) {
                const int j = 8 * (t + i * G) + k;
                const float rank = own[i][k] == own[i][k] ? own[i][k] : -INFINITY;
                if (j < C && (rank < last || (rank == last && j > last_id)) &&
                    (id < 0 || rank > best))
                    best = rank, id = j;
            }
        for (int far = (USED < 32 ? USED : 32) / 2; far > 0; far /= 2) {
            const float other = __shfl_xor_sync(mask, best, far);
            const int other_id = __shfl_xor_sync(mask, id, far);
            if (other_id >= 0 && (id < 0 || other > best || (other == best && other_id < id)))
                best = other, id = other_id;
        }
        if (G > 32) {
            __shared__ float best_of[16];
            __shared__ int id_of[16];
            if (threadIdx.x % 32 == 0 && (int)threadIdx.x / 32 < warps)
                best_of[threadIdx.x / 32] = best, id_of[threadIdx.x / 32] = id;
            __syncthreads();
            best = best_of[0], id = id_of[0];
            for (int w = 1; w < warps; w++)
                if (id_of[w] >= 0 &&
                    (id < 0 || best_of[w] > best || (best_of[w] == best && id_of[w] < id)))
                    best = best_of[w], id = id_of[w];
            __syncthreads();
        } else if (USED < G)
            best = __shfl_sync(mask, best, 0, G), id = __shfl_sync(mask, id, 0, G);
        if (EACH || t == 0) to[n] = id;
        last = best, last_id = id;
    }
    if (G > 32)
        __syncthreads();
    else
        __syncwarp(mask);
}

/* ── sums over rows ──────────────────────────────────────────────────────────── */
/* What a block has added up of its rows: sum[i][k] of column 8 (t + i G) + k, by each of the SLOTS
 * groups that lie side by side, added in their order. `to`: C numbers, the block's own. All threads
 * of the block. */
template <int G, int SLOTS, int C, int ROUNDS>
DEVICE void store_sums(float *to, const float (&sum)[ROUNDS][8])
{
    const int t = threadIdx.x % G;
    if (SLOTS == 1) {
        for (int i = 0; i < ROUNDS; i++)
            for (int k = 0; k < 8; k++) {
                const int j = 8 * (t + i * G) + k;
                if (j < C) to[j] = sum[i][k];
            }
        return;
    }
    __shared__ float part[SLOTS][8 * G];
    __syncthreads();
    for (int k = 0; k < 8; k++) part[threadIdx.x / G][8 * t + k] = sum[0][k];
    __syncthreads();
    if ((int)threadIdx.x < C) {
        float all = 0.0f;
        for (int s = 0; s < SLOTS; s++) all += part[s][threadIdx.x];
        to[threadIdx.x] = all;
    }
}

/* The sum of CHUNKS such rows of partials; 32 columns per block of 256: eight threads per column
 * take every eighth row. */
template <int CHUNKS, int C> DEVICE void add_chunks(float *to, const float *part)
{
    __shared__ float eighth[8][32];
    const int j = (int)(blockIdx.x * 32 + threadIdx.x % 32), first = (int)threadIdx.x / 32;
    float sum = 0.0f;
    if (j < C)
        for (int c = first; c < CHUNKS; c += 8) sum += part[(int64_t)c * C + j];
    eighth[first][threadIdx.x % 32] = sum;
    __syncthreads();
    if (first > 0 || j >= C) return;
    for (int s = 1; s < 8; s++) sum += eighth[s][threadIdx.x];
    to[j] = sum;
}

/* The sum of `count` numbers, for all threads of a block of 256. */
DEVICE double add_numbers(const double *part, int64_t count)
{
    __shared__ double shared[16];
    double sum = 0.0;
    for (int64_t i = threadIdx.x; i < count; i += 256) sum += part[i];
    return row_sum<256, 256>(sum, shared);
}

#endif
