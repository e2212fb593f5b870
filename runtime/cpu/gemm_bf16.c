/* Products of BF16 operands by VDPBF16PS of AVX-512: operands are packed into panels of pairs of
 * neighbouring k, and a tile of 12 x 32 sums stays in registers until it is complete. A library
 * writes F32 sums, which a second pass reads and rounds; here the sums of a tile are rounded while
 * they are in registers: 2 to 9 % of a product. For F32 results oneDNN is as fast.
 *
 * An instruction adds two products to a sum and takes subnormal numbers as zero: no sum is one, so
 * VCVTNE2PS2BF16, which flushes them, rounds as the portable form does. The order of a sum is that
 * of k, whatever m and n are, so the same shape gives the same bits. The compute lane is
 * one thread, so one set of panels serves all products. */
#include "cpu/gemm_bf16.h"

#if defined __x86_64__
#include <immintrin.h>
#include <string.h>

#define FOR_PAIRS __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")))
#define INLINE_FOR_PAIRS FOR_PAIRS __attribute__((always_inline)) static inline

/* A tile has 24 registers of sums; two hold a row of B's panel and one an element of A's. DEEP: the
 * longest k of one pass. A_ELEMENTS stay in the second cache beside a panel of B. */
enum {
    ROWS = 12,
    COLUMNS = 32,
    DEEP = 4096,
    AHEAD = 12, /* pairs that are fetched from the second cache before they are wanted */
    A_ELEMENTS = 192 << 10,
    B_ELEMENTS = 1 << 20,
    SLACK = 32 /* a store of sixteen pairs may reach over the last panel */
};
static uint32_t panels_a[A_ELEMENTS / 2 + SLACK] __attribute__((aligned(64)));
static uint32_t panels_b[B_ELEMENTS / 2 + SLACK] __attribute__((aligned(64)));

bool gemm_pairs_here(void) { return __builtin_cpu_supports("avx512bf16") != 0; }

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* ── panels ──────────────────────────────────────────────────────────────────── */
/* A panel holds `lines` lines (rows of A, columns of B) as pairs: pair p of line i is at
 * [p * stride + i], the lower half is of the even k. */

/* Lines whose k lie next to each other: a transposition of pairs, four by four. */
FOR_PAIRS static void pack_along(const uint16_t *from, int64_t ld, int64_t lines, int64_t k,
                                 uint32_t *to, int64_t stride)
{
    const int64_t fours = k / 8 * 4;
    for (int64_t i = 0; i < lines; i += 4) {
        const int64_t some = smaller(4, lines - i);
        const uint16_t *line = from + i * ld;
        int64_t p = 0;
        if (some == 4)
            for (; p < fours; p += 4) {
                __m128 x[4];
                for (int l = 0; l < 4; l++)
                    x[l] = _mm_loadu_ps((const float *)(const void *)(line + l * ld + 2 * p));
                _MM_TRANSPOSE4_PS(x[0], x[1], x[2], x[3]);
                for (int l = 0; l < 4; l++)
                    _mm_storeu_ps((float *)(void *)(to + (p + l) * stride + i), x[l]);
            }
        for (; 2 * p < k; p++)
            for (int64_t l = 0; l < some; l++) {
                const uint16_t *at = line + l * ld + 2 * p;
                to[p * stride + i + l] =
                    at[0] | (2 * p + 1 < k ? (uint32_t)at[1] << 16 : (uint32_t)0);
            }
    }
}

/* Lines that lie next to each other, one row a k: two rows are interleaved. At most 16 lines at a
 * time; those that are missing become zero. */
FOR_PAIRS static void pack_across(const uint16_t *from, int64_t ld, int64_t lines, int64_t k,
                                  uint32_t *to, int64_t stride)
{
    const __mmask16 there = (__mmask16)((1u << lines) - 1);
    for (int64_t p = 0; 2 * p < k; p++) {
        const uint16_t *row = from + 2 * p * ld;
        __m512i low = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(there, row)),
                high = _mm512_setzero_si512();
        if (2 * p + 1 < k) high = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(there, row + ld));
        _mm512_storeu_si512(to + p * stride, _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
    }
}

/* A store of sixteen reaches over the twelve of a pair: the next pair is stored behind it. */
static void pack_a(bool transposed, const uint16_t *a, int64_t lda, int64_t m, int64_t k)
{
    uint32_t *to = panels_a;
    for (int64_t i = 0; i < m; i += ROWS) {
        const int64_t lines = smaller(ROWS, m - i);
        if (transposed)
            pack_across(a + i, lda, lines, k, to, lines);
        else
            pack_along(a + i * lda, lda, lines, k, to, lines);
        to += lines * ((k + 1) / 2);
    }
}

