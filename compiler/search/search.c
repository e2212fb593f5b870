/* See search.h. Points are taken in the order of their least time. Once `top` points are known, one
 * whose least time is above the slowest of them cannot be among the best, nor can any after it;
 * equal times are run, because memory and text decide between them. For the frontier a point is
 * left out only when a point that was run is faster than its least time and not larger. */
#include "search/search.h"

#include <stdlib.h>

static const char *const other_names[] = {"slowest device", "contention", "launch", "host",
                                          "jitter"};

const char *time_part_name(int part)
{
    if (part < COST_CLASSES) return cost_class_names[part];
    if (part >= PART_EXPOSED)
        return text_format("exposed communication (%s)", reason_names[part - PART_EXPOSED]);
    return other_names[part - PART_SLOWEST];
}

struct time_parts time_parts_of(const struct prediction *t)
{
    struct time_parts to = {0};
    for (int i = 0; i < COST_CLASSES; i++) to.part[i] = t->kernel[i];
    to.part[PART_SLOWEST] = t->slowest;
    to.part[PART_CONTENTION] = t->contention;
    to.part[PART_LAUNCH] = t->launch;
    to.part[PART_HOST] = t->host;
    to.part[PART_JITTER] = t->jitter;
    for (int i = 0; i < REASONS; i++) to.part[PART_EXPOSED + i] = t->exposed[i];
    return to;
}

struct candidate *search_candidate(const struct search *s, int64_t number)
{
    return &s->candidate[s->place_of[number]];
}

/* ── order ───────────────────────────────────────────────────────────────────── */

static const struct search *sorted; /* what the comparisons below are about */

static int by_bound(const void *a, const void *b)
{
    const struct candidate *x = &sorted->candidate[*(const int *)a],
                           *y = &sorted->candidate[*(const int *)b];
    if (x->least_step != y->least_step) return x->least_step < y->least_step ? -1 : 1;
    return x->number < y->number ? -1 : x->number > y->number;
}

static int by_rank(const void *a, const void *b)
{
    const struct candidate *x = &sorted->candidate[*(const int *)a],
                           *y = &sorted->candidate[*(const int *)b];
    if (x->step != y->step) return x->step < y->step ? -1 : 1;
    if (x->peak_bytes != y->peak_bytes) return x->peak_bytes < y->peak_bytes ? -1 : 1;
    return x->number < y->number ? -1 : x->number > y->number; /* of equal ones the first named */
}

/* ── the search ──────────────────────────────────────────────────────────────── */

static bool exceeds(int64_t bytes, int64_t limit)
{
    return ledger_verdict(bytes, limit) == EXCEEDS;
}

/* Checks all points, and asks the bounds of those that are possible. *open: the others. */
static int begin(struct candidates *c, struct search *s, bool bounded, int *open,
                 struct search_watcher *watcher)
{
    int n = 0;
    struct walk *w = walk_begin(s->space);
    while (walk_next(w, c)) {
        struct candidate *x = &s->candidate[s->candidates];
        if (watcher) watcher->told(watcher, false, w->number, s->space->points);
        *x = (struct candidate){.number = w->number, .place = w->place};
        s->place_of[w->number] = (int)s->candidates++;
        if (x->place.why) continue;
        s->possible++;
        x->least_bytes = bounded ? candidate_least_peak(&x->place) : 0;
        x->ruling = RULED_EXCEEDS_BOUND;
        if (exceeds(x->least_bytes, x->place.limit_bytes)) continue;
        x->ruling = RULED_BOUND;
        x->least_step = bounded ? candidate_least_step(&x->place) : 0;
        open[n++] = (int)(x - s->candidate);
    }
    for (int64_t i = 0; i < s->space->points; i++) s->place_of[i] = s->place_of[w->point_of[i]];
    return n;
}

/* Lays it out. False when it does not fit. */
static bool lay_out(struct candidates *c, struct search *s, struct candidate *x, const int *choice)
{
    if (x->peak_bytes) return x->ruling != RULED_EXCEEDS;
    x->peak_bytes = candidate_peak(c, s->space, choice, &x->place);
    s->layouts++;
    if (x->peak_bytes < 0)
        x->ruling = RULED_IMPOSSIBLE, s->possible--;
    else if (exceeds(x->peak_bytes, x->place.limit_bytes))
        x->ruling = RULED_EXCEEDS;
    return x->ruling == RULED_BOUND;
}

