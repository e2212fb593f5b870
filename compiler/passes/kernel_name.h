/* What kernels are called, in generated text, profiles, traces and dumps: after the layer of the
 * model that they belong to and what they do there ("attn_norm", "q_proj_grad_weight",
 * "lm_head_loss"), so that a reader of a profile knows the line of the model without looking it
 * up. */
#ifndef PLANC_KERNEL_NAME_H
#define PLANC_KERNEL_NAME_H

#include "ir/ir.h"

/* Names all kernels of a graph whose nodes carry their kernel's number. Names are identifiers of C,
 * unique, and depend neither on sizes nor on the number of layers. */
void kernels_name(struct graph *g);

#endif
