/* Products of F32 operands by AVX-512. A word is one k. Sums are added up in the passes over k that
 * oneDNN 2.6 takes, and are its results to the bit. */
#include "cpu/gemm_f32.h"

#if defined __x86_64__
#include "cpu/avx512.h"
#include "cpu/gemm_bf16.h"

#define ELEMENTS 1
typedef float element;
enum { DEEP = 384, PASS = 384 };

/* Of sixteen lines, of which `there` exist, one word. (`ld` and `half` are of words of two.) */
INLINE_FOR_AVX512 __m512i across(const float *row, int64_t ld, bool half, __mmask16 there)
{
    (void)ld, (void)half;
    return _mm512_maskz_loadu_epi32(there, row);
}

INLINE_FOR_AVX512 __m512 add_product(__m512 sum, __m512i a, __m512i b)
{
    return _mm512_fmadd_ps((__m512)a, (__m512)b, sum);
}

static int64_t pass_of(enum pairs_result result, int64_t k, int64_t from)
{
    (void)result;
    const int64_t pass = k <= PASS ? k : k < 2 * PASS ? (k + 1) / 2 : PASS, rest = k - from;
    return rest < pass ? rest : pass;
}

#include "cpu/gemm_panels.h"

void gemm_f32(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const float *a, int64_t lda,
              const float *b, int64_t ldb, bool add, float *c, int64_t ldc)
{
    product(ta, tb, m, n, k, a, lda, b, ldb, add ? PAIRS_ADDED : PAIRS_SET, c, ldc);
}

#else

void gemm_f32(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const float *a, int64_t lda,
              const float *b, int64_t ldb, bool add, float *c, int64_t ldc)
{
    (void)ta, (void)tb, (void)m, (void)n, (void)k, (void)a, (void)lda, (void)b, (void)ldb;
    (void)add, (void)c, (void)ldc;
}

#endif
