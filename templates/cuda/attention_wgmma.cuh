/* Causal attention in BF16 for warpgroups (wgmma.cuh), for heads of 64 or 128 columns; and what its
 * gradient (attention_gradient_wgmma.cuh) shares. Names, layouts and meaning are those of
 * attention.cuh. A block has 128 queries of one head: two warpgroups have 64 each. One thread of
 * the third has tensor copies bring tiles of 128 keys and of 128 rows of V into a ring of places
 * and runs ahead. While a tile's scores become weights, the weights of the tile before multiply its
 * V (FlashAttention-3, Shah et al. 2024, algorithm 2): scores of the next tile and that product are
 * issued together, weights are the left operand in registers.
 *
 *   function                 threads  grid x             y            z  shared bytes
 *   attention_forward_wgmma  384      heads * sequences  ceil(S/128)  1  attention_wgmma<W>::shared
 *
 * q, k and v are tensors [sequences, sequence, elements of all heads]; a box has as many rows as a
 * tile, of q those of one warpgroup (64). Rows beyond a sequence arrive as zeros.
 *
 * A block has a multiprocessor to itself. Sums are those of attention.cuh but for its tiles of 64
 * keys: keys in their order, whatever the number of blocks. */
#ifndef CUDA_ATTENTION_WGMMA_CUH
#define CUDA_ATTENTION_WGMMA_CUH

#include "attention.cuh"
#include "wgmma.cuh"

#define ATTENTION_WGMMA_THREADS 384 /* those who multiply come first */
#define ATTENTION_WGMMA_BRING 256   /* the first of the others */

/* What a block has in shared memory, from a multiple of 1,024 bytes on: the queries of a warpgroup,
 * in whose place its results become rows again; a ring of tiles; barriers. */
template <int WIDTH> struct attention_wgmma {
    static_assert(WIDTH == 64 || WIDTH == 128, "whole lines of 64 columns, sums in registers");
    static constexpr int rows = 128, places = 5, group_bytes = 128 * attention_cut<WIDTH>::stride,
                         tile_bytes = rows * WIDTH * 2, barriers = 2 * places + 4,
                         shared = 1024 + 2 * group_bytes + places * tile_bytes + 8 * barriers;
};

#ifdef HAS_WGMMA

/* ── tiles on their way ──────────────────────────────────────────────────────── */
/* ROWS rows, the lines of a box, of one head's WIDTH columns from row `row` of a sequence on, into
 * shared memory as wgmma reads them, deep or across: panels of 64 columns after each other. ROWS x
 * 2 WIDTH bytes arrive at `full`. One thread. */
template <int WIDTH, int ROWS>
DEVICE void attention_bring(unsigned char *to, const tensor_map *map, int head, int row,
                            int sequence, uint64_t *full)
{
#pragma unroll
    for (int panel = 0; panel < WIDTH / 64; panel++)
        tensor_copy(to + panel * WGMMA_PANEL(ROWS), map, head * WIDTH + panel * 64, row, sequence,
                    full);
}

/* Places that are filled and emptied in turn, each with a barrier for either. */
template <int PLACES> struct attention_ring {
    uint64_t *full, *empty;
    int place, parity;
};
template <int PLACES> DEVICE void attention_next(attention_ring<PLACES> &r)
{
    r.place++;
    if (r.place == PLACES) r.place = 0, r.parity ^= 1;
}
/* One thread. `filling`: arrivals that fill a place; the eight warps that multiply empty it. */
template <int PLACES> DEVICE void attention_ring_begin(attention_ring<PLACES> r, int filling)
{
    for (int i = 0; i < PLACES; i++) {
        mbarrier_begin(r.full + i, filling);
        mbarrier_begin(r.empty + i, ATTENTION_WGMMA_BRING / 32);
    }
}
template <int PLACES> DEVICE void attention_await_empty(attention_ring<PLACES> r)
{
    mbarrier_wait(r.empty + r.place, r.parity ^ 1);
}
template <int PLACES> DEVICE void attention_await_full(attention_ring<PLACES> r)
{
    mbarrier_wait(r.full + r.place, r.parity);
}
/* The warp has read the place. */
template <int PLACES> DEVICE void attention_leave(attention_ring<PLACES> r, int place)
{
    if (threadIdx.x % 32 == 0) mbarrier_arrive(r.empty + place);
}

