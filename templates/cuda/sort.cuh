/* A stable sort of items into bins, for the rows of each expert and the gradients of each token. It
 * has three launches: chunks of items are counted separately, the counts are added up bin by bin,
 * and every chunk then places its items. Counts are integers, so the order of atomics cannot be
 * seen.
 *
 * counts: [bins][chunks]. Item i of n is order[i], or i if there is no order. Its bin is (ids[item]
 * >> shift) % bins, with bins a power of two, or ids[item] itself without SHIFT (ids below bins).
 * Chunks are multiples of 256 items, at most SORT_CHUNKS of them. */
#ifndef CUDA_SORT_CUH
#define CUDA_SORT_CUH

#include "machine.cuh"

#define SORT_CHUNKS 256

DEVICE int sort_bin(const int32_t *ids, const int32_t *order, int i, int shift, int bins)
{
    int item = order ? order[i] : i;
    return shift < 0 ? ids[item] : (ids[item] >> shift) & (bins - 1);
}

/* One block per chunk, 256 threads. */
template <int BINS>
DEVICE void sort_count(const int32_t *ids, const int32_t *order, int32_t *counts, int n, int chunk,
                       int chunks, int shift)
{
    __shared__ int32_t count[BINS];
    for (int b = (int)threadIdx.x; b < BINS; b += 256) count[b] = 0;
    __syncthreads();
    int from = (int)blockIdx.x * chunk, to = n - from < chunk ? n : from + chunk;
    for (int i = from + (int)threadIdx.x; i < to; i += 256)
        atomicAdd(&count[sort_bin(ids, order, i, shift, BINS)], 1);
    __syncthreads();
    for (int b = (int)threadIdx.x; b < BINS; b += 256)
        counts[(int64_t)b * chunks + (int)blockIdx.x] = count[b];
}

/* The sum of a warp's lanes up to each. */
DEVICE int sort_running(int x)
{
    int lane = (int)threadIdx.x & 31;
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
        int left = __shfl_up_sync(0xffffffffu, x, d);
        if (lane >= d) x += left;
    }
    return x;
}

/* counts become the place where each chunk's part of each bin begins; first[BINS + 1], where it is
 * wanted, where each bin begins. One block of 1024 threads. */
template <int BINS> DEVICE void sort_scan(int32_t *counts, int32_t *first, int chunks)
{
    __shared__ int32_t start[BINS + 1];
    int lane = (int)threadIdx.x & 31, warp = (int)threadIdx.x / 32;
    for (int b = warp; b < BINS; b += 32) {
        int32_t *count = counts + (int64_t)b * chunks;
        int before = 0;
        for (int c = 0; c < chunks; c += 32) {
            int own = c + lane < chunks ? count[c + lane] : 0, running = sort_running(own);
            if (c + lane < chunks) count[c + lane] = before + running - own;
            before += __shfl_sync(0xffffffffu, running, 31);
        }
        if (lane == 0) start[b] = before;
    }
    __syncthreads();
    if (warp == 0) {
        int before = 0;
        for (int b = 0; b < BINS; b += 32) {
            int own = b + lane < BINS ? start[b + lane] : 0, running = sort_running(own);
            __syncwarp();
            if (b + lane < BINS) start[b + lane] = before + running - own;
            before += __shfl_sync(0xffffffffu, running, 31);
        }
        if (lane == 0) start[BINS] = before;
    }
    __syncthreads();
    for (int i = (int)threadIdx.x; i < BINS * chunks; i += 1024) counts[i] += start[i / chunks];
    if (first)
        for (int b = (int)threadIdx.x; b <= BINS; b += 1024) first[b] = start[b];
}

/* One block per chunk, 256 threads. INVERSE: to[item] = place; else to[place] = item. */
template <int BINS, bool INVERSE>
DEVICE void sort_place(const int32_t *ids, const int32_t *order, const int32_t *counts, int32_t *to,
                       int n, int chunk, int chunks, int shift)
{
    /* held: how many of this round's items each warp has in a bin */
    __shared__ int32_t start[BINS], held[8][BINS];
    int lane = (int)threadIdx.x & 31, warp = (int)threadIdx.x / 32;
    for (int b = (int)threadIdx.x; b < BINS; b += 256) {
        start[b] = counts[(int64_t)b * chunks + (int)blockIdx.x];
        for (int w = 0; w < 8; w++) held[w][b] = 0;
    }
    __syncthreads();
    int from = (int)blockIdx.x * chunk, end = n - from < chunk ? n : from + chunk;
    for (int i0 = from; i0 < end; i0 += 256) {
        int i = i0 + (int)threadIdx.x, bin = i < end ? sort_bin(ids, order, i, shift, BINS) : BINS;
        unsigned same = 0xffffffffu;
#pragma unroll
        for (int bit = 1; bit <= BINS; bit *= 2) {
            unsigned set = __ballot_sync(0xffffffffu, (bin & bit) != 0);
            same &= bin & bit ? set : ~set;
        }
        unsigned before = same & ((1u << lane) - 1);
        if (bin < BINS && !before) held[warp][bin] = __popc(same);
        __syncthreads();
        if (bin < BINS) {
            int place = start[bin] + __popc(before), item = order ? order[i] : i;
            for (int w = 0; w < warp; w++) place += held[w][bin];
            to[INVERSE ? item : place] = INVERSE ? place : item;
        }
        __syncthreads();
        for (int b = (int)threadIdx.x; b < BINS; b += 256)
            for (int w = 0; w < 8; w++) start[b] += held[w][b], held[w][b] = 0;
        __syncthreads();
    }
}

#endif
