/* What the text of a key is worth. Keys are worked out when they are first asked for, because one may be written in terms
 * of another; each once, so each mistake is said once. A key with alternatives is open: it has no value, only its name is
 * kept, and what reads it is open with it. Types, units, words and limits all come from the key's row. */
#include "check.h"

#include <string.h>

/* Names in expressions --------------------------------------------------------------------------------------------------- */

struct names { struct scope scope; struct checker *c; enum section_id section; int source; bool hyper; };

/* What an expression sees of a key that has no value now; `tainted` makes its result be dropped. */
static bool stand_in(struct checker *c, enum state state, const struct constant *first, struct constant *out)
{
    c->tainted = true;
    c->tainted_open |= state == OPEN;
    *out = state == OPEN && first ? *first : constant_whole(1);
    return true;
}

static bool slot_value(struct checker *c, const struct slot *slot, struct constant *out)
{
    if (slot->state == ABSENT)
        return false;
    if (slot->state != KNOWN)
        return stand_in(c, slot->state, &slot->value, out);
    *out = slot->value;
    return true;
}

static bool constant_value(struct checker *c, int source, const char *name, struct constant *out)
{
    int main_source = c->file.item[0].source;
    const char *file = source_name(source);
    if (strcmp(file, "--set") == 0)
        source = main_source;
    for (int i = 0; i < c->constant.n; i++) {
        struct file_constant *f = &c->constant.item[i];
        if (f->source != source || strcmp(f->name, name) != 0)
            continue;
        bool open = false;
        if (f->state == BUSY) {
            complain(f->entry->at, "'%s' depends on itself", f->name);
            f->state = FAILED;
        } else if (f->state == UNSEEN) {
            f->state = BUSY;
            bool fine = value_evaluate(c, SECTION_COUNT, f->entry->kid[1], &f->value, &open);
            if (f->state == BUSY)
                f->state = fine ? KNOWN : open ? OPEN : FAILED;
        }
        if (f->state != KNOWN)
            return stand_in(c, f->state, NULL, out);
        *out = f->value;
        return true;
    }
    return false;
}

static bool key_named(struct checker *c, enum key_id key, struct constant *out)
{
    key_value(c, key);
    return slot_value(c, &c->key[key], out);
}

static bool hyper_named(struct checker *c, const char *name, struct constant *out)
{
    struct declared *d = hyper_find(c, name);
    if (!d)
        return false;
    hyper_value(c, d);
    return slot_value(c, &d->slot, out);
}

static bool lookup(struct scope *s, const char *name, struct constant *out)
{
    struct names *n = s->context;
    struct checker *c = n->c;
    if (!strchr(name, '.')) {
        if (n->section == S_model && hyper_named(c, name, out))
            return true;
        if (n->section != SECTION_COUNT && key_find(n->section, name) != KEY_COUNT)
            return key_named(c, key_find(n->section, name), out);
        return constant_value(c, n->source, name, out);
    }
    if (strncmp(name, "model.", 6) == 0)
        return hyper_named(c, name + 6, out);
    enum key_id key = key_find_path(name);
    return key != KEY_COUNT && key_named(c, key, out);
}

/* Names that a slip may have meant: the keys of the section, hyper-parameters in a model. */
static void hints(struct checker *c, enum section_id section, struct scope *s)
{
    const char **names = TAKE_MANY(const char *, KEY_COUNT + c->declared.n + c->constant.n);
    int n = 0;
    for (int i = 0; section == S_model && i < c->declared.n; i++)
        names[n++] = c->declared.item[i].name;
    for (int k = 0; k < KEY_COUNT; k++)
        names[n++] = key_rows[k].section == section ? key_rows[k].name : key_path((enum key_id)k);
    for (int i = 0; i < c->constant.n; i++)
        names[n++] = c->constant.item[i].name;
    s->names = names;
    s->n_names = n;
}

