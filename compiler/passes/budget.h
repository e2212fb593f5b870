/* activation_checkpoint.mode = budget: what to keep, so that a device's peak stays within bytes. */
#ifndef PLANC_BUDGET_H
#define PLANC_BUDGET_H

#include "ir/ir.h"

/* Turns a plan of mode budget into one of mode selective, with lists of what is kept in which
 * layers; leaves others alone. False after a
 * diagnostic: even with everything computed again the plan is too large. A plan that gives no
 * budget means 92 % of what its cluster says a device offers. A larger budget never computes more
 * again. */
bool budget_decide(struct plan *p);

#endif
