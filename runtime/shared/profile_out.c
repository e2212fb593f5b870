/* --profile-out FILE: what --profile measured, for `planc calibrate --from` and for comparing a
 * prediction with a run. docs/prediction.md has the format. */
#include "output.h"
#include "watch.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A value that was seen in several steps; the median counts. */
struct seen {
    const struct kernel *kernel; /* NULL: a collective */
    const char *what;
    int64_t unit;
    double *seconds, part;
    int64_t n, room;
};
static struct {
    struct output out;
    bool open;
    struct seen *seen;
    int64_t n, room, steps;
    double *step, *waited;
} all;

bool profile_out_open(const char *path, int64_t steps)
{
    all.open = true;
    all.step = ROOM(double, steps + 1);
    all.waited = ROOM(double, steps + 1);
    return world.rank != 0 || output_prepare(&all.out, "--profile-out", path);
}

static struct seen *seen_of(const struct mark *m)
{
    for (int64_t i = 0; i < all.n; i++)
        if (all.seen[i].kernel == m->kernel && all.seen[i].unit == m->unit &&
            (m->kernel || !strcmp(all.seen[i].what, m->what)))
            return &all.seen[i];
    if (all.n == all.room) {
        all.room = all.room ? 2 * all.room : 256;
        all.seen = realloc(all.seen, (size_t)all.room * sizeof *all.seen);
        if (!all.seen) fail_now("--profile-out: no memory");
    }
    all.seen[all.n] = (struct seen){.kernel = m->kernel, .what = m->what, .unit = m->unit};
    return &all.seen[all.n++];
}

void profile_out_step(const struct mark *mark, int64_t marks, double seconds)
{
    if (!all.open) return;
    for (int64_t i = 0; i < marks; i++) {
        struct seen *s = seen_of(&mark[i]);
        if (s->n == s->room) {
            s->room = s->room ? 2 * s->room : 64;
            s->seconds = realloc(s->seconds, (size_t)s->room * sizeof *s->seconds);
            if (!s->seconds) fail_now("--profile-out: no memory");
        }
        s->seconds[s->n++] = mark[i].to - mark[i].from;
        s->part += mark[i].kernel ? mark[i].part : 1;
    }
    all.step[all.steps++] = seconds;
}

static int rising(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(double *x, int64_t n)
{
    qsort(x, (size_t)n, sizeof *x, rising);
    return n % 2 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
}

static double mean(const double *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i];
    return sum / (double)n;
}

static const struct predicted_kernel *row_of(const char *name)
{
    for (int i = 0; &predicted && i < predicted.kernels; i++)
        if (!strcmp(predicted.kernel[i].name, name)) return &predicted.kernel[i];
    return NULL;
}

PRINTF_LIKE(1, 2) static bool put(const char *format, ...)
{
    char line[4096];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    return n >= 0 && (size_t)n < sizeof line && output_put(&all.out, line, n);
}

static bool put_collective(const struct seen *s, const char *comma)
{
    int64_t bytes = 0;
    const struct instance *all_units = segments_instances();
    const char *name = s->unit >= 0 ? all_units[s->unit].unit->name : "";
    if (s->unit >= 0)
        bytes = all_units[s->unit].unit->shard *
                (strcmp(s->what, "gather") || program.compute_type != TYPE_BF16 ? 4 : 2);
    return put(
        "    %s{\"kind\": \"%s\", \"unit\": \"%s\", \"instance\": %lld, \"part_bytes\": %lld, "
        "\"calls\": %.17g, \"seconds\": %.9g, \"mean_seconds\": %.9g}\n",
        comma, s->what, name, (long long)s->unit, (long long)bytes,
        (double)s->n / (double)all.steps, median(s->seconds, s->n), mean(s->seconds, s->n));
}

bool profile_out_close(void)
{
    if (!all.open || world.rank != 0 || all.steps == 0) return true;
    if (!output_begin(&all.out)) return false;
    bool fine =
        put("{\"planc_profile\": 1, \"device\": \"%s\", \"compute\": \"%s\",\n"
            " \"fsdp\": %lld, \"dp\": %lld, \"ranks_a_host\": %d, \"accumulation\": %lld, "
            "\"tokens\": %lld,\n \"steps\": %lld, \"step_seconds\": %.9g, "
            "\"predicted_step_seconds\": %.9g,\n",
            program.device, program.compute_type == TYPE_BF16 ? "bf16" : "fp32",
            (long long)program.fsdp, (long long)program.dp, world.host_size,
            (long long)program.accumulation, (long long)program.tokens, (long long)all.steps,
            median(all.step, all.steps), &predicted ? predicted.step_seconds : 0);
    fine = fine && put(" \"kernels\": [\n");
    const char *comma = "";
    for (int64_t i = 0; i < all.n && fine; i++) {
        struct seen *s = &all.seen[i];
        const struct predicted_kernel *row = s->kernel ? row_of(s->kernel->name) : NULL;
        if (!row) continue;
        /* a shard may come in stretches: seconds are of a whole kernel */
        double calls = s->part / (double)all.steps, total = mean(s->seconds, s->n) * (double)s->n,
               whole = s->part > 0 ? total / s->part : 0;
        bool one = s->part > (double)s->n - 0.5;
        fine = put("    %s{\"name\": \"%s\", \"calls\": %.17g, \"seconds\": %.9g, "
                   "\"mean_seconds\": %.9g, \"predicted_seconds\": %.9g, %s}\n",
                   comma, row->name, calls, one ? median(s->seconds, s->n) : whole, whole,
                   row->seconds, row->shape);
        comma = ",";
    }
    fine = fine && put(" ],\n \"collectives\": [\n");
    comma = "";
    for (int64_t i = 0; i < all.n && fine; i++)
        if (!all.seen[i].kernel) fine = put_collective(&all.seen[i], comma), comma = ",";
    return fine && put(" ]}\n") && output_end(&all.out);
}
