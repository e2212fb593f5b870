/* Reads config.json: each key of the family's table becomes an entry of the plan, limits refuse
 * what planc does not train, and what nothing reads is a warning. */
#define _GNU_SOURCE
#include "commands/import_config.h"
#include "passes/pipeline.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct span import_key_at(const struct import *im, const char *key)
{
    size_t n;
    const char *bytes = source_bytes(im->source, &n), *quoted = text_format("\"%s\"", key),
               *at = strstr(bytes, quoted);
    int from = at ? (int)(at - bytes) : 0;
    return (struct span){im->source, from, at ? from + (int)strlen(quoted) : 0};
}

const char *import_value_text(const json_t *v)
{
    if (json_is_real(v)) return text_number(json_real_value(v));
    const char *text = json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT);
    if (!text) return "?";
    return strlen(text) > 60 ? text_format("%.57s...", text) : text;
}

bool import_is_there(const json_t *v) { return v && !json_is_null(v); }

void import_entry(struct import *im, const char *hyper, const char *value)
{
    text_add(&im->model, "%s%s = %s", im->entries ? im->entries % 4 ? ";  " : "\n        " : "",
             hyper, value);
    im->entries++;
}

void import_absent(struct import *im, const char *config, const char *value)
{
    text_add(&im->absent, "%s%s = %s", im->absent.length ? ", " : "", config, value);
}

/* ── limits and keys ─────────────────────────────────────────────────────────── */
static bool equal(const json_t *a, const json_t *b)
{
    if (!json_is_number(a) || !json_is_number(b)) return json_equal(a, b);
    return !(json_number_value(a) < json_number_value(b)) &&
           !(json_number_value(a) > json_number_value(b));
}

static bool allows(const struct import_limit *limit, const json_t *v)
{
    if (!import_is_there(v)) return true;
    for (size_t k = 0; k < COUNT_OF(limit->allowed) && limit->allowed[k]; k++) {
        if (!strcmp(limit->allowed[k], "*")) return true;
        const json_t *allowed = json_loads(limit->allowed[k], JSON_DECODE_ANY, NULL);
        if (equal(v, allowed)) return true;
        size_t same = 0;
        while (json_is_array(allowed) && same < json_array_size(v) &&
               equal(json_array_get(v, same), json_array_get(allowed, 0)))
            same++;
        if (same && same == json_array_size(v)) return true;
    }
    return false;
}

/* A value that is allowed because planc leaves out what it asks for. */
static bool leaves_out(const struct import_limit *limit, const json_t *v)
{
    static const char *const nothing[] = {"0", "false"};
    bool asks =
        import_is_there(v) && limit->allowed[0] && !strcmp(limit->allowed[0], "*") && limit->why[0];
    for (size_t k = 0; k < COUNT_OF(nothing) && asks; k++)
        asks = !equal(v, json_loads(nothing[k], JSON_DECODE_ANY, NULL));
    return asks;
}

static bool is_own(const struct import *im, const char *key);

static void check_limits(struct import *im, const struct import_limit *limit, int n)
{
    for (int i = 0; i < n; i++) {
        /* what holds for every family, but for one that knows more of it */
        if (limit == import_limits && is_own(im, limit[i].config)) continue;
        const json_t *v = json_object_get(im->root, limit[i].config);
        if (!allows(&limit[i], v))
            complain(import_key_at(im, limit[i].config), "%s = %s cannot be imported: %s",
                     limit[i].config, import_value_text(v), limit[i].why);
        else if (leaves_out(&limit[i], v))
            warn(import_key_at(im, limit[i].config), "%s = %s: %s", limit[i].config,
                 import_value_text(v), limit[i].why);
    }
}

