/* Computes the memory of a plan without compiling it, once a plan of the same structure has been
 * compiled. The bytes of a buffer are a polynomial with whole coefficients of the tokens of a
 * micro-batch and of a loss chunk, and the padded length of a unit follows from the shards; neither
 * changes which buffers there are or when they are live. So a structure is compiled a few times at
 * chosen sizes, the coefficients are read off, and every other size needs only a layout. The layout
 * code is that of trainers: the answer is the allocation, not an estimate. */
#include "passes/family.h"
#include "passes/layout.h"
#include "passes/workspace_form.h"

#include <stdlib.h>
#include <string.h>

enum rule { FIXED, ROWS, PARTS, SHARDS, SLOT, SHARD_SLOT, STAGE, WORK };
struct sized {
    enum rule rule;
    enum segment segment;
    int64_t entries;
    int live_from, live_to;
    int64_t idle_entry;
    int idle_from, idle_to;
    /* ROWS: bytes = base + per_row x tokens + per_piece_row x tokens / chunks */
    int64_t base, per_row, per_piece_row;
    int64_t element_size;
    int first_unit, units; /* SLOT, SHARD_SLOT: the longest of these units */
};
struct unit_size {
    int64_t length, count, together; /* together: of the first shard alone (unit_together) */
};                                   /* unpadded elements */
struct layout_known {
    int64_t tokens, chunks, fsdp, dp, bytes;
};
struct family {
    struct sized *sized;
    int n;
    struct unit_size *unit;
    int units;
    struct workspace_form *work;
    struct layout_known *known; /* layouts so far: equal buffers share one */
    int knowns;
    int64_t alignment;
    bool cut; /* the replicas have parts of a shard */
    bool holds;
};

static void *keep(size_t bytes)
{
    void *p = calloc(1, bytes ? bytes : 1);
    if (!p) bug("out of memory for a family of %zu bytes", bytes);
    return p;
}

int64_t family_accumulation(const struct plan *p) { return p->accumulation > 1 ? 2 : 1; }

static bool owns(const struct buffer *b) { return b->kind != BUFFER_ALIAS; }

/* Length before the shards pad it: after the last weight, each of which begins aligned. */
static void read_units(struct family *f, const struct graph *g)
{
    f->alignment = weight_alignment(g);
    f->cut = g->facts.parts > 1;
    f->units = g->unit.n;
    f->unit = keep(sizeof *f->unit * (size_t)g->unit.n);
    for (int i = 0; i < g->unit.n; i++) {
        f->unit[i].count = g->unit.item[i]->count;
        f->unit[i].together = unit_together(g, g->unit.item[i]);
        for (int k = 0; k < g->weight.n; k++) {
            const struct weight *w = g->weight.item[k];
            int64_t end = w->offset + round_up(shape_count(w->value->shape), f->alignment);
            if (!strcmp(w->unit, g->unit.item[i]->name) && end > f->unit[i].length)
                f->unit[i].length = end;
        }
    }
}

static int64_t padded(const struct family *f, int unit, int64_t fsdp, int64_t dp)
{
    const int64_t cut = f->cut ? fsdp * dp : fsdp;
    int64_t length = f->unit[unit].length, least = f->unit[unit].together * cut;
    return round_up(length > least ? length : least, cut * f->alignment);
}

int64_t family_shard(const struct family *f, int unit, int64_t fsdp, int64_t dp)
{
    return padded(f, unit, fsdp, dp) / fsdp;
}

int64_t family_part(const struct family *f, int unit, int64_t fsdp, int64_t dp)
{
    return family_shard(f, unit, fsdp, dp) / (f->cut ? dp : 1);
}

static int64_t shards_elements(const struct family *f, int64_t fsdp, int64_t dp)
{
    int64_t n = 0;
    for (int i = 0; i < f->units; i++) n += f->unit[i].count * family_shard(f, i, fsdp, dp);
    return n;
}

int64_t family_state_elements(const struct family *f, int64_t fsdp, int64_t dp)
{
    return shards_elements(f, fsdp, dp) / (f->cut ? dp : 1);
}

/* The units whose instances a slot holds: all of a loop's, or the one. They stand side by side. */
static void slot_units(const struct graph *g, const struct unit *one, struct sized *s)
{
    s->units = 0;
    for (int i = 0; i < g->unit.n; i++) {
        const struct unit *u = g->unit.item[i];
        if (u != one && (!one->loop[0] || strcmp(u->loop, one->loop))) continue;
        if (!s->units++) s->first_unit = i;
    }
}

