/* The folder of a run's checkpoints. Whenever a process is killed or power is lost, two things must
 * hold: a name without an ending is a complete checkpoint, and nothing is deleted before a newer
 * one is complete. So a checkpoint is written under a temporary name, its files are flushed, then
 * the folder; then it is renamed, and the parent folder is flushed. A checkpoint to delete is
 * renamed first. Only one run may write here: rank 0 holds a lock on a file, which the system
 * releases however the process ends. */
#define _GNU_SOURCE
#include "checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define LOCK_NAME "lock"
#define MANIFEST_NAME "manifest.json"
enum { PATH_BYTES = 4096 };

static struct {
    int fd;
    char text[256]; /* who holds it: "host a, process 7, since …, mark …" */
} lock = {.fd = -1};

static bool because(char why[WHY_BYTES], const char *what, const char *path)
{
    snprintf(why, WHY_BYTES, "checkpoint: %s %.800s: %s", what, path, strerror(errno));
    return false;
}

static bool join(char to[PATH_BYTES], const char *folder, const char *name)
{
    const int n = snprintf(to, PATH_BYTES, "%s/%s", folder, name);
    if (n < PATH_BYTES) return true;
    errno = ENAMETOOLONG;
    return false;
}

/* ── names ───────────────────────────────────────────────────────────────────── */

void folder_name(const struct saved *s, char name[CHECKPOINT_NAME])
{
    if (s->run > 1)
        snprintf(name, CHECKPOINT_NAME, "step-%08" PRId64 "-run%" PRId64, s->step, s->run);
    else
        snprintf(name, CHECKPOINT_NAME, "step-%08" PRId64, s->step);
}

/* A number without sign; where it ends, or NULL. */
static const char *digits(const char *text, int64_t *value)
{
    const char *at = text;
    *value = 0;
    for (; *at >= '0' && *at <= '9'; at++)
        if (__builtin_mul_overflow(*value, 10, value) ||
            __builtin_add_overflow(*value, *at - '0', value))
            return NULL;
    return at > text ? at : NULL;
}

/* What a name stands for; after it *ending, "" for a checkpoint. False: it is none of ours. */
static bool name_read(const char *name, struct saved *s, const char **ending)
{
    char again[CHECKPOINT_NAME];
    *s = (struct saved){.run = 1};
    if (strncmp(name, "step-", 5)) return false;
    const char *at = digits(name + 5, &s->step);
    if (!at) return false;
    if (!strncmp(at, "-run", 4) && !(at = digits(at + 4, &s->run))) return false;
    folder_name(s, again);
    *ending = at;
    return !strncmp(name, again, (size_t)(at - name)) && !again[at - name];
}

static bool is_leftover(const char *ending)
{
    return !strncmp(ending, ".partial-", 9) || !strcmp(ending, ".deleting");
}

/* ── the folder itself ───────────────────────────────────────────────────────── */

static bool unusable(const char *path, const char *why)
{
    return fail_note("checkpoint folder %s: %s", path, why);
}

/* The folder and those above it that are missing. */
static bool make_folders(const char *path)
{
    char part[PATH_BYTES], above[PATH_BYTES];
    const size_t n = strlen(path);
    if (n >= PATH_BYTES) return unusable(path, strerror(ENAMETOOLONG));
    for (size_t i = 1; i <= n; i++) {
        if (path[i] != '/' && path[i] != 0) continue;
        memcpy(part, path, i);
        part[i] = 0;
        if (mkdir(part, 0777) != 0) {
            const int error = errno;
            if (error == EEXIST || (error == EROFS && access(part, F_OK) == 0)) continue;
            return fail_note("checkpoint folder %s: make %s: %s", path, part, strerror(error));
        }
        char why[WHY_BYTES];
        const char *slash = strrchr(part, '/');
        snprintf(above, sizeof above, "%.*s", slash ? (int)(slash - part) + (slash == part) : 1,
                 slash ? part : ".");
        if (!folder_sync(above, why)) return fail_note("%s", why);
    }
    return true;
}

