/* Repairs of a plan that does not fit. A rule of thumb ("halve the batch") may be too little or far
 * too much, so each change is compiled and judged like any plan: its peak is what a trainer would
 * allocate. One key is changed at a time, by the smallest sufficient amount. If no key is enough,
 * the best changes are combined one after the other. The cost is counted in the same layouts: FLOPs
 * per token including recomputation, and bytes that collectives move for one step of the same
 * global batch. */
#include "base/escape.h"
#include "passes/pipeline.h"
#include "analysis/repair.h"
#include "analysis/traffic.h"
#include "ir/cost.h"
#include "predict/prediction.h"
#include "passes/budget.h"

#include <stdlib.h>
#include <string.h>

/* What one layout says. */
struct tried {
    bool fine;
    int64_t peak_bytes, global;
    double flops, moved, cost, step_seconds; /* step_seconds 0: not known */
    enum verdict verdict;
};
struct search {
    const struct arguments *arguments;
    const char *path;
    const struct plan *plan;
    const struct ledger *ledger;
    /* settings that every try begins with, after the command's own */
    VECTOR(const char *) base;
    int64_t peak_bytes; /* under them */
    int64_t layers;
    struct tried now;
    repair_list all;
};
enum { SETTINGS = 5 };

/* ── one try ─────────────────────────────────────────────────────────────────── */
static struct tried try(const struct search *s, const char *const *set, int n)
{
    struct tried t = {0};
    struct arena_mark mark = arena_mark();
    struct diagnostics_mark said = diagnostics_mark();
    VECTOR(const char *) all = {0};
    for (int i = 0; i < s->arguments->set.n; i++) PUSH(&all, s->arguments->set.item[i]);
    for (int i = 0; i < s->base.n; i++) PUSH(&all, s->base.item[i]);
    for (int i = 0; i < n; i++) PUSH(&all, set[i]);
    const char *const *open_keys;
    int n_open;
    struct plan *p = plan_load(s->path, all.item, all.n, &open_keys, &n_open);
    if (p) plan_take_device(p, s->arguments->device);
    if (p && !budget_decide(p)) p = NULL;
    struct graph *g = p ? pass_lower(p) : NULL;
    if (g) g = pipeline_run(g, LEVEL_MEMORY);
    if (g) {
        int64_t limit = s->ledger->limit_bytes;
        t.fine = p->cluster.memory_bytes == 0 || p->cluster.memory_bytes == limit;
        t.peak_bytes = g->local_bytes + g->wire_bytes + cost_outside_bytes(g, p);
        t.verdict = ledger_verdict(t.peak_bytes, limit);
        t.global = p->global;
        t.flops = cost_flops_per_token(g).hardware;
        t.moved = traffic_bytes(traffic_of(g), g->facts.fsdp, g->facts.dp, g->facts.accumulation);
        struct program *program;
        struct prediction *step = predict(p, g, &program);
        if (step) t.step_seconds = (double)step->step / PICOSECONDS;
        t.cost = step ? t.step_seconds : step_cost(p, t.flops, t.moved);
        program_free(program);
    }
    diagnostics_drop(said);
    arena_reset(mark);
    return t;
}

static bool enough(const struct tried *t) { return t->fine && t->verdict < EXCEEDS; }

static void keep(struct search *s, const struct tried *t, const char *const *set, int n)
{
    /* less than a thousandth is no help */
    if (!t->fine || t->peak_bytes >= s->peak_bytes - s->peak_bytes / 1000) return;
    struct repair r = {.peak_bytes = t->peak_bytes,
                       .verdict = t->verdict,
                       .cost = t->cost,
                       .global = t->global,
                       .changes_training = t->global != s->plan->global,
                       .step_seconds = t->step_seconds};
    for (int i = 0; i < s->base.n; i++) PUSH(&r.set, s->base.item[i]);
    for (int i = 0; i < n; i++) PUSH(&r.set, set[i]);
    r.flops_more = s->now.flops > 0 ? t->flops / s->now.flops - 1 : 0;
    r.moved_more = s->now.moved > 0 ? t->moved / s->now.moved - 1 : 0;
    PUSH(&s->all, r);
}

/* ── what is changed ─────────────────────────────────────────────────────────── */
/* A row of ever stronger settings: the first that is enough is kept, else the one with the smallest
 * peak. */
