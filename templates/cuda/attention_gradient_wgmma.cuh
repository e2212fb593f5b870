/* The gradient of attention in BF16 for warpgroups, for heads of 64 or 128 columns: the five
 * products of attention_gradient.cuh, whose names, layouts, workspace and turns these are; its
 * attention_rows comes before. A block has a tile of 128 keys, 64 for each of two warpgroups, and
 * goes over the queries of one head; the third warpgroup brings tiles of queries into two places:
 * one thread by tensor copies, all of them the numbers of the queries. q, k, v and d_o are tensors
 * as in attention_wgmma.cuh; a box has as many rows as a tile.
 *
 *   function                  threads  grid x             y            shared bytes
 *   attention_gradient_wgmma  384      heads * sequences  ceil(S/128)  attention_gradient_room
 *
 * Weights and slopes of the own 64 keys are the left operands, in registers, of dv and dk. Slopes
 * of all 128 keys meet in shared memory for dq, of which each warpgroup makes one half. Under a cap
 * on scores weights and slopes are made together, out of the scores, in their place; with heads of
 * 64 columns, whose tiles have 128 queries, registers do not suffice for that. */
#ifndef CUDA_ATTENTION_GRADIENT_WGMMA_CUH
#define CUDA_ATTENTION_GRADIENT_WGMMA_CUH

#include "attention_gradient.cuh"
#include "attention_wgmma.cuh"

/* What a block has in shared memory, from a multiple of 1,024 bytes on: its rows of k and v, in
 * whose place their gradients become rows; places of queries and rows of d_o; slopes of two tiles
 * (those of one are read while others write the next); [place][kind][query] numbers of the queries,
 * as attention_gradient has them; barriers. */
template <int WIDTH> struct attention_gradient_room {
    static constexpr int rows = 128, queries = WIDTH == 64 ? 128 : 64, places = 2, kinds = 3,
                         keys_bytes = rows * WIDTH * 2, queries_bytes = queries * WIDTH * 2,
                         slopes_bytes = queries / 64 * WGMMA_PANEL(rows), barriers = 2 * places + 3,
                         shared = 1024 + 2 * (keys_bytes + slopes_bytes) +
                                  places * (2 * queries_bytes + kinds * queries * 4) + 8 * barriers;
};

#ifdef HAS_WGMMA

/* A block's part: queries from `top` down to `first`, a tile at a time, of those below `end`. */
struct attention_part {
    int of, head, kv_head, tile, first, end, top, sequence;
    int64_t start;
};
template <int WIDTH>
DEVICE attention_part attention_part_of(int begun, int64_t tokens, int heads, int kv_heads,
                                        int sequence, attention_rule rule)
{
    constexpr int rows = attention_gradient_room<WIDTH>::rows,
                  queries = attention_gradient_room<WIDTH>::queries;
    int side_by_side = (int)(tokens / sequence) * heads;
    attention_part p;
    p.of = begun % side_by_side, p.tile = begun / side_by_side;
    p.head = p.of % heads, p.kv_head = p.head / (heads / kv_heads), p.first = p.tile * rows;
    p.sequence = p.of / heads, p.start = (int64_t)p.sequence * sequence;
    p.end = attention_end(rule, p.start, sequence, p.first + rows);
    p.top = p.first + (p.end - 1 - p.first) / queries * queries;
    return p;
}

/* Where it all lies. `keys_full`: k and v are there. `met`: all warps that multiply have come to
 * one place; `stored`: and have written their part of a tile of dq. */
template <int WIDTH> struct attention_gradient_place {
    unsigned char *k, *v, *q, *d_o, *slopes;
    float *numbers;
    attention_ring<attention_gradient_room<WIDTH>::places> ring;
    uint64_t *keys_full, *met, *stored;
};
template <int WIDTH> DEVICE attention_gradient_place<WIDTH> attention_gradient_at(unsigned char *at)
{
    using room = attention_gradient_room<WIDTH>;
    attention_gradient_place<WIDTH> p;
    p.k = at + (-shared_address(at) & 1023);
    p.v = p.k + room::keys_bytes;
    p.q = p.v + room::keys_bytes;
    p.d_o = p.q + room::places * room::queries_bytes;
    p.slopes = p.d_o + room::places * room::queries_bytes;
    p.numbers = (float *)(p.slopes + 2 * room::slopes_bytes);
    uint64_t *barrier = (uint64_t *)(p.numbers + room::places * room::kinds * room::queries);
    p.ring = {barrier, barrier + room::places, 0, 0};
    p.keys_full = barrier + 2 * room::places, p.met = p.keys_full + 1, p.stored = p.met + 1;
    return p;
}

/* The warpgroup that brings. A place is full after an arrival for both tiles, with their bytes, and
 * 128 for the numbers. */
