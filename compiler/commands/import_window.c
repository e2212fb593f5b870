/* Which layers of a configuration see the whole sequence, and which a window: every n-th does, or
 * the first ones do. transformers has a list of the kinds of all layers, layer_types, and each
 * family has keys of its own that the list is made of where it is not there. */
#include "commands/import_config.h"

#include <string.h>

static const char full[] = "full_attention", window[] = "sliding_attention";

static bool is_kind(const json_t *kinds, size_t layer, const char *kind)
{
    return json_equal(json_array_get(kinds, layer), json_string(kind));
}

/* Whether layer_types has a kind for each layer. */
static bool is_whole(const struct import *im, const json_t *kinds)
{
    return json_integer_value(json_object_get(im->root, "num_hidden_layers")) ==
           (json_int_t)json_array_size(kinds);
}

bool import_window_reads(const struct import_family *f, const char *key)
{
    static const char *const first[] = {"use_sliding_window", "sliding_window",
                                        "max_window_layers"};
    if (!f->period.hyper && !f->window_after) return false;
    for (size_t i = 0; f->window_after && i < COUNT_OF(first); i++)
        if (!strcmp(key, first[i])) return true;
    return !strcmp(key, "layer_types") || (f->period.config && !strcmp(key, f->period.config));
}

/* ── every n-th layer ────────────────────────────────────────────────────────── */

/* Every n-th layer, from a list of the kinds of all layers; 0 after a message. A list without such
 * a layer is one with the first of them after the last layer. */
static json_int_t period_of(struct import *im, const json_t *kinds)
{
    const size_t n = json_array_size(kinds);
    size_t period = 0;
    bool fine = is_whole(im, kinds);
    while (period < n && is_kind(kinds, period, window)) period++;
    period++;
    for (size_t i = 0; i < n && fine; i++)
        fine = is_kind(kinds, i, (i + 1) % period ? window : full);
    if (fine) return (json_int_t)period;
    complain(import_key_at(im, "layer_types"),
             "layer_types cannot be imported: a layer that sees the whole sequence follows after "
             "the same number of layers with a window, for every layer of num_hidden_layers");
    return 0;
}

static void read_period(struct import *im, const struct import_period *row)
{
    const json_t *kinds = json_object_get(im->root, "layer_types");
    json_int_t period = row->otherwise;
    if (import_is_there(kinds))
        period = period_of(im, kinds);
    else if (row->config && !import_whole(im, row->config, 1, period, &period))
        return;
    import_entry(im, row->hyper, text_format("%lld", (long long)period));
}

/* ── all layers after the first ones ─────────────────────────────────────────── */

/* How many layers see the whole sequence before all others see a window; -1 after a message. */
static json_int_t first_of(struct import *im, const json_t *kinds)
{
    const size_t n = json_array_size(kinds);
    size_t first = 0;
    bool fine = is_whole(im, kinds);
    while (first < n && is_kind(kinds, first, full)) first++;
    for (size_t i = first; i < n && fine; i++) fine = is_kind(kinds, i, window);
    if (fine) return (json_int_t)first;
    complain(import_key_at(im, "layer_types"),
             "layer_types = %s cannot be imported: it is a list of every layer of "
             "num_hidden_layers, those with a window after those that see the whole sequence",
             import_value_text(kinds));
    return -1;
}

/* Without use_sliding_window the other keys are read by nothing. */
static void read_first(struct import *im)
{
    static const char use[] = "use_sliding_window", size[] = "sliding_window",
                      layers[] = "max_window_layers";
    const json_t *on = json_object_get(im->root, use),
                 *kinds = json_object_get(im->root, "layer_types");
    const json_int_t all = json_integer_value(json_object_get(im->root, "num_hidden_layers"));
    json_int_t width = 4096, first = 28;
    if (import_is_there(on) && !json_is_boolean(on)) {
        complain(import_key_at(im, use), "%s = %s is not true or false", use,
                 import_value_text(on));
        return;
    }
    const bool none = !json_is_true(on) || json_is_null(json_object_get(im->root, size));
    if (!none &&
        (!import_whole(im, size, 1, width, &width) || !import_whole(im, layers, 0, first, &first)))
        return;
    if (import_is_there(kinds) && (first = first_of(im, kinds)) < 0) return;
    if (none && import_is_there(kinds) && first < all) {
        complain(import_key_at(im, "layer_types"),
                 "layer_types has layers with a window, and %s says that there is none",
                 json_is_true(on) ? size : use);
        return;
    }
    if (none || first >= all) return;
    if (!import_is_there(json_object_get(im->root, size))) import_absent(im, size, "4096");
    if (!import_is_there(kinds) && !import_is_there(json_object_get(im->root, layers)))
        import_absent(im, layers, "28");
    import_entry(im, "window", text_format("%lld", (long long)width));
    import_entry(im, "full_layers", text_format("%lld", (long long)first));
}

void import_window(struct import *im)
{
    if (im->family->period.hyper) read_period(im, &im->family->period);
    if (im->family->window_after) read_first(im);
}
