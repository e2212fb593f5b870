/* Needs: lowered bodies.
 * Gives: on cuda, one product for two of the same input. Their weights, of one shape, become one
 *   weight with the rows of both: those of the second behind those of the first, in each expert if
 *   there are experts. Each keeps its stored tensors, which only the tables of the trainer know
 * from here on (struct weight, `beside`). The two results are the halves of a row of the product.
 * Loses: nothing.
 *
 * The input is read once, its gradient is one product over the rows of both weights, and nothing
 * adds two gradients. For gate and up of an expert layer that saves writing one gradient of the
 * dispatched rows, and reading two and writing one to add them. The sums of that gradient are over
 * both weights in one order, which changes its last bits: so cuda only.
 *
 * A pair is left alone where a slice of a row would cost more than the product saves: if a result
 * is read by anything but an elementwise op. So query, key and value stay three products: attention
 * wants each without gaps between its rows, and their gradients come from different kernels. */
#include "ir/ir.h"
#include "passes/pipeline.h"

#include "passes/name.h"

static bool is_product(const struct node *n)
{
    return n->n_in > 1 && n->in[1].value && n->in[1].value->weight &&
           ((n->op == OP_matmul && !attr_get(n, "ta") && attr_get(n, "tb")) ||
            (n->op == OP_expert_matmul && !attr_get(n, "ta")));
}

/* Of `v`: readers, a carry's next value counted as one, and those that are elementwise. */
struct readers {
    int all, maps;
};

static struct readers readers_of(const struct graph *g, const struct value *v)
{
    struct readers n = {0};
    for (struct node_walk at = {0}; next_node(g, &at);)
        for (int i = 0; i < at.node->n_in; i++) {
            if (at.node->in[i].value != v) continue;
            n.all++;
            n.maps += op_rows[at.node->op].class == CLASS_MAP &&
                      shape_same(at.node->out[0]->shape, v->shape);
        }
    for (int i = 0; i < g->region.n; i++) {
        const struct region *r = g->region.item[i];
        for (int k = 0; k < r->carry.n; k++) {
            n.all += r->carry.item[k].first == v;
            for (int b = 0; b < r->body.n; b++) n.all += r->body.item[b]->next.item[k] == v;
        }
    }
    return n;
}

/* Nothing but elementwise ops read the result, nothing else reads the weight, and the plan does not
 * ask to keep the result by its name. */
static bool is_free(const struct graph *g, const struct node *n)
{
    struct readers result = readers_of(g, n->out[0]);
    const struct facts *f = &g->facts;
    return result.all > 0 && result.all == result.maps && readers_of(g, n->in[1].value).all == 1 &&
           shape_columns(n->out[0]->shape) > 1 &&
           !save_lists_value(f->checkpoint_save, n->out[0]) &&
           !save_lists_value(f->checkpoint_rest_save, n->out[0]);
}

static bool are_alike(const struct node *a, const struct node *b)
{
    const struct weight *x = a->in[1].value->weight, *y = b->in[1].value->weight;
    return a->op == b->op && a->in[0].value == b->in[0].value &&
           (a->n_in < 3 || a->in[2].value == b->in[2].value) &&
           a->out[0]->type == b->out[0]->type && x != y &&
           shape_same(x->value->shape, y->value->shape) && x->stack == y->stack &&
           x->unit == y->unit && x->init == y->init && !(x->std < y->std) && !(x->std > y->std);
}

/* node->note: the other product of a pair; NULL: it has none. */
static void find_pairs(const struct graph *g, struct body *b)
{
    for (int i = 0; i < b->node.n; i++) b->node.item[i]->note = NULL;
    for (int i = 0; i < b->node.n && g->facts.device == DEVICE_CUDA && !g->facts.apart; i++) {
        struct node *n = b->node.item[i];
        if (n->note || !is_product(n) || !is_free(g, n)) continue;
        for (int k = i + 1; k < b->node.n && !n->note; k++) {
            struct node *other = b->node.item[k];
            if (other->note || !is_product(other) || !are_alike(n, other) || !is_free(g, other))
                continue;
            n->note = other, other->note = n;
        }
    }
}

