/* The gradient of attention in BF16 on the tensor cores: what each query needs (attention_rows),
 * then five products for every pair of a tile of keys and a tile of queries (attention_gradient),
 * so that scores and slopes are made once. Names and layouts are those of attention.cuh; rows [2,
 * heads, tokens] is F32. A block has a tile of keys and goes over the queries of one head. Sums
 * that cross blocks, dq over tiles of keys, dk and dv over heads that share keys, are handed from
 * block to block in one order, so every bit follows from the shapes.
 *
 *   function            threads                grid x             y            z  shared bytes
 *   attention_rows      2                      ceil(tokens*L/256) heads        1  0
 *   attention_gradient  E && W <= 64 ? 1 : 2   heads * sequences  ceil(S/128)  Z  G
 *
 * L: the power of two at or above W / 8. Z = W <= 128 ? 1 : 2. G = (256 + 4 N) * R + 256 (N + 8) +
 * (starts ? 24 : 16) N with N = 64 < W <= 128 ? 64 : 32. `rows` is the workspace: 8 * tokens *
 * heads bytes, and 4 for each of `turns` = 1 + sequences (heads ceil(S/N) + Z kv_heads
 * ceil(S/128)). `sums` are [tokens, heads, WIDTH] F32 and, where heads share keys, twice [tokens,
 * kv_heads, WIDTH] more. */
#ifndef CUDA_ATTENTION_GRADIENT_CUH
#define CUDA_ATTENTION_GRADIENT_CUH

#include "attention.cuh"

/* What the gradient needs of every query, by head: rows[0] = lse, rows[1] = the inner product of
 * its rows of o and d_o; and after them `turns` zeros, the turns of attention_gradient's blocks. */
template <int WIDTH>
DEVICE void attention_rows(const bf16 *o, const bf16 *d_o, const float *lse, float *rows,
                           int64_t tokens, int heads, int64_t turns)
{
    int *turn = (int *)(rows + 2 * tokens * heads);
    for (int64_t i = ((int64_t)blockIdx.y * gridDim.x + blockIdx.x) * 256 + (int)threadIdx.x;
         i < turns; i += (int64_t)gridDim.x * gridDim.y * 256)
        turn[i] = 0;
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

/* Rows of shared memory that hold slopes: `queries` columns, and 16 bytes so that neighbouring rows
 * start in other banks. */
template <int WIDTH> struct attention_slopes {
    using cut = attention_cut<WIDTH>;
    static constexpr int queries = cut::keys_other, stride = queries + 8,
                         warps = cut::threads(cut::keys_deep) / 32;
    /* how a tile of dq is shared by the warps: `deep` x 16 queries, `steps` x 16 columns each */
    static constexpr int deep = queries == 64 || WIDTH > 128 ? 2 : 1,
                         beside = warps / (queries / (16 * deep)),
                         steps = (cut::padded / 16 + beside - 1) / beside;
};

/* sum += slopes' keys, over `keys` rows of both in shared memory (a multiple of 16): the warp's
 * queries are columns of `slopes`; `columns` are left of a row of keys from the warp's first. */
template <int WIDTH>
DEVICE void attention_add_keys(
    float (&sum)[attention_slopes<WIDTH>::deep][2 * attention_slopes<WIDTH>::steps][4],
    const bf16 *slopes, const bf16 *k, int keys, int columns)
{
    using at = attention_slopes<WIDTH>;
    constexpr int stride = attention_cut<WIDTH>::stride;
#pragma unroll 2
    for (int key = 0; key < keys; key += 16) {
        uint32_t left[at::deep][4];
#pragma unroll
        for (int m = 0; m < at::deep; m++)
            load_matrix_4_transposed(left[m], slopes + key * at::stride + m * 16);
#pragma unroll
        for (int n = 0; n < at::steps; n++) {
            uint32_t right[4];
            if (n * 16 >= columns) break;
            load_matrix_4_transposed(right, k + key * stride + n * 16);
#pragma unroll
            for (int m = 0; m < at::deep; m++) {
                mma_16816_bf16(sum[m][2 * n], left[m], right);
                mma_16816_bf16(sum[m][2 * n + 1], left[m], right + 2);
            }
        }
    }
}

/* Whose turn it is, behind `rows`, where blocks hand on partial sums: 0 at first (attention_rows).
 * turns[0]: how many blocks have begun. Then for each sequence and head its tiles of queries, and
 * for each part, sequence and key head its tiles of keys. */
template <int WIDTH>
DEVICE int *attention_turn(float *rows, int64_t tokens, int heads, int sequence, int of, int query)
{
    constexpr int queries = attention_cut<WIDTH>::keys_other;
    return (int *)(rows + 2 * tokens * heads) + 1 + of * ((sequence + queries - 1) / queries) +
           query / queries;
}

/* One thread: until it is this turn, and what the block before has written can be read; then the
 * others may go on after a barrier. */
DEVICE void attention_await(const int *turn, int mine)
{
    while (signal_look(turn) != mine) continue;
    signal_fence();
}
/* One thread, after a barrier: what the block has written can be read by who has the next turn. */
DEVICE void attention_hand_on(int *turn, int next)
{
    signal_fence();
    signal_give(turn, next);
}

/* What the heads of one key head add up: each block adds its sums to those of the head before it,
 * and all but the last leave them. */
template <int WIDTH, int M>
DEVICE void attention_join(float (&sum)[M][attention_cut<WIDTH>::pieces][4], float *part,
                           int64_t row_elements, int valid, bool first, bool last)
{
    int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < 2 * M; i++) {
        int row = i * 8 + lane / 4;
        float *at = part + row * row_elements + lane % 4 * 2;
        if (row >= valid) continue;
#pragma unroll
        for (int from = 0; from < WIDTH / 8; from += 8) {
            float2 before[8]; /* all on their way before the first is waited for */
#pragma unroll
            for (int n = from; n < from + 8 && n < WIDTH / 8; n++)
                before[n - from] = first ? make_float2(0.0f, 0.0f) : load_latest(at + n * 8);
#pragma unroll
            for (int n = from; n < from + 8 && n < WIDTH / 8; n++) {
                float *x = sum[i / 2][n] + i % 2 * 2;
                x[0] += before[n - from].x, x[1] += before[n - from].y;
                if (!last) *(float2 *)(at + n * 8) = make_float2(x[0], x[1]);
            }
        }
    }
}

