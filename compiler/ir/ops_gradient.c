/* The gradient rule of every op: from the gradients of its results, build those of its operands.
 * Rules use the same primitives as forward ops, so they are fused, recomputed, sharded and costed
 * like them. One call makes one node, in an order that is written down (C leaves the order of
 * arguments open). Forward broadcasting becomes a sum; `summed_to` does that for all ops. */
#include "ir/ir.h"

static bool wants(const struct operand *o) { return o->value && o->value->mark; }

static struct value *with_dims(struct build *b, enum op op, struct value *x, struct shape s)
{
    struct attr attr[SHAPE_RANK];
    return build_op(b, op, (struct operand[]){by(x)}, 1, attr, attr_dims(attr, s));
}

static struct value *shaped(struct build *b, struct value *x, struct shape s)
{
    return shape_same(x->shape, s) ? x : with_dims(b, OP_reshape, x, s);
}
static struct value *spread(struct build *b, struct value *x, struct shape s)
{
    return shape_same(x->shape, s) ? x : with_dims(b, OP_expand, x, s);
}

/* The sum of `d`, seen as [outer, axis, inner], over the axis: outer x inner elements. */
static struct value *sum_axis(struct build *b, struct value *d, int64_t outer, int64_t axis,
                              int64_t inner)
{
    if (inner == 1)
        return build1(b, OP_sum_last, by(shaped(b, d, shape_of(2, (int64_t[]){outer, axis}))));
    if (outer == 1)
        return build1(b, OP_sum_rows, by(shaped(b, d, shape_of(2, (int64_t[]){axis, inner}))));
    return build1(b, OP_sum_middle, by(shaped(b, d, shape_of(3, (int64_t[]){outer, axis, inner}))));
}

/* d has the shape of a result; the operand of shape s was broadcast to it: axes are matched from
 * the last, those of 1 were spread, and the first of an operand of full rank may have been
 * repeated. */
static struct value *summed_to(struct build *b, struct value *d, struct shape s)
{
    if (shape_same(d->shape, s)) return d;
    int64_t n = shape_count(s), last = shape_columns(s), columns = shape_columns(d->shape);
    if (n == shape_count(d->shape)) return shaped(b, d, s);
    if (n == 1) return shaped(b, build1(b, OP_sum_all, by(d)), s);
    if (n == columns && last == columns) return shaped(b, build1(b, OP_sum_rows, by(d)), s);
    if (last == 1 && n * columns == shape_count(d->shape))
        return shaped(b, build1(b, OP_sum_last, by(d)), s);
    /* neighbouring axes that are all kept, or all summed over, are one */
    struct {
        int64_t size;
        bool summed;
    } axis[SHAPE_RANK + 1];
    int rank = 0, skip = d->shape.rank - s.rank;
    for (int i = 0; i < d->shape.rank; i++) {
        int64_t all = d->shape.dim[i], mine = i < skip ? 1 : s.dim[i - skip], repeats = all / mine;
        for (int part = 0; part < 2; part++) {
            bool summed = part == 0;
            int64_t size = summed ? repeats : mine;
            if (size == 1) continue;
            if (rank && axis[rank - 1].summed == summed)
                axis[rank - 1].size *= size;
            else
                axis[rank].size = size, axis[rank++].summed = summed;
        }
    }
    int64_t outer = shape_count(d->shape), inner = 1;
    for (int i = rank - 1; i >= 0; i--) { /* the last first: it shortens what the others read */
        outer /= axis[i].size;
        if (axis[i].summed)
            d = sum_axis(b, d, outer, axis[i].size, inner);
        else
            inner *= axis[i].size;
    }
    return shaped(b, d, s);
}

static const char *operand_type(const struct value *v)
{
    return element_names[v->weight ? F32 : v->type];
}

static struct value *product(struct build *b, struct value *x, struct value *y, int64_t tx,
                             int64_t ty, const struct value *for_operand)
{
    struct attr attr[] = {attr_whole("ta", tx), attr_whole("tb", ty),
                          attr_word("to", operand_type(for_operand))};
    return build_op(b, OP_matmul, (struct operand[]){by(x), by(y)}, 2, attr, 3);
}

static struct value *neg(struct build *b, struct value *x) { return build1(b, OP_neg, by(x)); }
static struct value *mul(struct build *b, struct value *x, struct operand y)
{
    return build2(b, OP_mul, by(x), y);
}

