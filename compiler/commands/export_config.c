/* The configuration of Hugging Face transformers for the model of a plan: the rows of
 * import_family.c in the other direction. What is written is read again by import, and the model of
 * that plan compared with the one that was exported, so that what a configuration cannot say is
 * found and refused. */
#include "base/escape.h"
#include "commands/export.h"

#include <math.h>
#include <string.h>

static const json_t *model_key(const json_t *keys, const char *hyper)
{
    return json_object_get(keys, text_format("model.%s", hyper));
}

static double number_of(const json_t *keys, const char *hyper)
{
    return json_number_value(model_key(keys, hyper));
}

static void line(struct text *to, const char *key, const char *value)
{
    text_add(to, ",\n  \"%s\": %s", key, value);
}

/* A number with a point, which is how transformers tells a real one. */
static const char *real_text(double x)
{
    const char *text = text_number(x);
    return strpbrk(text, ".e") ? text : text_format("%s.0", text);
}

/* The first word that the configuration has for the plan's. */
static const char *word_text(const struct import_key *k, bool on)
{
    for (const char *at = k->words; *at;) {
        const size_t theirs = strcspn(at, " "), ours = strcspn(at + theirs + 1, " ");
        const char *value = at + theirs + 1;
        if (!strncmp(value, on ? "on" : "off", ours))
            return text_format("\"%.*s\"", (int)theirs, at);
        at = value + ours + (value[ours] == ' ');
    }
    bug("no word for %s", k->hyper);
}

static const char *key_text(const struct import_key *k, const json_t *v)
{
    switch (k->kind) {
    case IMPORT_WHOLE_OR_NONE:
    case IMPORT_REAL_OR_NONE:
        if (json_is_number(v) && !(json_number_value(v) > 0)) return "null";
        return k->kind == IMPORT_REAL_OR_NONE
                   ? real_text(json_number_value(v))
                   : text_format("%lld", (long long)json_integer_value(v));
    case IMPORT_WHOLE:
    case IMPORT_COUNT:
        return json_is_integer(v) ? text_format("%lld", (long long)json_integer_value(v)) : NULL;
    case IMPORT_REAL:
    case IMPORT_FRACTION: return json_is_number(v) ? real_text(json_number_value(v)) : NULL;
    case IMPORT_TRUTH: return json_is_boolean(v) ? (json_is_true(v) ? "true" : "false") : NULL;
    case IMPORT_WORD: return json_is_boolean(v) ? word_text(k, json_is_true(v)) : NULL;
    }
    bug("a key of kind %d", (int)k->kind);
}

/* ── layers without experts ──────────────────────────────────────────────────── */

/* Whether a list of layers, [0, [2, 5]] with ranges as pairs, has this one. */
static bool has_layer(const json_t *list, int64_t layer)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *one = json_array_get(list, i);
        if (json_is_integer(one) && json_integer_value(one) == layer) return true;
        if (json_is_array(one) && json_integer_value(json_array_get(one, 0)) <= layer &&
            layer <= json_integer_value(json_array_get(one, 1)))
            return true;
    }
    return false;
}

static void write_dense(struct text *to, const struct import_dense *d, const json_t *keys)
{
    const json_t *list = model_key(keys, "dense_layers");
    const int64_t layers = (int64_t)number_of(keys, "layers");
    struct text dense = {0};
    for (int64_t i = 0; i < layers; i++)
        if (has_layer(list, i)) text_add(&dense, "%s%ld", dense.length ? ", " : "", i);
    line(to, d->layers, text_format("[%s]", dense.length ? dense.bytes : ""));
    line(to, d->step, "1");
    if (dense.length) line(to, d->width, text_format("%ld", (long)number_of(keys, "ffn")));
}

/* ── the configuration ───────────────────────────────────────────────────────── */

