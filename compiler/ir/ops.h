/* What is known of an op without a graph: its row of ops.def, and the lists that these rows are of.
 */
#ifndef PLANC_OPS_H
#define PLANC_OPS_H

#include <stdbool.h>

enum op_class {
    CLASS_MAP,
    CLASS_INDEX,
    CLASS_ROW,
    CLASS_COLUMN,
    CLASS_TOTAL,
    CLASS_VIEW,
    CLASS_LEAF,
    CLASS_CORE,
    CLASS_EFFECT,
    CLASS_LANE
};
enum op {
#define OP(name, ...) OP_##name,
#include "ir/ops.def"
    OP_COUNT
};
/* What limits the speed of an op or a kernel: each class has an efficiency of its own. MOVE is
 * sorting and moving rows (routing, dispatch, embedding), UPDATE the optimizer's walk over a shard;
 * NONE takes no time of its own (views, leaves, and the steps of lanes, which are collectives). */
enum cost_class {
    COST_NONE,
    COST_GEMM,
    COST_GROUPED_GEMM,
    COST_ATTENTION,
    COST_ATTENTION_GRAD,
    COST_MAP,
    COST_ROW,
    COST_COLUMN,
    COST_TOTAL,
    COST_MOVE,
    COST_UPDATE
};
#define COST_CLASSES (COST_UPDATE + 1)
extern const char *const cost_class_names[COST_CLASSES];
/* What the cuda kernels of an op leave in memory between two launches; passes/workspace.c knows how
 * many bytes that is. */
enum workspace {
    WORKSPACE_NONE,
    WORKSPACE_PRODUCT,        /* planes and partial products; what the library may use */
    WORKSPACE_SORT,           /* counts of a sort into bins */
    WORKSPACE_SORT_KEYS,      /* counts and orders of a sort by keys */
    WORKSPACE_BLOCKS,         /* a sum for each block of a stretch */
    WORKSPACE_ATTENTION_ROWS, /* two numbers for each query and head, and attention_turns() */
    WORKSPACE_COLUMN,         /* a row of sums for each chunk of rows */
    WORKSPACE_TOTAL           /* a sum for each row */
};
/* How far two right results of an op may be apart (runtime/shared/reference.h says what each
 * means), and how many numbers the longest of its sums adds. */
enum bound { BOUND_EXACT, BOUND_ROUNDED, BOUND_SUMMED, BOUND_PRODUCT, BOUND_ATTENTION };
extern const char *const bound_names[];
enum terms {
    TERMS_ONE,
    TERMS_COLUMNS,  /* of the first operand */
    TERMS_ITEMS,    /* all of the first operand's elements */
    TERMS_INNER,    /* of a matrix product */
    TERMS_MIDDLE,   /* the axis that sum_middle sums over */
    TERMS_SEQUENCE, /* attribute sequence */
    TERMS_BLOCK     /* 2^20: a shard, whose length follows from the mesh */
};
struct op_row {
    const char *name;
    enum op_class class;
    int operands, results;
    enum cost_class cost;
    const char *template;
    enum workspace workspace;
    enum bound bound;
    enum terms terms;
    const char *expression, *help;
};
extern const struct op_row op_rows[OP_COUNT];
/* Leaves that are one number for a stretch of a unit's shard. */
static inline bool op_of_stretch(enum op op)
{
    return op == OP_decay || op == OP_lr_scale || op == OP_balance_mean || op == OP_balance_rate;
}
/* The ops of one class, for switches that visit each of them: `switch ((enum leaf_op)n->op)`. */
enum index_op {
#define INDEX(name, ...) INDEX_OP_##name = OP_##name,
#include "ir/ops.def"
};
enum leaf_op {
#define LEAF(name, ...) LEAF_OP_##name = OP_##name,
#include "ir/ops.def"
};
enum core_op {
#define CORE(name, ...) CORE_OP_##name = OP_##name,
#include "ir/ops.def"
};
enum lane_op {
#define LANE(name, ...) LANE_OP_##name = OP_##name,
#include "ir/ops.def"
};

#endif
