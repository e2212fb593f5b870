/* Matrix products of a block of threads. Two BF16 operands use the tensor cores: tiles of 64
 * columns of k are copied asynchronously into a ring of stages in shared memory, and the fragments
 * of the next 16 are read while the last are multiplied. Anything else is multiplied in F32 by
 * register tiles. Sums are F32, in the order of k, and are rounded once, when they are stored.
 * Products and grouped products (experts.cuh) share all of it: a caller says where its tile begins
 * and how much of it exists; the rest counts as zero.
 *
 * Operands are stored along k ("deep": a row has neighbouring k) or across it. In shared memory a
 * line of 16-byte chunks is one row (deep) or one k (across). Chunk c of line i is at place c ^ (i
 * % 8), so the eight addresses of a matrix load hit different banks in both cases. An operand whose
 * lines are multiples of 8 elements is `wide`: its chunks are copied as they are. */
#ifndef CUDA_PRODUCT_CUH
#define CUDA_PRODUCT_CUH

#include "machine.cuh"
#include "op_math.h"

#define PRODUCT_K 64

/* m x n of the result per block, warp_m x warp_n a warp. Blocks of the launch: ceil(m / M) x ceil(n
 * / N), in one direction. */
template <int M, int N, int WARP_M, int WARP_N, int STAGES> struct product_tile {
    static constexpr int m = M, n = N, warp_m = WARP_M, warp_n = WARP_N, stages = STAGES;
    static constexpr int warps_m = M / WARP_M, threads = 32 * (M / WARP_M) * (N / WARP_N);
    static constexpr int a_bytes = 2 * M * PRODUCT_K, stage_bytes = 2 * (M + N) * PRODUCT_K;
};
/* 256 threads, 196,608 bytes of shared memory */
typedef product_tile<128, 256, 64, 64, 4> product_large;
/* 128 threads, 98,304 bytes: two blocks a multiprocessor */
typedef product_tile<128, 128, 64, 64, 3> product_middle;
typedef product_tile<64, 64, 32, 32, 4> product_small; /* 128 threads, 65,536 bytes */

DEVICE int product_smaller(int64_t a, int b) { return a < b ? (int)a : b; }

/* ── operands into shared memory ─────────────────────────────────────────────── */
/* 64 of k of one operand from k0 on; `at` its first row, `rows` of ROWS exist, and k of k. */
template <int ROWS, int THREADS, bool DEEP, bool WIDE>
DEVICE void product_fetch(unsigned char *shared, const bf16 *at, int64_t stride, int rows, int k0,
                          int k)
{
    constexpr int CHUNKS = DEEP ? PRODUCT_K / 8 : ROWS / 8, LINES = DEEP ? ROWS : PRODUCT_K,
                  STEP = THREADS / CHUNKS;
    int chunk = (int)threadIdx.x % CHUNKS, first = (int)threadIdx.x / CHUNKS;
    /* how much exists along the lines */
    int deep = k % PRODUCT_K == 0 ? PRODUCT_K : k - k0, along = DEEP ? deep : rows;
    bool within = along >= CHUNKS * 8 || chunk * 8 < along;
    int lines = DEEP ? rows : !WIDE || within ? deep : 0;
    const bf16 *from =
        at + (DEEP ? (int64_t)first * stride + k0 : (int64_t)(k0 + first) * stride) + chunk * 8;
    unsigned char *to = shared + first * (CHUNKS * 16) + ((chunk ^ (first & 7)) << 4);
    static_assert(STEP % 8 == 0 && LINES % STEP == 0,
                  "a thread's chunks lie at one place of their lines");
#pragma unroll
    for (int i = 0; i < LINES / STEP; i++) {
        bool line = lines >= LINES || first + i * STEP < lines;
        if (WIDE)
            copy_async_16(to + i * STEP * CHUNKS * 16, from + i * STEP * stride,
                          line && (!DEEP || within));
        else {
            uint32_t word[4];
#pragma unroll
            for (int w = 0; w < 4; w++) {
                uint32_t low =
                    line && chunk * 8 + 2 * w < along ? from[i * STEP * stride + 2 * w] : 0u;
                uint32_t high = line && chunk * 8 + 2 * w + 1 < along
                                    ? from[i * STEP * stride + 2 * w + 1]
                                    : 0u;
                word[w] = low | high << 16;
            }
            *(uint4 *)(to + i * STEP * CHUNKS * 16) =
                make_uint4(word[0], word[1], word[2], word[3]);
        }
    }
}

