/* Kernels as numbers; see work.h. */
#include "predict/work.h"

#include "passes/kernel_tile.h"
#include "passes/workspace.h"

#include <string.h>

static bool flag(const struct node *n, const char *key)
{
    const struct attr *a = attr_find(n, key);
    return a && a->whole;
}

static double last_of(const struct value *v)
{
    return v->shape.rank ? (double)v->shape.dim[v->shape.rank - 1] : 1;
}

static enum order order_of(bool ta, bool tb)
{
    return ta ? tb ? ORDER_TT : ORDER_TN : tb ? ORDER_NT : ORDER_NN;
}

static void read_types(struct work *w, const struct value *a, const struct value *b)
{
    w->mixed = a->type != b->type;
    w->type = a->type == BF16 || b->type == BF16 ? BF16 : F32;
}

static void read_product(struct work *w, const struct node *n)
{
    const struct value *a = n->in[0].value, *y = n->out[0];
    bool ta = flag(n, "ta");
    read_types(w, a, n->in[1].value);
    w->order = order_of(ta, flag(n, "tb"));
    w->m = (double)y->shape.dim[0];
    w->n = (double)y->shape.dim[1];
    w->k = (double)a->shape.dim[ta ? 0 : 1];
    w->library = !w->mixed;
    w->wgmma = w->type == BF16 && !w->mixed;
}

static void read_experts(struct work *w, const struct node *n)
{
    const struct value *a = n->in[0].value, *b = n->in[1].value, *y = n->out[0];
    read_types(w, a, b);
    w->library = experts_offered(n);
    w->wgmma = w->type == BF16 && !w->mixed;
    w->forward = n->op == OP_expert_matmul && !flag(n, "ta");
    if (n->op == OP_expert_matmul_grad) { /* dy[R,b], z[R,a] -> dW[E,b,a] */
        w->weight_gradient = true;
        w->order = ORDER_TN;
        w->rows = (double)a->shape.dim[0];
        w->experts = (double)y->shape.dim[0];
        w->m = (double)y->shape.dim[1];
        w->n = (double)y->shape.dim[2];
        return;
    }
    w->order = flag(n, "ta") ? ORDER_NN : ORDER_NT;
    w->rows = (double)a->shape.dim[0];
    w->experts = (double)b->shape.dim[0];
    w->n = last_of(y);
    w->k = last_of(a);
}

static void read_attention(struct work *w, const struct node *n)
{
    const struct value *q = n->in[0].value;
    w->type = q->type;
    w->tokens = (double)q->shape.dim[0];
    w->heads = (double)q->shape.dim[1];
    w->width = (double)q->shape.dim[2];
    w->sequence = (double)attr_get(n, "sequence");
    double window = (double)attention_rule(n).window;
    if (window > 0 && window < w->sequence) w->sequence = window;
    w->library = attention_offered(n);
    w->wgmma = wgmma_attention(n);
}

static void read_op(struct work *w, const struct node *n)
{
    const struct value *y = n->n_out ? n->out[0] : NULL, *a = n->n_in ? n->in[0].value : NULL;
    enum op_class class = op_rows[n->op].class;
    if (class == CLASS_VIEW || class == CLASS_LEAF || class == CLASS_LANE) return;
    bool reduces = class == CLASS_ROW || class == CLASS_COLUMN || class == CLASS_TOTAL;
    const struct value *walked = reduces && n->op != OP_pick ? a : y ? y : a;
    if (!walked) return;
    w->op[w->ops++] = (struct op_work){n->op, (double)shape_count(walked->shape)};
    if (y && op_rows[n->op].cost != COST_NONE) w->type = y->type == BF16 ? BF16 : F32;
}

/* The unit of a resident shard, or -1. */
static int unit_of(const struct graph *g, const struct value *v)
{
    while (v && v->node && op_rows[v->node->op].class == CLASS_VIEW) v = v->node->in[0].value;
    if (!v || !v->node || (v->node->op != OP_state && !op_of_stretch(v->node->op))) return -1;
    const char *name = attr_get_word(v->node, "unit");
    for (int i = 0; i < g->unit.n; i++)
        if (!strcmp(g->unit.item[i]->name, name)) return i;
    return -1;
}

struct work work_of_kernel(const struct graph *g, const struct body *body, int first,
                           enum cost_class class)
{
    int number = body->node.item[first]->kernel, end = first;
    const struct kernel *k = graph_kernel(g, number);
    struct work w = {.name = k->name,
                     .class = class,
                     .flops = k->flops,
                     .bytes = k->bytes,
                     .columns = (double)k->columns,
                     .unit = -1};
    while (end < body->node.n &&
           (body->node.item[end]->kernel == number || !body->node.item[end]->kernel))
        end++;
    w.op = TAKE_MANY(struct op_work, end - first + 1);
    for (int i = first; i < end; i++) {
        const struct node *n = body->node.item[i];
        if (n->kernel != number) continue;
        w.again |= n->again;
        for (int x = 0; x < n->n_in && w.unit < 0; x++) w.unit = unit_of(g, n->in[x].value);
        read_op(&w, n);
    }
    for (int i = first; i < end; i++) {
        const struct node *n = body->node.item[i];
        if (n->kernel != number) continue;
        if (n->op == OP_matmul || n->op == OP_matmul_add) read_product(&w, n);
        if (n->op == OP_expert_matmul || n->op == OP_expert_matmul_grad) read_experts(&w, n);
        if (n->op == OP_attention || n->op == OP_attention_grad) read_attention(&w, n);
    }
    return w;
}
