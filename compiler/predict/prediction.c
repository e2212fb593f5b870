/* Adds up an outcome by class, reason, part and row. Every picosecond of the step is counted once.
 */
#include "predict/prediction.h"

#include <math.h>

static void add_run(struct prediction *t, const struct program *p, const struct item *run,
                    const struct tally *tally)
{
    for (int k = 0; k < run->kernels; k++) {
        const struct timed *kernel = &p->kernel[run->kernel + k];
        int64_t alone = kernel->time.picoseconds[ALONE] * tally->count,
                slow = (run->clock[ALONE][k + 1] - run->clock[ALONE][k] - kernel->launch) *
                       tally->count;
        t->kernel[kernel->class] += alone;
        t->limit[kernel->class][kernel->time.limit] += alone;
        t->rate[kernel->time.rate] += alone;
        t->slowest += slow - alone;
        t->launch += kernel->launch * tally->count;
    }
    t->contention += tally->extra;
}

/* The part of a collective that takes longest says what it rests on. */
static const struct transfer *longest(const struct parts *p)
{
    const struct transfer *most = NULL;
    for (int i = 0; i < p->n; i++)
        if (!most || p->part[i].bytes + p->part[i].latency > most->bytes + most->latency)
            most = &p->part[i];
    return most;
}

static const char *limit_of(const struct transfer *t)
{
    return !t || t->company == ALONE ? "memory"
           : t->company == WITH_NODE ? "link node"
                                     : "link network";
}

static void add_collective(struct prediction *t, const struct program *p, const struct item *it,
                           const struct tally *tally)
{
    const struct part_region *r = &p->region[p->region_of[it->number]];
    struct collective_cost *c = &t->collective[t->collectives];
    const struct parts *parts = &it->reduce[it->kind == ITEM_SUM ? 0 : PART_LAST];
    if ((it->kind == ITEM_GATHER || it->kind == ITEM_PARTS) && (r->count == 1 || it->from < it->to))
        parts = item_gather(it, r->count > 1 ? it->from : 0);
    if (!tally->count) return;
    const struct transfer *most = longest(parts);
    *c = (struct collective_cost){.name = it->what,
                                  .region = r->name,
                                  .count = tally->count,
                                  .picoseconds = tally->busy,
                                  .limit = limit_of(most)};
    for (int k = 0; k < REASONS; k++) {
        c->exposed[k] = tally->exposed[k];
        t->exposed[k] += tally->exposed[k];
        t->exposed_all += tally->exposed[k];
        if (most) t->rate[most->rate] += tally->exposed[k];
    }
    if (tally->busy > 0) t->collectives++;
}

struct prediction *prediction_of(const struct program *p, const struct outcome *o)
{
    struct prediction *t = TAKE(struct prediction);
    t->rate = TAKE_MANY(int64_t, p->machine.rates);
    t->collective = TAKE_MANY(struct collective_cost, p->items + 1);
    t->step = step_picoseconds(p, o);
    t->outside = p->outside;
    for (int i = 0; i < p->items; i++)
        if (p->by_number[i]->kind == ITEM_RUN)
            add_run(t, p, p->by_number[i], &o->tally[i]);
        else if (p->by_number[i]->kind != ITEM_WAIT)
            add_collective(t, p, p->by_number[i], &o->tally[i]);
    for (int i = 0; i < STEP_PARTS; i++) t->part[i] = o->part[i];
    t->launch += o->tally[ISSUES(p)].count * p->issue + o->tally[WAKES(p)].count * p->wake;
    t->host = p->host;
    t->jitter = t->step - o->picoseconds - p->host;
    t->rate[RATE_HOST] += t->launch + t->host;
    t->rate[RATE_CONTENTION] += t->contention;
    t->rate[RATE_DEVICES] += t->slowest + t->jitter;
    double assumed = 0, square = 0;
    for (int i = 0; i < p->machine.rates; i++) {
        const struct provenance *from = &p->machine.rate[i].from;
        double time = (double)t->rate[i];
        if (from->basis == BASIS_ASSUMED) assumed += time;
        square += time * from->spread * (time * from->spread);
    }
    t->assumed = t->step > 0 ? assumed / (double)t->step : 0;
    int64_t width = llround(sqrt(square));
    t->low = t->step > width ? t->step - width : 0;
    t->high = t->step + width;
    return t;
}

struct prediction *predict(const struct plan *plan, const struct graph *g, struct program **program)
{
    struct machine m = machine_of(plan);
    *program = program_of(plan, &m, g);
    *TAKE(struct program *) = *program; /* most callers keep it as long as the process lives */
    if ((*program)->missing.n) return NULL;
    return prediction_of(*program, engine_run(engine_new(*program), false, NULL));
}
