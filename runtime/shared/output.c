/* Files that a trainer writes. A name that was given on the command line may already be a link that
 * somebody put there, a pipe, a device, the data of the run: a file is never written through a
 * link, no two outputs and no input share one, a pipe must find a reader within the run's timeout,
 * and what replaces a file is written under a name of its own first, which nobody else has. What
 * would fail at the end of a run, when weights are saved, is tried before its beginning. */
#define _GNU_SOURCE
#include "output.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdio.h>
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
    if (error == ETIMEDOUT) return "nobody takes what is written";
    if (error == ELOOP) return "is a symbolic link, and nothing is written through one";
    if (error != EFBIG || getrlimit(RLIMIT_FSIZE, &most) != 0 || most.rlim_cur == RLIM_INFINITY)
        return strerror(error);
    snprintf(text, sizeof text, "%s: files of this process end at %llu bytes (ulimit -f)",
             strerror(error), (unsigned long long)most.rlim_cur);
    return text;
}

/* ── one file for one purpose ────────────────────────────────────────────────── */

/* The folder of `path`, as text in `room`. */
static char *folder_of(const char *path)
{
    char *folder = memcpy(room((int64_t)strlen(path) + 2), path, strlen(path) + 1);
    char *slash = strrchr(folder, '/');
    if (!slash)
        strcpy(folder, ".");
    else
        slash[slash == folder] = 0;
    return folder;
}

/* A file that is there is its device and inode; one that is not yet, its name in a folder. */
static struct used {
    struct used *before;
    const char *what, *path, *name;
    struct stat folder, file;
    bool there, input;
} * all_used;

static bool is_same(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* False: noted. What is no plain file may be used twice. */
static bool use_file(const char *what, const char *path, bool input)
{
    struct used *u = room((int64_t)sizeof *u);
    const char *slash = strrchr(path, '/');
    *u = (struct used){.before = all_used,
                       .what = what,
                       .path = path,
                       .name = slash ? slash + 1 : path,
                       .input = input};
    u->there = stat(path, &u->file) == 0;
    if ((u->there && !S_ISREG(u->file.st_mode)) || stat(folder_of(path), &u->folder) != 0)
        return true;
    for (const struct used *o = all_used; o && !input; o = o->before) {
        const bool same = (u->there && o->there && is_same(&u->file, &o->file)) ||
                          (is_same(&u->folder, &o->folder) && !strcmp(u->name, o->name));
        if (!same || !strcmp(o->what, what)) continue;
        if (o->input)
            return fail_note("%s %s: this is a file of %s; the run would destroy it", what, path,
                             o->what);
        return fail_note("%s %s: %s has the same file", what, path, o->what);
    }
    all_used = u;
    return true;
}

bool output_is_free(const char *option, const char *path) { return use_file(option, path, false); }

void output_spare(const char *what, const char *path) { use_file(what, path, true); }

int output_open(const char *option, const char *path, int flags)
{
    const double until = clock_seconds() + program.timeout_seconds;
    if (!use_file(option, path, false)) return -1;
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

static bool open_temporary(struct output *o)
{
    for (int i = 0; o->fd < 0 && i < 100; i++) {
        snprintf(o->temporary, o->temporary_bytes, "%s.%ld-%d.partial", o->path, (long)getpid(), i);
        o->fd = open(o->temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
        if (o->fd < 0 && errno != EEXIST) break;
    }
    return o->fd >= 0;
}

/* In a folder like /tmp nobody replaces the file of another user. */
static bool is_kept_by_another(const char *folder, const struct stat *old)
{
    struct stat s;
    const uid_t me = geteuid();
    return me != 0 && stat(folder, &s) == 0 && s.st_mode & S_ISVTX && old->st_uid != me &&
           s.st_uid != me;
}

bool output_prepare(struct output *o, const char *option, const char *path)
{
    const size_t n = strlen(path) + 64;
    struct stat old;
    *o = (struct output){.option = option,
                         .path = path,
                         .fd = -1,
                         .temporary = room((int64_t)n),
                         .temporary_bytes = n,
                         .folder = folder_of(path)};
    if (access(o->folder, W_OK | X_OK) != 0)
        return fail_note("%s %s: %s: %s", option, path, o->folder, strerror(errno));
    /* a rename would put a file in the place of a device */
    if (lstat(path, &old) == 0 && S_ISLNK(old.st_mode))
        return fail_note("%s %s: %s", option, path, output_why(ELOOP));
    if (lstat(path, &old) == 0 && !S_ISREG(old.st_mode))
        return fail_note("%s %s: it is there, and is no file", option, path);
    if (lstat(path, &old) == 0 && is_kept_by_another(o->folder, &old))
        return fail_note("%s %s: it is another user's, and in %s only that user can replace it",
                         option, path, o->folder);
    if (!use_file(option, path, false)) return false;
    sweep(path);
    if (!open_temporary(o))
        return fail_note("%s %s: open %s: %s", option, path, o->temporary, output_why(errno));
    close(o->fd);
    o->fd = -1;
    return unlink(o->temporary) == 0 ||
           fail_note("%s %s: unlink %s: %s", option, path, o->temporary, strerror(errno));
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
    (void)open_temporary(o);
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
    /* whole, and on the disk: worth more than its name */
    if (rename(o->temporary, o->path) != 0)
        return fail_note("%s %s: rename: %s; the file is whole, as %s", o->option, o->path,
                         strerror(errno), o->temporary);
    int folder = open(o->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool fine = folder >= 0 && fsync(folder) == 0;
    if (!fine) fail_note("%s %s: fsync %s: %s", o->option, o->path, o->folder, strerror(errno));
    if (folder >= 0) close(folder);
    return fine;
}