/* Five products for a tile of keys and each tile of queries that sees one of them: P' = exp(scale k
 * q' - lse), dS' = P' (v d_o' - delta), dv += P' d_o, dk += scale dS' q, and dq += scale dS k,
 * which other tiles of keys add to as well. Keys are the rows of all products but the last, 16 a
 * warp, so weights go from product to product in registers; for the last slopes go through shared
 * memory. WANT_K: dk and dq; WANT_V: dv.
 *
 * Blocks take tiles of keys in the order in which they begin, all heads' first tiles first: a block
 * waits only for blocks that began before it, so one of those that wait has always come to its
 * turn, whatever order the device starts them in. dq is added up over tiles of keys in their order,
 * so every run gives the same bits: the first block that a tile of queries has stores, others add,
 * the last one, on the diagonal, rounds. Queries are taken from the last tile on, which all blocks
 * of a head have and where they hence come in a row. */
template <int WIDTH, bool WANT_K, bool WANT_V>
DEVICE void attention_gradient_part(const bf16 *q, const bf16 *k, const bf16 *v, const bf16 *d_o,
                                    float *rows, float *sums, bf16 *dq, bf16 *dk, bf16 *dv,
                                    int64_t tokens, int heads, int kv_heads, int sequence,
                                    float scale, attention_rule rule, int of, int tile)
{
    using cut = attention_cut<WIDTH>;
    using at = attention_slopes<WIDTH>;
    constexpr int M = cut::keys_deep, queries = cut::keys_other, N = queries / 8,
                  threads = cut::threads(M);
    DYNAMIC_SHARED(memory);
    bf16 *k_tile = (bf16 *)memory, *v_tile = k_tile + cut::rows * cut::stride,
         *q_tile = v_tile + cut::rows * cut::stride, *d_tile = q_tile + 2 * queries * cut::stride,
         *s_tile = d_tile + 2 * queries * cut::stride;
    /* [2 tiles][lse / ln 2, delta, the document's first row in the sample as an int][queries] */
    float *stats = (float *)(s_tile + cut::rows * at::stride);
    int kinds = rule.starts ? 3 : 2;
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, shared = heads / kv_heads;
    int head = of % heads, kv_head = head / shared, first = tile * cut::rows,
        mine = first + warp * 16 * M;
    int64_t start = (int64_t)(of / heads) * sequence, row = (int64_t)heads * WIDTH,
            kv_row = (int64_t)kv_heads * WIDTH;
    int64_t here = (start + first) * kv_row + kv_head * WIDTH;

    /* tiles of queries from here on are no longer seen by keys of this block, and of the one before
     */
    int end = attention_end(rule, start, sequence, first + cut::rows),
        end_before = tile > 0 ? attention_end(rule, start, sequence, first) : 0;
    int top = first + (end - 1 - first) / queries * queries; /* the last tile, taken first */
    bool lender = (int)threadIdx.x < kinds * queries, lse_lender = (int)threadIdx.x < queries;
    auto bring = [&](int side, int query) {
        int64_t from = (start + query) * row + head * WIDTH;
        attention_load<WIDTH, queries, threads, 1>(q_tile + side * queries * cut::stride, q + from,
                                                   row, sequence - query);
        attention_load<WIDTH, queries, threads, 1>(d_tile + side * queries * cut::stride,
                                                   d_o + from, row, sequence - query);
        copy_async_commit();
        int mate = query + (int)threadIdx.x % queries;
        float value = 0.0f;
        if (rule.starts && (int)threadIdx.x >= 2 * queries) {
            bool there = lender && mate < sequence;
            value = __int_as_float(there ? (int)(rule.starts[start + mate] - start) : sequence);
        } else
            value = lender && mate < sequence
                        ? rows[(head + (lse_lender ? 0 : heads)) * tokens + start + mate]
                    : lse_lender ? 1.0e30f
                                 : 0.0f;
        return value;
    };
    auto put = [&](int side, float value) {
        if (lender)
            stats[side * kinds * queries + (int)threadIdx.x] =
                lse_lender ? value * ATTENTION_LOG2E : value;
    };
    int side_by_side = (int)(tokens / sequence) * heads;
    auto turn_of = [&](int query) {
        return attention_turn<WIDTH>(rows, tokens, heads, sequence, of, query);
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
    put(0, bring(0, top));
    float k_sum[M][WANT_K ? cut::pieces : 1][4], v_sum[M][WANT_V ? cut::pieces : 1][4];
    attention_clear(k_sum);
    attention_clear(v_sum);
    const bf16 *k_left = k_tile + warp * 16 * M * cut::stride + attention_left<cut::stride>(lane),
               *v_left = v_tile + warp * 16 * M * cut::stride + attention_left<cut::stride>(lane);
    /* where this warp's part of dq begins in a tile */
    int dq_query = warp / at::beside * 16 * at::deep,
        dq_column = warp % at::beside * 16 * at::steps;
    uint32_t *s_mine =
        (uint32_t *)(s_tile + (warp * 16 * M + lane / 4) * at::stride + lane % 4 * 2);
    float factor = attention_unit(scale, rule) * ATTENTION_LOG2E;
    bool capped = rule.softcap > 0;
    for (int now = top, side = 0;; now -= queries, side ^= 1) {
        copy_async_wait<0>();
        __syncthreads();
        bool begins = now >= end_before, ends = now < first + cut::rows;
        int seen = 0;
        float next = 0.0f;
        if (WANT_K && threadIdx.x == 0 && !begins) seen = signal_look(turn_of(now));
        if (now > first) next = bring(side ^ 1, now - queries);
        /* else all of it before this warp's keys, or none sees one of them */
        bool works =
            now + queries > mine && !(attention_cuts(rule) && sees(side, now, 0) >= mine + 16 * M);
        const bf16 *q_side = q_tile + side * queries * cut::stride,
                   *d_side = d_tile + side * queries * cut::stride;
        float slope[M][N][4];
        if (works) {
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
            if (WANT_K && !capped) {
                attention_scores<WIDTH>(slope, v_left, d_side + attention_right<cut::stride>(lane));
#pragma unroll
                for (int n = 0; n < N; n++) {
                    float2 mean = *(const float2 *)(stats_side + queries + n * 8);
#pragma unroll
                    for (int i = 0; i < 4 * M; i++)
                        slope[i / 4][n][i % 4] = p[i / 4][n][i % 4] * (slope[i / 4][n][i % 4] -
                                                                       (i % 2 ? mean.y : mean.x));
                }
            }
        }
        if constexpr (WANT_K) {
#pragma unroll
            for (int i = 0; i < 2 * M * N; i++) {
                int m = i / (2 * N), half = i / N % 2, n = i % N;
                s_mine[((m * 16 + half * 8) * at::stride + n * 8) / 2] =
                    works ? pack_bf16(slope[m][n][2 * half], slope[m][n][2 * half + 1]) : 0;
            }
            /* what was written for the tile before is long on its way by now */
            bool owes = now < top && now + queries >= first + cut::rows;
            if (threadIdx.x == 0 && (owes || !begins)) {
                signal_fence();
                if (owes) signal_give(turn_of(now + queries), tile + 1);
                if (!begins && seen != tile) attention_await(turn_of(now), tile);
            }
            __syncthreads();
            float sum[at::deep][2 * at::steps][4];
            int64_t to =
                (start + now + dq_query + lane / 4) * row + head * WIDTH + dq_column + lane % 4 * 2;
            int columns = WIDTH - dq_column, below = sequence - now - dq_query - lane / 4;
            attention_clear(sum);
            if (!begins)
#pragma unroll
                for (int i = 0; i < 2 * at::deep; i++)
#pragma unroll
                    for (int n = 0; n < 2 * at::steps; n++)
                        if (i * 8 < below && n * 8 < columns) {
                            float2 before = load_latest(sums + to + i * 8 * row + n * 8);
                            sum[i / 2][n][i % 2 * 2] = before.x;
                            sum[i / 2][n][i % 2 * 2 + 1] = before.y;
                        }
            if (works)
                attention_add<WIDTH>(k_sum, slope, q_side + attention_left<cut::stride>(lane));
            int keys = now + queries - first;
            attention_add_keys<WIDTH>(sum, s_tile + attention_right<at::stride>(lane) + dq_query,
                                      k_tile + attention_left<cut::stride>(lane) + dq_column,
                                      keys < cut::rows ? keys : cut::rows, columns);
#pragma unroll
            for (int i = 0; i < 2 * at::deep; i++)
#pragma unroll
                for (int n = 0; n < 2 * at::steps; n++)
                    if (i * 8 < below && n * 8 < columns) {
                        const float *x = sum[i / 2][n] + i % 2 * 2;
                        int64_t there = to + i * 8 * row + n * 8;
                        if (ends)
                            *(uint32_t *)(dq + there) = pack_bf16(x[0] * scale, x[1] * scale);
                        else
                            *(float2 *)(sums + there) = make_float2(x[0], x[1]);
                    }
        }
        if (now == first) break;
        put(side ^ 1, next);
    }
    __syncthreads(); /* nobody reads the tiles of keys any more */
    int member = head % shared;
    int *key_turn = attention_turn<WIDTH>(rows, tokens, heads, sequence, side_by_side, 0) +
                    ((WANT_K ? 0 : side_by_side / shared) + of / shared) *
                        ((sequence + cut::rows - 1) / cut::rows) +
                    tile;
    float *k_part = sums + tokens * heads * WIDTH, *v_part = k_part + tokens * kv_heads * WIDTH;
    if (member > 0 && threadIdx.x == 0) attention_await(key_turn, member);
    int64_t out = (start + mine) * kv_row + kv_head * WIDTH;
    bool last = member == shared - 1;
    if (shared > 1) {
        __syncthreads();
        if constexpr (WANT_K)
            attention_join<WIDTH>(k_sum, k_part + out, kv_row, sequence - mine, member == 0, last);
        if constexpr (WANT_V)
            attention_join<WIDTH>(v_sum, v_part + out, kv_row, sequence - mine, member == 0, last);
        if (!last) {
            __syncthreads();
            if (threadIdx.x == 0) attention_hand_on(key_turn, member + 1);
            return;
        }
    }
    if constexpr (WANT_K)
        attention_store<WIDTH>(dk + out, kv_row, sequence - mine,
                               k_tile + warp * 16 * M * cut::stride, k_sum, scale);
    if constexpr (WANT_V)
        attention_store<WIDTH>(dv + out, kv_row, sequence - mine,
                               v_tile + warp * 16 * M * cut::stride, v_sum, 1.0f);
}

/* All three at once where the sums fit in registers; else half of the blocks for dv alone. */
template <int WIDTH>
DEVICE void attention_gradient(const bf16 *q, const bf16 *k, const bf16 *v, const bf16 *d_o,
                               float *rows, float *sums, bf16 *dq, bf16 *dk, bf16 *dv,
                               int64_t tokens, int heads, int kv_heads, int sequence, float scale,
                               attention_rule rule)
{
    constexpr int parts = WIDTH <= 128 ? 1 : 2;
    __shared__ int32_t begun;
    if (threadIdx.x == 0)
        begun = atomicAdd(attention_turn<WIDTH>(rows, tokens, heads, sequence, 0, 0) - 1, 1);
    __syncthreads();
    int side_by_side = (int)(tokens / sequence) * heads, of = begun % side_by_side,
        part = begun / side_by_side % parts, tile = begun / side_by_side / parts;
    if constexpr (parts == 1)
        attention_gradient_part<WIDTH, true, true>(q, k, v, d_o, rows, sums, dq, dk, dv, tokens,
                                                   heads, kv_heads, sequence, scale, rule, of,
                                                   tile);
    else if (part == 0)
        attention_gradient_part<WIDTH, true, false>(q, k, v, d_o, rows, sums, dq, dk, dv, tokens,
                                                    heads, kv_heads, sequence, scale, rule, of,
                                                    tile);
    else
        attention_gradient_part<WIDTH, false, true>(q, k, v, d_o, rows, sums, dq, dk, dv, tokens,
                                                    heads, kv_heads, sequence, scale, rule, of,
                                                    tile);
}

#endif
