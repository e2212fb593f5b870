/* An arena, interned names, text, vectors, whole files. Everything that the compiler allocates is
 * in one chain of chunks that is only ever reset to a mark, so passes own nothing, cannot leak and
 * cannot free too early. Interned strings are outside it, because a name outlives the point of a
 * search that first used it. Chunks that a reset frees are reused: a search of thousands of points
 * asks the system for memory once. */
#define _XOPEN_SOURCE 700
#include "base/base.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ── Arena ───────────────────────────────────────────────────────────────────── */

#define CHUNK_BYTES ((size_t)256 * 1024)
#define ALIGNMENT ((size_t)16)

struct chunk {
    struct chunk *next;
    size_t room;
    _Alignas(16) unsigned char bytes[];
};

static struct chunk *first_chunk, *current_chunk;
static size_t current_used;

static _Noreturn void out_of_memory(size_t bytes)
{
    fprintf(stderr, "planc: out of memory (%zu bytes were asked for)\n", bytes);
    exit(4);
}

static struct chunk *chunk_new(size_t bytes)
{
    size_t room = bytes > CHUNK_BYTES ? bytes : CHUNK_BYTES;
    if (room > SIZE_MAX - sizeof(struct chunk)) out_of_memory(bytes);
    struct chunk *c = malloc(sizeof *c + room);
    if (!c) out_of_memory(bytes);
    c->next = NULL;
    c->room = room;
    return c;
}

/* Makes current_chunk one that has `bytes` left, reusing a later chunk of the chain when it is
 * large enough. */
static void chunk_for(size_t bytes)
{
    struct chunk **link = current_chunk ? &current_chunk->next : &first_chunk;
    if (!*link || (*link)->room < bytes) {
        struct chunk *c = chunk_new(bytes);
        c->next = *link;
        *link = c;
    }
    current_chunk = *link;
    current_used = 0;
}

void *take(size_t bytes)
{
    if (bytes > SIZE_MAX / 2) out_of_memory(bytes);
    bytes = (bytes + (ALIGNMENT - 1)) & ~(ALIGNMENT - 1);
    if (bytes == 0) bytes = ALIGNMENT;
    if (!current_chunk || current_chunk->room - current_used < bytes) chunk_for(bytes);
    void *p = current_chunk->bytes + current_used;
    current_used += bytes;
    return memset(p, 0, bytes);
}

struct arena_mark arena_mark(void) { return (struct arena_mark){current_chunk, current_used}; }

void arena_reset(struct arena_mark mark)
{
    current_chunk = mark.chunk;
    current_used = mark.used;
}

void *vector_grow(void *item, int *room, size_t item_bytes)
{
    if (*room > INT32_MAX / 2) bug("a vector of more than 2^30 items");
    int wanted = *room ? *room * 2 : 8;
    void *grown = take(item_bytes * (size_t)wanted);
    if (*room) memcpy(grown, item, item_bytes * (size_t)*room);
    *room = wanted;
    return grown;
}

/* ── Interned strings: an open-addressed table of pointers into blocks that are never let go
 * ──── */

struct interned {
    uint64_t hash;
    size_t length;
    const char *bytes;
};
struct block {
    struct block *next;
    char bytes[];
};

static struct interned *table;
static size_t table_room, table_used;
static struct block *blocks;
static char *block_free;
static size_t block_left;

static uint64_t hash_bytes(const char *bytes, size_t n)
{
    uint64_t h = 1469598103934665603u;
    for (size_t i = 0; i < n; i++) h = (h ^ (unsigned char)bytes[i]) * 1099511628211u;
    return h ^ (h >> 29);
}

static char *intern_room(size_t bytes)
{
    if (bytes > block_left) {
        size_t room = bytes > 65536 ? bytes : 65536;
        struct block *b = malloc(sizeof *b + room);
        if (!b) out_of_memory(room);
        b->next = blocks;
        blocks = b;
        block_free = b->bytes;
        block_left = room;
    }
    char *p = block_free;
    block_free += bytes;
    block_left -= bytes;
    return p;
}

