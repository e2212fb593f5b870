/* Checks that the tensors of files and architecture match, reading only headers and file sizes. A
 * missing tensor would train from noise and an extra one would be lost, so both are errors, and so
 * is a header that does not describe its file. */
#define _POSIX_C_SOURCE 200809L
#include "commands/import_weights.h"

#include <errno.h>
#include <fnmatch.h>
#include <jansson.h>
#include <string.h>
#include <sys/stat.h>

enum { HEADER_LIMIT = 100 << 20 };

static int64_t element_size(const char *dtype)
{
    return !dtype ? 0 : !strcmp(dtype, "F32") ? 4 : !strcmp(dtype, "BF16") ? 2 : 0;
}

/* One entry: a type that can be loaded and as many bytes as its shape needs, inside the file. */
static const char *check_entry(const char *name, const json_t *entry, int64_t data_bytes)
{
    const char *dtype = json_string_value(json_object_get(entry, "dtype"));
    const json_t *shape = json_object_get(entry, "shape"),
                 *offsets = json_object_get(entry, "data_offsets");
    if (!json_is_array(shape) || json_array_size(offsets) != 2)
        return text_format("the entry of '%s' is not one of safetensors", name);
    int64_t bytes = element_size(dtype);
    if (!bytes)
        return text_format("'%s' is stored as %s; F32 and BF16 can be loaded", name,
                           dtype ? dtype : "nothing");
    for (size_t i = 0; i < json_array_size(shape); i++) {
        const json_t *dim = json_array_get(shape, i);
        if (!json_is_integer(dim) || json_integer_value(dim) < 0 ||
            __builtin_mul_overflow(bytes, (int64_t)json_integer_value(dim), &bytes))
            return text_format("'%s' has an impossible shape", name);
    }
    int64_t from = json_integer_value(json_array_get(offsets, 0)),
            to = json_integer_value(json_array_get(offsets, 1));
    if (from < 0 || to - from != bytes)
        return text_format("'%s' says %lld bytes where its shape needs %lld", name,
                           (long long)(to - from), (long long)bytes);
    if (to > data_bytes)
        return text_format("'%s' ends %lld bytes behind the end of the file: it is truncated", name,
                           (long long)(to - data_bytes));
    return NULL;
}

static const char *read_header(const char *path, json_t *all, int *tensors)
{
    FILE *f = fopen(path, "rb");
    if (!f) return text_format("cannot read '%s': %s", path, strerror(errno));
    unsigned char length[8];
    struct stat st;
    uint64_t n = 0;
    bool fine = fread(length, 1, 8, f) == 8 && !fstat(fileno(f), &st);
    for (int i = 7; fine && i >= 0; i--) n = n << 8 | length[i];
    if (!fine || n > HEADER_LIMIT || (int64_t)n > st.st_size - 8) {
        fclose(f);
        return text_format("'%s' is not a safetensors file, or it is truncated", path);
    }
    char *bytes = take(n + 1);
    size_t got = fread(bytes, 1, n, f);
    fclose(f);
    if (got != n) return text_format("cannot read the header of '%s'", path);
    json_error_t error;
    json_t *header = json_loadb(bytes, n, JSON_REJECT_DUPLICATES, &error), *entry;
    if (!json_is_object(header))
        return text_format("the header of '%s' is not JSON: %s", path,
                           header ? "not an object" : error.text);
    const char *name, *why = NULL;
    json_object_foreach(header, name, entry)
    {
        if (!strcmp(name, "__metadata__")) continue;
        if ((why = check_entry(name, entry, (int64_t)st.st_size - 8 - (int64_t)n)))
            return text_format("%s: %s", path, why);
        if (json_object_get(all, name))
            return text_format("'%s' is stored twice, the second time in '%s'", name, path);
        json_object_set(all, name, entry);
        ++*tensors;
    }
    return NULL;
}

static bool is_file(const char *path)
{
    struct stat st;
    return !stat(path, &st) && S_ISREG(st.st_mode);
}

/* The files that an index names, each once, and that each holds what the index says. */
static const char *read_index(const char *folder, const char *path, struct weight_files *w)
{
    json_error_t error;
    json_t *index = json_load_file(path, JSON_REJECT_DUPLICATES, &error),
           *map = json_object_get(index, "weight_map"), *file;
    if (!json_is_object(map))
        return text_format("'%s' has no weight_map%s%s", path, index ? "" : ": ",
                           index ? "" : error.text);
    const char *name, *why;
    json_object_foreach(map, name, file)
    {
        const char *one = json_string_value(file);
        if (!one || strchr(one, '/')) return text_format("'%s' puts '%s' into no file", path, name);
        one = text_format("%s/%s", folder, one);
        bool known = false;
        for (int i = 0; i < w->files.n; i++) known |= !strcmp(w->files.item[i], one);
        if (!known) PUSH(&w->files, one);
    }
    for (int i = 0; i < w->files.n; i++)
        if ((why = read_header(w->files.item[i], w->headers, &w->tensors))) return why;
    json_object_foreach(map, name, file) if (!json_object_get(w->headers, name)) return text_format(
        "'%s' names '%s', which is in none of its files", path, name);
    return NULL;
}

