/* The functions of runtime/shared/op_math.h against the C library in double: the worst error in
 * units in the last place over every 61st float there is, all of the special ones, and the same
 * bits whether a loop over them was vectorised or not. Functions that take a shorter way to exp
 * give the bits of the long one. The sigmoid that is computed for BF16 has a bound of its own.
 * Rounding to BF16 by the processor's instruction gives the bits of
 * the portable form, for every subnormal number, NaN and tie and a sample of the others; with
 * LONG=1 for all floats. */
#include "op_math.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

enum { BLOCK = 4096 };

static double sigmoid64(double x) { return 1 / (1 + exp(-x)); }
static double rsqrt64(double x) { return 1 / sqrt(x); }

static void op_sqrt_many_f32(float *x) { OP_EACH(k) x[k] = op_sqrt_f32(x[k]); }
static void op_rsqrt_many_f32(float *x) { OP_EACH(k) x[k] = op_rsqrt_f32(x[k]); }

#define EACH(f)                                                                           \
    f(exp, exp) f(log, log) f(tanh, tanh) f(erf, erf) f(sigmoid, sigmoid64) f(sqrt, sqrt) \
        f(rsqrt, rsqrt64)
_Static_assert(BLOCK % OP_MANY == 0, "whole groups");
#define PAIR(name, truth)                                                               \
    static void wide_##name(float *restrict y, const float *restrict x)                 \
    {                                                                                   \
        for (int j = 0; j < BLOCK; j++) y[j] = op_##name(x[j]);                         \
    }                                                                                   \
    static void many_##name(float *restrict y, const float *restrict x)                 \
    {                                                                                   \
        memcpy(y, x, sizeof *y *BLOCK);                                                 \
        for (int j = 0; j < BLOCK; j += OP_MANY) op_##name##_many_f32(y + j);           \
    }                                                                                   \
    __attribute__((noinline, optimize("no-tree-vectorize"))) static void narrow_##name( \
        float *restrict y, const float *restrict x)                                     \
    {                                                                                   \
        for (int j = 0; j < BLOCK; j++) {                                               \
            y[j] = op_##name(x[j]);                                                     \
            __asm__ volatile("" ::: "memory");                                          \
        }                                                                               \
    }
EACH(PAIR)
#define ROW(name, truth) {#name, wide_##name, many_##name, narrow_##name, truth},
static const struct row {
    const char *name;
    void (*wide)(float *restrict, const float *restrict),
        (*many)(float *restrict, const float *restrict),
        (*narrow)(float *restrict, const float *restrict);
    double (*truth)(double);
} rows[] = {EACH(ROW)};

static double ulps(float got, double want)
{
    if (isnan(want)) return isnan(got) ? 0 : INFINITY;
    float nearest = (float)want;
    if (isinf(nearest) || isinf(got)) return nearest == got ? 0 : INFINITY;
    int exponent;
    frexp(want, &exponent);
    return fabs((double)got - want) / ldexp(1, exponent < -125 ? -149 : exponent - 24);
}

static bool same(const float *a, const float *b)
{
    for (int j = 0; j < BLOCK; j++)
        if (op_to_bits(a[j]) != op_to_bits(b[j]) && !(isnan(a[j]) && isnan(b[j]))) return false;
    return true;
}

static void check(const struct row *r)
{
    static float x[BLOCK], y[BLOCK], z[BLOCK];
    double worst = 0;
    float at = 0;
    bool equal = true;
    uint64_t bits = 0;
    while (bits <= UINT32_MAX) {
        for (int j = 0; j < BLOCK; j++, bits += 61) x[j] = op_from_bits((int32_t)(uint32_t)bits);
        r->wide(y, x);
        r->narrow(z, x);
        equal &= same(y, z);
        r->many(y, x);
        equal &= same(y, z);
        for (int j = 0; j < BLOCK; j++)
            if (ulps(y[j], r->truth((double)x[j])) > worst)
                worst = ulps(y[j], r->truth((double)x[j])), at = x[j];
    }
    const float special[] = {0.0f,   -0.0f,   INFINITY, -INFINITY, NAN,
                             1e-45f, -1e-45f, 3.4e38f,  -3.4e38f,  88.72f,
                             88.73f, -103.9f, -104.1f,  1.0f,      -1.0f};
    for (size_t i = 0; i < sizeof special / sizeof *special; i++) {
        for (int j = 0; j < BLOCK; j++) x[j] = special[i];
        r->wide(y, x);
        if (ulps(y[7], r->truth((double)special[i])) > worst)
            worst = ulps(y[7], r->truth((double)special[i])), at = special[i];
    }
    if (worst < 2.5)
        printf("ok %s.error\nnote %s: worst error %.2f units in the last place, at %g\n", r->name,
               r->name, worst, (double)at);
    else
        printf("FAIL %s.error: %.3g units in the last place at %.9g\n", r->name, worst, (double)at);
    if (equal)
        printf("ok %s.bits\n", r->name);
    else
        printf("FAIL %s.bits: vectors, or many of them, give other bits\n", r->name);
}