static bool is_usable(const char *path)
{
    struct stat s;
    if (lstat(path, &s) != 0) return unusable(path, strerror(errno));
    if (S_ISLNK(s.st_mode)) return unusable(path, "is a link: name the folder that it leads to");
    if (!S_ISDIR(s.st_mode)) return unusable(path, "is no folder");
    if (access(path, R_OK | W_OK | X_OK) == 0) return true;
    const int error = errno;
    char text[128];
    snprintf(text, sizeof text, "%s%s", strerror(error),
             error == EACCES && s.st_uid != geteuid() ? " (it is another user's)" : "");
    return unusable(path, text);
}

/* Who holds it, as far as the file says: "rank 0 of host a, process 7, since …". */
static void lock_holder(int fd, char text[256])
{
    const ssize_t n = pread(fd, text, 255, 0);
    text[n > 0 ? n : 0] = 0;
    text[strcspn(text, "\n")] = 0;
}

/* Opens the file, locks it and writes into it who holds it. */
static bool lock_take(const char *path, char why[WHY_BYTES])
{
    char file[PATH_BYTES], holder[256];
    struct stat s;
    lock.fd = join(file, path, LOCK_NAME)
                  ? open(file, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666)
                  : -1;
    if (lock.fd < 0 || fstat(lock.fd, &s) != 0) {
        snprintf(why, WHY_BYTES, "checkpoint folder %.400s: open %s: %s", path, LOCK_NAME,
                 strerror(errno));
        return false;
    }
    if (!S_ISREG(s.st_mode)) {
        snprintf(why, WHY_BYTES, "checkpoint folder %.400s: its entry 'lock' is no file", path);
        return false;
    }
    if (flock(lock.fd, LOCK_EX | LOCK_NB) != 0) {
        const bool held = errno == EWOULDBLOCK;
        lock_holder(lock.fd, holder);
        if (held)
            snprintf(why, WHY_BYTES,
                     "checkpoint folder %.400s: another run writes there (%s): wait for its end, "
                     "or give this one another folder by --checkpoint-dir",
                     path, holder[0] ? holder : "it does not say which");
        else
            snprintf(why, WHY_BYTES,
                     "checkpoint folder %.400s: it cannot be locked, and two runs in it would "
                     "destroy each other's checkpoints: %s",
                     path, strerror(errno));
        return false;
    }
    if (ftruncate(lock.fd, 0) == 0 &&
        write_exactly(lock.fd, lock.text, (int64_t)strlen(lock.text)) && fsync(lock.fd) == 0)
        return true;
    snprintf(why, WHY_BYTES, "checkpoint folder %.400s: write %s: %s", path, LOCK_NAME,
             strerror(errno));
    return false;
}

