/* See neighbours.h. A collective has a number, the same on all ranks, because all have one order.
 * Each rank has a page with the number of the collective that its slot is ready for and of the last
 * one in which it has read everything; the others wait for these numbers. Data is read with pread()
 * and not mapped, so that a rank's resident memory stays its own. */
#define _GNU_SOURCE
#include "cpu/neighbours.h"

#include "shared/world_mpi.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct page {
    _Atomic int64_t key, ready, done;
};
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
    int *peer_file;
    struct page **peer;
    struct address *told; /* of each rank of the group */
    int64_t number;
} here;

void neighbours_map(void *at, int64_t bytes)
{
    const int64_t page = sysconf(_SC_PAGESIZE);
    here.peer_file = ROOM(int, program.fsdp);
    here.peer = ROOM(struct page *, program.fsdp);
    here.told = ROOM(struct address, program.fsdp);
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

/* Opens the file of a rank: one of that name must hold the key that the rank told. */
static bool meet(int r, const struct address *a)
{
    const int64_t page = sysconf(_SC_PAGESIZE);
    char name[64];
    snprintf(name, sizeof name, "/proc/%lld/fd/%lld", (long long)a->pid, (long long)a->file);
    if (!a->key || a->bytes != here.bytes ||
        strncmp(a->host, world_host(), sizeof a->host - 1) != 0)
        return false;
    here.peer_file[r] = open(name, O_RDONLY | O_CLOEXEC);
    if (here.peer_file[r] < 0) return false;
    void *theirs = mmap(NULL, (size_t)page, PROT_READ, MAP_SHARED, here.peer_file[r], a->bytes);
    if (theirs == MAP_FAILED) return false;
    here.peer[r] = theirs;
    return lseek(here.peer_file[r], 0, SEEK_END) == a->bytes + page &&
           atomic_load(&here.peer[r]->key) == a->key;
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

void neighbours_begin(void)
{
    here.number++;
    atomic_store_explicit(&here.page->ready, here.number, memory_order_release);
}

static void until(const _Atomic int64_t *number)
{
    const double from = clock_seconds();
    while (atomic_load_explicit(number, memory_order_acquire) < here.number) mpi_nap(from);
}

void neighbours_copy(int from, const void *theirs, void *to, int64_t bytes)
{
    until(&here.peer[from]->ready);
    for (int64_t done = 0; done < bytes;) {
        const int64_t at = (const char *)theirs - here.at + done;
        ssize_t got = pread(here.peer_file[from], (char *)to + done, (size_t)(bytes - done), at);
        if (got == 0 || (got < 0 && errno != EINTR))
            fail_now("rank %d: cannot read the memory of rank %d of its group: %s", world.rank,
                     from, got < 0 ? strerror(errno) : "it ends early");
        if (got > 0) done += got;
    }
}

void neighbours_end(void)
{
    atomic_store_explicit(&here.page->done, here.number, memory_order_release);
    for (int r = 0; r < here.ranks; r++)
        if (r != here.me) until(&here.peer[r]->done);
}
