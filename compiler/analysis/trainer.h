/* A run of another trainer (plan section `trainer`), answered from planc's own graph of the model:
 * what it keeps for the backward pass, and what its allocator reserves. docs/prediction.md has the
 * formulas and where they come from. */
#ifndef PLANC_TRAINER_H
#define PLANC_TRAINER_H

#include "analysis/ledger.h"

/* Bytes of a device. The allocator reserves by CUDA stream; `allocated` is what lives at once. */
struct trainer_memory {
    int64_t state;       /* weights and moments, and the gradients' shard where they live as long */
    int64_t activations; /* kept by the layers, the logits, and what the step has beside */
    int64_t units;       /* on the compute stream: gathered and unsharded units at work */
    int64_t reduce;      /* stream of reductions: gradients' shard and what is reduced */
    int64_t gather;      /* stream of gathers */
    int64_t reserved, allocated;
    int64_t saved_per_token; /* of a layer, the mean */
};

/* Puts the trainer's rule for selective checkpointing into a lowered graph. Does nothing without
 * a trainer. */
void trainer_save(const struct plan *plan, struct graph *lowered);
/* Of a lowered graph; `limit`: what a device offers. When that is short the allocator gives back
 * what it only holds, so it reserves no more than 97 % of it while what lives has room. */
struct trainer_memory trainer_memory(const struct plan *plan, const struct graph *lowered,
                                     int64_t limit);
/* The answer, as `planc check` gives it; `limit`: what a device offers. */
void trainer_print(const char *path, const struct plan *plan, const struct trainer_memory *m,
                   int64_t limit);
json_t *trainer_json(const char *path, const struct plan *plan, const struct trainer_memory *m,
                     int64_t limit);

#endif
