/* Files that a trainer writes. A name that was given on the command line may already be a link that
 * somebody put there, a pipe, a device: a file is never written through a link, a pipe must find a
 * reader within the run's timeout, and what replaces a file is written under a name of its own
 * first, which nobody else has. */
#define _GNU_SOURCE
#include "output.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* /dev/stdout is a link that nobody but root can have put there. */
static int no_link(const char *path) { return strncmp(path, "/dev/", 5) == 0 ? 0 : O_NOFOLLOW; }

const char *output_why(int error)
{
    static char text[128];
    struct rlimit most;
    if (error == ELOOP) return "is a symbolic link, and nothing is written through one";
    if (error != EFBIG || getrlimit(RLIMIT_FSIZE, &most) != 0 || most.rlim_cur == RLIM_INFINITY)
        return strerror(error);
    snprintf(text, sizeof text, "%s: files of this process end at %llu bytes (ulimit -f)",
             strerror(error), (unsigned long long)most.rlim_cur);
    return text;
}

int output_open(const char *option, const char *path, int flags)
{
    const double until = clock_seconds() + program.timeout_seconds;
    for (;;) {
        int fd =
            open(path, O_WRONLY | O_CREAT | O_NONBLOCK | O_CLOEXEC | no_link(path) | flags, 0666);
        if (fd >= 0 && fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK) == 0) return fd;
        if (fd >= 0) close(fd);
        /* a pipe that nobody reads yet */
        if (errno != ENXIO || (program.timeout_seconds > 0 && clock_seconds() > until)) break;
        nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    }
    if (errno == ENXIO)
        fail_note("%s %s: a pipe, and nobody has opened it for reading for %.3g s", option, path,
                  program.timeout_seconds);
    else
        fail_note("%s %s: %s", option, path, output_why(errno));
    return -1;
}

/* ── a file that takes the place of another when it is whole ──────────────────── */

/* What a run that was killed in the middle of writing left behind: nobody holds its lock. */
static void sweep(const char *path)
{
    char pattern[4096];
    glob_t found = {0};
    size_t n = 0;
    for (const char *c = path; *c && n < sizeof pattern - 32; c++) {
        if (strchr("*?[\\", *c)) pattern[n++] = '\\';
        pattern[n++] = *c;
    }
    snprintf(pattern + n, sizeof pattern - n, ".*.partial");
    if (glob(pattern, 0, NULL, &found) == 0)
        for (size_t i = 0; i < found.gl_pathc; i++) {
            int fd = open(found.gl_pathv[i], O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
            struct stat s;
            if (fd >= 0 && fstat(fd, &s) == 0 && S_ISREG(s.st_mode) &&
                flock(fd, LOCK_EX | LOCK_NB) == 0)
                unlink(found.gl_pathv[i]);
            if (fd >= 0) close(fd);
        }
    globfree(&found);
}

bool output_prepare(struct output *o, const char *option, const char *path)
{
    const size_t n = strlen(path) + 64;
    struct stat old;
    *o = (struct output){.option = option,
                         .path = path,
                         .fd = -1,
                         .temporary = room((int64_t)n),
                         .temporary_bytes = n};
    o->folder = memcpy(room((int64_t)n), path, strlen(path) + 1);
    char *slash = strrchr(o->folder, '/');
    if (!slash)
        strcpy(o->folder, ".");
    else
        slash[slash == o->folder] = 0;
    if (access(o->folder, W_OK | X_OK) != 0)
        return fail_note("%s %s: %s: %s", option, path, o->folder, strerror(errno));
    /* a rename would put a file in the place of a device */
    if (lstat(path, &old) == 0 && S_ISLNK(old.st_mode))
        return fail_note("%s %s: %s", option, path, output_why(ELOOP));
    if (lstat(path, &old) == 0 && !S_ISREG(old.st_mode))
        return fail_note("%s %s: it is there, and is no file", option, path);
    sweep(path);
    return true;
}

static bool failed(struct output *o, const char *what)
{
    fail_note("%s %s: %s %s: %s", o->option, o->path, what, o->temporary, output_why(errno));
    if (o->fd >= 0) close(o->fd);
    o->fd = -1;
    unlink(o->temporary);
    return false;
}

bool output_begin(struct output *o)
{
    o->waiting = 0;
    for (int i = 0; o->fd < 0 && i < 100; i++) {
        snprintf(o->temporary, o->temporary_bytes, "%s.%ld-%d.partial", o->path, (long)getpid(), i);
        o->fd = open(o->temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
        if (o->fd < 0 && errno != EEXIST) break;
    }
    /* where a disk has no locks, a run that is killed leaves its file */
    if (o->fd >= 0) (void)flock(o->fd, LOCK_EX | LOCK_NB);
    return o->fd >= 0 || failed(o, "open");
}

bool output_put(struct output *o, const void *bytes, int64_t n)
{
    const char *p = bytes;
    while (n > 0) {
        ssize_t wrote = write(o->fd, p, (size_t)(n < (1 << 30) ? n : 1 << 30));
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote <= 0) return failed(o, "write");
        p += wrote;
        n -= wrote;
        o->waiting += wrote;
    }
    /* or all of it would wait for the end, where nothing is seen to move */
    if (o->waiting >= OUTPUT_WAITING) {
        if (fdatasync(o->fd) != 0) return failed(o, "fdatasync");
        o->waiting = 0;
    }
    position_moved();
    return true;
}

bool output_end(struct output *o)
{
    if (fsync(o->fd) != 0) return failed(o, "fsync");
    int fd = o->fd;
    o->fd = -1;
    if (close(fd) != 0) return failed(o, "close");
    if (rename(o->temporary, o->path) != 0) return failed(o, "rename");
    int folder = open(o->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool fine = folder >= 0 && fsync(folder) == 0;
    if (!fine) fail_note("%s %s: fsync %s: %s", o->option, o->path, o->folder, strerror(errno));
    if (folder >= 0) close(folder);
    return fine;
}