const char *weights_open(const char *folder, struct weight_files *w)
{
    const char *one = text_format("%s/model.safetensors", folder),
               *index = text_format("%s/model.safetensors.index.json", folder);
    w->headers = json_object();
    if (is_file(one)) {
        PUSH(&w->files, one);
        return read_header(one, w->headers, &w->tensors);
    }
    return is_file(index) ? read_index(folder, index, w) : NULL;
}

bool weights_have(const struct weight_files *w, const char *pattern)
{
    json_t *entry;
    const char *name;
    json_object_foreach((json_t *)w->headers, name,
                        entry) if (!fnmatch(pattern, name, 0)) return true;
    return false;
}

/* ── against the architecture ────────────────────────────────────────────────── */
static const char *with_number(const char *name, const char *mark, int64_t number)
{
    const char *at = strstr(name, mark);
    return at ? text_format("%.*s%lld%s", (int)(at - name), name, (long long)number,
                            at + strlen(mark))
              : name;
}

/* The name under which a tensor is stored: its own, or one with another of the prefixes that the
 * architecture allows. */
static const char *stored_name(const struct plan *p, const json_t *left, const char *name)
{
    size_t n = p->n_stored_prefix ? strlen(p->stored_prefix[0]) : 0;
    if (json_object_get(left, name) || !p->n_stored_prefix || strncmp(name, p->stored_prefix[0], n))
        return name;
    for (int i = 1; i < p->n_stored_prefix; i++) {
        const char *other = text_format("%s%s", p->stored_prefix[i], name + n);
        if (json_object_get(left, other)) return other;
    }
    return name;
}

/* Takes a stored tensor off the list of those that nobody asked for. */
static const char *match_one(const struct plan *p, json_t *left, const char *own_name,
                             const int64_t *dim, int rank)
{
    const char *name = stored_name(p, left, own_name);
    const json_t *shape = json_object_get(json_object_get(left, name), "shape");
    if (!shape) return text_format("the tensor '%s' is missing", name);
    bool same = json_array_size(shape) == (size_t)rank;
    for (int i = 0; same && i < rank; i++)
        same = json_integer_value(json_array_get(shape, (size_t)i)) == dim[i];
    if (!same) {
        struct shape stored = {.rank = 0};
        while ((size_t)stored.rank < json_array_size(shape) && stored.rank < SHAPE_RANK) {
            stored.dim[stored.rank] =
                json_integer_value(json_array_get(shape, (size_t)stored.rank));
            stored.rank++;
        }
        return text_format("'%s' is stored as %s, the architecture has %s", name,
                           shape_text(stored), shape_text(shape_of(rank, dim)));
    }
    json_object_del(left, name);
    return NULL;
}

static const char *match_instance(const struct plan *p, json_t *left, const struct weight *w,
                                  const char *name)
{
    const struct shape *s = &w->value->shape;
    if (!w->stack) return match_one(p, left, name, s->dim, s->rank);
    const char *why = NULL;
    for (int64_t e = 0; e < w->stack && !why; e++)
        why = match_one(p, left, with_number(name, "{e}", e), s->dim + 1, s->rank - 1);
    return why;
}

static const char *match_weight(const struct plan *p, json_t *left, const struct graph *g,
                                const struct weight *w)
{
    const struct unit *u = graph_unit(g, w->unit);
    if (!*u->loop) return match_instance(p, left, w, w->tensor);
    const char *why = NULL;
    for (int i = 0; i < g->region.n; i++) {
        const struct region *r = g->region.item[i];
        for (int k = 0; k < r->body.n && r->direction == UP && !strcmp(r->loop, u->loop); k++) {
            const struct body *b = r->body.item[k];
            if (strcmp(b->name, u->variant)) continue;
            struct stretch all = {0, r->count};
            const struct stretch *s = b->layers.n ? b->layers.item : &all;
            for (int j = 0; j < (b->layers.n ? b->layers.n : 1); j++)
                for (int64_t layer = s[j].from; layer < s[j].to && !why; layer++)
                    why = match_instance(p, left, w, with_number(w->tensor, "{i}", layer));
        }
    }
    return why;
}

/* In a pattern * stands for any text, {i} and {e} for a number. */
static bool is_ignored(const struct plan *p, const char *name)
{
    for (int i = 0; i < p->n_stored_ignore; i++) {
        struct text glob = {0};
        for (const char *s = p->stored_ignore[i]; *s; s += *s == '{' ? 3 : 1)
            if (*s == '{' && (!strncmp(s, "{i}", 3) || !strncmp(s, "{e}", 3)))
                text_add(&glob, "[0-9]*");
            else if (*s == '{')
                return false;
            else
                text_add_bytes(&glob, s, 1);
        if (!fnmatch(glob.bytes, name, 0)) return true;
    }
    return false;
}

const char *weights_match(const struct weight_files *w, const struct plan *p, const struct graph *g)
{
    json_t *left = json_copy(w->headers), *entry;
    const char *why = NULL, *name;
    for (int i = 0; i < g->weight.n && !why; i++) why = match_weight(p, left, g, g->weight.item[i]);
    json_object_foreach(left, name, entry)
    {
        if (is_ignored(p, name) || (why && strstr(why, "is missing") == NULL)) continue;
        return why ? text_format("%s, and '%s' is stored, which the architecture has not", why,
                                 name)
                   : text_format("'%s' is stored, but the architecture has no such weight", name);
    }
    return why;
}
