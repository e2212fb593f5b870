/* Reads and checks safetensors. With a wrong offset in a header other memory would be read as
 * weights, and the run would train on noise. So everything is checked: header length against the
 * file, offsets against each other (no gap, no overlap, nothing past the end), bytes against dtype
 * times shape, the index of a sharded model against its files. Values are read later, piece by
 * piece. */
#define _GNU_SOURCE
#include "trainer.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
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
              {"F16", 2, ST_OTHER},  {"I64", 8, ST_OTHER},     {"U64", 8, ST_OTHER},
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

static char *copy(const char *text)
{
    size_t n = strlen(text) + 1;
    return memcpy(room((int64_t)n), text, n);
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
static bool entry(const char *file, const char *name, json_t *value, struct st_tensor *t)
{
    json_t *dtype = json_object_get(value, "dtype"), *shape = json_object_get(value, "shape"),
           *offsets = json_object_get(value, "data_offsets");
    if (!json_is_object(value) || !json_is_string(dtype) || !json_is_array(shape) ||
        !json_is_array(offsets) || json_array_size(offsets) != 2 || json_object_size(value) != 3)
        return fail_note("%s: tensor %s: its entry is not {dtype, shape, data_offsets}", file,
                         name);
    *t = (struct st_tensor){.name = copy(name), .file = file, .rank = (int)json_array_size(shape)};
    int bytes = 0;
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (!strcmp(json_string_value(dtype), dtypes[i].name)) {
            bytes = dtypes[i].bytes;
            t->type = dtypes[i].type;
            t->dtype = dtypes[i].name;
        }
    if (!bytes)
        return fail_note("%s: tensor %s: unknown dtype %s", file, name, json_string_value(dtype));
    if (json_array_size(shape) > 8)
        return fail_note("%s: tensor %s: %zu dimensions", file, name, json_array_size(shape));
    int64_t total = bytes;
    for (int i = 0; i < t->rank; i++) {
        json_t *d = json_array_get(shape, (size_t)i);
        t->dim[i] = json_integer_value(d);
        if (!json_is_integer(d) || t->dim[i] < 0 ||
            __builtin_mul_overflow(total, t->dim[i], &total))
            return fail_note("%s: tensor %s: dimension %d is no size", file, name, i);
    }
    json_t *a = json_array_get(offsets, 0), *b = json_array_get(offsets, 1);
    if (!json_is_integer(a) || !json_is_integer(b) || json_integer_value(a) < 0 ||
        json_integer_value(b) < json_integer_value(a))
        return fail_note("%s: tensor %s: data_offsets are no stretch", file, name);
    t->begin = json_integer_value(a);
    t->bytes = json_integer_value(b) - t->begin;
    if (t->bytes != total) {
        char text[128];
        st_shape_text(t->rank, t->dim, text, sizeof text);
        return fail_note("%s: tensor %s: %lld bytes for %s %s, which takes %lld", file, name,
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
            return fail_note(
                "%s: tensor %s begins at byte %lld of the data, the one before it ends at %lld",
                file, t[i].name, (long long)t[i].begin, (long long)reached);
        reached += t[i].bytes;
        if (reached > data_bytes)
            return fail_note(
                "%s: truncated: tensor %s ends at byte %lld of the data, the file has %lld", file,
                t[i].name, (long long)reached, (long long)data_bytes);
    }
    if (reached != data_bytes)
        return fail_note("%s: %lld bytes of data, its tensors cover %lld", file,
                         (long long)data_bytes, (long long)reached);
    return true;
}

static bool header(const char *file, json_t *root, int fd, int64_t data_at, int64_t data_bytes,
                   struct st_set *set)
{
    const char *name;
    json_t *value;
    if (!json_is_object(root)) return fail_note("%s: the header is not a JSON object", file);
    struct st_tensor *t =
        room((int64_t)(((size_t)set->tensors + json_object_size(root)) * sizeof *t));
    if (set->tensors) memcpy(t, set->tensor, (size_t)set->tensors * sizeof *t);
    set->tensor = t;
    t += set->tensors;
    int64_t n = 0;
    json_object_foreach(root, name, value)
    {
        if (!strcmp(name, "__metadata__")) {
            if (!json_is_object(value)) return fail_note("%s: __metadata__ is not an object", file);
            continue;
        }
        if (!entry(file, name, value, &t[n])) return false;
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
    if (fd < 0 || fstat(fd, &s) != 0) return fail_note("%s: %s", path, strerror(errno));
    unsigned char length[8];
    if (s.st_size < 8 || !read_exactly(fd, length, 8, 0))
        return fail_note("%s: %lld bytes is too short for a safetensors file", path,
                         (long long)s.st_size);
    uint64_t n = 0;
    for (int i = 7; i >= 0; i--) n = n << 8 | length[i];
    if (n < 2 || n > HEADER_LIMIT || (int64_t)n > s.st_size - 8)
        return fail_note(
            "%s: a header of %llu bytes in a file of %lld: truncated or not a safetensors file",
            path, (unsigned long long)n, (long long)s.st_size);
    char *text = malloc((size_t)n);
    if (!text)
        return fail_note("%s: no memory for a header of %llu bytes", path, (unsigned long long)n);
    json_error_t error;
    json_t *root = NULL;
    bool fine;
    if (!read_exactly(fd, text, (int64_t)n, 8))
        fine = fail_note("%s: %s", path, why_not_read());
    else if (!(root = json_loadb(text, (size_t)n, JSON_REJECT_DUPLICATES, &error)))
        fine =
            fail_note("%s: the header is not JSON: %s (byte %d)", path, error.text, error.position);
    else
        fine =
            header(copy(path), root, fd, 8 + (int64_t)n, (int64_t)s.st_size - 8 - (int64_t)n, set);
    json_decref(root);
    free(text);
    return fine;
}

/* An index names the file of every tensor; the files must hold those and no others. */
static bool open_index(struct st_set *set, const char *path)
{
    json_error_t error;
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    if (!root) return fail_note("%s: not JSON: %s (line %d)", path, error.text, error.line);
    json_t *map = json_object_get(root, "weight_map"), *value;
    const char *name;
    bool fine = json_is_object(map) && json_object_size(map) > 0
                    ? true
                    : fail_note("%s: no weight_map", path);
    char **files = fine ? room((int64_t)(json_object_size(map) * sizeof *files)) : NULL;
    int n = 0;
    if (fine) json_object_foreach(map, name, value)
        {
            const char *file = json_string_value(value);
            if (!file || strchr(file, '/') || !*file) {
                fine = fail_note("%s: tensor %s: its file is no file name", path, name);
                break;
            }
            char full[4096];
            const char *slash = strrchr(path, '/');
            snprintf(full, sizeof full, "%.*s%s", slash ? (int)(slash - path + 1) : 0, path, file);
            int known = 0;
            while (known < n && strcmp(files[known], full)) known++;
            if (known == n) {
                files[n++] = copy(full);
                if (!(fine = open_file(set, full))) break;
            }
        }
    if (fine) qsort(set->tensor, (size_t)set->tensors, sizeof *set->tensor, by_name);
    for (int64_t i = 0; fine && i < set->tensors; i++) {
        const struct st_tensor *t = &set->tensor[i];
        const char *base = strrchr(t->file, '/') ? strrchr(t->file, '/') + 1 : t->file;
        const char *listed = json_string_value(json_object_get(map, t->name));
        if (i > 0 && !strcmp(t->name, t[-1].name))
            fine = fail_note("%s: tensor %s is in %s too", t->file, t->name, t[-1].file);
        else if (!listed || strcmp(listed, base))
            fine = fail_note("%s: holds tensor %s, which %s does not list there", t->file, t->name,
                             path);
    }
    if (fine)
        json_object_foreach(map, name, value) if (fine && !st_find(set, name)) fine = fail_note(
            "%s: lists tensor %s, which %s does not hold", path, name, json_string_value(value));
    json_decref(root);
    return fine;
}

bool st_open(struct st_set *set, const char *path)
{
    struct stat s;
    *set = (struct st_set){.path = path};
    if (stat(path, &s) != 0) return fail_note("%s: %s", path, strerror(errno));
    size_t n = strlen(path);
    if (!S_ISDIR(s.st_mode)) {
        if (n > 5 && !strcmp(path + n - 5, ".json")) return open_index(set, path);
        if (!open_file(set, path)) return false;
        qsort(set->tensor, (size_t)set->tensors, sizeof *set->tensor, by_name);
        return true;
    }
    char full[4096];
    snprintf(full, sizeof full, "%s/model.safetensors.index.json", path);
    if (access(full, F_OK) == 0) return open_index(set, set->path = copy(full));
    snprintf(full, sizeof full, "%s/manifest.json", path);
    const bool checkpoint = access(full, F_OK) == 0;
    snprintf(full, sizeof full, "%s/model.safetensors", path);
    if (checkpoint && access(full, F_OK) != 0)
        return fail_note(
            "%s is a checkpoint: a run goes on from it by --checkpoint-dir and --resume; "
            "init.from takes a folder with Hugging Face safetensors",
            path);
    if (access(full, F_OK) != 0)
        return fail_note("%s: neither model.safetensors nor model.safetensors.index.json in it",
                         path);
    if (!open_file(set, set->path = copy(full))) return false;
    qsort(set->tensor, (size_t)set->tensors, sizeof *set->tensor, by_name);
    return true;
}

struct st_tensor *st_find(struct st_set *set, const char *name)
{
    struct st_tensor key = {.name = name};
    return set->tensors ? bsearch(&key, set->tensor, (size_t)set->tensors, sizeof key, by_name)
                        : NULL;
}

bool st_read(const struct st_tensor *t, int64_t element, int64_t n, float *to)
{
    int64_t bytes = t->type == ST_BF16 ? 2 : 4;
    /* BF16 goes to the upper half of the room and is widened upwards: no value is overwritten
     * before it is read. */
    char *raw = (char *)to + (4 - bytes) * n;
    if (!read_exactly(t->fd, raw, bytes * n, t->begin + bytes * element))
        return fail_note("%s: tensor %s: %s", t->file, t->name, why_not_read());
    for (int64_t i = 0; bytes == 2 && i < n; i++) {
        uint16_t half;
        memcpy(&half, raw + 2 * i, 2);
        uint32_t whole = (uint32_t)half << 16;
        memcpy((char *)to + 4 * i, &whole, 4);
    }
    return true;
}
