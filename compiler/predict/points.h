/* Memory and time of the points of a space, without reading, checking or compiling each: points
 * that differ in numbers alone (shards, replicas, local batch, accumulation, pieces of the loss)
 * are one structure, which is compiled at two or three sizes and evaluated at any. Other choices
 * (what is kept, gathers ahead, gradient slots) are structures of their own, which share what
 * lowering gives. The answers are those of check and simulate. */
#ifndef PLANC_POINTS_H
#define PLANC_POINTS_H

#include "passes/family.h"
#include "predict/prediction.h"

/* What the structures of a space share: the lowered model, times of kernels. `p`: any of its plans;
 * its model, sequence, types and device hold for all. NULL after diagnostics. In the arena, so it
 * is opened before marks that are reset. */
/* tries: every structure's rules of memory are held against a size that they were not read from;
 * one that breaks them answers -1 bytes. It takes a third more time. */
struct points *points_open(const struct plan *p, bool tries);
void points_close(struct points *s); /* NULL: nothing */

struct structure;
/* That of a plan: its checkpointing, prefetch, reduce_slots, reshard; whether it has one piece of
 * the loss, one shard; with mesh.optimizer = all whether it has one replica, and whether it
 * accumulates gradients. NULL after diagnostics. From the heap. */
struct structure *structure_new(struct points *s, const struct plan *p);
/* The same under several lengths of its rings, whose kernels are the same and are made once. False
 * after diagnostics. */
struct ring_lengths {
    int64_t prefetch, reduce_slots;
};
bool structures_new(struct points *s, const struct plan *p, const struct ring_lengths *r, int n,
                    struct structure **out);
void structure_free(struct structure *s); /* NULL: nothing */

struct point {
    int64_t fsdp, dp, local, accumulation, loss_chunks;
    int64_t hosts, ranks_a_host; /* of the machine */
};
struct point point_of(const struct plan *p);
struct estimate {
    int64_t arena_bytes, peak_bytes; /* peak: with what is outside the arena */
    int64_t step_picoseconds;
    /* Less than these no point takes: the most that is alive, at step `fullest` of the schedule,
     * and bound.h. */
    int64_t least_bytes, least_picoseconds;
    int fullest;
};
/* What `asked` says, a sum of these; the others stay 0. Figures that the cluster lacks: false, and
 * structure_missing has them. -1 bytes: the structure follows no rule, and has to be compiled. */
enum { ASK_BYTES = 1, ASK_TIME = 2, ASK_LEAST_BYTES = 4, ASK_LEAST_TIME = 8 };
bool structure_evaluate(struct structure *s, struct point at, int asked, struct estimate *e);
/* Whether a plan of the structure has its kernels. At sizes that are equal only there (as many
 * tokens as a weight has rows), or 1, fusion may join what it does not elsewhere, and a broadcast
 * may be none; the plan is compiled up to kernels where that can be. What does not hold is compiled
 * by itself. */
bool structure_holds(const struct structure *s, const struct plan *p);
const missing_list *structure_missing(const struct structure *s);
/* The last point whose time was asked for, in parts. In the arena. */
struct prediction *structure_explain(struct structure *s, const struct program **program);

#endif