/* ── products ────────────────────────────────────────────────────────────────── */
/* sum[64, 8 N] = a b' over the width. a and b: where 64 and 8 N rows lie, in tiles of so many. */
template <int WIDTH, int A_ROWS, int B_ROWS, int N>
DEVICE void attention_wgmma_scores(float (&sum)[N][4], uint32_t a, uint32_t b)
{
    uint64_t left = wgmma_descriptor<true, 0>(a), right = wgmma_descriptor<true, 0>(b);
#pragma unroll
    for (int k = 0; k < WIDTH / 16; k++)
        wgmma_64xNx16<true, true>(
            sum, left + (k / 4 * WGMMA_PANEL(A_ROWS) + k % 4 * WGMMA_STEP(true)) / 16,
            right + (k / 4 * WGMMA_PANEL(B_ROWS) + k % 4 * WGMMA_STEP(true)) / 16, k > 0);
}
/* sum[64, 8 N] += w b: w [64, 16 K] in registers, b a tile of 16 K rows. */
template <int N, int K>
DEVICE void attention_wgmma_add(float (&sum)[N][4], const uint32_t (&w)[K][4], uint32_t b)
{
    uint64_t right = wgmma_descriptor<false, WGMMA_PANEL(16 * K)>(b);
#pragma unroll
    for (int k = 0; k < K; k++)
        wgmma_64xNx16<false>(sum, w[k], right + k * (WGMMA_STEP(false) / 16));
}
/* What a product left, rounded to BF16, as the left operand of the next. */
template <int K> DEVICE void attention_round(uint32_t (&to)[K][4], const float (&w)[2 * K][4])
{
#pragma unroll
    for (int i = 0; i < 4 * K; i++)
        to[i / 4][i % 4] = pack_bf16(w[i / 2][i % 2 * 2], w[i / 2][i % 2 * 2 + 1]);
}

