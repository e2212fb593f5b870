/* Kernels that the runtime launches itself, in every kernels.cu under these names: casts of shards
 * before a gather, copies and sums of shards after a reduction, where the device stands. One thread
 * per four elements, 256 threads per block, any number of elements, blocks for all of them: ceil(n
 * / 1024). Where an address allows no 16-byte accesses, elements go one by one. */
#ifndef CUDA_RUNTIME_CUH
#define CUDA_RUNTIME_CUH

#include "machine.cuh"
#include "op_math.h"

/* The thread's elements, i .. end; whether they are four that can be taken at once. */
DEVICE bool runtime_four(const void *from, const void *to, int64_t n, int64_t *i, int64_t *end)
{
    *i = ((int64_t)blockIdx.x * 256 + (int)threadIdx.x) * 4;
    *end = *i + 4 < n ? *i + 4 : n;
    return *i + 4 <= n && (((uint64_t)from | (uint64_t)to) & 15) == 0;
}

KERNEL(256) runtime_cast_bf16(const float *from, bf16 *to, int64_t n)
{
    int64_t i, end;
    if (runtime_four(from, to, n, &i, &end)) {
        float4 v = *(const float4 *)(from + i);
        *(uint2 *)(to + i) = make_uint2(pack_bf16(v.x, v.y), pack_bf16(v.z, v.w));
    } else
        for (; i < end; i++) to[i] = op_to_bf16(from[i]);
}

/* Three BF16 numbers that add up to each F32 one: to[i], to[n + i] and to[2 n + i]. */
KERNEL(256) runtime_split_bf16(const float *from, bf16 *to, int64_t n)
{
    int64_t i = ((int64_t)blockIdx.x * 256 + (int)threadIdx.x) * 4, end = i + 4 < n ? i + 4 : n;
    for (; i < end; i++) {
        float left = from[i];
        for (int part = 0; part < 3; part++) {
            bf16 rounded = op_to_bf16(left);
            to[i + part * n] = rounded;
            left -= op_from_bf16(rounded);
        }
    }
}

/* to = from, and to += from: what arrives from a reduction in the first micro-batch, and in the
 * others. */
KERNEL(256) runtime_set_f32(const float *from, float *to, int64_t n)
{
    int64_t i, end;
    if (runtime_four(from, to, n, &i, &end))
        *(float4 *)(to + i) = *(const float4 *)(from + i);
    else
        for (; i < end; i++) to[i] = from[i];
}
KERNEL(256) runtime_add_f32(const float *from, float *to, int64_t n)
{
    int64_t i, end;
    if (runtime_four(from, to, n, &i, &end)) {
        float4 a = *(float4 *)(to + i), b = *(const float4 *)(from + i);
        *(float4 *)(to + i) = make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
    } else
        for (; i < end; i++) to[i] += from[i];
}

/* Where the device stands, for the host: `at` is memory of the host. turn 1 and 2 are before and
 * after a wait of the compute lane: clock[0] keeps when it began, clock[1] gathers how long they
 * all took. */
KERNEL(32) runtime_publish(uint64_t *at, uint64_t position, uint64_t *clock, int turn)
{
    if (threadIdx.x == 0) {
        if (turn == 1) clock[0] = device_nanoseconds();
        if (turn == 2) clock[1] += device_nanoseconds() - clock[0];
        *(volatile uint64_t *)at = position;
    }
}

/* Adds to *sum a number for the bits of n words and their places; whole numbers, so the order of
 * the threads is nobody's concern. */
KERNEL(256) runtime_checksum(const uint32_t *from, int64_t n, unsigned long long *sum)
{
    int64_t i = ((int64_t)blockIdx.x * 256 + (int)threadIdx.x) * 4, end = i + 4 < n ? i + 4 : n;
    unsigned long long own = 0;
    for (; i < end; i++) own += (unsigned long long)from[i] * (2 * (unsigned long long)i + 1);
    if (own) atomicAdd(sum, own);
}

#endif
