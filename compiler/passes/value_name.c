/* A value that another kernel reads gets a name for what it is:
 *   q_proj_out            the result of a kernel
 *   attn_norm_normalized  what a norm multiplies by its gain;  attn_norm_rstd: 1 / its deviation
 *   o_residual            the residual stream after the layer's result is added
 *   q_proj_grad_output    the gradient that the gradient of q_proj begins with
 *   q_proj_grad_input     the one that it gives back;  grad.wq: that of a weight
 *   layers_in, layers_out what an iteration of a loop is given, and what the last one leaves
 * Values that never leave their kernel keep the names that their expression gave them. */
#include "passes/value_name.h"

#include "passes/kernel_name.h"
#include "passes/name.h"

#include <string.h>

enum { NOT_READ, READ_OUTSIDE };

/* The value whose bytes `v` is, behind views. */
static struct value *whole(struct value *v)
{
    while (v->node && op_rows[v->node->op].class == CLASS_VIEW && v->node->op != OP_part)
        v = v->node->in[0].value;
    return v;
}

static const struct kernel *kernel_of(const struct graph *g, const struct node *n)
{
    return &g->kernel.item[n->kernel - 1];
}

/* mark: whether another kernel reads it; note: the first product in a gradient whose operand it is,
 * if it is a gradient itself. */
static void note_readers(struct graph *g)
{
    for (struct node_walk at = {0}; next_node(g, &at);)
        for (int o = 0; o < at.node->n_out; o++)
            at.node->out[o]->mark = NOT_READ, at.node->out[o]->note = NULL;
    for (struct node_walk at = {0}; next_node(g, &at);)
        for (int i = 0; i < at.node->n_in; i++) {
            if (!at.node->in[i].value || op_rows[at.node->op].class == CLASS_VIEW) continue;
            struct value *v = whole(at.node->in[i].value);
            if (!v->node || (at.node->kernel && v->node->kernel == at.node->kernel)) continue;
            v->mark = READ_OUTSIDE;
            if (!v->note && op_is_product(at.node->op) && node_is_gradient(at.node) &&
                node_is_gradient(v->node))
                v->note = at.node;
        }
    for (int i = 0; i < g->region.n; i++) {
        const struct region *r = g->region.item[i];
        for (int c = 0; c < r->carry.n; c++) whole(r->carry.item[c].first)->mark = READ_OUTSIDE;
        for (int k = 0; k < r->body.n; k++) {
            const struct body *b = r->body.item[k];
            for (int c = 0; c < b->next.n; c++) whole(b->next.item[c])->mark = READ_OUTSIDE;
            for (int y = 0; y < b->gradient.n; y++)
                whole(b->gradient.item[y].value)->mark = READ_OUTSIDE;
        }
    }
}

/* ── results of one op ───────────────────────────────────────────────────────── */
static const char *core_result(const char *kernel, const struct node *n, int result)
{
    static const char *const attention[] = {"out", "lse"}, *const grad[] = {"q", "k", "v", "sums"},
                             *const plan[] = {"place", "first"};
    const char *role = "out";
    if (n->op == OP_attention) role = attention[result];
    if (n->op == OP_attention_grad) role = grad[result];
    if (n->op == OP_route_plan) role = plan[result];
    if (op_is_product(n->op) && node_is_gradient(n)) return kernel;
    return text_format("%s_%s", kernel, role);
}

/* ── results of fused kernels ────────────────────────────────────────────────── */
/* The node behind the casts of one kernel. */
static const struct node *uncast(const struct node *n)
{
    while (n->op == OP_cast && n->in[0].value->node && n->in[0].value->node->kernel == n->kernel)
        n = n->in[0].value->node;
    return n;
}

/* The gain that a norm's result was multiplied with, before or after its bias was added. */
static const struct weight *gain_of(const struct node *n)
{
    if (n->op == OP_add && node_weight(n))
        for (int x = 0; x < 2; x++) {
            const struct node *other = value_maker(n->in[x].value);
            if (other && other->kernel == n->kernel && other->op == OP_mul) return gain_of(other);
        }
    if (n->op != OP_mul) return NULL;
    const struct weight *w = node_weight(n);
    return w && w->value->shape.rank == 1 ? w : NULL;
}

/* The gain that multiplies `v` in its own kernel. */
static const struct weight *gain_ahead(const struct body *b, const struct value *v)
{
    for (int i = 0; i < b->node.n; i++) {
        const struct node *n = b->node.item[i];
        if (n->kernel != v->node->kernel || n->op != OP_mul || !gain_of(n)) continue;
        for (int x = 0; x < 2; x++)
            if (n->in[x].value && value_maker(n->in[x].value) == uncast(v->node)) return gain_of(n);
    }
    return NULL;
}

/* The layer whose result a value is, with its bias added or without. */
static const struct weight *layer_of(const struct value *v)
{
    const struct node *n = value_maker(v);
    if (n && n->op == OP_add && node_weight(n))
        for (int x = 0; x < 2; x++)
            if (!value_weight(n->in[x].value)) return value_layer(n->in[x].value);
    return value_layer(v);
}

/* "o_residual": the sum of a stream and the result of layer o. NULL: it is none. */
static const char *residual(const struct node *n, const struct value *v)
{
    if (n->op != OP_add || !n->in[0].value || !n->in[1].value) return NULL;
    for (int x = 0; x < 2; x++) {
        const struct value *stream = n->in[x].value;
        const struct weight *layer = layer_of(n->in[1 - x].value);
        bool same = name_of_value(stream) == name_of_value(v);
        if (value_weight(stream) || layer_of(stream) || !same) continue;
        return layer ? text_format("%s_residual", name_of_weight(layer)) : "residual";
    }
    return NULL;
}