/* ── fragments ───────────────────────────────────────────────────────────────── */
/* Rows row .. row + 15 of `a`, step of 16 of k. */
template <int ROWS, bool DEEP>
DEVICE void product_fragment_a(uint32_t to[4], const unsigned char *shared, int row, int step)
{
    int lane = (int)threadIdx.x & 31, low = lane & 7;
    if (DEEP)
        load_matrix_4(to, shared + (row + (lane & 15)) * (PRODUCT_K * 2) +
                              (((step * 2 + (lane >> 4)) ^ low) << 4));
    else
        load_matrix_4_transposed(to, shared + (step * 16 + (lane >> 4) * 8 + low) * (ROWS * 2) +
                                         (((row / 8 + (lane >> 3 & 1)) ^ low) << 4));
}
/* Columns column .. column + 15 of `b`: of the first eight in to[0..1], of the others in
 * to[2..3]. */
template <int ROWS, bool DEEP>
DEVICE void product_fragment_b(uint32_t to[4], const unsigned char *shared, int column, int step)
{
    int lane = (int)threadIdx.x & 31, low = lane & 7;
    if (DEEP)
        load_matrix_4(to, shared + (column + (lane >> 4) * 8 + low) * (PRODUCT_K * 2) +
                              (((step * 2 + (lane >> 3 & 1)) ^ low) << 4));
    else
        load_matrix_4_transposed(to, shared + (step * 16 + (lane >> 3 & 1) * 8 + low) * (ROWS * 2) +
                                         (((column / 8 + (lane >> 4)) ^ low) << 4));
}

/* ── sums of a tile ──────────────────────────────────────────────────────────── */
/* What a warp holds of the result: fragments of 16 x 8 as mma leaves them. */
template <class TILE> struct product_sums {
    float at[TILE::warp_m / 16][TILE::warp_n / 8][4];
};

template <class TILE> DEVICE int product_warp_row()
{
    return (int)threadIdx.x / 32 % TILE::warps_m * TILE::warp_m;
}
template <class TILE> DEVICE int product_warp_column()
{
    return (int)threadIdx.x / 32 / TILE::warps_m * TILE::warp_n;
}

/* sums = a b over all of k, of a tile whose first row of a and first column of b are at `a`, `b`.
 * TA: a is stored [k, m]; TB: b is stored [n, k]. PLANES: the sum of so many products, of operands
 * that lie plane_a and plane_b further on each time. The whole block calls it; `shared` is stages x
 * stage_bytes, and free again after the next barrier. */
