/* Messages for a value that its key does not take: the wrong kind, the wrong unit, out of limits.
 * The fix is written as an entry that can be copied: `fsdp = 64` for "64", `save = [attention]` for
 * attention. */
#include "check/check.h"

#include <math.h>
#include <string.h>

/* A value as the plan writes it when it is a plain number, else as it came out. */
static const char *shown(const struct ast *e, const struct constant *v)
{
    return e->kind == AST_NUMBER ? e->text : constant_text(v);
}

/* "64" and "off" are what they say without their quotes. */
void unquoted_help(struct diagnostic *d, const char *name, const char *text)
{
    size_t n = strspn(text, "0123456789_.eE+-");
    bool digits = text[0] >= '0' && text[0] <= '9',
         number = digits && (!text[n] || number_has_unit(text));
    if (foreign_switch(text))
        add_help(d, "%s = %s", name, foreign_switch(text));
    else if (number || !strcmp(text, "on") || !strcmp(text, "off") || !strcmp(text, "auto"))
        add_help(d, "without quotes: %s = %s", name, text);
    else if (foreign_number(text))
        add_help(d, "%s = %s", name, foreign_number(text));
}

/* `betas = 0.9, 0.95`, which the lexer has said once for both. */
static bool is_one_of_bare_list(const struct ast *e)
{
    size_t n;
    const char *bytes = e->at.file ? source_bytes(e->at.file, &n) : NULL;
    if (!bytes || e->kind != AST_NUMBER) return false;
    const char *behind = bytes + e->at.to + strspn(bytes + e->at.to, " \t");
    int before = e->at.from;
    while (before > 0 && strchr(" \t", bytes[before - 1])) before--;
    return *behind == ',' || (before > 0 && bytes[before - 1] == ',');
}

