/* Calls in an architecture: finds the function, puts the arguments into the places of its
 * parameters, checks their kinds, and says what a call lacks or what does not fit. */
#include "passes/lower_function.h"

#include <stdlib.h>
#include <string.h>

static const char *signature(const struct function *f)
{
    struct text t = {0};
    text_add(&t, "%s(", f->name);
    for (int i = 0; i < PARAMETERS && f->parameter[i].name; i++)
        text_add(&t, f->parameter[i].otherwise ? "%s%s = …" : "%s%s", i ? ", " : "",
                 f->parameter[i].name);
    text_add(&t, ")");
    return t.bytes;
}

/* The named dimensions of zeros([…]). */
static bool argument_shape(struct lower *l, const struct ast *x, struct shape *s)
{
    if (x->kind != AST_LIST || x->n < 1 || x->n > SHAPE_RANK) {
        complain(x->at, "a shape is a list of one to %d dimensions", SHAPE_RANK);
        return false;
    }
    s->rank = x->n;
    for (int i = 0; i < x->n; i++)
        if (!lower_dimension(l, x->kid[i], "a dimension", 1, &s->dim[i])) return false;
    return true;
}

static bool argument_value(struct lower *l, const struct function *f, const struct parameter *p,
                           struct argument *a)
{
    struct meaning m = lower_expression(l, a->at);
    if (m.kind == MEANS_NOTHING) return false;
    if (m.kind == MEANS_LATER) return true;
    a->means = m;
    if (m.kind == MEANS_CONSTANT && p->kind == EITHER) return true;
    bool fits = p->kind == ROUTING
                    ? m.kind == MEANS_ROUTING
                    : m.kind == MEANS_VALUE && (m.value->type == I32) == (p->kind == IDS);
    if (!fits) {
        const char *got = m.kind == MEANS_VALUE && m.value->type == I32 ? "ids" : lower_kind(&m);
        const char *want = p->kind == ROUTING ? "a routing" : p->kind == IDS ? "ids" : "a value";
        struct diagnostic *d =
            complain(a->at->at, "%s wants %s for %s, not %s", f->name, want, p->name, got);
        if (p->kind == ROUTING) add_help(d, "r = route(p, k, normalize = on) makes one");
        return false;
    }
    a->value = m.value;
    if (m.kind == MEANS_ROUTING) {
        struct routing *r = TAKE(struct routing);
        *r = m.routing;
        a->routing = r;
    }
    return true;
}

static bool argument_read(struct lower *l, const struct function *f, const struct parameter *p,
                          struct argument *a)
{
    const char *what = text_format("%s of %s", p->name, f->name);
    bool ok;
    switch (p->kind) {
    case VALUE:
    case EITHER:
    case IDS:
    case ROUTING: return argument_value(l, f, p, a);
    /* an epsilon; an angle's base, a factor: none has a meaning below zero, and only the first at
     * zero */
    case NUMBER:
    case ABOVE:
        if (!lower_number(l, a->at, what, &a->number)) return false;
        ok = p->kind == NUMBER ? a->number >= 0 : a->number > 0;
        if (!ok)
            lower_trace(l,
                        complain(a->at->at, "%s must be %s 0, this is %s", what,
                                 p->kind == NUMBER ? "at least" : "more than",
                                 text_number(a->number)),
                        a->at);
        return ok;
    case SIZE: return lower_dimension(l, a->at, what, 1, &a->whole);
    case OFFSET: return lower_dimension(l, a->at, what, 0, &a->whole);
    case TRUTH: a->truth = lower_condition(l, a->at, &ok); return ok;
    case SHAPE: return argument_shape(l, a->at, &a->shape);
    case AXIS:
        if (a->at->kind == AST_NAME &&
            (!strcmp(a->at->text, "rows") || !strcmp(a->at->text, "last"))) {
            a->axis = a->at->text;
            return true;
        }
        complain(a->at->at, "%s is rows or last", what);
        return false;
    }
    bug("a parameter of kind %d", (int)p->kind);
}

/* Puts the call's arguments into the places of the row's parameters. */
static bool match(const struct function *f, const struct ast *call, struct argument *a)
{
    int n = 0, next = 0;
    while (n < PARAMETERS && f->parameter[n].name) n++;
    for (int i = 0; i < call->n; i++) {
        const struct ast *x = call->kid[i];
        int place = next;
        if (x->kind == AST_NAMED) {
            const char *name = x->text;
            for (place = 0; place < n && strcmp(f->parameter[place].name, name); place++) {}
            if (place == n) {
                add_help(complain(lower_name_at(x), "%s has no argument '%s'", f->name, name),
                         "it is %s", signature(f));
                return false;
            }
        } else if (++next > n) {
            add_help(complain(x->at, "%s has only %d argument%s", f->name, n, n == 1 ? "" : "s"),
                     "it is %s", signature(f));
            return false;
        }
        if (a[place].at) {
            complain(x->at, "%s is given twice", f->parameter[place].name);
            return false;
        }
        a[place].at = x->kind == AST_NAMED ? x->kid[0] : x;
    }
    for (int i = 0; i < n; i++)
        if (!a[i].at && !f->parameter[i].otherwise) {
            add_help(complain(call->at, "%s lacks its argument %s", f->name, f->parameter[i].name),
                     "it is %s", signature(f));
            return false;
        }
    return true;
}

