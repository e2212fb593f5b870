/* Preloaded into a trainer: call number FAULT_AT of FAULT_CALL on a file whose name ends in
 * FAULT_FILE fails with ENOSPC, as a full disk would make it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool hit(const char *call, const char *path)
{
    static int calls;
    const char *want = getenv("FAULT_CALL"), *file = getenv("FAULT_FILE"), *at = getenv("FAULT_AT");
    if (!want || !file || strcmp(want, call) != 0) return false;
    size_t n = strlen(path), m = strlen(file);
    if (n < m || strcmp(path + n - m, file) != 0 || calls++ != (at ? atoi(at) : 0)) return false;
    errno = ENOSPC;
    return true;
}

static bool hit_fd(const char *call, int fd)
{
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    path[n < 0 ? 0 : n] = 0;
    int kept = errno;
    bool is = hit(call, path);
    if (!is) errno = kept;
    return is;
}

ssize_t write(int fd, const void *bytes, size_t n)
{
    static ssize_t (*real)(int, const void *, size_t);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "write");
    return hit_fd("write", fd) ? -1 : real(fd, bytes, n);
}

int fsync(int fd)
{
    static int (*real)(int);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "fsync");
    return hit_fd("fsync", fd) ? -1 : real(fd);
}

int close(int fd)
{
    static int (*real)(int);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "close");
    bool is = hit_fd("close", fd);
    int rc = real(fd);
    if (is) errno = ENOSPC;
    return is ? -1 : rc;
}

int rename(const char *from, const char *to)
{
    static int (*real)(const char *, const char *);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "rename");
    return hit("rename", from) ? -1 : real(from, to);
}
