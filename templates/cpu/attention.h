/* Causal attention for the cpu device, tile by tile: 64 queries of one head against up to 256 keys,
 * and of these eight queries after the other, whose scores stay in the first cache. The softmax is
 * updated from tile to tile of keys; the scores of a whole sequence are never stored. Keys that
 * none of eight queries sees are left out. attention_gradient.h has the gradient.
 *
 * Products are those of gemm_tiles() where the processor has them and the shape allows it: keys and
 * values of a head are packed once for all of its queries. Otherwise product() makes those of a
 * tile. In F32 both give the same bits.
 *
 * Queries, keys, values and results are F32 or BF16; scores and sums are F32. Where operands are
 * BF16, weights and the gradient of scores are rounded to BF16 for their products, so that these
 * are of two BF16 operands; the sum by which a result is divided is that of the weights before
 * rounding. A BF16 result is rounded once. The order of every sum follows from the shapes. Layout:
 * rows are tokens, sequence after sequence; a row has heads x width elements. `heads / kv_heads`
 * neighbouring query heads share a key head. */
#ifndef TEMPLATE_ATTENTION_H
#define TEMPLATE_ATTENTION_H

#include "product.h"

/* Rows of a tile are ATTENTION_STRIDE apart: they fall on different lines of the first cache. */
enum {
    ATTENTION_QUERIES = 64,
    ATTENTION_KEYS = 256,
    ATTENTION_STRIDE = ATTENTION_KEYS + 2 * OP_LANES,
    ATTENTION_TILE = ATTENTION_QUERIES * ATTENTION_STRIDE
};

/* compiler/ir/ir.h has the meaning. 0 and NULL: none. */
struct attention_rule {
    int64_t window;
    float softcap;
    const int32_t *starts;
};

static inline int64_t attention_smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t attention_larger(int64_t a, int64_t b) { return a > b ? a : b; }
/* To a multiple of OP_LANES. */
static inline int64_t attention_down(int64_t i) { return i / OP_LANES * OP_LANES; }
static inline int64_t attention_up(int64_t i) { return attention_down(i + OP_LANES - 1); }

/* The first key that query i of the sample from row `start` on sees. */
SPECIALISED int64_t attention_first(struct attention_rule rule, int64_t start, int64_t i)
{
    int64_t first = rule.window ? attention_larger(i - rule.window + 1, 0) : 0;
    return rule.starts ? attention_larger(first, rule.starts[start + i] - start) : first;
}

/* ── who sees what ───────────────────────────────────────────────────────────── */

/* Queries whose scores are worked on at once: a step of the exponential waits for the one before
 * it, and another query's does not. As many as a tile of gemm.h has rows. */
enum { ATTENTION_TOGETHER = OP_MANY / OP_LANES };
_Static_assert((int)ATTENTION_TOGETHER == (int)GEMM_TILE_ROWS, "a tile has other rows");

/* Keys of a tile: [from, to). None where `to` is not larger. */
struct attention_range {
    int64_t from, to;
};

/* ATTENTION_TOGETHER queries of a tile: what each of them sees, at least one of them, all of them.
 * Queries behind the last see nothing. */
struct attention_group {
    struct attention_range seen[ATTENTION_TOGETHER], any, all;
};

/* Of query `i` of the sample from row `start` on, and those behind it, up to `queries`; keys of the
 * tile from `key` on. What a later query sees begins and ends no earlier. */
static inline struct attention_group attention_group(struct attention_rule rule, int64_t start,
                                                     int64_t i, int64_t queries, int64_t key,
                                                     int64_t keys)
{
    struct attention_group g = {0};
    const int there = (int)attention_smaller(ATTENTION_TOGETHER, queries);
    for (int u = 0; u < there; u++) {
        const int64_t first = attention_larger(attention_first(rule, start, i + u) - key, 0);
        g.seen[u].from = attention_smaller(first, keys);
        g.seen[u].to = attention_larger(attention_smaller(keys, i + u + 1 - key), 0);
    }
    const struct attention_range last = g.seen[there - 1];
    g.any = (struct attention_range){attention_smaller(g.seen[0].from, last.to), last.to};
    if (there == ATTENTION_TOGETHER) g.all = (struct attention_range){last.from, g.seen[0].to};
    return g;
}

