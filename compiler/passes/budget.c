/* Decides what the forward pass keeps within a number of bytes. Candidates are the values that mode
 * none would keep, each in each layer. Computing one again costs the FLOPs of the nodes between it
 * and the kept values; keeping it costs its bytes. They are ordered by FLOPs per byte, all layers
 * of a value together, and the longest prefix of that order whose peak fits is kept: a list for all
 * layers, and one more value in the first few. The peak comes from a complete layout of every
 * prefix that is tried.
 *
 * Method: the greedy rule for the knapsack problem. If costs were additive and the peak a sum, it
 * would be optimal except for the one value of one layer that no longer fits. They nearly are: a
 * chain shared by two values is counted twice, and bytes that others need at another step are free.
 *
 * Monotone: the order does not depend on the budget, so a larger budget keeps a longer prefix. */
#include "ir/cost.h"
#include "passes/pipeline.h"
#include "passes/budget.h"

#include <stdlib.h>
#include <string.h>

struct candidate {
    const char *word;
    double flops;
    int64_t bytes;
    int order;
};
struct choice {
    VECTOR(struct candidate) kept;
    int64_t layers;
};

static struct graph *compiled(const struct plan *p, enum level level)
{
    struct graph *g = pass_lower(p);
    return g ? pipeline_run(g, level) : NULL;
}

/* FLOPs of the nodes of a body that make `v` out of what is kept (mark 1) or comes from outside. */
static double cost_again(const struct body *b, const struct value *v, bool first)
{
    const struct node *n = v->node;
    double flops, bytes, all = 0;
    bool here = false;
    for (int i = 0; i < b->node.n; i++) here |= b->node.item[i] == n;
    if (!n || !here || (!first && v->mark)) return 0;
    op_cost(n, &flops, &bytes);
    all += flops;
    for (int i = 0; i < n->n_in; i++)
        if (n->in[i].value) all += cost_again(b, n->in[i].value, false);
    return all;
}

static bool mirrored(const struct graph *g, const struct region *r)
{
    for (int i = 0; i < g->region.n; i++)
        if (g->region.item[i]->mirror && !strcmp(g->region.item[i]->mirror, r->name)) return true;
    return false;
}

/* Whether the mirror of `r` reads a value of that name. */
static bool read_back(const struct graph *g, const struct region *r, const char *name)
{
    for (int i = 0; i < g->region.n; i++) {
        const struct region *m = g->region.item[i];
        for (int k = 0; m->mirror && !strcmp(m->mirror, r->name) && k < m->body.n; k++)
            for (int n = 0; n < m->body.item[k]->node.n; n++)
                for (int a = 0; a < m->body.item[k]->node.item[n]->n_in; a++) {
                    const struct value *v = m->body.item[k]->node.item[n]->in[a].value;
                    if (v && !strcmp(v->name, name)) return true;
                }
    }
    return false;
}

static int dearer_first(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    double left = x->flops * (double)y->bytes, right = y->flops * (double)x->bytes;
    return left > right ? -1 : left < right ? 1 : x->order - y->order;
}

/* Nodes are numbered in the text before recompute; what mode none keeps is what the mirror reads in
 * the text after it. */
static bool find_candidates(const struct plan *p, struct choice *c)
{
    struct plan none = *p;
    none.checkpoint_mode = CHECKPOINT_NONE;
    struct graph *before = compiled(&none, LEVEL_OPTIMIZER);
    if (!before) return false;
    struct graph *behind = pass_recompute(before);
    for (int i = 0; i < before->region.n; i++) {
        const struct region *r = before->region.item[i];
        if (r->direction == ONCE || !mirrored(before, r)) continue;
        if (r->count > c->layers) c->layers = r->count;
        for (int k = 0; k < r->body.n; k++) {
            const struct body *b = r->body.item[k];
            /* first what is kept, then what each of it costs */
            for (int pass = 0; pass < 2; pass++)
                for (int n = 0; n < b->node.n; n++) {
                    const struct node *node = b->node.item[n];
                    struct candidate one = {.order = c->kept.n,
                                            .word = intern_format("%s/%s#%d", r->loop, b->name, n)};
                    bool kept = false;
                    for (int o = 0; o < node->n_out; o++) {
                        bool here = read_back(behind, r, node->out[o]->name);
                        if (!pass) node->out[o]->mark = here;
                        if (!here || !pass) continue;
                        kept = true;
                        one.bytes +=
                            shape_count(node->out[o]->shape) * element_bytes(node->out[o]->type);
                    }
                    if (!kept || node->op == OP_top_k) continue; /* choices are always kept */
                    one.flops = cost_again(b, node->out[0], true);
                    PUSH(&c->kept, one);
                }
        }
    }
    qsort(c->kept.item, (size_t)c->kept.n, sizeof *c->kept.item, dearer_first);
    return true;
}