bool value_evaluate(struct checker *c, enum section_id section, const struct ast *e, struct constant *out, bool *open)
{
    if (e->kind == AST_NUMBER)
        return constant_from_number(e, out);
    struct names n = { .c = c, .section = section, .source = e->at.file };
    n.scope = (struct scope){ .lookup = lookup, .context = &n };
    hints(c, section, &n.scope);
    bool tainted = c->tainted, tainted_open = c->tainted_open;
    c->tainted = c->tainted_open = false;
    bool fine = evaluate(e, &n.scope, out) && !c->tainted;
    *open |= c->tainted_open;
    c->tainted = tainted;
    c->tainted_open = tainted_open;
    return fine;
}

/* One value of a key ------------------------------------------------------------------------------------------------------ */

/* A value as the plan writes it when it is a plain number, else as it came out. */
static const char *shown(const struct ast *e, const struct constant *v)
{
    return e->kind == AST_NUMBER ? e->text : constant_text(v);
}

static bool wrong_type(enum key_id key, const struct ast *e, const struct constant *got)
{
    static const char *const kind[] = { "a number", "on/off", "a string", "a word", "a list", "a range" };
    struct diagnostic *d = complain(e->at, "%s wants %s, not %s", key_path(key), key_type_text(key), kind[got->kind]);
    if (got->kind == CONST_LIST && e->kind == AST_LIST && e->n > 1 && key_rows[key].type != KEY_STRING) {
        struct text t = { 0 };
        for (int i = 0; i < e->n; i++)
            text_add(&t, "%s%s", i ? " | " : "", i < got->n ? constant_text(&got->item[i]) : "…");
        add_help(d, "alternatives are written %s", t.bytes);
    }
    if (key_rows[key].type == KEY_LIST && e->kind == AST_NUMBER && key == K_optimizer_betas)
        add_help(d, "betas = [%s, 0.95]", e->text);
    if ((key_rows[key].type == KEY_STRING || key_rows[key].type == KEY_FILES) && (e->kind == AST_NAME || e->kind == AST_PATH))
        add_help(d, "\"%s\"", e->text);
    return false;
}

/* "7B" is not seven billion. */
void unit_help(struct diagnostic *d, const struct ast *e, const struct constant *got)
{
    size_t n = e->kind == AST_NUMBER ? strlen(e->text) : 0;
    if (got->unit == UNIT_BYTES && n > 1 && e->text[n - 1] == 'B' && strspn(e->text, "0123456789._") == n - 1)
        add_help(d, "B is bytes; %.*sG is %.*s x 10^9", (int)n - 1, e->text, (int)n - 1, e->text);
}

static bool wrong_unit(enum key_id key, const struct ast *e, const struct constant *got)
{
    static const enum unit_kind wanted[] = { [KEY_BYTES] = UNIT_BYTES, [KEY_RATE] = UNIT_BYTES_PER_S, [KEY_FLOPS] = UNIT_FLOPS,
                                             [KEY_TIME] = UNIT_SECONDS, [KEY_LIST] = UNIT_NONE };
    static const char *const unit[] = { "no unit", "bytes", "bytes a second", "operations a second", "a time" };
    enum key_type type = key_rows[key].type;
    enum unit_kind want = type >= KEY_BYTES && type <= KEY_TIME ? wanted[type] : UNIT_NONE;
    if (got->unit == want)
        return false;
    struct diagnostic *d;
    if (got->unit == UNIT_NONE) {
        const char *text = shown(e, got);
        d = complain(e->at, "%s wants %s, %s has no unit", key_path(key), key_type_text(key), text);
        if (want == UNIT_BYTES)
            add_help(d, "%sGiB is %s x 2^30 bytes, %sGB is %s x 10^9", text, text, text, text);
        else if (want == UNIT_SECONDS)
            add_help(d, "%ss is %s seconds, %smin is %s minutes", text, text, text, text);
    } else {
        d = complain(e->at, "%s wants %s, %s is %s", key_path(key), want == UNIT_NONE ? "a number without unit" : key_type_text(key),
                     shown(e, got), unit[got->unit]);
        unit_help(d, e, got);
    }
    return true;
}

