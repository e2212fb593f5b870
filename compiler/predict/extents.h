/* The extents of a structure's shapes. Passes compare extents: a kernel walks what has as many
 * rows, an extent of 1 is broadcast. So kernels are the same at all sizes, but perhaps not where
 * extents are equal that differ elsewhere, or are 1. */
#ifndef PLANC_EXTENTS_H
#define PLANC_EXTENTS_H

#include "ir/ir.h"

/* more: at twice the tokens; finer: in more pieces of the loss, or `few` again. NULL when these are
 * not the same kernels. From the heap. */
struct extents *extents_of(const struct graph *few, const struct graph *more,
                           const struct graph *finer);
void extents_free(struct extents *e); /* NULL: nothing */
bool extents_coincide(const struct extents *e, int64_t tokens, int64_t chunks);
/* Which ops are in which kernel, as a number that does not depend on sizes. */
uint64_t kernels_hash(const struct graph *g);

#endif