static void write_rope(struct text *to, const struct import_family *f, const json_t *keys)
{
    const struct import_rope *r = &f->rope;
    line(to, r->base ? r->base : "rope_theta", real_text(number_of(keys, "rope_theta")));
    if (r->part_otherwise)
        line(to, r->part ? r->part : "partial_rotary_factor", real_text(number_of(keys, "rotary")));
    if (r->local) line(to, "rope_local_base_freq", real_text(number_of(keys, "rope_local_theta")));
    if (r->scaling == SCALING_LINEAR && number_of(keys, "rope_linear") > 1)
        text_add(
            to, ",\n  \"rope_scaling\": {\n    \"rope_type\": \"linear\",\n    \"factor\": %s\n  }",
            real_text(number_of(keys, "rope_linear")));
    const bool yarn = r->scaling == SCALING_LLAMA3_YARN || r->scaling == SCALING_YARN;
    if (yarn && number_of(keys, "rope_yarn") > 1) {
        const double magnitude = number_of(keys, "rope_magnitude");
        text_add(to,
                 ",\n  \"rope_scaling\": {\n    \"rope_type\": \"yarn\",\n    \"factor\": %s,\n"
                 "    \"beta_fast\": %s,\n    \"beta_slow\": %s,\n%s"
                 "    \"original_max_position_embeddings\": %ld\n  }",
                 real_text(number_of(keys, "rope_yarn")), real_text(number_of(keys, "rope_fast")),
                 real_text(number_of(keys, "rope_slow")),
                 magnitude > 0
                     ? text_format("    \"attention_factor\": %s,\n", real_text(magnitude))
                     : "",
                 (long)number_of(keys, "rope_original"));
    }
    if (r->scaling != SCALING_LLAMA3_YARN || !(number_of(keys, "rope_factor") > 1)) return;
    text_add(to,
             ",\n  \"rope_scaling\": {\n    \"rope_type\": \"llama3\",\n    \"factor\": %s,\n"
             "    \"low_freq_factor\": %s,\n    \"high_freq_factor\": %s,\n"
             "    \"original_max_position_embeddings\": %ld\n  }",
             real_text(number_of(keys, "rope_factor")), real_text(number_of(keys, "rope_low")),
             real_text(number_of(keys, "rope_high")), (long)number_of(keys, "rope_original"));
}

static void write_period(struct text *to, const struct import_period *p, const json_t *keys)
{
    const int64_t layers = (int64_t)number_of(keys, "layers"),
                  period = (int64_t)number_of(keys, p->hyper);
    struct text kinds = {0};
    for (int64_t i = 0; i < layers; i++)
        text_add(&kinds, "%s\"%s\"", i ? ", " : "",
                 (i + 1) % period ? "sliding_attention" : "full_attention");
    line(to, "layer_types", text_format("[%s]", kinds.bytes));
}

/* Of all layers but the first ones; false: none has a window. */
static bool has_window(const json_t *keys)
{
    return number_of(keys, "window") > 0 &&
           number_of(keys, "full_layers") < number_of(keys, "layers");
}

static void write_window(struct text *to, const json_t *keys)
{
    const int64_t layers = (int64_t)number_of(keys, "layers"),
                  first = (int64_t)number_of(keys, "full_layers");
    struct text kinds = {0};
    line(to, "use_sliding_window", has_window(keys) ? "true" : "false");
    if (!has_window(keys)) return;
    line(to, "sliding_window", text_format("%ld", (long)number_of(keys, "window")));
    line(to, "max_window_layers", text_format("%ld", (long)first));
    for (int64_t i = 0; i < layers; i++)
        text_add(&kinds, "%s\"%s\"", i ? ", " : "",
                 i < first ? "full_attention" : "sliding_attention");
    line(to, "layer_types", text_format("[%s]", kinds.bytes));
}

/* What no plan says: from the configuration that the run began with, else from the run. */
static void write_beside(struct text *to, const struct import_family *f, const json_t *keys,
                         const json_t *beside)
{
    static const char *const token[] = {"bos_token_id", "eos_token_id", "pad_token_id"};
    if (f->theta) {
        int64_t longest = saved_whole(keys, "batch.sequence"),
                other = saved_whole(beside, f->longest);
        line(to, f->longest, text_format("%ld", other > longest ? other : longest));
    }
    for (size_t i = 0; i < COUNT_OF(token); i++) {
        const json_t *v = json_object_get(beside, token[i]);
        const char *text = v ? json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
        line(to, token[i], text ? text : "null");
    }
}

const char *export_config(const json_t *keys, const json_t *beside, enum element dtype,
                          struct text *to)
{
    const char *architecture = json_string_value(json_object_get(keys, "model"));
    const struct import_family *f = NULL;
    struct text known = {0};
    for (int i = 0; i < import_family_count; i++) {
        if (architecture && !strcmp(import_families[i].architecture, architecture))
            f = &import_families[i];
        text_add(&known, "%s%s", i ? ", " : "", import_families[i].architecture);
    }
    if (!f)
        return text_format("the model '%s' has no configuration in transformers that planc knows: "
                           "it exports %s",
                           architecture ? architecture : "?", known.bytes);
    text_add(to, "{\n  \"architectures\": [\n    \"%s\"\n  ],\n  \"model_type\": \"%s\"", f->class,
             f->model_type);
    for (int i = 0; i < f->keys; i++) {
        const struct import_key *k = &f->key[i];
        const json_t *v = model_key(keys, k->hyper);
        /* a run of a planc whose family had no such key yet */
        if (!v && k->kind == IMPORT_WORD && k->otherwise && !strcmp(k->otherwise, "off")) continue;
        const char *text = v ? key_text(k, v) : NULL;
        if (!text) return text_format("the plan's model.%s is not what %s has", k->hyper, f->class);
        line(to, text_format("%.*s", (int)strcspn(k->config, "|"), k->config), text);
    }
    if (f->dense.step) write_dense(to, &f->dense, keys);
    if (f->period.hyper) write_period(to, &f->period, keys);
    if (f->window_after) write_window(to, keys);
    if (f->theta) write_rope(to, f, keys);
    write_beside(to, f, keys, beside);
    text_add(to, ",\n  %s", f->exported);
    line(to, "torch_dtype", dtype == BF16 ? "\"bfloat16\"" : "\"float32\"");
    text_add(to, "\n}\n");
    return NULL;
}

