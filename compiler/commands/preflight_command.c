/* `planc preflight PLAN`: starts the plan's trainer with --preflight, and says what it measured: a
 * table of ranks with those marked that are slow or differ, the transfers of a step, and the
 * predicted step with the links as they are. --from reads what a trainer on a cluster wrote. */
#define _GNU_SOURCE
#include "base/escape.h"
#include "commands/calibrate.h"
#include "commands/run.h"
#include "analysis/rungs.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A rank this far below the median is marked. */
#define SLOW_PART 0.2

struct rank_row {
    const char *host, *device, *driver, *libraries;
    int64_t shard, replica;
    double free_bytes, arena_bytes;
    double rate[3]; /* of RATES; 0: not measured */
    struct text why;
};
static const char *const rate_key[] = {"product_flops_per_second", "copy_bytes_per_second",
                                       "link_bytes_per_second"};
static const char *const rate_name[] = {"products", "copies", "the way to the next rank"};
enum { RATES = 3 };

struct transfer_row {
    const char *what, *unit;
    double part_bytes, ranks, hosts, fewest, seconds;
};

struct measured {
    VECTOR(struct rank_row) rank;
    VECTOR(struct transfer_row) transfer;
    json_t *file;
};

/* ── the file ────────────────────────────────────────────────────────────────── */

static double number_of(const json_t *o, const char *key)
{
    return json_number_value(json_object_get(o, key));
}

static const char *word_of(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? printable_text(s) : "";
}

static bool refuse(const char *path, const char *why)
{
    command_fail(EXIT_ENVIRONMENT, "'%s' is no file of a trainer's --preflight: %s",
                 printable_text(path), why);
    return false;
}

static bool read_file(const char *path, const struct plan *p, struct measured *m)
{
    size_t n, i;
    json_error_t why;
    json_t *row;
    char *text = text_read(path, &n);
    if (!text) {
        command_fail(EXIT_ENVIRONMENT, "cannot read '%s': %s", printable_text(path),
                     text_read_why(errno));
        return false;
    }
    m->file = json_loadb(text, n, 0, &why);
    if (!m->file) return refuse(path, text_format("line %d: %s", why.line, why.text));
    if (number_of(m->file, "planc_preflight") != 1)
        return refuse(path, "it has no \"planc_preflight\": 1");
    const double fsdp = number_of(m->file, "fsdp"), dp = number_of(m->file, "dp");
    if (fsdp != (double)p->fsdp || dp != (double)p->dp) {
        command_fail(EXIT_ENVIRONMENT,
                     "'%s' was measured with fsdp %.0f x dp %.0f, the plan's mesh is fsdp %ld x "
                     "dp %ld",
                     printable_text(path), fsdp, dp, p->fsdp, p->dp);
        return false;
    }
    if (strcmp(word_of(m->file, "device"), p->device == DEVICE_CUDA ? "cuda" : "cpu"))
        return refuse(
            path, text_format("it is of device '%s', the plan is not", word_of(m->file, "device")));
    json_array_foreach(json_object_get(m->file, "ranks"), i, row)
    {
        struct rank_row r = {.host = word_of(row, "host"),
                             .device = word_of(row, "device"),
                             .driver = word_of(row, "driver"),
                             .libraries = word_of(row, "libraries"),
                             .shard = (int64_t)number_of(row, "shard"),
                             .replica = (int64_t)number_of(row, "replica"),
                             .free_bytes = number_of(row, "free_bytes"),
                             .arena_bytes = number_of(row, "arena_bytes")};
        for (int k = 0; k < RATES; k++) r.rate[k] = number_of(row, rate_key[k]);
        PUSH(&m->rank, r);
    }
    json_array_foreach(json_object_get(m->file, "transfers"), i, row)
    {
        struct transfer_row t = {.what = word_of(row, "what"),
                                 .unit = word_of(row, "unit"),
                                 .part_bytes = number_of(row, "part_bytes"),
                                 .ranks = number_of(row, "ranks"),
                                 .hosts = number_of(row, "hosts"),
                                 .fewest = number_of(row, "fewest_of_a_host"),
                                 .seconds = number_of(row, "seconds")};
        if (!(t.part_bytes > 0) || !(t.ranks > 1) || !(t.hosts >= 1) || !(t.fewest >= 1) ||
            !(t.seconds > 0))
            return refuse(path, "a transfer without its size, ranks, hosts or seconds");
        PUSH(&m->transfer, t);
    }
    if (m->rank.n != p->fsdp * p->dp) return refuse(path, "it has not a row for every rank");
    return true;
}