/* Columns that are missing in the last panel become zero. */
static void pack_b(bool transposed, const uint16_t *b, int64_t ldb, int64_t n, int64_t k)
{
    const int64_t pairs = (k + 1) / 2;
    for (int64_t j = 0; j < n; j += COLUMNS) {
        uint32_t *to = panels_b + j * pairs;
        const int64_t lines = smaller(COLUMNS, n - j);
        if (transposed) {
            if (lines < COLUMNS) memset(to, 0, (size_t)(pairs * COLUMNS) * sizeof *to);
            pack_along(b + j * ldb, ldb, lines, k, to, COLUMNS);
        } else {
            pack_across(b + j, ldb, smaller(lines, 16), k, to, COLUMNS);
            if (lines > 16) {
                pack_across(b + j + 16, ldb, lines - 16, k, to + 16, COLUMNS);
            } else
                for (int64_t p = 0; p < pairs; p++) memset(to + p * COLUMNS + 16, 0, 64);
        }
    }
}

/* ── tiles ───────────────────────────────────────────────────────────────────── */
/* rows x columns sums of `pairs` pairs each. */
INLINE_FOR_PAIRS void tile(const int rows, int64_t pairs, const uint32_t *restrict a,
                           const uint32_t *restrict b, uint16_t *c, int64_t ldc, int64_t columns)
{
    __m512 sum[ROWS][2];
#pragma GCC unroll 12
    for (int i = 0; i < rows; i++) sum[i][0] = sum[i][1] = _mm512_setzero_ps();
    for (int64_t p = 0; p < pairs; p++) {
        _mm_prefetch((const char *)(a + (p + AHEAD) * rows), _MM_HINT_T0);
        _mm_prefetch((const char *)(b + (p + AHEAD) * COLUMNS), _MM_HINT_T0);
        _mm_prefetch((const char *)(b + (p + AHEAD) * COLUMNS + 16), _MM_HINT_T0);
        const __m512bh left = (__m512bh)_mm512_load_si512(b + p * COLUMNS),
                       right = (__m512bh)_mm512_load_si512(b + p * COLUMNS + 16);
#pragma GCC unroll 12
        for (int i = 0; i < rows; i++) {
            const __m512bh pair = (__m512bh)_mm512_set1_epi32((int32_t)a[p * rows + i]);
            sum[i][0] = _mm512_dpbf16_ps(sum[i][0], pair, left);
            sum[i][1] = _mm512_dpbf16_ps(sum[i][1], pair, right);
        }
    }
    const __mmask32 there = columns >= 32 ? 0xffffffffu : (1u << columns) - 1;
#pragma GCC unroll 12
    for (int i = 0; i < rows; i++)
        _mm512_mask_storeu_epi16(c + i * ldc, there,
                                 (__m512i)_mm512_cvtne2ps_pbh(sum[i][1], sum[i][0]));
}

FOR_PAIRS static void tile_of(int64_t rows, int64_t pairs, const uint32_t *a, const uint32_t *b,
                              uint16_t *c, int64_t ldc, int64_t columns)
{
    switch (rows) {
#define ROWS_ARE(n) \
    case n: tile(n, pairs, a, b, c, ldc, columns); return;
        ROWS_ARE(1)
        ROWS_ARE(2)
        ROWS_ARE(3)
        ROWS_ARE(4)
        ROWS_ARE(5)
        ROWS_ARE(6)
        ROWS_ARE(7)
        ROWS_ARE(8)
        ROWS_ARE(9)
        ROWS_ARE(10)
        ROWS_ARE(11)
    default: tile(ROWS, pairs, a, b, c, ldc, columns);
#undef ROWS_ARE
    }
}

/* All panels of B pass by each panel of A while that is in the first cache. */
static void tiles(int64_t m, int64_t n, int64_t pairs, uint16_t *c, int64_t ldc)
{
    for (int64_t j = 0; j < n; j += COLUMNS)
        for (int64_t i = 0; i < m; i += ROWS)
            tile_of(smaller(ROWS, m - i), pairs, panels_a + i * pairs, panels_b + j * pairs,
                    c + i * ldc + j, ldc, smaller(COLUMNS, n - j));
}

bool gemm_pairs(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const uint16_t *a, int64_t lda,
                const uint16_t *b, int64_t ldb, uint16_t *c, int64_t ldc)
{
    if (k > DEEP) return false;
    const int64_t pairs = (k + 1) / 2, even = 2 * (pairs ? pairs : 1),
                  wide = B_ELEMENTS / even / COLUMNS * COLUMNS,
                  high = A_ELEMENTS / even / ROWS * ROWS;
    for (int64_t j = 0; j < n; j += wide) {
        const int64_t columns = smaller(wide, n - j);
        pack_b(tb, tb ? b + j * ldb : b + j, ldb, columns, k);
        for (int64_t i = 0; i < m; i += high) {
            const int64_t rows = smaller(high, m - i);
            pack_a(ta, ta ? a + i : a + i * lda, lda, rows, k);
            tiles(rows, columns, pairs, c + i * ldc + j, ldc);
        }
    }
    return true;
}

#else

bool gemm_pairs_here(void) { return false; }

bool gemm_pairs(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const uint16_t *a, int64_t lda,
                const uint16_t *b, int64_t ldb, uint16_t *c, int64_t ldc)
{
    (void)ta, (void)tb, (void)m, (void)n, (void)k, (void)a, (void)lda, (void)b, (void)ldb;
    return (void)c, (void)ldc, false;
}

#endif