/* What the plan calls a configuration's word. */
static void read_word(struct import *im, const struct import_key *k, const json_t *v)
{
    const char *word = json_string_value(v);
    struct text known = {0};
    for (const char *at = k->words; *at;) {
        const char *theirs = text_format("%.*s", (int)strcspn(at, " "), at);
        at += strlen(theirs) + 1;
        const char *ours = text_format("%.*s", (int)strcspn(at, " "), at);
        at += strlen(ours) + (at[strlen(ours)] == ' ');
        if (word && !strcmp(word, theirs)) {
            import_entry(im, k->hyper, ours);
            return;
        }
        text_add(&known, "%s%s", known.length ? ", " : "", theirs);
    }
    add_help(complain(import_key_at(im, k->config), "%s = %s cannot be imported", k->config,
                      import_value_text(v)),
             "it is one of %s", known.bytes);
}

/* The name after the one at `at` ("a|b"), and its text; NULL after the last. */
static const char *next_name(const char *at, const char **name)
{
    size_t n = strcspn(at, "|");
    if (!n) return NULL;
    *name = intern_bytes(at, n);
    return at + n + (at[n] == '|');
}

/* null is a value of its own: none. */
static bool key_may_be_null(enum import_kind kind)
{
    return kind == IMPORT_WHOLE_OR_NONE || kind == IMPORT_REAL_OR_NONE;
}

static void read_key(struct import *im, const struct import_key *row)
{
    struct import_key key = *row, *k = &key;
    const json_t *v = NULL;
    const char *name, *first = NULL;
    for (const char *at = row->config; (at = next_name(at, &name));) {
        const json_t *one = json_object_get(im->root, name);
        if (!first) first = key.config = name;
        if (json_is_null(one) && key_may_be_null(row->kind)) {
            import_entry(im, k->hyper, "0");
            return;
        }
        if (!import_is_there(one)) continue;
        if (v && !json_equal(v, one))
            complain(import_key_at(im, name), "%s = %s, and %s = %s", key.config,
                     import_value_text(v), name, import_value_text(one));
        else if (!v) {
            v = one;
            key.config = name;
        }
    }
    if (!import_is_there(v)) {
        if (!k->otherwise)
            complain((struct span){im->source, 0, 1}, "the configuration lacks %s", k->config);
        else if (*k->otherwise) {
            import_entry(im, k->hyper, k->otherwise);
            import_absent(im, k->config, k->otherwise);
        }
        return;
    }
    switch (k->kind) {
    case IMPORT_WHOLE:
    case IMPORT_WHOLE_OR_NONE:
        if (json_is_integer(v) && json_integer_value(v) > 0)
            import_entry(im, k->hyper, text_format("%lld", (long long)json_integer_value(v)));
        else
            complain(import_key_at(im, k->config), "%s = %s is not a positive whole number",
                     k->config, import_value_text(v));
        return;
    case IMPORT_COUNT:
        if (json_is_integer(v) && json_integer_value(v) >= 0)
            import_entry(im, k->hyper, text_format("%lld", (long long)json_integer_value(v)));
        else
            complain(import_key_at(im, k->config), "%s = %s is not a whole number from 0 on",
                     k->config, import_value_text(v));
        return;
    case IMPORT_REAL:
    case IMPORT_REAL_OR_NONE:
        if (json_is_number(v) && json_number_value(v) > 0)
            import_entry(im, k->hyper, text_number(json_number_value(v)));
        else
            complain(import_key_at(im, k->config), "%s = %s is not a positive number", k->config,
                     import_value_text(v));
        return;
    case IMPORT_FRACTION:
        if (json_is_number(v) && !(json_number_value(v) < 0))
            import_entry(im, k->hyper, text_number(json_number_value(v)));
        else
            complain(import_key_at(im, k->config), "%s = %s is not a number from 0 on", k->config,
                     import_value_text(v));
        return;
    case IMPORT_WORD: read_word(im, k, v); return;
    case IMPORT_TRUTH:
        if (json_is_boolean(v))
            import_entry(im, k->hyper, json_is_true(v) ? "on" : "off");
        else
            complain(import_key_at(im, k->config), "%s = %s is neither true nor false", k->config,
                     import_value_text(v));
        return;
    }
    bug("a key of kind %d", (int)k->kind);
}

