/* Compile-time values and their exact arithmetic. 1/3 of 4096 must be refused, not rounded, so
 * numbers are fractions of 64-bit whole numbers where possible (3e-4, 0.1 and 4 GiB are) and become
 * doubles only through sqrt and exp. Overflow is an error with its place. */
#ifndef PLANC_CONSTANT_H
#define PLANC_CONSTANT_H

#include "text/ast.h"

enum unit_kind { UNIT_NONE, UNIT_BYTES, UNIT_BYTES_PER_S, UNIT_FLOPS, UNIT_SECONDS };
enum constant_kind { CONST_NUMBER, CONST_TRUTH, CONST_STRING, CONST_WORD, CONST_LIST, CONST_RANGE };

struct constant {
    enum constant_kind kind;
    enum unit_kind unit;
    bool exact; /* number = top / bottom exactly, in lowest terms, bottom > 0 */
    int64_t top, bottom;
    double number; /* always filled for CONST_NUMBER */
    bool truth;
    const char *text;      /* string or word, interned */
    struct constant *item; /* list; range: item[0]..item[1] */
    int n;
    struct span at;
};

struct constant constant_whole(int64_t x);
struct constant constant_real(double x);
struct constant constant_truth(bool x);
/* top / bottom (not 0) in lowest terms; false after a diagnostic when a whole number does not fit
 * in 64 bits. */
bool constant_fraction(__int128 top, __int128 bottom, enum unit_kind unit, struct span at,
                       struct constant *out);
bool constant_is_whole(const struct constant *c);    /* exact, bottom 1 */
const char *constant_text(const struct constant *c); /* as a message shows it */
void constant_json(struct text *to, const struct constant *c);

/* A number token with its unit ("180GiB", "100k", "5us", "2.25PFLOP/s"). False after a
 * diagnostic. */
bool constant_from_number(const struct ast *number, struct constant *out);
/* Operators by their text ("+", "and", "==", ".."); false after a diagnostic at `at`. */
bool constant_unary(const char *op, const struct constant *a, struct span at, struct constant *out);
bool constant_binary(const char *op, const struct constant *a, const struct constant *b,
                     struct span at, struct constant *out);
/* sqrt, exp, contains, min, max …: false with *known = false when there is no such function on
 * constants. */
bool constant_call(const char *name, const struct constant *arg, int n, struct span at,
                   struct constant *out, bool *known);

/* Evaluates a whole expression; names are asked of `lookup` (dotted paths as one text). lookup
 * returns false when it does not know the name (evaluate then complains with the nearest of
 * `names`). */
struct scope {
    bool (*lookup)(struct scope *s, const char *name, struct constant *out);
    /* Fills names, for spelling hints: asked for only when something is not known. May be NULL. */
    void (*hints)(struct scope *s);
    const char *const *names;
    int n_names;
    void *context;
};
bool evaluate(const struct ast *expression, struct scope *scope, struct constant *out);

#endif
