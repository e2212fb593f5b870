/* Tensors from the parts of a checkpoint, or from one safetensors file, into the files of a Hugging
 * Face folder. A model may be larger than this machine's memory, so elements pass through one
 * buffer. Files are flushed to the disk before export gives the folder its name. */
#define _GNU_SOURCE
#define XXH_INLINE_ALL
#include "commands/export.h"

#include "base/escape.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <xxhash.h>

enum { BUFFER_BYTES = 8 << 20, RANK = 4 };

/* ── sources ─────────────────────────────────────────────────────────────────── */

/* As many files open at a time as ranks may have written. */
static void allow_files(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit)) return;
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
}

/* They are opened at once and stay open: a run that goes on may delete them meanwhile. */
static const char *open_file(struct weight_source *w, const char *path, const char *hash)
{
    struct stat st;
    struct weight_file f = {.path = path, .hash = hash};
    f.fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (f.fd < 0) return text_format("cannot read '%s': %s", path, strerror(errno));
    f.bytes = fstat(f.fd, &st) ? -1 : st.st_size;
    PUSH(&w->file, f);
    return f.bytes >= 0 && S_ISREG(st.st_mode) ? NULL : text_format("'%s' is no file", path);
}

void source_close(struct weight_source *w)
{
    for (int i = 0; i < w->file.n; i++) close(w->file.item[i].fd);
    w->file.n = 0;
}

/* The product of a shape; -1: it is none. */
static int64_t elements_of(const json_t *shape)
{
    int64_t n = 1;
    if (!json_is_array(shape) || json_array_size(shape) > RANK) return -1;
    for (size_t i = 0; i < json_array_size(shape); i++) {
        const json_t *dim = json_array_get(shape, i);
        if (!json_is_integer(dim) || json_integer_value(dim) < 1 ||
            __builtin_mul_overflow(n, (int64_t)json_integer_value(dim), &n))
            return -1;
    }
    return n;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct st_tensor *)a)->name, ((const struct st_tensor *)b)->name);
}

/* The tensors as if they had been read from the headers of files. */
static void describe(struct weight_source *w, const char *path)
{
    struct st_set *set = TAKE(struct st_set);
    json_t *headers = json_object();
    set->path = path;
    set->tensors = w->tensor.n;
    set->tensor = TAKE_MANY(struct st_tensor, w->tensor.n);
    for (int i = 0; i < w->tensor.n; i++) {
        const struct weight_tensor *t = &w->tensor.item[i];
        struct st_tensor *s = &set->tensor[i];
        json_t *entry = json_object();
        json_object_set(entry, "shape", (json_t *)(uintptr_t)t->shape);
        json_object_set(headers, t->name, entry);
        *s = (struct st_tensor){.name = t->name,
                                .file = path,
                                .dtype = "F32",
                                .fd = -1,
                                .type = ST_F32,
                                .rank = (int)json_array_size(t->shape)};
        for (int k = 0; k < s->rank; k++)
            s->dim[k] = (int64_t)json_integer_value(json_array_get(t->shape, (size_t)k));
        w->elements += t->elements;
    }
    qsort(set->tensor, (size_t)set->tensors, sizeof *set->tensor, by_name);
    w->names = (struct weight_files){set, headers};
}

/* [part, at, element, count] four times over: pieces in order that cover the tensor once. */
static const char *read_segments(struct weight_tensor *t, const json_t *segments,
                                 const json_t *parts)
{
    int64_t next = 0;
    for (size_t i = 0; i < json_array_size(segments); i++) {
        int64_t v[4];
        for (size_t k = 0; k < COUNT_OF(v); k++) {
            const json_t *x = json_array_get(json_array_get(segments, i), k);
            v[k] = json_is_integer(x) ? (int64_t)json_integer_value(x) : -1;
        }
        const json_t *part = v[0] < 0 ? NULL : json_array_get(parts, (size_t)v[0]);
        if (!part || v[1] < 0 || v[2] != next || v[3] < 1 ||
            v[3] > saved_whole(part, "elements") - v[1])
            return text_format("its tensor %s has segments that do not fit each other", t->name);
        PUSH(&t->piece, ((struct weight_piece){
                            .file = (int)v[0],
                            .offset = saved_whole(part, "header_bytes") + 4 * v[1],
                            .element = next,
                            .count = v[3],
                        }));
        next += v[3];
    }
    return next == t->elements ? NULL : text_format("its tensor %s is not all there", t->name);
}

