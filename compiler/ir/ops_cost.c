/* What one node costs: FLOPs, bytes, the numbers that its longest sum adds, and what attention
 * needs beside its operands. A multiply-add costs two FLOPs; bytes are counted as if every operand
 * were read once and every result written once. cost.c adds these up over a graph. */
#include "ir/ir.h"

#include <math.h>

static double bytes_of(const struct value *v)
{
    return (double)(shape_count(v->shape) * element_bytes(v->type));
}

/* Of a matrix product: the length of the rows that it multiplies. */
static int64_t inner_length(const struct node *n)
{
    struct shape a = n->in[0].value->shape;
    bool grad = n->op == OP_expert_matmul_grad,
         across = op_rows[n->op].cost == COST_GEMM && attr_or(n, "ta", 0);
    return grad || across ? a.dim[0] : shape_columns(a);
}

int64_t op_terms(const struct node *n)
{
    const struct value *a = n->n_in ? n->in[0].value : NULL;
    switch (op_rows[n->op].terms) {
    case TERMS_ONE: return 1;
    case TERMS_COLUMNS: return shape_columns(a->shape);
    case TERMS_ITEMS: return shape_count(a->shape);
    case TERMS_INNER: return inner_length(n);
    case TERMS_MIDDLE: return a->shape.dim[1];
    case TERMS_SEQUENCE: return attr_get(n, "sequence");
    case TERMS_BLOCK: return 1 << 20;
    }
    bug("terms of %s", op_rows[n->op].name);
}

static struct op_flops same_flops(double n) { return (struct op_flops){n, n, n}; }

struct attention_rule attention_rule(const struct node *n)
{
    const struct attr *scale = attr_find(n, "scale"), *softcap = attr_find(n, "softcap");
    int documents = n->op == OP_attention ? 3 : 6;
    return (struct attention_rule){
        .window = attr_or(n, "window", 0),
        .scale = scale ? scale->real : 1.0 / sqrt((double)shape_columns(n->in[0].value->shape)),
        .softcap = softcap ? softcap->real : 0,
        .starts = n->n_in > documents ? n->in[documents].value : NULL};
}

int64_t attention_room(const struct facts *f, const struct node *attention)
{
    const struct value *q = attention->in[0].value, *k = attention->in[1].value;
    int64_t heads = q->shape.dim[1], kv_heads = k->shape.dim[1], width = q->shape.dim[2];
    if (f->device != DEVICE_CUDA || q->type != BF16 || width % 8 || width > 256) return 0;
    int64_t room = heads > kv_heads ? heads + 2 * kv_heads : heads;
    return room < 2 ? 2 : room;
}

/* Matrix products of each query with the keys of its sequence, or of a window where that is
 * shorter; `again` of them a second time inside the kernel. A causal mask leaves half of a
 * sequence. Of a window it takes only from the first queries, which see less than a window. Ends of
 * documents are not counted: they come with the data. */
static struct op_flops attention_flops(const struct node *n, double products, double again)
{
    double sequence = (double)attr_get(n, "sequence"), window = (double)attention_rule(n).window,
           keys = window > 0 && window < sequence ? window : sequence,
           seen = keys < sequence ? keys * (1 - keys / sequence / 2) : keys / 2,
           one = 2.0 * (double)shape_count(n->in[0].value->shape);
    return (struct op_flops){.model = products * one * keys,
                             .causal = products * one * seen,
                             .run = (products + again) * one * seen};
}

struct op_flops op_flops(const struct node *n)
{
    const struct op_row *row = &op_rows[n->op];
    const struct value *a = n->n_in ? n->in[0].value : NULL, *y = n->n_out ? n->out[0] : NULL;
    bool elements = row->class == CLASS_MAP || row->class == CLASS_INDEX;
    switch (row->cost) {
    case COST_GEMM:
        return same_flops(2.0 * (double)shape_count(y->shape) * (double)inner_length(n));
    /* each row has one expert */
    case COST_GROUPED_GEMM:
        return same_flops(n->op == OP_expert_matmul_grad
                              ? 2.0 * (double)shape_count(a->shape) *
                                    (double)shape_columns(n->in[1].value->shape)
                              : 2.0 * (double)shape_count(y->shape) * (double)inner_length(n));
    /* the scores and the weighted sum; backward both operands of both, and the scores again */
    case COST_ATTENTION: return attention_flops(n, 2, 0);
    case COST_ATTENTION_GRAD: return attention_flops(n, 4, 1);
    case COST_ROW: return same_flops(n->op == OP_pick ? 0 : (double)shape_count(a->shape));
    case COST_COLUMN: return same_flops((double)shape_count(a->shape));
    case COST_TOTAL:
        return same_flops(row->class == CLASS_TOTAL ? (double)shape_count(a->shape) : 0);
    case COST_MAP: return same_flops(elements ? (double)shape_count(y->shape) : 0);
    case COST_NONE:
    case COST_MOVE:
    case COST_UPDATE: return same_flops(0);
    }
    bug("cost class %d", (int)row->cost);
}

void op_cost(const struct node *n, double *flops, double *bytes)
{
    double in = 0, out = 0;
    for (int i = 0; i < n->n_in; i++)
        if (n->in[i].value) in += bytes_of(n->in[i].value);
    for (int i = 0; i < n->n_out; i++) out += bytes_of(n->out[i]);
    /* of what they read, no more than they give */
    if (n->op == OP_pick || n->op == OP_embedding) in = out;
    bool nothing = op_rows[n->op].class == CLASS_VIEW || op_rows[n->op].class == CLASS_LEAF;
    *bytes = nothing ? 0 : in + out;
    *flops = op_flops(n).run;
}
