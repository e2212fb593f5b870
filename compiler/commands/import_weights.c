/* Checks that the tensors of files and architecture match, reading only headers and file sizes. A
 * missing tensor would train from noise and an extra one would be lost, so both are errors, and so
 * is a header that does not describe its file. */
#define _POSIX_C_SOURCE 200809L
#include "commands/import_weights.h"

#include <jansson.h>
#include <string.h>
#include <sys/stat.h>

/* Opened by the reader that the trainer uses, so that both take the same files and refuse the same
 * ones; the headers as JSON are what is crossed off. */
const char *weights_open(const char *folder, struct weight_files *w)
{
    w->set = TAKE(struct st_set);
    w->headers = json_object();
    if (!st_open(w->set, folder)) return w->set->none ? NULL : text_format("%s", st_why());
    for (int64_t i = 0; i < w->set->tensors; i++) {
        const struct st_tensor *t = &w->set->tensor[i];
        json_t *shape = json_array();
        for (int k = 0; k < t->rank; k++)
            json_array_append_new(shape, json_integer((json_int_t)t->dim[k]));
        json_object_set_new(w->headers, t->name, json_pack("{s:o}", "shape", shape));
    }
    return NULL;
}

bool weights_have(const struct weight_files *w, const char *pattern)
{
    json_t *entry;
    const char *name;
    json_object_foreach((json_t *)w->headers, name,
                        entry) if (st_matches(pattern, name)) return true;
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
static const char *match_one(const struct plan *p, struct st_set *set, json_t *left,
                             const char *own_name, const int64_t *dim, int rank)
{
    const char *name = stored_name(p, left, own_name);
    const json_t *shape = json_object_get(json_object_get(left, name), "shape");
    if (!shape) return text_format("the tensor '%s' is missing", name);
    bool same = json_array_size(shape) == (size_t)rank;
    for (int i = 0; same && i < rank; i++)
        same = json_integer_value(json_array_get(shape, (size_t)i)) == dim[i];
    json_object_del(left, name);
    struct st_tensor *t = st_find(set, name);
    t->used = true;
    if (!same) {
        struct shape stored = {.rank = 0};
        while (stored.rank < t->rank && stored.rank < SHAPE_RANK) {
            stored.dim[stored.rank] = t->dim[stored.rank];
            stored.rank++;
        }
        return text_format("'%s' is stored as %s, the architecture has %s", name,
                           shape_text(stored), shape_text(shape_of(rank, dim)));
    }
    return t->type != ST_OTHER
               ? NULL
               : text_format("'%s' is stored as %s; F32, BF16 and F16 can be loaded", name,
                             t->dtype);
}

static const char *match_instance(const struct plan *p, struct st_set *set, json_t *left,
                                  const struct weight *w, const char *name)
{
    const struct shape s = weight_shape(w);
    if (!w->stack) return match_one(p, set, left, name, s.dim, s.rank);
    const char *why = NULL;
    for (int64_t e = 0; e < w->stack; e++) {
        const char *one =
            match_one(p, set, left, with_number(name, "{e}", e), s.dim + 1, s.rank - 1);
        if (!why) why = one;
    }
    return why;
}

static const char *match_weight(const struct plan *p, struct st_set *set, json_t *left,
                                const struct graph *g, const struct weight *w)
{
    const struct unit *u = graph_unit(g, w->unit);
    if (!*u->loop) return match_instance(p, set, left, w, w->tensor);
    const char *why = NULL;
    for (int i = 0; i < g->region.n; i++) {
        const struct region *r = g->region.item[i];
        for (int k = 0; k < r->body.n && r->direction == UP && !strcmp(r->loop, u->loop); k++) {
            const struct body *b = r->body.item[k];
            if (strcmp(b->name, u->variant)) continue;
            struct stretch all = {0, r->count};
            const struct stretch *s = b->layers.n ? b->layers.item : &all;
            for (int j = 0; j < (b->layers.n ? b->layers.n : 1); j++)
                for (int64_t layer = s[j].from; layer < s[j].to; layer++) {
                    const char *one =
                        match_instance(p, set, left, w, with_number(w->tensor, "{i}", layer));
                    if (!why) why = one;
                }
        }
    }
    return why;
}

/* As the trainer judges: also under another prefix than the first. */
static bool is_ignored(const struct plan *p, const char *name)
{
    const size_t n = p->n_stored_prefix ? strlen(p->stored_prefix[0]) : 0;
    for (int k = 0; k < p->n_stored_ignore; k++) {
        const char *pattern = p->stored_ignore[k];
        if (st_matches(pattern, name)) return true;
        for (int i = 1; i < p->n_stored_prefix && !strncmp(pattern, p->stored_prefix[0], n); i++)
            if (st_matches(text_format("%s%s", p->stored_prefix[i], pattern + n), name))
                return true;
    }
    return false;
}

/* Ignored by its whole name: what is stored twice, and must be a copy. */
static bool is_named(const struct plan *p, const char *name)
{
    for (int i = 0; i < p->n_stored_ignore; i++)
        if (!strpbrk(p->stored_ignore[i], "*{") && !strcmp(p->stored_ignore[i], name)) return true;
    return false;
}

const char *weights_match(const struct weight_files *w, const struct plan *p, const struct graph *g)
{
    json_t *left = json_copy(w->headers), *entry;
    const char *why = NULL, *name;
    for (int i = 0; i < g->weight.n; i++) { /* all, so that what is left is what nobody asked for */
        const char *one = match_weight(p, w->set, left, g, g->weight.item[i]);
        if (!why) why = one;
    }
    json_object_foreach(left, name, entry)
    {
        if (!why && is_named(p, name) && !st_is_copy(w->set, st_find(w->set, name), 0, 1))
            return text_format("'%s' is no copy of another tensor: the configuration ties the head "
                               "to the table (tie_word_embeddings), the file has a head of its own",
                               name);
        if (is_ignored(p, name) || (why && strstr(why, "is missing") == NULL)) continue;
        return why ? text_format("%s, and '%s' is stored, which the architecture has not", why,
                                 name)
                   : text_format("'%s' is stored, but the architecture has no such weight", name);
    }
    return why;
}
