/* The collectives of training on GPUs: NCCL on the lanes of the schedule. There are two groups with
 * a communicator each: the shards of a replica and the replicas of a shard. A collective of the
 * shards waits, by an event, for the one issued before it, on the gather or the reduce lane;
 * collectives of the replicas have one stream.
 *
 * Two communicators on two streams can deadlock: one rank executes A and waits for a peer that
 * executes B and waits for the first. That needs a device on which one of them does not fit beside
 * the other. So where both groups exist, each communicator is limited to run.nccl_blocks, of which
 * twice as many are no more than a device has multiprocessors (check, and looked at here again): a
 * block needs no more than a multiprocessor, and kernels of compute end by themselves. Nothing else
 * relies on the order in which a device starts the two, so a graph may start them in any order.
 *
 * MPI only distributes NCCL's identities. With one rank NCCL is loaded where run.nccl = on asks for
 * it: then gathers, the reductions of a first micro-batch and the norm go through it, so that one
 * GPU shows its memory, registration and captured collectives. */
#define _GNU_SOURCE
#include "device.h"

#include "shared/world_mpi.h"

struct group {
    const char *name;
    MPI_Comm ranks;
    nccl_comm comm;
};
static struct group shards = {"the FSDP group", MPI_COMM_NULL, NULL},
                    replicas = {"the replicas", MPI_COMM_NULL, NULL};
static struct group *const groups[] = {&shards, &replicas};
enum { GROUPS = sizeof groups / sizeof *groups, USUAL_BLOCKS = 32 };

void collectives_open(void)
{
    mpi_split(world.replica, world.rank, shards.name, &shards.ranks);
    mpi_split(world.shard, world.rank, replicas.name, &replicas.ranks);
}

bool nccl_wanted(void) { return world.size > 1 || program.nccl; }
bool nccl_of_shards(void) { return shards.comm != NULL; }

static int size_of(const struct group *g)
{
    int n = 1;
    mpi_check(MPI_Comm_size(g->ranks, &n), g->name);
    return n;
}

/* NCCL waits for a rank that cannot be reached forever, and a large mesh takes a while to come
 * together. */
enum { MEET_SECONDS = 180 };

/* The limit of blocks of a collective; 0: NCCL's own. */
static int most_blocks(void)
{
    const int half = gpu.multiprocessors / 2;
    if (program.nccl_blocks > 0) return (int)program.nccl_blocks;
    return program.fsdp == 1 || program.dp == 1 ? 0 : half < USUAL_BLOCKS ? half : USUAL_BLOCKS;
}

/* The plan's cluster may have other devices than these. */
static bool both_fit(void)
{
    const int at_a_time = program.fsdp > 1 && program.dp > 1 ? 2 : 1;
    char who[CUDA_WHO];
    return at_a_time * most_blocks() <= gpu.multiprocessors ||
           fail_note("%s: %d multiprocessors have no room for %d collectives of %d blocks at a "
                     "time: run.nccl_blocks = %d",
                     cuda_who(who), gpu.multiprocessors, at_a_time, most_blocks(),
                     gpu.multiprocessors / at_a_time);
}

static bool join(struct group *g)
{
    struct nccl_config config = NCCL_CONFIG;
    if (most_blocks() > 0) config.max_ctas = most_blocks();
    struct {
        nccl_id id;
        unsigned result;
    } told = {.result = NCCL_OK};
    char text[NCCL_ERROR], who[CUDA_WHO];
    int rank = 0, n = size_of(g);
    MPI_Request request;
    if (n == 1 && (g != &shards || !program.nccl)) return true;
    mpi_check(MPI_Comm_rank(g->ranks, &rank), g->name);
    if (rank == 0) told.result = nccl.ncclGetUniqueId(&told.id);
    position_wait(true);
    mpi_check(MPI_Ibcast(&told, sizeof told, MPI_BYTE, 0, g->ranks, &request), g->name);
    mpi_finish(&request, 1, g->name);
    unsigned result = told.result; /* where the first has no id nobody waits for it */
    if (result == NCCL_OK)
        result = nccl.ncclCommInitRankConfig(&g->comm, n, told.id, rank, &config);
    position_wait(false);
    return result == NCCL_OK || fail_note("%s: NCCL does not bring %s together: %s", cuda_who(who),
                                          g->name, nccl_said(result, NULL, text));
}

static void meet(void)
{
    if (program.timeout_seconds > 0)
        world_meet(program.timeout_seconds > MEET_SECONDS ? program.timeout_seconds : MEET_SECONDS);
}

