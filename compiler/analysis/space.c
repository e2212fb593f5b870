/* Judges every point of a space (every combination of alternatives), each plan once: fits or not,
 * how long its step takes, and which points are worth a look. */
#include "base/escape.h"
#include "analysis/space.h"
#include "analysis/candidates.h"

#include <stdlib.h>
#include <string.h>

/* why: NULL unless the point is impossible */
struct judged {
    int64_t number;                                    /* in the order of the axes */
    int64_t peak_bytes, limit_bytes, step_picoseconds; /* 0: the cluster's speed is not known */
    double flops, moved, cost; /* a token's, with recompute; a step's bytes; for ranking */
    enum verdict verdict;
    bool frontier; /* it fits, and nothing that fits is as fast with as little memory */
    const char *why;
};

/* The memory of a point comes from its own layout; its time, where the cluster says how fast it is,
 * from its own run. */
static struct judged judge(struct candidates *c, struct walk *w)
{
    struct judged j = {.number = w->number, .verdict = IMPOSSIBLE};
    struct arena_mark mark = arena_mark();
    const int64_t peak = candidate_peak(c, w->space, w->choice, &w->place);
    j.why = w->place.why;
    if (!j.why) {
        const struct candidate_work work = candidate_work(c, w->space, w->choice, &w->place);
        j.flops = work.flops, j.moved = work.moved;
        j.peak_bytes = peak, j.limit_bytes = w->place.limit_bytes;
        j.verdict = ledger_verdict(peak, j.limit_bytes);
        j.step_picoseconds = candidate_step(c, w->space, w->choice, &w->place, NULL, NULL, NULL);
        j.cost = j.step_picoseconds ? (double)j.step_picoseconds * 1e-12
                                    : candidate_cost(c, w->space, w->choice, work);
    }
    arena_reset(mark);
    return j;
}

static json_t *point_json(const struct space *s, const int *choice, const struct judged *j)
{
    json_t *set = json_array();
    for (int k = 0; k < s->n_axes; k++)
        json_array_append_new(set, json_string(utf8_text(text_format(
                                       "%s=%s", s->axis[k].key, s->axis[k].choice[choice[k]]))));
    json_t *o = json_pack("{s:o, s:s}", "set", set, "verdict", verdict_names[j->verdict]);
    if (j->why)
        json_object_set_new(o, "reason", json_string(utf8_text(j->why)));
    else
        json_object_set_new(o, "peak_bytes", json_integer((json_int_t)j->peak_bytes));
    if (!j->why && j->step_picoseconds)
        json_object_set_new(o, "step_seconds", json_real((double)j->step_picoseconds * 1e-12));
    if (j->frontier) json_object_set_new(o, "frontier", json_true());
    return o;
}

/* Blank when it is not known. */
static const char *step_text(const struct judged *j)
{
    if (j->why || !j->step_picoseconds) return "";
    return text_format("%.4g s per step", (double)j->step_picoseconds * 1e-12);
}

/* ── as text ─────────────────────────────────────────────────────────────────── */
typedef VECTOR(struct judged) judged_list;

/* By verdict, then as repairs are: the shortest step, then the smallest peak. */
static int better_first(const void *a, const void *b)
{
    const struct judged *x = a, *y = b;
    if (x->verdict != y->verdict) return x->verdict < y->verdict ? -1 : 1;
    if (x->cost < y->cost || x->cost > y->cost) return x->cost < y->cost ? -1 : 1;
    if (x->peak_bytes != y->peak_bytes) return x->peak_bytes < y->peak_bytes ? -1 : 1;
    return x->number < y->number ? -1 : x->number > y->number;
}

static double percent_more(double x, double least) { return least > 0 ? 100 * (x / least - 1) : 0; }

static int fast_first(const void *a, const void *b)
{
    const struct judged *x = *(struct judged *const *)a, *y = *(struct judged *const *)b;
    if (x->cost < y->cost || x->cost > y->cost) return x->cost < y->cost ? -1 : 1;
    if (x->peak_bytes != y->peak_bytes) return x->peak_bytes < y->peak_bytes ? -1 : 1;
    return x->number < y->number ? -1 : x->number > y->number;
}

