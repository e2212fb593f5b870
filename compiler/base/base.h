/* What every file of the compiler uses: memory that is never freed one piece at a time, names that
 * are compared by address, growing text, and vectors. The arena owns everything; a compiler run, or
 * one point of a search (between arena_mark and arena_reset), frees it at once. Nothing here knows
 * about plans or graphs. */
#ifndef PLANC_BASE_H
#define PLANC_BASE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define COUNT_OF(a) (sizeof(a) / sizeof((a)[0]))
/* The next multiple of `step`. */
static inline int64_t round_up(int64_t n, int64_t step) { return (n + step - 1) / step * step; }
/* Counts and bytes are int64_t; "%ld" prints one without a cast, which holds on 64-bit Linux. */
_Static_assert(_Generic((int64_t)0, long : 1, default : 0), "int64_t is not long");

#define PRINTF_LIKE(f, a) __attribute__((format(printf, f, a)))

/* Zeroed memory, aligned for any type; never NULL (out of memory ends the program with status
 * 4). */
void *take(size_t bytes);
#define TAKE(type) ((type *)take(sizeof(type)))
#define TAKE_MANY(type, n) ((type *)take(sizeof(type) * (size_t)(n)))

/* Everything taken after a mark is freed by the reset to it. Interned strings stay. */
struct arena_mark {
    void *chunk;
    size_t used;
};
struct arena_mark arena_mark(void);
void arena_reset(struct arena_mark mark);

/* One address for one spelling: equal strings are equal pointers, for the whole process. */
const char *intern(const char *text);
const char *intern_bytes(const char *bytes, size_t n);
const char *intern_format(const char *format, ...) PRINTF_LIKE(1, 2);

/* A new string in the arena. */
const char *text_format(const char *format, ...) PRINTF_LIKE(1, 2);
const char *text_vformat(const char *format, va_list args);

/* Text under construction; `bytes` is always NUL-terminated once something was written. */
struct text {
    char *bytes;
    size_t length, room;
};
void text_add(struct text *t, const char *format, ...) PRINTF_LIKE(2, 3);
void text_add_bytes(struct text *t, const char *bytes, size_t n);

/* A growable array: struct { T *item; int n, room; }. PUSH returns nothing; memory is the
 * arena's. */
#define VECTOR(type) \
    struct {         \
        type *item;  \
        int n, room; \
    }
#define PUSH(v, x)                                                                             \
    ((v)->n == (v)->room ? ((v)->item = vector_grow((v)->item, &(v)->room, sizeof *(v)->item)) \
                         : 0,                                                                  \
     (v)->item[(v)->n++] = (x))
void *vector_grow(void *item, int *room, size_t item_bytes);

bool text_ends_with(const char *text, const char *end);
/* Bytes, counts and times as people read them: "1.500 GiB", "8,030,261,248", "1.083 s", "17.888
 * ms", "5.0 us". In the arena. */
const char *text_bytes(int64_t bytes);
const char *text_count(int64_t count);
const char *text_seconds(double seconds);
/* The shortest decimal that reads back as exactly this double: "0.1", "1e-05", "4096". */
const char *text_number(double x);

/* Whole files. read_file: NULL and errno on failure. write_file: false and errno; atomic (a
 * temporary name, then rename); leaves an identical file untouched so that its time stamp
 * stands. file_read takes at most 4 GiB (EFBIG), and nothing from a named pipe (ESPIPE), which
 * would wait for its other end. */
char *file_read(const char *path, size_t *bytes);
const char *file_read_why(int error); /* as strerror, with words for those two */
/* Texts that people write (plans, dumps, configurations) are read by text_read: at most TEXT_LIMIT
 * bytes (EFBIG), and never from a named pipe. */
enum { TEXT_LIMIT = 64 << 20 };
char *text_read(const char *path, size_t *bytes);
const char *text_read_why(int error); /* as strerror, with words for those two */
bool file_write(const char *path, const char *bytes, size_t n);
/* The same, and on the disk before it has its name. */
bool file_write_durable(const char *path, const char *bytes, size_t n);

/* A defect of planc, not an error of the user: prints the place, status 70. */
_Noreturn void bug_at(const char *file, int line, const char *format, ...) PRINTF_LIKE(3, 4);
#define bug(...) bug_at(__FILE__, __LINE__, __VA_ARGS__)

#endif
