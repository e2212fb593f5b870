/* What values in memory are called, from fuse on: after the kernel that makes them or the layer
 * that asks for them ("q_proj_out", "o_proj_grad_output"), so that schedule.c, kernels.c and the
 * ledger say the same thing in the terms of the model. */
#ifndef PLANC_VALUE_NAME_H
#define PLANC_VALUE_NAME_H

#include "ir/ir.h"

/* Renames the values of a graph that leave the kernel that makes them. Needs the names of kernels
 * (kernels_name). Names depend neither on sizes nor on the number of layers. */
void values_name(struct graph *g);

#endif
