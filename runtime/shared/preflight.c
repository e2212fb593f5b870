/* --preflight: one JSON object with a row for every rank (what it runs on, how fast products and
 * copies are, how fast the way to the next rank is) and one for every transfer of a step, at the
 * plan's own sizes and through the functions that a schedule calls. Nothing is trained: neither
 * data nor weights nor checkpoints are opened.
 *
 * Every figure is the best of a few batches. All ranks take part in a collective, so its time is
 * that of the slowest; to find out which rank that is, pairs of neighbours exchange messages while
 * the others wait. */
#define _GNU_SOURCE
#include "preflight.h"
#include "output.h"
#include "watch.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
    BATCHES = 5,
    ROUND_TRIPS = 25,
    MOST_CALLS = 1000,
    LEAST_MESSAGE = 4096,
    MOST_MESSAGE = 64 << 20
};
enum { MOST_SIDE = 4096, LEAST_COPY = 1 << 16, MOST_COPY = 256 << 20 };
#define BATCH_SECONDS 0.02

/* A rank, as it tells rank 0. */
struct report {
    struct device_identity is;
    char host[65];
    double rank, host_first, free_bytes, arena_bytes;
    double product_flops, copy_bytes, link_bytes; /* a second; 0: not measured */
};

struct transfer {
    const char *what, *unit;
    int64_t part_bytes; /* a rank's part; of a sum all of it */
    int64_t ranks;
    bool replicas; /* the group: ranks of equal shard, else neighbours */
    double seconds;
};

static struct {
    const char *path;
    struct output file;
    struct report *report; /* rank 0: of all ranks */
    struct transfer *transfer;
    int transfers;
    double *all;
} pre;

bool preflight_open(const char *path)
{
    pre.path = path;
    pre.all = ROOM(double, 2 * world.size);
    pre.report = ROOM(struct report, world.size);
    pre.transfer = ROOM(struct transfer, 4 * program.units + 1);
    return world.rank != 0 || output_prepare(&pre.file, "--preflight", path);
}

/* ── measuring ───────────────────────────────────────────────────────────────── */

static double most_of_all(double mine)
{
    double most = 0;
    world_exchange(&mine, 1, pre.all);
    for (int r = 0; r < world.size; r++) most = fmax(most, pre.all[r]);
    return most;
}

enum job {
    JOB_PRODUCT,
    JOB_COPY,
    JOB_GATHER,
    JOB_GATHER_PARTS,
    JOB_REDUCE,
    JOB_REDUCE_ALL,
    JOB_SUM
};
/* size: a side, bytes, or a unit's first instance. */
struct work {
    enum job job;
    int64_t size;
    char *at; /* free memory of the arena */
    int64_t slot_bytes;
};

static void issue(struct device *d, const struct work *w, const struct unit *u, int64_t calls)
{
    const int64_t element = program.compute_type == TYPE_BF16 ? 2 : 4, n = w->size;
    float *into;
    for (int64_t i = 0; i < calls; i++) switch (w->job) {
        case JOB_PRODUCT:
            device_square_product(d, program.compute_type, n, w->at, w->at + n * n * element,
                                  w->at + 2 * n * n * element);
            break;
        case JOB_COPY: device_copy(d, w->at + n, w->at, n); break;
        case JOB_GATHER: gather(d, 1, n, w->at, -1); break;
        case JOB_GATHER_PARTS: gather_replicas(d, 1, n, MICRO_FIRST); break;
        case JOB_REDUCE:
        case JOB_REDUCE_ALL:
            into = program.parts ? (void *)(w->at + w->slot_bytes + 4 * u->shard)
                                 : (float *)local(d, program.gradient) + u->state_offset;
            reduce(d, 1, n, w->at, w->at + w->slot_bytes, into,
                   w->job == JOB_REDUCE ? MICRO_FIRST : MICRO_FIRST | MICRO_LAST, -1);
            if (w->job == JOB_REDUCE) break;
            if (program.parts)
                scatter_replicas(d, 1, n, into, into, MICRO_LAST, -1);
            else
                sum_replicas(d, 1, n, into, MICRO_LAST, -1);
            break;
        case JOB_SUM: sum_ranks(d, 1, "world", (double *)(void *)w->at, n, -1); break;
        }
    device_drain(d);
    position_moved();
}

