/* The passes and their order. Each pass reads a graph and builds a new one. */
#ifndef PLANC_PIPELINE_H
#define PLANC_PIPELINE_H

#include "ir/ir.h"

/* The most that a repeat may count: a program of them still fits in memory. */
enum { LAYERS_LIMIT = 10000 };
struct graph *pass_lower(const struct plan *plan); /* lower.c: NULL after diagnostics */
/* What the passes after it need of a plan. Lowering itself depends on the model, the sequence, the
 * local batch and the element types only, so a lowered graph serves other meshes, modes, rings and
 * pieces of the loss under their facts. */
struct facts lower_facts(const struct plan *plan);
struct graph *pass_join(const struct graph *g);
struct graph *pass_split(const struct graph *g);
struct graph *pass_gradient(const struct graph *g);
struct graph *pass_chunk(const struct graph *g); /* NULL after diagnostics */
struct graph *pass_optimizer(const struct graph *g);
struct graph *pass_recompute(const struct graph *g);
struct graph *pass_shard(const struct graph *g);
struct graph *pass_fuse(const struct graph *g);
struct graph *pass_schedule(const struct graph *g);
struct graph *pass_memory(const struct graph *g);
/* Whether a list of what is kept (activation_checkpoint.save) has the name that the architecture
 * gave `v`; recompute.c. */
bool save_lists_value(const char *save, const struct value *v);
struct pass {
    const char *name;
    struct graph *(*run)(const struct graph *);
    enum level gives;
};
extern const struct pass passes[];
extern const int pass_count;
/* The whole pipeline after lower, up to and including `level`; verifies after every pass. NULL
 * after diagnostics: a pass refuses what the plan asks of it. */
struct graph *pipeline_run(struct graph *lowered, enum level level);

#endif
