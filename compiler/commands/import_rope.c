/* Rotary positions in a configuration: spelled as keys of the top level with rope_scaling beside
 * them, as one object rope_parameters, or as one such object for each kind of layer. */
#include "commands/import_config.h"

#include <math.h>
#include <string.h>

static const char *base_name(const struct import_family *f)
{
    return f->rope.base ? f->rope.base : "rope_theta";
}

static const char *part_name(const struct import_family *f)
{
    return f->rope.part ? f->rope.part : "partial_rotary_factor";
}

bool import_rope_reads(const struct import_family *f, const char *key)
{
    static const char *const always[] = {"rope_scaling", "rope_parameters"};
    for (size_t i = 0; f->theta && i < COUNT_OF(always); i++)
        if (!strcmp(key, always[i])) return true;
    return f->theta &&
           (!strcmp(key, base_name(f)) || (f->rope.part_otherwise && !strcmp(key, part_name(f))) ||
            (f->rope.local && !strcmp(key, "rope_local_base_freq")));
}

/* The number that the object has as `key`, else the configuration as `top`, else `otherwise`. Where
 * both have it and differ, releases of transformers take one or the other. */
static void read_number(struct import *im, const json_t *rope, const char *key, const char *top,
                        const char *hyper, const char *otherwise)
{
    const json_t *v = json_object_get(rope, key);
    const char *said = key;
    const json_t *outer = json_object_get(im->root, top);
    if (!import_is_there(v)) v = outer, said = top;
    if (!import_is_there(v)) {
        import_entry(im, hyper, otherwise);
        import_absent(im, top, otherwise);
    } else if (json_is_number(outer) && json_is_number(v) &&
               (json_number_value(outer) < json_number_value(v) ||
                json_number_value(outer) > json_number_value(v)))
        complain(import_key_at(im, top), "%s = %s, and the object of rotary positions has %s = %s",
                 top, import_value_text(outer), key, import_value_text(v));
    else if (json_is_number(v) && json_number_value(v) > 0)
        import_entry(im, hyper, text_number(json_number_value(v)));
    else
        complain(import_key_at(im, said), "%s = %s is not a positive number", said,
                 import_value_text(v));
}

struct scale {
    const char *key, *hyper;
};

static void read_scaling(struct import *im, const char *name, json_t *rope, const char *kind,
                         const struct scale *row, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_object_get(rope, row[i].key);
        if (!import_is_there(v))
            complain(import_key_at(im, name), "%s of type %s lacks %s", name, kind, row[i].key);
        else if (!json_is_number(v) || !(json_number_value(v) > 0))
            complain(import_key_at(im, row[i].key), "%s = %s is not a positive number", row[i].key,
                     import_value_text(v));
        else
            import_entry(im, row[i].hyper, text_number(json_number_value(v)));
    }
}

/* The type of an object of rotary positions; NULL after a message. */
static const char *type_of(struct import *im, const char *name, const json_t *rope)
{
    const json_t *type = json_object_get(rope, "rope_type"), *old = json_object_get(rope, "type");
    if (!import_is_there(type))
        type = old;
    else if (import_is_there(old) && !json_equal(type, old)) {
        complain(import_key_at(im, name), "%s says both type %s and rope_type %s", name,
                 import_value_text(old), import_value_text(type));
        return NULL;
    }
    return import_is_there(type)
               ? json_is_string(type) ? json_string_value(type) : import_value_text(type)
               : "default";
}

