/* What the rungs of `planc tune --ladder` say together: which plan is best where and why that
 * changes, and how the best of the last rung scales. */
#include "commands/tune.h"

#include <string.h>

enum { ROWS_OF_A_RUNG = 3 };

static const char *time_text(int64_t picoseconds)
{
    return text_format("%.4g s", (double)picoseconds * 1e-12);
}

static int rank_of(const struct search *s, int64_t number)
{
    for (int i = 0; i < s->n_ranked; i++)
        if (s->ranked[i] == number) return i + 1;
    return 0;
}

static const char *cell(const struct tune_rung *r, int64_t number)
{
    const struct candidate *x = &r->search->candidate[number];
    switch (x->ruling) {
    case RULED_IMPOSSIBLE: return "impossible";
    case RULED_EXCEEDS_BOUND:
    case RULED_EXCEEDS: return "exceeds";
    case RULED_BOUND: return text_format(">= %s", time_text(x->least_step));
    case RULED_SLOWER:
    case RULED_BEST: return text_format("%s (%d)", time_text(x->step), rank_of(r->search, number));
    }
    bug("no ruling");
}

static const char *text_of(const struct space *s, int64_t number)
{
    int *choice = TAKE_MANY(int, s->n_axes + 1);
    choice_of(s, number, choice);
    return candidate_text(s, choice);
}

/* The first three of every rung, each in all of them. */
static void print_places(const struct tune *t)
{
    VECTOR(int64_t) row = {0};
    printf("who is best where: step, and place among those simulated\n ");
    for (int i = 0; i < t->n_rungs; i++) {
        const struct tune_rung *r = &t->rung[i];
        printf(" %16lld", (long long)r->devices);
        for (int k = 0; k < r->n_best && k < ROWS_OF_A_RUNG; k++) {
            bool known = false;
            for (int n = 0; n < row.n; n++) known |= row.item[n] == r->best[k].candidate->number;
            if (!known) PUSH(&row, r->best[k].candidate->number);
        }
    }
    printf(" devices\n");
    for (int n = 0; n < row.n; n++) {
        const int64_t number = row.item[n];
        printf(" ");
        for (int i = 0; i < t->n_rungs; i++) printf(" %16s", cell(&t->rung[i], number));
        printf("  %s\n", text_of(t->rung[0].space, number));
        for (int i = 1; i < t->n_rungs; i++) {
            int was = rank_of(t->rung[i - 1].search, number),
                is = rank_of(t->rung[i].search, number);
            if (was == is) continue;
            if (is == 1)
                printf("      first on %lld; on %lld: %s\n", (long long)t->rung[i].devices,
                       (long long)t->rung[i - 1].devices,
                       tune_reason(&t->rung[i - 1], &t->rung[i - 1].search->candidate[number]));
            else
                printf("      on %lld: %s\n", (long long)t->rung[i].devices,
                       tune_reason(&t->rung[i], &t->rung[i].search->candidate[number]));
        }
    }
}

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
    choice_of(space, number, choice);
    const struct place place = candidate_place(t->candidates, space, choice);
    struct prediction *p;
    const struct program *program;
    int64_t step = candidate_step(t->candidates, space, choice, &place, &p, &program, NULL);
    if (step) *parts = time_parts_of(p);
    return step;
}

/* Device-seconds per sequence, against the first rung: perfect scaling leaves them as they are. */
static void print_scaling(const struct tune *t, bool weak)
{
    const struct tune_rung *top = &t->rung[t->n_rungs - 1];
    const int64_t number = top->best[0].candidate->number,
                  global = top->best[0].candidate->place.global;
    double first = 0, part[TIME_PARTS] = {0};
    printf("the best of %lld devices, %s\n", (long long)top->devices,
           weak ? "weak scaling: the batch of a device stays"
                : "strong scaling: the global batch stays");
    for (int i = 0; i < t->n_rungs; i++) {
        const struct tune_rung *r = &t->rung[i];
        struct time_parts parts = {0};
        int64_t sequences = weak ? global * r->devices / top->devices : global,
                step = step_of(t, r, number, sequences, &parts);
        if (!step) {
            printf("  %8lld  impossible\n", (long long)r->devices);
            continue;
        }
        double each = (double)r->devices / (double)sequences, cost = (double)step * each;
        printf("  %8lld %12s per step, %s sequences", (long long)r->devices, time_text(step),
               text_count(sequences));
        int most = 0;
        for (int k = 1; k < TIME_PARTS && first > 0; k++)
            if ((double)parts.part[k] * each - part[k] >
                (double)parts.part[most] * each - part[most])
                most = k;
        if (first > 0 && cost > first)
            printf(", %.1f %% of linear; most of the rest: %s", 100 * first / cost,
                   time_part_name(most));
        else if (first > 0)
            printf(", %.1f %% of linear", 100 * first / cost);
        printf("\n");
        if (first > 0) continue;
        first = cost;
        for (int k = 0; k < TIME_PARTS; k++) part[k] = (double)parts.part[k] * each;
    }
}

void tune_print_ladder(const struct tune *t)
{
    if (t->n_rungs < 2) return;
    print_places(t);
    if (!t->rung[t->n_rungs - 1].n_best) return;
    print_scaling(t, false);
    print_scaling(t, true);
    printf("the ladder is predicted: no rung was measured\n");
}
