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
/* Products with few rows whose operands are packed once and used many times, and roundings for
 * them. A word has 32 bits: an F32, or two BF16 with neighbouring k, the even one in the lower
 * half. n is a multiple of 16. */
enum { GEMM_TILE_ROWS = 8 };
struct gemm_tiles {
    /* c[GEMM_TILE_ROWS, n] = a b, or c + a b, over k words. a: word (i, p) is at i lda + p when it
     * lies along k, else at p lda + i. b: word (p, j) is at p ldb + j. */
    void (*sums)(bool along, int64_t n, int64_t k, const void *a, int64_t lda, const void *b,
                 int64_t ldb, bool add, float *c, int64_t ldc);
    /* b of rows that go along k, of so many words, `stride` words apart: word p of row j to p ld +
     * j. Columns behind the last row, up to a multiple of 16, become zero. */
    void (*across)(int64_t rows, int64_t words, const void *from, int64_t stride, void *to,
                   int64_t ld);
    /* b of rows of n elements that follow each other along k, `stride` words apart; n words from
     * one to the next. A BF16 row behind an odd last one is taken as zeros. */
    void (*along)(int64_t rows, int64_t n, const void *from, int64_t stride, void *to);
    /* GEMM_TILE_ROWS rows, `stride` apart, in BF16, as a that goes along k (row i at rows + i
     * stride) and as one that does not (rows 2p and 2p + 1 in words at p stride); NULL: not
     * wanted. Of F32: NULL. */
    void (*halves)(int64_t n, const float *from, int64_t stride, uint16_t *rows, void *pairs);
};
/* NULL where there are none that are faster than gemm() or gemm_bf16(): the same in every call. */
const struct gemm_tiles *gemm_tiles(bool bf16);
/* Which library, and for which instructions: "oneDNN 2.6, ISA 0x7ff". */
const char *gemm_text(char text[64]);

#endif
