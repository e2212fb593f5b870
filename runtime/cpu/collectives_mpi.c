/* The collectives of training, executed by the worker thread one after the other, in the order in
 * which schedule.c issued them. They have communicators of their own, separate from the main
 * thread's.
 *
 * Ranks of a group that are on one host use each other's memory (neighbours.h). Elsewhere the
 * large ones are implemented here: in round k each rank sends data to the rank k places ahead and
 * receives as much from the rank k places back, in pieces, a few in flight. MPI's nonblocking
 * collectives move more bytes (a reduction goes through a tree), take memory that the ledger does
 * not know, and show no progress to wait by; without process_vm_readv, which containers forbid,
 * they were ten times slower.
 *
 * Both ways add in one order, which depends only on the mesh: a part of a sum over ranks is that of
 * rank r, then those of the ranks r - 1, r - 2 … around the group, added by r and given to all. */
#include "cpu/neighbours.h"
#include "cpu/wider.h"
#include "shared/world_mpi.h"

#include <string.h>
#ifdef __SSE2__
#include <xmmintrin.h>
#endif

enum { SUM_BLOCK = 256, ADD_BLOCK = 2048, PIECE_BYTES = 1 << 19, FLIGHT = 4 };
/* a line of the caches, and how far ahead of what is used lies what is fetched: bytes */
enum { LINE = 64, FETCH_BYTES = 2048 };

static MPI_Comm fsdp_comm = MPI_COMM_NULL, dp_comm = MPI_COMM_NULL;
static double *sum_all;
static const float **other; /* what each rank of the group has for this one's part */
static char **place;        /* where each rank of the group has this one's part */
static char *landing;       /* of pieces that are added to a shard and forgotten */

