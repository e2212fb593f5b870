/* The keys of a model are the hyper-parameters that its architecture declares. One without default
 * is a count; one with a default has the kind of its default, and defaults may use other
 * hyper-parameters. Whether a number must be whole is checked where a dimension uses it: head_dim =
 * hidden / heads may be a fraction here and is refused there. */
#include "check/check.h"

#include <string.h>

static const struct ast *block_of(const struct checker *c, const char *name)
{
    const struct ast *items = c->model ? c->model->block->kid[1] : NULL;
    for (int i = 0; items && i < items->n; i++)
        if (items->kid[i]->kind == AST_BLOCK && !strcmp(items->kid[i]->kid[0]->kid[0]->text, name))
            return items->kid[i]->kid[1];
    return NULL;
}

struct declared *hyper_find(struct checker *c, const char *name)
{
    for (int i = 0; i < c->declared.n; i++)
        if (!strcmp(c->declared.item[i].name, name)) return &c->declared.item[i];
    return NULL;
}

/* The kind of a default, by its form: what it is worth may depend on the plan. */
static enum hyper_type type_of(const struct ast *fallback)
{
    static const char *const truths[] = {"and", "or", "==", "!=", "<", "<=", ">", ">="};
    switch (fallback->kind) {
    case AST_LIST: return HYPER_LIST;
    case AST_NAME:
        return !strcmp(fallback->text, "on") || !strcmp(fallback->text, "off") ? HYPER_SWITCH
                                                                               : HYPER_NUMBER;
    case AST_UNARY: return fallback->text[0] == 'n' ? HYPER_SWITCH : HYPER_NUMBER;
    case AST_CHOICE: return type_of(fallback->kid[1]);
    case AST_CALL: return !strcmp(fallback->text, "contains") ? HYPER_SWITCH : HYPER_NUMBER;
    case AST_BINARY:
        for (size_t i = 0; i < COUNT_OF(truths); i++)
            if (!strcmp(fallback->text, truths[i])) return HYPER_SWITCH;
        return HYPER_NUMBER;
    case AST_NUMBER:
    case AST_STRING:
    case AST_PATH:
    case AST_RANGE:
    case AST_ALTERNATIVES:
    case AST_NAMED:
    case AST_ITEMS:
    case AST_BLOCK:
    case AST_SAY:
    case AST_HEAD:
    case AST_ENTRY: break;
    }
    return HYPER_NUMBER;
}

static void declare(struct checker *c, const char *name, const struct ast *fallback, struct span at)
{
    struct declared *old = hyper_find(c, name);
    if (old) {
        add_note(complain(at, "hyper-parameter '%s' is declared twice", name), old->at,
                 "the first time");
        return;
    }
    struct declared d = {.name = name,
                         .fallback = fallback,
                         .at = at,
                         .type = fallback ? type_of(fallback) : HYPER_COUNT};
    d.slot.at = at;
    PUSH(&c->declared, d);
}

void hyper_declare(struct checker *c)
{
    const struct ast *items = block_of(c, "hyper");
    for (int i = 0; items && i < items->n; i++) {
        const struct ast *item = items->kid[i], *head = item->kid[0];
        if (item->kind == AST_ENTRY && head->kind == AST_NAME)
            declare(c, item->text, item->kid[1], item->at);
        else if (item->kind == AST_SAY && head->n == 1)
            declare(c, head->kid[0]->text, NULL, head->at);
        else
            add_help(complain(head->at, "a hyper-parameter is a name, or a name and its default"),
                     "layers; tied = off");
    }
}

static bool one_hyper_value(struct checker *c, const void *which, const struct ast *e,
                            struct constant *out, bool *open)
{
    static const char *const wanted[] = {"a whole number", "a number", "on or off", "a list"};
    const struct declared *d = which;
    const char *ours =
        d->type == HYPER_SWITCH && e->kind == AST_NAME ? foreign_switch(e->text) : NULL;
    if (ours && !hyper_find(c, e->text)) {
        add_help(complain(e->at, "model.%s wants on or off, not '%s'", d->name, e->text), "%s = %s",
                 d->name, ours);
        return false;
    }
    if (e->kind == AST_NAME && foreign_number(e->text) && !hyper_find(c, e->text)) {
        add_help(complain(e->at, "model.%s wants %s, not '%s'", d->name, wanted[d->type], e->text),
                 "%s = %s", d->name, foreign_number(e->text));
        return false;
    }
    if (!value_evaluate(c, S_model, e, out, open)) return false;
    bool number = out->kind == CONST_NUMBER, fine = true;
    if (number && out->unit) {
        unit_help(complain(e->at, "model.%s wants a number without unit, not %s", d->name,
                           e->kind == AST_NUMBER ? e->text : constant_text(out)),
                  e, out);
        return false;
    }
    switch (d->type) {
    case HYPER_COUNT: fine = number && constant_is_whole(out); break;
    case HYPER_NUMBER: fine = number; break;
    case HYPER_SWITCH: fine = out->kind == CONST_TRUTH; break;
    case HYPER_LIST: fine = out->kind == CONST_LIST; break;
    }
    if (!fine) {
        struct diagnostic *said = complain(e->at, "model.%s wants %s, not %s", d->name,
                                           wanted[d->type], constant_text(out));
        if (e->kind == AST_STRING)
            unquoted_help(said, d->name, e->text);
        else if (d->type == HYPER_SWITCH && constant_is_whole(out) &&
                 (out->top == 0 || out->top == 1))
            add_help(said, "%s = %s", d->name, out->top ? "on" : "off");
        else if (number && d->type == HYPER_COUNT)
            add_help(said, "%s = %lld or %lld", d->name, (long long)out->number,
                     (long long)out->number + 1);
        else if (d->type == HYPER_LIST && number)
            add_help(said, "%s = [%s]", d->name, constant_text(out));
    }
    if (fine && d->type == HYPER_COUNT && out->top < 1) {
        struct diagnostic *said =
            complain(e->at, "model.%s must be at least 1, this is %s", d->name, constant_text(out));
        if (d->fallback && d->fallback->kind == AST_NUMBER)
            add_help(said, "without the entry it is %s", d->fallback->text);
        else if (out->top < 0)
            add_help(said, "%s = %s", d->name, constant_text(out) + 1);
        else
            add_help(said, "%s = 1 is the least", d->name);
        fine = false;
    }
    return fine;
}