/* ── forward ─────────────────────────────────────────────────────────────────── */
template <int WIDTH>
DEVICE void attention_forward_wgmma(const tensor_map *q, const tensor_map *k, const tensor_map *v,
                                    bf16 *o, float *lse, int64_t, int heads, int kv_heads,
                                    int sequence, float scale, attention_rule rule)
{
    using cut = attention_wgmma<WIDTH>;
    constexpr int rows = cut::rows;
    DYNAMIC_SHARED(memory);
    unsigned char *q_tile = memory + (-shared_address(memory) & 1023),
                  *tile = q_tile + 2 * cut::group_bytes;
    uint64_t *barrier = (uint64_t *)(tile + cut::places * cut::tile_bytes),
             *q_full = barrier + 2 * cut::places, *q_over = q_full + 2; /* of a warpgroup each */
    attention_ring<cut::places> ring = {barrier, barrier + cut::places, 0, 0};
    int head = (int)(blockIdx.x % (unsigned)heads), of = (int)(blockIdx.x / (unsigned)heads),
        first = (int)(gridDim.y - 1 - blockIdx.y) * rows;
    int64_t start = (int64_t)of * sequence, row = (int64_t)heads * WIDTH;
    int end = first + rows < sequence ? first + rows : sequence,
        begin = attention_first(rule, start, sequence, first) / rows * rows;
    if (threadIdx.x == 0) {
        attention_ring_begin(ring, 1);
        for (int g = 0; g < 2; g++) mbarrier_begin(q_full + g, 1), mbarrier_begin(q_over + g, 128);
        wgmma_written();
    }
    __syncthreads();

    if (threadIdx.x >= ATTENTION_WGMMA_BRING) {
        registers_give<40>();
        if (threadIdx.x > ATTENTION_WGMMA_BRING) return;
        for (int g = 0; g < 2; g++) {
            mbarrier_expect(q_full + g, 64 * WIDTH * 2);
            attention_bring<WIDTH, 64>(q_tile + g * cut::group_bytes, q, head, first + g * 64, of,
                                       q_full + g);
        }
        int kv_head = head / (heads / kv_heads);
        auto bring = [&](const tensor_map *from, int key) {
            uint64_t *full = ring.full + ring.place;
            attention_await_empty(ring);
            mbarrier_expect(full, cut::tile_bytes);
            attention_bring<WIDTH, rows>(tile + ring.place * cut::tile_bytes, from, kv_head, key,
                                         of, full);
            attention_next(ring);
        };
        bring(k, begin);
#pragma unroll 1
        for (int key = begin + rows; key < end; key += rows) bring(k, key), bring(v, key - rows);
        bring(v, (end - 1) / rows * rows);
        return;
    }

    registers_take<232>();
    int warp = (int)threadIdx.x / 32, group = warp / 4, mine = first + warp * 16, key = begin;
    uint32_t q_at = shared_address(q_tile + group * cut::group_bytes),
             tile_at = shared_address(tile);
    float out[1][WIDTH / 8][4], s[1][rows / 8][4], top[1][2], sum[1][2], shrink[1][2],
        unit = attention_unit(scale, rule);
    uint32_t weight[rows / 16][4];
    bool change = false;
    attention_clear(out);
    top[0][0] = top[0][1] = attention_cuts(rule) ? ATTENTION_FLOOR : ATTENTION_NONE;
    sum[0][0] = sum[0][1] = 0.0f;
    /* Both issue products of a place that is full and give the place. First the scores of a tile,
     * then weights times V. */
    auto score = [&] {
        int place = ring.place;
        wgmma_begin();
        attention_wgmma_scores<WIDTH, 64, rows>(s[0], q_at, tile_at + place * cut::tile_bytes);
        wgmma_commit();
        attention_next(ring);
        return place;
    };
    auto add = [&] {
        int place = ring.place;
        wgmma_begin();
        attention_wgmma_add(out[0], weight, tile_at + place * cut::tile_bytes);
        wgmma_commit();
        attention_next(ring);
        return place;
    };
    auto weigh = [&] {
        attention_cap(s, scale, rule);
        attention_causal(s, mine, key);
        attention_hide(s, rule, start, sequence, mine, key, ATTENTION_NONE);
        change =
            attention_softmax(s, top, sum, shrink, unit * ATTENTION_LOG2E, attention_cuts(rule));
        /* What comes next is there. The compiler moves no weights behind this loop, where they
         * would wait for the product that runs meanwhile. */
        wgmma_settle(s[0]);
        attention_await_full(ring);
    };

    mbarrier_wait(q_full + group, 0);
    attention_await_full(ring);
    int place = score();
    wgmma_wait_for<0>(s[0]);
    attention_leave(ring, place);
    weigh();
    attention_round(weight, s[0]);
#pragma unroll 1
    for (key += rows; key < end; key += rows) {
        int k_place = score();
        attention_await_full(ring);
        int v_place = add();
        wgmma_wait_for<1>(s[0]);
        attention_leave(ring, k_place);
        weigh();
        wgmma_wait_for<0>(out[0], weight);
        attention_leave(ring, v_place);
        if (change) attention_shrink(out, shrink);
        attention_round(weight, s[0]);
    }
    add();
    wgmma_wait_for<0>(out[0], weight);

    attention_finish(out, top, sum, unit, lse, start, heads, head, mine, sequence);
    mbarrier_arrive(q_over + group); /* nobody of the warpgroup reads its queries any more */
    mbarrier_wait(q_over + group, 0);
    attention_store<WIDTH>(o + (start + mine) * row + head * WIDTH, row, sequence - mine,
                           (bf16 *)(q_tile + group * cut::group_bytes) +
                               warp % 4 * 16 * attention_cut<WIDTH>::stride,
                           out, 1.0f);
}

#endif
#endif
