/* The functions of architectures as rows: names, kinds and defaults of arguments, and what builds
 * them. lower_function.c has the rows, lower_call.c matches a call with one. */
#ifndef PLANC_LOWER_FUNCTION_H
#define PLANC_LOWER_FUNCTION_H

#include "passes/lower.h"

enum kind { VALUE, EITHER, IDS, ROUTING, NUMBER, ABOVE, SIZE, OFFSET, TRUTH, AXIS, SHAPE };
#define PARAMETERS 12
/* otherwise NULL: must be given */
struct parameter {
    const char *name;
    enum kind kind;
    const char *otherwise;
};
struct argument {
    const struct ast *at; /* NULL: left out */
    struct meaning means; /* of VALUE, EITHER (a number will do), IDS and ROUTING */
    struct value *value;
    const struct routing *routing;
    double number;
    int64_t whole;
    bool truth;
    const char *axis;
    struct shape shape;
};
struct function {
    const char *name;
    struct parameter parameter[PARAMETERS];
    struct meaning (*build)(struct lower *l, const struct ast *call, struct argument *a,
                            const char **why);
};

extern const struct function lower_functions[];
extern const size_t lower_function_count;

#endif
