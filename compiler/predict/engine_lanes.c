/* The lanes of an engine in time: what is under way and how far, what compute and collectives do to
 * each other while both run, and what compute waits for. Every step ends where a rate may change:
 * at the end of a part of a collective, or of a run of kernels. */
#include "predict/engine_state.h"

#include <math.h>

/* ── collectives ─────────────────────────────────────────────────────────────── */

/* What runs of a series now; NULL: nothing, or it has to wait for the other one. */
static struct pending *head(struct engine *e, enum series o)
{
    struct queue *q = &e->queue[o];
    struct pending *h = &q->of[q->completed % UNDER_WAY];
    return q->completed < q->issued && h->after <= e->queue[other(o)].completed ? h : NULL;
}

/* Those that can begin do. Parts that take no time are over when they are reached. */
static void settle(struct engine *e)
{
    for (bool more = true; more;) {
        more = false;
        for (enum series o = 0; o < SERIES; o++) {
            struct pending *h = head(e, o);
            if (!h) continue;
            if (!h->began) h->began = true, h->since = e->now;
            if (h->part < h->parts->n) continue;
            if (e->watcher) e->watcher->ran(e->watcher, h->item, -1, h->layer, h->since, e->now);
            e->queue[o].completed++;
            more = true;
        }
    }
}

static void next_part(struct pending *h)
{
    if (++h->part < h->parts->n)
        h->left = h->parts->part[h->part].latency + h->parts->part[h->part].bytes;
}

/* What two that run at a time share: a link. */
static double shared(struct engine *e)
{
    struct pending *a = head(e, SERIES_SHARDS), *b = head(e, SERIES_REPLICAS);
    if (!a || !b || e->p->apart) return 1;
    enum company company = a->parts->part[a->part].company;
    return company != ALONE && company == b->parts->part[b->part].company ? 2 : 1;
}

void lane_enqueue(struct engine *e, const struct item *it, const struct parts *parts, int64_t layer,
                  int64_t after)
{
    struct queue *q = &e->queue[it->series];
    int64_t all = e->queue[SERIES_SHARDS].issued + e->queue[SERIES_REPLICAS].issued;
    if (all < e->p->sequences) parts = &e->p->sequence[all];
    if (q->issued - q->completed >= UNDER_WAY) bug("too many collectives under way");
    q->of[q->issued % UNDER_WAY] =
        (struct pending){.item = it,
                         .parts = parts,
                         .left = parts->n ? parts->part[0].latency + parts->part[0].bytes : 0,
                         .after = after,
                         .layer = layer};
    q->issued++;
    e->out.tally[it->number].count++;
    e->out.tally[it->number].busy += parts->total;
    settle(e);
}

/* Time until a part is over that takes `slower` times as long as it would undisturbed. */
static int64_t time_left(const struct pending *h, double slower)
{
    return !h ? INT64_MAX : slower == 1 ? h->left : (int64_t)ceil((double)h->left * slower);
}

/* `time` goes by. */
static void move_on(struct pending *h, int64_t time, double slower)
{
    if (!h) return;
    if (time >= time_left(h, slower)) {
        next_part(h);
        return;
    }
    int64_t done = slower == 1 ? time : (int64_t)((double)time / slower);
    h->left -= done < h->left ? done : h->left - 1;
}

/* Compute waits for `time` while a part is under way, and why that is exposed. */
static void expose(struct engine *e, const struct pending *h, int64_t time, double slower,
                   enum reason why)
{
    struct tally *t = &e->out.tally[h->item->number];
    if (why != REASON_LINK) {
        t->exposed[why] += time;
        return;
    }
    const struct transfer *part = &h->parts->part[h->part];
    int64_t starting = h->left - part->bytes; /* of its latency is left */
    if (starting < 0) starting = 0;
    if (slower != 1) starting = (int64_t)((double)starting * slower);
    if (starting > time) starting = time;
    t->exposed[REASON_LATENCY] += starting;
    t->exposed[REASON_LINK] += time - starting;
}

void lane_wait(struct engine *e, enum series o, int64_t number, int64_t awaited, bool slot)
{
    const struct queue *q = &e->queue[o];
    while (q->completed < number) {
        const double slower = shared(e);
        struct pending *mine = head(e, o), *theirs = head(e, other(o));
        int64_t time = time_left(mine, slower), beside = time_left(theirs, slower);
        if (beside < time) time = beside;
        enum reason why = slot                                  ? REASON_SLOT
                          : !mine || q->completed + 1 < awaited ? REASON_ORDER
                                                                : REASON_LINK;
        expose(e, mine ? mine : theirs, time, slower, why);
        e->now += time;
        move_on(mine, time, slower);
        move_on(theirs, time, slower);
        settle(e);
    }
}

/* ── the compute lane ────────────────────────────────────────────────────────── */

/* The same place of a run in another company: the same kernel, as far in it. */
static int64_t place_in(const struct item *run, int64_t at, int from, int to)
{
    const int64_t *a = run->clock[from], *b = run->clock[to];
    int low = 0, high = run->kernels;
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (a[middle] <= at)
            low = middle;
        else
            high = middle;
    }
    int64_t length = a[low + 1] - a[low];
    if (length <= 0) return b[low];
    return b[low] + (int64_t)((__int128)(at - a[low]) * (b[low + 1] - b[low]) / length);
}

/* Kernels that ended between two places of a run. */
static void watch_run(struct engine *e, const struct item *run, int company, int64_t from,
                      int64_t to, int64_t *began)
{
    const int64_t *clock = run->clock[company];
    for (int k = 0; k < run->kernels; k++) {
        int64_t gap = e->p->kernel[run->kernel + k].launch, begin = clock[k] + gap;
        if (begin >= from && begin < to) *began = e->now + (begin - from);
        if (clock[k + 1] > from && clock[k + 1] <= to)
            e->watcher->ran(e->watcher, run, run->kernel + k, e->layer, *began,
                            e->now + (clock[k + 1] - from));
    }
}

void lane_compute(struct engine *e, const struct item *run)
{
    struct tally *t = &e->out.tally[run->number];
    int company = ALONE;
    int64_t at = 0, begin = e->now, began = e->now;
    const int all = run->kernels;
    for (;;) {
        struct pending *h[SERIES];
        double slower[SERIES];
        enum company now = ALONE;
        int64_t step = INT64_MAX;
        const double link = shared(e);
        for (enum series o = 0; o < SERIES; o++) {
            h[o] = head(e, o);
            const struct transfer *part = h[o] ? &h[o]->parts->part[h[o]->part] : NULL;
            slower[o] =
                !part ? 1 : (part->disturbed > 0 ? part->disturbed : e->p->disturbed) * link;
            if (part && part->company != ALONE) now = now == ALONE ? part->company : WITH_BOTH;
            if (time_left(h[o], slower[o]) < step) step = time_left(h[o], slower[o]);
        }
        if ((int)now != company) at = place_in(run, at, company, (int)now), company = (int)now;
        int64_t rest = run->clock[company][all] - at;
        bool over = rest <= step;
        if (over) step = rest;
        if (e->watcher && run->kind == ITEM_RUN) watch_run(e, run, company, at, at + step, &began);
        e->now += step;
        at += step;
        for (enum series o = 0; o < SERIES; o++) move_on(h[o], step, slower[o]);
        settle(e);
        if (over) break;
    }
    t->count++;
    t->extra += e->now - begin - run->clock[ALONE][all];
}
