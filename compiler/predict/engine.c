/* See engine.h. Loops are run until a state comes back: clocks of the lanes relative to the front,
 * what is under way and how far, which events are still to come by their place in their ring, and
 * what kind of iteration is next. From there on the time between the two goes on repeating, for as
 * long as the kinds of the iterations do; then the run goes on. The same over micro-batches. */
#include "predict/engine.h"

#include <math.h>
#include <string.h>

const char *const reason_names[REASONS] = {"link", "latency", "order", "slot"};

enum { UNDER_WAY = 256, KEPT_STATES = 12 };

/* A collective that was issued and is not over. */
struct pending {
    const struct item *item;
    const struct parts *parts;
    int part;
    int64_t left;  /* picoseconds of the part, undisturbed */
    int64_t after; /* collectives of the other series that it comes after */
    bool began;
    int64_t layer, since;
};

/* Collectives that run one after the other. */
struct queue {
    struct pending of[UNDER_WAY];
    int64_t issued, completed; /* so far */
};

struct rotating {
    int64_t event, ring;
};

/* A state that may come back, and the totals at that time. */
struct kept {
    int64_t at; /* iteration or micro-batch */
    int64_t *state;
    int states;
    int64_t now, issued[SERIES], iterations;
    struct tally *tally;
    int64_t part[STEP_PARTS];
};

struct engine {
    const struct program *p;
    struct outcome out;
    int64_t now;
    struct queue queue[SERIES];
    int64_t *event; /* number, in its series, of the collective that it stands for; 0: none yet */
    enum series *series;              /* of an event */
    struct rotating **rotating;       /* by region, ended by ring 0 */
    struct kept kept[2][KEPT_STATES]; /* iterations, micro-batches */
    int64_t *scratch;
    struct watcher *watcher;
    bool unrolled;
    int64_t layer;
    int micro;
    struct item issuing, waking; /* runs of one kernel that is none */
    int64_t issuing_clock[2], waking_clock[2];
    int64_t replayed, issues; /* of the program's replay: kernels, issues so far */
    struct item replaying;
    int64_t *replaying_clock;
};

/* ── the lanes of collectives ────────────────────────────────────────────────── */

static enum series other(enum series o)
{
    return o == SERIES_SHARDS ? SERIES_REPLICAS : SERIES_SHARDS;
}

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

static void enqueue(struct engine *e, const struct item *it, const struct parts *parts,
                    int64_t layer, int64_t after)
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

/* Until the collective of this number of a series is over. awaited: from which number on they are
 * waited for themselves. */
static void wait_until(struct engine *e, enum series o, int64_t number, int64_t awaited, bool slot)
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

static void compute(struct engine *e, const struct item *run)
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

/* ── items ───────────────────────────────────────────────────────────────────── */

static int64_t modulo(int64_t n, int64_t ring) { return ((n % ring) + ring) % ring; }

/* The same run, by what its kernels took this time. */
static const struct item *this_time(struct engine *e, const struct item *run)
{
    const struct replay *r = e->p->replay;
    if (!r) return run;
    e->replaying = *run;
    int64_t *clock = e->replaying_clock;
    for (int k = 0; k < run->kernels; k++)
        clock[k + 1] = clock[k] + r->between + r->kernel[e->replayed++ % r->kernels];
    for (int c = 0; c < COMPANIES; c++) e->replaying.clock[c] = clock;
    return &e->replaying;
}

/* The waits of an item one after the other, each until its collective is over and compute goes on.
 */
static void wait_this_time(struct engine *e, const struct item *it, int64_t n)
{
    const struct queue *q = &e->queue[it->series];
    const bool ring = it->all && it->loop;
    for (int64_t k = 0; k < (ring ? it->ring : 1); k++) {
        const int64_t slot = ring       ? k
                             : it->loop ? modulo(n + it->shift, it->ring)
                                        : 0,
                      number = e->event[it->event + slot];
        if (number <= q->completed) continue;
        wait_until(e, it->series, number, number, it->slot);
        e->waking_clock[1] = e->p->replay->wake[(number - 1) % e->p->replay->issues];
        compute(e, &e->waking);
    }
}

/* Compute issues a collective, and that takes its time. On a processor a collective is timed from
 * the begin of its issue. */
static void issue(struct engine *e, const struct item *it, const struct parts *parts, int64_t layer,
                  int64_t after)
{
    const struct replay *r = e->p->replay;
    if (r) e->issuing_clock[1] = r->issue[e->issues++ % r->issues];
    if (e->p->one_order) enqueue(e, it, parts, layer, after);
    if (e->p->issue) compute(e, &e->issuing);
    if (!e->p->one_order) enqueue(e, it, parts, layer, after);
}

