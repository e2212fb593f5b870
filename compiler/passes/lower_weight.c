/* Declarations of weights. Each is checked: its dimensions are whole and not absurdly large, its
 * stored name is unique, and it reaches the loss; a weight that nothing trains is a mistake that no
 * shape rule would find. */
#include "passes/lower.h"
#include "passes/layers.h"
#include "base/escape.h"

#include <string.h>

const struct declared_weight *lower_declared(const struct lower *l, const struct value *v)
{
    for (int i = 0; v->weight && i < l->declared.n; i++)
        if (l->declared.item[i].weight == v->weight) return &l->declared.item[i];
    return NULL;
}

/* `init = normal(std) | ones | zeros`. */
static bool read_init(struct lower *l, const struct ast *x, enum weight_init *init, double *std)
{
    for (int k = 0; k < WEIGHT_INITS && x->kind == AST_NAME; k++)
        if (k != WEIGHT_NORMAL && !strcmp(x->text, weight_init_names[k]))
            return *init = (enum weight_init)k, true;
    if (x->kind == AST_CHOICE) {
        bool ok, taken = lower_condition(l, x->kid[0], &ok);
        return ok && read_init(l, x->kid[taken ? 1 : 2], init, std);
    }
    if (x->kind == AST_CALL && !strcmp(x->text, weight_init_names[WEIGHT_NORMAL]) && x->n == 1 &&
        x->kid[0]->kind != AST_NAMED) {
        *init = WEIGHT_NORMAL;
        if (!lower_number(l, x->kid[0], "the standard deviation", std)) return false;
        if (*std >= 0) return true;
        complain(x->kid[0]->at, "a standard deviation of %s", text_number(*std));
        return false;
    }
    complain(x->at, "a weight starts as normal(std), ones or zeros");
    return false;
}

/* The list of dimensions; `e = experts` first makes a stack of stored tensors. */
static bool read_dims(struct lower *l, const struct ast *x, const char *name, struct shape *s,
                      const char **stacked)
{
    if (x->kind != AST_LIST || x->n < 1) {
        complain(x->at, "the dimensions of a weight are a list, [rows, columns]");
        return false;
    }
    if (x->n > SHAPE_RANK) {
        complain(x->at, "a weight has at most %d dimensions, this has %d", SHAPE_RANK, x->n);
        return false;
    }
    *stacked = NULL;
    s->rank = x->n;
    int64_t count = 1;
    bool fits = true;
    for (int i = 0; i < x->n; i++) {
        const struct ast *dim = x->kid[i];
        if (dim->kind == AST_NAMED && i == 0 && x->n > 1)
            *stacked = dim->text;
        else if (dim->kind == AST_NAMED) {
            complain(dim->at, "only the first of several dimensions can be named: it says how many "
                              "tensors are stored");
            return false;
        }
        const char *what = text_format("dimension %d of '%s'", i + 1, name);
        if (!lower_dimension(l, dim->kind == AST_NAMED ? dim->kid[0] : dim, what, 1, &s->dim[i]))
            fits = false;
        /* 16 bytes of state an element must be countable too */
        else if (fits &&
                 (__builtin_mul_overflow(count, s->dim[i], &count) || count > INT64_MAX / 32)) {
            struct diagnostic *d = complain(
                dim->at, "'%s' has more elements than can be counted in 63 bits of bytes", name);
            lower_trace(l, d, x);
            fits = false;
        }
    }
    return fits;
}

/* The trainer keeps a name with its numbers in 512 bytes. */
enum { TENSOR_NAME_BYTES = 400 };

