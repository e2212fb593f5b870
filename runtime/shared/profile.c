/* --profile N: where the time of a step goes, kernel by kernel, from time stamps of the device
 * around each, over N steps after the first. The roofline time of a kernel is the larger of its
 * FLOPs at the rate of the fastest measured product and its bytes at the rate of the fastest
 * measured copy; the table shows it as a fraction of the time taken. Bytes count every operand and
 * result once, so a kernel that finds operands in a cache may exceed 100 %. Only kernels of rank 0
 * are shown. */
#include "watch.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KERNELS = 4096, SHOWN = 60, MOST_COLUMNS = 8192, COPIES = 16, FIRST_COPY = 1 << 16 };
#define ENOUGH_SECONDS 4e-3
#define MOST_COPIED (1LL << 30)

struct row {
    const struct kernel *kernel;
    int64_t calls;
    double seconds, parts; /* parts: of whole kernels, what the calls did */
};

static struct {
    struct row *row;
    int64_t rows, steps;
    double step_seconds, transfer_seconds[WATCH_LANES];
    double multiplied;     /* FLOPs per second, at best */
    double copied[COPIES]; /* bytes per second, read and written, of FIRST_COPY << i bytes */
    int copies;
    int64_t copy_bytes, columns; /* of the measurements that gave them */
} profile;

/* ── what the device can do ──────────────────────────────────────────────────── */

/* Numbers of either type between -1 and 1, because zeros take less power and so are multiplied
 * faster. A block of them, copied on. */
static void fill(struct device *d, char *at, int64_t bytes)
{
    enum { BLOCK = 1 << 18 };
    static uint32_t block[BLOCK / 4];
    for (int i = 0; i < BLOCK / 4; i++) {
        uint32_t random = (uint32_t)shuffle_mix((uint64_t)i);
        block[i] = 0x3f003f00u | (random & 0x807f807fu);
    }
    int64_t done = bytes < BLOCK ? bytes : BLOCK;
    device_write(d, at, block, done);
    for (int64_t n; done < bytes; done += n) {
        n = bytes - done < done ? bytes - done : done;
        device_copy(d, at + done, at, n);
    }
}

enum probe { PROBE_COPY, PROBE_PRODUCT };

/* Of ten in a row, the first not counted. 0: cannot be done. */
static double seconds_of(struct device *d, enum probe what, char *at, int64_t size)
{
    const int64_t bytes =
        what == PROBE_COPY ? size : size * size * (program.compute_type == TYPE_BF16 ? 2 : 4);
    /* the best of a few rounds: in one of them another process may have had the processor */
    enum { ROUNDS = 5, TIMES = 10 };
    double best = 0;
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = round > 0; i <= TIMES; i++) {
            if (i == 1) device_stamp(d, WATCH_COMPUTE, 0);
            if (what == PROBE_COPY)
                device_copy(d, at + bytes, at, bytes);
            else if (!device_square_product(d, program.compute_type, size, at, at + bytes,
                                            at + 2 * bytes))
                return 0;
        }
        device_stamp(d, WATCH_COMPUTE, 1);
        device_drain(d);
        const double took = device_stamp_seconds(d, 1) - device_stamp_seconds(d, 0);
        if (round == 0 || took < best) best = took;
    }
    return best / TIMES;
}

void profile_open(struct device *d)
{
    profile.row = ROOM(struct row, KERNELS);
    if (!device_stamps(d, 2)) fail_now("%s", fail_noted());
    char *at = local(d, 0);
    const int64_t room_for = program.local_bytes + program.wire_bytes,
                  element = program.compute_type == TYPE_BF16 ? 2 : 4;
    fill(d, at, room_for < 3 * MOST_COPIED ? room_for : 3 * MOST_COPIED);
    double seconds = 0;
    for (int64_t n = FIRST_COPY; 2 * n <= room_for && n <= MOST_COPIED && profile.copies < COPIES &&
                                 seconds < ENOUGH_SECONDS;
         n *= 2) {
        seconds = seconds_of(d, PROBE_COPY, at, n);
        profile.copied[profile.copies++] = seconds > 0 ? 2 * (double)n / seconds : 0;
        profile.copy_bytes = n;
    }
    seconds = 0;
    for (int64_t n = 256;
         (2 * element + 4) * n * n <= room_for && n <= MOST_COLUMNS && seconds < ENOUGH_SECONDS;
         n *= 2) {
        seconds = seconds_of(d, PROBE_PRODUCT, at, n);
        double flops = seconds > 0 ? 2.0 * (double)n * (double)n * (double)n / seconds : 0;
        if (flops > profile.multiplied) profile.multiplied = flops, profile.columns = n;
    }
    device_clear(d, at, room_for < 3 * MOST_COPIED ? room_for : 3 * MOST_COPIED);
    device_drain(d);
}

/* ── steps ───────────────────────────────────────────────────────────────────── */

static struct row *row_of(const struct kernel *k)
{
    static int64_t last; /* the same kernels come in the same order */
    for (int64_t i = 0; i < profile.rows; i++) {
        int64_t at = (last + i) % profile.rows;
        if (profile.row[at].kernel == k) {
            last = at;
            return &profile.row[at];
        }
    }
    if (profile.rows == KERNELS) return NULL;
    profile.row[profile.rows].kernel = k;
    return &profile.row[profile.rows++];
}

void profile_step(const struct mark *mark, int64_t marks, double seconds)
{
    profile.steps++;
    profile.step_seconds += seconds;
    for (int64_t i = 0; i < marks; i++) {
        double took = mark[i].to - mark[i].from;
        if (!mark[i].kernel) {
            profile.transfer_seconds[mark[i].lane] += took;
            continue;
        }
        struct row *r = row_of(mark[i].kernel);
        if (r) r->calls++, r->seconds += took, r->parts += mark[i].part;
    }
}

