/* A body for every named wrapper of templates/cuda/machine.cuh: the instructions that have no C.
 * Tensor-core products are exact products summed in F32 in the order of k; a real machine sums in
 * an order and a width of its own, so tests compare within a bound, never to the bit. Copies that
 * are under way land at once or when they are waited for, as the block has drawn: the latter shows
 * a wait that is missing, the former a copy that starts while others still read its place. */
#ifndef FIBER_WRAPPERS_H
#define FIBER_WRAPPERS_H

#include <time.h>

#include "fiber_block.h"

FIBER_FUNCTION uint64_t device_nanoseconds()
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Blocks run one after the other: who looks for long waits for a block that has not begun, which a
 * device need not begin either. */
FIBER_FUNCTION int signal_look(const int *at, FIBER_HERE)
{
    static const int *last;
    static uint32_t launch;
    static int looks;
    looks = last == at && launch == fiber_m.launch ? looks + 1 : 0;
    last = at, launch = fiber_m.launch;
    if (looks > 1 << 16) {
        fiber_report("thread %d waits for a block that has not begun (%s:%d)", fiber_m.current,
                     file, line);
        fiber_fail_now();
    }
    fiber_race_look(at);
    return *(const volatile int *)at;
}
FIBER_FUNCTION void signal_give(int *at, int value)
{
    fiber_race_give(at);
    *(volatile int *)at = value;
}
FIBER_FUNCTION void signal_fence() { fiber_race_fence(); }
FIBER_FUNCTION float2 load_latest(const float *from)
{
    fiber_race_access(from, 8, false, __builtin_return_address(0));
    return make_float2(from[0], from[1]);
}

/* In the window of shared memory; no multiple of 1,024 where dynamic shared memory begins. */
FIBER_FUNCTION uint32_t shared_address(const void *shared)
{
    return (uint32_t)((const unsigned char *)shared - fiber_dynamic) + FIBER_WINDOW;
}

FIBER_FUNCTION void copy_async_16(void *shared, const void *global, bool valid, FIBER_HERE)
{
    fiber_thread *t = &fiber_m.thread[fiber_m.current];
    if (((uintptr_t)shared | (uintptr_t)global) & 15) {
        fiber_report("thread %d copies from or to an address that is no multiple of 16 (%s:%d)",
                     fiber_m.current, file, line);
        fiber_fail_now();
    }
    if (t->copies == t->copies_kept) {
        t->copies_kept = t->copies_kept ? 2 * t->copies_kept : 32;
        t->copy = (fiber_copy *)realloc(t->copy, sizeof *t->copy * (size_t)t->copies_kept);
        if (!t->copy) abort();
    }
    fiber_race_access(shared, 16, true, __builtin_return_address(0));
    if (valid) fiber_race_access(global, 16, false, __builtin_return_address(0));
    t->copy[t->copies++] = {shared, global, valid};
    if (fiber_m.copy_early) fiber_copy_now(&t->copy[t->copies - 1]);
}
FIBER_FUNCTION void copy_async_commit(FIBER_HERE)
{
    fiber_thread *t = &fiber_m.thread[fiber_m.current];
    int committed = 0;
    for (int i = 0; i < t->groups; i++) committed += t->group[i];
    if (t->groups == (int)(sizeof t->group / sizeof *t->group)) {
        fiber_report("thread %d has %d groups of copies under way (%s:%d)", fiber_m.current,
                     t->groups, file, line);
        fiber_fail_now();
    }
    t->group[t->groups++] = t->copies - committed;
}
template <int behind> FIBER_FUNCTION void copy_async_wait()
{
    fiber_thread *t = &fiber_m.thread[fiber_m.current];
    if (t->groups > behind) fiber_copies_land(t, t->groups - behind);
}

/* Lane t reads element [row t / 4][2 (t % 4)] and the next of each matrix; transposed, [2 (t %
 * 4)][row t / 4] and the one below. */
