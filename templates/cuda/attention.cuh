/* Causal attention and its gradient in BF16 on the tensor cores (mma.sync), tile by tile, so that
 * the scores of a sequence are never stored. Layouts and meaning are those of
 * templates/cpu/attention.h. Products take BF16 and sum in F32; the softmax is F32. No sum crosses
 * a block, so every bit follows from the shapes: the gradients of keys and values and of queries
 * are two kernels, and each computes the scores again. A query block starts with its tile of Q in
 * shared memory and reads K and V two tiles ahead; the longest rows of tiles go first, so that the
 * grid ends evenly.
 *
 * q, o, d_o, dq [tokens, heads, WIDTH] and k, v, dk, dv [tokens, kv_heads, WIDTH] are BF16, 16-byte
 * aligned; lse [tokens, heads] and rows [2, heads, tokens] are F32. WIDTH is a multiple of 8, at
 * most 256; attention_simt.cuh does others. tokens = sequences x sequence, of any length. scale >
 * 0. Tiles in which no query of a block sees a key are left out.
 *
 *   function            threads                 grid x              y            z  shared bytes
 *   attention_forward   E && W <= 128 ? 1 : 2   heads * sequences   ceil(S/128)  1  384 * R
 *   attention_rows      2                       ceil(tokens*L/256)  heads        1  0
 *   attention_keys      E && W <= 64 ? 1 : 2    kv_heads*sequences  ceil(S/128)  Z  K
 *   attention_queries   E && W <= 128 ? 1 : 2   heads * sequences   ceil(S/128)  1  Q
 *
 * Threads are in units of 128; shared bytes are dynamic. W is WIDTH, S is sequence. R = 2 *
 * (round_up(W, 16) + 8) is the bytes of a row in shared memory (16 more than its elements, so
 * neighbouring rows start in other banks). E: W is a multiple of 16. L: the power of two at or
 * above W / 8. Z = W <= 128 ? 1 : 2. K = (256 + 4 N) * R + (starts ? 24 : 16) N with N = 64 < W <=
 * 128 ? 64 : 32. Q = (256 + 4 M) * R with M = W <= 64 ? 64 : 32. The gradient is rows, then keys
 * and queries; `rows` is its workspace, 8 * tokens * heads bytes. */
#ifndef CUDA_ATTENTION_CUH
#define CUDA_ATTENTION_CUH

#include "machine.cuh"
#include "op_math.h"
#include "attention_simt.cuh"

/* A score that is no score; any weight made from it is 0. */
#define ATTENTION_NONE -3.0e38f
#define ATTENTION_LOG2E 1.44269504f
/* Below every score; of a query that has seen no key yet, the largest score so far. */
#define ATTENTION_FLOOR -1.0e30f

/* How a width is cut. A block has 128 rows of the operand that stays (queries, or keys for their
 * gradient), 16 a warp and `deep` times over: what a warp loads of the other operand then serves
 * twice, where its sums leave registers for that; `other` rows of it make a tile. */
template <int WIDTH> struct attention_cut {
    static_assert(WIDTH % 8 == 0 && WIDTH <= 256,
                  "rows of whole 16-byte pieces, sums that fit in registers");
    static constexpr int padded = (WIDTH + 15) / 16 * 16, stride = padded + 8, pieces = padded / 8;
    /* a row that ends inside a step of 16 takes registers for its end */
    static constexpr bool even = WIDTH % 16 == 0;
    static constexpr int rows = 128, forward_deep = even && WIDTH <= 128 ? 2 : 1,
                         forward_other = 64;
    /* a rule takes registers, which the widest rows of a deep cut do not leave */
    static constexpr int forward_ruled = even && WIDTH > 96 && WIDTH <= 128 ? 32 : 64;
    static constexpr int keys_deep = even && WIDTH <= 64 ? 2 : 1,
                         keys_other = WIDTH > 64 && WIDTH <= 128 ? 64 : 32;
    static constexpr int queries_deep = even && WIDTH <= 128 ? 2 : 1,
                         queries_other = WIDTH <= 64 ? 64 : 32;
    static constexpr int threads(int deep) { return rows / (16 * deep) * 32; }
};

/* ROWS rows of a head from global to shared memory, asynchronously; zeros beyond `valid` rows and
 * WIDTH columns. */
