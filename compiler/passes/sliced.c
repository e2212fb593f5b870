/* A product whose columns are queries, keys and values has a bias: the sum is cut into three, and
 * nobody reads it whole. A kernel of its own would write it and another one read it again, so
 * `fuse` gives such a sum to the kernel of its slices. If what it is made of had to be stored
 * for that, nothing would be gained. */
#include "passes/sliced.h"

struct search {
    const struct body *body;
    struct shape walked;
    struct sliced found;
};

/* Whether `v` is stored in any case, or made of what is by maps over the same rows and columns that
 * have one reader each; those are added to what was found. */
static bool made_of_stored(struct search *s, const struct value *v)
{
    const struct node *n = v->node;
    const enum op_class class = n && n->note == s->body ? op_rows[n->op].class : CLASS_LEAF;
    if (class == CLASS_LEAF || class == CLASS_CORE) return true;
    if (class == CLASS_VIEW) {
        const struct node *from = n->in[0].value->node;
        return !from || from->note != s->body || op_rows[from->op].class == CLASS_CORE;
    }
    if (class != CLASS_MAP || v->mark != 1 || !shape_same(v->shape, s->walked)) return false;
    PUSH(&s->found.node, n);
    for (int i = 0; i < n->n_in; i++)
        if (n->in[i].value && !made_of_stored(s, n->in[i].value)) return false;
    return true;
}

static bool only_slices_read(const struct body *b, const struct value *v)
{
    int64_t slices = 0, columns = 0;
    for (int i = 0; i < b->node.n; i++) {
        const struct node *n = b->node.item[i];
        if (n->op != OP_slice || n->in[0].value != v) continue;
        slices++, columns += shape_columns(n->out[0]->shape);
    }
    return slices && v->mark == slices && columns <= shape_columns(v->shape);
}

struct sliced find_sliced(const struct body *b)
{
    struct sliced all = {0};
    for (int i = 0; i < b->node.n; i++) {
        const struct node *n = b->node.item[i];
        if (op_rows[n->op].class != CLASS_MAP || !only_slices_read(b, n->out[0])) continue;
        struct search s = {.body = b, .walked = n->out[0]->shape};
        bool stored = true;
        PUSH(&s.found.node, n);
        for (int k = 0; k < n->n_in && stored; k++)
            stored = !n->in[k].value || made_of_stored(&s, n->in[k].value);
        for (int k = 0; k < s.found.node.n && stored; k++) PUSH(&all.node, s.found.node.item[k]);
    }
    return all;
}

bool is_sliced(const struct sliced *s, const struct node *n)
{
    for (int i = 0; i < s->node.n; i++)
        if (s->node.item[i] == n) return true;
    return false;
}
