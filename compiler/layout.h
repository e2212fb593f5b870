/* Offsets for buffers that live between steps: the packing problem of the memory pass and nothing else. */
#ifndef PLANC_LAYOUT_H
#define PLANC_LAYOUT_H

#include "ir.h"

/* Gives every owning buffer of a segment an offset (multiple of 256) so that no two that are live at the same step
 * overlap; returns the segment's bytes (multiple of 4096, or 0). Records of kind "alias" are left alone. */
int64_t layout_place(struct graph *g, enum segment segment);
/* The most bytes that owning buffers of the segment hold at one step: what no layout can go below. *step: where. */
int64_t layout_bound(const struct graph *g, enum segment segment, int *step);

#endif
