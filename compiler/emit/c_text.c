/* Types, numbers and casts as C. A number is written with as many digits as its type needs to be
 * read back the same. */
#include "emit/c_text.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *c_type(enum element type, bool stored)
{
    switch (type) {
    case F32: return "float";
    case BF16: return stored ? "bf16" : "float";
    case F64: return "double";
    case I32: return "int32_t";
    }
    bug("element type %d", (int)type);
}

/* To bf16: eight digits of two, to nearest, ties to even. */
static double rounded(double x)
{
    int exponent;
    double digits = frexp((double)(float)x, &exponent);
    return ldexp(nearbyint(ldexp(digits, 8)), exponent - 8);
}

const char *c_number(double x, enum element type)
{
    if (isnan(x)) return "NAN";
    if (isinf(x)) return x > 0 ? "INFINITY" : "(-INFINITY)";
    if (type == I32) return text_format("%ld", (int64_t)x);
    if (type == BF16) x = rounded(x);
    char digits[40];
    if (type == F64)
        snprintf(digits, sizeof digits, "%s", text_number(x));
    else
        for (int precision = 1; precision <= 9; precision++) {
            snprintf(digits, sizeof digits, "%.*g", precision, (double)(float)x);
            if (strtof(digits, NULL) == (float)x) break;
        }
    const char *point = strpbrk(digits, ".e") ? "" : ".0", *end = type == F64 ? "" : "f";
    return signbit(x) ? text_format("(%s%s%s)", digits, point, end)
                      : text_format("%s%s%s", digits, point, end);
}

bool c_is_name(const char *text)
{
    while (isalnum((unsigned char)*text) || *text == '_') text++;
    return !*text;
}

const char *c_cast(const char *type, const char *x)
{
    return text_format(c_is_name(x) ? "(%s)%s" : "(%s)(%s)", type, x);
}

/* A value of bf16 is rounded where it is made, so storing it drops nothing. */
const char *c_store(enum element type, const char *x)
{
    return type == BF16 ? text_format("op_half(%s)", x) : x;
}

const char *c_scalar(const struct operand *o, const char *x)
{
    return o->value && o->value->type == F32 ? x : c_cast("float", x);
}
