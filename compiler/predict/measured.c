/* See measured.h. A collective's duration has the time in it that a rank waits for the others, so
 * each place in the order of a step has its own; without that order the mean over all instances of
 * a unit counts. */
#include "predict/measured.h"

#include <math.h>
#include <string.h>

static int64_t picoseconds(double seconds) { return llround(seconds * PICOSECONDS); }

/* Of all that match, by their calls; negative: none does. unit NULL: any. instance, micro -1:
 * any. */
static double mean_of(const struct durations *d, const char *what, const char *unit,
                      int64_t instance, int micro)
{
    double sum = 0, calls = 0;
    for (int i = 0; i < d->collectives; i++) {
        const struct duration *c = &d->collective[i];
        if (strcmp(c->name, what) || (unit && strcmp(c->unit, unit)) ||
            (instance >= 0 && c->instance != instance) ||
            (micro >= 0 && c->micro >= 0 && c->micro != micro))
            continue;
        sum += c->calls * c->seconds, calls += c->calls;
    }
    return calls > 0 ? sum / calls : -1;
}

/* negative: not known, and so is the total */
static struct parts parts_of(double seconds)
{
    struct parts p = {.part = {{.bytes = picoseconds(seconds), .company = WITH_NODE}}, .n = 1};
    if (seconds >= 0 && p.part[0].bytes < 1) p.part[0].bytes = 1;
    p.total = p.part[0].bytes;
    return p;
}

static const struct duration *kernel_of(const struct durations *d, const char *name)
{
    for (int i = 0; i < d->kernels; i++)
        if (!strcmp(d->kernel[i].name, name)) return &d->kernel[i];
    return NULL;
}

/* Of a sum of squares the trainer also calls the kernel once to begin, without a shard. */
static double calls_of(const struct work *w)
{
    for (int i = 0; i < w->ops; i++)
        if (w->op[i].op == OP_sum_squares) return 2;
    return 1;
}

static bool set_kernel(struct timed *t, const struct work *w, const struct durations *d)
{
    const struct duration *k = kernel_of(d, t->name);
    if (!k) return false;
    for (int c = 0; c < COMPANIES; c++) {
        t->time.picoseconds[c] = picoseconds(k->seconds * calls_of(w));
        if (t->time.picoseconds[c] < 1) t->time.picoseconds[c] = 1;
    }
    t->time.missing = NULL;
    t->time.outside = false;
    t->launch = picoseconds(d->between);
    return true;
}

/* Reductions that have no measurement of their own micro-batch take the mean of all. */
static bool set_reduce(struct item *it, const char *unit, const struct durations *d)
{
    double any = mean_of(d, "reduce", unit, -1, -1);
    for (int micro = 0; micro < 4; micro++) {
        double own = mean_of(d, "reduce", unit, -1, micro);
        it->reduce[micro] = parts_of(own < 0 ? any : own);
    }
    return any >= 0;
}

static bool set_replicas(struct item *it, const char *unit, const struct durations *d)
{
    double mean = mean_of(d, "sum over replicas", unit, -1, -1);
    for (int micro = 0; micro < 4; micro++)
        it->reduce[micro] = micro & PART_LAST ? parts_of(mean) : (struct parts){0};
    return mean >= 0;
}

static bool set_sum(struct item *it, const struct durations *d, int64_t number)
{
    double own = mean_of(d, "sum over ranks", NULL, number, -1),
           any = mean_of(d, "sum over ranks", NULL, -1, -1);
    it->reduce[0] = parts_of(own < 0 ? any : own);
    return any >= 0;
}

const char *program_measured(struct program *p, const struct durations *d)
{
    int64_t sums = 0;
    for (int i = 0; i < p->kernels; i++)
        if (!set_kernel(&p->kernel[i], &p->work[i], d)) return p->kernel[i].name;
    for (int i = 0; i < p->units; i++) {
        p->gather[i] = parts_of(mean_of(d, "gather", p->unit_name[i], -1, -1));
        if (p->cut)
            p->together[i] = parts_of(mean_of(d, "gather over replicas", p->unit_name[i], -1, -1));
    }
    for (int i = 0; i < p->items; i++) {
        struct item *it = p->by_number[i];
        bool known = true;
        const bool gathers = it->kind == ITEM_GATHER || it->kind == ITEM_PARTS;
        for (int64_t k = 0; gathers && k < it->count; k++) known &= it->gather[k]->total >= 0;
        if (it->kind == ITEM_REDUCE) known = set_reduce(it, p->unit_name[it->unit], d);
        if (it->kind == ITEM_REPLICAS && it->reduce[PART_LAST].n)
            known = set_replicas(it, p->unit_name[it->unit], d);
        if (it->kind == ITEM_SUM) known = set_sum(it, d, sums++);
        if (!known) return it->what;
    }
    if (d->sequences) {
        p->sequence = program_take(p, sizeof *p->sequence * (size_t)d->sequences);
        for (int i = 0; i < d->sequences; i++) p->sequence[i] = parts_of(d->sequence[i]);
        p->sequences = d->sequences;
    }
    p->missing.n = 0;
    p->outside = false;
    p->apart = true;
    p->slowest = p->late = p->disturbed = 1;
    p->host = picoseconds(d->host);
    p->issue = picoseconds(d->issue);
    p->wake = picoseconds(d->wake);
    program_set_clocks(p);
    return NULL;
}

