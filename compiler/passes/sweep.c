/* Removes nodes that nothing needs. Reverse mode and recomputation build a little more than is used
 * (the gradient of the input of the first layer, a statistic that a backward body does not read).
 * One walk from the last region to the first, repeated while loops still find something, leaves the
 * nodes that have an effect. */
#include "ir/ir.h"

static void need(struct value *v)
{
    if (v) v->mark = 1;
}

static bool sweep_body(struct body *b)
{
    bool changed = false;
    for (int i = 0; i < b->gradient.n; i++) need(b->gradient.item[i].value);
    for (int i = b->node.n - 1; i >= 0; i--) {
        struct node *n = b->node.item[i];
        bool live = op_rows[n->op].class == CLASS_EFFECT || op_rows[n->op].class == CLASS_LANE;
        for (int o = 0; o < n->n_out; o++) live |= n->out[o]->mark != 0;
        n->mark = live;
        for (int k = 0; live && k < n->n_in; k++)
            if (n->in[k].value && !n->in[k].value->mark) need(n->in[k].value), changed = true;
    }
    return changed;
}

void graph_sweep(struct graph *g)
{
    for (int i = 0; i < g->region.n; i++) {
        struct region *r = g->region.item[i];
        for (int k = 0; k < r->carry.n; k++)
            r->carry.item[k].value->mark = r->carry.item[k].last->mark = 0;
        for (struct node_walk at = {0}; next_node_of_region(r, &at);)
            for (int o = 0; o < at.node->n_out; o++) at.node->out[o]->mark = 0;
    }
    for (int i = g->region.n - 1; i >= 0; i--) {
        struct region *r = g->region.item[i];
        bool again = true;
        while (again) {
            again = false;
            for (int k = 0; k < r->carry.n; k++) {
                struct carry *c = &r->carry.item[k];
                for (int b = 0; b < r->body.n && (c->value->mark || c->last->mark); b++)
                    if (!r->body.item[b]->next.item[k]->mark)
                        need(r->body.item[b]->next.item[k]), again = true;
            }
            for (int b = 0; b < r->body.n; b++) again |= sweep_body(r->body.item[b]);
        }
        int kept = 0;
        for (int k = 0; k < r->carry.n; k++) {
            struct carry c = r->carry.item[k];
            if (!c.value->mark && !c.last->mark) continue;
            need(c.first);
            r->carry.item[kept] = c;
            for (int b = 0; b < r->body.n; b++)
                r->body.item[b]->next.item[kept] = r->body.item[b]->next.item[k];
            kept++;
        }
        r->carry.n = kept;
        for (int b = 0; b < r->body.n; b++) {
            struct body *body = r->body.item[b];
            body->next.n = kept;
            int n = 0;
            for (int k = 0; k < body->node.n; k++)
                if (body->node.item[k]->mark) body->node.item[n++] = body->node.item[k];
            body->node.n = n;
        }
    }
}
