/* Reads a checkpoint. The manifest is checked against its own hash, its plan and data against those
 * of this run (checkpoint_same.c), the parts against their hashes, and only then is anything
 * written to the device. Every rank reads the manifest and takes what its own shard needs, whatever
 * the mesh that wrote it. Anything that is not exactly as it was written is refused by name,
 * because a run that resumes from half a state, or with other mathematics, looks like a good one.
 */
#define _GNU_SOURCE
#include "checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NAME_BYTES = 512, PATH_BYTES = 4096 };

#define HASH_FORMAT "\"hash\": \"%016" PRIx64 "\"\n}\n"
enum { HASH_LINE = sizeof "\"hash\": \"0123456789abcdef\"\n}\n" - 1 };

struct written_part {
    char file[CHECKPOINT_NAME];
    int64_t header_bytes, elements, bytes;
    uint64_t hash;
    int fd;
};
struct manifest {
    char *path;
    json_t *root, *tensors;
    struct counters at;
    struct written_part *part;
    int64_t parts;
};

/* ── the text ────────────────────────────────────────────────────────────────── */

static char *read_whole(const char *path, int64_t *n, const char *instead)
{
    struct stat s;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    char *text = NULL;
    *n = 0;
    if (fd < 0 || fstat(fd, &s) != 0) goto failed;
    text = malloc((size_t)s.st_size + 1);
    if (!text) goto failed;
    while (*n < s.st_size) {
        const ssize_t some = pread(fd, text + *n, (size_t)(s.st_size - *n), (off_t)*n);
        if (some < 0 && errno == EINTR) continue;
        if (some == 0) errno = EIO;
        if (some <= 0) goto failed;
        *n += some;
    }
    close(fd);
    text[*n] = 0;
    return text;
failed:
    fail_note("%s: %s%s", path, strerror(errno), instead);
    if (fd >= 0) close(fd);
    free(text);
    return NULL;
}

/* The last line is `"hash": "0123456789abcdef"` and a brace: the hash of all before it. */
static bool hash_holds(const char *text, int64_t n, uint64_t *hash)
{
    char line[HASH_LINE + 1];
    if (n < HASH_LINE) return false;
    *hash = manifest_hash(text, n - HASH_LINE);
    snprintf(line, sizeof line, HASH_FORMAT, *hash);
    return !memcmp(text + n - HASH_LINE, line, HASH_LINE);
}

static int64_t whole(json_t *o, const char *key)
{
    json_t *v = json_object_get(o, key);
    return json_is_integer(v) && json_integer_value(v) >= 0 ? json_integer_value(v) : -1;
}

static bool read_part(json_t *o, struct written_part *p)
{
    const char *file = json_string_value(json_object_get(o, "file")),
               *hash = json_string_value(json_object_get(o, "hash"));
    char *end = NULL;
    if (!file || !*file || strchr(file, '/') || strlen(file) >= sizeof p->file || !hash ||
        strlen(hash) != 16)
        return false;
    *p = (struct written_part){.header_bytes = whole(o, "header_bytes"),
                               .elements = whole(o, "elements"),
                               .bytes = whole(o, "bytes"),
                               .hash = strtoull(hash, &end, 16),
                               .fd = -1};
    snprintf(p->file, sizeof p->file, "%s", file);
    int64_t bytes;
    return !*end && p->header_bytes >= 8 && p->elements >= 0 &&
           !__builtin_mul_overflow(p->elements, (int64_t)4 * STATE_KINDS, &bytes) &&
           !__builtin_add_overflow(bytes, p->header_bytes, &bytes) && bytes == p->bytes;
}

/* What the time went into; a manifest of the first trainers does not say it. */
static struct spent read_spent(const json_t *root)
{
    const json_t *o = json_object_get(root, "spent");
    const char *began = json_string_value(json_object_get(o, "began")),
               *saved = json_string_value(json_object_get(root, "saved"));
    const int64_t then = began ? utc_seconds(began) : saved ? utc_seconds(saved) : -1;
    return (struct spent){.began = then < 0 ? 0 : then,
                          .steps = json_number_value(json_object_get(o, "steps")),
                          .starts = json_number_value(json_object_get(o, "starts")),
                          .saves = json_number_value(json_object_get(o, "saves")),
                          .validations = json_number_value(json_object_get(o, "validations"))};
}

