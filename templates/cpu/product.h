/* Matrix products whose operands and result are each F32 or BF16. Sums are F32, and the result is
 * rounded once, when its sum is complete. Two BF16 operands go to the library as they are: their
 * products are exact in F32. Otherwise (one operand of each type, or a processor without BF16)
 * operands are widened panel by panel, which is exact, and multiplied in F32. Panels and the tile
 * of sums to round are static buffers of 2 MiB in all, only in programs that need them. The compute
 * lane is one thread, so one set serves all products. */
#ifndef TEMPLATE_PRODUCT_H
#define TEMPLATE_PRODUCT_H

#include "gemm.h"
#include "op_math.h"

#include <stddef.h>

/* A function that is compiled anew for the type and the sizes of each caller. */
#define SPECIALISED static inline __attribute__((always_inline))

/* ── elements of either type ─────────────────────────────────────────────────── */
enum element { ELEMENT_F32, ELEMENT_BF16 };
#define ELEMENT(pointer) _Generic(*(pointer), float : ELEMENT_F32, bf16 : ELEMENT_BF16)

static inline void *element_at(enum element type, const void *p, int64_t i)
{
    return (char *)(uintptr_t)p + i * (type == ELEMENT_BF16 ? 2 : 4);
}
SPECIALISED float element_load(enum element type, const void *p, int64_t i)
{
    return type == ELEMENT_BF16 ? op_from_bf16(((const bf16 *)p)[i]) : ((const float *)p)[i];
}

/* n elements from F32, rounded when they are kept in BF16. */
SPECIALISED void element_store(enum element type, void *restrict to, const float *restrict from,
                               int64_t n)
{
    if (type == ELEMENT_F32)
        memcpy(to, from, sizeof *from * (size_t)n);
    else
        op_store_bf16(to, from, n);
}

/* ── products ────────────────────────────────────────────────────────────────── */
enum { PRODUCT_ROWS = 512, PRODUCT_DEEP = 256, PRODUCT_TILE = PRODUCT_ROWS * 512 };
static float product_panel[2][PRODUCT_ROWS * PRODUCT_DEEP], product_tile[PRODUCT_TILE];

static inline int64_t product_smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* One operand of a product: element (i, j) is at i * stride + j, or at j * stride + i when it is
 * stored transposed. */
struct operand {
    enum element type;
    bool transposed;
    const void *at;
    int64_t stride;
};

static inline struct operand operand_from(struct operand o, int64_t row, int64_t column)
{
    o.at =
        element_at(o.type, o.at, o.transposed ? column * o.stride + row : row * o.stride + column);
    return o;
}

/* rows x columns of it in F32: where it lies, or a copy in the panel. */
static inline struct operand operand_wide(struct operand o, int64_t rows, int64_t columns,
                                          float *restrict panel)
{
    if (o.type == ELEMENT_F32) return o;
    int64_t lines = o.transposed ? columns : rows, length = o.transposed ? rows : columns;
    for (int64_t i = 0; i < lines; i++) {
        const bf16 *restrict from = (const bf16 *)o.at + i * o.stride;
        for (int64_t j = 0; j < length; j++) panel[i * length + j] = op_from_bf16(from[j]);
    }
    return (struct operand){ELEMENT_F32, o.transposed, panel, length};
}

static inline void product_f32(int64_t m, int64_t n, int64_t k, struct operand a, struct operand b,
                               bool add, float *c, int64_t ldc)
{
    if (a.type == ELEMENT_F32 && b.type == ELEMENT_F32) {
        gemm(a.transposed, b.transposed, m, n, k, a.at, a.stride, b.at, b.stride, add, c, ldc);
        return;
    }
    if (a.type == ELEMENT_BF16 && b.type == ELEMENT_BF16 &&
        gemm_bf16(a.transposed, b.transposed, m, n, k, a.at, a.stride, b.at, b.stride, add, c, ldc))
        return;
    for (int64_t k0 = 0; k0 < k; k0 += PRODUCT_DEEP)
        for (int64_t n0 = 0; n0 < n; n0 += PRODUCT_ROWS) {
            int64_t deep = product_smaller(PRODUCT_DEEP, k - k0),
                    columns = product_smaller(PRODUCT_ROWS, n - n0);
            struct operand right =
                operand_wide(operand_from(b, k0, n0), deep, columns, product_panel[1]);
            for (int64_t m0 = 0; m0 < m; m0 += PRODUCT_ROWS) {
                int64_t rows = product_smaller(PRODUCT_ROWS, m - m0);
                struct operand left =
                    operand_wide(operand_from(a, m0, k0), rows, deep, product_panel[0]);
                gemm(left.transposed, right.transposed, rows, columns, deep, left.at, left.stride,
                     right.at, right.stride, add || k0, c + m0 * ldc + n0, ldc);
            }
        }
}

/* c[m,n] = a b, or c + a b where c is F32. */
static inline void product_of(int64_t m, int64_t n, int64_t k, struct operand a, struct operand b,
                              bool add, enum element type, void *c, int64_t ldc)
{
    if (type == ELEMENT_F32) {
        product_f32(m, n, k, a, b, add, c, ldc);
        return;
    }
    if (a.type == ELEMENT_BF16 && b.type == ELEMENT_BF16 &&
        gemm_bf16_rounded(a.transposed, b.transposed, m, n, k, a.at, a.stride, b.at, b.stride, c,
                          ldc))
        return;
    int64_t rows = product_smaller(PRODUCT_ROWS, m),
            columns = product_smaller(n, rows ? PRODUCT_TILE / rows : 0);
    for (int64_t m0 = 0; m0 < m; m0 += rows)
        for (int64_t n0 = 0; n0 < n; n0 += columns) {
            int64_t high = product_smaller(rows, m - m0), wide = product_smaller(columns, n - n0);
            product_f32(high, wide, k, operand_from(a, m0, 0), operand_from(b, 0, n0), false,
                        product_tile, wide);
            for (int64_t i = 0; i < high; i++)
                element_store(type, (bf16 *)c + (m0 + i) * ldc + n0, product_tile + i * wide, wide);
        }
}

/* As gemm() of gemm.h, for pointers to float or bf16. `add` is for a result in F32. */
#define product(ta, tb, m, n, k, a, lda, b, ldb, add, c, ldc)     \
    product_of(m, n, k, (struct operand){ELEMENT(a), ta, a, lda}, \
               (struct operand){ELEMENT(b), tb, b, ldb}, add, ELEMENT(c), c, ldc)

#endif
