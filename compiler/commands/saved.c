/* Names, manifests and sizes of checkpoints. A manifest is right when it hashes to its last line,
 * so whatever is read of it is what the trainer has written. */
#define _GNU_SOURCE
#define XXH_INLINE_ALL
#include "commands/saved.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

enum { KINDS = 3 }; /* of a part: master weights, first moments, second moments */

int64_t saved_whole(const json_t *object, const char *key)
{
    const json_t *v = json_object_get(object, key);
    return json_is_integer(v) && json_integer_value(v) >= 0 ? (int64_t)json_integer_value(v) : -1;
}

/* step-00020000 or step-00020000-run2; false: another name, or one with an ending. */
static bool name_read(const char *name, int64_t *run, int64_t *step)
{
    *run = 1;
    if (sscanf(name, "step-%" SCNd64 "-run%" SCNd64, step, run) < 1) return false;
    const char *again =
        *run > 1 ? text_format("step-%08ld-run%ld", *step, *run) : text_format("step-%08ld", *step);
    return *step >= 0 && !strcmp(name, again);
}

static const char *base_name(const char *path)
{
    char whole[PATH_MAX];
    if (!realpath(path, whole)) return path;
    return text_format("%s", strrchr(whole, '/') + 1);
}

bool saved_is_checkpoint(const char *path)
{
    int64_t run, step;
    struct stat st;
    return name_read(base_name(path), &run, &step) ||
           !stat(text_format("%s/manifest.json", path), &st);
}

/* The last line is `"hash": "0123456789abcdef"`, then a brace: the hash of all before it. */
static bool hash_holds(const char *text, size_t n)
{
    enum { LINE = sizeof "\"hash\": \"0123456789abcdef\"\n}\n" - 1 };
    if (n < LINE) return false;
    const uint64_t hash = XXH3_64bits(text, n - LINE);
    return !strcmp(text + n - LINE, text_format("\"hash\": \"%016" PRIx64 "\"\n}\n", hash));
}

/* The sizes of the parts; NULL, or what is wrong with one. */
static const char *parts_there(const struct saved *s, const json_t *manifest, int64_t *bytes)
{
    const json_t *parts = json_object_get(manifest, "parts");
    if (!json_is_array(parts) || !json_array_size(parts)) return "its manifest names no parts";
    for (size_t i = 0; i < json_array_size(parts); i++) {
        const json_t *part = json_array_get(parts, i);
        const char *file = json_string_value(json_object_get(part, "file"));
        const int64_t want = saved_whole(part, "bytes"), header = saved_whole(part, "header_bytes"),
                      elements = saved_whole(part, "elements");
        struct stat st;
        if (!file || strchr(file, '/') || want < 0 || header < 8 || elements < 0 ||
            elements > (INT64_MAX - header) / (4 * KINDS) || header + 4 * KINDS * elements != want)
            return "its manifest has a part that cannot be";
        if (lstat(text_format("%s/%s", s->path, file), &st))
            return errno == ENOENT ? text_format("%s is missing", file)
                                   : text_format("%s: %s", file, strerror(errno));
        if (!S_ISREG(st.st_mode) || st.st_size != want)
            return text_format("%s has %ld bytes, the manifest says %ld", file, (long)st.st_size,
                               want);
        *bytes += want;
    }
    return NULL;
}

struct saved saved_read(const char *path)
{
    struct saved s = {.name = base_name(path), .path = path, .run = 1};
    const bool named = name_read(s.name, &s.run, &s.step);
    size_t n;
    json_error_t error;
    const char *file = text_format("%s/manifest.json", path), *text = file_read(file, &n);
    if (!text) {
        s.why = errno == ENOENT
                    ? "is not complete: it has no manifest.json"
                    : text_format("cannot be read: manifest.json: %s", file_read_why(errno));
        return s;
    }
    s.bytes = (int64_t)n;
    json_t *m = json_loadb(text, n, JSON_REJECT_DUPLICATES, &error);
    if (!hash_holds(text, n))
        s.why = "is damaged: its manifest does not hash to what its last line says";
    else if (!json_is_object(m))
        s.why = text_format("is damaged: its manifest is not JSON: %s", error.text);
    else if (saved_whole(m, "format") != 1)
        s.why = text_format("has format %ld, this planc reads format 1", saved_whole(m, "format"));
    else if ((s.why = parts_there(&s, m, &s.bytes)))
        s.why = text_format("is damaged: %s", s.why);
    else
        s.manifest = m;
    if (!s.manifest) return s;
    const int64_t step = saved_whole(m, "step"), run = saved_whole(m, "run");
    if (named && (step != s.step || run != s.run)) {
        s.why =
            text_format("is of step %ld of run %ld: its folder was given another name", step, run);
        s.manifest = NULL;
    } else
        s.step = step, s.run = run;
    return s;
}

static int newest_first(const void *a, const void *b)
{
    const struct saved *x = a, *y = b;
    if (x->run != y->run) return x->run > y->run ? -1 : 1;
    return x->step == y->step ? 0 : x->step > y->step ? -1 : 1;
}

const char *saved_list_read(const char *folder, saved_list *all)
{
    DIR *d = opendir(folder);
    if (!d) return text_format("cannot read '%s': %s", folder, strerror(errno));
    for (struct dirent *e = readdir(d); e; e = readdir(d)) {
        int64_t run, step;
        if (name_read(e->d_name, &run, &step))
            PUSH(all, saved_read(text_format("%s/%s", folder, e->d_name)));
    }
    closedir(d);
    if (all->n) qsort(all->item, (size_t)all->n, sizeof *all->item, newest_first);
    return NULL;
}