template <class TILE, bool TA, bool TB, bool WIDE_A, bool WIDE_B, int PLANES = 1>
DEVICE void product_multiply(product_sums<TILE> &sums, unsigned char *shared, const bf16 *a,
                             int64_t lda, int rows, const bf16 *b, int64_t ldb, int columns, int k,
                             int64_t plane_a = 0, int64_t plane_b = 0)
{
    constexpr int MS = TILE::warp_m / 16, NS = TILE::warp_n / 16, STEPS = PRODUCT_K / 16,
                  STAGES = TILE::stages, LAST = STEPS - 1;
    int row = product_warp_row<TILE>(), column = product_warp_column<TILE>(),
        deep = (k + PRODUCT_K - 1) / PRODUCT_K, tiles = PLANES * deep;
    uint32_t fa[2][MS][4], fb[2][NS][4];
    const unsigned char *now = shared;
    auto fetch = [&](int slot, int tile) {
        int plane = PLANES == 1 ? 0 : tile / deep, k0 = (tile - plane * deep) * PRODUCT_K;
        unsigned char *to = shared + slot * TILE::stage_bytes;
        product_fetch<TILE::m, TILE::threads, !TA, WIDE_A>(to, a + plane * plane_a, lda, rows, k0,
                                                           k);
        product_fetch<TILE::n, TILE::threads, TB, WIDE_B>(to + TILE::a_bytes, b + plane * plane_b,
                                                          ldb, columns, k0, k);
    };
    auto fragments = [&](int side, int step) {
#pragma unroll
        for (int i = 0; i < MS; i++)
            product_fragment_a<TILE::m, !TA>(fa[side][i], now, row + i * 16, step);
#pragma unroll
        for (int j = 0; j < NS; j++)
            product_fragment_b<TILE::n, TB>(fb[side][j], now + TILE::a_bytes, column + j * 16,
                                            step);
    };
#pragma unroll
    for (int i = 0; i < MS; i++)
#pragma unroll
        for (int j = 0; j < 2 * NS; j++)
            sums.at[i][j][0] = sums.at[i][j][1] = sums.at[i][j][2] = sums.at[i][j][3] = 0.0f;
#pragma unroll
    for (int s = 0; s < STAGES - 1; s++) {
        if (s < tiles) fetch(s, s);
        copy_async_commit();
    }
    copy_async_wait<STAGES - 2>();
    __syncthreads();
    fragments(0, 0);
    int slot = 0;
    for (int t = 0; t < tiles; t++) {
#pragma unroll
        for (int step = 0; step < STEPS; step++) {
            if (step == LAST) { /* every warp has read all of this tile */
                copy_async_wait<STAGES - 2>();
                __syncthreads();
                slot = slot + 1 == STAGES ? 0 : slot + 1;
                now = shared + slot * TILE::stage_bytes;
            }
            fragments((step + 1) & 1, (step + 1) % STEPS);
            if (step == 0) {
                if (t + STAGES - 1 < tiles)
                    fetch(slot == 0 ? STAGES - 1 : slot - 1, t + STAGES - 1);
                copy_async_commit();
            }
#pragma unroll
            for (int i = 0; i < MS; i++)
#pragma unroll
                for (int j = 0; j < 2 * NS; j++)
                    mma_16816_bf16(sums.at[i][j], fa[step & 1][i],
                                   fb[step & 1][j / 2] + (j & 1) * 2);
        }
    }
    copy_async_wait<0>();
}

/* ── sums into memory ────────────────────────────────────────────────────────── */
/* c: the tile's first element. WIDE: lines are multiples of 8 elements, so that what exists is
 * whole chunks. Then addresses are computed in chunks, not elements, or the compiler doubts that
 * they are aligned and stores element by element. */
template <class TILE, bool WIDE, bool ADD>
DEVICE void product_store(const product_sums<TILE> &sums, float *c, int64_t ldc, int rows,
                          int columns)
{
    int lane = (int)threadIdx.x & 31, row = product_warp_row<TILE>() + lane / 4,
        column = product_warp_column<TILE>() + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < TILE::warp_m / 8; i++) {
        if (row + i * 8 >= rows) continue;
        float2 *pair = (float2 *)c + (row + i * 8) * (ldc / 2) + column / 2;
        float *line = c + (row + i * 8) * ldc + column;
#pragma unroll
        for (int j = 0; j < TILE::warp_n / 8; j++) {
            const float *from = &sums.at[i / 2][j][i % 2 * 2];
            if (WIDE) {
                if (column + j * 8 >= columns) continue;
                float2 old = ADD ? pair[j * 4] : make_float2(0.0f, 0.0f);
                pair[j * 4] = ADD ? make_float2(old.x + from[0], old.y + from[1])
                                  : make_float2(from[0], from[1]);
            } else
                for (int e = 0; e < 2; e++)
                    if (column + j * 8 + e < columns)
                        line[j * 8 + e] = ADD ? line[j * 8 + e] + from[e] : from[e];
        }
    }
}

/* The four lanes of a row have two columns each of four neighbouring fragments; afterwards each has
 * all eight of one, so that it stores 16 bytes. */
