/* Linked into a trainer by --wrap, so that its memory can be watched from within. The verbs of the
 * schedule and the calls that take memory pass through here; what is done with them the environment
 *   says, since a trainer has no such options: MEMORY_POISON   1: before every kernel and batch all
 *   bytes that the ledger has nobody in are filled with 0xFF; 2: also
 *                   those of one live buffer, so that it is seen that this would be
 *                   noticed
 *   MEMORY_LAZY     the arena is not populated at start: a page that is there at the end was
 *   touched MEMORY_REPORT   a file name: what was seen, one line per fact; the rank is put after it
 * dead.h holds, by schedule step, the ranges of the arena where nobody is; ledger.py writes it from
 * the dump. */
#define _GNU_SOURCE
#include "cpu/neighbours.h"
#include "device.h"
#include "shared/trainer.h"

#include <fcntl.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct range {
    int step;
    int64_t from, to;
};
#include "dead.h"

enum { STEPS = 64 };
static struct device *device;
static int64_t training_step = -1;
static bool watching;
static struct counts {
    int64_t ours, library, held;
} per_step[STEPS];

/* ── poison ──────────────────────────────────────────────────────────────────── */
static void fill(const struct range *r)
{
    memset(local(device, r->from), 0xff, (size_t)(r->to - r->from));
}

static void poison(struct device *d, int step)
{
    static int wanted = -1;
    if (wanted < 0) wanted = getenv("MEMORY_POISON") ? atoi(getenv("MEMORY_POISON")) : 0;
    device = d;
    for (int i = dead_from[step]; wanted && i < dead_from[step + 1]; i++) fill(&dead[i]);
    if (wanted == 2 && step == victim.step) fill(&victim);
}

void __real_run(struct device *, int, const struct kernel *, void *const *);
void __wrap_run(struct device *d, int step, const struct kernel *k, void *const *address)
{
    poison(d, step);
    __real_run(d, step, k, address);
}

void __real_run_shard(struct device *, int, const struct kernel *, int64_t, void *const *);
void __wrap_run_shard(struct device *d, int step, const struct kernel *k, int64_t unit,
                      void *const *address)
{
    poison(d, step);
    __real_run_shard(d, step, k, unit, address);
}

void __real_load_batch(struct device *, int, int32_t *, int32_t *, int);
void __wrap_load_batch(struct device *d, int step, int32_t *tokens, int32_t *targets, int micro)
{
    poison(d, step);
    __real_load_batch(d, step, tokens, targets, micro);
}

/* ── pages ───────────────────────────────────────────────────────────────────── */
int __real_madvise(void *, size_t, int);
int __wrap_madvise(void *at, size_t bytes, int advice)
{
    return getenv("MEMORY_LAZY") ? 0 : __real_madvise(at, bytes, advice);
}

/* One letter a page of the arena: 1 when it is there. */
static void report_pages(FILE *to)
{
    const int64_t page = sysconf(_SC_PAGESIZE),
                  pages = (program.local_bytes + program.wire_bytes + page - 1) / page;
    int map = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    fprintf(to, "pages ");
    for (int64_t i = 0; i < pages; i++) {
        uint64_t entry = 0;
        off_t at =
            (off_t)(((uintptr_t)local(device, 0) / (uintptr_t)page + (uintptr_t)i) * sizeof entry);
        if (map < 0 || pread(map, &entry, sizeof entry, at) != sizeof entry) {
            fputc('?', to);
            continue;
        }
        fputc(entry >> 62 ? '1' : '0', to); /* in memory or swapped out */
    }
    fputc('\n', to);
    if (map >= 0) close(map);
}

/* ── allocations ─────────────────────────────────────────────────────────────── */
/* All of the process: what the program itself asks for is told from what libraries do by who
 * calls. */
extern char __executable_start, etext;
void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);

