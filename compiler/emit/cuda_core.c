/* Core ops of the cuda device: which function of templates/cuda computes one, its sizes and its
 * grid. Sizes are constants in the text, so the cuda compiler specialises the function. A function
 * takes all arguments of the IR kernel, except that a matrix product takes a, b, c, because the
 * runtime may call a library instead. */
#include "emit/cuda.h"

#include <math.h>

#include "passes/kernel_tile.h"
#include "passes/workspace.h"

const char *emit_cuda_core_template(enum op op)
{
    if (op == OP_attention_grad) return "cuda/attention_gradient.cuh";
    return op < OP_COUNT && op_rows[op].template ? text_format("cuda/%s.cuh", op_rows[op].template)
                                                 : NULL;
}

bool cuda_has_wgmma_form(enum op op)
{
    return op == OP_matmul || op == OP_matmul_add || op == OP_expert_matmul ||
           op == OP_expert_matmul_grad || op == OP_attention || op == OP_attention_grad;
}

static int64_t columns_of(const struct value *v) { return shape_columns(v->shape); }
static int64_t rows_of(const struct value *v) { return shape_rows(v->shape); }
static int64_t parts(int64_t n, int64_t of) { return (n + of - 1) / of; }
static const char *number(int64_t n) { return text_format("%ld", n); }
static const char *truth(bool b) { return b ? "true" : "false"; }

static int argument_of(const struct cuda_kernel *c, const struct value *v)
{
    for (int i = 0; i < c->n_argument; i++)
        if (c->argument[i].value == emit_root(v) && c->argument[i].value) return i;
    bug("%s is no argument of kernel %s", v->name, c->kernel->kernel->name);
}
static const char *name_of(const struct cuda_kernel *c, const struct value *v)
{
    int i = argument_of(c, v);
    return emit_argument_name(&c->argument[i], i, c->canonical);
}

static int state_of(const struct cuda_kernel *c)
{
    for (int i = 0; i < c->n_argument; i++)
        if (c->argument[i].kind == ARGUMENT_STATE) return i;
    bug("kernel %s reads no state", c->kernel->kernel->name);
}

/* One function with one statement, and its launch over `blocks` in one direction. */
struct shape_of_launch {
    const char *ending;
    int threads;
    const char *x, *y;
    int64_t shared_bytes;
    bool works;
    bool twin; /* of a function by cuda_wgmma: not for architectures that have that */
};
static void step(struct cuda_kernel *c, struct shape_of_launch s, const char *statement)
{
    const char *function = cuda_begin(c, s.ending, s.threads, s.works);
    text_add(&c->functions, s.twin ? CUDA_WITHOUT_WGMMA "    %s;\n#endif\n" : "    %s;\n",
             statement);
    cuda_end(c);
    cuda_launch(c, function, s.x, s.y ? s.y : "1", "1", s.threads, s.shared_bytes, s.works);
}
/* An operand of a product of warpgroups, `planes` matrices as they lie; a tile has `along` rows of
 * a, or columns of b, and their lines are along k when `deep`. */
static struct cuda_tensor tensor_of(int argument, const struct value *v, int64_t planes, bool deep,
                                    int along)
{
    return (struct cuda_tensor){argument, planes, rows_of(v) / planes, columns_of(v),
                                deep ? along : 64};
}
/* The same result by products of warpgroups; `step` writes its twin next. */
static void step_wgmma(struct cuda_kernel *c, const struct tile *t, int64_t tiles,
                       struct cuda_tensor a, struct cuda_tensor b, const char *statement)
{
    c->tensor[0] = a, c->tensor[1] = b;
    cuda_wgmma(c, statement, number(wgmma_blocks(&c->emit->graph->facts, tiles)), "1", t->threads,
               t->shared_bytes, false);
}
static void over(struct cuda_kernel *c, int64_t threads, const char *statement)
{
    step(c,
         (struct shape_of_launch){.ending = "", .threads = 256, .x = number(parts(threads, 256))},
         statement);
}

