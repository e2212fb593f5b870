/* The workspace of cuda kernels at sizes that were not compiled. */
#ifndef PLANC_WORKSPACE_FORM_H
#define PLANC_WORKSPACE_FORM_H

#include "ir/ir.h"

/* A whole number as it grows with the tokens of a micro-batch and with those of a piece of the
 * loss. */
struct size_form {
    int64_t base, row, piece;
};
/* The form of a number that is `a` at `tokens` rows in `few` pieces, `b` at twice the rows, and,
 * when few is not many, `c` at `tokens` rows in `many` pieces. */
struct size_form size_form_of(int64_t tokens, int64_t few, int64_t many, int64_t a, int64_t b,
                              int64_t c);

/* The nodes that leave something in the workspace, their shapes as forms. From the heap. */
struct workspace_form;
/* From three graphs of one structure (fused or later) at the sizes of size_form_of. */
struct workspace_form *workspace_form_of(const struct graph *a, const struct graph *b,
                                         const struct graph *c);
/* What workspace_bytes of a graph of this size would be. */
int64_t workspace_form_bytes(const struct workspace_form *w, int64_t tokens, int64_t chunks);
void workspace_form_free(struct workspace_form *w); /* NULL: nothing */

#endif