/* The collective that was issued last in a series, under the number of an event. */
static void record(struct engine *e, const struct item *it, int64_t place)
{
    e->event[it->event + place] = e->queue[it->series].issued;
    e->series[it->event + place] = it->series;
}

static void do_item(struct engine *e, const struct item *it, int64_t n)
{
    int64_t at;
    if ((it->once && !(e->micro & PART_FIRST)) || (it->next && e->micro & PART_LAST)) return;
    switch (it->kind) {
    case ITEM_RUN: compute(e, this_time(e, it)); break;
    case ITEM_PARTS:
    case ITEM_GATHER:
        if (n < it->from || n >= it->to) return; /* with one layer a loop has none to run ahead */
        at = n + it->shift;
        issue(e, it, item_gather(it, n), it->loop ? (it->down ? it->count - 1 - at : at) : -1,
              it->after_parts && e->micro & PART_FIRST && !e->p->one_order
                  ? e->queue[SERIES_REPLICAS].issued
                  : 0);
        if (it->kind == ITEM_PARTS) return;
        record(e, it, it->loop ? modulo(at, it->ring) : 0);
        break;
    case ITEM_REDUCE: {
        int micro = (it->first ? e->micro & PART_FIRST : 0) | (it->last ? e->micro & PART_LAST : 0);
        issue(e, it, &it->reduce[micro], e->layer,
              it->after_sums ? e->event[it->after_sums - 1 + modulo(n, it->ring)] : 0);
        record(e, it, it->loop ? modulo(n, it->ring) : 0);
        break;
    }
    case ITEM_REPLICAS:
        if (!it->reduce[e->micro & PART_LAST].n) return; /* one replica, or a later micro-batch's */
        issue(e, it, &it->reduce[e->micro & PART_LAST], e->layer,
              it->series == SERIES_SHARDS ? 0 : e->queue[SERIES_SHARDS].issued);
        record(e, it, it->loop ? modulo(n, it->ring) : 0);
        break;
    case ITEM_SUM:
        issue(e, it, &it->reduce[0], -1, 0);
        record(e, it, 0);
        break;
    case ITEM_WAIT: {
        if (e->p->replay) {
            wait_this_time(e, it, n);
            break;
        }
        const struct queue *q = &e->queue[it->series];
        const int64_t done = q->completed, slot = it->loop ? modulo(n + it->shift, it->ring) : 0;
        int64_t last = 0, first = INT64_MAX;
        for (int64_t k = 0; it->all && it->loop && k < it->ring; k++) {
            int64_t number = e->event[it->event + k];
            if (number > last) last = number;
            if (number > q->completed && number < first) first = number;
        }
        if (!it->all || !it->loop) last = first = e->event[it->event + slot];
        wait_until(e, it->series, last, first, it->slot);
        if (e->p->wake && q->completed > done) compute(e, &e->waking);
    } break;
    }
}

/* ── states ──────────────────────────────────────────────────────────────────── */

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

/* The totals since a kept state happen `times` more; events of rings move on by `by`. */
static void repeat(struct engine *e, const struct kept *k, int64_t times, int region, int64_t by)
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

/* A state that was there before: which; else it is kept, in the oldest's place. */
static const struct kept *seen(struct engine *e, int level, int64_t *count, int region, int64_t at)
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

/* ── loops ───────────────────────────────────────────────────────────────────── */

/* How often the iterations `from` .. `to` - 1 come again after `to`, kind by kind. */
static int64_t repeats(const struct part_region *r, int64_t from, int64_t to)
{
    int64_t period = to - from, same = 0;
    while (to + same < r->count && r->kind[to + same] == r->kind[from + same % period]) same++;
    return same / period;
}

static void run_region(struct engine *e, int number)
{
    const struct part_region *r = &e->p->region[number];
    int64_t kept = 0, begin = e->now;
    bool loop = r->count > 1;
    for (int64_t n = 0; n < r->count; n++) {
        const struct kept *k =
            loop && !e->unrolled && n + 1 < r->count ? seen(e, 0, &kept, number, n) : NULL;
        int64_t times = k ? repeats(r, k->at, n) : 0;
        if (times) {
            int64_t by = times * (n - k->at);
            repeat(e, k, times, number, by);
            begin = e->now;
            n += by;
            kept = 0;
            if (n == r->count) break;
        } else if (k)
            kept = 0; /* another kind comes: the states so far are of no use */
        e->layer = !loop ? -1 : r->down ? r->count - 1 - n : n;
        const struct stage *s = &r->stage[r->stage_of[n]];
        for (int i = 0; i < s->n; i++) do_item(e, &s->item[i], n);
        e->out.iterations++;
        e->out.part[r->part] += e->now - begin;
        begin = e->now;
    }
    e->layer = -1;
}