/* Rows are moved in the largest pieces that they are multiples of. */
static const char *piece_of(int64_t row_bytes, int64_t *pieces)
{
    int64_t bytes = row_bytes % 16 == 0 ? 16 : row_bytes % 4 == 0 ? 4 : 2;
    *pieces = row_bytes / bytes;
    return bytes == 16 ? "uint4" : bytes == 4 ? "uint32_t" : "bf16";
}

/* ── matrix products ─────────────────────────────────────────────────────────── */
static const char *c_type_of(const struct value *v) { return v->type == BF16 ? "bf16" : "float"; }

/* An F32 operand in planes, the product of it, and the sum of its parts where there are several.
 * Ours alone: no library has it. */
static void cuda_planes(struct cuda_kernel *c, const struct node *n, struct product_shape s,
                        struct planes p)
{
    const char *a = name_of(c, n->in[0].value), *b = name_of(c, n->in[1].value),
               *y = name_of(c, n->out[0]), *type = c_type_of(n->out[0]),
               *planes = "(const bf16 *)work";
    const char *part = text_format("(float *)((char *)work + %ld)", p.part_offset);
    bool parted = p.parts > 1;
    step(
        c,
        (struct shape_of_launch){
            .ending = "split", .threads = 256, .x = number(parts(p.elements, 1024)), .works = true},
        text_format("product_split(%s, (bf16 *)work, %ld, %ld)", p.split_a ? a : b, p.elements,
                    p.plane));
    step(c,
         (struct shape_of_launch){.ending = parted ? "parts" : "",
                                  .threads = p.tile->threads,
                                  .x = number(parts(s.m, p.tile->m) * parts(s.n, p.tile->n)),
                                  .y = number(p.parts),
                                  .shared_bytes = p.tile->shared_bytes,
                                  .works = true},
         text_format("product_planes<%s, %s, %s, %s, %s>(%s, %s, %s, %ld, %ld, %ld, %ld, %ld, "
                     "%ld, %ld)",
                     p.tile->name, truth(s.ta), truth(s.tb), truth(p.split_a),
                     truth(s.add && !parted), p.split_a ? planes : a, p.split_a ? b : planes,
                     parted ? part : y, s.m, s.n, s.k, s.lda, s.ldb, p.plane, p.each));
    if (parted)
        step(c,
             (struct shape_of_launch){
                 .ending = "", .threads = 256, .x = number(parts(s.m * s.n, 256)), .works = true},
             text_format("product_join<%s, %s>(%s, %s, %ld, %ld)", truth(s.add), type, part, y,
                         s.m * s.n, p.parts));
}

