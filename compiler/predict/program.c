/* The times of a program at any mesh, its memory, and which of its iterations are alike; see
 * program.h. What is in it, program_of.c has read from a graph. */
#include "predict/program.h"
#include "predict/transfers.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>

const char *const step_part_names[STEP_PARTS] = {"forward", "loss", "backward", "update"};

/* ── the slowest of n ────────────────────────────────────────────────────────── */

/* The largest of n standard normal numbers, on average: Blom (1958), the quantile (n - 3/8) / (n +
 * 1/4). */
static double largest_of(int64_t n)
{
    double low = 0, high = 8, wanted = ((double)n - 0.375) / ((double)n + 0.25);
    if (n <= 1) return 0;
    for (int i = 0; i < 60; i++) {
        double middle = (low + high) / 2;
        if (0.5 * erfc(-middle / sqrt(2)) < wanted)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* ── memory ──────────────────────────────────────────────────────────────────── */

struct block {
    struct block *next;
    size_t used, room;
    _Alignas(max_align_t) char bytes[];
};
enum { BLOCK_BYTES = 1 << 16 };

void *program_take(struct program *p, size_t bytes)
{
    bytes = (bytes + 15) / 16 * 16;
    struct block *b = p->block;
    if (!b || b->room - b->used < bytes) {
        size_t room = bytes > BLOCK_BYTES ? bytes : BLOCK_BYTES;
        b = calloc(1, sizeof *b + room);
        if (!b) bug("out of memory for a program");
        *b = (struct block){p->block, 0, room};
        p->block = b;
    }
    void *at = b->bytes + b->used;
    b->used += bytes;
    return at;
}
#define HOLD(p, type, n) ((type *)program_take(p, sizeof(type) * (size_t)(n)))

void program_free(struct program *p)
{
    if (!p) return;
    for (struct block *b = p->block, *next; b; b = next) next = b->next, free(b);
    free(p);
}

/* ── iterations that do the same ─────────────────────────────────────────────── */

const struct parts *item_gather(const struct item *it, int64_t n)
{
    int64_t target = n + it->shift;
    return it->gather[it->down ? it->count - 1 - target : target];
}

static bool does_same(const struct part_region *r, int64_t a, int64_t b)
{
    if (r->stage_of[a] != r->stage_of[b]) return false;
    const struct stage *s = &r->stage[r->stage_of[a]];
    for (int i = 0; i < s->n; i++) {
        const struct item *it = &s->item[i];
        if (it->kind != ITEM_GATHER && it->kind != ITEM_PARTS) continue;
        bool x = it->from <= a && a < it->to, y = it->from <= b && b < it->to;
        if (x != y || (x && item_gather(it, a)->total != item_gather(it, b)->total)) return false;
    }
    return true;
}

static void set_kinds(struct part_region *r)
{
    VECTOR(int64_t) first = {0};
    for (int64_t n = 0; n < r->count; n++) {
        int k = 0;
        while (k < first.n && !does_same(r, first.item[k], n)) k++;
        if (k == first.n) PUSH(&first, n);
        r->kind[n] = (int16_t)k;
    }
}

/* Which units take equally long to gather decides which iterations are alike, and may be other
 * units on another mesh. */
static void find_alike(struct program *p)
{
    bool changed = false;
    for (int i = 0; i < p->units; i++) {
        int same = 0;
        while (p->gather[same].total != p->gather[i].total ||
               p->together[same].total != p->together[i].total)
            same++;
        changed |= p->alike[i] != same + 1;
        p->alike[i] = same + 1;
    }
    for (int i = 0; i < p->regions && changed; i++) set_kinds(&p->region[i]);
}

/* How much longer a collective takes while compute runs. */
static double disturbed_by_compute(const struct machine *m)
{
    double part = m->cluster->contention.link;
    if (m->device == DEVICE_CPU) part *= 1 - idle_part(m);
    return part < 0.95 ? 1 / (1 - part) : 20;
}

/* ── times ───────────────────────────────────────────────────────────────────── */

/* Clocks of a run: where each of its kernels begins, in each company. */
static void set_clocks(const struct program *p, struct item *run)
{
    for (int c = 0; c < COMPANIES; c++) {
        int64_t at = 0;
        for (int k = 0; k < run->kernels; k++) {
            const struct timed *t = &p->kernel[run->kernel + k];
            run->clock[c][k] = at;
            at += t->launch + llround((double)t->time.picoseconds[c] * p->slowest);
        }
        run->clock[c][run->kernels] = at;
    }
}

void program_set_clocks(struct program *p)
{
    for (int i = 0; i < p->items; i++)
        if (p->by_number[i]->kind == ITEM_RUN) set_clocks(p, p->by_number[i]);
}

static void time_kernels(struct program *p)
{
    int64_t launch = launch_picoseconds(&p->machine);
    p->outside = false;
    for (int i = 0; i < p->kernels; i++) {
        const struct work *w = &p->work[i];
        struct timed *t = &p->kernel[i];
        *t = (struct timed){.name = w->name,
                            .class = w->class,
                            .time = kernel_time(&p->machine, w),
                            .launch = launch,
                            .flops = w->flops,
                            .bytes = w->bytes,
                            .again = w->again};
        missing_add(p, t->time.missing);
        p->outside |= t->time.outside;
    }
}

/* Of times of devices and steps; a cluster of more is not simulated. */
#define MOST_SPREAD 1e3

/* At most, of one time that it runs: picoseconds, in any company. */
static double longest_of(const struct program *p, const struct item *it)
{
    double most = 0;
    switch (it->kind) {
    case ITEM_RUN:
        for (int c = 0; c < COMPANIES; c++) most = fmax(most, (double)it->clock[c][it->kernels]);
        return most;
    case ITEM_PARTS:
    case ITEM_GATHER:
        for (int u = 0; u < p->units; u++)
            most = fmax(most, fmax((double)p->gather[u].total, (double)p->together[u].total));
        return most;
    case ITEM_REDUCE:
    case ITEM_REPLICAS:
    case ITEM_SUM:
        for (int micro = 0; micro < 4; micro++) most = fmax(most, (double)it->reduce[micro].total);
        return most;
    case ITEM_WAIT: break;
    }
    return (double)(p->issue + p->wake);
}

void program_limit(struct program *p)
{
    double all = p->slowest < MOST_SPREAD && p->late < MOST_SPREAD ? (double)p->host : INFINITY;
    if (fmax((double)p->host, (double)p->issue) >= LONGEST_PICOSECONDS) all = INFINITY;
    for (int i = 0; i < p->kernels; i++)
        for (int c = 0; c < COMPANIES; c++)
            if (p->slowest * (double)p->kernel[i].time.picoseconds[c] >= LONGEST_PICOSECONDS)
                all = INFINITY;
    for (int i = 0; i < p->items; i++) {
        const struct part_region *r = &p->region[p->region_of[i]];
        const double longest = longest_of(p, p->by_number[i]);
        all += longest * (double)r->count * (r->update ? 1 : (double)p->accumulation);
        if (p->by_number[i]->kind != ITEM_RUN && longest >= LONGEST_PICOSECONDS) all = INFINITY;
    }
    if (!(all * fmax(1, p->disturbed) * p->late < MOST_PICOSECONDS))
        missing_add(p, "figures with which a step takes less than 11 days");
}

void program_time(struct program *p, int64_t fsdp, int64_t dp)
{
    const struct machine *m = &p->machine;
    p->devices = fsdp * dp;
    p->rings = rings_of(m, fsdp, dp);
    p->slowest = fmin(1 + m->cluster->device_spread * largest_of(p->devices), MOST_SPREAD);
    p->late = fmin(1 + m->cluster->jitter * largest_of(p->devices), MOST_SPREAD);
    p->disturbed = disturbed_by_compute(m);
    p->host = whole_picoseconds(m->cluster->host.step);
    p->issue = whole_picoseconds(m->cluster->host.issue);
    missing_open(p);
    machine_missing(m, p->devices > 1, p->rings.of[GROUP_WORLD].nodes > 1, &p->missing);
    time_kernels(p);
    for (int i = 0; i < p->units; i++)
        p->gather[i] = transfers_gather(p, i), p->together[i] = transfers_together(p, i);
    for (int i = 0; i < p->items; i++) {
        struct item *it = p->by_number[i];
        if (it->kind == ITEM_SUM) it->reduce[0] = transfers_sum(p, it);
        for (int micro = 0; it->kind == ITEM_REDUCE && micro < 4; micro++)
            it->reduce[micro] = transfers_reduce(p, it->unit, micro);
        for (int micro = 0; it->kind == ITEM_REPLICAS && micro < 4; micro++)
            it->reduce[micro] = transfers_replicas(p, it->unit, micro);
    }
    program_set_clocks(p);
    find_alike(p);
    program_limit(p);
}

void program_set_pieces(struct program *p, int64_t chunks)
{
    for (int i = 0; i < p->regions; i++) {
        struct part_region *r = &p->region[i];
        if (!r->pieces || r->count == chunks) continue;
        r->count = chunks; /* all alike: nothing is gathered piece by piece */
        r->stage_of = HOLD(p, int16_t, chunks);
        r->kind = HOLD(p, int16_t, chunks);
    }
}
