/* A mixture of experts without dropped tokens: the order of rows that brings each expert's rows
 * together, moving rows there and back, and one matrix product per expert. How many rows an
 * expert has is known on the device only, so launches are for the worst case and a block finds its
 * expert from `first`; those without work leave. Every sum has one order: that of the choices, then
 * of the tokens. What moves or is multiplied is F32 or BF16; sums are F32. */
#ifndef CUDA_EXPERTS_CUH
#define CUDA_EXPERTS_CUH

#include "piece.cuh"
#include "product.cuh"
#include "sort.cuh"

/* ── rows there and back ─────────────────────────────────────────────────────── */
/* z[place[t * k + j]] = x[t]; rows of `width` pieces of type T. One thread per piece, 256 per
 * block. */
template <class T>
DEVICE void dispatch(const T *x, const int32_t *place, T *z, int64_t tokens, int k, int width)
{
    int64_t i = (int64_t)blockIdx.x * 256 + (int)threadIdx.x, t = i / width, c = i % width;
    if (t >= tokens) return;
    T piece = x[i];
    for (int j = 0; j < k; j++) z[(int64_t)place[t * k + j] * width + c] = piece;
}

/* y[t] = the sum over j of z[place[t * k + j]], in this order, rounded once. One thread per piece,
 * 256 per block. */
template <class T, bool WIDE>
DEVICE void collect(const T *z, const int32_t *place, T *y, int64_t tokens, int k, int width)
{
    constexpr int EACH = WIDE ? 16 / (int)sizeof(T) : 1;
    int pieces = width / EACH;
    int64_t i = (int64_t)blockIdx.x * 256 + (int)threadIdx.x, t = i / pieces, c = i % pieces * EACH;
    if (t >= tokens) return;
    float sum[EACH], next[EACH];
    piece_load<EACH>(sum, z + (int64_t)place[t * k] * width + c);
    for (int j = 1; j < k; j++) {
        piece_load<EACH>(next, z + (int64_t)place[t * k + j] * width + c);
#pragma unroll
        for (int e = 0; e < EACH; e++) sum[e] += next[e];
    }
    piece_store<EACH>(y + t * width + c, sum);
}

DEVICE void to_rows(const float *w, const int32_t *place, float *out, int64_t choices)
{
    int64_t c = (int64_t)blockIdx.x * 256 + (int)threadIdx.x;
    if (c < choices) out[place[c]] = w[c];
}

DEVICE void from_rows(const float *row, const int32_t *place, float *out, int64_t choices)
{
    int64_t c = (int64_t)blockIdx.x * 256 + (int)threadIdx.x;
    if (c < choices) out[c] = row[place[c]];
}

/* ── a product an expert ─────────────────────────────────────────────────────── */
/* Which expert has tile number `tile` when each takes as many tiles of `high` rows as it needs: the
 * expert, the tile's first row and how many of its rows exist; false beyond the last. Every warp
 * finds out by itself. */
struct expert_rows {
    int expert, first, rows;
};
DEVICE bool expert_find(const int32_t *first, int experts, int high, int tile,
                        struct expert_rows *to)
{
    int lane = (int)threadIdx.x & 31;
    for (int e = 0; e < experts; e += 32) {
        int from = first[e + lane < experts ? e + lane : experts],
            end = first[e + lane < experts ? e + lane + 1 : experts];
        int own = (end - from + high - 1) / high, running = sort_running(own);
        unsigned beyond = __ballot_sync(0xffffffffu, running > tile);
        if (beyond) {
            int at = __ffs((int)beyond) - 1,
                within = tile - (__shfl_sync(0xffffffffu, running, at) -
                                 __shfl_sync(0xffffffffu, own, at));
            to->expert = e + at;
            to->first = __shfl_sync(0xffffffffu, from, at) + within * high;
            to->rows = __shfl_sync(0xffffffffu, end, at) - to->first;
            to->rows = to->rows < high ? to->rows : high;
            return true;
        }
        tile -= __shfl_sync(0xffffffffu, running, 31);
    }
    return false;
}

