/* See candidates.h. The memory of a point comes from its own layout, as for a single plan. Points
 * of one structure are compiled once and then only laid out and timed, each at its own sizes. Keys
 * that change no byte (replicas, global batch, rates, seeds) do not start a new structure. The
 * arena is reset between points, so a large space costs time and not memory. */
#include "analysis/candidates.h"
#include "analysis/traffic.h"
#include "passes/pipeline.h"

#include "ir/cost.h"
#include "passes/budget.h"
#include "passes/layout.h"

#include <stdlib.h>
#include <string.h>

/* Which sizes were tried, and whether they are fine; from the heap. */
struct tried {
    struct {
        int64_t local, chunks;
        bool fine;
    } * item;
    int n, room;
};
/* structure: NULL when the architecture cannot be compiled at the sizes that one is read off. */
struct known {
    const char *key;
    struct structure *structure;
    struct tried holds; /* points of such sizes have its kernels */
    bool worked;        /* these are known */
    double flops;
    struct traffic traffic;
};
/* The steps of a structure's schedule in words; found when the first is asked for. */
struct step_names {
    const struct structure *structure;
    const char **name; /* by step, interned */
    int steps;
};
/* What structures of one model on one kind of machine share. */
struct shared {
    const char *key;
    struct points *points;
    struct tried lowers; /* the architecture takes so many sequences */
};
struct candidates {
    const struct arguments *arguments;
    struct known *table;
    size_t room, used;
    struct shared *shared;
    int n_shared, room_shared;
    struct step_names *names;
    int n_names;
};

/* The key changes neither a structure nor the machine that its times are of (engines, rates), but
 * only numbers that a structure is asked with, or none. */
static bool is_number(const char *key)
{
    static const char *const number[] = {"mesh.dp",
                                         "mesh.fsdp",
                                         "batch.local",
                                         "batch.loss_chunks",
                                         "batch.global",
                                         "cluster.nodes",
                                         "cluster.devices_per_node",
                                         "optimizer.lr",
                                         "optimizer.betas",
                                         "optimizer.eps",
                                         "optimizer.weight_decay",
                                         "init.seed",
                                         "data.seed"};
    for (size_t i = 0; i < COUNT_OF(number); i++)
        if (!strcmp(key, number[i])) return true;
    return !strncmp(key, "schedule.", 9) || !strncmp(key, "checkpoint.", 11);
}

/* Keys that change the structure. Others change no byte of a layout (replicas, rates), or only a
 * structure's numbers. */
static bool changes_structure(const char *key)
{
    return !is_number(key) && strncmp(key, "run.", 4) && strncmp(key, "cluster.link", 12) &&
           strncmp(key, "cluster.device.", 15);
}

/* The choices in which structures of one lowered model and one machine do not differ, as one
 * interned word. */
static const char *shared_key(const struct space *s, const int *choice)
{
    static const char *const own[] = {"mesh.",
                                      "activation_checkpoint.",
                                      "batch.l",
                                      "batch.g",
                                      "schedule.",
                                      "optimizer.",
                                      "init.",
                                      "data.",
                                      "checkpoint.",
                                      "cluster.nodes",
                                      "cluster.devices_per_node"};
    struct text t = {0};
    text_add(&t, "%s", "");
    for (int k = 0; k < s->n_axes; k++) {
        bool differs = false;
        for (size_t i = 0; i < COUNT_OF(own); i++)
            differs |= !strncmp(s->axis[k].key, own[i], strlen(own[i]));
        if (!differs) text_add(&t, "%d ", choice[k]);
    }
    return intern(t.bytes);
}

/* What of a plan's numbers decides between structures, as text: whether the loss is in pieces,
 * weights are gathered, the replicas have parts of the optimizer, and gradients are then added up
 * over micro-batches; what is kept. */
