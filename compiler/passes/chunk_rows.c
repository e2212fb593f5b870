/* See chunk_rows.h. A new op answers here whether its rows stand alone; "no" is always right, and
 * costs that a loss through it is not cut. */
#include "passes/chunk_rows.h"

static bool has_rows(struct shape s, int64_t rows, int least_rank)
{
    return s.rank >= least_rank && s.dim[0] == rows;
}

/* An operand of an elementwise op against its result. */
static enum rows_use along_broadcast(struct shape out, struct shape in)
{
    if (in.rank < out.rank || in.dim[0] == 1) return ROWS_SAME;
    return in.dim[0] == out.dim[0] ? ROWS_ALONG : ROWS_REPEATED;
}

enum rows_use rows_of_operand(const struct node *n, int k, int64_t rows)
{
    (void)rows;
    if (op_rows[n->op].class == CLASS_MAP && n->op != OP_valid)
        return along_broadcast(n->out[0]->shape, n->in[k].value->shape);
    bool table =
        (n->op == OP_embedding && k == 1) || (n->op == OP_matmul && !attr_get(n, "ta") && k == 1);
    return table ? ROWS_SAME : ROWS_ALONG;
}

static bool operands_have_rows(const struct node *n, int64_t rows, int least_rank)
{
    for (int k = 0; k < n->n_in; k++)
        if (!has_rows(n->in[k].value->shape, rows, least_rank)) return false;
    return true;
}

bool rows_kept(const struct node *n, int64_t rows)
{
    if (n->n_out < 1 || !has_rows(n->out[0]->shape, rows, 1)) return false;
    if (op_rows[n->op].class == CLASS_MAP)
        return n->op != OP_valid || operands_have_rows(n, rows, 1);
    if (op_rows[n->op].class == CLASS_INDEX) {
        /* of rank 1, the rows would be the axis that it looks along */
        bool columns =
            n->op == OP_rotate || n->op == OP_slice || n->op == OP_pad || n->op == OP_beside;
        return operands_have_rows(n, rows, columns ? 2 : 1);
    }
    if (op_rows[n->op].class == CLASS_ROW)
        return has_rows(n->in[0].value->shape, rows, 2) && operands_have_rows(n, rows, 1);
    if (n->op == OP_matmul) return !attr_get(n, "ta") && has_rows(n->in[0].value->shape, rows, 2);
    if (n->op == OP_embedding) return has_rows(n->in[0].value->shape, rows, 1);
    if (n->op == OP_reshape || n->op == OP_sum_middle) return operands_have_rows(n, rows, 1);
    return n->op == OP_zeros;
}

bool rows_summed(const struct node *n, int64_t rows)
{
    if (n->op == OP_sum_all) return operands_have_rows(n, rows, 1);
    if (n->op == OP_sum_rows) return operands_have_rows(n, rows, 2);
    if (n->op == OP_matmul)
        return attr_get(n, "ta") && !attr_get(n, "tb") && operands_have_rows(n, rows, 2);
    return n->op == OP_embedding_grad && operands_have_rows(n, rows, 1);
}
