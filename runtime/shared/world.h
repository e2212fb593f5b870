/* The ranks, and what they say to each other: for the trainer, and for the program that measures
 * this machine for planc calibrate. */
#ifndef WORLD_H
#define WORLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ── world_mpi.c: the ranks, and what the main thread says to the others ─────── */
/* FSDP groups are contiguous ranks: replica = rank / fsdp, shard = rank % fsdp. */
struct world {
    int rank, size, replica, shard, host_rank, host_size;
    int part; /* of all parts of master weights and moments: shard, or shard x parts + replica */
    int host_first; /* the lowest rank of this host */
    bool one_host;
};
extern struct world world;
/* before anything else; leaves when the launch itself is wrong */
void world_open(int *argc, char ***argv);
/* the watchdog sees all ranks: the timer of the start ends */
void world_met(void);
/* starts it again, around what may wait for a rank forever */
void world_meet(double seconds);
/* the groups of the mesh; leaves when the world is not the mesh */
void world_split(void);
/* Returns only when no rank noted a failure. Otherwise the lowest rank that did prints its own,
 * after "rank R on HOST: " when others did not, and all leave with this status. */
void world_agree(void); /* STATUS_ENVIRONMENT */
void world_agree_or(int status);
_Noreturn void world_leave(int status); /* every rank calls it: the orderly end */
/* what world_leave calls when all ranks have arrived, before the shared page goes */
void world_before_leaving(void (*call)(void));
/* Every rank gives n numbers and gets those of all, world.size x n, in rank order. */
void world_exchange(const double *mine, int64_t n, double *all);
void world_sum(double *value, int64_t n); /* over all ranks; start, probe and end only */
void world_send(const void *from, int64_t bytes, int to);
void world_receive(void *to, int64_t bytes, int from);
const char *world_rank_text(char text[128]); /* "rank 3 on node07: ", for what is wrong with a host;
                                                "" for a rank that is alone */
void world_mpi_text(char *to, size_t bytes); /* which MPI: "Open MPI v4.1.4" */
const char *world_host(void);                /* this host's name */
void world_host_barrier(void);               /* of the ranks of this host */
/* A page that all ranks of this host share, zeroed by all before anyone returns. */
void *world_host_page(int64_t bytes);

/* ── collectives_mpi.c: what the worker thread executes ──────────────────────── */
void collectives_open(void);
/* Elements [at, at + n) of what a rank gives to a gather. Returns where they lie: at `to`, which
 * has room for them, if they were not there before. */
typedef const void *own_part(const void *of, int64_t at, int64_t n, void *to);
/* The whole of `slot` (fsdp x shard elements of `bytes` each) from each rank's part. */
void collective_gather(void *slot, int64_t shard, int64_t bytes, own_part *part, const void *of);
/* into = (set) or += (not) the sum over the FSDP group of this rank's part of the slots. `stage`:
 * shard floats. */
void collective_reduce_scatter(const float *slot, float *stage, float *into, int64_t shard,
                               bool set);
/* over the replicas, in place */
void collective_all_reduce(float *shard, int64_t count);
/* The whole of `shard` (parts of `part` elements of `bytes` each) from each replica's part, which
 * already lies in it. */
void collective_gather_replicas(void *shard, int64_t part, int64_t bytes);
/* into = the sum over the replicas of this one's part of `shard`, which is lost. `into` may lie at
 * the beginning of `shard`. */
void collective_scatter_replicas(float *shard, float *into, int64_t part);
/* rank order, same bits everywhere */
void collective_sum(double *value, int64_t count, bool whole_world);

#endif
