/* What the files of the lowering share. An architecture is interpreted once, entry by entry, by one
 * evaluator for numbers that are known now and values that are known when the trainer runs;
 * `meaning` is either. The body of a repeat is walked twice: first `deciding`, layer by layer
 * without building anything, to find how each decision that depends on the layer goes; then once
 * for each distinct outcome, building one rolled body. */
#ifndef PLANC_LOWER_H
#define PLANC_LOWER_H

#include "ir/ir.h"
#include "passes/layers.h"

#include <string.h>

enum meaning_kind {
    MEANS_NOTHING,  /* a mistake that has been reported: silences what follows from it */
    MEANS_CONSTANT, /* known now */
    MEANS_VALUE,    /* a value of the graph */
    MEANS_ROUTING,  /* what route() returns */
    MEANS_LATER     /* a graph value or routing while only deciding */
};
struct meaning {
    enum meaning_kind kind;
    struct constant constant;
    bool by_layer; /* constant: differs from layer to layer */
    struct value *value;
    struct routing routing;
};

/* A name of the architecture and what it means from here on. */
struct binding {
    const char *name;
    struct meaning means;
    struct span at, latest; /* its first and its latest assignment */
    bool assigned;          /* inside the current repeat */
};

/* What a diagnostic wants to know about a weight and the IR does not keep. */
struct declared_weight {
    struct weight *weight;
    const struct region *region;
    const struct body *body;
    struct span at;
    const struct ast *dims;
};

struct lower {
    const struct plan *plan;
    struct graph *g;
    struct build b;
    /* items of the architecture's file, parsed again when a file constant is asked for */
    const struct ast *file;
    int file_depth; /* constants that stand on constants */
    VECTOR(struct binding) name;
    VECTOR(struct declared_weight) declared;
    const struct ast *metrics; /* the items of its block, and the block */
    struct span metrics_at;
    const char *unit, *prefix; /* of the weights declared here; prefix "" outside a repeat */
    bool in_repeat;
    int repeats;                 /* so far */
    int outer_names;             /* in a repeat: the names before this index were there before it */
    VECTOR(struct binding) gone; /* names that were local to a repeat that has ended */
    VECTOR(const char *) meant;  /* by names that nothing has: not missed a second time */
    struct span repeat_at;
    bool numberless; /* that its names would be the same for every layer has been said */
    int64_t i;
    bool deciding;
    /* the decisions of this layer that depend on the layer, in order: '0' or '1' */
    VECTOR(char) outcome;
    /* name of the first one that was taken and has a name, for the variant */
    const char *decision;
};

/* lower_expression.c: what an expression means here; MEANS_NOTHING after a diagnostic. */
struct meaning lower_expression(struct lower *l, const struct ast *x);
struct binding *lower_find(struct lower *l, const char *name);
/* A condition: decided now. *ok false after a diagnostic. */
bool lower_condition(struct lower *l, const struct ast *x, bool *ok);
/* A number for the graph or a dimension: not by_layer, without unit. Says what it is for: "eps of
 * rms_norm". */
bool lower_number(struct lower *l, const struct ast *x, const char *what, double *number);
/* A positive whole number; notes name the hyper-parameters that lead to one that is not. */
bool lower_dimension(struct lower *l, const struct ast *x, const char *what, int64_t least,
                     int64_t *whole);
/* stamps file and line on the nodes that follow */
void lower_place(struct lower *l, struct span at);
const char *lower_kind(const struct meaning *m); /* "a number", "a value [32, 64]", for messages */
/* Adds a note for every hyper-parameter that `x` mentions, through the defaults of others. */
void lower_trace(struct lower *l, struct diagnostic *d, const struct ast *x);
/* The name in front of a call or a named argument. */
static inline struct span lower_name_at(const struct ast *x)
{
    return (struct span){x->at.file, x->at.from, x->at.from + (int)strlen(x->text)};
}
bool lower_mentions(const struct ast *x, const char *name);
const struct hyper *lower_hyper(const struct lower *l, const char *name);
struct meaning lower_nothing(void);
struct meaning lower_value(struct value *v);
struct meaning lower_constant(struct constant c);

/* lower_call.c: calls. */
struct meaning lower_call(struct lower *l, const struct ast *call);

/* lower_weight.c: weight("name", [dims], init = …). */
struct meaning lower_weight(struct lower *l, const struct ast *call);
/* NULL: not a weight */
const struct declared_weight *lower_declared(const struct lower *l, const struct value *v);
/* After everything: weights that never reach the loss are errors; what nothing needs is dropped. */
void lower_sweep(struct lower *l);
void lower_check_hyper(struct lower *l);
/* lower_names.c: no two stored tensors have one name. */
void lower_names(struct lower *l);
const char *lower_numbered(const char *name, int64_t layer, int64_t part); /* {i} and {e} put in */
/* lower_group.c: every group of the optimizer stands for weights that are there. */
void lower_groups(struct lower *l);

/* lower_repeat.c */
void lower_repeat(struct lower *l, const struct ast *block);
/* lower.c: a region of straight code begins; the current one turns out to lie between repeats; the
 * entries of a block. */
void lower_straight(struct lower *l, const char *name);
void lower_straight_again(struct lower *l);
void lower_items(struct lower *l, const struct ast *items);

#endif