/* ── stragglers ──────────────────────────────────────────────────────────────── */

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Of two the larger one. */
static double median_rate(const struct measured *m, int rate)
{
    double *all = TAKE_MANY(double, m->rank.n);
    for (int i = 0; i < m->rank.n; i++) all[i] = m->rank.item[i].rate[rate];
    qsort(all, (size_t)m->rank.n, sizeof *all, ascending);
    return all[m->rank.n / 2];
}

/* The text that most ranks have. */
static const char *usual(const struct measured *m, size_t field)
{
    const char *best = "";
    int most = 0;
    for (int i = 0; i < m->rank.n; i++) {
        const char *one = *(const char **)((char *)&m->rank.item[i] + field);
        int same = 0;
        for (int k = 0; k < m->rank.n; k++)
            same += !strcmp(one, *(const char **)((char *)&m->rank.item[k] + field));
        if (same > most) most = same, best = one;
    }
    return best;
}

static void add_why(struct rank_row *r, const char *why)
{
    text_add(&r->why, "%s%s", r->why.length ? "; " : "", why);
}

static int mark(struct measured *m)
{
    static const struct {
        size_t at;
        const char *name;
    } word[] = {{offsetof(struct rank_row, device), "device"},
                {offsetof(struct rank_row, driver), "driver"},
                {offsetof(struct rank_row, libraries), "libraries"}};
    int marked = 0;
    for (size_t k = 0; k < COUNT_OF(word); k++) {
        const char *all = usual(m, word[k].at);
        for (int i = 0; i < m->rank.n; i++) {
            const char *one = *(const char **)((char *)&m->rank.item[i] + word[k].at);
            if (strcmp(one, all))
                add_why(&m->rank.item[i], text_format("another %s: %s", word[k].name, one));
        }
    }
    for (int k = 0; k < RATES; k++) {
        const double median = median_rate(m, k);
        for (int i = 0; i < m->rank.n; i++) {
            const double rate = m->rank.item[i].rate[k];
            if (rate < (1 - SLOW_PART) * median)
                add_why(&m->rank.item[i], text_format("%s: %.0f %% below the median", rate_name[k],
                                                      100 * (1 - rate / median)));
        }
    }
    for (int i = 0; i < m->rank.n; i++) {
        struct rank_row *r = &m->rank.item[i];
        if (r->free_bytes > 0 && r->free_bytes < r->arena_bytes)
            add_why(r, "less memory is free than the plan needs");
        marked += r->why.length > 0;
    }
    return marked;
}

/* ── the links of the cluster, as measured ───────────────────────────────────── */

static const struct transfer_row *largest(const struct measured *m, const char *what, bool network)
{
    const struct transfer_row *best = NULL;
    for (int i = 0; i < m->transfer.n; i++) {
        const struct transfer_row *t = &m->transfer.item[i];
        if (!strcmp(t->what, what) && (t->hosts > 1) == network &&
            (!best || t->part_bytes > best->part_bytes))
            best = t;
    }
    return best;
}

/* NCCL's ring (predict/collective.c) read backwards: its time minus start and hops is that of the
 * bytes. */
static void fit_link(struct cluster *c, const struct measured *m, bool network,
                     struct provenance from)
{
    const struct transfer_row *t = largest(m, "gather", network);
    if (!t) t = largest(m, "reduce_scatter", network);
    const bool reduces = !t;
    if (reduces) t = largest(m, "all_reduce", network);
    if (!t) return;
    struct link *link = network ? &c->link_network : &c->link_node;
    const double hops = (t->ranks - t->hosts) * c->link_node.latency +
                        (t->hosts - 1) * c->link_network.latency,
                 start = link->base + (reduces ? 2 : 1) * hops,
                 bytes = t->part_bytes * (t->ranks - 1) * (reduces ? 2 / t->ranks : 1),
                 seconds = t->seconds > 1.5 * start ? t->seconds - start : t->seconds / 3;
    link->bandwidth = bytes / seconds / (network ? t->fewest : 1);
    link->from = from;
}

