/* Needs: a lowered graph, whose last region trains the metric "loss".
 * Gives: reverse-mode gradients. In the region of the loss, forward turns into backward. Every
 *   other region gets a mirror after it, in reverse order: straight code for straight code, for a
 *   loop a loop that runs down, whose carries are the gradients of the forward loop's carries. Each
 *   mirror body ends with `gradient W = dW` lines: the complete contribution of this use to a
 *   weight (a tied weight has one in each body that uses it; they are summed in the shard). For the
 *   bias of a router that is the load of the experts, not a derivative.
 * Loses: nothing. Mirror bodies name the forward values that they read; recompute decides later
 *   which of them are kept and which are computed again.
 *
 * The seed is 1 / (accumulation x ranks): the loss is an average over micro-batches and ranks, and
 * gradients are summed. */
#include "ir/ir.h"
#include "passes/pipeline.h"

#include <string.h>

/* value->mark: asks for a gradient. value->note (new graph): its gradient so far. */
static struct value *gradient_of(const struct value *v) { return v->note; }

static void gradient_add(struct build *b, struct value *v, struct value *d)
{
    struct value *sum = v->note ? build2(b, OP_add, by(v->note), by(d)) : d;
    v->note = sum;
}

static bool passes_gradient(enum op op)
{
    return op != OP_valid && op != OP_finite && op != OP_sign && op != OP_max_last &&
           op != OP_top_k && op != OP_route_plan && op != OP_load && op != OP_min;
}

static void mark_body(struct body *body)
{
    for (int i = 0; i < body->node.n; i++) {
        struct node *n = body->node.item[i];
        bool asks = false;
        for (int k = 0; k < n->n_in; k++) asks |= n->in[k].value && n->in[k].value->mark;
        for (int k = 0; k < n->n_out; k++)
            n->out[k]->mark = asks && passes_gradient(n->op) && n->out[k]->type != I32;
    }
}

/* What depends on a weight by differentiable ops; loops until the carries agree with themselves. */
static void mark_gradients(struct graph *g)
{
    for (int i = 0; i < g->weight.n; i++)
        g->weight.item[i]->value->mark = !g->weight.item[i]->balances;
    for (int i = 0; i < g->region.n; i++) {
        struct region *r = g->region.item[i];
        for (int k = 0; k < r->carry.n; k++)
            r->carry.item[k].value->mark = r->carry.item[k].first->mark;
        bool again = true;
        while (again) {
            again = false;
            for (int k = 0; k < r->body.n; k++) {
                mark_body(r->body.item[k]);
                for (int c = 0; c < r->carry.n; c++)
                    if (r->body.item[k]->next.item[c]->mark && !r->carry.item[c].value->mark)
                        r->carry.item[c].value->mark = 1, again = true;
            }
        }
        for (int k = 0; k < r->carry.n; k++)
            r->carry.item[k].last->mark = r->carry.item[k].value->mark;
    }
}

static struct value *filled(struct build *b, struct shape s, double x)
{
    struct attr attr[SHAPE_RANK + 1];
    int n = attr_dims(attr, s);
    attr[n] = attr_real("value", x);
    return build_op(b, OP_zeros, NULL, 0, attr, n + (x != 0));
}

/* Zeros with a place of their own, of a value's gradient type. */
static struct value *stored_zeros(struct build *b, const struct value *like)
{
    struct value *z = build1(b, OP_copy, by(filled(b, like->shape, 0)));
    if (like->type == F32) return z;
    return build_op(b, OP_cast, (struct operand[]){by(z)}, 1,
                    (struct attr[]){attr_word("to", element_names[like->type])}, 1);
}

/* The half of a row that `v` fills with zeros around: 0 or 1; -1: it is no such padding. */
static int half_of(const struct value *v)
{
    const struct node *n = v && v->node && v->node->op == OP_pad ? v->node : NULL;
    if (!n) return -1;
    int64_t width = shape_columns(n->in[0].value->shape), from = attr_get(n, "from");
    return attr_get(n, "total") != 2 * width ? -1 : from == 0 ? 0 : from == width ? 1 : -1;
}

