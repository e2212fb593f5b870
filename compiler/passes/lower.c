/* From a plan to the IR: interprets the architecture of the plan's model, entry by entry, with its
 * hyper-parameters. Needs a checked plan. Gives the forward graph at LEVEL_LOWER: a region of
 * straight code before, between and after the repeats, one rolled region for each repeat, the loss
 * and the other metrics as effects of the last one. Later diagnostics find the text through file
 * and line of every node. A family is a file of the language; no name of a family occurs here. */
#include "passes/lower.h"
#include "passes/pipeline.h"
#include "passes/layers.h"

#include <stdlib.h>

#include "passes/kernel_tile.h"

static void bind(struct lower *l, const char *name, struct meaning m, struct span at)
{
    struct binding *b = lower_find(l, name);
    if (!b) {
        PUSH(&l->name, ((struct binding){.name = name, .at = at}));
        b = &l->name.item[l->name.n - 1];
    }
    b->means = m;
    b->latest = at;
    b->assigned = true;
}

/* Why `name` cannot be assigned, said; false when it can. */
static bool refuse_name(struct lower *l, const struct ast *path)
{
    const char *name = path->text;
    if (path->kind == AST_PATH) {
        complain(path->at, "'%s' belongs to the plan; an architecture assigns plain names", name);
        return true;
    }
    const struct hyper *h = lower_hyper(l, name);
    if (h) {
        struct diagnostic *d =
            complain(path->at, "'%s' is a hyper-parameter and keeps its value", name);
        add_note(d, h->at, "%s is %s", name, constant_text(&h->value));
        return true;
    }
    static const char *const fixed[] = {"tokens", "targets", "positions", "i", "on", "off"};
    for (size_t i = 0; i < COUNT_OF(fixed); i++)
        if (!strcmp(fixed[i], name)) {
            complain(path->at, "'%s' has its meaning already", name);
            return true;
        }
    const struct binding *b = lower_find(l, name);
    if (b && b->means.kind == MEANS_VALUE && b->means.value->weight) {
        struct diagnostic *d = complain(path->at, "'%s' is a weight and stays one", name);
        add_note(d, b->at, "declared here");
        return true;
    }
    return false;
}

static void entry(struct lower *l, const struct ast *x)
{
    const struct ast *path = x->kid[0];
    if (refuse_name(l, path)) return;
    l->b.base = path->text;
    struct meaning m = lower_expression(l, x->kid[1]);
    l->b.base = NULL;
    bind(l, path->text, m, path->at);
}

static void require(struct lower *l, const struct ast *head)
{
    if (head->n < 2 || head->n > 3 || (head->n == 3 && head->kid[2]->kind != AST_STRING)) {
        add_help(complain(head->at, "require is a condition and a reason"),
                 "require (heads %% kv_heads == 0) \"why\"");
        return;
    }
    bool ok, holds = lower_condition(l, head->kid[1], &ok);
    if (!ok || holds) return;
    struct diagnostic *d = complain(head->kid[1]->at, "%s",
                                    head->n == 3 ? head->kid[2]->text
                                                 : "the architecture's requirement does not hold");
    lower_trace(l, d, head->kid[1]);
}

static void metrics(struct lower *l, const struct ast *block)
{
    if (l->in_repeat || l->metrics) {
        struct diagnostic *d =
            complain(block->kid[0]->at,
                     l->in_repeat ? "metrics are said outside a repeat" : "metrics are said twice");
        if (l->metrics) add_note(d, l->metrics_at, "the first time");
        return;
    }
    l->metrics = block->kid[1];
    l->metrics_at = block->kid[0]->at;
}

static bool take_when(struct lower *l, const struct ast *head)
{
    bool ok;
    if (head->n == 2) return lower_condition(l, head->kid[1], &ok);
    add_help(complain(head->at, "when takes one condition"), "when (cond) { … }");
    return false;
}

static void block(struct lower *l, const struct ast *x)
{
    const struct ast *head = x->kid[0];
    const char *word = head->kid[0]->text;
    if (!strcmp(word, "hyper") || !strcmp(word, "stored")) return; /* the checker's */
    if (!strcmp(word, "repeat"))
        lower_repeat(l, x);
    else if (!strcmp(word, "metrics"))
        metrics(l, x);
    else if (!strcmp(word, "when")) {
        if (take_when(l, head)) lower_items(l, x->kid[1]);
    } else {
        static const char *const known[] = {"repeat", "when", "metrics", "hyper", "stored"};
        struct diagnostic *d =
            complain(head->kid[0]->at, "an architecture has no block '%s'", word);
        const char *near = nearest_name(word, known, (int)COUNT_OF(known));
        if (near)
            add_help(d, "did you mean '%s'?", near);
        else if (!strcmp(word, "for") || !strcmp(word, "while"))
            add_help(d, "repeat layers \"model.layers.{i}\" { … }");
        else if (!strcmp(word, "if"))
            add_help(d, "when (cond) { … }");
    }
}