static void measured_cluster(struct cluster *c, struct rates *rates, const struct measured *m)
{
    const struct provenance from = {
        .spread = 0.1, .basis = BASIS_MEASURED, .source = "planc preflight", .date = date_today()};
    figure_list all = {0};
    for (int i = 0; i < c->grids; i++) PUSH(&rates->grid, c->grid[i]);
    for (int i = 0; i < c->efficiencies; i++) PUSH(&rates->efficiency, c->efficiency[i]);
    if (c->kind == DEVICE_CUDA) {
        fit_link(c, m, false, from);
        fit_link(c, m, true, from);
        return;
    }
    for (int i = 0; i < m->transfer.n; i++) {
        const struct transfer_row *t = &m->transfer.item[i];
        struct figure f = {.class = intern(t->what),
                           .engine = intern("mpi"),
                           .type = -1,
                           .order = ORDER_ANY,
                           .ranks = (int64_t)t->ranks,
                           .at = {t->part_bytes},
                           .value = 1e6 * t->seconds};
        PUSH(&all, f);
    }
    rates_add(rates, &all, from);
    c->grid = rates->grid.item;
    c->grids = rates->grid.n;
}

/* Seconds of a step; 0: nobody can say. */
static double predicted_seconds(struct plan *p)
{
    struct rung r = {.devices = p->fsdp * p->dp, .plan = p};
    if (p->device != p->cluster.kind || !rung_fill(&r)) return 0;
    return r.step_seconds;
}

/* ── what is printed ─────────────────────────────────────────────────────────── */

static const char *per_second(double x, const char *unit)
{
    static const char *const large[] = {"", "k", "M", "G", "T", "P"};
    int i = 0;
    for (; x >= 1000 && i < 5; i++) x /= 1000;
    return x > 0 ? text_format("%.3g %s%s/s", x, large[i], unit) : "-";
}

static int hosts_of(const struct measured *m)
{
    int n = 0;
    for (int i = 0; i < m->rank.n; i++) {
        bool seen = false;
        for (int k = 0; k < i; k++) seen |= !strcmp(m->rank.item[k].host, m->rank.item[i].host);
        n += !seen;
    }
    return n;
}

static void print_text(const char *path, const struct measured *m, int marked, double before,
                       double after, const struct plan *p)
{
    const int hosts = hosts_of(m);
    int width = 4;
    for (int i = 0; i < m->rank.n; i++) {
        const int n = (int)strlen(m->rank.item[i].host);
        width = n > width ? n : width;
    }
    printf("%s: %d rank%s on %d host%s, fsdp %ld x dp %ld\n", printable_text(path), m->rank.n,
           m->rank.n == 1 ? "" : "s", hosts, hosts == 1 ? "" : "s", p->fsdp, p->dp);
    printf("  device     %s\n  driver     %s\n  libraries  %s\n",
           usual(m, offsetof(struct rank_row, device)), usual(m, offsetof(struct rank_row, driver)),
           usual(m, offsetof(struct rank_row, libraries)));
    printf("  %5s  %-*s %8s %6s %12s %12s %14s %12s %12s\n", "rank", width, "host", "replica",
           "shard", "memory free", "needs", "products", "copies", "next rank");
    for (int i = 0; i < m->rank.n; i++) {
        const struct rank_row *r = &m->rank.item[i];
        printf("%c %5d  %-*s %8ld %6ld %12s %12s %14s %12s %12s%s%s\n", r->why.length ? '!' : ' ',
               i, width, r->host, r->replica, r->shard,
               r->free_bytes > 0 ? text_bytes((int64_t)r->free_bytes) : "-",
               text_bytes((int64_t)r->arena_bytes), per_second(r->rate[0], "FLOP"),
               per_second(r->rate[1], "B"), per_second(r->rate[2], "B"),
               r->why.length ? "  <- " : "", r->why.length ? r->why.bytes : "");
    }
    printf("  %s\n",
           marked == 0 ? "no rank is slower than the others or differs from them"
           : marked == 1
               ? "1 rank is marked: a step waits for the slowest"
               : text_format("%d ranks are marked: a step waits for the slowest", marked));
    if (m->transfer.n)
        printf("  %-14s %-16s %14s %6s %6s %12s %12s\n", "transfer", "unit", "a rank's part",
               "ranks", "hosts", "time", "rate");
    for (int i = 0; i < m->transfer.n; i++) {
        const struct transfer_row *t = &m->transfer.item[i];
        printf("  %-14s %-16s %14s %6.0f %6.0f %12s %12s\n", t->what, t->unit,
               text_bytes((int64_t)t->part_bytes), t->ranks, t->hosts, text_seconds(t->seconds),
               per_second(t->part_bytes * (t->ranks - 1) / t->seconds, "B"));
    }
    if (!(before > 0))
        printf("  no prediction: cluster %s is of another device than the trainer, or lacks "
               "rates\n",
               p->cluster.name);
    else if (m->transfer.n)
        printf("  a step: %s predicted by the rates of cluster %s, %s with these links (%+.1f "
               "%%)\n",
               text_seconds(before), p->cluster.name, text_seconds(after),
               100 * (after / before - 1));
    else
        printf("  a step: %s predicted by the rates of cluster %s; one rank has no links\n",
               text_seconds(before), p->cluster.name);
}

