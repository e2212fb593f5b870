/* NCCL's model of a ring (nccl/src/graph/tuning.cc): time = base + steps x hop latency + bytes /
 * bandwidth of the ring, where a step between nodes has the network's latency and a ring that
 * crosses nodes is as fast as the cards of its members on a node together. Where a plan limits the
 * blocks of a collective, a ring is no faster than they are. */
#include "predict/collective.h"

#include <math.h>

/* Members of the ranks first, first + stride, … (n of them) on the nodes of `each` ranks. */
static void spread_over(int64_t first, int64_t stride, int64_t n, int64_t each, int64_t *nodes,
                        int64_t *fewest)
{
    int64_t node = -1, here = 0;
    *nodes = 0, *fewest = n;
    for (int64_t i = 0; i < n; i++) {
        int64_t at = (first + i * stride) / each;
        if (at != node) {
            if (node >= 0 && here < *fewest) *fewest = here;
            node = at, here = 0, ++*nodes;
        }
        here++;
    }
    if (here < *fewest) *fewest = here;
}

static struct ring ring_over(const struct machine *m, int64_t n, int64_t nodes, int64_t fewest)
{
    const struct cluster *c = m->cluster;
    struct ring r = {.ranks = n, .nodes = nodes};
    if (n <= 1) return r;
    r.company = nodes > 1 ? WITH_NETWORK : WITH_NODE;
    r.base = nodes > 1 ? c->link_network.base : c->link_node.base;
    r.bandwidth = c->link_node.bandwidth;
    if (nodes > 1) {
        double cards = c->link_network.bandwidth * (double)fewest;
        if (fewest <= 1 || cards < r.bandwidth || !(r.bandwidth > 0)) r.bandwidth = cards;
    }
    r.limited = machine_link(m, r.bandwidth) < r.bandwidth;
    r.bandwidth = machine_link(m, r.bandwidth);
    r.latency =
        (double)(n - nodes) * c->link_node.latency + (double)(nodes - 1) * c->link_network.latency;
    double side = ceil((double)n / (double)nodes);
    r.tree_latency = 2 * ((side - 1) * c->link_node.latency +
                          ceil(log2((double)nodes)) * c->link_network.latency);
    return r;
}

static void slower(struct ring *worst, struct ring r)
{
    if (r.ranks > 1 && (worst->ranks <= 1 || r.bandwidth < worst->bandwidth ||
                        (r.bandwidth == worst->bandwidth && r.latency > worst->latency)))
        *worst = r;
}

struct rings rings_of(const struct machine *m, int64_t fsdp, int64_t dp)
{
    struct rings all = {0};
    int64_t each = m->ranks_a_host > 0 ? m->ranks_a_host : 1, nodes, fewest;
    for (int64_t g = 0; g < dp; g++) {
        spread_over(g * fsdp, 1, fsdp, each, &nodes, &fewest);
        slower(&all.of[GROUP_SHARDS], ring_over(m, fsdp, nodes, fewest));
        if (g && each % fsdp == 0) break; /* all alike */
        if (g && fsdp % each == 0) break;
    }
    for (int64_t s = 0; s < fsdp && dp > 1; s++) {
        spread_over(s, fsdp, dp, each, &nodes, &fewest);
        slower(&all.of[GROUP_REPLICAS], ring_over(m, dp, nodes, fewest));
        if (each % fsdp == 0 || fsdp % each == 0) break;
    }
    spread_over(0, 1, fsdp * dp, each, &nodes, &fewest);
    all.of[GROUP_WORLD] = ring_over(m, fsdp * dp, nodes, fewest);
    return all;
}

static const char *const grid_class[] = {[GATHER_SHARDS] = "gather",
                                         [REDUCE_SCATTER] = "reduce_scatter",
                                         [ALL_REDUCE] = "all_reduce",
                                         [SUM_RANKS] = "sum"};

/* Microseconds of a collective over two ranks, or over one, which hands it over and moves nothing;
 * negative: there is no grid. */
static double cpu_microseconds(const struct machine *m, const char *class, const char *engine,
                               int64_t ranks, double bytes, double *least, int *rate)
{
    bool outside = false;
    int row;
    const struct grid *g = machine_grid(m, class, engine, -1, NULL, ORDER_ANY, ranks, &row);
    if (!g || (ranks > 1) != (g->ranks > 1)) return -1;
    double rounds = ranks > 1 ? (double)(ranks - 1) / (double)(g->ranks - 1) : 1,
           all = grid_value(g, (double[GRID_AXES]){bytes}, &outside),
           last = g->axis[0][g->n[0] - 1];
    *least = grid_value(g, (double[GRID_AXES]){g->axis[0][0]}, &outside) * rounds;
    if (ranks > 1 && bytes > last) all *= bytes / last;
    *rate = row;
    return all * rounds;
}

