/* See points.h. The numbers of kernels are forms like the bytes of buffers (passes/family.c): what
 * they are at twice the rows and in twice the pieces says what they are anywhere; those that walk
 * over a shard grow with it. */
#include "predict/points.h"
#include "passes/pipeline.h"

#include "ir/cost.h"
#include "passes/layout.h"
#include "passes/workspace_form.h"
#include "predict/bound.h"
#include "predict/extents.h"
#include "predict/form.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { FEW_ROWS, MORE_ROWS, LOWERED };
static const int64_t local_of[LOWERED] = {4, 8};

struct points {
    struct plan plan;
    struct machine machine;
    struct graph *lowered[LOWERED];
    bool tries;
};

enum { NUMBERS = 8 };
struct work_form {
    struct real_form number[NUMBERS], *op;
};

struct structure {
    struct points *shared;
    struct family *family;
    struct program *program;
    struct engine *engine;
    struct work_form *form; /* by kernel; its ops lie in the program's memory */
    int64_t *part;          /* of a rank, by unit, where the forms were read */
    bool cut;               /* the replicas have parts of a shard */
    struct point timed;     /* the program's times are of this point */
    const struct outcome *outcome;
    bool ruled; /* false: its kernels are others at other sizes, so a point has to be compiled */
    struct extents *extents; /* NULL unless ruled */
    uint64_t kernels;        /* kernels_hash() */
};

struct point point_of(const struct plan *p)
{
    return (struct point){.fsdp = p->fsdp,
                          .dp = p->dp,
                          .local = p->local,
                          .accumulation = p->accumulation,
                          .loss_chunks = p->loss_chunks,
                          .hosts = p->cluster.nodes,
                          .ranks_a_host = p->cluster.devices_per_node};
}

struct points *points_open(const struct plan *p, bool tries)
{
    struct points *s = TAKE(struct points);
    *s = (struct points){.plan = *p, .machine = machine_of(p), .tries = tries};
    for (int i = 0; i < LOWERED; i++) {
        struct plan at = *p;
        at.local = local_of[i];
        s->lowered[i] = pass_lower(&at);
        if (!s->lowered[i]) return NULL;
        ir_verify(s->lowered[i]);
    }
    s->machine.cache = time_cache_new();
    return s;
}

void points_close(struct points *s)
{
    if (s) time_cache_free(s->machine.cache);
}

/* The pipeline after lowering, up to kernels. */
static struct graph *fused(const struct points *s, int size, const struct plan *p, int64_t chunks)
{
    struct plan at = *p;
    at.local = local_of[size];
    at.loss_chunks = chunks;
    at.accumulation = family_accumulation(p);
    struct graph *now = TAKE(struct graph);
    *now = *s->lowered[size];
    now->facts = lower_facts(&at);
    for (int i = 0; i < pass_count && now && passes[i].gives <= LEVEL_FUSE; i++)
        now = passes[i].run(now);
    return now;
}

/* Lanes, and sizes of buffers, under other ring lengths. */
static struct graph *laid_out(const struct graph *g, struct ring_lengths r)
{
    struct graph now = *g;
    now.facts.prefetch = r.prefetch;
    now.facts.reduce_slots = r.reduce_slots;
    return memory_sizes(pass_schedule(&now));
}

/* ── forms ───────────────────────────────────────────────────────────────────── */

static void numbers_of(const struct work *w, double to[NUMBERS])
{
    const double all[NUMBERS] = {w->m,      w->n,     w->k,     w->rows,
                                 w->tokens, w->flops, w->bytes, w->columns};
    memcpy(to, all, sizeof all);
}

static void set_numbers(struct work *w, const double from[NUMBERS])
{
    w->m = from[0], w->n = from[1], w->k = from[2], w->rows = from[3];
    w->tokens = from[4], w->flops = from[5], w->bytes = from[6], w->columns = from[7];
}

