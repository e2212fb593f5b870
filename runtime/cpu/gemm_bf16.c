/* Products of BF16 operands by VDPBF16PS of AVX-512. An element is a pair of neighbouring k, the
 * lower half is of the even one; a tile of 12 x 32 sums stays in registers until it is complete. A
 * library writes F32 sums, which a second pass reads and rounds; here the sums of a tile are
 * rounded while they are in registers. For F32 results oneDNN is as fast.
 *
 * B is copied into panels of 32 columns that stay in the second cache, and twelve rows of A into
 * the first one, for all panels of B; the next twelve are fetched meanwhile, and the place of a
 * tile shortly before it is complete.
 *
 * An instruction adds two products to a sum and takes subnormal numbers as zero: no sum is one, so
 * VCVTNE2PS2BF16, which flushes them, rounds as the portable form does. The order of a sum is that
 * of k, whatever m and n are, so the same shape gives the same bits. The compute lane is
 * one thread, so one set of panels serves all products. */
#include "cpu/gemm_bf16.h"

#if defined __x86_64__
#include <immintrin.h>

#define FOR_PAIRS __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")))
#define INLINE_FOR_PAIRS FOR_PAIRS __attribute__((always_inline)) static inline

/* A tile has 24 registers of sums; two hold a row of B's panel and one an element of A. */
enum {
    ROWS = 12,
    COLUMNS = 32,
    DEEP = 2048,        /* pairs of the one pass at most */
    AHEAD = 12,         /* steps of B that are fetched from the second cache early */
    LAST = 96,          /* steps before the end of a tile at which its place is fetched */
    STRIDE = DEEP + 16, /* between rows of A: they fall on different lines of the first cache */
    B_PAIRS = 160 << 10,
    SLACK = 32 /* a store of sixteen pairs may reach over the last row */
};
static uint32_t panel_a[ROWS * STRIDE + SLACK] __attribute__((aligned(64)));
static uint32_t panels_b[B_PAIRS + SLACK] __attribute__((aligned(64)));

bool gemm_pairs_here(void) { return __builtin_cpu_supports("avx512bf16") != 0; }

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* One operand: where it begins, elements between its stored rows, whether such a row goes along k
 * (A as it is, B transposed). */
struct side {
    const uint16_t *at;
    int64_t ld, k;
    bool along;
};

/* Line i (a row of A, a column of B) at pair p. */
static const uint16_t *side_at(struct side s, int64_t i, int64_t p)
{
    return s.at + (s.along ? i * s.ld + 2 * p : 2 * p * s.ld + i);
}

/* ── panels ──────────────────────────────────────────────────────────────────── */

/* Sixteen pairs of a line that goes along k, from pair p on; zeros behind its end. */
INLINE_FOR_PAIRS __m512i along(struct side s, int64_t i, int64_t p)
{
    const int64_t there = smaller(32, s.k - 2 * p);
    return _mm512_maskz_loadu_epi16((__mmask32)((1ull << there) - 1), side_at(s, i, p));
}

/* Sixteen lines from line i on, of which `lines` exist, at pair p. */
INLINE_FOR_PAIRS __m512i across(struct side s, int64_t i, int64_t p, int64_t lines)
{
    const __mmask16 there = (__mmask16)((1u << smaller(16, lines)) - 1);
    const uint16_t *row = side_at(s, i, p);
    __m512i low = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(there, row));
    if (2 * p + 1 >= s.k) return low;
    __m512i high = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(there, row + s.ld));
    return _mm512_or_si512(low, _mm512_slli_epi32(high, 16));
}

