/* What a kernel does, as numbers, read off its nodes once: a prediction of another point of the
 * same structure changes the numbers and reads no graph. */
#ifndef PLANC_WORK_H
#define PLANC_WORK_H

#include "ir/ir.h"

/* An op of a generated kernel (cpu: its cost per element is a measured number). */
struct op_work {
    enum op op;
    double elements;
};

struct work {
    const char *name; /* of the kernel */
    enum cost_class class;
    enum element type; /* of a product's operands, else of what is written */
    enum order order;  /* of a product: t is stored transposed */
    bool mixed;        /* a product of F32 and BF16 */
    bool again;        /* computed a second time */
    bool library;      /* a library takes it, where the plan asks for one */
    bool wgmma;        /* planc has a form of it for warpgroups */
    bool forward;      /* of expert products: the only one that cuDNN takes */
    /* m, n, k of a product. Grouped: `rows` over all experts; forward and input gradient have n
     * and k of an expert's weight, the weight gradient its m and n, and k is the rows */
    double m, n, k, rows, experts;
    bool weight_gradient; /* of experts: sums over the rows */
    /* attention; sequence: of a window its length, where that is shorter */
    double heads, width, sequence, tokens;
    double flops, bytes; /* bytes: each operand once */
    double columns;      /* of what a generated kernel walks over */
    int unit; /* whose shard it walks over: all its numbers grow with the shard; -1: none */
    struct op_work *op;
    int ops;
};

/* Of kernel `number` of a fused graph; its nodes stand in `body` from place `first` on. */
struct work work_of_kernel(const struct graph *g, const struct body *body, int first,
                           enum cost_class class);

#endif
