/* Small pieces of C text. */
#ifndef PLANC_EMIT_C_TEXT_H
#define PLANC_EMIT_C_TEXT_H

#include "ir/ir.h"

/* The type of an element: `stored`, in memory; else that of a variable. */
const char *c_type(enum element type, bool stored);
/* A literal of a type; negative ones in parentheses. */
const char *c_number(double x, enum element type);
/* `x` as it is put in memory. */
const char *c_store(enum element type, const char *x);
bool c_is_name(const char *text);
/* "(float)x", with parentheses about what is more than a name. */
const char *c_cast(const char *type, const char *x);
/* The same for what a scalar of the step is set to: nothing to do for an F32. */
const char *c_scalar(const struct operand *o, const char *x);

#endif
