/* Matrix products of BF16 operands for warpgroups (wgmma.cuh). A block stays on its multiprocessor
 * and takes one tile of 128 x 256 after the other. Two warpgroups multiply, 64 rows each; the third
 * brings operands into a ring of stages and runs ahead, also into the next tile while the sums of
 * this one are stored.
 *
 * Operands come by 16-byte asynchronous copies of 128 threads, not by tensor copies: rows of an
 * expert end anywhere, and a copy can leave out what does not exist and leave zeros, where a box of
 * a tensor copy would bring rows of the next expert, to be cleared again. And a launch needs no
 * descriptors of the driver. The price is one warpgroup that issues 24 copies a thread and stage.
 *
 * Sums are F32, in the order of k, and are rounded once, when they are stored. */
#ifndef CUDA_PRODUCT_WGMMA_CUH
#define CUDA_PRODUCT_WGMMA_CUH

#include "product.cuh"
#include "wgmma.cuh"

/* As product_store wants it: the eight warps that multiply have 16 rows each. */
typedef product_tile<128, 256, 16, 256, 4> wgmma_tile;
#define WGMMA_THREADS 384 /* those who multiply come first */
/* The ring, room to begin it at a multiple of 1,024 bytes, and two barriers a stage. */
#define WGMMA_SHARED (4 * 49152 + 1024 + 2 * 4 * 8)

/* A tile: its first row of a and first column of b, how much exists, and where its result begins.
 */
template <class C> struct wgmma_work {
    const bf16 *a, *b;
    C *c;
    int rows, columns, k;
};

#ifdef HAS_WGMMA

struct wgmma_ring {
    unsigned char *stage;
    uint64_t *full, *empty;
    int slot, parity;
};
DEVICE struct wgmma_ring wgmma_ring_at(unsigned char *shared)
{
    struct wgmma_ring r;
    r.stage = shared + (-shared_address(shared) & 1023);
    r.full = (uint64_t *)(r.stage + wgmma_tile::stages * wgmma_tile::stage_bytes);
    r.empty = r.full + wgmma_tile::stages;
    r.slot = r.parity = 0;
    return r;
}
DEVICE void wgmma_ring_next(struct wgmma_ring &r)
{
    r.slot++;
    if (r.slot == wgmma_tile::stages) r.slot = 0, r.parity ^= 1;
}

/* 64 of k of one operand. `from`: the thread's first chunk of them, which lies in line `line` of 16
 * and belongs at `to`. `rows` rows exist from the tile's first on, and `deep` of k from here on. */
template <int ROWS, bool DEEP>
DEVICE void wgmma_fetch(unsigned char *to, const bf16 *from, int64_t stride, int rows, int deep,
                        int line, int chunk)
{
    constexpr int PANELS = DEEP ? 1 : ROWS / 64, LINES = DEEP ? ROWS : PRODUCT_K;
#pragma unroll
    for (int p = 0; p < PANELS; p++) {
        const bf16 *at = from + p * 64;
        unsigned char *here = to + p * WGMMA_PANEL(PRODUCT_K);
        int left = p * 64 + chunk * 8 < (DEEP ? deep : rows) ? (DEEP ? rows : deep) - line : 0;
#pragma unroll 4
        for (int i = 0; i < LINES; i += 16) {
            copy_async_16(here, at, left > 0);
            left -= 16;
            at += 16 * stride;
            here += 16 * WGMMA_LINE;
        }
    }
}

/* The warpgroup that brings operands. find(i, &work): what tile number i of this block is; false
 * beyond the last. */
template <bool TA, bool TB, class C, class FIND>
DEVICE void wgmma_bring(struct wgmma_ring r, int64_t lda, int64_t ldb, FIND find)
{
    int thread = (int)threadIdx.x - wgmma_tile::threads, line = thread / 8, chunk = thread % 8;
    unsigned char *place = r.stage + line * WGMMA_LINE + ((chunk ^ (line & 7)) << 4);
    struct wgmma_work<C> w;
    for (int i = 0; find(i, &w); i++) {
        const bf16 *a = w.a + line * lda + chunk * 8, *b = w.b + line * ldb + chunk * 8;
#pragma unroll 1
        for (int deep = w.k; deep > 0; deep -= PRODUCT_K) {
            unsigned char *to = place + r.slot * wgmma_tile::stage_bytes;
            mbarrier_wait(r.empty + r.slot, r.parity ^ 1);
            wgmma_fetch<wgmma_tile::m, !TA>(to, a, lda, w.rows, deep, line, chunk);
            wgmma_fetch<wgmma_tile::n, TB>(to + wgmma_tile::a_bytes, b, ldb, w.columns, deep, line,
                                           chunk);
            mbarrier_arrive_copied(r.full + r.slot);
            wgmma_ring_next(r);
            a += TA ? PRODUCT_K * lda : PRODUCT_K;
            b += TB ? PRODUCT_K : PRODUCT_K * ldb;
        }
    }
    copy_async_commit();
    copy_async_wait<0>();
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
        wgmma_written();
        wgmma_begin();
#pragma unroll
        for (int s = 0; s < STEPS; s++)
            wgmma_64x256x16<!TA, TB>(sums.at[0], a + s * (WGMMA_STEP(!TA) / 16),
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

/* All tiles of a block. TA, TB, lda, ldb: as product_multiply; both multiples of 8. WGMMA_THREADS
 * threads, WGMMA_SHARED bytes; what find is given stays with the thread, so it may keep what it has
 * found. */
template <bool TA, bool TB, bool ADD, class C, class FIND>
DEVICE void wgmma_tiles(int64_t lda, int64_t ldb, int64_t ldc, FIND find)
{
    DYNAMIC_SHARED(shared);
    struct wgmma_ring r = wgmma_ring_at(shared);
    if (threadIdx.x == 0)
        for (int s = 0; s < wgmma_tile::stages; s++) {
            mbarrier_begin(r.full + s, WGMMA_THREADS - wgmma_tile::threads);
            mbarrier_begin(r.empty + s, wgmma_tile::threads / 32);
        }
    __syncthreads();
    if (threadIdx.x >= wgmma_tile::threads) {
        registers_give<72>();
        wgmma_bring<TA, TB, C>(r, lda, ldb, find);
        return;
    }
    registers_take<216>();
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
/* As product_tensor; any number of blocks. */
template <bool TA, bool TB, bool ADD, class C>
DEVICE void product_wgmma(const bf16 *a, const bf16 *b, C *c, int64_t m, int64_t n, int k,
                          int64_t lda, int64_t ldb, int64_t ldc)
{
    int tiles_m = (int)((m + wgmma_tile::m - 1) / wgmma_tile::m),
        tiles_n = (int)((n + wgmma_tile::n - 1) / wgmma_tile::n);
    wgmma_tiles<TA, TB, ADD, C>(lda, ldb, ldc, [=](int i, struct wgmma_work<C> *w) {
        int tile = (int)blockIdx.x + i * (int)gridDim.x, tile_m, tile_n;
        if (tile >= tiles_m * tiles_n) return false;
        product_place(tile, tiles_m, tiles_n, &tile_m, &tile_n);
        int64_t row = (int64_t)tile_m * wgmma_tile::m, column = (int64_t)tile_n * wgmma_tile::n;
        *w = {a + (TA ? row : row * lda),
              b + (TB ? column * ldb : column),
              c + row * ldc + column,
              product_smaller(m - row, wgmma_tile::m),
              product_smaller(n - column, wgmma_tile::n),
              k};
        return true;
    });
}

#endif
#endif
