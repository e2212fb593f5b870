/* What activation_checkpoint.mode = auto and budget mean for a plan. */
#ifndef PLANC_BUDGET_H
#define PLANC_BUDGET_H

#include "ir/ir.h"

/* Mode auto: whether selective, with the list that it has by default, computes no product again in
 * this plan. Then it takes no time worth speaking of, and memory of everything else that products
 * read is saved. It depends on the model alone. False also when the architecture is refused. */
bool selective_is_free(const struct plan *p);
/* A plan of mode auto becomes one of mode selective or none. */
void plan_take_auto(struct plan *p, bool selective_is_free);

/* The next power of two above `chunks` that divides the tokens of a micro-batch: pieces of the loss
 * where a plan does not say how many. 0: none up to 128. */
int64_t next_loss_chunks(const struct plan *p, int64_t chunks);
/* Whether bytes that are alive at once, with those outside the arena, are more than what the plan's
 * cluster says that a device offers. False when it does not say. */
bool exceeds_device(const struct plan *p, int64_t bytes);

/* Decides what a plan leaves open; a plan that leaves nothing open stays as it is.
 * batch.loss_chunks is 1, but where that does not fit on the device of the cluster, as few as fit:
 * pieces change the last bits of the head's gradient. Mode auto becomes selective or none. Mode
 * budget becomes selective with lists of what is kept in which layers, and with pieces of the loss
 * where less is then computed again. False after a diagnostic: even with everything computed again
 * the plan is too large. A plan that gives no budget means 92 % of what its cluster says a device
 * offers. A larger budget never computes more again. */
bool budget_decide(struct plan *p);

#endif