template <int WIDTH>
DEVICE void attention_gradient_bring(attention_gradient_place<WIDTH> at, attention_part p,
                                     const tensor_map *q, const tensor_map *k, const tensor_map *v,
                                     const tensor_map *d_o, const float *rows, int64_t tokens,
                                     int heads, int sequence, attention_rule rule)
{
    using room = attention_gradient_room<WIDTH>;
    bool brings = threadIdx.x == ATTENTION_WGMMA_BRING;
    if (brings) {
        mbarrier_expect(at.keys_full, 2 * room::keys_bytes);
        attention_bring<WIDTH, room::rows>(at.k, k, p.kv_head, p.first, p.sequence, at.keys_full);
        attention_bring<WIDTH, room::rows>(at.v, v, p.kv_head, p.first, p.sequence, at.keys_full);
    }
#pragma unroll 1
    for (int now = p.top; now >= p.first; now -= room::queries) {
        int place = at.ring.place, bytes = place * room::queries_bytes;
        uint64_t *full = at.ring.full + place;
        attention_await_empty(at.ring);
        if (brings) {
            mbarrier_expect(full, 2 * room::queries_bytes);
            attention_bring<WIDTH, room::queries>(at.q + bytes, q, p.head, now, p.sequence, full);
            attention_bring<WIDTH, room::queries>(at.d_o + bytes, d_o, p.head, now, p.sequence,
                                                  full);
        }
        float *to = at.numbers + place * room::kinds * room::queries;
        for (int i = (int)threadIdx.x % 128; i < room::queries; i += 128) {
            bool there = now + i < sequence;
            const float *of = rows + p.head * tokens + p.start + now + i;
            to[i] = (there ? of[0] : 1.0e30f) * ATTENTION_LOG2E;
            to[room::queries + i] = there ? of[heads * tokens] : 0.0f;
            if (rule.starts)
                to[2 * room::queries + i] = __int_as_float(
                    there ? (int)(rule.starts[p.start + now + i] - p.start) : sequence);
        }
        mbarrier_arrive(full);
        attention_next(at.ring);
    }
}

/* A warp's arrival at a barrier of the eight that multiply. */
DEVICE void attention_come(uint64_t *at)
{
    __syncwarp();
    if (threadIdx.x % 32 == 0) mbarrier_arrive(at);
}

/* Scores [64 keys, queries] that are none: of queries before their key, and of those that do not
 * see it. `mine`: the warp's first key; `now` and `numbers`: the tile's first query, and theirs. */
template <int QUERIES>
DEVICE void attention_gradient_hide(float (&p)[1][QUERIES / 8][4], attention_rule rule, int mine,
                                    int now, const float *numbers)
{
    const float none = attention_none(rule);
    int lane = (int)threadIdx.x % 32, key = mine + lane / 4, query = now + lane % 4 * 2;
    auto sees = [&](int column) { /* the first key */
                                  int from = rule.window > 0 ? now + column - rule.window + 1 : 0;
                                  if (!rule.starts) return from;
                                  int document = ((const int *)numbers)[2 * QUERIES + column];
                                  return document > from ? document : from;
    };
    if (now < mine + 15) {
#pragma unroll
        for (int i = 0; i < QUERIES / 2; i++)
            if (query + i / 4 * 8 + i % 2 < key + i / 2 % 2 * 8) p[0][i / 4][i % 4] = none;
    }
    if (attention_cuts(rule) && sees(QUERIES - 1) > mine) {
#pragma unroll
        for (int i = 0; i < QUERIES / 4; i++) {
            int from = sees(lane % 4 * 2 + i / 2 * 8 + i % 2);
#pragma unroll
            for (int half = 0; half < 2; half++)
                if (key + half * 8 < from) p[0][i / 2][half * 2 + i % 2] = none;
        }
    }
}

