/* See bound.h. The bound is the larger of two sums. All collectives one after the other is the
 * first. The second is compute alone, and what collectives add to it at least:
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
    const struct parts *issued_parts[ISSUED];
    int64_t issued, settled; /* collectives so far; those that are counted */
    int64_t times;           /* what is walked happens so often */
    int micro;
    double alone, waits;      /* compute alone; compute waits for certain */
    double beside[COMPANIES]; /* of collectives that compute may run beside, undisturbed */
    double lane;              /* of all collectives */
};

static int64_t modulo(int64_t n, int64_t ring) { return ((n % ring) + ring) % ring; }

static void issue(struct walk *w, int64_t event, const struct parts *parts)
{
    if (w->issued - w->settled >= ISSUED) bug("too many collectives between two kernels");
    w->issued_parts[w->issued++ % ISSUED] = parts;
    w->event[event] = w->issued;
    w->lane += (double)(w->times * parts->total);
}

/* Those up to a number had no compute beside them. */
static void wait_for(struct walk *w, int64_t number)
{
    for (; w->settled < number; w->settled++)
        w->waits += (double)(w->times * w->issued_parts[w->settled % ISSUED]->total);
}

/* Compute may go on beside all that is under way. */
static void settle(struct walk *w)
{
    for (; w->settled < w->issued; w->settled++) {
        const struct parts *parts = w->issued_parts[w->settled % ISSUED];
        for (int i = 0; i < parts->n; i++) {
            const struct transfer *t = &parts->part[i];
            w->beside[t->company] += (double)(w->times * (t->latency + t->bytes));
        }
    }
}

static void walk_item(struct walk *w, const struct item *it, int64_t n)
{
    int64_t place = it->loop && it->kind != ITEM_RUN ? modulo(n, it->ring) : 0, last = 0;
    if (it->once && !(w->micro & PART_FIRST)) return;
    switch (it->kind) {
    case ITEM_RUN:
        settle(w);
        w->runs[it->number] += w->times;
        w->alone += (double)(w->times * it->clock[ALONE][it->kernels]);
        break;
    case ITEM_GATHER:
        if (n < it->from || n >= it->to) return;
        issue(w, it->event + (it->loop ? modulo(n + it->shift, it->ring) : 0), item_gather(it, n));
        break;
    case ITEM_REDUCE: {
        int micro = (it->first ? w->micro & PART_FIRST : 0) | (it->last ? w->micro & PART_LAST : 0);
        issue(w, it->event + place, &it->reduce[micro]);
        break;
    }
    case ITEM_SUM: issue(w, it->event, &it->reduce[0]); break;
    case ITEM_WAIT:
        if (it->all && it->loop) {
            for (int64_t k = 0; k < it->ring; k++)
                if (w->event[it->event + k] > last) last = w->event[it->event + k];
        } else
            last = w->event[it->event + (it->loop ? modulo(n + it->shift, it->ring) : 0)];
        wait_for(w, last);
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
    if (w->p->joins || update) wait_for(w, w->issued);
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

static double least_loss(const struct walk *w, enum company company, struct met *met)
{
    const struct program *p = w->p;
    const double disturbed = p->disturbed;
    double left = w->beside[company] * disturbed, loss = 0;
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
    double least = w.alone + w.waits;
    for (enum company c = WITH_NODE; c < COMPANIES; c++) least += least_loss(&w, c, met);
    arena_reset(mark);
    if (least < w.lane) least = w.lane;
    int64_t whole = (int64_t)(least * (1 - 1e-12)) + p->host; /* sums of doubles round */
    return whole + llround((double)whole * (p->late - 1));
}