static bool simulate(struct candidates *c, struct search *s, struct candidate *x, const int *choice)
{
    struct prediction *t;
    const struct program *p;
    struct arena_mark mark = arena_mark();
    x->step = candidate_step(c, s->space, choice, &x->place, &t, &p, &s->missing);
    if (x->step) x->parts = time_parts_of(t);
    arena_reset(mark);
    s->simulations++;
    x->ruling = RULED_SLOWER;
    return x->step > 0;
}

/* The time that `top` of the simulated points do not exceed: INT64_MAX when they are fewer. */
struct best_times {
    int64_t time[64];
    int n, top;
};

static int64_t slowest_of(const struct best_times *b)
{
    return b->n < b->top ? INT64_MAX : b->time[b->n - 1];
}

static void add_time(struct best_times *b, int64_t time)
{
    int i = b->n < b->top ? b->n++ : b->n - 1;
    if (time >= slowest_of(b) && b->time[i] && i == b->n - 1 && b->time[i] <= time) return;
    for (; i > 0 && b->time[i - 1] > time; i--) b->time[i] = b->time[i - 1];
    b->time[i] = time;
}

static bool dominated(const struct search *s, int64_t least_step, int64_t bytes)
{
    for (int i = 0; i < s->n_ranked; i++) {
        const struct candidate *x = &s->candidate[s->ranked[i]];
        if (x->step < least_step && x->peak_bytes <= bytes) return true;
    }
    return false;
}

/* Sorts the simulated points and says which are the best and the frontier. */
static void rank(struct search *s)
{
    int64_t least = INT64_MAX;
    sorted = s;
    qsort(s->ranked, (size_t)s->n_ranked, sizeof *s->ranked, by_rank);
    for (int i = 0; i < s->n_ranked; i++) {
        struct candidate *x = &s->candidate[s->ranked[i]];
        x->ruling = i ? RULED_SLOWER : RULED_BEST;
        x->frontier = x->peak_bytes < least;
        if (x->frontier) least = x->peak_bytes;
    }
}

void search_measured(struct search *s, int64_t number, int64_t picoseconds)
{
    struct candidate *x = search_candidate(s, number);
    if (!x->step) return;
    for (int i = 0; i < TIME_PARTS; i++)
        x->parts.part[i] =
            (int64_t)((double)x->parts.part[i] * (double)picoseconds / (double)x->step);
    x->step = picoseconds;
    x->measured = true;
    rank(s);
}

struct search *search_run(struct candidates *c, const struct space *space, int top,
                          enum search_how how, struct search_watcher *watcher)
{
    struct search *s = TAKE(struct search);
    *s = (struct search){.space = space,
                         .candidate = TAKE_MANY(struct candidate, space->points),
                         .place_of = TAKE_MANY(int, space->points),
                         .ranked = TAKE_MANY(int, space->points)};
    int *open = TAKE_MANY(int, space->points), *choice = TAKE_MANY(int, space->n_axes + 1);
    int n = begin(c, s, how != SEARCH_ALL, open, watcher);
    struct best_times best = {.top = top < 1 ? 1 : top > 64 ? 64 : top};
    sorted = s;
    qsort(open, (size_t)n, sizeof *open, by_bound);
    for (int i = 0; i < n && !s->missing; i++) {
        struct candidate *x = &s->candidate[open[i]];
        bool beaten = how != SEARCH_ALL && x->least_step > slowest_of(&best);
        if (beaten && how == SEARCH_BEST) break;
        if (watcher) watcher->told(watcher, true, s->candidates - n + i, s->candidates);
        choice_of(space, x->number, choice);
        if (!lay_out(c, s, x, choice)) continue;
        if (beaten && dominated(s, x->least_step, x->peak_bytes)) continue;
        if (!simulate(c, s, x, choice)) break;
        add_time(&best, x->step);
        s->ranked[s->n_ranked++] = open[i];
    }
    rank(s);
    return s;
}
