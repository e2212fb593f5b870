/* See engine.h. Items are done one after the other; engine_lanes.c lets time go by. Loops are run
 * until a state comes back (engine_states.c); from there on the time between the two goes on
 * repeating, for as long as the kinds of the iterations do; then the run goes on. The same over
 * micro-batches. */
#include "predict/engine_state.h"

#include <math.h>
#include <string.h>

const char *const reason_names[REASONS] = {"link", "latency", "order", "slot"};

/* ── items ───────────────────────────────────────────────────────────────────── */

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
        lane_wait(e, it->series, number, number, it->slot);
        e->waking_clock[1] = e->p->replay->wake[(number - 1) % e->p->replay->issues];
        lane_compute(e, &e->waking);
    }
}

/* Compute issues a collective, and that takes its time. On a processor a collective is timed from
 * the begin of its issue. */
static void issue(struct engine *e, const struct item *it, const struct parts *parts, int64_t layer,
                  int64_t after)
{
    const struct replay *r = e->p->replay;
    if (r) e->issuing_clock[1] = r->issue[e->issues++ % r->issues];
    if (e->p->one_order) lane_enqueue(e, it, parts, layer, after);
    if (e->p->issue) lane_compute(e, &e->issuing);
    if (!e->p->one_order) lane_enqueue(e, it, parts, layer, after);
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
    case ITEM_RUN: lane_compute(e, this_time(e, it)); break;
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
        lane_wait(e, it->series, last, first, it->slot);
        if (e->p->wake && q->completed > done) lane_compute(e, &e->waking);
    } break;
    }
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
            loop && !e->unrolled && n + 1 < r->count ? state_seen(e, 0, &kept, number, n) : NULL;
        int64_t times = k ? repeats(r, k->at, n) : 0;
        if (times) {
            int64_t by = times * (n - k->at);
            state_repeat(e, k, times, number, by);
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
    for (enum series o = 0; o < SERIES; o++) lane_wait(e, o, e->queue[o].issued, 0, false);
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
            const struct kept *k = state_seen(e, 1, &kept, -1, j);
            int64_t period = k ? j - k->at : 0, times = k ? (all - 1 - j) / period : 0;
            if (times) {
                state_repeat(e, k, times, -1, 0);
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
            bool known = it->kind == ITEM_RUN || !it->loop || it->ring < 2 || it->event < 0 ||
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
