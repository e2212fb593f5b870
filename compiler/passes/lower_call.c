/* The functions of architectures: one row each, with the names, kinds and defaults of the
 * arguments. Arguments are matched and checked here for all functions, so the builder of a row sees
 * only valid ones; shapes are checked by the composite layers and the ops. */
#include "passes/lower.h"
#include "passes/workspace.h"

#include <stdlib.h>
#include <string.h>

enum kind { VALUE, EITHER, IDS, ROUTING, NUMBER, ABOVE, SIZE, OFFSET, TRUTH, AXIS, SHAPE };
#define PARAMETERS 6
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

/* Sums and statistics are FP32 whatever the operand is. */
static struct value *wide(struct lower *l, struct value *v)
{
    if (v->type == F32) return v;
    struct attr to = attr_word("to", "f32");
    return build_op(&l->b, OP_cast, &(struct operand){v, 0}, 1, &to, 1);
}

static struct value *node1(struct lower *l, enum op op, const struct operand *in, int n,
                           const struct attr *attr, int n_attr, const char **why)
{
    struct node *node = build_node(&l->b, op, in, n, attr, n_attr, why);
    return node ? node->out[0] : NULL;
}

#define BUILD(name)                                                             \
    static struct meaning build_##name(struct lower *l, const struct ast *call, \
                                       struct argument *a, const char **why)
#define UNUSED (void)call, (void)why

BUILD(embedding)
{
    UNUSED;
    return lower_value(node1(l, OP_embedding, (struct operand[]){by(a[0].value), by(a[1].value)}, 2,
                             NULL, 0, why));
}
BUILD(linear)
{
    UNUSED;
    return lower_value(layer_linear(&l->b, a[0].value, a[1].value, true, l->g->facts.compute, why));
}
BUILD(matmul)
{
    UNUSED;
    return lower_value(
        layer_linear(&l->b, a[0].value, a[1].value, false, l->g->facts.compute, why));
}
BUILD(rms_norm)
{
    UNUSED;
    return lower_value(layer_rms_norm(&l->b, a[0].value, a[1].value, a[2].number, why));
}
BUILD(layer_norm)
{
    UNUSED;
    return lower_value(
        layer_layer_norm(&l->b, a[0].value, a[1].value, a[2].value, a[3].number, why));
}
BUILD(heads_of)
{
    UNUSED;
    return lower_value(layer_heads_of(&l->b, a[0].value, a[1].whole, why));
}
BUILD(merge_heads)
{
    UNUSED;
    return lower_value(layer_merge_heads(&l->b, a[0].value, why));
}
BUILD(rope)
{
    UNUSED;
    return lower_value(layer_rope(&l->b, a[0].value, a[1].number, a[2].number, a[3].number,
                                  a[4].number, a[5].number, why));
}
BUILD(silu)
{
    UNUSED;
    return lower_value(layer_silu(&l->b, a[0].value));
}
BUILD(gelu)
{
    UNUSED;
    return lower_value(layer_gelu(&l->b, a[0].value, false));
}
BUILD(gelu_tanh)
{
    UNUSED;
    return lower_value(layer_gelu(&l->b, a[0].value, true));
}
BUILD(sigmoid)
{
    UNUSED;
    return lower_value(layer_call1(&l->b, OP_sigmoid, a[0].value, why));
}
BUILD(exp)
{
    UNUSED;
    return lower_value(layer_call1(&l->b, OP_exp, a[0].value, why));
}
BUILD(sqrt)
{
    UNUSED;
    return lower_value(layer_call1(&l->b, OP_sqrt, a[0].value, why));
}
BUILD(cross_entropy)
{
    UNUSED;
    return lower_value(layer_cross_entropy(&l->b, a[0].value, a[1].value, why));
}
BUILD(dispatch)
{
    UNUSED;
    return lower_value(layer_dispatch(&l->b, a[0].value, a[1].routing, why));
}
BUILD(expert_linear)
{
    UNUSED;
    return lower_value(layer_expert_linear(&l->b, a[0].value, a[1].value, a[2].routing, why));
}
BUILD(combine)
{
    UNUSED;
    return lower_value(layer_combine(&l->b, a[0].value, a[1].routing, why));
}
BUILD(load)
{
    UNUSED;
    return lower_value(layer_load(&l->b, a[0].routing));
}