static bool within(enum key_id key, const struct ast *e, const struct constant *v)
{
    bool whole = key_rows[key].type == KEY_WHOLE, fine = true;
    const char *demand = "";
    switch (key_rows[key].limit) {
    case LIMIT_ANY: break;
    case LIMIT_POSITIVE: fine = v->number > 0; demand = whole ? "at least 1" : "more than 0"; break;
    case LIMIT_NOT_NEGATIVE: fine = v->number >= 0; demand = "at least 0"; break;
    case LIMIT_FRACTION: fine = v->number >= 0 && v->number <= 1; demand = "from 0 to 1"; break;
    case LIMIT_BELOW_ONE: fine = v->number >= 0 && v->number < 1; demand = "at least 0 and less than 1"; break;
    }
    if (!fine)
        complain(e->at, "%s must be %s, this is %s", key_path(key), demand, constant_text(v));
    return fine;
}

static bool word_value(enum key_id key, const struct ast *e, struct constant *out)
{
    const struct key_row *row = &key_rows[key];
    bool works;
    if (!words_find(row->words, e->text, &works)) {
        const char *list[16];
        int n = words_list(row->words, false, list, (int)COUNT_OF(list));
        struct diagnostic *d = complain(e->at, "%s is one of %s, not '%s'", key_path(key), words_text(row->words, true), e->text);
        const char *near = foreign_value(key, e->text);
        near = near ? near : nearest_name(e->text, list, n);
        if (near)
            add_help(d, "did you mean '%s'?", near);
        return false;
    }
    if (!works) {
        struct diagnostic *d = complain(e->at, "'%s = %s' is refused: it does not work yet", key_path(key), e->text);
        add_help(d, "%s work%s", words_text(row->words, true), strchr(words_text(row->words, true), ',') ? "" : "s");
        return false;
    }
    *out = (struct constant){ .kind = CONST_WORD, .text = e->text, .at = e->at };
    return true;
}

/* Names of things to keep, with or without quotes. */
static bool names_value(enum key_id key, const struct ast *e, struct constant *out)
{
    struct constant list = { .kind = CONST_LIST, .at = e->at, .n = e->n, .item = TAKE_MANY(struct constant, e->n) };
    if (e->kind != AST_LIST)
        return wrong_type(key, e, &(struct constant){ .kind = e->kind == AST_NUMBER ? CONST_NUMBER : e->kind == AST_STRING ? CONST_STRING : CONST_WORD });
    for (int i = 0; i < e->n; i++) {
        const struct ast *item = e->kid[i];
        bool name = (item->kind == AST_NAME || item->kind == AST_STRING) && item->text[0] && !strchr(item->text, ' ') && !strchr(item->text, '"');
        if (!name) {
            complain(item->at, "%s lists names of ops and of values", key_path(key));
            return false;
        }
        list.item[i] = (struct constant){ .kind = CONST_WORD, .text = item->text, .at = item->at };
    }
    *out = list;
    return true;
}

/* Layers: whole numbers and ranges of them. */
static bool layers_value(enum key_id key, const struct ast *e, const struct constant *list)
{
    for (int i = 0; i < list->n; i++) {
        const struct constant *v = &list->item[i], *from = v->kind == CONST_RANGE ? &v->item[0] : v, *to = v->kind == CONST_RANGE ? &v->item[1] : v;
        if (!constant_is_whole(from) || !constant_is_whole(to) || from->unit != UNIT_NONE || to->unit != UNIT_NONE || from->top < 0) {
            complain(e->kind == AST_LIST ? e->kid[i]->at : e->at, "%s lists layers: [0, 4..7]", key_path(key));
            return false;
        }
    }
    return true;
}

/* A list of numbers; betas are two. */
static bool list_value(enum key_id key, const struct ast *e, const struct constant *list)
{
    if (list->kind != CONST_LIST)
        return wrong_type(key, e, list);
    if (key == K_activation_checkpoint_layers)
        return layers_value(key, e, list);
    if (key == K_optimizer_betas && list->n != 2) {
        complain(e->at, "%s are two numbers, this list has %d", key_path(key), list->n);
        return false;
    }
    for (int i = 0; i < list->n; i++) {
        if (list->item[i].kind != CONST_NUMBER)
            return wrong_type(key, e->kind == AST_LIST ? e->kid[i] : e, &list->item[i]);
        if (wrong_unit(key, e->kind == AST_LIST ? e->kid[i] : e, &list->item[i]) ||
            !within(key, e->kind == AST_LIST ? e->kid[i] : e, &list->item[i]))
            return false;
    }
    return true;
}