struct fiber_rows {
    const unsigned char *row;
    uint32_t to[4];
};
FIBER_FUNCTION void fiber_spread_rows(unsigned char (*all)[64], bool transposed)
{
    for (int t = 0; t < 32; t++)
        for (int i = 0; i < 4; i++) {
            uint16_t element[2];
            for (int e = 0; e < 2; e++) {
                int row = transposed ? 2 * (t % 4) + e : t / 4,
                    column = transposed ? t / 4 : 2 * (t % 4) + e;
                memcpy(&element[e], ((const fiber_rows *)all[8 * i + row])->row + 2 * column, 2);
            }
            ((fiber_rows *)all[t])->to[i] = (uint32_t)element[1] << 16 | element[0];
        }
}
FIBER_FUNCTION void fiber_load_matrices(uint32_t to[4], const void *shared, bool transposed,
                                        const fiber_place &place)
{
    fiber_rows mine = {(const unsigned char *)shared, {}};
    if ((uintptr_t)shared & 15) {
        fiber_report("thread %d at %s (%s:%d) has an address that is no multiple of 16",
                     fiber_m.current, place.what, place.file, place.line);
        fiber_fail_now();
    }
    fiber_race_access(shared, 16, false, __builtin_return_address(0));
    unsigned char(*slot)[64] =
        fiber_meet(0xffffffffu, place, &mine, sizeof mine, 0,
                   [=](unsigned char(*all)[64], uint32_t) { fiber_spread_rows(all, transposed); });
    memcpy(to, ((const fiber_rows *)slot[fiber_m.current & 31])->to, 16);
}
FIBER_FUNCTION void load_matrix_4(uint32_t to[4], const void *shared, FIBER_HERE)
{
    fiber_load_matrices(to, shared, false, {"load_matrix_4", file, line});
}
FIBER_FUNCTION void load_matrix_4_transposed(uint32_t to[4], const void *shared, FIBER_HERE)
{
    fiber_load_matrices(to, shared, true, {"load_matrix_4_transposed", file, line});
}

FIBER_FUNCTION float fiber_low(uint32_t both)
{
    uint32_t bits = both << 16;
    float x;
    memcpy(&x, &bits, 4);
    return x;
}
FIBER_FUNCTION float fiber_high(uint32_t both)
{
    uint32_t bits = both & 0xffff0000u;
    float x;
    memcpy(&x, &bits, 4);
    return x;
}
typedef float fiber_row8 __attribute__((vector_size(32)));
struct fiber_fragment {
    uint32_t a[4], b[2];
    float d[4];
};
FIBER_FUNCTION void fiber_mma(unsigned char (*all)[64])
{
    float a[16][16];
    fiber_row8 b[16], d[16];
    for (int t = 0; t < 32; t++) {
        const fiber_fragment *f = (const fiber_fragment *)all[t];
        int g = t / 4, k = 2 * (t % 4);
        for (int i = 0; i < 4; i++) {
            int row = g + (i & 1) * 8, column = k + (i >> 1) * 8;
            a[row][column] = fiber_low(f->a[i]), a[row][column + 1] = fiber_high(f->a[i]);
            d[g + (i >> 1) * 8][k + (i & 1)] = f->d[i];
        }
        for (int i = 0; i < 2; i++)
            b[k + 8 * i][g] = fiber_low(f->b[i]), b[k + 8 * i + 1][g] = fiber_high(f->b[i]);
    }
    for (int m = 0; m < 16; m++)
        for (int k = 0; k < 16; k++) d[m] += a[m][k] * b[k];
    for (int t = 0; t < 32; t++)
        for (int i = 0; i < 4; i++)
            ((fiber_fragment *)all[t])->d[i] = d[t / 4 + (i >> 1) * 8][2 * (t % 4) + (i & 1)];
}
FIBER_FUNCTION void mma_16816_bf16(float d[4], const uint32_t a[4], const uint32_t b[2], FIBER_HERE)
{
    fiber_fragment mine;
    memcpy(mine.a, a, 16), memcpy(mine.b, b, 8), memcpy(mine.d, d, 16);
    unsigned char(*slot)[64] =
        fiber_meet(0xffffffffu, {"mma_16816_bf16", file, line}, &mine, sizeof mine, 0,
                   [](unsigned char(*all)[64], uint32_t) { fiber_mma(all); });
    memcpy(d, ((const fiber_fragment *)slot[fiber_m.current & 31])->d, 16);
}

FIBER_FUNCTION uint32_t fiber_bf16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, 4);
    return x != x ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
FIBER_FUNCTION uint32_t pack_bf16(float low, float high)
{
    return fiber_bf16(high) << 16 | fiber_bf16(low);
}
FIBER_FUNCTION float exp2_fast(float x)
{
    float y = exp2f(x);
    return y < 1.17549435e-38f ? 0.0f : y; /* subnormal results are 0 there */
}
FIBER_FUNCTION float reciprocal_fast(float x)
{
    float y = 1.0f / x;
    return y > -1.17549435e-38f && y < 1.17549435e-38f ? 0.0f : y;
}

#endif
