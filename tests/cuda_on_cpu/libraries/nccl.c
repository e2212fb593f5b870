/* libnccl.so.2 between processes of one machine: every communicator is a piece of shared memory in
 * which each rank has two slots, used in turn; a collective goes through it in pieces. It is put on
 * a stream like any other work and says "again" while it waits for its peers. A collective begins
 * when its thread blocks fit on the device beside those under way: as many as its communicator may
 * have at most (max_ctas), and all of them without a limit. Two communicators that do not fit
 * together, in another order on another rank, stand still, as they would there, and after
 * STANDIN_NCCL_SECONDS (30) that is an asynchronous error. Every piece carries what its
 * sender believes it to be; two beliefs are an error too. Sums are made in the order of ranks,
 * alike on every rank. */
#define _GNU_SOURCE
#include "streams.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { MOST_RANKS = 16, PIECE = 256 << 10 };
enum {
    SUCCESS = 0,
    UNHANDLED = 1,
    SYSTEM = 2,
    INVALID_ARGUMENT = 4,
    INVALID_USAGE = 5,
    REMOTE = 6,
    IN_PROGRESS = 7
};
enum kind { GATHER, SCATTER, ALL };
struct belief {
    int64_t call, count, at;
    int kind, type;
};
struct shared {
    atomic_int attached, aborted;
    struct {
        _Alignas(64) atomic_long arrived, departed;
        struct belief belief[2];
        atomic_long windows; /* registered so far; the latest: */
        uint64_t window_at, window_bytes;
    } rank[MOST_RANKS];
    _Alignas(4096) unsigned char slot[][2][PIECE];
};
struct ncclComm {
    struct shared *shared;
    int rank, ranks, blocks;
    bool busy; /* of the taker's thread alone */
    long piece;
    int64_t calls;
    atomic_int error;
    atomic_bool aborted;
};
typedef struct ncclComm *comm_t;
typedef struct {
    char internal[128];
} id_t_;
/* ncclConfig_t as far as it is read. */
struct config {
    size_t size;
    unsigned magic, version;
    int blocking, cga_cluster, min_ctas, max_ctas;
};
static int blocks_taken; /* of the taker's thread alone */

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

EXPORTED unsigned ncclGetVersion(int *version) { return *version = 22809, SUCCESS; }
EXPORTED const char *ncclGetErrorString(unsigned error)
{
    static const char *const text[] = {"no error",
                                       "unhandled cuda error",
                                       "unhandled system error",
                                       "internal error",
                                       "invalid argument",
                                       "invalid usage",
                                       "remote process exited or there was a network error",
                                       "NCCL operation in progress"};
    return error < sizeof text / sizeof *text ? text[error] : "unknown result code";
}
EXPORTED const char *ncclGetLastError(comm_t comm) { return (void)comm, ""; }

