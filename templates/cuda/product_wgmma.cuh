/* Matrix products of BF16 operands for warpgroups (wgmma.cuh). A block stays on its multiprocessor
 * and takes one tile of 128 x 256 after the other. Two warpgroups multiply, 64 rows each. One
 * thread of the third has tensor copies bring operands into a ring of stages and runs ahead, also
 * into the next tile while the sums of this one are stored.
 *
 * A box that reaches beyond its tensor is filled with zeros, which add nothing. One that reaches
 * beyond an operand within its tensor, into the rows of another expert, brings those: along rows
 * and columns they make results that are not stored. Along k (CUT) they would enter sums, and no
 * factor clears a NaN, so a second warp makes them zero in both operands before the stage is
 * handed on.
 *
 * Sums are F32, in the order of k, and are rounded once, when they are stored. */
#ifndef CUDA_PRODUCT_WGMMA_CUH
#define CUDA_PRODUCT_WGMMA_CUH

#include "product.cuh"
#include "wgmma.cuh"

/* As product_store wants it: the eight warps that multiply have 16 rows each. */
typedef product_tile<128, 256, 16, 256, 4> wgmma_tile;
#define WGMMA_THREADS 384 /* those who multiply come first */
/* The ring, room to begin it at a multiple of 1,024 bytes, and three barriers a stage. */
#define WGMMA_SHARED (4 * 49152 + 1024 + 3 * 4 * 8)

/* A tile: its first row of a and column of b, where its k begins in both, the plane of b; where its
 * result begins, and how much exists. */
template <class C> struct wgmma_work {
    int row, column, from, plane;
    C *c;
    int rows, columns, k;
};

#ifdef HAS_WGMMA

/* Stages in turn. full: operands are there; empty: they have been multiplied; landed: what a box
 * has brought is there, and the rest of it has to be cleared. */
struct wgmma_ring {
    unsigned char *stage;
    uint64_t *full, *empty, *landed;
    int slot, parity;
};
DEVICE struct wgmma_ring wgmma_ring_at(unsigned char *shared)
{
    struct wgmma_ring r;
    r.stage = shared + (-shared_address(shared) & 1023);
    r.full = (uint64_t *)(r.stage + wgmma_tile::stages * wgmma_tile::stage_bytes);
    r.empty = r.full + wgmma_tile::stages;
    r.landed = r.empty + wgmma_tile::stages;
    r.slot = r.parity = 0;
    return r;
}
DEVICE void wgmma_ring_next(struct wgmma_ring &r)
{
    r.slot++;
    if (r.slot == wgmma_tile::stages) r.slot = 0, r.parity ^= 1;
}

/* The thread that brings operands. find(i, &work): what tile number i of this block is; false
 * beyond the last. */
template <bool TA, bool TB, bool CUT, class C, class FIND>
DEVICE void wgmma_bring_all(struct wgmma_ring r, const tensor_map *a, const tensor_map *b,
                            FIND find)
{
    struct wgmma_work<C> w;
    for (int i = 0; find(i, &w); i++)
#pragma unroll 1
        for (int k = 0; k < w.k; k += PRODUCT_K) {
            unsigned char *to = r.stage + r.slot * wgmma_tile::stage_bytes;
            uint64_t *at = (CUT && w.k - k < PRODUCT_K ? r.landed : r.full) + r.slot;
            mbarrier_wait(r.empty + r.slot, r.parity ^ 1);
            mbarrier_expect(at, wgmma_tile::stage_bytes);
            wgmma_bring<wgmma_tile::m, !TA>(to, a, w.row, w.from + k, 0, at);
            wgmma_bring<wgmma_tile::n, TB>(to + wgmma_tile::a_bytes, b, w.column, w.from + k,
                                           w.plane, at);
            wgmma_ring_next(r);
        }
}

/* The warp that clears: of the last stage of a tile whose k ends within it all lines beyond the
 * end. Both operands lie across. */
template <class C, class FIND> DEVICE void wgmma_clear(struct wgmma_ring r, FIND find)
{
    constexpr int CHUNKS = WGMMA_PANEL(PRODUCT_K) / 16;
    int lane = (int)threadIdx.x & 31, turns = 0; /* bit s: the parity of r.landed[s] */
    struct wgmma_work<C> w;
    for (int i = 0; find(i, &w); i++) {
        int deep = w.k % PRODUCT_K;
        r.slot = (r.slot + w.k / PRODUCT_K) % wgmma_tile::stages;
        if (deep == 0) continue;
        uint4 *chunk = (uint4 *)(r.stage + r.slot * wgmma_tile::stage_bytes);
        mbarrier_wait(r.landed + r.slot, turns >> r.slot & 1);
        turns ^= 1 << r.slot;
#pragma unroll
        for (int p = 0; p < wgmma_tile::stage_bytes / 16; p += CHUNKS)
#pragma unroll 1
            for (int c = deep * (WGMMA_LINE / 16) + lane; c < CHUNKS; c += 32)
                chunk[p + c] = make_uint4(0, 0, 0, 0);
        wgmma_written();
        __syncwarp();
        if (lane == 0) mbarrier_arrive(r.full + r.slot);
        r.slot = (r.slot + 1) % wgmma_tile::stages;
    }
}