const char *source_of_checkpoint(const struct saved *s, struct weight_source *w)
{
    const json_t *parts = json_object_get(s->manifest, "parts");
    json_t *tensors = json_object_get(s->manifest, "tensors"), *entry;
    const char *name, *why = NULL;
    allow_files();
    for (size_t i = 0; i < json_array_size(parts) && !why; i++) {
        const json_t *part = json_array_get(parts, i);
        const char *hash = json_string_value(json_object_get(part, "hash"));
        if (!hash) return "its manifest has a part without a hash";
        why = open_file(
            w, text_format("%s/%s", s->path, json_string_value(json_object_get(part, "file"))),
            hash);
        if (!why && w->file.item[i].bytes != saved_whole(part, "bytes"))
            why = text_format("'%s' has changed its size", w->file.item[i].path);
    }
    json_object_foreach(tensors, name, entry)
    {
        struct weight_tensor t = {.name = name, .shape = json_object_get(entry, "shape")};
        if (why) break;
        t.elements = elements_of(t.shape);
        if (t.elements < 0) return text_format("its tensor %s has no shape", name);
        why = read_segments(&t, json_object_get(entry, "segments"), parts);
        PUSH(&w->tensor, t);
    }
    if (!why && !w->tensor.n) return "its manifest names no tensors";
    if (!why) describe(w, s->path);
    return why;
}

/* What a trainer writes by --final: F32 tensors. */
const char *source_of_file(const char *path, struct weight_source *w)
{
    struct st_set set = {0};
    const char *why = st_open(&set, path) ? open_file(w, path, NULL) : text_format("%s", st_why());
    for (int64_t i = 0; i < set.tensors && !why; i++) {
        const struct st_tensor *s = &set.tensor[i];
        struct weight_tensor t = {.name = text_format("%s", s->name), .elements = 1};
        json_t *shape = json_array();
        for (int k = 0; k < s->rank; k++) {
            json_array_append(shape, json_integer((json_int_t)s->dim[k]));
            t.elements *= s->dim[k];
        }
        t.shape = shape;
        if (strcmp(s->file, path))
            why = text_format("'%s' is an index: name a file of tensors", path);
        else if (s->type != ST_F32)
            why = text_format("'%s' is stored as %s in '%s'; a trainer's --final has F32", s->name,
                              s->dtype, path);
        PUSH(&t.piece, ((struct weight_piece){0, s->begin, 0, t.elements}));
        PUSH(&w->tensor, t);
    }
    st_close(&set);
    if (!why && !w->tensor.n) why = text_format("'%s' has no tensors", path);
    if (!why) describe(w, path);
    return why;
}

static const char *read_at(const struct weight_file *f, char *to, int64_t n, int64_t from)
{
    while (n > 0) {
        if (export_stopped)
            return text_format("stopped by %s", export_stopped == SIGINT    ? "SIGINT"
                                                : export_stopped == SIGTERM ? "SIGTERM"
                                                                            : "SIGHUP");
        const ssize_t some = pread(f->fd, to, (size_t)n, (off_t)from);
        if (some < 0 && errno == EINTR) continue;
        if (some <= 0)
            return text_format("cannot read '%s': %s", f->path,
                               some ? strerror(errno) : "it has become shorter");
        to += some, from += some, n -= some;
    }
    return NULL;
}

const char *source_verify(const struct weight_source *w)
{
    char *buffer = take(BUFFER_BYTES);
    for (int i = 0; i < w->file.n; i++) {
        const struct weight_file *f = &w->file.item[i];
        XXH3_state_t state;
        if (!f->hash) continue;
        XXH3_64bits_reset(&state);
        for (int64_t at = 0, n; at < f->bytes; at += n) {
            n = f->bytes - at < BUFFER_BYTES ? f->bytes - at : BUFFER_BYTES;
            const char *why = read_at(f, buffer, n, at);
            if (why) return why;
            XXH3_64bits_update(&state, buffer, (size_t)n);
        }
        if (strcmp(f->hash, text_format("%016" PRIx64, XXH3_64bits_digest(&state))))
            return text_format("'%s' is damaged: its bytes do not hash to what the manifest says",
                               f->path);
    }
    return NULL;
}

/* ── files ───────────────────────────────────────────────────────────────────── */

struct shard {
    int from, to; /* tensors */
    int64_t bytes;
};
typedef VECTOR(struct shard) shard_list;

/* The bias of a router moves by less than BF16 can tell apart, so it stays F32. */
static enum element element_of(const struct weight_tensor *t, enum element dtype)
{
    static const char bias[] = "e_score_correction_bias";
    const size_t n = strlen(t->name), length = sizeof bias - 1;
    return n >= length && !strcmp(t->name + n - length, bias) ? F32 : dtype;
}

static int64_t tensor_bytes(const struct weight_tensor *t, enum element dtype)
{
    return t->elements * (element_of(t, dtype) == BF16 ? 2 : 4);
}

static shard_list cut(const struct weight_source *w, enum element dtype, int64_t most)
{
    shard_list all = {0};
    for (int i = 0; i < w->tensor.n; i++) {
        const int64_t bytes = tensor_bytes(&w->tensor.item[i], dtype);
        struct shard *last = all.n ? &all.item[all.n - 1] : NULL;
        if (!last || last->bytes + bytes > most)
            PUSH(&all, ((struct shard){i, i + 1, bytes}));
        else
            last->to = i + 1, last->bytes += bytes;
    }
    return all;
}

static const char *write_all(int fd, const char *path, const char *bytes, int64_t n)
{
    while (n > 0) {
        const ssize_t some = write(fd, bytes, (size_t)n);
        if (some < 0 && errno == EINTR) continue;
        if (some < 0) return text_format("cannot write '%s': %s", path, strerror(errno));
        bytes += some, n -= some;
    }
    return NULL;
}