static void default_value(struct checker *c, struct declared *d)
{
    bool open = false;
    d->slot.state = BUSY;
    bool fine = one_hyper_value(c, d, d->fallback, &d->slot.value, &open);
    if (d->slot.state == BUSY) d->slot.state = fine ? KNOWN : open ? OPEN : FAILED;
}

const struct constant *hyper_value(struct checker *c, struct declared *d)
{
    struct slot *slot = &d->slot;
    if (slot->state == BUSY) {
        complain(slot->at, "model.%s depends on itself", d->name);
        slot->state = FAILED;
    }
    if (slot->state == UNSEEN) {
        if (++c->chained > CHAIN_LIMIT) {
            complain(slot->at,
                     "a chain of more than %d hyper-parameters, each of which needs the next one",
                     CHAIN_LIMIT);
            slot->state = FAILED;
        } else if (slot->entry)
            value_of_entry(c, slot, d, d->type == HYPER_LIST, one_hyper_value,
                           intern_format("model.%s", d->name));
        else if (d->fallback)
            default_value(c, d);
        else
            slot->state = FAILED; /* hyper_check says that it is missing */
        c->chained--;
    }
    return slot->state == KNOWN ? &slot->value : NULL;
}

/* ── Fractions where a dimension stands ──────────────────────────────────────── */

/* A default as written, and with the numbers in it: "hidden / heads", "100 / 8". */
static const char *written(const struct ast *e)
{
    size_t n;
    const char *bytes = source_bytes(e->at.file, &n);
    return text_format("%.*s", e->at.to - e->at.from, bytes + e->at.from);
}

static const char *substituted(struct checker *c, const struct ast *e)
{
    struct declared *d = e->kind == AST_NAME ? hyper_find(c, e->text) : NULL;
    if (d && hyper_value(c, d)) return constant_text(hyper_value(c, d));
    if (e->kind == AST_BINARY)
        return text_format("%s %s %s", substituted(c, e->kid[0]), e->text,
                           substituted(c, e->kid[1]));
    return written(e);
}

/* The hyper-parameters that the plan gives and an expression reads. */
static int givers(struct checker *c, const struct ast *e, struct declared *out[], int n, int most)
{
    struct declared *d = e->kind == AST_NAME ? hyper_find(c, e->text) : NULL;
    if (d && d->slot.entry && n < most) out[n++] = d;
    for (int i = 0; i < e->n; i++) n = givers(c, e->kid[i], out, n, most);
    return n;
}

static void complain_of_fraction(struct checker *c, struct declared *d)
{
    const struct ast *e = d->slot.entry ? d->slot.entry->kid[1] : d->fallback;
    struct declared *from[4];
    int n = givers(c, e, from, 0, 4);
    struct span at = d->slot.entry || !n ? d->slot.at : from[n - 1]->slot.at;
    struct constant value = d->slot.value;
    bool plain = e->kind == AST_NUMBER;
    struct diagnostic *said =
        complain(at, "%s%s%s is %s, and a dimension of %s must be a whole number", d->name,
                 plain ? "" : " = ", plain ? "" : written(e),
                 plain ? constant_text(&value) : substituted(c, e), c->model->name);
    for (int i = 0; i < n; i++)
        if (from[i]->slot.at.from != at.from || from[i]->slot.at.file != at.file)
            add_note(said, from[i]->slot.at, "%s is %s", from[i]->name,
                     constant_text(&from[i]->slot.value));
    bool quotient = e->kind == AST_BINARY && !strcmp(e->text, "/") && n == 2 &&
                    e->kid[0]->kind == AST_NAME && e->kid[1]->kind == AST_NAME;
    if (!quotient || !constant_is_whole(&from[0]->slot.value) ||
        !constant_is_whole(&from[1]->slot.value))
        return;
    int64_t top = from[0]->slot.value.top, bottom = from[1]->slot.value.top,
            below = top - top % bottom, above;
    if (below > 0 && !__builtin_add_overflow(below, bottom, &above))
        add_help(said, "%s = %lld or %lld with %s = %lld", from[0]->name, (long long)below,
                 (long long)above, from[1]->name, (long long)bottom);
}