static void cuda_matmul(struct cuda_kernel *c, const struct node *n)
{
    const struct value *a = n->in[0].value, *b = n->in[1].value, *y = n->out[0];
    struct product_shape s = product_shape(n);
    struct planes p = planes_of(&c->emit->graph->facts, n);
    if (p.tile) {
        cuda_planes(c, n, s, p);
        return;
    }
    const struct facts *f = &c->emit->graph->facts;
    bool tensor = a->type == BF16 && b->type == BF16, wide = s.lda % 8 == 0 && s.ldb % 8 == 0;
    const struct tile *tile = tile_choose(f, tensor, wide, 1, s.m, s.n),
                      *wgmma = tile_wgmma(f, tile, a, b, 1, s.m, s.n);
    const char *sizes = text_format("(a, b, c, %ld, %ld, %ld, %ld, %ld, %ld)", s.m, s.n, s.k, s.lda,
                                    s.ldb, s.n),
               *ways = text_format("%s, %s, %s", truth(s.ta), truth(s.tb), truth(s.add)),
               *parameters = text_format("(const %s *a, const %s *b, %s *c)\n{\n", c_type_of(a),
                                         c_type_of(b), c_type_of(y)),
               *shot = text_format("{FUNCTION_%s, %ld, 1, 1, %d, %ld}", c->name,
                                   parts(s.m, tile->m) * parts(s.n, tile->n), tile->threads,
                                   tile->shared_bytes);
    if (wgmma) {
        int64_t tiles = parts(s.m, wgmma->m) * parts(s.n, wgmma->n);
        const struct cuda_tensor tensors[CUDA_TENSORS] = {tensor_of(0, a, 1, !s.ta, wgmma->m),
                                                          tensor_of(1, b, 1, s.tb, wgmma->n)};
        text_add(&c->functions,
                 "KERNEL(%d) f_%s_wgmma(" CUDA_TENSOR_MAP " a, " CUDA_TENSOR_MAP " b, %s *c)\n{\n"
                 "#ifdef HAS_WGMMA\n    product_wgmma<%s>(&a, &b, c, %ld, %ld, %ld, %ld);\n"
                 "#endif\n}\n",
                 wgmma->threads, c->name, c_type_of(y), ways, s.m, s.n, s.k, s.n);
        PUSH(&c->function, text_format("%s_wgmma", c->name));
        shot = text_format("launch_wgmma() ? (struct shot){FUNCTION_%s_wgmma, %ld, 1, 1, %d, %ld%s}"
                           "\n                                             : (struct shot)%s",
                           c->name, wgmma_blocks(f, tiles), wgmma->threads, wgmma->shared_bytes,
                           cuda_tensors(tensors), shot);
    }
    text_add(&c->functions, "KERNEL(%d) f_%s%s%s    product_%s<%s, %s>%s;\n%s}\n", tile->threads,
             c->name, parameters, wgmma ? CUDA_WITHOUT_WGMMA : "", tensor ? "tensor" : "plain",
             tile->name, ways, sizes, wgmma ? "#endif\n" : "");
    PUSH(&c->function, c->name);
    text_add(&c->call,
             "    product(&(struct product){%s, %ld, %ld, %ld, %ld, %ld, %ld, %s, %s, %s,\n"
             "                              %s},\n            p[%d], p[%d], p[%d]);\n",
             ways, s.m, s.n, s.k, s.lda, s.ldb, s.n, a->type == BF16 ? "TYPE_BF16" : "TYPE_F32",
             b->type == BF16 ? "TYPE_BF16" : "TYPE_F32", y->type == BF16 ? "TYPE_BF16" : "TYPE_F32",
             shot, argument_of(c, a), argument_of(c, b), argument_of(c, y));
}

static const char *bytes_of(const struct value *v)
{
    return number(shape_count(v->shape) * element_bytes(v->type));
}

enum { EMPTY_BLOCKS = 32 }; /* an expert, to clear its gradient */

/* Before our own launch: the library, where it knows this shape. `of`: operands and result, as
 * struct grouped_product takes them; `groups` and `rest`: what cuBLASLt wants done before, and what
 * it leaves to do, or NULL. */
static void grouped_by_library(struct cuda_kernel *c, const struct node *n,
                               const struct value *const *of, const char *sizes, const char *groups,
                               const char *rest)
{
    const struct facts *f = &c->emit->graph->facts;
    if (!experts_by_library(f, n)) return;
    bool blas = f->experts == EXPERTS_CUBLASLT;
    const char *p =
        text_format("(void *[]){p[%d], p[%d], p[%d], p[%d]}", argument_of(c, of[0]),
                    argument_of(c, of[1]), argument_of(c, of[2]), argument_of(c, of[3]));
    text_add(&c->offers, "static const struct grouped_product g_%s = {%s};\n", c->name, sizes);
    PUSH(&c->offer, text_format("0, &g_%s", c->name));
    text_add(&c->call, "    if (grouped_known(&g_%s, %s)) {\n", c->name, p);
    if (blas)
        step(c,
             (struct shape_of_launch){.ending = "groups", .threads = 256, .x = "1", .works = true},
             groups);
    text_add(&c->call, "    grouped_product(&g_%s, %s);\n", c->name, p);
    if (blas && rest)
        step(c,
             (struct shape_of_launch){.ending = "empty",
                                      .threads = 256,
                                      .x = number(EMPTY_BLOCKS * of[3]->shape.dim[0])},
             rest);
    text_add(&c->call, "    return;\n    }\n");
}

