/* Nodes are kept with their shapes as forms; at a size they become nodes again, and workspace.c
 * says of them what it says of a compiled graph's. So no rule of it is written twice, and a space
 * of ten thousand plans is compiled once a structure. */
#include "passes/workspace_form.h"
#include "passes/workspace.h"

#include <stdlib.h>
#include <string.h>

enum { VALUES = 12, ATTRIBUTES = 8 };

struct formed_value {
    enum element type;
    int rank;
    struct size_form dim[SHAPE_RANK];
};
struct formed_node {
    enum op op;
    int kernel, n_in, n_out, n_attr;
    struct attr attr[ATTRIBUTES];
    struct formed_value value[VALUES]; /* operands, then results */
};
struct workspace_form {
    struct facts facts;
    struct formed_node *node;
    int n;
};

struct size_form size_form_of(int64_t tokens, int64_t few, int64_t many, int64_t a, int64_t b,
                              int64_t c)
{
    struct size_form f = {.base = a};
    if (few != many) f.piece = (a - c) / (tokens / few - tokens / many);
    f.row = (b - a - f.piece * (tokens / few)) / tokens;
    f.base = a - f.row * tokens - f.piece * (tokens / few);
    return f;
}

static int64_t size_at(const struct size_form *f, int64_t tokens, int64_t chunks)
{
    return f->base + f->row * tokens + f->piece * (tokens / chunks);
}

static const struct value *value_at(const struct node *n, int i)
{
    return i < n->n_in ? n->in[i].value : n->out[i - n->n_in];
}

static void form_node(struct formed_node *to, const struct node *a, const struct node *b,
                      const struct node *c, const struct graph *g, int64_t many)
{
    if (a->n_in + a->n_out > VALUES || a->n_attr > ATTRIBUTES)
        bug("%s has too many operands for a form", op_rows[a->op].name);
    *to = (struct formed_node){
        .op = a->op, .kernel = a->kernel, .n_in = a->n_in, .n_out = a->n_out, .n_attr = a->n_attr};
    for (int i = 0; i < a->n_attr; i++) to->attr[i] = a->attr[i];
    for (int i = 0; i < a->n_in + a->n_out; i++) {
        const struct value *x = value_at(a, i), *y = value_at(b, i), *z = value_at(c, i);
        if (!x) continue;
        to->value[i].type = x->type;
        to->value[i].rank = x->shape.rank;
        for (int d = 0; d < x->shape.rank; d++)
            to->value[i].dim[d] = size_form_of(g->facts.tokens, g->facts.loss_chunks, many,
                                               x->shape.dim[d], y->shape.dim[d], z->shape.dim[d]);
    }
}

struct workspace_form *workspace_form_of(const struct graph *a, const struct graph *b,
                                         const struct graph *c)
{
    struct workspace_form *w = calloc(1, sizeof *w);
    VECTOR(struct formed_node) all = {0};
    if (!w) bug("out of memory for a workspace's form");
    w->facts = a->facts;
    for (int i = 0; i < a->region.n; i++)
        for (int k = 0; k < a->region.item[i]->body.n; k++)
            for (int n = 0; n < a->region.item[i]->body.item[k]->node.n; n++) {
                const struct node *x = a->region.item[i]->body.item[k]->node.item[n];
                if (!x->kernel ||
                    !(workspace_of_node(&a->facts, x) || workspace_of_library(&a->facts, x)))
                    continue;
                struct formed_node one;
                form_node(&one, x, b->region.item[i]->body.item[k]->node.item[n],
                          c->region.item[i]->body.item[k]->node.item[n], a, c->facts.loss_chunks);
                PUSH(&all, one);
            }
    w->n = all.n;
    w->node = malloc(sizeof *w->node * (size_t)(all.n + 1));
    if (!w->node) bug("out of memory for a workspace's form");
    if (all.n) memcpy(w->node, all.item, sizeof *w->node * (size_t)all.n);
    return w;
}

int64_t workspace_form_bytes(const struct workspace_form *w, int64_t tokens, int64_t chunks)
{
    int64_t most = 0, own = 0, library = 0;
    for (int i = 0; i < w->n; i++) {
        const struct formed_node *f = &w->node[i];
        struct value value[VALUES] = {0}, *out[VALUES];
        struct operand in[VALUES] = {0};
        struct node n = {.op = f->op,
                         .in = in,
                         .n_in = f->n_in,
                         .out = out,
                         .n_out = f->n_out,
                         .attr = (struct attr *)(uintptr_t)f->attr,
                         .n_attr = f->n_attr};
        for (int k = 0; k < f->n_in + f->n_out; k++) {
            value[k].type = f->value[k].type;
            value[k].shape.rank = f->value[k].rank;
            for (int d = 0; d < f->value[k].rank; d++)
                value[k].shape.dim[d] = size_at(&f->value[k].dim[d], tokens, chunks);
            if (k < f->n_in)
                in[k].value = &value[k];
            else
                out[k - f->n_in] = &value[k];
        }
        if (!i || f->kernel != w->node[i - 1].kernel) own = library = 0;
        own += workspace_of_node(&w->facts, &n);
        library += workspace_of_library(&w->facts, &n);
        if (own > most) most = own;
        if (library > most) most = library;
    }
    return most;
}

void workspace_form_free(struct workspace_form *w)
{
    if (!w) return;
    free(w->node);
    free(w);
}
