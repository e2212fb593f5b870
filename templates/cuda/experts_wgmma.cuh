/* Products of experts for warpgroups: those of experts.cuh that end in _product, on
 * product_wgmma.cuh. A block goes through the experts once, from its first tile to its last. */
#ifndef CUDA_EXPERTS_WGMMA_CUH
#define CUDA_EXPERTS_WGMMA_CUH

#include "product_wgmma.cuh"

#ifdef HAS_WGMMA

/* y[r] = W[expert of r] z[r], as expert_product, of tensors z[1, rows, in] and w[experts, out, in]
 * (ACROSS: [experts, in, out]); tiles of one expert's row of tiles are neighbours. Any number of
 * blocks. */
template <bool ACROSS, class Y>
DEVICE void expert_product_wgmma(const tensor_map *z, const tensor_map *w, const int32_t *first,
                                 Y *y, int experts, int in, int out)
{
    int tiles = (out + wgmma_tile::n - 1) / wgmma_tile::n, expert = 0, before = 0, from = first[0],
        end = first[1];
    wgmma_tiles<false, !ACROSS, false, false, Y>(
        z, w, out, [=](int i, struct wgmma_work<Y> *to) mutable {
            int tile = (int)blockIdx.x + i * (int)gridDim.x, row = tile / tiles,
                column = tile % tiles * wgmma_tile::n;
            for (;;) { /* `before` rows of tiles belong to earlier experts */
                int high = (end - from + wgmma_tile::m - 1) / wgmma_tile::m;
                if (row < before + high) break;
                before += high;
                if (++expert == experts) return false;
                from = end;
                end = first[expert + 1];
            }
            int top = from + (row - before) * wgmma_tile::m;
            *to = {top,
                   column,
                   0,
                   expert,
                   y + (int64_t)top * out + column,
                   product_smaller(end - top, wgmma_tile::m),
                   product_smaller(out - column, wgmma_tile::n),
                   in};
            return true;
        });
}

/* dW[e] = dy' z over the expert's rows, as expert_product_grad, of tensors dy[1, rows, out] and
 * z[1, rows, in]. Any number of blocks. */
DEVICE void expert_product_grad_wgmma(const tensor_map *dy, const tensor_map *z,
                                      const int32_t *first, float *dw, int experts, int in, int out)
{
    int across = (in + wgmma_tile::n - 1) / wgmma_tile::n,
        tiles = (out + wgmma_tile::m - 1) / wgmma_tile::m * across;
    wgmma_tiles<true, false, false, true, float>(
        dy, z, in, [=](int i, struct wgmma_work<float> *to) {
            int tile = (int)blockIdx.x + i * (int)gridDim.x, e = tile / tiles;
            if (e >= experts) return false;
            int row = tile % tiles / across * wgmma_tile::m, column = tile % across * wgmma_tile::n,
                from = first[e];
            *to = {row,
                   column,
                   from,
                   0,
                   dw + ((int64_t)e * out + row) * in + column,
                   product_smaller(out - row, wgmma_tile::m),
                   product_smaller(in - column, wgmma_tile::n),
                   first[e + 1] - from};
            return true;
        });
}

#endif
#endif
