/* Causal attention and its gradient for the cpu device, tile by tile: 64 queries of one head
 * against up to 256 keys. product() does the matrix products of a tile, and the softmax is updated
 * from tile to tile. The scores of a whole sequence are never stored: a kernel needs two tiles of
 * 64 KiB on the stack, for any sequence; the gradient also needs space for the sums of one key
 * head, which its caller gives. Tiles of keys that no query of a tile sees are left out. Queries,
 * keys, values and results are F32 or BF16; scores and sums are F32. Where operands are BF16,
 * weights and the gradient of scores are rounded to BF16 for their products, so that these are of
 * two BF16 operands; the sum by which a result is divided is that of the weights before rounding. A
 * BF16 result is rounded once. The order of every sum follows from the shapes. Layout: rows are
 * tokens, sequence after sequence; a row has heads x width elements. `heads / kv_heads`
 * neighbouring query heads share a key head. */
#ifndef TEMPLATE_ATTENTION_H
#define TEMPLATE_ATTENTION_H

#include "product.h"

enum { ATTENTION_QUERIES = 64, ATTENTION_KEYS = 256 };

/* compiler/ir/ir.h has the meaning. 0 and NULL: none. */
struct attention_rule {
    int64_t window;
    float softcap;
    const int32_t *starts;
};

static inline int64_t attention_smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t attention_larger(int64_t a, int64_t b) { return a > b ? a : b; }

/* A tile of weights as an operand of a product: F32 as it is, or its copy in BF16. */
static inline struct operand attention_weights(enum element type, bool transposed,
                                               const float *tile, const bf16 *rounded)
{
    return (struct operand){type, transposed, type == ELEMENT_F32 ? (const void *)tile : rounded,
                            ATTENTION_KEYS};
}

/* The first key that query i of the sample from row `start` on sees. */
SPECIALISED int64_t attention_first(struct attention_rule rule, int64_t start, int64_t i)
{
    int64_t first = rule.window ? attention_larger(i - rule.window + 1, 0) : 0;
    return rule.starts ? attention_larger(first, rule.starts[start + i] - start) : first;
}

/* Scores become cap tanh(scale score / cap). */
static inline void attention_cap(float *restrict score, int64_t n, float scale, float cap)
{
    float part = scale / cap;
    for (int64_t j = 0; j < n; j++) score[j] = cap * op_tanh_f32(score[j] * part);
}

/* Neighbouring queries whose scores are worked on at once: a step of the exponential waits for the
 * one before it, and another query's does not. */
enum { ATTENTION_TOGETHER = OP_MANY / OP_LANES };

/* Keys of a tile that query i of the sample from row `start` on sees: [from, to). */
struct attention_range {
    int64_t from, to;
};
SPECIALISED struct attention_range attention_range(struct attention_rule rule, int64_t start,
                                                   int64_t i, int64_t key, int64_t keys)
{
    const int64_t first = attention_larger(attention_first(rule, start, i) - key, 0);
    return (struct attention_range){attention_smaller(first, keys),
                                    attention_smaller(keys, i + 1 - key)};
}

/* How many of the queries from i on can be worked on at once: all of them see keys of the tile. */
SPECIALISED int attention_together(struct attention_rule rule, int64_t start, int64_t i,
                                   int64_t queries, int64_t key, int64_t keys)
{
    if (queries < ATTENTION_TOGETHER) return 1;
    for (int u = 0; u < ATTENTION_TOGETHER; u++) {
        struct attention_range r = attention_range(rule, start, i + u, key, keys);
        if (r.from >= r.to) return 1;
    }
    return ATTENTION_TOGETHER;
}

SPECIALISED void attention_exp(const int queries, float *restrict x)
{
    if (queries == ATTENTION_TOGETHER) {
        op_exp_low_many_f32(x);
        return;
    }
#pragma omp simd
    for (int k = 0; k < queries * OP_LANES; k++) x[k] = op_exp_low_f32(x[k]);
}