void op_gradient(struct build *b, const struct node *n, struct value *const *dout,
                 struct value **into)
{
    const struct operand *in = n->in;
    struct value *d = dout[0], *x = n->n_in > 0 ? in[0].value : NULL,
                 *y = n->n_out ? n->out[0] : NULL;
    for (int i = 0; i < n->n_in; i++) into[i] = NULL;
    if (!d && n->op != OP_attention) return;
        /* Sums an elementwise contribution to operand i to its shape. */
#define TO(i, contribution) \
    (wants(&in[i]) ? (void)(into[i] = summed_to(b, (contribution), in[i].value->shape)) : (void)0)
    switch (n->op) {
    case OP_add:
        TO(0, d);
        TO(1, d);
        return;
    case OP_sub:
        TO(0, d);
        TO(1, neg(b, d));
        return;
    case OP_mul:
        TO(0, mul(b, d, in[1]));
        TO(1, mul(b, d, in[0]));
        return;
    case OP_div:
        TO(0, build2(b, OP_div, by(d), in[1]));
        TO(1, neg(b, build2(b, OP_div, by(mul(b, d, by(y))), in[1])));
        return;
    case OP_neg: TO(0, neg(b, d)); return;
    case OP_exp: TO(0, mul(b, d, by(y))); return;
    case OP_log: TO(0, build2(b, OP_div, by(d), in[0])); return;
    case OP_sqrt: TO(0, build2(b, OP_div, by(mul(b, d, num(0.5))), by(y))); return;
    case OP_rsqrt: {
        if (!wants(&in[0])) return;
        struct value *half = mul(b, d, num(-0.5)), *cube = mul(b, mul(b, y, by(y)), by(y));
        TO(0, mul(b, half, by(cube)));
        return;
    }
    case OP_tanh: TO(0, mul(b, d, by(build2(b, OP_sub, num(1), by(mul(b, y, by(y))))))); return;
    case OP_sigmoid: {
        if (!wants(&in[0])) return;
        struct value *scaled = mul(b, d, by(y)), *rest = build2(b, OP_sub, num(1), by(y));
        TO(0, mul(b, scaled, by(rest)));
        return;
    }
    case OP_erf: { /* 2 / sqrt(pi) exp(-x^2) */
        if (!wants(&in[0])) return;
        struct value *scaled = mul(b, d, num(1.1283791670955126)),
                     *bell = build1(b, OP_exp, by(neg(b, mul(b, x, by(x)))));
        TO(0, mul(b, scaled, by(bell)));
        return;
    }
    case OP_select:
        TO(1, build_op(b, OP_select, (struct operand[]){in[0], by(d), num(0)}, 3, NULL, 0));
        TO(2, build_op(b, OP_select, (struct operand[]){in[0], num(0), by(d)}, 3, NULL, 0));
        return;
    case OP_cast:
        if (!wants(&in[0])) return;
        into[0] = d;
        /* widened before: exact */
        if (x->type == BF16 && d->node && d->node->op == OP_cast &&
            d->node->in[0].value->type == BF16) {
            into[0] = d->node->in[0].value;
            return;
        }
        if (!x->weight && d->type != x->type)
            into[0] = build_op(b, OP_cast, (struct operand[]){by(d)}, 1,
                               (struct attr[]){attr_word("to", element_names[x->type])}, 1);
        return;
    case OP_copy:
    case OP_expand: TO(0, d); return;
    case OP_rotate:
        TO(0, build_op(b, OP_rotate, (struct operand[]){by(d)}, 1, n->attr, n->n_attr));
        return;
    case OP_slice: {
        int64_t total = x->shape.dim[x->shape.rank - 1];
        TO(0, build_op(b, OP_pad, (struct operand[]){by(d)}, 1,
                       (struct attr[]){attr_whole("from", attr_get(n, "from")),
                                       attr_whole("total", total)},
                       2));
        return;
    }
    case OP_pad: {
        int64_t from = attr_get(n, "from"), to = from + x->shape.dim[x->shape.rank - 1];
        TO(0, build_op(b, OP_slice, (struct operand[]){by(d)}, 1,
                       (struct attr[]){attr_whole("from", from), attr_whole("to", to)}, 2));
        return;
    }
    case OP_beside:
        for (int i = 0; i < 2; i++)
            TO(i, build_op(b, OP_slice, (struct operand[]){by(d)}, 1,
                           (struct attr[]){attr_whole("from", i * shape_columns(x->shape)),
                                           attr_whole("to", (i + 1) * shape_columns(x->shape))},
                           2));
        return;
    case OP_onehot: TO(1, build2(b, OP_pick, by(d), in[0])); return;
    case OP_put: TO(1, build2(b, OP_take, by(d), in[0])); return;
    case OP_pick:
    case OP_take:
        TO(0, build_op(b, n->op == OP_pick ? OP_onehot : OP_put, (struct operand[]){in[1], by(d)},
                       2, (struct attr[]){attr_whole("columns", x->shape.dim[1])}, 1));
        return;
    case OP_sum_last:
        if (wants(&in[0])) into[0] = spread(b, d, x->shape);
        return;
    case OP_sum_rows:
    case OP_sum_all:
        if (wants(&in[0])) into[0] = spread(b, d, x->shape);
        return;
    case OP_reshape:
        if (wants(&in[0])) into[0] = shaped(b, d, x->shape);
        return;
    case OP_matmul: {
        int64_t ta = attr_get(n, "ta"), tb = attr_get(n, "tb");
        struct value *w = in[1].value;
        if (wants(&in[0])) into[0] = ta ? product(b, w, d, tb, 1, x) : product(b, d, w, 0, !tb, x);
        if (wants(&in[1])) into[1] = tb ? product(b, d, x, 1, ta, w) : product(b, x, d, !ta, 0, w);
        return;
    }
    case OP_embedding:
        if (wants(&in[1]))
            into[1] = build_op(b, OP_embedding_grad, (struct operand[]){in[0], by(d)}, 2,
                               (struct attr[]){attr_whole("rows", in[1].value->shape.dim[0])}, 1);
        return;
    case OP_attention: {
        if (!d) return;
        const char *why = NULL;
        struct operand all[] = {
            in[0], in[1], in[2], by(n->out[0]), by(n->out[1]), by(d), n->n_in > 3 ? in[3] : num(0)};
        struct attr attr[ATTENTION_ATTRIBUTES + 1];
        int n_attr = 0;
        for (; n_attr < n->n_attr; n_attr++) attr[n_attr] = n->attr[n_attr];
        int64_t room = attention_room(&b->graph->facts, n);
        if (room) attr[n_attr++] = attr_whole("room", room);
        struct node *g = build_node(b, OP_attention_grad, all, n->n_in + 3, attr, n_attr, &why);
        if (!g) bug("attention's gradient: %s", why);
        for (int i = 0; i < 3; i++) into[i] = g->out[i];
        return;
    }
    /* the inverse of spreading rows over experts is collecting them, and the other way round */
    case OP_dispatch:
    case OP_to_rows:
    case OP_collect:
    case OP_from_rows: {
        bool spreads = n->op == OP_dispatch || n->op == OP_to_rows;
        enum op inverse = n->op == OP_dispatch  ? OP_collect
                          : n->op == OP_collect ? OP_dispatch
                          : n->op == OP_to_rows ? OP_from_rows
                                                : OP_to_rows;
        int64_t k = n->op == OP_to_rows ? x->shape.dim[1] : attr_get(n, "k");
        struct attr attr[] = {attr_whole("k", k)};
        if (wants(&in[0]))
            into[0] = build_op(b, inverse, (struct operand[]){by(d), in[1]}, 2, attr,
                               spreads || n->op == OP_collect);
        return;
    }
    case OP_expert_matmul: {
        int64_t ta = attr_get(n, "ta");
        if (wants(&in[0]))
            into[0] = build_op(b, OP_expert_matmul, (struct operand[]){by(d), in[1], in[2]}, 3,
                               (struct attr[]){attr_whole("ta", !ta)}, 1);
        if (wants(&in[1]))
            into[1] =
                build_op(b, OP_expert_matmul_grad,
                         (struct operand[]){by(ta ? x : d), by(ta ? d : x), in[2]}, 3, NULL, 0);
        return;
    }
    /* constants for the gradient, and ops that only backward, update and lanes have */
    case OP_min:
    case OP_finite:
    case OP_sign:
    case OP_valid:
    case OP_max_last:
    case OP_top_k:
    case OP_route_plan:
    case OP_load:
    case OP_positions:
    case OP_part:
    case OP_put_part:
    case OP_matmul_add:
    case OP_zeros:
    case OP_scalar:
    case OP_metric_sum:
    case OP_batch:
    case OP_state:
    case OP_decay:
    case OP_lr_scale:
    case OP_balance_mean:
    case OP_balance_rate:
    case OP_rope_cos:
    case OP_rope_sin:
    case OP_sum_middle:
    case OP_embedding_grad:
    case OP_attention_grad:
    case OP_expert_matmul_grad:
    case OP_sum_squares:
    case OP_sum_ranks:
    case OP_assign:
    case OP_assign_scalar:
    case OP_metric:
    case OP_balance:
    case OP_tap:
    case OP_use:
    case OP_reduce:
    case OP_gather:
    case OP_wait: return;
    case OP_COUNT: break;
    }
    bug("op %d", (int)n->op);
#undef TO
}
