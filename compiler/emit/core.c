/* Kernels that are one call: a matrix product, attention, routing. The work is in templates/cpu.
 * The sizes, which are constants, are taken from the shapes, so the C compiler specialises the
 * function. Element types are those of the pointers. */
#include "emit/common.h"

const char *emit_core_template(enum op op)
{
    return op < OP_COUNT && op_rows[op].template ? text_format("cpu/%s.h", op_rows[op].template)
                                                 : NULL;
}

static int64_t columns_of(const struct value *v) { return shape_columns(v->shape); }
static int64_t rows_of(const struct value *v) { return shape_rows(v->shape); }

struct call {
    struct text *to;
    const struct emit_kernel *k;
    struct argument *argument;
    int n;
    bool canonical;
};

static const char *name_of(const struct call *c, const struct value *v)
{
    for (int i = 0; i < c->n; i++)
        if (c->argument[i].value == emit_root(v) && c->argument[i].value)
            return emit_argument_name(&c->argument[i], i, c->canonical);
    bug("%s is no argument of kernel %s", v->name, c->k->kernel->name);
}

static const char *state_argument(const struct call *c)
{
    for (int i = 0; i < c->n; i++)
        if (c->argument[i].kind == ARGUMENT_STATE)
            return emit_argument_name(&c->argument[i], i, c->canonical);
    bug("kernel %s reads no state", c->k->kernel->name);
}

/* `x, y, z, ` of operands and results. */
static void names(struct call *c, const struct node *n)
{
    for (int i = 0; i < n->n_in; i++) text_add(c->to, "%s, ", name_of(c, n->in[i].value));
    for (int i = 0; i < n->n_out; i++) text_add(c->to, "%s, ", name_of(c, n->out[i]));
}

static void call_matmul(struct call *c, const struct node *n)
{
    const struct value *a = n->in[0].value, *b = n->in[1].value, *y = n->out[0];
    bool ta = attr_or(n, "ta", 0), tb = attr_or(n, "tb", 0);
    int64_t m = y->shape.dim[0], columns = y->shape.dim[1], inner = a->shape.dim[ta ? 0 : 1];
    text_add(c->to, "product(%s, %s, %ld, %ld, %ld, %s, %ld, %s, %ld, %s, %s, %ld);\n",
             ta ? "true" : "false", tb ? "true" : "false", m, columns, inner, name_of(c, a),
             columns_of(a), name_of(c, b), columns_of(b), n->op == OP_matmul_add ? "true" : "false",
             name_of(c, y), columns);
}

static const char *real(double x) { return text_format("(float)%.9g", x); }

static void call_attention(struct call *c, const struct node *n)
{
    const struct value *q = n->in[0].value, *k = n->in[1].value;
    struct attention_rule rule = attention_rule(n);
    text_add(c->to, "%s(", op_rows[n->op].name);
    for (int i = 0; i < n->n_in; i++)
        if (n->in[i].value != rule.starts) text_add(c->to, "%s, ", name_of(c, n->in[i].value));
    for (int i = 0; i < n->n_out; i++) text_add(c->to, "%s, ", name_of(c, n->out[i]));
    text_add(c->to, "%ld, %ld, %ld, %ld, %ld, %s, (struct attention_rule){%ld, %s, %s});\n",
             q->shape.dim[0], q->shape.dim[1], k->shape.dim[1], columns_of(q),
             attr_get(n, "sequence"), real(rule.scale), rule.window, real(rule.softcap),
             rule.starts ? name_of(c, rule.starts) : "NULL");
}

static void call_rope(struct call *c, const struct node *n)
{
    text_add(c->to, "%s;\n", emit_rope(n, name_of(c, n->out[0])));
}

/* `op(operands, results, sizes);` */
static void call_sizes(struct call *c, const struct node *n, const int64_t *size, int sizes)
{
    text_add(c->to, "%s(", op_rows[n->op].name);
    names(c, n);
    for (int i = 0; i < sizes; i++) text_add(c->to, "%s%ld", i ? ", " : "", size[i]);
    text_add(c->to, ");\n");
}
#define SIZES(...) \
    (const int64_t[]){__VA_ARGS__}, (int)(sizeof(int64_t[]){__VA_ARGS__} / sizeof(int64_t))

static void call_expert_matmul(struct call *c, const struct node *n)
{
    text_add(c->to, "expert_matmul(");
    names(c, n);
    text_add(c->to, "%ld, %ld, %ld, %s);\n", n->in[1].value->shape.dim[0],
             columns_of(n->in[0].value), columns_of(n->out[0]),
             attr_or(n, "ta", 0) ? "true" : "false");
}

void emit_core_body(struct text *to, const struct emit *e, const struct emit_kernel *k,
                    bool canonical)
{
    struct call c = {.to = to, .k = k, .canonical = canonical};
    c.n = emit_arguments(e, k, &c.argument);
    const struct node *n = NULL;
    for (int i = 0; i < k->node.n; i++)
        if (op_rows[k->node.item[i]->op].class == CLASS_CORE) {
            if (n) bug("kernel %s has two core ops", k->kernel->name);
            n = k->node.item[i];
        }
    const struct value *y = n->out[0], *a = n->n_in ? n->in[0].value : NULL;
    struct shape s = a ? a->shape : y->shape, to_shape = y->shape;
    text_add(to, "    ");
    switch ((enum core_op)n->op) {
    case CORE_OP_matmul:
    case CORE_OP_matmul_add: call_matmul(&c, n); return;
    case CORE_OP_attention:
    case CORE_OP_attention_grad: call_attention(&c, n); return;
    case CORE_OP_rope_cos:
    case CORE_OP_rope_sin: call_rope(&c, n); return;
    case CORE_OP_positions:
        if (a) {
            text_add(to, "document_positions(%s, %s, %ld);\n", name_of(&c, a), name_of(&c, y),
                     shape_count(y->shape));
            return;
        }
        call_sizes(&c, n, SIZES(shape_count(y->shape), attr_get(n, "sequence")));
        return;
    case CORE_OP_embedding:
        call_sizes(&c, n, SIZES(rows_of(y), columns_of(y) * element_bytes(y->type)));
        return;
    case CORE_OP_embedding_grad:
        call_sizes(&c, n, SIZES(rows_of(n->in[1].value), to_shape.dim[0], to_shape.dim[1]));
        return;
    case CORE_OP_sum_middle: call_sizes(&c, n, SIZES(s.dim[0], s.dim[1], s.dim[2])); return;
    case CORE_OP_sum_squares:
        text_add(to, "sum_squares(%s, s, %s);\n", state_argument(&c), name_of(&c, y));
        return;
    case CORE_OP_route_plan:
        call_sizes(&c, n, SIZES(shape_count(s), attr_get(n, "experts")));
        return;
    case CORE_OP_dispatch:
        call_sizes(&c, n, SIZES(rows_of(a), rows_of(y) / rows_of(a), columns_of(a)));
        return;
    case CORE_OP_collect:
        call_sizes(&c, n, SIZES(rows_of(y), rows_of(a) / rows_of(y), columns_of(a)));
        return;
    case CORE_OP_to_rows:
    case CORE_OP_from_rows: call_sizes(&c, n, SIZES(shape_count(s))); return;
    case CORE_OP_expert_matmul: call_expert_matmul(&c, n); return;
    case CORE_OP_expert_matmul_grad:
        call_sizes(&c, n, SIZES(to_shape.dim[0], to_shape.dim[2], to_shape.dim[1]));
        return;
    }
    bug("%s has no text", op_rows[n->op].name);
}