/* Seconds of one call, of the slowest rank when `together`. All ranks call equally often. */
static double seconds_of(struct device *d, const struct work *w, const struct unit *u,
                         bool together)
{
    issue(d, w, u, 1);
    double begun = clock_seconds();
    issue(d, w, u, 1);
    const double once = most_of_all(clock_seconds() - begun);
    const double fit = BATCH_SECONDS / (once > 1e-9 ? once : 1e-9);
    const int64_t calls = fit < 1 ? 1 : fit > MOST_CALLS ? MOST_CALLS : (int64_t)fit;
    double best = INFINITY;
    for (int i = 0; i < BATCHES; i++) {
        most_of_all(0); /* all begin together */
        begun = clock_seconds();
        issue(d, w, u, calls);
        best = fmin(best, (clock_seconds() - begun) / (double)calls);
    }
    return together ? most_of_all(best) : best;
}

static void measure_device(struct device *d, struct report *mine)
{
    const int64_t have = program.local_bytes + program.wire_bytes,
                  element = program.compute_type == TYPE_BF16 ? 2 : 4;
    struct work w = {.job = JOB_COPY, .size = MOST_COPY, .at = local(d, 0)};
    while (w.size > LEAST_COPY && 2 * w.size > have) w.size /= 2;
    if (2 * w.size <= have) mine->copy_bytes = 2 * (double)w.size / seconds_of(d, &w, NULL, false);
    w.job = JOB_PRODUCT;
    const int64_t of_three = 2 * element + 4; /* the third may be F32 */
    for (w.size = MOST_SIDE; w.size > 16 && (of_three * w.size * w.size > have ||
                                             (w.size > 512 && !strcmp(program.device, "cpu")));)
        w.size /= 2;
    const double n = (double)w.size;
    device_clear(d, w.at, of_three * w.size * w.size);
    if (device_square_product(d, program.compute_type, w.size, w.at,
                              w.at + w.size * w.size * element,
                              w.at + 2 * w.size * w.size * element))
        mine->product_flops = 2 * n * n * n / seconds_of(d, &w, NULL, false);
    else /* the same on all ranks: whether there is a library is the plan's */
        device_drain(d);
}

/* The largest part of a gather, as a message. */
static int64_t message_bytes(void)
{
    int64_t most = LEAST_MESSAGE;
    for (int i = 0; i < program.units; i++) {
        const int64_t part = program.unit[i].shard * (program.compute_type == TYPE_BF16 ? 2 : 4);
        most = part > most ? part : most;
    }
    return most < MOST_MESSAGE ? most : MOST_MESSAGE;
}

/* There and back: half of it is one way. The lower rank begins. */
static double round_trip(void *message, int64_t bytes, int other)
{
    const double begun = clock_seconds();
    if (world.rank < other) {
        world_send(message, bytes, other);
        world_receive(message, bytes, other);
    } else {
        world_receive(message, bytes, other);
        world_send(message, bytes, other);
    }
    return clock_seconds() - begun;
}

/* Each rank with the next one, the last with the first; pairs that share no rank at a time. */
static void measure_links(struct report *mine)
{
    const int64_t bytes = message_bytes();
    const int n = world.size, rounds = n < 2 ? 0 : n == 2 ? 1 : n % 2 ? 3 : 2;
    void *message = rounds ? room(bytes) : NULL;
    for (int round = 0; round < rounds; round++) {
        /* pair i is of ranks i and i + 1; of an odd number the last pair has a round of its own */
        const bool odd_one = n % 2 && n > 2;
        const int as_first = world.rank, as_second = (world.rank + n - 1) % n;
        const int round_of_first = odd_one && as_first == n - 1 ? 2 : as_first % 2,
                  round_of_second = odd_one && as_second == n - 1 ? 2 : as_second % 2;
        const bool first = round_of_first == round, second = round_of_second == round;
        const int other = first ? (world.rank + 1) % n : as_second;
        double best = INFINITY;
        most_of_all(0);
        for (int i = 0; (first || second) && i <= ROUND_TRIPS; i++) {
            const double took = round_trip(message, bytes, other);
            if (i > 0) best = fmin(best, took / 2);
        }
        if (first || (second && n == 2)) mine->link_bytes = (double)bytes / best;
    }
}

