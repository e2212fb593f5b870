/* What another trainer keeps and reserves; see trainer.h. Sizes are read off the lowered graph, so
 * they hold for every family; only habits come from the plan. */
#include "analysis/trainer.h"

#include "base/escape.h"
#include "passes/pipeline.h"

#include <string.h>

/* ── what selective checkpointing keeps ──────────────────────────────────────── */

static int place_of(const struct body *b, const struct node *n)
{
    int i = 0;
    while (b->node.item[i] != n) i++;
    return i;
}

/* Whether a product is a router's: top_k chooses among what comes of it. */
static bool is_router(const struct body *b, const struct node *product)
{
    for (int i = 0; i < b->node.n; i++) b->node.item[i]->mark = 0;
    b->node.item[place_of(b, product)]->mark = 1;
    for (int i = 0; i < b->node.n; i++) {
        struct node *n = b->node.item[i];
        if (n != product && (n->op == OP_matmul || n->op == OP_expert_matmul ||
                             n->op == OP_attention || n->op == OP_dispatch))
            continue;
        for (int k = 0; k < n->n_in && !n->mark; k++)
            n->mark = n->in[k].value && n->in[k].value->node && n->in[k].value->node->mark;
        if (n->mark && n->op == OP_top_k) return true;
    }
    return false;
}

/* Every second product in the order of calls, the first of them kept; routers do not count. */
static bool is_kept_product(const struct body *b, const struct node *n)
{
    int before = 0;
    if (n->op != OP_matmul || is_router(b, n)) return false;
    for (int i = 0; i < b->node.n && b->node.item[i] != n; i++)
        before += b->node.item[i]->op == OP_matmul && !is_router(b, b->node.item[i]);
    return before % 2 == 0;
}

static bool is_layers(const struct region *r)
{
    return r->phase == PHASE_MICRO && r->direction == UP;
}

void trainer_save(const struct plan *plan, struct graph *g)
{
    struct text t = {0};
    if (!plan->trainer.name || plan->trainer.save != TRAINER_SAVE_SECOND ||
        g->facts.checkpoint_mode != CHECKPOINT_SELECTIVE)
        return;
    text_add(&t, "attention routing");
    for (int r = 0; r < g->region.n; r++)
        for (int k = 0; is_layers(g->region.item[r]) && k < g->region.item[r]->body.n; k++) {
            const struct body *b = g->region.item[r]->body.item[k];
            for (int n = 0; n < b->node.n; n++)
                if (is_kept_product(b, b->node.item[n]))
                    text_add(&t, " %s/%s#%d", g->region.item[r]->loop, b->name, n);
        }
    g->facts.checkpoint_save = intern(t.bytes);
}

/* ── what layers keep ────────────────────────────────────────────────────────── */

static int64_t bytes_of(const struct value *v)
{
    return shape_count(v->shape) * element_bytes(v->type);
}

/* What a value's bytes belong to: views and casts to F32 have none of their own here. */
static struct value *owner(struct value *v)
{
    while (v->node && (op_rows[v->node->op].class == CLASS_VIEW ||
                       (v->node->op == OP_cast && v->type == F32 && v->node->in[0].value &&
                        v->node->in[0].value->type == BF16)))
        v = v->node->in[0].value;
    return v;
}

enum { IN_BODY = 1, KEPT_VALUE = 2 };

/* Values of the body only: no weight, table or carry, which others hold. */
static void keep(struct value *v, const struct body *b)
{
    v = owner(v);
    if (!v->node || v->weight) return;
    for (int i = 0; i < b->node.n; i++)
        if (b->node.item[i] == v->node) {
            v->mark |= KEPT_VALUE;
            return;
        }
}

static bool is_product(enum op op)
{
    return op == OP_matmul || op == OP_expert_matmul || op == OP_attention;
}

/* Whether a gradient reads the operands: not of sums, nor of factors that are constants. */
static bool reads_operands(const struct node *n)
{
    enum op_class class = op_rows[n->op].class;
    if (class != CLASS_MAP && class != CLASS_ROW) return false;
    if (n->op == OP_cast || n->op == OP_add || n->op == OP_sub || n->op == OP_sum_last ||
        n->op == OP_top_k)
        return false;
    for (int k = 0; k < n->n_in && n->n_in > 1; k++)
        if (!n->in[k].value || n->in[k].value->mark == 0) return false;
    return true;
}

/* Whether maps alone lead to the value from what is kept: a compiler does these again. */
static bool comes_of_kept(const struct value *v)
{
    if (!v->node || v->weight || v->mark & KEPT_VALUE || !(v->mark & IN_BODY)) return true;
    if (op_rows[v->node->op].class == CLASS_CORE || v->node->op == OP_top_k) return false;
    for (int k = 0; k < v->node->n_in; k++)
        if (v->node->in[k].value && !comes_of_kept(v->node->in[k].value)) return false;
    return true;
}

