/* The machine that kernel text sees on a CPU: given as PLANC_MACHINE to templates/cuda/machine.cuh,
 * so that the very text that NVRTC compiles is compiled by g++ (C++17) and executed thread by
 * thread (fiber_block.h). Here are CUDA's own words and a body for every named wrapper of
 * machine.cuh. What kernels must not use is absent, so that it does not compile: atomics on floats,
 * __activemask, cooperative groups.
 *
 *   g++ -std=c++17 -O2 -march=native -ffp-contract=off -fno-strict-aliasing -fno-gnu-unique
 *       -Wno-unknown-pragmas \ -Itemplates/cuda -Iruntime/shared
 *       -DPLANC_MACHINE='"…/tests/cuda_on_cpu/fiber.h"' test.cc
 *   fiber_launch(dim3(blocks), dim3(threads), shared_bytes, kernel, argument...);
 *   FIBER_SEED=n draws another order */
#ifndef FIBER_H
#define FIBER_H

#include <algorithm>
#include <type_traits>

#include "fiber_launch.h"

#ifdef FIBER_LIST
#define KERNEL(threads) FIBER_KERNEL(threads) /* for module.sh, which looks for them */
#else
#define KERNEL(threads) extern "C" void
#endif
#define KERNEL_RESIDENT(threads, blocks) KERNEL(threads)
#define DEVICE static inline __attribute__((unused))
#define DYNAMIC_SHARED(name) unsigned char *const name = fiber_dynamic
#define __device__
#define __global__
#define __host__
#define __constant__ static
#define __forceinline__ inline
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __launch_bounds__(...)
#define __grid_constant__
constexpr int warpSize = 32;

/* Inlined, or the race detector would not see where the result is stored. */
#define FIBER_MAKE static inline __attribute__((unused, always_inline))
#define FIBER_VECTOR(type, name)                                                           \
    struct name##1 { type x; };                                                            \
    struct __attribute__((aligned(2 * sizeof(type)))) name##2 { type x, y; };              \
    struct name##3 { type x, y, z; };                                                      \
    struct __attribute__((aligned(4 * sizeof(type) > 16 ? 16 : 4 * sizeof(type)))) name##4 \
    {                                                                                      \
        type x, y, z, w;                                                                   \
    };                                                                                     \
    FIBER_MAKE name##2 make_##name##2(type x, type y) { return {x, y}; }                   \
    FIBER_MAKE name##3 make_##name##3(type x, type y, type z) { return {x, y, z}; }        \
    FIBER_MAKE name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }
FIBER_VECTOR(signed char, char)
FIBER_VECTOR(unsigned char, uchar)
FIBER_VECTOR(short, short)
FIBER_VECTOR(unsigned short, ushort)
FIBER_VECTOR(int, int)
FIBER_VECTOR(unsigned, uint)
FIBER_VECTOR(long long, longlong)
FIBER_VECTOR(unsigned long long, ulonglong)
FIBER_VECTOR(float, float)
FIBER_VECTOR(double, double)

/* ── together ────────────────────────────────────────────────────────────────── */
FIBER_FUNCTION void __syncthreads(FIBER_HERE)
{
    fiber_barrier({"__syncthreads", file, line}, false);
}
FIBER_FUNCTION int __syncthreads_count(int says, FIBER_HERE)
{
    return fiber_barrier({"__syncthreads_count", file, line}, says != 0);
}
FIBER_FUNCTION int __syncthreads_or(int says, FIBER_HERE)
{
    return fiber_barrier({"__syncthreads_or", file, line}, says != 0) != 0;
}
FIBER_FUNCTION int __syncthreads_and(int says, FIBER_HERE)
{
    return fiber_barrier({"__syncthreads_and", file, line}, says == 0) == 0;
}
FIBER_FUNCTION void __syncwarp(uint32_t mask = 0xffffffffu, FIBER_HERE)
{
    fiber_meet(mask, {"__syncwarp", file, line}, "", 0, 0, [](unsigned char(*)[64], uint32_t) {});
}
FIBER_FUNCTION void __threadfence() {}
FIBER_FUNCTION void __threadfence_block() {}
FIBER_FUNCTION void __trap(FIBER_HERE)
{
    fiber_report("thread %d traps at %s:%d", fiber_m.current, file, line);
    fiber_fail_now();
}