static void add_transfer(const char *what, const char *unit, int64_t part_bytes, int64_t ranks,
                         bool replicas, double seconds)
{
    if (seconds > 0)
        pre.transfer[pre.transfers++] =
            (struct transfer){what, unit, part_bytes, ranks, replicas, seconds};
}

/* Over the shards, or of the parts of a shard over the replicas. The rank's own part is cast and
 * stored first; that is no transfer. */
static void measure_gather(struct device *d, struct work w, const struct unit *u, bool replicas)
{
    const int64_t element = program.compute_type == TYPE_BF16 ? 2 : 4,
                  bytes = (replicas ? u->part : u->shard) * element;
    const struct work own = {.job = JOB_COPY, .size = bytes, .at = w.at};
    const double copy = seconds_of(d, &own, NULL, true);
    w.job = replicas ? JOB_GATHER_PARTS : JOB_GATHER;
    const double seconds = seconds_of(d, &w, u, true);
    add_transfer("gather", u->name, bytes, replicas ? program.dp : program.fsdp, replicas,
                 seconds > 2 * copy ? seconds - copy : seconds / 2);
}

/* Slots lie at the end of the arena, stages behind them. */
static void measure_transfers(struct device *d)
{
    const int64_t have = program.local_bytes + program.wire_bytes;
    int64_t instance = 0;
    for (int i = 0; i < program.units; instance += program.unit[i++].count) {
        const struct unit *u = &program.unit[i];
        const int64_t slot = 4 * u->elements,
                      need = slot + (program.parts ? 8 : 4) * u->shard + 512;
        if (need > have) continue;
        struct work w = {.size = instance,
                         .at = (char *)local(d, 0) + (have - need) / 256 * 256,
                         .slot_bytes = slot};
        device_clear(d, local(d, 0), have); /* sums of sums would not stay finite */
        if (program.fsdp > 1) measure_gather(d, w, u, false);
        if (program.parts) measure_gather(d, w, u, true);
        w.job = JOB_REDUCE;
        const double scatter = world.size > 1 ? seconds_of(d, &w, u, true) : 0;
        if (program.fsdp > 1)
            add_transfer("reduce_scatter", u->name, 4 * u->shard, program.fsdp, false, scatter);
        if (program.dp > 1) {
            w.job = JOB_REDUCE_ALL;
            const double both = seconds_of(d, &w, u, true);
            add_transfer(program.parts ? "reduce_scatter" : "all_reduce", u->name,
                         4 * (program.parts ? u->part : u->shard), program.dp, true,
                         both > 2 * scatter ? both - scatter : both / 2);
        }
    }
    struct work w = {.job = JOB_SUM, .size = 1, .at = local(d, 0)};
    device_clear(d, w.at, sizeof(double));
    if (world.size > 1)
        add_transfer("sum", "", 8, world.size, false, seconds_of(d, &w, NULL, true));
}

/* ── the file ────────────────────────────────────────────────────────────────── */

PRINTF_LIKE(2, 3) static bool add(bool fine, const char *format, ...)
{
    char text[2048];
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return fine && n > 0 && n < (int)sizeof text && output_put(&pre.file, text, n);
}

/* What a driver, a system or a user calls something: printing ASCII of JSON. */
static const char *plain(char *text)
{
    for (char *c = text; *c; c++)
        if (*c < ' ' || *c > '~' || *c == '"' || *c == '\\') *c = '?';
    return text;
}

/* Of all groups that such a transfer is in: the most hosts that one crosses, and the fewest ranks
 * of it that a host has. */