/* 16 x 16 pairs, rows to columns: 4 x 4 within quarters, then the quarters. */
INLINE_FOR_PAIRS void turn(__m512i x[16])
{
    __m512i y[16];
#pragma GCC unroll 8
    for (int i = 0; i < 16; i += 2) {
        y[i] = _mm512_unpacklo_epi32(x[i], x[i + 1]);
        y[i + 1] = _mm512_unpackhi_epi32(x[i], x[i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4) {
        x[i] = _mm512_unpacklo_epi64(y[i], y[i + 2]);
        x[i + 1] = _mm512_unpackhi_epi64(y[i], y[i + 2]);
        x[i + 2] = _mm512_unpacklo_epi64(y[i + 1], y[i + 3]);
        x[i + 3] = _mm512_unpackhi_epi64(y[i + 1], y[i + 3]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        y[i] = _mm512_shuffle_i32x4(x[i], x[i + 4], 0x88);
        y[i + 4] = _mm512_shuffle_i32x4(x[i], x[i + 4], 0xdd);
        y[i + 8] = _mm512_shuffle_i32x4(x[i + 8], x[i + 12], 0x88);
        y[i + 12] = _mm512_shuffle_i32x4(x[i + 8], x[i + 12], 0xdd);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        x[i] = _mm512_shuffle_i32x4(y[i], y[i + 8], 0x88);
        x[i + 4] = _mm512_shuffle_i32x4(y[i + 4], y[i + 12], 0x88);
        x[i + 8] = _mm512_shuffle_i32x4(y[i], y[i + 8], 0xdd);
        x[i + 12] = _mm512_shuffle_i32x4(y[i + 4], y[i + 12], 0xdd);
    }
}

/* Sixteen columns of a B that goes along k, of which `lines` exist, from column j on: pair p at
 * to[32 p]. Those that are missing become zero. */
FOR_PAIRS static void pack_half(struct side b, int64_t j, int64_t lines, int64_t pairs,
                                uint32_t *to)
{
    b.along = true; /* as the compiler does not know: it would choose an address for every load */
    for (int64_t p = 0; p < pairs; p += 16) {
        __m512i x[16];
#pragma GCC unroll 16
        for (int64_t i = 0; i < 16; i++)
            x[i] = i < lines ? along(b, j + i, p) : _mm512_setzero_si512();
        turn(x);
#pragma GCC unroll 16
        for (int64_t i = 0; i < 16; i++)
            if (p + i < pairs) _mm512_store_si512(to + (p + i) * COLUMNS, x[i]);
    }
}

/* Another B row by row, as it lies in memory: the elements of two rows in turn. */
FOR_PAIRS static void pack_rows(struct side b, int64_t j0, int64_t columns, int64_t pairs)
{
    const __m512i low = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40,
                                         8, 39, 7, 38, 6, 37, 5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0),
                  high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
    b.along = false;
    for (int64_t p = 0; p < pairs; p++)
        for (int64_t j = 0; j < columns; j += COLUMNS) {
            const __mmask32 there = (__mmask32)((1ull << smaller(COLUMNS, columns - j)) - 1);
            const uint16_t *row = side_at(b, j0 + j, p);
            uint32_t *to = panels_b + j * pairs + p * COLUMNS;
            _mm_prefetch((const char *)(row + 16 * b.ld), _MM_HINT_T0);
            _mm_prefetch((const char *)(row + 17 * b.ld), _MM_HINT_T0);
            const __m512i even = _mm512_maskz_loadu_epi16(there, row),
                          odd = _mm512_maskz_loadu_epi16(2 * p + 1 < b.k ? there : 0, row + b.ld);
            _mm512_store_si512(to, _mm512_permutex2var_epi16(even, low, odd));
            _mm512_store_si512(to + 16, _mm512_permutex2var_epi16(even, high, odd));
        }
}

static void pack_b(struct side b, int64_t j0, int64_t columns, int64_t pairs)
{
    if (!b.along) {
        pack_rows(b, j0, columns, pairs);
        return;
    }
    for (int64_t j = 0; j < columns; j += COLUMNS) {
        pack_half(b, j0 + j, columns - j, pairs, panels_b + j * pairs);
        pack_half(b, j0 + j + 16, columns - j - 16, pairs, panels_b + j * pairs + 16);
    }
}

/* Twelve rows of A from row i on: along k one after the other, STRIDE apart; otherwise pair p's at
 * [12 p], where a store of sixteen reaches over the twelve and the next pair is stored behind. */
FOR_PAIRS static void pack_a(struct side a, int64_t i, int64_t rows, int64_t pairs)
{
    if (!a.along) {
        for (int64_t p = 0; p < pairs; p++)
            _mm512_storeu_si512(panel_a + p * ROWS, across(a, i, p, rows));
        return;
    }
    const int64_t whole = a.k / 32 * 16;
    for (int64_t r = 0; r < rows; r++) {
        const uint16_t *from = side_at(a, i + r, 0);
        uint32_t *to = panel_a + r * STRIDE;
        for (int64_t p = 0; p < whole; p += 16)
            _mm512_storeu_si512(to + p, _mm512_loadu_si512(from + 2 * p));
        if (whole < pairs) _mm512_storeu_si512(to + whole, along(a, i + r, whole));
    }
}

/* Of what pack_a() will read next: pairs `from` to `to`. */
static void fetch_a(struct side a, int64_t i, int64_t rows, int64_t from, int64_t to)
{
    if (a.along) {
        for (int64_t r = 0; r < rows; r++)
            for (int64_t p = from; p < to; p += 16)
                _mm_prefetch((const char *)side_at(a, i + r, p), _MM_HINT_T0);
        return;
    }
    for (int64_t p = from; p < to && rows > 0; p++) {
        _mm_prefetch((const char *)side_at(a, i, p), _MM_HINT_T0);
        _mm_prefetch((const char *)(side_at(a, i, p) + a.ld), _MM_HINT_T0);
    }
}

/* ── tiles ───────────────────────────────────────────────────────────────────── */

/* rows x columns sums of `pairs` pairs each. */
INLINE_FOR_PAIRS void tile(const int rows, const bool a_along, int64_t pairs,
                           const uint32_t *restrict b, uint16_t *c, int64_t ldc, int64_t columns)
{
    __m512 sum[ROWS][2];
    const uint32_t *a = panel_a;
#pragma GCC unroll 12
    for (int i = 0; i < rows; i++) sum[i][0] = sum[i][1] = _mm512_setzero_ps();
    int64_t p = 0;
    for (int64_t until = pairs - LAST;; until = pairs) {
        for (; p < until; p++) {
            _mm_prefetch((const char *)(b + (p + AHEAD) * COLUMNS), _MM_HINT_T0);
            _mm_prefetch((const char *)(b + (p + AHEAD) * COLUMNS + 16), _MM_HINT_T0);
            const __m512bh left = (__m512bh)_mm512_load_si512(b + p * COLUMNS),
                           right = (__m512bh)_mm512_load_si512(b + p * COLUMNS + 16);
#pragma GCC unroll 12
            for (int i = 0; i < rows; i++) {
                const __m512bh pair =
                    (__m512bh)_mm512_set1_epi32((int32_t)a[a_along ? i * STRIDE : i]);
                sum[i][0] = _mm512_dpbf16_ps(sum[i][0], pair, left);
                sum[i][1] = _mm512_dpbf16_ps(sum[i][1], pair, right);
            }
            a += a_along ? 1 : ROWS;
        }
        if (until == pairs) break;
        for (int i = 0; i < rows; i++) __builtin_prefetch(c + i * ldc, 1);
    }
    const __mmask32 there = columns >= 32 ? 0xffffffffu : (1u << columns) - 1;
#pragma GCC unroll 12
    for (int i = 0; i < rows; i++)
        _mm512_mask_storeu_epi16(c + i * ldc, there,
                                 (__m512i)_mm512_cvtne2ps_pbh(sum[i][1], sum[i][0]));
}

FOR_PAIRS static void tile_of(int64_t rows, bool a_along, int64_t pairs, const uint32_t *b,
                              uint16_t *c, int64_t ldc, int64_t columns)
{
    switch (a_along ? rows : ROWS + rows) {
#define ROWS_ARE(n)                                           \
    case n: tile(n, true, pairs, b, c, ldc, columns); return; \
    case ROWS + n: tile(n, false, pairs, b, c, ldc, columns); return;
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
        ROWS_ARE(12)
#undef ROWS_ARE
    }
}

bool gemm_pairs(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const uint16_t *a, int64_t lda,
                const uint16_t *b, int64_t ldb, uint16_t *c, int64_t ldc)
{
    const int64_t pairs = (k + 1) / 2;
    if (pairs > DEEP) return false;
    const struct side left = {a, lda, k, !ta}, right = {b, ldb, k, tb};
    /* as many columns at a time as fit, in equal parts */
    const int64_t most = B_PAIRS / (pairs ? pairs : 1) / COLUMNS * COLUMNS,
                  parts = (n + most - 1) / most,
                  wide = ((n + parts - 1) / parts + COLUMNS - 1) / COLUMNS * COLUMNS;
    for (int64_t j0 = 0; j0 < n; j0 += wide) {
        const int64_t columns = smaller(wide, n - j0), panels = (columns + COLUMNS - 1) / COLUMNS,
                      share = (pairs / panels + 16) / 16 * 16; /* to fetch in a tile's time */
        pack_b(right, j0, columns, pairs);
        for (int64_t i = 0; i < m; i += ROWS) {
            const int64_t rows = smaller(ROWS, m - i);
            pack_a(left, i, rows, pairs);
            for (int64_t j = 0; j < panels; j++) {
                fetch_a(left, i + rows, smaller(ROWS, m - i - rows), j * share,
                        smaller((j + 1) * share, pairs));
                tile_of(rows, left.along, pairs, panels_b + j * COLUMNS * pairs,
                        c + i * ldc + j0 + j * COLUMNS, ldc,
                        smaller(COLUMNS, columns - j * COLUMNS));
            }
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
