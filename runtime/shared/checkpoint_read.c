/* Reads a checkpoint. The manifest is checked against its own hash, the plan and the data of this
 * run, the parts against their hashes, and only then is anything written to the device. Every rank
 * reads the manifest and takes what its own shard needs, whatever the mesh that wrote it. Anything
 * that is not exactly as it was written is refused by name, because a run that resumes from half a
 * state, or with other mathematics, looks like a good one. */
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

enum { NAME_BYTES = 512, PATH_BYTES = 4096, LIST_BYTES = 1400 };

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
    json_t *mathematics, *rest; /* keys of the plan */
    struct counters at;
    struct written_part *part;
    int64_t parts;
};

/* ── the text ────────────────────────────────────────────────────────────────── */

static char *read_whole(const char *path, int64_t *n)
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
    fail_note("%s: %s", path, strerror(errno));
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

static bool read_root(struct manifest *m)
{
    json_t *counters = json_object_get(m->root, "counters"),
           *parts = json_object_get(m->root, "parts");
    m->tensors = json_object_get(m->root, "tensors");
    json_t *plan = json_object_get(m->root, "plan");
    m->mathematics = json_object_get(plan, "mathematics");
    m->rest = json_object_get(plan, "rest");
    m->at = (struct counters){whole(counters, "step"), whole(counters, "sample"),
                              whole(counters, "skipped_updates"), whole(counters, "restarts")};
    m->parts = (int64_t)json_array_size(parts);
    m->part = m->parts > 0 ? calloc((size_t)m->parts, sizeof *m->part) : NULL;
    bool fine = m->part && json_is_object(m->tensors) && json_is_object(m->mathematics) &&
                json_is_object(m->rest) && m->at.step >= 0 && m->at.sample >= 0 &&
                m->at.skipped >= 0 && m->at.restarts >= 0;
    for (int64_t i = 0; i < m->parts && fine; i++)
        fine = read_part(json_array_get(parts, (size_t)i), &m->part[i]);
    return fine;
}

