/* Causal attention and its gradient for the cpu device, tile by tile: 64 queries of one head against up to 256 keys,
 * with the matrix products of a tile done by gemm() and the softmax kept online across tiles. The scores of a whole sequence
 * never exist, so the kernel needs nothing but two tiles of 64 KiB on the calling thread's stack, whatever the sequence.
 * The order of every sum follows from the shapes alone. Layout: rows are tokens, sequence after sequence; a row holds
 * heads x width elements. `heads / kv_heads` neighbouring query heads share a key head. */
#ifndef TEMPLATE_ATTENTION_H
#define TEMPLATE_ATTENTION_H

#include "gemm.h"
#include "op_math.h"

enum { ATTENTION_QUERIES = 64, ATTENTION_KEYS = 256 };

static inline int64_t attention_smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* Scores of one query, in place: scaled, of which the first `visible` count; the others of `room` (a multiple of 16) become 0.
 * top and sum are those of the tiles before (-inf and 0 at first); returns what earlier results are to be multiplied by. */
static inline float attention_softmax(float *restrict score, int64_t visible, int64_t room, float scale, float *top, float *sum)
{
    float largest[OP_LANES], total[OP_LANES];
    for (int k = 0; k < OP_LANES; k++) largest[k] = -INFINITY, total[k] = 0.0f;
    int64_t rounded = (visible + OP_LANES - 1) / OP_LANES * OP_LANES;
    for (int64_t j = 0; j < rounded; j += OP_LANES) {
#pragma omp simd
        for (int k = 0; k < OP_LANES; k++) {
            float s = j + k < visible ? score[j + k] * scale : -INFINITY;
            score[j + k] = s;
            largest[k] = op_max_f32(largest[k], s);
        }
    }
    float before = *top, now = op_max_f32(before, op_max_lanes_f32(largest)), shrink = op_exp_f32(before - now);
    for (int64_t j = 0; j < rounded; j += OP_LANES) {
#pragma omp simd
        for (int k = 0; k < OP_LANES; k++) {
            float e = op_exp_f32(score[j + k] - now);
            score[j + k] = e;
            total[k] += e;
        }
    }
    for (int64_t j = rounded; j < room; j++) score[j] = 0.0f;
    *sum = *sum * shrink + op_sum_lanes_f32(total);
    *top = now;
    return shrink;
}

static inline void attention(const float *restrict q, const float *restrict k, const float *restrict v, float *restrict o, float *restrict lse,
                             int64_t tokens, int64_t heads, int64_t kv_heads, int64_t width, int64_t sequence, float scale)
{
    float tile[ATTENTION_QUERIES * ATTENTION_KEYS];
    memset(tile, 0, sizeof tile);
    int64_t row = heads * width, kv_row = kv_heads * width, shared = heads / kv_heads;
    for (int64_t start = 0; start < tokens; start += sequence)
        for (int64_t h = 0; h < heads; h++)
            for (int64_t from = 0; from < sequence; from += ATTENTION_QUERIES) {
                int64_t queries = attention_smaller(ATTENTION_QUERIES, sequence - from), end = from + queries;
                const float *q_tile = q + (start + from) * row + h * width;
                float *o_tile = o + (start + from) * row + h * width, top[ATTENTION_QUERIES], sum[ATTENTION_QUERIES];
                for (int64_t i = 0; i < queries; i++) top[i] = -INFINITY, sum[i] = 0.0f;
                for (int64_t key = 0; key < end; key += ATTENTION_KEYS) {
                    int64_t keys = attention_smaller(ATTENTION_KEYS, end - key), at = (start + key) * kv_row + h / shared * width;
                    int64_t room = (keys + OP_LANES - 1) / OP_LANES * OP_LANES;
                    gemm(false, true, queries, keys, width, q_tile, row, k + at, kv_row, false, tile, ATTENTION_KEYS);
                    for (int64_t i = 0; i < queries; i++) {
                        int64_t visible = attention_smaller(keys, from + i + 1 - key);
                        float shrink = attention_softmax(tile + i * ATTENTION_KEYS, visible, room, scale, &top[i], &sum[i]);
                        if (key)
                            for (int64_t c = 0; c < width; c++) o_tile[i * row + c] *= shrink;
                    }
                    gemm(false, false, queries, width, keys, tile, ATTENTION_KEYS, v + at, kv_row, key > 0, o_tile, row);
                }
                for (int64_t i = 0; i < queries; i++) {
                    float inverse = 1.0f / sum[i];
                    for (int64_t c = 0; c < width; c++) o_tile[i * row + c] *= inverse;
                    lse[(start + from + i) * heads + h] = top[i] + op_log_f32(sum[i]);
                }
            }
}

