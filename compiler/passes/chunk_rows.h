/* Which nodes can work on a piece of the rows at a time, for the pass that cuts the loss. Rows are
 * the first axis, of `rows` entries. Pure: nothing is marked, and only shapes and ops are asked, so
 * a weight whose first axis has as many entries is not taken for rows where it is none. */
#ifndef PLANC_CHUNK_ROWS_H
#define PLANC_CHUNK_ROWS_H

#include "ir/ir.h"

enum rows_use {
    ROWS_ALONG,   /* row r of the operand for row r of the result */
    ROWS_SAME,    /* the whole operand for every row */
    ROWS_REPEATED /* a shorter table that repeats along the rows */
};

/* What row r of the result, or of what is summed, needs of operand k. Only for a node of which
 * rows_kept or rows_summed holds. */
enum rows_use rows_of_operand(const struct node *n, int k, int64_t rows);
/* The result has the rows, and a row of it needs no other row of the operands along them. */
bool rows_kept(const struct node *n, int64_t rows);
/* The result is a sum over the rows of its operands. */
bool rows_summed(const struct node *n, int64_t rows);

#endif