static void table_grow(void)
{
    size_t room = table_room ? table_room * 2 : 1024;
    struct interned *grown = calloc(room, sizeof *grown);
    if (!grown) out_of_memory(room * sizeof *grown);
    for (size_t i = 0; i < table_room; i++) {
        if (!table[i].bytes) continue;
        size_t slot = table[i].hash & (room - 1);
        while (grown[slot].bytes) slot = (slot + 1) & (room - 1);
        grown[slot] = table[i];
    }
    free(table);
    table = grown;
    table_room = room;
}

const char *intern_bytes(const char *bytes, size_t n)
{
    if (table_used * 2 >= table_room) table_grow();
    uint64_t hash = hash_bytes(bytes, n);
    size_t slot = hash & (table_room - 1);
    for (; table[slot].bytes; slot = (slot + 1) & (table_room - 1))
        if (table[slot].hash == hash && table[slot].length == n &&
            !memcmp(table[slot].bytes, bytes, n))
            return table[slot].bytes;
    char *copy = intern_room(n + 1);
    memcpy(copy, bytes, n);
    copy[n] = 0;
    table[slot] = (struct interned){hash, n, copy};
    table_used++;
    return copy;
}

const char *intern(const char *text) { return intern_bytes(text, strlen(text)); }

const char *intern_format(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const char *text = text_vformat(format, args);
    va_end(args);
    return intern(text);
}

/* ── Text ────────────────────────────────────────────────────────────────────── */

static int format_length(const char *format, va_list args)
{
    va_list again;
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, again);
    va_end(again);
    if (n < 0) bug("a format that vsnprintf refuses: %s", format);
    return n;
}

const char *text_vformat(const char *format, va_list args)
{
    size_t n = (size_t)format_length(format, args);
    char *text = take(n + 1);
    vsnprintf(text, n + 1, format, args);
    return text;
}

const char *text_format(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const char *text = text_vformat(format, args);
    va_end(args);
    return text;
}

static void text_room(struct text *t, size_t more)
{
    size_t wanted = t->length + more + 1;
    if (wanted <= t->room) return;
    size_t room = t->room ? t->room : 256;
    while (room < wanted) room *= 2;
    char *grown = take(room);
    if (t->length) memcpy(grown, t->bytes, t->length);
    t->bytes = grown;
    t->room = room;
}

void text_add_bytes(struct text *t, const char *bytes, size_t n)
{
    text_room(t, n);
    if (n) memcpy(t->bytes + t->length, bytes, n);
    t->length += n;
    t->bytes[t->length] = 0;
}

void text_add(struct text *t, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    size_t n = (size_t)format_length(format, args);
    text_room(t, n);
    vsnprintf(t->bytes + t->length, n + 1, format, args);
    t->length += n;
    va_end(args);
}

bool text_ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && !strcmp(text + n - m, end);
}

const char *text_bytes(int64_t bytes)
{
    static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    if (bytes > -1024 && bytes < 1024) return text_format("%lld B", (long long)bytes);
    double x = (double)bytes;
    size_t i = 0;
    /* what would round to 1024.000 is one of the next */
    while (i + 1 < COUNT_OF(unit) && fabs(x) >= 1023.9995) {
        x /= 1024;
        i++;
    }
    return text_format("%.3f %s", x, unit[i]);
}

const char *text_count(int64_t count)
{
    uint64_t rest = count < 0 ? 0 - (uint64_t)count : (uint64_t)count;
    char digits[32];
    int at = (int)sizeof digits, written = 0;
    digits[--at] = 0;
    do {
        if (written && written % 3 == 0) digits[--at] = ',';
        digits[--at] = (char)('0' + rest % 10);
        rest /= 10;
        written++;
    } while (rest);
    return text_format("%s%s", count < 0 ? "-" : "", digits + at);
}

const char *text_seconds(double seconds)
{
    return seconds >= 1      ? text_format("%.3f s", seconds)
           : seconds >= 1e-3 ? text_format("%.3f ms", seconds * 1e3)
                             : text_format("%.1f us", seconds * 1e6);
}

