/* Checks everything that a graph promises, after every pass and for every text read in: a value is
 * used only where it is visible, types and shapes are those that its op derives, carries close
 * their loops, and a field belongs to a pass that has run. So a pass that breaks a promise is found
 * at once, not three passes later in generated code. */
#include "ir/ir.h"

#include <string.h>

struct home {
    const struct region *region;
    int region_at;
    const struct body *body;
    int body_at, order;
    bool carry, last;
};

static void live_at(struct value *v, struct home h)
{
    struct home *place = TAKE(struct home);
    *place = h;
    v->note = place;
}

/* Why `v` cannot be read in region number `region_at`, body number `body_at`, before node `order`;
 * NULL when it can. */
static const char *unseen(const struct graph *g, const struct value *v, int region_at, int body_at,
                          int order)
{
    const struct home *h = v->note;
    const struct region *here = g->region.item[region_at];
    if (!h) return text_format("%s is used in %s but nothing makes it", v->name, here->name);
    if (!h->region) return NULL; /* an input or a weight */
    if (h->last)
        return h->region_at < region_at
                   ? NULL
                   : text_format("%s is used in %s before its loop has ended", v->name, here->name);
    if (h->region_at == region_at) {
        if (h->carry) return NULL;
        if (h->body_at != body_at)
            return text_format("%s belongs to another body of %s", v->name, here->name);
        return h->order < order
                   ? NULL
                   : text_format("%s is used in %s before it is made", v->name, here->name);
    }
    if (h->region_at > region_at)
        return text_format("%s is used in %s before it is made", v->name, here->name);
    if (h->region->direction == ONCE) return NULL;
    if (!here->mirror || strcmp(here->mirror, h->region->name))
        return text_format("%s, made inside the loop %s, is used in %s", v->name, h->region->name,
                           here->name);
    if (!h->carry && h->body_at != body_at)
        return text_format("%s belongs to another variant of %s", v->name, h->region->name);
    return NULL;
}

static const char *check_node(const struct graph *g, const struct node *n, int region_at,
                              int body_at, int order)
{
    enum element type[4];
    struct shape shape[4];
    const char *why = NULL, *name = op_rows[n->op].name;
    for (int i = 0; i < n->n_in; i++)
        if (n->in[i].value && (why = unseen(g, n->in[i].value, region_at, body_at, order)))
            return why;
    if (!op_infer(n->op, n->in, n->n_in, n->attr, n->n_attr, type, shape, &why))
        return text_format("%s: %s", name, why);
    for (int i = 0; i < n->n_out; i++)
        if (n->out[i]->type != type[i] || !shape_same(n->out[i]->shape, shape[i]))
            return text_format("%s: result %s is %s, not %s", name, n->out[i]->name,
                               shape_text(n->out[i]->shape), shape_text(shape[i]));
    if (n->again && g->level < LEVEL_RECOMPUTE)
        return text_format("%s is computed again before the recompute pass", name);
    if (n->kernel && g->level < LEVEL_FUSE)
        return text_format("%s has a kernel before the fuse pass", name);
    if ((n->lane || n->step) && g->level < LEVEL_SCHEDULE)
        return text_format("%s is scheduled before the schedule pass", name);
    enum op_class class = op_rows[n->op].class;
    bool computes =
        class != CLASS_VIEW && class != CLASS_LEAF && class != CLASS_LANE && n->op != OP_tap;
    if (g->level >= LEVEL_FUSE && computes && (!n->kernel || !graph_kernel(g, n->kernel)))
        return text_format("%s belongs to no kernel", n->n_out ? n->out[0]->name : name);
    if (g->level >= LEVEL_SCHEDULE && class != CLASS_VIEW && class != CLASS_LEAF && !n->step)
        return text_format("%s has no step", name);
    return NULL;
}

