/* Evaluates an expression of a plan. The caller looks up names, because a name means different
 * things in a model block and in an architecture. Only what is needed is evaluated (one branch of a
 * choice; `and` and `or` stop early), so `tied ? 0 : lookup` reports no error in the branch that is
 * not used. */
#include "check/keys.h"

#include <string.h>

static bool name_value(const struct ast *e, struct scope *scope, struct constant *out)
{
    if (ast_is_refused(e)) return false;
    if (scope && scope->lookup(scope, e->text, out)) {
        out->at = e->at;
        return true;
    }
    if (!strcmp(e->text, "on") || !strcmp(e->text, "off")) {
        *out = constant_truth(e->text[1] == 'n');
        out->at = e->at;
        return true;
    }
    struct diagnostic *d = complain(e->at, "'%s' is not known here", e->text);
    if (scope && scope->hints) scope->hints(scope);
    const char *near = scope ? nearest_name(e->text, scope->names, scope->n_names) : NULL;
    const char *guess = strchr(e->text, '.') ? NULL : key_guess("", e->text);
    if (foreign_number(e->text))
        add_help(d, "a number: %s", foreign_number(e->text));
    else if (foreign_switch(e->text))
        add_help(d, "%s", foreign_switch(e->text));
    else if (guess && !strcmp(strrchr(guess, '.') + 1, e->text))
        add_help(d, "did you mean '%s'?", guess);
    else if (near)
        add_help(d, "did you mean '%s'?", near);
    else
        add_help(d, "names in values are keys by their path (batch.local), constants (name = value "
                    "outside the plan), on and off");
    return false;
}

static bool call_value(const struct ast *e, struct scope *scope, struct constant *out)
{
    static const char *const names[] = {"sqrt", "exp", "log",      "floor", "ceil",
                                        "min",  "max", "contains", "count"};
    struct constant *arg = TAKE_MANY(struct constant, e->n);
    bool fine = true, known;
    for (int i = 0; i < e->n; i++) {
        if (e->kid[i]->kind == AST_NAMED) {
            complain(e->kid[i]->at, "%s takes no named arguments", e->text);
            fine = false;
        } else {
            fine = evaluate(e->kid[i], scope, &arg[i]) && fine;
        }
    }
    if (!fine) return false;
    if (constant_call(e->text, arg, e->n, e->at, out, &known)) return true;
    if (!known) {
        struct diagnostic *d = complain(e->at, "there is no function '%s' on numbers", e->text);
        const char *near = nearest_name(e->text, names, (int)COUNT_OF(names));
        if (near) add_help(d, "did you mean '%s'?", near);
    }
    return false;
}

static bool list_value(const struct ast *e, struct scope *scope, struct constant *out)
{
    struct constant list = {
        .kind = CONST_LIST, .at = e->at, .n = e->n, .item = TAKE_MANY(struct constant, e->n)};
    for (int i = 0; i < e->n; i++) {
        if (e->kid[i]->kind == AST_NAMED) {
            complain(e->kid[i]->at, "this list has no named items");
            return false;
        }
        if (!evaluate(e->kid[i], scope, &list.item[i])) return false;
    }
    *out = list;
    return true;
}

static bool truth_value(const struct ast *e, struct scope *scope, const char *who, bool *out)
{
    struct constant c;
    if (!evaluate(e, scope, &c)) return false;
    if (c.kind != CONST_TRUTH) {
        struct diagnostic *d =
            complain(e->at, "%s wants a condition, and %s is not one", who, constant_text(&c));
        if (!strcmp(who, "'or'")) add_help(d, "alternatives are written with '|': 8 | 16");
        return false;
    }
    *out = c.truth;
    return true;
}

/* Written `&&` or `||`, which the scanner has refused: whether both sides are conditions is no
 * second mistake. */
static bool is_foreign(const struct ast *e)
{
    size_t n;
    const char *bytes = source_bytes(e->at.file, &n);
    for (int i = e->kid[0]->at.to; i < e->kid[1]->at.from; i++)
        if (bytes[i] == '&' || bytes[i] == '|') return true;
    return false;
}

static bool binary_value(const struct ast *e, struct scope *scope, struct constant *out)
{
    struct constant a, b;
    if ((e->text[0] == 'a' || e->text[0] == 'o') && is_foreign(e)) return false;
    if (!strcmp(e->text, "and") || !strcmp(e->text, "or")) {
        bool truth, decides = e->text[0] == 'o';
        if (!truth_value(e->kid[0], scope, text_format("'%s'", e->text), &truth)) return false;
        if (truth != decides &&
            !truth_value(e->kid[1], scope, text_format("'%s'", e->text), &truth))
            return false;
        *out = constant_truth(truth);
        out->at = e->at;
        return true;
    }
    return evaluate(e->kid[0], scope, &a) && evaluate(e->kid[1], scope, &b) &&
           constant_binary(e->text, &a, &b, e->at, out);
}

bool evaluate(const struct ast *e, struct scope *scope, struct constant *out)
{
    struct constant a;
    bool truth;
    switch (e->kind) {
    case AST_NUMBER: return constant_from_number(e, out);
    case AST_STRING:
        *out = (struct constant){.kind = CONST_STRING, .text = e->text, .at = e->at};
        return true;
    case AST_NAME:
    case AST_PATH: return name_value(e, scope, out);
    case AST_UNARY:
        return evaluate(e->kid[0], scope, &a) && constant_unary(e->text, &a, e->at, out);
    case AST_BINARY:
    case AST_RANGE: return binary_value(e, scope, out);
    case AST_CHOICE:
        return truth_value(e->kid[0], scope, "'?'", &truth) &&
               evaluate(e->kid[truth ? 1 : 2], scope, out);
    case AST_CALL: return call_value(e, scope, out);
    case AST_LIST: return list_value(e, scope, out);
    case AST_ALTERNATIVES: complain(e->at, "alternatives are not allowed here"); return false;
    case AST_ITEMS:
    case AST_BLOCK:
    case AST_SAY:
    case AST_HEAD:
    case AST_ENTRY:
    case AST_NAMED: break;
    }
    bug("an item was evaluated as an expression");
}
