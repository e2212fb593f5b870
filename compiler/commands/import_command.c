/* `planc import`: a configuration of Hugging Face transformers becomes a plan that trains the same
 * model. A value that would change the mathematics is refused with its line in the file. If there
 * are weights beside the configuration, their names and shapes are compared with the lowered
 * architecture, in both directions, before the plan is written. */
#define _GNU_SOURCE
#include "commands/command.h"
#include "commands/import.h"
#include "commands/import_weights.h"
#include "ir/ir.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct import {
    const char *config, *folder; /* the file; its folder, absolute */
    json_t *root;
    int source;
    const struct import_family *family;
    struct text model;  /* entries of the model block */
    struct text absent; /* what the configuration does not say, and is as transformers has it */
    int entries;
};

/* Where a key stands: its first quoted appearance. */
static struct span key_at(const struct import *im, const char *key)
{
    size_t n;
    const char *bytes = source_bytes(im->source, &n), *quoted = text_format("\"%s\"", key),
               *at = strstr(bytes, quoted);
    int from = at ? (int)(at - bytes) : 0;
    return (struct span){im->source, from, at ? from + (int)strlen(quoted) : 0};
}

static const char *value_text(const json_t *v)
{
    if (json_is_real(v)) return text_number(json_real_value(v));
    const char *text = json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT);
    if (!text) return "?";
    return strlen(text) > 60 ? text_format("%.57s...", text) : text;
}

static bool there(const json_t *v) { return v && !json_is_null(v); }

static void entry(struct import *im, const char *hyper, const char *value)
{
    text_add(&im->model, "%s%s = %s", im->entries ? im->entries % 4 ? ";  " : "\n        " : "",
             hyper, value);
    im->entries++;
}

/* What the configuration leaves to transformers is said. */
static void absent(struct import *im, const char *config, const char *value)
{
    text_add(&im->absent, "%s%s = %s", im->absent.length ? ", " : "", config, value);
}

/* ── limits and keys ─────────────────────────────────────────────────────────── */
static bool allows(const struct import_limit *limit, const json_t *v)
{
    bool fine = !there(v);
    for (size_t k = 0; k < COUNT_OF(limit->allowed) && limit->allowed[k] && !fine; k++) {
        if (!strcmp(limit->allowed[k], "*")) return true;
        json_t *allowed = json_loads(limit->allowed[k], JSON_DECODE_ANY, NULL);
        fine = json_equal(v, allowed) || (json_is_number(v) && json_is_number(allowed) &&
                                          !(json_number_value(v) < json_number_value(allowed)) &&
                                          !(json_number_value(v) > json_number_value(allowed)));
    }
    for (size_t i = 0; i < json_array_size(v) && !fine; i++)
        if (!allows(limit, json_array_get(v, i))) return false;
    return fine || (json_is_array(v) && limit->allowed[0]);
}

static void check_limits(struct import *im, const struct import_limit *limit, int n)
{
    for (int i = 0; i < n; i++) {
        const json_t *v = json_object_get(im->root, limit[i].config);
        if (!allows(&limit[i], v))
            complain(key_at(im, limit[i].config), "%s = %s cannot be imported: %s", limit[i].config,
                     value_text(v), limit[i].why);
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
            entry(im, k->hyper, ours);
            return;
        }
        text_add(&known, "%s%s", known.length ? ", " : "", theirs);
    }
    add_help(
        complain(key_at(im, k->config), "%s = %s cannot be imported", k->config, value_text(v)),
        "it is one of %s", known.bytes);
}

/* The name behind the one at `at` ("a|b"), and its text; NULL behind the last. */
static const char *next_name(const char *at, const char **name)
{
    size_t n = strcspn(at, "|");
    if (!n) return NULL;
    *name = intern_bytes(at, n);
    return at + n + (at[n] == '|');
}

