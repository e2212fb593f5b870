/* What a kernel is, from its nodes: its class, the FLOPs that it does, the bytes that it moves. */
#ifndef PLANC_KERNEL_KIND_H
#define PLANC_KERNEL_KIND_H

#include "ir/ir.h"

/* Sets value->mark of a graph's values: how many operands, next and gradient lines and first values
 * of carries read them. */
void count_readers(const struct graph *g);
/* Class, FLOPs and bytes of the kernel of `n` nodes, after count_readers. What only its own nodes
 * read is not moved. */
void kernel_describe(struct kernel *k, struct node *const *node, int n);

#endif