/* Of a body under mode none: what gradients read, in the compute type. */
static int64_t kept_by_none(const struct body *b, bool compile)
{
    int64_t all = 0;
    for (int i = 0; i < b->node.n; i++)
        for (int o = 0; o < b->node.item[i]->n_out; o++) b->node.item[i]->out[o]->mark = IN_BODY;
    for (int i = 0; i < b->node.n; i++) {
        struct node *n = b->node.item[i];
        for (int k = 0; is_product(n->op) && k < n->n_in; k++)
            if (n->in[k].value && !n->in[k].value->weight) keep(n->in[k].value, b);
        for (int o = 0; n->op == OP_attention && o < n->n_out; o++) keep(n->out[o], b);
    }
    for (int i = 0; i < b->node.n; i++) {
        struct node *n = b->node.item[i];
        for (int k = 0; reads_operands(n) && k < n->n_in; k++) {
            struct value *v = n->in[k].value ? owner(n->in[k].value) : NULL;
            if (!v || v->type == F32) continue;
            if (!compile || !comes_of_kept(v)) keep(v, b);
        }
    }
    for (int i = 0; i < b->node.n; i++)
        for (int o = 0; o < b->node.item[i]->n_out; o++)
            if (b->node.item[i]->out[o]->mark & KEPT_VALUE)
                all += bytes_of(b->node.item[i]->out[o]);
    return all;
}

/* Of a body under mode selective by the trainer's rule, or by the plan's list. */
static int64_t kept_by_rule(const struct plan *p, const struct body *b)
{
    int64_t all = 0;
    bool second = p->trainer.save == TRAINER_SAVE_SECOND;
    for (int i = 0; i < b->node.n; i++) {
        const struct node *n = b->node.item[i];
        const char *word = op_rows[n->op].name, *at = b->save ? strstr(b->save, word) : NULL;
        bool listed = at && (at == b->save || at[-1] == ' ') && strchr(" ", at[strlen(word)]);
        bool kept = n->op == OP_attention ? second || listed
                    : second              ? is_kept_product(b, n)
                                          : listed && is_product(n->op);
        for (int o = 0; kept && o < n->n_out; o++) all += bytes_of(n->out[o]);
    }
    return all;
}

struct kept_sum {
    int64_t saved, layers, again; /* again: the largest layer's, what is not kept */
};

static struct kept_sum kept_by_layers(const struct plan *p, const struct graph *lowered)
{
    struct kept_sum sum = {0};
    const struct graph *g = pass_split(lowered);
    for (int r = 0; r < g->region.n; r++) {
        const struct region *region = g->region.item[r];
        for (int k = 0; is_layers(region) && k < region->body.n; k++) {
            const struct body *b = region->body.item[k];
            int64_t layers = b->layers.n ? 0 : region->count, carried = 0;
            for (int i = 0; i < b->layers.n; i++)
                layers += b->layers.item[i].to - b->layers.item[i].from;
            for (int c = 0; c < region->carry.n; c++)
                carried += bytes_of(region->carry.item[c].value);
            int64_t all = kept_by_none(b, p->trainer.compile);
            int64_t kept = b->keep == CHECKPOINT_FULL        ? 0
                           : b->keep == CHECKPOINT_SELECTIVE ? kept_by_rule(p, b)
                                                             : all;
            sum.saved += layers * (carried + kept);
            sum.layers += layers;
            if (all - kept > sum.again) sum.again = all - kept;
        }
    }
    return sum;
}

/* ── what the allocator reserves ─────────────────────────────────────────────── */

/* Elements of the logits, and of a row of what goes into them. */
static void read_head(const struct graph *g, int64_t *logits, int64_t *hidden)
{
    *logits = *hidden = 0;
    for (int r = 0; r < g->region.n; r++)
        for (int k = 0; g->region.item[r]->direction == ONCE && k < g->region.item[r]->body.n; k++)
            for (int i = 0; i < g->region.item[r]->body.item[k]->node.n; i++) {
                const struct node *n = g->region.item[r]->body.item[k]->node.item[i];
                if (n->op != OP_matmul || shape_count(n->out[0]->shape) <= *logits) continue;
                *logits = shape_count(n->out[0]->shape);
                *hidden = shape_columns(n->in[0].value->shape);
            }
}

