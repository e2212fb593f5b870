/* Evaluates the text of keys. A key is evaluated when it is first asked for, because one may depend
 * on another, and only once, so each mistake is reported once. A key with alternatives is open: it
 * has no value, only its name is kept, and keys that depend on it are open too. Types, units, words
 * and limits come from the key's row. */
#include "check/check.h"

#include <string.h>

/* ── One value of a key ──────────────────────────────────────────────────────── */

static bool word_value(enum key_id key, const struct ast *e, struct constant *out)
{
    const struct key_row *row = &key_rows[key];
    bool works;
    if (!words_find(row->words, e->text, &works)) {
        const char *list[16];
        int n = words_list(row->words, false, list, (int)COUNT_OF(list));
        struct diagnostic *d =
            complain(e->at,
                     strchr(words_text(row->words, true), ',') ? "%s is one of %s, not '%s'"
                                                               : "%s is %s today, not '%s'",
                     key_path(key), words_text(row->words, true), e->text);
        const char *near = foreign_value(key, e->text);
        near = near ? near : nearest_name(e->text, list, n);
        if (foreign_word(key, e->text))
            add_help(d, "%s", foreign_word(key, e->text));
        else if (near && words_find(row->words, near, &works) && works)
            add_help(d, "did you mean '%s'?", near);
        else
            value_words_help(d, row);
        return false;
    }
    if (!works) {
        struct diagnostic *d =
            complain(e->at, "'%s = %s' is refused: it does not work yet", key_path(key), e->text);
        value_words_help(d, row);
        return false;
    }
    *out = (struct constant){.kind = CONST_WORD, .text = e->text, .at = e->at};
    return true;
}

/* Names of things to keep, with or without quotes. */
static bool names_value(enum key_id key, const struct ast *e, struct constant *out)
{
    struct constant list = {
        .kind = CONST_LIST, .at = e->at, .n = e->n, .item = TAKE_MANY(struct constant, e->n)};
    if (e->kind != AST_LIST)
        return value_wrong_type(key, e,
                                &(struct constant){.kind = e->kind == AST_NUMBER   ? CONST_NUMBER
                                                           : e->kind == AST_STRING ? CONST_STRING
                                                                                   : CONST_WORD});
    for (int i = 0; i < e->n; i++) {
        const struct ast *item = e->kid[i];
        bool name = (item->kind == AST_NAME || item->kind == AST_STRING) && item->text[0] &&
                    !strchr(item->text, ' ') && !strchr(item->text, '"');
        if (!name) {
            complain(item->at,
                     key == K_cluster_rates || key == K_trainer_rates
                         ? "%s lists names of blocks of rates"
                         : "%s lists names of ops and of values",
                     key_path(key));
            return false;
        }
        list.item[i] = (struct constant){.kind = CONST_WORD, .text = item->text, .at = item->at};
    }
    *out = list;
    return true;
}

/* So that a layer's or batch's number times any size of a plan stays within 64 bits. */
enum { STRETCH_LIMIT = 1 << 30 };

/* Layers, batches: whole numbers and ranges of them. */
static bool stretches_value(enum key_id key, const struct ast *e, const struct constant *list)
{
    const char *what = key == K_run_skip_batches ? "batches" : "layers";
    for (int i = 0; i < list->n; i++) {
        const struct constant *v = &list->item[i], *from = v->kind == CONST_RANGE ? &v->item[0] : v,
                              *to = v->kind == CONST_RANGE ? &v->item[1] : v;
        if (!constant_is_whole(from) || !constant_is_whole(to) || from->unit != UNIT_NONE ||
            to->unit != UNIT_NONE || from->top < 0 || to->top > STRETCH_LIMIT) {
            const struct ast *item = e->kind == AST_LIST ? e->kid[i] : e;
            struct diagnostic *d =
                complain(item->at, "%s lists %s: [0, 4..7]", key_path(key), what);
            if (item->kind == AST_BINARY && item->text[0] == '-' &&
                item->kid[0]->kind == AST_NUMBER && item->kid[1]->kind == AST_NUMBER)
                add_help(d, "from one to another: %s..%s", item->kid[0]->text, item->kid[1]->text);
            return false;
        }
    }
    return true;
}

