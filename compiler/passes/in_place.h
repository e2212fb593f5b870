/* Which result of a fused kernel may be written over one of its operands. The memory pass asks; the
 * emitters rely on the answer when they order the loads and stores of a kernel. */
#ifndef PLANC_IN_PLACE_H
#define PLANC_IN_PLACE_H

#include "ir/ir.h"

/* Nodes [first, last) of `b` are a fused kernel, `in` is read by it and `out` is one of its
 * results. True when both have the same type and shape and the kernel needs no element of `in`
 * after it has written that element of `out`, on any device:
 *   - it reads `in` element by element, at the index at which it writes `out`; or both halves of a
 *     row side by side, when it writes them so;
 *   - or one element of each row (a pick), in a sweep over the row before that of `out`;
 *   - and never again in a later sweep over the row, or after a sum over rows. */
bool in_place_allowed(const struct body *b, int first, int last, const struct value *in,
                      const struct value *out);

#endif