void lower_items(struct lower *l, const struct ast *items)
{
    for (int i = 0; i < items->n; i++) {
        const struct ast *x = items->kid[i];
        if (x->kind == AST_ENTRY)
            entry(l, x);
        else if (x->kind == AST_BLOCK)
            block(l, x);
        else if (!strcmp(x->kid[0]->kid[0]->text, "require"))
            require(l, x->kid[0]);
        else {
            struct diagnostic *d =
                complain(x->at, "'%s' says nothing in an architecture", x->kid[0]->kid[0]->text);
            add_help(d, "there are entries (name = …), require, when, repeat and metrics");
        }
    }
}

/* ── regions of straight code ────────────────────────────────────────────────── */
void lower_straight(struct lower *l, const char *name)
{
    l->b.region = region_new(l->g, text_format("%s.forward", name), PHASE_MICRO, ONCE, 1, "");
    l->b.body = body_new(l->b.region, "");
    l->unit = intern(name);
    l->prefix = "";
}

/* What was taken for the epilogue lies between two repeats. */
void lower_straight_again(struct lower *l)
{
    const char *name = "between";
    for (int k = 2; graph_region(l->g, text_format("%s.forward", name)); k++)
        name = text_format("between%d", k);
    l->b.region->name = intern_format("%s.forward", name);
    struct unit *u = graph_unit(l->g, l->unit);
    for (int i = 0; u && i < l->g->weight.n; i++)
        if (l->g->weight.item[i]->unit == u->name) l->g->weight.item[i]->unit = intern(name);
    if (u) u->name = intern(name);
}

/* Straight code in which nothing was said leaves no region. */
static void drop_empty(struct graph *g)
{
    int kept = 0;
    for (int i = 0; i < g->region.n; i++) {
        const struct region *r = g->region.item[i];
        if (r->direction == ONCE && !r->body.item[0]->node.n) continue;
        g->region.item[kept++] = g->region.item[i];
    }
    g->region.n = kept;
}

/* ── the loss and what is reported beside it ─────────────────────────────────── */
static bool report(struct lower *l, const char *name, const struct meaning *m, struct span at,
                   bool one_number)
{
    if (m->kind == MEANS_NOTHING) return false;
    if (m->kind != MEANS_VALUE || m->value->type == I32 || m->value->weight ||
        (one_number && shape_count(m->value->shape) != 1)) {
        complain(at, "%s must be %s, not %s", name,
                 one_number ? "one number that the trainer computes"
                            : "a value that the trainer computes",
                 lower_kind(m));
        return false;
    }
    lower_place(l, at);
    layer_metric(&l->b, name, m->value);
    return true;
}

static void report_items(struct lower *l, const struct ast *items)
{
    for (int i = 0; i < items->n; i++) {
        const struct ast *x = items->kid[i], *head = x->kid[0];
        if (x->kind == AST_BLOCK && !strcmp(head->kid[0]->text, "when")) {
            if (take_when(l, head)) report_items(l, x->kid[1]);
            continue;
        }
        const struct ast *name = x->kind == AST_ENTRY                 ? head
                                 : x->kind == AST_SAY && head->n == 1 ? head->kid[0]
                                                                      : NULL;
        if (!name || name->kind != AST_NAME) {
            add_help(complain(x->at, "metrics are names, or names with a value"),
                     "metrics { ce;  load = chosen / assigned }");
            continue;
        }
        if (!strcmp(name->text, "loss")) {
            complain(name->at, "the loss is reported as it is");
            continue;
        }
        l->b.base = name->text;
        struct meaning m = lower_expression(l, x->kind == AST_ENTRY ? x->kid[1] : name);
        l->b.base = NULL;
        report(l, name->text, &m, name->at, false);
    }
}

static void report_all(struct lower *l)
{
    struct binding *loss = lower_find(l, "loss");
    if (!loss) {
        const struct binding *gone = NULL;
        for (int i = 0; i < l->gone.n; i++)
            if (!strcmp(l->gone.item[i].name, "loss")) gone = &l->gone.item[i];
        struct diagnostic *d =
            complain(l->plan->model_at,
                     "the architecture %s assigns no 'loss', so there is nothing to train",
                     l->plan->architecture);
        if (gone) add_note(d, gone->latest, "this one is local to a repeat");
        return;
    }
    report(l, "loss", &loss->means, loss->latest, true);
    if (l->metrics) report_items(l, l->metrics);
}

