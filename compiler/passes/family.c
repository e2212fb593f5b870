/* Computes the memory of a plan without compiling it, once a plan of the same structure has been
 * compiled. The bytes of a buffer are a polynomial with whole coefficients of the tokens of a
 * micro-batch and of a loss chunk, and the padded length of a unit follows from the shards; neither
 * changes which buffers there are or when they are live. So a structure is compiled a few times at
 * chosen sizes, the coefficients are read off, and every other size needs only a layout. The layout
 * code is that of trainers: the answer is the allocation, not an estimate. */
#include "passes/family.h"
#include "passes/layout.h"
#include "passes/workspace.h"

#include <stdlib.h>
#include <string.h>

enum rule { FIXED, ROWS, STATE, SLOT, STAGE, WORK };
struct sized {
    enum rule rule;
    enum segment segment;
    int64_t entries;
    int live_from, live_to;
    /* ROWS: bytes = base + per_row x tokens + per_piece_row x tokens / chunks */
    int64_t base, per_row, per_piece_row;
    int64_t element_size;
    int first_unit, units; /* SLOT: the longest of these units */
};
/* The workspace of kernels is not a polynomial of sizes (it is the largest of many, each rounded in
 * its own way), so every size is computed once. */
struct work_size {
    int64_t tokens, chunks, fsdp, bytes;
};
struct unit_size {
    int64_t length, count;
}; /* unpadded elements */
struct family {
    struct sized *sized;
    int n;
    struct unit_size *unit;
    int units;
    struct work_size *work;
    int works;
    int64_t alignment;
    bool holds;
};

static void *keep(size_t bytes)
{
    void *p = calloc(1, bytes ? bytes : 1);
    if (!p) bug("out of memory for a family of %zu bytes", bytes);
    return p;
}

static struct graph *compile_to(enum level level, const struct plan *p, int64_t fsdp, int64_t local,
                                int64_t chunks)
{
    struct plan at = *p;
    at.fsdp = fsdp;
    at.local = local;
    at.loss_chunks = chunks;
    at.accumulation = 1;
    struct graph *g = pass_lower(&at);
    return g ? pipeline_run(g, level) : NULL;
}

static struct graph *compile(const struct plan *p, int64_t fsdp, int64_t local, int64_t chunks)
{
    return compile_to(LEVEL_MEMORY, p, fsdp, local, chunks);
}

static int64_t work_bytes(struct family *f, const struct plan *p)
{
    int64_t tokens = p->local * p->sequence;
    for (int i = 0; i < f->works; i++)
        if (f->work[i].tokens == tokens && f->work[i].chunks == p->loss_chunks &&
            f->work[i].fsdp == p->fsdp)
            return f->work[i].bytes;
    struct graph *g = compile_to(LEVEL_FUSE, p, p->fsdp, p->local, p->loss_chunks);
    struct work_size *more = realloc(f->work, sizeof *more * (size_t)(f->works + 1));
    if (!more) bug("out of memory for a family's workspaces");
    f->work = more;
    f->work[f->works] =
        (struct work_size){tokens, p->loss_chunks, p->fsdp, g ? workspace_bytes(g) : 0};
    return f->work[f->works++].bytes;
}

static bool owns(const struct buffer *b) { return b->kind != BUFFER_ALIAS; }

/* Length before the shards pad it: after the last weight, each of which begins aligned. */
static void read_units(struct family *f, const struct graph *g)
{
    f->alignment = 256 / element_bytes(g->facts.compute);
    f->units = g->unit.n;
    f->unit = keep(sizeof *f->unit * (size_t)g->unit.n);
    for (int i = 0; i < g->unit.n; i++) {
        f->unit[i].count = g->unit.item[i]->count;
        for (int k = 0; k < g->weight.n; k++) {
            const struct weight *w = g->weight.item[k];
            int64_t end = w->offset + round_up(shape_count(w->value->shape), f->alignment);
            if (!strcmp(w->unit, g->unit.item[i]->name) && end > f->unit[i].length)
                f->unit[i].length = end;
        }
    }
}

static int64_t padded(const struct family *f, int unit, int64_t fsdp)
{
    return round_up(f->unit[unit].length, fsdp * f->alignment);
}