static void group_hosts(const struct transfer *t, int *hosts, int *fewest)
{
    const int groups = (int)(world.size / t->ranks), stride = t->replicas ? (int)program.fsdp : 1;
    *hosts = 0;
    *fewest = (int)t->ranks;
    for (int g = 0; g < groups; g++) {
        const int first = t->replicas ? g : g * (int)t->ranks;
        int here = 0;
        for (int i = 0; i < (int)t->ranks; i++) {
            const double host = pre.report[first + i * stride].host_first;
            int same = 0, before = 0;
            for (int k = 0; k < (int)t->ranks; k++) {
                const double other = pre.report[first + k * stride].host_first;
                const bool equal = !(other < host) && !(other > host);
                same += equal;
                before += equal && k < i;
            }
            here += before == 0;
            if (same < *fewest) *fewest = same;
        }
        if (here > *hosts) *hosts = here;
    }
}

static bool write_file(void)
{
    bool fine = output_begin(&pre.file);
    fine = add(fine, "{\"planc_preflight\":1,\"device\":\"%s\",\"fsdp\":%lld,\"dp\":%lld",
               program.device, (long long)program.fsdp, (long long)program.dp);
    fine = add(fine, ",\n\"message_bytes\":%lld,\"ranks\":[", (long long)message_bytes());
    for (int r = 0; r < world.size; r++) {
        struct report *p = &pre.report[r];
        fine = add(fine, "%s\n{\"rank\":%d,\"host\":\"%s\",\"host_first\":%.0f,\"device\":\"%s\"",
                   r ? "," : "", r, plain(p->host), p->host_first, plain(p->is.name));
        fine = add(fine, ",\"driver\":\"%s\",\"libraries\":\"%s\"", plain(p->is.driver),
                   plain(p->is.libraries));
        fine = add(fine, ",\"shard\":%lld,\"replica\":%lld", (long long)(r % program.fsdp),
                   (long long)(r / program.fsdp));
        fine =
            add(fine, ",\"free_bytes\":%.0f,\"arena_bytes\":%.0f", p->free_bytes, p->arena_bytes);
        if (p->product_flops > 0)
            fine = add(fine, ",\"product_flops_per_second\":%.6g", p->product_flops);
        if (p->copy_bytes > 0) fine = add(fine, ",\"copy_bytes_per_second\":%.6g", p->copy_bytes);
        if (p->link_bytes > 0) fine = add(fine, ",\"link_bytes_per_second\":%.6g", p->link_bytes);
        fine = add(fine, "}");
    }
    fine = add(fine, "],\n\"transfers\":[");
    for (int i = 0; i < pre.transfers; i++) {
        const struct transfer *t = &pre.transfer[i];
        int hosts, fewest;
        group_hosts(t, &hosts, &fewest);
        fine = add(fine,
                   "%s\n{\"what\":\"%s\",\"unit\":\"%s\",\"part_bytes\":%lld,\"ranks\":%lld,"
                   "\"hosts\":%d,\"fewest_of_a_host\":%d,\"seconds\":%.6g}",
                   i ? "," : "", t->what, t->unit, (long long)t->part_bytes, (long long)t->ranks,
                   hosts, fewest, t->seconds);
    }
    return add(fine, "]}\n") && output_end(&pre.file);
}

bool preflight_run(struct device *d, int64_t free_bytes)
{
    struct report mine = {.rank = world.rank,
                          .host_first = world.host_first,
                          .free_bytes = (double)free_bytes,
                          .arena_bytes = (double)device_predicted_bytes()};
    snprintf(mine.host, sizeof mine.host, "%s", world_host());
    device_identify(&mine.is);
    measure_device(d, &mine);
    measure_links(&mine);
    measure_transfers(d);
    if (world.rank != 0) {
        world_send(&mine, sizeof mine, 0);
        return true;
    }
    pre.report[0] = mine;
    for (int r = 1; r < world.size; r++) world_receive(&pre.report[r], sizeof mine, r);
    if (!write_file()) return false;
    say("preflight: %d rank%s measured; planc preflight PLAN --from %s shows it", world.size,
        world.size == 1 ? "" : "s", pre.path);
    return true;
}