struct ladder {
    const char *set[SETTINGS];
    int n;
};

static void climb(struct search *s, const struct ladder *rung, int rungs)
{
    int best = -1;
    struct tried least = {0};
    for (int i = 0; i < rungs; i++) {
        struct tried t = try(s, rung[i].set, rung[i].n);
        if (!t.fine) continue;
        if (best < 0 || t.peak_bytes < least.peak_bytes) best = i, least = t;
        if (enough(&t)) break;
    }
    if (best >= 0) keep(s, &least, rung[best].set, rung[best].n);
}

static bool has(const struct search *s, const char *key)
{
    for (int i = 0; i < s->base.n; i++)
        if (!strncmp(s->base.item[i], key, strlen(key))) return true;
    return false;
}

static const char *whole(const char *key, int64_t x)
{
    return intern_format("%s=%lld", key, (long long)x);
}

/* Pieces of the loss that take most of its room away; 0: none that divides. */
static int64_t few_chunks(const struct search *s)
{
    for (int64_t chunks = 8; chunks > s->plan->loss_chunks; chunks /= 2)
        if (s->plan->local * s->plan->sequence % chunks == 0) return chunks;
    return 0;
}

/* What computes nothing again and moves no byte more: the loss in pieces, then fewer slots too. */
static void change_loss(struct search *s)
{
    struct ladder rung[10] = {0};
    int n = 0;
    for (int64_t c = s->plan->loss_chunks * 2; c <= 128 && n < 8; c *= 2)
        if (s->plan->local * s->plan->sequence % c == 0)
            rung[n++] = (struct ladder){{whole("batch.loss_chunks", c)}, 1};
    if (n && s->plan->reduce_slots > 1) {
        rung[n] = rung[n - 1];
        rung[n].set[rung[n].n++] = whole("mesh.reduce_slots", 1);
        n++;
    }
    if (n && s->plan->prefetch > 0) {
        rung[n] = rung[n - 1];
        rung[n].set[rung[n].n++] = whole("mesh.prefetch", 0);
        n++;
    }
    climb(s, rung, n);
}

/* The same global batch in more micro-batches. */
static void change_batch(struct search *s)
{
    struct ladder rung[16] = {0};
    int n = 0;
    for (int64_t local = s->plan->local - 1; local > 0 && n < 16; local--)
        if (s->plan->local % local == 0)
            rung[n++] = (struct ladder){
                {whole("batch.local", local), whole("batch.global", s->plan->global)}, 2};
    climb(s, rung, n);
}

/* More shards on the same devices: as many as divide them, up to all. */
static void change_mesh(struct search *s)
{
    struct ladder rung[16] = {0};
    int n = 0;
    int64_t fsdp = s->plan->fsdp, dp = s->plan->dp, last = 1;
    /* at least twice the one before, so that few are many */
    for (int64_t more = 2; more <= dp && more <= 65536 && n < 15; more++)
        if (dp % more == 0 && (more >= 2 * last || more == dp)) {
            rung[n++] =
                (struct ladder){{whole("mesh.fsdp", fsdp * more), whole("mesh.dp", dp / more)}, 2};
            last = more;
        }
    if (last < dp && n < 16)
        rung[n++] = (struct ladder){{whole("mesh.fsdp", fsdp * dp), whole("mesh.dp", 1)}, 2};
    climb(s, rung, n);
}

/* Master weights and moments over the replicas too. */
static void change_optimizer(struct search *s)
{
    const struct ladder rung = {{"mesh.optimizer=all"}, 1};
    if (!s->plan->optimizer_all && s->plan->dp > 1) climb(s, &rung, 1);
}

/* More devices, which is for a person to decide: all of them share the weights, the global batch is
 * the same where it can be. */
static void change_nodes(struct search *s)
{
    struct ladder rung[8] = {0};
    int n = 0;
    int64_t nodes = s->plan->cluster.nodes, devices = s->plan->fsdp * s->plan->dp;
    if (s->plan->cluster.elastic) return;
    for (int64_t more = 2; more <= 64 && n < 8; more *= 2) {
        struct ladder l = {{whole("cluster.nodes", nodes * more),
                            whole("mesh.fsdp", devices * more), whole("mesh.dp", 1)},
                           3};
        if (s->plan->global % (devices * more * s->plan->local))
            l.set[l.n++] = whole("batch.global", devices * more * s->plan->local);
        rung[n++] = l;
    }
    climb(s, rung, n);
}