/* What two slices of a value give back is the sum of two paddings; halves of a row need no sum. */
static struct value *halves(struct build *b, struct value *d)
{
    const struct node *n = d && d->node && d->node->op == OP_add ? d->node : NULL;
    if (!n) return d;
    int first = half_of(n->in[0].value), second = half_of(n->in[1].value);
    if (first < 0 || second != 1 - first) return d;
    b->base = d->name;
    return build2(b, OP_beside, n->in[first].value->node->in[0], n->in[second].value->node->in[0]);
}

/* The bias of a router has the number of rows that chose each expert for a gradient: it is summed
 * like one, over micro-batches and ranks. */
static void count_choices(struct build *b, const struct node *n)
{
    struct value *bias = n->in[0].value, *d = n->in[1].value;
    struct attr attr[SHAPE_RANK];
    b->file = n->file, b->line = n->line;
    b->base = intern_format("d_%s", bias->name);
    if (!shape_same(d->shape, bias->shape))
        d = build_op(b, OP_expand, (struct operand[]){by(d)}, 1, attr,
                     attr_dims(attr, bias->shape));
    gradient_add(b, bias, d);
}

/* Walks `count` nodes of a forward body from the last; contributions of weights are collected in
 * `b->body`. */
static void reverse_nodes(struct build *b, const struct body *forward, int count)
{
    for (int i = count - 1; i >= 0; i--) {
        const struct node *n = forward->node.item[i];
        struct value *d[4] = {0}, *into[8] = {0};
        bool any = false;
        if (n->op == OP_balance) count_choices(b, n);
        for (int k = 0; k < n->n_out; k++)
            any |= (d[k] = n->out[k]->mark ? halves(b, gradient_of(n->out[k])) : NULL) != NULL;
        if (!any) continue;
        b->file = n->file, b->line = n->line;
        b->base = intern_format("d_%s", n->out[0]->name);
        if (n->n_in > (int)COUNT_OF(into)) bug("%s has %d operands", op_rows[n->op].name, n->n_in);
        op_gradient(b, n, d, into);
        for (int k = 0; k < n->n_in; k++)
            if (into[k] && n->in[k].value->mark) gradient_add(b, n->in[k].value, into[k]);
    }
}

/* The finished weight gradients of this body. A value that is two weights' gradient gets a copy:
 * each has its own place. */
static void collect_weights(struct build *b, bool in_loop)
{
    struct graph *g = b->graph;
    for (int i = 0; i < g->weight.n; i++) {
        struct weight *w = g->weight.item[i];
        struct value *d = gradient_of(w->value);
        if (!d) continue;
        w->value->note = NULL;
        bool looped = graph_unit(g, w->unit)->loop[0] != 0;
        if (looped != in_loop)
            bug("weight %s belongs outside the loop that uses it", w->value->name);
        bool taken = false, here = false;
        for (int k = 0; k < b->body->gradient.n; k++) taken |= b->body->gradient.item[k].value == d;
        for (int k = 0; k < b->body->node.n; k++)
            for (int o = 0; o < b->body->node.item[k]->n_out; o++)
                here |= b->body->node.item[k]->out[o] == d;
        bool view = d->node && op_rows[d->node->op].class == CLASS_VIEW;
        b->base = intern_format("d_%s", w->value->name);
        if (!shape_same(d->shape, w->value->shape))
            bug("gradient of %s is %s", w->value->name, shape_text(d->shape));
        if (taken || !here || view) d = build1(b, OP_copy, by(d));
        PUSH(&b->body->gradient, ((struct yield_gradient){w->value, d}));
    }
}