/* [step, sample, "hash"] of some steps. */
static bool read_readings(const json_t *root, struct readings *to)
{
    const json_t *all = json_object_get(json_object_get(root, "data"), "read");
    struct reading list[READINGS + 1];
    const size_t n = json_array_size(all);
    if (n > sizeof list / sizeof *list) return false;
    for (size_t i = 0; i < n; i++) {
        const json_t *one = json_array_get(all, i);
        const char *hash = json_string_value(json_array_get(one, 2));
        list[i] = (struct reading){.step = json_integer_value(json_array_get(one, 0)),
                                   .sample = json_integer_value(json_array_get(one, 1)),
                                   .hash = hash ? strtoull(hash, NULL, 16) : 0};
    }
    return readings_set(to, list, (int)n);
}

static bool read_root(struct manifest *m)
{
    json_t *counters = json_object_get(m->root, "counters"),
           *parts = json_object_get(m->root, "parts"), *plan = json_object_get(m->root, "plan");
    m->tensors = json_object_get(m->root, "tensors");
    m->at = (struct counters){.step = whole(counters, "step"),
                              .sample = whole(counters, "sample"),
                              .skipped = whole(counters, "skipped_updates"),
                              .validates = json_is_true(json_object_get(counters, "validates")),
                              .restarts = whole(counters, "restarts"),
                              .spent = read_spent(m->root)};
    m->parts = (int64_t)json_array_size(parts);
    m->part = m->parts > 0 ? calloc((size_t)m->parts, sizeof *m->part) : NULL;
    bool fine = m->part && json_is_object(m->tensors) &&
                json_is_object(json_object_get(plan, "mathematics")) &&
                json_is_object(json_object_get(plan, "rest")) && m->at.step >= 0 &&
                m->at.sample >= 0 && m->at.skipped >= 0 && m->at.restarts >= 0 &&
                read_readings(m->root, &m->at.read);
    for (int64_t i = 0; i < m->parts && fine; i++)
        fine = read_part(json_array_get(parts, (size_t)i), &m->part[i]);
    return fine;
}

/* A folder that was given another one's name. */
static bool is_of(const struct manifest *m, const struct saved *saved)
{
    return m->at.step == saved->step && whole(m->root, "run") == saved->run;
}

struct manifest *manifest_read(const char *folder, const struct saved *saved, uint64_t *hash,
                               const char *instead)
{
    struct manifest *m = calloc(1, sizeof *m);
    char path[PATH_BYTES];
    int64_t n;
    json_error_t error;
    if (!m) return fail_note("no memory for a manifest"), NULL;
    snprintf(path, sizeof path, "%s/manifest.json", folder);
    char *text = read_whole(path, &n, instead);
    if (text && !hash_holds(text, n, hash))
        fail_note("%s is damaged: it does not hash to what its last line says%s", path, instead);
    else if (text && !(m->root = json_loadb(text, (size_t)n, JSON_REJECT_DUPLICATES, &error)))
        fail_note("%s is damaged: %s (line %d)%s", path, error.text, error.line, instead);
    else if (text && whole(m->root, "format") != 1)
        fail_note("%s has format %lld, this trainer reads format 1", path,
                  (long long)whole(m->root, "format"));
    else if (text && !read_root(m))
        fail_note("%s is no manifest of a checkpoint%s", path, instead);
    else if (text && !is_of(m, saved))
        fail_note("%s is of step %lld of run %lld: its folder was given another name%s", path,
                  (long long)m->at.step, (long long)whole(m->root, "run"), instead);
    else if (text)
        m->path = strdup(path);
    free(text);
    if (m->path) return m;
    manifest_close(m);
    return NULL;
}

void manifest_close(struct manifest *m)
{
    for (int64_t i = 0; i < m->parts && m->part; i++)
        if (m->part[i].fd >= 0) close(m->part[i].fd);
    json_decref(m->root);
    free(m->part);
    free(m->path);
    free(m);
}