/* ── the table ───────────────────────────────────────────────────────────────── */

/* A kernel of one op is of the class of that op; the others are fused loops, updates by name. */
static const char *class_of(const struct kernel *k)
{
    static const char *const fused[] = {"map", "row", "column", "row+column"};
    for (size_t i = 0; k->class && i < sizeof fused / sizeof *fused; i++)
        if (!strcmp(k->class, fused[i])) return strncmp(k->name, "update_", 7) ? "fused" : "update";
    return k->class ? k->class : "fused";
}

/* Of a copy that moves as many bytes, or more: what fits into a cache is moved faster. */
static double copied(double bytes)
{
    double best = 0;
    for (int i = profile.copies - 1; i >= 0; i--) {
        if (i < profile.copies - 1 && 2.0 * (double)((int64_t)FIRST_COPY << i) < bytes) break;
        best = fmax(best, profile.copied[i]);
    }
    return best;
}

static double floor_seconds(const struct kernel *k)
{
    const double rate = copied(k->bytes);
    return fmax(profile.multiplied > 0 ? k->flops / profile.multiplied : 0,
                rate > 0 ? k->bytes / rate : 0);
}

static int longest_first(const void *a, const void *b)
{
    double x = ((const struct row *)a)->seconds, y = ((const struct row *)b)->seconds;
    return x < y ? 1 : x > y ? -1 : 0;
}

struct line {
    const char *name;
    double calls, seconds, flops, bytes, floor, predicted;
};

static const char *milliseconds(double ms, char text[32])
{
    snprintf(text, 32, "%.3f", ms);
    return text;
}

static void show(const char *kind, struct line l, double all)
{
    char text[32];
    const double steps = (double)profile.steps;
    say("profile: %-8s %-36s %7.0f %10.3f %6.1f %% %9.2f %9.1f %7.1f %% %9s", kind, l.name,
        l.calls / steps, 1e3 * l.seconds / steps, 100 * l.seconds / all,
        1e-12 * l.flops / l.seconds, 1e-9 * l.bytes / l.seconds, 100 * l.floor / l.seconds,
        l.predicted > 0 ? milliseconds(1e3 * l.predicted / steps, text) : "");
}

static void line_add(struct line *l, const struct row *r)
{
    l->calls += (double)r->calls;
    l->seconds += r->seconds;
    l->flops += r->parts * r->kernel->flops;
    l->bytes += r->parts * r->kernel->bytes;
    l->floor += r->parts * floor_seconds(r->kernel);
    l->predicted += r->parts * predicted_kernel(r->kernel->name);
}

/* Rows are sorted, so a class stands where its longest kernel does. */
static void show_classes(double all)
{
    for (int64_t i = 0; i < profile.rows; i++) {
        struct line l = {.name = class_of(profile.row[i].kernel)};
        bool told = false;
        for (int64_t k = 0; k < profile.rows; k++)
            if (!strcmp(class_of(profile.row[k].kernel), l.name)) {
                told = told || k < i;
                line_add(&l, &profile.row[k]);
            }
        if (!told && l.seconds > 0) show("class", l, all);
    }
}

void profile_close(void)
{
    double all = 0, steps = (double)profile.steps;
    if (profile.steps == 0 || world.rank != 0) return;
    for (int64_t i = 0; i < profile.rows; i++) all += profile.row[i].seconds;
    if (!(all > 0)) return;
    qsort(profile.row, (size_t)profile.rows, sizeof *profile.row, longest_first);
    say("profile: measured at best: %.1f GB/s copying %lld bytes (read and written), %.2f TFLOP/s "
        "in a product of %lld x %lld x %lld in %s",
        profile.copies ? 1e-9 * profile.copied[profile.copies - 1] : 0,
        (long long)profile.copy_bytes, 1e-12 * profile.multiplied, (long long)profile.columns,
        (long long)profile.columns, (long long)profile.columns,
        program.compute_type == TYPE_BF16 ? "BF16" : "F32");
    char replicas[64] = "";
    if (program.dp > 1)
        snprintf(replicas, sizeof replicas, ", %s over replicas %.3f ms",
                 program.parts ? "sums and gathers" : "sums",
                 1e3 * profile.transfer_seconds[WATCH_REPLICAS] / steps);
    say("profile: %lld steps, op by op: %.3f ms per step in kernels of %.3f ms per step; gathers "
        "%.3f ms, reductions %.3f ms%s on lanes of their own",
        (long long)profile.steps, 1e3 * all / steps, 1e3 * profile.step_seconds / steps,
        1e3 * profile.transfer_seconds[WATCH_GATHER] / steps,
        1e3 * profile.transfer_seconds[WATCH_REDUCE] / steps, replicas);
    say("profile: %-8s %-36s %7s %10s %8s %9s %9s %9s %9s", "", "a step", "calls", "ms", "share",
        "TFLOP/s", "GB/s", "roofline", "predicted");
    show_classes(all);
    struct line rest = {.name = "the rest"}, total = {.name = "all kernels"};
    for (int64_t i = 0; i < profile.rows; i++) {
        struct line l = {.name = profile.row[i].kernel->name};
        line_add(&l, &profile.row[i]);
        line_add(&total, &profile.row[i]);
        if (i < SHOWN && l.seconds > 0)
            show("kernel", l, all);
        else
            line_add(&rest, &profile.row[i]);
    }
    if (rest.seconds > 0) show("kernel", rest, all);
    show("all", total, all);
}
