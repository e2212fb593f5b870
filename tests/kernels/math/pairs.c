/* Products of gemm_bf16.c against a naive loop: awkward shapes, operands stored either way, rows
 * with more elements than a product reads, k from 0 on and in several passes. Sums are exact, so
 * every result is one number, in BF16 rounded once. */
#include "cpu/gemm_bf16.h"
#include "op_math.h"

#include <stdio.h>
#include <stdlib.h>

static uint32_t seed = 1;
static int64_t drawn(int64_t below)
{
    seed = seed * 1664525u + 1013904223u;
    return (int64_t)((seed >> 8) % (uint32_t)below);
}

/* Integers of at most 7 in absolute value: sums below 2^24 are exact in any order. */
static bf16 *numbers(int64_t n)
{
    bf16 *x = malloc(sizeof *x * (size_t)(n + 1));
    for (int64_t i = 0; x && i < n; i++) x[i] = op_to_bf16((float)(drawn(15) - 7));
    return x;
}

/* Of a result, which is of either type. */
static float number(enum pairs_result result, const void *c, int64_t i)
{
    return result == PAIRS_ROUNDED ? op_from_bf16(((const bf16 *)c)[i]) : ((const float *)c)[i];
}

static bool product_is_right(enum pairs_result result, bool ta, bool tb, int64_t m, int64_t n,
                             int64_t k)
{
    const int64_t lda = (ta ? m : k) + drawn(5) + 1, ldb = (tb ? k : n) + drawn(5) + 1,
                  ldc = n + drawn(3);
    const size_t bytes = (size_t)(ldc * m) * (result == PAIRS_ROUNDED ? 2 : 4);
    bf16 *a = numbers(lda * (ta ? k : m)), *b = numbers(ldb * (tb ? n : k)),
         *c = numbers(2 * ldc * m), *was = malloc(bytes);
    if (!a || !b || !c || !was) return false;
    for (int64_t i = 0; i < ldc * m && result != PAIRS_ROUNDED; i++)
        ((float *)(void *)c)[i] = (float)(drawn(15) - 7);
    memcpy(was, c, bytes);
    bool fine = gemm_pairs(ta, tb, m, n, k, a, lda, b, ldb, result, c, ldc);
    for (int64_t i = 0; i < m && fine; i++)
        for (int64_t j = 0; j < ldc && fine; j++) {
            const float before = number(result, was, i * ldc + j);
            float sum = result == PAIRS_ADDED ? before : 0;
            for (int64_t l = 0; l < k && j < n; l++)
                sum += op_from_bf16(a[ta ? l * lda + i : i * lda + l]) *
                       op_from_bf16(b[tb ? j * ldb + l : l * ldb + j]);
            if (result == PAIRS_ROUNDED) sum = op_from_bf16(op_to_bf16(sum));
            fine = number(result, c, i * ldc + j) == (j < n ? sum : before);
        }
    free(a), free(b), free(c), free(was);
    return fine;
}

int main(void)
{
    if (!gemm_pairs_here()) {
        printf("skip bf16.products: no instruction for them\n");
        return 0;
    }
    bool fine = true;
    for (int r = PAIRS_ROUNDED; r <= PAIRS_ADDED; r++) {
        const enum pairs_result result = (enum pairs_result)r;
        for (int i = 0; i < 100 && fine; i++)
            fine = product_is_right(result, i & 1, i & 2, 1 + drawn(80), 1 + drawn(130),
                                    i < 60 ? drawn(200) : 1 + drawn(1000));
        for (int i = 0; i < 4 && fine; i++) /* columns in several parts, k in several passes */
            fine = product_is_right(result, i & 1, i & 2, 25, 400,
                                    result == PAIRS_ROUNDED ? 700 : 1701);
    }
    uint16_t none = 0;
    fine = fine &&
           !gemm_pairs(false, false, 1, 1, 4097, &none, 4097, &none, 1, PAIRS_ROUNDED, &none, 1);
    printf(fine ? "ok bf16.products\n" : "FAIL bf16.products: other numbers than a naive loop\n");
    return 0;
}