/* In place: the nearest BF16, ties to even. What is no number stays none. */
static void round_to_bf16(char *buffer, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, buffer + 4 * i, 4);
        const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
        const uint16_t half = nan ? (uint16_t)(bits >> 16 | 0x40)
                                  : (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
        memcpy(buffer + 2 * i, &half, 2);
    }
}

static const char *write_tensor(const struct weight_source *w, const struct weight_tensor *t,
                                enum element dtype, int fd, const char *path, char *buffer)
{
    const char *why = NULL;
    for (int i = 0; i < t->piece.n; i++) {
        const struct weight_piece *p = &t->piece.item[i];
        for (int64_t done = 0, n; done < p->count && !why; done += n) {
            n = p->count - done < BUFFER_BYTES / 4 ? p->count - done : BUFFER_BYTES / 4;
            why = read_at(&w->file.item[p->file], buffer, 4 * n, p->offset + 4 * done);
            if (!why && element_of(t, dtype) == BF16) round_to_bf16(buffer, n);
            if (!why) why = write_all(fd, path, buffer, n * (element_of(t, dtype) == BF16 ? 2 : 4));
        }
    }
    return why;
}

static void shard_header(const struct weight_source *w, const struct shard *s, enum element dtype,
                         struct text *to)
{
    int64_t at = 0;
    text_add(to, "{\"__metadata__\":{\"format\":\"pt\"}");
    for (int i = s->from; i < s->to; i++) {
        const struct weight_tensor *t = &w->tensor.item[i];
        const int64_t end = at + tensor_bytes(t, dtype);
        text_add(to, ",");
        escape_json(to, t->name);
        text_add(to, ":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[%ld,%ld]}",
                 element_of(t, dtype) == BF16 ? "BF16" : "F32",
                 json_dumps(t->shape, JSON_ENCODE_ANY | JSON_COMPACT), at, end);
        at = end;
    }
    text_add(to, "}");
    while (to->length % 8) text_add(to, " ");
}

static const char *write_shard(const struct weight_source *w, const struct shard *s,
                               enum element dtype, const char *path, char *buffer)
{
    struct text header = {0};
    char length[8];
    shard_header(w, s, dtype, &header);
    for (int i = 0; i < 8; i++) length[i] = (char)((uint64_t)header.length >> 8 * i);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) return text_format("cannot write '%s': %s", path, strerror(errno));
    const char *why = write_all(fd, path, length, 8);
    if (!why) why = write_all(fd, path, header.bytes, (int64_t)header.length);
    for (int i = s->from; i < s->to && !why; i++)
        why = write_tensor(w, &w->tensor.item[i], dtype, fd, path, buffer);
    if (!why && fsync(fd)) why = text_format("cannot write '%s': %s", path, strerror(errno));
    if (close(fd) && !why) why = text_format("cannot write '%s': %s", path, strerror(errno));
    return why;
}

static const char *shard_name(int i, int n)
{
    return n == 1 ? "model.safetensors" : text_format("model-%05d-of-%05d.safetensors", i + 1, n);
}

static const char *write_index(const struct weight_source *w, const shard_list *all,
                               const char *folder, int64_t bytes)
{
    struct text t = {0};
    const char *path = text_format("%s/model.safetensors.index.json", folder);
    text_add(&t, "{\n  \"metadata\": {\"total_size\": %ld},\n  \"weight_map\": {", bytes);
    for (int k = 0; k < all->n; k++)
        for (int i = all->item[k].from; i < all->item[k].to; i++) {
            text_add(&t, "%s\n    ", i ? "," : "");
            escape_json(&t, w->tensor.item[i].name);
            text_add(&t, ": \"%s\"", shard_name(k, all->n));
        }
    text_add(&t, "\n  }\n}\n");
    return file_write_durable(path, t.bytes, t.length)
               ? NULL
               : text_format("cannot write '%s': %s", path, strerror(errno));
}

const char *export_weights(const struct weight_source *w, const char *folder, enum element dtype,
                           int64_t shard_bytes, int *files)
{
    const shard_list all = cut(w, dtype, shard_bytes);
    int64_t bytes = 0;
    for (int i = 0; i < w->tensor.n; i++) bytes += tensor_bytes(&w->tensor.item[i], dtype);
    struct statvfs disk;
    if (!statvfs(folder, &disk) &&
        (uint64_t)disk.f_bavail * (uint64_t)disk.f_frsize < (uint64_t)bytes)
        return text_format("'%s' is on a disk with %s free, and the weights take %s", folder,
                           text_bytes((int64_t)(disk.f_bavail * disk.f_frsize)), text_bytes(bytes));
    char *buffer = take(BUFFER_BYTES);
    const char *why = NULL;
    for (int i = 0; i < all.n && !why; i++)
        why = write_shard(w, &all.item[i], dtype,
                          text_format("%s/%s", folder, shard_name(i, all.n)), buffer);
    *files = all.n;
    return why || all.n < 2 ? why : write_index(w, &all, folder, bytes);
}