/* Whole vectors of keys. */
static inline struct attention_range attention_vectors(struct attention_range r)
{
    return (struct attention_range){attention_down(r.from), attention_up(r.to)};
}
/* The columns that a group's scores have: by tiles those of keys that it sees, else of all. */
static inline struct attention_range attention_columns(const struct gemm_tiles *tiles,
                                                       struct attention_range seen, int64_t keys)
{
    return tiles ? attention_vectors(seen) : (struct attention_range){0, attention_up(keys)};
}

/* In the vectors of `keys` that not all of a group see: numbers of keys that their query does not
 * see become `hidden`. */
static inline void attention_hide(const struct attention_group *g, struct attention_range keys,
                                  float hidden, float *restrict x)
{
    for (int64_t j = keys.from; j < keys.to; j += OP_LANES) {
        if (j >= g->all.from && j + OP_LANES <= g->all.to) continue;
        for (int u = 0; u < ATTENTION_TOGETHER; u++) {
            const int from = (int)(g->seen[u].from - j), to = (int)(g->seen[u].to - j);
            float *row = x + u * ATTENTION_STRIDE + j;
#pragma omp simd
            for (int k = 0; k < OP_LANES; k++) row[k] = k >= from && k < to ? row[k] : hidden;
        }
    }
}

/* ── the softmax ─────────────────────────────────────────────────────────────── */