static void read_key(struct import *im, const struct import_key *row)
{
    struct import_key key = *row, *k = &key;
    const json_t *v = NULL;
    const char *name, *first = NULL;
    for (const char *at = row->config; (at = next_name(at, &name));) {
        const json_t *one = json_object_get(im->root, name);
        if (!first) first = key.config = name;
        if (!there(one)) continue;
        if (v && !json_equal(v, one))
            complain(key_at(im, name), "%s = %s, and %s = %s", key.config, value_text(v), name,
                     value_text(one));
        else if (!v) {
            v = one;
            key.config = name;
        }
    }
    if (!there(v)) {
        if (!k->otherwise)
            complain((struct span){im->source, 0, 1}, "the configuration lacks %s", k->config);
        else if (*k->otherwise) {
            entry(im, k->hyper, k->otherwise);
            absent(im, k->config, k->otherwise);
        }
        return;
    }
    switch (k->kind) {
    case IMPORT_WHOLE:
        if (json_is_integer(v) && json_integer_value(v) > 0)
            entry(im, k->hyper, text_format("%lld", (long long)json_integer_value(v)));
        else
            complain(key_at(im, k->config), "%s = %s is not a positive whole number", k->config,
                     value_text(v));
        return;
    case IMPORT_REAL:
        if (json_is_number(v) && json_number_value(v) > 0)
            entry(im, k->hyper, text_number(json_number_value(v)));
        else
            complain(key_at(im, k->config), "%s = %s is not a positive number", k->config,
                     value_text(v));
        return;
    case IMPORT_FRACTION:
        if (json_is_number(v) && !(json_number_value(v) < 0))
            entry(im, k->hyper, text_number(json_number_value(v)));
        else
            complain(key_at(im, k->config), "%s = %s is not a number from 0 on", k->config,
                     value_text(v));
        return;
    case IMPORT_WORD: read_word(im, k, v); return;
    case IMPORT_TRUTH:
        if (json_is_boolean(v))
            entry(im, k->hyper, json_is_true(v) ? "on" : "off");
        else
            complain(key_at(im, k->config), "%s = %s is neither true nor false", k->config,
                     value_text(v));
        return;
    }
    bug("a key of kind %d", (int)k->kind);
}

/* ── layers without experts ──────────────────────────────────────────────────── */
static bool whole_at(struct import *im, const char *key, json_int_t least, json_int_t otherwise,
                     json_int_t *whole)
{
    const json_t *v = json_object_get(im->root, key);
    *whole = there(v) ? json_integer_value(v) : otherwise;
    if (!there(v) || (json_is_integer(v) && *whole >= least)) return true;
    complain(key_at(im, key), "%s = %s is not a whole number from %lld on", key, value_text(v),
             (long long)least);
    return false;
}

