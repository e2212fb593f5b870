/* Needs: lowered bodies.
 * Gives: every loop body its checkpointing mode (`keep`). Layers under another mode than the rest
 *   get a body of their own, with units of its own: activation_checkpoint.layers and .every choose
 *   layers, and a loop with two kinds of layers is a loop with two bodies, like dense and sparse
 *   layers.
 * Loses: nothing. A plan that treats all layers alike is unchanged. */
#include "ir/ir.h"
#include "passes/pipeline.h"

#include <stdlib.h>
#include <string.h>

/* Whether the plan's mode applies to layer i: one in `every`, counted over the layers it may apply
 * to. */
static bool chosen(const struct facts *f, int64_t i)
{
    if (!f->checkpoint_layers[0]) return i % f->checkpoint_every == 0;
    int64_t before = 0;
    for (const char *c = f->checkpoint_layers; *c;) {
        char *end;
        int64_t from = strtoll(c, &end, 10), to = strtoll(end + 2, &end, 10);
        if (i >= from && i < to) return (before + i - from) % f->checkpoint_every == 0;
        before += to - from;
        c = *end ? end + 1 : end;
    }
    return false;
}

/* The iterations of `b` that are (or are not) under the mode. */
static int64_t stretches(const struct facts *f, const struct region *r, const struct body *b,
                         bool under, struct body *into)
{
    struct stretch all = {0, r->count};
    const struct stretch *part = b->layers.n ? b->layers.item : &all;
    int64_t n = 0, from = -1;
    for (int k = 0; k < (b->layers.n ? b->layers.n : 1); k++)
        for (int64_t i = part[k].from; i <= part[k].to; i++) {
            bool in = i < part[k].to && chosen(f, i) == under;
            n += in;
            if (in && from < 0) from = i;
            if (!in && from >= 0) {
                if (into) PUSH(&into->layers, ((struct stretch){from, i}));
                from = -1;
            }
        }
    return n;
}

/* The weights of a unit once more, for the layers that another body runs. */
static void copy_unit(struct graph *g, const struct unit *old, const char *variant, int64_t count)
{
    struct unit *u = TAKE(struct unit);
    *u = *old;
    u->name = intern_format("%s.%s", old->name, variant);
    u->variant = intern(variant);
    u->count = count;
    int at = 0;
    while (strcmp(g->unit.item[at]->name, old->name)) at++;
    PUSH(&g->unit, u);
    for (int i = g->unit.n - 1; i > at + 1; i--) g->unit.item[i] = g->unit.item[i - 1];
    g->unit.item[at + 1] = u;
}

static void copy_weights(struct graph *g, const struct graph *old, const struct body *from,
                         const char *unit)
{
    for (int i = 0; i < old->weight.n; i++) {
        const struct weight *w = old->weight.item[i];
        bool here = false;
        for (int n = 0; n < from->node.n && !here; n++)
            for (int k = 0; k < from->node.item[n]->n_in; k++)
                here |= from->node.item[n]->in[k].value == w->value;
        if (!here || !graph_unit(g, w->unit)->loop[0]) continue;
        struct weight *now = TAKE(struct weight);
        *now = *w;
        now->unit = intern(unit);
        now->value = value_new(g, fresh_name(g, w->value->name), w->value->type, w->value->shape);
        now->value->weight = now;
        PUSH(&g->weight, now);
        copied_as(w->value, now->value);
    }
}

/* A second copy of a body with names of its own. */
static void copy_body(struct graph *g, struct region *r, const struct body *old, struct body *now)
{
    struct build b = {.graph = g, .region = r, .body = now};
    for (int i = 0; i < old->node.n; i++) {
        struct node *n = node_copy(&b, old->node.item[i]);
        for (int o = 0; o < n->n_out; o++) n->out[o]->name = fresh_name(g, n->out[o]->name);
    }
    body_end(now, old);
}