/* y[r] = W[expert of r] z[r]; W[e] is [out, in], with ACROSS [in, out]. Blocks: (rows / TILE::m
 * rounded up + experts) x tiles of `out`, those of one row of tiles next to each other. */
template <class TILE, bool ACROSS, class Y>
DEVICE void expert_product(const bf16 *z, const bf16 *w, const int32_t *first, Y *y, int experts,
                           int in, int out)
{
    DYNAMIC_SHARED(shared);
    struct expert_rows here;
    int tiles = (out + TILE::n - 1) / TILE::n, column = (int)blockIdx.x % tiles * TILE::n;
    if (!expert_find(first, experts, TILE::m, (int)blockIdx.x / tiles, &here)) return;
    int columns = out % TILE::n == 0 ? TILE::n : product_smaller(out - column, TILE::n);
    const bf16 *a = z + (int64_t)here.first * in,
               *b = w + (int64_t)here.expert * in * out + (ACROSS ? column : (int64_t)column * in);
    product_sums<TILE> sums;
    if (in % 8 == 0 && out % 8 == 0)
        product_multiply<TILE, false, !ACROSS, true, true>(sums, shared, a, in, here.rows, b,
                                                           ACROSS ? out : in, columns, in);
    else
        product_multiply<TILE, false, !ACROSS, false, false>(sums, shared, a, in, here.rows, b,
                                                             ACROSS ? out : in, columns, in);
    y += (int64_t)here.first * out + column;
    if (out % 8 == 0)
        product_store<TILE, true, false>(sums, y, out, here.rows, columns);
    else
        product_store<TILE, false, false>(sums, y, out, here.rows, columns);
}

/* The same for elements of any type, in F32: tiles of 16 EACH x 16 EACH, 256 threads. */
template <int EACH, bool ACROSS, class Z, class W, class Y>
DEVICE void expert_plain(const Z *z, const W *w, const int32_t *first, Y *y, int experts, int in,
                         int out)
{
    struct expert_rows here;
    int tiles = (out + 16 * EACH - 1) / (16 * EACH), column = (int)blockIdx.x % tiles * 16 * EACH;
    if (!expert_find(first, experts, 16 * EACH, (int)blockIdx.x / tiles, &here)) return;
    int columns = product_smaller(out - column, 16 * EACH);
    const W *b = w + (int64_t)here.expert * in * out + (ACROSS ? column : (int64_t)column * in);
    product_plain_sums<EACH> sums;
    product_plain_multiply<EACH, false, !ACROSS>(sums, z + (int64_t)here.first * in, in, here.rows,
                                                 b, ACROSS ? out : in, columns, in);
    product_plain_store<false>(sums, y + (int64_t)here.first * out + column, out, here.rows,
                               columns);
}

/* dW[e] = dy' z over the expert's rows, [out, in]; zeros for an expert without rows. Blocks:
 * experts x tiles of `out` x tiles of `in`. */
template <class TILE>
DEVICE void expert_product_grad(const bf16 *dy, const bf16 *z, const int32_t *first, float *dw,
                                int in, int out)
{
    DYNAMIC_SHARED(shared);
    int across = (in + TILE::n - 1) / TILE::n, tiles = (out + TILE::m - 1) / TILE::m * across;
    int e = (int)blockIdx.x / tiles, row = (int)blockIdx.x % tiles / across * TILE::m,
        column = (int)blockIdx.x % across * TILE::n;
    int from = first[e], k = first[e + 1] - from;
    int rows = out % TILE::m == 0 ? TILE::m : product_smaller(out - row, TILE::m),
        columns = in % TILE::n == 0 ? TILE::n : product_smaller(in - column, TILE::n);
    const bf16 *a = dy + (int64_t)from * out + row, *b = z + (int64_t)from * in + column;
    product_sums<TILE> sums;
    if (in % 8 == 0 && out % 8 == 0)
        product_multiply<TILE, true, false, true, true>(sums, shared, a, out, rows, b, in, columns,
                                                        k);
    else
        product_multiply<TILE, true, false, false, false>(sums, shared, a, out, rows, b, in,
                                                          columns, k);
    dw += ((int64_t)e * out + row) * in + column;
    if (in % 8 == 0)
        product_store<TILE, true, false>(sums, dw, in, rows, columns);
    else
        product_store<TILE, false, false>(sums, dw, in, rows, columns);
}

