/* --profile-out FILE: what --profile measured, for `planc calibrate --from` and for comparing a
 * prediction with a run. docs/prediction.md has the format. */
#include "output.h"
#include "watch.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A value that was seen in several steps; the median counts. */
struct seen {
    const struct kernel *kernel; /* NULL: a collective */
    const char *what;
    int64_t unit, place; /* place: of a sum, its number in the step; else the mark's micro */
    double *seconds, part;
    int64_t n, room;
};
/* A step as it was: what a simulation of it needs. */
struct replay {
    double between, *call, *issue, *wake, *transfer;
    int64_t calls, issues, wakes, transfers, room[4];
};
static struct {
    struct output out;
    bool open;
    struct replay *replay;       /* by step */
    const struct kernel **order; /* of the calls of a step */
    int64_t ordered, order_room;
    struct seen *seen;
    int64_t n, room, steps;
    double *step, *played; /* seconds of a step; of its schedule */
    double between, *gap;  /* between: sum over steps, of a kernel */
    int64_t gap_room;
    struct total {
        double seconds;
        int64_t n;
    } issue, wake, wait, *sequence; /* of issuing a transfer; from a transfer's end to the end of a
                                       wait for it; of a wait; of the k-th transfer of a step */
    int64_t sequences, known;       /* room, and transfers of the first step */
} all;

bool profile_out_open(const char *path, int64_t steps)
{
    all.open = true;
    all.step = ROOM(double, steps + 1);
    all.replay = ROOM(struct replay, steps + 1);
    all.played = ROOM(double, steps + 1);
    return world.rank != 0 || output_prepare(&all.out, "--profile-out", path);
}

static void *more_room(void *of, int64_t n, int64_t *room, size_t each)
{
    if (n < *room) return of;
    *room = *room ? 2 * *room : 256;
    of = realloc(of, (size_t)*room * each);
    if (!of) fail_now("--profile-out: no memory");
    return of;
}

