/* Kernels that are one call: a matrix product, attention, routing. The work is in templates/cpu;
 * here its sizes, which are constants, are read off the shapes, so that the C compiler sees a
 * function specialised for them. Element types are those of the pointers: a template says in C what
 * it does with which. */
#include "emit/emit.h"

#include <math.h>

const char *emit_core_template(enum op op)
{
    switch ((int)op) {
    case OP_matmul:
    case OP_matmul_add: return "cpu/product.h";
    case OP_embedding:
    case OP_embedding_grad: return "cpu/embedding.h";
    case OP_sum_middle: return "cpu/sum_middle.h";
    case OP_positions:
    case OP_rope_cos:
    case OP_rope_sin: return "cpu/positions.h";
    case OP_attention:
    case OP_attention_grad: return "cpu/attention.h";
    case OP_sum_squares: return "cpu/sum_squares.h";
    case OP_top_k:
    case OP_route_plan:
    case OP_load:
    case OP_dispatch:
    case OP_collect:
    case OP_to_rows:
    case OP_from_rows:
    case OP_expert_matmul:
    case OP_expert_matmul_grad: return "cpu/experts.h";
    }
    return NULL;
}

static int64_t columns_of(const struct value *v)
{
    return v->shape.rank ? v->shape.dim[v->shape.rank - 1] : 1;
}
static int64_t rows_of(const struct value *v) { return shape_count(v->shape) / columns_of(v); }

static int64_t attr_or(const struct node *n, const char *key, int64_t otherwise)
{
    const struct attr *a = attr_find(n, key);
    return a ? a->whole : otherwise;
}

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

static void call_attention(struct call *c, const struct node *n)
{
    const struct value *q = n->in[0].value, *k = n->in[1].value;
    int64_t width = columns_of(q);
    text_add(c->to, "%s(", op_rows[n->op].name);
    names(c, n);
    text_add(c->to, "%ld, %ld, %ld, %ld, %ld, %.9gf);\n", q->shape.dim[0], q->shape.dim[1],
             k->shape.dim[1], width, attr_get(n, "sequence"), 1.0 / sqrt((double)width));
}

static void call_rope(struct call *c, const struct node *n)
{
    static const char *const key[] = {"theta", "factor", "low", "high", "original"};
    text_add(c->to, "%s(%s, %ld, %ld", op_rows[n->op].name, name_of(c, n->out[0]),
             attr_get(n, "sequence"), attr_get(n, "d"));
    for (size_t i = 0; i < COUNT_OF(key); i++)
        text_add(c->to, ", %s", text_number(attr_get_real(n, key[i])));
    text_add(c->to, ");\n");
}

static void call_experts(struct call *c, const struct node *n)
{
    const struct value *a = n->in[0].value, *y = n->out[0];
    text_add(c->to, "%s(", op_rows[n->op].name);
    names(c, n);
    int64_t choices = shape_count(a->shape);
    switch ((int)n->op) {
    case OP_top_k:
        text_add(c->to, "%ld, %ld, %ld", rows_of(a), columns_of(a), attr_get(n, "k"));
        break;
    case OP_route_plan:
    case OP_load: text_add(c->to, "%ld, %ld", choices, attr_get(n, "experts")); break;
    case OP_dispatch:
        text_add(c->to, "%ld, %ld, %ld", rows_of(a), rows_of(y) / rows_of(a), columns_of(a));
        break;
    case OP_collect:
        text_add(c->to, "%ld, %ld, %ld", rows_of(y), rows_of(a) / rows_of(y), columns_of(a));
        break;
    case OP_to_rows:
    case OP_from_rows: text_add(c->to, "%ld", choices); break;
    case OP_expert_matmul:
        text_add(c->to, "%ld, %ld, %ld, %s", n->in[1].value->shape.dim[0], columns_of(a),
                 columns_of(y), attr_or(n, "ta", 0) ? "true" : "false");
        break;
    case OP_expert_matmul_grad:
        text_add(c->to, "%ld, %ld, %ld", y->shape.dim[0], y->shape.dim[2], y->shape.dim[1]);
        break;
    }
    text_add(c->to, ");\n");
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
    const struct value *y = n->out[0];
    text_add(to, "    ");
    switch ((int)n->op) {
    case OP_matmul:
    case OP_matmul_add: call_matmul(&c, n); return;
    case OP_attention:
    case OP_attention_grad: call_attention(&c, n); return;
    case OP_rope_cos:
    case OP_rope_sin: call_rope(&c, n); return;
    case OP_positions:
        text_add(to, "positions(%s, %ld, %ld);\n", name_of(&c, y), shape_count(y->shape),
                 attr_get(n, "sequence"));
        return;
    case OP_embedding:
        text_add(to, "embedding(");
        names(&c, n);
        text_add(to, "%ld, %ld);\n", rows_of(y), columns_of(y) * element_bytes(y->type));
        return;
    case OP_embedding_grad:
        text_add(to, "embedding_grad(");
        names(&c, n);
        text_add(to, "%ld, %ld, %ld);\n", rows_of(n->in[1].value), y->shape.dim[0],
                 y->shape.dim[1]);
        return;
    case OP_sum_middle: {
        struct shape s = n->in[0].value->shape;
        text_add(to, "sum_middle(");
        names(&c, n);
        text_add(to, "%ld, %ld, %ld);\n", s.dim[0], s.dim[1], s.dim[2]);
        return;
    }
    case OP_sum_squares:
        text_add(to, "sum_squares(%s, s, %s);\n", state_argument(&c), name_of(&c, y));
        return;
    }
    call_experts(&c, n);
}