template <int WIDTH, int ROWS, int THREADS, int AT_A_TIME = 2>
DEVICE void attention_load(bf16 *to, const bf16 *from, int64_t row_elements, int valid)
{
    using cut = attention_cut<WIDTH>;
#pragma unroll AT_A_TIME
    for (int n = 0; n < (ROWS * cut::pieces + THREADS - 1) / THREADS; n++) {
        int i = n * THREADS + (int)threadIdx.x, row = i / cut::pieces, column = i % cut::pieces * 8;
        bool there = row < valid && column < WIDTH;
        if ((n + 1) * THREADS <= ROWS * cut::pieces || row < ROWS)
            copy_async_16(to + row * cut::stride + column,
                          there ? from + row * row_elements + column : from, there);
    }
}

/* Where a lane points for load_matrix_4: rows of the first operand, or of the second when it lies
 * by columns (transposed); and rows of the second when it lies by rows. */
template <int STRIDE> DEVICE int attention_left(int lane)
{
    return (lane & 15) * STRIDE + (lane >> 4) * 8;
}
template <int STRIDE> DEVICE int attention_right(int lane)
{
    return ((lane & 7) + (lane >> 4) * 8) * STRIDE + (lane >> 3 & 1) * 8;
}

template <int M, int N> DEVICE void attention_clear(float (&sum)[M][N][4])
{
#pragma unroll
    for (int i = 0; i < M * N * 4; i++) sum[i / (N * 4)][i / 4 % N][i % 4] = 0.0f;
}

/* sum[16 M, 8 N] = a b' over the width: both by rows in shared memory. */
template <int WIDTH, int M, int N>
DEVICE void attention_scores(float (&sum)[M][N][4], const bf16 *a, const bf16 *b)
{
    constexpr int stride = attention_cut<WIDTH>::stride;
    attention_clear(sum);
#pragma unroll
    for (int k = 0; k < attention_cut<WIDTH>::padded; k += 16) {
        uint32_t left[M][4];
#pragma unroll
        for (int m = 0; m < M; m++) load_matrix_4(left[m], a + m * 16 * stride + k);
#pragma unroll
        for (int n = 0; n < N; n += 2) {
            uint32_t right[4];
            load_matrix_4(right, b + n * 8 * stride + k);
#pragma unroll
            for (int m = 0; m < M; m++) {
                mma_16816_bf16(sum[m][n], left[m], right);
                mma_16816_bf16(sum[m][n + 1], left[m], right + 2);
            }
        }
    }
}

/* sum[16 M, width] += w b: w [16 M, 8 N] in registers, as a product left it, rounded to BF16 here;
 * b by rows in shared memory. */
template <int WIDTH, int M, int N>
DEVICE void attention_add(float (&sum)[M][attention_cut<WIDTH>::pieces][4],
                          const float (&w)[M][N][4], const bf16 *b)
{
    constexpr int stride = attention_cut<WIDTH>::stride;
#pragma unroll
    for (int k = 0; k < N; k += 2) {
        uint32_t left[M][4];
#pragma unroll
        for (int m = 0; m < M; m++) {
            left[m][0] = pack_bf16(w[m][k][0], w[m][k][1]);
            left[m][1] = pack_bf16(w[m][k][2], w[m][k][3]);
            left[m][2] = pack_bf16(w[m][k + 1][0], w[m][k + 1][1]);
            left[m][3] = pack_bf16(w[m][k + 1][2], w[m][k + 1][3]);
        }
#pragma unroll
        for (int n = 0; n < attention_cut<WIDTH>::pieces; n += 2) {
            uint32_t right[4];
            load_matrix_4_transposed(right, b + k * 8 * stride + n * 8);
#pragma unroll
            for (int m = 0; m < M; m++) {
                mma_16816_bf16(sum[m][n], left[m], right);
                mma_16816_bf16(sum[m][n + 1], left[m], right + 2);
            }
        }
    }
}

/* A warp's rows of a result to global memory, times a factor, through `room`, 16 M rows of shared
 * memory that are the warp's own. */
