/* The arithmetic of values known at compile time. hidden / heads in a plan means that exact
 * quotient, so numbers are fractions of 64-bit whole numbers, computed in 128 bits and reduced; a
 * result that does not fit is an error with its place. Only roots, powers and fractions too fine
 * for 64 bits become doubles, and such a number never counts as whole. Units are computed too:
 * bytes / bytes is a count, bytes / seconds a rate; bytes and counts cannot be added. */
#include "text/constant.h"

#include "base/escape.h"

#include <math.h>
#include <string.h>

typedef __int128 wide;

struct constant constant_whole(int64_t x)
{
    return (struct constant){
        .kind = CONST_NUMBER, .exact = true, .top = x, .bottom = 1, .number = (double)x};
}

struct constant constant_real(double x)
{
    return (struct constant){.kind = CONST_NUMBER, .bottom = 1, .number = x};
}

struct constant constant_truth(bool x)
{
    return (struct constant){.kind = CONST_TRUTH, .truth = x};
}

bool constant_is_whole(const struct constant *c)
{
    return c->kind == CONST_NUMBER && c->exact && c->bottom == 1;
}

static const char *kind_name(const struct constant *c)
{
    static const char *const unit[] = {"a number", "a number of bytes", "a rate in bytes/s",
                                       "a rate in FLOP/s", "a time"};
    switch (c->kind) {
    case CONST_NUMBER: return unit[c->unit];
    case CONST_TRUTH: return "on/off";
    case CONST_STRING: return "a string";
    case CONST_WORD: return "a word";
    case CONST_LIST: return "a list";
    case CONST_RANGE: return "a range";
    }
    return "";
}

static bool overflow(struct span at)
{
    complain(at, "this number does not fit in 64 bits");
    return false;
}

static double quotient(int64_t top, int64_t bottom)
{
    const int64_t most = (int64_t)1 << 53;
    if (top >= -most && top <= most && bottom <= most)
        return (double)top / (double)bottom; /* both exact, so rounded once */
    return (double)((long double)top / (long double)bottom);
}

bool constant_fraction(wide top, wide bottom, enum unit_kind unit, struct span at,
                       struct constant *out)
{
    if (bottom < 0) {
        top = -top;
        bottom = -bottom;
    }
    wide a = top < 0 ? -top : top, b = bottom;
    while (b) {
        wide rest = a % b;
        a = b;
        b = rest;
    }
    if (a > 1) {
        top /= a;
        bottom /= a;
    }
    *out = (struct constant){.kind = CONST_NUMBER, .unit = unit, .at = at};
    if (top >= INT64_MIN && top <= INT64_MAX && bottom <= INT64_MAX) {
        out->exact = true;
        out->top = (int64_t)top;
        out->bottom = (int64_t)bottom;
        out->number = quotient(out->top, out->bottom);
        return true;
    }
    if (bottom == 1) return overflow(at);
    out->bottom = 1; /* too fine a fraction to be a count of anything */
    out->number = (double)((long double)top / (long double)bottom);
    return true;
}

static bool real(double x, enum unit_kind unit, struct span at, struct constant *out)
{
    *out = constant_real(x);
    out->unit = unit;
    out->at = at;
    if (isfinite(x)) return true;
    complain(at, "this has no finite value");
    return false;
}

/* ── Operators ───────────────────────────────────────────────────────────────── */

bool constant_unary(const char *op, const struct constant *a, struct span at, struct constant *out)
{
    if (op[0] == 'n') { /* not */
        if (a->kind != CONST_TRUTH) {
            complain(at, "'not' wants on/off, this is %s", kind_name(a));
            return false;
        }
        *out = constant_truth(!a->truth);
        out->at = at;
        return true;
    }
    if (a->kind != CONST_NUMBER) {
        complain(at, "'-' wants a number, this is %s", kind_name(a));
        return false;
    }
    if (!a->exact) return real(-a->number, a->unit, at, out);
    return constant_fraction(-(wide)a->top, a->bottom, a->unit, at, out);
}