/* ── layers without experts ──────────────────────────────────────────────────── */
bool import_whole(struct import *im, const char *key, json_int_t least, json_int_t otherwise,
                  json_int_t *whole)
{
    const json_t *v = json_object_get(im->root, key);
    *whole = import_is_there(v) ? json_integer_value(v) : otherwise;
    if (!import_is_there(v) || (json_is_integer(v) && *whole >= least)) return true;
    complain(import_key_at(im, key), "%s = %s is not a whole number from %lld on", key,
             import_value_text(v), (long long)least);
    return false;
}

/* Neighbours become ranges: [0..2, 5]. */
static void read_dense(struct import *im)
{
    const struct import_dense *d = &im->family->dense;
    const json_t *list = json_object_get(im->root, d->layers);
    json_int_t layers = json_integer_value(json_object_get(im->root, "num_hidden_layers")), step,
               width, dense = 0;
    bool fine = !import_is_there(list) || json_is_array(list);
    for (size_t i = 0; fine && i < json_array_size(list); i++)
        fine = json_is_integer(json_array_get(list, i));
    if (!fine)
        complain(import_key_at(im, d->layers), "%s = %s is not a list of layers", d->layers,
                 import_value_text(list));
    if (!import_whole(im, d->step, 1, 1, &step) || !fine || layers < 1) return;
    if (layers > LAYERS_LIMIT) {
        complain(import_key_at(im, "num_hidden_layers"),
                 "%lld layers are more than planc can count (%d)", (long long)layers, LAYERS_LIMIT);
        return;
    }
    bool *is_dense = TAKE_MANY(bool, layers);
    for (json_int_t i = 0; i < layers; i++) is_dense[i] = (i + 1) % step != 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_int_t layer = json_integer_value(json_array_get(list, i));
        if (layer >= 0 && layer < layers) is_dense[layer] = true;
    }
    struct text all = {0};
    for (json_int_t i = 0, end; i < layers; i = end + 1) {
        for (end = i; end < layers && is_dense[end]; end++) {}
        if (end == i) continue;
        dense += end - i;
        text_add(&all, end - i == 1 ? "%s%lld" : "%s%lld..%lld", all.length ? ", " : "",
                 (long long)i, (long long)end - 1);
    }
    if (!dense) return;
    if (dense == layers)
        complain(
            import_key_at(im, import_is_there(list) && json_array_size(list) ? d->layers : d->step),
            "no layer of the mixture would have experts");
    import_entry(im, "dense_layers", text_format("[%s]", all.bytes));
    if (!import_is_there(json_object_get(im->root, d->width)))
        complain((struct span){im->source, 0, 1},
                 "the configuration lacks %s, the width of its dense layers", d->width);
    else if (import_whole(im, d->width, 1, 0, &width))
        import_entry(im, "ffn", text_format("%lld", (long long)width));
}

/* ── the whole configuration ─────────────────────────────────────────────────── */
static bool choose_family(struct import *im)
{
    const char *type = json_string_value(json_object_get(im->root, "model_type"));
    struct text known = {0};
    for (int i = 0; i < import_family_count; i++) {
        if (type && !strcmp(import_families[i].model_type, type)) im->family = &import_families[i];
        text_add(&known, "%s%s", i ? ", " : "", import_families[i].model_type);
    }
    if (!type)
        complain((struct span){im->source, 0, 1}, "the configuration has no model_type");
    else if (!im->family)
        add_help(
            complain(import_key_at(im, "model_type"), "model_type \"%s\" cannot be imported", type),
            "planc imports %s", known.bytes);
    if (!im->family) return false;
    const json_t *classes = json_object_get(im->root, "architectures");
    for (size_t i = 0; i < json_array_size(classes); i++) {
        const char *class = json_string_value(json_array_get(classes, i));
        if (class && strcmp(class, im->family->class))
            complain(import_key_at(im, class), "a %s cannot be imported: planc trains %s", class,
                     im->family->class);
    }
    return true;
}

