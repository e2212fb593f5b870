/* The collectives of training, as the worker thread executes them: one after the other, in the order in which schedule.c
 * issued them, each to its end before the next begins. All have communicators of their own, so that what the
 * main thread says cannot get between.
 *
 * The reduce-scatter is ours: in round k each rank sends its neighbour k places on the part that is that neighbour's and
 * adds what it gets to its own gradient. That moves no byte twice, needs one shard of room, which the ledger
 * knows, and adds in an order that depends on the mesh only. */
#include "world_mpi.h"

#include <limits.h>

enum { SUM_BLOCK = 256, PIECE = 1 << 22 };  /* PIECE: elements of one message, 16 MiB */

static MPI_Comm fsdp_comm = MPI_COMM_NULL, dp_comm = MPI_COMM_NULL, sum_fsdp_comm = MPI_COMM_NULL, sum_world_comm = MPI_COMM_NULL;
static MPI_Datatype row_type[5];            /* 64 elements of 2 or 4 bytes: shards pass 2^31 bytes, counts must not */
static double *sum_all;

void collectives_open(void)
{
    mpi_split(world.replica, world.rank, "the FSDP group", &fsdp_comm);
    mpi_split(world.shard, world.rank, "the replicas", &dp_comm);
    mpi_split(world.replica, world.rank, "the FSDP group", &sum_fsdp_comm);
    mpi_duplicate(&sum_world_comm);
    for (int bytes = 2; bytes <= 4; bytes += 2) {
        mpi_check(MPI_Type_contiguous(64 * bytes, MPI_BYTE, &row_type[bytes]), "a row of elements");
        mpi_check(MPI_Type_commit(&row_type[bytes]), "a row of elements");
    }
    sum_all = ROOM(double, (int64_t)world.size * SUM_BLOCK);
}

void collective_gather(void *slot, int64_t shard, int64_t bytes)
{
    MPI_Request request;
    if (shard % 64 == 0 && shard / 64 <= INT_MAX)
        mpi_check(MPI_Iallgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, slot, (int)(shard / 64), row_type[bytes], fsdp_comm, &request), "gather");
    else if (shard * bytes <= INT_MAX)
        mpi_check(MPI_Iallgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, slot, (int)(shard * bytes), MPI_BYTE, fsdp_comm, &request), "gather");
    else
        fail_now("rank %d: a shard of %lld elements cannot be gathered", world.rank, (long long)shard);
    mpi_finish(&request, 1, "gather");
}

static void set_to(float *restrict to, const float *restrict from, int64_t n, bool set)
{
    if (set)
        for (int64_t i = 0; i < n; i++)
            to[i] = from[i];
    else
        for (int64_t i = 0; i < n; i++)
            to[i] += from[i];
}

void collective_reduce_scatter(const float *slot, float *stage, float *into, int64_t shard, bool set)
{
    const int n = (int)program.fsdp, me = world.shard;
    set_to(into, slot + me * shard, shard, set);
    for (int round = 1; round < n; round++) {
        int to = (me + round) % n, from = (me + n - round) % n;
        for (int64_t done = 0; done < shard; done += PIECE) {
            int some = shard - done < PIECE ? (int)(shard - done) : PIECE;
            MPI_Request request[2];
            mpi_check(MPI_Irecv(stage + done, some, MPI_FLOAT, from, round, fsdp_comm, &request[0]), "reduce");
            mpi_check(MPI_Isend(slot + to * shard + done, some, MPI_FLOAT, to, round, fsdp_comm, &request[1]), "reduce");
            mpi_finish(request, 2, "reduce");
            set_to(into + done, stage + done, some, false);
        }
    }
}

void collective_all_reduce(float *shard, int64_t count)
{
    MPI_Request request;
    for (int64_t done = 0; done < count; done += PIECE) {
        int some = count - done < PIECE ? (int)(count - done) : PIECE;
        mpi_check(MPI_Iallreduce(MPI_IN_PLACE, shard + done, some, MPI_FLOAT, MPI_SUM, dp_comm, &request), "all-reduce");
        mpi_finish(&request, 1, "all-reduce");
    }
}

/* Gathered and added one after the other, so that all ranks have the same bits whatever MPI would have chosen. */
void collective_sum(double *value, int64_t count, bool whole_world)
{
    MPI_Request request;
    const int64_t ranks = whole_world ? world.size : program.fsdp;
    for (int64_t done = 0; done < count; done += SUM_BLOCK) {
        int some = count - done < SUM_BLOCK ? (int)(count - done) : SUM_BLOCK;
        mpi_check(MPI_Iallgather(value + done, some, MPI_DOUBLE, sum_all, some, MPI_DOUBLE, whole_world ? sum_world_comm : sum_fsdp_comm, &request), "sum");
        mpi_finish(&request, 1, "sum");
        for (int k = 0; k < some; k++) {
            double sum = 0;
            for (int64_t r = 0; r < ranks; r++)
                sum += sum_all[r * some + k];
            value[done + k] = sum;
        }
    }
}
