/* Parameter groups: `optimizer adamw { weights "*norm*" { weight_decay = 0 } }`. A group is not a
 * section, because there can be several and their order matters. So its keys have slots of their
 * own here, and only keys that can really differ between weights are accepted: a key that silently
 * applied to all weights would be worse than an error. */
#include "check/check.h"

static void unknown_group_key(const char *name, struct span at)
{
    bool optimizer = key_find(S_optimizer, name) != KEY_COUNT;
    struct diagnostic *d =
        complain(at,
                 optimizer ? "'%s' is one for all weights, a group cannot have its own"
                           : "'%s' is not a key of a group of weights",
                 name);
    const char *const names[] = {key_rows[K_weights_weight_decay].name,
                                 key_rows[K_weights_lr_scale].name};
    const char *near = nearest_name(name, names, (int)COUNT_OF(names));
    if (near)
        add_help(d, "did you mean '%s'?", near);
    else
        add_help(d, "a group has %s and %s", names[0], names[1]);
}

static struct slot *slot_of(struct group *g, enum key_id key)
{
    return key == K_weights_lr_scale ? &g->scale : &g->decay;
}

void group_collect(struct checker *c, const struct ast *block)
{
    const struct ast *head = block->kid[0], *items = block->kid[1];
    if (head->n != 2 || head->kid[1]->kind != AST_STRING || !head->kid[1]->text[0]) {
        add_help(complain(head->at, "a group of weights is named by one pattern in double quotes"),
                 "weights \"*norm*\" { weight_decay = 0 }");
        return;
    }
    struct group g = {.pattern = head->kid[1]->text, .at = head->at};
    for (int i = 0; i < items->n; i++) {
        const struct ast *item = items->kid[i];
        const enum key_id key =
            item->kind == AST_ENTRY ? key_find(S_weights, item->text) : KEY_COUNT;
        struct slot *slot = slot_of(&g, key);
        if (item->kind != AST_ENTRY)
            complain(item->kid[0]->at, "a group of weights holds entries only");
        else if (key == KEY_COUNT)
            unknown_group_key(item->text, item->kid[0]->at);
        else if (slot->entry)
            add_note(complain(item->at, "%s is given twice", item->text), slot->at,
                     "the first time");
        else
            *slot = (struct slot){.layer = LAYER_PLAN, .entry = item, .at = item->at};
    }
    if (items->n == 0)
        add_help(complain(head->at, "this group of weights sets nothing"),
                 "weights \"%s\" { weight_decay = 0 }", g.pattern);
    PUSH(&c->group, g);
}

void group_refuse_path(struct span at)
{
    add_help(complain(at, "a group of weights is a block with its pattern, not a path"),
             "optimizer adamw { weights \"*norm*\" { weight_decay = 0 } }");
}

static void check_value(struct checker *c, struct group *g, enum key_id key)
{
    struct slot *slot = slot_of(g, key);
    const struct ast *value = slot->entry ? slot->entry->kid[1] : NULL;
    /* no --set and no search could name it */
    if (value && (value->kind == AST_ALTERNATIVES || value->kind == AST_RANGE))
        add_help(complain(value->at, "a group's value cannot be left open"),
                 "a constant can be used there, which --set gives another value: %s = name, and "
                 "outside the plan name = 0",
                 key_rows[key].name);
    else if (value)
        value_of_key(c, key, slot,
                     intern_format("%s \"%s\" %s", section_rows[S_weights].path, g->pattern,
                                   key_rows[key].name));
}

void group_check(struct checker *c)
{
    for (int i = 0; i < c->group.n; i++) {
        check_value(c, &c->group.item[i], K_weights_weight_decay);
        check_value(c, &c->group.item[i], K_weights_lr_scale);
    }
}

void group_resolve(const struct checker *c, struct plan *p)
{
    p->n_groups = c->group.n;
    p->group = TAKE_MANY(struct weight_group, c->group.n + 1);
    for (int i = 0; i < c->group.n; i++) {
        const struct group *g = &c->group.item[i];
        p->group[i] = (struct weight_group){.pattern = g->pattern,
                                            .has_decay = g->decay.entry != NULL,
                                            .has_scale = g->scale.entry != NULL,
                                            .weight_decay = g->decay.value.number,
                                            .lr_scale = g->scale.value.number,
                                            .at = g->at};
    }
}
