/* The gradient of causal attention for the cpu device: included by attention.h, which says how
 * tiles are worked on. With P the attention weights: dV = P' dO, dP = dO V', dS = scale P (dP -
 * rowsum(dO O)), times 1 - (score / softcap)^2 under a cap, dQ = dS K, dK = dS' Q. P comes back
 * from the scores and the saved log-sum-exp. Sums over queries are made of 64 of them at a time, so
 * weights and slopes of a whole tile are kept. */
#ifndef TEMPLATE_ATTENTION_GRADIENT_H
#define TEMPLATE_ATTENTION_GRADIENT_H

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
 * inner products of query and key, under a cap. 0 for those of `keys` that it does not see. */
static inline void attention_slopes_capped(float *restrict p, float *restrict d,
                                           struct attention_range seen, struct attention_range keys,
                                           float scale, float cap, float log_sum, float mean)
{
    const float part = scale / cap;
    for (int64_t j = keys.from; j < keys.to; j++) {
        float bent = op_tanh_f32(p[j] * part), share = op_exp_f32(cap * bent - log_sum),
              back = share * (d[j] - mean) * scale * (1.0f - bent * bent);
        p[j] = j >= seen.from && j < seen.to ? share : 0.0f;
        d[j] = j >= seen.from && j < seen.to ? back : 0.0f;
    }
}

/* The same of a group without a cap; `keys` are whole vectors. */
static inline void attention_slopes(const struct attention_group *g, float *restrict weight,
                                    float *restrict slope, struct attention_range keys, float scale,
                                    const float *log_sum, const float *mean)
{
    attention_hide(g, keys, -INFINITY, weight);
    attention_hide(g, keys, 0.0f, slope);
    for (int64_t j = keys.from; j < keys.to; j += OP_LANES) {
        float e[OP_MANY];
        attention_exp(weight + j, scale, log_sum, e);
#pragma GCC unroll 8
        for (int u = 0; u < ATTENTION_TOGETHER; u++) {
            float *p = weight + u * ATTENTION_STRIDE + j, *d = slope + u * ATTENTION_STRIDE + j;
#pragma omp simd
            for (int k = 0; k < OP_LANES; k++) {
                p[k] = e[u * OP_LANES + k];
                d[k] = e[u * OP_LANES + k] * (d[k] - mean[u]) * scale;
            }
        }
    }
}

/* Added to `sum`, keys x width: sums over the queries of a tile that see a key, of weights and
 * `rows`, by products `tiles`. */
SPECIALISED void attention_queries(enum element type, const struct gemm_tiles *tiles,
                                   const struct attention_range *group, int64_t queries,
                                   int64_t keys, int64_t width, const void *weights,
                                   const uint32_t *rows, float *sum)
{
    const int64_t groups = (queries + ATTENTION_TOGETHER - 1) / ATTENTION_TOGETHER;
    int64_t low = 0, high = 0; /* groups that see keys from j on */
    for (int64_t j = 0; j < keys; j += GEMM_TILE_ROWS) {
        while (low < groups && group[low].to <= j) low++;
        while (high < groups && group[high].from < j + GEMM_TILE_ROWS) high++;
        if (low >= high) continue;
        const int64_t from = attention_words(type, low * ATTENTION_TOGETHER),
                      to = attention_words(type,
                                           attention_smaller(high * ATTENTION_TOGETHER, queries)),
                      there = attention_smaller(GEMM_TILE_ROWS, keys - j) * width;
        float some[GEMM_TILE_ROWS * ATTENTION_WIDEST], *c = sum + j * width;
        const bool part = j + GEMM_TILE_ROWS > keys;
        if (part) {
            memset(some, 0, sizeof some);
            memcpy(some, c, sizeof *c * (size_t)there);
        }
        tiles->sums(false, width, to - from,
                    (const uint32_t *)weights + from * ATTENTION_STRIDE + j, ATTENTION_STRIDE,
                    rows + from * width, width, true, part ? some : c, width);
        if (part) memcpy(c, some, sizeof *c * (size_t)there);
    }
}

/* What a key head gets from all queries of a sequence is added up in `work`, 2 x sequence x width,
 * and stored when it is complete. */
