/* What the IR means, written down a second time and as plainly as possible: one loop an op, in
 * double, no fusion, no blocking, no shared code with the emitters. A node's operands and results
 * are found through value->note. With `rounded` every result is rounded to its element type, as the
 * numeric contract asks; without, it is exact enough for finite differences. */
#ifndef TEST_INTERPRET_H
#define TEST_INTERPRET_H

#include "ir/ir.h"

struct numbers {
    double *x;
    int64_t n;
};
struct numbers *numbers_of(const struct value *v); /* made at the first use */
void interpret(const struct node *n, bool rounded);
double as_stored(enum element type, double x);

#endif
