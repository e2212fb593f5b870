/* See in_place.h. The sweeps over a row are those of emit/ends.c: a kernel walks a row again after
 * each sum or maximum over it (stage), and all rows again after a sum over rows (phase). A map
 * value is computed again in every sweep that wants it, so what counts is when its last reader
 * runs. */
#include "passes/in_place.h"

/* When a result is known, and whether it is made of elements of `in` at the same index. */
struct when {
    int phase, stage;
    bool along;
};

struct kernel_of {
    const struct body *body;
    int first, last;
    const struct value *in;
    struct shape walked; /* of `in`, or of its halves, when `out` is two of them side by side */
    bool halves;
    struct when *when; /* of node first + i */
    int latest;        /* stage of the last reader of `in` */
    bool picks;
};

static const struct value *whole_of(const struct value *v)
{
    while (v->node && op_rows[v->node->op].class == CLASS_VIEW) v = v->node->in[0].value;
    return v;
}

static const struct when *made_here(const struct kernel_of *k, const struct value *v)
{
    for (int i = k->first; i < k->last; i++)
        for (int o = 0; o < k->body->node.item[i]->n_out; o++)
            if (k->body->node.item[i]->out[o] == v) return &k->when[i - k->first];
    return NULL;
}

/* Rows and columns that a node walks: of its result, or of what it reduces. */
static const struct value *space_of(const struct node *n)
{
    switch (op_rows[n->op].class) {
    case CLASS_ROW: return n->op == OP_pick ? n->out[0] : n->in[0].value;
    case CLASS_COLUMN:
    case CLASS_TOTAL:
    case CLASS_EFFECT: return n->n_in ? n->in[0].value : NULL;
    case CLASS_MAP: return n->out[0];
    case CLASS_INDEX: return n->op == OP_beside ? n->in[0].value : n->out[0];
    case CLASS_VIEW:
    case CLASS_LEAF:
    case CLASS_CORE:
    case CLASS_LANE: break;
    }
    return NULL;
}

/* What the operands of `n` are: when all are known, and in *reads whether one is made of `in`.
 * False when `in` is read under another shape. */
static bool operands(const struct kernel_of *k, const struct node *n, struct when *all, bool *reads)
{
    const struct value *space = space_of(n);
    *all = (struct when){0};
    *reads = false;
    for (int i = 0; i < n->n_in; i++) {
        const struct value *v = n->in[i].value;
        if (!v) continue;
        const struct value *root = whole_of(v);
        if (root == k->in && v != k->in) return false;
        if (v == k->in) *reads = true;
        const struct when *at = made_here(k, root);
        if (!at) continue;
        *reads |= at->along;
        struct when known = *at;
        if (known.stage && space && shape_rows(root->shape) != shape_rows(space->shape))
            known = (struct when){.phase = known.phase + 1};
        if (known.phase > all->phase)
            *all = known;
        else if (known.phase == all->phase && known.stage > all->stage)
            all->stage = known.stage;
    }
    all->along = false;
    return true;
}

/* Of a node that reads `in`; false when it may want it too late or at another place. */
static bool reader(struct kernel_of *k, const struct node *n, struct when at)
{
    if (at.phase) return false;
    switch (op_rows[n->op].class) {
    case CLASS_MAP:
        if (!shape_same(n->out[0]->shape, k->walked)) return false;
        break;
    case CLASS_ROW:
        if (n->op == OP_pick) {
            if (k->halves) return false;
            const struct value *ids = n->in[1].value;
            const struct when *made = ids ? made_here(k, whole_of(ids)) : NULL;
            if (ids == k->in || made) return false;
            k->picks = true;
            return at.stage == 0;
        }
        break;
    case CLASS_COLUMN:
    case CLASS_TOTAL: break;
    case CLASS_INDEX: /* halves are read and stored where the walk over them is */
        if (n->op == OP_beside) {
            if (!shape_same(n->in[0].value->shape, k->walked)) return false;
            break;
        }
        if (n->op != OP_slice || !k->halves || n->in[0].value != k->in ||
            attr_get(n, "from") % shape_columns(k->walked) ||
            !shape_same(n->out[0]->shape, k->walked))
            return false;
        break;
    case CLASS_EFFECT:
    case CLASS_VIEW:
    case CLASS_LEAF:
    case CLASS_CORE:
    case CLASS_LANE: return false;
    }
    if (at.stage > k->latest) k->latest = at.stage;
    return true;
}

bool in_place_allowed(const struct body *b, int first, int last, const struct value *in,
                      const struct value *out)
{
    bool halves = out->node && out->node->op == OP_beside;
    if (!out->node || (op_rows[out->node->op].class != CLASS_MAP && !halves) ||
        in->type != out->type || !shape_same(in->shape, out->shape))
        return false;
    struct shape walked = halves ? out->node->in[0].value->shape : in->shape;
    int64_t columns = shape_columns(walked);
    if (columns < 2) return false;
    struct kernel_of k = {.body = b,
                          .first = first,
                          .last = last,
                          .in = in,
                          .walked = walked,
                          .halves = halves,
                          .when = TAKE_MANY(struct when, last - first)};
    for (int i = first; i < last; i++) {
        const struct node *n = b->node.item[i];
        enum op_class class = op_rows[n->op].class;
        struct when *at = &k.when[i - first];
        bool reads;
        if (class == CLASS_VIEW || class == CLASS_LEAF) continue;
        /* sums over rows of another width are launches of their own on cuda */
        const struct value *space = space_of(n);
        int64_t width = space ? shape_columns(space->shape) : 1;
        if (width != columns && (width != 1 || class == CLASS_COLUMN)) return false;
        if (!operands(&k, n, at, &reads) || (reads && !reader(&k, n, *at))) return false;
        if (class == CLASS_ROW && n->op != OP_pick) at->stage++;
        if (class == CLASS_COLUMN || class == CLASS_TOTAL)
            *at = (struct when){.phase = at->phase + 1};
        at->along = reads && (class == CLASS_MAP || n->op == OP_slice);
    }
    const struct when *written = made_here(&k, out);
    return written && !written->phase && k.latest <= written->stage &&
           (!k.picks || written->stage > 0);
}