/* ── what cuBLASLt is told of the products ───────────────────────────────────── */
/* The groups of grouped_product() in runtime/shared/launch.h, an expert each: addresses of its
 * matrices a, b and d = a b (by columns), of factors 1 and 0; sizes m, n, k of the product, and how
 * far columns of a, b and d lie apart. One block of 256. */
struct expert_group {
    const void *a, *b;
    void *d;
    int m, n, k, lda, ldb, ldd;
};
DEVICE void expert_group_put(void *table, int experts, int e, struct expert_group g)
{
    uint64_t *address = (uint64_t *)table;
    int32_t *number = (int32_t *)(address + 5 * experts + 2);
    float *factor = (float *)(number + 6 * experts);
    const int of[] = {g.m, g.n, g.k, g.lda, g.ldb, g.ldd};
    const void *at[] = {g.a, g.b, g.d, factor, factor + 1};
#pragma unroll
    for (int i = 0; i < 5; i++) address[i * experts + e] = (uint64_t)at[i];
#pragma unroll
    for (int i = 0; i < 6; i++) number[i * experts + e] = of[i];
    if (e == 0) factor[0] = 1, factor[1] = 0, address[5 * experts] = address[5 * experts + 1] = 0;
}

/* y = W z of an expert's rows; W [out, in], with ACROSS [in, out]. By columns: y' = W' z'. */
template <bool ACROSS>
DEVICE void expert_groups(const bf16 *z, const bf16 *w, const int32_t *first, bf16 *y, void *table,
                          int experts, int in, int out)
{
    for (int e = (int)threadIdx.x; e < experts; e += 256) {
        int64_t row = first[e];
        expert_group_put(table, experts, e,
                         {w + (int64_t)e * in * out, z + row * in, y + row * out, out,
                          first[e + 1] - first[e], in, ACROSS ? out : in, in, out});
    }
}

/* dW = dy' z over an expert's rows, [out, in]. By columns: dW' = z' dy. */
DEVICE void expert_groups_grad(const bf16 *dy, const bf16 *z, const int32_t *first, float *dw,
                               void *table, int experts, int in, int out)
{
    for (int e = (int)threadIdx.x; e < experts; e += 256) {
        int64_t row = first[e];
        expert_group_put(table, experts, e,
                         {z + row * in, dy + row * out, dw + (int64_t)e * in * out, in, out,
                          first[e + 1] - first[e], in, out, in});
    }
}

/* Zeros for the experts without rows: a product over nothing is not left to a library. 32 blocks of
 * 256 an expert. */
DEVICE void expert_empty(const int32_t *first, float *dw, int64_t each)
{
    int e = (int)blockIdx.x / 32;
    if (first[e + 1] > first[e]) return;
    for (int64_t i = (int64_t)(blockIdx.x % 32) * 256 + threadIdx.x; i < each; i += 32 * 256)
        dw[(int64_t)e * each + i] = 0;
}

template <int EACH, class DY, class Z>
DEVICE void expert_plain_grad(const DY *dy, const Z *z, const int32_t *first, float *dw, int in,
                              int out)
{
    constexpr int TILE = 16 * EACH;
    int across = (in + TILE - 1) / TILE, tiles = (out + TILE - 1) / TILE * across;
    int e = (int)blockIdx.x / tiles, row = (int)blockIdx.x % tiles / across * TILE,
        column = (int)blockIdx.x % across * TILE;
    int from = first[e], k = first[e + 1] - from, rows = product_smaller(out - row, TILE),
        columns = product_smaller(in - column, TILE);
    product_plain_sums<EACH> sums;
    product_plain_multiply<EACH, true, false>(sums, dy + (int64_t)from * out + row, out, rows,
                                              z + (int64_t)from * in + column, in, columns, k);
    product_plain_store<false>(sums, dw + ((int64_t)e * out + row) * in + column, in, rows,
                               columns);
}

#endif
