/* The ledger of one device. A buffer is live between two schedule steps. A term is one kind of
 * buffers that are live at a step, by default at the peak, with the buffers in it. What the layout
 * leaves unused there is a term too, so the terms inside the arena add up to exactly the bytes that
 * the trainer maps. */
#include "base/escape.h"
#include "analysis/ledger.h"
#include "base/arguments.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* MemAvailable of this machine. */
static bool machine_bytes(int64_t *bytes)
{
    FILE *f = fopen("/proc/meminfo", "r");
    if (!f) return false;
    char line[200];
    long long kib = -1;
    while (kib < 0 && fgets(line, sizeof line, f))
        if (sscanf(line, "MemAvailable: %lld kB", &kib) != 1) kib = -1;
    fclose(f);
    *bytes = kib * 1024;
    return kib >= 0;
}

bool ledger_limit(const struct plan *p, int64_t *bytes)
{
    static int64_t machine; /* read once: verdicts of one run must be comparable */
    const struct cluster *c = &p->cluster;
    *bytes = c->memory_bytes;
    if (p->device == DEVICE_CPU && c->host_memory) { /* a processor's memory is its host's */
        const int64_t share = c->host_memory / (c->devices_per_node > 0 ? c->devices_per_node : 1);
        if (!*bytes || share < *bytes) *bytes = share;
    }
    if (*bytes) return true;
    if (!machine && !machine_bytes(&machine)) return false;
    *bytes = machine / (p->fsdp * p->dp);
    return true;
}

const char *ledger_device(const struct plan *p)
{
    const char *name = p->cluster.device_name ? p->cluster.device_name : p->cluster.name;
    return p->device == p->cluster.kind
               ? name
               : text_format("%s, not the cluster's %s", device_names[p->device], name);
}

const char *const verdict_names[VERDICTS] = {"fits", "tight", "exceeds", "impossible"};

enum verdict ledger_verdict(int64_t peak_bytes, int64_t limit_bytes)
{
    double part = (double)peak_bytes / (double)limit_bytes;
    return part < 0.92 ? FITS : part <= 0.97 ? TIGHT : EXCEEDS;
}

int64_t ledger_over(const struct ledger *l)
{
    return l->peak_bytes - (int64_t)(0.97 * (double)l->limit_bytes);
}

/* ── instants ────────────────────────────────────────────────────────────────── */
/* Bytes that a buffer has at a step; 0: none. */
static int64_t extent(const struct buffer *b, int step)
{
    int64_t entries = buffer_entries_at(b, step);
    return entries ? (entries - 1) * llabs(b->stride) + b->bytes : 0;
}

static void find_live(struct ledger *l, const struct graph *g)
{
    l->steps = g->steps;
    l->live_bytes = TAKE_MANY(int64_t, g->steps + 1);
    for (int i = 0; i < g->buffer.n; i++) {
        const struct buffer *b = g->buffer.item[i];
        for (int s = b->live_from < 0 ? 0 : b->live_from; s <= b->live_to && s <= g->steps; s++)
            l->live_bytes[s] += extent(b, s);
    }
    for (int s = 0; s <= g->steps; s++)
        if (l->live_bytes[s] > l->fullest_bytes)
            l->fullest_bytes = l->live_bytes[s], l->peak_step = s;
}

int64_t ledger_live(const struct ledger *l, int step) { return l->live_bytes[step]; }

/* Step 0 is before the first: what lives as long as the run. */
static const struct node *node_at(const struct graph *g, int step, const struct region **region,
                                  const struct body **body)
{
    for (int i = 0; i < g->region.n; i++)
        for (int k = 0; k < g->region.item[i]->body.n; k++) {
            const struct body *b = g->region.item[i]->body.item[k];
            for (int j = 0; j < b->node.n; j++)
                if (b->node.item[j]->step == step)
                    return *region = g->region.item[i], *body = b, b->node.item[j];
        }
    return NULL;
}

const char *ledger_place(const struct graph *g, int step)
{
    const struct region *r;
    const struct body *b;
    return step && node_at(g, step, &r, &b)
               ? text_format("%s, step %d of %d", r->name, step, g->steps)
               : text_format("step %d of %d", step, g->steps);
}

const char *ledger_deed(const struct graph *g, int step, const char **file, int *line)
{
    const struct region *r = NULL;
    const struct body *b = NULL;
    const struct node *n = step ? node_at(g, step, &r, &b) : NULL;
    *file = n ? n->file : NULL, *line = n ? n->line : 0;
    if (!n) return "before the first step";
    const char *what = n->kernel ? graph_kernel(g, n->kernel)->name : op_rows[n->op].name;
    if (n->op == OP_gather || n->op == OP_reduce)
        what = text_format("%s of %s", what, attr_get_word(n, "unit"));
    /* what a loop keeps is complete in the last iteration forward and the first one back */
    if (r->direction != ONCE && r->phase == PHASE_MICRO)
        what = text_format("%s, %s[%lld]", what, r->loop, (long long)r->count - 1);
    return what;
}

