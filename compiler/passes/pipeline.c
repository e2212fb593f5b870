/* The order of the passes. Names and order of dumps, and what is verified when, come from this
 * table. */
#include "ir/ir.h"
#include "passes/pipeline.h"

const struct pass passes[] = {
    {"join", pass_join, LEVEL_JOIN}, /* two products of one input become one, on cuda */
    /* layers under different checkpointing are different bodies */
    {"split", pass_split, LEVEL_SPLIT},
    {"gradient", pass_gradient, LEVEL_GRADIENT},    /* forward regions get their mirrors */
    {"chunk", pass_chunk, LEVEL_CHUNK},             /* the loss in pieces */
    {"optimizer", pass_optimizer, LEVEL_OPTIMIZER}, /* norm, clipping, AdamW */
    {"recompute", pass_recompute, LEVEL_RECOMPUTE}, /* kept or computed again */
    {"shard", pass_shard, LEVEL_SHARD},             /* units, shards, gathers, reductions */
    {"fuse", pass_fuse, LEVEL_FUSE},                /* kernels */
    {"schedule", pass_schedule, LEVEL_SCHEDULE},    /* lanes, events, order */
    {"memory", pass_memory, LEVEL_MEMORY},          /* two segments, every byte */
};
const int pass_count = COUNT_OF(passes);

struct graph *pipeline_run(struct graph *g, enum level level)
{
    ir_verify(g);
    for (int i = 0; i < pass_count && passes[i].gives <= level; i++) {
        if (passes[i].gives <= g->level) continue;
        g = passes[i].run(g);
        if (!g) return NULL;
        ir_verify(g);
    }
    return g;
}
