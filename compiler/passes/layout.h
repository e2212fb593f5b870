/* Offsets for buffers that live between steps: the packing problem of the memory pass and nothing
 * else. */
#ifndef PLANC_LAYOUT_H
#define PLANC_LAYOUT_H

#include "ir/ir.h"

/* Gives every owning buffer an offset (multiple of 256) so that no two that are live at the same
 * step overlap, and the graph its local_bytes and wire_bytes (multiples of 4096). The arena is one
 * stretch of addresses: `wire` buffers lie in its last wire_bytes and count from there; `local`
 * ones count from its beginning and may lie anywhere, so also where `wire` is free just then.
 * Aliases are left alone. */
void layout_place(struct graph *g);
/* memory.c: what pass_memory gives, except offsets: sizes of buffers and the steps that they live
 * for, to be laid out at other sizes. */
struct graph *memory_sizes(const struct graph *g);
/* Bytes that are alive at the fullest step, and that step: no layout is smaller. */
int64_t layout_bound(const struct graph *g, int *step);

#endif