static int fuller_first(const void *a, const void *b, void *ledger)
{
    const struct ledger *l = ledger;
    int x = *(const int *)a, y = *(const int *)b;
    int64_t p = ledger_live(l, x), q = ledger_live(l, y);
    return p != q ? (p > q ? -1 : 1) : x - y;
}

struct instants ledger_instants(const struct ledger *l)
{
    struct instants all = {0};
    for (int s = 0; s <= l->steps; s++) {
        if (s && ledger_live(l, s - 1) >= ledger_live(l, s)) continue; /* it must rise here … */
        int end = s;
        while (end < l->steps && ledger_live(l, end + 1) == ledger_live(l, s)) end++;
        /* … and fall after it */
        if (end < l->steps && ledger_live(l, end + 1) > ledger_live(l, s)) continue;
        PUSH(&all.step, s);
    }
    for (int i = 1; i < all.step.n; i++)
        for (int k = i; k > 0 && fuller_first(&all.step.item[k], &all.step.item[k - 1],
                                              (void *)(uintptr_t)l) < 0;
             k--) {
            int swap = all.step.item[k];
            all.step.item[k] = all.step.item[k - 1], all.step.item[k - 1] = swap;
        }
    return all;
}

int ledger_first_above(const struct ledger *l, int64_t bytes)
{
    for (int s = 0; s <= l->steps; s++)
        if (ledger_live(l, s) + l->outside_bytes > bytes) return s;
    return -1;
}

/* ── terms ───────────────────────────────────────────────────────────────────── */
static struct term *term_of(term_list *all, const struct plan *p, enum buffer_kind kind)
{
    for (int i = 0; i < all->n; i++)
        if (all->item[i].kind == kind) return &all->item[i];
    struct term t = {.name = buffer_kind_names[kind], .kind = kind, .inside = true, .formula = ""};
    formula_place_of_kind(p, kind, &t.file, &t.line);
    PUSH(all, t);
    return &all->item[all->n - 1];
}

static int larger_first(const void *a, const void *b)
{
    const struct holding *x = a, *y = b;
    return x->bytes != y->bytes ? (x->bytes > y->bytes ? -1 : 1) : strcmp(x->name, y->name);
}

static void add_unused(const struct ledger *l, const struct plan *p, term_list *all, int step)
{
    struct term *t = term_of(all, p, BUFFER_ALIAS);
    t->name = "unused";
    t->bytes = l->arena_bytes - ledger_live(l, step);
    t->formula = step == l->peak_step
                     ? "gaps of the layout, buffers that begin at 256 B, segments that end at 4 KiB"
                     : "what another instant needs and this one does not";
}

/* On cuda it is in the host's memory and no part of the peak: 0 bytes of the device. */
static void add_copy(const struct ledger *l, const struct plan *p, term_list *all)
{
    const bool here = p->device == DEVICE_CPU;
    struct term t = {
        .name = "checkpoint copy", .kind = BUFFER_ALIAS, .bytes = here ? l->copy_bytes : 0};
    t.formula = text_format(
        "%s%s master weights and moments of %lld shard%s, divided by %lld replica%s: what "
        "asynchronous checkpoints are written from",
        here ? "" : text_format("%s of the host: ", text_bytes(l->copy_bytes)),
        here ? "12 B per parameter:" : "12 B per parameter,", (long long)p->fsdp,
        p->fsdp == 1 ? "" : "s", (long long)p->dp, p->dp == 1 ? "" : "s");
    formula_place_of(p->at.saving, &t.file, &t.line);
    PUSH(all, t);
}

term_list ledger_at(const struct ledger *l, const struct plan *p, const struct graph *g, int step)
{
    term_list all = {0};
    for (int i = 0; i < g->buffer.n; i++) {
        const struct buffer *b = g->buffer.item[i];
        if (!buffer_entries_at(b, step)) continue;
        struct term *t = term_of(&all, p, b->kind);
        struct holding h = {.name = b->name,
                            .bytes = extent(b, step),
                            .formula = formula_of(p, g, b, step),
                            .from = b->live_from,
                            .to = b->live_to};
        formula_place(p, g, b, &h.file, &h.line);
        t->bytes += h.bytes;
        PUSH(&t->holding, h);
    }
    for (int i = 0; i < all.n; i++) {
        struct term *t = &all.item[i];
        qsort(t->holding.item, (size_t)t->holding.n, sizeof *t->holding.item, larger_first);
        const struct holding *h = &t->holding.item[0];
        t->formula = t->holding.n == 1 ? h->formula
                                       : text_format("%d buffers, the largest %s: %s", t->holding.n,
                                                     h->name, h->formula);
    }
    add_unused(l, p, &all, step);
    if (l->copy_bytes) add_copy(l, p, &all);
    const int64_t copy = p->device == DEVICE_CPU ? l->copy_bytes : 0;
    if (l->outside_bytes - copy) {
        struct term t = {.name = "outside",
                         .kind = BUFFER_ALIAS,
                         .bytes = l->outside_bytes - copy,
                         .formula = "context, modules and communicators: assumed, not measured"};
        if (p->device == DEVICE_CPU)
            t.formula = "MPI, oneDNN and the program itself: assumed, not measured";
        formula_place_of(p->cluster.at, &t.file, &t.line);
        PUSH(&all, t);
    }
    return all;
}