static const char *structure_text(const struct plan *p)
{
    const bool cut = plan_parts_optimizer(p);
    return text_format("%d %d %d %d %s %s %s ", p->loss_chunks > 1, p->fsdp > 1, cut,
                       p->accumulation > 1, p->checkpoint_layers, p->checkpoint_save,
                       p->checkpoint_rest_save);
}

/* What is shared is another one's for other rates, engines or types. */
static const char *structure_key(const struct space *s, const int *choice, const struct plan *p)
{
    struct text t = {0};
    text_add(&t, "%s|%s", shared_key(s, choice), structure_text(p));
    for (int k = 0; k < s->n_axes; k++)
        if (changes_structure(s->axis[k].key)) text_add(&t, "%d ", choice[k]);
    return intern(t.bytes);
}

const char *candidate_text(const struct space *s, const int *choice)
{
    struct text t = {0};
    text_add(&t, "%s", "");
    for (int k = 0; k < s->n_axes; k++)
        text_add(&t, "%s%s=%s", k ? " " : "", s->axis[k].key, s->axis[k].choice[choice[k]]);
    return t.bytes;
}

bool candidate_next(const struct space *s, int *choice)
{
    for (int k = s->n_axes - 1; k >= 0; k--) {
        if (++choice[k] < s->axis[k].n) return true;
        choice[k] = 0;
    }
    return false;
}

void choice_of(const struct space *s, int64_t number, int *choice)
{
    for (int k = s->n_axes - 1; k >= 0; k--)
        choice[k] = (int)(number % s->axis[k].n), number /= s->axis[k].n;
}

/* ── tables ──────────────────────────────────────────────────────────────────── */

struct candidates *candidates_open(const struct arguments *a)
{
    struct candidates *c = calloc(1, sizeof *c);
    if (!c) bug("out of memory for candidates");
    *c = (struct candidates){.arguments = a, .room = 256};
    c->table = calloc(c->room, sizeof *c->table);
    if (!c->table) bug("out of memory for candidates");
    return c;
}

void candidates_close(struct candidates *c)
{
    for (size_t i = 0; i < c->room; i++) {
        structure_free(c->table[i].structure);
        free(c->table[i].holds.item);
    }
    for (int i = 0; i < c->n_shared; i++) {
        points_close(c->shared[i].points);
        free(c->shared[i].lowers.item);
    }
    for (int i = 0; i < c->n_names; i++) free(c->names[i].name);
    free(c->names);
    free(c->shared);
    free(c->table);
    free(c);
}

static struct known *find(struct known *table, size_t room, const char *key)
{
    size_t at = ((size_t)(uintptr_t)key >> 4) * 0x9E3779B97F4A7C15u;
    for (at &= room - 1; table[at].key && table[at].key != key; at = (at + 1) & (room - 1)) {}
    return &table[at];
}

static void grow(struct candidates *c)
{
    if (c->used * 2 < c->room) return;
    struct known *more = calloc(c->room * 2, sizeof *more);
    if (!more) bug("out of memory for candidates");
    for (size_t i = 0; i < c->room; i++)
        if (c->table[i].key) *find(more, c->room * 2, c->table[i].key) = c->table[i];
    free(c->table);
    c->table = more;
    c->room *= 2;
}

/* Only what a command would train with is judged: a budget is decided at each point. */
struct plan *candidate_plan(const struct arguments *a, const struct space *s, const int *choice,
                            const char **why)
{
    struct plan *p = space_plan(s, choice, why);
    if (!p) return NULL;
    plan_take_device(p, a->device);
    struct diagnostics_mark mark = diagnostics_mark();
    if (budget_decide(p)) return p;
    *why = intern(diagnostics_since(mark));
    diagnostics_drop(mark);
    return NULL;
}

