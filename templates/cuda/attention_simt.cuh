/* Causal attention and its gradient without tensor cores: for F32, whose products keep the
 * precision of F32, and for BF16 rows that attention.cuh does not take. Meaning, layouts and the
 * division into kernels are those of attention.cuh. T is float or bf16, WIDTH any number of
 * elements (above 512 sums no longer fit in registers). Tiles are 64 x 64; a thread computes 4 x 4
 * of one: rows y, y + 16, ... and columns x, x + 16, ... for y = thread / 16, x = thread % 16.
 * Scores, weights and sums are F32.
 *
 *   function, of <T, W>        grid x              y                     z
 *   attention_forward_simt     heads * sequences     ceil(sequence / 64)   1
 *   attention_rows_simt        ceil(tokens / 8)      heads                 1
 *   attention_keys_simt        kv_heads * sequences  ceil(sequence / 64)   W <= 256 ? 1 : 2
 *   attention_queries_simt     heads * sequences     ceil(sequence / 64)   1
 *
 * All have 256 threads and no dynamic shared memory. The workspace `rows` of the gradient has 8 *
 * tokens * heads bytes. */
#ifndef CUDA_ATTENTION_SIMT_CUH
#define CUDA_ATTENTION_SIMT_CUH

#include "machine.cuh"
#include "op_math.h"

#define ATTENTION_NEVER -3.0e38f

/* compiler/ir/ir.h has the meaning. 0 and nullptr: none. Callers give constants, so what a rule
 * does not have costs nothing. */
struct attention_rule {
    int window;
    float softcap;
    const int32_t *starts;
};
DEVICE bool attention_cuts(attention_rule rule) { return rule.window > 0 || rule.starts; }

/* The first key that query i of the sample from row `start` on sees; with documents, the last
 * query's after that. Rows are numbered in 32 bits. */
DEVICE int attention_first(attention_rule rule, int64_t start, int sequence, int i)
{
    int first = rule.window > 0 && i >= rule.window ? i - rule.window + 1 : 0, base = (int)start;
    if (!rule.starts) return first;
    int document = rule.starts[base + (i < sequence ? i : sequence - 1)] - base;
    return document > first ? document : first;
}

/* One more than the last query that sees one of the keys below `keys`, of which there is one. */
DEVICE int attention_end(attention_rule rule, int64_t start, int sequence, int keys)
{
    int last = (keys < sequence ? keys : sequence) - 1, base = (int)start,
        end = rule.window > 0 && rule.window < sequence - last ? last + rule.window : sequence;
    for (int low = last + 1; rule.starts && low < end;) {
        int middle = low + (end - low) / 2;
        if (rule.starts[base + middle] - base > last)
            end = middle;
        else
            low = middle + 1;
    }
    return end;
}

/* Operands on their way through shared memory; rows an element longer than they are, so that
 * columns lie in different banks. */
struct attention_room {
    float piece[64 * 66]; /* two of 64 rows x 32, or one of 64 rows x 64 */
    float weight[64 * 65];
};

DEVICE float attention_get(const float *x) { return *x; }
DEVICE float attention_get(const bf16 *x) { return op_from_bf16(*x); }
DEVICE void attention_set(float *to, float x) { *to = x; }
DEVICE void attention_set(bf16 *to, float x) { *to = op_to_bf16(x); }

/* Columns from..from + columns of 64 rows; zeros beyond `valid` rows and the width. */
template <int WIDTH, typename T>
DEVICE void attention_piece(float *to, int pitch, int columns, const T *of, int64_t row_elements,
                            int valid, int from)
{
    for (int i = (int)threadIdx.x; i < 64 * columns; i += 256) {
        int row = i / columns, column = i % columns;
        to[row * pitch + column] = row < valid && from + column < WIDTH
                                       ? attention_get(of + row * row_elements + from + column)
                                       : 0.0f;
    }
}

/* s = a b' over the width; a, b: rows in global memory. */
template <int WIDTH, typename T>
DEVICE void attention_multiply(float (&s)[4][4], attention_room &room, const T *a, int64_t a_row,
                               int a_valid, const T *b, int64_t b_row, int b_valid)
{
    int x = (int)threadIdx.x % 16, y = (int)threadIdx.x / 16;
    float *left = room.piece, *right = room.piece + 64 * 33;
    for (int i = 0; i < 16; i++) s[i / 4][i % 4] = 0.0f;
    for (int from = 0; from < WIDTH; from += 32) {
        __syncthreads();
        attention_piece<WIDTH>(left, 33, 32, a, a_row, a_valid, from);
        attention_piece<WIDTH>(right, 33, 32, b, b_row, b_valid, from);
        __syncthreads();
        for (int c = 0; c < 32; c++) {
            float l[4], r[4];
            for (int i = 0; i < 4; i++)
                l[i] = left[(y + 16 * i) * 33 + c], r[i] = right[(x + 16 * i) * 33 + c];
            for (int i = 0; i < 16; i++)
                s[i / 4][i % 4] = fmaf(l[i / 4], r[i % 4], s[i / 4][i % 4]);
        }
    }
}