/* ── entry point ─────────────────────────────────────────────────────────── */
struct facts lower_facts(const struct plan *p)
{
    return (struct facts){
        .sequence = p->sequence,
        .local = p->local,
        .tokens = p->local * p->sequence,
        .accumulation = p->accumulation,
        .fsdp = p->fsdp,
        .dp = p->dp,
        .parts = p->optimizer_all ? p->dp : 1,
        .prefetch = p->prefetch,
        .reduce_slots = p->reduce_slots,
        .loss_chunks = p->loss_chunks ? p->loss_chunks : 1,
        .reshard = p->reshard,
        /* mode auto is decided before (budget.h); a plan that only its model is asked of keeps all
         */
        .checkpoint_mode =
            p->checkpoint_mode == CHECKPOINT_AUTO ? CHECKPOINT_NONE : p->checkpoint_mode,
        .checkpoint_every = p->checkpoint_every,
        .checkpoint_layers = p->checkpoint_layers,
        .checkpoint_save = p->checkpoint_save,
        .checkpoint_rest = p->checkpoint_rest,
        .checkpoint_rest_save = p->checkpoint_rest_save,
        .compute = p->compute,
        .device = p->device,
        .attention_library = plan_attention(p) == ATTENTION_CUDNN,
        .experts = plan_experts(p),
        .wgmma = p->device == DEVICE_CUDA && has_wgmma(p->arch, p->n_arch),
        .shared_bytes = p->device == DEVICE_CUDA ? shared_bytes_of(p->arch, p->n_arch) : 0,
        .multiprocessors = p->device == DEVICE_CUDA ? p->cluster.multiprocessors : 0,
        .fuse = true,
        .apart = p->trainer.name != NULL,
        .has_ignore = p->has_ignore,
        .ignore = p->ignore,
        .beta1 = p->beta1,
        .beta2 = p->beta2,
        .eps = p->eps,
        .clip = p->clip,
        .group_rates = plan_scales_rates(p),
    };
}

static struct graph *graph_of(const struct plan *p)
{
    struct graph *g = TAKE(struct graph);
    g->level = LEVEL_LOWER;
    g->facts = lower_facts(p);
    struct shape rows = shape_of(1, &g->facts.tokens);
    PUSH(&g->input, value_new(g, "tokens", I32, rows));
    PUSH(&g->input, value_new(g, "targets", I32, rows));
    if (p->separate) PUSH(&g->input, value_new(g, "starts", I32, rows));
    return g;
}

/* ── what activation_checkpoint names has to be there ────────────────────────── */
/* A value's name in the architecture: without the number after one that is given again. */
static const char *stem_of(const char *name)
{
    size_t n = strlen(name), end = n;
    while (end > 0 && name[end - 1] >= '0' && name[end - 1] <= '9') end--;
    return end < n && end > 1 && name[end - 1] == '.' ? intern_bytes(name, end - 1) : name;
}

static const char *const kind[] = {"attention", "matmul", "expert_matmul",
                                   "routing",   "top_k",  "load"};

static bool kept_exists(const struct graph *g, const char *word)
{
    for (size_t i = 0; i < COUNT_OF(kind); i++)
        if (!strcmp(word, kind[i])) return true;
    for (struct node_walk at = {0}; next_node(g, &at);)
        if (at.region->direction != ONCE)
            for (int o = 0; o < at.node->n_out; o++)
                if (!strcmp(stem_of(at.node->out[o]->name), word)) return true;
    return false;
}

/* Where an entry says `word`; all of it when it does not. */
static struct span word_in(struct span entry, const char *word)
{
    size_t size, n = strlen(word);
    const char *bytes = entry.file ? source_bytes(entry.file, &size) : NULL;
    bool within = false;
    for (int at = entry.from; bytes && at + (int)n <= entry.to; at++) {
        bool letter = bytes[at] == '_' || (bytes[at] >= '0' && bytes[at] <= '9') ||
                      (bytes[at] >= 'A' && bytes[at] <= 'Z') ||
                      (bytes[at] >= 'a' && bytes[at] <= 'z');
        char end = at + (int)n < entry.to ? bytes[at + (int)n] : ' ';
        if (!within && !memcmp(bytes + at, word, n) && strchr(" \t\r\n,]\"#|", end))
            return (struct span){entry.file, at, at + (int)n};
        within = letter;
    }
    return entry;
}