static bool mismatch(const char *op, const struct constant *a, const struct constant *b,
                     struct span at)
{
    complain(at, "'%s' cannot join %s and %s", op, kind_name(a), kind_name(b));
    return false;
}

/* The unit of a product or quotient; false when there is none. */
static bool scaled_unit(char op, enum unit_kind a, enum unit_kind b, enum unit_kind *out)
{
    if (b == UNIT_NONE || (op == '*' && a == UNIT_NONE))
        *out = b == UNIT_NONE ? a : b;
    else if (op == '/' && a == b)
        *out = UNIT_NONE;
    else if (op == '/' && a == UNIT_BYTES && b == UNIT_SECONDS)
        *out = UNIT_BYTES_PER_S;
    else if (op == '/' && a == UNIT_BYTES && b == UNIT_BYTES_PER_S)
        *out = UNIT_SECONDS;
    else if (op == '*' && ((a == UNIT_BYTES_PER_S && b == UNIT_SECONDS) ||
                           (a == UNIT_SECONDS && b == UNIT_BYTES_PER_S)))
        *out = UNIT_BYTES;
    else
        return false;
    return true;
}

static bool remainder_of(const struct constant *a, const struct constant *b, struct span at,
                         struct constant *out)
{
    if (a->unit != b->unit) return mismatch("%", a, b, at);
    if (!constant_is_whole(a) || !constant_is_whole(b)) {
        complain(at, "'%%' wants whole numbers, not %s and %s", constant_text(a), constant_text(b));
        return false;
    }
    if (b->top == 0) {
        complain(at, "division by zero");
        return false;
    }
    return constant_fraction((wide)a->top % b->top, 1, a->unit, at, out);
}

static bool arithmetic(char op, const struct constant *a, const struct constant *b, struct span at,
                       struct constant *out)
{
    enum unit_kind unit = a->unit;
    bool scales = op == '*' || op == '/', exact = a->exact && b->exact;
    const char name[2] = {op, 0};
    if (op == '%') return remainder_of(a, b, at, out);
    if (scales ? !scaled_unit(op, a->unit, b->unit, &unit) : a->unit != b->unit)
        return mismatch(name, a, b, at);
    if (op == '/' && b->number == 0) {
        complain(at, "division by zero");
        return false;
    }
    switch (op) {
    case '+':
        return exact ? constant_fraction((wide)a->top * b->bottom + (wide)b->top * a->bottom,
                                         (wide)a->bottom * b->bottom, unit, at, out)
                     : real(a->number + b->number, unit, at, out);
    case '-':
        return exact ? constant_fraction((wide)a->top * b->bottom - (wide)b->top * a->bottom,
                                         (wide)a->bottom * b->bottom, unit, at, out)
                     : real(a->number - b->number, unit, at, out);
    case '*':
        return exact ? constant_fraction((wide)a->top * b->top, (wide)a->bottom * b->bottom, unit,
                                         at, out)
                     : real(a->number * b->number, unit, at, out);
    case '/':
        return exact ? constant_fraction((wide)a->top * b->bottom, (wide)a->bottom * b->top, unit,
                                         at, out)
                     : real(a->number / b->number, unit, at, out);
    }
    bug("there is no operator '%c'", op);
}

static int compare_numbers(const struct constant *a, const struct constant *b)
{
    if (!a->exact || !b->exact) return a->number < b->number ? -1 : a->number > b->number;
    wide left = (wide)a->top * b->bottom, right = (wide)b->top * a->bottom;
    return left < right ? -1 : left > right;
}

static bool equal(const struct constant *a, const struct constant *b)
{
    if (a->kind != b->kind) return false;
    switch (a->kind) {
    case CONST_NUMBER: return a->unit == b->unit && compare_numbers(a, b) == 0;
    case CONST_TRUTH: return a->truth == b->truth;
    case CONST_STRING:
    case CONST_WORD: return a->text == b->text;
    case CONST_LIST:
    case CONST_RANGE: break;
    }
    if (a->n != b->n) return false;
    for (int i = 0; i < a->n; i++)
        if (!equal(&a->item[i], &b->item[i])) return false;
    return true;
}

