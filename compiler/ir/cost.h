/* What a graph costs and holds, counted op by op over all layers; nothing here is a formula of a
 * family. */
#ifndef PLANC_COST_H
#define PLANC_COST_H

#include "ir/ir.h"

/* FLOPs per token, forward and backward, of matrix products and attention. A multiply-add is two;
 * the input embedding is a look-up; of experts, only those that a token uses count. Conventions:
 *   full      scores and weighted sums over the whole sequence, without recomputation (PaLM:
 *             Chowdhery et al., 2022, appendix B; torchtitan):
 *             6 N + 12 layers x heads x head_dim x sequence
 *   causal    the same with half of the scores and weighted sums
 *   hardware  full, and the ops that are computed again. The scores that the kernel of attention's
 *             gradient computes again are in op_flops().run and in none of these */
struct flops {
    double full, causal, hardware;
};
struct flops cost_flops_per_token(const struct graph *g);
/* The part of `full` that depends on where documents end: of each pair of a query and a key that
 * one document holds, forward and backward, over all layers with one window (0: none). Pairs
 * farther apart than the window do not count. Kinds in the order of the graph, at most COST_PAIRS;
 * *others: the rest of `full`, of a token. */
enum { COST_PAIRS = 8 };
struct pair_flops {
    int64_t window;
    double flops;
};
int cost_pairs(const struct graph *g, struct pair_flops pair[COST_PAIRS], double *others);

/* The class of every kernel of a fused graph, by number (from 1; place 0 is COST_NONE): its core
 * op's, else of its ops' the one that limits a walk most (update, total, column, row, map). */
enum cost_class *cost_of_kernels(const struct graph *g);

int64_t cost_parameters(const struct graph *g);
/* Those that work on one token: of a stack of experts, top_k of them. */
int64_t cost_active_parameters(const struct graph *g);

/* Bytes of host memory that a rank's asynchronous checkpoint is written from: the second copy of
 * its part of master weights and moments; replicas divide a shard. 0: the plan saves none, or saves
 * while the run waits. */
int64_t cost_copy_bytes(const struct graph *g, const struct plan *p);
/* The same of `elements` of master weights that so many ranks have. */
int64_t cost_copy_bytes_of(int64_t elements, const struct plan *p, int64_t sharers);
/* What a device has beside the arena: the cluster's `outside`, on cpu with that copy. */
int64_t cost_outside_bytes(const struct graph *g, const struct plan *p);

#endif