/* A list of numbers; betas are two. */
static bool list_value(enum key_id key, const struct ast *e, const struct constant *list)
{
    if (list->kind != CONST_LIST) return value_wrong_type(key, e, list);
    if (key == K_activation_checkpoint_layers || key == K_run_skip_batches)
        return stretches_value(key, e, list);
    if (key == K_optimizer_betas && list->n != 2) {
        add_help(complain(e->at, "%s are two numbers, this list has %d", key_path(key), list->n),
                 "betas = %s", key_rows[key].fallback);
        return false;
    }
    for (int i = 0; i < list->n; i++) {
        if (list->item[i].kind != CONST_NUMBER)
            return value_wrong_type(key, e->kind == AST_LIST ? e->kid[i] : e, &list->item[i]);
        if (value_wrong_unit(key, e->kind == AST_LIST ? e->kid[i] : e, &list->item[i]) ||
            !value_within(key, e->kind == AST_LIST ? e->kid[i] : e, &list->item[i]))
            return false;
    }
    return true;
}

/* A list of file names, at least one. */
static bool files_value(enum key_id key, const struct ast *e, struct constant *out)
{
    *out = (struct constant){
        .kind = CONST_LIST, .item = TAKE_MANY(struct constant, e->n + 1), .n = e->n, .at = e->at};
    if (e->n == 0) complain(e->at, "%s is an empty list", key_path(key));
    for (int i = 0; i < e->n; i++) {
        if (e->kid[i]->kind != AST_STRING) {
            struct diagnostic *d =
                complain(e->kid[i]->at, "%s wants %s", key_path(key), key_type_text(key));
            if (e->kid[i]->kind == AST_NAME || e->kid[i]->kind == AST_PATH)
                add_help(d, "\"%s\"", e->kid[i]->text);
            else if (key == K_data_train)
                add_help(d, "%s", foreign_advice("mixture"));
            return false;
        }
        out->item[i] =
            (struct constant){.kind = CONST_STRING, .text = e->kid[i]->text, .at = e->kid[i]->at};
    }
    return e->n > 0;
}

static bool number_value(enum key_id key, const struct ast *e, struct constant *v)
{
    const struct key_row *row = &key_rows[key];
    if (v->kind != CONST_NUMBER) return value_wrong_type(key, e, v);
    if (value_wrong_unit(key, e, v)) return false;
    const bool steps =
        row->type == KEY_WHOLE || (row->type == KEY_INTERVAL && v->unit == UNIT_NONE);
    if (steps && !constant_is_whole(v)) {
        const char *unit = row->unit[0] ? text_format(" of %s", row->unit) : "";
        struct diagnostic *d = complain(e->at, "%s wants a whole number%s, not %s", key_path(key),
                                        unit, constant_text(v));
        if (v->number > 0 && v->number < 1 && (key == K_schedule_warmup || key == K_schedule_decay))
            add_help(d, "a part of the steps: %s = %s * steps", row->name, constant_text(v));
        else if (v->number > 1 && v->number < 1e15)
            add_help(d, "%s = %lld or %lld", row->name, (long long)v->number,
                     (long long)v->number + 1);
        return false;
    }
    if (!value_within(key, e, v)) return false;
    if (row->type == KEY_BYTES && v->exact) { /* a part of a byte holds nothing */
        int64_t bytes = v->top / v->bottom;
        struct span at = v->at;
        *v = constant_whole(bytes);
        v->unit = UNIT_BYTES;
        v->at = at;
    }
    if (key == K_batch_sequence && e->kind == AST_NUMBER && e->text[strlen(e->text) - 1] == 'k')
        add_help(warn(e->at, "%s is %s tokens", e->text, text_count(v->top)),
                 "%.*sKi is a multiple of 1024", (int)strlen(e->text) - 1, e->text);
    return true;
}

/* Whether a bare word in a section stands for something: a key beside it, a hyper-parameter, a
 * constant of the file. */
static bool is_known(struct checker *c, enum section_id section, const struct ast *e)
{
    struct constant v;
    bool truth = !strcmp(e->text, "on") || !strcmp(e->text, "off");
    return truth || (section == S_model && hyper_find(c, e->text)) ||
           key_find(section, e->text) != KEY_COUNT || value_of_constant(c, e->at.file, e->text, &v);
}

static void word_help(struct checker *c, struct diagnostic *d, const struct key_row *row,
                      const struct ast *e)
{
    const char *near = value_near(c, row->section, e->text);
    if (foreign_number(e->text))
        add_help(d, "%s = %s", row->name, foreign_number(e->text));
    else if (near)
        add_help(d, "did you mean '%s'?", near);
    else if (row->fallback[0] && row->fallback[0] != '(')
        add_help(d, "the default is %s = %s", row->name, row->fallback);
    else if (key_is_derived((enum key_id)(row - key_rows)))
        add_help(d, "without the entry it is %s", row->fallback);
    else if (row->type == KEY_WHOLE)
        add_help(d, "%s = 1, or a constant: an entry outside the plan, name = 1", row->name);
    else
        add_help(d, "a constant is an entry outside the plan: %s = …", e->text);
}

