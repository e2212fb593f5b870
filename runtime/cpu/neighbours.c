/* See neighbours.h. A collective has a number, the same on all ranks of its group, because all have
 * one order. Each rank has a page with the number of the collective that its memory is ready for
 * and of the last one in which it has read and written everything. The others wait for these
 * numbers, asleep until one changes: to look again and again would take time from the core that
 * another rank computes on.
 *
 * The files of the others are mapped: a copy by pread() takes two to three times as long, because
 * the kernel looks up every page, and a sum needs no copy at all. A page that is used counts in the
 * resident memory of its user too, though it is there once, so what has been used is known.
 *
 * A file is the slots, if there are any, then the page, then the windows. A window is two halves
 * that are filled in turn. A rank fills one after it has read what all the others showed last, so
 * each of them has shown that, and had read what was shown before it, which lay in this half: who
 * fills a half need not ask whether it was read. */
#define _GNU_SOURCE
#include "cpu/neighbours.h"

#include "shared/world_mpi.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* Linux 6.1; in newer headers than many systems have */
#endif

struct page {
    _Atomic int64_t key;
    struct board {
        _Alignas(64) _Atomic int64_t ready, done;
        _Atomic uint32_t changes; /* of `ready` and `done`; what the others sleep on */
    } board[NEIGHBOURS];
};
/* what ranks tell each other at first; key 0: this rank has no file */
struct address {
    int64_t pid, file, key, bytes;
    char host[64];
};
static struct {
    bool tried;
    char *at; /* the slots in this process, the file's first byte */
    int64_t bytes, window_at[NEIGHBOURS], whole; /* of the slots; in the file; of the file */
    int file;
    struct page *page; /* NULL: no file */
    _Atomic int64_t seen_bytes;
} here;
static struct group {
    /* after the first call */
    enum { UNKNOWN, ALONE, TOGETHER } state;
    int ranks, me;
    char **peer;          /* their files as they lie here; this rank's own is NULL */
    uint64_t **seen;      /* of each, a bit for every block that has been used */
    struct address *told; /* of each rank */
    int64_t number, shown;
} groups[NEIGHBOURS];

/* Of a window; 0: that group is one rank. */
static int64_t half_of(enum neighbours g)
{
    if (g == NEIGHBOURS_SHARDS) return program.fsdp > 1 ? NEIGHBOURS_SMALL : 0;
    return program.dp > 1 ? NEIGHBOURS_HALF : 0;
}

/* So that what a reader's first access brings with it is known: it is all there. */
static bool populated(void *at, int64_t bytes)
{
#ifdef MADV_POPULATE_WRITE
    if (madvise(at, (size_t)bytes, MADV_POPULATE_WRITE) == 0) return true;
    if (errno != EINVAL) return false;
#endif
    memset(at, 0, (size_t)bytes);
    return true;
}

int64_t neighbours_align(const void *at) { return (int64_t)(-(uintptr_t)at % NEIGHBOURS_BLOCK); }

void neighbours_populated(void)
{
    for (int64_t at = 0; here.page && at + NEIGHBOURS_BLOCK <= here.bytes; at += NEIGHBOURS_BLOCK)
        if (madvise(here.at + at, NEIGHBOURS_BLOCK, MADV_COLLAPSE) != 0) return;
}

void neighbours_map(void *at, int64_t bytes)
{
    const int64_t page = sysconf(_SC_PAGESIZE);
    here.tried = true;
    here.whole = bytes + page;
    for (enum neighbours g = 0; g < NEIGHBOURS; g++)
        here.window_at[g] = here.whole, here.whole += 2 * half_of(g);
    for (enum neighbours g = 0; g < NEIGHBOURS; g++) {
        const int64_t ranks = g == NEIGHBOURS_SHARDS ? program.fsdp : program.dp;
        groups[g].peer = ROOM(char *, ranks);
        groups[g].seen = ROOM(uint64_t *, ranks);
        groups[g].told = ROOM(struct address, ranks);
        for (int64_t r = 0; r < ranks; r++)
            groups[g].seen[r] = ROOM(uint64_t, here.whole / NEIGHBOURS_BLOCK / 64 + 1);
    }
    int file = memfd_create("planc", MFD_CLOEXEC);
    if (file < 0) return;
    struct page *mine = MAP_FAILED;
    if (ftruncate(file, here.whole) == 0)
        mine = mmap(NULL, (size_t)(here.whole - bytes), PROT_READ | PROT_WRITE, MAP_SHARED, file,
                    bytes);
    if (mine == MAP_FAILED || !populated(mine, here.whole - bytes) ||
        (bytes && mmap(at, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file,
                       0) == MAP_FAILED)) {
        close(file);
        return;
    }
    here.at = at, here.bytes = bytes, here.file = file, here.page = mine;
}