static void cuda_expert_matmul(struct cuda_kernel *c, const struct node *n)
{
    const struct value *z = n->in[0].value, *w = n->in[1].value, *first = n->in[2].value,
                       *y = n->out[0];
    bool tensor = z->type == BF16 && w->type == BF16, across = attr_or(n, "ta", 0);
    int64_t rows = rows_of(z), experts = w->shape.dim[0], in = columns_of(z), out = columns_of(y);
    const struct facts *f = &c->emit->graph->facts;
    bool wide = in % 8 == 0 && out % 8 == 0;
    const struct tile *tile = tile_choose(f, tensor, wide, experts, parts(rows, experts), out),
                      *wgmma = tile_wgmma(f, tile, z, w, experts, parts(rows, experts), out);
    grouped_by_library(c, n, (const struct value *[]){z, w, first, y},
                       text_format("%ld, %ld, %ld, %ld, %s, false, %ld, %s", experts, rows, in, out,
                                   truth(across), groups_offset(), bytes_of(y)),
                       text_format("expert_groups<%s>(%s, %s, %s, %s, (char *)work + %ld, %ld, "
                                   "%ld, %ld)",
                                   truth(across), name_of(c, z), name_of(c, w), name_of(c, first),
                                   name_of(c, y), groups_offset(), experts, in, out),
                       NULL);
    if (wgmma)
        step_wgmma(c, wgmma, (rows / wgmma->m + experts) * parts(out, wgmma->n),
                   tensor_of(argument_of(c, z), z, 1, true, wgmma->m),
                   tensor_of(argument_of(c, w), w, experts, !across, wgmma->n),
                   text_format("expert_product_wgmma<%s>(&%s, &%s, %s, %s, %ld, %ld, %ld)",
                               truth(across), name_of(c, z), name_of(c, w), name_of(c, first),
                               name_of(c, y), experts, in, out));
    step(c,
         (struct shape_of_launch){.ending = "",
                                  .threads = tile->threads,
                                  .x = number((rows / tile->m + experts) * parts(out, tile->n)),
                                  .shared_bytes = tile->shared_bytes,
                                  .twin = wgmma != NULL},
         text_format("expert_%s<%s, %s>(%s, %s, %s, %s, %ld, %ld, %ld)",
                     tensor ? "product" : "plain", tile->name, truth(across), name_of(c, z),
                     name_of(c, w), name_of(c, first), name_of(c, y), experts, in, out));
}

static void cuda_expert_matmul_grad(struct cuda_kernel *c, const struct node *n)
{
    const struct value *dy = n->in[0].value, *z = n->in[1].value, *first = n->in[2].value,
                       *dw = n->out[0];
    bool tensor = dy->type == BF16 && z->type == BF16;
    int64_t experts = dw->shape.dim[0], out = dw->shape.dim[1], in = dw->shape.dim[2];
    const struct facts *f = &c->emit->graph->facts;
    bool wide = in % 8 == 0 && out % 8 == 0;
    const struct tile *tile = tile_choose(f, tensor, wide, experts, out, in),
                      *wgmma = tile_wgmma(f, tile, dy, z, experts, out, in);
    grouped_by_library(
        c, n, (const struct value *[]){dy, z, first, dw},
        text_format("%ld, %ld, %ld, %ld, false, true, %ld, %s", experts, rows_of(z), in, out,
                    groups_offset(), bytes_of(dw)),
        text_format("expert_groups_grad(%s, %s, %s, %s, (char *)work + %ld, %ld, %ld, %ld)",
                    name_of(c, dy), name_of(c, z), name_of(c, first), name_of(c, dw),
                    groups_offset(), experts, in, out),
        text_format("expert_empty(%s, %s, %ld)", name_of(c, first), name_of(c, dw), in * out));
    if (wgmma)
        step_wgmma(c, wgmma, experts * parts(out, wgmma->m) * parts(in, wgmma->n),
                   tensor_of(argument_of(c, dy), dy, 1, false, wgmma->m),
                   tensor_of(argument_of(c, z), z, 1, false, wgmma->n),
                   text_format("expert_product_grad_wgmma(&%s, &%s, %s, %s, %ld, %ld, %ld)",
                               name_of(c, dy), name_of(c, z), name_of(c, first), name_of(c, dw),
                               experts, in, out));
    step(c,
         (struct shape_of_launch){.ending = "",
                                  .threads = tile->threads,
                                  .x = number(experts * parts(out, tile->m) * parts(in, tile->n)),
                                  .shared_bytes = tile->shared_bytes,
                                  .twin = wgmma != NULL},
         text_format("expert_%s_grad<%s>(%s, %s, %s, %s, %ld, %ld)", tensor ? "product" : "plain",
                     tile->name, name_of(c, dy), name_of(c, z), name_of(c, first), name_of(c, dw),
                     in, out));
}

