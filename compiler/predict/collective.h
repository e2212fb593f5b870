/* The time of one collective: a ring over the devices of a group as NCCL models it, with ranks
 * where the trainer places them; on cpu a measured grid. */
#ifndef PLANC_COLLECTIVE_H
#define PLANC_COLLECTIVE_H

#include "predict/kernel_cost.h"

enum group_of_ranks { GROUP_SHARDS, GROUP_REPLICAS, GROUP_WORLD };
#define RANK_GROUPS (GROUP_WORLD + 1)

/* A group of ranks on the machine: shards are contiguous ranks, replicas of a shard lie fsdp ranks
 * apart, a node holds contiguous ranks. Of several groups the slowest counts. */
struct ring {
    int64_t ranks, nodes; /* nodes that it crosses */
    double bandwidth;     /* bytes/s of the whole ring, one direction; 0: one rank */
    double latency;       /* seconds of n - 1 steps, without the start */
    double tree_latency;  /* seconds of an all-reduce by a tree, without the start */
    double base;
    bool limited;         /* by the blocks of a collective, not by the link */
    enum company company; /* what it is to compute that runs meanwhile */
};
struct rings {
    struct ring of[RANK_GROUPS];
};
struct rings rings_of(const struct machine *m, int64_t fsdp, int64_t dp);

enum collective { GATHER_SHARDS, REDUCE_SCATTER, ALL_REDUCE, SUM_RANKS };
/* One part of what a lane does for a gather or a reduction, in order. */
struct transfer {
    int64_t latency, bytes; /* picoseconds: of starting and stepping, of moving */
    double disturbed;       /* times these while compute runs; 0: program.disturbed */
    enum company company;   /* ALONE: a kernel of the lane's own (a cast, an add) */
    int rate;
    const char *missing; /* what the cluster would have to say; NULL: known */
};
/* Whether collectives are measured as a whole, with what the lane does itself. */
bool transfers_whole(const struct machine *m);
/* `bytes`: a rank's part of a gather or reduce-scatter; all of it for an all-reduce or a sum. */
struct transfer transfer_time(const struct machine *m, const struct rings *r, enum collective what,
                              enum group_of_ranks group, double bytes);
/* A copy, a cast or an add of the lane itself: `bytes` read and written. */
struct transfer lane_time(const struct machine *m, double bytes);

#endif
