/* The arithmetic of generated kernels: one inline function for every scalar operation of the IR
 * that C has no operator for. They are ours, and not the C library's, for two reasons. A loop over
 * them vectorises: no branches, no tables, no errno. And they give the same bits whether the
 * compiler vectorised a loop or not, at whatever width, and on every device, because every rounding
 * is spelled out: multiply-adds that are meant to be fused say fmaf, and the kernels are compiled
 * with -ffp-contract=off or --fmad=false so that no other is. Errors, against the exact value, are
 * below 2.5 units in the last place over all finite inputs (tests/kernels measures them), but for
 * op_sigmoid_bf16(); infinities, NaN, signed zeros and subnormal results come out as IEEE 754 asks.
 * Coefficients are minimax fits (Remez exchange) for the reduced ranges named beside them. Double
 * precision appears only in the few scalars of the gradient norm; there the C library serves. The
 * text is C, C++17 and CUDA: under NVRTC, which has no headers, machine.cuh is included before
 * it. */
#ifndef OP_MATH_H
#define OP_MATH_H

#ifdef DEVICE
#define OP_FUNCTION DEVICE
#else
#define OP_FUNCTION static inline
#endif

#ifdef __CUDACC_RTC__ /* knows the functions of math.h and string.h by itself */
#define INFINITY __int_as_float(0x7f800000)
#define NAN __int_as_float(0x7fc00000)
#else
#include <math.h>
#include <stdint.h>
#include <string.h>
#endif