void collectives_open(void)
{
    mpi_split(world.replica, world.rank, "the FSDP group", &fsdp_comm);
    mpi_split(world.shard, world.rank, "the replicas", &dp_comm);
    other = ROOM(const float *, program.fsdp > program.dp ? program.fsdp : program.dp);
    place = ROOM(char *, program.fsdp);
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

/* ── past the caches ─────────────────────────────────────────────────────────── */

/* What is written here is not read before much else has gone through the caches, and a line that is
 * written whole need not be read first. written_past() comes before anyone is told. */

/* From one place to `at` of several. */
static void copy_past(char *const *to, int ranks, int64_t at, const char *from, int64_t bytes)
{
    int64_t done = 0;
#ifdef __SSE2__
    const bool lines = (uintptr_t)(to[0] + at) % LINE == 0;
    for (; lines && done + LINE <= bytes; done += LINE) {
        __builtin_prefetch(from + done + FETCH_BYTES);
        const float *line = (const float *)(const void *)(from + done);
        __m128 x[4];
        for (int k = 0; k < 4; k++) x[k] = _mm_loadu_ps(line + 4 * k);
        for (int r = 0; r < ranks; r++)
            for (int k = 0; k < 4; k++)
                _mm_stream_ps((float *)(void *)(to[r] + at + done) + 4 * k, x[k]);
    }
#endif
    for (int r = 0; r < ranks; r++) memcpy(to[r] + at + done, from + done, (size_t)(bytes - done));
}

/* to = a + b, of whole lines: returns how many numbers they have. */
static int64_t add_past(float *to, const float *a, const float *b, int64_t n)
{
    int64_t done = 0;
#ifdef __SSE2__
    const bool lines = (uintptr_t)to % LINE == 0;
    for (; lines && done + LINE / 4 <= n; done += LINE / 4) {
        __builtin_prefetch((const char *)(a + done) + FETCH_BYTES);
        __builtin_prefetch((const char *)(b + done) + FETCH_BYTES);
        for (int64_t i = done; i < done + LINE / 4; i += 4)
            _mm_stream_ps(to + i, _mm_add_ps(_mm_loadu_ps(a + i), _mm_loadu_ps(b + i)));
    }
#endif
    return done;
}

static void written_past(void)
{
#ifdef __SSE2__
    _mm_sfence();
#endif
}

/* ── over the shards ─────────────────────────────────────────────────────────── */

/* Between neighbours each rank reads its part once and writes it into the slots of all. */
void collective_gather(void *slot, int64_t shard, int64_t bytes, own_part *part, const void *of)
{
    const int n = (int)program.fsdp, me = world.shard;
    const bool together = n > 1 && neighbours_read(fsdp_comm, slot, n * shard * bytes);
    char *mine = place[0] = (char *)slot + me * shard * bytes;
    if (together) {
        neighbours_begin();
        for (int round = 1; round < n; round++)
            place[round] = neighbours_at((me + n - round) % n, mine, shard * bytes);
    }
    for (int64_t done = 0; done < shard; done += ADD_BLOCK) {
        _Alignas(LINE) char block[4 * ADD_BLOCK];
        const int64_t some = shard - done < ADD_BLOCK ? shard - done : ADD_BLOCK;
        char *to = together ? block : mine + done * bytes;
        const char *from = part(of, done, some, to);
        if (together)
            copy_past(place, n, done * bytes, from, some * bytes);
        else if (from != to)
            memcpy(to, from, (size_t)(some * bytes));
    }
    if (together) {
        written_past();
        neighbours_end();
    } else if (n > 1)
        gather_over(fsdp_comm, n, me, slot, shard * bytes);
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
        const int64_t past =
            set && n == 2 ? add_past(into + done, mine + done, other[1] + done, some) : 0;
        add_two(into + done + past, mine + done + past, other[1] + done + past, some - past, set);
        for (int round = 2; round < n; round++) add(into + done, other[round] + done, some);
    }
    written_past();
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

/* ── over the replicas ───────────────────────────────────────────────────────── */

/* A shard in parts of `each` floats, one of each replica; the last ones may have fewer, or none. */
struct parts {
    float *shard;
    int64_t each, count;
};

static struct part part_of(struct parts p, int64_t r)
{
    int64_t from = p.each * r < p.count ? p.each * r : p.count;
    return (struct part){(const char *)(p.shard + from),
                         4 * (p.count - from < p.each ? p.count - from : p.each)};
}

/* Of a part what the piece of `most` bytes from `done` on has. */
static struct part piece_in(struct part p, int64_t done, int64_t most)
{
    int64_t from = done < p.bytes ? done : p.bytes;
    return (struct part){p.at + from, p.bytes - from < most ? p.bytes - from : most};
}

static float *floats_at(const char *at) { return (float *)(uintptr_t)at; }

/* Shows the others their parts of a piece, and adds what they show to this one's. `again`: that is
 * what this one shows next. */
static void reduce_shown(struct parts p, int64_t done, int64_t most, bool again)
{
    const int n = (int)program.dp, me = world.replica;
    char *window = neighbours_window(NEIGHBOURS_REPLICAS);
    for (int r = 0; r < n; r++) {
        struct part theirs = piece_in(part_of(p, r), done, most);
        if (r != me) memcpy(window + (r - (r > me)) * most, theirs.at, (size_t)theirs.bytes);
    }
    neighbours_show(NEIGHBOURS_REPLICAS);
    const struct part mine = piece_in(part_of(p, me), done, most);
    for (int round = 1; round < n; round++) {
        const int from = (me + n - round) % n;
        other[round] =
            neighbours_shown(NEIGHBOURS_REPLICAS, from, (me - (me > from)) * most, mine.bytes);
    }
    char *next = neighbours_window(NEIGHBOURS_REPLICAS);
    for (int64_t at = 0; at < mine.bytes / 4; at += ADD_BLOCK) {
        const int64_t some = mine.bytes / 4 - at < ADD_BLOCK ? mine.bytes / 4 - at : ADD_BLOCK;
        float *sum = floats_at(mine.at) + at;
        for (int round = 1; round < n; round++) add(sum, other[round] + at, some);
        if (again) memcpy(next + 4 * at, sum, (size_t)(4 * some));
    }
    if (again) neighbours_show(NEIGHBOURS_REPLICAS);
}

/* Bytes that a window has for each of the others, in whole cache lines. */
static int64_t shown_at_once(void) { return NEIGHBOURS_HALF / (program.dp - 1) / 64 * 64; }

static bool replicas_together(void)
{
    return program.dp > 1 && shown_at_once() > 0 &&
           neighbours_together(NEIGHBOURS_REPLICAS, dp_comm);
}

/* What every other replica shows of its part of a piece, to its place. */
static void copy_shown(char *at, int64_t part, int64_t total, int64_t done, int64_t most)
{
    const int n = (int)program.dp, me = world.replica;
    for (int round = 1; round < n; round++) {
        const int from = (me + n - round) % n;
        const int64_t begin = from * part < total ? from * part : total,
                      bytes = total - begin < part ? total - begin : part;
        const struct part theirs = piece_in((struct part){at + begin, bytes}, done, most);
        const void *shown = neighbours_shown(NEIGHBOURS_REPLICAS, from, 0, theirs.bytes);
        memcpy((char *)(uintptr_t)theirs.at, shown, (size_t)theirs.bytes);
    }
}

void collective_gather_replicas(void *shard, int64_t part, int64_t bytes)
{
    const int n = (int)program.dp, me = world.replica;
    char *at = shard;
    if (!replicas_together()) {
        gather_over(dp_comm, n, me, at, part * bytes);
        return;
    }
    for (int64_t done = 0; done < part * bytes; done += NEIGHBOURS_HALF) {
        const struct part mine =
            piece_in((struct part){at + me * part * bytes, part * bytes}, done, NEIGHBOURS_HALF);
        memcpy(neighbours_window(NEIGHBOURS_REPLICAS), mine.at, (size_t)mine.bytes);
        neighbours_show(NEIGHBOURS_REPLICAS);
        copy_shown(at, part * bytes, n * part * bytes, done, NEIGHBOURS_HALF);
    }
}

/* Each replica adds up its own part, through MPI. */
static void reduce_passed(struct parts p, const char *what)
{
    const int n = (int)program.dp, me = world.replica;
    const struct part mine = part_of(p, me);
    for (int round = 1; round < n; round++) {
        int to = (me + round) % n, from = (me + n - round) % n;
        pass(dp_comm, part_of(p, to), to, landing, mine.bytes, from, floats_at(mine.at), what);
    }
}

void collective_scatter_replicas(float *shard, float *into, int64_t part)
{
    const struct parts p = {shard, part, program.dp * part};
    const float *mine = shard + world.replica * part;
    if (replicas_together())
        for (int64_t done = 0, most = shown_at_once(); done < 4 * part; done += most)
            reduce_shown(p, done, most, false);
    else
        reduce_passed(p, "reduce over replicas");
    if (into != mine) memcpy(into, mine, (size_t)part * sizeof *into);
}

/* Each replica adds up its own part, then all parts go round: every one ends with the same bits.
 * 16 floats are a cache line. */
void collective_all_reduce(float *shard, int64_t count)
{
    const int n = (int)program.dp, me = world.replica;
    const struct parts p = {shard, ((count + n - 1) / n + 15) / 16 * 16, count};
    if (replicas_together()) {
        for (int64_t done = 0, most = shown_at_once(); done < 4 * p.each; done += most) {
            reduce_shown(p, done, most, true);
            copy_shown((char *)shard, 4 * p.each, 4 * count, done, most);
        }
        return;
    }
    reduce_passed(p, "all-reduce");
    for (int round = 1; round < n; round++) {
        int to = (me + round) % n, from = (me + n - round) % n;
        struct part theirs = part_of(p, from);
        pass(dp_comm, part_of(p, me), to, (char *)shard + (theirs.at - (const char *)shard),
             theirs.bytes, from, NULL, "all-reduce");
    }
}

/* ── small sums ──────────────────────────────────────────────────────────────── */

/* Of all ranks of a group, in their order, into sum_all. */
static void gather_numbers(enum neighbours of, MPI_Comm comm, int64_t ranks, int me,
                           const double *value, int some)
{
    MPI_Request request;
    if (neighbours_together(of, comm)) {
        memcpy(neighbours_window(of), value, (size_t)some * sizeof *value);
        neighbours_show(of);
        for (int r = 0; r < ranks; r++)
            memcpy(sum_all + (int64_t)r * some,
                   r == me ? value : neighbours_shown(of, r, 0, some * (int64_t)sizeof *value),
                   (size_t)some * sizeof *value);
        return;
    }
    mpi_check(MPI_Iallgather(value, some, MPI_DOUBLE, sum_all, some, MPI_DOUBLE, comm, &request),
              "sum");
    mpi_finish(&request, 1, "sum");
}

/* Gathered and added one after the other, so that all ranks have the same bits whatever MPI would
 * have chosen. */
static void sum_over(enum neighbours of, MPI_Comm comm, int64_t ranks, int me, double *value,
                     int64_t count)
{
    for (int64_t done = 0; done < count && ranks > 1; done += SUM_BLOCK) {
        int some = count - done < SUM_BLOCK ? (int)(count - done) : SUM_BLOCK;
        gather_numbers(of, comm, ranks, me, value + done, some);
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
    sum_over(NEIGHBOURS_SHARDS, fsdp_comm, program.fsdp, world.shard, value, count);
    if (whole_world)
        sum_over(NEIGHBOURS_REPLICAS, dp_comm, program.dp, world.replica, value, count);
}