/* sum += w b: w as attention_multiply leaves it, b 64 rows in global memory. */
template <int WIDTH, typename T>
DEVICE void attention_gather(float (&sum)[4][(WIDTH + 63) / 64 * 4], const float (&w)[4][4],
                             attention_room &room, const T *b, int64_t b_row, int b_valid)
{
    int x = (int)threadIdx.x % 16, y = (int)threadIdx.x / 16;
    __syncthreads();
    for (int i = 0; i < 16; i++)
        room.weight[(y + 16 * (i / 4)) * 65 + x + 16 * (i % 4)] = w[i / 4][i % 4];
#pragma unroll
    for (int part = 0; part < (WIDTH + 63) / 64; part++) {
        __syncthreads();
        attention_piece<WIDTH>(room.piece, 66, 64, b, b_row, b_valid, part * 64);
        __syncthreads();
        for (int k = 0; k < 64; k++) {
            float l[4], r[4];
            for (int i = 0; i < 4; i++)
                l[i] = room.weight[(y + 16 * i) * 65 + k], r[i] = room.piece[k * 66 + x + 16 * i];
            for (int i = 0; i < 16; i++)
                sum[i / 4][part * 4 + i % 4] =
                    fmaf(l[i / 4], r[i % 4], sum[i / 4][part * 4 + i % 4]);
        }
    }
}

template <int C> DEVICE void attention_zero(float (&sum)[4][C])
{
    for (int i = 0; i < 4 * C; i++) sum[i / C][i % C] = 0.0f;
}

/* A tile of results, each row times its factor. */
template <int WIDTH, typename T>
DEVICE void attention_write(T *to, int64_t row_elements, int valid,
                            const float (&sum)[4][(WIDTH + 63) / 64 * 4], const float (&factor)[4])
{
    int x = (int)threadIdx.x % 16, y = (int)threadIdx.x / 16;
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int c = 0; c < (WIDTH + 15) / 16; c++)
            if (y + 16 * i < valid && x + 16 * c < WIDTH)
                attention_set(to + (y + 16 * i) * row_elements + x + 16 * c, sum[i][c] * factor[i]);
}

DEVICE float attention_capped(float s, float scale, float cap)
{
    return cap * op_tanh_f32(s * (scale / cap));
}

template <typename T, int WIDTH>
DEVICE void attention_forward_simt(const T *q, const T *k, const T *v, T *o, float *lse, int64_t,
                                   int heads, int kv_heads, int sequence, float scale,
                                   attention_rule rule)
{
    __shared__ attention_room room;
    int x = (int)threadIdx.x % 16, y = (int)threadIdx.x / 16,
        head = (int)(blockIdx.x % (unsigned)heads), first = (int)(gridDim.y - 1 - blockIdx.y) * 64;
    int64_t start = (int64_t)(blockIdx.x / (unsigned)heads) * sequence,
            row = (int64_t)heads * WIDTH, kv_row = (int64_t)kv_heads * WIDTH;
    int64_t here = (start + first) * row + head * WIDTH,
            kv_here = start * kv_row + head / (heads / kv_heads) * WIDTH;
    float sum[4][(WIDTH + 63) / 64 * 4], top[4], total[4], inverse[4];
    int low[4];
    attention_zero(sum);
    for (int i = 0; i < 4; i++) {
        top[i] = ATTENTION_NEVER, total[i] = 0.0f;
        low[i] = attention_first(rule, start, sequence, first + y + 16 * i);
    }
    for (int key = attention_first(rule, start, sequence, first) / 64 * 64; key <= first;
         key += 64) {
        float s[4][4];
        attention_multiply<WIDTH>(s, room, q + here, row, sequence - first,
                                  k + kv_here + key * kv_row, kv_row, sequence - key);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float now = top[i], add = 0.0f;
            for (int j = 0; j < 4; j++) {
                int at = key + x + 16 * j;
                s[i][j] = rule.softcap > 0 ? attention_capped(s[i][j], scale, rule.softcap)
                                           : s[i][j] * scale;
                if (at > first + y + 16 * i || (attention_cuts(rule) && at < low[i]))
                    s[i][j] = ATTENTION_NEVER;
                now = fmaxf(now, s[i][j]);
            }
            for (int step = 8; step > 0; step /= 2)
                now = fmaxf(now, __shfl_xor_sync(0xffffffffu, now, step));
            for (int j = 0; j < 4; j++) {
                bool none = attention_cuts(rule) && s[i][j] == ATTENTION_NEVER; /* as may be now */
                add += s[i][j] = none ? 0.0f : op_exp_f32(s[i][j] - now);
            }
            for (int step = 8; step > 0; step /= 2) add += __shfl_xor_sync(0xffffffffu, add, step);
            float shrink = op_exp_f32(top[i] - now);
            total[i] = fmaf(total[i], shrink, add);
            top[i] = now;
#pragma unroll
            for (int c = 0; c < (WIDTH + 63) / 64 * 4; c++) sum[i][c] *= shrink;
        }
        attention_gather<WIDTH>(sum, s, room, v + kv_here + key * kv_row, kv_row, sequence - key);
    }
    for (int i = 0; i < 4; i++) {
        inverse[i] = 1.0f / total[i];
        int query = first + y + 16 * i;
        if (x == 0 && query < sequence)
            lse[(start + query) * heads + head] = top[i] + op_log_f32(total[i]);
    }
    attention_write<WIDTH>(o + here, row, sequence - first, sum, inverse);
}

