/* What a name in an expression means: a hyper-parameter of the model, a key of its section, a key
 * by its path, a constant of its file. */
#include "check/check.h"

#include <string.h>

struct names {
    struct scope scope;
    struct checker *c;
    enum section_id section;
    int source;
    bool hyper;
};

/* What an expression sees of a key that has no value now; `tainted` makes its result be dropped. */
static bool stand_in(struct checker *c, enum state state, const struct constant *first,
                     struct constant *out)
{
    c->tainted = true;
    c->tainted_open |= state == OPEN;
    *out = state == OPEN && first ? *first : constant_whole(1);
    return true;
}

static bool slot_value(struct checker *c, const struct slot *slot, struct constant *out)
{
    if (slot->state == ABSENT) return false;
    if (slot->state != KNOWN) return stand_in(c, slot->state, &slot->value, out);
    *out = slot->value;
    return true;
}

bool value_of_constant(struct checker *c, int source, const char *name, struct constant *out)
{
    int main_source = c->file.item[0].source;
    const char *file = source_name(source);
    if (!strcmp(file, "--set")) source = main_source;
    for (int i = 0; i < c->constant.n; i++) {
        struct file_constant *f = &c->constant.item[i];
        if (f->source != source || strcmp(f->name, name)) continue;
        bool open = false;
        if (f->state == BUSY) {
            complain(f->entry->at, "'%s' depends on itself", f->name);
            f->state = FAILED;
        } else if (f->state == UNSEEN) {
            f->state = BUSY;
            if (++c->chained > CHAIN_LIMIT) {
                complain(f->entry->at,
                         "a chain of more than %d constants, each of which needs the "
                         "next one",
                         CHAIN_LIMIT);
                f->state = FAILED;
            }
            bool fine = f->state == BUSY &&
                        value_evaluate(c, SECTION_COUNT, f->entry->kid[1], &f->value, &open);
            c->chained--;
            if (f->state == BUSY) f->state = fine ? KNOWN : open ? OPEN : FAILED;
        }
        if (f->state != KNOWN) return stand_in(c, f->state, NULL, out);
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
    if (!d) return false;
    hyper_value(c, d);
    return slot_value(c, &d->slot, out);
}

static bool lookup(struct scope *s, const char *name, struct constant *out)
{
    struct names *n = s->context;
    struct checker *c = n->c;
    if (!strchr(name, '.')) {
        if (n->section == S_model && hyper_named(c, name, out)) return true;
        if (n->section != SECTION_COUNT && key_find(n->section, name) != KEY_COUNT)
            return key_named(c, key_find(n->section, name), out);
        return value_of_constant(c, n->source, name, out);
    }
    if (!strncmp(name, "model.", 6)) return hyper_named(c, name + 6, out);
    enum key_id key = key_find_path(name);
    return key != KEY_COUNT && key_named(c, key, out);
}

/* Names that a slip may have meant: the keys of the section, hyper-parameters in a model. */
static void hints(struct scope *s)
{
    const struct names *asked = s->context;
    struct checker *c = asked->c;
    enum section_id section = asked->section;
    const char **names = TAKE_MANY(const char *, KEY_COUNT + c->declared.n + c->constant.n);
    int n = 0;
    for (int i = 0; section == S_model && i < c->declared.n; i++)
        names[n++] = c->declared.item[i].name;
    for (int k = 0; k < KEY_COUNT; k++)
        if (key_rows[k].section == section)
            names[n++] = key_rows[k].name;
        else if (!key_is_of_row((enum key_id)k))
            names[n++] = key_path((enum key_id)k);
    for (int i = 0; i < c->constant.n; i++) names[n++] = c->constant.item[i].name;
    s->names = names;
    s->n_names = n;
}

bool value_evaluate(struct checker *c, enum section_id section, const struct ast *e,
                    struct constant *out, bool *open)
{
    if (e->kind == AST_NUMBER) return constant_from_number(e, out);
    struct names n = {.c = c, .section = section, .source = e->at.file};
    n.scope = (struct scope){.lookup = lookup, .hints = hints, .context = &n};
    bool tainted = c->tainted, tainted_open = c->tainted_open;
    c->tainted = c->tainted_open = false;
    bool fine = evaluate(e, &n.scope, out) && !c->tainted;
    *open |= c->tainted_open;
    c->tainted = tainted;
    c->tainted_open = tainted_open;
    return fine;
}

const char *value_near(struct checker *c, enum section_id section, const char *word)
{
    struct names n = {.c = c, .section = section};
    struct scope s = {.context = &n};
    hints(&s);
    return nearest_name(word, s.names, s.n_names);
}