static struct seen *seen_of(const struct mark *m, int64_t place)
{
    for (int64_t i = 0; i < all.n; i++)
        if (all.seen[i].kernel == m->kernel && all.seen[i].unit == m->unit &&
            all.seen[i].place == place && (m->kernel || !strcmp(all.seen[i].what, m->what)))
            return &all.seen[i];
    all.seen = more_room(all.seen, all.n, &all.room, sizeof *all.seen);
    all.seen[all.n] =
        (struct seen){.kernel = m->kernel, .what = m->what, .unit = m->unit, .place = place};
    return &all.seen[all.n++];
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

static bool is_host(const struct mark *m) { return !m->kernel && m->lane == WATCH_COMPUTE; }
static bool is_transfer(const struct mark *m) { return !m->kernel && m->lane != WATCH_COMPUTE; }

/* Where the host is the device: what a schedule takes beside kernels, issues and waits, as a part
 * for each kernel: loads, calls, and what other ranks take from the core meanwhile. */
static double rest_of(const struct mark *mark, int64_t marks, double played)
{
    double kernels = 0;
    for (int64_t i = 0; i < marks; i++) {
        if (!is_transfer(&mark[i])) played -= mark[i].to - mark[i].from;
        if (mark[i].kernel) kernels += mark[i].part;
    }
    return kernels > 0 && played > 0 ? played / kernels : 0;
}

/* From the end of a kernel to the begin of the next one. Where the host does not see the waits, the
 * median, since few gaps are waits. */
static double between_of(const struct mark *mark, int64_t marks, double played)
{
    for (int64_t i = 0; i < marks; i++)
        if (is_host(&mark[i])) return rest_of(mark, marks, played);
    int64_t n = 0;
    double end = 0;
    for (int64_t i = 0; i < marks; i++) {
        if (!mark[i].kernel) continue;
        all.gap = more_room(all.gap, n, &all.gap_room, sizeof *all.gap);
        if (end > 0) all.gap[n++] = mark[i].from - end;
        end = mark[i].to;
    }
    return n ? median(all.gap, n) : 0;
}

static const struct mark *next_of(const struct mark *mark, int64_t marks, int64_t *at,
                                  const char *what)
{
    while (*at < marks) {
        const struct mark *m = &mark[(*at)++];
        if (what ? is_host(m) && !strcmp(m->what, what) : is_transfer(m)) return m;
    }
    return NULL;
}

/* One thread does all transfers in the order of their issue: each could begin when it was issued
 * and the one before it was over. Returns how much earlier that was than it began. */
static double late(const struct mark *transfer, const struct mark *issue, double before)
{
    double could = issue ? fmax(issue->from, before) : transfer->from;
    return transfer->from > could ? transfer->from - could : 0;
}

static void append(double **to, int64_t *n, int64_t *room, double value)
{
    *to = more_room(*to, *n, room, sizeof **to);
    (*to)[(*n)++] = value;
}

/* From the end of the transfer that a wait was for until it was over, by the transfer's number in
 * the step. */
static void add_wakes(const struct mark *mark, int64_t marks, struct replay *r)
{
    int64_t first = -1;
    for (int64_t i = 0; i < marks; i++) {
        if (is_transfer(&mark[i])) append(&r->wake, &r->wakes, &r->room[2], 0);
        if (first < 0 && is_host(&mark[i]) && !strcmp(mark[i].what, WATCH_ISSUE))
            first = mark[i].unit;
    }
    for (int64_t i = 0; i < marks; i++) {
        if (!is_host(&mark[i]) || strcmp(mark[i].what, WATCH_WAIT)) continue;
        int64_t number = first, k = 0; /* a wait may be for a transfer of an earlier step */
        for (; k < marks && !(is_transfer(&mark[k]) && number++ == mark[i].unit); k++) {}
        if (k >= marks || mark[k].to <= mark[i].from) continue;
        all.wake.seconds += mark[i].to - mark[k].to, all.wake.n++;
        r->wake[mark[i].unit - first] += mark[i].to - mark[k].to;
    }
}

/* Calls of kernels one by one; the stretches of a shard are one call. */
static void add_calls(const struct mark *mark, int64_t marks, struct replay *r)
{
    double part = 1;
    for (int64_t i = 0; i < marks; i++) {
        if (!mark[i].kernel) continue;
        const double seconds = mark[i].to - mark[i].from;
        if (part < 1 - 1e-6 && r->calls) {
            r->call[r->calls - 1] += seconds, part += mark[i].part;
            continue;
        }
        part = mark[i].part;
        if (!all.steps) {
            all.order = more_room(all.order, r->calls, &all.order_room, sizeof(*all.order));
            all.order[all.ordered++] = mark[i].kernel;
        }
        append(&r->call, &r->calls, &r->room[0], seconds);
    }
}

static void add_to_sequence(int64_t at, double seconds)
{
    all.sequence = more_room(all.sequence, at, &all.sequences, sizeof *all.sequence);
    if (!all.steps && at >= all.known) all.sequence[all.known++] = (struct total){0};
    if (at < all.known) all.sequence[at].seconds += seconds, all.sequence[at].n++;
}

void profile_out_step(const struct mark *mark, int64_t marks, double played)
{
    if (!all.open) return;
    int64_t sums = 0, issued = 0, at = 0;
    double before = 0;
    struct replay *r = &all.replay[all.steps];
    add_wakes(mark, marks, r);
    add_calls(mark, marks, r);
    for (int64_t i = 0; i < marks; i++) {
        if (is_host(&mark[i])) {
            struct total *t = strcmp(mark[i].what, WATCH_ISSUE) ? &all.wait : &all.issue;
            t->seconds += mark[i].to - mark[i].from, t->n++;
            if (t == &all.issue)
                append(&r->issue, &r->issues, &r->room[1], mark[i].to - mark[i].from);
            continue;
        }
        double more = 0;
        if (is_transfer(&mark[i])) {
            more = late(&mark[i], next_of(mark, marks, &issued, WATCH_ISSUE), before);
            before = mark[i].to;
            append(&r->transfer, &r->transfers, &r->room[3], mark[i].to - mark[i].from + more);
            add_to_sequence(at++, mark[i].to - mark[i].from + more);
        }
        const bool sum = !mark[i].kernel && mark[i].unit < 0;
        struct seen *s = seen_of(&mark[i], sum ? sums++ : mark[i].micro);
        s->seconds = more_room(s->seconds, s->n, &s->room, sizeof *s->seconds);
        s->seconds[s->n++] = mark[i].to - mark[i].from + more;
        s->part += mark[i].kernel ? mark[i].part : 1;
    }
    r->between = between_of(mark, marks, played);
    all.between += r->between;
    all.played[all.steps] = played;
}

void profile_out_took(double seconds)
{
    if (all.open) all.step[all.steps++] = seconds;
}

static double mean(const double *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i];
    return sum / (double)n;
}

static double mean_of(struct total t) { return t.n ? t.seconds / (double)t.n : 0; }

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

/* By MICRO_FIRST and MICRO_LAST. */
static const char *const micro_names[] = {"middle", "first", "last", "only"};