static void read_forms(struct structure *s, const struct graph *g, const struct work *more,
                       const struct work *finer, int64_t many)
{
    struct program *p = s->program;
    s->form = program_take(p, sizeof *s->form * (size_t)(p->kernels + 1));
    for (int i = 0; i < p->kernels; i++) {
        double a[NUMBERS], b[NUMBERS], c[NUMBERS];
        const struct work *x = &p->work[i], *y = &more[i], *z = &finer[i];
        numbers_of(x, a), numbers_of(y, b), numbers_of(z, c);
        for (int k = 0; k < NUMBERS; k++) s->form[i].number[k] = form_of(g, many, a[k], b[k], c[k]);
        s->form[i].op = program_take(p, sizeof(struct real_form) * (size_t)(x->ops + 1));
        for (int k = 0; k < x->ops; k++)
            s->form[i].op[k] =
                form_of(g, many, x->op[k].elements, y->op[k].elements, z->op[k].elements);
    }
}

/* A number of a walk over a rank's part is whole per element, and a little that does not grow. */
static double grown(const struct structure *s, int unit, double x)
{
    if (unit < 0) return x;
    double was = (double)s->part[unit], each = floor(x / was);
    return x - each * was + each * (double)s->program->part[unit];
}

/* The work of every kernel at a point. */
static void set_work(struct structure *s, struct point at)
{
    struct program *p = s->program;
    double tokens = (double)(at.local * s->shared->plan.sequence), chunks = (double)at.loss_chunks;
    for (int i = 0; i < p->kernels; i++) {
        struct work *w = &p->work[i];
        double now[NUMBERS];
        for (int k = 0; k < NUMBERS; k++)
            now[k] = grown(s, w->unit, value_of(&s->form[i].number[k], tokens, chunks));
        set_numbers(w, now);
        for (int k = 0; k < w->ops; k++)
            w->op[k].elements = grown(s, w->unit, value_of(&s->form[i].op[k], tokens, chunks));
    }
}

/* ── structures ──────────────────────────────────────────────────────────────── */

/* From one structure's kernels at its sizes. */
static struct structure *structure_of(struct points *shared, const struct plan *p,
                                      const struct graph *const fused_at[4], struct ring_lengths r)
{
    const struct graph *g = laid_out(fused_at[0], r), *more = laid_out(fused_at[1], r),
                       *finer = fused_at[2] == fused_at[0] ? g : laid_out(fused_at[2], r);
    struct structure *s = calloc(1, sizeof *s);
    if (!s) bug("out of memory for a structure");
    s->shared = shared;
    s->family = family_of(g, more, finer, fused_at[3] ? laid_out(fused_at[3], r) : NULL);
    s->program = program_of(p, &shared->machine, g);
    int kernels[2];
    const struct work *second = program_work(more, &kernels[0]),
                      *third = finer == g ? s->program->work : program_work(finer, &kernels[1]);
    s->kernels = kernels_hash(fused_at[0]);
    s->extents = extents_of(fused_at[0], fused_at[1], fused_at[2]);
    s->ruled = s->extents && kernels[0] == s->program->kernels &&
               (finer == g || kernels[1] == s->program->kernels);
    if (s->ruled) read_forms(s, g, second, third, finer->facts.loss_chunks);
    s->cut = g->facts.parts > 1;
    s->part = program_take(s->program, sizeof *s->part * (size_t)(s->program->units + 1));
    memcpy(s->part, s->program->part, sizeof *s->part * (size_t)s->program->units);
    s->engine = engine_new(s->program);
    s->program->missing.n = 0;
    return s;
}

bool structures_new(struct points *shared, const struct plan *p, const struct ring_lengths *r,
                    int n, struct structure **out)
{
    struct arena_mark mark = arena_mark();
    bool pieces = p->loss_chunks > 1;
    int64_t few = pieces ? 2 : 1;
    const struct graph *kernels[4] = {0};
    kernels[0] = fused(shared, FEW_ROWS, p, few);
    kernels[1] = kernels[0] ? fused(shared, MORE_ROWS, p, few) : NULL;
    kernels[2] = kernels[1] && pieces ? fused(shared, FEW_ROWS, p, 4) : kernels[0];
    bool fine = kernels[0] && kernels[1] && kernels[2];
    if (fine && shared->tries) { /* another size of everything */
        struct plan other = *p;
        if (p->fsdp > 1) other.fsdp = p->fsdp + 1;
        kernels[3] = fused(shared, MORE_ROWS, &other, pieces ? 4 : 1);
        fine = kernels[3] != NULL;
    }
    for (int i = 0; i < n && fine; i++) {
        struct arena_mark here = arena_mark();
        out[i] = structure_of(shared, p, kernels, r[i]);
        arena_reset(here);
    }
    if (fine) arena_reset(mark); /* else what was said stays */
    return fine;
}