OP_FUNCTION float op_from_bits(int32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
OP_FUNCTION int32_t op_to_bits(float x)
{
    int32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* NaN in either operand is kept. Written so that a running maximum in `a` waits for one
 * instruction, not for three. */
#ifdef __CUDACC_RTC__
OP_FUNCTION float op_min_f32(float a, float b) { return min_or_nan(a, b); }
OP_FUNCTION float op_max_f32(float a, float b) { return max_or_nan(a, b); }
#else
OP_FUNCTION float op_min_f32(float a, float b)
{
    float least = b < a ? b : a;
    return b != b ? b : least;
}
OP_FUNCTION float op_max_f32(float a, float b)
{
    float most = b > a ? b : a;
    return b != b ? b : most;
}
#endif
OP_FUNCTION double op_min_f64(double a, double b)
{
    double least = b < a ? b : a;
    return b != b ? b : least;
}
OP_FUNCTION double op_max_f64(double a, double b)
{
    double most = b > a ? b : a;
    return b != b ? b : most;
}

OP_FUNCTION float op_finite_f32(float a) { return a - a == 0.0f ? 1.0f : 0.0f; }
OP_FUNCTION double op_finite_f64(double a) { return a - a == 0.0 ? 1.0 : 0.0; }

OP_FUNCTION float op_sqrt_f32(float a) { return sqrtf(a); }
OP_FUNCTION double op_sqrt_f64(double a) { return sqrt(a); }
OP_FUNCTION float op_rsqrt_f32(float a) { return 1.0f / sqrtf(a); }
OP_FUNCTION double op_rsqrt_f64(double a) { return 1.0 / sqrt(a); }

/* exp: x = n ln 2 + r with |r| <= ln 2 / 2; exp(r) = 1 + r + r^2 P(r), error 3.3e-9; this is the
 * second factor. */
#define OP_LN_2_HIGH 0.693145752f
#define OP_LN_2_LOW 1.42860677e-6f
#define OP_EXP_6 0.001381314232f /* the coefficient of r^6 */
#define OP_EXP_5 0.008369418795f
#define OP_EXP_4 0.04166845682f
#define OP_EXP_3 0.1666651479f
#define OP_EXP_2 0.4999999305f
OP_FUNCTION float op_exp_rest_f32(float x, float n)
{
    float r = fmaf(n, -OP_LN_2_HIGH, x);
    r = fmaf(n, -OP_LN_2_LOW, r);
    float p = OP_EXP_6;
    p = fmaf(p, r, OP_EXP_5);
    p = fmaf(p, r, OP_EXP_4);
    p = fmaf(p, r, OP_EXP_3);
    p = fmaf(p, r, OP_EXP_2);
    return fmaf(r * r, p, r) + 1.0f;
}
/* 2^n goes in as two factors, so that results down to the smallest subnormal are rounded once. */
OP_FUNCTION float op_exp_f32(float x)
{
    float y = op_min_f32(op_max_f32(x, -104.0f), 89.0f);
    /* the last bits of `shifted` are n */
    float shifted = fmaf(y, 1.44269504f, 12582912.0f),
          p = op_exp_rest_f32(y, shifted - 12582912.0f);
    /* of a NaN: anything, times NaN */
    int32_t whole = (int32_t)((uint32_t)op_to_bits(shifted) - 0x4b400000u), half = whole >> 1;
    return p * op_from_bits((int32_t)((uint32_t)(half + 127) << 23)) *
           op_from_bits((int32_t)((uint32_t)(whole - half + 127) << 23));
}
OP_FUNCTION double op_exp_f64(double x) { return exp(x); }
/* For x from -104 to 43, in fewer instructions: exp(x) 2^63, whose first factor 2^(n + 63) is a
 * shift of what `shifted` holds. It is exact, so that OP_2_TO_MINUS_63 times it, in a product or in
 * a multiply-add, rounds as op_exp_f32() does. */
#define OP_2_TO_MINUS_63 1.08420217e-19f
OP_FUNCTION float op_exp_63_f32(float x)
{
    float shifted = fmaf(x, 1.44269504f, 12583102.0f),
          first = op_from_bits((int32_t)((uint32_t)op_to_bits(shifted) << 23));
    return op_exp_rest_f32(x, shifted - 12583102.0f) * first;
}
/* The bits of op_exp_f32() for x up to 43. */
OP_FUNCTION float op_exp_low_f32(float x)
{
    return op_exp_63_f32(op_max_f32(x, -104.0f)) * OP_2_TO_MINUS_63;
}

/* log: x = m 2^e with sqrt(1/2) <= m < sqrt(2), f = m - 1; log(1 + f) = f - f^2 / 2 + f^3 P(f),
 * error 7.5e-10. */
OP_FUNCTION float op_log_f32(float x)
{
    float scaled = x < 1.17549435e-38f ? x * 8388608.0f : x,
          under = x < 1.17549435e-38f ? -23.0f : 0.0f;
    int32_t bits = op_to_bits(scaled), above = (int32_t)((uint32_t)bits - 0x3f3504f3u) >> 23;
    float e = (float)above + under,
          f = op_from_bits((int32_t)((uint32_t)bits - ((uint32_t)above << 23))) - 1.0f;
    float p = 0.06746602805f;
    p = fmaf(p, f, -0.1167560422f);
    p = fmaf(p, f, 0.1188815361f);
    p = fmaf(p, f, -0.1240559651f);
    p = fmaf(p, f, 0.1421955458f);
    p = fmaf(p, f, -0.166679955f);
    p = fmaf(p, f, 0.2000211854f);
    p = fmaf(p, f, -0.250000096f);
    p = fmaf(p, f, 0.3333331261f);
    float square = f * f, tail = fmaf(p, f, -0.5f) * square;
    tail = fmaf(e, -2.12194440e-4f, tail);
    float y = fmaf(e, 0.693359375f, f + tail);
    y = x == 0.0f ? -INFINITY : y;
    y = x < 0.0f ? NAN : y;
    return x - x == 0.0f ? y : x < 0.0f ? NAN : x;
}
OP_FUNCTION double op_log_f64(double x) { return log(x); }

/* tanh: x + x^3 P(x^2) below 0.65 (error 6.8e-9), 1 - 2 / (exp(2|x|) + 1) above. */
#define OP_TANH_11 -0.00551516263f /* the coefficient of x^11 */
#define OP_TANH_9 0.0204694185f
#define OP_TANH_7 -0.05368802256f
#define OP_TANH_5 0.1333083034f
#define OP_TANH_3 -0.3333325985f
#define OP_TANH_SMALL 0.65f
OP_FUNCTION float op_tanh_f32(float x)
{
    float z = x * x, p = OP_TANH_11;
    p = fmaf(p, z, OP_TANH_9);
    p = fmaf(p, z, OP_TANH_7);
    p = fmaf(p, z, OP_TANH_5);
    p = fmaf(p, z, OP_TANH_3);
    float small = fmaf(p * z, x, x), size = fabsf(x);
    float above = fmaf(op_exp_63_f32(op_min_f32(2.0f * size, 43.0f)), OP_2_TO_MINUS_63, 1.0f),
          large = copysignf(1.0f - 2.0f / above, x);
    return size < OP_TANH_SMALL ? small : large;
}
OP_FUNCTION double op_tanh_f64(double x) { return tanh(x); }

/* erf: x + x P(x^2) below 1 (error 1.2e-9), 1 - exp(Q(|x|)) above, Q = log erfc on 0.95..4. */
OP_FUNCTION float op_erf_f32(float x)
{
    float z = x * x, p = 7.853862657e-5f;
    p = fmaf(p, z, -0.0008010194033f);
    p = fmaf(p, z, 0.005188327733f);
    p = fmaf(p, z, -0.02685381196f);
    p = fmaf(p, z, 0.1128358515f);
    p = fmaf(p, z, -0.3761262582f);
    p = fmaf(p, z, 0.1283791657f);
    float small = fmaf(p, x, x), size = fabsf(x), t = size > 4.0f ? 4.0f : size;
    float q = -2.144556108e-5f;
    q = fmaf(q, t, 0.0004385298821f);
    q = fmaf(q, t, -0.004190855498f);
    q = fmaf(q, t, 0.02517180803f);
    q = fmaf(q, t, -0.1083615514f);
    q = fmaf(q, t, -0.6332724147f);
    q = fmaf(q, t, -1.129552041f);
    q = fmaf(q, t, 0.0001824600781f);
    float large = copysignf(1.0f - op_exp_63_f32(q) * OP_2_TO_MINUS_63, x);
    return size < 1.0f ? small : large;
}
OP_FUNCTION double op_erf_f64(double x) { return erf(x); }

/* 1 / (1 + exp(-x)), by the side on which exp does not overflow. A divisor of 1 to 2 needs none of
 * the care that a division takes elsewhere: a reciprocal made exact once and a quotient corrected
 * once give the same bits, except for the last bit of results below 2^-100 and where |x| is 1e-7.
 */
OP_FUNCTION float op_sigmoid_f32(float x)
{
    float e = op_exp_low_f32(-fabsf(x)), over = x < 0.0f ? e : 1.0f, under = 1.0f + e;
#ifdef __CUDACC_RTC__
    float inverse = reciprocal_fast(under);
    inverse = fmaf(fmaf(-under, inverse, 1.0f), inverse, inverse);
    float quotient = over * inverse;
    return fmaf(fmaf(-under, quotient, over), inverse, quotient);
#else
    return over / under;
#endif
}
OP_FUNCTION double op_sigmoid_f64(double x) { return 1.0 / (1.0 + exp(-x)); }

/* The same where the result is only rounded to BF16: off by at most 2^-17 of it down to 2^-120, and
 * nowhere by more than 2^-125 besides. 1 / (1 + 2^t), 2^t by a polynomial of degree 4 (error
 * 2.6e-6), t held where 2^t neither overflows nor is subnormal. A reciprocal corrected twice is the
 * quotient, but for the last bit of it where all bits of the divisor's fraction are set. */
#define OP_HALF_LOG2 -1.44269504f /* -1 / ln 2 */
#define OP_HALF_SHIFT 12583039.0f /* the last bits of a sum with it are n + 127 */
#define OP_HALF_MOST 87.0f
#define OP_HALF_4 0.009570102015f
#define OP_HALF_3 0.05591786031f
#define OP_HALF_2 0.2402474482f
#define OP_HALF_1 0.6931218147f
#define OP_HALF_0 0.9999992614f
OP_FUNCTION float op_sigmoid_bf16(float x)
{
    float y = OP_HALF_MOST < x ? OP_HALF_MOST : x;
    y = -OP_HALF_MOST > y ? -OP_HALF_MOST : y;
    float shifted = fmaf(y, OP_HALF_LOG2, OP_HALF_SHIFT);
    float r = fmaf(y, OP_HALF_LOG2, -(shifted - OP_HALF_SHIFT)), p = OP_HALF_4;
    p = fmaf(p, r, OP_HALF_3);
    p = fmaf(p, r, OP_HALF_2);
    p = fmaf(p, r, OP_HALF_1);
    p = fmaf(p, r, OP_HALF_0);
    float under = fmaf(p, op_from_bits((int32_t)((uint32_t)op_to_bits(shifted) << 23)), 1.0f);
#ifdef __CUDACC_RTC__
    float inverse = reciprocal_fast(under);
    inverse = fmaf(fmaf(-under, inverse, 1.0f), inverse, inverse);
    return fmaf(fmaf(-under, inverse, 1.0f), inverse, inverse);
#else
    return 1.0f / under;
#endif
}

/* By the operands' type; of two, double when either is. */
#ifdef __cplusplus
#define OP_EITHER(name)                                                 \
    OP_FUNCTION float op_##name(float a) { return op_##name##_f32(a); } \
    OP_FUNCTION double op_##name(double a) { return op_##name##_f64(a); }
#define OP_EITHER_OF_TWO(name)                                                         \
    OP_FUNCTION float op_##name(float a, float b) { return op_##name##_f32(a, b); }    \
    OP_FUNCTION double op_##name(double a, double b) { return op_##name##_f64(a, b); } \
    OP_FUNCTION double op_##name(float a, double b) { return op_##name##_f64(a, b); }  \
    OP_FUNCTION double op_##name(double a, float b) { return op_##name##_f64(a, b); }
// clang-format off: it joins these lines
OP_EITHER(exp)
OP_EITHER(log)
OP_EITHER(tanh)
OP_EITHER(erf)
OP_EITHER(sigmoid)
OP_EITHER(sqrt)
OP_EITHER(rsqrt)
OP_EITHER(finite)
OP_EITHER_OF_TWO(min)
OP_EITHER_OF_TWO(max)
// clang-format on
#else
#define OP_EITHER(name, a) _Generic((a), double : op_##name##_f64, default : op_##name##_f32)
#define op_exp(a) OP_EITHER(exp, a)(a)
#define op_log(a) OP_EITHER(log, a)(a)
#define op_tanh(a) OP_EITHER(tanh, a)(a)
#define op_erf(a) OP_EITHER(erf, a)(a)
#define op_sigmoid(a) OP_EITHER(sigmoid, a)(a)
#define op_sqrt(a) OP_EITHER(sqrt, a)(a)
#define op_rsqrt(a) OP_EITHER(rsqrt, a)(a)
#define op_finite(a) OP_EITHER(finite, a)(a)
#define op_min(a, b) OP_EITHER(min, (a) + (b))(a, b)
#define op_max(a, b) OP_EITHER(max, (a) + (b))(a, b)
#endif

/* bf16: the upper half of a float. Rounding is to nearest, ties to even; a NaN stays one. */
typedef uint16_t bf16;
OP_FUNCTION float op_from_bf16(bf16 x) { return op_from_bits((int32_t)((uint32_t)x << 16)); }
OP_FUNCTION uint32_t op_bf16_bits(float x)
{
#ifdef __CUDACC_RTC__ /* one instruction; another NaN */
    return pack_bf16(0.0f, x);
#else
    uint32_t bits = (uint32_t)op_to_bits(x), odd = (bits >> 16) & 1;
    return (x == x ? bits + 0x7fff + odd : bits | 0x400000) & 0xffff0000;
#endif
}
OP_FUNCTION bf16 op_to_bf16(float x) { return (bf16)(op_bf16_bits(x) >> 16); }
/* A float as it comes back from being stored in bf16, and the half to store of one that came
 * through here. */
OP_FUNCTION float op_round_bf16(float x) { return op_from_bits((int32_t)op_bf16_bits(x)); }
OP_FUNCTION bf16 op_half(float rounded) { return (bf16)((uint32_t)op_to_bits(rounded) >> 16); }

#ifndef __cplusplus
#define OP_LANES 16
typedef float op_f32x16 __attribute__((vector_size(64)));
typedef uint32_t op_u32x16 __attribute__((vector_size(64)));
typedef bf16 op_bf16x16 __attribute__((vector_size(32)));

/* Eight vectors of numbers, worked on step by step together: the processor has others to work on
 * while one waits for its last step, and the compiler, given one loop, does not interleave them. A
 * function of x[OP_MANY] does in its place what the function of one number does, by the same
 * operations. */
#define OP_MANY (8 * OP_LANES)
#define OP_EACH(k)                                                                        \
    _Pragma("GCC unroll 8") for (int vector_ = 0; vector_ < OP_MANY; vector_ += OP_LANES) \
        _Pragma("omp simd") for (int k = vector_; k < vector_ + OP_LANES; k++)
#define OP_MANY_FUNCTION __attribute__((always_inline)) OP_FUNCTION

OP_MANY_FUNCTION void op_exp_63_many_f32(float *restrict x)
{
    float shifted[OP_MANY], whole[OP_MANY], r[OP_MANY], p[OP_MANY];
    OP_EACH(k) shifted[k] = fmaf(x[k], 1.44269504f, 12583102.0f);
    OP_EACH(k) whole[k] = shifted[k] - 12583102.0f;
    OP_EACH(k) r[k] = fmaf(whole[k], -OP_LN_2_HIGH, x[k]);
    OP_EACH(k) r[k] = fmaf(whole[k], -OP_LN_2_LOW, r[k]);
    OP_EACH(k) p[k] = fmaf(OP_EXP_6, r[k], OP_EXP_5);
    OP_EACH(k) p[k] = fmaf(p[k], r[k], OP_EXP_4);
    OP_EACH(k) p[k] = fmaf(p[k], r[k], OP_EXP_3);
    OP_EACH(k) p[k] = fmaf(p[k], r[k], OP_EXP_2);
    OP_EACH(k) p[k] = fmaf(r[k] * r[k], p[k], r[k]) + 1.0f;
    OP_EACH(k) x[k] = p[k] * op_from_bits((int32_t)((uint32_t)op_to_bits(shifted[k]) << 23));
}
OP_MANY_FUNCTION void op_exp_low_many_f32(float *restrict x)
{
    OP_EACH(k) x[k] = op_max_f32(x[k], -104.0f);
    op_exp_63_many_f32(x);
    OP_EACH(k) x[k] *= OP_2_TO_MINUS_63;
}

OP_MANY_FUNCTION void op_sigmoid_many_f32(float *restrict x)
{
    float e[OP_MANY];
    OP_EACH(k) e[k] = -fabsf(x[k]);
    op_exp_low_many_f32(e);
    OP_EACH(k) x[k] = (x[k] < 0.0f ? e[k] : 1.0f) / (1.0f + e[k]);
}
/* x held between -most and most; a NaN stays one. */
OP_MANY_FUNCTION void op_hold_many(float *restrict x, float most)
{
#ifdef __AVX512F__ /* GCC would compare and blend */
    const op_f32x16 high = most - (op_f32x16){0}, low = -high;
#pragma GCC unroll 8
    for (int i = 0; i < OP_MANY; i += OP_LANES) {
        op_f32x16 block;
        memcpy(&block, x + i, sizeof block);
        __asm__("vminps %1, %2, %0" : "=v"(block) : "v"(block), "v"(high));
        __asm__("vmaxps %1, %2, %0" : "=v"(block) : "v"(block), "v"(low));
        memcpy(x + i, &block, sizeof block);
    }
#else
    OP_EACH(k) x[k] = most < x[k] ? most : x[k];
    OP_EACH(k) x[k] = -most > x[k] ? -most : x[k];
#endif
}
OP_MANY_FUNCTION void op_sigmoid_many_bf16(float *restrict x)
{
    float shifted[OP_MANY], whole[OP_MANY], r[OP_MANY], p[OP_MANY];
    op_hold_many(x, OP_HALF_MOST);
    OP_EACH(k) shifted[k] = fmaf(x[k], OP_HALF_LOG2, OP_HALF_SHIFT);
    OP_EACH(k) whole[k] = shifted[k] - OP_HALF_SHIFT;
    OP_EACH(k) r[k] = fmaf(x[k], OP_HALF_LOG2, -whole[k]);
    OP_EACH(k) p[k] = fmaf(OP_HALF_4, r[k], OP_HALF_3);
    OP_EACH(k) p[k] = fmaf(p[k], r[k], OP_HALF_2);
    OP_EACH(k) p[k] = fmaf(p[k], r[k], OP_HALF_1);
    OP_EACH(k) p[k] = fmaf(p[k], r[k], OP_HALF_0);
    OP_EACH(k)
    p[k] = fmaf(p[k], op_from_bits((int32_t)((uint32_t)op_to_bits(shifted[k]) << 23)), 1.0f);
    OP_EACH(k) x[k] = 1.0f / p[k];
}
OP_MANY_FUNCTION void op_tanh_many_f32(float *restrict x)
{
    float above[OP_MANY], z[OP_MANY], p[OP_MANY];
    OP_EACH(k) above[k] = op_min_f32(2.0f * fabsf(x[k]), 43.0f);
    op_exp_63_many_f32(above);
    OP_EACH(k) above[k] = fmaf(above[k], OP_2_TO_MINUS_63, 1.0f);
    OP_EACH(k) above[k] = copysignf(1.0f - 2.0f / above[k], x[k]);
    OP_EACH(k) z[k] = x[k] * x[k];
    OP_EACH(k) p[k] = fmaf(OP_TANH_11, z[k], OP_TANH_9);
    OP_EACH(k) p[k] = fmaf(p[k], z[k], OP_TANH_7);
    OP_EACH(k) p[k] = fmaf(p[k], z[k], OP_TANH_5);
    OP_EACH(k) p[k] = fmaf(p[k], z[k], OP_TANH_3);
    OP_EACH(k) p[k] = fmaf(p[k] * z[k], x[k], x[k]);
    OP_EACH(k) x[k] = fabsf(x[k]) < OP_TANH_SMALL ? p[k] : above[k];
}
OP_MANY_FUNCTION void op_exp_many_f32(float *restrict x)
{
    float shifted[OP_MANY], whole[OP_MANY], r[OP_MANY], p[OP_MANY];
    OP_EACH(k) x[k] = op_min_f32(op_max_f32(x[k], -104.0f), 89.0f);
    OP_EACH(k) shifted[k] = fmaf(x[k], 1.44269504f, 12582912.0f);
    OP_EACH(k) whole[k] = shifted[k] - 12582912.0f;
    OP_EACH(k) r[k] = fmaf(whole[k], -OP_LN_2_HIGH, x[k]);
    OP_EACH(k) r[k] = fmaf(whole[k], -OP_LN_2_LOW, r[k]);
    OP_EACH(k) p[k] = fmaf(OP_EXP_6, r[k], OP_EXP_5);
    OP_EACH(k) p[k] = fmaf(p[k], r[k], OP_EXP_4);
    OP_EACH(k) p[k] = fmaf(p[k], r[k], OP_EXP_3);
    OP_EACH(k) p[k] = fmaf(p[k], r[k], OP_EXP_2);
    OP_EACH(k) p[k] = fmaf(r[k] * r[k], p[k], r[k]) + 1.0f;
    OP_EACH(k)
    {
        int32_t n = (int32_t)((uint32_t)op_to_bits(shifted[k]) - 0x4b400000u), half = n >> 1;
        x[k] = p[k] * op_from_bits((int32_t)((uint32_t)(half + 127) << 23)) *
               op_from_bits((int32_t)((uint32_t)(n - half + 127) << 23));
    }
}
OP_MANY_FUNCTION void op_log_many_f32(float *restrict x) { OP_EACH(k) x[k] = op_log_f32(x[k]); }
OP_MANY_FUNCTION void op_erf_many_f32(float *restrict x) { OP_EACH(k) x[k] = op_erf_f32(x[k]); }

/* OP_LANES numbers at a time. Vectors of such a type are the same on every processor; the compiler
 * cuts them into what it has. */
OP_FUNCTION void op_load_block(float *restrict to, const bf16 *restrict from)
{
    op_bf16x16 x;
    op_u32x16 y;
    memcpy(&x, from, sizeof x);
#ifdef __AVX512F__ /* GCC would widen it in two halves */
    __asm__("vpmovzxwd %1, %0" : "=v"(y) : "vm"(x));
    y <<= 16;
#else
    y = __builtin_convertvector(x, op_u32x16) << 16;
#endif
    memcpy(to, &y, sizeof y);
}
/* Of numbers that are rounded already. */
OP_FUNCTION void op_store_halves(bf16 *restrict to, const float *restrict from)
{
    op_u32x16 x;
    memcpy(&x, from, sizeof x);
    op_bf16x16 y = __builtin_convertvector(x >> 16, op_bf16x16);
    memcpy(to, &y, sizeof y);
}
OP_FUNCTION op_bf16x16 op_round_block(op_f32x16 x)
{
    op_u32x16 bits = (op_u32x16)x, even = bits + 0x7fff + (bits >> 16 & 1),
              number = (op_u32x16)(x == x);
    return __builtin_convertvector(((even & number) | ((bits | 0x400000) & ~number)) >> 16,
                                   op_bf16x16);
}
/* VCVTNEPS2BF16 rounds as op_to_bf16() does, except that it takes subnormal numbers as zero:
 * sixteen among which there is one are rounded without it. */
OP_FUNCTION void op_store_block(bf16 *restrict to, const float *restrict from)
{
    op_f32x16 x;
    op_bf16x16 y;
    memcpy(&x, from, sizeof x);
#ifdef __AVX512BF16__
    _Bool subnormal;
    __asm__("vfpclassps $0x20, %2, %%k1\n\tkortestw %%k1, %%k1\n\tvcvtneps2bf16 %2, %1"
            : "=@ccnz"(subnormal), "=v"(y)
            : "v"(x)
            : "k1");
    if (__builtin_expect(subnormal, 0)) y = op_round_block(x);
#else
    y = op_round_block(x);
#endif
    memcpy(to, &y, sizeof y);
}
/* OP_MANY numbers: as floats; rounded in their place, and as the halves to store. */
OP_MANY_FUNCTION void op_load_many(float *restrict to, const bf16 *restrict from)
{
#pragma GCC unroll 8
    for (int i = 0; i < OP_MANY; i += OP_LANES) op_load_block(to + i, from + i);
}
OP_MANY_FUNCTION void op_round_many(float *restrict x, bf16 *restrict halves)
{
    op_bf16x16 y[OP_MANY / OP_LANES];
#ifdef __AVX512BF16__
    uint16_t subnormal = 0;
#pragma GCC unroll 8
    for (int i = 0; i < OP_MANY / OP_LANES; i++) {
        op_f32x16 block;
        uint16_t mine;
        memcpy(&block, x + i * OP_LANES, sizeof block);
        __asm__("vfpclassps $0x20, %1, %0" : "=k"(mine) : "v"(block));
        __asm__("vcvtneps2bf16 %1, %0" : "=v"(y[i]) : "v"(block));
        subnormal |= mine;
    }
    if (__builtin_expect(subnormal, 0))
        for (int i = 0; i < OP_MANY / OP_LANES; i++)
            op_store_block((bf16 *)&y[i], x + i * OP_LANES);
#else
    for (int i = 0; i < OP_MANY / OP_LANES; i++) op_store_block((bf16 *)&y[i], x + i * OP_LANES);
#endif
    op_load_many(x, (const bf16 *)y);
    memcpy(halves, y, sizeof y);
}
/* Of numbers that are rounded already. */
OP_MANY_FUNCTION void op_store_halves_many(bf16 *restrict to, const float *restrict from)
{
#pragma GCC unroll 8
    for (int i = 0; i < OP_MANY; i += OP_LANES) op_store_halves(to + i, from + i);
}
/* n numbers as floats. */
OP_FUNCTION void op_load_bf16(float *restrict to, const bf16 *restrict from, int64_t n)
{
    const int64_t whole = n / OP_LANES * OP_LANES;
    for (int64_t i = 0; i < whole; i += OP_LANES) op_load_block(to + i, from + i);
    for (int64_t i = whole; i < n; i++) to[i] = op_from_bf16(from[i]);
}
/* n numbers rounded to bf16. */
OP_FUNCTION void op_store_bf16(bf16 *restrict to, const float *restrict from, int64_t n)
{
    const int64_t whole = n / OP_LANES * OP_LANES;
    for (int64_t i = 0; i < whole; i += OP_LANES) op_store_block(to + i, from + i);
    for (int64_t i = whole; i < n; i++) to[i] = op_to_bf16(from[i]);
}

/* The one order in which sixteen partial results become one; on cpu, a row reduction distributes
 * its elements over sixteen lanes by column, so the order of a sum is a function of its length and
 * of nothing else. */
OP_FUNCTION float op_sum_lanes_f32(const float *lane)
{
    op_f32x16 all; /* read whole, or the lanes would live in memory while they are filled */
    memcpy(&all, lane, sizeof all);
    __typeof__(__builtin_shufflevector(all, all, 0, 1, 2, 3, 4, 5, 6, 7)) a =
        __builtin_shufflevector(all, all, 0, 1, 2, 3, 4, 5, 6, 7);
    a += __builtin_shufflevector(all, all, 8, 9, 10, 11, 12, 13, 14, 15);
    __typeof__(__builtin_shufflevector(a, a, 0, 1, 2, 3)) b =
        __builtin_shufflevector(a, a, 0, 1, 2, 3) + __builtin_shufflevector(a, a, 4, 5, 6, 7);
    return (b[0] + b[2]) + (b[1] + b[3]);
}
OP_FUNCTION double op_sum_lanes_f64(const double *lane)
{
    double a[8], b[4];
    for (int k = 0; k < 8; k++) a[k] = lane[k] + lane[k + 8];
    for (int k = 0; k < 4; k++) b[k] = a[k] + a[k + 4];
    return (b[0] + b[2]) + (b[1] + b[3]);
}
OP_FUNCTION float op_max_lanes_f32(const float *lane)
{
    float a[8], b[4];
    for (int k = 0; k < 8; k++) a[k] = op_max_f32(lane[k], lane[k + 8]);
    for (int k = 0; k < 4; k++) b[k] = op_max_f32(a[k], a[k + 4]);
    return op_max_f32(op_max_f32(b[0], b[2]), op_max_f32(b[1], b[3]));
}
/* Which k of n numbers are the largest, largest first, ties to the lowest; a NaN ranks with
 * -infinity, behind all other numbers. 1 <= k <= n. */
OP_FUNCTION void op_top_k(const float *restrict x, int64_t n, int32_t *restrict ids, int64_t k)
{
    int64_t have = 0;
    float least = 0; /* of k that are there */
    for (int64_t i = 0; i < n; i++) {
        const float rank = x[i] == x[i] ? x[i] : -INFINITY;
        if (have == k && !(rank > least)) continue;
        int64_t at = have < k ? have++ : k - 1;
        for (; at > 0; at--) {
            const float before = x[ids[at - 1]] == x[ids[at - 1]] ? x[ids[at - 1]] : -INFINITY;
            if (!(rank > before)) break;
            ids[at] = ids[at - 1];
        }
        ids[at] = (int32_t)i;
        const float last = x[ids[have - 1]];
        least = last == last ? last : -INFINITY;
    }
}
#endif

#endif