/* Of OP_LANES numbers, none a NaN: in any order. */
static inline float attention_largest(const float *lane)
{
    float eight[8], four[4];
    for (int k = 0; k < 8; k++) eight[k] = lane[k] > lane[k + 8] ? lane[k] : lane[k + 8];
    for (int k = 0; k < 4; k++) four[k] = eight[k] > eight[k + 4] ? eight[k] : eight[k + 4];
    const float a = four[0] > four[2] ? four[0] : four[2],
                b = four[1] > four[3] ? four[1] : four[3];
    return a > b ? a : b;
}

/* Scores of neighbouring queries, in place: scaled, of which those of `seen` count; the others of
 * `room` (a multiple of 16) become 0. top and sum are those of the tiles before, -inf and 0 in the
 * first; shrink: what earlier results are to be multiplied by. `rounded`: where the weights go in
 * BF16, or NULL. */
SPECIALISED void attention_softmax(const int queries, bool first, float *restrict score,
                                   const struct attention_range *seen, int64_t room, float scale,
                                   float *restrict top, float *restrict sum, float *restrict shrink,
                                   bf16 *restrict rounded)
{
    float largest[OP_MANY], total[OP_MANY], now[ATTENTION_TOGETHER];
    int64_t end = 0;
    for (int u = 0; u < queries; u++)
        end = attention_larger(end, seen[u].from < seen[u].to ? seen[u].to : 0);
    end = (end + OP_LANES - 1) / OP_LANES * OP_LANES;
    for (int k = 0; k < queries * OP_LANES; k++) largest[k] = -INFINITY, total[k] = 0.0f;
    for (int64_t j = 0; j < end; j += OP_LANES)
#pragma GCC unroll 8
        for (int u = 0; u < queries; u++) {
            float *row = score + u * ATTENTION_KEYS + j, *most = largest + u * OP_LANES;
            const int from = (int)(seen[u].from - j), to = (int)(seen[u].to - j);
#pragma omp simd
            for (int k = 0; k < OP_LANES; k++) {
                float s = k >= from && k < to ? row[k] * scale : -INFINITY;
                row[k] = s;
                most[k] = s > most[k] ? s : most[k]; /* a NaN shows in the sum */
            }
        }
    for (int u = 0; u < queries; u++) {
        const float most = attention_largest(largest + u * OP_LANES);
        now[u] = top[u] > most ? top[u] : most;
        shrink[u] = first ? 0.0f : end ? op_exp_f32(top[u] - now[u]) : 1.0f;
    }
    for (int64_t j = 0; j < end; j += OP_LANES) {
        float e[OP_MANY];
#pragma GCC unroll 8
        for (int u = 0; u < queries; u++) {
#pragma omp simd
            for (int k = 0; k < OP_LANES; k++)
                e[u * OP_LANES + k] = score[u * ATTENTION_KEYS + j + k] - now[u];
        }
        attention_exp(queries, e);
#pragma GCC unroll 8
        for (int u = 0; u < queries; u++) {
#pragma omp simd
            for (int k = 0; k < OP_LANES; k++) total[u * OP_LANES + k] += e[u * OP_LANES + k];
        }
#pragma GCC unroll 8
        for (int u = 0; u < queries; u++)
            if (rounded)
                op_store_block(rounded + u * ATTENTION_KEYS + j, e + u * OP_LANES);
            else
                memcpy(score + u * ATTENTION_KEYS + j, e + u * OP_LANES, sizeof(float) * OP_LANES);
    }
    for (int u = 0; u < queries; u++) {
        const int64_t at = u * ATTENTION_KEYS + end;
        if (rounded)
            memset(rounded + at, 0, sizeof *rounded * (size_t)(room - end));
        else
            memset(score + at, 0, sizeof *score * (size_t)(room - end));
        sum[u] = sum[u] * shrink[u] + op_sum_lanes_f32(total + u * OP_LANES);
        top[u] = now[u];
    }
}

