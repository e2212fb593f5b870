/* Sizes of the partial sums that cuda kernels leave between two launches; see workspace.h. */
#include "passes/workspace.h"

#include "passes/kernel_tile.h"

enum {
    COLUMNS_A_THREAD = 8,
    ROW_THREADS = 512,
    BLOCK_THREADS = 256,
    RESIDENT_THREADS = 1024, /* of a multiprocessor */
    ROWS_AT_LEAST = 8
};

int row_threads(int64_t columns)
{
    int threads = 1;
    while (threads < ROW_THREADS && (int64_t)threads * COLUMNS_A_THREAD < columns) threads *= 2;
    return threads;
}

struct row_chunks row_chunks(const struct facts *f, int64_t rows, int64_t columns)
{
    int threads = row_threads(columns), block = threads > 32 ? threads : BLOCK_THREADS;
    /* about as many blocks as a device holds at a time */
    int64_t side_by_side = block / threads, most = multiprocessors_of(f) * RESIDENT_THREADS / block;
    int64_t each = (rows + most - 1) / most;
    if (each < ROWS_AT_LEAST * side_by_side) each = ROWS_AT_LEAST * side_by_side;
    each = (each + side_by_side - 1) / side_by_side * side_by_side;
    return (struct row_chunks){.count = (rows + each - 1) / each, .rows = each};
}

/* What the library of dense products is offered on every call; an algorithm that wants more is not
 * used. */
#define PRODUCT_BYTES ((int64_t)32 << 20)
#define LIBRARY_BYTES ((int64_t)1 << 20)

static int64_t whole_lines(int64_t bytes) { return round_up(bytes, 256); }

enum { SORT_CHUNKS = 256, SORT_ROUND = 256, SORT_BITS = 9, SORT_BINS = CUDA_EXPERTS };

struct sort_plan sort_plan(int64_t items, int64_t keys, bool by_key)
{
    struct sort_plan s = {.items = items, .bins = (int)keys, .passes = 1};
    if (by_key) {
        int bits = 1;
        while (((int64_t)1 << bits) < keys) bits++;
        s.passes = (bits + SORT_BITS - 1) / SORT_BITS;
        s.bits = (bits + s.passes - 1) / s.passes;
        s.bins = 1 << s.bits;
        s.order = whole_lines(items * (int64_t)sizeof(int32_t)) / (int64_t)sizeof(int32_t);
    } else if (keys > SORT_BINS)
        bug("%lld experts; cuda kernels count up to %d", (long long)keys, SORT_BINS);
    int64_t each = (items + SORT_CHUNKS - 1) / SORT_CHUNKS;
    s.chunk = (each + SORT_ROUND - 1) / SORT_ROUND * SORT_ROUND;
    s.chunks = (items + s.chunk - 1) / s.chunk;
    s.counts = s.passes > 1 ? 2 * s.order : s.order;
    s.bytes = whole_lines((s.counts + s.bins * s.chunks) * (int64_t)sizeof(int32_t));
    return s;
}

int64_t attention_turns(const struct node *n)
{
    if (!attr_or(n, "room", 0)) return 0;
    const struct shape q = n->in[0].value->shape;
    int64_t sequence = attr_get(n, "sequence"), width = q.dim[2],
            queries = width > 64 && width <= 128 ? 64 : 32, parts = width <= 128 ? 1 : 2;
    return 1 + q.dim[0] / sequence *
                   (q.dim[1] * ((sequence + queries - 1) / queries) +
                    parts * n->in[1].value->shape.dim[1] * ((sequence + 127) / 128));
}

bool attention_offered(const struct node *n)
{
    if (n->op != OP_attention && n->op != OP_attention_grad) return false;
    const struct value *q = n->in[0].value;
    struct attention_rule rule = attention_rule(n);
    return q->type == BF16 && q->shape.dim[2] % 8 == 0 && q->shape.dim[2] <= 128 && !rule.window &&
           rule.softcap == 0 && !rule.starts;
}

bool experts_offered(const struct node *n)
{
    if (n->op != OP_expert_matmul && n->op != OP_expert_matmul_grad) return false;
    const struct value *z = n->in[0].value, *w = n->in[1].value, *y = n->out[0];
    return z->type == BF16 && w->type == BF16 && shape_columns(z->shape) % 8 == 0 &&
           shape_columns(y->shape) % 8 == 0;
}

bool experts_by_library(const struct facts *f, const struct node *n)
{
    return experts_offered(n) && (f->experts == EXPERTS_CUBLASLT ||
                                  (f->experts == EXPERTS_CUDNN && n->op == OP_expert_matmul));
}

