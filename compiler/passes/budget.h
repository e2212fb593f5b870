/* What activation_checkpoint.mode = auto and budget mean for a plan. */
#ifndef PLANC_BUDGET_H
#define PLANC_BUDGET_H

#include "ir/ir.h"

/* Decides what a plan leaves open; a plan that leaves nothing open stays as it is.
 * batch.loss_chunks is 1, but where that does not fit on the device of the cluster, as few as fit:
 * pieces change the last bits of the head's gradient. Mode auto becomes selective or none. Mode
 * budget becomes selective with lists of what is kept in which layers, and with pieces of the loss
 * where less is then computed again. False after a diagnostic: even with everything computed again
 * the plan is too large. A plan that gives no budget means 92 % of what its cluster says a device
 * offers. A larger budget never computes more again. */
bool budget_decide(struct plan *p);

#endif
