/* Parameter groups: `optimizer adamw { weights "*norm*" { weight_decay = 0 } }`. A group is not a
 * section, because there can be several and their order matters. So its keys have slots of their
 * own here, and only keys that can really differ between weights are accepted: a key that silently
 * applied to all weights would be worse than an error. */
#include "check/check.h"

#include <string.h>

static void unknown_group_key(const char *name, struct span at)
{
    bool optimizer = key_find(S_optimizer, name) != KEY_COUNT;
    struct diagnostic *d =
        complain(at,
                 optimizer ? "'%s' is one for all weights, a group cannot have its own"
                           : "'%s' is not a key of a group of weights",
                 name);
    const char *const names[] = {key_rows[K_weights_weight_decay].name};
    if (nearest_name(name, names, 1))
        add_help(d, "did you mean '%s'?", names[0]);
    else
        add_help(d, "a group has %s", names[0]);
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
    g.path = intern_format("%s \"%s\" weight_decay", section_rows[S_weights].path, g.pattern);
    for (int i = 0; i < items->n; i++) {
        const struct ast *item = items->kid[i];
        if (item->kind != AST_ENTRY)
            complain(item->kid[0]->at, "a group of weights holds entries only");
        else if (key_find(S_weights, item->text) == KEY_COUNT)
            unknown_group_key(item->text, item->kid[0]->at);
        else if (g.decay.entry)
            add_note(complain(item->at, "%s is given twice", item->text), g.decay.at,
                     "the first time");
        else
            g.decay = (struct slot){.layer = LAYER_PLAN, .entry = item, .at = item->at};
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

void group_check(struct checker *c)
{
    for (int i = 0; i < c->group.n; i++) {
        struct group *g = &c->group.item[i];
        const struct ast *value = g->decay.entry ? g->decay.entry->kid[1] : NULL;
        /* no --set and no search could name it */
        if (value && (value->kind == AST_ALTERNATIVES || value->kind == AST_RANGE))
            add_help(
                complain(value->at, "a group's value cannot be left open"),
                "a constant can be used there, which --set gives another value: %s = name, and "
                "outside the plan name = 0",
                key_rows[K_weights_weight_decay].name);
        else if (value)
            value_of_key(c, K_weights_weight_decay, &g->decay, g->path);
    }
}

void group_resolve(const struct checker *c, struct plan *p)
{
    p->n_groups = c->group.n;
    p->group = TAKE_MANY(struct decay_group, c->group.n + 1);
    for (int i = 0; i < c->group.n; i++)
        p->group[i] = (struct decay_group){
            c->group.item[i].pattern, c->group.item[i].decay.value.number, c->group.item[i].at};
}