struct structure *structure_new(struct points *shared, const struct plan *p)
{
    struct structure *s = NULL;
    const struct ring_lengths r = {p->prefetch, p->reduce_slots};
    return structures_new(shared, p, &r, 1, &s) ? s : NULL;
}

void structure_free(struct structure *s)
{
    if (!s) return;
    family_free(s->family);
    extents_free(s->extents);
    program_free(s->program);
    free(s);
}

const missing_list *structure_missing(const struct structure *s) { return &s->program->missing; }

bool structure_holds(const struct structure *s, const struct plan *p)
{
    if (!s->extents || !extents_coincide(s->extents, p->local * p->sequence, p->loss_chunks))
        return true;
    struct arena_mark mark = arena_mark();
    struct diagnostics_mark said = diagnostics_mark();
    struct plan at = *p;
    at.accumulation = family_accumulation(p);
    struct graph *g = pass_lower(&at);
    if (g) g = pipeline_run(g, LEVEL_FUSE);
    const bool same = g && kernels_hash(g) == s->kernels;
    diagnostics_drop(said);
    arena_reset(mark);
    return same;
}

/* ── a point ─────────────────────────────────────────────────────────────────── */

static void set_time(struct structure *s, struct point at)
{
    struct program *p = s->program;
    struct point had = s->timed;
    p->accumulation = at.accumulation;
    p->tokens = at.local * s->shared->plan.sequence;
    had.accumulation = at.accumulation;
    s->timed = at;
    if (!memcmp(&had, &at, sizeof at)) { /* nothing that a time depends on, but its sum */
        program_limit(p);
        return;
    }
    p->machine.hosts = at.hosts;
    p->machine.ranks_a_host = at.ranks_a_host;
    for (int i = 0; i < p->units; i++) {
        p->shard[i] = family_shard(s->family, i, at.fsdp, at.dp);
        p->part[i] = family_part(s->family, i, at.fsdp, at.dp);
    }
    set_work(s, at);
    program_set_pieces(p, at.loss_chunks);
    program_time(p, at.fsdp, at.dp);
}

bool structure_evaluate(struct structure *s, struct point at, int asked, struct estimate *e)
{
    int64_t tokens = at.local * s->shared->plan.sequence;
    *e = (struct estimate){0};
    if (!s->ruled) {
        e->arena_bytes = e->peak_bytes = e->least_bytes = -1;
        return !(asked & (ASK_TIME | ASK_LEAST_TIME));
    }
    if (asked & ASK_LEAST_BYTES)
        e->least_bytes =
            family_bound(s->family, tokens, at.loss_chunks, at.fsdp, at.dp, &e->fullest);
    if (asked & ASK_BYTES) {
        e->arena_bytes = family_bytes(s->family, tokens, at.loss_chunks, at.fsdp, at.dp);
        e->peak_bytes = e->arena_bytes + s->shared->plan.cluster.outside_bytes;
        if (s->shared->plan.device == DEVICE_CPU) /* a copy of the state is a rank's own memory */
            e->peak_bytes += cost_copy_bytes_of(family_state_elements(s->family, at.fsdp, at.dp),
                                                &s->shared->plan, s->cut ? 1 : at.dp);
    }
    if (!(asked & (ASK_TIME | ASK_LEAST_TIME))) return true;
    set_time(s, at);
    if (s->program->missing.n) return false;
    if (asked & ASK_LEAST_TIME) e->least_picoseconds = least_step(s->program);
    if (asked & ASK_TIME) {
        s->outcome = engine_run(s->engine, false, NULL);
        e->step_picoseconds = step_picoseconds(s->program, s->outcome);
    }
    return true;
}

struct prediction *structure_explain(struct structure *s, const struct program **program)
{
    if (!s->outcome) bug("no time was asked for");
    *program = s->program;
    return prediction_of(s->program, s->outcome);
}