SPECIALISED void attention_of(enum element type, const void *restrict q, const void *restrict k,
                              const void *restrict v, void *restrict o, float *restrict lse,
                              int64_t tokens, int64_t heads, int64_t kv_heads, int64_t width,
                              int64_t sequence, float scale, struct attention_rule rule)
{
    float tile[ATTENTION_QUERIES * ATTENTION_KEYS],
        sums[type == ELEMENT_F32 ? 1 : ATTENTION_QUERIES * width];
    bf16 rounded[type == ELEMENT_F32 ? 1 : ATTENTION_QUERIES * ATTENTION_KEYS];
    memset(tile, 0, sizeof tile);
    int64_t row = heads * width, kv_row = kv_heads * width, shared = heads / kv_heads,
            out_row = type == ELEMENT_F32 ? row : width;
    for (int64_t start = 0; start < tokens; start += sequence)
        for (int64_t h = 0; h < heads; h++)
            for (int64_t from = 0; from < sequence; from += ATTENTION_QUERIES) {
                int64_t queries = attention_smaller(ATTENTION_QUERIES, sequence - from),
                        begin = attention_first(rule, start, from), end = from + queries,
                        first = (start + from) * row + h * width;
                float *out = type == ELEMENT_F32 ? (float *)o + first : sums,
                      top[ATTENTION_QUERIES], sum[ATTENTION_QUERIES];
                struct operand query = {type, false, element_at(type, q, first), row},
                               weight = attention_weights(type, false, tile, rounded);
                for (int64_t i = 0; i < queries; i++) top[i] = -INFINITY, sum[i] = 0.0f;
                for (int64_t key = begin; key < end; key += ATTENTION_KEYS) {
                    int64_t keys = attention_smaller(ATTENTION_KEYS, end - key),
                            at = (start + key) * kv_row + h / shared * width;
                    int64_t room = (keys + OP_LANES - 1) / OP_LANES * OP_LANES;
                    struct operand key_tile = {type, true, element_at(type, k, at), kv_row},
                                   value_tile = {type, false, element_at(type, v, at), kv_row};
                    product_f32(queries, keys, width, query, key_tile, false, tile, ATTENTION_KEYS);
                    for (int64_t i = 0; i < queries;) {
                        const int together =
                            attention_together(rule, start, from + i, queries - i, key, keys);
                        struct attention_range seen[ATTENTION_TOGETHER];
                        float *score = tile + i * ATTENTION_KEYS, shrink[ATTENTION_TOGETHER],
                              part = rule.softcap > 0 ? 1.0f : scale;
                        bf16 *half = type == ELEMENT_F32 ? NULL : rounded + i * ATTENTION_KEYS;
                        for (int u = 0; u < together; u++) {
                            seen[u] = attention_range(rule, start, from + i + u, key, keys);
                            if (rule.softcap > 0)
                                attention_cap(score + u * ATTENTION_KEYS, keys, scale,
                                              rule.softcap);
                        }
                        if (together == ATTENTION_TOGETHER)
                            attention_softmax(ATTENTION_TOGETHER, key == begin, score, seen, room,
                                              part, top + i, sum + i, shrink, half);
                        else
                            attention_softmax(1, key == begin, score, seen, room, part, top + i,
                                              sum + i, shrink, half);
                        for (int u = 0; u < together && key > begin; u++)
                            for (int64_t c = 0; c < width; c++)
                                out[(i + u) * out_row + c] *= shrink[u];
                        i += together;
                    }
                    product_f32(queries, width, keys, weight, value_tile, key > begin, out,
                                out_row);
                }
                for (int64_t i = 0; i < queries; i++) {
                    float inverse = 1.0f / sum[i];
                    for (int64_t c = 0; c < width; c++) out[i * out_row + c] *= inverse;
                    if (type != ELEMENT_F32)
                        element_store(type, (bf16 *)o + first + i * row, out + i * out_row, width);
                    lse[(start + from + i) * heads + h] = top[i] + op_log_f32(sum[i]);
                }
            }
}

/* The inner product of two rows, distributed over lanes by column. */
SPECIALISED float attention_inner(enum element type, const void *a, const void *b, int64_t n)
{
    float lane[OP_LANES] = {0};
    int64_t whole = n / OP_LANES * OP_LANES;
    for (int64_t c = 0; c < whole; c += OP_LANES) {
#pragma omp simd
        for (int l = 0; l < OP_LANES; l++)
            lane[l] += element_load(type, a, c + l) * element_load(type, b, c + l);
    }
    for (int64_t c = whole; c < n; c++)
        lane[c - whole] += element_load(type, a, c) * element_load(type, b, c);
    return op_sum_lanes_f32(lane);
}