static bool rotates(const struct body *b, int kernel)
{
    for (int i = 0; i < b->node.n; i++)
        if (b->node.item[i]->kernel == kernel && b->node.item[i]->op == OP_rotate) return true;
    return false;
}

/* A number per row of a kernel over rows and columns. */
static bool is_statistic(const struct kernel *k, const struct value *v)
{
    return k->columns > 1 && shape_count(v->shape) <= k->rows;
}

static int full_results(const struct body *b, const struct kernel *k)
{
    int n = 0;
    for (int i = 0; i < b->node.n; i++)
        for (int o = 0; o < b->node.item[i]->n_out && b->node.item[i]->kernel == k->number; o++)
            n += b->node.item[i]->out[o]->mark == READ_OUTSIDE &&
                 !is_statistic(k, b->node.item[i]->out[o]);
    return n;
}

static const char *gradient_result(const struct graph *g, const char *kernel, const struct value *v)
{
    const struct node *reader = v->note;
    if (!reader) return text_format("%s_input", kernel);
    const char *product = kernel_of(g, reader)->name, *end = strstr(product, "_grad");
    return end ? text_format("%.*s_grad_output", (int)(end - product), product) : product;
}

static const char *fused_result(const struct graph *g, const struct body *b, const struct value *v)
{
    const struct node *n = uncast(v->node);
    const struct kernel *k = kernel_of(g, n);
    enum op_class class = op_rows[n->op].class;
    const char *of = b->name[0] ? text_format("%s_", b->name) : "";
    if (shape_count(v->shape) == 1 || class == CLASS_COLUMN || class == CLASS_TOTAL)
        return name_stem(v->name);
    if (is_statistic(k, v))
        return text_format("%s_%s", k->name,
                           n->op == OP_rsqrt           ? "rstd"
                           : node_is_gradient(v->node) ? "for_grad"
                                                       : op_rows[n->op].name);
    if (node_is_gradient(v->node) && !v->node->again) return gradient_result(g, k->name, v);
    const char *stream = residual(n, v);
    const struct weight *gain = gain_of(n), *ahead = gain_ahead(b, v);
    if (gain) return text_format("%s%s_out", of, name_of_weight(gain));
    if (ahead) return text_format("%s%s_normalized", of, name_of_weight(ahead));
    if (rotates(b, k->number)) return text_format("%s%s_rope", of, name_of_value(v));
    if (stream) return text_format("%s%s", of, stream);
    return full_results(b, k) == 1 ? text_format("%s_out", k->name)
                                   : text_format("%s_%s", k->name, name_of_value(v));
}

/* ── all of them ─────────────────────────────────────────────────────────────── */
/* NULL: it keeps its name. */
static const char *result_name(const struct graph *g, const struct node_walk *at, int result)
{
    const struct value *v = at->node->out[result];
    enum op_class class = op_rows[at->node->op].class;
    if (at->region->phase == PHASE_SETUP) return NULL;
    if (class == CLASS_LANE)
        return text_format("%s_%s", name_cleaned(at->region->name), name_stem(v->name));
    if (!at->node->kernel || (v->mark == NOT_READ && class != CLASS_CORE)) return NULL;
    const char *kernel = kernel_of(g, at->node)->name;
    if (at->region->phase == PHASE_UPDATE) return kernel;
    const struct weight *w = gradient_weight(g, at->body, v);
    if (w) return text_format("grad.%s", w->value->name);
    return class == CLASS_CORE ? core_result(kernel, at->node, result)
                               : fused_result(g, at->body, v);
}

/* "layers_in", "layers_backward_out"; with several carries their stems follow. */
static const char *carry_name(const struct region *r, int carry, const char *end)
{
    static const char forward[] = ".forward";
    size_t n = strlen(r->name), cut = sizeof forward - 1;
    if (n > cut && !strcmp(r->name + n - cut, forward)) n -= cut;
    const char *of = name_cleaned(text_format("%.*s", (int)n, r->name));
    return r->carry.n == 1
               ? text_format("%s_%s", of, end)
               : text_format("%s_%s_%s", of, end, name_of_value(r->carry.item[carry].value));
}

struct renamed {
    struct value *value;
    const char *name; /* NULL: as before */
};
struct renames {
    VECTOR(struct renamed) item;
};

static void rename_later(struct renames *to, struct value *v, const char *name)
{
    PUSH(&to->item, ((struct renamed){v, name}));
}

static void collect(struct renames *all, const struct graph *g, const struct region *r)
{
    for (int c = 0; c < r->carry.n; c++) {
        rename_later(all, r->carry.item[c].value, carry_name(r, c, "in"));
        rename_later(all, r->carry.item[c].last, carry_name(r, c, "out"));
    }
    for (struct node_walk at = {0}; next_node_of_region(r, &at);)
        for (int o = 0; o < at.node->n_out; o++)
            rename_later(all, at.node->out[o], result_name(g, &at, o));
}

void values_name(struct graph *g)
{
    struct renames all = {0};
    note_readers(g);
    for (int i = 0; i < g->region.n; i++) collect(&all, g, g->region.item[i]);
    names_clear(g);
    for (int i = 0; i < g->input.n; i++) name_keep(g, g->input.item[i]->name);
    for (int i = 0; i < g->weight.n; i++) name_keep(g, g->weight.item[i]->value->name);
    /* values in memory get the plain names, others a number after them */
    for (int i = 0; i < all.item.n; i++)
        if (all.item.item[i].name)
            all.item.item[i].value->name = fresh_name(g, all.item.item[i].name);
    for (int i = 0; i < all.item.n; i++)
        if (!all.item.item[i].name)
            all.item.item[i].value->name = name_keep(g, all.item.item[i].value->name);
}