static enum rule rule_of(const struct graph *g, const struct buffer *b)
{
    switch (b->kind) {
    case BUFFER_MASTER:
    case BUFFER_MOMENT1:
    case BUFFER_MOMENT2: return PARTS;
    case BUFFER_GRADIENT: return gradients_whole(&g->facts) ? SHARDS : PARTS;
    case BUFFER_WEIGHTS: return SHARDS;
    case BUFFER_GRADIENT_SHARDS: return SHARD_SLOT;
    case BUFFER_SCALARS:
    case BUFFER_STAGING:
    case BUFFER_METRICS: return FIXED;
    case BUFFER_WORKSPACE: return WORK;
    case BUFFER_REDUCE_STAGING: return STAGE;
    case BUFFER_GATHERED:
    case BUFFER_GRADIENT_SLOTS: return SLOT;
    case BUFFER_CARRIED:
    case BUFFER_SAVED:
    case BUFFER_BATCH:
    case BUFFER_TABLES:
    case BUFFER_WORKING: return ROWS;
    case BUFFER_ALIAS: break;
    }
    bug("an alias has no size of its own");
}

static struct sized *read_buffers(const struct graph *g, int *n)
{
    struct sized *all = keep(sizeof *all * (size_t)g->buffer.n);
    *n = 0;
    for (int i = 0; i < g->buffer.n; i++) {
        const struct buffer *b = g->buffer.item[i];
        if (!owns(b)) continue;
        struct sized *s = &all[(*n)++];
        *s = (struct sized){.rule = rule_of(g, b),
                            .segment = b->segment,
                            .entries = b->entries,
                            .live_from = b->live_from,
                            .live_to = b->live_to,
                            .idle_entry = b->idle_entry,
                            .idle_from = b->idle_from,
                            .idle_to = b->idle_to,
                            .base = b->bytes};
        const bool weights = b->kind == BUFFER_GATHERED || b->kind == BUFFER_WEIGHTS;
        s->element_size = weights ? element_bytes(g->facts.compute) : 4;
        if (s->rule == SLOT || s->rule == SHARD_SLOT) slot_units(g, slot_unit(g, b), s);
    }
    return all;
}

static int64_t bytes_of(const struct family *f, const struct sized *s, int64_t tokens,
                        int64_t chunks, int64_t fsdp, int64_t dp)
{
    int64_t n = 0;
    switch (s->rule) {
    case FIXED:
    case WORK: return s->base;
    case ROWS: return s->base + s->per_row * tokens + s->per_piece_row * (tokens / chunks);
    case PARTS: return 4 * family_state_elements(f, fsdp, dp);
    case SHARDS: return s->element_size * shards_elements(f, fsdp, dp);
    case STAGE:
        for (int i = 0; i < f->units; i++)
            if (family_shard(f, i, fsdp, dp) > n) n = family_shard(f, i, fsdp, dp);
        return n * 4;
    case SLOT:
    case SHARD_SLOT:
        for (int i = s->first_unit; i < s->first_unit + s->units; i++)
            if (padded(f, i, fsdp, dp) > n) n = padded(f, i, fsdp, dp);
        return n * s->element_size / (s->rule == SLOT ? 1 : fsdp);
    }
    bug("rule %d", (int)s->rule);
}

/* Whether the buffers of a compiled plan are those that the family predicts. */
static bool predicts(const struct family *f, const struct graph *g)
{
    int n;
    struct sized *now = read_buffers(g, &n);
    bool same = n == f->n;
    for (int i = 0; i < n && same; i++) {
        const struct sized *a = &now[i], *b = &f->sized[i];
        same = a->rule == b->rule && a->segment == b->segment && a->entries == b->entries &&
               a->live_from == b->live_from && a->live_to == b->live_to &&
               a->idle_entry == b->idle_entry && a->idle_from == b->idle_from &&
               a->idle_to == b->idle_to &&
               a->base == (a->rule == WORK ? workspace_form_bytes(f->work, g->facts.tokens,
                                                                  g->facts.loss_chunks)
                                           : bytes_of(f, b, g->facts.tokens, g->facts.loss_chunks,
                                                      g->facts.fsdp, g->facts.dp));
    }
    free(now);
    return same;
}

