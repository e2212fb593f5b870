/* Decides what modes auto and budget keep. Auto compares the FLOPs of two modes. Budget decides
 * what the forward pass keeps within a number of bytes. Candidates are the values that mode none
 * would keep, each in each layer. Computing one again costs the FLOPs of the nodes between it and
 * the kept values; keeping it costs its bytes. They are ordered by FLOPs per byte, all layers of a
 * value together, and the longest prefix of that order whose peak fits is kept: a list for all
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
#include "passes/layout.h"

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

/* Of one body: which of its values the backward pass reads, marked, then what each of them costs.
 */
static void body_candidates(const struct graph *behind, const struct region *r,
                            const struct body *b, struct choice *c)
{
    for (int n = 0; n < b->node.n; n++)
        for (int o = 0; o < b->node.item[n]->n_out; o++) {
            struct value *v = b->node.item[n]->out[o];
            v->mark = read_back(behind, r, v->name);
        }
    for (int n = 0; n < b->node.n; n++) {
        const struct node *node = b->node.item[n];
        struct candidate one = {.order = c->kept.n,
                                .word = intern_format("%s/%s#%d", r->loop, b->name, n)};
        bool kept = false;
        for (int o = 0; o < node->n_out; o++) {
            const struct value *v = node->out[o];
            kept |= v->mark != 0;
            if (v->mark) one.bytes += shape_count(v->shape) * element_bytes(v->type);
        }
        if (!kept || node->op == OP_top_k) continue; /* choices are always kept */
        one.flops = cost_again(b, node->out[0], true);
        PUSH(&c->kept, one);
    }
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
        for (int k = 0; k < r->body.n; k++) body_candidates(behind, r, r->body.item[k], c);
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

static const char default_save[] = "attention matmul routing";

/* FLOPs of a token, recomputation included; 0: the architecture is refused. */
static double flops_of(const struct plan *p, enum checkpoint_mode mode)
{
    struct plan at = *p;
    at.checkpoint_mode = mode;
    at.checkpoint_save = mode == CHECKPOINT_SELECTIVE ? default_save : "";
    struct graph *g = compiled(&at, LEVEL_RECOMPUTE);
    return g ? cost_flops_per_token(g).hardware : 0;
}

/* Mode auto: whether selective, with the list that it has by default, computes no product again in
 * this plan. Then it takes no time worth speaking of, and memory of everything else that products
 * read is saved. It depends on the model alone. False also when the architecture is refused. */
static bool selective_is_free(const struct plan *p)
{
    struct arena_mark mark = arena_mark();
    struct diagnostics_mark said = diagnostics_mark();
    struct plan at = *p;
    at.loss_chunks = at.accumulation = 1;
    double none = flops_of(&at, CHECKPOINT_NONE), selective = flops_of(&at, CHECKPOINT_SELECTIVE);
    diagnostics_drop(said);
    arena_reset(mark);
    return none > 0 && selective <= none * 1.0005;
}

/* A plan of mode auto becomes one of mode selective or none. */
static void decide_auto(struct plan *p)
{
    bool selective = !p->trainer.name && selective_is_free(p);
    p->checkpoint_mode = selective ? CHECKPOINT_SELECTIVE : CHECKPOINT_NONE;
    p->checkpoint_save = selective ? default_save : "";
}

/* The next power of two above `chunks` that divides the tokens of a micro-batch: pieces of the loss
 * where a plan does not say how many. 0: none up to 128. */
static int64_t next_loss_chunks(const struct plan *p, int64_t chunks)
{
    enum { MOST_CHUNKS = 128 };
    int64_t tokens = p->local * p->sequence;
    for (int64_t n = 2; n <= MOST_CHUNKS; n *= 2)
        if (n > chunks && tokens % n == 0) return n;
    return 0;
}

/* Whether bytes that are alive at once, with those outside the arena, are more than what the plan's
 * cluster says that a device offers. False when it does not say. */
static bool exceeds_device(const struct plan *p, int64_t bytes)
{
    return p->cluster.memory_bytes && (double)bytes > 0.97 * (double)p->cluster.memory_bytes;
}

/* What is alive at once, with the loss in so many pieces; INT64_MAX: it cannot be cut. */
static int64_t live_in_chunks(const struct plan *p, int64_t chunks)
{
    struct arena_mark mark = arena_mark();
    struct diagnostics_mark said = diagnostics_mark();
    struct plan at = *p;
    int step;
    at.loss_chunks = chunks;
    struct graph *g = compiled(&at, LEVEL_MEMORY);
    int64_t bytes = g ? layout_bound(g, &step) + cost_outside_bytes(g, &at) : INT64_MAX;
    diagnostics_drop(said);
    arena_reset(mark);
    return bytes;
}

static void decide_chunks(struct plan *p)
{
    int64_t most = 1;
    p->loss_chunks = 1;
    if (!p->cluster.memory_bytes || p->trainer.name || !exceeds_device(p, live_in_chunks(p, 1)))
        return;
    for (int64_t n = 1; (n = next_loss_chunks(p, n));) most = n;
    if (most == 1 || exceeds_device(p, live_in_chunks(p, most))) return; /* they do not help */
    for (int64_t n = 1; (n = next_loss_chunks(p, n));)
        if (n == most || !exceeds_device(p, live_in_chunks(p, n))) {
            p->loss_chunks = n;
            return;
        }
}

/* The longest beginning of what is kept that fits; -1: nothing does. */
static int64_t longest(const struct plan *p, const struct choice *c, int64_t budget, int64_t *least)
{
    int64_t low = 0, high = c->kept.n * c->layers;
    *least = peak_of(p, c, 0);
    if (*least > budget) return -1;
    while (low < high) {
        int64_t middle = low + (high - low + 1) / 2;
        if (peak_of(p, c, middle) <= budget)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

/* Everything is kept: as it is, or with the loss in pieces where the plan leaves them open. */
static bool keep_all(struct plan *p, int64_t budget)
{
    int64_t most = p->loss_chunks;
    bool fits = none_fits(p, budget);
    if (!fits && !p->chunks_wished) {
        struct plan at = *p;
        for (int64_t n = 1; (n = next_loss_chunks(p, n));) most = n;
        at.loss_chunks = most;
        fits = most > 1 && none_fits(&at, budget);
        for (int64_t n = 1; fits && (n = next_loss_chunks(p, n));) {
            at.loss_chunks = p->loss_chunks = n;
            if (n == most || none_fits(&at, budget)) break;
        }
    }
    if (fits) p->checkpoint_mode = CHECKPOINT_NONE;
    return fits;
}

static bool decide_budget(struct plan *p)
{
    enum { FEW_CHUNKS = 8 }; /* they take most of the room of logits away */
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
    if (!p->chunks_wished) p->loss_chunks = 1;
    if (keep_all(p, budget)) return true;
    if (!find_candidates(p, &c)) return false;
    if (!c.layers) { /* no loop, nothing that is kept for one */
        p->checkpoint_mode = CHECKPOINT_NONE;
        return true;
    }
    int64_t least, length = longest(p, &c, budget, &least), few = 0;
    for (int64_t n = 1; !p->chunks_wished && (n = next_loss_chunks(p, n)) && n <= FEW_CHUNKS;)
        few = n;
    if (few) {
        struct plan at = *p;
        int64_t least_cut, cut;
        at.loss_chunks = few;
        cut = longest(&at, &c, budget, &least_cut);
        if (least_cut < least) least = least_cut;
        if (cut > length) length = cut, p->loss_chunks = few;
    }
    if (length < 0) {
        struct diagnostic *d =
            complain(p->at.budget,
                     "a budget of %s cannot be kept: with everything computed again the peak is %s",
                     text_bytes(budget), text_bytes(least));
        add_help(d,
                 "a smaller batch.local, more batch.loss_chunks, or a larger mesh.fsdp takes less");
        return false;
    }
    keep_first(p, &c, length);
    return true;
}

bool budget_decide(struct plan *p)
{
    if (p->checkpoint_mode == CHECKPOINT_BUDGET) return decide_budget(p);
    /* what another trainer keeps is not decided here */
    if (p->checkpoint_mode == CHECKPOINT_AUTO) decide_auto(p);
    if (!p->loss_chunks) decide_chunks(p);
    return true;
}