DEVICE void product_turn(uint32_t word[4])
{
    int lane = (int)threadIdx.x & 3;
#pragma unroll
    for (int bit = 1; bit <= 2; bit *= 2)
#pragma unroll
        for (int w = 0; w < 4; w++) {
            if (w & bit) continue;
            bool high = (lane & bit) != 0;
            uint32_t got = __shfl_xor_sync(0xffffffffu, high ? word[w] : word[w | bit], bit);
            if (high)
                word[w] = got;
            else
                word[w | bit] = got;
        }
}

template <class TILE, bool WIDE, bool ADD>
DEVICE void product_store(const product_sums<TILE> &sums, bf16 *c, int64_t ldc, int rows,
                          int columns)
{
    static_assert(!ADD, "sums are F32");
    int lane = (int)threadIdx.x & 31, row = product_warp_row<TILE>() + lane / 4,
        column = product_warp_column<TILE>();
#pragma unroll
    for (int i = 0; i < TILE::warp_m / 8; i++) {
        bool there = row + i * 8 < rows;
        uint4 *chunk = (uint4 *)c + (row + i * 8) * (ldc / 8);
        bf16 *line = c + (row + i * 8) * ldc;
#pragma unroll
        for (int j = 0; j < TILE::warp_n / 8; j += 4) {
            uint32_t word[4];
#pragma unroll
            for (int w = 0; w < 4; w++)
                word[w] = pack_bf16(sums.at[i / 2][j + w][i % 2 * 2],
                                    sums.at[i / 2][j + w][i % 2 * 2 + 1]);
            if (WIDE) {
                product_turn(word);
                int at = column + (j + lane % 4) * 8;
                if (there && at < columns)
                    chunk[at / 8] = make_uint4(word[0], word[1], word[2], word[3]);
            } else
#pragma unroll
                for (int w = 0; w < 4; w++) {
                    int at = column + (j + w) * 8 + lane % 4 * 2;
                    if (there && at < columns) line[at] = (bf16)word[w];
                    if (there && at + 1 < columns) line[at + 1] = (bf16)(word[w] >> 16);
                }
        }
    }
}

/* ── products in F32 ─────────────────────────────────────────────────────────── */
DEVICE float product_load(const float *p) { return *p; }
DEVICE float product_load(const bf16 *p) { return op_from_bf16(*p); }
DEVICE void product_keep(float *p, float x) { *p = x; }
DEVICE void product_keep(bf16 *p, float x) { *p = op_to_bf16(x); }

#define PRODUCT_PLAIN_K 16
/* 256 threads, each with EACH x EACH of the 16 EACH x 16 EACH of a tile, four neighbours and four
 * more 64 further on. */
template <int EACH> struct product_plain_sums {
    float at[EACH][EACH];
};
DEVICE int product_plain_at(int thread, int i) { return i / 4 * 64 + thread * 4 + i % 4; }

/* What a thread brings of one operand for 16 of k: EACH elements, neighbouring threads along the
 * stored lines. */
template <int EACH, bool DEEP, class T>
DEVICE void product_plain_fetch(float to[EACH], const T *at, int64_t stride, int rows, int k0,
                                int k)
{
    constexpr int ROWS = 16 * EACH, STEP = 256 / (DEEP ? PRODUCT_PLAIN_K : ROWS);
    int along = (int)threadIdx.x % (DEEP ? PRODUCT_PLAIN_K : ROWS),
        first = (int)threadIdx.x / (DEEP ? PRODUCT_PLAIN_K : ROWS);
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        int line = first + i * STEP, row = DEEP ? line : along, deep = k0 + (DEEP ? along : line);
        to[i] = row < rows && deep < k
                    ? product_load(at + (DEEP ? row * stride + deep : deep * stride + row))
                    : 0.0f;
    }
}
template <int EACH, bool DEEP>
DEVICE void product_plain_put(float (*to)[16 * EACH + 4], const float from[EACH])
{
    constexpr int ROWS = 16 * EACH, STEP = 256 / (DEEP ? PRODUCT_PLAIN_K : ROWS);
    int along = (int)threadIdx.x % (DEEP ? PRODUCT_PLAIN_K : ROWS),
        first = (int)threadIdx.x / (DEEP ? PRODUCT_PLAIN_K : ROWS);
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        if (DEEP)
            to[along][first + i * STEP] = from[i];
        else
            to[first + i * STEP][along] = from[i];
    }
}

