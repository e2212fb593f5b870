/* What the rungs of `planc tune --ladder` say together: which is best where, why that changes, and
 * how the best of the last rung scales. */
#include "base/escape.h"
#include "commands/tune.h"

enum { ROWS_OF_A_RUNG = 3 };

/* A point that is among the first of some rung. why[i]: why its place on rung i is another one than
 * on the rung before; NULL: it is not. */
struct ladder_row {
    int64_t number;
    int rank[RUNGS_MOST]; /* among the simulated; 0: it was not */
    const char *why[RUNGS_MOST];
};
typedef VECTOR(struct ladder_row) row_list;

/* The best of the last rung on another one. */
struct scaling {
    int64_t devices, sequences, step; /* step 0: impossible there */
    double efficiency;                /* against the first rung that is possible; 1: perfect */
    int costs; /* the part that costs most of the rest; -1: nothing is lost */
};

static int rank_of(const struct search *s, int64_t number)
{
    for (int i = 0; i < s->n_ranked; i++)
        if (s->ranked[i] == s->place_of[number]) return i + 1;
    return 0;
}

/* ── who changes place ───────────────────────────────────────────────────────── */

/* By how much a part of the step is longer than the best one's, of the best's step. */
static double gap_of(const struct tune_rung *r, const struct candidate *x, int part)
{
    const struct candidate *best = r->best[0].candidate;
    return (double)(x->parts.part[part] - best->parts.part[part]) / (double)best->step;
}

/* What the device's share, the number of ranks and the batch do to a point between two rungs, as
 * the part of the step that moved it against the best one. */
static const char *why_moved(const struct tune *t, int to, int64_t number, int was, int is)
{
    const struct tune_rung *a = &t->rung[to - 1], *b = &t->rung[to];
    const struct candidate *x = search_candidate(a->search, number),
                           *y = search_candidate(b->search, number);
    if (!is)
        return text_format("on %lld: %s", (long long)b->devices,
                           search_reason(t->candidates, b->search, y));
    if (!was)
        return text_format("on %lld: %s", (long long)a->devices,
                           search_reason(t->candidates, a->search, x));
    int most = -1;
    double moved = 0;
    for (int k = 0; k < TIME_PARTS; k++) {
        double d = gap_of(b, y, k) - gap_of(a, x, k);
        if ((is > was ? d : -d) > moved) moved = is > was ? d : -d, most = k;
    }
    if (most < 0) return "others pass it";
    return text_format("%s: %+.1f %% of the best step against the best there, %+.1f %% before",
                       time_part_name(most), 100 * gap_of(b, y, most), 100 * gap_of(a, x, most));
}

/* The first three of every rung. */
static row_list rows_of(const struct tune *t)
{
    row_list all = {0};
    for (int i = 0; i < t->n_rungs; i++)
        for (int k = 0; k < t->rung[i].n_best && k < ROWS_OF_A_RUNG; k++) {
            struct ladder_row row = {.number = t->rung[i].best[k].candidate->number};
            bool known = false;
            for (int n = 0; n < all.n; n++) known |= all.item[n].number == row.number;
            if (!known) PUSH(&all, row);
        }
    for (int n = 0; n < all.n; n++)
        for (int i = 0; i < t->n_rungs; i++) {
            struct ladder_row *row = &all.item[n];
            row->rank[i] = rank_of(t->rung[i].search, row->number);
            if (!i || row->rank[i] == row->rank[i - 1]) continue;
            row->why[i] = why_moved(t, i, row->number, row->rank[i - 1], row->rank[i]);
        }
    return all;
}

static const char *cell(const struct tune_rung *r, const struct ladder_row *row, int rung)
{
    const struct candidate *x = search_candidate(r->search, row->number);
    switch (x->ruling) {
    case RULED_IMPOSSIBLE: return "impossible";
    case RULED_EXCEEDS_BOUND:
    case RULED_EXCEEDS: return "exceeds";
    case RULED_BOUND: return text_format(">= %s", search_time_text(x->least_step));
    case RULED_SLOWER:
    case RULED_BEST: return text_format("%s (%d)", search_time_text(x->step), row->rank[rung]);
    }
    bug("no ruling");
}

static void print_rows(const struct tune *t)
{
    const row_list all = rows_of(t);
    printf("who is best where: step, and place among those simulated\n ");
    for (int i = 0; i < t->n_rungs; i++) printf(" %16lld", (long long)t->rung[i].devices);
    printf(" devices\n");
    for (int n = 0; n < all.n; n++) {
        const struct ladder_row *row = &all.item[n];
        printf(" ");
        for (int i = 0; i < t->n_rungs; i++) printf(" %16s", cell(&t->rung[i], row, i));
        printf("  %s\n", tune_set_text(t->rung[0].space, row->number));
        for (int i = 1; i < t->n_rungs; i++) {
            if (!row->why[i]) continue;
            const char *is = row->rank[i] ? text_format("place %d", row->rank[i]) : "out",
                       *was = row->rank[i - 1] ? text_format("%d", row->rank[i - 1]) : "out";
            printf("      %s on %lld, was %s: %s\n", is, (long long)t->rung[i].devices, was,
                   row->why[i]);
        }
    }
}

/* ── scaling ─────────────────────────────────────────────────────────────────── */