/* From the fastest on, each that needs less memory than all before it. */
static void mark_frontier(judged_list *all)
{
    struct judged **fast = TAKE_MANY(struct judged *, all->n + 1);
    int n = 0;
    for (int i = 0; i < all->n; i++)
        if (all->item[i].verdict == FITS || all->item[i].verdict == TIGHT)
            fast[n++] = &all->item[i];
    qsort(fast, (size_t)n, sizeof *fast, fast_first);
    int64_t least = INT64_MAX;
    for (int i = 0; i < n; i++) {
        fast[i]->frontier = fast[i]->peak_bytes < least;
        if (fast[i]->frontier) least = fast[i]->peak_bytes;
    }
}

static void print_frontier(const struct space *s, const judged_list *all)
{
    enum { SHOWN = 32 };
    int *choice = TAKE_MANY(int, s->n_axes), n = 0;
    for (int i = 0; i < all->n; i++) {
        const struct judged *j = &all->item[i];
        if (!j->frontier) continue;
        if (!n) printf("  the frontier: nothing that fits is both as fast and as small\n");
        if (n++ >= SHOWN) continue;
        choice_of(s, j->number, choice);
        printf("    %12s  %12s  %s\n", text_bytes(j->peak_bytes), step_text(j),
               candidate_text(s, choice));
    }
    if (n > SHOWN) printf("    and %d more: --json has every point\n", n - SHOWN);
}

static void print_points(const struct space *s, const judged_list *all, int64_t shown)
{
    double flops = 0, moved = 0;
    int *choice = TAKE_MANY(int, s->n_axes);
    int64_t n = 0, possible = 0;
    for (int i = 0; i < all->n; i++) {
        const struct judged *j = &all->item[i];
        if (j->why) continue;
        if (!possible || j->flops < flops) flops = j->flops;
        if (!possible || j->moved < moved) moved = j->moved;
        possible++;
    }
    if (possible)
        printf("  sorted by verdict and time; FLOPs per token and bytes that collectives move in a "
               "step, against the least of all points:\n");
    for (int i = 0; i < all->n && n < shown; i++) {
        const struct judged *j = &all->item[i];
        if (j->why) continue;
        choice_of(s, j->number, choice);
        printf("  %-10s  %12s  %12s  %+6.1f %% FLOPs  %+7.1f %% moved  %s\n",
               verdict_names[j->verdict], text_bytes(j->peak_bytes), step_text(j),
               percent_more(j->flops, flops), percent_more(j->moved, moved),
               candidate_text(s, choice));
        n++;
    }
    if (possible > n) printf("  and %s more: --json has every point\n", text_count(possible - n));
}

/* Points that the same rule refuses are one line. */
static void print_impossible(const struct space *s, const judged_list *all)
{
    int *choice = TAKE_MANY(int, s->n_axes);
    VECTOR(const char *) said = {0};
    for (int i = 0; i < all->n; i++) {
        const char *why = all->item[i].why;
        bool known = !why;
        for (int k = 0; k < said.n && !known; k++) known = said.item[k] == why;
        if (known) continue;
        PUSH(&said, why);
        int64_t same = 0;
        for (int k = i; k < all->n; k++) same += all->item[k].why == why;
        choice_of(s, all->item[i].number, choice);
        if (said.n > 16) continue;
        if (same == 1)
            printf("  impossible  %s: %s\n", candidate_text(s, choice), why);
        else
            printf("  impossible  %s points, the first of them %s: %s\n", text_count(same),
                   candidate_text(s, choice), why);
    }
    if (said.n > 16) printf("  and %d other reasons: --json has them\n", said.n - 16);
}

