/* Products of BF16 operands by VDPBF16PS of AVX-512. A word is a pair of neighbouring k. Where the
 * result is BF16, sums are rounded while they are in registers; a library writes F32 sums, which a
 * second pass reads and rounds.
 *
 * An instruction adds two products to a sum and takes subnormal numbers as zero: no sum is one, so
 * VCVTNE2PS2BF16, which flushes them, rounds as the portable form does. A sum that is rounded is
 * made in one pass, F32 results in those that oneDNN 2.6 takes, and are its results to the bit. */
#include "cpu/gemm_bf16.h"

#if defined __x86_64__
#include "cpu/avx512.h"

#define ELEMENTS 2
typedef uint16_t element;
enum { DEEP = 2048, PASS = 384 };

/* Of sixteen lines, of which `there` exist, one word; at the end of an odd k only the first half of
 * it is there. */
INLINE_FOR_AVX512 __m512i across(const uint16_t *row, int64_t ld, bool half, __mmask16 there)
{
    static const uint16_t pairs[32] = {0,  32, 1,  33, 2,  34, 3,  35, 4,  36, 5,
                                       37, 6,  38, 7,  39, 8,  40, 9,  41, 10, 42,
                                       11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
    const __m512i low = _mm512_castsi256_si512(_mm256_maskz_loadu_epi16(there, row)),
                  high = _mm512_castsi256_si512(
                      _mm256_maskz_loadu_epi16(half ? 0 : there, row + (half ? 0 : ld)));
    return _mm512_permutex2var_epi16(low, _mm512_loadu_si512(pairs), high);
}

INLINE_FOR_AVX512 __m512 add_product(__m512 sum, __m512i a, __m512i b)
{
    return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
}

static int64_t pass_of(enum pairs_result result, int64_t k, int64_t from)
{
    if (result == PAIRS_ROUNDED || k <= PASS) return k;
    const int64_t pass = k < 4 * PASS ? (k + 1) / 2 : 2 * PASS, rest = k - from;
    return rest < pass ? rest : pass;
}

#include "cpu/gemm_panels.h"

bool gemm_pairs_here(void) { return __builtin_cpu_supports("avx512bf16") != 0; }

bool gemm_pairs(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const uint16_t *a, int64_t lda,
                const uint16_t *b, int64_t ldb, enum pairs_result result, void *c, int64_t ldc)
{
    return product(ta, tb, m, n, k, a, lda, b, ldb, result, c, ldc);
}

#else

bool gemm_pairs_here(void) { return false; }

bool gemm_pairs(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const uint16_t *a, int64_t lda,
                const uint16_t *b, int64_t ldb, enum pairs_result result, void *c, int64_t ldc)
{
    (void)ta, (void)tb, (void)m, (void)n, (void)k, (void)a, (void)lda, (void)b, (void)ldb;
    return (void)result, (void)c, (void)ldc, false;
}

#endif
