/* The functions of runtime/shared/op_math.h against the C library in double: the worst error in
 * units in the last place over every 61st float there is, all of the special ones, and the same
 * bits whether a loop over them was vectorised or not. */
#include "op_math.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

enum { BLOCK = 4096 };

static double sigmoid64(double x) { return 1 / (1 + exp(-x)); }
static double rsqrt64(double x) { return 1 / sqrt(x); }

#define EACH(f)                                                                           \
    f(exp, exp) f(log, log) f(tanh, tanh) f(erf, erf) f(sigmoid, sigmoid64) f(sqrt, sqrt) \
        f(rsqrt, rsqrt64)
#define PAIR(name, truth)                                                               \
    static void wide_##name(float *restrict y, const float *restrict x)                 \
    {                                                                                   \
        for (int j = 0; j < BLOCK; j++) y[j] = op_##name(x[j]);                         \
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
#define ROW(name, truth) {#name, wide_##name, narrow_##name, truth},
static const struct row {
    const char *name;
    void (*wide)(float *restrict, const float *restrict),
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
        printf("FAIL %s.bits: a vectorised loop gives other bits\n", r->name);
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
    check_bf16();
    bool keeps = isnan(op_min_f32(NAN, 1)) && isnan(op_min_f32(1, NAN)) &&
                 isnan(op_max_f32(NAN, 1)) && isnan(op_max_f32(1, NAN));
    printf(keeps ? "ok min_max.nan\n" : "FAIL min_max.nan: lost\n");
    printf(op_finite_f32(1e38f) == 1 && op_finite_f32(INFINITY) == 0 && op_finite_f32(NAN) == 0
               ? "ok finite\n"
               : "FAIL finite: wrong\n");
    return 0;
}
