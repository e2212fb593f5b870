/* Tiles of gemm_tiles.c against naive loops: products of packed operands, over any number of words,
 * added or not; how operands are packed; roundings. F32 sums are chains of multiply-adds, to the
 * bit; those of BF16 are exact here. */
#include "cpu/gemm_tiles.h"
#include "op_math.h"

#include <stdio.h>
#include <stdlib.h>

enum { ROWS = GEMM_TILE_ROWS, LARGEST = 64 * 160 };

static uint32_t seed = 1;
static int64_t drawn(int64_t below)
{
    seed = seed * 1664525u + 1013904223u;
    return (int64_t)((seed >> 8) % (uint32_t)below);
}

/* BF16: integers of at most 7 in absolute value, whose sums are exact in any order. */
static float number(bool bf16s)
{
    return bf16s ? (float)(drawn(15) - 7) : (float)drawn(1 << 20) / (1 << 19) - 1.0f;
}

static float a[ROWS * 160], b[160 * 160], c[ROWS * 200], was[ROWS * 200], from[LARGEST];
static uint32_t packed[LARGEST], turned[LARGEST];
static bf16 halves[LARGEST];

/* Word p of line i at i * line + p * step: an F32, or two BF16. */
static void put(uint32_t *to, bool bf16s, const float *x)
{
    if (bf16s)
        *to = op_to_bf16(x[0]) | (uint32_t)op_to_bf16(x[1]) << 16;
    else
        memcpy(to, x, sizeof *to);
}

static bool sums_are_right(const struct gemm_tiles *t, bool bf16s, bool along, int64_t n, int64_t k)
{
    const int64_t each = bf16s ? 2 : 1, depth = k * each, lda = (along ? k : ROWS) + drawn(9),
                  ldb = n + drawn(20), ldc = n + drawn(20);
    const bool add = drawn(2);
    for (int64_t i = 0; i < ROWS * depth; i++) a[i] = number(bf16s);
    for (int64_t i = 0; i < n * depth; i++) b[i] = number(bf16s);
    for (int64_t i = 0; i < ROWS * ldc; i++) was[i] = c[i] = number(bf16s);
    for (int64_t i = 0; i < ROWS; i++)
        for (int64_t p = 0; p < k; p++)
            put(packed + (along ? i * lda + p : p * lda + i), bf16s, a + i * depth + p * each);
    for (int64_t j = 0; j < n; j++)
        for (int64_t p = 0; p < k; p++) put(turned + p * ldb + j, bf16s, b + j * depth + p * each);
    t->sums(along, n, k, packed, lda, turned, ldb, add, c, ldc);
    for (int64_t i = 0; i < ROWS; i++)
        for (int64_t j = 0; j < ldc; j++) {
            float sum = 0;
            for (int64_t p = 0; p < depth && j < n; p++)
                sum = fmaf(a[i * depth + p], b[j * depth + p], sum);
            const float old = was[i * ldc + j], want = j >= n ? old : add ? old + sum : sum;
            if (memcmp(&c[i * ldc + j], &want, sizeof want) != 0) return false;
        }
    return true;
}

static bool packs_are_right(const struct gemm_tiles *t, bool bf16s, int64_t rows, int64_t n)
{
    const int64_t each = bf16s ? 2 : 1, words = n / each, stride = words + drawn(5),
                  ld = (rows + 15) / 16 * 16 + drawn(5);
    memset(turned, 0xff, sizeof turned);
    for (int64_t i = 0; i < rows * stride; i++) packed[i] = (uint32_t)drawn(1 << 24) * 131;
    t->across(rows, words, packed, stride, turned, ld);
    for (int64_t p = 0; p < words; p++)
        for (int64_t j = 0; j < (rows + 15) / 16 * 16; j++)
            if (turned[p * ld + j] != (j < rows ? packed[j * stride + p] : 0)) return false;
    t->along(rows, n, packed, stride, turned);
    for (int64_t p = 0; p * each < rows; p++)
        for (int64_t j = 0; j < n; j++) {
            const uint32_t *even = packed + p * each * stride, *odd = even + stride;
            const int64_t shift = 16 * (j % 2);
            uint32_t want = bf16s ? even[j / 2] >> shift & 0xffff : even[j];
            if (bf16s && 2 * p + 1 < rows) want |= (odd[j / 2] >> shift & 0xffff) << 16;
            if (turned[p * n + j] != want) return false;
        }
    return true;
}

static bool halves_are_right(const struct gemm_tiles *t, int64_t n)
{
    const int64_t stride = n + drawn(20);
    for (int64_t i = 0; i < ROWS * stride; i++) from[i] = number(false);
    from[0] = 1e-39f, from[stride] = -1e-45f; /* become zero, as products take them */
    t->halves(n, from, stride, halves, packed);
    from[0] = 0.0f, from[stride] = -0.0f;
    for (int64_t i = 0; i < ROWS; i++)
        for (int64_t j = 0; j < n; j++) {
            const bf16 want = op_to_bf16(from[i * stride + j]);
            const uint32_t pair = packed[i / 2 * stride + j];
            if (halves[i * stride + j] != want || (bf16)(pair >> 16 * (i % 2)) != want)
                return false;
        }
    return true;
}

static void all(const char *name, const struct gemm_tiles *t, bool bf16s)
{
    if (!t) {
        printf("skip tiles.%s: no instructions for them\n", name);
        return;
    }
    bool sums = true, packs = true, rounds = true;
    for (int i = 0; i < 200 && sums; i++)
        sums = sums_are_right(t, bf16s, i & 1, 16 * (1 + drawn(5)), drawn(80));
    for (int i = 0; i < 100 && packs; i++)
        packs = packs_are_right(t, bf16s, 1 + drawn(90), 16 * (1 + drawn(5)));
    for (int i = 0; i < 20 && rounds && bf16s; i++) rounds = halves_are_right(t, 16 * drawn(9));
    const char *what = !sums ? "other sums" : !packs ? "operands packed otherwise" : "other halves";
    if (sums && packs && rounds)
        printf("ok tiles.%s\n", name);
    else
        printf("FAIL tiles.%s: %s than a naive loop\n", name, what);
}

int main(void)
{
    all("f32", gemm_tiles_f32(), false);
    all("bf16", gemm_tiles_bf16(), true);
    return 0;
}
