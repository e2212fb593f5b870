/* One structure at many sizes. */
#ifndef PLANC_FAMILY_H
#define PLANC_FAMILY_H

#include "ir/ir.h"

/* Plans that differ only in local batch, in loss_chunks (all one, or all more), in fsdp (all one,
 * or all more) and in dp have the same graph except for numbers: the same buffers, live between the
 * same steps. A family holds them as functions of these numbers. All have several micro-batches a
 * step or none has; where the replicas have parts of a shard, all have more than one replica. */
struct family;
/* The family of graphs that were compiled: `more` at twice the local batch of g, `finer` (or g
 * itself) in twice the pieces; `tried` (or NULL), at a size of its own, tries the rule. Takes
 * memory from the heap: it outlives the arena's marks. */
struct family *family_of(const struct graph *g, const struct graph *more, const struct graph *finer,
                         const struct graph *tried);
/* The accumulation with which graphs of a plan's family are compiled. */
int64_t family_accumulation(const struct plan *p);
/* The arena's bytes by the numbers of a plan of the family, as pass_memory would give them: tokens
 * of a micro-batch, pieces of the loss, shards, replicas. -1 when the family does not follow its
 * rule, which is found by trying it on graphs that were not used to find the rule. Sizes that were
 * asked before are not laid out again. */
int64_t family_bytes(struct family *f, int64_t tokens, int64_t chunks, int64_t fsdp, int64_t dp);
/* What no layout of it can go below: the most that is alive, at *step. -1 as above. */
int64_t family_bound(const struct family *f, int64_t tokens, int64_t chunks, int64_t fsdp,
                     int64_t dp, int *step);
/* Elements of a shard of unit `i`, by the numbers of the graph, and of a rank's part of it. */
int64_t family_shard(const struct family *f, int unit, int64_t fsdp, int64_t dp);
int64_t family_part(const struct family *f, int unit, int64_t fsdp, int64_t dp);
/* Elements of a rank's part of the master weights. */
int64_t family_state_elements(const struct family *f, int64_t fsdp, int64_t dp);
void family_free(struct family *f); /* NULL: nothing */

#endif