static bool lock_begin(const char *path, uint64_t *mark)
{
    char host[65] = "?", when[32], why[WHY_BYTES];
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (gethostname(host, sizeof host - 1) != 0) snprintf(host, sizeof host, "?");
    *mark = shuffle_mix((uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec) ^
            shuffle_mix((uint64_t)getpid());
    snprintf(lock.text, sizeof lock.text, "host %s, process %d, since %s, mark %016" PRIx64 "\n",
             host, (int)getpid(), utc_text((int64_t)now.tv_sec, when), *mark);
    return lock_take(path, why) || fail_note("%s", why);
}

/* Somebody may have removed the file, and then another run would get a lock of its own: before a
 * save it is taken again, or the save refused. */
static bool lock_hold(const char *path, char why[WHY_BYTES])
{
    char file[PATH_BYTES];
    struct stat here, ours;
    if (join(file, path, LOCK_NAME) && stat(file, &here) == 0 && fstat(lock.fd, &ours) == 0 &&
        here.st_dev == ours.st_dev && here.st_ino == ours.st_ino)
        return true;
    const int before = lock.fd;
    const bool fine = lock_take(path, why);
    if (before >= 0) close(before);
    return fine;
}

/* What is in a checkpoint and is none of its files, such as a model that was exported into it;
 * false: nothing, or it cannot be read. */
static bool has_other(const char *path, const char *name, char other[256])
{
    char full[PATH_BYTES], part[CHECKPOINT_NAME];
    DIR *d = join(full, path, name) ? opendir(full) : NULL;
    bool found = false;
    for (struct dirent *e = d ? readdir(d) : NULL; e && !found; e = readdir(d)) {
        int rank = 0;
        if (sscanf(e->d_name, "part-%d", &rank) == 1)
            part_name(rank, part);
        else
            snprintf(part, sizeof part, "%s", MANIFEST_NAME);
        found = strcmp(e->d_name, ".") && strcmp(e->d_name, "..") && strcmp(e->d_name, part);
        if (found) snprintf(other, 256, "%s", e->d_name);
    }
    if (d) closedir(d);
    return found;
}

/* True, and said once in a row: such a folder stays. */
static bool is_left_alone(const char *path, const char *name)
{
    static char said[2 * CHECKPOINT_NAME];
    char other[256];
    if (!has_other(path, name, other)) return false;
    if (strcmp(said, name))
        say("warning: %s/%s stays: it holds '%.100s', which is none of a checkpoint's files", path,
            name, other);
    snprintf(said, sizeof said, "%s", name);
    return true;
}

/* What a killed save, or a killed removal, has left: it has a name that nobody resumes from. */
static bool sweep(const char *path)
{
    DIR *d = opendir(path);
    char why[WHY_BYTES];
    bool fine = true;
    if (!d) return unusable(path, strerror(errno));
    for (struct dirent *e = readdir(d); e && fine; e = readdir(d)) {
        struct saved s;
        const char *ending;
        if (!name_read(e->d_name, &s, &ending) || !is_leftover(ending)) continue;
        if (is_left_alone(path, e->d_name)) continue;
        fine = folder_remove(path, e->d_name, why) || fail_note("%s", why);
    }
    closedir(d);
    return fine;
}

static bool has_file(const char *path, const char *name)
{
    char file[PATH_BYTES];
    struct stat s;
    return join(file, path, name) && stat(file, &s) == 0 && S_ISREG(s.st_mode);
}

/* A checkpoint itself, or a model: a run that began there would begin anew, and be taken for one
 * that goes on. */
static bool is_for_checkpoints(const char *path)
{
    if (has_file(path, MANIFEST_NAME))
        return unusable(path, "is a checkpoint itself: name the folder that it lies in, and "
                              "--resume=STEP picks one of several");
    if (has_file(path, "config.json"))
        return unusable(path, "is a model (it has a config.json): init.from begins a run with its "
                              "weights; checkpoints take a folder of their own");
    return true;
}

bool folder_open(const char *path, uint64_t *mark)
{
    struct stat s;
    if (lstat(path, &s) != 0 && errno == ENOENT && !make_folders(path)) return false;
    return is_usable(path) && is_for_checkpoints(path) && lock_begin(path, mark) && sweep(path);
}

bool folder_check(const char *path, uint64_t mark)
{
    char file[PATH_BYTES], text[256] = "", want[64], who[128];
    if (!is_usable(path)) return false;
    int fd = join(file, path, LOCK_NAME) ? open(file, O_RDONLY | O_CLOEXEC | O_NOFOLLOW) : -1;
    if (fd >= 0) lock_holder(fd, text);
    if (fd >= 0) close(fd);
    snprintf(want, sizeof want, "mark %016" PRIx64, mark);
    return strstr(text, want) != NULL ||
           fail_note("%scheckpoint folder %s is not the one that rank 0 sees: it must be on a disk "
                     "that all hosts share",
                     world_rank_text(who), path);
}

void folder_close(void)
{
    if (lock.fd >= 0) close(lock.fd);
    lock.fd = -1;
}

/* ── what is there ───────────────────────────────────────────────────────────── */

/* Whatever has the name: one that cannot be read is damage, not a save that never ended. */
static bool has_manifest(const char *path, const char *name)
{
    char folder[PATH_BYTES], file[PATH_BYTES];
    struct stat s;
    return join(folder, path, name) && join(file, folder, MANIFEST_NAME) &&
           (lstat(file, &s) == 0 || (errno != ENOENT && errno != ENOTDIR));
}

static int newer_first(const void *a, const void *b)
{
    const struct saved *x = a, *y = b;
    if (x->run != y->run) return x->run > y->run ? -1 : 1;
    return x->step > y->step ? -1 : x->step < y->step;
}

struct saved *folder_list(const char *path, int64_t *n)
{
    struct saved *all = NULL;
    *n = 0;
    for (int pass = 0; pass < 2; pass++) {
        DIR *d = opendir(path);
        int64_t found = 0;
        if (!d) return unusable(path, strerror(errno)), all;
        for (struct dirent *e = readdir(d); e; e = readdir(d)) {
            struct saved s;
            const char *ending;
            if (!name_read(e->d_name, &s, &ending) || *ending) continue;
            s.complete = has_manifest(path, e->d_name);
            if (pass && found < *n) all[found] = s;
            found++;
        }
        closedir(d);
        if (pass == 0) {
            *n = found;
            all = ROOM(struct saved, found + 1);
        } else if (found < *n)
            *n = found;
    }
    qsort(all, (size_t)*n, sizeof *all, newer_first);
    return all;
}

/* ── what changes it ─────────────────────────────────────────────────────────── */

bool folder_sync(const char *path, char why[WHY_BYTES])
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return because(why, "open", path);
    const bool fine = fsync(fd) == 0 || because(why, "fsync", path);
    close(fd);
    return fine;
}