static struct ladder some_layers(int64_t layers)
{
    return (struct ladder){
        {"activation_checkpoint.mode=full",
         intern_format("activation_checkpoint.layers=[0..%lld]", (long long)layers - 1)},
        2};
}

/* Mode budget with 92 % of the limit; if the limit is this machine's memory, the value is written
 * out. */
static struct ladder within_budget(const struct search *s)
{
    struct ladder l = {{"activation_checkpoint.mode=budget"}, 1};
    if (s->ledger->limit_is_machine)
        l.set[l.n++] = intern_format("activation_checkpoint.budget=%lldMiB",
                                     (long long)(s->ledger->limit_bytes / 100 * 92 >> 20));
    return l;
}

/* By value and layer, selective, full, and full for as many layers as are needed. */
static void change_checkpointing(struct search *s)
{
    const struct ladder selective = {{"activation_checkpoint.mode=selective"}, 1},
                        full = {{"activation_checkpoint.mode=full"}, 1};
    bool everywhere = !s->plan->checkpoint_layers[0] && s->plan->checkpoint_every == 1;
    struct ladder budget = within_budget(s);
    if (s->plan->checkpoint_mode == CHECKPOINT_FULL && everywhere) return;
    if (s->plan->checkpoint_mode != CHECKPOINT_FULL) {
        climb(s, &budget, 1);
        int64_t chunks = has(s, "batch.loss_chunks") ? 0 : few_chunks(s);
        if (chunks) { /* less is then computed again */
            budget.set[budget.n++] = whole("batch.loss_chunks", chunks);
            climb(s, &budget, 1);
        }
        climb(s, &selective, s->plan->checkpoint_mode == CHECKPOINT_NONE);
        if (chunks && s->plan->checkpoint_mode == CHECKPOINT_NONE) {
            struct ladder both = selective;
            both.set[both.n++] = whole("batch.loss_chunks", chunks);
            climb(s, &both, 1);
        }
        climb(s, &full, 1);
    }
    struct tried all = try(s, full.set, 1);
    if (!enough(&all) || !everywhere || s->plan->checkpoint_mode != CHECKPOINT_NONE) return;
    int64_t low = 1, high = s->layers; /* high is enough */
    while (low < high) {
        int64_t middle = (low + high) / 2;
        struct ladder some = some_layers(middle);
        struct tried t = try(s, some.set, some.n);
        if (enough(&t))
            high = middle;
        else
            low = middle + 1;
    }
    struct ladder some = some_layers(high);
    if (high < s->layers) climb(s, &some, 1);
}

static void change_slots(struct search *s)
{
    struct ladder prefetch[4] = {0}, slots[4] = {0};
    int n = 0;
    for (int64_t k = s->plan->prefetch - 1; k >= 0 && n < 4; k--)
        prefetch[n++] = (struct ladder){{whole("mesh.prefetch", k)}, 1};
    climb(s, prefetch, n);
    n = 0;
    for (int64_t k = s->plan->reduce_slots - 1; k > 0 && n < 4; k--)
        slots[n++] = (struct ladder){{whole("mesh.reduce_slots", k)}, 1};
    climb(s, slots, n);
}

/* What is gathered is freed as soon as it is read. */
static void change_reshard(struct search *s)
{
    const struct ladder rung = {{"mesh.reshard=forward"}, 1};
    if (s->plan->reshard != RESHARD_FORWARD) climb(s, &rung, 1);
}

static void change_one(struct search *s)
{
    if (!has(s, "batch.loss_chunks")) change_loss(s);
    if (!has(s, "activation_checkpoint")) change_checkpointing(s);
    if (!has(s, "mesh.fsdp")) change_mesh(s);
    if (!has(s, "mesh.optimizer")) change_optimizer(s);
    if (!has(s, "batch.local")) change_batch(s);
    if (!has(s, "mesh.reshard")) change_reshard(s);
    if (!has(s, "mesh.prefetch") && !has(s, "mesh.reduce_slots")) change_slots(s);
}

static bool some_fit(const struct search *s);

/* On the same devices nothing is enough: what is best there, on more of them, and what that still
 * lacks. */
