/* A mixture of experts without dropped tokens: choices, the order of rows that brings each expert's rows together, moving
 * rows there and back, and one matrix product per expert. Row counts differ from step to step but their sum is tokens x k,
 * so nothing here needs more room than its results, and every sum has one order: that of the choices, then of the tokens. */
#ifndef TEMPLATE_EXPERTS_H
#define TEMPLATE_EXPERTS_H

#include "gemm.h"
#include "op_math.h"

/* The k largest of each row, largest first, ties to the lowest id. A NaN ranks below everything. */
static inline void top_k(const float *restrict p, int32_t *restrict ids, int64_t tokens, int64_t experts, int64_t k)
{
    for (int64_t t = 0; t < tokens; t++) {
        float last = INFINITY;
        int64_t last_id = -1;
        for (int64_t j = 0; j < k; j++) {
            float best = 0.0f;
            int64_t id = -1;
            for (int64_t e = 0; e < experts; e++) {
                float x = p[t * experts + e], rank = x == x ? x : -INFINITY;
                if (rank < last || (rank == last && e > last_id))
                    if (id < 0 || rank > best) best = rank, id = e;
            }
            ids[t * k + j] = (int32_t)id;
            last = best;
            last_id = id;
        }
    }
}

/* place: the row of each choice, experts in order, within an expert in token order; first: where each expert's rows start. */
static inline void route_plan(const int32_t *restrict ids, int32_t *restrict place, int32_t *restrict first, int64_t choices, int64_t experts)
{
    for (int64_t e = 0; e <= experts; e++) first[e] = 0;
    for (int64_t c = 0; c < choices; c++) first[ids[c] + 1]++;
    for (int64_t e = 0; e < experts; e++) first[e + 1] += first[e];
    for (int64_t c = 0; c < choices; c++) place[c] = first[ids[c]]++;
    for (int64_t e = experts; e > 0; e--) first[e] = first[e - 1];
    first[0] = 0;
}

static inline void load(const int32_t *restrict ids, float *restrict out, int64_t choices, int64_t experts)
{
    for (int64_t e = 0; e < experts; e++) out[e] = 0.0f;
    for (int64_t c = 0; c < choices; c++) out[ids[c]] += 1.0f;
}

static inline void dispatch(const float *restrict x, const int32_t *restrict place, float *restrict z, int64_t tokens, int64_t k, int64_t width)
{
    for (int64_t t = 0; t < tokens; t++)
        for (int64_t j = 0; j < k; j++) memcpy(z + place[t * k + j] * width, x + t * width, sizeof *x * (size_t)width);
}

static inline void collect(const float *restrict dz, const int32_t *restrict place, float *restrict dx, int64_t tokens, int64_t k, int64_t width)
{
    for (int64_t t = 0; t < tokens; t++)
        for (int64_t j = 0; j < k; j++) {
            const float *restrict from = dz + place[t * k + j] * width;
            float *restrict to = dx + t * width;
            for (int64_t c = 0; c < width; c++) to[c] = j ? to[c] + from[c] : from[c];
        }
}

static inline void to_rows(const float *restrict w, const int32_t *restrict place, float *restrict out, int64_t choices)
{
    for (int64_t c = 0; c < choices; c++) out[place[c]] = w[c];
}

static inline void from_rows(const float *restrict row, const int32_t *restrict place, float *restrict out, int64_t choices)
{
    for (int64_t c = 0; c < choices; c++) out[c] = row[place[c]];
}

/* y[r] = W[expert of r] z[r]; W[e] is [out, in], with `transposed` [in, out]. */
static inline void expert_matmul(const float *restrict z, const float *restrict w, const int32_t *restrict first, float *restrict y,
                                 int64_t experts, int64_t in, int64_t out, bool transposed)
{
    for (int64_t e = 0; e < experts; e++)
        gemm(false, !transposed, first[e + 1] - first[e], out, in, z + first[e] * in, in, w + e * in * out, transposed ? out : in,
             false, y + first[e] * out, out);
}

/* dW[e] = dy' z over the expert's rows, [out, in]; zeros for an expert without rows. */
static inline void expert_matmul_grad(const float *restrict dy, const float *restrict z, const int32_t *restrict first, float *restrict dw,
                                      int64_t experts, int64_t in, int64_t out)
{
    for (int64_t e = 0; e < experts; e++) {
        float *to = dw + e * in * out;
        if (first[e + 1] == first[e]) memset(to, 0, sizeof *to * (size_t)(in * out));
        else
            gemm(true, false, out, in, first[e + 1] - first[e], dy + first[e] * out, out, z + first[e] * in, in, false, to, in);
    }
}

#endif