/* The file, where its pages can be as large as its owner has them; MAP_FAILED: it cannot. */
static char *map_theirs(int file)
{
    char *room = mmap(NULL, (size_t)(here.whole + NEIGHBOURS_BLOCK), PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED) return room;
    return mmap(room + neighbours_align(room), (size_t)here.whole, PROT_READ | PROT_WRITE,
                MAP_SHARED | MAP_FIXED, file, 0);
}

static const struct page *page_of(const struct group *g, int r)
{
    return (const struct page *)(const void *)(g->peer[r] + here.bytes);
}

/* Makes what another rank has there resident in this process, too. */
static void resident(char *at, int64_t bytes)
{
#ifdef MADV_POPULATE_READ
    if (madvise(at, (size_t)bytes, MADV_POPULATE_READ) == 0) return;
#endif
    for (int64_t i = 0; i < bytes; i += sysconf(_SC_PAGESIZE)) (void)*(volatile char *)(at + i);
}

/* [at, at + bytes) of a file is about to be used. The first time, the whole block becomes resident
 * at once, so it counts in full, whatever pages it has. */
static void see(struct group *g, int r, int64_t at, int64_t bytes)
{
    for (int64_t b = at / NEIGHBOURS_BLOCK; bytes > 0 && b <= (at + bytes - 1) / NEIGHBOURS_BLOCK;
         b++) {
        if (g->seen[r][b / 64] >> b % 64 & 1) continue;
        g->seen[r][b / 64] |= 1ull << b % 64;
        const int64_t from = b * NEIGHBOURS_BLOCK, left = here.whole - from,
                      some = left < NEIGHBOURS_BLOCK ? left : NEIGHBOURS_BLOCK;
        resident(g->peer[r] + from, some);
        here.seen_bytes += some;
    }
}

/* Maps the file of a rank: one of that name must hold the key that the rank told. */
static bool meet(struct group *g, int r, const struct address *a)
{
    char name[64];
    snprintf(name, sizeof name, "/proc/%lld/fd/%lld", (long long)a->pid, (long long)a->file);
    if (!a->key || a->bytes != here.whole ||
        strncmp(a->host, world_host(), sizeof a->host - 1) != 0)
        return false;
    const int file = open(name, O_RDWR | O_CLOEXEC);
    if (file < 0) return false;
    const bool whole = lseek(file, 0, SEEK_END) == a->bytes;
    char *theirs = whole ? map_theirs(file) : MAP_FAILED;
    close(file);
    if (theirs == MAP_FAILED) return false;
    g->peer[r] = theirs;
    see(g, r, here.bytes, sizeof(struct page));
    return atomic_load(&page_of(g, r)->key) == a->key;
}

static void exchange(struct group *g, MPI_Comm comm)
{
    MPI_Request request;
    MPI_Comm_size(comm, &g->ranks);
    MPI_Comm_rank(comm, &g->me);
    struct address mine = {0}, *all = g->told;
    if (here.page) {
        mine = (struct address){.pid = getpid(), .file = here.file, .bytes = here.whole};
        if (!here.page->key)
            here.page->key = (int64_t)(clock_seconds() * 1e9) << 8 | (world.rank & 255) | 1;
        mine.key = here.page->key;
        snprintf(mine.host, sizeof mine.host, "%s", world_host());
    }
    mpi_check(
        MPI_Iallgather(&mine, sizeof mine, MPI_BYTE, all, sizeof mine, MPI_BYTE, comm, &request),
        "the files of neighbours");
    mpi_finish(&request, 1, "the files of neighbours");
    int found = here.page != NULL, by_all = 0;
    for (int r = 0; r < g->ranks && found; r++) found = r == g->me || meet(g, r, &all[r]);
    mpi_check(MPI_Iallreduce(&found, &by_all, 1, MPI_INT, MPI_MIN, comm, &request),
              "the files of neighbours");
    mpi_finish(&request, 1, "the files of neighbours");
    g->state = by_all ? TOGETHER : ALONE;
}