/* Lane `from` as the machine reckons it; a lane that is not there gives NaN bits. */
template <class T>
FIBER_FUNCTION T fiber_exchange(const char *what, uint32_t mask, T value, int from,
                                const char *file, int line)
{
    static_assert(sizeof(T) <= 16 && std::is_trivially_copyable<T>::value,
                  "a value that shuffles can carry");
    uint32_t who;
    unsigned char(*slot)[64] = fiber_meet(mask, {what, file, line}, &value, sizeof value, &who,
                                          [](unsigned char(*)[64], uint32_t) {});
    if (who >> from & 1)
        memcpy(&value, slot[from], sizeof value);
    else
        memset(&value, 0xff, sizeof value);
    return value;
}
template <class T>
FIBER_FUNCTION T __shfl_sync(uint32_t mask, T value, int source, int width = 32, FIBER_HERE)
{
    int lane = fiber_m.current & 31;
    return fiber_exchange("__shfl_sync", mask, value,
                          (lane & ~(width - 1)) | (source & (width - 1)), file, line);
}
template <class T>
FIBER_FUNCTION T __shfl_xor_sync(uint32_t mask, T value, int bits, int width = 32, FIBER_HERE)
{
    int lane = fiber_m.current & 31, from = lane ^ bits, last = (lane & ~(width - 1)) + width - 1;
    return fiber_exchange("__shfl_xor_sync", mask, value, from > last || from > 31 ? lane : from,
                          file, line);
}
template <class T>
FIBER_FUNCTION T __shfl_up_sync(uint32_t mask, T value, unsigned by, int width = 32, FIBER_HERE)
{
    int lane = fiber_m.current & 31, from = lane - (int)by;
    return fiber_exchange("__shfl_up_sync", mask, value, from < (lane & ~(width - 1)) ? lane : from,
                          file, line);
}
template <class T>
FIBER_FUNCTION T __shfl_down_sync(uint32_t mask, T value, unsigned by, int width = 32, FIBER_HERE)
{
    int lane = fiber_m.current & 31, from = lane + (int)by;
    return fiber_exchange("__shfl_down_sync", mask, value,
                          from > (lane & ~(width - 1)) + width - 1 ? lane : from, file, line);
}
FIBER_FUNCTION uint32_t fiber_votes(const char *what, uint32_t mask, bool says, uint32_t *who,
                                    const char *file, int line)
{
    unsigned char vote = says;
    uint32_t all, yes = 0;
    unsigned char(*slot)[64] =
        fiber_meet(mask, {what, file, line}, &vote, 1, &all, [](unsigned char(*)[64], uint32_t) {});
    for (int i = 0; i < 32; i++) yes |= (uint32_t)(all >> i & 1 && slot[i][0]) << i;
    if (who) *who = all;
    return yes;
}
FIBER_FUNCTION uint32_t __ballot_sync(uint32_t mask, int says, FIBER_HERE)
{
    return fiber_votes("__ballot_sync", mask, says != 0, 0, file, line);
}
FIBER_FUNCTION int __any_sync(uint32_t mask, int says, FIBER_HERE)
{
    return fiber_votes("__any_sync", mask, says != 0, 0, file, line) != 0;
}
FIBER_FUNCTION int __all_sync(uint32_t mask, int says, FIBER_HERE)
{
    uint32_t who, yes = fiber_votes("__all_sync", mask, says != 0, &who, file, line);
    return yes == who;
}
template <class T> FIBER_FUNCTION uint32_t __match_any_sync(uint32_t mask, T value, FIBER_HERE)
{
    uint32_t who, same = 0;
    unsigned char(*slot)[64] =
        fiber_meet(mask, {"__match_any_sync", file, line}, &value, sizeof value, &who,
                   [](unsigned char(*)[64], uint32_t) {});
    for (int i = 0; i < 32; i++)
        same |= (uint32_t)(who >> i & 1 && !memcmp(slot[i], &value, sizeof value)) << i;
    return same;
}
template <class T, class F>
FIBER_FUNCTION T fiber_fold(const char *what, uint32_t mask, T value, F f, const char *file,
                            int line)
{
    static_assert(std::is_integral<T>::value && sizeof(T) == 4, "integers only, as on the machine");
    uint32_t who;
    bool begun = false;
    T sum = value, one;
    unsigned char(*slot)[64] = fiber_meet(mask, {what, file, line}, &value, sizeof value, &who,
                                          [](unsigned char(*)[64], uint32_t) {});
    for (int i = 0; i < 32; i++)
        if (who >> i & 1)
            memcpy(&one, slot[i], sizeof one), sum = begun ? f(sum, one) : one, begun = true;
    return sum;
}
template <class T> FIBER_FUNCTION T __reduce_add_sync(uint32_t mask, T v, FIBER_HERE)
{
    return fiber_fold(
        "__reduce_add_sync", mask, v, [](T a, T b) { return (T)((uint32_t)a + (uint32_t)b); }, file,
        line);
}
template <class T> FIBER_FUNCTION T __reduce_max_sync(uint32_t mask, T v, FIBER_HERE)
{
    return fiber_fold(
        "__reduce_max_sync", mask, v, [](T a, T b) { return a > b ? a : b; }, file, line);
}
template <class T> FIBER_FUNCTION T __reduce_min_sync(uint32_t mask, T v, FIBER_HERE)
{
    return fiber_fold(
        "__reduce_min_sync", mask, v, [](T a, T b) { return a < b ? a : b; }, file, line);
}
template <class T> FIBER_FUNCTION T __reduce_or_sync(uint32_t mask, T v, FIBER_HERE)
{
    return fiber_fold(
        "__reduce_or_sync", mask, v, [](T a, T b) { return (T)(a | b); }, file, line);
}
template <class T> FIBER_FUNCTION T __reduce_and_sync(uint32_t mask, T v, FIBER_HERE)
{
    return fiber_fold(
        "__reduce_and_sync", mask, v, [](T a, T b) { return (T)(a & b); }, file, line);
}