struct ledger *ledger_read(const struct plan *p, const struct graph *g)
{
    struct ledger *l = TAKE(struct ledger);
    l->devices = p->fsdp * p->dp;
    l->parameters = cost_parameters(g);
    l->active_parameters = cost_active_parameters(g);
    l->flops = cost_flops_per_token(g);
    l->wire_bytes = g->wire_bytes;
    l->arena_bytes = g->local_bytes + g->wire_bytes;
    l->outside_bytes = cost_outside_bytes(g, p);
    l->copy_bytes = cost_copy_bytes(g, p);
    l->host_bytes = l->copy_bytes * (l->devices + p->cluster.nodes - 1) / p->cluster.nodes;
    l->host_limit_bytes = p->device == DEVICE_CPU ? 0 : p->cluster.host_memory;
    l->peak_bytes = l->arena_bytes + l->outside_bytes;
    if (!ledger_limit(p, &l->limit_bytes)) {
        command_fail(EXIT_ENVIRONMENT, "cannot read the available memory from /proc/meminfo: %s",
                     strerror(errno));
        return NULL;
    }
    l->limit_is_machine =
        !p->cluster.memory_bytes && (p->device != DEVICE_CPU || !p->cluster.host_memory);
    l->verdict = l->host_limit_bytes && l->host_bytes > l->host_limit_bytes
                     ? EXCEEDS
                     : ledger_verdict(l->peak_bytes, l->limit_bytes);
    find_live(l, g);
    l->peak_at = ledger_place(g, l->peak_step);
    l->term = ledger_at(l, p, g, l->peak_step);
    return l;
}

/* ── JSON ────────────────────────────────────────────────────────────────────── */
static void add_place(json_t *o, const char *file, int line)
{
    if (file) json_object_set_new(o, "file", json_string(utf8_text(file)));
    json_object_set_new(o, "line", json_integer(line));
}

json_t *ledger_terms_json(const term_list *terms, bool all)
{
    json_t *list = json_array();
    for (int i = 0; i < terms->n; i++) {
        const struct term *t = &terms->item[i];
        json_t *o = json_pack("{s:s, s:I, s:b, s:s}", "name", t->name, "bytes",
                              (json_int_t)t->bytes, "inside", t->inside, "formula", t->formula);
        add_place(o, t->file, t->line);
        json_t *holdings = json_array();
        for (int k = 0; k < t->holding.n && all; k++) {
            const struct holding *h = &t->holding.item[k];
            json_t *one = json_pack("{s:s, s:I, s:s, s:i, s:i}", "name", h->name, "bytes",
                                    (json_int_t)h->bytes, "formula", h->formula, "from", h->from,
                                    "to", h->to);
            add_place(one, h->file, h->line);
            json_array_append_new(holdings, one);
        }
        if (all) json_object_set_new(o, "holdings", holdings);
        json_array_append_new(list, o);
    }
    return list;
}

json_t *ledger_json(const char *path, const struct ledger *l, bool all)
{
    json_t *o = json_pack(
        "{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:o, s:[]}", "plan", utf8_text(path),
        "verdict", verdict_names[l->verdict], "devices", (json_int_t)l->devices, "parameters",
        (json_int_t)l->parameters, "active_parameters", (json_int_t)l->active_parameters,
        "limit_bytes", (json_int_t)l->limit_bytes, "peak_bytes", (json_int_t)l->peak_bytes,
        "arena_bytes", (json_int_t)l->arena_bytes, "outside_bytes", (json_int_t)l->outside_bytes,
        "peak_at", l->peak_at, "terms", ledger_terms_json(&l->term, all), "repairs");
    json_object_set_new(o, "margin_bytes",
                        json_integer((json_int_t)(l->limit_bytes - l->peak_bytes)));
    json_object_set_new(o, "fullest_bytes", json_integer((json_int_t)l->fullest_bytes));
    json_object_set_new(o, "wire_bytes", json_integer((json_int_t)l->wire_bytes));
    json_object_set_new(o, "checkpoint_copy_bytes", json_integer((json_int_t)l->copy_bytes));
    return o;
}
