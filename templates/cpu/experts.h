/* A mixture of experts without dropped tokens: the order of rows that brings each expert's rows
 * together, moving rows there and back, and one matrix product per expert. Row counts differ
 * from step to step but their sum is tokens x k, so nothing here needs more room than its results,
 * and every sum has one order: that of the choices, then of the tokens. What moves or is multiplied
 * is F32 or BF16; sums are F32. */
#ifndef TEMPLATE_EXPERTS_H
#define TEMPLATE_EXPERTS_H

#include "product.h"

/* place: the row of each choice, experts in order, within an expert in token order; first: where
 * each expert's rows start. */
static inline void route_plan(const int32_t *restrict ids, int32_t *restrict place,
                              int32_t *restrict first, int64_t choices, int64_t experts)
{
    for (int64_t e = 0; e <= experts; e++) first[e] = 0;
    for (int64_t c = 0; c < choices; c++) first[ids[c] + 1]++;
    for (int64_t e = 0; e < experts; e++) first[e + 1] += first[e];
    for (int64_t c = 0; c < choices; c++) place[c] = first[ids[c]]++;
    for (int64_t e = experts; e > 0; e--) first[e] = first[e - 1];
    first[0] = 0;
}

/* The rows of the experts are in no cache when they are written or read, and they are taken in the
 * order of tokens: a line of a row is asked for so many tokens before its turn. */
enum { ROWS_AHEAD = 4, ROW_LINE = 64 };
SPECIALISED void row_ahead(const void *at, int64_t bytes, bool to_write)
{
    for (int64_t b = 0; b < bytes; b += ROW_LINE)
        if (to_write)
            __builtin_prefetch((const char *)at + b, 1);
        else
            __builtin_prefetch((const char *)at + b, 0);
}

SPECIALISED void dispatch_of(enum element type, const void *restrict x,
                             const int32_t *restrict place, void *restrict z, int64_t tokens,
                             int64_t k, int64_t width)
{
    const int64_t bytes = width * (type == ELEMENT_BF16 ? 2 : 4),
                  lines = bytes / ROW_LINE * ROW_LINE;
    for (int64_t t = 0; t < tokens; t++)
        for (int64_t j = 0; j < k; j++) {
            const char *from = (const char *)x + t * bytes;
            char *to = (char *)z + place[t * k + j] * bytes;
            if (t + ROWS_AHEAD < tokens)
                row_ahead((char *)z + place[(t + ROWS_AHEAD) * k + j] * bytes, bytes, true);
            for (int64_t b = 0; b < lines; b += ROW_LINE) memcpy(to + b, from + b, ROW_LINE);
            memcpy(to + lines, from + lines, (size_t)(bytes - lines));
        }
}

/* Sums of OP_LANES columns stay in registers while the rows of a token are added. */
SPECIALISED void collect_of(enum element type, const void *restrict z,
                            const int32_t *restrict place, void *restrict y, int64_t tokens,
                            int64_t k, int64_t width)
{
    const int64_t whole = width / OP_LANES * OP_LANES;
    for (int64_t t = 0; t < tokens; t++) {
        const int32_t *row = place + t * k;
        for (int64_t j = 0; j < k && t + ROWS_AHEAD < tokens; j++)
            row_ahead(element_at(type, z, row[ROWS_AHEAD * k + j] * width),
                      width * (type == ELEMENT_BF16 ? 2 : 4), false);
        for (int64_t c = 0; c < whole; c += OP_LANES) {
            float sum[OP_LANES], x[OP_LANES];
            for (int64_t j = 0; j < k; j++) {
                const void *from = element_at(type, z, row[j] * width + c);
                if (type == ELEMENT_BF16)
                    op_load_block(x, from);
                else
                    memcpy(x, from, sizeof x);
                for (int i = 0; i < OP_LANES; i++) sum[i] = j ? sum[i] + x[i] : x[i];
            }
            element_store(type, element_at(type, y, t * width + c), sum, OP_LANES);
        }
        for (int64_t c = whole; c < width; c++) {
            float sum = element_load(type, z, row[0] * width + c);
            for (int64_t j = 1; j < k; j++) sum += element_load(type, z, row[j] * width + c);
            element_store(type, element_at(type, y, t * width + c), &sum, 1);
        }
    }
}

static inline void to_rows(const float *restrict w, const int32_t *restrict place,
                           float *restrict out, int64_t choices)
{
    for (int64_t c = 0; c < choices; c++) out[place[c]] = w[c];
}

static inline void from_rows(const float *restrict row, const int32_t *restrict place,
                             float *restrict out, int64_t choices)
{
    for (int64_t c = 0; c < choices; c++) out[c] = row[place[c]];
}

/* y[r] = W[expert of r] z[r]; W[e] is [out, in], with `transposed` [in, out]. */
static inline void expert_matmul_of(struct operand z, struct operand w,
                                    const int32_t *restrict first, enum element type,
                                    void *restrict y, int64_t experts, int64_t in, int64_t out,
                                    bool transposed)
{
    z.stride = in;
    w.stride = transposed ? out : in;
    w.transposed = !transposed;
    for (int64_t e = 0; e < experts; e++, w.at = element_at(w.type, w.at, in * out))
        product_of(first[e + 1] - first[e], out, in, operand_from(z, first[e], 0), w, false, type,
                   element_at(type, y, first[e] * out), out);
}

/* dW[e] = dy' z over the expert's rows, [out, in]; zeros for an expert without rows. */
static inline void expert_matmul_grad_of(struct operand dy, struct operand z,
                                         const int32_t *restrict first, float *restrict dw,
                                         int64_t experts, int64_t in, int64_t out)
{
    dy.stride = out;
    z.stride = in;
    for (int64_t e = 0; e < experts; e++) {
        float *to = dw + e * in * out;
        struct operand left = operand_from(dy, first[e], 0);
        left.transposed = true;
        if (first[e + 1] == first[e])
            memset(to, 0, sizeof *to * (size_t)(in * out));
        else
            product_f32(out, in, first[e + 1] - first[e], left, operand_from(z, first[e], 0), false,
                        to, in);
    }
}

#define dispatch(x, ...) dispatch_of(ELEMENT(x), x, __VA_ARGS__)
#define collect(z, ...) collect_of(ELEMENT(z), z, __VA_ARGS__)
#define expert_matmul(z, w, first, y, ...)                      \
    expert_matmul_of((struct operand){ELEMENT(z), false, z, 0}, \
                     (struct operand){ELEMENT(w), false, w, 0}, first, ELEMENT(y), y, __VA_ARGS__)
#define expert_matmul_grad(dy, z, ...)                                 \
    expert_matmul_grad_of((struct operand){ELEMENT(dy), false, dy, 0}, \
                          (struct operand){ELEMENT(z), false, z, 0}, __VA_ARGS__)

#endif