static void print_json(const struct measured *m, double before, double after)
{
    json_t *o = m->file, *all = json_array();
    for (int i = 0; i < m->rank.n; i++)
        if (m->rank.item[i].why.length)
            json_array_append_new(
                all, json_pack("{s:i, s:s}", "rank", i, "why", m->rank.item[i].why.bytes));
    json_object_set_new(o, "stragglers", all);
    if (before > 0) {
        json_object_set_new(o, "predicted_step_seconds", json_real(before));
        json_object_set_new(o, "predicted_step_seconds_with_links", json_real(after));
    }
    printf("%s\n", json_dumps(o, JSON_INDENT(2)));
}

/* ── the command ─────────────────────────────────────────────────────────────── */

/* stdout is for the answer: what the trainer says goes to stderr. */
static int start_quietly(const struct trainer *t, const char *trainer, const char *const *option,
                         int n)
{
    fflush(stdout);
    const int kept = dup(STDOUT_FILENO);
    if (kept < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
        return command_fail(EXIT_ENVIRONMENT, "cannot redirect a stream: %s", strerror(errno));
    const int status = run_start(t, trainer, option, n);
    dup2(kept, STDOUT_FILENO);
    close(kept);
    return status;
}

/* Starts the trainer; what it wrote is then in *m. */
static int measure(const struct arguments *a, const struct trainer *t, struct measured *m)
{
    const char *trainer = NULL, *directory;
    int status = run_prepare(t, &trainer);
    if (status != EXIT_FINE) return status;
    diagnostics_print(stderr, a->colour);
    directory = scratch_folder();
    if (!directory) return EXIT_ENVIRONMENT;
    const char *file = text_format("%s/preflight.json", directory);
    const char *const option[] = {"--preflight", file};
    status = start_quietly(t, trainer, option, 2);
    if (status == EXIT_FINE && !read_file(file, t->plan, m)) status = EXIT_ENVIRONMENT;
    remove_folder(directory);
    return status;
}

int command_preflight(const struct arguments *a)
{
    struct trainer t;
    struct measured m = {0};
    struct rates rates = {0};
    if (a->word.n != 1)
        return command_fail(EXIT_USAGE, "preflight takes one plan, not %d", a->word.n);
    if (a->output && !can_write(a->output))
        return command_fail(EXIT_ENVIRONMENT, "cannot write '%s': %s", printable_text(a->output),
                            strerror(errno));
    json_in_arena();
    int status = trainer_plan(a, &t);
    if (status != EXIT_FINE) return status;
    if (!a->from)
        status = measure(a, &t, &m);
    else if (!read_file(a->from, t.plan, &m))
        status = EXIT_ENVIRONMENT;
    if (status != EXIT_FINE) return status;
    const int marked = mark(&m);
    const double before = predicted_seconds(t.plan);
    if (error_count()) return EXIT_PLAN;
    struct cluster c = t.plan->cluster;
    measured_cluster(&c, &rates, &m);
    t.plan->cluster = c;
    const double after = before > 0 ? predicted_seconds(t.plan) : 0;
    if (a->json)
        print_json(&m, before, after);
    else
        print_text(a->word.item[0], &m, marked, before, after, t.plan);
    if (a->output && !cluster_write(a->output, &c, &rates))
        return command_fail(EXIT_ENVIRONMENT, "cannot write '%s': %s", printable_text(a->output),
                            strerror(errno));
    return EXIT_FINE;
}