/* Scores become cap tanh(scale score / cap). */
static inline void attention_cap(float *restrict score, int64_t n, float scale, float cap)
{
    float part = scale / cap;
    for (int64_t j = 0; j < n; j++) score[j] = cap * op_tanh_f32(score[j] * part);
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

/* exp(score scale - less) of a group, of OP_LANES keys each. */
static inline void attention_exp(const float *restrict score, float scale,
                                 const float *restrict less, float e[OP_MANY])
{
#pragma GCC unroll 8
    for (int u = 0; u < ATTENTION_TOGETHER; u++) {
        const float *row = score + u * ATTENTION_STRIDE;
#pragma omp simd
        for (int k = 0; k < OP_LANES; k++) e[u * OP_LANES + k] = row[k] * scale - less[u];
    }
    op_exp_low_many_f32(e);
}

/* Scores of a group, in place: of the keys of `keys`, whole vectors, those that a query sees become
 * weights, the others 0. top and sum are those of the tiles before, -inf and 0 in the first;
 * shrink: what earlier results are to be multiplied by. scale > 0. */
static inline void attention_softmax(const struct attention_group *g, bool first,
                                     float *restrict score, struct attention_range keys,
                                     float scale, float *restrict top, float *restrict sum,
                                     float *restrict shrink)
{
    float largest[OP_MANY], total[OP_MANY], now[ATTENTION_TOGETHER];
    attention_hide(g, keys, -INFINITY, score);
    for (int k = 0; k < OP_MANY; k++) largest[k] = -INFINITY, total[k] = 0.0f;
    for (int64_t j = keys.from; j < keys.to; j += OP_LANES)
#pragma GCC unroll 8
        for (int u = 0; u < ATTENTION_TOGETHER; u++) {
            const float *row = score + u * ATTENTION_STRIDE + j;
            float *most = largest + u * OP_LANES;
#pragma omp simd
            for (int k = 0; k < OP_LANES; k++)
                most[k] = row[k] > most[k] ? row[k] : most[k]; /* a NaN shows in the sum */
        }
    for (int u = 0; u < ATTENTION_TOGETHER; u++) {
        const float most = attention_largest(largest + u * OP_LANES) * scale,
                    larger = top[u] > most ? top[u] : most;
        now[u] = larger > -INFINITY ? larger : 0.0f; /* it has seen nothing yet */
        shrink[u] = first ? 0.0f : op_exp_f32(top[u] - now[u]);
        top[u] = larger;
    }
    for (int64_t j = keys.from; j < keys.to; j += OP_LANES) {
        float e[OP_MANY];
        attention_exp(score + j, scale, now, e);
#pragma GCC unroll 8
        for (int u = 0; u < ATTENTION_TOGETHER; u++) {
#pragma omp simd
            for (int k = 0; k < OP_LANES; k++) total[u * OP_LANES + k] += e[u * OP_LANES + k];
        }
#pragma GCC unroll 8
        for (int u = 0; u < ATTENTION_TOGETHER; u++)
            memcpy(score + u * ATTENTION_STRIDE + j, e + u * OP_LANES, sizeof *e * OP_LANES);
    }
    for (int u = 0; u < ATTENTION_TOGETHER; u++)
        sum[u] = sum[u] * shrink[u] + op_sum_lanes_f32(total + u * OP_LANES);
}

/* ── keys and values of a head, packed ───────────────────────────────────────── */

/* 1.6 MiB: in F32 the gradient of a sequence of 2,048 with heads of 64, in BF16 of 4,096. Of longer
 * ones the keys of one tile are packed, again for every 64 queries. The compute lane is one thread,
 * so one set serves all kernels. */
enum { ATTENTION_WIDEST = 256, ATTENTION_ROOM = 400 << 10 };
static uint32_t attention_room[ATTENTION_ROOM + OP_LANES] __attribute__((aligned(64)));

/* Of one head of one sample, keys [from, to): `across`, for inner products with keys or values, and
 * `along`, for sums over the keys, of values, in the gradient of keys. */
struct attention_packs {
    const struct gemm_tiles *tiles; /* NULL: nothing is packed */
    int64_t from, to, ld;
    uint32_t *key_across, *value_across, *along;
};

/* The products with which a tile of so many queries is made, or NULL. oneDNN adds up in another
 * order where it has fewer than 16 rows, and one column. */
SPECIALISED const struct gemm_tiles *attention_tiles(enum element type, int64_t width,
                                                     int64_t queries)
{
    return width % OP_LANES == 0 && width <= ATTENTION_WIDEST && queries >= 16
               ? gemm_tiles(type == ELEMENT_BF16)
               : NULL;
}

/* Words of n neighbouring elements. */
SPECIALISED int64_t attention_words(enum element type, int64_t n)
{
    return type == ELEMENT_F32 ? n : (n + 1) / 2;
}

/* Packs `keys` keys from `key` on, unless they are packed: with the whole sample, which k and v
 * point to, where that fits. */
SPECIALISED void attention_pack(enum element type, const bool gradient,
                                struct attention_packs *packs, const void *k, const void *v,
                                int64_t stride, int64_t width, int64_t sequence, int64_t key,
                                int64_t keys)
{
    if (packs->from <= key && key + keys <= packs->to) return;
    const int64_t words = attention_words(type, width), turned = gradient ? 2 : 1;
    for (int whole = 1; whole >= 0; whole--) {
        packs->from = whole ? 0 : key;
        packs->to = whole ? sequence : key + keys;
        packs->ld = (attention_up(packs->to - packs->from) / OP_LANES | 1) * OP_LANES;
        if (turned * words * packs->ld + attention_words(type, packs->to - packs->from) * width <=
            ATTENTION_ROOM)
            break;
    }
    const int64_t n = packs->to - packs->from, row = attention_words(type, stride);
    const void *keys_at = element_at(type, k, packs->from * stride),
               *values_at = element_at(type, v, packs->from * stride);
    packs->key_across = attention_room;
    packs->value_across = attention_room + words * packs->ld;
    packs->along = attention_room + turned * words * packs->ld;
    packs->tiles->across(n, words, keys_at, row, packs->key_across, packs->ld);
    if (gradient) packs->tiles->across(n, words, values_at, row, packs->value_across, packs->ld);
    packs->tiles->along(n, width, gradient ? keys_at : values_at, row, packs->along);
}

/* Rows of a tile, as they are: rows up to a multiple of GEMM_TILE_ROWS are zeros. */
SPECIALISED void attention_copy(enum element type, int64_t rows, int64_t width, const void *from,
                                int64_t stride, uint32_t *to)
{
    const int64_t words = attention_words(type, width);
    for (int64_t r = 0; r < rows; r++)
        memcpy(to + r * words, element_at(type, from, r * stride), sizeof *to * (size_t)words);
    memset(to + rows * words, 0, sizeof *to * (size_t)(words * (-rows & (GEMM_TILE_ROWS - 1))));
}

/* ── rows that come to the cache ahead ───────────────────────────────────────── */

/* A row of a head is a few lines of a longer row, so its first use waits for memory. While a group
 * of a head is worked on, its rows of the next head are fetched: of `queries`, as the queries lie,
 * of keys and values where that head has others. Only where a second cache of 1 MiB, which has to
 * hold both heads and what is packed, still has them when they are used. */
enum { ATTENTION_LINE = 64, ATTENTION_AHEAD = 320 << 10 };

SPECIALISED void attention_fetch(enum element type, const void *from, int64_t stride, int64_t width)
{
    const int64_t bytes = attention_words(type, width) * (int64_t)sizeof(uint32_t);
#pragma GCC unroll 8
    for (int r = 0; r < ATTENTION_TOGETHER; r++)
        for (int64_t b = 0; b < bytes; b += ATTENTION_LINE)
            __builtin_prefetch((const char *)element_at(type, from, r * stride) + b, 0, 2);
}

/* `i`: the first row of the group in the sample from row `start` on, `h` its head. */
SPECIALISED void attention_ahead(enum element type, const void *const *queries, int n,
                                 const void *k, const void *v, int64_t tokens, int64_t heads,
                                 int64_t kv_heads, int64_t width, int64_t sequence, int64_t start,
                                 int64_t h, int64_t i)
{
    const int64_t bytes = attention_words(type, width) * (int64_t)sizeof(uint32_t),
                  next = h + 1 < heads ? h + 1 : 0, kv_next = next / (heads / kv_heads),
                  token = (next ? start : start + sequence) + i;
    if (sequence * bytes * (n + 2) > ATTENTION_AHEAD || token + ATTENTION_TOGETHER > tokens) return;
    for (int o = 0; o < n; o++)
        attention_fetch(type, element_at(type, queries[o], (token * heads + next) * width),
                        heads * width, width);
    if (next % (heads / kv_heads)) return;
    const int64_t key = (token * kv_heads + kv_next) * width;
    attention_fetch(type, element_at(type, k, key), kv_heads * width, width);
    attention_fetch(type, element_at(type, v, key), kv_heads * width, width);
}

/* Inner products of the queries of a group and the keys of its vectors. `across` is of the first
 * key of the tile. */
SPECIALISED void attention_across(enum element type, const struct attention_packs *packs,
                                  struct attention_range keys, int64_t width,
                                  const uint32_t *queries, const uint32_t *across, float *score)
{
    const int64_t words = attention_words(type, width);
    packs->tiles->sums(true, keys.to - keys.from, words, queries, words, across + keys.from,
                       packs->ld, false, score + keys.from, ATTENTION_STRIDE);
}

/* Sums over the keys that a group sees, of weights and values or slopes and keys. */
SPECIALISED void attention_along(enum element type, const struct attention_packs *packs,
                                 struct attention_range keys, int64_t width, int64_t key,
                                 const void *weight, bool add, float *out)
{
    const int64_t even = type == ELEMENT_F32 ? 1 : 2, from = keys.from / even,
                  to = attention_words(type, keys.to);
    packs->tiles->sums(true, width, to - from, element_at(type, weight, from * even),
                       attention_words(type, ATTENTION_STRIDE),
                       packs->along + ((key - packs->from) / even + from) * width, width, add, out,
                       width);
}

/* ── attention ───────────────────────────────────────────────────────────────── */
SPECIALISED void attention_of(enum element type, const void *restrict q, const void *restrict k,
                              const void *restrict v, void *restrict o, float *restrict lse,
                              int64_t tokens, int64_t heads, int64_t kv_heads, int64_t width,
                              int64_t sequence, float scale, struct attention_rule rule)
{
    const bool exact = type == ELEMENT_F32;
    const int64_t row = heads * width, kv_row = kv_heads * width, shared = heads / kv_heads,
                  even = exact ? 1 : 2, words = attention_words(type, width);
    float tile[ATTENTION_TILE], out[ATTENTION_QUERIES * width];
    bf16 rounded[exact ? 1 : ATTENTION_TILE];
    uint32_t packed[ATTENTION_QUERIES * words];
    const void *weights = exact ? (const void *)tile : rounded;
    struct attention_packs packs = {0};
    memset(tile, 0, sizeof tile);
    for (int64_t start = 0; start < tokens; start += sequence)
        for (int64_t h = 0; h < heads; h++) {
            const int64_t head = start * kv_row + h / shared * width;
            if (h % shared == 0) packs.to = 0;
            for (int64_t from = 0; from < sequence; from += ATTENTION_QUERIES) {
                const int64_t queries = attention_smaller(ATTENTION_QUERIES, sequence - from),
                              begin = attention_first(rule, start, from) / even * even,
                              end = from + queries, first = (start + from) * row + h * width;
                const struct gemm_tiles *tiles = attention_tiles(type, width, queries);
                const struct operand query = {type, false, element_at(type, q, first), row};
                float top[ATTENTION_QUERIES], sum[ATTENTION_QUERIES];
                if (tiles) attention_copy(type, queries, width, query.at, row, packed);
                for (int i = 0; i < ATTENTION_QUERIES; i++) top[i] = -INFINITY, sum[i] = 0.0f;
                for (int64_t key = begin; key < end; key += ATTENTION_KEYS) {
                    const int64_t keys = attention_smaller(ATTENTION_KEYS, end - key),
                                  at = head + key * kv_row;
                    packs.tiles = keys > 1 ? tiles : NULL;
                    if (packs.tiles)
                        attention_pack(type, false, &packs, element_at(type, k, head),
                                       element_at(type, v, head), kv_row, width, sequence, key,
                                       keys);
                    else
                        product_f32(queries, keys, width, query,
                                    (struct operand){type, true, element_at(type, k, at), kv_row},
                                    false, tile, ATTENTION_STRIDE);
                    for (int64_t i = 0; i < queries; i += ATTENTION_TOGETHER) {
                        const struct attention_group g =
                            attention_group(rule, start, from + i, queries - i, key, keys);
                        const struct attention_range wide =
                            attention_columns(packs.tiles, g.any, keys);
                        if (key == begin)
                            attention_ahead(type, (const void *[]){q}, 1, k, v, tokens, heads,
                                            kv_heads, width, sequence, start, h, from + i);
                        const float part = rule.softcap > 0 ? 1.0f : scale;
                        float *score = tile + i * ATTENTION_STRIDE, shrink[ATTENTION_TOGETHER];
                        if (packs.tiles)
                            attention_across(type, &packs, wide, width, packed + i * words,
                                             packs.key_across + (key - packs.from), score);
                        for (int u = 0; u < ATTENTION_TOGETHER && rule.softcap > 0; u++)
                            attention_cap(score + u * ATTENTION_STRIDE + wide.from,
                                          wide.to - wide.from, scale, rule.softcap);
                        attention_softmax(&g, key == begin, score, wide, part, top + i, sum + i,
                                          shrink);
                        for (int u = 0; u < ATTENTION_TOGETHER && key > begin; u++)
                            for (int64_t c = 0; c < width; c++)
                                out[(i + u) * width + c] *= shrink[u];
                        if (!packs.tiles) {
                            for (int u = 0; u < ATTENTION_TOGETHER && !exact; u++)
                                element_store(type, rounded + (i + u) * ATTENTION_STRIDE,
                                              score + u * ATTENTION_STRIDE, keys);
                            continue;
                        }
                        if (!exact)
                            packs.tiles->halves(wide.to - wide.from, score + wide.from,
                                                ATTENTION_STRIDE,
                                                rounded + i * ATTENTION_STRIDE + wide.from, NULL);
                        attention_along(type, &packs, g.any, width, key,
                                        element_at(type, weights, i * ATTENTION_STRIDE),
                                        key > begin, out + i * width);
                    }
                    if (!packs.tiles)
                        product_f32(queries, width, keys,
                                    (struct operand){type, false, weights, ATTENTION_STRIDE},
                                    (struct operand){type, false, element_at(type, v, at), kv_row},
                                    key > begin, out, width);
                }
                for (int64_t i = 0; i < queries; i++) {
                    float inverse = 1.0f / sum[i];
                    for (int64_t c = 0; c < width; c++) out[i * width + c] *= inverse;
                    element_store(type, element_at(type, o, first + i * row), out + i * width,
                                  width);
                    lse[(start + from + i) * heads + h] = top[i] + op_log_f32(sum[i]);
                }
            }
        }
}

#define attention(q, k, v, o, ...) attention_of(ELEMENT(q), q, k, v, o, __VA_ARGS__)

#include "attention_gradient.h"

#endif