/* ── step by step ────────────────────────────────────────────────────────────── */

/* The kernels of a step in the order in which the program runs them. */
struct kernel_order {
    int *kernel, n, room;
};

static void note_kernel(struct watcher *w, const struct item *item, int kernel, int64_t layer,
                        int64_t from, int64_t to)
{
    struct kernel_order *o = w->context;
    (void)layer, (void)from, (void)to;
    if (item->kind != ITEM_RUN || kernel < 0) return;
    if (o->n < o->room) o->kernel[o->n] = kernel;
    o->n++;
}

/* What each of these took in a step; false: the run called others. */
static bool set_replay(struct replay *r, const struct program *p, const struct durations *d,
                       const struct measured_step *s, const struct kernel_order *o)
{
    int call = 0;
    for (int i = 0; i < o->n; i++) {
        double seconds = 0;
        for (int k = 0; k < (int)calls_of(&p->work[o->kernel[i]]); k++, call++) {
            if (call >= s->kernels || call >= d->orders ||
                strcmp(d->kernel[d->order[call]].name, p->kernel[o->kernel[i]].name))
                return false;
            seconds += s->kernel[call];
        }
        r->kernel[i] = picoseconds(seconds);
    }
    for (int i = 0; i < s->issues; i++) r->issue[i] = picoseconds(s->issue[i]);
    for (int i = 0; i < s->wakes; i++) r->wake[i] = picoseconds(s->wake[i]);
    for (int i = 0; i < s->collectives; i++) p->sequence[i] = parts_of(s->collective[i]);
    r->kernels = o->n, r->issues = s->issues;
    r->between = picoseconds(s->between);
    return call == s->kernels;
}

static void add_outcome(struct outcome *to, const struct program *p, const struct outcome *o)
{
    for (int i = 0; i < TALLIES(p); i++) {
        to->tally[i].count += o->tally[i].count;
        to->tally[i].busy += o->tally[i].busy;
        to->tally[i].extra += o->tally[i].extra;
        for (int k = 0; k < REASONS; k++) to->tally[i].exposed[k] += o->tally[i].exposed[k];
    }
    for (int i = 0; i < STEP_PARTS; i++) to->part[i] += o->part[i];
    to->picoseconds += o->picoseconds;
}

static void divide_outcome(struct outcome *o, const struct program *p, int64_t n)
{
    for (int i = 0; i < TALLIES(p); i++) {
        o->tally[i].count /= n, o->tally[i].busy /= n, o->tally[i].extra /= n;
        for (int k = 0; k < REASONS; k++) o->tally[i].exposed[k] /= n;
    }
    for (int i = 0; i < STEP_PARTS; i++) o->part[i] /= n;
    o->picoseconds /= n;
}

const struct outcome *measured_steps(struct program *p, const struct durations *d)
{
    if (!d->steps || !d->sequences || !p->issue || !p->wake) return NULL;
    struct kernel_order order = {.kernel = TAKE_MANY(int, d->orders + 1), .room = d->orders};
    struct watcher watcher = {note_kernel, &order};
    struct engine *e = engine_new(p);
    struct outcome *mean = TAKE(struct outcome);
    const struct outcome *o = engine_run(e, true, &watcher);
    const int64_t issues = o->tally[ISSUES(p)].count;
    int64_t host = 0;
    mean->tally = TAKE_MANY(struct tally, TALLIES(p));
    if (order.n > order.room) return NULL;
    struct replay r = {.kernel = TAKE_MANY(int64_t, order.n + 1),
                       .issue = TAKE_MANY(int64_t, issues + 1),
                       .wake = TAKE_MANY(int64_t, issues + 1)};
    bool alike = true;
    p->replay = &r;
    for (int i = 0; i < d->steps && alike; i++) {
        const struct measured_step *s = &d->step[i];
        alike = issues > 0 && s->issues == issues && s->wakes == issues &&
                s->collectives == issues && issues == d->sequences &&
                set_replay(&r, p, d, s, &order);
        if (!alike) break;
        add_outcome(mean, p, engine_run(e, true, NULL));
        host += picoseconds(s->host);
    }
    p->replay = NULL;
    if (!alike) return NULL;
    divide_outcome(mean, p, d->steps);
    p->host = host / d->steps;
    return mean;
}

/* ── is it of this plan? ─────────────────────────────────────────────────────── */

int64_t measured_collectives(const struct program *p, const struct tally *counts)
{
    int64_t n = 0;
    for (int i = 0; i < p->items; i++)
        if (p->by_number[i]->kind != ITEM_RUN && p->by_number[i]->kind != ITEM_WAIT)
            n += counts[i].count;
    return n;
}

const char *measured_otherwise(const struct program *p, const struct tally *counts,
                               const struct durations *d)
{
    for (int i = 0; i < p->items; i++) {
        const struct item *it = p->by_number[i];
        for (int k = 0; it->kind == ITEM_RUN && k < it->kernels; k++) {
            const char *name = p->kernel[it->kernel + k].name;
            const struct duration *run = kernel_of(d, name);
            double calls = calls_of(&p->work[it->kernel + k]) * (double)counts[i].count;
            if (!run || fabs(run->calls - calls) > 0.01 * calls) return name;
        }
    }
    return NULL;
}