bool nccl_open(void)
{
    char why[LIBRARY_WHY], who[128];
    if (!nccl_wanted()) return true;
    if (!cuda_library_open(LIBRARY_NCCL, why))
        fail_note(world.size > 1 ? "%s%d ranks, and %s" : "%srun.nccl = on with %d rank, and %s",
                  world_rank_text(who), world.size, why);
    both_fit();
    nccl_environment();
    world_agree(); /* all have it, or nobody waits in it for others */
    meet();
    /* after each they agree: a rank that went on alone would wait for one that ended */
    for (int i = 0; i < GROUPS; i++) {
        join(groups[i]);
        world_agree();
    }
    if (program.timeout_seconds > 0) world_met();
    return true;
}

void nccl_know(struct device *d)
{
    nccl_comm comm[GROUPS];
    int n = 0;
    for (int i = 0; i < GROUPS; i++)
        if (groups[i]->comm) comm[n++] = groups[i]->comm;
    meet();
    nccl_register(d, comm, n);
    if (program.timeout_seconds > 0) world_met();
}

void nccl_say(void) { nccl_describe(most_blocks()); }

/* ── on a lane ───────────────────────────────────────────────────────────────── */

static void check(unsigned result, nccl_comm comm, const char *call)
{
    char where[CUDA_WHERE], text[NCCL_ERROR];
    if (result != NCCL_OK)
        fail_now("%s: %s: %s", cuda_where(where), call, nccl_said(result, comm, text));
}

/* An error that NCCL met while nobody was calling it: a peer that is gone, a cable. */
void nccl_look(void)
{
    char where[256], text[NCCL_ERROR], who[CUDA_WHO];
    for (int i = 0; i < GROUPS; i++) {
        unsigned result = NCCL_OK;
        if (!groups[i]->comm || nccl.ncclCommGetAsyncError(groups[i]->comm, &result) != NCCL_OK ||
            result == NCCL_OK || result == NCCL_IN_PROGRESS)
            continue;
        fail_now("%s, %s: a collective of %s failed: %s", cuda_who(who), position_text(where),
                 groups[i]->name, nccl_said(result, groups[i]->comm, text));
    }
}

static void before(struct device *d, enum lane lane) { cuda_wait(d, &d->collected, lane); }
static void after(struct device *d, enum lane lane) { cuda_record(d, &d->collected, lane); }

void nccl_gather(struct device *d, enum lane lane, void *slot, int64_t shard, int64_t bytes)
{
    const char *mine = (const char *)slot + world.shard * shard * bytes;
    before(d, lane);
    check(nccl.ncclAllGather(mine, slot, (size_t)(shard * bytes), NCCL_BYTES, shards.comm,
                             d->stream[lane]),
          shards.comm, "ncclAllGather");
    after(d, lane);
}

void nccl_reduce_scatter(struct device *d, enum lane lane, const void *slot, void *to,
                         int64_t shard)
{
    before(d, lane);
    check(nccl.ncclReduceScatter(slot, to, (size_t)shard, NCCL_F32, NCCL_SUM, shards.comm,
                                 d->stream[lane]),
          shards.comm, "ncclReduceScatter");
    after(d, lane);
}

void nccl_sum_replicas(struct device *d, void *shard, int64_t count)
{
    check(nccl.ncclAllReduce(shard, shard, (size_t)count, NCCL_F32, NCCL_SUM, replicas.comm,
                             d->stream[LANE_REPLICAS]),
          replicas.comm, "ncclAllReduce");
}

void nccl_gather_replicas(struct device *d, void *shard, int64_t bytes)
{
    const char *mine = (const char *)shard + world.replica * bytes;
    check(nccl.ncclAllGather(mine, shard, (size_t)bytes, NCCL_BYTES, replicas.comm,
                             d->stream[LANE_REPLICAS]),
          replicas.comm, "ncclAllGather");
}

void nccl_scatter_replicas(struct device *d, const void *shard, void *to, int64_t part)
{
    check(nccl.ncclReduceScatter(shard, to, (size_t)part, NCCL_F32, NCCL_SUM, replicas.comm,
                                 d->stream[LANE_REPLICAS]),
          replicas.comm, "ncclReduceScatter");
}

void nccl_sum_numbers(struct device *d, enum lane lane, double *value, int64_t count)
{
    nccl_comm comm = lane == LANE_REPLICAS ? replicas.comm : shards.comm;
    if (lane != LANE_REPLICAS) before(d, lane);
    check(
        nccl.ncclAllReduce(value, value, (size_t)count, NCCL_F64, NCCL_SUM, comm, d->stream[lane]),
        comm, "ncclAllReduce");
    if (lane != LANE_REPLICAS) after(d, lane);
}

/* Graphs that hold collectives must be gone: NCCL waits for them. */
void nccl_close(void)
{
    nccl_forget();
    for (int i = 0; i < GROUPS; i++)
        if (groups[i]->comm) check(nccl.ncclCommDestroy(groups[i]->comm), NULL, "ncclCommDestroy");
}