bool neighbours_together(enum neighbours of, MPI_Comm comm)
{
    if (!here.tried) return false;
    if (groups[of].state == UNKNOWN) exchange(&groups[of], comm);
    return groups[of].state == TOGETHER;
}

bool neighbours_read(MPI_Comm comm, const void *slot, int64_t bytes)
{
    return neighbours_together(NEIGHBOURS_SHARDS, comm) && (const char *)slot >= here.at &&
           (const char *)slot + bytes <= here.at + here.bytes;
}

/* This rank's number, for all who wait for it. */
static void tell(enum neighbours of, _Atomic int64_t *number)
{
    struct board *mine = &here.page->board[of];
    atomic_store(number, groups[of].number);
    atomic_fetch_add(&mine->changes, 1);
    syscall(SYS_futex, &mine->changes, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static void begin(enum neighbours of)
{
    groups[of].number++;
    tell(of, &here.page->board[of].ready);
}

/* Until a number of that board has arrived. One that changes before this thread sleeps is noticed
 * by `changes`. It looks again ten times a second all the same, and more often where the system
 * lets no one sleep. */
static void until(const struct board *board, const _Atomic int64_t *number, int64_t wanted)
{
    const double from = clock_seconds();
    const struct timespec most = {.tv_nsec = 100000000};
    for (;;) {
        const uint32_t changes = atomic_load(&board->changes);
        if (atomic_load(number) >= wanted) return;
        if (syscall(SYS_futex, &board->changes, FUTEX_WAIT, changes, &most, NULL, 0) != 0 &&
            errno != EAGAIN && errno != EINTR && errno != ETIMEDOUT)
            mpi_nap(from);
    }
}

/* Where a rank has what lies `at` in its file, once it has begun the same collective. */
static void *in_file(enum neighbours of, int r, int64_t at, int64_t bytes)
{
    struct group *g = &groups[of];
    const struct board *theirs = &page_of(g, r)->board[of];
    until(theirs, &theirs->ready, g->number);
    see(g, r, at, bytes);
    return g->peer[r] + at;
}

/* ── slots ───────────────────────────────────────────────────────────────────── */

void neighbours_begin(void) { begin(NEIGHBOURS_SHARDS); }

void *neighbours_at(int of, const void *mine, int64_t bytes)
{
    return in_file(NEIGHBOURS_SHARDS, of, (const char *)mine - here.at, bytes);
}

void neighbours_end(void)
{
    const struct group *g = &groups[NEIGHBOURS_SHARDS];
    tell(NEIGHBOURS_SHARDS, &here.page->board[NEIGHBOURS_SHARDS].done);
    for (int r = 0; r < g->ranks; r++) {
        if (r == g->me) continue;
        const struct board *theirs = &page_of(g, r)->board[NEIGHBOURS_SHARDS];
        until(theirs, &theirs->done, g->number);
    }
}

/* ── windows ─────────────────────────────────────────────────────────────────── */

/* In every file. */
static int64_t half_at(enum neighbours of, int64_t shown)
{
    return here.window_at[of] + shown % 2 * half_of(of);
}

void *neighbours_window(enum neighbours of)
{
    return (char *)here.page + half_at(of, groups[of].shown + 1) - here.bytes;
}

void neighbours_show(enum neighbours of)
{
    groups[of].shown++;
    begin(of);
}

const void *neighbours_shown(enum neighbours of, int from, int64_t at, int64_t bytes)
{
    return in_file(of, from, half_at(of, groups[of].shown) + at, bytes);
}

int64_t neighbours_seen_bytes(void) { return here.seen_bytes; }