static const char *first_words(const struct choice *c, int n)
{
    struct text t = {0};
    text_add(&t, "%s", "");
    for (int i = 0; i < n; i++) text_add(&t, "%s%s", i ? " " : "", c->kept.item[i].word);
    return intern(t.bytes);
}

/* The plan that keeps the first `length` pairs of value and layer. */
static void keep_first(struct plan *p, const struct choice *c, int64_t length)
{
    int whole = (int)(length / c->layers);
    int64_t some = length % c->layers;
    p->checkpoint_mode = CHECKPOINT_SELECTIVE;
    p->checkpoint_every = 1;
    p->checkpoint_layers = some ? intern_format("0..%lld", (long long)some) : "";
    p->checkpoint_save = first_words(c, whole + (some > 0));
    p->checkpoint_rest = some ? CHECKPOINT_SELECTIVE : CHECKPOINT_NONE;
    p->checkpoint_rest_save = some ? first_words(c, whole) : "";
}

/* What a pass says while a plan is tried goes with the memory that it lies in. */
static int64_t peak_of(const struct plan *p, const struct choice *c, int64_t length)
{
    struct arena_mark mark = arena_mark();
    struct diagnostics_mark said = diagnostics_mark();
    struct plan at = *p;
    keep_first(&at, c, length);
    struct graph *g = compiled(&at, LEVEL_MEMORY);
    int64_t bytes = g ? g->local_bytes + g->wire_bytes + cost_outside_bytes(g, p) : INT64_MAX;
    diagnostics_drop(said);
    arena_reset(mark);
    return bytes;
}

/* With few layers, computing again may take more than keeping; what fits as it is stays so. */
static bool none_fits(const struct plan *p, int64_t budget)
{
    struct arena_mark mark = arena_mark();
    struct diagnostics_mark said = diagnostics_mark();
    struct plan none = *p;
    none.checkpoint_mode = CHECKPOINT_NONE;
    struct graph *g = compiled(&none, LEVEL_MEMORY);
    bool fits = g && g->local_bytes + g->wire_bytes + cost_outside_bytes(g, p) <= budget;
    diagnostics_drop(said);
    arena_reset(mark);
    return fits;
}

bool budget_decide(struct plan *p)
{
    if (p->checkpoint_mode != CHECKPOINT_BUDGET) return true;
    struct choice c = {0};
    int64_t budget =
        p->checkpoint_budget ? p->checkpoint_budget : p->cluster.memory_bytes / 100 * 92;
    if (!budget) {
        add_help(complain(p->at.checkpoint,
                          "cluster %s does not say what memory a device has, so there is no budget",
                          p->cluster.name),
                 "budget = 4GiB");
        return false;
    }
    if (none_fits(p, budget)) {
        p->checkpoint_mode = CHECKPOINT_NONE;
        return true;
    }
    if (!find_candidates(p, &c)) return false;
    if (!c.layers) { /* no loop, nothing that is kept for one */
        p->checkpoint_mode = CHECKPOINT_NONE;
        return true;
    }
    int64_t low = 0, high = c.kept.n * c.layers, least = peak_of(p, &c, 0);
    if (least > budget) {
        struct diagnostic *d =
            complain(p->at.budget,
                     "a budget of %s cannot be kept: with everything computed again the peak is %s",
                     text_bytes(budget), text_bytes(least));
        add_help(d,
                 "a smaller batch.local, more batch.loss_chunks, or a larger mesh.fsdp takes less");
        return false;
    }
    while (low < high) { /* the longest beginning that fits */
        int64_t middle = low + (high - low + 1) / 2;
        if (peak_of(p, &c, middle) <= budget)
            low = middle;
        else
            high = middle - 1;
    }
    keep_first(p, &c, low);
    return true;
}