static bool comparison(const char *op, const struct constant *a, const struct constant *b,
                       struct span at, struct constant *out)
{
    bool equality = op[0] == '=' || op[0] == '!';
    bool numbers = a->kind == CONST_NUMBER && b->kind == CONST_NUMBER;
    if (a->kind != b->kind || (numbers && a->unit != b->unit) || (!equality && !numbers))
        return mismatch(op, a, b, at);
    bool truth;
    if (equality) {
        truth = equal(a, b) == (op[0] == '=');
    } else {
        int order = compare_numbers(a, b);
        truth = op[1] == '=' && order == 0 ? true : op[0] == '<' ? order < 0 : order > 0;
    }
    *out = constant_truth(truth);
    out->at = at;
    return true;
}

static bool range(const struct constant *a, const struct constant *b, struct span at,
                  struct constant *out)
{
    if (!constant_is_whole(a) || !constant_is_whole(b) || a->unit || b->unit) {
        complain(at, "a range goes from one whole number to another");
        return false;
    }
    if (a->top > b->top) {
        add_help(complain(at, "the range %s..%s is empty", constant_text(a), constant_text(b)),
                 "write %s..%s", constant_text(b), constant_text(a));
        return false;
    }
    *out = (struct constant){
        .kind = CONST_RANGE, .at = at, .n = 2, .item = TAKE_MANY(struct constant, 2)};
    out->item[0] = *a;
    out->item[1] = *b;
    return true;
}

bool constant_binary(const char *op, const struct constant *a, const struct constant *b,
                     struct span at, struct constant *out)
{
    if (!strcmp(op, "..")) return range(a, b, at, out);
    if (strchr("=!<>", op[0])) return comparison(op, a, b, at, out);
    if (op[0] == 'a' || op[0] == 'o') { /* and, or */
        if (a->kind != CONST_TRUTH || b->kind != CONST_TRUTH) return mismatch(op, a, b, at);
        *out = constant_truth(op[0] == 'a' ? a->truth && b->truth : a->truth || b->truth);
        out->at = at;
        return true;
    }
    if (a->kind != CONST_NUMBER || b->kind != CONST_NUMBER) return mismatch(op, a, b, at);
    return arithmetic(op[0], a, b, at, out);
}

/* ── Functions ───────────────────────────────────────────────────────────────── */

/* The whole root of x, or -1. */
static int64_t whole_root(int64_t x)
{
    int64_t r = (int64_t)sqrtl((long double)x);
    while ((wide)r * r > x) r--;
    while ((wide)(r + 1) * (r + 1) <= x) r++;
    return (wide)r * r == x ? r : -1;
}

static bool root(const struct constant *a, struct span at, struct constant *out)
{
    if (a->number < 0) {
        complain(at, "the square root of %s does not exist", constant_text(a));
        return false;
    }
    int64_t top = a->exact ? whole_root(a->top) : -1,
            bottom = a->exact ? whole_root(a->bottom) : -1;
    return top >= 0 && bottom > 0 ? constant_fraction(top, bottom, UNIT_NONE, at, out)
                                  : real(sqrt(a->number), UNIT_NONE, at, out);
}

static bool rounded(const struct constant *a, bool up, struct span at, struct constant *out)
{
    if (!a->exact) {
        complain(at, "only an exact number can be rounded to a whole one");
        return false;
    }
    wide whole = a->top / a->bottom, rest = a->top % a->bottom;
    whole += up ? rest > 0 : -(rest < 0);
    return constant_fraction(whole, 1, a->unit, at, out);
}

static bool contains(const struct constant *list, const struct constant *x, struct span at,
                     struct constant *out)
{
    if (list->kind != CONST_LIST) {
        complain(at, "contains wants a list and a value, not %s", kind_name(list));
        return false;
    }
    bool found = false;
    for (int i = 0; i < list->n && !found; i++) {
        const struct constant *item = &list->item[i];
        if (item->kind == CONST_RANGE && x->kind == CONST_NUMBER)
            found =
                constant_is_whole(x) && x->top >= item->item[0].top && x->top <= item->item[1].top;
        else
            found = equal(item, x);
    }
    *out = constant_truth(found);
    out->at = at;
    return true;
}

