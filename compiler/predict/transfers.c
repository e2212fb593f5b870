/* See transfers.h. What a device does for a collective beside moving (casts, copies, adds):
 * runtime/cuda/device.c, runtime/cpu/device.c. */
#include "predict/transfers.h"

#include <string.h>

/* The list of one timing. It outlives marks of the arena, so it lies in the program's memory. */
enum { MOST_MISSING = 64 };

void missing_open(struct program *p)
{
    if (!p->missing.item) {
        p->missing.item = program_take(p, MOST_MISSING * sizeof *p->missing.item);
        p->missing.room = MOST_MISSING;
    }
    p->missing.n = 0;
}

void missing_add(struct program *p, const char *what)
{
    if (!what || p->missing.n == MOST_MISSING) return;
    for (int i = 0; i < p->missing.n; i++)
        if (!strcmp(p->missing.item[i], what)) return;
    PUSH(&p->missing, intern(what));
}

static void add_part(struct program *p, struct parts *to, struct transfer t)
{
    missing_add(p, t.missing);
    if (t.latency + t.bytes <= 0) return;
    to->part[to->n++] = t;
    to->total += t.latency + t.bytes;
}

struct parts transfers_gather(struct program *p, int unit)
{
    struct parts to = {0};
    double shard = (double)p->shard[unit], bytes = (double)element_bytes(p->compute);
    bool alone = p->rings.of[GROUP_SHARDS].ranks <= 1;
    if (!transfers_whole(&p->machine) || alone)
        add_part(p, &to, lane_time(&p->machine, shard * ((p->cut ? bytes : 4) + bytes)));
    add_part(p, &to,
             transfer_time(&p->machine, &p->rings, GATHER_SHARDS, GROUP_SHARDS, shard * bytes));
    return to;
}

struct parts transfers_together(struct program *p, int unit)
{
    struct parts to = {0};
    double part = (double)p->part[unit], bytes = (double)element_bytes(p->compute);
    if (!p->cut) return to;
    if (!transfers_whole(&p->machine)) add_part(p, &to, lane_time(&p->machine, part * (4 + bytes)));
    add_part(p, &to,
             transfer_time(&p->machine, &p->rings, GATHER_SHARDS, GROUP_REPLICAS, part * bytes));
    return to;
}

struct parts transfers_reduce(struct program *p, int unit, int micro)
{
    struct parts to = {0};
    double shard = (double)p->shard[unit];
    bool set = micro & PART_FIRST, alone = p->rings.of[GROUP_SHARDS].ranks <= 1;
    add_part(p, &to,
             transfer_time(&p->machine, &p->rings, REDUCE_SCATTER, GROUP_SHARDS, shard * 4));
    if (transfers_whole(&p->machine) ? alone : alone || !set)
        add_part(p, &to, lane_time(&p->machine, shard * (set ? 8 : 12)));
    return to;
}

struct parts transfers_replicas(struct program *p, int unit, int micro)
{
    struct parts to = {0};
    if (!(micro & PART_LAST)) return to;
    const double bytes = 4 * (double)p->part[unit];
    add_part(p, &to,
             transfer_time(&p->machine, &p->rings, p->cut ? REDUCE_SCATTER : ALL_REDUCE,
                           GROUP_REPLICAS, bytes));
    if (p->cut && p->accumulation > 1 && !transfers_whole(&p->machine)) /* to its place */
        add_part(p, &to, lane_time(&p->machine, 2 * bytes));
    return to;
}

struct parts transfers_sum(struct program *p, const struct item *it)
{
    struct parts to = {0};
    const double bytes = 8.0 * (double)it->numbers;
    const bool several = it->world && p->rings.of[GROUP_REPLICAS].ranks > 1;
    /* where one call does both, nothing is handed over for a group of one */
    if (!several || !transfers_whole(&p->machine) || p->rings.of[GROUP_SHARDS].ranks > 1)
        add_part(p, &to, transfer_time(&p->machine, &p->rings, SUM_RANKS, GROUP_SHARDS, bytes));
    if (it->world)
        add_part(p, &to, transfer_time(&p->machine, &p->rings, SUM_RANKS, GROUP_REPLICAS, bytes));
    return to;
}
