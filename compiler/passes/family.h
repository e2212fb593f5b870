/* One structure at many sizes. */
#ifndef PLANC_FAMILY_H
#define PLANC_FAMILY_H

#include "ir/ir.h"

/* Plans that differ only in local batch, in loss_chunks (all one, or all more) and in fsdp (all
 * one, or all more) have the same graph but for numbers: the same buffers, live between the same
 * steps. A family holds them as functions of these numbers. */
struct family;
/* Of the family that `p` is of. NULL after diagnostics of pass_lower. Takes memory from the heap:
 * it outlives the arena's marks. */
struct family *family_make(const struct plan *p);
/* The arena's bytes of a plan of the family, as pass_memory would give them; -1 when it does not
 * follow the family's rule, which is found by trying it on a plan that was not used to find the
 * rule. */
int64_t family_arena_bytes(struct family *f, const struct plan *p);
/* Elements of a rank's part of the master weights. */
int64_t family_state_elements(const struct family *f, int64_t fsdp);
void family_free(struct family *f); /* NULL: nothing */

#endif