BUILD(slice)
{
    (void)call;
    struct attr at[] = {attr_whole("from", a[1].whole), attr_whole("to", a[2].whole)};
    return lower_value(node1(l, OP_slice, (struct operand[]){by(a[0].value)}, 1, at, 2, why));
}

/* Router logits are FP32 sums whatever the compute type: a product that goes straight into a
 * softmax is not rounded. */
BUILD(softmax)
{
    UNUSED;
    struct node *n = a[0].value->node;
    for (int i = 0; n && n->op == OP_matmul && i < n->n_attr; i++)
        if (n == l->b.body->node.item[l->b.body->node.n - 1] && !strcmp(n->attr[i].key, "to")) {
            n->attr[i] = attr_word("to", element_names[F32]);
            n->out[0]->type = F32;
        }
    return lower_value(layer_softmax(&l->b, a[0].value));
}

BUILD(sum)
{
    UNUSED;
    struct value *x = wide(l, a[0].value);
    return lower_value(build1(&l->b,
                              !a[1].axis                   ? OP_sum_all
                              : !strcmp(a[1].axis, "rows") ? OP_sum_rows
                                                           : OP_sum_last,
                              by(x)));
}

static struct value *zeros(struct lower *l, struct shape s)
{
    struct attr attr[SHAPE_RANK];
    return build_op(&l->b, OP_zeros, NULL, 0, attr, attr_dims(attr, s));
}
BUILD(zeros)
{
    UNUSED;
    return lower_value(zeros(l, a[0].shape));
}
BUILD(ones)
{
    UNUSED;
    return lower_value(layer_arith(&l->b, OP_add, by(zeros(l, a[0].shape)), num(1), why));
}

BUILD(route)
{
    (void)call;
    struct meaning m = {.kind = MEANS_ROUTING};
    struct shape s = a[0].value->shape;
    if (l->plan->device == DEVICE_CUDA && s.rank && s.dim[s.rank - 1] > CUDA_EXPERTS) {
        *why = text_format("on cuda up to %d experts can be counted, not %s", CUDA_EXPERTS,
                           text_count(s.dim[s.rank - 1]));
        return lower_nothing();
    }
    return layer_route(&l->b, wide(l, a[0].value), a[1].whole, a[2].truth, &m.routing, why)
               ? m
               : lower_nothing();
}

/* The first weight that goes into a value, nearest first, and the hyper-parameters among its
 * dimensions that are `heads`. */
static void note_heads(struct lower *l, struct diagnostic *d, struct value *v, int64_t heads)
{
    for (int depth = 0; v && depth < 32; depth++) {
        const struct node *n = v->node;
        if (!n) return;
        for (int i = 0; i < n->n_in; i++) {
            const struct declared_weight *w =
                n->in[i].value ? lower_declared(l, n->in[i].value) : NULL;
            if (!w || n->in[i].value->shape.rank < 2) continue;
            for (int h = 0; h < l->plan->n_hyper; h++) {
                const struct hyper *hyper = &l->plan->hyper[h];
                if (!constant_is_whole(&hyper->value) || hyper->value.top != heads ||
                    !lower_mentions(w->dims, hyper->name))
                    continue;
                add_note(d, hyper->at, "%s is %lld", hyper->name, (long long)heads);
                return;
            }
        }
        v = n->n_in ? n->in[0].value : NULL;
    }
}

