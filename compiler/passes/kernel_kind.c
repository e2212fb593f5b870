/* See kernel_kind.h. Predictions and roofs of profiles rest on these numbers, so they count what a
 * kernel reads from memory once, and what others read of its results. */
#include "passes/kernel_kind.h"

static void kernel_class(struct kernel *k, struct node *const *node, int n)
{
    bool row = false, column = false;
    for (int i = 0; i < n; i++) {
        enum op_class class = op_rows[node[i]->op].class;
        if (class == CLASS_CORE) {
            k->class = KERNEL_CORE, k->core = node[i]->op;
            return;
        }
        if (class == CLASS_ROW) row = true;
        if (class == CLASS_COLUMN || class == CLASS_TOTAL) column = true;
    }
    k->class = row && column ? KERNEL_ROW_COLUMN
               : row         ? KERNEL_ROW
               : column      ? KERNEL_COLUMN
                             : KERNEL_MAP;
}

static double bytes_of(const struct value *v)
{
    return (double)(shape_count(v->shape) * element_bytes(v->type));
}

static bool made_inside(struct node *const *node, int n, const struct value *v)
{
    for (int i = 0; i < n; i++)
        for (int o = 0; o < node[i]->n_out; o++)
            if (node[i]->out[o] == v) return true;
    return false;
}

static int64_t readers_inside(struct node *const *node, int n, const struct value *v)
{
    int64_t readers = 0;
    for (int i = 0; i < n; i++)
        for (int a = 0; a < node[i]->n_in; a++) readers += node[i]->in[a].value == v;
    return readers;
}

void kernel_describe(struct kernel *k, struct node *const *node, int n)
{
    VECTOR(const struct value *) seen = {0};
    kernel_class(k, node, n);
    for (int i = 0; i < n; i++) {
        double flops, bytes;
        op_cost(node[i], &flops, &bytes);
        k->flops += flops;
        if (n == 1) k->bytes = bytes;
        for (int a = 0; a < node[i]->n_in && n > 1; a++) {
            const struct value *v = node[i]->in[a].value;
            bool known = !v || made_inside(node, n, v);
            for (int s = 0; s < seen.n && !known; s++) known = seen.item[s] == v;
            if (known) continue;
            PUSH(&seen, v);
            k->bytes += bytes_of(v);
        }
        for (int o = 0; o < node[i]->n_out && n > 1; o++)
            if (node[i]->out[o]->mark > readers_inside(node, n, node[i]->out[o]))
                k->bytes += bytes_of(node[i]->out[o]);
    }
}

void count_readers(const struct graph *g)
{
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < g->region.n; i++) {
            const struct region *r = g->region.item[i];
            for (int k = 0; k < r->body.n; k++) {
                const struct body *b = r->body.item[k];
                for (int n = 0; n < b->node.n; n++) {
                    for (int o = 0; o < b->node.item[n]->n_out && !pass; o++)
                        b->node.item[n]->out[o]->mark = 0;
                    for (int o = 0; o < b->node.item[n]->n_in && pass; o++)
                        if (b->node.item[n]->in[o].value) b->node.item[n]->in[o].value->mark++;
                }
                for (int n = 0; n < b->next.n && pass; n++) b->next.item[n]->mark++;
                for (int n = 0; n < b->gradient.n && pass; n++) b->gradient.item[n].value->mark++;
            }
            for (int c = 0; c < r->carry.n && pass; c++) r->carry.item[c].first->mark++;
        }
}