/* The shorter ways, written with the general exp. */
static float exp_plain(float x) { return op_exp_f32(x); }
static float tanh_plain(float x)
{
    float z = x * x, p = -0.00551516263f;
    p = fmaf(p, z, 0.0204694185f);
    p = fmaf(p, z, -0.05368802256f);
    p = fmaf(p, z, 0.1333083034f);
    p = fmaf(p, z, -0.3333325985f);
    float small = fmaf(p * z, x, x), size = fabsf(x);
    float large = copysignf(1.0f - 2.0f / (op_exp_f32(2.0f * size) + 1.0f), x);
    return size < 0.65f ? small : large;
}
static float sigmoid_plain(float x)
{
    float e = op_exp_f32(-fabsf(x));
    return (x < 0.0f ? e : 1.0f) / (1.0f + e);
}
static void exp_low(float *restrict y, const float *restrict x)
{
    for (int j = 0; j < BLOCK; j++) y[j] = op_exp_low_f32(x[j]);
}

static void exp_low_many(float *restrict y, const float *restrict x)
{
    memcpy(y, x, sizeof *y * BLOCK);
    for (int j = 0; j < BLOCK; j += OP_MANY) op_exp_low_many_f32(y + j);
}

static void check_short(const char *name, void (*by_short)(float *restrict, const float *restrict),
                        float (*plain)(float), float most)
{
    static float x[BLOCK], y[BLOCK], z[BLOCK];
    bool equal = true;
    uint64_t bits = 0;
    while (bits <= UINT32_MAX) {
        for (int j = 0; j < BLOCK; j++, bits += 101) {
            x[j] = op_from_bits((int32_t)(uint32_t)bits);
            if (x[j] > most) x[j] = most;
            z[j] = plain(x[j]);
        }
        by_short(y, x);
        equal &= same(y, z);
    }
    printf(equal ? "ok %s.short\n" : "FAIL %s.short: other bits than by op_exp_f32\n", name);
}

static void wide_sigmoid_bf16(float *restrict y, const float *restrict x)
{
    for (int j = 0; j < BLOCK; j++) y[j] = op_sigmoid_bf16(x[j]);
}
__attribute__((noinline, optimize("no-tree-vectorize"))) static void narrow_sigmoid_bf16(
    float *restrict y, const float *restrict x)
{
    for (int j = 0; j < BLOCK; j++) {
        y[j] = op_sigmoid_bf16(x[j]);
        __asm__ volatile("" ::: "memory");
    }
}

/* 2^-17 of the result, and 2^-125; every 61st float, with LONG=1 all. */
static void check_sigmoid_bf16(void)
{
    static float x[BLOCK], y[BLOCK], z[BLOCK];
    const uint64_t step = getenv("LONG") ? 1 : 61;
    bool equal = true, within = true;
    double worst = 0;
    for (uint64_t bits = 0; bits <= UINT32_MAX;) {
        for (int j = 0; j < BLOCK; j++, bits += step) x[j] = op_from_bits((int32_t)(uint32_t)bits);
        wide_sigmoid_bf16(y, x);
        narrow_sigmoid_bf16(z, x);
        equal &= same(y, z);
        memcpy(y, x, sizeof y);
        for (int j = 0; j < BLOCK; j += OP_MANY) op_sigmoid_many_bf16(y + j);
        equal &= same(y, z);
        for (int j = 0; j < BLOCK; j++) {
            const double want = sigmoid64((double)x[j]), off = fabs((double)y[j] - want);
            within &= isnan(want) ? isnan(y[j]) : off <= ldexp(want, -17) + ldexp(1, -125);
            if (want > ldexp(1, -100) && off / want > worst) worst = off / want;
        }
    }
    printf(within ? "ok sigmoid_bf16.error\nnote sigmoid_bf16: worst error 2^%.2f of the result\n"
                  : "FAIL sigmoid_bf16.error: worst error 2^%.2f of the result\n",
           log2(worst));
    printf(equal ? "ok sigmoid_bf16.bits\n"
                 : "FAIL sigmoid_bf16.bits: vectors, or many of them, give other bits\n");
}

