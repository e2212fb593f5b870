/* Products of tiles of attention, in registers of AVX-512: F32 by multiply-adds, BF16 by VDPBF16PS.
 * A library packs both operands in every call. Here keys and values are packed once for all queries
 * of a head, the other operand is read as it lies, and what no query sees is left out.
 *
 * A sum in F32 is one chain of multiply-adds over k, from zero, and is then added to what is there:
 * the bits of oneDNN 2.6, except where that has fewer than 16 rows or one column. VDPBF16PS adds
 * two products at a time and takes subnormal numbers as zero, so they are rounded to zero. */
#include "cpu/gemm_tiles.h"

#include <string.h>

#if defined __x86_64__
#include "cpu/avx512.h"

typedef uint32_t __attribute__((may_alias)) word;
enum type { F32, BF16 };
enum { ROWS = GEMM_TILE_ROWS };

/* ── products ────────────────────────────────────────────────────────────────── */
INLINE_FOR_AVX512 __m512 step(const enum type type, __m512 sum, word a, __m512i b)
{
    const __m512i all = _mm512_set1_epi32((int32_t)a);
    if (type == BF16) return _mm512_dpbf16_ps(sum, (__m512bh)all, (__m512bh)b);
    return _mm512_fmadd_ps(_mm512_castsi512_ps(all), _mm512_castsi512_ps(b), sum);
}

/* ROWS x (16 vectors) sums over k words. */
INLINE_FOR_AVX512 void tile(const enum type type, const int vectors, const bool along, int64_t k,
                            const word *a, int64_t lda, const word *b, int64_t ldb, bool add,
                            float *c, int64_t ldc)
{
    __m512 sum[ROWS][2];
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; i++) sum[i][0] = sum[i][1] = _mm512_setzero_ps();
    for (int64_t p = 0; p < k; p++) {
        const __m512i left = _mm512_loadu_si512(b),
                      right = vectors > 1 ? _mm512_loadu_si512(b + 16) : left;
#pragma GCC unroll 8
        for (int i = 0; i < ROWS; i++) {
            const word one = a[along ? i * lda : i];
            sum[i][0] = step(type, sum[i][0], one, left);
            if (vectors > 1) sum[i][1] = step(type, sum[i][1], one, right);
        }
        a += along ? 1 : lda;
        b += ldb;
    }
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; i++)
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++) {
            float *to = c + i * ldc + v * 16;
            _mm512_storeu_ps(to, add ? _mm512_add_ps(_mm512_loadu_ps(to), sum[i][v]) : sum[i][v]);
        }
}

INLINE_FOR_AVX512 void tiles(const enum type type, bool along, int64_t n, int64_t k, const word *a,
                             int64_t lda, const word *b, int64_t ldb, bool add, float *c,
                             int64_t ldc)
{
    int64_t j = 0;
    for (; j + 32 <= n; j += 32)
        if (along)
            tile(type, 2, true, k, a, lda, b + j, ldb, add, c + j, ldc);
        else
            tile(type, 2, false, k, a, lda, b + j, ldb, add, c + j, ldc);
    if (j == n) return;
    if (along)
        tile(type, 1, true, k, a, lda, b + j, ldb, add, c + j, ldc);
    else
        tile(type, 1, false, k, a, lda, b + j, ldb, add, c + j, ldc);
}

FOR_AVX512 static void sums_f32(bool along, int64_t n, int64_t k, const void *a, int64_t lda,
                                const void *b, int64_t ldb, bool add, float *c, int64_t ldc)
{
    tiles(F32, along, n, k, a, lda, b, ldb, add, c, ldc);
}

FOR_AVX512 static void sums_bf16(bool along, int64_t n, int64_t k, const void *a, int64_t lda,
                                 const void *b, int64_t ldb, bool add, float *c, int64_t ldc)
{
    tiles(BF16, along, n, k, a, lda, b, ldb, add, c, ldc);
}

/* ── operands ────────────────────────────────────────────────────────────────── */

FOR_AVX512 static void across(int64_t rows, int64_t words, const void *from, int64_t stride,
                              void *to, int64_t ld)
{
    for (int64_t j = 0; j < rows; j += 16)
        for (int64_t p = 0; p < words; p += 16) {
            const __mmask16 there = words - p < 16 ? (__mmask16)((1u << (words - p)) - 1) : 0xffff;
            const word *at = (const word *)from + j * stride + p;
            word *out = (word *)to + p * ld + j;
            __m512i x[16];
#pragma GCC unroll 16
            for (int i = 0; i < 16; i++)
                x[i] = j + i < rows ? _mm512_maskz_loadu_epi32(there, at + i * stride)
                                    : _mm512_setzero_si512();
            turn(x);
#pragma GCC unroll 16
            for (int i = 0; i < 16; i++)
                if (p + i < words) _mm512_storeu_si512(out + i * ld, x[i]);
        }
}

static void along_f32(int64_t rows, int64_t n, const void *from, int64_t stride, void *to)
{
    for (int64_t r = 0; r < rows; r++)
        memcpy((float *)to + r * n, (const float *)from + r * stride, sizeof(float) * (size_t)n);
}

FOR_AVX512 static void along_bf16(int64_t rows, int64_t n, const void *from, int64_t stride,
                                  void *to)
{
    for (int64_t r = 0; r < rows; r += 2) {
        const uint16_t *even = (const uint16_t *)from + 2 * r * stride, *odd = even + 2 * stride;
        for (int64_t j = 0; j < n; j += 16) {
            __m512i pair = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(even + j)));
            if (r + 1 < rows)
                pair = _mm512_or_si512(
                    pair,
                    _mm512_slli_epi32(
                        _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(odd + j))), 16));
            _mm512_storeu_si512((word *)to + r / 2 * n + j, pair);
        }
    }
}

FOR_AVX512 static void halves(int64_t n, const float *from, int64_t stride, uint16_t *rows,
                              void *pairs)
{
    const __m512i in_turn =
        _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                         21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    for (int64_t j = 0; j < n; j += 16)
#pragma GCC unroll 4
        for (int64_t i = 0; i < ROWS; i += 2) {
            const float *even = from + i * stride + j;
            const __m512i both =
                (__m512i)_mm512_cvtne2ps_pbh(_mm512_loadu_ps(even + stride), _mm512_loadu_ps(even));
            if (pairs)
                _mm512_storeu_si512((word *)pairs + i / 2 * stride + j,
                                    _mm512_permutexvar_epi16(in_turn, both));
            if (!rows) continue;
            uint16_t *to = rows + i * stride + j;
            _mm256_storeu_si256((__m256i *)to, _mm512_castsi512_si256(both));
            _mm256_storeu_si256((__m256i *)(to + stride), _mm512_extracti64x4_epi64(both, 1));
        }
}

const struct gemm_tiles *gemm_tiles_f32(void)
{
    static const struct gemm_tiles tiles = {sums_f32, across, along_f32, NULL};
    return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
                   __builtin_cpu_supports("avx512dq")
               ? &tiles
               : NULL;
}

const struct gemm_tiles *gemm_tiles_bf16(void)
{
    static const struct gemm_tiles tiles = {sums_bf16, across, along_bf16, halves};
    return __builtin_cpu_supports("avx512bf16") ? &tiles : NULL;
}

#else

const struct gemm_tiles *gemm_tiles_f32(void) { return NULL; }
const struct gemm_tiles *gemm_tiles_bf16(void) { return NULL; }

#endif
