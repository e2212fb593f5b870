/* What a trainer is told of its own prediction. */
#ifndef PLANC_COMMAND_PREDICTED_H
#define PLANC_COMMAND_PREDICTED_H

#include "check/plan.h"
#include "ir/ir.h"

/* C text that program.c ends with: `predicted` of runtime/shared/program.h, a row for each kernel
 * with its class and shape, and the predicted step when the cluster has rates for this device.
 * `graph` is at LEVEL_MEMORY. */
const char *predicted_tables(const struct plan *p, const struct graph *g);

#endif