struct counters manifest_counters(const struct manifest *m) { return m->at; }
const char *manifest_path(const struct manifest *m) { return m->path; }
const struct json_t *manifest_root(const struct manifest *m) { return m->root; }

const char *manifest_text(const struct manifest *m, char text[256])
{
    const char *saved = json_string_value(json_object_get(m->root, "saved"));
    json_t *mesh = json_object_get(m->root, "mesh");
    snprintf(text, 256, "saved %s on fsdp %lld x dp %lld", saved ? saved : "at no time",
             (long long)whole(mesh, "fsdp"), (long long)whole(mesh, "dp"));
    return text;
}

/* ── the parts ───────────────────────────────────────────────────────────────── */

/* The step that a part says it is of, for a better word than "damaged". */
static int64_t step_of_part(const char *path)
{
    char head[256];
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    const ssize_t n = fd >= 0 ? pread(fd, head, sizeof head - 1, 8) : -1;
    if (fd >= 0) close(fd);
    head[n > 0 ? n : 0] = 0;
    const char *at = strstr(head, "\"step\":\"");
    return at ? strtoll(at + 8, NULL, 10) : -1;
}

bool manifest_verify(const struct manifest *m, const char *folder, const char *instead)
{
    for (int64_t i = world.rank; i < m->parts; i += world.size) {
        const struct written_part *p = &m->part[i];
        char path[PATH_BYTES], why[WHY_BYTES];
        struct stat s;
        uint64_t hash;
        snprintf(path, sizeof path, "%s/%s", folder, p->file);
        if (lstat(path, &s) != 0)
            return fail_note("%s: %s%s", path, errno == ENOENT ? "is missing" : strerror(errno),
                             instead);
        if (!S_ISREG(s.st_mode)) return fail_note("%s is no file%s", path, instead);
        const int64_t step = step_of_part(path);
        if (step >= 0 && step != m->at.step)
            return fail_note("%s is of step %lld, the checkpoint of step %lld%s", path,
                             (long long)step, (long long)m->at.step, instead);
        if (s.st_size != p->bytes)
            return fail_note("%s has %lld bytes, the manifest says %lld%s", path,
                             (long long)s.st_size, (long long)p->bytes, instead);
        if (!part_hash(path, p->bytes, &hash, why)) return fail_note("%s%s", why, instead);
        if (hash != p->hash)
            return fail_note("%s is damaged: its bytes do not hash to what the manifest says%s",
                             path, instead);
    }
    return true;
}

/* ── tensors ─────────────────────────────────────────────────────────────────── */

static bool wrong(const struct manifest *m, const char *name, const char *what)
{
    return fail_note("%s: tensor %s %s", m->path, name, what);
}

/* Its shape, and segments that cover it once. */
static bool tensor_fits(const struct manifest *m, const struct stored *s, const char *name)
{
    json_t *t = json_object_get(m->tensors, name), *shape = json_object_get(t, "shape"),
           *segments = json_object_get(t, "segments");
    int64_t dim[4], next = 0;
    const int rank = stored_shape(s, dim);
    char want[128], text[256];
    st_shape_text(rank, dim, want, sizeof want);
    bool same = (int)json_array_size(shape) == rank;
    for (int i = 0; i < rank && same; i++)
        same = json_integer_value(json_array_get(shape, (size_t)i)) == dim[i];
    if (!t) return wrong(m, name, "is missing");
    if (!same) {
        char *have = json_dumps(shape, JSON_ENCODE_ANY | JSON_COMPACT);
        snprintf(text, sizeof text, "is %.100s, the plan's is %s", have ? have : "?", want);
        free(have);
        return wrong(m, name, text);
    }
    for (size_t i = 0; i < json_array_size(segments); i++) {
        json_t *g = json_array_get(segments, i);
        int64_t v[4];
        for (size_t k = 0; k < 4; k++) {
            json_t *x = json_array_get(g, k);
            v[k] = json_is_integer(x) ? json_integer_value(x) : -1;
        }
        if (v[0] < 0 || v[0] >= m->parts || v[1] < 0 || v[2] != next || v[3] < 1 ||
            v[3] > m->part[v[0]].elements - v[1])
            return wrong(m, name, "has segments that do not fit each other");
        next += v[3];
    }
    return next == stored_elements(s) || wrong(m, name, "is not all there");
}