/* Names in an expression that is a dimension, or makes one. */
static void whole_names(struct checker *c, const struct ast *e, bool *said)
{
    struct declared *d = e->kind == AST_NAME ? hyper_find(c, e->text) : NULL;
    if (d && d->slot.state == KNOWN && d->slot.value.kind == CONST_NUMBER &&
        !constant_is_whole(&d->slot.value) && !said[d - c->declared.item]) {
        said[d - c->declared.item] = true;
        complain_of_fraction(c, d);
    }
    for (int i = 0; i < e->n; i++) whole_names(c, e->kid[i], said);
}

/* The architecture's weights and heads: a fraction there is said once, at the plan's numbers, not
 * at every use. */
static void check_dimensions(struct checker *c, const struct ast *e, bool *said)
{
    if (e->kind == AST_CALL && !strcmp(e->text, "weight") && e->n >= 2)
        whole_names(c, e->kid[1], said);
    else if (e->kind == AST_CALL && !strcmp(e->text, "heads_of") && e->n >= 2)
        whole_names(c, e->kid[1], said);
    for (int i = 0; i < e->n; i++) check_dimensions(c, e->kid[i], said);
}

/* A list of layers, by its name: `dense_layers = [50]` of 48 would say nothing. */
static void check_layers(struct checker *c, struct declared *d)
{
    struct declared *all = hyper_find(c, "layers");
    const struct constant *list = d->slot.entry ? hyper_value(c, d) : NULL,
                          *layers = all && list ? hyper_value(c, all) : NULL;
    size_t n = strlen(d->name);
    if (d->type != HYPER_LIST || !list || !layers || list->kind != CONST_LIST || n < 7 ||
        strcmp(d->name + n - 6, "layers"))
        return;
    for (int i = 0; i < list->n; i++) {
        const struct constant *last =
            list->item[i].kind == CONST_RANGE ? &list->item[i].item[1] : &list->item[i];
        if (!constant_is_whole(last) || last->top < 0 || last->top >= layers->top) {
            struct diagnostic *said =
                complain(list->item[i].at, "model.%s names layer %s, the model has %s", d->name,
                         constant_text(last), constant_text(layers));
            add_note(said, all->slot.at, "layers is %s", constant_text(layers));
            add_help(said, "layers are 0..%lld", (long long)layers->top - 1);
            return;
        }
    }
}

void hyper_check(struct checker *c)
{
    struct text missing = {0};
    int n = 0;
    for (int i = 0; i < c->declared.n; i++) {
        struct declared *d = &c->declared.item[i];
        hyper_value(c, d);
        check_layers(c, d);
        if (!d->slot.entry && !d->fallback) text_add(&missing, "%s%s", n++ ? ", " : "", d->name);
    }
    check_dimensions(c, c->model->block->kid[1], TAKE_MANY(bool, c->declared.n + 1));
    if (!n || c->broken || c->hyper_misspelt) return;
    struct diagnostic *d =
        complain(c->naming[S_model].at, "%s needs %s, which the plan does not give", c->model->name,
                 missing.bytes);
    add_note(d, c->declared.item[0].at, "%s declares %s here", c->model->name,
             n == 1 ? "it" : "them");
}

void hyper_resolve(struct checker *c, struct plan *p)
{
    p->n_hyper = c->declared.n;
    p->hyper = TAKE_MANY(struct hyper, p->n_hyper);
    for (int i = 0; i < p->n_hyper; i++) {
        struct declared *d = &c->declared.item[i];
        p->hyper[i] = (struct hyper){intern(d->name), d->slot.value, d->slot.at};
    }
}

/* stored { prefix "model." "";  ignore "*.inv_freq" } */
void stored_resolve(struct checker *c, struct plan *p)
{
    const struct ast *items = block_of(c, "stored");
    VECTOR(const char *) prefix = {0}, ignore = {0};
    for (int i = 0; items && i < items->n; i++) {
        const struct ast *head = items->kid[i]->kid[0];
        const char *word = items->kid[i]->kind == AST_SAY ? head->kid[0]->text : "";
        bool prefixes = !strcmp(word, "prefix");
        if (!prefixes && strcmp(word, "ignore")) {
            add_help(complain(head->at, "this says nothing about stored names"),
                     "prefix \"model.\" \"\";  ignore \"*.inv_freq\"");
            continue;
        }
        for (int j = 1; j < head->n; j++) {
            if (head->kid[j]->kind != AST_STRING)
                complain(head->kid[j]->at, "%s takes strings", word);
            else if (prefixes)
                PUSH(&prefix, head->kid[j]->text);
            else
                PUSH(&ignore, head->kid[j]->text);
        }
    }
    p->stored_prefix = prefix.item;
    p->n_stored_prefix = prefix.n;
    p->stored_ignore = ignore.item;
    p->n_stored_ignore = ignore.n;
}