/* Five addresses a group, two sums, six numbers a group and two factors: struct grouped_product of
 * runtime/shared/launch.h. */
static int64_t groups_bytes(const struct node *n)
{
    const struct value *w = n->op == OP_expert_matmul ? n->in[1].value : n->out[0];
    return whole_lines(8 * (5 * w->shape.dim[0] + 2) + 4 * (6 * w->shape.dim[0] + 2));
}

int64_t groups_offset(void) { return PRODUCT_BYTES; }

int64_t workspace_of_node(const struct facts *f, const struct node *n)
{
    const struct shape s = n->n_in && n->in[0].value ? n->in[0].value->shape : (struct shape){0};
    int64_t columns = shape_columns(s), rows = shape_rows(s), own;
    switch (op_rows[n->op].workspace) {
    case WORKSPACE_NONE: return 0;
    case WORKSPACE_PRODUCT:
        own = whole_lines(planes_of(f, n).bytes);
        return own > PRODUCT_BYTES ? own : PRODUCT_BYTES;
    case WORKSPACE_SORT: return sort_plan(shape_count(s), attr_get(n, "experts"), false).bytes;
    case WORKSPACE_SORT_KEYS: return sort_plan(shape_count(s), n->out[0]->shape.dim[0], true).bytes;
    case WORKSPACE_BLOCKS: return SUM_SQUARES_BLOCKS * (int64_t)sizeof(double);
    case WORKSPACE_ATTENTION_ROWS:
        return whole_lines(2 * shape_count(n->in[4].value->shape) * (int64_t)sizeof(float) +
                           attention_turns(n) * (int64_t)sizeof(int32_t));
    case WORKSPACE_COLUMN:
        return whole_lines(row_chunks(f, rows, columns).count * columns * (int64_t)sizeof(float));
    /* and after the sums of rows the sum */
    case WORKSPACE_TOTAL: return whole_lines((rows + 1) * (int64_t)sizeof(double));
    }
    bug("workspace of %s", op_rows[n->op].name);
}

/* What a library is offered. Experts: a bit for itself; cuBLASLt as much as for dense products,
 * then what the groups are. Attention (attention_cudnn.c lays it out):
 * the log-sum-exp in its own order, for the gradient also the inner products, two F32 rows a query
 * and head, eight bytes for 64 queries and head, and a bit for itself. */
int64_t workspace_of_library(const struct facts *f, const struct node *n)
{
    if (experts_by_library(f, n))
        return f->experts == EXPERTS_CUDNN ? LIBRARY_BYTES : PRODUCT_BYTES + groups_bytes(n);
    if (!f->attention_library || !attention_offered(n)) return 0;
    const struct shape q = n->in[0].value->shape;
    int64_t numbers = whole_lines(q.dim[0] * q.dim[1] * (int64_t)sizeof(float));
    int64_t sequence = attr_get(n, "sequence"),
            turns = 8 * q.dim[1] * (q.dim[0] / sequence) * ((sequence + 63) / 64);
    return n->op == OP_attention
               ? numbers + LIBRARY_BYTES
               : 2 * numbers + 2 * numbers * q.dim[2] + whole_lines(turns) + LIBRARY_BYTES;
}

const struct kernel *workspace_kernel(const struct graph *g, int64_t *bytes)
{
    int64_t *of_kernel = TAKE_MANY(int64_t, g->kernel.n + 1),
            *of_library = TAKE_MANY(int64_t, g->kernel.n + 1);
    const struct kernel *most = NULL;
    for (int i = 0; i < g->region.n; i++)
        for (int b = 0; b < g->region.item[i]->body.n; b++) {
            const struct body *body = g->region.item[i]->body.item[b];
            for (int k = 0; k < body->node.n; k++) {
                const struct node *n = body->node.item[k];
                of_kernel[n->kernel] += workspace_of_node(&g->facts, n);
                if (n->kernel) of_library[n->kernel] += workspace_of_library(&g->facts, n);
            }
        }
    *bytes = 0;
    for (int i = 0; i < g->kernel.n; i++) {
        int number = g->kernel.item[i].number;
        int64_t here =
            of_kernel[number] > of_library[number] ? of_kernel[number] : of_library[number];
        if (here > *bytes) *bytes = here, most = &g->kernel.item[i];
    }
    return most;
}

int64_t workspace_bytes(const struct graph *g)
{
    int64_t bytes;
    workspace_kernel(g, &bytes);
    return bytes;
}