EXPORTED unsigned ncclGetUniqueId(id_t_ *id)
{
    static int made;
    memset(id, 0, sizeof *id);
    if (standin_setting("STANDIN_NCCL_NO_ID", -1) == standin_setting("OMPI_COMM_WORLD_RANK", 0))
        return SYSTEM;
    /* by which a test knows what is its own */
    const char *tag = getenv("STANDIN_TAG") ? getenv("STANDIN_TAG") : "run";
    snprintf(id->internal, sizeof id->internal, "/standin-nccl-%.40s-%d-%d-%lx", tag, (int)getpid(),
             made++, (unsigned long)(1e6 * now()));
    return SUCCESS;
}
static struct shared *share(const char *name, int ranks)
{
    const size_t bytes = sizeof(struct shared) + (size_t)ranks * 2 * PIECE;
    int file = shm_open(name, O_RDWR | O_CREAT, 0600);
    if (file < 0 || ftruncate(file, (off_t)bytes) != 0) return NULL;
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    return at == MAP_FAILED ? NULL : at;
}
EXPORTED unsigned ncclCommInitRankConfig(comm_t *comm, int ranks, id_t_ id, int rank,
                                         const void *config)
{
    const struct config *asked = config;
    if (ranks < 1 || ranks > MOST_RANKS || rank < 0 || rank >= ranks ||
        strncmp(id.internal, "/standin-nccl-", 14) != 0)
        return INVALID_ARGUMENT;
    comm_t c = calloc(1, sizeof *c);
    c->shared = share(id.internal, ranks);
    c->rank = rank, c->ranks = ranks;
    c->blocks = asked && asked->max_ctas > 0 ? asked->max_ctas : STANDIN_MULTIPROCESSORS;
    if (!c->shared) return SYSTEM;
    atomic_fetch_add(&c->shared->attached, 1);
    double from = now();
    while (atomic_load(&c->shared->attached) < ranks) {
        if (now() - from > (double)standin_setting("STANDIN_NCCL_SECONDS", 30)) {
            shm_unlink(id.internal);
            return REMOTE;
        }
        usleep(200);
    }
    /* the first takes the name away; the memory stays until the last has gone */
    shm_unlink(id.internal);
    *comm = c;
    return SUCCESS;
}
EXPORTED unsigned ncclCommInitRank(comm_t *comm, int ranks, id_t_ id, int rank)
{
    return ncclCommInitRankConfig(comm, ranks, id, rank, NULL);
}
EXPORTED unsigned ncclCommGetAsyncError(comm_t comm, unsigned *error)
{
    *error = (unsigned)atomic_load(&comm->error);
    if (!*error && atomic_load(&comm->shared->aborted)) *error = REMOTE;
    return SUCCESS;
}
EXPORTED unsigned ncclCommAbort(comm_t comm)
{
    atomic_store(&comm->shared->aborted, 1);
    atomic_store(&comm->aborted, true);
    return SUCCESS;
}
EXPORTED unsigned ncclCommDestroy(comm_t comm)
{
    (void)comm; /* the mapping stays: work on a stream may still name it */
    while (standin_setting("STANDIN_NCCL_NO_END", -1) == standin_setting("OMPI_COMM_WORLD_RANK", 0))
        sleep(1);
    if (standin_graphs() > 0) { /* the real one waits until they are gone, for ever */
        fprintf(stderr,
                "stand-in: a communicator ends while %d graphs may hold collectives of it\n",
                standin_graphs());
        for (;;) sleep(1);
    }
    return SUCCESS;
}
EXPORTED unsigned ncclCommFinalize(comm_t comm) { return (void)comm, SUCCESS; }
EXPORTED unsigned ncclGroupStart(void) { return SUCCESS; }
EXPORTED unsigned ncclGroupEnd(void) { return SUCCESS; }

extern unsigned cuMemAlloc_v2(unsigned long long *at, size_t bytes);
extern unsigned cuMemFree_v2(unsigned long long at);
EXPORTED unsigned ncclMemAlloc(void **at, size_t bytes)
{
    unsigned long long address = 0;
    if (cuMemAlloc_v2(&address, bytes)) return UNHANDLED;
    *at = (void *)(uintptr_t)address;
    return SUCCESS;
}
EXPORTED unsigned ncclMemFree(void *at)
{
    return cuMemFree_v2((uintptr_t)at) ? UNHANDLED : SUCCESS;
}
EXPORTED unsigned ncclCommRegister(comm_t comm, void *at, size_t bytes, void **handle)
{
    (void)comm;
    *handle = standin_memory(at, bytes);
    return *handle ? SUCCESS : INVALID_ARGUMENT;
}
/* Collective, and of the same bytes at the same place of each rank's memory. */
extern unsigned cuMemGetAddressRange_v2(unsigned long long *base, size_t *bytes,
                                        unsigned long long at);
EXPORTED unsigned ncclCommWindowRegister(comm_t comm, void *at, size_t bytes, void **window,
                                         int flags)
{
    struct shared *s = comm->shared;
    unsigned long long base = 0;
    size_t whole = 0;
    *window = NULL;
    if (standin_setting("STANDIN_NCCL_NO_WINDOWS", 0)) return SUCCESS;
    if (flags != 1 || bytes % (2 << 20) || !standin_memory(at, bytes) ||
        cuMemGetAddressRange_v2(&base, &whole, (uintptr_t)at) || ((uintptr_t)at - base) % (2 << 20))
        return INVALID_ARGUMENT;
    s->rank[comm->rank].window_at = (uintptr_t)at - base;
    s->rank[comm->rank].window_bytes = bytes;
    const long n = 1 + atomic_fetch_add(&s->rank[comm->rank].windows, 1);
    const double from = now();
    for (int r = 0; r < comm->ranks; r++) {
        while (atomic_load(&s->rank[r].windows) < n) {
            if (now() - from > (double)standin_setting("STANDIN_NCCL_SECONDS", 30)) return REMOTE;
            usleep(200);
        }
        if (s->rank[r].window_at != s->rank[comm->rank].window_at ||
            s->rank[r].window_bytes != bytes) {
            fprintf(stderr,
                    "stand-in NCCL: a window of other bytes or at another place on rank %d\n", r);
            return INVALID_USAGE;
        }
    }
    /* nobody writes the next before all have read this one */
    atomic_fetch_add(&s->rank[comm->rank].windows, 1);
    for (int r = 0; r < comm->ranks; r++)
        while (atomic_load(&s->rank[r].windows) < n + 1) usleep(200);
    fprintf(stderr, "stand-in NCCL: window of %zu bytes at %llu, %d ranks\n", bytes,
            (unsigned long long)((uintptr_t)at - base), comm->ranks);
    return *window = at, SUCCESS;
}
EXPORTED unsigned ncclCommWindowDeregister(comm_t comm, void *window)
{
    (void)comm;
    return window ? SUCCESS : INVALID_ARGUMENT;
}
EXPORTED unsigned ncclCommDeregister(comm_t comm, void *handle)
{
    return (void)comm, (void)handle, SUCCESS;
}