template <int WIDTH, int M>
DEVICE void attention_store(bf16 *to, int64_t row_elements, int valid, bf16 *room,
                            const float (&sum)[M][attention_cut<WIDTH>::pieces][4], float factor)
{
    using cut = attention_cut<WIDTH>;
    int lane = (int)threadIdx.x % 32;
    __syncwarp();
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < cut::pieces; n++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                uint32_t pair =
                    pack_bf16(sum[m][n][2 * half] * factor, sum[m][n][2 * half + 1] * factor);
                *(uint32_t *)(room + (m * 16 + half * 8 + lane / 4) * cut::stride + n * 8 +
                              lane % 4 * 2) = pair;
            }
    __syncwarp();
    for (int i = lane; i < M * 16 * cut::pieces; i += 32) {
        int row = i / cut::pieces, column = i % cut::pieces * 8;
        if (row < valid && column < WIDTH)
            *(uint4 *)(to + row * row_elements + column) =
                *(const uint4 *)(room + row * cut::stride + column);
    }
}

/* tanh(part x) within 2e-7, for scores under a cap: they are kept as score / softcap. */
DEVICE float attention_bend(float x, float part)
{
    return fmaf(-2.0f, reciprocal_fast(1.0f + exp2_fast(x * (2.0f * ATTENTION_LOG2E * part))),
                1.0f);
}
template <int M, int N>
DEVICE void attention_cap(float (&s)[M][N][4], float scale, attention_rule rule)
{
    if (rule.softcap > 0)
#pragma unroll
        for (int i = 0; i < 4 * M * N; i++)
            s[i / (4 * N)][i / 4 % N][i % 4] =
                attention_bend(s[i / (4 * N)][i / 4 % N][i % 4], scale / rule.softcap);
}
/* What the numbers that are kept as scores are times, to be scores. */
DEVICE float attention_unit(float scale, attention_rule rule)
{
    return rule.softcap > 0 ? rule.softcap : scale;
}
/* In the gradient, a score that is no score: its weight is 0, and its slope 1 - x^2 a number. */
DEVICE float attention_none(attention_rule rule)
{
    return rule.softcap > 0 ? -1.0e18f : ATTENTION_NONE;
}

/* One tile of scores becomes weights; top, sum and the results so far follow. factor = unit / ln 2.
 * `gaps`: a query may have seen no key yet. */
template <int M, int N, int C>
DEVICE void attention_softmax(float (&s)[M][N][4], float (&top)[M][2], float (&sum)[M][2],
                              float (&out)[M][C][4], float factor, bool gaps)
{
    float shrink[M][2];
    bool change = false;
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float now = top[m][half];
#pragma unroll
            for (int n = 0; n < N; n++)
                now = fmaxf(now, fmaxf(s[m][n][2 * half], s[m][n][2 * half + 1]));
            now = fmaxf(now, __shfl_xor_sync(0xffffffffu, now, 1));
            now = fmaxf(now, __shfl_xor_sync(0xffffffffu, now, 2));
            float less = now * factor, total = 0.0f;
            shrink[m][half] =
                exp2_fast(gaps ? (top[m][half] - now) * factor : fmaf(top[m][half], factor, -less));
            change = change || now != top[m][half];
#pragma unroll
            for (int n = 0; n < N; n++)
#pragma unroll
                for (int e = 2 * half; e < 2 * half + 2; e++)
                    total += s[m][n][e] = exp2_fast(fmaf(s[m][n][e], factor, -less));
            sum[m][half] = fmaf(sum[m][half], shrink[m][half], total);
            top[m][half] = now;
        }
    if (__ballot_sync(0xffffffffu, change)) {
#pragma unroll
        for (int m = 0; m < M; m++)
#pragma unroll
            for (int c = 0; c < C; c++)
#pragma unroll
                for (int e = 0; e < 4; e++) out[m][c][e] *= shrink[m][e / 2];
    }
}

/* No row of a warp, from `mine` on, sees a key before `end`. */
DEVICE bool attention_blind(attention_rule rule, int64_t start, int sequence, int mine, int end)
{
    return attention_cuts(rule) && end <= attention_first(rule, start, sequence, mine);
}
/* Scores of keys from `key` on that come before the first that a row of a warp sees. What a row
 * sees is asked again for every tile that is cut: registers are short. */
template <int M, int N>
DEVICE void attention_hide(float (&s)[M][N][4], attention_rule rule, int64_t start, int sequence,
                           int mine, int key, float none)
{
    if (!attention_cuts(rule) || key >= attention_first(rule, start, sequence, mine + 16 * M - 1))
        return;
    int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < 2 * M; i++) {
        int low =
            attention_first(rule, start, sequence, mine + i * 8 + lane / 4) - key - lane % 4 * 2;
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int e = 0; e < 2; e++)
                if (n * 8 + e < low) s[i / 2][n][i % 2 * 2 + e] = none;
    }
}

