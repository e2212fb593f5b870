/* Products of two F32 operands by AVX-512, for the shapes where they are faster than oneDNN's: what
 * gemm_dnnl.c asks first. Arguments are those of shared/gemm.h. */
#ifndef GEMM_F32_H
#define GEMM_F32_H

#include <stdbool.h>
#include <stdint.h>

/* Whether gemm_f32() makes a product of these operands. A is not stored transposed: it is in
 * gradients of weights, which oneDNN makes as fast. Fewer than 48 rows do not repay transposing B;
 * fewer than 512 do not repay copying it where it is not transposed. Fewer than 17 columns oneDNN
 * adds up in other orders. Over a k below 768 or a multiple of 384 both of its algorithms take the
 * same passes; these products have the bits of oneDNN 2.6. */
static inline bool gemm_f32_takes(bool ta, bool tb, int64_t m, int64_t n, int64_t k)
{
    return !ta && m >= (tb ? 48 : 512) && n > 16 && (k < 768 || k % 384 == 0);
}

/* c = a b, or c + a b, on a processor with AVX-512 and for operands that it takes. */
void gemm_f32(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const float *a, int64_t lda,
              const float *b, int64_t ldb, bool add, float *c, int64_t ldc);

#endif
