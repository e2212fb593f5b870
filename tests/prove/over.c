/* Whether a result of a kernel may lie where an operand of it lay. */
#include "state.h"

bool inside(const struct body *b, int first, int last, const struct value *v)
{
    for (int k = first; k < last; k++)
        for (int o = 0; o < b->node.item[k]->n_out; o++)
            if (b->node.item[k]->out[o] == v) return true;
    return false;
}

/* How often a kernel has walked the row, or all rows (`after`), before a value of it is known; and
 * whether `over` is read for it at its own element. */
struct depth {
    int rows, after;
    bool reads;
};
static struct depth depth_of(struct prove *p, const struct body *b, int first, int last,
                             const struct value *v, const struct value *over)
{
    struct depth d = {0};
    if (v == over) return (struct depth){0, 0, true};
    if (!inside(b, first, last, v)) return d;
    const struct node *n = v->node;
    for (int i = 0; i < n->n_in; i++) {
        if (!n->in[i].value) continue;
        const struct value *a = n->in[i].value;
        struct depth x = depth_of(p, b, first, last, a, over);
        if (a != over && bytes_of(a) == over) wrong(p, "%s is read as another shape", over->name);
        bool half = p->halves && n->op == OP_slice && a == over &&
                    shape_same(v->shape, p->walked) &&
                    attr_get(n, "from") % shape_columns(p->walked) == 0;
        if (x.reads && !half && (n->op != OP_pick || p->halves) && !shape_same(a->shape, p->walked))
            wrong(p, "%s is read for %s, which has another shape", over->name, a->name);
        if (x.reads && !half && op_rows[n->op].class == CLASS_INDEX && n->op != OP_beside)
            wrong(p, "%s is written over and read at other elements, for %s", over->name, v->name);
        if (x.rows > d.rows) d.rows = x.rows;
        if (x.after > d.after) d.after = x.after;
        d.reads |= x.reads;
    }
    if (d.reads && d.after) wrong(p, "%s is read again behind a sum over rows", over->name);
    switch (op_rows[n->op].class) {
    case CLASS_ROW: return (struct depth){d.rows + (n->op != OP_pick), d.after, false};
    case CLASS_COLUMN:
    case CLASS_TOTAL: return (struct depth){0, d.after + 1, false};
    case CLASS_MAP:
    case CLASS_INDEX:
    case CLASS_EFFECT:
    case CLASS_VIEW:
    case CLASS_LEAF:
    case CLASS_CORE:
    case CLASS_LANE: break;
    }
    return d;
}

/* `out` may be written over `over` element by element: nothing of the kernel wants an element later
 * in the row's sweeps than `out` is made, or another one than its own but for what a row is picked
 * for before any sum of it. */
void check_over(struct prove *p, const struct body *b, int first, int last,
                const struct value *over, const struct value *out)
{
    p->halves = out->node->op == OP_beside;
    p->walked = p->halves ? out->node->in[0].value->shape : over->shape;
    struct depth at = depth_of(p, b, first, last, out, over);
    if ((op_rows[out->node->op].class != CLASS_MAP && !p->halves) ||
        !shape_same(out->shape, over->shape) || out->type != over->type || at.after)
        wrong(p, "%s cannot be written over %s", out->name, over->name);
    for (int k = first; k < last; k++) {
        const struct node *n = b->node.item[k];
        for (int i = 0; i < n->n_in; i++) {
            const struct value *a = n->in[i].value;
            struct depth x = a ? depth_of(p, b, first, last, a, over) : (struct depth){0};
            if (!x.reads) continue;
            if (n->op == OP_pick ? x.rows > 0 || i > 0 || at.rows == 0 : x.rows > at.rows)
                wrong(p, "%s is read after %s was written over it", over->name, out->name);
        }
    }
}
