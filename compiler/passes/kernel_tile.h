/* How the cuda device tiles matrix products: the tile of a block and, for products of an F32 and a
 * BF16 operand, the planes and parts in the workspace. The emitters write it and the memory pass
 * reserves the space; both ask here. */
#ifndef PLANC_KERNEL_TILE_H
#define PLANC_KERNEL_TILE_H

#include "ir/ir.h"

/* Bytes of shared memory that a block may have on every one of these architectures ("sm_80"); 0: as
 * many as any kernel here wants. One that is not known offers what the least of its kind do. */
int64_t shared_bytes_of(const char *const *arch, int n);

/* Whether one of these architectures has products of warpgroups: sm_90a alone. A build for sm_90
 * does without. */
bool has_wgmma(const char *const *arch, int n);

/* Multiprocessors that kernels are cut for: facts.multiprocessors, or 132 where that is 0. */
int64_t multiprocessors_of(const struct facts *f);

/* A tile of templates/cuda/product.cuh: m x n of the result per block, blocks that a multiprocessor
 * holds, speed against the largest. `name`: a class of tensor tiles, or how many rows and columns a
 * thread of the F32 form has. */
struct tile {
    const char *name;
    int m, n, threads, together;
    int64_t shared_bytes;
    double speed;
};

/* The tile with the least time for `count` products m x n on the multiprocessors of `f`, of those
 * that fit its shared memory. `wide`: lines of both operands are multiples of 8 elements. */
const struct tile *tile_choose(const struct facts *f, bool tensor, bool wide, int64_t count,
                               int64_t m, int64_t n);

/* The tile of templates/cuda/product_wgmma.cuh for the same products of `a` and `b`, where
 * facts.wgmma says that there may be one, tensor copies can read both operands, and its time is
 * less than that of `other`, the best without; otherwise NULL. Its blocks take several tiles each:
 * wgmma_blocks of them for `tiles` tiles. */
const struct tile *tile_wgmma(const struct facts *f, const struct tile *other,
                              const struct value *a, const struct value *b, int64_t count,
                              int64_t m, int64_t n);
int64_t wgmma_blocks(const struct facts *f, int64_t tiles);

/* Whether a node is attention, or its gradient, of a kind that has a form for warpgroups: BF16,
 * heads of 64 or 128 columns, the gradient under a cap on scores of 128; and tensor copies can read
 * what it reads: q, k, v, and in the gradient dy, [sequences, sequence, elements of all heads]
 * each, and none the bytes of another. */
bool wgmma_attention(const struct node *n);

/* Sizes of a matmul or matmul_add: y[m,n], a[m,k], b[k,n] as stored, elements between stored
 * lines. */
struct product_shape {
    bool ta, tb, add;
    int64_t m, n, k, lda, ldb;
};
struct product_shape product_shape(const struct node *n);

/* A product of an F32 and a BF16 operand on the tensor cores: the F32 operand of `elements` in
 * three planes of BF16, `plane` elements from each other, at the workspace's beginning; then, when
 * there are several, `parts` of the result in F32, each over `each` of k, at byte `part_offset`.
 * `tile` is NULL where the operands' types or lines ask for the F32 form. */
struct planes {
    const struct tile *tile;
    bool split_a;
    int64_t elements, plane, parts, each, part_offset, bytes;
};
struct planes planes_of(const struct facts *f, const struct node *n);

#endif
