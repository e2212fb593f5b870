/* Reads and checks safetensors. With a wrong offset in a header other memory would be read as
 * weights, and the run would train on noise. So everything is checked: header length against the
 * file, offsets against each other (no gap, no overlap, nothing past the end), bytes against dtype
 * times shape, the index of a sharded model against its files. Values are read later, piece by
 * piece. */
#define _GNU_SOURCE
#include "formats/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct {
    const char *name;
    int bytes;
    enum st_type type;
} dtypes[] = {{"F32", 4, ST_F32},    {"BF16", 2, ST_BF16},     {"F64", 8, ST_OTHER},
              {"F16", 2, ST_F16},    {"I64", 8, ST_OTHER},     {"U64", 8, ST_OTHER},
              {"I32", 4, ST_OTHER},  {"U32", 4, ST_OTHER},     {"I16", 2, ST_OTHER},
              {"U16", 2, ST_OTHER},  {"I8", 1, ST_OTHER},      {"U8", 1, ST_OTHER},
              {"BOOL", 1, ST_OTHER}, {"F8_E4M3", 1, ST_OTHER}, {"F8_E5M2", 1, ST_OTHER}};

enum { HEADER_LIMIT = 100000000 }; /* the format's own */

void st_shape_text(int rank, const int64_t *dim, char *to, size_t bytes)
{
    size_t n = (size_t)snprintf(to, bytes, "[");
    for (int i = 0; i < rank && n < bytes; i++)
        n += (size_t)snprintf(to + n, bytes - n, "%s%lld", i ? ", " : "", (long long)dim[i]);
    if (n < bytes) snprintf(to + n, bytes - n, "]");
}

/* The words of the last failure. */
static char reason[1024];

const char *st_why(void) { return reason; }

static bool wrong(const char *format, ...) __attribute__((format(printf, 1, 2)));
static bool wrong(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(reason, sizeof reason, format, args);
    va_end(args);
    return false;
}

/* Zeroed memory that st_close gives back; NULL: there is none, which `reason` says. */
struct st_block {
    struct st_block *before;
};
static void *room(struct st_set *set, size_t bytes)
{
    struct st_block *b = calloc(1, sizeof *b + 16 + bytes);
    if (!b) {
        wrong("%s: no memory for %zu bytes", set->path, bytes);
        return NULL;
    }
    b->before = set->blocks;
    set->blocks = b;
    return (char *)b + 16;
}

static char *copy(struct st_set *set, const char *text)
{
    size_t n = strlen(text) + 1;
    char *to = room(set, n);
    return to ? memcpy(to, text, n) : NULL;
}

void st_close(struct st_set *set)
{
    for (int i = 0; i < set->files; i++) close(set->fd[i]);
    for (struct st_block *b = set->blocks, *before; b; b = before) {
        before = b->before;
        free(b);
    }
    *set = (struct st_set){.path = NULL};
}

static bool read_exactly(int fd, void *to, int64_t bytes, int64_t at)
{
    char *p = to;
    while (bytes > 0) {
        ssize_t n = pread(fd, p, (size_t)bytes, (off_t)at);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) {
            if (n == 0) errno = 0;
            return false;
        }
        p += n;
        at += n;
        bytes -= n;
    }
    return true;
}