/* Names of the same in PyTorch and Megatron, or one that is written almost so. */
static const char *kept_guess(const char *word)
{
    static const struct {
        const char *word, *means;
    } foreign[] = {{"mm", "matmul"},
                   {"addmm", "matmul"},
                   {"bmm", "matmul"},
                   {"linear", "matmul"},
                   {"gemm", "matmul"},
                   {"dense", "matmul"},
                   {"sdpa", "attention"},
                   {"flash", "attention"},
                   {"attn", "attention"},
                   {"scaled_dot_product_attention", "attention"},
                   {"flash_attention", "attention"},
                   {"core_attn", "attention"},
                   {"grouped_mm", "expert_matmul"},
                   {"router", "routing"},
                   {"topk", "top_k"}};
    for (size_t i = 0; i < COUNT_OF(foreign); i++)
        if (!strcmp(foreign[i].word, word)) return foreign[i].means;
    return nearest_name(word, kind, (int)COUNT_OF(kind));
}

static void check_checkpoint(const struct plan *p, const struct graph *g)
{
    int64_t layers = 0;
    for (int i = 0; i < g->region.n; i++)
        if (g->region.item[i]->direction != ONCE && g->region.item[i]->count > layers)
            layers = g->region.item[i]->count;
    const char *last = strrchr(p->checkpoint_layers, '.');
    if (p->checkpoint_mode != CHECKPOINT_NONE && last && strtoll(last + 1, NULL, 10) > layers)
        add_help(complain(p->at.layers,
                          "activation_checkpoint.layers names layer %lld, the model has %lld",
                          strtoll(last + 1, NULL, 10) - 1, (long long)layers),
                 "layers are 0..%lld", (long long)layers - 1);
    for (const char *c = p->checkpoint_save; *c; c += strspn(c, " ")) {
        size_t n = strcspn(c, " ");
        const char *word = intern_bytes(c, n);
        bool said = false;
        for (const char *b = p->checkpoint_save; b < c; b += strcspn(b, " "), b += strspn(b, " "))
            said |= strcspn(b, " ") == n && !memcmp(b, c, n);
        if (!memchr(c, '#', n) && !said && !kept_exists(g, word)) {
            struct diagnostic *d = complain(word_in(p->at.save, word),
                                            "activation_checkpoint.save names '%s', which is no "
                                            "kind of op and no value of a layer of %s",
                                            word, p->architecture);
            const char *guess = kept_guess(word);
            if (guess)
                add_help(d, "did you mean '%s'?", guess);
            else
                add_help(d, "kinds are attention, matmul, expert_matmul, routing; values are names "
                            "that the architecture assigns inside repeat");
        }
        c += n;
    }
}

/* batch.loss_chunks cuts cross-entropies, so there has to be one. */
static bool check_pieces(const struct plan *p, const struct graph *g)
{
    for (struct node_walk at = {0}; next_node(g, &at);)
        if (at.node->op == OP_pick) return true;
    if (p->loss_chunks <= 1) return true;
    add_help(
        complain(p->at.batch,
                 "batch.loss_chunks = %ld, but the architecture %s has no cross_entropy to cut "
                 "into pieces",
                 p->loss_chunks, p->architecture),
        "batch.loss_chunks = 1");
    return false;
}

static struct graph *lowered(const struct plan *plan)
{
    int before = error_count();
    int64_t tokens;
    if (__builtin_mul_overflow(plan->local, plan->sequence, &tokens) || tokens > INT32_MAX) {
        complain(plan->at.batch,
                 "a micro-batch of %lld x %lld tokens is more than one device can count",
                 (long long)plan->local, (long long)plan->sequence);
        return NULL;
    }
    struct lower l = {.plan = plan, .g = graph_of(plan), .prefix = ""};
    l.b.graph = l.g;
    lower_straight(&l, "prologue");
    lower_items(&l, plan->architecture_body);
    if (error_count() == before) report_all(&l);
    lower_check_hyper(&l);
    if (error_count() == before) lower_sweep(&l);
    if (error_count() == before) lower_names(&l);
    if (error_count() == before) lower_groups(&l);
    if (error_count() > before) return NULL;
    check_checkpoint(plan, l.g);
    if (error_count() > before) return NULL;
    if (!check_pieces(plan, l.g)) return NULL;
    drop_empty(l.g);
    ir_verify(l.g);
    return l.g;
}

struct graph *pass_lower(const struct plan *plan)
{
    struct graph *g = lowered(plan);
    /* the family is right, the number that the plan gave it is not */
    diagnostics_blame(plan->architecture_body->at.file);
    return g;
}