/* What the structures of this point's model share; made once, and never let go of. */
static struct shared *shared_of(struct candidates *c, const struct space *s, const int *choice)
{
    const char *key = shared_key(s, choice), *why;
    for (int i = 0; i < c->n_shared; i++)
        if (c->shared[i].key == key) return &c->shared[i];
    if (c->n_shared == c->room_shared) {
        c->room_shared = c->room_shared ? 2 * c->room_shared : 4;
        c->shared = realloc(c->shared, sizeof *c->shared * (size_t)c->room_shared);
        if (!c->shared) bug("out of memory for candidates");
    }
    struct diagnostics_mark mark = diagnostics_mark();
    struct plan *p = candidate_plan(c->arguments, s, choice, &why);
    struct points *points = p ? points_open(p, true) : NULL;
    diagnostics_drop(mark);
    c->shared[c->n_shared] = (struct shared){.key = key, .points = points};
    return &c->shared[c->n_shared++];
}

/* ── a point ─────────────────────────────────────────────────────────────────── */

/* NULL: they were not tried. */
static const bool *find_tried(const struct tried *t, int64_t local, int64_t chunks)
{
    for (int i = t->n - 1; i >= 0; i--)
        if (t->item[i].local == local && t->item[i].chunks == chunks) return &t->item[i].fine;
    return NULL;
}

static bool keep_tried(struct tried *t, int64_t local, int64_t chunks, bool fine)
{
    if (t->n == t->room) {
        t->room = t->room ? 2 * t->room : 16;
        t->item = realloc(t->item, sizeof *t->item * (size_t)t->room);
        if (!t->item) bug("out of memory for candidates");
    }
    t->item[t->n].local = local, t->item[t->n].chunks = chunks;
    return t->item[t->n++].fine = fine;
}

/* An architecture may refuse sizes (rows of a weight that do not go with so many tokens), and a
 * loss in pieces (it has no cross_entropy). */
static bool lowers(struct shared *of, const struct plan *p)
{
    const bool pieces = p->loss_chunks > 1;
    const bool *known = find_tried(&of->lowers, p->local, pieces);
    if (known) return *known;
    struct arena_mark mark = arena_mark();
    struct diagnostics_mark said = diagnostics_mark();
    const bool does = pass_lower(p) != NULL;
    diagnostics_drop(said);
    arena_reset(mark);
    return keep_tried(&of->lowers, p->local, pieces, does);
}

static bool holds(struct shared *of, struct known *k, const struct plan *p)
{
    if (!lowers(of, p)) return false;
    const bool *known = find_tried(&k->holds, p->local, p->loss_chunks);
    return known
               ? *known
               : keep_tried(&k->holds, p->local, p->loss_chunks, structure_holds(k->structure, p));
}

struct place candidate_place(struct candidates *c, const struct space *s, const int *choice)
{
    struct place to = {0};
    struct arena_mark mark = arena_mark();
    const char *why = NULL;
    struct plan *p = candidate_plan(c->arguments, s, choice, &why);
    if (!p) {
        to.why = intern(why);
        for (int k = 0; k < s->n_axes; k++) to.point = to.point * s->axis[k].n + choice[k];
        arena_reset(mark);
        return to;
    }
    const char *key = structure_key(s, choice, p);
    struct known *k = find(c->table, c->room, key);
    if (!k->key) {
        arena_reset(mark); /* what is shared outlives the point */
        struct points *points = shared_of(c, s, choice)->points;
        mark = arena_mark();
        p = candidate_plan(c->arguments, s, choice, &why);
        struct diagnostics_mark said = diagnostics_mark();
        struct structure *made = points ? structure_new(points, p) : NULL;
        diagnostics_drop(said);
        grow(c);
        k = find(c->table, c->room, key);
        *k = (struct known){.key = key, .structure = made};
        c->used++;
    }
    const bool held = k->structure && holds(shared_of(c, s, choice), k, p);
    to = (struct place){.point = p->point,
                        .structure = held ? k->structure : NULL,
                        .key = key,
                        .at = {.fsdp = p->fsdp,
                               .dp = p->dp,
                               .local = p->local,
                               .accumulation = p->accumulation,
                               .loss_chunks = p->loss_chunks,
                               .hosts = p->cluster.nodes,
                               .ranks_a_host = p->cluster.devices_per_node},
                        .outside_bytes = p->cluster.outside_bytes,
                        .global = p->global};
    if (!ledger_limit(p, &to.limit_bytes)) to.why = "this machine's memory cannot be read";
    arena_reset(mark);
    return to;
}