/* Prefix, dot, name; the name of a stack's axis becomes {e}. */
static const char *tensor_name(struct lower *l, const struct ast *at, const char *stacked)
{
    struct text t = {0};
    if (*l->prefix) text_add(&t, "%s.", l->prefix);
    bool numbered = false;
    for (const char *s = at->text; *s;) {
        if (*s != '{') {
            text_add_bytes(&t, s++, 1);
            continue;
        }
        const char *end = strchr(s, '}');
        const char *inner = end ? intern_bytes(s + 1, (size_t)(end - s - 1)) : "";
        if (end && stacked && !strcmp(inner, stacked)) {
            text_add(&t, "{e}");
            numbered = true;
        } else if (end && l->in_repeat && !strcmp(inner, "i"))
            text_add(&t, "{i}");
        else {
            struct diagnostic *d =
                complain(at->at, "'{%s}' in a tensor name stands for nothing here", inner);
            add_help(
                d, "{i} is the layer, inside a repeat; {e} the stored tensor of [e = experts, …]");
            return NULL;
        }
        s = end + 1;
    }
    /* {i} and {e} become numbers of up to 19 digits */
    if (t.length > TENSOR_NAME_BYTES) {
        complain(at->at, "a tensor name of %zu bytes: names have at most %d", t.length,
                 TENSOR_NAME_BYTES);
        return NULL;
    }
    /* files are written in JSON, whose texts are UTF-8 */
    if (t.length == 0 || strcmp(t.bytes, printable_text(t.bytes)) != 0) {
        complain(at->at, t.length ? "a tensor name must be UTF-8 without control characters"
                                  : "a tensor name must not be empty");
        return NULL;
    }
    if (!strcmp(t.bytes, "__metadata__")) {
        complain(at->at, "safetensors keep '__metadata__' for something that is no tensor");
        return NULL;
    }
    if (stacked && !numbered) {
        complain(at->at, "%s names %s tensors, so its name must hold {%s}", at->text, stacked,
                 stacked);
        return NULL;
    }
    if (l->in_repeat && !strstr(t.bytes, "{i}")) {
        if (!*l->prefix) {
            struct diagnostic *d =
                complain(at->at, "every layer would store its '%s' under one name", t.bytes);
            add_note(d, l->repeat_at, "the repeat's prefix has no {i}");
            /* one prefix is one mistake, however many names it stands before */
        } else if (!l->numberless) {
            struct diagnostic *d = complain(
                l->repeat_at,
                "every layer would store its weights under the same names: the prefix has no {i}");
            add_note(d, at->at, "one of them: '%s'", t.bytes);
            add_help(d, "\"%s.{i}\"", l->prefix);
            l->numberless = true;
        }
        return NULL;
    }
    return intern(t.bytes);
}

static struct unit *unit_of(struct lower *l)
{
    struct unit *u = graph_unit(l->g, l->unit);
    if (u) return u;
    u = TAKE(struct unit);
    bool loop = l->b.region->direction != ONCE;
    *u = (struct unit){
        .name = l->unit, .loop = l->b.region->loop, .variant = intern(l->b.body->name), .count = 1};
    if (loop) u->count = l->b.region->count;
    for (int i = 0; loop && i < l->b.body->layers.n; i++)
        u->count =
            (i ? u->count : 0) + l->b.body->layers.item[i].to - l->b.body->layers.item[i].from;
    PUSH(&l->g->unit, u);
    return u;
}

static bool same_name_elsewhere(struct lower *l, const struct ast *at, const char *tensor)
{
    for (int i = 0; i < l->declared.n; i++) {
        const struct declared_weight *d = &l->declared.item[i];
        /* other layers of the same loop */
        bool variant = d->region == l->b.region && d->body != l->b.body;
        if (strcmp(d->weight->tensor, tensor) || variant) continue;
        struct diagnostic *said = complain(at->at, "two weights are stored as '%s'", tensor);
        add_note(said, d->at, "the other one");
        add_help(said, "use one weight twice to tie it");
        return true;
    }
    return false;
}

/* `balance = rate`: of the bias of a router. */
static bool read_balance(struct lower *l, const struct ast *x, const struct ast *dims,
                         struct shape *s, const char *stacked, double *rate)
{
    if (s->rank != 1 || stacked) {
        complain(dims->at, "a weight with a balance is the bias of a router: one number an expert");
        return false;
    }
    if (!lower_number(l, x, "the rate of a balance", rate)) return false;
    if (*rate < 0) {
        lower_trace(l,
                    complain(x->at, "the rate of a balance must be at least 0, this is %s",
                             text_number(*rate)),
                    x);
        return false;
    }
    if (l->g->facts.compute != F32) *s = shape_of(2, (int64_t[]){3, s->dim[0]});
    return true;
}

/* Biases of routers come first in their unit: see unit_together. */
static void add_weight(struct graph *g, struct weight *w)
{
    int at = g->weight.n;
    PUSH(&g->weight, w);
    if (!w->balances) return;
    for (int i = 0; i < g->weight.n - 1 && at == g->weight.n - 1; i++)
        if (g->weight.item[i]->unit == w->unit && !g->weight.item[i]->balances) at = i;
    for (int i = g->weight.n - 1; i > at; i--) g->weight.item[i] = g->weight.item[i - 1];
    g->weight.item[at] = w;
}