static const char *why_not_read(void) { return errno ? strerror(errno) : "the file ends too soon"; }

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct st_tensor *)a)->name, ((const struct st_tensor *)b)->name);
}
static int by_place(const void *a, const void *b)
{
    const struct st_tensor *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    /* an empty tensor lies before the one that starts with it */
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

/* One entry of a header; `begin` is relative to the data still. */
static bool entry(struct st_set *set, const char *file, const char *name, json_t *value,
                  struct st_tensor *t)
{
    json_t *dtype = json_object_get(value, "dtype"), *shape = json_object_get(value, "shape"),
           *offsets = json_object_get(value, "data_offsets");
    if (!json_is_object(value) || !json_is_string(dtype) || !json_is_array(shape) ||
        !json_is_array(offsets) || json_array_size(offsets) != 2 || json_object_size(value) != 3)
        return wrong("%s: tensor %s: its entry is not {dtype, shape, data_offsets}", file, name);
    *t = (struct st_tensor){.name = copy(set, name),
                            .file = file,
                            .type = ST_OTHER,
                            .rank = (int)json_array_size(shape)};
    int bytes = 0;
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (!strcmp(json_string_value(dtype), dtypes[i].name)) {
            bytes = dtypes[i].bytes;
            t->type = dtypes[i].type;
            t->dtype = dtypes[i].name;
        }
    if (!t->name) return false;
    /* of a type that is new here only the place can be checked: it may be one that is ignored */
    if (!bytes) t->dtype = copy(set, json_string_value(dtype));
    if (json_array_size(shape) > 8)
        return wrong("%s: tensor %s: %zu dimensions", file, name, json_array_size(shape));
    int64_t total = bytes ? bytes : 1;
    for (int i = 0; i < t->rank; i++) {
        json_t *d = json_array_get(shape, (size_t)i);
        t->dim[i] = json_integer_value(d);
        if (!json_is_integer(d) || t->dim[i] < 0 ||
            __builtin_mul_overflow(total, t->dim[i], &total))
            return wrong("%s: tensor %s: dimension %d is no size", file, name, i);
    }
    json_t *a = json_array_get(offsets, 0), *b = json_array_get(offsets, 1);
    if (!json_is_integer(a) || !json_is_integer(b) || json_integer_value(a) < 0 ||
        json_integer_value(b) < json_integer_value(a))
        return wrong("%s: tensor %s: data_offsets are no stretch", file, name);
    t->begin = json_integer_value(a);
    t->bytes = json_integer_value(b) - t->begin;
    if (bytes && t->bytes != total) {
        char text[128];
        st_shape_text(t->rank, t->dim, text, sizeof text);
        return wrong("%s: tensor %s: %lld bytes for %s %s, which takes %lld", file, name,
                     (long long)t->bytes, t->dtype, text, (long long)total);
    }
    return true;
}

/* Offsets must cover the data once, from 0 to its end. */
static bool covered(const char *file, struct st_tensor *t, int64_t n, int64_t data_bytes)
{
    int64_t reached = 0;
    qsort(t, (size_t)n, sizeof *t, by_place);
    for (int64_t i = 0; i < n; i++) {
        if (t[i].begin != reached)
            return wrong(
                "%s: tensor %s begins at byte %lld of the data, the one before it ends at %lld",
                file, t[i].name, (long long)t[i].begin, (long long)reached);
        if (__builtin_add_overflow(reached, t[i].bytes, &reached) || reached > data_bytes)
            return wrong(
                "%s: truncated: tensor %s ends at byte %lld of the data, the file has %lld", file,
                t[i].name, (long long)reached, (long long)data_bytes);
    }
    if (reached != data_bytes)
        return wrong("%s: %lld bytes of data, its tensors cover %lld", file, (long long)data_bytes,
                     (long long)reached);
    return true;
}

static bool header(const char *file, json_t *root, int fd, int64_t data_at, int64_t data_bytes,
                   struct st_set *set)
{
    const char *name;
    json_t *value;
    if (!json_is_object(root)) return wrong("%s: the header is not a JSON object", file);
    struct st_tensor *t = room(set, ((size_t)set->tensors + json_object_size(root)) * sizeof *t);
    if (!t) return false;
    if (set->tensors) memcpy(t, set->tensor, (size_t)set->tensors * sizeof *t);
    set->tensor = t;
    t += set->tensors;
    int64_t n = 0;
    json_object_foreach(root, name, value)
    {
        if (!strcmp(name, "__metadata__")) {
            if (!json_is_object(value)) return wrong("%s: __metadata__ is not an object", file);
            continue;
        }
        if (!entry(set, file, name, value, &t[n])) return false;
        n++;
    }
    if (!covered(file, t, n, data_bytes)) return false;
    for (int64_t i = 0; i < n; i++) {
        t[i].fd = fd;
        t[i].begin += data_at;
    }
    set->tensors += n;
    return true;
}

static bool open_file(struct st_set *set, const char *path)
{
    struct stat s;
    /* a pipe is refused, nobody waits for its other end */
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return wrong("%s: %s", path, strerror(errno));
    if (set->files == ST_FILES) {
        close(fd);
        return wrong("%s: more than %d files of one model", path, ST_FILES);
    }
    set->fd[set->files++] = fd;
    if (fstat(fd, &s) != 0) return wrong("%s: %s", path, strerror(errno));
    if (!S_ISREG(s.st_mode)) return wrong("%s: it is no file", path);
    unsigned char length[8];
    if (s.st_size < 8 || !read_exactly(fd, length, 8, 0))
        return wrong("%s: %lld bytes is too short for a safetensors file", path,
                     (long long)s.st_size);
    uint64_t n = 0;
    for (int i = 7; i >= 0; i--) n = n << 8 | length[i];
    if (n < 2 || n > HEADER_LIMIT || (int64_t)n > s.st_size - 8)
        return wrong(
            "%s: a header of %llu bytes in a file of %lld: truncated or not a safetensors file",
            path, (unsigned long long)n, (long long)s.st_size);
    char *text = malloc((size_t)n);
    if (!text)
        return wrong("%s: no memory for a header of %llu bytes", path, (unsigned long long)n);
    json_error_t error;
    json_t *root = NULL;
    bool fine;
    if (!read_exactly(fd, text, (int64_t)n, 8))
        fine = wrong("%s: %s", path, why_not_read());
    else if (!(root = json_loadb(text, (size_t)n, JSON_REJECT_DUPLICATES, &error)))
        fine = wrong("%s: the header is not JSON: %s (byte %d)", path, error.text, error.position);
    else
        fine = header(copy(set, path), root, fd, 8 + (int64_t)n,
                      (int64_t)s.st_size - 8 - (int64_t)n, set);
    json_decref(root);
    free(text);
    return fine;
}

/* NULL with an empty error.text: it could not be read, which `reason` says. */
static json_t *load_json(const char *path, json_error_t *error)
{
    struct stat s;
    json_t *root = NULL;
    error->text[0] = 0;
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    bool fine = fd >= 0 && !fstat(fd, &s);
    if (!fine)
        wrong("%s: %s", path, strerror(errno));
    else if (!S_ISREG(s.st_mode) || s.st_size > HEADER_LIMIT)
        wrong("%s: it is no index of tensors", path);
    else {
        char *text = malloc((size_t)s.st_size + 1);
        if (!text)
            wrong("%s: no memory for %lld bytes", path, (long long)s.st_size);
        else if (!read_exactly(fd, text, (int64_t)s.st_size, 0))
            wrong("%s: %s", path, why_not_read());
        else
            root = json_loadb(text, (size_t)s.st_size, JSON_REJECT_DUPLICATES, error);
        free(text);
    }
    if (fd >= 0) close(fd);
    return root;
}

/* An index names the file of every tensor; the files must hold those and no others. */
static bool open_index(struct st_set *set, const char *path)
{
    json_error_t error;
    json_t *root = load_json(path, &error);
    if (!root && !error.text[0]) return false;
    if (!root) return wrong("%s: not JSON: %s (line %d)", path, error.text, error.line);
    json_t *map = json_object_get(root, "weight_map"), *value;
    const char *name;
    bool fine =
        json_is_object(map) && json_object_size(map) > 0 ? true : wrong("%s: no weight_map", path);
    char **files = fine ? room(set, json_object_size(map) * sizeof *files) : NULL;
    fine = fine && files;
    int n = 0;
    if (fine) json_object_foreach(map, name, value)
        {
            const char *file = json_string_value(value);
            if (!file || strchr(file, '/') || !*file) {
                fine = wrong("%s: tensor %s: its file is no file name", path, name);
                break;
            }
            char full[4096];
            const char *slash = strrchr(path, '/');
            snprintf(full, sizeof full, "%.*s%s", slash ? (int)(slash - path + 1) : 0, path, file);
            int known = 0;
            while (known < n && strcmp(files[known], full)) known++;
            if (known == n) {
                files[n++] = copy(set, full);
                if (!(fine = open_file(set, full))) break;
            }
        }
    if (fine) qsort(set->tensor, (size_t)set->tensors, sizeof *set->tensor, by_name);
    for (int64_t i = 0; fine && i < set->tensors; i++) {
        const struct st_tensor *t = &set->tensor[i];
        const char *base = strrchr(t->file, '/') ? strrchr(t->file, '/') + 1 : t->file;
        const char *listed = json_string_value(json_object_get(map, t->name));
        if (i > 0 && !strcmp(t->name, t[-1].name))
            fine = wrong("%s: tensor %s is in %s too", t->file, t->name, t[-1].file);
        else if (!listed || strcmp(listed, base))
            fine =
                wrong("%s: holds tensor %s, which %s does not list there", t->file, t->name, path);
    }
    if (fine)
        json_object_foreach(map, name, value) if (fine && !st_find(set, name)) fine = wrong(
            "%s: lists tensor %s, which %s does not hold", path, name, json_string_value(value));
    json_decref(root);
    return fine;
}

/* A dangling link is an error, and not a missing file. */
static bool dangles(const char *path)
{
    struct stat s;
    return lstat(path, &s) == 0 && stat(path, &s) != 0;
}

static bool open_one(struct st_set *set, const char *path)
{
    if (!open_file(set, path)) return false;
    qsort(set->tensor, (size_t)set->tensors, sizeof *set->tensor, by_name);
    return true;
}

/* As transformers does: model.safetensors when it is there, else the index. */
static bool open_folder(struct st_set *set, const char *path)
{
    static const char *const names[] = {"model.safetensors", "model.safetensors.index.json"};
    char full[PATH_MAX];
    for (int i = 0; i < 2; i++) {
        if (snprintf(full, sizeof full, "%s/%s", path, names[i]) >= (int)sizeof full)
            return wrong("%s: the path is too long", path);
        if (dangles(full)) return wrong("%s: %s", full, strerror(ENOENT));
        if (access(full, F_OK) != 0) continue;
        if (!(set->path = copy(set, full))) return false;
        return i ? open_index(set, set->path) : open_one(set, set->path);
    }
    snprintf(full, sizeof full, "%s/manifest.json", path);
    if (access(full, F_OK) == 0)
        return wrong("%s is a checkpoint: a run goes on from it by --checkpoint-dir and --resume; "
                     "init.from takes a folder with Hugging Face safetensors",
                     path);
    set->none = true;
    return wrong("%s: neither model.safetensors nor model.safetensors.index.json in it", path);
}

bool st_open(struct st_set *set, const char *path)
{
    struct stat s;
    *set = (struct st_set){.path = path};
    reason[0] = 0;
    if (stat(path, &s) != 0) return wrong("%s: %s", path, strerror(errno));
    if (S_ISDIR(s.st_mode)) return open_folder(set, path);
    size_t n = strlen(path);
    return n > 5 && !strcmp(path + n - 5, ".json") ? open_index(set, path) : open_one(set, path);
}

struct st_tensor *st_find(struct st_set *set, const char *name)
{
    struct st_tensor key = {.name = name};
    return set->tensors ? bsearch(&key, set->tensor, (size_t)set->tensors, sizeof key, by_name)
                        : NULL;
}

/* IEEE half: 1 sign, 5 exponent, 10 fraction bits. */
static float half_value(uint16_t half)
{
    uint32_t sign = (uint32_t)(half >> 15) << 31, exponent = half >> 10 & 31,
             fraction = half & 1023;
    uint32_t bits = exponent == 31 ? 0x7F800000u | fraction << 13
                    : exponent     ? (exponent + 112) << 23 | fraction << 13
                                   : 0;
    float value;
    bits |= sign;
    memcpy(&value, &bits, sizeof value);
    if (exponent == 0) value = (sign ? -1.0f : 1.0f) * (float)fraction * 0x1p-24f;
    return value;
}

bool st_read(const struct st_tensor *t, int64_t element, int64_t n, float *to)
{
    int64_t bytes = t->type == ST_F32 ? 4 : 2;
    /* Halves go to the upper half of the room and are widened upwards: no value is overwritten
     * before it is read. */
    char *raw = (char *)to + (4 - bytes) * n;
    if (!read_exactly(t->fd, raw, bytes * n, t->begin + bytes * element))
        return wrong("%s: tensor %s: %s", t->file, t->name, why_not_read());
    for (int64_t i = 0; bytes == 2 && i < n; i++) {
        uint16_t half;
        memcpy(&half, raw + 2 * i, 2);
        float value = half_value(half);
        uint32_t whole = (uint32_t)half << 16;
        if (t->type == ST_BF16) memcpy(&value, &whole, 4);
        memcpy((char *)to + 4 * i, &value, 4);
    }
    return true;
}

static bool same_values(const struct st_tensor *a, const struct st_tensor *b, int64_t from,
                        int64_t to)
{
    enum { SOME = 1 << 14 };
    static float x[SOME], y[SOME];
    for (int64_t n; from < to; from += n) {
        n = to - from < SOME ? to - from : SOME;
        if (!st_read(a, from, n, x) || !st_read(b, from, n, y)) return false;
        if (memcmp(x, y, (size_t)n * sizeof *x) != 0) return false;
    }
    return true;
}

bool st_is_copy(const struct st_set *set, const struct st_tensor *t, int64_t part, int64_t parts)
{
    int64_t n = 1;
    for (int i = 0; i < t->rank; i++) n *= t->dim[i];
    const int64_t each = n / parts + 1, from = part * each < n ? part * each : n,
                  to = from + each < n ? from + each : n;
    for (int64_t i = 0; i < set->tensors; i++) {
        const struct st_tensor *o = &set->tensor[i];
        bool same = o->used && o->rank == t->rank && o->type != ST_OTHER && t->type != ST_OTHER;
        for (int k = 0; same && k < t->rank; k++) same = o->dim[k] == t->dim[k];
        if (same && same_values(o, t, from, to)) return true;
    }
    return false;
}

/* One letter of the pattern, or a number; false: the name has something else. */
static bool step(const char **pattern, const char **name)
{
    const char *from = *name;
    if (!**pattern || !**name) return false;
    if (strncmp(*pattern, "{i}", 3) && strncmp(*pattern, "{e}", 3))
        return *(*pattern)++ == *(*name)++;
    while (**name >= '0' && **name <= '9') ++*name;
    *pattern += 3;
    return *name > from;
}

/* What a * before the last one stood for never has to be longer, so only that one is tried again.
 */
bool st_matches(const char *pattern, const char *name)
{
    const char *star = NULL, *from = NULL;
    while (*pattern || *name) {
        if (*pattern == '*') {
            star = ++pattern;
            from = name;
        } else if (!step(&pattern, &name)) {
            if (!star || !*from) return false;
            name = ++from;
            pattern = star;
        }
    }
    return true;
}