/* Rounds: one with each other rank. */
static struct transfer cpu_transfer(const struct machine *m, const struct ring *r,
                                    enum collective what, double bytes)
{
    struct transfer t = {.company = WITH_NODE};
    double least = 0, floor = 0;
    int row;
    double all = cpu_microseconds(m, grid_class[what], "mpi", r->ranks, bytes, &least, &t.rate);
    if (all < 0) {
        t.missing = intern_format("cluster.grid %s mpi { ranks = 2 … }", grid_class[what]);
        return t;
    }
    if (least > all) least = all;
    t.latency = whole_picoseconds(least * 1e-6);
    t.bytes = whole_picoseconds((all - least) * 1e-6);
    /* when compute has another core for itself a transfer is not disturbed */
    double busy = cpu_microseconds(m, grid_class[what], "mpi_busy", r->ranks, bytes, &floor, &row);
    if (busy > 0 && all > 0)
        t.disturbed = idle_part(m) + (1 - idle_part(m)) * (busy > all ? busy / all : 1);
    if (r->nodes > 1) {
        t.rate = RATE_LINK_NETWORK;
        t.bytes +=
            whole_picoseconds(bytes * (double)(r->ranks - 1) / m->cluster->link_network.bandwidth);
        t.latency += whole_picoseconds(r->latency + r->base);
    }
    return t;
}

/* What one rank does: the lane's thread is told and tells, nothing is moved. */
static struct transfer handed_over(const struct machine *m, enum collective what)
{
    struct transfer t = {.company = WITH_NODE, .disturbed = 1};
    double least = 0, all = cpu_microseconds(m, what == SUM_RANKS ? "sum" : "gather", "mpi", 1, 1,
                                             &least, &t.rate);
    if (all > 0) t.latency = whole_picoseconds(all * 1e-6);
    return t;
}

bool transfers_whole(const struct machine *m) { return m->device == DEVICE_CPU; }

struct transfer transfer_time(const struct machine *m, const struct rings *rings,
                              enum collective what, enum group_of_ranks group, double bytes)
{
    const struct ring *r = &rings->of[group];
    struct transfer t = {.company = r->company,
                         .rate = r->limited     ? RATE_CONTENTION
                                 : r->nodes > 1 ? RATE_LINK_NETWORK
                                                : RATE_LINK_NODE};
    if (r->ranks <= 1 && m->device == DEVICE_CPU && group != GROUP_REPLICAS)
        return handed_over(m, what);
    if (r->ranks <= 1) return (struct transfer){.company = ALONE, .rate = t.rate};
    if (m->device == DEVICE_CPU) return cpu_transfer(m, r, what, bytes);
    if (!(r->bandwidth > 0)) {
        t.missing = r->nodes > 1 ? "cluster.link.network.bandwidth" : "cluster.link.node.bandwidth";
        return t;
    }
    double steps = (double)(r->ranks - 1), n = (double)r->ranks;
    switch (what) {
    case GATHER_SHARDS:
    case REDUCE_SCATTER:
        t.latency = whole_picoseconds(r->base + r->latency);
        t.bytes = whole_picoseconds(bytes * steps / r->bandwidth);
        break;
    case ALL_REDUCE:
    case SUM_RANKS: {
        double ring = 2 * r->latency, moved = 2 * bytes * steps / n / r->bandwidth,
               tree = r->tree_latency, by_tree = 2 * bytes / r->bandwidth;
        bool uses_tree = tree + by_tree < ring + moved;
        t.latency = whole_picoseconds(r->base + (uses_tree ? tree : ring));
        t.bytes = whole_picoseconds(uses_tree ? by_tree : moved);
        break;
    }
    }
    return t;
}

/* What a thread that copies has of the core that compute is on: what collectives take, and no less
 * than its turn. */
static double core_part(const struct machine *m)
{
    double idle = idle_part(m), part = m->cluster->contention.core;
    if (part < 0.5) part = 0.5;
    return part + (1 - part) * idle;
}

struct transfer lane_time(const struct machine *m, double bytes)
{
    struct transfer t = {.company = ALONE};
    if (m->device == DEVICE_CPU) {
        bool outside = false;
        const struct grid *g =
            machine_grid(m, "copy", "planc", -1, NULL, ORDER_ANY, m->ranks_a_host, &t.rate);
        if (!g)
            t.missing = "cluster.grid copy planc";
        else
            t.bytes = whole_picoseconds(
                bytes / (1e9 * grid_value(g, (double[GRID_AXES]){bytes}, &outside)));
        t.company = WITH_NODE;
        t.disturbed = 1 / core_part(m);
        return t;
    }
    const struct efficiency *e =
        machine_efficiency(m, COST_MAP, m->engine[COST_MAP], F32, ORDER_ANY, 0, &t.rate);
    if (!e || !(m->cluster->bandwidth > 0)) {
        t.missing = e ? "cluster.device.bandwidth" : "cluster.efficiency map planc";
        return t;
    }
    t.latency = launch_picoseconds(m);
    t.bytes = whole_picoseconds(bytes / (m->cluster->bandwidth * e->value));
    return t;
}