static bool tensors_fit(const struct manifest *m)
{
    struct stored s;
    char name[NAME_BYTES];
    const char *there;
    json_t *value;
    int64_t known = 0;
    for (bool more = stored_first(&s); more; more = stored_next(&s), known++) {
        stored_name(&s, name, sizeof name);
        if (!tensor_fits(m, &s, name)) return false;
    }
    if ((int64_t)json_object_size(m->tensors) == known) return true;
    json_t *own = json_object();
    for (bool more = stored_first(&s); more; more = stored_next(&s)) {
        stored_name(&s, name, sizeof name);
        json_object_set_new(own, name, json_true());
    }
    bool fine = true;
    json_object_foreach(m->tensors, there, value) if (fine && !json_object_get(own, there)) fine =
        wrong(m, there, "is not part of this model");
    json_decref(own);
    return fine;
}

static bool read_elements(const struct manifest *m, const char *folder, int64_t part,
                          enum state_kind kind, int64_t at, int64_t n, float *to)
{
    struct written_part *p = &m->part[part];
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s", folder, p->file);
    if (p->fd < 0) p->fd = open(path, O_RDONLY | O_CLOEXEC);
    off_t from = (off_t)(p->header_bytes + 4 * (kind * p->elements + at));
    char *into = (char *)to;
    for (int64_t left = 4 * n; left > 0;) {
        const ssize_t some = p->fd < 0 ? -1 : pread(p->fd, into, (size_t)left, from);
        if (some < 0 && p->fd >= 0 && errno == EINTR) continue;
        if (some <= 0)
            return fail_note("%s: %s", path, some == 0 ? "it has become shorter" : strerror(errno));
        into += some;
        from += some;
        left -= some;
    }
    return true;
}

/* Elements [p->element, … + p->count) of a tensor, of one kind, to `base` + p->at on the device. */
static bool load_piece(const struct manifest *m, const char *folder, struct device *d, json_t *t,
                       const struct piece *p, enum state_kind kind, float *base)
{
    json_t *segments = json_object_get(t, "segments");
    float *some = device_staging(d);
    const int64_t most = program.staging_bytes / 4, behind = p->element + p->count;
    for (size_t i = 0; i < json_array_size(segments); i++) {
        json_t *g = json_array_get(segments, i);
        const int64_t part = json_integer_value(json_array_get(g, 0)),
                      at = json_integer_value(json_array_get(g, 1)),
                      element = json_integer_value(json_array_get(g, 2)),
                      count = json_integer_value(json_array_get(g, 3));
        const int64_t first = element > p->element ? element : p->element,
                      end = element + count < behind ? element + count : behind;
        for (int64_t done = first; done < end; done += most) {
            const int64_t n = end - done < most ? end - done : most;
            if (!read_elements(m, folder, part, kind, at + done - element, n, some)) return false;
            device_write(d, base + p->at + done - p->element, some, 4 * n);
            position_moved();
        }
    }
    return true;
}

bool manifest_load(const struct manifest *m, const char *folder, struct device *d)
{
    float *const base[STATE_KINDS] = {local(d, program.master), local(d, program.moment1),
                                      local(d, program.moment2)};
    struct stored s;
    char name[NAME_BYTES];
    if (!tensors_fit(m)) return false;
    for (bool more = stored_first(&s); more; more = stored_next(&s)) {
        const struct piece p = stored_piece(&s, world.part);
        if (p.count == 0) continue;
        stored_name(&s, name, sizeof name);
        for (int kind = 0; kind < STATE_KINDS; kind++)
            if (!load_piece(m, folder, d, json_object_get(m->tensors, name), &p,
                            (enum state_kind)kind, base[kind]))
                return false;
    }
    return true;
}
