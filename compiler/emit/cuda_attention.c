/* Attention on the cuda device: which functions of templates/cuda/attention.cuh and
 * attention_gradient.cuh (tensor cores), of attention_wgmma.cuh beside them (warpgroups) or of
 * attention_simt.cuh (everything else) compute it, and their grids. The formulas for threads, grids
 * and shared memory are in the first comments of those files. */
#include "emit/cuda.h"

#include "passes/kernel_tile.h"
#include "passes/workspace.h"

#include <string.h>

/* Beside dynamic shared memory: the number of a block of attention_gradient, with its alignment. */
enum { STATIC_BYTES = 128, WGMMA_THREADS = 384 };

static int64_t parts(int64_t n, int64_t of) { return (n + of - 1) / of; }
static const char *number(int64_t n) { return text_format("%ld", n); }

static int argument_of(const struct cuda_kernel *c, const struct value *v)
{
    for (int i = 0; i < c->n_argument; i++)
        if (c->argument[i].value && c->argument[i].value == emit_root(v)) return i;
    bug("%s is no argument of kernel %s", v->name, c->kernel->kernel->name);
}
static const char *name_of(const struct cuda_kernel *c, const struct value *v)
{
    int i = argument_of(c, v);
    return emit_argument_name(&c->argument[i], i, c->canonical);
}

/* Sizes of one node, and what the templates make of a width. */
struct attention_shape {
    int64_t tokens, heads, kv_heads, width, sequence, row_bytes, forward_bytes, gradient_bytes,
        lanes;
    bool tensor, half, wgmma; /* wgmma: beside `tensor` */
    const char *kind, *sizes;
    struct attention_rule rule;
};

static const char *real(double x) { return text_format("(float)%.17g", x); }

static struct attention_shape attention_shape(const struct cuda_kernel *c, const struct node *n)
{
    int64_t shared = c->emit->graph->facts.shared_bytes;
    const struct value *q = n->in[0].value, *k = n->in[1].value;
    struct attention_shape a = {.tokens = q->shape.dim[0],
                                .heads = q->shape.dim[1],
                                .kv_heads = k->shape.dim[1],
                                .width = q->shape.dim[2],
                                .sequence = attr_get(n, "sequence"),
                                .rule = attention_rule(n)};
    a.half = q->type == BF16;
    a.row_bytes = 2 * (parts(a.width, 16) * 16 + 8);
    a.forward_bytes = 384 * a.row_bytes;
    int64_t queries = a.width > 64 && a.width <= 128 ? 64 : 32;
    a.gradient_bytes = (256 + 4 * queries) * a.row_bytes + 256 * (queries + 8) +
                       (a.rule.starts ? 24 : 16) * queries;
    bool gradient = n->op == OP_attention_grad;
    int64_t most = gradient ? a.gradient_bytes + STATIC_BYTES : a.forward_bytes;
    /* the other form has what any block may have */
    a.tensor = a.half && a.width % 8 == 0 && a.width <= 256 && (!shared || most <= shared) &&
               (!gradient || attr_or(n, "room", 0) > 0);
    a.wgmma = a.tensor && c->emit->graph->facts.wgmma && wgmma_attention(n);
    for (a.lanes = 1; a.lanes < a.width / 8; a.lanes *= 2) continue;
    a.kind = a.tensor ? text_format("<%ld>", a.width)
                      : text_format("_simt<%s, %ld>", a.half ? "bf16" : "float", a.width);
    a.sizes =
        text_format("%ld, %ld, %ld, %ld, %s, attention_rule{%ld, %s, %s}", a.tokens, a.heads,
                    a.kv_heads, a.sequence, real(a.rule.scale), a.rule.window, real(a.rule.softcap),
                    a.rule.starts ? name_of(c, a.rule.starts) : "nullptr");
    return a;
}

/* attention_wgmma<W>::shared: queries, five tiles, 14 barriers; attention_gradient_room<W>::shared:
 * tiles of keys and slopes, two places of queries and their numbers, 7 barriers. */
static int64_t wgmma_forward_bytes(int64_t width)
{
    return 1024 + 2 * 128 * (width + 8) + 5 * 128 * 2 * width + 8 * 14;
}
static int64_t wgmma_queries(int64_t width) { return width == 64 ? 128 : 64; }
static int64_t wgmma_gradient_bytes(int64_t width)
{
    int64_t queries = wgmma_queries(width);
    return 1024 + 2 * (128 * 2 * width + 128 * 2 * queries) +
           2 * (2 * 2 * queries * width + 3 * 4 * queries) + 8 * 7;
}