/* ── sorting: experts' rows, gradients of tokens ─────────────────────────────── */
static const char *counts_at(struct sort_plan s)
{
    return text_format("(int32_t *)work + %ld", s.counts);
}

static void cuda_route_plan(struct cuda_kernel *c, const struct node *n)
{
    const char *ids = name_of(c, n->in[0].value), *place = name_of(c, n->out[0]),
               *first = name_of(c, n->out[1]);
    struct sort_plan s =
        sort_plan(shape_count(n->in[0].value->shape), attr_get(n, "experts"), false);
    step(c,
         (struct shape_of_launch){
             .ending = "count", .threads = 256, .x = number(s.chunks), .works = true},
         text_format("sort_count<%d>(%s, nullptr, %s, %ld, %ld, %ld, -1)", s.bins, ids,
                     counts_at(s), s.items, s.chunk, s.chunks));
    step(c, (struct shape_of_launch){.ending = "scan", .threads = 1024, .x = "1", .works = true},
         text_format("sort_scan<%d>(%s, %s, %ld)", s.bins, counts_at(s), first, s.chunks));
    step(c,
         (struct shape_of_launch){
             .ending = "", .threads = 256, .x = number(s.chunks), .works = true},
         text_format("sort_place<%d, true>(%s, nullptr, %s, %s, %ld, %ld, %ld, -1)", s.bins, ids,
                     counts_at(s), place, s.items, s.chunk, s.chunks));
}

static void cuda_embedding_grad(struct cuda_kernel *c, const struct node *n)
{
    const struct value *dy = n->in[1].value, *dw = n->out[0];
    const char *ids = name_of(c, n->in[0].value), *out = name_of(c, dw), *order = "nullptr";
    struct sort_plan s = sort_plan(rows_of(dy), dw->shape.dim[0], true);
    int64_t width = dw->shape.dim[1], count = shape_count(dw->shape);
    for (int pass = 0; pass < s.passes; pass++) {
        const char *to = text_format("(int32_t *)work + %ld", pass % 2 * s.order);
        int shift = pass * s.bits;
        step(c,
             (struct shape_of_launch){.ending = text_format("count%d", pass),
                                      .threads = 256,
                                      .x = number(s.chunks),
                                      .works = true},
             text_format("sort_count<%d>(%s, %s, %s, %ld, %ld, %ld, %d)", s.bins, ids, order,
                         counts_at(s), s.items, s.chunk, s.chunks, shift));
        step(c,
             (struct shape_of_launch){
                 .ending = text_format("scan%d", pass), .threads = 1024, .x = "1", .works = true},
             text_format("sort_scan<%d>(%s, nullptr, %ld)", s.bins, counts_at(s), s.chunks));
        step(c,
             (struct shape_of_launch){.ending = text_format("place%d", pass),
                                      .threads = 256,
                                      .x = number(s.chunks),
                                      .works = true},
             text_format("sort_place<%d, false>(%s, %s, %s, %s, %ld, %ld, %ld, %d)", s.bins, ids,
                         order, counts_at(s), to, s.items, s.chunk, s.chunks, shift));
        order = text_format("(const int32_t *)work + %ld", pass % 2 * s.order);
    }
    int each = dy->type == BF16 ? 8 : 4, threads = 256;
    if (width % each) each = 1;
    while (threads > 32 && (int64_t)threads / 2 * each >= width) threads /= 2;
    step(c,
         (struct shape_of_launch){
             .ending = "clear", .threads = 256, .x = number(parts(count, 1024))},
         text_format("embedding_clear(%s, %ld)", out, count));
    step(c,
         (struct shape_of_launch){.ending = "",
                                  .threads = threads,
                                  .x = number(s.items),
                                  .y = number(parts(width, (int64_t)threads * each)),
                                  .works = true},
         text_format("embedding_grad<%d, %d>(%s, %s, %s, %s, %ld, %ld)", each, threads, ids, order,
                     name_of(c, dy), out, s.items, width));
}

