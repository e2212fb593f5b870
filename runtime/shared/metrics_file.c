/* What stands under the name of --metrics before a run writes there. Steps that a killed run had
 * done after its last checkpoint are done again, so their lines are cut. The lines of another run
 * are somebody's numbers, perhaps the only ones: that file gets another name. */
#define _GNU_SOURCE
#include "metrics_file.h"
#include "output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char begin[] = "{\"step\":";

/* The step that a line is of, {"step":12,… and whole; -1: it is none. */
static int64_t step_of(const char *line, size_t n)
{
    long long step;
    return n > sizeof begin && !strncmp(line, begin, sizeof begin - 1) && line[n - 1] == '\n' &&
                   sscanf(line + sizeof begin - 1, "%lld", &step) == 1
               ? (int64_t)step
               : -1;
}

/* A line of metrics, at most `size` bytes of it; 0: there is none, or it is longer than any of
 * ours. A file of another kind may be one line without end. */
static size_t read_line(FILE *f, char *line, size_t size)
{
    size_t n = 0;
    for (int c; n < size && (c = getc(f)) != EOF;) {
        line[n++] = (char)c;
        if (c == '\n') return n;
    }
    return n < size ? n : 0;
}

/* What of a file stays: bytes of whole lines before step `first`, and the step of the last one. */
struct kept {
    off_t bytes, there;
    int64_t last;
    bool ours;   /* it is a file of metrics, or empty */
    bool longer; /* it begins as one, with a line that is longer than any of this run's */
};

static struct kept look(FILE *f, off_t bytes, int64_t first, char *line, size_t size)
{
    struct kept k = {.there = bytes, .last = -1, .ours = true};
    size_t n;
    while ((n = read_line(f, line, size - 1)) > 0) {
        line[n] = 0;
        if (k.bytes == 0 && strncmp(line, begin, n < sizeof begin ? n : sizeof begin - 1))
            k.ours = false;
        const int64_t step = k.ours ? step_of(line, n) : -1;
        if (step < 0 || step >= first) break;
        k.last = step;
        k.bytes += (off_t)n;
    }
    if (k.bytes == 0 && n == 0 && bytes > 0) {
        k.ours = false;
        k.longer = !strncmp(line, begin, sizeof begin - 1);
    }
    return k;
}

static bool copy(int from, int to, off_t bytes)
{
    char piece[1 << 14];
    for (off_t at = 0; at < bytes;) {
        const size_t wanted =
            bytes - at < (off_t)sizeof piece ? (size_t)(bytes - at) : sizeof piece;
        const ssize_t n = pread(from, piece, wanted, at);
        if (n <= 0) return n < 0 ? false : (errno = EIO, false);
        for (ssize_t done = 0, some; done < n; done += some)
            if ((some = write(to, piece + done, (size_t)(n - done))) < 0) return false;
        at += n;
    }
    return true;
}

/* The file gets a name that nothing has; its first `bytes` are a new file under the old one. */
static bool keep_aside(const char *path, int fd, off_t bytes)
{
    enum { NAMES = 100000 };
    const size_t size = strlen(path) + 16;
    char *name = room((int64_t)size);
    int error = EEXIST;
    for (int i = 1; i < NAMES && error == EEXIST; i++) {
        snprintf(name, size, "%s.%d", path, i);
        /* some file systems cannot refuse to replace: there a look must do */
        error = renameat2(AT_FDCWD, path, AT_FDCWD, name, RENAME_NOREPLACE) ? errno : 0;
        if (error == EINVAL || error == ENOSYS)
            error = faccessat(AT_FDCWD, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0 ? EEXIST
                    : rename(path, name)                                      ? errno
                                                                              : 0;
    }
    if (error)
        return fail_note("--metrics %s: it has the numbers of another run, and cannot be renamed "
                         "to %s: %s",
                         path, name, strerror(error));
    say("metrics: %s had the numbers of another run, which are now in %s", path, name);
    int to = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    const bool fine = to >= 0 && copy(fd, to, bytes);
    const int why = errno;
    if (to >= 0) close(to);
    return fine || fail_note("--metrics %s: %s", path, output_why(why));
}

bool metrics_file_begin(const char *path, int64_t first, bool branches, char *line, size_t size)
{
    struct stat there;
    /* a reader that waits for a pipe to be opened must not be met by this look */
    if (lstat(path, &there) != 0 || !S_ISREG(there.st_mode)) return true;
    const int fd = open(path, O_RDWR | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
    FILE *f = fd >= 0 && fstat(fd, &there) == 0 ? fdopen(fd, "r+") : NULL;
    if (!f) {
        fail_note("--metrics %s: %s", path, output_why(errno));
        if (fd >= 0) close(fd);
        return false;
    }
    struct kept k = look(f, there.st_size, first, line, size);
    bool fine = true;
    k.ours = k.ours || (k.longer && (first == 0 || branches)); /* of another model; kept aside */
    if (!k.ours)
        fail_note("--metrics %s: it is there and holds no metrics: %s", path,
                  first > 0 ? "a resumed run goes on in the file of the run before it"
                            : "nothing is written over it");
    else if ((first == 0 || branches) && k.bytes < k.there)
        fine = keep_aside(path, fd, k.bytes);
    else
        fine =
            ftruncate(fd, k.bytes) == 0 || fail_note("--metrics %s: %s", path, output_why(errno));
    fclose(f);
    if (k.ours && fine && k.last >= 0 && k.last + 1 != first)
        say("warning: --metrics %s: its last step is %lld, and the run goes on with step %lld: the "
            "lines between are missing",
            path, (long long)k.last, (long long)first);
    return fine && k.ours;
}

/* Nothing is lost wherever this is cut off: the file only grows, by one write. */
void metrics_file_extend(const char *path, int64_t step, const char *text, size_t n)
{
    enum { TAIL = 1 << 16 };
    static char tail[TAIL + 1];
    struct stat there;
    const int fd = open(path, O_RDWR | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return;
    if (fstat(fd, &there) == 0 && S_ISREG(there.st_mode) && there.st_size > 2) {
        const off_t from = there.st_size > TAIL ? there.st_size - TAIL : 0;
        const ssize_t got = pread(fd, tail, TAIL, from);
        tail[got < 0 ? 0 : got] = 0;
        if (got > 2 && from + got == there.st_size && !strcmp(tail + got - 2, "}\n")) {
            tail[got - 1] = 0;
            const char *line = strrchr(tail, '\n');
            line = line ? line + 1 : tail;
            tail[got - 1] = '\n';
            if (step_of(line, strlen(line)) == step && !strstr(line, "\"validation_loss\"") &&
                pwrite(fd, text, n, there.st_size - 2) != (ssize_t)n)
                say("warning: --metrics %s: %s", path, output_why(errno));
        }
    }
    close(fd);
}
