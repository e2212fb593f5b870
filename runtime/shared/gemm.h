/* The matrix product: C = op(A) op(B) or C += op(A) op(B), all stored by rows, sums and C in F32,
 * operands in F32 or both in BF16. Another library is another file with these functions. One
 * thread: a rank is a core, and the other cores have ranks of their own. The same shapes give the
 * same bits on every call. */
#ifndef GEMM_H
#define GEMM_H

#include <stdbool.h>
#include <stdint.h>

/* c[m,n] = a[m,k] b[k,n]. ta, tb: the operand is stored transposed (a[k,m], b[n,k]). lda, ldb, ldc:
 * elements between the starts of two stored rows. add: to what c holds. A library that fails ends
 * the process: a wrong product must not train. */
void gemm(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const float *a, int64_t lda,
          const float *b, int64_t ldb, bool add, float *c, int64_t ldc);
/* The same with BF16 operands (the upper halves of floats). False, and nothing is done, where
 * library and processor have no such product: whether they do is the same in every call. */
bool gemm_bf16(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const uint16_t *a, int64_t lda,
               const uint16_t *b, int64_t ldb, bool add, float *c, int64_t ldc);
/* c = a b in BF16, every sum rounded once when it is complete. False, and nothing is done, where
 * that is no faster than gemm_bf16() and rounding: the same sizes have the same answer. */
bool gemm_bf16_rounded(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const uint16_t *a,
                       int64_t lda, const uint16_t *b, int64_t ldb, uint16_t *c, int64_t ldc);
/* Which library, and for which instructions: "oneDNN 2.6, ISA 0x7ff". */
const char *gemm_text(char text[64]);

#endif