/* A point of a rung at another global batch. 0: it is none there. */
static int64_t step_of(const struct tune *t, const struct tune_rung *r, int64_t number,
                       int64_t global, struct time_parts *parts)
{
    VECTOR(const char *) set = {0};
    for (int i = 0; i < r->n_set; i++) PUSH(&set, r->set[i]);
    PUSH(&set, intern_format("batch.global=%lld", (long long)global));
    struct space *space;
    struct diagnostics_mark mark = diagnostics_mark();
    plan_or_space_load(t->path, set.item, set.n, &space);
    diagnostics_drop(mark);
    if (!space || space->points != r->space->points) return 0;
    int *choice = TAKE_MANY(int, space->n_axes + 1);
    choice_of(space, search_candidate(r->search, number)->number, choice);
    const struct place place = candidate_place(t->candidates, space, choice);
    struct prediction *p;
    const struct program *program;
    int64_t step = candidate_step(t->candidates, space, choice, &place, &p, &program, NULL);
    if (step) *parts = time_parts_of(p);
    return step;
}

/* Device-seconds a sequence, against the first rung that is possible: perfect scaling leaves them
 * as they are. */
static void scale(const struct tune *t, bool weak, struct scaling to[RUNGS_MOST])
{
    const struct tune_rung *top = &t->rung[t->n_rungs - 1];
    const int64_t number = top->best[0].candidate->number,
                  global = top->best[0].candidate->place.global;
    double first = 0, part[TIME_PARTS] = {0};
    for (int i = 0; i < t->n_rungs; i++) {
        const struct tune_rung *r = &t->rung[i];
        struct time_parts now = {0};
        int64_t sequences = weak ? global * r->devices / top->devices : global;
        to[i] = (struct scaling){.devices = r->devices, .sequences = sequences, .costs = -1};
        to[i].step = step_of(t, r, number, sequences, &now);
        if (!to[i].step) continue;
        double each = (double)r->devices / (double)sequences, cost = (double)to[i].step * each;
        to[i].efficiency = first > 0 ? first / cost : 1;
        double most = 0;
        for (int k = 0; k < TIME_PARTS; k++) {
            double more = (double)now.part[k] * each - part[k];
            if (first > 0 && cost > first && more > most) most = more, to[i].costs = k;
        }
        if (first > 0) continue;
        first = cost;
        for (int k = 0; k < TIME_PARTS; k++) part[k] = (double)now.part[k] * each;
    }
}

static void print_scaling(const struct tune *t, bool weak)
{
    struct scaling all[RUNGS_MOST];
    scale(t, weak, all);
    printf("the best of %lld devices, %s\n", (long long)t->rung[t->n_rungs - 1].devices,
           weak ? "weak scaling: the batch of a device stays"
                : "strong scaling: the global batch stays");
    for (int i = 0; i < t->n_rungs; i++) {
        const struct scaling *s = &all[i];
        if (!s->step) {
            printf("  %8lld  impossible\n", (long long)s->devices);
            continue;
        }
        printf("  %8lld %12s per step, %s sequences, %.1f %% of linear", (long long)s->devices,
               search_time_text(s->step), text_count(s->sequences), 100 * s->efficiency);
        if (s->costs >= 0) printf("; most of the rest: %s", time_part_name(s->costs));
        printf("\n");
    }
}

void tune_print_ladder(const struct tune *t)
{
    if (t->n_rungs < 2) return;
    print_rows(t);
    if (!t->rung[t->n_rungs - 1].n_best) return;
    print_scaling(t, false);
    print_scaling(t, true);
    if (t->run.n)
        printf("%lld devices were measured, the others are predicted by the rates of these runs\n",
               (long long)t->rung[0].devices);
    else
        printf("the ladder is predicted: --measure runs the best of its first rung here\n");
}

/* ── JSON ────────────────────────────────────────────────────────────────────── */

static json_t *scaling_json(const struct tune *t, bool weak)
{
    struct scaling all[RUNGS_MOST];
    json_t *list = json_array();
    scale(t, weak, all);
    for (int i = 0; i < t->n_rungs; i++) {
        const struct scaling *s = &all[i];
        json_t *o = json_pack("{s:I, s:I}", "devices", (json_int_t)s->devices, "sequences",
                              (json_int_t)s->sequences);
        if (s->step) {
            json_object_set_new(o, "step_seconds", json_real((double)s->step / PICOSECONDS));
            json_object_set_new(o, "scaling_efficiency", json_real(s->efficiency));
        }
        if (s->costs >= 0)
            json_object_set_new(o, "costs_most", json_string(time_part_name(s->costs)));
        json_array_append_new(list, o);
    }
    return list;
}

json_t *tune_ladder_json(const struct tune *t)
{
    const row_list all = rows_of(t);
    json_t *places = json_array();
    for (int n = 0; n < all.n; n++) {
        const struct ladder_row *row = &all.item[n];
        json_t *rungs = json_array();
        for (int i = 0; i < t->n_rungs; i++) {
            json_t *o = json_pack("{s:I}", "devices", (json_int_t)t->rung[i].devices);
            if (row->rank[i]) json_object_set_new(o, "rank", json_integer(row->rank[i]));
            if (row->why[i]) json_object_set_new(o, "why", json_string(utf8_text(row->why[i])));
            json_array_append_new(rungs, o);
        }
        json_array_append_new(places, json_pack("{s:o, s:o}", "set",
                                                tune_set_json(t->rung[0].space, row->number),
                                                "rungs", rungs));
    }
    return json_pack("{s:o, s:o, s:o}", "places", places, "strong", scaling_json(t, false), "weak",
                     scaling_json(t, true));
}
