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
    int64_t left; /* picoseconds of the part, undisturbed */
    int64_t layer, since;
};

struct rotating {
    int64_t event, ring;
};

/* A state that may come back, and the totals at that time. */
struct kept {
    int64_t at; /* iteration or micro-batch */
    int64_t *state;
    int states;
    int64_t now, issued, iterations;
    struct tally *tally;
    int64_t part[STEP_PARTS];
};

struct engine {
    const struct program *p;
    struct outcome out;
    int64_t now, issued, completed; /* collectives so far */
    struct pending queue[UNDER_WAY];
    int64_t *event;             /* number of the collective that it stands for; 0: never issued */
    struct rotating **rotating; /* by region, ended by ring 0 */
    struct kept kept[2][KEPT_STATES]; /* iterations, micro-batches */
    int64_t *scratch;
    struct watcher *watcher;
    bool unrolled;
    int64_t layer;
    int micro;
    struct item issuing, waking; /* runs of one kernel that is none */
    int64_t issuing_clock[2], waking_clock[2];
};

/* ── the collective lane ─────────────────────────────────────────────────────── */

static struct pending *head(struct engine *e)
{
    return e->completed < e->issued ? &e->queue[e->completed % UNDER_WAY] : NULL;
}

/* Parts that take no time are over when they are reached. */
static void begin_part(struct engine *e)
{
    struct pending *h;
    while ((h = head(e)) && h->part >= h->parts->n) {
        if (e->watcher) e->watcher->ran(e->watcher, h->item, -1, h->layer, h->since, e->now);
        e->completed++;
        h = head(e);
        if (h) h->since = e->now;
    }
}

static void next_part(struct engine *e)
{
    struct pending *h = head(e);
    if (++h->part < h->parts->n)
        h->left = h->parts->part[h->part].latency + h->parts->part[h->part].bytes;
    begin_part(e);
}

static void enqueue(struct engine *e, const struct item *it, const struct parts *parts,
                    int64_t layer)
{
    if (e->issued < e->p->sequences) parts = &e->p->sequence[e->issued];
    if (e->issued - e->completed >= UNDER_WAY) bug("too many collectives under way");
    e->queue[e->issued % UNDER_WAY] =
        (struct pending){.item = it,
                         .parts = parts,
                         .left = parts->n ? parts->part[0].latency + parts->part[0].bytes : 0,
                         .layer = layer,
                         .since = e->now};
    e->issued++;
    e->out.tally[it->number].count++;
    e->out.tally[it->number].busy += parts->total;
    begin_part(e);
}

/* Compute waits; the head's part goes on undisturbed for `time`, and why that is exposed. */
static void expose(struct engine *e, struct pending *h, int64_t time, enum reason why)
{
    struct tally *t = &e->out.tally[h->item->number];
    if (why != REASON_LINK) {
        t->exposed[why] += time;
        return;
    }
    const struct transfer *part = &h->parts->part[h->part];
    int64_t starting = h->left - part->bytes; /* of its latency is left */
    if (starting < 0) starting = 0;
    if (starting > time) starting = time;
    t->exposed[REASON_LATENCY] += starting;
    t->exposed[REASON_LINK] += time - starting;
}

/* Until the collective of this number is over. awaited: from which number on they are waited for
 * themselves. */
static void wait_until(struct engine *e, int64_t number, int64_t awaited, bool slot)
{
    while (e->completed < number) {
        struct pending *h = head(e);
        enum reason why = slot                         ? REASON_SLOT
                          : e->completed + 1 < awaited ? REASON_ORDER
                                                       : REASON_LINK;
        expose(e, h, h->left, why);
        e->now += h->left;
        next_part(e);
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
        struct pending *h = head(e);
        const double own = h ? h->parts->part[h->part].disturbed : 0,
                     disturbed = own > 0 ? own : e->p->disturbed;
        int now = h ? (int)h->parts->part[h->part].company : ALONE;
        if (now != company) at = place_in(run, at, company, now), company = now;
        int64_t rest = run->clock[company][all] - at,
                theirs = !h               ? INT64_MAX
                         : disturbed == 1 ? h->left
                                          : (int64_t)ceil((double)h->left * disturbed);
        int64_t step = rest <= theirs ? rest : theirs;
        if (e->watcher && run->kind == ITEM_RUN) watch_run(e, run, company, at, at + step, &began);
        e->now += step;
        at += step;
        if (h && rest < theirs) {
            int64_t done = disturbed == 1 ? step : (int64_t)((double)step / disturbed);
            h->left -= done < h->left ? done : h->left - 1;
        } else if (h)
            next_part(e);
        if (rest <= theirs) break;
    }
    t->count++;
    t->extra += e->now - begin - run->clock[ALONE][all];
}

/* ── items ───────────────────────────────────────────────────────────────────── */

static int64_t modulo(int64_t n, int64_t ring) { return ((n % ring) + ring) % ring; }

/* Compute issues a collective, and that takes its time. */
static void issue(struct engine *e, const struct item *it, const struct parts *parts, int64_t layer)
{
    if (e->p->issue) compute(e, &e->issuing);
    enqueue(e, it, parts, layer);
}

