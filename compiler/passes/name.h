/* What kernel_name.c and value_name.c share: words, and what a value comes from. */
#ifndef PLANC_NAME_H
#define PLANC_NAME_H

#include "ir/ir.h"

/* A few words joined by '_'; each only once. */
struct words {
    VECTOR(const char *) item;
};
void words_add(struct words *to, const char *word);
const char *words_joined(const struct words *of);

bool name_starts(const char *name, const char *with);
/* An identifier of letters, digits and single '_' out of any name. */
const char *name_cleaned(const char *name);
/* "h.6" is one of the values named h. */
const char *name_stem(const char *name);
/* The stem of the forward value: that of d_h.6 is h. */
const char *name_of_value(const struct value *v);
/* w_gate and wq are the weights of gate and q. */
const char *name_of_weight(const struct weight *w);

/* Part of the gradient, and no second computation of a forward node. */
bool node_is_gradient(const struct node *n);
bool op_is_product(enum op op);
/* The node behind views and casts; NULL: none. */
const struct node *value_maker(const struct value *v);
/* The weight behind views and casts; NULL: it is none. */
const struct weight *value_weight(const struct value *v);
/* The first weight among the operands; NULL: none. */
const struct weight *node_weight(const struct node *n);
/* The weight of the product or look-up that makes a value; NULL when something else does. */
const struct weight *value_layer(const struct value *v);
/* The weight whose gradient a value is: named by a `gradient` line of `b`, or after the loop whose
 * carry it is the next of. NULL: it is none. */
const struct weight *gradient_weight(const struct graph *g, const struct body *b,
                                     const struct value *v);

#endif