/* Keys of the object that nothing here reads. */
static void check_keys(struct import *im, const char *name, json_t *rope)
{
    static const char *const known[] = {"rope_type",        "type",
                                        "rope_theta",       "factor",
                                        "low_freq_factor",  "high_freq_factor",
                                        "beta_fast",        "beta_slow",
                                        "attention_factor", "mscale",
                                        "mscale_all_dim",   "original_max_position_embeddings"};
    const char *key;
    json_t *v;
    json_object_foreach(rope, key, v)
    {
        const bool part = !strcmp(key, "partial_rotary_factor"),
                   whole = json_is_number(v) && !(json_number_value(v) < 1) &&
                           !(json_number_value(v) > 1);
        const bool cut = !strcmp(key, "truncate") && json_is_true(v);
        bool fine =
            cut || !import_is_there(v) || (part && (whole || im->family->rope.part_otherwise));
        for (size_t i = 0; i < COUNT_OF(known); i++) fine |= !strcmp(known[i], key);
        if (!fine)
            complain(import_key_at(im, key),
                     "%s.%s = %s cannot be imported: planc does not know what it changes", name,
                     key, import_value_text(v));
    }
}

/* A positive number of the object, 0 if it has none. */
static double number_in(struct import *im, json_t *rope, const char *key)
{
    const json_t *v = json_object_get(rope, key);
    if (!import_is_there(v)) return 0;
    if (json_is_number(v) && json_number_value(v) > 0) return json_number_value(v);
    complain(import_key_at(im, key), "%s = %s is not a positive number", key, import_value_text(v));
    return 0;
}

/* As transformers reads yarn: 32 and 1 turns, the longest sequence if no original one is said, and
 * the magnitude by attention_factor or, if both are there, by mscale and mscale_all_dim. */
static void read_yarn(struct import *im, const char *name, json_t *rope)
{
    static const struct scale factor[] = {{"factor", "rope_yarn"}};
    const double fast = number_in(im, rope, "beta_fast"), slow = number_in(im, rope, "beta_slow"),
                 said = number_in(im, rope, "original_max_position_embeddings"),
                 stretch = number_in(im, rope, "factor"), above = number_in(im, rope, "mscale"),
                 below = number_in(im, rope, "mscale_all_dim");
    double magnitude = number_in(im, rope, "attention_factor");
    read_scaling(im, name, rope, "yarn", factor, 1);
    if (fast > 0) import_entry(im, "rope_fast", text_number(fast));
    if (slow > 0) import_entry(im, "rope_slow", text_number(slow));
    const double original = said > 0 ? said : number_in(im, im->root, im->family->longest);
    if (original > 0)
        import_entry(im, "rope_original", text_number(original));
    else
        complain(import_key_at(im, name), "%s of type yarn lacks original_max_position_embeddings",
                 name);
    if (!(magnitude > 0) && above > 0 && below > 0 && stretch > 1)
        magnitude = (0.1 * above * log(stretch) + 1) / (0.1 * below * log(stretch) + 1);
    if (magnitude > 0) import_entry(im, "rope_magnitude", text_number(magnitude));
}

/* The scaling that an object of rotary positions says; `whole`: the layers see the whole
 * sequence. */
static void read_object(struct import *im, const char *name, json_t *rope, bool whole)
{
    static const struct scale llama3[] = {
        {"factor", "rope_factor"},
        {"low_freq_factor", "rope_low"},
        {"high_freq_factor", "rope_high"},
        {"original_max_position_embeddings", "rope_original"},
    };
    static const struct scale linear[] = {{"factor", "rope_linear"}};
    const char *kind = type_of(im, name, rope), *other = NULL;
    if (!kind) return;
    bool yarn = false;
    switch (im->family->rope.scaling) {
    case SCALING_LLAMA3_YARN: other = "llama3", yarn = true; break;
    case SCALING_YARN: yarn = true; break;
    case SCALING_LINEAR: other = whole ? "linear" : NULL; break;
    case SCALING_NONE: break;
    }
    const bool scaled = other && !strcmp(kind, other), by_yarn = yarn && !strcmp(kind, "yarn");
    if (!scaled && !by_yarn && strcmp(kind, "default")) {
        complain(import_key_at(im, name),
                 "%s of type \"%s\" cannot be imported: planc knows %s%s%s%s", name, kind,
                 other || yarn ? "default" : "default only", other ? ", " : "", other ? other : "",
                 yarn ? ", yarn" : "");
        return;
    }
    check_keys(im, name, rope);
    if (scaled && im->family->rope.scaling == SCALING_LINEAR)
        read_scaling(im, name, rope, kind, linear, COUNT_OF(linear));
    else if (scaled)
        read_scaling(im, name, rope, kind, llama3, COUNT_OF(llama3));
    else if (by_yarn)
        read_yarn(im, name, rope);
}