struct walk *walk_begin(const struct space *s)
{
    struct walk *w = TAKE(struct walk);
    *w = (struct walk){.space = s,
                       .choice = TAKE_MANY(int, s->n_axes + 1),
                       .other = TAKE_MANY(int, s->n_axes + 1),
                       .number = -1,
                       .point_of = TAKE_MANY(int64_t, s->points),
                       .refused = TAKE_MANY(bool, s->points)};
    return w;
}

/* Whether a point is there for others. It is refused where a key has a value that goes with nothing
 * else, though it has no effect. */
static bool stands(struct walk *w, struct candidates *c, int64_t point)
{
    if (point < w->number) return w->point_of[point] == point && !w->refused[point];
    choice_of(w->space, point, w->other);
    const struct place place = candidate_place(c, w->space, w->other);
    return place.point == point && !place.why;
}

bool walk_next(struct walk *w, struct candidates *c)
{
    while (++w->number < w->space->points) {
        choice_of(w->space, w->number, w->choice);
        w->place = candidate_place(c, w->space, w->choice);
        if (w->place.point != w->number && !stands(w, c, w->place.point))
            w->place.point = w->number;
        w->point_of[w->number] = w->place.point;
        w->refused[w->number] = w->place.why;
        if (w->place.point == w->number) return true;
    }
    return false;
}

/* A structure whose sizes follow no simple rule is compiled point by point. NULL: the architecture,
 * or a pass, refuses the point, and *why says why. */
static struct graph *compiled_alone(const struct plan *p, const char **why)
{
    struct diagnostics_mark mark = diagnostics_mark();
    struct graph *g = pass_lower(p);
    if (g) g = pipeline_run(g, LEVEL_MEMORY);
    const char *said = diagnostics_since(mark);
    if (!g) *why = intern(said ? said : "the architecture refuses it");
    diagnostics_drop(mark);
    return g;
}

int64_t candidate_peak(struct candidates *c, const struct space *s, const int *choice,
                       struct place *place)
{
    struct estimate e;
    if (place->why) return -1;
    if (place->structure) {
        structure_evaluate(place->structure, place->at, ASK_BYTES, &e);
        if (e.arena_bytes >= 0) return e.peak_bytes;
        place->structure = NULL;
    }
    struct arena_mark mark = arena_mark();
    const char *why;
    const struct plan *p = candidate_plan(c->arguments, s, choice, &why);
    const struct graph *g = p ? compiled_alone(p, &why) : NULL;
    int64_t peak = g ? g->local_bytes + g->wire_bytes + cost_outside_bytes(g, p) : -1;
    if (!g) place->why = intern(why);
    arena_reset(mark);
    return peak;
}

/* Of a structure whose point is at hand; compiles it once. */
static const struct step_names *names_of(struct candidates *c, const struct space *s,
                                         const int *choice, const struct structure *structure)
{
    for (int i = 0; i < c->n_names; i++)
        if (c->names[i].structure == structure) return &c->names[i];
    const char *why;
    struct step_names to = {.structure = structure};
    struct arena_mark mark = arena_mark();
    const struct plan *p = candidate_plan(c->arguments, s, choice, &why);
    const struct graph *g = p ? compiled_alone(p, &why) : NULL;
    to.steps = g ? g->steps + 1 : 0;
    to.name = calloc((size_t)to.steps + 1, sizeof *to.name);
    c->names = realloc(c->names, sizeof *c->names * (size_t)(c->n_names + 1));
    if (!to.name || !c->names) bug("out of memory for the names of steps");
    for (int i = 0; i < to.steps; i++) to.name[i] = intern(ledger_place(g, i));
    arena_reset(mark);
    c->names[c->n_names] = to;
    return &c->names[c->n_names++];
}

