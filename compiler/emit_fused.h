/* What the two files that write fused kernels share, and nobody else sees. emit_fused.c decides which loops there are;
 * emit_value.c writes the expression of a value at a place in them. A value is asked for where it is needed and written at the
 * outermost level where it is known (kernel, row, column), once per place; so a chain of nodes becomes a chain of local
 * variables, a value needed in two sweeps over a row is computed in both, and index ops are nothing but another column. */
#ifndef PLANC_EMIT_FUSED_H
#define PLANC_EMIT_FUSED_H

#include "emit.h"

enum { LEVEL_KERNEL, LEVEL_ROW, LEVEL_COLUMN, LEVELS };

/* A column: a constant, the loop's j plus an offset, or a variable of some level. */
enum column_kind { COLUMN_FIXED, COLUMN_LOOP, COLUMN_NAMED };
struct spot {
    const char *row; int row_level;      /* C of the row's number: "0", "r", "(r / 6 % 256)" */
    enum column_kind kind;
    int64_t offset;                      /* FIXED: the column; LOOP: added to j */
    const char *column; int column_level; /* NAMED */
};

/* A value as it is written at a spot. */
struct written { const struct value *value; const char *row, *column, *name; };
struct block { struct text text; int indent; VECTOR(struct written) known; VECTOR(const char *) name; };

/* A value that takes long to compute and that a later sweep over the row wants again: its row is kept where the kernel will
 * store something else of the same extent (`in` an argument) or in an array. */
struct kept { const struct value *value; const char *array; bool in_argument; int first, last; };

struct fused {
    const struct emit *e;
    const struct emit_kernel *k;
    struct argument *argument; int n_argument;
    bool canonical, flat, one_row;       /* flat: every value is one long row; one_row: the row level is the kernel level */
    int64_t low, high;                   /* the piece of columns being written; split > 0: an index op breaks here */
    int64_t split;
    int counter;
    int stage;                           /* of the sweep being written */
    VECTOR(struct kept) kept;
    struct block block[LEVELS];
};

void fused_extent(const struct fused *f, const struct value *v, int64_t *rows, int64_t *columns);
struct spot spot_start(const struct fused *f, bool loop);
/* C of one element: a variable, a literal or a load. */
const char *fused_value(struct fused *f, const struct value *v, struct spot at);
const char *fused_operand(struct fused *f, const struct operand *o, enum element like, struct spot at);
/* Index of an element of `v` in its bytes. */
const char *fused_index(const struct fused *f, const struct value *v, struct spot at);
const char *fused_argument(const struct fused *f, enum argument_kind kind, const struct value *v, const char *name);
/* A fresh name in the scope of a level, from an IR name and an ending. */
const char *fused_name(struct fused *f, int level, const char *stem, const char *ending);
struct block *fused_block(struct fused *f, int level);
void fused_line(struct fused *f, int level, const char *format, ...) PRINTF_LIKE(3, 4);
/* From now on `v`, at its own row, is the variable `name`. */
void fused_know(struct fused *f, int level, const struct value *v, struct spot at, const char *name);
bool fused_inside(const struct fused *f, const struct value *v);
const char *c_type(enum element type, bool stored);
const char *c_number(double x, enum element type);
/* `x` as it is put in memory. */
const char *c_store(enum element type, const char *x);

#endif
