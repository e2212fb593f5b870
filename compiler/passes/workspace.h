/* The workspace of cuda kernels: bytes that do not outlive a kernel, such as partial sums of
 * reductions that no single block can finish. The memory pass reserves it and the emitters use it;
 * both ask here. It depends only on op, shape, type and the multiprocessors that the plan's cluster
 * gives, because the order of a sum does. */
#ifndef PLANC_WORKSPACE_H
#define PLANC_WORKSPACE_H

#include "ir/ir.h"

/* The most experts whose tokens a block counts; lower refuses more on cuda. */
enum { CUDA_EXPERTS = 1024 };

/* Threads that share one row of so many columns, eight columns each at a time: a power of two, 1 to
 * 512. */
int row_threads(int64_t columns);

/* A sum over rows: `count` chunks of `rows` rows each (the last may have fewer), one block and one
 * row of partials a chunk. */
struct row_chunks {
    int64_t count, rows;
};
struct row_chunks row_chunks(const struct facts *f, int64_t rows, int64_t columns);

/* Items into bins, stable (templates/cuda/sort.cuh): items are counted in `chunks` chunks of
 * `chunk`. By bins: one pass. By keys below `keys`: as many passes of `bits` bits as it takes, each
 * into another of two orders. Places in the workspace, in int32: orders at 0 and `order`, counts at
 * `counts`. */
struct sort_plan {
    int64_t items, chunk, chunks, order, counts, bytes;
    int bins, bits, passes;
};
struct sort_plan sort_plan(int64_t items, int64_t keys, bool by_key);

/* Words for the turns of the blocks of attention's gradient on the tensor cores, behind its rows in
 * the workspace (templates/cuda/attention.cuh); 0 in other forms. */
int64_t attention_turns(const struct node *n);

/* A norm's stretch is cut into parts of so many elements, at most so many of them. */
enum { SUM_SQUARES_EACH = 16384, SUM_SQUARES_BLOCKS = 1024 };

/* Bytes of the partials of one node, a multiple of 256; 0 when it needs none. Nodes of one kernel
 * follow each other, in order. `f`: how products and sums are cut follows from the shared memory
 * and the multiprocessors that there are. */
int64_t workspace_of_node(const struct facts *f, const struct node *n);

/* The same of what a library is offered for the node; its kernel has the larger of both sums. */
int64_t workspace_of_library(const struct facts *f, const struct node *n);

/* Whether a node is attention, or its gradient, of a kind that a library may do
 * (facts.attention_library): BF16, rows of whole 16 bytes, up to 128 wide, all keys up to a query,
 * no cap on scores. */
bool attention_offered(const struct node *n);

/* Whether a node is an expert product of a kind that a library may do: BF16, rows of whole 16
 * bytes. And whether the plan asks one for it (facts.experts): cuDNN for the product alone. */
bool experts_offered(const struct node *n);
bool experts_by_library(const struct facts *f, const struct node *n);
/* Where in the workspace the groups of cuBLASLt's products lie, behind what it works in. */
int64_t groups_offset(void);

/* What the kernel with the largest need has of it, and the libraries. */
int64_t workspace_bytes(const struct graph *g);
/* That kernel (of equal ones the first), and *bytes; NULL and 0 when none needs any. */
const struct kernel *workspace_kernel(const struct graph *g, int64_t *bytes);

#endif
