/* Preloaded into a trainer, so that what it does to one folder can be counted, cut short, refused
 * and written down. The calls that change a folder pass through here; the environment says what
 * happens: FAULT_DIR    the folder, as the trainer is told it; calls on other paths pass untouched
 *   FAULT_RANK   only in this rank (OMPI_COMM_WORLD_RANK); absent: in all
 *   FAULT_AT     the number of the call, from 1, that something happens to
 *   FAULT_KIND   kill: the process is killed before that call, a write in its middle; ENOSPC, EIO:
 *                the call fails; SHORT: a write takes half; STOP: the process is stopped before it
 *   FAULT_COUNT  a file that gets one line for every call: its number, its name, its path
 *   FAULT_RECORD a folder that gets `log`, what was done in order, and blob.N, what was written:
 *                powerloss.py rebuilds from it what a disk may hold */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FDS = 4096, PATH_BYTES = 4096 };

static struct {
    const char *folder, *record;
    long at, calls;
    enum { NOTHING, KILL, STOP, FAIL, SHORT } kind;
    int error, count_fd, log_fd;
    char *path[FDS]; /* of descriptors that were opened below the folder */
    int writes[FDS]; /* opened for writing: closing such a one may fail */
    pthread_mutex_t lock;
} fault = {.lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP};

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static void __attribute__((constructor)) begin(void)
{
    const char *rank = getenv("FAULT_RANK"), *mine = getenv("OMPI_COMM_WORLD_RANK"),
               *kind = getenv("FAULT_KIND"), *at = getenv("FAULT_AT"),
               *count = getenv("FAULT_COUNT");
    char path[PATH_BYTES];
    if (rank && strcmp(rank, mine ? mine : "0") != 0) return;
    fault.folder = getenv("FAULT_DIR");
    fault.record = getenv("FAULT_RECORD");
    fault.at = at ? atol(at) : 0;
    fault.error = kind && strcmp(kind, "ENOSPC") == 0 ? ENOSPC : EIO;
    fault.kind = !kind                        ? NOTHING
                 : strcmp(kind, "kill") == 0  ? KILL
                 : strcmp(kind, "STOP") == 0  ? STOP
                 : strcmp(kind, "SHORT") == 0 ? SHORT
                                              : FAIL;
    fault.count_fd = fault.log_fd = -1;
    if (count) fault.count_fd = REAL(open)(count, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (fault.record) {
        snprintf(path, sizeof path, "%s/log", fault.record);
        fault.log_fd = REAL(open)(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    }
}

static int watched(const char *path)
{
    const size_t n = fault.folder ? strlen(fault.folder) : 0;
    return n && path && strncmp(path, fault.folder, n) == 0 && (path[n] == '/' || !path[n]);
}

__attribute__((format(printf, 1, 2))) static void record(const char *format, ...)
{
    char line[3 * PATH_BYTES];
    va_list args;
    if (fault.log_fd < 0) return;
    va_start(args, format);
    const int n = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (REAL(write)(fault.log_fd, line, (size_t)n) != n) abort();
}

/* Counts a call; true when it must fail. */
static int fails(const char *what, const char *path)
{
    char line[PATH_BYTES + 64];
    fault.calls++;
    if (fault.count_fd >= 0) {
        const int n = snprintf(line, sizeof line, "%ld %s %s\n", fault.calls, what, path);
        if (REAL(write)(fault.count_fd, line, (size_t)n) != n) abort();
    }
    if (fault.calls != fault.at) return 0;
    if (fault.kind == KILL) kill(getpid(), SIGKILL);
    if (fault.kind == STOP) kill(getpid(), SIGSTOP);
    errno = fault.error;
    return fault.kind == FAIL;
}

#define LOCK pthread_mutex_lock(&fault.lock)
#define UNLOCK pthread_mutex_unlock(&fault.lock)

/* What a call without data does: counted, done, written down. */
#define SIMPLE(name, path, call, ...)           \
    do {                                        \
        if (!watched(path)) return call;        \
        LOCK;                                   \
        int rc = fails(name, path) ? -1 : call; \
        const int error = errno;                \
        if (rc >= 0) record(__VA_ARGS__);       \
        UNLOCK;                                 \
        errno = error;                          \
        return rc;                              \
    } while (0)

int mkdir(const char *path, mode_t mode)
{
    SIMPLE("mkdir", path, REAL(mkdir)(path, mode), "mkdir %s\n", path);
}
int rmdir(const char *path) { SIMPLE("rmdir", path, REAL(rmdir)(path), "rmdir %s\n", path); }
int unlink(const char *path) { SIMPLE("unlink", path, REAL(unlink)(path), "unlink %s\n", path); }
int rename(const char *from, const char *to)
{
    SIMPLE("rename", from, REAL(rename)(from, to), "rename %s %s\n", from, to);
}

static const char *path_of(int fd) { return fd >= 0 && fd < FDS ? fault.path[fd] : NULL; }

static int opened(const char *path, int flags, mode_t mode)
{
    if (!watched(path)) return REAL(open)(path, flags, mode);
    LOCK;
    struct stat before;
    const int creates = (flags & O_CREAT) && stat(path, &before) != 0;
    int fd = creates && fails("create", path) ? -1 : REAL(open)(path, flags, mode);
    const int error = errno;
    if (fd >= FDS) abort();
    if (fd >= 0) {
        free(fault.path[fd]);
        fault.path[fd] = strdup(path);
        fault.writes[fd] = (flags & O_ACCMODE) != O_RDONLY;
        if (creates) record("create %s\n", path);
    }
    UNLOCK;
    errno = error;
    return fd;
}

int open(const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    const mode_t mode = flags & O_CREAT ? va_arg(args, mode_t) : 0;
    va_end(args);
    return opened(path, flags, mode);
}
int open64(const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    const mode_t mode = flags & O_CREAT ? va_arg(args, mode_t) : 0;
    va_end(args);
    return opened(path, flags, mode);
}

int fsync(int fd) { SIMPLE("fsync", path_of(fd), REAL(fsync)(fd), "fsync %s\n", path_of(fd)); }
int fdatasync(int fd)
{
    SIMPLE("fdatasync", path_of(fd), REAL(fdatasync)(fd), "fsync %s\n", path_of(fd));
}

int close(int fd)
{
    if (!path_of(fd)) return REAL(close)(fd);
    LOCK;
    const int failing = fault.writes[fd] && fails("close", fault.path[fd]);
    free(fault.path[fd]);
    fault.path[fd] = NULL;
    int rc = REAL(close)(fd);
    if (failing) rc = -1, errno = fault.error;
    UNLOCK;
    return rc;
}

static void blob(const char *path, off_t at, const void *bytes, ssize_t n)
{
    static long blobs;
    char name[PATH_BYTES + 64];
    if (fault.log_fd < 0 || n <= 0) return;
    snprintf(name, sizeof name, "%s/blob.%d.%ld", fault.record, (int)getpid(), ++blobs);
    int fd = REAL(open)(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0 || REAL(write)(fd, bytes, (size_t)n) != n || REAL(close)(fd) != 0) abort();
    record("write %s %lld %s\n", path, (long long)at, name);
}

ssize_t write(int fd, const void *bytes, size_t n)
{
    const char *path = path_of(fd);
    if (!path) return REAL(write)(fd, bytes, n);
    LOCK;
    const off_t at = lseek(fd, 0, SEEK_CUR);
    const int here = fault.calls + 1 == fault.at;
    if (here && fault.kind == KILL && n > 1 && REAL(write)(fd, bytes, n / 2) < 0) abort();
    const int failing = fails("write", path);
    if (here && fault.kind == SHORT && n > 1) n /= 2;
    const ssize_t rc = failing ? -1 : REAL(write)(fd, bytes, n);
    const int error = errno;
    blob(path, at, bytes, rc);
    UNLOCK;
    errno = error;
    return rc;
}

ssize_t pwrite(int fd, const void *bytes, size_t n, off_t at)
{
    const char *path = path_of(fd);
    if (!path) return REAL(pwrite)(fd, bytes, n, at);
    LOCK;
    const int here = fault.calls + 1 == fault.at, failing = fails("pwrite", path);
    if (here && fault.kind == SHORT && n > 1) n /= 2;
    const ssize_t rc = failing ? -1 : REAL(pwrite)(fd, bytes, n, at);
    const int error = errno;
    blob(path, at, bytes, rc);
    UNLOCK;
    errno = error;
    return rc;
}
ssize_t pwrite64(int fd, const void *bytes, size_t n, off_t at) __attribute__((alias("pwrite")));

int ftruncate(int fd, off_t length)
{
    SIMPLE("ftruncate", path_of(fd), REAL(ftruncate)(fd, length), "truncate %s %lld\n", path_of(fd),
           (long long)length);
}
int ftruncate64(int fd, off_t length) __attribute__((alias("ftruncate")));
