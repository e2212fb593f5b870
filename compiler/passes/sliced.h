/* Maps that only slices read, and so are never stored. */
#ifndef PLANC_SLICED_H
#define PLANC_SLICED_H

#include "ir/ir.h"

struct sliced {
    VECTOR(const struct node *) node;
};
/* Those of a body: maps that nothing but slices of this body read, no column twice, and the maps
 * that only these read. What they read in the end is stored in any case: results of core ops,
 * weights, what comes from other bodies. value->mark: of count_readers; node->note of this
 * body's nodes: the body. */
struct sliced find_sliced(const struct body *b);
bool is_sliced(const struct sliced *s, const struct node *n);

#endif