static bool put_collective(const struct seen *s, const char *comma)
{
    int64_t bytes = 0;
    const struct instance *all_units = segments_instances();
    const char *name = s->unit >= 0 ? all_units[s->unit].unit->name : "";
    const bool parts = !strcmp(s->what, "gather over replicas"),
               weights = parts || !strcmp(s->what, "gather");
    if (s->unit >= 0)
        bytes = (parts ? all_units[s->unit].unit->part : all_units[s->unit].unit->shard) *
                (weights && program.compute_type == TYPE_BF16 ? 2 : 4);
    return put(
        "    %s{\"kind\": \"%s\", \"unit\": \"%s\", \"instance\": %lld, \"micro\": \"%s\", "
        "\"part_bytes\": %lld, \"calls\": %.17g, \"seconds\": %.9g, \"mean_seconds\": %.9g}\n",
        comma, s->what, name, (long long)(s->unit >= 0 ? s->unit : s->place),
        s->unit < 0 || strcmp(s->what, "reduce") ? "any" : micro_names[s->place & 3],
        (long long)bytes, (double)s->n / (double)all.steps, median(s->seconds, s->n),
        mean(s->seconds, s->n));
}

static bool put_list(const char *name, const double *x, int64_t n)
{
    bool fine = put(", \"%s\": [", name);
    for (int64_t i = 0; i < n && fine; i++) fine = put("%s%.6g", i ? ", " : "", x[i]);
    return fine && put("]");
}

/* Which kernel a call is of, by its place among those that were written. */
static int64_t place_of(const struct kernel *k)
{
    int64_t n = 0;
    for (int64_t i = 0; i < all.n; i++) {
        if (!all.seen[i].kernel || !row_of(all.seen[i].kernel->name)) continue;
        if (all.seen[i].kernel == k) return n;
        n++;
    }
    return -1;
}

/* The calls of a step in their order, and every step as it was. Where waits are not seen, a step
 * cannot be simulated from this, and nothing is written. */
static bool put_replays(void)
{
    bool fine = put(",\n \"order\": [");
    for (int64_t i = 0; i < all.ordered && fine && all.wait.n; i++)
        fine = put("%s%lld", i ? ", " : "", (long long)place_of(all.order[i]));
    fine = fine && put("],\n \"replay\": [");
    for (int64_t i = 0; i < all.steps && fine && all.wait.n; i++) {
        const struct replay *r = &all.replay[i];
        fine = put("%s\n    {\"step_seconds\": %.9g, \"schedule_seconds\": %.9g, "
                   "\"between_seconds\": %.9g",
                   i ? "," : "", all.step[i], all.played[i], r->between) &&
               put_list("kernels", r->call, r->calls) && put_list("issues", r->issue, r->issues) &&
               put_list("wakes", r->wake, r->wakes) &&
               put_list("collectives", r->transfer, r->transfers) && put("}");
    }
    return fine && put("]");
}

bool profile_out_close(void)
{
    if (!all.open || world.rank != 0 || all.steps == 0) return true;
    if (!output_begin(&all.out)) return false;
    bool fine = put(
        "{\"planc_profile\": 1, \"device\": \"%s\", \"device_name\": \"%s\", \"compute\": \"%s\",\n"
        " \"fsdp\": %lld, \"dp\": %lld, \"ranks_a_host\": %d, \"accumulation\": %lld, "
        "\"tokens\": %lld,\n \"steps\": %lld, \"step_seconds\": %.9g, "
        "\"mean_step_seconds\": %.9g, \"schedule_seconds\": %.9g, "
        "\"between_seconds\": %.9g, \"issue_seconds\": %.9g, \"wake_seconds\": %.9g, "
        "\"waited_seconds\": %.9g,\n "
        "\"predicted_step_seconds\": %.9g,\n",
        program.device, device_name(), program.compute_type == TYPE_BF16 ? "bf16" : "fp32",
        (long long)program.fsdp, (long long)program.dp, world.host_size,
        (long long)program.accumulation, (long long)program.tokens, (long long)all.steps,
        median(all.step, all.steps), mean(all.step, all.steps), mean(all.played, all.steps),
        all.between / (double)all.steps, mean_of(all.issue), mean_of(all.wake),
        all.wait.seconds / (double)all.steps, predicted_step());
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
                   predicted_kernel(row->name), row->shape);
        comma = ",";
    }
    fine = fine && put(" ],\n \"collectives\": [\n");
    comma = "";
    for (int64_t i = 0; i < all.n && fine; i++)
        if (!all.seen[i].kernel) fine = put_collective(&all.seen[i], comma), comma = ",";
    fine = fine && put(" ],\n \"sequence\": [");
    for (int64_t i = 0; i < all.known && fine; i++)
        fine = put("%s%.9g", i ? ", " : "", mean_of(all.sequence[i]));
    return fine && put("]") && put_replays() && put("}\n") && output_end(&all.out);
}