const char *text_number(double x)
{
    if (x == floor(x) && fabs(x) < 1e15 && !(x == 0 && signbit(x))) return text_format("%.0f", x);
    for (int digits = 1; digits < 17; digits++) {
        char shorter[64];
        snprintf(shorter, sizeof shorter, "%.*g", digits, x);
        if (strtod(shorter, NULL) == x) return text_format("%s", shorter);
    }
    return text_format("%.17g", x);
}

/* ── Files ───────────────────────────────────────────────────────────────────── */

/* Reads what an open file holds; closes it. */
static char *read_all(int file, size_t limit, size_t *bytes)
{
    struct stat st;
    if (fstat(file, &st) < 0) goto failed;
    if (S_ISDIR(st.st_mode)) {
        errno = EISDIR;
        goto failed;
    }
    if (st.st_size > 0 && (size_t)st.st_size > limit) {
        errno = EFBIG;
        goto failed;
    }
    size_t room = st.st_size > 0 ? (size_t)st.st_size + 1 : 65536, used = 0;
    char *buffer = take(room);
    for (;;) {
        if (used + 1 >= room) { /* grew under us, or a pipe whose size is not known */
            char probe;
            ssize_t one = read(file, &probe, 1);
            if (one == 0) break;
            if (one < 0) {
                if (errno == EINTR) continue;
                goto failed;
            }
            if (room > limit) {
                errno = EFBIG;
                goto failed;
            }
            char *grown = take(room * 2);
            memcpy(grown, buffer, used);
            buffer = grown;
            room *= 2;
            buffer[used++] = probe;
            continue;
        }
        ssize_t n = read(file, buffer + used, room - used - 1);
        if (n == 0) break;
        if (n < 0) {
            if (errno == EINTR) continue;
            goto failed;
        }
        used += (size_t)n;
    }
    if (close(file) < 0) return NULL;
    buffer[used] = 0;
    *bytes = used;
    return buffer;
failed:;
    int reason = errno;
    (void)close(file); /* the first failure is the one to report */
    errno = reason;
    return NULL;
}

/* A pipe with a name in a folder; those of /dev/stdin and of a shell's <( ) have none. */
static bool is_named_pipe(const char *path, const struct stat *st)
{
    char *real = S_ISFIFO(st->st_mode) ? realpath(path, NULL) : NULL;
    free(real);
    return real != NULL;
}

/* What is no file gives its bytes once, and a plan is read again for each repair: they are kept. */
static char *read_once(const char *path, int file, size_t *bytes)
{
    static struct {
        const char *path, *bytes;
        size_t n;
    } kept[8];
    size_t k = 0;
    while (k < COUNT_OF(kept) && kept[k].path && strcmp(kept[k].path, path)) k++;
    if (k == COUNT_OF(kept) || !kept[k].path) {
        char *read = read_all(file, TEXT_LIMIT, bytes);
        if (!read || k == COUNT_OF(kept)) return read;
        kept[k].n = *bytes;
        kept[k].bytes = intern_bytes(read, *bytes);
        kept[k].path = intern(path);
    } else
        (void)close(file); /* nothing was written to it */
    *bytes = kept[k].n;
    return memcpy(take(kept[k].n + 1), kept[k].bytes, kept[k].n);
}

/* A file that is open for reading, or -1. Nobody waits for the other end of a pipe. */
static int open_to_read(const char *path, struct stat *st)
{
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0) return -1;
    int flags = fcntl(file, F_GETFL);
    int reason = fstat(file, st) < 0 || flags < 0 || fcntl(file, F_SETFL, flags & ~O_NONBLOCK) < 0
                     ? errno
                 : is_named_pipe(path, st) ? ESPIPE
                                           : 0;
    if (!reason) return file;
    (void)close(file);
    errno = reason;
    return -1;
}

char *text_read(const char *path, size_t *bytes)
{
    struct stat st;
    int file = open_to_read(path, &st);
    if (file < 0) return NULL;
    return S_ISREG(st.st_mode) ? read_all(file, TEXT_LIMIT, bytes) : read_once(path, file, bytes);
}