/* As product_multiply, for elements of any type; fused multiply-adds in the order of k. */
template <int EACH, bool TA, bool TB, class A, class B>
DEVICE void product_plain_multiply(product_plain_sums<EACH> &sums, const A *a, int64_t lda,
                                   int rows, const B *b, int64_t ldb, int columns, int k)
{
    __shared__ __align__(16) float tile_a[PRODUCT_PLAIN_K][16 * EACH + 4],
        tile_b[PRODUCT_PLAIN_K][16 * EACH + 4];
    int row = (int)threadIdx.x / 16, column = (int)threadIdx.x % 16;
    float next_a[EACH], next_b[EACH];
#pragma unroll
    for (int i = 0; i < EACH; i++)
#pragma unroll
        for (int j = 0; j < EACH; j++) sums.at[i][j] = 0.0f;
    product_plain_fetch<EACH, !TA>(next_a, a, lda, rows, 0, k);
    product_plain_fetch<EACH, TB>(next_b, b, ldb, columns, 0, k);
    for (int k0 = 0; k0 < k; k0 += PRODUCT_PLAIN_K) {
        product_plain_put<EACH, !TA>(tile_a, next_a);
        product_plain_put<EACH, TB>(tile_b, next_b);
        __syncthreads();
        if (k0 + PRODUCT_PLAIN_K < k) {
            product_plain_fetch<EACH, !TA>(next_a, a, lda, rows, k0 + PRODUCT_PLAIN_K, k);
            product_plain_fetch<EACH, TB>(next_b, b, ldb, columns, k0 + PRODUCT_PLAIN_K, k);
        }
#pragma unroll 1
        for (int s = 0; s < PRODUCT_PLAIN_K; s++) {
            float left[EACH], right[EACH];
#pragma unroll
            for (int i = 0; i < EACH; i += 4) {
                float4 a4 = *(const float4 *)&tile_a[s][product_plain_at(row, i)],
                       b4 = *(const float4 *)&tile_b[s][product_plain_at(column, i)];
                left[i] = a4.x, left[i + 1] = a4.y, left[i + 2] = a4.z, left[i + 3] = a4.w;
                right[i] = b4.x, right[i + 1] = b4.y, right[i + 2] = b4.z, right[i + 3] = b4.w;
            }
#pragma unroll
            for (int i = 0; i < EACH; i++)
#pragma unroll
                for (int j = 0; j < EACH; j++)
                    sums.at[i][j] = fmaf(left[i], right[j], sums.at[i][j]);
        }
        __syncthreads();
    }
}

/* Four neighbours of a row; all or none exist where lines are multiples of four, otherwise those
 * left of `columns`. */
template <bool ADD>
DEVICE void product_plain_four(float *c, int64_t ldc, int row, int column, int columns,
                               const float *from)
{
    if (ldc % 4 == 0) {
        float4 *to = (float4 *)c + row * (ldc / 4) + column / 4;
        if (column >= columns) return;
        float4 old = ADD ? *to : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        *to = ADD ? make_float4(old.x + from[0], old.y + from[1], old.z + from[2], old.w + from[3])
                  : make_float4(from[0], from[1], from[2], from[3]);
        return;
    }
    float *to = c + row * ldc + column;
#pragma unroll
    for (int j = 0; j < 4; j++)
        if (column + j < columns) to[j] = ADD ? to[j] + from[j] : from[j];
}
template <bool ADD>
DEVICE void product_plain_four(bf16 *c, int64_t ldc, int row, int column, int columns,
                               const float *from)
{
    static_assert(!ADD, "sums are F32");
    if (ldc % 4 == 0) {
        uint2 *to = (uint2 *)c + row * (ldc / 4) + column / 4;
        if (column < columns)
            *to = make_uint2(pack_bf16(from[0], from[1]), pack_bf16(from[2], from[3]));
        return;
    }
    bf16 *to = c + row * ldc + column;
#pragma unroll
    for (int j = 0; j < 4; j++)
        if (column + j < columns) to[j] = op_to_bf16(from[j]);
}