/* The sums of one tile, by the two other warpgroups. */
template <bool TA, bool TB>
DEVICE void wgmma_multiply(product_sums<wgmma_tile> &sums, struct wgmma_ring &r, int k)
{
    constexpr int PANEL = WGMMA_PANEL(PRODUCT_K), /* 64 rows of a are one panel, deep or across */
        STEPS = PRODUCT_K / 16;
    int group = (int)threadIdx.x / 128, lane = (int)threadIdx.x & 31, before = -1;
    for (int k0 = 0; k0 < k; k0 += PRODUCT_K) {
        uint32_t at = shared_address(r.stage) + r.slot * wgmma_tile::stage_bytes;
        uint64_t a = wgmma_descriptor<!TA, PANEL>(at + group * PANEL),
                 b = wgmma_descriptor<TB, PANEL>(at + wgmma_tile::a_bytes);
        mbarrier_wait(r.full + r.slot, r.parity);
        wgmma_begin();
#pragma unroll
        for (int s = 0; s < STEPS; s++)
            wgmma_64xNx16<!TA, TB>(sums.at[0], a + s * (WGMMA_STEP(!TA) / 16),
                                   b + s * (WGMMA_STEP(TB) / 16), k0 > 0 || s > 0);
        wgmma_commit();
        wgmma_wait<1>(); /* the stage before this one has been read */
        if (before >= 0 && lane == 0) mbarrier_arrive(r.empty + before);
        before = r.slot;
        wgmma_ring_next(r);
    }
    wgmma_wait_all(sums.at[0]);
    if (before >= 0 && lane == 0) mbarrier_arrive(r.empty + before);
    if (k <= 0)
#pragma unroll
        for (int j = 0; j < wgmma_tile::n / 8; j++)
            sums.at[0][j][0] = sums.at[0][j][1] = sums.at[0][j][2] = sums.at[0][j][3] = 0.0f;
}

/* All tiles of a block. TA, TB: as product_multiply; the boxes of a and b are those of wgmma_bring
 * for 128 and 256. CUT: k may end within a tensor; then TA and not TB. WGMMA_THREADS threads,
 * WGMMA_SHARED bytes; what find is given stays with the thread, so it may keep what it has
 * found. */
template <bool TA, bool TB, bool ADD, bool CUT, class C, class FIND>
DEVICE void wgmma_tiles(const tensor_map *a, const tensor_map *b, int64_t ldc, FIND find)
{
    static_assert(!CUT || (TA && !TB), "operands that are cut lie across");
    DYNAMIC_SHARED(shared);
    struct wgmma_ring r = wgmma_ring_at(shared);
    if (threadIdx.x == 0) {
        for (int s = 0; s < wgmma_tile::stages; s++) {
            mbarrier_begin(r.full + s, 1);
            mbarrier_begin(r.empty + s, wgmma_tile::threads / 32);
            mbarrier_begin(r.landed + s, 1);
        }
        wgmma_written();
    }
    __syncthreads();
    if (threadIdx.x >= wgmma_tile::threads) {
        int thread = (int)threadIdx.x - wgmma_tile::threads;
        registers_give<40>();
        if (thread == 0) wgmma_bring_all<TA, TB, CUT, C>(r, a, b, find);
        if (CUT && thread / 32 == 1) wgmma_clear<C>(r, find);
        return;
    }
    registers_take<232>();
    struct wgmma_work<C> w;
    for (int i = 0; find(i, &w); i++) {
        product_sums<wgmma_tile> sums;
        wgmma_multiply<TA, TB>(sums, r, w.k);
        if (ldc % 8 == 0)
            product_store<wgmma_tile, true, ADD>(sums, w.c, ldc, w.rows, w.columns);
        else
            product_store<wgmma_tile, false, ADD>(sums, w.c, ldc, w.rows, w.columns);
    }
}

/* ── a product ───────────────────────────────────────────────────────────────── */
/* As product_tensor, of tensors [1, m, k] or [1, k, m] and [1, n, k] or [1, k, n]; any number of
 * blocks. */
template <bool TA, bool TB, bool ADD, class C>
DEVICE void product_wgmma(const tensor_map *a, const tensor_map *b, C *c, int64_t m, int64_t n,
                          int k, int64_t ldc)
{
    int tiles_m = (int)((m + wgmma_tile::m - 1) / wgmma_tile::m),
        tiles_n = (int)((n + wgmma_tile::n - 1) / wgmma_tile::n);
    wgmma_tiles<TA, TB, ADD, false, C>(a, b, ldc, [=](int i, struct wgmma_work<C> *w) {
        int tile = (int)blockIdx.x + i * (int)gridDim.x, tile_m, tile_n;
        if (tile >= tiles_m * tiles_n) return false;
        product_place(tile, tiles_m, tiles_n, &tile_m, &tile_n);
        int row = tile_m * wgmma_tile::m, column = tile_n * wgmma_tile::n;
        *w = {row,
              column,
              0,
              0,
              c + row * ldc + column,
              product_smaller(m - row, wgmma_tile::m),
              product_smaller(n - column, wgmma_tile::n),
              k};
        return true;
    });
}

#endif
#endif