/* What is no word where one of the key's is wanted. */
static void refuse_word(const struct key_row *row, const struct ast *e)
{
    const enum key_id key = (enum key_id)(row - key_rows);
    const bool string = e->kind == AST_STRING;
    const char *words = words_text(row->words, true), *list[16];
    bool works;
    struct diagnostic *d = complain(
        e->at, strchr(words, ',') ? "%s is one of %s%s" : "%s is %s today%s", key_path(key), words,
        string                  ? ", not a string"
        : e->kind == AST_NUMBER ? ", not a number"
                                : "");
    const char *ours = string ? foreign_value(key, e->text) : NULL;
    if (string && !ours)
        ours = nearest_name(e->text, list, words_list(row->words, true, list, (int)COUNT_OF(list)));
    if (string && foreign_word(key, e->text))
        add_help(d, "%s", foreign_word(key, e->text));
    else if (string && words_find(row->words, e->text, &works))
        add_help(d, "without quotes: %s", e->text);
    else if (ours)
        add_help(d, "%s = %s", row->name, ours);
    else
        value_words_help(d, row);
}

static bool one_key_value(struct checker *c, const void *which, const struct ast *e,
                          struct constant *out, bool *open)
{
    const struct key_row *row = which;
    enum key_id key = (enum key_id)(row - key_rows);
    bool works;
    if (row->type == KEY_WORD) {
        if (e->kind == AST_NAME) return word_value(key, e, out);
        refuse_word(row, e);
        return false;
    }
    if (e->kind == AST_NAME && words_find(row->words, e->text, &works))
        return word_value(key, e, out);
    const char *ours = e->kind == AST_NAME ? foreign_value(key, e->text) : NULL;
    if (ours && !value_of_constant(c, e->at.file, e->text, out)) {
        add_help(
            complain(e->at, "%s wants %s, not '%s'", key_path(key), key_type_text(key), e->text),
            "%s = %s", row->name, ours);
        return false;
    }
    bool counts = row->type != KEY_STRING && row->type != KEY_FILES && row->type != KEY_LIST;
    if (counts && e->kind == AST_NAME && !is_known(c, row->section, e)) {
        struct diagnostic *d =
            complain(e->at, "%s wants %s, not '%s'", key_path(key), key_type_text(key), e->text);
        word_help(c, d, row, e);
        return false;
    }
    if (row->type == KEY_FILES && e->kind == AST_LIST) return files_value(key, e, out);
    if ((row->type == KEY_STRING || row->type == KEY_FILES) && e->kind != AST_STRING)
        return value_wrong_type(key, e,
                                &(struct constant){.kind = e->kind == AST_NUMBER ? CONST_NUMBER
                                                           : e->kind == AST_LIST ? CONST_LIST
                                                                                 : CONST_WORD});
    if (key == K_activation_checkpoint_save || key == K_cluster_rates || key == K_trainer_rates)
        return names_value(key, e, out);
    if (!value_evaluate(c, row->section, e, out, open)) return false;
    switch (row->type) {
    case KEY_STRING:
    case KEY_FILES: return true;
    case KEY_SWITCH: return out->kind == CONST_TRUTH || value_wrong_type(key, e, out);
    case KEY_LIST:
        if (key == K_source_weight && out->kind == CONST_NUMBER) { /* one for all stages */
            struct constant *one = TAKE(struct constant);
            *one = *out;
            *out = (struct constant){.kind = CONST_LIST, .item = one, .n = 1, .at = out->at};
        }
        return list_value(key, e, out);
    case KEY_WHOLE:
    case KEY_NUMBER:
    case KEY_BYTES:
    case KEY_RATE:
    case KEY_FLOPS:
    case KEY_TIME:
    case KEY_INTERVAL: return number_value(key, e, out);
    case KEY_WORD: break;
    }
    bug("a key of no type");
}

/* ── Alternatives ────────────────────────────────────────────────────────────── */

static bool same_value(const struct constant *a, const struct constant *b)
{
    if (a->kind != b->kind) return false;
    struct constant equal;
    return (a->kind == CONST_NUMBER || a->kind == CONST_WORD || a->kind == CONST_TRUTH ||
            a->kind == CONST_STRING) &&
           constant_binary("==", a, b, a->at, &equal) && equal.truth;
}