const char *export_note(const json_t *keys)
{
    const bool sigmoid = json_is_true(model_key(keys, "sigmoid")),
               bias = json_is_true(model_key(keys, "balance_bias"));
    if (!sigmoid && !bias) return NULL;
    return text_format("transformers' own class of this family does not read %s%s%s: it would "
                       "choose other experts",
                       sigmoid ? "scoring_func" : "", sigmoid && bias ? " and " : "",
                       bias ? "e_score_correction_bias" : "");
}

/* ── the proof ───────────────────────────────────────────────────────────────── */

json_t *export_keys(const struct plan *p)
{
    const resolved_keys all = plan_keys(p);
    json_t *keys = json_object();
    for (int i = 0; i < all.n; i++)
        json_object_set(keys, all.item[i].path,
                        json_loads(all.item[i].json, JSON_DECODE_ANY, NULL));
    return keys;
}

static bool same_value(const json_t *a, const json_t *b)
{
    if (json_is_number(a) && json_is_number(b))
        return !(fabs(json_number_value(a) - json_number_value(b)) > 0);
    return json_equal(a, b);
}

/* Keys that have no effect for this model, so that no configuration holds them; and the lists of
 * layers, which may be written in several ways. */
static bool is_without_effect(const json_t *keys, const json_t *imported, const char *path)
{
    const json_t *mine = model_key(keys, "dense_layers"),
                 *other = model_key(imported, "dense_layers");
    const int64_t layers = (int64_t)number_of(keys, "layers");
    bool same = true, some = false;
    for (int64_t i = 0; i < layers; i++) {
        same &= has_layer(mine, i) == has_layer(other, i);
        some |= has_layer(mine, i);
    }
    if (!strcmp(path, "model.dense_layers")) return same;
    /* of training only */
    static const char *const training[] = {"model.z_loss", "model.router_z_loss",
                                           "model.balance_rate"};
    for (size_t i = 0; i < COUNT_OF(training); i++)
        if (!strcmp(path, training[i])) return true;
    if (!strcmp(path, "model.ffn") && mine) return !some;
    if (!strcmp(path, "model.full_layers")) return !has_window(keys) && !has_window(imported);
    if (!strcmp(path, "model.window") && model_key(keys, "full_layers"))
        return !has_window(keys) && !has_window(imported);
    /* a period that ends after the last layer */
    if (!strcmp(path, "model.full_every"))
        return number_of(keys, "full_every") > (double)layers &&
               number_of(imported, "full_every") > (double)layers;
    const bool llama3 = number_of(keys, "rope_factor") > 1, yarn = number_of(keys, "rope_yarn") > 1;
    if (!strcmp(path, "model.rope_original")) return !llama3 && !yarn;
    if (!strcmp(path, "model.rope_low") || !strcmp(path, "model.rope_high")) return !llama3;
    static const char *const of_yarn[] = {"model.rope_fast", "model.rope_slow",
                                          "model.rope_magnitude"};
    for (size_t i = 0; i < COUNT_OF(of_yarn); i++)
        if (!strcmp(path, of_yarn[i])) return !yarn;
    return false;
}

const char *export_same_model(const json_t *keys, const struct plan *plan)
{
    json_t *imported = export_keys(plan), *keep = json_copy((json_t *)(uintptr_t)keys), *v;
    const char *path;
    json_object_foreach(keep, path, v)
    {
        const json_t *other = json_object_get(imported, path);
        if (strcmp(path, "model") && strncmp(path, "model.", 6)) continue;
        if (other && (same_value(v, other) || is_without_effect(keys, imported, path))) continue;
        if (!strcmp(path, "model.architecture"))
            return text_format("the architecture %s is not the one of planc's library, so "
                               "transformers has no such model",
                               plan->architecture);
        const char *mine = json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT),
                   *theirs = other ? json_dumps(other, JSON_ENCODE_ANY | JSON_COMPACT) : "nothing";
        return text_format("%s is %s, and the configuration can only say %s", path, mine, theirs);
    }
    return NULL;
}