/* Where the local batch is open: the largest that fits, of each choice of the other keys. */
static void print_largest_local(const struct space *s, const judged_list *all)
{
    int axis = -1;
    for (int k = 0; k < s->n_axes; k++)
        if (!strcmp(s->axis[k].key, "batch.local")) axis = k;
    if (axis < 0 || s->n_axes < 2) return;
    int64_t below = 1; /* points of the axes after it */
    for (int k = axis + 1; k < s->n_axes; k++) below *= s->axis[k].n;
    int64_t others = s->points / s->axis[axis].n, lines = 0;
    int *choice = TAKE_MANY(int, s->n_axes);
    const struct judged **best = TAKE_MANY(const struct judged *, others);
    for (int i = 0; i < all->n; i++) {
        const struct judged *j = &all->item[i];
        if (j->verdict != FITS) continue;
        int64_t at = j->number / (below * s->axis[axis].n) * below + j->number % below;
        choice_of(s, j->number, choice);
        int64_t local = strtoll(s->axis[axis].choice[choice[axis]], NULL, 10), known = 0;
        if (best[at]) {
            choice_of(s, best[at]->number, choice);
            known = strtoll(s->axis[axis].choice[choice[axis]], NULL, 10);
        }
        if (!best[at] || local > known) best[at] = j;
    }
    printf("  the largest local batch that fits:\n");
    for (int64_t i = 0; i < others && lines < 32; i++) {
        if (!best[i]) continue;
        choice_of(s, best[i]->number, choice);
        printf("    %12s  %s\n", text_bytes(best[i]->peak_bytes), candidate_text(s, choice));
        lines++;
    }
    if (others > 32) printf("    and more: --json has every point\n");
}

static void print_space(const struct space *s, const char *path, judged_list *all,
                        const int64_t *count)
{
    printf("%s: a space of %s plan%s: %s fit, %s tight, %s exceed, %s impossible\n", path,
           text_count(all->n), all->n == 1 ? "" : "s", text_count(count[FITS]),
           text_count(count[TIGHT]), text_count(count[EXCEEDS]), text_count(count[IMPOSSIBLE]));
    for (int k = 0; k < s->n_axes; k++) {
        printf("  %s =", s->axis[k].key);
        for (int i = 0; i < s->axis[k].n; i++) printf("%s %s", i ? " |" : "", s->axis[k].choice[i]);
        printf("\n");
    }
    int64_t least = 0, most = 0;
    for (int i = 0; i < all->n; i++) {
        int64_t limit = all->item[i].limit_bytes;
        if (!limit) continue;
        if (!least || limit < least) least = limit;
        if (limit > most) most = limit;
    }
    if (most && least == most)
        printf("  limit %s per device; above 97 %% of it, %s, a point exceeds\n", text_bytes(most),
               text_bytes((int64_t)(0.97 * (double)most)));
    if (all->n) qsort(all->item, (size_t)all->n, sizeof *all->item, better_first);
    print_frontier(s, all);
    print_points(s, all, 64);
    print_impossible(s, all);
    print_largest_local(s, all);
}

static void print_or_add(const struct space *s, const char *path, judged_list *list,
                         const int64_t *count, json_t *all)
{
    if (!all) {
        print_space(s, path, list, count);
        return;
    }
    json_t *points = json_array();
    int *choice = TAKE_MANY(int, s->n_axes + 1);
    for (int i = 0; i < list->n; i++) {
        choice_of(s, list->item[i].number, choice);
        json_array_append_new(points, point_json(s, choice, &list->item[i]));
    }
    json_array_append_new(all, json_pack("{s:s, s:o}", "plan", utf8_text(path), "points", points));
}

int check_space(const struct arguments *a, const struct space *s, const char *path, json_t *all)
{
    int64_t count[VERDICTS] = {0};
    judged_list list = {0};
    struct candidates *c = candidates_open(a);
    for (struct walk *w = walk_begin(s); walk_next(w, c);) {
        const struct judged j = judge(c, w);
        count[j.verdict]++;
        PUSH(&list, j);
    }
    candidates_close(c);
    mark_frontier(&list);
    print_or_add(s, path, &list, count, all);
    return count[FITS] + count[TIGHT] ? EXIT_FINE : EXIT_NO_FIT;
}