/* Blocks of floats `step` apart from `from` on, rounded by op_store_bf16(), without the instruction
 * for it, and one by one; widened and stored again they are the same. */
static bool stored_alike(uint64_t from, uint64_t to, uint64_t step)
{
    static float x[BLOCK];
    static bf16 by_row[BLOCK], one[BLOCK];
    for (uint64_t bits = from; bits <= to;) {
        int n = 0;
        for (; n < BLOCK - 5 && bits <= to; n++, bits += step)
            x[n] = op_from_bits((int32_t)(uint32_t)bits);
        op_store_bf16(by_row, x, n);
        for (int j = 0; j < n; j++) one[j] = op_to_bf16(x[j]);
        if (memcmp(by_row, one, sizeof *one * (size_t)n) != 0) return false;
        for (int j = 0; j + OP_LANES <= n; j += OP_LANES) {
            op_f32x16 block;
            op_bf16x16 rounded;
            float wide[OP_LANES];
            memcpy(&block, x + j, sizeof block);
            rounded = op_round_block(block);
            op_load_block(wide, one + j);
            op_store_halves(by_row + j, wide);
            if (memcmp(&rounded, one + j, sizeof rounded) != 0 ||
                memcmp(by_row + j, one + j, sizeof rounded) != 0)
                return false;
        }
        for (int j = 0; j + OP_MANY <= n; j += OP_MANY) {
            float rounded[OP_MANY];
            bf16 halves[OP_MANY];
            memcpy(rounded, x + j, sizeof rounded);
            op_round_many(rounded, by_row + j);
            op_store_halves_many(halves, rounded);
            op_load_many(x + j, one + j);
            if (memcmp(halves, one + j, sizeof halves) != 0 ||
                memcmp(by_row + j, one + j, sizeof halves) != 0 ||
                memcmp(rounded, x + j, sizeof rounded) != 0)
                return false;
        }
    }
    return true;
}

static void check_stores(void)
{
    bool fine = true, all = getenv("LONG") != NULL;
    for (uint64_t sign = 0; sign <= 0x80000000u; sign += 0x80000000u)
        fine &= stored_alike(sign, sign + 0x800000, 1) &&
                stored_alike(sign + 0x7f800000, sign + 0x7fffffff, 13);
    fine &= stored_alike(0x8000, UINT32_MAX, 0x10000) && stored_alike(3, UINT32_MAX, 251);
    if (all) fine &= stored_alike(0, UINT32_MAX, 1);
    printf(fine ? "ok bf16.stored\n" : "FAIL bf16.stored: other bits than one by one\n");
}

static void check_bf16(void)
{
    bool fine = true;
    for (uint64_t b = 0; b <= UINT32_MAX; b += 257) {
        float x = op_from_bits((int32_t)(uint32_t)b), y = op_round_bf16(x);
        if (isnan(x)) {
            fine &= isnan(y);
            continue;
        }
        /* the two neighbours in bf16; the nearer one, of two equally near the even one */
        float low = op_from_bits((int32_t)((uint32_t)b & 0xffff0000u)),
              high = op_from_bits((int32_t)(((uint32_t)b & 0xffff0000u) + 0x10000u));
        double below = fabs((double)x - (double)low),
               above = isinf(high) ? ldexp(1, 120) - below : fabs((double)high - (double)x);
        float want = below < above              ? low
                     : above < below            ? high
                     : ((uint32_t)b & 0x10000u) ? high
                                                : low;
        fine &= isinf(x) ? y == x : y == want;
    }
    printf(fine ? "ok bf16.rounding\n" : "FAIL bf16.rounding: not to nearest even\n");
}

int main(void)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) check(&rows[i]);
    check_short("exp", exp_low, exp_plain, 43.0f);
    check_short("exp_many", exp_low_many, exp_plain, 43.0f);
    check_short("tanh", wide_tanh, tanh_plain, INFINITY);
    check_short("sigmoid", wide_sigmoid, sigmoid_plain, INFINITY);
    check_sigmoid_bf16();
    check_bf16();
    check_stores();
    bool keeps = isnan(op_min_f32(NAN, 1)) && isnan(op_min_f32(1, NAN)) &&
                 isnan(op_max_f32(NAN, 1)) && isnan(op_max_f32(1, NAN));
    printf(keeps ? "ok min_max.nan\n" : "FAIL min_max.nan: lost\n");
    printf(op_finite_f32(1e38f) == 1 && op_finite_f32(INFINITY) == 0 && op_finite_f32(NAN) == 0
               ? "ok finite\n"
               : "FAIL finite: wrong\n");
    return 0;
}