/* All that is under way is waited for. */
static void join(struct engine *e, enum part_of_step part)
{
    int64_t begin = e->now;
    for (enum series o = 0; o < SERIES; o++) wait_until(e, o, e->queue[o].issued, 0, false);
    e->out.part[part] += e->now - begin;
}

static void run_phase(struct engine *e, bool update)
{
    for (int i = 0; i < e->p->regions; i++)
        if (e->p->region[i].update == update) run_region(e, i);
}

const struct outcome *engine_run(struct engine *e, bool unrolled, struct watcher *w)
{
    const int64_t all = e->p->accumulation;
    int64_t kept = 0;
    e->unrolled = unrolled || w;
    e->watcher = w;
    e->now = 0;
    for (enum series o = 0; o < SERIES; o++) e->queue[o].issued = e->queue[o].completed = 0;
    memset(e->event, 0, sizeof *e->event * (size_t)(e->p->events + 1));
    memset(e->out.tally, 0, sizeof *e->out.tally * (size_t)TALLIES(e->p));
    memset(e->out.part, 0, sizeof e->out.part);
    e->out.iterations = e->replayed = e->issues = 0;
    e->layer = -1;
    for (int64_t j = 0; j < all; j++) {
        e->micro = (j == 0 ? PART_FIRST : 0) | (j + 1 == all ? PART_LAST : 0);
        if (!e->unrolled && !e->micro) {
            const struct kept *k = seen(e, 1, &kept, -1, j);
            int64_t period = k ? j - k->at : 0, times = k ? (all - 1 - j) / period : 0;
            if (times) {
                repeat(e, k, times, -1, 0);
                j += times * period;
                kept = 0;
                e->micro = j + 1 == all ? PART_LAST : 0;
            }
        }
        run_phase(e, false);
        if (e->p->joins) join(e, STEP_BACKWARD);
    }
    e->micro = 0;
    run_phase(e, true);
    join(e, STEP_UPDATE);
    e->out.picoseconds = e->now;
    return &e->out;
}

#define HOLD(p, type, n) ((type *)program_take(p, sizeof(type) * (size_t)(n)))

/* The rings whose events are used in turn by the iterations of a region. */
static struct rotating *rotating_of(struct program *p, const struct part_region *r)
{
    VECTOR(struct rotating) all = {0};
    for (int k = 0; k < r->stages && r->count > 1; k++)
        for (int i = 0; i < r->stage[k].n; i++) {
            const struct item *it = &r->stage[k].item[i];
            bool known = it->kind == ITEM_RUN || !it->loop || it->ring < 2 ||
                         (it->kind == ITEM_WAIT && it->all);
            for (int j = 0; j < all.n && !known; j++) known = all.item[j].event == it->event;
            if (!known) PUSH(&all, ((struct rotating){it->event, it->ring}));
        }
    struct rotating *kept = HOLD(p, struct rotating, all.n + 1); /* ended by one of ring 0 */
    for (int i = 0; i < all.n; i++) kept[i] = all.item[i];
    return kept;
}

struct engine *engine_new(struct program *p)
{
    struct engine *e = program_take(p, sizeof *e);
    e->p = p;
    e->event = HOLD(p, int64_t, p->events + 1);
    e->series = HOLD(p, enum series, p->events + 1);
    e->scratch = HOLD(p, int64_t, 5 * SERIES * UNDER_WAY + p->events + 3);
    e->out.tally = HOLD(p, struct tally, TALLIES(p));
    e->rotating = HOLD(p, struct rotating *, p->regions);
    for (int i = 0; i < p->regions; i++) e->rotating[i] = rotating_of(p, &p->region[i]);
    int most = 0;
    for (int i = 0; i < p->items; i++)
        if (p->by_number[i]->kernels > most) most = p->by_number[i]->kernels;
    e->replaying_clock = HOLD(p, int64_t, most + 1);
    e->issuing_clock[1] = p->issue;
    e->waking_clock[1] = p->wake;
    e->issuing = (struct item){.kind = ITEM_WAIT, .number = ISSUES(p), .kernels = 1};
    e->waking = (struct item){.kind = ITEM_WAIT, .number = WAKES(p), .kernels = 1};
    for (int c = 0; c < COMPANIES; c++)
        e->issuing.clock[c] = e->issuing_clock, e->waking.clock[c] = e->waking_clock;
    for (int level = 0; level < 2; level++)
        for (int i = 0; i < KEPT_STATES; i++) {
            e->kept[level][i].tally = HOLD(p, struct tally, TALLIES(p));
            e->kept[level][i].state = HOLD(p, int64_t, 5 * SERIES * UNDER_WAY + p->events + 3);
        }
    return e;
}

int64_t step_picoseconds(const struct program *p, const struct outcome *o)
{
    int64_t step = o->picoseconds + p->host;
    return step + llround((double)step * (p->late - 1));
}
