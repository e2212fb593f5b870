/* States of an engine that come back. A state is the clocks of the lanes relative to the front,
 * what is under way and how far, and which events are still to come, by their place in their ring.
 * From one that was there before on, the time between the two goes on repeating. */
#include "predict/engine_state.h"

#include <string.h>

static int take_state(struct engine *e, int region, int64_t n, int64_t *to)
{
    int k = 0;
    for (enum series o = 0; o < SERIES; o++) {
        const struct queue *q = &e->queue[o];
        for (int64_t i = q->completed; i < q->issued; i++) {
            const struct pending *h = &q->of[i % UNDER_WAY];
            int64_t after = h->after - e->queue[other(o)].completed;
            to[k++] = h->item->number;
            to[k++] = h->parts->total;
            to[k++] = h->part;
            to[k++] = h->left;
            to[k++] = after > 0 ? after : 0;
        }
        to[k++] = -1;
    }
    for (int64_t i = 0; i < e->p->events; i++) to[k + i] = 0;
    for (int64_t i = 0; i < e->p->events; i++) {
        int64_t lag = e->event[i] - e->queue[e->series[i]].completed, place = i;
        for (const struct rotating *r = region < 0 ? NULL : e->rotating[region]; r && r->ring; r++)
            if (i >= r->event && i < r->event + r->ring)
                place = r->event + modulo(i - r->event - n, r->ring);
        to[k + place] = lag > 0 ? lag : 0;
    }
    return k + (int)e->p->events;
}

static void keep_state(struct engine *e, struct kept *k, int64_t at)
{
    k->at = at;
    k->now = e->now;
    for (enum series o = 0; o < SERIES; o++) k->issued[o] = e->queue[o].issued;
    k->iterations = e->out.iterations;
    memcpy(k->tally, e->out.tally, sizeof *k->tally * (size_t)TALLIES(e->p));
    memcpy(k->part, e->out.part, sizeof k->part);
}

void state_repeat(struct engine *e, const struct kept *k, int64_t times, int region, int64_t by)
{
    int64_t more[SERIES];
    const int fields = (int)(sizeof(struct tally) / sizeof(int64_t));
    int64_t *to = (int64_t *)e->out.tally;
    const int64_t *from = (const int64_t *)k->tally;
    for (int i = 0; i < TALLIES(e->p) * fields; i++) to[i] += times * (to[i] - from[i]);
    for (int i = 0; i < STEP_PARTS; i++) e->out.part[i] += times * (e->out.part[i] - k->part[i]);
    for (enum series o = 0; o < SERIES; o++) more[o] = times * (e->queue[o].issued - k->issued[o]);
    for (enum series o = 0; o < SERIES; o++) {
        struct queue *q = &e->queue[o];
        struct pending moved[UNDER_WAY];
        int64_t waiting = q->issued - q->completed;
        for (int64_t i = 0; i < waiting; i++) moved[i] = q->of[(q->completed + i) % UNDER_WAY];
        q->issued += more[o], q->completed += more[o];
        for (int64_t i = 0; i < waiting; i++) {
            if (moved[i].after) moved[i].after += more[other(o)];
            q->of[(q->completed + i) % UNDER_WAY] = moved[i];
        }
    }
    e->now += times * (e->now - k->now);
    for (int64_t i = 0; i < e->p->events; i++) {
        int64_t place = i;
        for (const struct rotating *r = region < 0 ? NULL : e->rotating[region]; r && r->ring; r++)
            if (i >= r->event && i < r->event + r->ring)
                place = r->event + modulo(i - r->event + by, r->ring);
        e->scratch[place] = e->event[i] ? e->event[i] + more[e->series[i]] : 0;
    }
    memcpy(e->event, e->scratch, sizeof *e->event * (size_t)e->p->events);
}

const struct kept *state_seen(struct engine *e, int level, int64_t *count, int region, int64_t at)
{
    struct kept *all = e->kept[level];
    int n = take_state(e, region, at, e->scratch);
    int known = *count < KEPT_STATES ? (int)*count : KEPT_STATES;
    for (int i = 0; i < known; i++) {
        const struct kept *k = &all[(*count - 1 - i) % KEPT_STATES];
        if (k->states == n && !memcmp(k->state, e->scratch, sizeof *k->state * (size_t)n)) return k;
    }
    struct kept *k = &all[(*count)++ % KEPT_STATES];
    k->states = n;
    memcpy(k->state, e->scratch, sizeof *k->state * (size_t)n);
    keep_state(e, k, at);
    return NULL;
}