/* rows[0] = lse, rows[1] = the inner products of the rows of o and d_o, both [heads, tokens]; one
 * warp per row. */
template <typename T, int WIDTH>
DEVICE void attention_rows_simt(const T *o, const T *d_o, const float *lse, float *rows,
                                int64_t tokens, int heads)
{
    int64_t token = (int64_t)blockIdx.x * 8 + (int)threadIdx.x / 32,
            at = (token * heads + (int)blockIdx.y) * WIDTH;
    int lane = (int)threadIdx.x % 32, head = (int)blockIdx.y;
    float sum = 0.0f;
    for (int c = lane; c < WIDTH && token < tokens; c += 32)
        sum = fmaf(attention_get(o + at + c), attention_get(d_o + at + c), sum);
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    if (lane == 0 && token < tokens) {
        rows[head * tokens + token] = lse[token * heads + head];
        rows[(heads + head) * tokens + token] = sum;
    }
}

/* The log-sum-exp between its rows, [tokens, heads], and a library's, [sequences, heads, sequence];
 * one thread per element. 256 threads, x = ceil(tokens * heads / 256). */
template <bool TO_LIBRARY>
DEVICE void attention_stats(const float *from, float *to, int64_t tokens, int heads, int sequence)
{
    int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x, a_head = i / sequence,
            at = (a_head / heads * sequence + i % sequence) * heads + a_head % heads;
    if (i >= tokens * heads) return;
    if (TO_LIBRARY)
        to[i] = from[at];
    else
        to[at] = from[i];
}

/* Of a weight and its slope, what attention.cuh calls P and dS (without scale); 0 where the query
 * does not see the key or either is not there. */
DEVICE void attention_slope(float &p, float &s, bool seen, float scale, float cap, float lse,
                            float delta)
{
    if (cap > 0) {
        float bent = op_tanh_f32(p * (scale / cap));
        p = seen ? op_exp_f32(fmaf(bent, cap, -lse)) : 0.0f;
        s = p * (s - delta) * (1.0f - bent * bent);
        return;
    }
    p = seen ? op_exp_f32(fmaf(p, scale, -lse)) : 0.0f;
    s = p * (s - delta);
}

/* dk and dv of a tile of keys, or one of the two. */
template <typename T, int WIDTH, bool WANT_K, bool WANT_V>
DEVICE void attention_keys_simt_part(attention_room &room, const T *q, const T *k, const T *v,
                                     const T *d_o, const float *rows, T *dk, T *dv, int64_t tokens,
                                     int heads, int kv_heads, int sequence, float scale,
                                     attention_rule rule)
{
    int x = (int)threadIdx.x % 16, y = (int)threadIdx.x / 16,
        head = (int)(blockIdx.x % (unsigned)kv_heads), first = (int)blockIdx.y * 64,
        shared = heads / kv_heads;
    int64_t start = (int64_t)(blockIdx.x / (unsigned)kv_heads) * sequence,
            row = (int64_t)heads * WIDTH, kv_row = (int64_t)kv_heads * WIDTH;
    int64_t here = (start + first) * kv_row + head * WIDTH;
    float k_sum[4][WANT_K ? (WIDTH + 63) / 64 * 4 : 1],
        v_sum[4][WANT_V ? (WIDTH + 63) / 64 * 4 : 1];
    attention_zero(k_sum);
    attention_zero(v_sum);
    int end = attention_end(rule, start, sequence, first + 64);
    for (int h = head * shared; h < (head + 1) * shared; h++)
        for (int from = first; from < end; from += 64) {
            float p[4][4], s[4][4];
            int64_t there = (start + from) * row + h * WIDTH;
            attention_multiply<WIDTH>(p, room, k + here, kv_row, sequence - first, q + there, row,
                                      sequence - from);
            attention_multiply<WIDTH>(s, room, v + here, kv_row, sequence - first, d_o + there, row,
                                      sequence - from);
            for (int j = 0; j < 4; j++) {
                int query = from + x + 16 * j;
                const float *stat = rows + h * tokens + start + query;
                float lse = query < sequence ? stat[0] : 0.0f,
                      delta = query < sequence ? stat[heads * tokens] : 0.0f;
                int low = attention_first(rule, start, sequence, query);
                for (int i = 0; i < 4; i++) {
                    int key = first + y + 16 * i;
                    attention_slope(p[i][j], s[i][j],
                                    query < sequence && key <= query &&
                                        (!attention_cuts(rule) || key >= low),
                                    scale, rule.softcap, lse, delta);
                }
            }
            if constexpr (WANT_V)
                attention_gather<WIDTH>(v_sum, p, room, d_o + there, row, sequence - from);
            if constexpr (WANT_K)
                attention_gather<WIDTH>(k_sum, s, room, q + there, row, sequence - from);
        }
    if constexpr (WANT_K)
        attention_write<WIDTH>(dk + here, kv_row, sequence - first, k_sum,
                               {scale, scale, scale, scale});
    if constexpr (WANT_V)
        attention_write<WIDTH>(dv + here, kv_row, sequence - first, v_sum,
                               {1.0f, 1.0f, 1.0f, 1.0f});
}