static void count(const void *caller)
{
    if (!watching || training_step < 0 || training_step >= STEPS) return;
    bool ours = (const char *)caller >= &__executable_start && (const char *)caller < &etext;
    __atomic_fetch_add(ours ? &per_step[training_step].ours : &per_step[training_step].library, 1,
                       __ATOMIC_RELAXED);
}

void *malloc(size_t n)
{
    count(__builtin_return_address(0));
    return __libc_malloc(n);
}
void *calloc(size_t n, size_t m)
{
    count(__builtin_return_address(0));
    return __libc_calloc(n, m);
}
void *realloc(void *p, size_t n)
{
    count(__builtin_return_address(0));
    return __libc_realloc(p, n);
}

/* ── the run ─────────────────────────────────────────────────────────────────── */
static void close_step(void)
{
    if (training_step < 0 || training_step >= STEPS) return;
    struct mallinfo2 m = mallinfo2();
    per_step[training_step].held = (int64_t)(m.uordblks + m.hblkhd);
}

void __real_position_step(int64_t);
void __wrap_position_step(int64_t step)
{
    close_step();
    training_step = step;
    __real_position_step(step);
}

static void copy_lines(FILE *to, const char *path, const char *const *word, int words)
{
    char line[512];
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f))
        for (int i = 0; i < words; i++)
            if (strncmp(line, word[i], strlen(word[i])) == 0) fputs(line, to);
    if (f) fclose(f);
}

/* Of the memory files of ranks, this one's own is the one that it has open: its number; 0: none. */
static unsigned long own_file(void)
{
    char link[64];
    struct stat is;
    for (int file = 0; file < 1024; file++) {
        char path[64];
        snprintf(path, sizeof path, "/proc/self/fd/%d", file);
        const ssize_t n = readlink(path, link, sizeof link - 1);
        link[n > 0 ? n : 0] = 0;
        if (strstr(link, "/memfd:planc") && fstat(file, &is) == 0) return (unsigned long)is.st_ino;
    }
    return 0;
}

/* Pages of other ranks that this one has used: they are counted in its resident size, too. */
static void report_neighbours(FILE *to)
{
    char line[512];
    bool theirs = false;
    unsigned long number;
    long sum = 0, kib;
    FILE *f = fopen("/proc/self/smaps", "r");
    while (f && fgets(line, sizeof line, f)) {
        if (sscanf(line, "%*x-%*x %*s %*x %*x:%*x %lu", &number) == 1)
            theirs = strstr(line, "/memfd:planc") && number != own_file();
        if (theirs && sscanf(line, "Rss: %ld", &kib) == 1) sum += kib;
    }
    if (f) fclose(f);
    fprintf(to, "neighbours %ld\nseen %lld\n", sum, (long long)neighbours_seen_bytes() / 1024);
}

static void report(void)
{
    static const char *const status[] = {
        "VmHWM:", "VmRSS:", "RssAnon:", "RssFile:", "RssShmem:", "VmData:"};
    char path[4096];
    if (!getenv("MEMORY_REPORT")) return;
    snprintf(path, sizeof path, "%s.%d", getenv("MEMORY_REPORT"), world.rank);
    FILE *to = fopen(path, "w");
    if (!to) return;
    fprintf(to, "arena %lld\nranks %lld\n", (long long)(program.local_bytes + program.wire_bytes),
            (long long)(program.fsdp * program.dp));
    for (int64_t i = 0; i <= training_step && i < STEPS; i++)
        fprintf(to, "step %lld ours %lld library %lld held %lld\n", (long long)i,
                (long long)per_step[i].ours, (long long)per_step[i].library,
                (long long)per_step[i].held);
    copy_lines(to, "/proc/self/status", status, 6);
    report_neighbours(to);
    report_pages(to);
    fclose(to);
}

void __real_position_phase(enum phase);
void __wrap_position_phase(enum phase phase)
{
    watching = phase == PHASE_STEPS;
    if (phase == PHASE_END) {
        close_step();
        report();
    }
    __real_position_phase(phase);
}
