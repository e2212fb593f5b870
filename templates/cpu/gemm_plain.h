/* gemm.h in plain loops, for the reference of --compare: no library, and sums in double precision,
 * so its error is small compared with that of the device. Included once, by arguments.c; it defines
 * the functions. */
#ifndef TEMPLATE_GEMM_PLAIN_H
#define TEMPLATE_GEMM_PLAIN_H

#include "gemm.h"
#include "op_math.h"

#include <stdlib.h>

enum { PLAIN_COLUMNS = 64 };

static float plain_element(const void *p, bool bf16s, int64_t i)
{
    return bf16s ? op_from_bf16(((const bf16 *)p)[i]) : ((const float *)p)[i];
}

/* A panel of `wide` columns of b and a row of a, widened and by rows, then one row of sums. */
static void plain_product(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const void *a,
                          int64_t lda, const void *b, int64_t ldb, bool bf16s, bool add, float *c,
                          int64_t ldc)
{
    float *panel = malloc(sizeof *panel * (size_t)(k * PLAIN_COLUMNS + k + 1)),
          *row = panel + k * PLAIN_COLUMNS;
    if (!panel) abort();
    for (int64_t n0 = 0; n0 < n; n0 += PLAIN_COLUMNS) {
        int64_t wide = n - n0 < PLAIN_COLUMNS ? n - n0 : PLAIN_COLUMNS;
        for (int64_t i = 0; i < k; i++)
            for (int64_t j = 0; j < PLAIN_COLUMNS; j++)
                panel[i * PLAIN_COLUMNS + j] =
                    j < wide ? plain_element(b, bf16s, tb ? (n0 + j) * ldb + i : i * ldb + n0 + j)
                             : 0.0f;
        for (int64_t r = 0; r < m; r++) {
            double sum[PLAIN_COLUMNS] = {0};
            for (int64_t i = 0; i < k; i++)
                row[i] = plain_element(a, bf16s, ta ? i * lda + r : r * lda + i);
            for (int64_t i = 0; i < k; i++)
                for (int64_t j = 0; j < PLAIN_COLUMNS; j++)
                    sum[j] += (double)row[i] * (double)panel[i * PLAIN_COLUMNS + j];
            for (int64_t j = 0; j < wide; j++)
                c[r * ldc + n0 + j] = (float)(sum[j] + (add ? (double)c[r * ldc + n0 + j] : 0.0));
        }
    }
    free(panel);
}

void gemm(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const float *a, int64_t lda,
          const float *b, int64_t ldb, bool add, float *c, int64_t ldc)
{
    plain_product(ta, tb, m, n, k, a, lda, b, ldb, false, add, c, ldc);
}

bool gemm_bf16(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const uint16_t *a, int64_t lda,
               const uint16_t *b, int64_t ldb, bool add, float *c, int64_t ldc)
{
    plain_product(ta, tb, m, n, k, a, lda, b, ldb, true, add, c, ldc);
    return true;
}

bool gemm_bf16_rounded(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const uint16_t *a,
                       int64_t lda, const uint16_t *b, int64_t ldb, uint16_t *c, int64_t ldc)
{
    (void)ta, (void)tb, (void)m, (void)n, (void)k, (void)a, (void)lda, (void)b, (void)ldb;
    return (void)c, (void)ldc, false; /* product_of() rounds */
}

const struct gemm_tiles *gemm_tiles(bool bf16) { return (void)bf16, NULL; }

#endif