template <bool ADD, int EACH, class C>
DEVICE void product_plain_store(const product_plain_sums<EACH> &sums, C *c, int64_t ldc, int rows,
                                int columns)
{
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        int row = product_plain_at((int)threadIdx.x / 16, i);
        if (row >= rows) continue;
#pragma unroll
        for (int j = 0; j < EACH; j += 4)
            product_plain_four<ADD>(c, ldc, row, product_plain_at((int)threadIdx.x % 16, j),
                                    columns, &sums.at[i][j]);
    }
}

/* ── a product ───────────────────────────────────────────────────────────────── */
/* The tile of a block: eight rows of tiles are walked together, column by column, so that blocks at
 * work at one time share what they read. */
DEVICE void product_place(int block, int tiles_m, int tiles_n, int *m, int *n)
{
    int group = 8 * tiles_n, first = block / group * 8,
        high = tiles_m - first < 8 ? tiles_m - first : 8;
    *m = first + block % group % high;
    *n = block % group / high;
}

/* c[m,n] = a[m,k] b[k,n], or c += (F32). Two BF16 operands; TILE::threads threads. */
template <class TILE, bool TA, bool TB, bool ADD, class C>
DEVICE void product_tensor(const bf16 *a, const bf16 *b, C *c, int64_t m, int64_t n, int k,
                           int64_t lda, int64_t ldb, int64_t ldc)
{
    DYNAMIC_SHARED(shared);
    int tile_m, tile_n;
    product_place((int)blockIdx.x, (int)((m + TILE::m - 1) / TILE::m),
                  (int)((n + TILE::n - 1) / TILE::n), &tile_m, &tile_n);
    int64_t row = (int64_t)tile_m * TILE::m, column = (int64_t)tile_n * TILE::n;
    int rows = m % TILE::m == 0 ? TILE::m : product_smaller(m - row, TILE::m),
        columns = n % TILE::n == 0 ? TILE::n : product_smaller(n - column, TILE::n);
    product_sums<TILE> sums;
    const bf16 *from_a = a + (TA ? row : row * lda), *from_b = b + (TB ? column * ldb : column);
    if (lda % 8 == 0 && ldb % 8 == 0)
        product_multiply<TILE, TA, TB, true, true>(sums, shared, from_a, lda, rows, from_b, ldb,
                                                   columns, k);
    else
        product_multiply<TILE, TA, TB, false, false>(sums, shared, from_a, lda, rows, from_b, ldb,
                                                     columns, k);
    if (ldc % 8 == 0)
        product_store<TILE, true, ADD>(sums, c + row * ldc + column, ldc, rows, columns);
    else
        product_store<TILE, false, ADD>(sums, c + row * ldc + column, ldc, rows, columns);
}

/* The same for elements of any type, in F32. 256 threads; tiles of 16 EACH x 16 EACH. */
template <int EACH, bool TA, bool TB, bool ADD, class A, class B, class C>
DEVICE void product_plain(const A *a, const B *b, C *c, int64_t m, int64_t n, int k, int64_t lda,
                          int64_t ldb, int64_t ldc)
{
    constexpr int TILE = 16 * EACH;
    int tile_m, tile_n;
    product_place((int)blockIdx.x, (int)((m + TILE - 1) / TILE), (int)((n + TILE - 1) / TILE),
                  &tile_m, &tile_n);
    int64_t row = (int64_t)tile_m * TILE, column = (int64_t)tile_n * TILE;
    int rows = product_smaller(m - row, TILE), columns = product_smaller(n - column, TILE);
    product_plain_sums<EACH> sums;
    product_plain_multiply<EACH, TA, TB>(sums, a + (TA ? row : row * lda), lda, rows,
                                         b + (TB ? column * ldb : column), ldb, columns, k);
    product_plain_store<ADD>(sums, c + row * ldc + column, ldc, rows, columns);
}