bool value_wrong_type(enum key_id key, const struct ast *e, const struct constant *got)
{
    if (key == K_optimizer_betas && e->kind == AST_NUMBER && is_one_of_bare_list(e)) return false;
    static const char *const kind[] = {"a number", "on/off", "a string",
                                       "a word",   "a list", "a range"};
    struct diagnostic *d =
        complain(e->at, "%s wants %s, not %s", key_path(key), key_type_text(key), kind[got->kind]);
    const char *item =
        key == K_activation_checkpoint_save && (e->kind == AST_STRING || e->kind == AST_NAME)
            ? e->text
            : NULL;
    if (item && item[0] &&
        item[strspn(item, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789")] == 0)
        add_help(d, "%s = [%s]", key_rows[key].name, item);
    else if (e->kind == AST_STRING && key_rows[key].type != KEY_LIST)
        unquoted_help(d, key_rows[key].name, e->text);
    size_t n;
    const char *bytes = e->at.file ? source_bytes(e->at.file, &n) : NULL;
    if (key_rows[key].type == KEY_LIST && e->kind == AST_RANGE && bytes)
        add_help(d, "%s = [%.*s]", key_rows[key].name, e->at.to - e->at.from, bytes + e->at.from);
    if (key == K_optimizer_betas && e->kind == AST_STRING) add_help(d, "betas = [0.9, 0.95]");
    if (got->kind == CONST_LIST && e->kind == AST_LIST && e->n > 1 &&
        key_rows[key].type != KEY_STRING) {
        struct text t = {0};
        for (int i = 0; i < e->n; i++)
            text_add(&t, "%s%s", i ? " | " : "", i < got->n ? constant_text(&got->item[i]) : "…");
        add_help(d, "alternatives are written %s", t.bytes);
    }
    if (key_rows[key].type == KEY_LIST && e->kind == AST_NUMBER && key == K_optimizer_betas)
        add_help(d, "betas = [%s, 0.95]", e->text);
    if ((key_rows[key].type == KEY_STRING || key_rows[key].type == KEY_FILES) &&
        (e->kind == AST_NAME || e->kind == AST_PATH))
        add_help(d, "\"%s\"", e->text);
    if (key == K_data_train && e->kind == AST_BINARY) add_help(d, "%s", foreign_advice("mixture"));
    return false;
}

/* "7B" is not seven billion. */
void unit_help(struct diagnostic *d, const struct ast *e, const struct constant *got)
{
    size_t n = e->kind == AST_NUMBER ? strlen(e->text) : 0;
    if (got->unit != UNIT_BYTES || n < 2 || e->text[n - 1] != 'B' ||
        strspn(e->text, "0123456789._") != n - 1)
        return;
    if (got->number < 1000)
        add_help(d, "B is bytes: %.*s without a unit, or %.*sG for %.*s x 10^9", (int)n - 1,
                 e->text, (int)n - 1, e->text, (int)n - 1, e->text);
    else
        add_help(d, "B is bytes: %.*s", (int)n - 1, e->text);
}

bool value_wrong_unit(enum key_id key, const struct ast *e, const struct constant *got)
{
    static const enum unit_kind wanted[] = {[KEY_BYTES] = UNIT_BYTES,
                                            [KEY_RATE] = UNIT_BYTES_PER_S,
                                            [KEY_FLOPS] = UNIT_FLOPS,
                                            [KEY_TIME] = UNIT_SECONDS,
                                            [KEY_LIST] = UNIT_NONE};
    static const char *const unit[] = {"no unit", "bytes", "bytes per second",
                                       "operations per second", "a time"};
    enum key_type type = key_rows[key].type;
    enum unit_kind want = type >= KEY_BYTES && type <= KEY_TIME ? wanted[type] : UNIT_NONE;
    if (got->unit == want || (type == KEY_INTERVAL && got->unit == UNIT_SECONDS)) return false;
    struct diagnostic *d;
    if (got->unit == UNIT_NONE) {
        const char *text = shown(e, got);
        static const char *const letters = "kMGTP";
        const size_t n = strspn(text, "0123456789_.");
        const char *letter = text[n] ? strchr(letters, text[n]) : NULL,
                   *digits = text_format("%.*s", (int)n, text),
                   *scale = !letter || (text[n + 1] && strcmp(text + n + 1, "i")) ? ""
                            : *letter == 'k'                                      ? "K"
                                             : text_format("%c", *letter);
        const int power = letter ? (int)(letter - letters) + 1 : 0;
        d = complain(e->at, "%s wants %s, %s has no unit", key_path(key), key_type_text(key), text);
        if (key == K_activation_checkpoint_budget && got->number <= 1)
            add_help(d, "a part of a device: budget = %s * cluster.device.memory", text);
        else if (want == UNIT_BYTES && scale[0]) /* "80G": the letter is there, the byte is not */
            add_help(d, "%s%siB is %s x 2^%d bytes, %s%sB is %s x 10^%d", digits, scale, digits,
                     10 * power, digits, scale, digits, 3 * power);
        else if (want == UNIT_BYTES)
            add_help(d, "%sGiB is %s x 2^30 bytes, %sGB is %s x 10^9", text, text, text, text);
        else if (want == UNIT_SECONDS)
            add_help(d, "%ss is %s seconds, %smin is %s minutes", text, text, text, text);
    } else {
        d = complain(e->at, "%s wants %s, %s is %s", key_path(key),
                     want == UNIT_NONE && type != KEY_INTERVAL ? "a number without unit"
                                                               : key_type_text(key),
                     shown(e, got), unit[got->unit]);
        unit_help(d, e, got);
    }
    return true;
}

/* The most that a key may be, so that products of a few sizes stay within 64 bits and a number of a
 * plan is one of a machine. By what it counts. */
static double most_of(const struct key_row *row)
{
    static const struct {
        const char *unit;
        double most;
    } counted[] = {
        {"nodes", 1 << 20},      {"devices", 1 << 20},   {"replicas", 1 << 20},
        {"layers", 1 << 20},     {"slots", 1 << 20},     {"chunks", 1 << 16},
        {"tokens", 1 << 30},     {"sequences", 1 << 30}, {"multiprocessors", 1 << 20},
        {"token id", INT32_MAX}, {"steps", 0x1p53},      {"checkpoints", INT32_MAX},
    };
    switch (row->type) {
    case KEY_WHOLE:
        for (size_t i = 0; i < COUNT_OF(counted); i++)
            if (!strcmp(row->unit, counted[i].unit)) return counted[i].most;
        return 0x1p63;
    case KEY_NUMBER:
    case KEY_LIST: return 1e30; /* kernels compute with 32-bit floats */
    case KEY_BYTES: return 0x1p53;
    case KEY_RATE:
    case KEY_FLOPS: return 1e21;
    case KEY_TIME:
    case KEY_INTERVAL: return 1e9;
    case KEY_SWITCH:
    case KEY_WORD:
    case KEY_STRING:
    case KEY_FILES: break;
    }
    return INFINITY;
}

bool value_within(enum key_id key, const struct ast *e, const struct constant *v)
{
    bool whole = key_rows[key].type == KEY_WHOLE, fine = true;
    const char *demand = "";
    switch (key_rows[key].limit) {
    case LIMIT_ANY: break;
    case LIMIT_POSITIVE:
        fine = v->number > 0;
        demand = whole ? "at least 1" : "more than 0";
        break;
    case LIMIT_NOT_NEGATIVE:
        fine = v->number >= 0;
        demand = "at least 0";
        break;
    case LIMIT_FRACTION:
        fine = v->number >= 0 && v->number <= 1;
        demand = "from 0 to 1";
        break;
    case LIMIT_BELOW_ONE:
        fine = v->number >= 0 && v->number < 1;
        demand = "at least 0 and less than 1";
        break;
    }
    const double most = most_of(&key_rows[key]);
    if (fine && v->number <= most) return true;
    if (fine) {
        struct constant top =
            v->exact && most < 0x1p63 ? constant_whole((int64_t)most) : constant_real(most);
        top.unit = v->unit;
        complain(e->at, "%s must be at most %s, this is %s", key_path(key), constant_text(&top),
                 constant_text(v));
        return false;
    }
    struct diagnostic *d =
        complain(e->at, "%s must be %s, this is %s", key_path(key), demand, constant_text(v));
    double part = v->number;
    while (part >= 1) part /= 10;
    if (key == K_data_ignore)
        add_help(
            d,
            "it is an id that the files hold, and ids are not negative; ignore = off masks none");
    else if (key == K_data_end_token)
        add_help(d, "it is an id that the files hold, and ids are not negative; off: no id ends a "
                    "document");
    else if (v->number < 0 && key == K_mesh_fsdp)
        add_help(d, "all devices: fsdp = cluster.nodes * cluster.devices_per_node");
    else if (v->number < 0 && (key == K_mesh_dp || key == K_batch_global))
        add_help(d, "what follows from the rest: %s = auto", key_rows[key].name);
    else if (v->number < 0 && e->kind == AST_UNARY && e->kid[0]->kind == AST_NUMBER &&
             key_rows[key].limit == LIMIT_NOT_NEGATIVE)
        add_help(d, "%s = %s", key_rows[key].name, e->kid[0]->text);
    else if (v->number <= 0 && key == K_batch_sequence)
        add_help(d, "the tokens of one sample: sequence = 4096");
    else if (key_rows[key].limit == LIMIT_BELOW_ONE && v->number > 1)
        add_help(d, "%s, or the default: %s = %s", text_number(part), key_rows[key].name,
                 key_rows[key].fallback);
    else if (key_rows[key].limit == LIMIT_FRACTION && v->number > 1 && v->number <= 100)
        add_help(d, "%s %% is %s", constant_text(v), text_number(v->number / 100));
    else if (key_rows[key].words[0] && v->number == 0)
        add_help(d, "%s = %s", key_rows[key].name, key_rows[key].words);
    return fine;
}

/* The words that work, as an entry. */
void value_words_help(struct diagnostic *d, const struct key_row *row)
{
    const char *list[16];
    int n = words_list(row->words, true, list, (int)COUNT_OF(list));
    struct text t = {0};
    for (int i = 0; i < n; i++)
        text_add(&t, "%s%s", i == 0 ? "" : i == n - 1 ? " or " : ", ", list[i]);
    add_help(d, n == 1 ? "%s = %s is what works" : "%s = %s", row->name, t.bytes);
}
