/* See extents.h. An extent is an axis of a value, or its rows: all axes but the last. */
#include "predict/extents.h"
#include "predict/form.h"

#include <stdlib.h>
#include <string.h>

/* What an extent is in the three graphs. */
struct extent {
    int64_t at[3];
    struct real_form form;
};
struct extents {
    struct extent *item;
    int n, room;
    double *value; /* scratch, of each */
};

static void add(struct extents *e, int64_t few, int64_t more, int64_t finer)
{
    for (int i = 0; i < e->n; i++)
        if (e->item[i].at[0] == few && e->item[i].at[1] == more && e->item[i].at[2] == finer)
            return;
    if (e->n == e->room) {
        e->room = e->room ? 2 * e->room : 64;
        e->item = realloc(e->item, sizeof *e->item * (size_t)e->room);
        if (!e->item) bug("out of memory for extents");
    }
    e->item[e->n++] = (struct extent){.at = {few, more, finer}};
}

static void add_shapes(struct extents *e, struct shape few, struct shape more, struct shape finer)
{
    for (int i = 0; i < few.rank; i++) add(e, few.dim[i], more.dim[i], finer.dim[i]);
    add(e, shape_rows(few), shape_rows(more), shape_rows(finer));
}

/* The values of a body, in three graphs with the same nodes. */
static void add_body(struct extents *e, const struct body *few, const struct body *more,
                     const struct body *finer)
{
    for (int i = 0; i < few->node.n; i++) {
        const struct node *a = few->node.item[i], *b = more->node.item[i], *c = finer->node.item[i];
        for (int k = 0; k < a->n_out; k++)
            add_shapes(e, a->out[k]->shape, b->out[k]->shape, c->out[k]->shape);
        for (int k = 0; k < a->n_in; k++)
            if (a->in[k].value)
                add_shapes(e, a->in[k].value->shape, b->in[k].value->shape, c->in[k].value->shape);
    }
}

struct extents *extents_of(const struct graph *few, const struct graph *more,
                           const struct graph *finer)
{
    const uint64_t kernels = kernels_hash(few);
    if (kernels_hash(more) != kernels || kernels_hash(finer) != kernels) return NULL;
    struct extents *e = calloc(1, sizeof *e);
    if (!e) bug("out of memory for extents");
    add(e, 1, 1, 1);
    for (int r = 0; r < few->region.n; r++)
        for (int b = 0; b < few->region.item[r]->body.n; b++)
            add_body(e, few->region.item[r]->body.item[b], more->region.item[r]->body.item[b],
                     finer->region.item[r]->body.item[b]);
    for (int i = 0; i < e->n; i++)
        e->item[i].form = form_of(few, finer->facts.loss_chunks, (double)e->item[i].at[0],
                                  (double)e->item[i].at[1], (double)e->item[i].at[2]);
    e->value = calloc((size_t)e->n, sizeof *e->value);
    if (!e->value) bug("out of memory for extents");
    return e;
}

void extents_free(struct extents *e)
{
    if (!e) return;
    free(e->item);
    free(e->value);
    free(e);
}

bool extents_coincide(const struct extents *e, int64_t tokens, int64_t chunks)
{
    for (int i = 0; i < e->n; i++) {
        e->value[i] = value_of(&e->item[i].form, (double)tokens, (double)chunks);
        for (int k = 0; k < i; k++)
            if (e->value[i] == e->value[k]) return true;
    }
    return false;
}

static void mix(uint64_t *hash, uint64_t x) { *hash = (*hash ^ x) * 0x9E3779B97F4A7C15u; }

uint64_t kernels_hash(const struct graph *g)
{
    uint64_t hash = 0;
    for (int r = 0; r < g->region.n; r++)
        for (int b = 0; b < g->region.item[r]->body.n; b++) {
            const struct body *body = g->region.item[r]->body.item[b];
            mix(&hash, (uint64_t)body->node.n);
            for (int i = 0; i < body->node.n; i++) {
                const struct node *n = body->node.item[i];
                mix(&hash, (uint64_t)n->op);
                mix(&hash, (uint64_t)n->kernel);
                for (int k = 0; k < n->n_in; k++) mix(&hash, n->in[k].value != NULL);
                for (int k = 0; k < n->n_out; k++) mix(&hash, (uint64_t)n->out[k]->shape.rank);
                hash ^= hash >> 29;
            }
        }
    return hash;
}