static const struct unit *unit_of(const struct graph *g, const struct region *r,
                                  const struct body *b)
{
    for (int i = 0; i < g->unit.n; i++)
        if (g->unit.item[i]->loop[0] && !strcmp(g->unit.item[i]->loop, r->loop) &&
            !strcmp(g->unit.item[i]->variant, b->name))
            return g->unit.item[i];
    return NULL; /* a body without weights */
}

/* The words of a list that are for this body: kinds and names as they are, nodes of this body
 * without its name. */
static const char *save_for(const struct region *r, const struct body *b, const char *list)
{
    struct text t = {0};
    const char *own = text_format("%s/%s#", r->loop, b->name);
    text_add(&t, "%s", "");
    for (const char *c = list; *c; c += strspn(c, " ")) {
        size_t n = strcspn(c, " ");
        bool node = memchr(c, '#', n) != NULL;
        if (!node)
            text_add(&t, "%s%.*s", t.length ? " " : "", (int)n, c);
        else if (n > strlen(own) && !memcmp(c, own, strlen(own)))
            text_add(&t, "%s#%.*s", t.length ? " " : "", (int)(n - strlen(own)), c + strlen(own));
        c += n;
    }
    return intern(t.bytes);
}

static void set_mode(const struct facts *f, const struct region *r, const struct body *old,
                     struct body *now, bool under)
{
    now->keep = under ? f->checkpoint_mode : f->checkpoint_rest;
    now->save = save_for(r, old, under ? f->checkpoint_save : f->checkpoint_rest_save);
}

static void split_loop(struct graph *g, const struct graph *old, const struct region *from)
{
    const struct facts *f = &g->facts;
    struct region *r = region_begin(g, from);
    for (int k = 0; k < from->body.n; k++) {
        const struct body *body = from->body.item[k];
        int64_t under = stretches(f, from, body, true, NULL),
                rest = stretches(f, from, body, false, NULL);
        struct stretch first =
            body->layers.n ? body->layers.item[0] : (struct stretch){0, from->count};
        bool two = under && rest && f->checkpoint_mode != CHECKPOINT_NONE,
             first_under = two ? chosen(f, first.from) : under > 0;
        struct body *one = two ? body_new(r, body->name) : body_begin(r, body);
        set_mode(f, from, body, one, first_under);
        struct build b = {.graph = g, .region = r, .body = one};
        for (int n = 0; n < body->node.n; n++) node_copy(&b, body->node.item[n]);
        body_end(one, body);
        if (!two) continue;
        const struct unit *u = unit_of(g, from, body);
        /* called by what sets it apart: the mode, or that it is the rest under the same mode */
        enum checkpoint_mode other = first_under ? f->checkpoint_rest : f->checkpoint_mode;
        const char *apart = f->checkpoint_rest != f->checkpoint_mode ? checkpoint_names[other]
                            : first_under                            ? "rest"
                                                                     : "chosen";
        const char *name = body->name[0] ? text_format("%s.%s", body->name, apart) : apart;
        struct body *second = body_new(r, name);
        set_mode(f, from, body, second, !first_under);
        stretches(f, from, body, first_under, one);
        stretches(f, from, body, !first_under, second);
        if (u) {
            int64_t count = first_under ? rest : under;
            copy_unit(g, u, name, count);
            struct unit *mine = graph_unit(g, u->name);
            mine->count -= count;
            copy_weights(g, old, body, intern_format("%s.%s", u->name, name));
        }
        copy_body(g, r, body, second);
        for (int i = 0; i < old->weight.n; i++)
            copied_as(old->weight.item[i]->value, g->weight.item[i]->value);
    }
    region_end(g, r, from);
}

struct graph *pass_split(const struct graph *old)
{
    struct graph *g = graph_begin(old, LEVEL_SPLIT);
    for (int i = 0; i < old->region.n; i++) {
        if (old->region.item[i]->direction == ONCE)
            region_copy(g, old->region.item[i]);
        else
            split_loop(g, old, old->region.item[i]);
    }
    return g;
}