/* Scores of one query and what comes back to its weights, in place: weights, and slopes of the
 * inner products of query and key, under a cap. */
static inline void attention_slopes_capped(float *restrict p, float *restrict d,
                                           struct attention_range seen, int64_t keys, float scale,
                                           float cap, float log_sum, float mean)
{
    const float part = scale / cap;
    for (int64_t j = 0; j < seen.from; j++) p[j] = d[j] = 0.0f;
    for (int64_t j = seen.from; j < seen.to; j++) {
        float bent = op_tanh_f32(p[j] * part), share = op_exp_f32(cap * bent - log_sum);
        p[j] = share;
        d[j] = share * (d[j] - mean) * scale * (1.0f - bent * bent);
    }
    for (int64_t j = attention_larger(seen.from, seen.to); j < keys; j++) p[j] = d[j] = 0.0f;
}

/* The same of neighbouring queries without a cap; whole vectors of `keys` of them. */
SPECIALISED void attention_slopes(const int queries, float *restrict weight, float *restrict slope,
                                  const struct attention_range *seen, int64_t keys, float scale,
                                  const float *log_sum, int64_t stride, const float *mean)
{
    if (queries == 1 && seen->from >= seen->to) {
        memset(weight, 0, sizeof *weight * (size_t)keys);
        memset(slope, 0, sizeof *slope * (size_t)keys);
        return;
    }
    for (int64_t j = 0; j < keys; j += OP_LANES) {
        float e[OP_MANY];
#pragma GCC unroll 8
        for (int u = 0; u < queries; u++) {
            const float *row = weight + u * ATTENTION_KEYS + j;
#pragma omp simd
            for (int k = 0; k < OP_LANES; k++)
                e[u * OP_LANES + k] = row[k] * scale - log_sum[u * stride];
        }
        attention_exp(queries, e);
#pragma GCC unroll 8
        for (int u = 0; u < queries; u++) {
            float *p = weight + u * ATTENTION_KEYS + j, *d = slope + u * ATTENTION_KEYS + j;
            const int from = (int)(seen[u].from - j), to = (int)(seen[u].to - j);
#pragma omp simd
            for (int k = 0; k < OP_LANES; k++) {
                float share = e[u * OP_LANES + k], back = share * (d[k] - mean[u]) * scale;
                p[k] = k >= from && k < to ? share : 0.0f;
                d[k] = k >= from && k < to ? back : 0.0f;
            }
        }
    }
}

/* With P the attention weights: dV = P' dO, dP = dO V', dS = scale P (dP - rowsum(dO O)), times 1 -
 * (score / softcap)^2 under a cap, dQ = dS K, dK = dS' Q. P comes back from the scores and the
 * saved log-sum-exp. What a key head gets from all queries of a sequence is added up in `work`, 2 x
 * sequence x width, and stored when it is complete. */