/* contains([1, 2], i), exp(2): known now. */
static struct meaning call_constants(const struct ast *call, const struct meaning *arg, int n)
{
    const char *name = call->text;
    struct constant *c = TAKE_MANY(struct constant, n + 1);
    struct meaning m = {.kind = MEANS_CONSTANT};
    for (int i = 0; i < n; i++) {
        c[i] = arg[i].constant;
        m.by_layer |= arg[i].by_layer;
    }
    bool known = false, ok = constant_call(name, c, n, call->at, &m.constant, &known);
    if (known) return ok ? m : lower_nothing();
    static const char *const others[] = {"weight", "contains", "count", "min", "max"};
    const char **names = TAKE_MANY(const char *, lower_function_count + COUNT_OF(others));
    for (size_t i = 0; i < COUNT_OF(others); i++) names[i] = others[i];
    for (size_t i = 0; i < lower_function_count; i++)
        names[COUNT_OF(others) + i] = lower_functions[i].name;
    struct diagnostic *d = complain(lower_name_at(call), "there is no function '%s'", name);
    const char *near = nearest_name(name, names, (int)(lower_function_count + COUNT_OF(others)));
    static const struct {
        const char *word, *means;
    } foreign[] = {{"swish", "silu"},
                   {"sdpa", "attention"},
                   {"scaled_dot_product_attention", "attention"},
                   {"flash_attention", "attention"},
                   {"nll_loss", "cross_entropy"},
                   {"F.silu", "silu"},
                   {"F.linear", "linear"},
                   {"F.cross_entropy", "cross_entropy"}};
    for (size_t i = 0; !near && i < COUNT_OF(foreign); i++)
        if (!strcmp(foreign[i].word, name)) near = foreign[i].means;
    if (near) add_help(d, "did you mean '%s'?", near);
    if (!strcmp(name, "normal"))
        add_help(d, "normal(std) says how a weight starts: weight(…, init = normal(0.02))");
    return lower_nothing();
}

/* A function that no row has: of constants, or of nobody. */
static struct meaning call_other(struct lower *l, const struct ast *call)
{
    struct meaning *arg = TAKE_MANY(struct meaning, call->n + 1);
    for (int i = 0; i < call->n; i++) {
        bool named = call->kid[i]->kind == AST_NAMED;
        arg[i] = named ? lower_constant(constant_truth(true)) : lower_expression(l, call->kid[i]);
        if (arg[i].kind == MEANS_NOTHING) return lower_nothing();
        /* values are no arguments of such a function: let it say that it is unknown */
        if (arg[i].kind != MEANS_CONSTANT || named) return call_constants(call, NULL, 0);
    }
    return call_constants(call, arg, call->n);
}

struct meaning lower_call(struct lower *l, const struct ast *call)
{
    const char *name = call->text;
    if (!strcmp(name, "weight")) return lower_weight(l, call);
    const struct function *f = NULL;
    for (size_t i = 0; i < lower_function_count; i++)
        if (!strcmp(lower_functions[i].name, name)) f = &lower_functions[i];
    if (!f) return call_other(l, call);

    struct argument a[PARAMETERS] = {0};
    if (!match(f, call, a)) return lower_nothing();
    bool fits = true;
    for (int i = 0; i < PARAMETERS && f->parameter[i].name; i++) {
        if (a[i].at)
            fits &= argument_read(l, f, &f->parameter[i], &a[i]);
        else
            a[i].number = strtod(f->parameter[i].otherwise, NULL);
    }
    if (!fits) return lower_nothing();
    if (a[0].means.kind == MEANS_CONSTANT) return call_constants(call, &a[0].means, 1);
    if (l->deciding) return (struct meaning){.kind = MEANS_LATER};

    lower_place(l, call->at);
    const char *why = NULL;
    struct meaning m = f->build(l, call, a, &why);
    if (m.kind == MEANS_NOTHING && why) {
        struct diagnostic *d = complain(call->at, "%s does not fit: %s", name, why);
        for (int i = 0; i < PARAMETERS; i++) {
            const struct declared_weight *w = a[i].value ? lower_declared(l, a[i].value) : NULL;
            if (w)
                add_note(d, w->at, "%s is this weight, %s", f->parameter[i].name,
                         shape_text(a[i].value->shape));
            else if (a[i].value)
                add_note(d, a[i].at->at, "%s is %s", f->parameter[i].name,
                         shape_text(a[i].value->shape));
        }
        /* the numbers of the plan that are sizes here, or shape an operand in place */
        for (int i = 0; i < PARAMETERS && f->parameter[i].name; i++) {
            bool size = f->parameter[i].kind == SIZE || f->parameter[i].kind == OFFSET;
            if (a[i].at && (size || (a[i].value && a[i].at->kind == AST_CALL)))
                lower_trace(l, d, a[i].at);
        }
    }
    return m;
}