static void add_devices(struct search *s)
{
    if (some_fit(s)) return;
    for (int i = s->base.n - 1; i >= 0; i--)
        if (!strncmp(s->base.item[i], "mesh.", 5) ||
            !strncmp(s->base.item[i], "batch.global", 12)) {
            for (int k = i; k + 1 < s->base.n; k++) s->base.item[k] = s->base.item[k + 1];
            s->base.n--;
        }
    change_nodes(s);
}

/* ── ranking ─────────────────────────────────────────────────────────────────── */
static int better_first(const void *a, const void *b)
{
    const struct repair *x = a, *y = b;
    if (x->verdict != y->verdict) return x->verdict < y->verdict ? -1 : 1;
    /* not enough: what helps most */
    if (x->verdict == EXCEEDS && x->peak_bytes != y->peak_bytes)
        return x->peak_bytes < y->peak_bytes ? -1 : 1;
    if (x->cost < y->cost || x->cost > y->cost) return x->cost < y->cost ? -1 : 1;
    if (x->peak_bytes != y->peak_bytes) return x->peak_bytes < y->peak_bytes ? -1 : 1;
    return strcmp(x->set.item[0], y->set.item[0]);
}

static void sort(repair_list *all)
{
    if (all->n) qsort(all->item, (size_t)all->n, sizeof *all->item, better_first);
}

/* None is enough alone: the best one, then the best on top of it, until it is enough or nothing
 * helps. */
static void combine(struct search *s)
{
    for (int depth = 0; depth < 5 && s->all.n; depth++) {
        sort(&s->all);
        struct repair best = s->all.item[0];
        if (best.verdict < EXCEEDS) return;
        s->base.n = 0;
        for (int i = 0; i < best.set.n; i++) PUSH(&s->base, best.set.item[i]);
        s->peak_bytes = best.peak_bytes;
        int before = s->all.n;
        change_one(s);
        if (s->all.n == before) return;
    }
}

static bool some_fit(const struct search *s)
{
    for (int i = 0; i < s->all.n; i++)
        if (s->all.item[i].verdict < EXCEEDS) return true;
    return false;
}

/* ── a plan that fits, but wastes ────────────────────────────────────────────── */
/* Keeps what saves a fiftieth of the peak and costs no FLOPs. */
static void keep_if_free(struct search *s, const struct ladder *l)
{
    struct tried t = try(s, l->set, l->n);
    if (t.fine && t.flops <= s->now.flops * 1.0005 && t.moved <= s->now.moved * 1.0005 &&
        t.peak_bytes <= s->peak_bytes / 50 * 49)
        keep(s, &t, l->set, l->n);
}

/* The same global batch in as few micro-batches as fit. */
static void advise_batch(struct search *s)
{
    const struct plan *p = s->plan;
    int64_t sequences = p->local * p->accumulation, low = p->local;
    VECTOR(int64_t) larger = {0};
    for (int64_t n = low + 1; n <= sequences && n <= 4096 && larger.n < 64; n++)
        if (sequences % n == 0) PUSH(&larger, n);
    struct tried best = {0};
    int from = 0, to = larger.n; /* those before `from` fit, those from `to` on do not */
    while (from < to) {
        int middle = (from + to) / 2;
        const char *set[] = {whole("batch.local", larger.item[middle]),
                             whole("batch.global", p->global)};
        struct tried t = try(s, set, 2);
        if (t.fine && t.verdict == FITS)
            from = middle + 1, best = t;
        else
            to = middle;
    }
    if (!from) return;
    const char *set[] = {whole("batch.local", larger.item[from - 1]),
                         whole("batch.global", p->global)};
    s->peak_bytes = INT64_MAX; /* it takes more, and that is its point */
    keep(s, &best, set, 2);
}

static struct search begin(const struct arguments *a, const char *path, const struct plan *p,
                           const struct graph *g, const struct ledger *l)
{
    struct search s = {
        .arguments = a, .path = path, .plan = p, .ledger = l, .peak_bytes = l->peak_bytes};
    for (int i = 0; i < g->region.n; i++)
        if (g->region.item[i]->direction == UP && g->region.item[i]->phase == PHASE_MICRO &&
            g->region.item[i]->count > s.layers)
            s.layers = g->region.item[i]->count;
    s.now.flops = cost_flops_per_token(g).hardware;
    s.now.moved = traffic_bytes(traffic_of(g), g->facts.fsdp, g->facts.dp, g->facts.accumulation);
    return s;
}

