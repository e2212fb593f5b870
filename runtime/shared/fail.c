/* Errors and output. Many ranks fail together, and a log with the same line four times, or half of
 * two lines, helps nobody. So a failure is one line that begins with "trainer:", written with one
 * write, by one rank; trainer.h says which rank. This file does not know MPI: world_mpi.c tells it
 * the rank and how to end all ranks (fail_as). */
#define _GNU_SOURCE
#include "trainer.h"

#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LINE_BYTES = 2048 };

static char noted[LINE_BYTES];
static int own_rank;
static void (*end_all)(int status); /* NULL: there is this process only */

/* A diagnosis that cannot be written is lost; there is nobody left to tell. */
static void write_all(int fd, const char *bytes, size_t n)
{
    while (n > 0) {
        ssize_t done = write(fd, bytes, n);
        if (done <= 0) return;
        bytes += done;
        n -= (size_t)done;
    }
}

void fail_as(int rank, void (*end)(int status))
{
    own_rank = rank;
    end_all = end;
}

void fail_end(int status)
{
    if (end_all) end_all(status);
    _exit(status);
}

void fail_print(const char *message)
{
    char line[LINE_BYTES + 16];
    int n = snprintf(line, sizeof line, "trainer: %s", message);
    size_t length = n < 0 ? 0 : (size_t)n < sizeof line - 1 ? (size_t)n : sizeof line - 2;
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)line[i] < 0x20 || line[i] == 0x7F) line[i] = ' ';
    line[length] = '\n';
    write_all(STDERR_FILENO, line, length + 1);
    /* launchers talk after this; `planc run` says it once more, last */
    const char *again = getenv("PLANC_FAILURE");
    int fd = again ? open(again, O_WRONLY | O_APPEND | O_NOFOLLOW | O_CLOEXEC) : -1;
    if (fd < 0) return;
    write_all(fd, line, length + 1);
    close(fd);
}

bool fail_note(const char *format, ...)
{
    if (!noted[0]) {
        va_list args;
        va_start(args, format);
        vsnprintf(noted, sizeof noted, format, args);
        va_end(args);
    }
    return false;
}

const char *fail_noted(void) { return noted[0] ? noted : NULL; }

void fail_now(const char *format, ...)
{
    char message[LINE_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    if (position_claim()) fail_print(message);
    fail_end(STATUS_ENVIRONMENT);
}

/* ── stdout ──────────────────────────────────────────────────────────────────── */

static struct {
    _Atomic bool hold, released; /* released: for good */
    bool unread;                 /* a line was lost: the others are, too */
    size_t used;
    char kept[SAY_HELD_BYTES];
} said;

enum { LOOK_MILLISECONDS = 50, UNREAD_MILLISECONDS = 5000 };

void say_hold(void) { atomic_store(&said.hold, true); }

static bool holding(void) { return atomic_load(&said.hold) && !atomic_load(&said.released); }

static bool writable(void)
{
    struct pollfd p = {.fd = STDOUT_FILENO, .events = POLLOUT};
    return poll(&p, 1, LOOK_MILLISECONDS) != 0; /* an error is write()'s to find */
}

/* A line is shorter than PIPE_BUF, so a pipe that takes any takes all of it. */
static void put_line(const char *line, size_t n)
{
    for (int waited = 0; !holding() && !said.unread; waited += LOOK_MILLISECONDS) {
        if (writable()) {
            write_all(STDOUT_FILENO, line, n);
            return;
        }
        said.unread = atomic_load(&said.hold) && waited >= UNREAD_MILLISECONDS;
    }
    if (holding() && n <= sizeof said.kept - said.used) {
        memcpy(said.kept + said.used, line, n);
        said.used += n;
    }
}

void say_release(void)
{
    atomic_store(&said.released, true);
    for (size_t from = 0, to; from < said.used; from = to) {
        const char *end = memchr(said.kept + from, '\n', said.used - from);
        to = end ? (size_t)(end - said.kept) + 1 : said.used;
        put_line(said.kept + from, to - from);
    }
    said.used = 0;
}

void say_piece(const char *text, size_t n)
{
    if (own_rank == 0) put_line(text, n);
}

void say_draw(const char *text)
{
    char line[LINE_BYTES];
    int n = snprintf(line, sizeof line, "\r\033[K%s", text);
    if (n > 0 && (size_t)n < sizeof line && !holding()) put_line(line, (size_t)n);
}

void say(const char *format, ...)
{
    if (own_rank != 0) return;
    char line[LINE_BYTES];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(line, sizeof line - 1, format, args);
    va_end(args);
    if (n < 0) return;
    size_t length = (size_t)n < sizeof line - 2 ? (size_t)n : sizeof line - 2;
    line[length] = '\n';
    put_line(line, length + 1);
}

/* Blocks are chained, so that leak checkers do not report memory that lives as long as the run, and
 * so that it is counted. */
struct block {
    struct block *before;
    int64_t bytes;
};
static struct block *blocks;

void *room(int64_t bytes)
{
    struct block *b = bytes < 0 ? NULL : calloc(1, sizeof *b + (size_t)bytes);
    if (!b) fail_now("rank %d: no memory for %lld bytes", own_rank, (long long)bytes);
    *b = (struct block){blocks, bytes};
    blocks = b;
    return b + 1;
}

int64_t room_bytes(void)
{
    int64_t sum = 0;
    for (const struct block *b = blocks; b; b = b->before) sum += b->bytes;
    return sum;
}

double clock_seconds(void)
{
    struct timespec t;
    if (clock_gettime(CLOCK_MONOTONIC, &t) != 0) return 0;
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

const char *count_text(int64_t n, char text[32])
{
    char digits[24];
    snprintf(digits, sizeof digits, "%lld", (long long)n);
    size_t length = strlen(digits), to = 0;
    for (size_t i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0 && digits[i - 1] != '-') text[to++] = ',';
        text[to++] = digits[i];
    }
    text[to] = 0;
    return text;
}
