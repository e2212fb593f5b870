/* What the memory pass knows of a value that has bytes, and which of them lie where another one
 * lay.
 */
#ifndef PLANC_SHARE_H
#define PLANC_SHARE_H

#include "ir/ir.h"

/* The note of a value while memory is laid out: who makes it, and the steps, both included, between
 * which it is needed. */
struct holder {
    struct value *value;
    const struct region *region;
    const struct body *body;
    int kernel, first, last;
    /* read by another kernel than its own; by the mirror of its loop; has got a place */
    bool outside, saved, placed;
    /* whose buffer it lies in, itself when it has one; and the operand whose place it takes */
    struct holder *owner;
    const struct value *over;
};
typedef VECTOR(struct holder *) holder_list;

/* The value whose bytes `v` is: views are another's, and so is what is made in another's place. */
struct value *value_root(struct value *v);
/* Gives results of fused kernels the place of operands that die there (in_place.h); everything else
 * has a place of its own already. */
void share_places(const struct graph *g);

#endif