/* ── rows there and back ─────────────────────────────────────────────────────── */
static const char *name_in(const struct cuda_kernel *c, const struct node *n, int i)
{
    return name_of(c, n->in[i].value);
}

static void cuda_embedding(struct cuda_kernel *c, const struct node *n)
{
    const struct value *y = n->out[0];
    int64_t pieces;
    const char *type = piece_of(columns_of(y) * element_bytes(y->type), &pieces);
    over(c, rows_of(y) * pieces,
         text_format("embedding(%s, (const %s *)%s, (%s *)%s, %ld, %ld)", name_in(c, n, 0), type,
                     name_in(c, n, 1), type, name_of(c, y), rows_of(y), pieces));
}

static void cuda_dispatch(struct cuda_kernel *c, const struct node *n)
{
    const struct value *y = n->out[0];
    int64_t rows = rows_of(n->in[0].value), pieces;
    const char *type = piece_of(columns_of(y) * element_bytes(y->type), &pieces);
    over(c, rows * pieces,
         text_format("dispatch((const %s *)%s, %s, (%s *)%s, %ld, %ld, %ld)", type,
                     name_in(c, n, 0), name_in(c, n, 1), type, name_of(c, y), rows,
                     rows_of(y) / rows, pieces));
}

static void cuda_collect(struct cuda_kernel *c, const struct node *n)
{
    const struct value *y = n->out[0];
    int64_t width = columns_of(y), rows = rows_of(y);
    int each = y->type == BF16 ? 8 : 4;
    bool wide = width % each == 0;
    over(c, rows * width / (wide ? each : 1),
         text_format("collect<%s, %s>(%s, %s, %s, %ld, %ld, %ld)", c_type_of(y), truth(wide),
                     name_in(c, n, 0), name_in(c, n, 1), name_of(c, y), rows,
                     rows_of(n->in[0].value) / rows, width));
}

/* One number a choice: to_rows, from_rows. */
static void cuda_choices(struct cuda_kernel *c, const struct node *n)
{
    int64_t choices = shape_count(n->in[0].value->shape);
    over(c, choices,
         text_format("%s(%s, %s, %s, %ld)", op_rows[n->op].name, name_in(c, n, 0), name_in(c, n, 1),
                     name_of(c, n->out[0]), choices));
}

/* ── tables, norms ───────────────────────────────────────────────────────────── */
static void cuda_rope(struct cuda_kernel *c, const struct node *n)
{
    over(c, attr_get(n, "sequence") * attr_get(n, "d"), emit_rope(n, name_of(c, n->out[0])));
}

/* Without a stretch the sum begins. Otherwise two launches, whose grid follows from the stretch's
 * length. */