/* ── collectives ─────────────────────────────────────────────────────────────── */
struct collective {
    comm_t comm;
    struct belief belief;
    const unsigned char *from;
    unsigned char *to;
    double since;
    bool begun, sent;
};

static size_t size_of(unsigned type)
{
    switch (type) {
    case 0:
    case 1: return 1;
    case 2:
    case 3:
    case 7: return 4;
    case 6:
    case 9: return 2;
    case 4:
    case 5:
    case 8: return 8;
    default: return 0;
    }
}
/* Bytes of one destination in a piece. */
static int64_t step_of(const struct collective *c)
{
    int64_t most = c->belief.kind == SCATTER ? PIECE / c->comm->ranks / 16 * 16 : PIECE,
            left = c->belief.count * (int64_t)size_of((unsigned)c->belief.type) - c->belief.at;
    return left < most ? left : most;
}
static int turn_of(const struct collective *c) { return (int)(c->comm->piece & 1); }

static void send(const struct collective *c, int64_t step)
{
    const int64_t whole = c->belief.count * (int64_t)size_of((unsigned)c->belief.type);
    unsigned char *slot = c->comm->shared->slot[c->comm->rank][turn_of(c)];
    const int blocks = c->belief.kind == SCATTER ? c->comm->ranks : 1;
    for (int r = 0; r < blocks; r++)
        memcpy(slot + r * step, c->from + r * whole + c->belief.at, (size_t)step);
}
static void add(void *to, const void *value, int64_t bytes, int type)
{
    if (type == 7)
        for (int64_t i = 0; i < bytes / 4; i++) ((float *)to)[i] += ((const float *)value)[i];
    else if (type == 8)
        for (int64_t i = 0; i < bytes / 8; i++) ((double *)to)[i] += ((const double *)value)[i];
    else
        for (int64_t i = 0; i < bytes / 8; i++) ((int64_t *)to)[i] += ((const int64_t *)value)[i];
}
static void receive(const struct collective *c, int64_t step)
{
    const int64_t whole = c->belief.count * (int64_t)size_of((unsigned)c->belief.type);
    for (int r = 0; r < c->comm->ranks; r++) {
        const unsigned char *slot = c->comm->shared->slot[r][turn_of(c)];
        if (c->belief.kind == GATHER) {
            memcpy(c->to + r * whole + c->belief.at, slot, (size_t)step);
            continue;
        }
        const unsigned char *mine = slot + (c->belief.kind == SCATTER ? c->comm->rank * step : 0);
        if (r == 0)
            memcpy(c->to + c->belief.at, mine, (size_t)step);
        else
            add(c->to + c->belief.at, mine, step, c->belief.type);
    }
}
static enum standin_progress gives_up(struct collective *c, int error, const char *why)
{
    if (!atomic_load(&c->comm->error))
        fprintf(stderr, "stand-in NCCL: rank %d of %d, collective %lld of its communicator: %s\n",
                c->comm->rank, c->comm->ranks, (long long)c->belief.call, why);
    atomic_store(&c->comm->error, error);
    return STANDIN_AGAIN; /* hangs, as there */
}
static enum standin_progress run_collective(void *data)
{
    static const char *const name[] = {"all-gather", "reduce-scatter", "all-reduce"};
    struct collective *c = data;
    struct shared *s = c->comm->shared;
    if (atomic_load(&c->comm->aborted)) return STANDIN_DONE;
    if (!c->begun && (c->comm->busy || blocks_taken + c->comm->blocks > STANDIN_MULTIPROCESSORS))
        return STANDIN_AGAIN;
    if (!c->begun) {
        c->comm->busy = c->begun = true, c->since = now();
        blocks_taken += c->comm->blocks;
    }
    if (atomic_load(&c->comm->error)) return STANDIN_AGAIN;
    const long piece = c->comm->piece + 1;
    const int64_t step = step_of(c);
    bool wait = false;
    if (!c->sent) {
        for (int r = 0; r < c->comm->ranks; r++)
            wait = wait || atomic_load(&s->rank[r].departed) < piece - 2;
        if (!wait) {
            send(c, step);
            s->rank[c->comm->rank].belief[turn_of(c)] = c->belief;
            atomic_store(&s->rank[c->comm->rank].arrived, piece);
            c->sent = true;
        }
    }
    for (int r = 0; r < c->comm->ranks; r++)
        wait = wait || atomic_load(&s->rank[r].arrived) < piece;
    if (wait)
        return now() - c->since > (double)standin_setting("STANDIN_NCCL_SECONDS", 30)
                   ? gives_up(c, REMOTE, "a peer does not come")
                   : STANDIN_AGAIN;
    for (int r = 0; r < c->comm->ranks; r++) {
        const struct belief *b = &s->rank[r].belief[turn_of(c)];
        char text[200];
        if (b->kind == c->belief.kind && b->type == c->belief.type && b->count == c->belief.count &&
            b->at == c->belief.at && b->call == c->belief.call)
            continue;
        snprintf(text, sizeof text, "here %s %lld of %lld elements, on rank %d %s %lld of %lld",
                 name[c->belief.kind], (long long)c->belief.call, (long long)c->belief.count, r,
                 name[b->kind], (long long)b->call, (long long)b->count);
        return gives_up(c, INVALID_USAGE, text);
    }
    receive(c, step);
    atomic_store(&s->rank[c->comm->rank].departed, piece);
    c->comm->piece = piece;
    c->sent = false, c->since = now();
    c->belief.at += step;
    if (c->belief.at < c->belief.count * (int64_t)size_of((unsigned)c->belief.type))
        return STANDIN_AGAIN;
    c->comm->busy = false;
    blocks_taken -= c->comm->blocks;
    return STANDIN_DONE;
}