/* With P the attention weights: dV = P' dO, dP = dO V', dS = scale P (dP - rowsum(dO O)), dQ = dS K, dK = dS' Q. P comes back
 * from the scores and the saved log-sum-exp. */
static inline void attention_grad(const float *restrict q, const float *restrict k, const float *restrict v, const float *restrict o,
                                  const float *restrict lse, const float *restrict d_o, float *restrict dq, float *restrict dk, float *restrict dv,
                                  int64_t tokens, int64_t heads, int64_t kv_heads, int64_t width, int64_t sequence, float scale)
{
    float weight[ATTENTION_QUERIES * ATTENTION_KEYS], slope[ATTENTION_QUERIES * ATTENTION_KEYS];
    memset(weight, 0, sizeof weight);
    memset(slope, 0, sizeof slope);
    memset(dk, 0, sizeof *dk * (size_t)(tokens * kv_heads * width));
    memset(dv, 0, sizeof *dv * (size_t)(tokens * kv_heads * width));
    int64_t row = heads * width, kv_row = kv_heads * width, shared = heads / kv_heads;
    for (int64_t start = 0; start < tokens; start += sequence)
        for (int64_t h = 0; h < heads; h++)
            for (int64_t from = 0; from < sequence; from += ATTENTION_QUERIES) {
                int64_t queries = attention_smaller(ATTENTION_QUERIES, sequence - from), end = from + queries, tile = (start + from) * row + h * width;
                float delta[ATTENTION_QUERIES];
                for (int64_t i = 0; i < queries; i++) {
                    float lane[OP_LANES] = {0};
                    const float *a = d_o + tile + i * row, *b = o + tile + i * row;
                    int64_t whole = width / OP_LANES * OP_LANES;
                    for (int64_t c = 0; c < whole; c += OP_LANES) {
#pragma omp simd
                        for (int n = 0; n < OP_LANES; n++) lane[n] += a[c + n] * b[c + n];
                    }
                    for (int64_t c = whole; c < width; c++) lane[c - whole] += a[c] * b[c];
                    delta[i] = op_sum_lanes_f32(lane);
                }
                for (int64_t key = 0; key < end; key += ATTENTION_KEYS) {
                    int64_t keys = attention_smaller(ATTENTION_KEYS, end - key), at = (start + key) * kv_row + h / shared * width;
                    gemm(false, true, queries, keys, width, q + tile, row, k + at, kv_row, false, weight, ATTENTION_KEYS);
                    gemm(false, true, queries, keys, width, d_o + tile, row, v + at, kv_row, false, slope, ATTENTION_KEYS);
                    for (int64_t i = 0; i < queries; i++) {
                        int64_t visible = attention_smaller(keys, from + i + 1 - key);
                        float *restrict w = weight + i * ATTENTION_KEYS, *restrict s = slope + i * ATTENTION_KEYS;
                        float log_sum = lse[(start + from + i) * heads + h], mean = delta[i];
                        for (int64_t j = 0; j < visible; j++) {
                            float p = op_exp_f32(w[j] * scale - log_sum);
                            w[j] = p;
                            s[j] = p * (s[j] - mean) * scale;
                        }
                        for (int64_t j = visible; j < keys; j++) w[j] = s[j] = 0.0f;
                    }
                    gemm(true, false, keys, width, queries, weight, ATTENTION_KEYS, d_o + tile, row, true, dv + at, kv_row);
                    gemm(false, false, queries, width, keys, slope, ATTENTION_KEYS, k + at, kv_row, key > 0, dq + tile, row);
                    gemm(true, false, keys, width, queries, slope, ATTENTION_KEYS, q + tile, row, true, dk + at, kv_row);
                }
            }
}

#endif