bool folder_begin(const char *path, const char *temporary, char why[WHY_BYTES])
{
    char full[PATH_BYTES];
    if (!lock_hold(path, why)) return false;
    return join(full, path, temporary) && mkdir(full, 0777) == 0 ? true
                                                                 : because(why, "make", full);
}

/* All its files are on the disk already; now their names, then its own. */
bool folder_publish(const char *path, const char *temporary, const char *name, char why[WHY_BYTES])
{
    char from[PATH_BYTES], to[PATH_BYTES];
    if (!join(from, path, temporary) || !join(to, path, name)) return because(why, "name", path);
    if (!folder_sync(from, why)) return false;
    if (rename(from, to) != 0) return because(why, "rename", from);
    return folder_sync(path, why);
}

bool folder_remove(const char *path, const char *name, char why[WHY_BYTES])
{
    char full[PATH_BYTES], file[PATH_BYTES];
    struct stat s;
    if (!join(full, path, name)) return because(why, "name", path);
    /* what a link leads to belongs to another run */
    if (lstat(full, &s) == 0 && S_ISLNK(s.st_mode))
        return unlink(full) == 0 || because(why, "remove", full);
    DIR *d = opendir(full);
    if (!d) return because(why, "open", full);
    bool fine = true;
    for (struct dirent *e = readdir(d); e && fine; e = readdir(d)) {
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
        fine =
            join(file, full, e->d_name) && unlink(file) == 0 ? true : because(why, "remove", file);
    }
    closedir(d);
    if (!fine) return false;
    return rmdir(full) == 0 || because(why, "remove", full);
}

/* Another name first, on the disk before its first file goes: a checkpoint of half its files never
 * has the name of a whole one. */
static bool prune_one(const char *path, const char *name, char why[WHY_BYTES])
{
    char from[PATH_BYTES], to[PATH_BYTES], deleting[2 * CHECKPOINT_NAME];
    snprintf(deleting, sizeof deleting, "%s.deleting", name);
    if (!join(from, path, name) || !join(to, path, deleting)) return because(why, "name", path);
    if (rename(from, to) != 0) return because(why, "rename", from);
    return folder_sync(path, why) && folder_remove(path, deleting, why);
}

/* The highest step of the run below `below` that is complete; -1: none. */
static int64_t next_lower(DIR *d, const char *path, int64_t run, int64_t below)
{
    int64_t best = -1;
    rewinddir(d);
    for (struct dirent *e = readdir(d); e; e = readdir(d)) {
        struct saved s;
        const char *ending;
        if (name_read(e->d_name, &s, &ending) && !*ending && s.run == run && s.step < below &&
            s.step > best && has_manifest(path, e->d_name))
            best = s.step;
    }
    return best;
}

bool folder_prune(const char *path, int64_t run, int64_t step, char why[WHY_BYTES])
{
    const int64_t keep = program.saving.keep, forever = program.saving.keep_every;
    if (keep <= 0) return true;
    DIR *d = opendir(path);
    if (!d) return because(why, "open", path);
    bool fine = true;
    int64_t stays = 0;
    for (int64_t s = next_lower(d, path, run, step + 1); s >= 0 && fine;
         s = next_lower(d, path, run, s)) {
        char name[CHECKPOINT_NAME];
        if (stays++ < keep || (forever > 0 && s % forever == 0)) continue;
        folder_name(&(struct saved){.run = run, .step = s}, name);
        fine = is_left_alone(path, name) || prune_one(path, name, why);
    }
    closedir(d);
    return fine;
}
