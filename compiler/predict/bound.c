/* See bound.h. The bound is the largest of two sums of each series of collectives. All collectives
 * of it one after the other is the first. The second is compute alone, and what these collectives
 * add to it at least, the other series left out:
 * - a collective that is issued and waited for between the same two kernels has no compute beside
 *   it, so compute waits for all of it;
 * - any other one either runs while compute runs, which is slower in its company, or compute waits.
 *   Which kernels it meets only a run says. Here it meets those that suffer least, as long as they
 *   last, and compute waits where that is shorter.
 * Loops are walked as the run walks them, but nothing is timed. */
#include "predict/bound.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ISSUED = 256 }; /* collectives between two kernels, at most */

struct walk {
    const struct program *p;
    int64_t *event, *runs; /* by event: the number of its collective; by item: how often it ran */
    struct in_series {
        const struct parts *parts[ISSUED];
        int64_t issued, settled;  /* collectives so far; those that are counted */
        double waits;             /* compute waits for certain */
        double beside[COMPANIES]; /* of collectives that compute may run beside, undisturbed */
        double lane;              /* of all collectives */
    } series[SERIES];
    int64_t times; /* what is walked happens so often */
    int micro;
    double alone; /* compute */
};

static int64_t modulo(int64_t n, int64_t ring) { return ((n % ring) + ring) % ring; }

static void issue(struct walk *w, enum series series, int64_t event, const struct parts *parts)
{
    struct in_series *o = &w->series[series];
    if (o->issued - o->settled >= ISSUED) bug("too many collectives between two kernels");
    o->parts[o->issued++ % ISSUED] = parts;
    if (event >= 0) w->event[event] = o->issued;
    o->lane += (double)(w->times * parts->total);
}

/* Those up to a number had no compute beside them. */
static void wait_for(struct walk *w, enum series series, int64_t number)
{
    struct in_series *o = &w->series[series];
    for (; o->settled < number; o->settled++)
        o->waits += (double)(w->times * o->parts[o->settled % ISSUED]->total);
}

/* Compute may go on beside all that is under way. */
static void settle(struct walk *w)
{
    for (int k = 0; k < SERIES; k++)
        for (struct in_series *o = &w->series[k]; o->settled < o->issued; o->settled++) {
            const struct parts *parts = o->parts[o->settled % ISSUED];
            for (int i = 0; i < parts->n; i++) {
                const struct transfer *t = &parts->part[i];
                o->beside[t->company] += (double)(w->times * (t->latency + t->bytes));
            }
        }
}

static void walk_item(struct walk *w, const struct item *it, int64_t n)
{
    int64_t place = it->loop && it->kind != ITEM_RUN ? modulo(n, it->ring) : 0, last = 0;
    if ((it->once && !(w->micro & PART_FIRST)) || (it->next && w->micro & PART_LAST)) return;
    switch (it->kind) {
    case ITEM_RUN:
        settle(w);
        w->runs[it->number] += w->times;
        w->alone += (double)(w->times * it->clock[ALONE][it->kernels]);
        break;
    case ITEM_PARTS:
        if (n >= it->from && n < it->to) issue(w, it->series, -1, item_gather(it, n));
        break;
    case ITEM_GATHER:
        if (n < it->from || n >= it->to) return;
        issue(w, it->series, it->event + (it->loop ? modulo(n + it->shift, it->ring) : 0),
              item_gather(it, n));
        break;
    case ITEM_REDUCE: {
        int micro = (it->first ? w->micro & PART_FIRST : 0) | (it->last ? w->micro & PART_LAST : 0);
        issue(w, it->series, it->event + place, &it->reduce[micro]);
        break;
    }
    case ITEM_REPLICAS:
        if (it->reduce[w->micro & PART_LAST].n)
            issue(w, it->series, it->event + place, &it->reduce[w->micro & PART_LAST]);
        break;
    case ITEM_SUM: issue(w, it->series, it->event, &it->reduce[0]); break;
    case ITEM_WAIT:
        if (it->all && it->loop) {
            for (int64_t k = 0; k < it->ring; k++)
                if (w->event[it->event + k] > last) last = w->event[it->event + k];
        } else
            last = w->event[it->event + (it->loop ? modulo(n + it->shift, it->ring) : 0)];
        wait_for(w, it->series, last);
        break;
    }
}

static void walk_phase(struct walk *w, bool update, int micro, int64_t times)
{
    w->micro = micro, w->times = times;
    for (int i = 0; i < w->p->regions && times; i++) {
        const struct part_region *r = &w->p->region[i];
        for (int64_t n = 0; n < r->count && r->update == update; n++) {
            const struct stage *s = &r->stage[r->stage_of[n]];
            for (int k = 0; k < s->n; k++) walk_item(w, &s->item[k], n);
        }
    }
    for (enum series o = 0; o < SERIES && (w->p->joins || update); o++)
        wait_for(w, o, w->series[o].issued);
    settle(w); /* what is beside the next phase has this one's count */
}

/* ── what collectives take from compute ──────────────────────────────────────── */

/* Kernels, with the time that they last in a company and the part of it that they lose. */
struct met {
    double lasts, loses;
};

static int loses_less(const void *a, const void *b)
{
    double x = ((const struct met *)a)->loses, y = ((const struct met *)b)->loses;
    return x < y ? -1 : x > y;
}

static double least_loss(const struct walk *w, enum series series, enum company company,
                         struct met *met)
{
    const struct program *p = w->p;
    const double disturbed = p->disturbed;
    double left = w->series[series].beside[company] * disturbed, loss = 0;
    int n = 0;
    if (!(left > 0)) return 0;
    for (int i = 0; i < p->items; i++) {
        const struct item *it = p->by_number[i];
        if (it->kind != ITEM_RUN || !w->runs[i]) continue;
        for (int k = 0; k < it->kernels; k++) {
            double alone = (double)(it->clock[ALONE][k + 1] - it->clock[ALONE][k]),
                   beside = (double)(it->clock[company][k + 1] - it->clock[company][k]);
            if (beside > 0)
                met[n++] = (struct met){(double)w->runs[i] * beside, 1 - alone / beside};
        }
    }
    qsort(met, (size_t)n, sizeof *met, loses_less);
    for (int i = 0; i < n && left > 0 && met[i].loses * disturbed < 1; i++) {
        double taken = met[i].lasts < left ? met[i].lasts : left;
        loss += taken * met[i].loses;
        left -= taken;
    }
    return loss + left / disturbed;
}

int64_t least_step(const struct program *p)
{
    struct arena_mark mark = arena_mark();
    struct walk w = {.p = p,
                     .event = TAKE_MANY(int64_t, p->events + 1),
                     .runs = TAKE_MANY(int64_t, p->items + 1)};
    const int64_t all = p->accumulation;
    walk_phase(&w, false, PART_FIRST | (all == 1 ? PART_LAST : 0), 1);
    walk_phase(&w, false, 0, all > 2 ? all - 2 : 0);
    walk_phase(&w, false, PART_LAST, all > 1);
    walk_phase(&w, true, 0, 1);
    struct met *met = TAKE_MANY(struct met, p->kernels + 1);
    double least = 0;
    for (enum series o = 0; o < SERIES; o++) {
        double compute = w.alone + w.series[o].waits;
        for (enum company c = WITH_NODE; c < COMPANIES; c++) compute += least_loss(&w, o, c, met);
        least = fmax(least, fmax(compute, w.series[o].lane));
    }
    arena_reset(mark);
    int64_t whole = (int64_t)(least * (1 - 1e-12)) + p->host; /* sums of doubles round */
    return whole + llround((double)whole * (p->late - 1));
}