static unsigned collective(enum kind kind, const void *from, void *to, size_t count, unsigned type,
                           comm_t comm, stream_t stream)
{
    static const char *const name[] = {"ncclAllGather", "ncclReduceScatter", "ncclAllReduce"};
    const size_t bytes = count * size_of(type), ranks = (size_t)comm->ranks;
    struct collective c = {
        .comm = comm,
        .belief = {
            .call = ++comm->calls, .count = (int64_t)count, .kind = (int)kind, .type = (int)type}};
    if (!bytes) return size_of(type) ? SUCCESS : INVALID_ARGUMENT;
    c.from = standin_memory(from, kind == SCATTER ? ranks * bytes : bytes);
    c.to = standin_memory(to, kind == GATHER ? ranks * bytes : bytes);
    if (!c.from || !c.to) {
        fprintf(stderr, "stand-in NCCL: %s of %zu elements: not in one allocation of the device\n",
                name[kind], count);
        return INVALID_ARGUMENT;
    }
    return standin_enqueue(stream, name[kind], run_collective, &c, sizeof c) ? UNHANDLED : SUCCESS;
}
static bool sums(unsigned type, unsigned operation)
{
    return operation == 0 && (type == 4 || type == 5 || type == 7 || type == 8);
}
EXPORTED unsigned ncclAllGather(const void *from, void *to, size_t count, unsigned type,
                                comm_t comm, stream_t stream)
{
    return collective(GATHER, from, to, count, type, comm, stream);
}
EXPORTED unsigned ncclReduceScatter(const void *from, void *to, size_t count, unsigned type,
                                    unsigned operation, comm_t comm, stream_t stream)
{
    return sums(type, operation) ? collective(SCATTER, from, to, count, type, comm, stream)
                                 : INVALID_ARGUMENT;
}
EXPORTED unsigned ncclAllReduce(const void *from, void *to, size_t count, unsigned type,
                                unsigned operation, comm_t comm, stream_t stream)
{
    return sums(type, operation) ? collective(ALL, from, to, count, type, comm, stream)
                                 : INVALID_ARGUMENT;
}
EXPORTED unsigned ncclBroadcast(const void *from, void *to, size_t count, unsigned type, int root,
                                comm_t comm, stream_t stream)
{
    (void)from, (void)to, (void)count, (void)type, (void)root, (void)comm, (void)stream;
    return INVALID_USAGE; /* no schedule broadcasts */
}
