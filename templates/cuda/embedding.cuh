/* Rows of a table by token id, and the gradient of the table. The gradient adds rows in token
 * order, so its bits do not depend on how often an id occurs; its sums are F32 for rows of either
 * type. It starts with zeros everywhere and the tokens sorted by id (sort.cuh); the first token of
 * an id adds up all of them. */
#ifndef CUDA_EMBEDDING_CUH
#define CUDA_EMBEDDING_CUH

#include "piece.cuh"
#include "sort.cuh"

/* Rows of `width` pieces of type T. One thread per piece, 256 per block. */
template <class T>
DEVICE void embedding(const int32_t *ids, const T *table, T *out, int64_t tokens, int width)
{
    int64_t i = (int64_t)blockIdx.x * 256 + (int)threadIdx.x, t = i / width, c = i % width;
    if (t < tokens) out[i] = table[(int64_t)ids[t] * width + c];
}

/* Zeros. One thread per four elements, 256 per block. */
DEVICE void embedding_clear(float *dw, int64_t n)
{
    int64_t i = ((int64_t)blockIdx.x * 256 + (int)threadIdx.x) * 4;
    if (i + 4 <= n)
        *(float4 *)(dw + i) = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    else
        for (; i < n; i++) dw[i] = 0.0f;
}

/* order: token numbers by id, those of one id rising. Blocks: tokens x (pieces of a row / THREADS),
 * the place in the order and a range of columns. A warp looks 32 places ahead at a time, so that
 * rows of an id that is often there are on their way together. */
template <int EACH, int THREADS, class T>
DEVICE void embedding_grad(const int32_t *ids, const int32_t *order, const T *dy, float *dw,
                           int tokens, int width)
{
    int at = (int)blockIdx.x, id = ids[order[at]],
        column = ((int)blockIdx.y * THREADS + (int)threadIdx.x) * EACH,
        lane = (int)threadIdx.x & 31, run = 32;
    if (at > 0 && ids[order[at - 1]] == id) return;
    float sum[EACH];
#pragma unroll
    for (int e = 0; e < EACH; e++) sum[e] = 0.0f;
    for (; run == 32; at += run) {
        int token = at + lane < tokens ? order[at + lane] : -1;
        unsigned other = ~__ballot_sync(0xffffffffu, token >= 0 && ids[token] == id);
        run = other ? __ffs((int)other) - 1 : 32;
#pragma unroll 4
        for (int r = 0; r < run; r++) {
            int64_t row = __shfl_sync(0xffffffffu, token, r);
            float add[EACH];
            if (column < width) {
                piece_load<EACH>(add, dy + row * width + column);
#pragma unroll
                for (int e = 0; e < EACH; e++) sum[e] += add[e];
            }
        }
    }
    if (column >= width) return;
    float *to = dw + (int64_t)id * width + column;
    if (EACH == 1)
        to[0] = sum[0];
    else
#pragma unroll
        for (int e = 0; e < EACH; e += 4) piece_store<4>(to + e, sum + e);
}

#endif