struct meaning lower_weight(struct lower *l, const struct ast *call)
{
    const struct ast *name = NULL, *dims = NULL, *init_at = NULL, *balance_at = NULL;
    for (int i = 0; i < call->n; i++) {
        const struct ast *x = call->kid[i];
        if (x->kind == AST_NAMED && !strcmp(x->text, "init") && !init_at)
            init_at = x->kid[0];
        else if (x->kind == AST_NAMED && !strcmp(x->text, "balance") && !balance_at)
            balance_at = x->kid[0];
        else if (x->kind == AST_STRING && !name && !dims)
            name = x;
        else if (x->kind != AST_NAMED && name && !dims)
            dims = x;
        else {
            add_help(complain(x->at, "weight does not take this"),
                     "it is weight(\"stored.name\", [rows, columns], init = normal(0.02))");
            return lower_nothing();
        }
    }
    if (!name || !dims) {
        add_help(complain(call->at, "a weight needs its stored name and its dimensions"),
                 "weight(\"stored.name\", [rows, columns], init = normal(0.02))");
        return lower_nothing();
    }
    struct shape shape;
    const char *stacked;
    enum weight_init init = WEIGHT_NORMAL;
    double std = 0.02, rate = 0;
    if (!read_dims(l, dims, name->text, &shape, &stacked)) return lower_nothing();
    if (init_at && !read_init(l, init_at, &init, &std)) return lower_nothing();
    if (balance_at && !read_balance(l, balance_at, dims, &shape, stacked, &rate))
        return lower_nothing();
    if (l->deciding) return (struct meaning){.kind = MEANS_LATER};
    const char *tensor = tensor_name(l, name, stacked);
    if (!tensor || same_name_elsewhere(l, name, tensor)) return lower_nothing();

    lower_place(l, call->at);
    struct weight *w = TAKE(struct weight);
    *w = (struct weight){.tensor = tensor,
                         .stack = stacked ? shape.dim[0] : 0,
                         .unit = unit_of(l)->name,
                         .init = init,
                         .std = init == WEIGHT_NORMAL ? std : 0,
                         .balances = balance_at != NULL,
                         .rate = rate,
                         .file = l->b.file,
                         .line = l->b.line};
    w->value = value_new(l->g, fresh_name(l->g, l->b.base ? l->b.base : "weight"),
                         l->g->facts.compute, shape);
    w->value->weight = w;
    add_weight(l->g, w);
    PUSH(&l->declared, ((struct declared_weight){w, l->b.region, l->b.body, call->at, dims}));
    return lower_value(w->balances ? layer_balance_weight(&l->b, w->value) : w->value);
}

/* ── after everything ────────────────────────────────────────────────────────── */
/* Choices and counts: what goes in is not trained through them. */
static bool is_constant(enum op op)
{
    return op == OP_top_k || op == OP_route_plan || op == OP_load || op == OP_max_last ||
           op == OP_valid;
}

/* Marks what `v` stands on and is trained through it: value->mark 1. A carry stands on its first
 * value and on what every body passes to the next iteration. */
static void need(struct value *v)
{
    VECTOR(struct value *) open = {0};
    PUSH(&open, v);
    while (open.n) {
        v = open.item[--open.n];
        if (v->mark) continue;
        v->mark = 1;
        if (v->node) {
            for (int i = 0; i < v->node->n_out; i++) v->node->out[i]->mark = 1;
            for (int i = 0; i < v->node->n_in && !is_constant(v->node->op); i++)
                if (v->node->in[i].value) PUSH(&open, v->node->in[i].value);
            continue;
        }
        const struct region *r = v->note;
        for (int k = 0; r && k < r->carry.n; k++) {
            const struct carry *c = &r->carry.item[k];
            if (c->value != v && c->last != v) continue;
            PUSH(&open, c->value);
            PUSH(&open, c->first);
            for (int i = 0; i < r->body.n; i++) PUSH(&open, r->body.item[i]->next.item[k]);
        }
    }
}

static bool is_root(const struct node *n)
{
    if (n->op == OP_balance) return true;
    return n->op == OP_metric && !strcmp(attr_get_word(n, "name"), "loss");
}

static void need_loss(struct graph *g)
{
    for (int i = 0; i < g->region.n; i++)
        for (int k = 0; k < g->region.item[i]->body.n; k++) {
            const struct body *b = g->region.item[i]->body.item[k];
            for (int j = 0; j < b->node.n; j++)
                if (is_root(b->node.item[j])) need(b->node.item[j]->in[0].value);
        }
}

/* Whether anything but an assignment of its own speaks of `name`. */
static bool is_read(const struct ast *x, const char *name)
{
    if (x->kind == AST_ENTRY) return lower_mentions(x->kid[1], name);
    if (x->kind != AST_ITEMS && x->kind != AST_BLOCK) return lower_mentions(x, name);
    for (int i = 0; i < x->n; i++)
        if (is_read(x->kid[i], name)) return true;
    return false;
}