char *file_read(const char *path, size_t *bytes)
{
    const size_t most = (size_t)4 << 30;
    struct stat st;
    int file = open_to_read(path, &st);
    /* what is no file may have no end */
    return file < 0 ? NULL : read_all(file, S_ISREG(st.st_mode) ? most : TEXT_LIMIT, bytes);
}

const char *file_read_why(int error)
{
    return error == EFBIG ? "it is larger than planc reads at once" : text_read_why(error);
}

const char *text_read_why(int error)
{
    return error == EFBIG ? text_format("more than %d MiB, the limit for a text", TEXT_LIMIT >> 20)
           : error == ESPIPE ? "it is a named pipe, and planc reads files"
                             : strerror(error);
}

static bool file_holds(const char *path, const char *bytes, size_t n)
{
    struct stat st;
    if (lstat(path, &st) < 0 || !S_ISREG(st.st_mode) || (size_t)st.st_size != n) return false;
    size_t have;
    struct arena_mark mark = arena_mark();
    char *old = file_read(path, &have);
    bool same = old && have == n && !memcmp(old, bytes, n);
    arena_reset(mark);
    return same;
}

static bool write_all(int file, const char *bytes, size_t n)
{
    for (size_t done = 0; done < n;) {
        ssize_t wrote = write(file, bytes + done, n - done);
        if (wrote < 0) {
            if (errno == EINTR) continue;
            return false;
        }
        done += (size_t)wrote;
    }
    return true;
}

/* What is no plain file (/dev/null, a pipe) is written into: a rename would put a file in its
 * place. A link is replaced, and never written through, except those of /dev, such as /dev/stdout.
 */
static bool is_replaced(const char *path, bool *refused)
{
    struct stat named, meant;
    *refused = false;
    if (lstat(path, &named) != 0 || S_ISREG(named.st_mode)) return true;
    if (!S_ISLNK(named.st_mode)) return false;
    if (stat(path, &meant) != 0 || S_ISREG(meant.st_mode)) return strncmp(path, "/dev/", 5) != 0;
    *refused = strncmp(path, "/dev/", 5) != 0;
    return false;
}

/* A name that nobody else has; what a process that had our number left there goes. */
static int open_temporary(const char *path)
{
    const int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    int file = open(path, flags, 0666);
    if (file < 0 && errno == EEXIST && unlink(path) == 0) file = open(path, flags, 0666);
    return file;
}

static bool write_file(const char *path, const char *bytes, size_t n, bool durable)
{
    bool refused, replaced = is_replaced(path, &refused);
    if (refused) {
        errno = ELOOP;
        return false;
    }
    if (file_holds(path, bytes, n)) return true;
    const char *temporary = replaced ? text_format("%s.%ld.part", path, (long)getpid()) : path;
    /* a pipe that nobody reads: an error, no wait */
    int file = replaced ? open_temporary(temporary) : open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    if (file < 0) return false;
    if (!replaced && fcntl(file, F_SETFL, fcntl(file, F_GETFL) & ~O_NONBLOCK) < 0) {
        (void)close(file);
        return false;
    }
    bool written = write_all(file, bytes, n) && (!durable || !replaced || fsync(file) == 0);
    int reason = errno;
    if (close(file) < 0 && written) {
        written = false;
        reason = errno;
    }
    if (written && replaced && rename(temporary, path) < 0) {
        written = false;
        reason = errno;
    }
    if (!written && replaced) {
        (void)unlink(temporary); /* nothing half-written stays; the reason below is what counts */
    }
    if (!written) errno = reason;
    return written;
}

bool file_write(const char *path, const char *bytes, size_t n)
{
    return write_file(path, bytes, n, false);
}

bool file_write_durable(const char *path, const char *bytes, size_t n)
{
    return write_file(path, bytes, n, true);
}

void bug_at(const char *file, int line, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fflush(stdout);
    fprintf(stderr, "planc: internal failure at %s:%d: ", file, line);
    vfprintf(stderr, format, args);
    fprintf(stderr, "\nThis is a mistake in planc, not in the plan; please report it with the plan "
                    "that shows it.\n");
    va_end(args);
    exit(70);
}