static void reverse_once(struct graph *g, const struct region *forward, const char *stem)
{
    struct region *r = region_new(g, intern_format("%s.backward", stem), PHASE_MICRO, ONCE, 1, "");
    struct build b = {.graph = g, .region = r, .body = body_new(r, "")};
    reverse_nodes(&b, forward->body.item[0], forward->body.item[0]->node.n);
    collect_weights(&b, false);
    if (!b.body->node.n) g->region.n--; /* nothing asks for anything there */
}

/* Values from outside a loop that its bodies read and that ask for a gradient, but weights. */
struct outside {
    VECTOR(struct value *) value;
};

static bool made_in(const struct region *r, const struct value *v)
{
    for (int k = 0; k < r->carry.n; k++)
        if (r->carry.item[k].value == v) return true;
    for (struct node_walk at = {0}; next_node_of_region(r, &at);)
        for (int o = 0; o < at.node->n_out; o++)
            if (at.node->out[o] == v) return true;
    return false;
}

static struct outside outside_values(const struct region *r)
{
    struct outside all = {0};
    for (struct node_walk at = {0}; next_node_of_region(r, &at);)
        for (int o = 0; o < at.node->n_in; o++) {
            struct value *v = at.node->in[o].value;
            bool known = !v || !v->mark || v->weight || made_in(r, v);
            for (int s = 0; s < all.value.n && !known; s++) known = all.value.item[s] == v;
            if (!known) PUSH(&all.value, v);
        }
    return all;
}

static void reverse_loop(struct graph *g, struct build *before, const struct region *forward,
                         const char *stem)
{
    struct region *r =
        region_new(g, intern_format("%s.backward", stem), PHASE_MICRO,
                   forward->direction == UP ? DOWN : UP, forward->count, forward->loop);
    r->mirror = forward->name;
    struct outside outside = outside_values(forward);
    int carries = 0, which[64];
    struct value *held[64];
    before->base = "nothing";
    for (int i = 0; i < forward->carry.n; i++) {
        const struct carry *c = &forward->carry.item[i];
        if (!c->value->mark) continue;
        if (carries == (int)COUNT_OF(which)) bug("more than %d carries", carries);
        struct value *first =
            gradient_of(c->last) ? gradient_of(c->last) : stored_zeros(before, c->last);
        PUSH(&r->carry, ((struct carry){.first = first,
                                        .value = value_new(
                                            g, fresh_name(g, intern_format("d_%s", c->value->name)),
                                            c->value->type, c->value->shape)}));
        which[carries++] = i;
    }
    for (int i = 0; i < outside.value.n; i++) {
        struct value *v = outside.value.item[i];
        PUSH(&r->carry,
             ((struct carry){.first = stored_zeros(before, v),
                             .value = value_new(g, fresh_name(g, intern_format("d_%s", v->name)),
                                                v->type, v->shape)}));
        held[i] = v->note, v->note = NULL;
    }
    for (int k = 0; k < forward->body.n; k++) {
        const struct body *f = forward->body.item[k];
        struct body *body = body_begin(r, f);
        struct build b = {.graph = g, .region = r, .body = body};
        for (int i = 0; i < carries; i++) {
            struct value *next = f->next.item[which[i]];
            b.base = intern_format("d_%s", next->name);
            if (next->mark) gradient_add(&b, next, r->carry.item[i].value);
        }
        for (int i = 0; i < outside.value.n; i++)
            outside.value.item[i]->note = r->carry.item[carries + i].value;
        reverse_nodes(&b, f, f->node.n);
        for (int i = 0; i < carries; i++) {
            struct value *c = forward->carry.item[which[i]].value, *d = gradient_of(c);
            PUSH(&body->next, d ? d : stored_zeros(&b, c));
            c->note = NULL;
        }
        for (int i = 0; i < outside.value.n; i++)
            PUSH(&body->next, gradient_of(outside.value.item[i]));
        collect_weights(&b, true);
    }
    for (int i = 0; i < r->carry.n; i++) {
        struct carry *c = &r->carry.item[i];
        c->last = value_new(g, fresh_name(g, c->value->name), c->value->type, c->value->shape);
    }
    /* what comes out belongs to what went in; sums are built in the next straight region, so
     * `before` moves on there */
    struct region *next =
        region_new(g, intern_format("%s.gathered", stem), PHASE_MICRO, ONCE, 1, "");
    *before =
        (struct build){.graph = g, .region = next, .body = body_new(next, ""), .base = "d_first"};
    /* what a carry begins with may be read in the loop under another name too */
    for (int i = 0; i < outside.value.n; i++) outside.value.item[i]->note = held[i];
    for (int i = 0; i < carries; i++)
        gradient_add(before, forward->carry.item[which[i]].first, r->carry.item[i].last);
    for (int i = 0; i < outside.value.n; i++)
        gradient_add(before, outside.value.item[i], r->carry.item[carries + i].last);
}

