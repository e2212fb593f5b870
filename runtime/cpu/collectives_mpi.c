/* The collectives of training, executed by the worker thread one after the other, in the order in
 * which schedule.c issued them. They have communicators of their own, separate from the main
 * thread's.
 *
 * Ranks of an FSDP group that are on one host read each other's slots (neighbours.h). Elsewhere
 * the large ones are implemented here: in round k each rank sends data to the rank k places ahead
 * and receives as much from the rank k places back, in pieces, a few in flight. MPI's nonblocking
 * collectives move more bytes (a reduction goes through a tree), take memory that the ledger does
 * not know, and show no progress to wait by; without process_vm_readv, which containers forbid,
 * they were ten times slower. The order of additions depends only on the mesh. */
#include "cpu/neighbours.h"
#include "cpu/wider.h"
#include "shared/world_mpi.h"

#include <string.h>

enum { SUM_BLOCK = 256, ADD_BLOCK = 2048, PIECE_BYTES = 1 << 19, FLIGHT = 4 };

static MPI_Comm fsdp_comm = MPI_COMM_NULL, dp_comm = MPI_COMM_NULL, sum_fsdp_comm = MPI_COMM_NULL,
                sum_dp_comm = MPI_COMM_NULL;
static double *sum_all;
static const float **other; /* what each rank of the group has for this one's part */
static char *landing;       /* of pieces that are added to a shard and forgotten */

void collectives_open(void)
{
    mpi_split(world.replica, world.rank, "the FSDP group", &fsdp_comm);
    mpi_split(world.shard, world.rank, "the replicas", &dp_comm);
    mpi_split(world.replica, world.rank, "the FSDP group", &sum_fsdp_comm);
    mpi_split(world.shard, world.rank, "the replicas", &sum_dp_comm);
    other = ROOM(const float *, program.fsdp);
    landing = room(FLIGHT * PIECE_BYTES);
    sum_all = ROOM(double, (int64_t)world.size *SUM_BLOCK);
}

FOR_WIDER static void add(float *restrict to, const float *restrict from, int64_t n)
{
    for (int64_t i = 0; i < n; i++) to[i] += from[i];
}

struct part {
    const char *at;
    int64_t bytes;
};

static int piece_of(int64_t bytes, int64_t at)
{
    return at >= bytes ? 0 : (int)(bytes - at < PIECE_BYTES ? bytes - at : PIECE_BYTES);
}

/* One part goes out to one rank while another comes in from one: into `in`; or, with `sum`, through
 * `in` (the part's bytes at most, FLIGHT pieces at most), added to `sum` while it is still in the
 * cache. */
static void pass(MPI_Comm group, struct part out, int to, char *in, int64_t in_bytes, int from,
                 float *sum, const char *what)
{
    MPI_Request flight[FLIGHT][2];
    const int64_t longer = out.bytes > in_bytes ? out.bytes : in_bytes,
                  pieces = (longer + PIECE_BYTES - 1) / PIECE_BYTES;
    for (int64_t p = 0; p < pieces + FLIGHT; p++) {
        const int64_t at = p * PIECE_BYTES, landed = (p - FLIGHT) * PIECE_BYTES;
        const int lane = (int)(p % FLIGHT);
        char *through = sum ? in + lane * PIECE_BYTES : in + at;
        if (landed >= 0 && p - FLIGHT < pieces) {
            mpi_finish(flight[lane], 2, what);
            if (sum)
                add(sum + landed / 4, (const float *)(const void *)through,
                    piece_of(in_bytes, landed) / 4);
        }
        if (p < pieces) {
            flight[lane][0] = flight[lane][1] = MPI_REQUEST_NULL;
            if (piece_of(in_bytes, at))
                mpi_check(MPI_Irecv(through, piece_of(in_bytes, at), MPI_BYTE, from, 0, group,
                                    &flight[lane][0]),
                          what);
            if (piece_of(out.bytes, at))
                mpi_check(MPI_Isend(out.at + at, piece_of(out.bytes, at), MPI_BYTE, to, 0, group,
                                    &flight[lane][1]),
                          what);
        }
    }
}

/* The parts of `bytes` bytes of all ranks of a group, of which this one's is there. */
static void gather_over(MPI_Comm group, int n, int me, char *at, int64_t bytes)
{
    for (int round = 1; round < n; round++) {
        int to = (me + round) % n, from = (me + n - round) % n;
        pass(group, (struct part){at + me * bytes, bytes}, to, at + from * bytes, bytes, from, NULL,
             "gather");
    }
}

void collective_gather(void *slot, int64_t shard, int64_t bytes)
{
    const int n = (int)program.fsdp, me = world.shard;
    char *at = slot;
    if (n > 1 && neighbours_read(fsdp_comm, slot, n * shard * bytes)) {
        neighbours_begin();
        for (int round = 1; round < n; round++) {
            const int from = (me + n - round) % n;
            char *part = at + from * shard * bytes;
            memcpy(part, neighbours_at(from, part, shard * bytes), (size_t)(shard * bytes));
        }
        neighbours_end();
        return;
    }
    gather_over(fsdp_comm, n, me, at, shard * bytes);
}