/* Whether the family has a row of its own for a key. */
static bool is_own(const struct import *im, const char *key)
{
    const struct import_family *f = im->family;
    const char *name;
    for (int i = 0; i < f->keys; i++)
        for (const char *at = f->key[i].config; (at = next_name(at, &name));)
            if (!strcmp(name, key)) return true;
    for (int i = 0; i < f->limits; i++)
        if (!strcmp(f->limit[i].config, key)) return true;
    return import_window_reads(f, key) || import_rope_reads(f, key);
}

static bool is_read(const struct import *im, const char *key)
{
    if (is_own(im, key)) return true;
    for (int i = 0; i < import_limit_count; i++)
        if (!strcmp(import_limits[i].config, key)) return true;
    for (int i = 0; import_dropouts[i]; i++)
        if (!strcmp(import_dropouts[i], key)) return true;
    const struct import_dense *d = &im->family->dense;
    return d->step && (!strcmp(key, d->layers) || !strcmp(key, d->step) || !strcmp(key, d->width));
}

/* One warning, however many kinds of dropout a configuration has. */
static void read_dropout(struct import *im)
{
    struct text all = {0};
    const char *first = NULL;
    for (int i = 0; import_dropouts[i]; i++) {
        const json_t *v = json_object_get(im->root, import_dropouts[i]);
        if (!import_is_there(v) || (json_is_number(v) && !(json_number_value(v) > 0))) continue;
        if (!first) first = import_dropouts[i];
        text_add(&all, "%s%s = %s", all.length ? ", " : "", import_dropouts[i],
                 import_value_text(v));
    }
    if (first)
        add_help(warn(import_key_at(im, first),
                      "planc trains without dropout, this model was trained "
                      "with it: %s",
                      all.bytes),
                 "evaluation is the same; training sees no noise, as with 0 there");
}

bool import_read(struct import *im)
{
    if (!choose_family(im)) return false;
    for (int i = 0; i < im->family->keys; i++) read_key(im, &im->family->key[i]);
    if (im->family->dense.step) read_dense(im);
    import_window(im);
    if (im->family->theta) import_rope(im);
    check_limits(im, import_limits, import_limit_count);
    read_dropout(im);
    check_limits(im, im->family->limit, im->family->limits);
    const char *key;
    json_t *v;
    json_object_foreach(im->root, key,
                        v) if (import_is_there(v) && !is_read(im, key) && !import_is_harmless(key))
        warn(import_key_at(im, key),
             "%s = %s is not read: make sure that it does not change the model", key,
             import_value_text(v));
    return error_count() == 0;
}

int import_open(struct import *im, const char *word)
{
    struct stat st;
    if (stat(word, &st))
        return command_fail(EXIT_ENVIRONMENT, "cannot read '%s': %s", word, strerror(errno));
    im->config = S_ISDIR(st.st_mode) ? text_format("%s/config.json", word) : word;
    size_t n;
    const char *bytes = text_read(im->config, &n);
    if (!bytes)
        return command_fail(EXIT_ENVIRONMENT, "cannot read '%s': %s", im->config,
                            text_read_why(errno));
    char folder[PATH_MAX];
    const char *slash = strrchr(im->config, '/');
    if (!realpath(slash ? text_format("%.*s", (int)(slash - im->config + 1), im->config) : ".",
                  folder))
        return command_fail(EXIT_ENVIRONMENT, "cannot find the folder of '%s': %s", im->config,
                            strerror(errno));
    im->folder = text_format("%s", folder);
    json_error_t error;
    im->root = json_loadb(bytes, n, JSON_REJECT_DUPLICATES, &error);
    im->source = source_add(im->config, bytes, n);
    if (im->root && json_is_object(im->root)) return EXIT_FINE;
    if (im->root)
        complain((struct span){im->source, 0, 1}, "the configuration is not an object");
    else
        complain(
            (struct span){im->source, error.position > 0 ? error.position - 1 : 0, error.position},
            "this is not JSON: %s", error.text);
    return EXIT_PLAN;
}
