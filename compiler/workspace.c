/* Sizes of the partial sums that cuda kernels leave between two launches; see workspace.h. */
#include "workspace.h"

enum { COLUMNS_A_THREAD = 8, ROW_THREADS = 512, BLOCK_THREADS = 256, RESIDENT_THREADS = 264 * 512, ROWS_AT_LEAST = 8 };

int row_threads(int64_t columns)
{
    int threads = 1;
    while (threads < ROW_THREADS && (int64_t)threads * COLUMNS_A_THREAD < columns) threads *= 2;
    return threads;
}

struct row_chunks row_chunks(int64_t rows, int64_t columns)
{
    int threads = row_threads(columns), block = threads > 32 ? threads : BLOCK_THREADS;
    int64_t side_by_side = block / threads, most = RESIDENT_THREADS / block; /* about as many blocks as a device holds at a time */
    int64_t each = (rows + most - 1) / most;
    if (each < ROWS_AT_LEAST * side_by_side) each = ROWS_AT_LEAST * side_by_side;
    each = (each + side_by_side - 1) / side_by_side * side_by_side;
    return (struct row_chunks){.count = (rows + each - 1) / each, .rows = each};
}

/* What the library of dense products is offered on every call; an algorithm that wants more is not used. */
#define PRODUCT_BYTES ((int64_t)32 << 20)

static int64_t whole_lines(int64_t bytes) { return (bytes + 255) / 256 * 256; }

int64_t workspace_of_node(const struct node *n)
{
    enum op_class class = op_rows[n->op].class;
    if (n->op == OP_matmul || n->op == OP_matmul_add) return PRODUCT_BYTES;
    if (class != CLASS_COLUMN && class != CLASS_TOTAL) return 0;
    const struct shape s = n->in[0].value->shape;
    int64_t columns = s.rank ? s.dim[s.rank - 1] : 1, rows = columns ? shape_count(s) / columns : 0;
    if (class == CLASS_TOTAL) return whole_lines((rows + 1) * (int64_t)sizeof(double)); /* a number a row, and behind them the sum */
    return whole_lines(row_chunks(rows, columns).count * columns * (int64_t)sizeof(float));
}

int64_t workspace_bytes(const struct graph *g)
{
    int64_t *of_kernel = TAKE_MANY(int64_t, g->kernel.n + 1), most = 0;
    for (int i = 0; i < g->region.n; i++)
        for (int b = 0; b < g->region.item[i]->body.n; b++) {
            const struct body *body = g->region.item[i]->body.item[b];
            for (int k = 0; k < body->node.n; k++) of_kernel[body->node.item[k]->kernel] += workspace_of_node(body->node.item[k]);
        }
    for (int i = 1; i <= g->kernel.n; i++)
        if (of_kernel[i] > most) most = of_kernel[i];
    return most;
}
