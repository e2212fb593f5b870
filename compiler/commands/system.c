/* Calls of the operating system: the folder of the compiler, folders, other programs. Nothing here
 * goes through a shell, so paths may contain blanks and quotes. */
#define _GNU_SOURCE
#include "commands/command.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <spawn.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

const char *command_home(void)
{
    static const char *home;
    if (home) return home;
    char path[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    if (n <= 0) return NULL;
    while (n > 1 && path[n - 1] != '/') n--;
    return home = intern_bytes(path, (size_t)(n > 1 ? n - 1 : n));
}

static void *json_take(size_t bytes) { return take(bytes); }
static void json_keep(void *memory) { (void)memory; }
void json_in_arena(void) { json_set_alloc_funcs(json_take, json_keep); }

static bool make_folders_of(const char *path, mode_t mode)
{
    char *copy = (char *)(uintptr_t)text_format("%s", path);
    for (char *s = copy + 1;; s++) {
        if (*s != '/' && *s) continue;
        char end = *s;
        *s = 0;
        if (mkdir(copy, mode) && errno != EEXIST) return false;
        if (!end) break;
        *s = end;
    }
    struct stat st;
    if (stat(path, &st)) return false;
    if (S_ISDIR(st.st_mode)) return true;
    errno = ENOTDIR;
    return false;
}

bool make_folders(const char *path) { return make_folders_of(path, 0777); }
bool make_private_folders(const char *path) { return make_folders_of(path, 0700); }

bool start_program(char *const *argv, const char *log, int *process)
{
    posix_spawn_file_actions_t actions;
    if (posix_spawn_file_actions_init(&actions)) return false;
    int bad = 0;
    if (log) {
        (void)unlink(log); /* of a build that was killed; never through a link */
        bad |= posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, log,
                                                O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0666);
        bad |= posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
    }
    pid_t pid;
    if (!bad) bad = posix_spawnp(&pid, argv[0], &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (bad) {
        errno = bad;
        return false;
    }
    *process = pid;
    return true;
}

int end_program(int process)
{
    int status;
    while (waitpid(process, &status, 0) < 0)
        if (errno != EINTR) return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Whoever starts planc with a closed stdout would find messages in the files that it writes: the
 * next file that is opened gets its number. */
bool have_standard_files(void)
{
    int file;
    do file = open("/dev/null", O_RDWR);
    while (file >= 0 && file <= STDERR_FILENO);
    return file >= 0 && close(file) == 0;
}

bool is_same_file(const char *a, const char *b)
{
    struct stat x, y;
    return a && b && !stat(a, &x) && !stat(b, &y) && S_ISREG(x.st_mode) && x.st_dev == y.st_dev &&
           x.st_ino == y.st_ino;
}

bool can_write(const char *path)
{
    struct stat there;
    const char *slash = strrchr(path, '/');
    if (stat(path, &there) == 0 && !S_ISREG(there.st_mode)) {
        if (!S_ISDIR(there.st_mode)) return access(path, W_OK) == 0;
        errno = EISDIR;
        return false;
    }
    return access(!slash ? "." : intern_bytes(path, (size_t)(slash - path) + 1), W_OK) == 0;
}

double command_clock(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}
