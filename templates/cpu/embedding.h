/* Rows of a table by token id, and the gradient of the table. The gradient adds rows in token
 * order, so its bits do not depend on how often an id occurs; its sums are F32 for rows of either
 * type. Ids are checked where data is read. */
#ifndef TEMPLATE_EMBEDDING_H
#define TEMPLATE_EMBEDDING_H

#include "product.h"

static inline void embedding(const int32_t *restrict ids, const void *restrict table,
                             void *restrict out, int64_t tokens, int64_t row_bytes)
{
    for (int64_t t = 0; t < tokens; t++)
        memcpy((char *)out + t * row_bytes, (const char *)table + ids[t] * row_bytes,
               (size_t)row_bytes);
}

SPECIALISED void embedding_grad_of(enum element type, const int32_t *restrict ids,
                                   const void *restrict dy, float *restrict dw, int64_t tokens,
                                   int64_t rows, int64_t width)
{
    memset(dw, 0, sizeof *dw * (size_t)(rows * width));
    for (int64_t t = 0; t < tokens; t++) {
        float *restrict to = dw + ids[t] * width;
        const void *restrict from = element_at(type, dy, t * width);
        for (int64_t c = 0; c < width; c++) to[c] += element_load(type, from, c);
    }
}

#define embedding_grad(ids, dy, ...) embedding_grad_of(ELEMENT(dy), ids, dy, __VA_ARGS__)

#endif