/* RULED: the rule is none without window, cap and documents. */
template <int WIDTH, bool RULED>
DEVICE void attention_forward(const bf16 *q, const bf16 *k, const bf16 *v, bf16 *o, float *lse,
                              int64_t, int heads, int kv_heads, int sequence, float scale,
                              attention_rule rule)
{
    using cut = attention_cut<WIDTH>;
    constexpr int M = cut::forward_deep, keys = RULED ? cut::forward_ruled : cut::forward_other,
                  N = keys / 8, threads = cut::threads(M);
    DYNAMIC_SHARED(memory);
    bf16 *q_tile = (bf16 *)memory, *k_tile = q_tile + cut::rows * cut::stride,
         *v_tile = k_tile + 2 * keys * cut::stride;
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    int head = (int)(blockIdx.x % (unsigned)heads),
        first = (int)(gridDim.y - 1 - blockIdx.y) * cut::rows;
    int64_t start = (int64_t)(blockIdx.x / (unsigned)heads) * sequence,
            row = (int64_t)heads * WIDTH, kv_row = (int64_t)kv_heads * WIDTH;
    const bf16 *k_head = k + start * kv_row + head / (heads / kv_heads) * WIDTH,
               *v_head = v + start * kv_row + head / (heads / kv_heads) * WIDTH;
    int mine = first + warp * 16 * M,
        end = first + cut::rows < sequence ? first + cut::rows : sequence,
        begin = attention_first(rule, start, sequence, first) / keys * keys;

    attention_load<WIDTH, cut::rows, threads>(q_tile, q + (start + first) * row + head * WIDTH, row,
                                              sequence - first);
    attention_load<WIDTH, keys, threads>(k_tile, k_head + begin * kv_row, kv_row, sequence - begin);
    attention_load<WIDTH, keys, threads>(v_tile, v_head + begin * kv_row, kv_row, sequence - begin);
    copy_async_commit();

    float out[M][cut::pieces][4], top[M][2], sum[M][2],
        factor = attention_unit(scale, rule) * ATTENTION_LOG2E;
    attention_clear(out);
#pragma unroll
    for (int i = 0; i < 2 * M; i++) {
        top[i / 2][i % 2] = attention_cuts(rule) ? ATTENTION_FLOOR : ATTENTION_NONE;
        sum[i / 2][i % 2] = 0.0f;
    }
    for (int key = begin, side = 0; key < end; key += keys, side ^= 1) {
        copy_async_wait<0>();
        __syncthreads();
        if (key + keys < end) {
            int there = (side ^ 1) * keys * cut::stride;
            attention_load<WIDTH, keys, threads>(k_tile + there, k_head + (key + keys) * kv_row,
                                                 kv_row, sequence - key - keys);
            attention_load<WIDTH, keys, threads>(v_tile + there, v_head + (key + keys) * kv_row,
                                                 kv_row, sequence - key - keys);
            copy_async_commit();
        }
        if (key >= mine + 16 * M) continue; /* all of it after this warp's queries */
        if (attention_blind(rule, start, sequence, mine, key + keys)) continue;
        float s[M][N][4];
        attention_scores<WIDTH>(
            s, q_tile + warp * 16 * M * cut::stride + attention_left<cut::stride>(lane),
            k_tile + side * keys * cut::stride + attention_right<cut::stride>(lane));
        attention_cap(s, scale, rule);
        if (key + keys > mine) {
            int behind = mine + lane / 4 - key - lane % 4 * 2; /* query - key of s[0][0][0] */
#pragma unroll
            for (int m = 0; m < M; m++)
#pragma unroll
                for (int n = 0; n < N; n++)
#pragma unroll
                    for (int e = 0; e < 4; e++)
                        if (behind + m * 16 + e / 2 * 8 < n * 8 + e % 2)
                            s[m][n][e] = ATTENTION_NONE;
        }
        attention_hide(s, rule, start, sequence, mine, key, ATTENTION_NONE);
        attention_softmax(s, top, sum, out, factor, attention_cuts(rule));
        attention_add<WIDTH>(
            out, s, v_tile + side * keys * cut::stride + attention_left<cut::stride>(lane));
    }

#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float total = sum[m][half];
            total += __shfl_xor_sync(0xffffffffu, total, 1);
            total += __shfl_xor_sync(0xffffffffu, total, 2);
            float inverse = 1.0f / total;
#pragma unroll
            for (int c = 0; c < cut::pieces; c++)
                out[m][c][2 * half] *= inverse, out[m][c][2 * half + 1] *= inverse;
            int query = mine + m * 16 + half * 8 + lane / 4;
            if (lane % 4 == 0 && query < sequence)
                lse[(start + query) * heads + head] =
                    fmaf(top[m][half], attention_unit(scale, rule), op_log_f32(total));
        }
    attention_store<WIDTH>(o + (start + mine) * row + head * WIDTH, row, sequence - mine,
                           q_tile + warp * 16 * M * cut::stride, out, 1.0f);
}