SPECIALISED void attention_grad_of(enum element type, const void *restrict q,
                                   const void *restrict k, const void *restrict v,
                                   const void *restrict o, const float *restrict lse,
                                   const void *restrict d_o, void *restrict dq, void *restrict dk,
                                   void *restrict dv, float *restrict work, int64_t tokens,
                                   int64_t heads, int64_t kv_heads, int64_t width, int64_t sequence,
                                   float scale, struct attention_rule rule)
{
    enum { PAIRS = ATTENTION_TILE / 2 };
    const bool exact = type == ELEMENT_F32;
    const int64_t row = heads * width, kv_row = kv_heads * width, shared = heads / kv_heads,
                  even = exact ? 1 : 2, words = attention_words(type, width);
    float weight[ATTENTION_TILE], slope[ATTENTION_TILE], out[ATTENTION_QUERIES * width];
    bf16 weight_rounded[exact ? 1 : ATTENTION_TILE], slope_rounded[exact ? 1 : ATTENTION_TILE];
    uint32_t weight_pairs[exact ? 1 : PAIRS], slope_pairs[exact ? 1 : PAIRS],
        query_packed[ATTENTION_QUERIES * words], d_out_packed[ATTENTION_QUERIES * words],
        query_along[exact ? 1 : ATTENTION_QUERIES * words],
        d_out_along[exact ? 1 : ATTENTION_QUERIES * words];
    const void *weights = exact ? (const void *)weight : weight_rounded,
               *slopes = exact ? (const void *)slope : slope_rounded,
               *weights_across = exact ? (const void *)weight : weight_pairs,
               *slopes_across = exact ? (const void *)slope : slope_pairs;
    const struct operand s = {type, false, slopes, ATTENTION_STRIDE},
                         w_across = {type, true, weights, ATTENTION_STRIDE},
                         s_across = {type, true, slopes, ATTENTION_STRIDE};
    float *key_sum = work, *value_sum = work + sequence * width;
    struct attention_packs packs = {0};
    memset(weight, 0, sizeof weight);
    memset(slope, 0, sizeof slope);
    for (int64_t start = 0; start < tokens; start += sequence)
        for (int64_t h = 0; h < heads; h++) {
            const int64_t head = start * kv_row + h / shared * width;
            if (h % shared == 0) {
                memset(work, 0, sizeof *work * (size_t)(2 * sequence * width));
                packs.to = 0;
            }
            for (int64_t from = 0; from < sequence; from += ATTENTION_QUERIES) {
                const int64_t queries = attention_smaller(ATTENTION_QUERIES, sequence - from),
                              begin = attention_first(rule, start, from) / even * even,
                              end = from + queries, first = (start + from) * row + h * width;
                const struct gemm_tiles *tiles = attention_tiles(type, width, queries);
                const struct operand query = {type, false, element_at(type, q, first), row},
                                     d_out = {type, false, element_at(type, d_o, first), row};
                float delta[ATTENTION_QUERIES] = {0}, log_sum[ATTENTION_QUERIES] = {0};
                if (tiles) {
                    attention_copy(type, queries, width, query.at, row, query_packed);
                    attention_copy(type, queries, width, d_out.at, row, d_out_packed);
                }
                if (tiles && !exact) {
                    tiles->along(queries, width, query_packed, words, query_along);
                    tiles->along(queries, width, d_out_packed, words, d_out_along);
                }
                for (int64_t i = 0; i < queries; i++)
                    delta[i] = attention_inner(type, element_at(type, d_o, first + i * row),
                                               element_at(type, o, first + i * row), width);
                for (int64_t i = 0; i < queries; i++)
                    log_sum[i] = lse[(start + from + i) * heads + h];
                for (int64_t key = begin; key < end; key += ATTENTION_KEYS) {
                    const int64_t keys = attention_smaller(ATTENTION_KEYS, end - key),
                                  at = head + key * kv_row;
                    const struct operand key_tile = {type, false, element_at(type, k, at), kv_row},
                                         key_across = {type, true, key_tile.at, kv_row},
                                         value_across = {type, true, element_at(type, v, at),
                                                         kv_row};
                    struct attention_range seen[ATTENTION_QUERIES / ATTENTION_TOGETHER];
                    packs.tiles = keys > 1 ? tiles : NULL;
                    if (packs.tiles)
                        attention_pack(type, true, &packs, element_at(type, k, head),
                                       element_at(type, v, head), kv_row, width, sequence, key,
                                       keys);
                    else {
                        product_f32(queries, keys, width, query, key_across, false, weight,
                                    ATTENTION_STRIDE);
                        product_f32(queries, keys, width, d_out, value_across, false, slope,
                                    ATTENTION_STRIDE);
                    }
                    for (int64_t i = 0; i < queries; i += ATTENTION_TOGETHER) {
                        const struct attention_group g =
                            attention_group(rule, start, from + i, queries - i, key, keys);
                        const struct attention_range wide =
                            attention_columns(packs.tiles, g.any, keys);
                        const int64_t tile = i * ATTENTION_STRIDE, packed = key - packs.from;
                        float *p = weight + tile, *d = slope + tile;
                        if (key == begin)
                            attention_ahead(type, (const void *[]){q, o, d_o}, 3, k, v, tokens,
                                            heads, kv_heads, width, sequence, start, h, from + i);
                        if (packs.tiles) {
                            attention_across(type, &packs, wide, width, query_packed + i * words,
                                             packs.key_across + packed, p);
                            attention_across(type, &packs, wide, width, d_out_packed + i * words,
                                             packs.value_across + packed, d);
                        }
                        seen[i / ATTENTION_TOGETHER] = g.any;
                        if (!(rule.softcap > 0))
                            attention_slopes(&g, p, d, wide, scale, log_sum + i, delta + i);
                        for (int u = 0; u < ATTENTION_TOGETHER && rule.softcap > 0; u++)
                            attention_slopes_capped(
                                p + u * ATTENTION_STRIDE, d + u * ATTENTION_STRIDE, g.seen[u], wide,
                                scale, rule.softcap, log_sum[i + u], delta[i + u]);
                        if (!packs.tiles) {
                            for (int u = 0; u < ATTENTION_TOGETHER && !exact; u++) {
                                const int64_t to = tile + u * ATTENTION_STRIDE;
                                element_store(type, weight_rounded + to, weight + to, keys);
                                element_store(type, slope_rounded + to, slope + to, keys);
                            }
                            continue;
                        }
                        if (!exact) {
                            const int64_t n = wide.to - wide.from, pairs = tile / 2 + wide.from;
                            packs.tiles->halves(n, p + wide.from, ATTENTION_STRIDE, NULL,
                                                weight_pairs + pairs);
                            packs.tiles->halves(n, d + wide.from, ATTENTION_STRIDE,
                                                slope_rounded + tile + wide.from,
                                                slope_pairs + pairs);
                        }
                        attention_along(type, &packs, g.any, width, key,
                                        element_at(type, slopes, tile), key > begin,
                                        out + i * width);
                    }
                    if (packs.tiles) {
                        attention_queries(type, tiles, seen, queries, keys, width, weights_across,
                                          exact ? d_out_packed : d_out_along,
                                          value_sum + key * width);
                        attention_queries(type, tiles, seen, queries, keys, width, slopes_across,
                                          exact ? query_packed : query_along,
                                          key_sum + key * width);
                    } else {
                        product_f32(keys, width, queries, w_across, d_out, true,
                                    value_sum + key * width, width);
                        product_f32(queries, width, keys, s, key_tile, key > begin, out, width);
                        product_f32(keys, width, queries, s_across, query, true,
                                    key_sum + key * width, width);
                    }
                }
                for (int64_t i = 0; i < queries; i++)
                    element_store(type, element_at(type, dq, first + i * row), out + i * width,
                                  width);
            }
            if ((h + 1) % shared) continue;
            for (int64_t t = 0; t < sequence; t++) {
                const int64_t at = head + t * kv_row;
                element_store(type, element_at(type, dk, at), key_sum + t * width, width);
                element_store(type, element_at(type, dv, at), value_sum + t * width, width);
            }
        }
}

#define attention_grad(q, k, v, ...) attention_grad_of(ELEMENT(q), q, k, v, __VA_ARGS__)

#endif