static bool same_nodes(const struct graph *a, const struct graph *b)
{
    bool same = a->region.n == b->region.n;
    for (int i = 0; i < a->region.n && same; i++) {
        same = a->region.item[i]->body.n == b->region.item[i]->body.n;
        for (int k = 0; k < a->region.item[i]->body.n && same; k++) {
            const struct body *x = a->region.item[i]->body.item[k],
                              *y = b->region.item[i]->body.item[k];
            same = x->node.n == y->node.n;
            for (int n = 0; n < x->node.n && same; n++)
                same = x->node.item[n]->op == y->node.item[n]->op &&
                       x->node.item[n]->kernel == y->node.item[n]->kernel;
        }
    }
    return same;
}

struct family *family_of(const struct graph *g, const struct graph *more, const struct graph *finer,
                         const struct graph *tried)
{
    struct family *f = keep(sizeof *f);
    int n_more, n_finer;
    read_units(f, g);
    f->sized = read_buffers(g, &f->n);
    struct sized *b = read_buffers(more, &n_more), *c = read_buffers(finer, &n_finer);
    f->holds = n_more == f->n && n_finer == f->n && same_nodes(g, more) && same_nodes(g, finer);
    for (int i = 0; i < f->n && f->holds; i++) {
        struct sized *one = &f->sized[i];
        if (one->rule != ROWS) continue;
        struct size_form form =
            size_form_of(g->facts.tokens, g->facts.loss_chunks, finer->facts.loss_chunks, one->base,
                         b[i].base, c[i].base);
        one->base = form.base, one->per_row = form.row, one->per_piece_row = form.piece;
    }
    if (f->holds) f->work = workspace_form_of(g, more, finer);
    f->holds = f->holds && predicts(f, g) && predicts(f, more) && predicts(f, finer) &&
               (!tried || predicts(f, tried));
    free(b);
    free(c);
    return f;
}

void family_free(struct family *f)
{
    if (!f) return;
    free(f->sized);
    free(f->unit);
    workspace_form_free(f->work);
    free(f->known);
    free(f);
}

/* The buffers at a size, in the arena. */
static struct graph at_size(const struct family *f, int64_t tokens, int64_t chunks, int64_t fsdp,
                            int64_t dp)
{
    struct graph g = {.level = LEVEL_MEMORY};
    struct buffer *buffer = TAKE_MANY(struct buffer, f->n);
    for (int i = 0; i < f->n; i++) {
        const struct sized *s = &f->sized[i];
        int64_t bytes = s->rule == WORK ? workspace_form_bytes(f->work, tokens, chunks)
                                        : bytes_of(f, s, tokens, chunks, fsdp, dp);
        buffer[i] = (struct buffer){.name = "",
                                    .kind = BUFFER_WORKING,
                                    .segment = s->segment,
                                    .bytes = bytes,
                                    .entries = s->entries,
                                    .stride = round_up(bytes, 256),
                                    .live_from = s->live_from,
                                    .live_to = s->live_to,
                                    .idle_entry = s->idle_entry,
                                    .idle_from = s->idle_from,
                                    .idle_to = s->idle_to};
        PUSH(&g.buffer, &buffer[i]);
    }
    return g;
}

int64_t family_bytes(struct family *f, int64_t tokens, int64_t chunks, int64_t fsdp, int64_t dp)
{
    if (!f->holds) return -1;
    if (!f->cut) dp = 1; /* replicas change no byte */
    for (int i = f->knowns - 1; i >= 0; i--)
        if (f->known[i].tokens == tokens && f->known[i].chunks == chunks &&
            f->known[i].fsdp == fsdp && f->known[i].dp == dp)
            return f->known[i].bytes;
    struct arena_mark mark = arena_mark();
    struct graph g = at_size(f, tokens, chunks, fsdp, dp);
    layout_place(&g);
    arena_reset(mark);
    struct layout_known *more = realloc(f->known, sizeof *more * (size_t)(f->knowns + 1));
    if (!more) bug("out of memory for a family's layouts");
    f->known = more;
    f->known[f->knowns++] =
        (struct layout_known){tokens, chunks, fsdp, dp, g.local_bytes + g.wire_bytes};
    return g.local_bytes + g.wire_bytes;
}

int64_t family_bound(const struct family *f, int64_t tokens, int64_t chunks, int64_t fsdp,
                     int64_t dp, int *step)
{
    if (!f->holds) return -1;
    struct arena_mark mark = arena_mark();
    struct graph g = at_size(f, tokens, chunks, fsdp, dp);
    int64_t bytes = layout_bound(&g, step);
    arena_reset(mark);
    return bytes;
}