static void do_item(struct engine *e, const struct item *it, int64_t n)
{
    int64_t at;
    if (it->once && !(e->micro & PART_FIRST)) return;
    switch (it->kind) {
    case ITEM_RUN: compute(e, it); break;
    case ITEM_GATHER:
        if (n < it->from || n >= it->to) return; /* with one layer a loop has none to run ahead */
        at = n + it->shift;
        issue(e, it, item_gather(it, n), it->loop ? (it->down ? it->count - 1 - at : at) : -1);
        e->event[it->event + (it->loop ? modulo(at, it->ring) : 0)] = e->issued;
        break;
    case ITEM_REDUCE: {
        int micro = (it->first ? e->micro & PART_FIRST : 0) | (it->last ? e->micro & PART_LAST : 0);
        issue(e, it, &it->reduce[micro], e->layer);
        e->event[it->event + (it->loop ? modulo(n, it->ring) : 0)] = e->issued;
        break;
    }
    case ITEM_SUM:
        issue(e, it, &it->reduce[0], -1);
        e->event[it->event] = e->issued;
        break;
    case ITEM_WAIT: {
        const int64_t done = e->completed, slot = it->loop ? modulo(n + it->shift, it->ring) : 0;
        int64_t last = 0, first = INT64_MAX;
        for (int64_t k = 0; it->all && it->loop && k < it->ring; k++) {
            int64_t number = e->event[it->event + k];
            if (number > last) last = number;
            if (number > e->completed && number < first) first = number;
        }
        if (!it->all || !it->loop) last = first = e->event[it->event + slot];
        wait_until(e, last, first, it->slot);
        if (e->p->wake && e->completed > done) compute(e, &e->waking);
    } break;
    }
}

/* ── states ──────────────────────────────────────────────────────────────────── */

static int take_state(struct engine *e, int region, int64_t n, int64_t *to)
{
    int k = 0;
    for (int64_t i = e->completed; i < e->issued; i++) {
        const struct pending *q = &e->queue[i % UNDER_WAY];
        to[k++] = q->item->number;
        to[k++] = q->parts->total;
        to[k++] = q->part;
        to[k++] = q->left;
    }
    to[k++] = -1;
    for (int64_t i = 0; i < e->p->events; i++) to[k + i] = 0;
    for (int64_t i = 0; i < e->p->events; i++) {
        int64_t lag = e->event[i] - e->completed, place = i;
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
    k->issued = e->issued;
    k->iterations = e->out.iterations;
    memcpy(k->tally, e->out.tally, sizeof *k->tally * (size_t)TALLIES(e->p));
    memcpy(k->part, e->out.part, sizeof k->part);
}

/* The totals since a kept state happen `times` more; events of rings move on by `by`. */
static void repeat(struct engine *e, const struct kept *k, int64_t times, int region, int64_t by)
{
    int64_t more = times * (e->issued - k->issued);
    const int fields = (int)(sizeof(struct tally) / sizeof(int64_t));
    int64_t *to = (int64_t *)e->out.tally;
    const int64_t *from = (const int64_t *)k->tally;
    for (int i = 0; i < TALLIES(e->p) * fields; i++) to[i] += times * (to[i] - from[i]);
    for (int i = 0; i < STEP_PARTS; i++) e->out.part[i] += times * (e->out.part[i] - k->part[i]);
    for (int64_t i = e->completed; i < e->issued; i++) e->scratch[i - e->completed] = i % UNDER_WAY;
    struct pending moved[UNDER_WAY];
    int64_t waiting = e->issued - e->completed;
    for (int64_t i = 0; i < waiting; i++) moved[i] = e->queue[e->scratch[i]];
    e->now += times * (e->now - k->now);
    for (int64_t i = 0; i < e->p->events; i++) {
        int64_t place = i;
        for (const struct rotating *r = region < 0 ? NULL : e->rotating[region]; r && r->ring; r++)
            if (i >= r->event && i < r->event + r->ring)
                place = r->event + modulo(i - r->event + by, r->ring);
        e->scratch[place] = e->event[i] ? e->event[i] + more : 0;
    }
    memcpy(e->event, e->scratch, sizeof *e->event * (size_t)e->p->events);
    e->issued += more;
    e->completed += more;
    for (int64_t i = 0; i < waiting; i++) e->queue[(e->completed + i) % UNDER_WAY] = moved[i];
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
    wait_until(e, e->issued, 0, false);
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
    e->now = e->issued = e->completed = 0;
    memset(e->event, 0, sizeof *e->event * (size_t)(e->p->events + 1));
    memset(e->out.tally, 0, sizeof *e->out.tally * (size_t)TALLIES(e->p));
    memset(e->out.part, 0, sizeof e->out.part);
    e->out.iterations = 0;
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
    e->scratch = HOLD(p, int64_t, 4 * UNDER_WAY + p->events + 2);
    e->out.tally = HOLD(p, struct tally, TALLIES(p));
    e->rotating = HOLD(p, struct rotating *, p->regions);
    for (int i = 0; i < p->regions; i++) e->rotating[i] = rotating_of(p, &p->region[i]);
    e->issuing_clock[1] = p->issue;
    e->waking_clock[1] = p->wake;
    e->issuing = (struct item){.kind = ITEM_WAIT, .number = ISSUES(p), .kernels = 1};
    e->waking = (struct item){.kind = ITEM_WAIT, .number = WAKES(p), .kernels = 1};
    for (int c = 0; c < COMPANIES; c++)
        e->issuing.clock[c] = e->issuing_clock, e->waking.clock[c] = e->waking_clock;
    for (int level = 0; level < 2; level++)
        for (int i = 0; i < KEPT_STATES; i++) {
            e->kept[level][i].tally = HOLD(p, struct tally, TALLIES(p));
            e->kept[level][i].state = HOLD(p, int64_t, 4 * UNDER_WAY + p->events + 2);
        }
    return e;
}

int64_t step_picoseconds(const struct program *p, const struct outcome *o)
{
    int64_t step = o->picoseconds + p->host;
    return step + llround((double)step * (p->late - 1));
}