/* Both at once where their sums fit in registers; else half of the grid each. */
template <typename T, int WIDTH>
DEVICE void attention_keys_simt(const T *q, const T *k, const T *v, const T *d_o, const float *rows,
                                T *dk, T *dv, int64_t tokens, int heads, int kv_heads, int sequence,
                                float scale, attention_rule rule)
{
    __shared__ attention_room room;
    if constexpr (WIDTH <= 256)
        attention_keys_simt_part<T, WIDTH, true, true>(room, q, k, v, d_o, rows, dk, dv, tokens,
                                                       heads, kv_heads, sequence, scale, rule);
    else if (blockIdx.z == 0)
        attention_keys_simt_part<T, WIDTH, true, false>(room, q, k, v, d_o, rows, dk, dv, tokens,
                                                        heads, kv_heads, sequence, scale, rule);
    else
        attention_keys_simt_part<T, WIDTH, false, true>(room, q, k, v, d_o, rows, dk, dv, tokens,
                                                        heads, kv_heads, sequence, scale, rule);
}

template <typename T, int WIDTH>
DEVICE void attention_queries_simt(const T *q, const T *k, const T *v, const T *d_o,
                                   const float *rows, T *dq, int64_t tokens, int heads,
                                   int kv_heads, int sequence, float scale, attention_rule rule)
{
    __shared__ attention_room room;
    int x = (int)threadIdx.x % 16, y = (int)threadIdx.x / 16,
        head = (int)(blockIdx.x % (unsigned)heads), first = (int)(gridDim.y - 1 - blockIdx.y) * 64;
    int64_t start = (int64_t)(blockIdx.x / (unsigned)heads) * sequence,
            row = (int64_t)heads * WIDTH, kv_row = (int64_t)kv_heads * WIDTH;
    int64_t here = (start + first) * row + head * WIDTH,
            kv_here = start * kv_row + head / (heads / kv_heads) * WIDTH;
    float sum[4][(WIDTH + 63) / 64 * 4], lse[4], delta[4];
    int low[4];
    attention_zero(sum);
    for (int i = 0; i < 4; i++) {
        int query = first + y + 16 * i;
        const float *stat = rows + head * tokens + start + query;
        lse[i] = query < sequence ? stat[0] : 0.0f;
        delta[i] = query < sequence ? stat[heads * tokens] : 0.0f;
        low[i] = attention_first(rule, start, sequence, query);
    }
    for (int key = attention_first(rule, start, sequence, first) / 64 * 64; key <= first;
         key += 64) {
        float p[4][4], s[4][4];
        attention_multiply<WIDTH>(p, room, q + here, row, sequence - first,
                                  k + kv_here + key * kv_row, kv_row, sequence - key);
        attention_multiply<WIDTH>(s, room, d_o + here, row, sequence - first,
                                  v + kv_here + key * kv_row, kv_row, sequence - key);
        for (int i = 0; i < 4; i++)
            for (int j = 0; j < 4; j++) {
                int query = first + y + 16 * i, at = key + x + 16 * j;
                attention_slope(p[i][j], s[i][j],
                                query < sequence && at <= query &&
                                    (!attention_cuts(rule) || at >= low[i]),
                                scale, rule.softcap, lse[i], delta[i]);
            }
        attention_gather<WIDTH>(sum, s, room, k + kv_here + key * kv_row, kv_row, sequence - key);
    }
    attention_write<WIDTH>(dq + here, row, sequence - first, sum, {scale, scale, scale, scale});
}

#endif