struct manifest *manifest_read(const char *folder, uint64_t *hash, const char *instead)
{
    struct manifest *m = calloc(1, sizeof *m);
    char path[PATH_BYTES];
    int64_t n;
    json_error_t error;
    if (!m) return fail_note("no memory for a manifest"), NULL;
    snprintf(path, sizeof path, "%s/manifest.json", folder);
    char *text = read_whole(path, &n);
    if (text && !hash_holds(text, n, hash))
        fail_note("%s is damaged: it does not hash to what its last line says%s", path, instead);
    else if (text && !(m->root = json_loadb(text, (size_t)n, JSON_REJECT_DUPLICATES, &error)))
        fail_note("%s is damaged: %s (line %d)%s", path, error.text, error.line, instead);
    else if (text && whole(m->root, "format") != 1)
        fail_note("%s has format %lld, this trainer reads format 1", path,
                  (long long)whole(m->root, "format"));
    else if (text && read_root(m))
        m->path = strdup(path);
    else if (text)
        fail_note("%s is no manifest of a checkpoint%s", path, instead);
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

const char *manifest_text(const struct manifest *m, char text[256])
{
    const char *saved = json_string_value(json_object_get(m->root, "saved"));
    json_t *mesh = json_object_get(m->root, "mesh");
    snprintf(text, 256, "saved %s on fsdp %lld x dp %lld", saved ? saved : "at no time",
             (long long)whole(mesh, "fsdp"), (long long)whole(mesh, "dp"));
    return text;
}

/* ── the plan and the data ───────────────────────────────────────────────────── */

bool option_allows(const struct options *o, const char *key)
{
    const size_t n = strlen(key);
    for (int i = 0; i < o->allows; i++)
        for (const char *at = o->allow[i]; *at;
             at += strcspn(at, ",") + (at[strcspn(at, ",")] != 0))
            if (strcspn(at, ",") == n && !strncmp(at, key, n)) return true;
    return false;
}

static void add_difference(char *to, size_t size, const char *key, const char *before,
                           const char *now)
{
    const size_t used = strlen(to);
    snprintf(to + used, size - used, "%s%s was %.60s and is %.60s", used ? ", " : "", key, before,
             now);
}

/* Both as they are written: what is equal as JSON was written by the same rules. */
static bool same_value(json_t *there, const char *here, char *text, size_t size)
{
    json_t *mine = json_loads(here, JSON_DECODE_ANY, NULL);
    const bool same = there && mine && json_equal(there, mine);
    char *dump = there ? json_dumps(there, JSON_ENCODE_ANY) : NULL;
    snprintf(text, size, "%s", dump ? dump : "not known");
    free(dump);
    json_decref(mine);
    return same;
}

static const struct plan_key *own_key(const char *path)
{
    for (int i = 0; i < program.plan_keys; i++)
        if (!strcmp(program.plan_key[i].path, path)) return &program.plan_key[i];
    return NULL;
}

static json_t *key_there(const struct manifest *m, const char *path)
{
    json_t *value = json_object_get(m->mathematics, path);
    return value ? value : json_object_get(m->rest, path);
}

/* What is allowed to differ must be something that can. */
static bool allowed_keys_exist(const struct manifest *m, const struct options *o)
{
    for (int i = 0; i < o->allows; i++)
        for (const char *at = o->allow[i]; *at;
             at += strcspn(at, ",") + (at[strcspn(at, ",")] != 0)) {
            char key[NAME_BYTES];
            snprintf(key, sizeof key, "%.*s", (int)strcspn(at, ","), at);
            if (!own_key(key) && !key_there(m, key))
                return fail_note("--allow %s: neither the plan nor the checkpoint has such a key",
                                 key);
        }
    return true;
}

/* Differences that are refused, and those that are not; the first of the refused. */
struct differences {
    char refused[LIST_BYTES], others[LIST_BYTES], first[256];
};

static void differ(struct differences *d, const struct options *o, const char *key,
                   const char *before, const char *now, bool mathematics)
{
    const bool refuse = mathematics && !option_allows(o, key);
    add_difference(refuse ? d->refused : d->others, LIST_BYTES, key, before, now);
    if (refuse && !d->first[0]) snprintf(d->first, sizeof d->first, "%s", key);
}

/* Keys that the checkpoint has and the plan has not. */
static void only_there(json_t *keys, struct differences *d, const struct options *o,
                       bool mathematics)
{
    const char *path;
    json_t *value;
    json_object_foreach(keys, path, value)
    {
        if (own_key(path)) continue;
        char *dump = json_dumps(value, JSON_ENCODE_ANY);
        differ(d, o, path, dump ? dump : "?", "not given", mathematics);
        free(dump);
    }
}

bool manifest_same_plan(const struct manifest *m, const struct options *o, const char **changed)
{
    static struct differences d;
    char was[128];
    *changed = d.others;
    for (int i = 0; i < program.plan_keys; i++) {
        const struct plan_key *k = &program.plan_key[i];
        if (!same_value(key_there(m, k->path), k->json, was, sizeof was))
            differ(&d, o, k->path, was, k->json, k->mathematics);
    }
    only_there(m->mathematics, &d, o, true);
    only_there(m->rest, &d, o, false);
    if (!allowed_keys_exist(m, o)) return false;
    if (!d.refused[0]) return true;
    return fail_note("%s is of another plan: %s; --allow %s goes on all the same, --fresh starts "
                     "anew and deletes nothing, --checkpoint-dir takes another folder",
                     m->path, d.refused, d.first);
}

bool manifest_same_data(const struct manifest *m, const struct options *o)
{
    /* one look is enough; and without any data (--steps 0) there is none to be other */
    if (world.rank != 0 || data_tokens() == 0) return true;
    json_t *data = json_object_get(m->root, "data");
    const char *text = json_string_value(json_object_get(data, "hash"));
    char mine[32];
    snprintf(mine, sizeof mine, "%016" PRIx64, data_fingerprint());
    if ((text && !strcmp(text, mine) && whole(data, "tokens") == data_tokens()) ||
        option_allows(o, "data.train"))
        return true;
    return fail_note("%s was trained on other data: data.train held %lld tokens with hash %s, and "
                     "holds %lld with hash %s; --allow data.train goes on all the same",
                     m->path, (long long)whole(data, "tokens"), text ? text : "?",
                     (long long)data_tokens(), mine);
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
        const struct piece p = stored_piece(&s, world.shard);
        if (p.count == 0) continue;
        stored_name(&s, name, sizeof name);
        for (int kind = 0; kind < STATE_KINDS; kind++)
            if (!load_piece(m, folder, d, json_object_get(m->tensors, name), &p,
                            (enum state_kind)kind, base[kind]))
                return false;
    }
    return true;
}