/* What the gradient needs of every query, by head: rows[0] = lse, rows[1] = the inner product of
 * its rows of o and d_o. */
template <int WIDTH>
DEVICE void attention_rows(const bf16 *o, const bf16 *d_o, const float *lse, float *rows,
                           int64_t tokens, int heads)
{
    constexpr int pieces = WIDTH / 8, lanes = pieces > 16  ? 32
                                              : pieces > 8 ? 16
                                              : pieces > 4 ? 8
                                              : pieces > 2 ? 4
                                                           : pieces;
    int lane = (int)threadIdx.x % lanes, head = (int)blockIdx.y;
    int64_t token = (int64_t)blockIdx.x * (256 / lanes) + (int)threadIdx.x / lanes,
            at = (token * heads + head) * WIDTH + lane * 8;
    float sum = 0.0f;
    if (token < tokens && lane < pieces) {
        uint4 a = *(const uint4 *)(o + at), b = *(const uint4 *)(d_o + at);
        uint32_t x[4] = {a.x, a.y, a.z, a.w}, y[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            sum =
                fmaf(op_from_bf16((bf16)(x[i] & 0xffff)), op_from_bf16((bf16)(y[i] & 0xffff)), sum);
            sum = fmaf(op_from_bf16((bf16)(x[i] >> 16)), op_from_bf16((bf16)(y[i] >> 16)), sum);
        }
    }
#pragma unroll
    for (int step = lanes / 2; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    if (token < tokens && lane == 0) {
        rows[head * tokens + token] = lse[token * heads + head];
        rows[(heads + head) * tokens + token] = sum;
    }
}

/* dv = P' d_o and dk = scale dS' q for a tile of keys, or one of the two; P' = exp(scale k q' -
 * lse), dS' = P' (v d_o' - delta). Keys are the rows of every product, 16 a warp, so weights go
 * from product to product in registers. */
template <int WIDTH, bool WANT_K, bool WANT_V>
DEVICE void attention_keys_part(const bf16 *q, const bf16 *k, const bf16 *v, const bf16 *d_o,
                                const float *rows, bf16 *dk, bf16 *dv, int64_t tokens, int heads,
                                int kv_heads, int sequence, float scale, attention_rule rule)
{
    using cut = attention_cut<WIDTH>;
    constexpr int M = cut::keys_deep, queries = cut::keys_other, N = queries / 8,
                  threads = cut::threads(M);
    DYNAMIC_SHARED(memory);
    bf16 *k_tile = (bf16 *)memory, *v_tile = k_tile + cut::rows * cut::stride,
         *q_tile = v_tile + cut::rows * cut::stride, *d_tile = q_tile + 2 * queries * cut::stride;
    /* [2 tiles][lse / ln 2, delta, the document's first row in the sample as an int][queries] */
    float *stats = (float *)(d_tile + 2 * queries * cut::stride);
    int kinds = rule.starts ? 3 : 2;
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, shared = heads / kv_heads;
    int head = (int)(blockIdx.x % (unsigned)kv_heads), first = (int)blockIdx.y * cut::rows,
        mine = first + warp * 16 * M;
    int64_t start = (int64_t)(blockIdx.x / (unsigned)kv_heads) * sequence,
            row = (int64_t)heads * WIDTH, kv_row = (int64_t)kv_heads * WIDTH;
    int64_t here = (start + first) * kv_row + head * WIDTH;

    /* The tile of queries that comes next, and what this thread brings of its stats. */
    int query = first, query_head = head * shared,
        end = attention_end(rule, start, sequence, first + cut::rows);
    bool lender = (int)threadIdx.x < kinds * queries, lse_lender = (int)threadIdx.x < queries;
    auto bring = [&](int side) {
        int64_t at = (start + query) * row + query_head * WIDTH;
        attention_load<WIDTH, queries, threads, 1>(q_tile + side * queries * cut::stride, q + at,
                                                   row, sequence - query);
        attention_load<WIDTH, queries, threads, 1>(d_tile + side * queries * cut::stride, d_o + at,
                                                   row, sequence - query);
        copy_async_commit();
        int mate = query + (int)threadIdx.x % queries;
        float value = 0.0f;
        if (rule.starts && (int)threadIdx.x >= 2 * queries) {
            bool there = lender && mate < sequence;
            value = __int_as_float(there ? (int)(rule.starts[start + mate] - start) : sequence);
        } else
            value = lender && mate < sequence
                        ? rows[(query_head + (lse_lender ? 0 : heads)) * tokens + start + mate]
                    : lse_lender ? 1.0e30f
                                 : 0.0f;
        query += queries;
        if (query >= end) query = first, query_head++;
        return value;
    };
    auto put = [&](int side, float value) {
        if (lender)
            stats[side * kinds * queries + (int)threadIdx.x] =
                lse_lender ? value * ATTENTION_LOG2E : value;
    };
    /* The first key that a query of a tile from `now` on sees. */
    auto sees = [&](int side, int now, int column) {
        int from = rule.window > 0 ? now + column - rule.window + 1 : 0;
        if (!rule.starts) return from;
        int document = ((const int *)stats)[(side * 3 + 2) * queries + column];
        return document > from ? document : from;
    };

    attention_load<WIDTH, cut::rows, threads>(k_tile, k + here, kv_row, sequence - first);
    attention_load<WIDTH, cut::rows, threads>(v_tile, v + here, kv_row, sequence - first);
    put(0, bring(0));
    float k_sum[M][WANT_K ? cut::pieces : 1][4], v_sum[M][WANT_V ? cut::pieces : 1][4];
    attention_clear(k_sum);
    attention_clear(v_sum);
    const bf16 *k_left = k_tile + warp * 16 * M * cut::stride + attention_left<cut::stride>(lane),
               *v_left = v_tile + warp * 16 * M * cut::stride + attention_left<cut::stride>(lane);
    float factor = attention_unit(scale, rule) * ATTENTION_LOG2E;
    bool capped = rule.softcap > 0;
    for (int now = first, side = 0;; side ^= 1) {
        copy_async_wait<0>();
        __syncthreads();
        int coming = query;
        bool more = query_head < (head + 1) * shared;
        float next = 0.0f;
        if (more) next = bring(side ^ 1);
        /* else all of it before this warp's keys, or none sees one of them */
        if (now + queries > mine &&
            !(attention_cuts(rule) && sees(side, now, 0) >= mine + 16 * M)) {
            const bf16 *q_side = q_tile + side * queries * cut::stride,
                       *d_side = d_tile + side * queries * cut::stride;
            const float *stats_side = stats + side * kinds * queries + lane % 4 * 2;
            float p[M][N][4];
            attention_scores<WIDTH>(p, k_left, q_side + attention_right<cut::stride>(lane));
            attention_cap(p, scale, rule);
            if (now < mine + 16 * M - 1) {                         /* some before their keys */
                int behind = now + lane % 4 * 2 - mine - lane / 4; /* query - key of p[0][0][0] */
#pragma unroll
                for (int i = 0; i < 4 * M * N; i++)
                    if (behind + i / 4 % N * 8 + i % 2 < i / (4 * N) * 16 + i / 2 % 2 * 8)
                        p[i / (4 * N)][i / 4 % N][i % 4] = attention_none(rule);
            }
            if (attention_cuts(rule) && sees(side, now, queries - 1) > mine) {
#pragma unroll
                for (int i = 0; i < 2 * N; i++) {
                    int from = sees(side, now, lane % 4 * 2 + i / 2 * 8 + i % 2) - mine - lane / 4;
#pragma unroll
                    for (int m = 0; m < 2 * M; m++)
                        if (m * 8 < from) p[m / 2][i / 2][m % 2 * 2 + i % 2] = attention_none(rule);
                }
            }
            /* under a cap the slopes are made with the weights, which need the scores */
            float slope[M][N][4];
            if (WANT_K && capped)
                attention_scores<WIDTH>(slope, v_left, d_side + attention_right<cut::stride>(lane));
#pragma unroll
            for (int n = 0; n < N; n++) {
                float2 less = *(const float2 *)(stats_side + n * 8),
                       mean = *(const float2 *)(stats_side + queries + n * 8);
#pragma unroll
                for (int i = 0; i < 4 * M; i++) {
                    int m = i / 4, e = i % 4;
                    float bent = p[m][n][e];
                    p[m][n][e] = exp2_fast(fmaf(bent, factor, e % 2 ? -less.y : -less.x));
                    if (WANT_K && capped)
                        slope[m][n][e] = p[m][n][e] * fmaf(-bent, bent, 1.0f) *
                                         (slope[m][n][e] - (e % 2 ? mean.y : mean.x));
                }
            }
            if constexpr (WANT_V)
                attention_add<WIDTH>(v_sum, p, d_side + attention_left<cut::stride>(lane));
            if constexpr (WANT_K) {
                if (!capped) {
                    attention_scores<WIDTH>(slope, v_left,
                                            d_side + attention_right<cut::stride>(lane));
#pragma unroll
                    for (int n = 0; n < N; n++) {
                        float2 mean = *(const float2 *)(stats_side + queries + n * 8);
#pragma unroll
                        for (int i = 0; i < 4 * M; i++)
                            slope[i / 4][n][i % 4] =
                                p[i / 4][n][i % 4] *
                                (slope[i / 4][n][i % 4] - (i % 2 ? mean.y : mean.x));
                    }
                }
                attention_add<WIDTH>(k_sum, slope, q_side + attention_left<cut::stride>(lane));
            }
        }
        if (!more) break;
        put(side ^ 1, next);
        now = coming;
    }
    int64_t out = (start + mine) * kv_row + head * WIDTH;
    if constexpr (WANT_K)
        attention_store<WIDTH>(dk + out, kv_row, sequence - mine,
                               k_tile + warp * 16 * M * cut::stride, k_sum, scale);
    if constexpr (WANT_V)
        attention_store<WIDTH>(dv + out, kv_row, sequence - mine,
                               v_tile + warp * 16 * M * cut::stride, v_sum, 1.0f);
}

/* Both at once where their sums fit in registers; else half of the grid each. */
template <int WIDTH>
DEVICE void attention_keys(const bf16 *q, const bf16 *k, const bf16 *v, const bf16 *d_o,
                           const float *rows, bf16 *dk, bf16 *dv, int64_t tokens, int heads,
                           int kv_heads, int sequence, float scale, attention_rule rule)
{
    if constexpr (WIDTH <= 128)
        attention_keys_part<WIDTH, true, true>(q, k, v, d_o, rows, dk, dv, tokens, heads, kv_heads,
                                               sequence, scale, rule);
    else if (blockIdx.z == 0)
        attention_keys_part<WIDTH, true, false>(q, k, v, d_o, rows, dk, dv, tokens, heads, kv_heads,
                                                sequence, scale, rule);
    else
        attention_keys_part<WIDTH, false, true>(q, k, v, d_o, rows, dk, dv, tokens, heads, kv_heads,
                                                sequence, scale, rule);
}

/* dq = scale dS k for a tile of queries. */
template <int WIDTH>
DEVICE void attention_queries(const bf16 *q, const bf16 *k, const bf16 *v, const bf16 *d_o,
                              const float *rows, bf16 *dq, int64_t tokens, int heads, int kv_heads,
                              int sequence, float scale, attention_rule rule)
{
    using cut = attention_cut<WIDTH>;
    constexpr int M = cut::queries_deep, keys = cut::queries_other, N = keys / 8,
                  threads = cut::threads(M);
    DYNAMIC_SHARED(memory);
    bf16 *q_tile = (bf16 *)memory, *d_tile = q_tile + cut::rows * cut::stride,
         *k_tile = d_tile + cut::rows * cut::stride, *v_tile = k_tile + 2 * keys * cut::stride;
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    int head = (int)(blockIdx.x % (unsigned)heads),
        first = (int)(gridDim.y - 1 - blockIdx.y) * cut::rows, mine = first + warp * 16 * M;
    int64_t start = (int64_t)(blockIdx.x / (unsigned)heads) * sequence,
            row = (int64_t)heads * WIDTH, kv_row = (int64_t)kv_heads * WIDTH;
    const bf16 *k_head = k + start * kv_row + head / (heads / kv_heads) * WIDTH,
               *v_head = v + start * kv_row + head / (heads / kv_heads) * WIDTH;
    int64_t here = (start + first) * row + head * WIDTH;
    int end = first + cut::rows < sequence ? first + cut::rows : sequence,
        begin = attention_first(rule, start, sequence, first) / keys * keys;

    attention_load<WIDTH, cut::rows, threads>(q_tile, q + here, row, sequence - first);
    attention_load<WIDTH, cut::rows, threads>(d_tile, d_o + here, row, sequence - first);
    attention_load<WIDTH, keys, threads>(k_tile, k_head + begin * kv_row, kv_row, sequence - begin);
    attention_load<WIDTH, keys, threads>(v_tile, v_head + begin * kv_row, kv_row, sequence - begin);
    copy_async_commit();
    float less[M][2], delta[M][2], sum[M][cut::pieces][4],
        factor = attention_unit(scale, rule) * ATTENTION_LOG2E;
#pragma unroll
    for (int i = 0; i < 2 * M; i++) {
        int query = mine + i * 8 + lane / 4;
        int64_t at = head * tokens + start + query;
        less[i / 2][i % 2] = query < sequence ? rows[at] * ATTENTION_LOG2E : 1.0e30f;
        delta[i / 2][i % 2] = query < sequence ? rows[heads * tokens + at] : 0.0f;
    }
    attention_clear(sum);
    const bf16 *q_left = q_tile + warp * 16 * M * cut::stride + attention_left<cut::stride>(lane),
               *d_left = d_tile + warp * 16 * M * cut::stride + attention_left<cut::stride>(lane);
    for (int key = begin; key < end; key += keys) {
        int side = (key - begin) / keys & 1;
        copy_async_wait<0>();
        __syncthreads();
        if (key + keys < end) {
            int there = (side ^ 1) * keys * cut::stride;
            attention_load<WIDTH, keys, threads>(k_tile + there, k_head + (key + keys) * kv_row,
                                                 kv_row, sequence - key - keys);
            attention_load<WIDTH, keys, threads>(v_tile + there, v_head + (key + keys) * kv_row,
                                                 kv_row, sequence - key - keys);
            copy_async_commit();
        }
        if (key >= mine + 16 * M) continue; /* all of it after this warp's queries */
        if (attention_blind(rule, start, sequence, mine, key + keys)) continue;
        const bf16 *k_side = k_tile + side * keys * cut::stride,
                   *v_side = v_tile + side * keys * cut::stride;
        float p[M][N][4], s[M][N][4];
        attention_scores<WIDTH>(p, q_left, k_side + attention_right<cut::stride>(lane));
        attention_cap(p, scale, rule);
        if (key + keys > mine) {                               /* some after their queries */
            int behind = mine + lane / 4 - key - lane % 4 * 2; /* query - key of p[0][0][0] */
#pragma unroll
            for (int i = 0; i < 4 * M * N; i++)
                if (behind + i / (4 * N) * 16 + i / 2 % 2 * 8 < i / 4 % N * 8 + i % 2)
                    p[i / (4 * N)][i / 4 % N][i % 4] = attention_none(rule);
        }
        attention_hide(p, rule, start, sequence, mine, key, attention_none(rule));
        attention_scores<WIDTH>(s, d_left, v_side + attention_right<cut::stride>(lane));
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int i = 0; i < 4 * M; i++) {
                int m = i / 4, e = i % 4;
                float weight = exp2_fast(fmaf(p[m][n][e], factor, -less[m][e / 2]));
                s[m][n][e] = weight * (s[m][n][e] - delta[m][e / 2]);
                if (rule.softcap > 0) s[m][n][e] *= fmaf(-p[m][n][e], p[m][n][e], 1.0f);
            }
        attention_add<WIDTH>(sum, s, k_side + attention_left<cut::stride>(lane));
    }
    attention_store<WIDTH>(dq + (start + mine) * row + head * WIDTH, row, sequence - mine,
                           q_tile + warp * 16 * M * cut::stride, sum, scale);
}

#endif