const char *candidate_fullest(struct candidates *c, const struct space *s, const int *choice,
                              const struct place *place)
{
    struct estimate e;
    if (place->structure) {
        structure_evaluate(place->structure, place->at, ASK_LEAST_BYTES, &e);
        const struct step_names *names = names_of(c, s, choice, place->structure);
        return e.fullest < names->steps ? names->name[e.fullest] : "";
    }
    struct arena_mark mark = arena_mark();
    const char *why, *name = "";
    int step;
    const struct plan *p = candidate_plan(c->arguments, s, choice, &why);
    const struct graph *g = p ? compiled_alone(p, &why) : NULL;
    if (g) layout_bound(g, &step), name = intern(ledger_place(g, step));
    arena_reset(mark);
    return name;
}

int64_t candidate_step(struct candidates *c, const struct space *s, const int *choice,
                       const struct place *place, struct prediction **prediction,
                       const struct program **program, const char **missing)
{
    struct estimate e;
    const char *ignored;
    if (!missing) missing = &ignored;
    *missing = NULL;
    if (place->why) return 0;
    bool known = place->structure && structure_evaluate(place->structure, place->at, ASK_TIME, &e);
    if (!known && place->structure && structure_missing(place->structure)->n) {
        *missing = structure_missing(place->structure)->item[0];
        return 0;
    }
    if (known) {
        if (prediction) *prediction = structure_explain(place->structure, program);
        return e.step_picoseconds;
    }
    const char *why;
    const struct plan *p = candidate_plan(c->arguments, s, choice, &why);
    const struct graph *g = p ? compiled_alone(p, &why) : NULL;
    if (!g) return 0;
    struct program *made;
    struct prediction *t = predict(p, g, &made);
    if (!t) *missing = made->missing.item[0];
    if (prediction) *prediction = t, *program = made;
    return t ? t->step : 0;
}

int64_t candidate_least_peak(const struct place *place)
{
    struct estimate e;
    if (!place->structure) return 0;
    structure_evaluate(place->structure, place->at, ASK_LEAST_BYTES, &e);
    return e.least_bytes < 0 ? 0 : e.least_bytes + place->outside_bytes;
}

int64_t candidate_least_step(const struct place *place)
{
    struct estimate e;
    if (!place->structure || !structure_evaluate(place->structure, place->at, ASK_LEAST_TIME, &e))
        return 0;
    return e.least_picoseconds;
}

/* Compiles a structure once for what its points are asked. */
static void work_out(struct candidates *c, const struct space *s, const int *choice,
                     struct known *known)
{
    const char *why;
    struct arena_mark mark = arena_mark();
    struct diagnostics_mark said = diagnostics_mark();
    const struct plan *p = candidate_plan(c->arguments, s, choice, &why);
    struct graph *g = p ? pass_lower(p) : NULL;
    if (g) g = pipeline_run(g, LEVEL_SCHEDULE);
    if (g) known->flops = cost_flops_per_token(g).hardware, known->traffic = traffic_of(g);
    known->worked = true;
    diagnostics_drop(said);
    arena_reset(mark);
}

struct candidate_work candidate_work(struct candidates *c, const struct space *s, const int *choice,
                                     const struct place *place)
{
    if (place->why) return (struct candidate_work){0};
    struct known *k = find(c->table, c->room, place->key);
    if (!k->worked) work_out(c, s, choice, k);
    return (struct candidate_work){
        k->flops, traffic_bytes(k->traffic, place->at.fsdp, place->at.dp, place->at.accumulation)};
}

double candidate_cost(struct candidates *c, const struct space *s, const int *choice,
                      struct candidate_work work)
{
    const char *why;
    struct arena_mark mark = arena_mark();
    const struct plan *p = candidate_plan(c->arguments, s, choice, &why);
    const double cost = p ? step_cost(p, work.flops, work.moved) : 0;
    arena_reset(mark);
    return cost;
}