static const struct ast *entry_at(const struct ast *x, struct span at)
{
    if (x->kind == AST_ENTRY && x->kid[0]->at.file == at.file && x->kid[0]->at.from == at.from)
        return x;
    const struct ast *found = NULL;
    for (int i = 0; i < x->n && !found; i++)
        if (x->kind == AST_ITEMS || x->kind == AST_BLOCK) found = entry_at(x->kid[i], at);
    return found;
}

static int untrained(const struct lower *l)
{
    int n = 0;
    for (int i = 0; i < l->declared.n; i++) n += !l->declared.item[i].weight->value->mark;
    return n;
}

/* `y = x + …` in a repeat that should have been x: what stands after the forgotten value is one
 * mistake, not one a weight. */
static void say_unread(struct lower *l, const struct binding *b)
{
    const struct ast *body = l->plan->architecture_body, *it = entry_at(body, b->latest);
    int before = untrained(l);
    if (!it || b->means.kind != MEANS_VALUE || b->means.value->mark || b->means.value->weight ||
        is_read(body, b->name))
        return;
    for (int i = 0; i < l->gone.n; i++) /* the same entry in every variant of the layer */
        if (l->gone.item[i].latest.from == b->latest.from &&
            l->gone.item[i].latest.file == b->latest.file &&
            l->gone.item[i].means.kind == MEANS_VALUE)
            need(l->gone.item[i].means.value);
    if (untrained(l) == before) return;
    struct diagnostic *d = complain(
        b->latest, "'%s' is assigned and never read, so nothing would train the weights behind it",
        b->name);
    for (int i = 0; i < l->name.n; i++) {
        const struct binding *carried = &l->name.item[i];
        if (carried->means.kind != MEANS_VALUE || carried->means.value->weight ||
            !shape_same(carried->means.value->shape, b->means.value->shape) ||
            !lower_mentions(it->kid[1], carried->name))
            continue;
        add_help(d, "is it %s that the next layer gets? %s = …", carried->name, carried->name);
        return;
    }
    add_help(d, "use it on the way to the loss, or leave it out");
}

void lower_sweep(struct lower *l)
{
    struct graph *g = l->g;
    for (int i = 0; i < g->region.n; i++)
        for (int k = 0; k < g->region.item[i]->carry.n; k++) {
            const struct carry *c = &g->region.item[i]->carry.item[k];
            c->value->note = c->last->note = g->region.item[i];
        }
    need_loss(g);
    for (int i = 0; i < l->gone.n && untrained(l) > 1; i++) say_unread(l, &l->gone.item[i]);
    for (int i = 0; i < l->declared.n; i++) {
        const struct weight *w = l->declared.item[i].weight;
        if (w->balances ? w->choices > 0 : w->value->mark) continue;
        struct diagnostic *d = complain(
            l->declared.item[i].at,
            w->balances ? "the weight '%s' is the bias of no router, so nothing would move it"
                        : "the weight '%s' does not reach the loss, so nothing would train it",
            w->tensor);
        add_help(d, w->balances ? "route(scores, top_k, normalize = on, bias = b)"
                                : "use it on the way to the loss, or leave it out");
    }
    graph_sweep(g);
}

/* A hyper-parameter that the architecture never reads would be a number in the plan that does
 * nothing. */
void lower_check_hyper(struct lower *l)
{
    const struct ast *body = l->plan->architecture_body;
    for (int h = 0; h < l->plan->n_hyper; h++) {
        const char *name = l->plan->hyper[h].name;
        const struct ast *declaration = NULL;
        bool read = false;
        for (int i = 0; i < l->meant.n; i++) read |= !strcmp(l->meant.item[i], name);
        for (int i = 0; i < body->n && !read; i++) {
            const struct ast *item = body->kid[i];
            bool hyper = item->kind == AST_BLOCK && !strcmp(item->kid[0]->kid[0]->text, "hyper");
            if (!hyper) {
                read = lower_mentions(item, name);
                continue;
            }
            for (int k = 0; k < item->kid[1]->n && !read; k++) {
                const struct ast *one = item->kid[1]->kid[k];
                const struct ast *it = one->kind == AST_ENTRY ? one->kid[0] : one->kid[0]->kid[0];
                if (!strcmp(it->text, name)) declaration = it;
                read = one->kind == AST_ENTRY && lower_mentions(one->kid[1], name);
            }
        }
        if (!read && declaration)
            add_help(complain(declaration->at,
                              "the architecture never reads its hyper-parameter '%s'", name),
                     "leave it out, or use it");
    }
}