/* A list of file names, at least one. */
static bool files_value(enum key_id key, const struct ast *e, struct constant *out)
{
    *out = (struct constant){ .kind = CONST_LIST, .item = TAKE_MANY(struct constant, e->n + 1), .n = e->n, .at = e->at };
    if (e->n == 0)
        complain(e->at, "%s is an empty list", key_path(key));
    for (int i = 0; i < e->n; i++) {
        if (e->kid[i]->kind != AST_STRING) {
            complain(e->kid[i]->at, "%s wants %s", key_path(key), key_type_text(key));
            return false;
        }
        out->item[i] = (struct constant){ .kind = CONST_STRING, .text = e->kid[i]->text, .at = e->kid[i]->at };
    }
    return e->n > 0;
}

static bool number_value(enum key_id key, const struct ast *e, struct constant *v)
{
    const struct key_row *row = &key_rows[key];
    if (v->kind != CONST_NUMBER)
        return wrong_type(key, e, v);
    if (wrong_unit(key, e, v))
        return false;
    if (row->type == KEY_WHOLE && !constant_is_whole(v)) {
        const char *unit = row->unit[0] ? text_format(" of %s", row->unit) : "";
        complain(e->at, "%s wants a whole number%s, not %s", key_path(key), unit, constant_text(v));
        return false;
    }
    if (!within(key, e, v))
        return false;
    if (row->type == KEY_BYTES && v->exact) { /* a part of a byte holds nothing */
        int64_t bytes = v->top / v->bottom;
        struct span at = v->at;
        *v = constant_whole(bytes);
        v->unit = UNIT_BYTES;
        v->at = at;
    }
    if (key == K_batch_sequence && e->kind == AST_NUMBER && e->text[strlen(e->text) - 1] == 'k')
        add_help(warn(e->at, "%s is %s tokens", e->text, text_count(v->top)), "%.*sKi is a multiple of 1024", (int)strlen(e->text) - 1, e->text);
    return true;
}

static bool one_key_value(struct checker *c, const void *which, const struct ast *e, struct constant *out, bool *open)
{
    const struct key_row *row = which;
    enum key_id key = (enum key_id)(row - key_rows);
    bool works;
    if (row->type == KEY_WORD) {
        if (e->kind == AST_NAME)
            return word_value(key, e, out);
        struct diagnostic *d = complain(e->at, "%s is %s", key_path(key), key_type_text(key));
        if (e->kind == AST_STRING && words_find(row->words, e->text, &works))
            add_help(d, "without quotes: %s", e->text);
        return false;
    }
    if (e->kind == AST_NAME && words_find(row->words, e->text, &works))
        return word_value(key, e, out);
    const char *ours = e->kind == AST_NAME ? foreign_value(key, e->text) : NULL;
    if (ours && !constant_value(c, e->at.file, e->text, out)) {
        add_help(complain(e->at, "%s wants %s, not '%s'", key_path(key), key_type_text(key), e->text), "%s = %s", row->name, ours);
        return false;
    }
    if (row->type == KEY_FILES && e->kind == AST_LIST)
        return files_value(key, e, out);
    if ((row->type == KEY_STRING || row->type == KEY_FILES) && e->kind != AST_STRING)
        return wrong_type(key, e, &(struct constant){ .kind = e->kind == AST_NUMBER ? CONST_NUMBER : e->kind == AST_LIST ? CONST_LIST : CONST_WORD });
    if (key == K_activation_checkpoint_save)
        return names_value(key, e, out);
    if (!value_evaluate(c, row->section, e, out, open))
        return false;
    switch (row->type) {
    case KEY_STRING: case KEY_FILES: return true;
    case KEY_SWITCH: return out->kind == CONST_TRUTH || wrong_type(key, e, out);
    case KEY_LIST: return list_value(key, e, out);
    case KEY_WHOLE: case KEY_NUMBER: case KEY_BYTES: case KEY_RATE: case KEY_FLOPS: case KEY_TIME: return number_value(key, e, out);
    case KEY_WORD: break;
    }
    bug("a key of no type");
}

/* Alternatives ------------------------------------------------------------------------------------------------------------ */

