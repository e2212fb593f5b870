/* The points of a space, evaluated without compiling each, against the plans that they are: the
 * arena's bytes, the step to the picosecond, and bounds that no point undercuts.
 *     points PLAN [SET…]             every point, against its own compilation
 *     points --bench PLAN [SET…]     how many per second, by what is asked */
#define _POSIX_C_SOURCE 200809L
#include "base/diagnostics.h"
#include "passes/budget.h"
#include "passes/pipeline.h"
#include "predict/points.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The structures of a space so far, by what makes them. */
struct known {
    const char *key;
    struct structure *structure;
};
static struct known known[4096];
static int n_known;

static const char *key_of(const struct plan *p)
{
    const bool cut = p->optimizer_all && p->dp > 1;
    return intern_format("%d %s %s %lld %d %lld %lld %d %d %d", (int)p->checkpoint_mode,
                         p->checkpoint_save, p->checkpoint_layers, (long long)p->checkpoint_every,
                         (int)p->reshard, (long long)p->prefetch, (long long)p->reduce_slots,
                         p->loss_chunks > 1, p->fsdp > 1, cut ? 1 + (p->accumulation > 1) : 0);
}

static struct structure *structure_of(struct points *s, const struct plan *p)
{
    const char *key = key_of(p);
    for (int i = 0; i < n_known; i++)
        if (known[i].key == key) return known[i].structure;
    known[n_known] = (struct known){key, structure_new(s, p)};
    return known[n_known++].structure;
}

static int check(struct structure *s, const struct plan *p, const char *name)
{
    struct estimate e;
    int all = ASK_BYTES | ASK_TIME | ASK_LEAST_BYTES | ASK_LEAST_TIME, wrong = 0;
    struct arena_mark mark = arena_mark();
    struct graph *g = pipeline_run(pass_lower(p), LEVEL_MEMORY);
    struct program *program;
    struct prediction *t = predict(p, g, &program);
    if (!t || !structure_evaluate(s, point_of(p), all, &e)) {
        printf("%s: a figure is missing\n", name);
        return 1;
    }
    int64_t bytes = g->local_bytes + g->wire_bytes;
    if (e.arena_bytes != bytes)
        wrong =
            printf("%s: %lld bytes, not %lld\n", name, (long long)e.arena_bytes, (long long)bytes);
    if (e.step_picoseconds != t->step)
        wrong = printf("%s: a step of %lld ps, not %lld\n", name, (long long)e.step_picoseconds,
                       (long long)t->step);
    if (e.least_bytes > bytes || e.least_picoseconds > t->step)
        wrong = printf("%s: bounds %lld bytes, %lld ps\n", name, (long long)e.least_bytes,
                       (long long)e.least_picoseconds);
    const struct program *same;
    struct prediction *explained = structure_explain(s, &same);
    if (explained->step != t->step || explained->exposed_all != t->exposed_all)
        wrong = printf("%s: its parts differ\n", name);
    program_free(program);
    arena_reset(mark);
    return wrong;
}

static void rate(const char *what, double seconds, long n)
{
    printf("%-20s %10.0f a second, %ld in %.2f s\n", what, (double)n / seconds, n, seconds);
}

int main(int argc, char **argv)
{
    bool bench = argc > 1 && !strcmp(argv[1], "--bench");
    argc -= bench, argv += bench;
    struct space *space;
    struct plan *one =
        plan_or_space_load(argv[1], (const char *const *)(argv + 2), argc - 2, &space);
    if (!one && !space) {
        diagnostics_print(stdout, false);
        return 2;
    }
    int choice[16] = {0}, wrong = 0, n = 0, room = 1 << 20;
    struct plan **plan = malloc(sizeof *plan * (size_t)room);
    for (bool more = true; more && n < room;) {
        const char *why;
        struct plan *p = one ? one : space_plan(space, choice, &why);
        if (p && budget_decide(p)) plan[n++] = p;
        int k = space ? space->n_axes - 1 : -1;
        for (; k >= 0 && ++choice[k] == space->axis[k].n; k--) choice[k] = 0;
        more = k >= 0;
    }
    if (!n) return printf("the space has no point\n"), 2;
    struct points *s = points_open(plan[0], !bench);
    double begin = now();
    for (int i = 0; i < n; i++) structure_of(s, plan[i]);
    if (!bench) {
        for (int i = 0; i < n && !wrong; i++)
            wrong = check(structure_of(s, plan[i]), plan[i], intern_format("point %d", i));
        free(plan);
        return wrong != 0;
    }
    rate("structures", now() - begin, n_known);
    enum { LENGTHS = 12 };
    struct ring_lengths lengths[LENGTHS];
    struct structure *more[LENGTHS];
    for (int i = 0; i < LENGTHS; i++) lengths[i] = (struct ring_lengths){i % 4, 1 + i / 4};
    begin = now();
    for (int i = 0; i < 4; i++) {
        if (!structures_new(s, plan[i * (n / 4)], lengths, LENGTHS, more)) return 2;
        for (int k = 0; k < LENGTHS; k++) structure_free(more[k]);
    }
    rate("ring lengths", now() - begin, 4 * LENGTHS);
    struct estimate e;
    struct structure **of = malloc(sizeof *of * (size_t)n);
    for (int i = 0; i < n; i++) of[i] = structure_of(s, plan[i]);
    begin = now();
    for (int i = 0; i < n; i++) structure_evaluate(of[i], point_of(plan[i]), ASK_BYTES, &e);
    rate("layouts", now() - begin, n);
    begin = now();
    for (int i = 0; i < n; i++) structure_evaluate(of[i], point_of(plan[i]), ASK_LEAST_BYTES, &e);
    rate("bounds of bytes", now() - begin, n);
    begin = now();
    for (int i = 0; i < n; i++) structure_evaluate(of[i], point_of(plan[i]), ASK_TIME, &e);
    rate("points timed and run", now() - begin, n);
    structure_evaluate(of[0], point_of(plan[0]), ASK_TIME, &e);
    begin = now();
    enum { RUNS = 20000 };
    int64_t sum = 0;
    for (int i = 0; i < RUNS; i++) {
        structure_evaluate(of[0], point_of(plan[0]), ASK_TIME, &e);
        sum += e.step_picoseconds;
    }
    rate("event runs", now() - begin, RUNS);
    return sum == 0;
}
