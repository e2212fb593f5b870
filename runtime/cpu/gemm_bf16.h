/* Products of two BF16 operands by the processor's own instruction: what gemm_dnnl.c asks first.
 * Arguments are those of shared/gemm.h. */
#ifndef GEMM_BF16_H
#define GEMM_BF16_H

#include <stdbool.h>
#include <stdint.h>

/* Whether this processor has the instruction; without it gemm_pairs() must not be called. */
bool gemm_pairs_here(void);
/* c = a b, every sum rounded once to BF16. False, and nothing is done, for a k that takes more than
 * one pass. */
bool gemm_pairs(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const uint16_t *a, int64_t lda,
                const uint16_t *b, int64_t ldb, uint16_t *c, int64_t ldc);

#endif