/* ── alone ───────────────────────────────────────────────────────────────────── */
#define FIBER_ATOMIC(type)                                   \
    FIBER_FUNCTION type atomicAdd(type *p, type v)           \
    {                                                        \
        type old = *p;                                       \
        *p = (type)(old + v);                                \
        return old;                                          \
    }                                                        \
    FIBER_FUNCTION type atomicMax(type *p, type v)           \
    {                                                        \
        type old = *p;                                       \
        *p = old > v ? old : v;                              \
        return old;                                          \
    }                                                        \
    FIBER_FUNCTION type atomicMin(type *p, type v)           \
    {                                                        \
        type old = *p;                                       \
        *p = old < v ? old : v;                              \
        return old;                                          \
    }                                                        \
    FIBER_FUNCTION type atomicOr(type *p, type v)            \
    {                                                        \
        type old = *p;                                       \
        *p = old | v;                                        \
        return old;                                          \
    }                                                        \
    FIBER_FUNCTION type atomicAnd(type *p, type v)           \
    {                                                        \
        type old = *p;                                       \
        *p = old & v;                                        \
        return old;                                          \
    }                                                        \
    FIBER_FUNCTION type atomicXor(type *p, type v)           \
    {                                                        \
        type old = *p;                                       \
        *p = old ^ v;                                        \
        return old;                                          \
    }                                                        \
    FIBER_FUNCTION type atomicExch(type *p, type v)          \
    {                                                        \
        type old = *p;                                       \
        *p = v;                                              \
        return old;                                          \
    }                                                        \
    FIBER_FUNCTION type atomicCAS(type *p, type was, type v) \
    {                                                        \
        type old = *p;                                       \
        *p = old == was ? v : old;                           \
        return old;                                          \
    }
FIBER_ATOMIC(int)
FIBER_ATOMIC(unsigned)
FIBER_ATOMIC(unsigned long)
FIBER_ATOMIC(unsigned long long)
/* sums of floats would depend on who comes first */
template <class T> T atomicAdd(T *, T) = delete;

FIBER_FUNCTION int __popc(uint32_t x) { return __builtin_popcount(x); }
FIBER_FUNCTION int __popcll(uint64_t x) { return __builtin_popcountll(x); }
FIBER_FUNCTION int __ffs(uint32_t x) { return __builtin_ffs((int)x); }
FIBER_FUNCTION int __ffsll(uint64_t x) { return __builtin_ffsll((long long)x); }
FIBER_FUNCTION int __clz(uint32_t x) { return x ? __builtin_clz(x) : 32; }
FIBER_FUNCTION int __clzll(uint64_t x) { return x ? __builtin_clzll(x) : 64; }
FIBER_FUNCTION uint32_t __brev(uint32_t x)
{
    uint32_t y = 0;
    for (int i = 0; i < 32; i++) y |= (x >> i & 1) << (31 - i);
    return y;
}
FIBER_FUNCTION uint32_t __byte_perm(uint32_t a, uint32_t b, uint32_t select)
{
    uint64_t both = (uint64_t)b << 32 | a;
    uint32_t y = 0;
    for (int i = 0; i < 4; i++) {
        uint32_t s = select >> 4 * i & 15, byte = (uint32_t)(both >> 8 * (s & 7)) & 255;
        y |= (s & 8 ? (byte & 128 ? 255u : 0u) : byte) << 8 * i;
    }
    return y;
}
FIBER_FUNCTION uint32_t __umulhi(uint32_t a, uint32_t b)
{
    return (uint32_t)((uint64_t)a * b >> 32);
}
FIBER_FUNCTION unsigned long long __umul64hi(unsigned long long a, unsigned long long b)
{
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}