struct trainer_memory trainer_memory(const struct plan *p, const struct graph *g, int64_t limit)
{
    const struct other_trainer *t = &p->trainer;
    const struct kept_sum kept = kept_by_layers(p, g);
    int64_t parameters = 0, ends = 0, layer = 0, logits, hidden;
    for (int u = 0; u < g->unit.n; u++) {
        int64_t elements = 0;
        for (int w = 0; w < g->weight.n; w++)
            if (!strcmp(g->weight.item[w]->unit, g->unit.item[u]->name))
                elements += shape_count(weight_shape(g->weight.item[w]));
        parameters += elements * g->unit.item[u]->count;
        int64_t *largest = g->unit.item[u]->loop[0] ? &layer : &ends;
        if (elements > *largest) *largest = elements;
    }
    read_head(g, &logits, &hidden);
    const double s = (double)p->fsdp, P = (double)parameters, E = (double)ends, U = (double)layer,
                 chunks = (double)p->loss_chunks,
                 c = chunks > 1 ? t->logit_kept_bytes + t->logit_bytes / chunks : t->logit_bytes,
                 loss = c * (double)logits, again = (double)kept.again,
                 live = (double)kept.saved + (loss > again ? loss : again) +
                        8 * (double)hidden * (double)(p->local * p->sequence);
    bool step = t->gradients == TRAINER_GRADIENTS_STEP;
    struct trainer_memory m = {0};
    m.state = (int64_t)(12 * P / s);
    m.activations = (int64_t)((1 + t->fragmentation) * live);
    m.units = (int64_t)(2 * E + 4 * U);
    m.reduce = (int64_t)(4 * P / s + 4 * (E > U ? E : U));
    /* the last layer stays gathered between forward and backward beside the head, or is one of two
     * that are in flight, or all are there */
    m.gather = (int64_t)(t->reshard == TRAINER_RESHARD_NEVER    ? 2 * P
                         : t->reshard == TRAINER_RESHARD_ALWAYS ? 2 * (E > 2 * U ? E : 2 * U)
                                                                : 2 * E + 2 * U);
    const double forward = 12 * P / s + (step ? 4 * P / s : 0) + 2 * E + 4 * U +
                           (t->reshard == TRAINER_RESHARD_NEVER ? 2 * P : 0),
                 end = 16 * P / s + 8 * E + 4 * E / s,
                 most = forward + live > end ? forward + live : end,
                 pooled =
                     forward + (double)m.activations > end ? forward + (double)m.activations : end;
    m.allocated = (int64_t)most;
    m.reserved =
        t->streams ? m.state + m.activations + m.units + m.reduce + m.gather : (int64_t)pooled;
    const int64_t full = limit / 100 * 97;
    if (m.reserved > full && m.allocated <= full) m.reserved = full;
    m.saved_per_token = kept.layers ? kept.saved / kept.layers / (p->local * p->sequence) : 0;
    return m;
}

/* ── the answer ──────────────────────────────────────────────────────────────── */

void trainer_print(const char *path, const struct plan *p, const struct trainer_memory *m,
                   int64_t limit)
{
    const char *what = p->trainer.compile ? ", compiled" : "";
    printf("%s: %s, %.1f %% of what a device offers (%s), by %s%s\n", path,
           verdict_names[ledger_verdict(m->reserved, limit)],
           100 * (double)m->reserved / (double)limit, ledger_device(p), p->trainer.name, what);
    printf("  reserved    %s  (its allocator, without context and NCCL)\n",
           text_bytes(m->reserved));
    printf("  allocated   %s  (at once)\n  limit       %s\n", text_bytes(m->allocated),
           text_bytes(limit));
    printf("    %12s  weights and moments / %lld shards\n", text_bytes(m->state),
           (long long)p->fsdp);
    printf("    %12s  activations: %s B a token and layer kept, and the loss\n",
           text_bytes(m->activations), text_count(m->saved_per_token));
    printf("    %12s  units at work\n", text_bytes(m->units));
    printf("    %12s  gradients' shard and reductions\n", text_bytes(m->reduce));
    printf("    %12s  gathers\n", text_bytes(m->gather));
}

json_t *trainer_json(const char *path, const struct plan *p, const struct trainer_memory *m,
                     int64_t limit)
{
    return json_pack("{s:s, s:s, s:b, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "plan",
                     utf8_text(path), "trainer", p->trainer.name, "compile", p->trainer.compile,
                     "verdict", verdict_names[ledger_verdict(m->reserved, limit)], "reserved_bytes",
                     (json_int_t)m->reserved, "allocated_bytes", (json_int_t)m->allocated,
                     "limit_bytes", (json_int_t)limit, "state_bytes", (json_int_t)m->state,
                     "activation_bytes", (json_int_t)m->activations, "unit_bytes",
                     (json_int_t)m->units, "reduce_bytes", (json_int_t)m->reduce, "gather_bytes",
                     (json_int_t)m->gather, "saved_bytes_per_token",
                     (json_int_t)m->saved_per_token);
}
