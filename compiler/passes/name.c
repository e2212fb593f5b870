/* Facts about a graph from which names are made: the layer of the architecture that a value comes
 * from, the weight that a node reads or whose gradient it makes, and the words of names. */
#include "passes/name.h"

#include <ctype.h>
#include <string.h>

bool name_starts(const char *s, const char *with) { return !strncmp(s, with, strlen(with)); }

const char *name_cleaned(const char *name)
{
    struct text t = {0};
    for (const char *c = name; *c; c++) {
        bool plain = isalnum((unsigned char)*c) != 0;
        if (plain || (t.length && t.bytes[t.length - 1] != '_'))
            text_add(&t, "%c", plain ? *c : '_');
    }
    while (t.length && t.bytes[t.length - 1] == '_') t.bytes[--t.length] = 0;
    return t.length ? intern(t.bytes) : intern("unnamed");
}

const char *name_stem(const char *name)
{
    const char *dot = strchr(name, '.');
    return name_cleaned(dot ? text_format("%.*s", (int)(dot - name), name) : name);
}

bool node_is_gradient(const struct node *n)
{
    return n->n_out && name_starts(n->out[0]->name, "d_") && !n->again;
}

const char *name_of_value(const struct value *v)
{
    const char *name = name_stem(v->name);
    return name_starts(name, "d_") ? name + 2 : name;
}

const char *name_of_weight(const struct weight *w)
{
    const char *name = name_stem(w->value->name);
    if (name_starts(name, "w_") && name[2]) return name + 2;
    if (name[0] == 'w' && isalpha((unsigned char)name[1]) && !name[2]) return name + 1;
    return name;
}

void words_add(struct words *to, const char *w)
{
    for (int i = 0; i < to->item.n; i++)
        if (!strcmp(to->item.item[i], w)) return;
    PUSH(&to->item, w);
}

const char *words_joined(const struct words *of)
{
    struct text t = {0};
    for (int i = 0; i < of->item.n; i++) text_add(&t, "%s%s", i ? "_" : "", of->item.item[i]);
    return t.length ? t.bytes : "";
}

/* ── what a value comes from ─────────────────────────────────────────────────── */
const struct node *value_maker(const struct value *v)
{
    const struct node *n = v ? v->node : NULL;
    while (n && (op_rows[n->op].class == CLASS_VIEW || n->op == OP_cast)) n = n->in[0].value->node;
    return n;
}

const struct weight *value_weight(const struct value *v)
{
    while (v && v->node && (op_rows[v->node->op].class == CLASS_VIEW || v->node->op == OP_cast))
        v = v->node->in[0].value;
    return v ? v->weight : NULL;
}

const struct weight *node_weight(const struct node *n)
{
    const struct weight *w = NULL;
    for (int i = 0; i < n->n_in && !w; i++) w = value_weight(n->in[i].value);
    return w;
}

bool op_is_product(enum op op)
{
    return op == OP_matmul || op == OP_matmul_add || op == OP_expert_matmul ||
           op == OP_expert_matmul_grad;
}

const struct weight *value_layer(const struct value *v)
{
    const struct node *n = value_maker(v);
    if (n && n->op == OP_collect) n = value_maker(n->in[0].value);
    return n && (op_is_product(n->op) || n->op == OP_embedding) && !node_is_gradient(n)
               ? node_weight(n)
               : NULL;
}

/* The weight whose gradient a value is by a line of one of the regions from `first` on. */
static const struct weight *yielded_behind(const struct graph *g, int first, const struct value *v)
{
    for (int r = first; r < g->region.n; r++)
        for (int k = 0; k < g->region.item[r]->body.n; k++) {
            const struct body *b = g->region.item[r]->body.item[k];
            for (int i = 0; i < b->gradient.n; i++)
                if (b->gradient.item[i].value == v) return b->gradient.item[i].weight->weight;
        }
    return NULL;
}

const struct weight *gradient_weight(const struct graph *g, const struct body *b,
                                     const struct value *v)
{
    for (int i = 0; i < b->gradient.n; i++)
        if (b->gradient.item[i].value == v) return b->gradient.item[i].weight->weight;
    for (int i = 0; i < g->region.n; i++) {
        const struct region *r = g->region.item[i];
        for (int k = 0; k < r->body.n; k++)
            for (int c = 0; c < r->carry.n && r->body.item[k] == b; c++) {
                if (b->next.item[c] != v) continue;
                const struct weight *w = yielded_behind(g, i + 1, r->carry.item[c].last);
                if (w) return w;
            }
    }
    return NULL;
}
