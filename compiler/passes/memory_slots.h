/* What memory.c and memory_slots.c share: the graph whose buffers are being recorded, and the steps
 * at which its regions run. */
#ifndef PLANC_MEMORY_SLOTS_H
#define PLANC_MEMORY_SLOTS_H

#include "ir/ir.h"
#include "passes/share.h"

struct stretch_of { /* of steps in text order, both included */
    int first, last;
};

struct memory {
    struct graph *graph;
    holder_list holder;
    struct stretch_of *steps;         /* of each region */
    int micro_first, micro_last, end; /* steps of micro-batches; the first step behind all */
};

/* memory.c: a new buffer of the graph, live from step `from` to step `to`. `bytes` are those of one
 * entry; it has no offset yet. */
struct buffer *memory_put(struct memory *m, const char *name, enum buffer_kind kind,
                          enum segment segment, int64_t bytes, int64_t entries,
                          enum buffer_index index, int from, int to);
/* memory.c: the place of a region in its graph, for m->steps. */
int memory_region(const struct memory *m, const struct region *r);

/* Records the slots of gathers and gradients, and the names under which regions read them. */
void memory_slots(struct memory *m);

#endif
