/* Causal attention in BF16 on the tensor cores (mma.sync), tile by tile, so that the scores of a
 * sequence are never stored; and what its gradient (attention_gradient.cuh) shares. Layouts and
 * meaning are those of templates/cpu/attention.h. Products take BF16 and sum in F32; the softmax is
 * F32. A query block starts with its tile of Q in shared memory and reads K and V two tiles ahead;
 * the longest rows of tiles go first, so that the grid ends evenly.
 *
 * q, o, d_o, dq [tokens, heads, WIDTH] and k, v, dk, dv [tokens, kv_heads, WIDTH] are BF16, 16-byte
 * aligned; lse [tokens, heads] is F32. WIDTH is a multiple of 8, at most 256; attention_simt.cuh
 * does others. tokens = sequences x sequence, of any length. scale > 0. Tiles in which no query of
 * a block sees a key are left out.
 *
 *   function            threads                 grid x              y            z  shared bytes
 *   attention_forward   E && W <= 128 ? 1 : 2   heads * sequences   ceil(S/128)  1  384 * R
 *
 * Threads are in units of 128; shared bytes are dynamic. W is WIDTH, S is sequence. R = 2 *
 * (round_up(W, 16) + 8) is the bytes of a row in shared memory (16 more than its elements, so
 * neighbouring rows start in other banks). E: W is a multiple of 16. */
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

/* One tile of scores becomes weights; top and sum follow. What the results so far are times then is
 * in `shrink`; true where it is not 1 for some row of the warp. factor = unit / ln 2. `gaps`: a
 * query may have seen no key yet. */
template <int M, int N>
DEVICE bool attention_softmax(float (&s)[M][N][4], float (&top)[M][2], float (&sum)[M][2],
                              float (&shrink)[M][2], float factor, bool gaps)
{
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
    return __ballot_sync(0xffffffffu, change) != 0;
}
template <int M, int C>
DEVICE void attention_shrink(float (&out)[M][C][4], const float (&shrink)[M][2])
{
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int c = 0; c < C; c++)
#pragma unroll
            for (int e = 0; e < 4; e++) out[m][c][e] *= shrink[m][e / 2];
}
/* After the last tile: results by the sum of their weights, and lse, of the sample from row `start`
 * on. */
template <int M, int C>
DEVICE void attention_finish(float (&out)[M][C][4], const float (&top)[M][2],
                             const float (&sum)[M][2], float unit, float *lse, int64_t start,
                             int heads, int head, int mine, int sequence)
{
    int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float total = sum[m][half];
            total += __shfl_xor_sync(0xffffffffu, total, 1);
            total += __shfl_xor_sync(0xffffffffu, total, 2);
            float inverse = 1.0f / total;
#pragma unroll
            for (int c = 0; c < C; c++)
                out[m][c][2 * half] *= inverse, out[m][c][2 * half + 1] *= inverse;
            int query = mine + m * 16 + half * 8 + lane / 4;
            if (lane % 4 == 0 && query < sequence)
                lse[(start + query) * heads + head] = fmaf(top[m][half], unit, op_log_f32(total));
        }
}

/* Scores of keys from `key` on that come after the query; `mine` is the warp's first. */
template <int M, int N> DEVICE void attention_causal(float (&s)[M][N][4], int mine, int key)
{
    if (key + 8 * N <= mine) return;
    int lane = (int)threadIdx.x % 32,
        behind = mine + lane / 4 - key - lane % 4 * 2; /* query - key of s[0][0][0] */
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                if (behind + m * 16 + e / 2 * 8 < n * 8 + e % 2) s[m][n][e] = ATTENTION_NONE;
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

    float out[M][cut::pieces][4], top[M][2], sum[M][2], shrink[M][2],
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
        attention_causal(s, mine, key);
        attention_hide(s, rule, start, sequence, mine, key, ATTENTION_NONE);
        if (attention_softmax(s, top, sum, shrink, factor, attention_cuts(rule)))
            attention_shrink(out, shrink);
        attention_add<WIDTH>(
            out, s, v_tile + side * keys * cut::stride + attention_left<cut::stride>(lane));
    }

    attention_finish(out, top, sum, attention_unit(scale, rule), lse, start, heads, head, mine,
                     sequence);
    attention_store<WIDTH>(o + (start + mine) * row + head * WIDTH, row, sequence - mine,
                           q_tile + warp * 16 * M * cut::stride, out, 1.0f);
}

#endif
