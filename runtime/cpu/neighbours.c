/* See neighbours.h. A collective has a number, the same on all ranks, because all have one order.
 * Each rank has a page with the number of the collective that its slot is ready for and of the last
 * one in which it has read everything. The others wait for these numbers, asleep until one changes:
 * to look again and again would take time from the core that another rank computes on.
 *
 * The files of the others are mapped, for reading alone: a copy by pread() takes two to three times
 * as long, because the kernel looks up every page, and a sum needs no copy at all. A page that is
 * read counts in the resident memory of its reader too, though it is there once, so what has been
 * read is known. */
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

struct page {
    _Atomic int64_t key, ready, done;
    _Atomic uint32_t changes; /* of `ready` and `done`; what the others sleep on */
};
/* A page that is not there yet brings those around it that are in the file: by default as many. */
enum { SEEN_BLOCK = 1 << 16 };
/* what ranks tell each other at first; key 0: this rank has no file */
struct address {
    int64_t pid, file, key, bytes;
    char host[64];
};
static struct {
    char *at; /* the file's first byte in this process; NULL: no file */
    int64_t bytes;
    int file;
    struct page *page;
    /* of the group, after the first call */
    enum { UNKNOWN, ALONE, TOGETHER } state;
    int ranks, me;
    const char **peer; /* their files as they lie here; this rank's own is NULL */
    uint64_t **seen;   /* of each, a bit for every block that has been read */
    _Atomic int64_t seen_bytes;
    struct address *told; /* of each rank of the group */
    int64_t number;
} here;

void neighbours_map(void *at, int64_t bytes)
{
    const int64_t page = sysconf(_SC_PAGESIZE);
    here.peer = ROOM(const char *, program.fsdp);
    here.seen = ROOM(uint64_t *, program.fsdp);
    here.told = ROOM(struct address, program.fsdp);
    for (int r = 0; r < program.fsdp; r++)
        here.seen[r] = ROOM(uint64_t, bytes / SEEN_BLOCK / 64 + 1);
    int file = memfd_create("planc", MFD_CLOEXEC);
    if (file < 0) return;
    struct page *mine = MAP_FAILED;
    if (ftruncate(file, bytes + page) == 0)
        mine = mmap(NULL, (size_t)page, PROT_READ | PROT_WRITE, MAP_SHARED, file, bytes);
    if (mine == MAP_FAILED || mmap(at, (size_t)bytes, PROT_READ | PROT_WRITE,
                                   MAP_SHARED | MAP_FIXED, file, 0) == MAP_FAILED) {
        close(file);
        return;
    }
    here.at = at, here.bytes = bytes, here.file = file, here.page = mine;
}

static const struct page *page_of(int r)
{
    return (const struct page *)(const void *)(here.peer[r] + here.bytes);
}

/* Maps the file of a rank: one of that name must hold the key that the rank told. */
static bool meet(int r, const struct address *a)
{
    const int64_t page = sysconf(_SC_PAGESIZE);
    char name[64];
    snprintf(name, sizeof name, "/proc/%lld/fd/%lld", (long long)a->pid, (long long)a->file);
    if (!a->key || a->bytes != here.bytes ||
        strncmp(a->host, world_host(), sizeof a->host - 1) != 0)
        return false;
    const int file = open(name, O_RDONLY | O_CLOEXEC);
    if (file < 0) return false;
    const bool whole = lseek(file, 0, SEEK_END) == a->bytes + page;
    void *theirs =
        whole ? mmap(NULL, (size_t)(a->bytes + page), PROT_READ, MAP_SHARED, file, 0) : MAP_FAILED;
    close(file);
    if (theirs == MAP_FAILED) return false;
    here.peer[r] = theirs;
    return atomic_load(&page_of(r)->key) == a->key;
}

static void exchange(MPI_Comm group)
{
    MPI_Request request;
    MPI_Comm_size(group, &here.ranks);
    MPI_Comm_rank(group, &here.me);
    struct address mine = {0}, *all = here.told;
    if (here.at) {
        mine = (struct address){.pid = getpid(), .file = here.file, .bytes = here.bytes};
        mine.key = (int64_t)(clock_seconds() * 1e9) << 8 | (world.rank & 255) | 1;
        snprintf(mine.host, sizeof mine.host, "%s", world_host());
        atomic_store(&here.page->key, mine.key);
    }
    mpi_check(
        MPI_Iallgather(&mine, sizeof mine, MPI_BYTE, all, sizeof mine, MPI_BYTE, group, &request),
        "the files of neighbours");
    mpi_finish(&request, 1, "the files of neighbours");
    int found = here.at != NULL, by_all = 0;
    for (int r = 0; r < here.ranks && found; r++) found = r == here.me || meet(r, &all[r]);
    mpi_check(MPI_Iallreduce(&found, &by_all, 1, MPI_INT, MPI_MIN, group, &request),
              "the files of neighbours");
    mpi_finish(&request, 1, "the files of neighbours");
    here.state = by_all ? TOGETHER : ALONE;
}

bool neighbours_read(MPI_Comm group, const void *slot, int64_t bytes)
{
    if (here.state == UNKNOWN) exchange(group);
    return here.state == TOGETHER && (const char *)slot >= here.at &&
           (const char *)slot + bytes <= here.at + here.bytes;
}

/* This rank's number, for all who wait for it. */
static void tell(_Atomic int64_t *number)
{
    atomic_store(number, here.number);
    atomic_fetch_add(&here.page->changes, 1);
    syscall(SYS_futex, &here.page->changes, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void neighbours_begin(void)
{
    here.number++;
    tell(&here.page->ready);
}

/* Until a number of that page has arrived. One that changes before this thread sleeps is noticed by
 * `changes`. It looks again ten times a second all the same, and more often where the system lets
 * no one sleep on a mapping for reading alone. */
static void until(const struct page *page, const _Atomic int64_t *number)
{
    const double from = clock_seconds();
    const struct timespec most = {.tv_nsec = 100000000};
    for (;;) {
        const uint32_t changes = atomic_load(&page->changes);
        if (atomic_load(number) >= here.number) return;
        if (syscall(SYS_futex, &page->changes, FUTEX_WAIT, changes, &most, NULL, 0) != 0 &&
            errno != EAGAIN && errno != EINTR && errno != ETIMEDOUT)
            mpi_nap(from);
    }
}

const void *neighbours_at(int from, const void *theirs, int64_t bytes)
{
    const int64_t at = (const char *)theirs - here.at;
    until(page_of(from), &page_of(from)->ready);
    for (int64_t b = at / SEEN_BLOCK; bytes > 0 && b <= (at + bytes - 1) / SEEN_BLOCK; b++) {
        if (here.seen[from][b / 64] >> b % 64 & 1) continue;
        here.seen[from][b / 64] |= 1ull << b % 64;
        here.seen_bytes += SEEN_BLOCK;
    }
    return here.peer[from] + at;
}

void neighbours_end(void)
{
    tell(&here.page->done);
    for (int r = 0; r < here.ranks; r++)
        if (r != here.me) until(page_of(r), &page_of(r)->done);
}

int64_t neighbours_seen_bytes(void) { return here.seen_bytes; }