static void cuda_sum_squares(struct cuda_kernel *c, const struct node *n)
{
    int state = state_of(c), out = argument_of(c, n->out[0]);
    const char *x = emit_argument_name(&c->argument[state], state, c->canonical),
               *sum = emit_argument_name(&c->argument[out], out, c->canonical);
    const char *begin = text_format("%s_begin", c->name),
               *blocks = text_format("s->count < %d ? (s->count + %d) / %d : %d",
                                     SUM_SQUARES_BLOCKS * SUM_SQUARES_EACH, SUM_SQUARES_EACH - 1,
                                     SUM_SQUARES_EACH, SUM_SQUARES_BLOCKS);
    text_add(&c->functions,
             "KERNEL(32) f_%s(double *sum)\n{\n    if (threadIdx.x == 0) *sum = 0.0;\n}\n", begin);
    PUSH(&c->function, begin);
    text_add(&c->call,
             "    if (!s) {\n        launch(&(struct shot){FUNCTION_%s, 1, 1, 1, 32, 0}, (void "
             "*[]){(void *)&p[%d]});\n        return;\n    }\n    if (!s->count || s->balance_mean "
             "> 0) return;\n",
             begin, out);
    const char *brief = cuda_begin(c, "short", 256, false);
    text_add(&c->functions, "    sum_squares_short(%s, %s, from, count);\n", x, sum);
    cuda_end(c);
    text_add(&c->call, "    if (s->count <= %d) {\n    ", SUM_SQUARES_EACH);
    cuda_launch(c, brief, "1", "1", "1", 256, 0, false);
    text_add(&c->call, "        return;\n    }\n");
    step(c, (struct shape_of_launch){.ending = "parts", .threads = 256, .x = blocks, .works = true},
         text_format("sum_squares_parts(%s, (double *)work, from, count)", x));
    step(
        c, (struct shape_of_launch){.ending = "", .threads = 256, .x = "1", .works = true},
        text_format(
            "sum_squares_add((const double *)work, %s, count < %d ? (int)((count + %d) / %d) : %d)",
            sum, SUM_SQUARES_BLOCKS * SUM_SQUARES_EACH, SUM_SQUARES_EACH - 1, SUM_SQUARES_EACH,
            SUM_SQUARES_BLOCKS));
}

/* ── entry point ─────────────────────────────────────────────────────────── */
void emit_cuda_core(struct cuda_kernel *c)
{
    const struct node *n = NULL;
    for (int i = 0; i < c->kernel->node.n; i++)
        if (op_rows[c->kernel->node.item[i]->op].class == CLASS_CORE) {
            if (n) bug("kernel %s has two core ops", c->kernel->kernel->name);
            n = c->kernel->node.item[i];
        }
    const struct value *y = n->out[0];
    switch ((enum core_op)n->op) {
    case CORE_OP_matmul:
    case CORE_OP_matmul_add: cuda_matmul(c, n); return;
    case CORE_OP_expert_matmul: cuda_expert_matmul(c, n); return;
    case CORE_OP_expert_matmul_grad: cuda_expert_matmul_grad(c, n); return;
    case CORE_OP_embedding: cuda_embedding(c, n); return;
    case CORE_OP_dispatch: cuda_dispatch(c, n); return;
    case CORE_OP_collect: cuda_collect(c, n); return;
    case CORE_OP_to_rows:
    case CORE_OP_from_rows: cuda_choices(c, n); return;
    case CORE_OP_embedding_grad: cuda_embedding_grad(c, n); return;
    case CORE_OP_route_plan: cuda_route_plan(c, n); return;
    case CORE_OP_attention:
    case CORE_OP_attention_grad: emit_cuda_attention(c, n); return;
    case CORE_OP_rope_cos:
    case CORE_OP_rope_sin: cuda_rope(c, n); return;
    case CORE_OP_sum_squares: cuda_sum_squares(c, n); return;
    case CORE_OP_positions:
        if (n->n_in) {
            over(c, shape_count(y->shape),
                 text_format("document_positions(%s, %s, %ld)", name_in(c, n, 0), name_of(c, y),
                             shape_count(y->shape)));
            return;
        }
        over(c, shape_count(y->shape),
             text_format("positions(%s, %ld, %ld)", name_of(c, y), shape_count(y->shape),
                         attr_get(n, "sequence")));
        return;
    case CORE_OP_sum_middle: {
        struct shape s = n->in[0].value->shape;
        over(c, s.dim[0] * s.dim[2],
             text_format("sum_middle(%s, %s, %ld, %ld, %ld)", name_of(c, n->in[0].value),
                         name_of(c, y), s.dim[0], s.dim[1], s.dim[2]));
        return;
    }
    }
    bug("%s has no cuda text", op_rows[n->op].name);
}