/* ── products of F32 and BF16 ────────────────────────────────────────────────── */
/* A float as the sum of three BF16 numbers, exactly: each takes the next eight bits of what is
 * left. So the product of an F32 and a BF16 operand is the sum of three products on the tensor
 * cores, which loses no bit of either. What is not finite is its first part; what lies below the
 * smallest normal number is lost. x[n] to to[3][plane]; one thread per four elements, 256 per
 * block. */
DEVICE void product_split(const float *x, bf16 *to, int64_t n, int64_t plane)
{
    int64_t at = (int64_t)blockIdx.x * 256 + (int)threadIdx.x;
    float left[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    if (at * 4 >= n) return;
    if (n % 4 == 0) {
        float4 four = ((const float4 *)x)[at];
        left[0] = four.x, left[1] = four.y, left[2] = four.z, left[3] = four.w;
    } else
        for (int e = 0; e < 4; e++)
            if (at * 4 + e < n) left[e] = x[at * 4 + e];
#pragma unroll
    for (int p = 0; p < 3; p++) { /* planes have room for whole fours */
        uint32_t half[4];
#pragma unroll
        for (int e = 0; e < 4; e++) {
            uint32_t bits = (uint32_t)op_to_bits(left[e]);
            bool finite = left[e] - left[e] == 0.0f;
            half[e] = finite ? bits >> 16 : (uint32_t)op_to_bf16(left[e]);
            left[e] = finite ? left[e] - op_from_bits((int32_t)(bits & 0xffff0000u)) : 0.0f;
        }
        ((uint2 *)to)[p * (plane / 4) + at] =
            make_uint2(half[0] | half[1] << 16, half[2] | half[3] << 16);
    }
}

/* c = a b, or c += (F32), operand A or B (SPLIT_A) in three planes. With blockIdx.y above 0 a
 * product of few tiles and a long k in
 * parts: c[blockIdx.y][m, n] = a b over `each` of k, a multiple of 64. */
template <class TILE, bool TA, bool TB, bool SPLIT_A, bool ADD, class C>
DEVICE void product_planes(const bf16 *a, const bf16 *b, C *c, int64_t m, int64_t n, int k,
                           int64_t lda, int64_t ldb, int64_t plane, int each)
{
    DYNAMIC_SHARED(shared);
    int tile_m, tile_n, from = (int)blockIdx.y * each,
                        deep = k % each == 0 ? each : product_smaller(k - from, each);
    product_place((int)blockIdx.x, (int)((m + TILE::m - 1) / TILE::m),
                  (int)((n + TILE::n - 1) / TILE::n), &tile_m, &tile_n);
    int64_t row = (int64_t)tile_m * TILE::m, column = (int64_t)tile_n * TILE::n;
    int rows = m % TILE::m == 0 ? TILE::m : product_smaller(m - row, TILE::m),
        columns = n % TILE::n == 0 ? TILE::n : product_smaller(n - column, TILE::n);
    product_sums<TILE> sums;
    product_multiply<TILE, TA, TB, true, true, 3>(
        sums, shared, a + (TA ? from * lda + row : row * lda + from), lda, rows,
        b + (TB ? column * ldb + from : from * ldb + column), ldb, columns, deep,
        SPLIT_A ? plane : 0, SPLIT_A ? 0 : plane);
    c += ((int64_t)blockIdx.y * m + row) * n + column;
    if (n % 8 == 0)
        product_store<TILE, true, ADD>(sums, c, n, rows, columns);
    else
        product_store<TILE, false, ADD>(sums, c, n, rows, columns);
}

/* c = the sum of the parts, in their order, or c += it; one thread per element, 256 per block. */
template <bool ADD, class C> DEVICE void product_join(const float *part, C *c, int64_t n, int parts)
{
    int64_t i = (int64_t)blockIdx.x * 256 + (int)threadIdx.x;
    if (i >= n) return;
    float sum = part[i];
    for (int p = 1; p < parts; p++) sum += part[p * n + i];
    product_keep(c + i, ADD ? product_load(c + i) + sum : sum);
}

#endif