static const char *stem_of(const char *name)
{
    const char *dot = strstr(name, ".forward");
    return dot ? intern_bytes(name, (size_t)(dot - name)) : name;
}

static void drop_balances(struct graph *g)
{
    for (int i = 0; i < g->region.n; i++)
        for (int k = 0; k < g->region.item[i]->body.n; k++) {
            struct body *b = g->region.item[i]->body.item[k];
            int n = 0;
            for (int j = 0; j < b->node.n; j++)
                if (b->node.item[j]->op != OP_balance) b->node.item[n++] = b->node.item[j];
            b->node.n = n;
        }
}

static void drop_empty(struct graph *g)
{
    int n = 0;
    for (int i = 0; i < g->region.n; i++) {
        struct region *r = g->region.item[i];
        if (r->direction != ONCE || r->body.item[0]->node.n) g->region.item[n++] = r;
    }
    g->region.n = n;
}

struct graph *pass_gradient(const struct graph *old)
{
    struct graph *g = graph_begin(old, LEVEL_GRADIENT);
    for (int i = 0; i < old->region.n; i++) region_copy(g, old->region.item[i]);
    mark_gradients(g);
    for (struct node_walk at = {0}; next_node(g, &at);)
        for (int o = 0; o < at.node->n_out; o++) at.node->out[o]->note = NULL;

    int turn = g->region.n - 1;
    struct region *last = g->region.item[turn];
    struct value *loss = NULL;
    for (int i = 0; last->direction == ONCE && i < last->body.item[0]->node.n; i++) {
        const struct node *n = last->body.item[0]->node.item[i];
        if (n->op == OP_metric && !strcmp(attr_get_word(n, "name"), "loss")) loss = n->in[0].value;
    }
    if (!loss || !loss->mark) bug("the last region trains no loss");
    struct build b = {.graph = g, .region = last, .body = last->body.item[0], .base = "d_loss"};
    int forward_nodes = b.body->node.n;
    struct build at = b;
    at.file = last->body.item[0]->node.item[forward_nodes - 1]->file,
    at.line = last->body.item[0]->node.item[forward_nodes - 1]->line;
    gradient_add(&at, loss,
                 filled(&at, loss->shape,
                        1.0 / (double)(g->facts.accumulation * g->facts.fsdp * g->facts.dp)));
    reverse_nodes(&b, b.body, forward_nodes);
    collect_weights(&b, false);
    last->name = stem_of(last->name);

    struct build before = b;
    for (int i = turn - 1; i >= 0; i--) {
        struct region *r = g->region.item[i];
        if (r->phase != PHASE_MICRO) continue;
        if (r->direction == ONCE) {
            reverse_once(g, r, stem_of(r->name));
            before = (struct build){.graph = g,
                                    .region = g->region.item[g->region.n - 1],
                                    .body = g->region.item[g->region.n - 1]->body.item[0],
                                    .base = "d_first"};
        } else {
            reverse_loop(g, &before, r, stem_of(r->name));
        }
    }
    drop_balances(g);
    graph_sweep(g);
    drop_empty(g);
    return g;
}