void value_of_entry(struct checker *c, struct slot *slot, const void *row, bool wants_list,
                    value_one *one, const char *path)
{
    const struct ast *value = slot->entry->kid[1];
    int n = value->kind == AST_ALTERNATIVES ? value->n : 1, known = 0;
    bool fine = true, open = false, differ = false;
    slot->state = BUSY;
    for (int i = 0; i < n; i++) {
        const struct ast *e = value->kind == AST_ALTERNATIVES ? value->kid[i] : value;
        const struct ast *ends[2] = {e, NULL};
        if (ast_is_refused(e)) {
            fine = false;
            continue;
        }
        if (e->kind == AST_RANGE && !wants_list) {
            ends[0] = e->kid[0];
            ends[1] = e->kid[1];
        }
        struct constant v[2] = {0};
        for (int j = 0; j < 2 && ends[j]; j++) {
            if (!one(c, row, ends[j], &v[j], &open)) {
                fine = false;
                continue;
            }
            differ |= known > 0 && !same_value(&slot->value, &v[j]);
            if (known++ == 0) slot->value = v[j];
        }
        struct constant range;
        if (fine && ends[1] && !open) fine = constant_binary("..", &v[0], &v[1], e->at, &range);
    }
    if (slot->state == BUSY) /* not when it was found to depend on itself */
        slot->state = open ? OPEN : !fine ? FAILED : differ ? OPEN : KNOWN;
    if (fine && differ) PUSH(&c->open, path);
}

/* ── Keys ────────────────────────────────────────────────────────────────────── */

bool key_given(const struct checker *c, enum key_id key) { return c->key[key].entry != NULL; }

bool value_is_auto(const struct slot *slot)
{
    const struct ast *value = slot->entry->kid[1];
    return value->kind == AST_NAME && !strcmp(value->text, "auto");
}

/* What planc cannot do yet is said at the first of the keys that ask for it. */
static bool is_refused_before(const struct checker *c, enum key_id key)
{
    for (int k = 0; k < (int)key; k++)
        if (c->key[k].entry && !strcmp(key_rows[k].missing, key_rows[key].missing)) return true;
    return false;
}

static void work_out(struct checker *c, enum key_id key)
{
    struct slot *slot = &c->key[key];
    const struct key_row *row = &key_rows[key];
    /* left to planc, and not one of the key's own words for something that the trainer decides */
    const bool is_auto = slot->entry && value_is_auto(slot) &&
                         (key_is_derived(key) || words_index(row->words, "auto") < 0);
    if (slot->entry && row->missing[0]) {
        if (!is_refused_before(c, key)) {
            struct diagnostic *d = complain(slot->at, "'%s' is refused: planc cannot %s yet",
                                            key_path(key), row->missing);
            if (key_instead(key)) add_help(d, "%s", key_instead(key));
        }
        slot->state = FAILED;
    } else if (is_auto && !key_is_derived(key)) {
        struct diagnostic *d = complain(
            slot->entry->kid[1]->at, "%s cannot be auto: it follows from nothing", key_path(key));
        if (row->fallback[0]) add_help(d, "its default is %s", row->fallback);
        slot->state = FAILED;
    } else if (slot->entry && !is_auto) {
        value_of_entry(c, slot, row, row->type == KEY_LIST, one_key_value, key_path(key));
    } else if (key_is_derived(key)) {
        slot->state = BUSY;
        derive_key(c, key, slot);
    } else {
        slot->state = key_default(key, &slot->value) ? KNOWN : ABSENT;
    }
}

const struct constant *key_value(struct checker *c, enum key_id key)
{
    struct slot *slot = &c->key[key];
    if (slot->state == BUSY) {
        complain(slot->at.file ? slot->at
                 : c->plan     ? c->plan->kid[0]->at
                               : slot->at,
                 "%s depends on itself", key_path(key));
        slot->state = FAILED;
    }
    if (slot->state == UNSEEN) work_out(c, key);
    return slot->state == KNOWN ? &slot->value : NULL;
}

void value_of_key(struct checker *c, enum key_id key, struct slot *slot, const char *path)
{
    value_of_entry(c, slot, &key_rows[key], key_rows[key].type == KEY_LIST, one_key_value, path);
}

void check_keys(struct checker *c)
{
    for (int k = 0; k < KEY_COUNT; k++)
        if (c->key[k].entry) key_value(c, (enum key_id)k);
    group_check(c);
    source_check(c);
    rates_check(c);
}
