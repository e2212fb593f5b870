/* A build names its intermediate files after its process (.schedule.4711.o, .trainer.4711,
 * HASH.o.4711.part) and removes them when it ends, unless it is killed. Nobody else may have files
 * with such names in a folder that a compiler writes, and they would stay for ever. So would what
 * an export or a packing of data leaves beside its result. */
#define _GNU_SOURCE
#include "commands/build_sweep.h"
#include "base/base.h"

#include <dirent.h>
#include <fcntl.h>
#include <glob.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { HOUR = 3600 };

/* The number of a process at `text`, and what follows it; NULL: there is none. */
static const char *behind_number(const char *text)
{
    size_t n = strspn(text, "0123456789");
    return n ? text + n : NULL;
}

/* "schedule.c.4711.part" */
static bool is_part(const char *name)
{
    if (!text_ends_with(name, ".part")) return false;
    const char *dot = name + strlen(name) - strlen(".part");
    while (dot > name && dot[-1] >= '0' && dot[-1] <= '9') dot--;
    return dot > name && dot[-1] == '.' && *dot != '.';
}

/* ".kernels.4711.o", ".kernels.4711.o.log", ".trainer.4711", ".target.4711" */
static bool is_intermediate(const char *name)
{
    static const char *const kind[] = {"kernels", "schedule", "program",   "launch",
                                       "trainer", "target",   "arguments", "reference"};
    for (size_t i = 0; i < COUNT_OF(kind); i++) {
        const size_t n = strlen(kind[i]);
        if (name[0] != '.' || strncmp(name + 1, kind[i], n) != 0 || name[n + 1] != '.') continue;
        const char *rest = behind_number(name + n + 2);
        if (rest &&
            (!*rest || !strcmp(rest, ".o") || !strcmp(rest, ".o.log") || !strcmp(rest, ".log")))
            return true;
    }
    return false;
}

static void sweep(const char *directory, int least_age)
{
    DIR *d = opendir(directory);
    if (!d) return;
    VECTOR(const char *) old = {0};
    for (struct dirent *e = readdir(d); e; e = readdir(d)) {
        struct stat st;
        if (!is_part(e->d_name) && !is_intermediate(e->d_name)) continue;
        if (fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0 || S_ISDIR(st.st_mode) ||
            time(NULL) - st.st_mtime < least_age)
            continue;
        PUSH(&old, text_format("%s/%s", directory, e->d_name));
    }
    closedir(d);
    for (int i = 0; i < old.n; i++) (void)unlink(old.item[i]); /* another build's turn */
}

void sweep_beside(const char *path, const char *ending, void (*folder)(const char *path))
{
    struct text pattern = {0};
    glob_t found = {0};
    for (const char *c = path; *c; c++)
        text_add(&pattern, "%s%c", strchr("*?[\\", *c) ? "\\" : "", *c);
    text_add(&pattern, ".*%s", ending);
    if (glob(pattern.bytes, 0, NULL, &found) == 0)
        for (size_t i = 0; i < found.gl_pathc; i++) {
            const char *left = found.gl_pathv[i], *rest = behind_number(left + strlen(path) + 1);
            struct stat s;
            int fd = open(left, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
            if (fd >= 0 && rest && !strcmp(rest, ending) && fstat(fd, &s) == 0 &&
                (folder ? S_ISDIR(s.st_mode) : S_ISREG(s.st_mode)) &&
                flock(fd, LOCK_EX | LOCK_NB) == 0) {
                if (folder)
                    folder(left);
                else
                    (void)unlink(left);
            }
            if (fd >= 0) close(fd);
        }
    globfree(&found);
}

void sweep_folder(const char *directory) { sweep(directory, 0); }
void sweep_cache(const char *directory) { sweep(directory, HOUR); }