/* One object for the layers that see the whole sequence, one for those with a window. */
static void read_kinds(struct import *im, json_t *kinds)
{
    static const char full[] = "full_attention", window[] = "sliding_attention";
    const char *key;
    json_t *v;
    json_object_foreach(kinds, key, v)
    {
        if (!import_is_there(v)) continue;
        if (strcmp(key, full) && strcmp(key, window))
            complain(import_key_at(im, key),
                     "rope_parameters.%s cannot be imported: layers are "
                     "%s or %s",
                     key, full, window);
        else if (!json_is_object(v))
            complain(import_key_at(im, key), "%s = %s is not an object", key, import_value_text(v));
        else
            read_object(im, key, v, !strcmp(key, full));
    }
    read_number(im, json_object_get(kinds, full), "rope_theta", "rope_theta", "rope_theta",
                im->family->theta);
    read_number(im, json_object_get(kinds, window), "rope_theta", "rope_local_base_freq",
                "rope_local_theta", im->family->rope.local);
}

/* Whether all that `a` says of a scaling, `b` says too. */
static bool says_too(const json_t *a, const json_t *b)
{
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)a, key, v)
    {
        const bool aside = !strcmp(key, "rope_theta") || !strcmp(key, "partial_rotary_factor") ||
                           !strcmp(key, "type") || !strcmp(key, "rope_type");
        const json_t *w = json_object_get(b, key);
        const bool alike = json_is_number(v) && json_is_number(w)
                               ? !(json_number_value(v) < json_number_value(w)) &&
                                     !(json_number_value(v) > json_number_value(w))
                               : json_equal(v, w);
        if (!aside && import_is_there(v) && !alike) return false;
    }
    return true;
}

/* rope_scaling beside rope_parameters must say the same: some releases of transformers take the one
 * and some the other. False after a message. */
static bool both_agree(struct import *im, const json_t *parameters)
{
    const json_t *scaling = json_object_get(im->root, "rope_scaling");
    if (!import_is_there(scaling) || !import_is_there(parameters)) return true;
    if (im->family->rope.local) parameters = json_object_get(parameters, "full_attention");
    const char *one = type_of(im, "rope_scaling", scaling),
               *other = type_of(im, "rope_parameters", parameters);
    if (!one || !other) return false;
    if (!strcmp(one, other) && says_too(scaling, parameters) && says_too(parameters, scaling))
        return true;
    complain(import_key_at(im, "rope_scaling"),
             "rope_scaling (%s) and rope_parameters (%s) are not the same scaling", one, other);
    return false;
}

void import_rope(struct import *im)
{
    const struct import_family *f = im->family;
    const char *name = import_is_there(json_object_get(im->root, "rope_parameters"))
                           ? "rope_parameters"
                           : "rope_scaling";
    json_t *rope = json_object_get(im->root, name);
    if (import_is_there(rope) && !json_is_object(rope)) {
        complain(import_key_at(im, name), "%s = %s is not an object", name,
                 import_value_text(rope));
        return;
    }
    if (!strcmp(name, "rope_parameters") && !both_agree(im, rope)) return;
    if (f->rope.local && !strcmp(name, "rope_parameters")) {
        read_kinds(im, rope);
        return;
    }
    read_number(im, rope, "rope_theta", base_name(f), "rope_theta", f->theta);
    if (f->rope.local)
        read_number(im, NULL, "", "rope_local_base_freq", "rope_local_theta", f->rope.local);
    if (f->rope.part_otherwise)
        read_number(im, rope, "partial_rotary_factor", part_name(f), "rotary",
                    f->rope.part_otherwise);
    if (import_is_there(rope)) read_object(im, name, rope, true);
}