/* [sequences, sequence, elements of all heads], `rows` of one sequence a copy. */
static struct cuda_tensor tensor_of(const struct cuda_kernel *c, struct attention_shape a,
                                    const struct value *v, int rows)
{
    return (struct cuda_tensor){argument_of(c, v), a.tokens / a.sequence, a.sequence,
                                v->shape.dim[1] * a.width, rows};
}

/* One function with one call, and its launch. */
struct attention_step {
    const char *ending;
    int threads;
    int64_t x, y, z, shared_bytes;
    bool works, twin; /* twin: of a function by cuda_wgmma */
};
static void step(struct cuda_kernel *c, struct attention_step s, const char *call)
{
    const char *function = cuda_begin(c, s.ending, s.threads, s.works);
    text_add(&c->functions, s.twin ? CUDA_WITHOUT_WGMMA "    %s;\n#endif\n" : "    %s;\n", call);
    cuda_end(c);
    cuda_launch(c, function, number(s.x), number(s.y), number(s.z), s.threads, s.shared_bytes,
                s.works);
}

/* Before our own launches: the library, where it knows this shape. What it keeps of the log-sum-exp
 * goes through the workspace. */
static void offer(struct cuda_kernel *c, const struct node *n, struct attention_shape a)
{
    if (!c->emit->graph->facts.attention_library || !attention_offered(n)) return;
    bool gradient = n->op == OP_attention_grad;
    const char *function = cuda_begin(c, "stats", 256, true),
               *name = name_of(c, gradient ? n->in[4].value : n->out[1]);
    struct text addresses = {0};
    for (int i = 0; i < 3; i++) text_add(&addresses, "p[%d], ", argument_of(c, n->in[i].value));
    text_add(&addresses, "p[%d]", argument_of(c, gradient ? n->in[3].value : n->out[0]));
    if (gradient)
        text_add(&addresses, ", p[%d], p[%d], p[%d], p[%d]", argument_of(c, n->in[5].value),
                 argument_of(c, n->out[0]), argument_of(c, n->out[1]), argument_of(c, n->out[2]));
    if (gradient)
        text_add(&c->functions, "    attention_stats<true>(%s, (float *)work, %ld, %ld, %ld);\n",
                 name, a.tokens, a.heads, a.sequence);
    else
        text_add(&c->functions,
                 "    attention_stats<false>((const float *)work, %s, %ld, %ld, %ld);\n", name,
                 a.tokens, a.heads, a.sequence);
    cuda_end(c);
    const char *call =
        text_format("        attention(&a_%s, (void *[]){%s});\n", c->name, addresses.bytes);
    text_add(&c->offers,
             "static const struct attention a_%s = {%ld, %ld, %ld, %ld, %ld, %s, %s};\n", c->name,
             a.tokens / a.sequence, a.sequence, a.heads, a.kv_heads, a.width, real(a.rule.scale),
             gradient ? "true" : "false");
    PUSH(&c->offer, text_format("&a_%s, 0", c->name));
    text_add(&c->call, "    if (attention_known(&a_%s)) {\n%s", c->name, gradient ? "" : call);
    text_add(&c->call,
             "        launch(&(struct shot){%s, %ld, 1, 1, 256, 0},\n               %s);\n%s      "
             "  return;\n    }\n",
             function, parts(a.tokens * a.heads, 256), cuda_launch_arguments(c, true),
             gradient ? call : "");
}

static void emit_forward(struct cuda_kernel *c, const struct node *n, struct attention_shape a)
{
    int threads = a.tensor && a.width % 16 == 0 && a.width <= 128 ? 128 : 256;
    struct attention_step s = {.ending = "",
                               .threads = threads,
                               .x = a.heads * (a.tokens / a.sequence),
                               .y = parts(a.sequence, a.tensor ? 128 : 64),
                               .z = 1,
                               .twin = a.wgmma};
    s.shared_bytes = a.tensor ? a.forward_bytes : 0;
    bool ruled = a.rule.window || a.rule.softcap > 0 || a.rule.starts;
    const char *kind =
        a.tensor ? text_format("<%ld, %s>", a.width, ruled ? "true" : "false") : a.kind;
    const struct value *const in[] = {n->in[0].value, n->in[1].value, n->in[2].value};
    const char *q = name_of(c, in[0]), *k = name_of(c, in[1]), *v = name_of(c, in[2]),
               *to =
                   text_format("%s, %s, %s", name_of(c, n->out[0]), name_of(c, n->out[1]), a.sizes);
    if (a.wgmma) {
        for (int i = 0; i < 3; i++) c->tensor[i] = tensor_of(c, a, in[i], i == 0 ? 64 : 128);
        cuda_wgmma(c,
                   text_format("attention_forward_wgmma%s(&%s, &%s, &%s, %s)", a.kind, q, k, v, to),
                   number(s.x), number(s.y), WGMMA_THREADS, wgmma_forward_bytes(a.width), false);
    }
    step(c, s, text_format("attention_forward%s(%s, %s, %s, %s)", kind, q, k, v, to));
}