static const char *check_body(const struct graph *g, int region_at, int body_at)
{
    const struct region *r = g->region.item[region_at];
    const struct body *b = r->body.item[body_at];
    const char *why;
    int kernel = 0;
    VECTOR(int) closed = {0};
    for (int i = 0; i < b->node.n; i++) {
        const struct node *n = b->node.item[i];
        if ((why = check_node(g, n, region_at, body_at, i))) return why;
        for (int k = 0; k < n->n_out; k++) {
            if (n->out[k]->note) return text_format("%s is made twice", n->out[k]->name);
            live_at(n->out[k], (struct home){.region = r,
                                             .region_at = region_at,
                                             .body = b,
                                             .body_at = body_at,
                                             .order = i});
        }
        if (n->kernel && n->kernel != kernel) {
            for (int k = 0; k < closed.n; k++)
                if (closed.item[k] == n->kernel)
                    return text_format("kernel %d is torn apart in %s", n->kernel, r->name);
            kernel = n->kernel;
            PUSH(&closed, kernel);
        }
    }
    int reduced = 0; /* gradients lie in the slot when it is reduced */
    while (reduced < b->node.n && b->node.item[reduced]->op != OP_reduce) reduced++;
    for (int i = 0; i < b->gradient.n; i++)
        if ((why = unseen(g, b->gradient.item[i].value, region_at, body_at, reduced))) return why;
    if (b->next.n != r->carry.n)
        return text_format("%s has %d carries and %d next values", r->name, r->carry.n, b->next.n);
    for (int i = 0; i < b->next.n; i++) {
        const struct value *v = b->next.item[i], *c = r->carry.item[i].value;
        if ((why = unseen(g, v, region_at, body_at, b->node.n))) return why;
        if (v->type != c->type || !shape_same(v->shape, c->shape))
            return text_format("%s carries %s%s but is handed %s%s", r->name, c->name,
                               shape_text(c->shape), v->name, shape_text(v->shape));
    }
    return NULL;
}

/* Values' notes are scratch: empty before and after. */
static void forget(const struct graph *g)
{
    for (int i = 0; i < g->input.n; i++) g->input.item[i]->note = NULL;
    for (int i = 0; i < g->weight.n; i++) g->weight.item[i]->value->note = NULL;
    for (int i = 0; i < g->region.n; i++) {
        const struct region *r = g->region.item[i];
        for (int k = 0; k < r->carry.n; k++)
            r->carry.item[k].value->note = r->carry.item[k].last->note = NULL;
        for (struct node_walk at = {0}; next_node_of_region(r, &at);)
            for (int o = 0; o < at.node->n_out; o++) at.node->out[o]->note = NULL;
    }
}

/* Kernels' names become names of C functions and records. */
static const char *check_kernel_names(const struct graph *g)
{
    for (int i = 0; i < g->kernel.n; i++) {
        const char *name = g->kernel.item[i].name;
        if (!name[0] || name[strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                          "0123456789_")])
            return text_format("kernel %d is named %s, which is no identifier", i + 1, name);
        for (int k = 0; k < i; k++)
            if (!strcmp(g->kernel.item[k].name, name))
                return text_format("kernels %d and %d are both named %s", k + 1, i + 1, name);
    }
    return NULL;
}

static const char *check_graph(const struct graph *g)
{
    const char *why;
    for (int i = 0; i < g->input.n; i++) live_at(g->input.item[i], (struct home){0});
    for (int i = 0; i < g->weight.n; i++) {
        const struct weight *w = g->weight.item[i];
        live_at(w->value, (struct home){0});
        if (!graph_unit(g, w->unit))
            return text_format("weight %s belongs to no unit", w->value->name);
    }
    for (int i = 0; i < g->region.n; i++) {
        struct region *r = g->region.item[i];
        if (!r->body.n) return text_format("region %s has no body", r->name);
        if (r->direction == ONCE && (r->count != 1 || r->carry.n || r->body.n != 1))
            return text_format("region %s runs once and is written as a loop", r->name);
        if (r->within && !graph_region(g, r->within))
            return text_format("region %s is within nothing", r->name);
        if (r->mirror && !graph_region(g, r->mirror))
            return text_format("region %s mirrors nothing", r->name);
        for (int k = 0; k < r->carry.n; k++) {
            const struct carry *c = &r->carry.item[k];
            if ((why = unseen(g, c->first, i, 0, 0))) return why;
            if (c->first->type != c->value->type || !shape_same(c->first->shape, c->value->shape))
                return text_format("%s starts as %s of another shape", c->value->name,
                                   c->first->name);
            live_at(c->value, (struct home){.region = r, .region_at = i, .carry = true});
        }
        for (int k = 0; k < r->body.n; k++)
            if ((why = check_body(g, i, k))) return why;
        for (int k = 0; k < r->carry.n; k++)
            live_at(r->carry.item[k].last,
                    (struct home){.region = r, .region_at = i, .last = true});
    }
    if ((why = check_kernel_names(g))) return why;
    if (g->level < LEVEL_FUSE && g->kernel.n) return "kernels before the fuse pass";
    if (g->level < LEVEL_MEMORY && g->buffer.n) return "buffers before the memory pass";
    return NULL;
}

const char *ir_check(const struct graph *g)
{
    forget(g);
    const char *why = check_graph(g);
    forget(g);
    return why;
}

void ir_verify(const struct graph *g)
{
    const char *why = ir_check(g);
    if (why) bug("after pass %s: %s", level_names[g->level], why);
}