int64_t family_state_elements(const struct family *f, int64_t fsdp)
{
    int64_t n = 0;
    for (int i = 0; i < f->units; i++) n += f->unit[i].count * padded(f, i, fsdp) / fsdp;
    return n;
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

static enum rule rule_of(const struct buffer *b)
{
    switch (b->kind) {
    case BUFFER_MASTER:
    case BUFFER_GRADIENT:
    case BUFFER_MOMENT1:
    case BUFFER_MOMENT2: return STATE;
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
        *s = (struct sized){.rule = rule_of(b),
                            .segment = b->segment,
                            .entries = b->entries,
                            .live_from = b->live_from,
                            .live_to = b->live_to,
                            .base = b->bytes};
        if (s->rule != SLOT) continue;
        s->element_size = b->kind == BUFFER_GATHERED ? element_bytes(g->facts.compute) : 4;
        slot_units(g, slot_unit(g, b), s);
    }
    return all;
}

static int64_t bytes_of(const struct family *f, const struct sized *s, int64_t tokens,
                        int64_t chunks, int64_t fsdp)
{
    int64_t n = 0;
    switch (s->rule) {
    case FIXED:
    case WORK: return s->base;
    case ROWS: return s->base + s->per_row * tokens + s->per_piece_row * (tokens / chunks);
    case STATE: return 4 * family_state_elements(f, fsdp);
    case STAGE:
        for (int i = 0; i < f->units; i++)
            if (padded(f, i, fsdp) / fsdp > n) n = padded(f, i, fsdp) / fsdp;
        return n * 4;
    case SLOT:
        for (int i = s->first_unit; i < s->first_unit + s->units; i++)
            if (padded(f, i, fsdp) > n) n = padded(f, i, fsdp);
        return n * s->element_size;
    }
    bug("rule %d", (int)s->rule);
}

/* Whether the buffers of a compiled plan are those that the family predicts. */
static bool foretells(const struct family *f, const struct graph *g)
{
    int n;
    struct sized *now = read_buffers(g, &n);
    bool same = n == f->n;
    for (int i = 0; i < n && same; i++) {
        const struct sized *a = &now[i], *b = &f->sized[i];
        same = a->rule == b->rule && a->segment == b->segment && a->entries == b->entries &&
               a->live_from == b->live_from && a->live_to == b->live_to &&
               (a->rule == WORK ||
                a->base == bytes_of(f, b, g->facts.tokens, g->facts.loss_chunks, g->facts.fsdp));
    }
    free(now);
    return same;
}

/* Sizes at which the rule is read off, and one at which it is tried; divisible by the pieces
 * whatever the sequence is. */
struct family *family_make(const struct plan *p)
{
    bool pieces = p->loss_chunks > 1;
    int64_t few = pieces ? 2 : 1, many = pieces ? 4 : 1;
    struct family *f = keep(sizeof *f);
    int64_t s = p->fsdp, other = s > 1 ? s + 1 : 1; /* a number of shards that divides little */
    struct graph *g = compile(p, s, 4, few), *more = g ? compile(p, s, 8, few) : NULL,
                 *finer = more && pieces ? compile(p, s, 4, many) : more;
    struct graph *tried = finer ? compile(p, other, 12, many) : NULL;
    if (!tried) {
        free(f);
        return NULL;
    }
    int n_more, n_finer;
    read_units(f, g);
    f->sized = read_buffers(g, &f->n);
    struct sized *b = read_buffers(more, &n_more), *c = read_buffers(finer, &n_finer);
    int64_t rows = g->facts.tokens;
    f->holds = n_more == f->n && n_finer == f->n;
    for (int i = 0; i < f->n && f->holds; i++) {
        struct sized *one = &f->sized[i];
        if (one->rule != ROWS) continue;
        int64_t at = one->base, piece = pieces ? (at - c[i].base) / (rows / few - rows / many) : 0;
        /* twice the rows, twice the rows of a piece */
        int64_t row = (b[i].base - at - piece * (rows / few)) / rows;
        one->per_row = row, one->per_piece_row = piece;
        one->base = at - row * rows - piece * (rows / few);
    }
    f->holds = f->holds && foretells(f, g) && foretells(f, more) && foretells(f, finer) &&
               foretells(f, tried);
    free(b);
    free(c);
    return f;
}

void family_free(struct family *f)
{
    if (!f) return;
    free(f->sized);
    free(f->unit);
    free(f->work);
    free(f);
}

int64_t family_arena_bytes(struct family *f, const struct plan *p)
{
    if (!f->holds) return -1;
    struct graph g = {.level = LEVEL_MEMORY};
    struct buffer *buffer = TAKE_MANY(struct buffer, f->n);
    for (int i = 0; i < f->n; i++) {
        const struct sized *s = &f->sized[i];
        int64_t bytes = s->rule == WORK
                            ? work_bytes(f, p)
                            : bytes_of(f, s, p->local * p->sequence, p->loss_chunks, p->fsdp);
        buffer[i] = (struct buffer){.name = "",
                                    .kind = BUFFER_WORKING,
                                    .segment = s->segment,
                                    .bytes = bytes,
                                    .entries = s->entries,
                                    .stride = round_up(bytes, 256),
                                    .live_from = s->live_from,
                                    .live_to = s->live_to};
        PUSH(&g.buffer, &buffer[i]);
    }
    layout_place(&g);
    return g.local_bytes + g.wire_bytes;
}