template <class To, class From> FIBER_FUNCTION To fiber_bits(From x)
{
    static_assert(sizeof(To) == sizeof(From), "the same bits");
    To y;
    memcpy(&y, &x, sizeof y);
    return y;
}
FIBER_FUNCTION int __float_as_int(float x) { return fiber_bits<int>(x); }
FIBER_FUNCTION unsigned __float_as_uint(float x) { return fiber_bits<unsigned>(x); }
FIBER_FUNCTION float __int_as_float(int x) { return fiber_bits<float>(x); }
FIBER_FUNCTION float __uint_as_float(unsigned x) { return fiber_bits<float>(x); }
FIBER_FUNCTION long long __double_as_longlong(double x) { return fiber_bits<long long>(x); }
FIBER_FUNCTION double __longlong_as_double(long long x) { return fiber_bits<double>(x); }

FIBER_FUNCTION float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
FIBER_FUNCTION float __fadd_rn(float a, float b) { return a + b; }
FIBER_FUNCTION float __fsub_rn(float a, float b) { return a - b; }
FIBER_FUNCTION float __fmul_rn(float a, float b) { return a * b; }
FIBER_FUNCTION float __fdiv_rn(float a, float b) { return a / b; }
FIBER_FUNCTION float __fsqrt_rn(float a) { return sqrtf(a); }
FIBER_FUNCTION float __frcp_rn(float a) { return 1.0f / a; }
FIBER_FUNCTION double __fma_rn(double a, double b, double c) { return fma(a, b, c); }
FIBER_FUNCTION double __dadd_rn(double a, double b) { return a + b; }
FIBER_FUNCTION double __dmul_rn(double a, double b) { return a * b; }
FIBER_FUNCTION double __ddiv_rn(double a, double b) { return a / b; }
FIBER_FUNCTION double __dsqrt_rn(double a) { return sqrt(a); }
FIBER_FUNCTION float rsqrtf(float a) { return (float)(1.0 / sqrt((double)a)); }
FIBER_FUNCTION double rsqrt(double a) { return 1.0 / sqrt(a); }
FIBER_FUNCTION float __saturatef(float a) { return a > 0.0f ? a < 1.0f ? a : 1.0f : 0.0f; }
FIBER_FUNCTION int __float2int_rn(float a) { return (int)nearbyintf(a); }
FIBER_FUNCTION int __float2int_rz(float a) { return (int)a; }
FIBER_FUNCTION int __float2int_rd(float a) { return (int)floorf(a); }
FIBER_FUNCTION float __int2float_rn(int a) { return (float)a; }

/* As on the machine, a NaN gives way to a number. */
FIBER_FUNCTION float min(float a, float b) { return fminf(a, b); }
FIBER_FUNCTION float max(float a, float b) { return fmaxf(a, b); }
FIBER_FUNCTION double min(double a, double b) { return fmin(a, b); }
FIBER_FUNCTION double max(double a, double b) { return fmax(a, b); }
template <class A, class B,
          class C = std::enable_if_t<std::is_integral<A>::value && std::is_integral<B>::value,
                                     std::common_type_t<A, B>>>
constexpr C min(A a, B b)
{
    return (C)a < (C)b ? (C)a : (C)b;
}
template <class A, class B,
          class C = std::enable_if_t<std::is_integral<A>::value && std::is_integral<B>::value,
                                     std::common_type_t<A, B>>>
constexpr C max(A a, B b)
{
    return (C)a > (C)b ? (C)a : (C)b;
}

/* ── the named wrappers of machine.cuh and wgmma.cuh ─────────────────────────── */
#include "fiber_wrappers.h"

#include "fiber_wgmma.h"

#include "fiber_bulk.h"

#endif