/* The axis of its rows. */
static int rows_axis(const struct weight *w) { return w->value->shape.rank - 2; }

/* In g, whose weights are copies of those of the old graph: the first weight of a pair has the rows
 * of both, the second is gone. */
static void join_weights(struct graph *g, const struct weight *first, const struct weight *second)
{
    struct weight *w = copied(first->value)->weight;
    w->beside = second->tensor;
    w->value->shape.dim[rows_axis(first)] *= 2;
    w->value->name =
        fresh_name(g, intern_format("w_%s_%s", name_of_weight(first), name_of_weight(second)));
    int n = 0;
    for (int i = 0; i < g->weight.n; i++)
        if (g->weight.item[i]->value != copied(second->value))
            g->weight.item[n++] = g->weight.item[i];
    g->weight.n = n;
}

/* Half `half` of the product that stands for `old`, under the name of its result. */
static void half_of(struct build *b, const struct node *old, struct value *both, int half)
{
    int64_t width = shape_columns(old->out[0]->shape);
    const char *why = NULL;
    b->file = old->file, b->line = old->line, b->base = old->out[0]->name;
    struct node *n = build_node(
        b, OP_slice, (struct operand[]){by(both)}, 1,
        (struct attr[]){attr_whole("from", half * width), attr_whole("to", (half + 1) * width)}, 2,
        &why);
    if (!n) bug("slice: %s", why);
    n->out[0]->name = old->out[0]->name;
    copied_as(old->out[0], n->out[0]);
}

/* `old` is the first of its pair: the product of both, and both halves. */
static void product_of_both(struct build *b, const struct node *old)
{
    const struct node *other = old->note;
    const char *why = NULL;
    struct operand in[3];
    for (int i = 0; i < old->n_in; i++) in[i] = by(copied(old->in[i].value));
    b->file = old->file, b->line = old->line;
    b->base = intern_format("%s_%s", name_stem(old->out[0]->name), name_stem(other->out[0]->name));
    if (name_stem(old->out[0]->name) == name_stem(other->out[0]->name))
        b->base = name_stem(old->out[0]->name);
    struct node *n = build_node(b, old->op, in, old->n_in, old->attr, old->n_attr, &why);
    if (!n) bug("%s: %s", op_rows[old->op].name, why);
    half_of(b, old, n->out[0], 0);
    half_of(b, other, n->out[0], 1);
}

static bool comes_before(const struct body *b, const struct node *n, const struct node *other)
{
    for (int i = 0; i < b->node.n; i++)
        if (b->node.item[i] == n || b->node.item[i] == other) return b->node.item[i] == n;
    return false;
}

struct graph *pass_join(const struct graph *old)
{
    struct graph *g = graph_begin(old, LEVEL_JOIN);
    for (int i = 0; i < old->region.n; i++)
        for (int k = 0; k < old->region.item[i]->body.n; k++) {
            struct body *b = old->region.item[i]->body.item[k];
            find_pairs(old, b);
            for (int n = 0; n < b->node.n; n++) {
                const struct node *node = b->node.item[n], *other = node->note;
                if (other && comes_before(b, node, other))
                    join_weights(g, node->in[1].value->weight, other->in[1].value->weight);
            }
        }
    for (int i = 0; i < old->region.n; i++) {
        const struct region *from = old->region.item[i];
        struct region *r = region_begin(g, from);
        for (int k = 0; k < from->body.n; k++) {
            const struct body *was = from->body.item[k];
            struct body *body = body_begin(r, was);
            struct build b = {.graph = g, .region = r, .body = body};
            for (int n = 0; n < was->node.n; n++) {
                const struct node *node = was->node.item[n];
                if (!node->note)
                    node_copy(&b, node);
                else if (comes_before(was, node, node->note))
                    product_of_both(&b, node);
            }
            body_end(body, was);
        }
        region_end(g, r, from);
    }
    return g;
}