template <int WIDTH>
DEVICE void attention_gradient_wgmma(const tensor_map *q, const tensor_map *k, const tensor_map *v,
                                     const tensor_map *d_o, float *rows, float *sums, bf16 *dq,
                                     bf16 *dk, bf16 *dv, int64_t tokens, int heads, int kv_heads,
                                     int sequence, float scale, attention_rule rule)
{
    using room = attention_gradient_room<WIDTH>;
    constexpr int queries = room::queries, N = queries / 8;
    DYNAMIC_SHARED(memory);
    __shared__ int32_t begun;
    attention_gradient_place<WIDTH> at = attention_gradient_at<WIDTH>(memory);
    if (threadIdx.x == 0) {
        begun = atomicAdd(attention_turn<WIDTH>(rows, tokens, heads, sequence, 0, 0) - 1, 1);
        attention_ring_begin(at.ring, 1 + 128);
        mbarrier_begin(at.keys_full, 1);
        mbarrier_begin(at.met, ATTENTION_WGMMA_BRING / 32);
        mbarrier_begin(at.stored, ATTENTION_WGMMA_BRING / 32);
        wgmma_written();
    }
    __syncthreads();
    attention_part part = attention_part_of<WIDTH>(begun, tokens, heads, kv_heads, sequence, rule);
    if (threadIdx.x >= ATTENTION_WGMMA_BRING) {
        registers_give<40>();
        attention_gradient_bring<WIDTH>(at, part, q, k, v, d_o, rows, tokens, heads, sequence,
                                        rule);
        return;
    }

    registers_take<232>();
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, group = warp / 4,
        first = part.first, tile = part.tile, mine = first + warp * 16;
    int64_t row = (int64_t)heads * WIDTH, kv_row = (int64_t)kv_heads * WIDTH;
    /* tiles of queries from here on are not seen by the keys of the tile before */
    int end_before = tile > 0 ? attention_end(rule, part.start, sequence, first) : 0;
    auto turn_of = [&](int query) {
        return attention_turn<WIDTH>(rows, tokens, heads, sequence, part.of, query);
    };
    uint32_t k_at = shared_address(at.k), v_at = shared_address(at.v),
             own = group * 64 * WGMMA_LINE;
    /* of a tile of dq a warpgroup has 64 rows or 64 columns */
    int dq_row = (WIDTH == 64 ? group * 64 : 0) + warp % 4 * 16 + lane / 4,
        dq_column = (WIDTH == 64 ? 0 : group * 64) + lane % 4 * 2;
    uint32_t k_half = k_at + (WIDTH == 64 ? 0 : group * WGMMA_PANEL(room::rows)),
             slopes_half =
                 shared_address(at.slopes) + (WIDTH == 64 ? group * WGMMA_PANEL(room::rows) : 0);
    unsigned char *slopes_mine = at.slopes + (warp * 16 + lane / 4) * WGMMA_LINE + lane % 4 * 4;
    float factor = attention_unit(scale, rule) * ATTENTION_LOG2E;
    const bool capped = rule.softcap > 0;
    float k_sum[1][WIDTH / 8][4], v_sum[1][WIDTH / 8][4];
    attention_clear(k_sum);
    attention_clear(v_sum);

    mbarrier_wait(at.keys_full, 0);
    int parity = 0; /* of `met`, and of the tile's slopes */
#pragma unroll 1
    for (int now = part.top; now >= first; now -= queries, parity ^= 1) {
        int place = at.ring.place, seen = 0;
        uint32_t q_at = shared_address(at.q) + place * room::queries_bytes,
                 d_at = shared_address(at.d_o) + place * room::queries_bytes;
        const float *numbers = at.numbers + place * room::kinds * queries,
                    *numbers_mine = numbers + lane % 4 * 2;
        bool begins = now >= end_before, ends = now < first + room::rows;
        float p[1][N][4], slope[1][N][4];
        uint32_t weight[N / 2][4], steep[N / 2][4];
        attention_await_full(at.ring);
        wgmma_begin();
        attention_wgmma_scores<WIDTH, room::rows, queries>(p[0], k_at + own, q_at);
        wgmma_commit();
        attention_wgmma_scores<WIDTH, room::rows, queries>(slope[0], v_at + own, d_at);
        wgmma_commit();
        if (threadIdx.x == 0 && !begins) seen = signal_look(turn_of(now));

        wgmma_wait_for<1>(p[0]);
        attention_cap(p, scale, rule);
        attention_gradient_hide<queries>(p, rule, mine, now, numbers);
        /* under a cap the slopes are made with the weights, which need the scores */
        if (capped) wgmma_wait_for<0>(slope[0]);
#pragma unroll
        for (int n = 0; n < N; n++) {
            float2 less = *(const float2 *)(numbers_mine + n * 8);
#pragma unroll
            for (int e = 0; e < 4; e++) {
                float bent = p[0][n][e];
                p[0][n][e] = exp2_fast(fmaf(bent, factor, e % 2 ? -less.y : -less.x));
                if (capped) {
                    float2 mean = *(const float2 *)(numbers_mine + queries + n * 8);
                    slope[0][n][e] = p[0][n][e] * fmaf(-bent, bent, 1.0f) *
                                     (slope[0][n][e] - (e % 2 ? mean.y : mean.x));
                }
            }
        }
        if (!capped) {
            wgmma_wait_for<0>(slope[0]);
#pragma unroll
            for (int n = 0; n < N; n++) {
                float2 mean = *(const float2 *)(numbers_mine + queries + n * 8);
#pragma unroll
                for (int e = 0; e < 4; e++)
                    slope[0][n][e] = p[0][n][e] * (slope[0][n][e] - (e % 2 ? mean.y : mean.x));
            }
        }
        attention_round(weight, p[0]);
        attention_round(steep, slope[0]);
#pragma unroll
        for (int i = 0; i < 2 * N; i++) {   /* 8 queries of a line, 8 lines on */
            int n = i / 2, line = lane / 4; /* modulo 8 */
            *(uint32_t *)(slopes_mine + parity * room::slopes_bytes +
                          n / 8 * WGMMA_PANEL(room::rows) + i % 2 * 8 * WGMMA_LINE +
                          ((n % 8 ^ line) << 4)) = steep[i / 4][i % 4];
        }
        wgmma_written();
        wgmma_begin();
        attention_wgmma_add(v_sum[0], weight, d_at);
        wgmma_commit();
        /* what was written for the tile before is long on its way by now */
        if (threadIdx.x == 0) {
            bool owes = now < part.top && now + queries >= first + room::rows;
            if (owes) {
                mbarrier_wait(at.stored, parity ^ 1);
                attention_hand_on(turn_of(now + queries), tile + 1);
            }
            if (!begins && seen != tile)
                attention_await(turn_of(now), tile);
            else if (!begins)
                signal_fence();
        }
        attention_come(at.met);
        mbarrier_wait(at.met, parity);

        float sum[8][4];
        wgmma_begin();
        uint64_t left = wgmma_descriptor<false, WGMMA_PANEL(room::rows)>(
                     slopes_half + parity * room::slopes_bytes),
                 right = wgmma_descriptor<false, WGMMA_PANEL(room::rows)>(k_half);
#pragma unroll
        for (int i = 0; i < room::rows / 16; i++)
            wgmma_64xNx16<false, false>(sum, left + i * (WGMMA_STEP(false) / 16),
                                        right + i * (WGMMA_STEP(false) / 16), i > 0);
        wgmma_commit();
        attention_wgmma_add(k_sum[0], steep, q_at);
        wgmma_commit();
        int64_t to = (part.start + now + dq_row) * row + part.head * WIDTH + dq_column;
        int below = sequence - now - dq_row;
        float2 before[8];
        auto load = [&](int half) {
#pragma unroll
            for (int n = 0; n < 8; n++)
                before[n] = !begins && half * 8 < below
                                ? load_latest(sums + to + half * 8 * row + n * 8)
                                : make_float2(0.0f, 0.0f);
        };
        auto store = [&](int half) {
            if (half * 8 >= below) return;
#pragma unroll
            for (int n = 0; n < 8; n++) {
                float x = before[n].x + sum[n][half * 2], y = before[n].y + sum[n][half * 2 + 1];
                if (ends)
                    *(uint32_t *)(dq + to + half * 8 * row + n * 8) =
                        pack_bf16(x * scale, y * scale);
                else
                    *(float2 *)(sums + to + half * 8 * row + n * 8) = make_float2(x, y);
            }
        };
        wgmma_wait_for<2>(v_sum[0], weight);
        load(0);
        wgmma_wait_for<1>(sum);
        store(0), load(1), store(1);
        attention_come(at.stored);
        wgmma_wait_for<0>(k_sum[0], steep);
        attention_leave(at.ring, place);
        attention_next(at.ring);
    }

    int shared = heads / kv_heads, member = part.head % shared;
    int *key_turn =
        attention_turn<WIDTH>(rows, tokens, heads, sequence, (int)(tokens / sequence) * heads, 0) +
        part.of / shared * ((sequence + room::rows - 1) / room::rows) + tile;
    float *k_part = sums + tokens * heads * WIDTH, *v_part = k_part + tokens * kv_heads * WIDTH;
    int64_t out = (part.start + mine) * kv_row + part.kv_head * WIDTH;
    bool last = member == shared - 1;
    if (member > 0 && threadIdx.x == 0) attention_await(key_turn, member);
    attention_come(at.met);
    mbarrier_wait(at.met, parity); /* nobody reads the tiles of keys any more */
    if (shared > 1) {
        attention_join<WIDTH>(k_sum, k_part + out, kv_row, sequence - mine, member == 0, last);
        attention_join<WIDTH>(v_sum, v_part + out, kv_row, sequence - mine, member == 0, last);
        if (!last) {
            attention_come(at.met);
            mbarrier_wait(at.met, parity ^ 1);
            if (threadIdx.x == 0) attention_hand_on(key_turn, member + 1);
            return;
        }
    }
    bf16 *through = (bf16 *)at.k + warp * 16 * attention_cut<WIDTH>::stride;
    attention_store<WIDTH>(dk + out, kv_row, sequence - mine, through, k_sum, scale);
    attention_store<WIDTH>(dv + out, kv_row, sequence - mine, through, v_sum, 1.0f);
}

#endif
#endif