repair_list advice_find(const struct arguments *a, const char *path, const struct plan *p,
                        const struct graph *g, const struct ledger *l)
{
    struct search s = begin(a, path, p, g, l);
    if (p->checkpoint_mode == CHECKPOINT_NONE)
        keep_if_free(&s, &(struct ladder){{"activation_checkpoint.mode=selective"}, 1});
    int64_t chunks = few_chunks(&s);
    if (chunks) keep_if_free(&s, &(struct ladder){{whole("batch.loss_chunks", chunks)}, 1});
    advise_batch(&s);
    return s.all;
}

static const char *settings_text(const struct repair *r)
{
    struct text set = {0};
    for (int k = 0; k < r->set.n; k++)
        text_add(&set, strpbrk(r->set.item[k], "[ ") ? " --set '%s'" : " --set %s", r->set.item[k]);
    return set.bytes;
}

void advice_print(const repair_list *all)
{
    if (all->n) printf("  it could be better, each laid out and judged; against this plan:\n");
    for (int i = 0; i < all->n; i++) {
        const struct repair *r = &all->item[i];
        bool batch = !strncmp(r->set.item[0], "batch.local=", 12);
        printf("    %-7s %12s  %+5.1f %% FLOPs  %+6.1f %% moved %s  (%s)\n",
               verdict_names[r->verdict], text_bytes(r->peak_bytes), 100 * r->flops_more,
               100 * r->moved_more, settings_text(r),
               batch ? "the largest local batch that fits" : "less memory for the same work");
    }
}

repair_list repairs_find(const struct arguments *a, const char *path, const struct plan *p,
                         const struct graph *g, const struct ledger *l)
{
    struct search s = begin(a, path, p, g, l);
    change_one(&s);
    combine(&s);
    add_devices(&s);
    sort(&s.all);
    return s.all;
}

/* ── showing ─────────────────────────────────────────────────────────────────── */
void repairs_print(const repair_list *all, const struct plan *plan)
{
    if (!all->n) {
        printf(
            "  no repair was found: checkpointing, loss chunks, the local batch, more shards, the "
            "optimizer over all devices, reshard, prefetch and slots were tried\n");
        return;
    }
    bool enough_alone = all->item[0].verdict < EXCEEDS;
    printf(
        enough_alone
            ? "  repairs, each laid out and judged: the predicted step; FLOPs per token and bytes "
              "that "
              "collectives move in a step, against this plan:\n"
            : "  nothing that was tried is enough (checkpointing, loss chunks, the local batch, "
              "more shards, more nodes, the optimizer over all devices, reshard, prefetch and "
              "slots); what helps most:\n");
    int shown = 0;
    for (int i = 0; i < all->n && shown < (enough_alone ? 12 : 3); i++) {
        const struct repair *r = &all->item[i];
        if (enough_alone && r->verdict == EXCEEDS) break; /* what exceeds is no repair */
        const char *step =
            r->step_seconds > 0 ? text_format("%.4g s per step", r->step_seconds) : "";
        printf("    %-7s %12s  %13s  %+5.1f %% FLOPs  %+6.1f %% moved %s\n",
               verdict_names[r->verdict], text_bytes(r->peak_bytes), step, 100 * r->flops_more,
               100 * r->moved_more, settings_text(r));
        if (r->changes_training)
            printf("            this changes training: batch.global is %lld sequences per step "
                   "instead of %lld\n",
                   (long long)r->global, (long long)plan->global);
        shown++;
    }
}

json_t *repairs_json(const repair_list *all)
{
    json_t *list = json_array();
    for (int i = 0; i < all->n; i++) {
        const struct repair *r = &all->item[i];
        json_t *set = json_array();
        for (int k = 0; k < r->set.n; k++)
            json_array_append_new(set, json_string(utf8_text(r->set.item[k])));
        json_t *o = json_pack("{s:o, s:I, s:s, s:f, s:f, s:b}", "set", set, "peak_bytes",
                              (json_int_t)r->peak_bytes, "verdict", verdict_names[r->verdict],
                              "flops_more", r->flops_more, "moved_more", r->moved_more,
                              "changes_training", r->changes_training);
        if (r->step_seconds > 0) json_object_set_new(o, "step_seconds", json_real(r->step_seconds));
        json_array_append_new(list, o);
    }
    return list;
}