/* Neighbours become ranges: [0..2, 5]. */
static void read_dense(struct import *im)
{
    const struct import_dense *d = &im->family->dense;
    const json_t *list = json_object_get(im->root, d->layers);
    json_int_t layers = json_integer_value(json_object_get(im->root, "num_hidden_layers")), step,
               width, dense = 0;
    bool fine = !there(list) || json_is_array(list);
    for (size_t i = 0; fine && i < json_array_size(list); i++)
        fine = json_is_integer(json_array_get(list, i));
    if (!fine)
        complain(key_at(im, d->layers), "%s = %s is not a list of layers", d->layers,
                 value_text(list));
    if (!whole_at(im, d->step, 1, 1, &step) || !fine || layers < 1) return;
    if (layers > LAYERS_LIMIT) {
        complain(key_at(im, "num_hidden_layers"), "%lld layers are more than planc can count (%d)",
                 (long long)layers, LAYERS_LIMIT);
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
        complain(key_at(im, there(list) && json_array_size(list) ? d->layers : d->step),
                 "no layer of the mixture would have experts");
    entry(im, "dense_layers", text_format("[%s]", all.bytes));
    if (!there(json_object_get(im->root, d->width)))
        complain((struct span){im->source, 0, 1},
                 "the configuration lacks %s, the width of its dense layers", d->width);
    else if (whole_at(im, d->width, 1, 0, &width))
        entry(im, "ffn", text_format("%lld", (long long)width));
}

/* ── rotary positions: three spellings of one thing ──────────────────────────── */
static void read_theta(struct import *im, const json_t *rope)
{
    const json_t *v = json_object_get(rope, "rope_theta");
    if (!there(v)) v = json_object_get(im->root, "rope_theta");
    if (!there(v)) {
        entry(im, "rope_theta", im->family->theta);
        absent(im, "rope_theta", im->family->theta);
    } else if (json_is_number(v) && json_number_value(v) > 0)
        entry(im, "rope_theta", text_number(json_number_value(v)));
    else
        complain(key_at(im, "rope_theta"), "rope_theta = %s is not a positive number",
                 value_text(v));
}

static void read_llama3(struct import *im, const char *name, json_t *rope)
{
    static const struct {
        const char *key, *hyper;
    } row[] = {
        {"factor", "rope_factor"},
        {"low_freq_factor", "rope_low"},
        {"high_freq_factor", "rope_high"},
        {"original_max_position_embeddings", "rope_original"},
    };
    for (size_t i = 0; i < COUNT_OF(row); i++) {
        const json_t *v = json_object_get(rope, row[i].key);
        if (!there(v))
            complain(key_at(im, name), "%s of type llama3 lacks %s", name, row[i].key);
        else if (!json_is_number(v) || !(json_number_value(v) > 0))
            complain(key_at(im, row[i].key), "%s = %s is not a positive number", row[i].key,
                     value_text(v));
        else
            entry(im, row[i].hyper, text_number(json_number_value(v)));
    }
}

static void read_rope(struct import *im)
{
    const char *name =
        there(json_object_get(im->root, "rope_parameters")) ? "rope_parameters" : "rope_scaling";
    json_t *rope = json_object_get(im->root, name);
    if (there(rope) && !json_is_object(rope)) {
        complain(key_at(im, name), "%s = %s is not an object", name, value_text(rope));
        return;
    }
    read_theta(im, rope);
    if (!there(rope)) return;
    const json_t *type = json_object_get(rope, "rope_type"), *old = json_object_get(rope, "type");
    if (!there(type))
        type = old;
    else if (there(old) && !json_equal(type, old)) {
        complain(key_at(im, name), "%s says both type %s and rope_type %s", name, value_text(old),
                 value_text(type));
        return;
    }
    const char *kind = there(type) ? json_string_value(type) : "default";
    bool llama3 = kind && !strcmp(kind, "llama3");
    if (!kind || (!llama3 && strcmp(kind, "default"))) {
        complain(key_at(im, name),
                 "%s of type %s cannot be imported: planc knows default and llama3", name,
                 value_text(type));
        return;
    }
    const char *key;
    json_t *v;
    json_object_foreach(rope, key, v)
    {
        static const char *const known[] = {"rope_type",
                                            "type",
                                            "rope_theta",
                                            "factor",
                                            "low_freq_factor",
                                            "high_freq_factor",
                                            "original_max_position_embeddings"};
        bool fine = !there(v) || (!strcmp(key, "partial_rotary_factor") && json_is_number(v) &&
                                  !(json_number_value(v) < 1) && !(json_number_value(v) > 1));
        for (size_t i = 0; i < COUNT_OF(known); i++) fine |= !strcmp(known[i], key);
        if (!fine)
            complain(key_at(im, key),
                     "%s.%s = %s cannot be imported: planc does not know what it changes", name,
                     key, value_text(v));
    }
    if (llama3) read_llama3(im, name, rope);
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
        add_help(complain(key_at(im, "model_type"), "model_type \"%s\" cannot be imported", type),
                 "planc imports %s", known.bytes);
    if (!im->family) return false;
    const json_t *classes = json_object_get(im->root, "architectures");
    for (size_t i = 0; i < json_array_size(classes); i++) {
        const char *class = json_string_value(json_array_get(classes, i));
        if (class && strcmp(class, im->family->class))
            complain(key_at(im, class), "a %s cannot be imported: planc trains %s", class,
                     im->family->class);
    }
    return true;
}

static bool is_read(const struct import *im, const char *key)
{
    const char *name;
    for (int i = 0; i < im->family->keys; i++)
        for (const char *at = im->family->key[i].config; (at = next_name(at, &name));)
            if (!strcmp(name, key)) return true;
    for (int i = 0; i < im->family->limits; i++)
        if (!strcmp(im->family->limit[i].config, key)) return true;
    for (int i = 0; i < import_limit_count; i++)
        if (!strcmp(import_limits[i].config, key)) return true;
    for (int i = 0; import_dropouts[i]; i++)
        if (!strcmp(import_dropouts[i], key)) return true;
    const struct import_dense *d = &im->family->dense;
    if (d->step && (!strcmp(key, d->layers) || !strcmp(key, d->step) || !strcmp(key, d->width)))
        return true;
    return im->family->theta && (!strcmp(key, "rope_theta") || !strcmp(key, "rope_scaling") ||
                                 !strcmp(key, "rope_parameters"));
}

/* One warning, however many kinds of dropout a configuration has. */
static void read_dropout(struct import *im)
{
    struct text all = {0};
    const char *first = NULL;
    for (int i = 0; import_dropouts[i]; i++) {
        const json_t *v = json_object_get(im->root, import_dropouts[i]);
        if (!there(v) || (json_is_number(v) && !(json_number_value(v) > 0))) continue;
        if (!first) first = import_dropouts[i];
        text_add(&all, "%s%s = %s", all.length ? ", " : "", import_dropouts[i], value_text(v));
    }
    if (first)
        add_help(warn(key_at(im, first),
                      "planc trains without dropout, this model was trained "
                      "with it: %s",
                      all.bytes),
                 "evaluation is the same; training sees no noise, as with 0 there");
}

static bool read_config(struct import *im)
{
    if (!choose_family(im)) return false;
    for (int i = 0; i < im->family->keys; i++) read_key(im, &im->family->key[i]);
    if (im->family->dense.step) read_dense(im);
    if (im->family->theta) read_rope(im);
    check_limits(im, import_limits, import_limit_count);
    read_dropout(im);
    check_limits(im, im->family->limit, im->family->limits);
    const char *key;
    json_t *v;
    json_object_foreach(im->root, key,
                        v) if (there(v) && !is_read(im, key) && !import_is_harmless(key))
        warn(key_at(im, key), "%s = %s is not read: make sure that it does not change the model",
             key, value_text(v));
    return error_count() == 0;
}

/* ── the plan ────────────────────────────────────────────────────────────────── */
static const char *quoted(const char *text)
{
    struct text t = {0};
    text_add(&t, "\"");
    for (const char *s = text; *s; s++) {
        if (*s == '"' || *s == '\\') text_add(&t, "\\");
        text_add_bytes(&t, s, 1);
    }
    text_add(&t, "\"");
    return t.bytes;
}

static void write_plan(const struct import *im, const char *title, bool weights, struct text *to)
{
    json_int_t longest = json_integer_value(json_object_get(im->root, im->family->longest));
    long long sequence = longest > 0 && longest < 1024 ? (long long)longest : 1024;
    text_add(to, "# Imported from a Hugging Face configuration. Every key below can be set on the "
                 "command line: --set batch.sequence=512\n");
    text_add(to, "use \"models/%s.plan\"\nuse \"clusters/cpu.plan\"\n\n", im->family->architecture);
    text_add(to, "plan %s {\n", quoted(title));
    text_add(to, "    model %s {\n        %s\n    }\n", im->family->architecture, im->model.bytes);
    text_add(to, "    cluster cpu { }\n");
    text_add(to, "    mesh { fsdp = 1;  dp = auto }\n");
    text_add(to, "    precision { compute = fp32 }\n");
    text_add(to, "    activation_checkpoint { mode = none }\n");
    text_add(to, "    batch { sequence = %lld;  local = 1;  global = auto }\n", sequence);
    text_add(to, "    optimizer adamw { lr = 3e-4;  betas = [0.9, 0.95];  eps = 1e-8;  "
                 "weight_decay = 0.1;  clip = 1.0 }\n");
    text_add(to, "    schedule cosine { warmup = 0;  steps = 1000;  floor = 0.1 }\n");
    bool wide = json_integer_value(json_object_get(im->root, "vocab_size")) > 65536;
    text_add(to, "    data { train = \"tokens.bin\";  format = %s;  order = sequential }\n",
             wide ? "uint32" : "uint16");
    if (weights)
        text_add(to, "    init { from = %s }\n", quoted(im->folder));
    else
        text_add(to, "    init { seed = 0 }\n");
    text_add(to, "}\n");
}

/* The written text, as a plan: what the checker and the lowering say of it, and whether the stored
 * weights are all of it. NULL after a message, *status then set. */
static struct plan *prove(const struct import *im, const char *path,
                          const struct weight_files *weights, int *status)
{
    struct arguments none = {.command = "import", .fusion = true};
    struct plan *plan = command_plan(&none, path, status);
    struct graph *g = plan ? pass_lower(plan) : NULL;
    if (plan && !g) *status = EXIT_PLAN;
    if (!g) return NULL;
    const char *why = weights->set->tensors ? weights_match(weights, plan, g) : NULL;
    if (!why) return plan;
    *status = command_fail(EXIT_ENVIRONMENT, "%s: %s", im->folder, why);
    return NULL;
}

static int open_config(struct import *im, const char *word)
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

/* transformers adds the balance loss only where the router's logits are asked for, and that is for
 * fine-tuning; pre-training needs it. */
static void say_balance(const struct import *im)
{
    const json_t *coefficient = json_object_get(im->root, "router_aux_loss_coef");
    bool mixture = false;
    for (int i = 0; i < im->family->keys; i++)
        mixture |= !strcmp(im->family->key[i].config, "router_aux_loss_coef");
    if (!mixture || json_is_true(json_object_get(im->root, "output_router_logits")) ||
        (there(coefficient) && !(json_number_value(coefficient) > 0)))
        return;
    printf(
        "  with the balance loss, router_aux_loss_coef = %s: transformers would train without it, "
        "since output_router_logits is not true; --set model.aux_weight=0 does as it does\n",
        there(coefficient) ? value_text(coefficient) : "0.001");
}

struct plan *import_folder(const char *folder, const struct weight_files *weights, int *status)
{
    struct import im = {0};
    *status = open_config(&im, folder);
    if (*status != EXIT_FINE) return NULL;
    *status = EXIT_PLAN;
    if (!read_config(&im)) return NULL;
    im.folder = weights->set->path; /* what a message about them names */
    if (im.family->fused && weights_have(weights, im.family->fused))
        entry(&im, "fused_experts", "on");
    struct text text = {0};
    write_plan(&im, "exported", false, &text);
    const char *path = text_format("%s/exported.plan", folder);
    if (!file_write(path, text.bytes, text.length)) {
        *status = command_fail(EXIT_ENVIRONMENT, "cannot write '%s': %s", path, strerror(errno));
        return NULL;
    }
    struct plan *plan = prove(&im, path, weights, status);
    if (!unlink(path)) return plan;
    *status = command_fail(EXIT_ENVIRONMENT, "cannot remove '%s': %s", path, strerror(errno));
    return NULL;
}

int command_import(const struct arguments *a)
{
    struct import im = {0};
    if (a->word.n != 1 || !a->output)
        return command_fail(EXIT_USAGE, "import takes a folder or config.json, and -o FILE.plan");
    if (a->set.n)
        return command_fail(
            EXIT_USAGE, "import takes no --set: it writes every key, and build and run take them");
    json_in_arena();
    int status = open_config(&im, a->word.item[0]);
    if (status != EXIT_FINE) return status;
    if (!read_config(&im)) return EXIT_PLAN;
    struct weight_files weights = {0};
    const char *why = weights_open(im.folder, &weights);
    if (why) return command_fail(EXIT_ENVIRONMENT, "%s", why);

    if (im.family->fused && weights_have(&weights, im.family->fused))
        entry(&im, "fused_experts", "on");

    const char *base = strrchr(im.folder, '/'),
               *title = base && base[1] ? base + 1 : im.family->model_type;
    struct text plan = {0};
    write_plan(&im, title, weights.set->tensors > 0, &plan);
    struct stat old;
    if (!stat(a->output, &old) && !S_ISREG(old.st_mode))
        return command_fail(EXIT_USAGE, "-o wants a file to write, '%s' is none", a->output);
    const char *part = text_format("%s.%d.part", a->output, (int)getpid());
    if (!file_write(part, plan.bytes, plan.length))
        return command_fail(EXIT_ENVIRONMENT, "cannot write '%s': %s", a->output, strerror(errno));
    if (prove(&im, part, &weights, &status)) status = EXIT_FINE;
    if (status == EXIT_FINE && rename(part, a->output))
        status =
            command_fail(EXIT_ENVIRONMENT, "cannot write '%s': %s", a->output, strerror(errno));
    if (status != EXIT_FINE) {
        if (unlink(part) && errno != ENOENT)
            command_fail(EXIT_ENVIRONMENT, "cannot remove '%s': %s", part, strerror(errno));
        return status;
    }
    if (weights.set->tensors)
        printf("%s: a %s; the tensors of %s are its weights, every one\n", a->output,
               im.family->architecture, im.folder);
    else
        printf(
            "%s: a %s; no safetensors beside the configuration, so its weights start from a seed\n",
            a->output, im.family->architecture);
    say_balance(&im);
    if (im.absent.length)
        printf("  not in the configuration, so as transformers has it: %s\n", im.absent.bytes);
    return EXIT_FINE;
}
