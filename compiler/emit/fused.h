/* What the files that write fused kernels share. ends.c says what a kernel must do and when;
 * fused.c (cpu) and cuda_fused.c decide which loops there are, kept.c what one loop keeps for the
 * next; value.c writes the expression of a value at a place in them (spot.c). A value is written
 * when it is first needed, at the outermost level where it is known (kernel, row, column), once per
 * place. So a chain of nodes becomes a chain of local variables, a value needed in two walks over a
 * row is computed in both, and index ops only change the column. */
#ifndef PLANC_EMIT_FUSED_H
#define PLANC_EMIT_FUSED_H

#include "emit/c_text.h"
#include "emit/common.h"

/* TOGETHER: what is done once for neighbouring columns (on cuda those of a thread, on cpu OP_LANES
 * of them), in front of the loop over them. */
enum { LEVEL_KERNEL, LEVEL_ROW, LEVEL_COLUMN, LEVEL_TOGETHER, LEVELS };

/* A column: a constant, the loop's j plus an offset, a variable of some level, or j plus such a
 * variable (of its own half of a row). */
enum column_kind { COLUMN_FIXED, COLUMN_LOOP, COLUMN_NAMED, COLUMN_TURNED };
struct spot {
    const char *row;
    int row_level; /* C of the row's number: "0", "r", "(r / 6 % 256)" */
    enum column_kind kind;
    int64_t offset; /* FIXED: the column; LOOP: added to j */
    const char *column;
    int column_level; /* NAMED, TURNED: the variable */
};

/* A value as it is written at a spot. */
struct written {
    const struct value *value;
    const char *row, *column, *name;
};
struct block {
    struct text text;
    int indent;
    VECTOR(struct written) known;
    VECTOR(const char *) name;
};

/* A value that takes long to compute, or is rounded, and that a later sweep over the row wants
 * again: its row is kept where the kernel will store something else of the same extent (`in` an
 * argument) or in an array. */
struct kept {
    const struct value *value;
    const char *array;
    bool in_argument;
    int first, last; /* stages: of the sweep that stores it, of the last that wants it */
    bool reached;    /* not only through another value that is kept */
    bool taken;      /* single elements of it are wanted too */
};

/* A value of BF16, and in loops over OP_MANY columns the halves to store of it, in others what it
 * was rounded from. */
struct rounded {
    const char *name, *from;
};

/* The choices of a row that no other kernel reads. */
struct chosen {
    const struct value *value;
    const char *array;
};

struct fused {
    const struct emit *e;
    const struct emit_kernel *k;
    struct argument *argument;
    int n_argument;
    /* flat: every value is one long row; one_row: the row level is the kernel level */
    bool canonical, flat, one_row;
    /* the piece of columns being written; split > 0: an index op breaks here */
    int64_t low, high;
    int64_t split;
    int counter;
    int stage; /* of the sweep being written */
    VECTOR(struct kept) kept;
    VECTOR(struct chosen) chosen;
    struct block block[LEVELS];
    /* stores of a kernel that writes over what it reads: behind all loads of the element */
    struct text behind;
    /* On cpu, in a loop over OP_LANES columns: BF16 is loaded in front of it and stored behind it;
     * what a value of BF16 is rounded from has a name. */
    bool blocks;
    /* Such loops over OP_MANY columns: a value is an array, and what takes long, or rounds, is done
     * for all columns between two loops. */
    bool many;
    struct text block_stores;
    VECTOR(struct rounded) rounded;
    /* Where the device has its own way to read an element: C of it, or NULL for a plain load. */
    const char *(*load)(struct fused *f, const char *pointer, const struct value *v,
                        struct spot at);
    /* Where a thread has neighbours within one half of a row of 2 `half` columns: the variable that
     * leads to the other half, or NULL. */
    const char *(*turn)(struct fused *f, int64_t half);
    bool straight; /* no turning: an index op reads what another has turned */
    /* Where launches follow each other: C of what an earlier one of the kernel has made and no
     * argument holds. */
    const char *(*finished)(struct fused *f, const struct value *v);
    struct cuda_fused *cuda; /* NULL: for cpu */
};

/* ── ends ────────────────────────────────────────────────────────────────────── */
enum end_kind {
    END_STORE,
    END_ROW,
    END_TOP, /* a row's choices, which the loop that knows them stores */
    END_COLUMN,
    END_TOTAL,
    END_METRIC,
    END_SCALAR,
    END_ASSIGN
};
struct end {
    enum end_kind kind;
    struct node *node;
    struct operand of;         /* what is evaluated */
    enum element like;         /* a number's type */
    const struct value *shape; /* whose rows and columns are walked */
    int64_t rows, columns;
    int64_t column; /* of the result, where the first of `columns` is stored */
    int phase, stage;
    /* reductions: the variable that holds a thread's, or the lanes', part; TOP: the row */
    const char *lane;
};
static inline bool end_of_row(const struct end *e)
{
    return e->kind == END_ROW || e->kind == END_TOP;
}
/* When a value of the kernel is known: after which phase and stage. */
struct timing {
    const struct value *value;
    int phase, stage;
};
struct ends {
    VECTOR(struct end) end;
    VECTOR(struct timing) timing;
    int phases;
};