SPECIALISED void attention_grad_of(enum element type, const void *restrict q,
                                   const void *restrict k, const void *restrict v,
                                   const void *restrict o, const float *restrict lse,
                                   const void *restrict d_o, void *restrict dq, void *restrict dk,
                                   void *restrict dv, float *restrict work, int64_t tokens,
                                   int64_t heads, int64_t kv_heads, int64_t width, int64_t sequence,
                                   float scale, struct attention_rule rule)
{
    float weight[ATTENTION_QUERIES * ATTENTION_KEYS], slope[ATTENTION_QUERIES * ATTENTION_KEYS],
        sums[type == ELEMENT_F32 ? 1 : ATTENTION_QUERIES * width];
    bf16 weight_rounded[type == ELEMENT_F32 ? 1 : ATTENTION_QUERIES * ATTENTION_KEYS],
        slope_rounded[type == ELEMENT_F32 ? 1 : ATTENTION_QUERIES * ATTENTION_KEYS];
    memset(weight, 0, sizeof weight);
    memset(slope, 0, sizeof slope);
    int64_t row = heads * width, kv_row = kv_heads * width, shared = heads / kv_heads,
            out_row = type == ELEMENT_F32 ? row : width;
    float *key_sum = work, *value_sum = work + sequence * width;
    const struct operand s = attention_weights(type, false, slope, slope_rounded),
                         w_across = attention_weights(type, true, weight, weight_rounded),
                         s_across = attention_weights(type, true, slope, slope_rounded);
    for (int64_t start = 0; start < tokens; start += sequence)
        for (int64_t h = 0; h < heads; h++) {
            if (h % shared == 0) memset(work, 0, sizeof *work * (size_t)(2 * sequence * width));
            for (int64_t from = 0; from < sequence; from += ATTENTION_QUERIES) {
                int64_t queries = attention_smaller(ATTENTION_QUERIES, sequence - from),
                        begin = attention_first(rule, start, from), end = from + queries,
                        first = (start + from) * row + h * width;
                float delta[ATTENTION_QUERIES],
                    *out = type == ELEMENT_F32 ? (float *)dq + first : sums;
                struct operand query = {type, false, element_at(type, q, first), row},
                               d_out = {type, false, element_at(type, d_o, first), row};
                for (int64_t i = 0; i < queries; i++)
                    delta[i] = attention_inner(type, element_at(type, d_o, first + i * row),
                                               element_at(type, o, first + i * row), width);
                for (int64_t key = begin; key < end; key += ATTENTION_KEYS) {
                    int64_t keys = attention_smaller(ATTENTION_KEYS, end - key),
                            at = (start + key) * kv_row + h / shared * width;
                    struct operand key_across = {type, true, element_at(type, k, at), kv_row},
                                   value_across = {type, true, element_at(type, v, at), kv_row};
                    struct operand key_tile = {type, false, element_at(type, k, at), kv_row};
                    product_f32(queries, keys, width, query, key_across, false, weight,
                                ATTENTION_KEYS);
                    product_f32(queries, keys, width, d_out, value_across, false, slope,
                                ATTENTION_KEYS);
                    for (int64_t i = 0; i < queries;) {
                        const int together =
                            rule.softcap > 0
                                ? 1
                                : attention_together(rule, start, from + i, queries - i, key, keys);
                        struct attention_range seen[ATTENTION_TOGETHER];
                        float *p = weight + i * ATTENTION_KEYS, *d = slope + i * ATTENTION_KEYS;
                        const float *log_sum = lse + (start + from + i) * heads + h;
                        for (int u = 0; u < together; u++)
                            seen[u] = attention_range(rule, start, from + i + u, key, keys);
                        if (rule.softcap > 0)
                            attention_slopes_capped(p, d, seen[0], keys, scale, rule.softcap,
                                                    *log_sum, delta[i]);
                        else if (together == ATTENTION_TOGETHER)
                            attention_slopes(ATTENTION_TOGETHER, p, d, seen, keys, scale, log_sum,
                                             heads, delta + i);
                        else
                            attention_slopes(1, p, d, seen, keys, scale, log_sum, heads, delta + i);
                        for (int u = 0; u < together && type != ELEMENT_F32; u++) {
                            const int64_t at = (i + u) * ATTENTION_KEYS;
                            element_store(type, weight_rounded + at, weight + at, keys);
                            element_store(type, slope_rounded + at, slope + at, keys);
                        }
                        i += together;
                    }
                    product_f32(keys, width, queries, w_across, d_out, true,
                                value_sum + key * width, width);
                    product_f32(queries, width, keys, s, key_tile, key > begin, out, out_row);
                    product_f32(keys, width, queries, s_across, query, true, key_sum + key * width,
                                width);
                }
                for (int64_t i = 0; i < queries && type != ELEMENT_F32; i++)
                    element_store(type, (bf16 *)dq + first + i * row, out + i * out_row, width);
            }
            if ((h + 1) % shared) continue;
            for (int64_t t = 0; t < sequence; t++) {
                int64_t at = (start + t) * kv_row + h / shared * width;
                element_store(type, element_at(type, dk, at), key_sum + t * width, width);
                element_store(type, element_at(type, dv, at), value_sum + t * width, width);
            }
        }
}

#define attention(q, k, v, o, ...) attention_of(ELEMENT(q), q, k, v, o, __VA_ARGS__)
#define attention_grad(q, k, v, ...) attention_grad_of(ELEMENT(q), q, k, v, __VA_ARGS__)

#endif
