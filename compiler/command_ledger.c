/* The ledger of one device. A buffer lives between two schedule steps; the terms are the kinds of the buffers that are
 * alive at the step where their sum is largest, and what the layout could not use there is a term too, so that the
 * inside terms add up to exactly the bytes that the trainer maps. */
#include "command_ledger.h"
#include "command.h"

#include <errno.h>
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

static int64_t extent(const struct buffer *b) { return b->entries > 1 ? (b->entries - 1) * b->stride + b->bytes : b->bytes; }
/* An alias is another name for bytes that a buffer has already. */
static bool alive(const struct buffer *b, int step) { return b->live_from <= step && step <= b->live_to && strcmp(b->kind, "alias"); }

static int fullest_step(const struct graph *g)
{
    int64_t *live = TAKE_MANY(int64_t, g->steps + 2), most = -1;
    for (int i = 0; i < g->buffer.n; i++) {
        const struct buffer *b = g->buffer.item[i];
        for (int s = 0; s <= g->steps; s++)
            if (alive(b, s)) live[s] += extent(b);
    }
    int step = 0;
    for (int s = 0; s <= g->steps; s++)
        if (live[s] > most) most = live[s], step = s;
    return step;
}

static const char *place_of(const struct graph *g, int step)
{
    for (int i = 0; i < g->region.n; i++)
        for (int k = 0; k < g->region.item[i]->body.n; k++) {
            const struct body *b = g->region.item[i]->body.item[k];
            for (int j = 0; j < b->node.n; j++)
                if (b->node.item[j]->step == step) return text_format("%s, step %d of %d", g->region.item[i]->name, step, g->steps);
        }
    return text_format("step %d of %d", step, g->steps);
}

/* The plan's line that decides about a kind of buffer. */
static int line_of(const struct plan *p, const char *kind)
{
    static const char *const of_mesh[] = {"gathered", "gradient slots", "reduce staging"};
    static const char *const of_batch[] = {"working", "carried", "saved", "batch", "tables"};
    struct span at = p->model_at;
    for (size_t i = 0; i < COUNT_OF(of_mesh); i++)
        if (!strcmp(kind, of_mesh[i])) at = p->at.mesh;
    for (size_t i = 0; i < COUNT_OF(of_batch); i++)
        if (!strcmp(kind, of_batch[i])) at = p->at.batch;
    if (!strcmp(kind, "saved") && p->at.checkpoint.file) at = p->at.checkpoint;
    if (!at.file) at = p->model_at;
    int line = 0, column;
    if (at.file) source_place(at.file, at.from, &line, &column);
    return line;
}

/* What a kind's bytes are made of: the weights, or the largest of its buffers. */
static const char *formula_of(const struct ledger *l, const struct graph *g, const char *kind, int step)
{
    static const char *const of_weights[] = {"master", "gradient", "moment1", "moment2"};
    for (size_t i = 0; i < COUNT_OF(of_weights); i++)
        if (!strcmp(kind, of_weights[i])) return text_format("fp32: 4 B x %s parameters / %lld shards, padded", text_count(l->parameters), (long long)g->facts.fsdp);
    const struct buffer *largest = NULL;
    int n = 0;
    for (int i = 0; i < g->buffer.n; i++) {
        const struct buffer *b = g->buffer.item[i];
        if (strcmp(b->kind, kind) || !alive(b, step)) continue;
        n++;
        if (!largest || extent(b) > extent(largest)) largest = b;
    }
    const char *one = largest->entries > 1 ? text_format("%s of %lld x %s B", largest->name, (long long)largest->entries, text_count(largest->bytes))
                                           : text_format("%s of %s B", largest->name, text_count(largest->bytes));
    return n == 1 ? one : text_format("%d buffers, the largest %s", n, one);
}

static void add_terms(struct ledger *l, const struct plan *p, const struct graph *g, int step)
{
    int64_t left = l->arena_bytes;
    for (int i = 0; i < g->buffer.n; i++) {
        const struct buffer *b = g->buffer.item[i];
        if (!alive(b, step)) continue;
        left -= extent(b);
        int k = 0;
        while (k < l->term.n && strcmp(l->term.item[k].name, b->kind)) k++;
        if (k < l->term.n) l->term.item[k].bytes += extent(b);
        else PUSH(&l->term, ((struct term){b->kind, extent(b), true, formula_of(l, g, b->kind, step), line_of(p, b->kind)}));
    }
    PUSH(&l->term, ((struct term){"unused", left, true, "what alignment and other moments need and this one does not", line_of(p, "unused")}));
    if (l->outside_bytes) {
        int line = 0, column;
        if (p->cluster.at.file) source_place(p->cluster.at.file, p->cluster.at.from, &line, &column);
        PUSH(&l->term, ((struct term){"outside", l->outside_bytes, false, "context, modules and communicators: assumed", line}));
    }
}

struct ledger *ledger_read(const struct plan *p, const struct graph *g)
{
    struct ledger *l = TAKE(struct ledger);
    l->devices = p->fsdp * p->dp;
    l->parameters = cost_parameters(g);
    l->active_parameters = cost_active_parameters(g);
    l->flops = cost_flops_per_token(g);
    l->arena_bytes = g->local_bytes + g->wire_bytes;
    l->outside_bytes = p->cluster.outside_bytes;
    l->peak_bytes = l->arena_bytes + l->outside_bytes;
    l->limit_bytes = p->cluster.memory_bytes;
    if (!l->limit_bytes) {
        if (!machine_bytes(&l->limit_bytes)) {
            command_fail(EXIT_ENVIRONMENT, "cannot read the available memory from /proc/meminfo: %s", strerror(errno));
            return NULL;
        }
        l->limit_bytes /= l->devices;
        l->limit_is_machine = true;
    }
    double part = (double)l->peak_bytes / (double)l->limit_bytes;
    l->verdict = part < 0.92 ? "fits" : part <= 0.97 ? "tight" : "exceeds";
    int step = fullest_step(g);
    l->peak_at = place_of(g, step);
    add_terms(l, p, g, step);
    return l;
}
