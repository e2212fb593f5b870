/* Counts that people compare between trainers: parameters, and FLOPs by the usual conventions. They
 * come from the ops that will run, not from a formula of a family, so a new architecture needs no
 * code here, and a number that differs from a published one points at an op that is superfluous or
 * missing. */
#include "ir/cost.h"

static int64_t iterations(const struct region *r, const struct body *b)
{
    int64_t n = b->layers.n ? 0 : r->count;
    for (int i = 0; i < b->layers.n; i++) n += b->layers.item[i].to - b->layers.item[i].from;
    return n;
}

static bool multiplies(enum cost_class class)
{
    switch (class) {
    case COST_GEMM:
    case COST_GROUPED_GEMM:
    case COST_ATTENTION:
    case COST_ATTENTION_GRAD: return true;
    case COST_NONE:
    case COST_MAP:
    case COST_ROW:
    case COST_COLUMN:
    case COST_TOTAL:
    case COST_MOVE:
    case COST_UPDATE: return false;
    }
    bug("cost class %d", (int)class);
}

static void add(struct flops *all, const struct node *n, double times)
{
    if (!multiplies(op_rows[n->op].cost)) return;
    struct op_flops flops = op_flops(n);
    all->hardware += flops.model * times;
    if (n->again) return;
    all->full += flops.model * times;
    all->causal += flops.causal * times;
}

struct flops cost_flops_per_token(const struct graph *g)
{
    struct flops all = {0};
    for (struct node_walk at = {0}; next_node(g, &at);)
        if (at.region->phase == PHASE_MICRO)
            add(&all, at.node, (double)iterations(at.region, at.body));
    double tokens = (double)g->facts.tokens;
    return (struct flops){all.full / tokens, all.causal / tokens, all.hardware / tokens};
}

int cost_pairs(const struct graph *g, struct pair_flops pair[COST_PAIRS], double *others)
{
    int n = 0;
    double tokens = (double)g->facts.tokens, sequence = (double)g->facts.sequence;
    *others = cost_flops_per_token(g).full;
    for (struct node_walk at = {0}; next_node(g, &at);) {
        const struct node *node = at.node;
        if ((node->op != OP_attention && node->op != OP_attention_grad) || node->again) continue;
        int64_t window = attention_rule(node).window;
        double keys = window > 0 ? (double)window : sequence,
               all = op_flops(node).model * (double)iterations(at.region, at.body);
        int k = 0;
        while (k < n && pair[k].window != window) k++;
        if (k == COST_PAIRS) continue; /* stays among the others, as if documents were packed */
        if (k == n) pair[n++] = (struct pair_flops){.window = window};
        pair[k].flops += all / (tokens * keys);
        *others -= all / tokens;
    }
    return n;
}

static bool outranks(enum cost_class a, enum cost_class b)
{
    static const int rank[COST_CLASSES] = {
        [COST_MAP] = 1, [COST_ROW] = 2, [COST_COLUMN] = 3, [COST_TOTAL] = 4, [COST_UPDATE] = 5};
    bool core = a != COST_NONE && !rank[a];
    return core || rank[a] > rank[b];
}

enum cost_class *cost_of_kernels(const struct graph *g)
{
    enum cost_class *class = TAKE_MANY(enum cost_class, g->kernel.n + 1);
    for (int i = 0; i < g->region.n; i++)
        for (int b = 0; b < g->region.item[i]->body.n; b++) {
            const struct body *body = g->region.item[i]->body.item[b];
            for (int k = 0; k < body->node.n; k++) {
                const struct node *n = body->node.item[k];
                enum cost_class *all = &class[n->kernel];
                if (n->kernel && outranks(op_rows[n->op].cost, *all)) *all = op_rows[n->op].cost;
            }
        }
    return class;
}

/* The first axis of what an expert product multiplies by lies over the experts; a token has k of
 * them: so says the top_k of that body. */
static bool is_experts(const struct body *b, const struct weight *w, int64_t *k)
{
    bool multiplies = false;
    *k = 0;
    for (int i = 0; i < b->node.n; i++) {
        const struct node *n = b->node.item[i];
        if (n->op == OP_top_k) *k = attr_get(n, "k");
        multiplies |= n->op == OP_expert_matmul && n->in[1].value->weight == w;
    }
    return multiplies && *k;
}

static int64_t active_elements(const struct graph *g, const struct weight *w, int64_t elements)
{
    int64_t k;
    for (int i = 0; i < g->region.n; i++)
        for (int b = 0; b < g->region.item[i]->body.n; b++)
            if (is_experts(g->region.item[i]->body.item[b], w, &k))
                return elements / w->value->shape.dim[0] * k;
    return elements;
}

int64_t cost_parameters(const struct graph *g)
{
    int64_t all = 0;
    for (int i = 0; i < g->weight.n; i++)
        all += graph_unit(g, g->weight.item[i]->unit)->count *
               shape_count(weight_shape(g->weight.item[i]));
    return all;
}

int64_t cost_active_parameters(const struct graph *g)
{
    int64_t all = 0;
    for (int i = 0; i < g->weight.n; i++) {
        const struct weight *w = g->weight.item[i];
        all += graph_unit(g, w->unit)->count * active_elements(g, w, shape_count(weight_shape(w)));
    }
    return all;
}

int64_t cost_copy_bytes_of(int64_t elements, const struct plan *p, int64_t sharers)
{
    if (!p->saving.given || !p->saving.async) return 0;
    return 3 * 4 * ((elements + sharers - 1) / sharers);
}

int64_t cost_copy_bytes(const struct graph *g, const struct plan *p)
{
    const struct buffer *master = graph_buffer(g, "state.master");
    return master ? cost_copy_bytes_of(master->bytes / 4, p, p->optimizer_all ? 1 : p->dp) : 0;
}

int64_t cost_outside_bytes(const struct graph *g, const struct plan *p)
{
    return p->cluster.outside_bytes + (p->device == DEVICE_CPU ? cost_copy_bytes(g, p) : 0);
}