void collective_gather_replicas(void *shard, int64_t part, int64_t bytes)
{
    gather_over(dp_comm, (int)program.dp, world.replica, shard, part * bytes);
}

void collective_scatter_replicas(float *shard, float *into, int64_t part)
{
    const int n = (int)program.dp, me = world.replica;
    float *mine = shard + me * part;
    for (int round = 1; round < n; round++) {
        int to = (me + round) % n, from = (me + n - round) % n;
        pass(dp_comm, (struct part){(const char *)(shard + to * part), 4 * part}, to, landing,
             4 * part, from, mine, "reduce over replicas");
    }
    if (into != mine) memcpy(into, mine, (size_t)part * sizeof *into);
}

/* to = a + b, or to + a + b, in this order. */
FOR_WIDER static void add_two(float *restrict to, const float *restrict a, const float *restrict b,
                              int64_t n, bool set)
{
    if (set)
        for (int64_t i = 0; i < n; i++) to[i] = a[i] + b[i];
    else
        for (int64_t i = 0; i < n; i++) to[i] = to[i] + a[i] + b[i];
}

/* Block by block, so that sums stay in the first cache until all ranks have been added. */
static void reduce_neighbours(const float *mine, float *into, int64_t shard, bool set)
{
    const int n = (int)program.fsdp, me = world.shard;
    neighbours_begin();
    for (int round = 1; round < n; round++)
        other[round] = neighbours_at((me + n - round) % n, mine, 4 * shard);
    for (int64_t done = 0; done < shard; done += ADD_BLOCK) {
        const int64_t some = shard - done < ADD_BLOCK ? shard - done : ADD_BLOCK;
        add_two(into + done, mine + done, other[1] + done, some, set);
        for (int round = 2; round < n; round++) add(into + done, other[round] + done, some);
    }
    neighbours_end();
}

void collective_reduce_scatter(const float *slot, float *stage, float *into, int64_t shard,
                               bool set)
{
    const int n = (int)program.fsdp, me = world.shard;
    const float *mine = slot + me * shard;
    if (n > 1 && neighbours_read(fsdp_comm, slot, 4 * n * shard)) {
        reduce_neighbours(mine, into, shard, set);
        return;
    }
    if (set)
        memcpy(into, mine, (size_t)shard * sizeof *into);
    else
        add(into, mine, shard);
    for (int round = 1; round < n; round++) {
        int to = (me + round) % n, from = (me + n - round) % n;
        pass(fsdp_comm, (struct part){(const char *)(slot + to * shard), 4 * shard}, to,
             (char *)stage, 4 * shard, from, into, "reduce");
    }
}

/* Part r of the shard, when the replicas share it out among themselves: 16 floats are a cache
 * line. */
static struct part share(const float *shard, int64_t count, int64_t r)
{
    int64_t each = ((count + program.dp - 1) / program.dp + 15) / 16 * 16,
            from = each * r < count ? each * r : count;
    return (struct part){(const char *)(shard + from),
                         4 * (count - from < each ? count - from : each)};
}

/* Each replica adds up its own part, then all parts go round: every one ends with the same bits. */
void collective_all_reduce(float *shard, int64_t count)
{
    const int n = (int)program.dp, me = world.replica;
    float *mine = shard + (share(shard, count, me).at - (const char *)shard) / 4;
    for (int round = 1; round < n; round++) {
        int to = (me + round) % n, from = (me + n - round) % n;
        pass(dp_comm, share(shard, count, to), to, landing, share(shard, count, me).bytes, from,
             mine, "all-reduce");
    }
    for (int round = 1; round < n; round++) {
        int to = (me + round) % n, from = (me + n - round) % n;
        struct part theirs = share(shard, count, from);
        pass(dp_comm, share(shard, count, me), to,
             (char *)shard + (theirs.at - (const char *)shard), theirs.bytes, from, NULL,
             "all-reduce");
    }
}

/* Gathered and added one after the other, so that all ranks have the same bits whatever MPI would
 * have chosen. */
static void sum_over(MPI_Comm group, int64_t ranks, double *value, int64_t count)
{
    MPI_Request request;
    for (int64_t done = 0; done < count; done += SUM_BLOCK) {
        int some = count - done < SUM_BLOCK ? (int)(count - done) : SUM_BLOCK;
        mpi_check(MPI_Iallgather(value + done, some, MPI_DOUBLE, sum_all, some, MPI_DOUBLE, group,
                                 &request),
                  "sum");
        mpi_finish(&request, 1, "sum");
        for (int k = 0; k < some; k++) {
            double sum = 0;
            for (int64_t r = 0; r < ranks; r++) sum += sum_all[r * some + k];
            value[done + k] = sum;
        }
    }
}

/* Over the shards first: replicas then add the same numbers in the same order on every rank. */
void collective_sum(double *value, int64_t count, bool whole_world)
{
    sum_over(sum_fsdp_comm, program.fsdp, value, count);
    if (whole_world && program.dp > 1) sum_over(sum_dp_comm, program.dp, value, count);
}