/* q, k, v, o, lse, do -> dq, dk, dv; the fourth result is room for sums, which only the tensor
 * cores' form wants. */
static void emit_gradient(struct cuda_kernel *c, const struct node *n, struct attention_shape a)
{
    const char *q = name_of(c, n->in[0].value), *k = name_of(c, n->in[1].value),
               *v = name_of(c, n->in[2].value), *d_o = name_of(c, n->in[5].value);
    int64_t sequences = a.tokens / a.sequence, tiles = parts(a.sequence, a.tensor ? 128 : 64);
    int64_t parts_of_width = a.width <= (a.tensor ? 128 : 256) ? 1 : 2;
    step(c,
         (struct attention_step){.ending = "rows",
                                 .threads = 256,
                                 .x = parts(a.tokens, a.tensor ? 256 / a.lanes : 8),
                                 .y = a.heads,
                                 .z = 1,
                                 .works = true},
         text_format("attention_rows%s(%s, %s, %s, (float *)work, %ld, %ld%s)", a.kind,
                     name_of(c, n->in[3].value), d_o, name_of(c, n->in[4].value), a.tokens, a.heads,
                     a.tensor ? text_format(", %ld", attention_turns(n)) : ""));
    if (a.tensor) {
        const char *to = text_format("(float *)work, %s, %s, %s, %s, %s", name_of(c, n->out[3]),
                                     name_of(c, n->out[0]), name_of(c, n->out[1]),
                                     name_of(c, n->out[2]), a.sizes);
        if (a.wgmma) {
            int queries = (int)wgmma_queries(a.width);
            const struct cuda_tensor tensors[] = {
                tensor_of(c, a, n->in[0].value, queries), tensor_of(c, a, n->in[1].value, 128),
                tensor_of(c, a, n->in[2].value, 128), tensor_of(c, a, n->in[5].value, queries)};
            memcpy(c->tensor, tensors, sizeof tensors);
            cuda_wgmma(c,
                       text_format("attention_gradient_wgmma%s(&%s, &%s, &%s, &%s, %s)", a.kind, q,
                                   k, v, d_o, to),
                       number(a.heads * sequences), number(tiles), WGMMA_THREADS,
                       wgmma_gradient_bytes(a.width), true);
        }
        step(c,
             (struct attention_step){.ending = "tiles",
                                     .threads = a.width % 16 == 0 && a.width <= 64 ? 128 : 256,
                                     .x = a.heads * sequences,
                                     .y = tiles,
                                     .z = parts_of_width,
                                     .shared_bytes = a.gradient_bytes,
                                     .works = true,
                                     .twin = a.wgmma},
             text_format("attention_gradient%s(%s, %s, %s, %s, %s)", a.kind, q, k, v, d_o, to));
        return;
    }
    step(c,
         (struct attention_step){.ending = "keys",
                                 .threads = 256,
                                 .x = a.kv_heads * sequences,
                                 .y = tiles,
                                 .z = parts_of_width,
                                 .works = true},
         text_format("attention_keys%s(%s, %s, %s, %s, (const float *)work, %s, %s, %s)", a.kind, q,
                     k, v, d_o, name_of(c, n->out[1]), name_of(c, n->out[2]), a.sizes));
    step(c,
         (struct attention_step){.ending = "queries",
                                 .threads = 256,
                                 .x = a.heads * sequences,
                                 .y = tiles,
                                 .z = 1,
                                 .works = true},
         text_format("attention_queries%s(%s, %s, %s, %s, (const float *)work, %s, %s)", a.kind, q,
                     k, v, d_o, name_of(c, n->out[0]), a.sizes));
}

void emit_cuda_attention(struct cuda_kernel *c, const struct node *n)
{
    struct attention_shape a = attention_shape(c, n);
    offer(c, n, a);
    if (n->op == OP_attention)
        emit_forward(c, n, a);
    else
        emit_gradient(c, n, a);
}
