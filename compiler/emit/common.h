/* What the emitters share, and nobody else needs. A kernel's arguments are listed once, here, and
 * both sides (the kernel's body and the schedule's call) follow it. */
#ifndef PLANC_EMIT_COMMON_H
#define PLANC_EMIT_COMMON_H

#include "emit/emit.h"

/* A result that a kernel writes in the place of an operand (buffer.over). */
struct replaced {
    const struct value *out, *over;
};
/* One kernel with the nodes that it is made of. */
struct emit_kernel {
    const struct kernel *kernel;
    const struct region *region;
    const struct body *body;
    /* in order; views that only its nodes see are looked through, not listed */
    VECTOR(struct node *) node;
    VECTOR(struct replaced) replaced;
};
enum argument_kind { ARGUMENT_IN, ARGUMENT_OUT, ARGUMENT_STATE, ARGUMENT_SCALARS, ARGUMENT_METRIC };
struct argument {
    enum argument_kind kind;
    const struct value *value; /* IN, OUT: the value whose bytes they are (never a view) */
    const char *name;          /* STATE, METRIC: its attribute name */
    const struct value *over;  /* OUT: the operand that is read through it, until it is written */
    enum buffer_kind state;    /* STATE */
    bool written;              /* STATE: assigned here; SCALARS: one of them is set here */
};
struct emit {
    const struct graph *graph;
    VECTOR(struct emit_kernel) kernel; /* by number - 1 */
    struct text note;
};
/* Collects kernels and finds out which values are used outside the kernel that makes them
 * (emit_stored). */
struct emit *emit_open(const struct graph *g);
bool emit_stored(const struct emit *e, const struct value *v);
/* The value whose bytes `v` is: v itself, or what a chain of views ends at. */
const struct value *emit_root(const struct value *v);
/* The arguments of a kernel in the order in which it is called. Returns their number. */
int emit_arguments(const struct emit *e, const struct emit_kernel *k, struct argument **out);
/* Whether the kernel walks a unit's shard (run_shard) and works on a range of it. */
bool emit_walks_shard(const struct emit_kernel *k);
/* A leaf of the unit whose shard it walks; a leaf of some op that it reads. NULL: none. */
const struct node *emit_walked(const struct emit_kernel *k);
const struct node *emit_reads(const struct emit_kernel *k, enum op op);

/* `opening`, the items with commas between them, `closing`. A line ends before column 100 is
 * passed, and the next begins below the first item, or eight columns in if that is far right. */
struct emit_list {
    VECTOR(const char *) item;
};
void emit_list(struct text *to, const char *opening, const struct emit_list *list,
               const char *closing);

/* A C identifier made of an IR name: dots and the like become '_'; a word of C gets one after it.
 * In kernels (emit_identifier) so does a word that kernels use themselves. */
const char *emit_word(const char *name);
const char *emit_identifier(const char *name);

/* The body of a kernel over rows and columns (map, index, row, column, total), indented once.
 * `canonical`: arguments and values are called by number, so that two kernels that do the same give
 * the same text. */
void emit_fused_body(struct text *to, const struct emit *e, const struct emit_kernel *k,
                     bool canonical);
/* The body of a kernel that is one call of a template, and the template's file name
 * ("attention.h"). */
void emit_core_body(struct text *to, const struct emit *e, const struct emit_kernel *k,
                    bool canonical);
const char *emit_core_template(enum op op);
/* "const bf16": what an argument points at. */
const char *emit_argument_type(const struct argument *a);
/* The arguments of a table of rotary positions, after its place: sequence, columns of a head, how
 * many of them are turned, theta, linear, factor, low, high, original. */
const char *emit_rope(const struct node *n, const char *out);
/* The kernel's core op; OP_COUNT: it is a fused one. */
enum op emit_core_op(const struct emit_kernel *k);
/* A line that says where a kernel comes from. */
void emit_kernel_comment(struct text *to, const struct emit_kernel *k);
/* How argument `a` is called inside the kernel. */
const char *emit_argument_name(const struct argument *a, int index, bool canonical);

#endif
