/* See share.h. A result takes the place of an operand that its kernel is the last to read: one of
 * its own body, of straight code before, or an entry of what the forward loop has saved for this
 * iteration, which is there until the backward loop ends anyhow. The operand's buffer then lives as
 * long as the result; a result may take the place of a result. */
#include "passes/share.h"

#include <string.h>

#include "passes/in_place.h"

struct value *value_root(struct value *v)
{
    for (;;) {
        const struct node *n = v->node;
        if (n && (op_rows[n->op].class == CLASS_VIEW || n->op == OP_sum_ranks))
            v = n->in[0].value;
        else if (n && n->op == OP_matmul_add)
            v = n->in[2].value;
        else
            return v;
    }
}

/* Whether the nodes from `end` on in `b`, or another region than the one that made it, read it. */
static bool saved_and_read(const struct graph *g, const struct holder *h, const struct body *b,
                           int end)
{
    for (int i = 0; i < g->region.n; i++) {
        const struct region *r = g->region.item[i];
        if (r == h->region) continue;
        for (int k = 0; k < r->body.n; k++)
            for (int n = r->body.item[k] == b ? end : 0; n < r->body.item[k]->node.n; n++) {
                const struct node *node = r->body.item[k]->node.item[n];
                for (int o = 0; o < node->n_in; o++)
                    if (node->in[o].value && value_root(node->in[o].value) == h->value &&
                        (r->body.item[k] != b || node->step))
                        return true;
            }
    }
    return false;
}

/* Whether the kernel that ends before node `end` of `b`, at `step`, is the last reader of `h`, and
 * whoever comes after in this buffer harms nobody. */
static bool dies(const struct graph *g, const struct holder *h, const struct region *r,
                 const struct body *b, int end, int step)
{
    if (!h->region || !h->outside || (h->placed && h->owner == h)) return false;
    if (h->saved)
        return r->mirror && !strcmp(r->mirror, h->region->name) && !saved_and_read(g, h, b, end);
    bool once = h->region->direction == ONCE && r->direction == ONCE;
    return h->last == step && (once || h->body == b);
}

/* Operands of nodes [first, end) that `out` may take the place of: a saved one first, since its
 * entry is there anyhow. */
static struct holder *place_for(const struct graph *g, const struct region *r, const struct body *b,
                                int first, int end, const struct holder *out,
                                const struct holder *const *taken, int n_taken)
{
    struct holder *best = NULL;
    for (int n = first; n < end; n++)
        for (int o = 0; o < b->node.item[n]->n_in; o++) {
            const struct value *v = b->node.item[n]->in[o].value;
            struct holder *h = v ? v->note : NULL;
            if (!h || h->value != v || h->kernel == out->kernel || (best && !h->saved)) continue;
            bool known = false;
            for (int k = 0; k < n_taken && !known; k++) known = taken[k] == h;
            if (known || !dies(g, h, r, b, end, out->first) ||
                !in_place_allowed(b, first, end, v, out->value))
                continue;
            if (!best || !best->saved) best = h;
        }
    return best;
}

static void share_kernel(const struct graph *g, const struct region *r, const struct body *b,
                         int first, int end)
{
    VECTOR(const struct holder *) taken = {0};
    for (int n = first; n < end; n++)
        for (int o = 0; o < b->node.item[n]->n_out; o++) {
            struct holder *h = b->node.item[n]->out[o]->note;
            if (!h || h->value != b->node.item[n]->out[o] || !h->outside || h->saved || h->placed)
                continue;
            struct holder *at = place_for(g, r, b, first, end, h, taken.item, taken.n);
            if (!at) continue;
            PUSH(&taken, at);
            h->placed = true, h->owner = at->owner, h->over = at->value;
            if (h->last > h->owner->last) h->owner->last = h->last;
        }
}

void share_places(const struct graph *g)
{
    for (int i = 0; i < g->region.n; i++)
        for (int k = 0; k < g->region.item[i]->body.n; k++) {
            const struct body *b = g->region.item[i]->body.item[k];
            if (g->region.item[i]->phase != PHASE_MICRO) continue;
            for (int n = 0, end; n < b->node.n; n = end) {
                int kernel = b->node.item[n]->kernel;
                for (end = n + 1; end < b->node.n && b->node.item[end]->kernel == kernel;) end++;
                if (kernel && op_rows[b->node.item[n]->op].class != CLASS_CORE)
                    share_kernel(g, g->region.item[i], b, n, end);
            }
        }
}