BUILD(attention)
{
    struct value *q = a[0].value, *k = a[1].value;
    if (q->shape.rank == 3 && k->shape.rank == 3 && q->shape.dim[1] % k->shape.dim[1]) {
        int64_t n = q->shape.dim[1], m = k->shape.dim[1], lower = m;
        struct diagnostic *d = complain(
            call->at,
            "%lld query heads cannot share %lld key heads: %lld / %lld is not a whole number",
            (long long)n, (long long)m, (long long)n, (long long)m);
        note_heads(l, d, q, n);
        note_heads(l, d, k, m);
        if (lower > n) lower = n;
        if (lower > 1 << 20) return lower_nothing(); /* no search of an hour for a hint */
        while (n % lower) lower--;
        add_help(d, "%lld key heads would do", (long long)lower);
        return lower_nothing();
    }
    return lower_value(layer_attention(&l->b, q, k, a[2].value, why));
}

static const struct function functions[] = {
    {"embedding", {{"ids", IDS, NULL}, {"W", VALUE, NULL}}, build_embedding},
    {"linear", {{"x", VALUE, NULL}, {"W", VALUE, NULL}}, build_linear},
    {"matmul", {{"x", VALUE, NULL}, {"W", VALUE, NULL}}, build_matmul},
    {"rms_norm", {{"x", VALUE, NULL}, {"g", VALUE, NULL}, {"eps", NUMBER, NULL}}, build_rms_norm},
    {"layer_norm",
     {{"x", VALUE, NULL}, {"g", VALUE, NULL}, {"b", VALUE, NULL}, {"eps", NUMBER, NULL}},
     build_layer_norm},
    {"heads_of", {{"x", VALUE, NULL}, {"d", SIZE, NULL}}, build_heads_of},
    {"merge_heads", {{"x", VALUE, NULL}}, build_merge_heads},
    {"rope",
     {{"x", VALUE, NULL},
      {"theta", ABOVE, NULL},
      {"factor", ABOVE, "1"},
      {"low", ABOVE, "1"},
      {"high", ABOVE, "4"},
      {"original", ABOVE, "8192"}},
     build_rope},
    {"attention", {{"q", VALUE, NULL}, {"k", VALUE, NULL}, {"v", VALUE, NULL}}, build_attention},
    {"silu", {{"x", VALUE, NULL}}, build_silu},
    {"gelu", {{"x", VALUE, NULL}}, build_gelu},
    {"gelu_tanh", {{"x", VALUE, NULL}}, build_gelu_tanh},
    {"sigmoid", {{"x", VALUE, NULL}}, build_sigmoid},
    {"exp", {{"x", EITHER, NULL}}, build_exp},
    {"sqrt", {{"x", EITHER, NULL}}, build_sqrt},
    {"softmax", {{"x", VALUE, NULL}}, build_softmax},
    {"sum", {{"x", VALUE, NULL}, {"over", AXIS, ""}}, build_sum},
    {"slice", {{"x", VALUE, NULL}, {"from", OFFSET, NULL}, {"to", SIZE, NULL}}, build_slice},
    {"route", {{"p", VALUE, NULL}, {"k", SIZE, NULL}, {"normalize", TRUTH, NULL}}, build_route},
    {"dispatch", {{"x", VALUE, NULL}, {"r", ROUTING, NULL}}, build_dispatch},
    {"expert_linear",
     {{"z", VALUE, NULL}, {"W", VALUE, NULL}, {"r", ROUTING, NULL}},
     build_expert_linear},
    {"combine", {{"z", VALUE, NULL}, {"r", ROUTING, NULL}}, build_combine},
    {"load", {{"r", ROUTING, NULL}}, build_load},
    {"cross_entropy", {{"logits", VALUE, NULL}, {"targets", IDS, NULL}}, build_cross_entropy},
    {"zeros", {{"shape", SHAPE, NULL}}, build_zeros},
    {"ones", {{"shape", SHAPE, NULL}}, build_ones},
};

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
    const char *names[COUNT_OF(functions) + 5] = {"weight", "contains", "count", "min", "max"};
    for (size_t i = 0; i < COUNT_OF(functions); i++) names[i + 5] = functions[i].name;
    struct diagnostic *d = complain(lower_name_at(call), "there is no function '%s'", name);
    const char *near = nearest_name(name, names, (int)COUNT_OF(names));
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
    for (size_t i = 0; i < COUNT_OF(functions); i++)
        if (!strcmp(functions[i].name, name)) f = &functions[i];
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