static bool same_value(const struct constant *a, const struct constant *b)
{
    if (a->kind != b->kind)
        return false;
    struct constant equal;
    return (a->kind == CONST_NUMBER || a->kind == CONST_WORD || a->kind == CONST_TRUTH || a->kind == CONST_STRING) &&
           constant_binary("==", a, b, a->at, &equal) && equal.truth;
}

void value_of_entry(struct checker *c, struct slot *slot, const void *row, bool wants_list, value_one *one, const char *path)
{
    const struct ast *value = slot->entry->kid[1];
    int n = value->kind == AST_ALTERNATIVES ? value->n : 1, known = 0;
    bool fine = true, open = false, differ = false;
    slot->state = BUSY;
    for (int i = 0; i < n; i++) {
        const struct ast *e = value->kind == AST_ALTERNATIVES ? value->kid[i] : value;
        const struct ast *ends[2] = { e, NULL };
        if (e->kind == AST_NAME && e->text[0] == '$') { /* a variable of a shell: that was said */
            fine = false;
            continue;
        }
        if (e->kind == AST_RANGE && !wants_list) {
            ends[0] = e->kid[0];
            ends[1] = e->kid[1];
        }
        struct constant v[2] = { 0 };
        for (int j = 0; j < 2 && ends[j]; j++) {
            if (!one(c, row, ends[j], &v[j], &open)) {
                fine = false;
                continue;
            }
            differ |= known > 0 && !same_value(&slot->value, &v[j]);
            if (known++ == 0)
                slot->value = v[j];
        }
        struct constant range;
        if (fine && ends[1] && !open)
            fine = constant_binary("..", &v[0], &v[1], e->at, &range);
    }
    if (slot->state == BUSY) /* not when it was found to depend on itself */
        slot->state = open ? OPEN : !fine ? FAILED : differ ? OPEN : KNOWN;
    if (fine && differ)
        PUSH(&c->open, path);
}

/* Keys -------------------------------------------------------------------------------------------------------------------- */

bool key_given(const struct checker *c, enum key_id key)
{
    return c->key[key].entry != NULL;
}

static bool is_auto(const struct slot *slot)
{
    const struct ast *value = slot->entry->kid[1];
    return value->kind == AST_NAME && strcmp(value->text, "auto") == 0;
}

/* What a section cannot do yet is said at the first of the keys that ask for it. */
static bool is_refused_before(const struct checker *c, enum key_id key)
{
    for (int k = 0; k < (int)key; k++)
        if (key_rows[k].section == key_rows[key].section && c->key[k].entry && strcmp(key_rows[k].missing, key_rows[key].missing) == 0)
            return true;
    return false;
}

static void work_out(struct checker *c, enum key_id key)
{
    struct slot *slot = &c->key[key];
    const struct key_row *row = &key_rows[key];
    if (slot->entry && row->missing[0]) {
        if (!is_refused_before(c, key))
            complain(slot->at, "'%s' is refused: planc cannot %s yet", key_path(key), row->missing);
        slot->state = FAILED;
    } else if (slot->entry && is_auto(slot) && !key_is_derived(key)) {
        struct diagnostic *d = complain(slot->entry->kid[1]->at, "%s cannot be auto: it follows from nothing", key_path(key));
        if (row->fallback[0])
            add_help(d, "its default is %s", row->fallback);
        slot->state = FAILED;
    } else if (slot->entry && !is_auto(slot)) {
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
        complain(slot->at.file ? slot->at : c->plan ? c->plan->kid[0]->at : slot->at, "%s depends on itself", key_path(key));
        slot->state = FAILED;
    }
    if (slot->state == UNSEEN)
        work_out(c, key);
    return slot->state == KNOWN ? &slot->value : NULL;
}

void value_of_key(struct checker *c, enum key_id key, struct slot *slot, const char *path)
{
    value_of_entry(c, slot, &key_rows[key], key_rows[key].type == KEY_LIST, one_key_value, path);
}

void check_keys(struct checker *c)
{
    for (int k = 0; k < KEY_COUNT; k++)
        if (c->key[k].entry)
            key_value(c, (enum key_id)k);
    group_check(c);
}
