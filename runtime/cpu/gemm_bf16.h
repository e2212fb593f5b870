/* Products of two BF16 operands by the processor's own instruction: what gemm_dnnl.c asks first.
 * Arguments are those of shared/gemm.h. */
#ifndef GEMM_BF16_H
#define GEMM_BF16_H

#include <stdbool.h>
#include <stdint.h>

/* Whether this processor has the instruction; without it gemm_pairs() must not be called. */
bool gemm_pairs_here(void);
/* What becomes of a sum: it is rounded once to BF16, stored in F32, or added to c in F32. */
enum pairs_result { PAIRS_ROUNDED, PAIRS_SET, PAIRS_ADDED };
/* c = a b, or c + a b. The order of a sum depends on k alone. False, and nothing is done, for a k
 * that takes more than one pass where sums are rounded. */
bool gemm_pairs(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const uint16_t *a, int64_t lda,
                const uint16_t *b, int64_t ldb, enum pairs_result result, void *c, int64_t ldc);

#endif