/* Fills f->flat and the list. Whether the kernel assigns state (then it does nothing else). */
bool fused_ends(struct fused *f, struct ends *p);
/* The ends of one phase, by their number of rows, group after group; `n` ends each. */
void fused_groups(struct fused *f, struct ends *p, int phase,
                  void (*group)(struct fused *f, struct end **end, int n));
/* What an end writes at a spot, as C to which an expression is assigned (or added: METRIC). Not for
 * reductions. */
const char *fused_target(const struct fused *f, const struct end *e, struct spot at);
const char *fused_result(const struct fused *f, const struct end *e);
/* Where the choices of the row at hand go: C of a pointer. Only those that another kernel reads are
 * in an argument. */
const char *fused_choices(struct fused *f, const struct end *e);
/* Where in its result an end stores what it made at `at`. */
struct spot fused_stored_at(const struct end *e, struct spot at);
/* Calls `piece` for stretches [f->low, f->high) of the columns in which no index op breaks: a trial
 * that meets a break is taken back and made shorter. */
void fused_pieces(struct fused *f, int64_t columns, void (*piece)(struct fused *f, const void *of),
                  const void *of);

/* ── spots ───────────────────────────────────────────────────────────────────── */
/* The first column of the row at hand, or the one that the loop over columns is at. */
struct spot spot_start(const struct fused *f, bool loop);
struct spot spot_at_column(struct spot at, int64_t column);
/* With a column that is a variable of a level. */
struct spot spot_named(struct spot at, const char *name, int level);
struct spot spot_shifted(struct spot at, int64_t by_columns);
/* A value of one row or one column is the same everywhere along it: where it is known first. */
struct spot spot_settled(const struct fused *f, const struct value *v, struct spot at);
/* The element of an operand that is broadcast to the one of `out` at a spot. */
struct spot spot_of_operand(const struct fused *f, const struct value *out, const struct value *in,
                            struct spot at);
/* The same element under another shape. */
struct spot spot_reshaped(const struct fused *f, const struct value *from, const struct value *to,
                          struct spot at);
int spot_level(struct spot at); /* at which a spot is known: the inner of its row's and column's */
const char *spot_column_text(struct spot at);
/* Whether the kernel makes a value. */
bool fused_inside(const struct fused *f, const struct value *v);
/* The rows and columns of a value as the kernel walks it. */
void fused_extent(const struct fused *f, const struct value *v, int64_t *rows, int64_t *columns);
/* Index of an element of `v` in its bytes. */
const char *fused_index(const struct fused *f, const struct value *v, struct spot at);

/* ── values ──────────────────────────────────────────────────────────────────── */

/* C of one element: a variable, a literal or a load; a number as one of type `like`. */
const char *fused_operand(struct fused *f, const struct operand *o, enum element like,
                          struct spot at);
const char *fused_argument(const struct fused *f, enum argument_kind kind, const struct value *v,
                           const char *name);
/* A fresh name in the scope of a level, from an IR name and an ending. */
const char *fused_name(struct fused *f, int level, const char *stem, const char *ending);
struct block *fused_block(struct fused *f, int level);
void fused_line(struct fused *f, int level, const char *format, ...) PRINTF_LIKE(3, 4);
/* The variable of `v` at a spot, NULL: none yet. */
const char *fused_known(const struct fused *f, const struct value *v, struct spot at);
/* From now on `v`, at its own row, is the variable `name`. */
void fused_know(struct fused *f, int level, const struct value *v, struct spot at,
                const char *name);
/* Declares the variable of `v` at a spot, rounded to its type, and knows it. */
const char *fused_declare(struct fused *f, const struct value *v, struct spot at,
                          const char *expression);
/* The line that begins a loop over OP_MANY columns. */
const char *fused_many_opening(const struct fused *f);
/* In the loop over columns: `array[index] = x;`, at once or behind the element's loads. */
void fused_store(struct fused *f, const char *array, const char *index, const char *x,
                 const char *comment);
/* The end of an element: what was to come behind its loads. */
void fused_stored(struct fused *f);
/* Whether an element of `v` is made of elements that the kernel writes over; not through `but`, or
 * sums. */
bool fused_reads_replaced(const struct fused *f, const struct value *v, const struct value *but);
/* On cpu, before the first sweep over the rows of `n` ends: fills f->kept. */
enum { ARRAY_COLUMNS = 4096 }; /* at most, of a row in a local array */
void fused_keep(struct fused *f, struct end **end, int n);
/* Before the first sweep over a row of `first`'s group: what is picked from a row that is written
 * over. Whether there was such. */
bool fused_picks(struct fused *f, const struct end *first);
/* Whether one element of it costs as much as reading a few. */
bool fused_takes_long(enum op op);

#endif