/* How many things a list names; a range names each of its numbers. */
static bool count(const struct constant *list, struct span at, struct constant *out)
{
    if (list->kind != CONST_LIST) {
        complain(at, "count wants a list, not %s", kind_name(list));
        return false;
    }
    wide all = 0;
    for (int i = 0; i < list->n; i++) {
        const struct constant *item = &list->item[i];
        all += item->kind == CONST_RANGE ? (wide)item->item[1].top - item->item[0].top + 1 : 1;
    }
    return constant_fraction(all, 1, UNIT_NONE, at, out);
}

static bool extreme(const char *name, const struct constant *arg, int n, struct span at,
                    struct constant *out)
{
    int best = 0;
    for (int i = 1; i < n; i++) {
        if (arg[i].unit != arg[0].unit) return mismatch(name, &arg[0], &arg[i], at);
        int order = compare_numbers(&arg[i], &arg[best]);
        if (name[1] == 'i' ? order < 0 : order > 0) best = i;
    }
    *out = arg[best];
    out->at = at;
    return true;
}

static const struct {
    const char *name;
    int least, most;
} functions[] = {
    {"sqrt", 1, 1}, {"exp", 1, 1},  {"log", 1, 1},      {"floor", 1, 1}, {"ceil", 1, 1},
    {"min", 1, 16}, {"max", 1, 16}, {"contains", 2, 2}, {"count", 1, 1},
};

bool constant_call(const char *name, const struct constant *arg, int n, struct span at,
                   struct constant *out, bool *known)
{
    size_t f = 0;
    while (f < COUNT_OF(functions) && strcmp(functions[f].name, name)) f++;
    *known = f < COUNT_OF(functions);
    if (!*known) return false;
    if (n < functions[f].least || n > functions[f].most) {
        int wanted = n < functions[f].least ? functions[f].least : functions[f].most;
        complain(at, "%s takes %d argument%s, not %d", name, wanted, wanted == 1 ? "" : "s", n);
        return false;
    }
    if (name[0] == 'c' && name[1] == 'o')
        return name[2] == 'n' ? contains(&arg[0], &arg[1], at, out) : count(&arg[0], at, out);
    bool keeps_unit = name[0] == 'm' || name[0] == 'f' || name[0] == 'c';
    for (int i = 0; i < n; i++)
        if (arg[i].kind != CONST_NUMBER || (!keeps_unit && arg[i].unit)) {
            complain(at, "%s wants %s, not %s", name,
                     keeps_unit ? "numbers" : "a number without unit", kind_name(&arg[i]));
            return false;
        }
    switch (name[0]) {
    case 's': return root(&arg[0], at, out);
    case 'e': return real(exp(arg[0].number), UNIT_NONE, at, out);
    case 'l': return real(log(arg[0].number), UNIT_NONE, at, out);
    case 'f': return rounded(&arg[0], false, at, out);
    case 'c': return rounded(&arg[0], true, at, out);
    }
    return extreme(name, arg, n, at, out);
}

/* ── JSON ────────────────────────────────────────────────────────────────────── */
void constant_json(struct text *to, const struct constant *c)
{
    switch (c->kind) {
    case CONST_NUMBER:
        if (constant_is_whole(c))
            text_add(to, "%ld", c->top);
        else
            text_add(to, "%s", text_number(c->number));
        return;
    case CONST_TRUTH: text_add(to, "%s", c->truth ? "true" : "false"); return;
    case CONST_STRING:
    case CONST_WORD: escape_json(to, c->text); return;
    case CONST_LIST:
    case CONST_RANGE:
        text_add(to, "[");
        for (int i = 0; i < (c->kind == CONST_RANGE ? 2 : c->n); i++) {
            if (i) text_add(to, ", ");
            constant_json(to, &c->item[i]);
        }
        text_add(to, "]");
        return;
    }
}
