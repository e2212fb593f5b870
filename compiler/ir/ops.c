/* The shape rules of all ops: the types and shapes of results that follow from the operands. lower
 * uses them for its error messages, the parser of dumps for its checks and the gradient pass for
 * the nodes that it makes. */
#include "ir/ir.h"

#include <math.h>
#include <string.h>

static const struct attr *find(const struct attr *attr, int n, const char *key)
{
    for (int i = 0; i < n; i++)
        if (!strcmp(attr[i].key, key)) return &attr[i];
    return NULL;
}

static int64_t whole(const struct attr *attr, int n, const char *key, int64_t otherwise)
{
    const struct attr *a = find(attr, n, key);
    return a ? a->whole : otherwise;
}

static struct shape shape1(int64_t a) { return shape_of(1, (int64_t[]){a}); }
static struct shape shape2(int64_t a, int64_t b) { return shape_of(2, (int64_t[]){a, b}); }
static struct shape shape3(int64_t a, int64_t b, int64_t c)
{
    return shape_of(3, (int64_t[]){a, b, c});
}

/* Joins `s` into the broadcast shape `*all`: axes are matched from the last; 1 spreads, and the
 * first axis of an operand of full rank may divide the result's (a table of one sequence against a
 * batch of them). */
static bool broadcast(struct shape *all, struct shape s)
{
    int rank = all->rank > s.rank ? all->rank : s.rank;
    struct shape r = {.rank = rank};
    for (int i = 0; i < rank; i++) {
        int64_t a = i < rank - all->rank ? 1 : all->dim[i - (rank - all->rank)];
        int64_t b = i < rank - s.rank ? 1 : s.dim[i - (rank - s.rank)];
        bool periodic = i == 0 && rank > 1 && all->rank == s.rank && a && b;
        if (a == b || b == 1)
            r.dim[i] = a;
        else if (a == 1)
            r.dim[i] = b;
        else if (periodic && a % b == 0)
            r.dim[i] = a;
        else if (periodic && b % a == 0)
            r.dim[i] = b;
        else
            return false;
    }
    *all = r;
    return true;
}

/* Axes of at least 1, and a number of elements that fits: a text of an IR may say anything. */
static bool shape_fits(struct shape s)
{
    int64_t n = 1;
    for (int i = 0; i < s.rank; i++)
        if (s.dim[i] < 1 || __builtin_mul_overflow(n, s.dim[i], &n)) return false;
    return true;
}

static bool shape_attr(const struct attr *attr, int n, struct shape *s)
{
    s->rank = 0;
    while (s->rank < SHAPE_RANK && find(attr, n, dim_names[s->rank])) {
        s->dim[s->rank] = whole(attr, n, dim_names[s->rank], 0);
        s->rank++;
    }
    return s->rank > 0 && shape_fits(*s);
}

static bool type_attr(const struct attr *attr, int n, enum element *type)
{
    const struct attr *to = find(attr, n, "to");
    if (!to || to->kind != ATTR_WORD) return false;
    int k = 0;
    while (k < ELEMENTS && strcmp(element_names[k], to->word)) k++;
    if (k < ELEMENTS) *type = (enum element)k;
    return k < ELEMENTS;
}

#define NEED(condition, ...)                 \
    do {                                     \
        if (!(condition)) {                  \
            *why = text_format(__VA_ARGS__); \
            return false;                    \
        }                                    \
    } while (0)

static bool infer_map(enum op op, const struct operand *in, int n_in, const struct attr *attr,
                      int n_attr, enum element *type, struct shape *shape, const char **why)
{
    struct shape all = {.rank = 0};
    bool any = false, weights = true;
    for (int i = 0; i < n_in; i++) {
        const struct value *v = in[i].value;
        if (!v) continue;
        struct shape before = all;
        if (!any)
            all = v->shape;
        else if (!broadcast(&all, v->shape)) {
            *why = text_format("%s against %s", shape_text(before), shape_text(v->shape));
            return false;
        }
        /* a weight that is gathered in BF16 is read as the F32 numbers that it holds, beside F32
         * values */
        bool condition = op == OP_select && i == 0, weight = v->weight && v->type == BF16,
             mixes = v->type == F32 ? weights && *type == BF16 : weight && *type == F32;
        if (!condition && any && v->type != *type && op != OP_select && !mixes) {
            *why = "operands of different element types";
            return false;
        }
        /* a condition's, where it chooses between two numbers */
        if (!any || !weight) *type = v->type;
        weights &= weight;
        any = true;
    }
    if (!any) {
        *why = "an operand must be a value";
        return false;
    }
    NEED(op != OP_cast || type_attr(attr, n_attr, type), "no type to cast to (to)");
    if (op == OP_valid) {
        *type = F32;
        all = shape2(shape_count(all), 1);
    }
    NEED(op != OP_expand || shape_attr(attr, n_attr, &all), "no shape to expand to (d0, d1 …)");
    const struct attr *accuracy = find(attr, n_attr, "accuracy");
    NEED(!accuracy || (op == OP_sigmoid && *type == F32 && accuracy->kind == ATTR_WORD &&
                       !strcmp(accuracy->word, element_names[BF16])),
         "only a sigmoid of f32 has an accuracy, which is bf16");
    *shape = all;
    return true;
}

/* a[M,K] b[K,N] with either stored transposed. */
static bool infer_matmul(struct shape a, struct shape b, const struct attr *attr, int n_attr,
                         struct shape *out, const char **why)
{
    bool ta = whole(attr, n_attr, "ta", 0), tb = whole(attr, n_attr, "tb", 0);
    if (a.rank != 2 || b.rank != 2 || a.dim[ta ? 0 : 1] != b.dim[tb ? 1 : 0]) {
        *why = text_format("%s%s against %s%s", shape_text(a), ta ? " transposed" : "",
                           shape_text(b), tb ? " transposed" : "");
        return false;
    }
    *out = shape2(a.dim[ta ? 1 : 0], b.dim[tb ? 0 : 1]);
    return true;
}

/* The attributes of struct attention_rule, and its operand where there is one. */
static bool infer_rule(const struct attr *attr, int n_attr, const struct value *starts,
                       int64_t tokens, const char **why)
{
    static const char *const factor[] = {"scale", "softcap"};
    const struct attr *window = find(attr, n_attr, "window");
    NEED(!window || (window->kind == ATTR_WHOLE && window->whole >= 1),
         "a window that is no whole number of at least 1");
    for (size_t i = 0; i < COUNT_OF(factor); i++) {
        const struct attr *a = find(attr, n_attr, factor[i]);
        NEED(!a || (a->kind == ATTR_REAL && isfinite(a->real) && a->real > 0),
             "%s is no number above 0", factor[i]);
    }
    NEED(!starts || (starts->type == I32 && shape_count(starts->shape) == tokens),
         "starts of documents for other rows");
    return true;
}

static bool infer_attention(struct shape q, struct shape k, struct shape v, const char **why)
{
    if (q.rank != 3 || k.rank != 3 || !shape_same(k, v) || q.dim[0] != k.dim[0] ||
        q.dim[2] != k.dim[2]) {
        *why = text_format("queries %s, keys %s, values %s", shape_text(q), shape_text(k),
                           shape_text(v));
        return false;
    }
    if (q.dim[1] % k.dim[1]) {
        *why = text_format("%lld query heads over %lld key heads: not a whole number each",
                           (long long)q.dim[1], (long long)k.dim[1]);
        return false;
    }
    return true;
}

static bool infer(enum op op, const struct operand *in, int n_in, const struct attr *attr,
                  int n_attr, enum element *type, struct shape *shape, const char **why)
{
    const struct op_row *row = &op_rows[op];
    if (row->operands >= 0 && n_in != row->operands) {
        *why = text_format("%s takes %d operands, not %d", row->name, row->operands, n_in);
        return false;
    }
    if (row->class == CLASS_MAP)
        return infer_map(op, in, n_in, attr, n_attr, &type[0], &shape[0], why);
    for (int i = 0; i < n_in; i++)
        if (!in[i].value) {
            if (op == OP_assign_scalar || op == OP_assign) continue;
            *why = text_format("%s works on values, not on a number", row->name);
            return false;
        }
    const struct value *a = n_in > 0 ? in[0].value : NULL, *b = n_in > 1 ? in[1].value : NULL,
                       *c = n_in > 2 ? in[2].value : NULL;
    struct shape s = a ? a->shape : (struct shape){0};
    int64_t last = shape_columns(s);
    if (row->results > 0) type[0] = a ? a->type : F32;
    switch (op) {
#define MAP(name, ...) case OP_##name:
#include "ir/ops.def"
        bug("map ops are done above");
    case OP_rotate: {
        int64_t width = whole(attr, n_attr, "width", last);
        NEED(width > 0 && width <= last, "columns 0 to %lld of %s", (long long)width,
             shape_text(s));
        NEED(width % 2 == 0, "a last axis of %lld has no half", (long long)width);
        shape[0] = s;
        return true;
    }
    case OP_slice: {
        int64_t from = whole(attr, n_attr, "from", 0), to = whole(attr, n_attr, "to", 0);
        NEED(from >= 0 && from < to && to <= last, "columns %lld to %lld of %s", (long long)from,
             (long long)to, shape_text(s));
        shape[0] = s;
        shape[0].dim[s.rank - 1] = to - from;
        return true;
    }
    case OP_pad:
        shape[0] = s;
        shape[0].dim[s.rank - 1] = whole(attr, n_attr, "total", 0);
        NEED(whole(attr, n_attr, "from", 0) + last <= shape[0].dim[s.rank - 1],
             "padding that is too narrow");
        return true;
    case OP_beside:
        NEED(s.rank > 0 && shape_same(s, b->shape) && a->type == b->type, "%s beside %s",
             shape_text(s), shape_text(b->shape));
        shape[0] = s;
        shape[0].dim[s.rank - 1] = 2 * last;
        return true;
    case OP_onehot:
    case OP_put:
        shape[0] = shape2(s.dim[0], whole(attr, n_attr, "columns", 0));
        type[0] = b->type;
        return true;
    case OP_pick:
        NEED(s.rank == 2 && shape_count(b->shape) == s.dim[0], "%s picked by %s", shape_text(s),
             shape_text(b->shape));
        shape[0] = shape2(s.dim[0], 1);
        return true;
    case OP_take:
        NEED(s.rank == 2 && b->shape.rank == 2 && b->shape.dim[0] == s.dim[0], "%s taken by %s",
             shape_text(s), shape_text(b->shape));
        shape[0] = b->shape;
        return true;
    case OP_sum_last:
    case OP_max_last:
        NEED(s.rank > 0, "nothing to reduce");
        shape[0] = s;
        shape[0].dim[s.rank - 1] = 1;
        return true;
    case OP_sum_rows: shape[0] = shape1(last); return true;
    case OP_sum_all: shape[0] = shape1(1); return true;
    case OP_reshape:
        NEED(shape_attr(attr, n_attr, &shape[0]), "no new shape (d0, d1 …)");
        NEED(shape_count(s) == shape_count(shape[0]), "%s has not as many elements as %s",
             shape_text(s), shape_text(shape[0]));
        return true;
    case OP_part: {
        int64_t count = whole(attr, n_attr, "count", 1);
        NEED(s.rank > 0 && s.dim[0] % count == 0, "%s in %lld parts", shape_text(s),
             (long long)count);
        shape[0] = s;
        shape[0].dim[0] = s.dim[0] / count;
        return true;
    }
    case OP_put_part:
        NEED(s.rank > 0 && a->type == b->type && shape_count(s) % shape_count(b->shape) == 0,
             "%s as a part of %s", shape_text(b->shape), shape_text(s));
        shape[0] = s;
        return true;
    case OP_zeros:
        type[0] = F32;
        NEED(!find(attr, n_attr, "to") || type_attr(attr, n_attr, &type[0]), "no such type (to)");
        NEED(shape_attr(attr, n_attr, &shape[0]), "no shape (d0, d1 …)");
        return true;
    case OP_scalar:
        type[0] = F32;
        shape[0] = shape1(1);
        return true;
    case OP_metric_sum:
        type[0] = F64;
        shape[0] = shape1(1);
        return true;
    case OP_state:
    case OP_decay:
    case OP_lr_scale:
    case OP_balance_mean:
    case OP_balance_rate:
        type[0] = F32;
        shape[0] = shape1(whole(attr, n_attr, "elements", 0));
        return true;
    case OP_positions:
        NEED(n_in == 0 || (n_in == 1 && a->type == I32), "positions of no rows");
        type[0] = I32;
        shape[0] = a ? s : shape1(whole(attr, n_attr, "tokens", 0));
        return true;
    case OP_rope_cos:
    case OP_rope_sin:
        type[0] = F32;
        shape[0] = shape3(whole(attr, n_attr, "sequence", 0), 1, whole(attr, n_attr, "d", 0));
        return true;
    case OP_sum_middle:
        NEED(s.rank == 3 && a->type == F32, "%s of %s has no middle axis to sum over",
             shape_text(s), element_names[a->type]);
        shape[0] = shape3(s.dim[0], 1, last);
        return true;
    case OP_matmul:
        NEED(!find(attr, n_attr, "to") || type_attr(attr, n_attr, &type[0]), "no such type (to)");
        return infer_matmul(s, b->shape, attr, n_attr, &shape[0], why);
    case OP_matmul_add:
        type[0] = F32;
        if (!infer_matmul(s, b->shape, attr, n_attr, &shape[0], why)) return false;
        NEED(c->type == F32 && shape_same(c->shape, shape[0]), "a product of %s added to %s",
             shape_text(shape[0]), shape_text(c->shape));
        return true;
    case OP_embedding:
        NEED(a->type == I32 && b->shape.rank == 2, "embedding of %s by %s", shape_text(b->shape),
             shape_text(s));
        type[0] = b->type;
        shape[0] = shape2(shape_count(s), b->shape.dim[1]);
        return true;
    case OP_embedding_grad:
        type[0] = F32;
        shape[0] = shape2(whole(attr, n_attr, "rows", 0), shape_columns(b->shape));
        return true;
    case OP_attention:
        NEED(n_in == 3 || n_in == 4, "attention takes 3 or 4 operands, not %d", n_in);
        if (!infer_attention(s, b->shape, c->shape, why) ||
            !infer_rule(attr, n_attr, n_in > 3 ? in[3].value : NULL, s.dim[0], why))
            return false;
        NEED(s.dim[0] % whole(attr, n_attr, "sequence", 1) == 0,
             "rows that are not whole sequences");
        shape[0] = s;
        type[1] = F32;
        shape[1] = shape2(s.dim[0], s.dim[1]);
        return true;
    case OP_attention_grad:
        NEED(n_in == 6 || n_in == 7, "attention_grad takes 6 or 7 operands, not %d", n_in);
        if (!infer_rule(attr, n_attr, n_in > 6 ? in[6].value : NULL, s.dim[0], why)) return false;
        for (int i = 0; i < 3; i++) type[i] = in[i].value->type, shape[i] = in[i].value->shape;
        type[3] = F32;
        NEED(whole(attr, n_attr, "room", 0) >= 0, "room below 0");
        shape[3] = whole(attr, n_attr, "room", 0) > 0
                       ? shape3(s.dim[0], whole(attr, n_attr, "room", 0), last)
                       : shape3(2, whole(attr, n_attr, "sequence", 1), last);
        return true;
    case OP_top_k: {
        int64_t k = whole(attr, n_attr, "k", 0);
        NEED(s.rank == 2 && k >= 1 && k <= last, "%lld of %lld experts", (long long)k,
             (long long)last);
        type[0] = I32;
        shape[0] = shape2(s.dim[0], k);
        return true;
    }
    case OP_route_plan:
        type[0] = type[1] = I32;
        shape[0] = shape1(shape_count(s));
        shape[1] = shape1(whole(attr, n_attr, "experts", 0) + 1);
        return true;
    case OP_load:
        NEED(s.rank == 1 && last > 1 && a->type == I32, "%s is not where experts begin",
             shape_text(s));
        type[0] = F32;
        shape[0] = shape1(last - 1);
        return true;
    case OP_dispatch:
        NEED(s.rank == 2 && shape_count(b->shape) % s.dim[0] == 0, "dispatch of %s over %s",
             shape_text(s), shape_text(b->shape));
        shape[0] = shape2(shape_count(b->shape), last);
        return true;
    case OP_collect:
        NEED(s.rank == 2 && s.dim[0] == shape_count(b->shape), "%s collected from %s",
             shape_text(s), shape_text(b->shape));
        shape[0] = shape2(s.dim[0] / whole(attr, n_attr, "k", 1), last);
        return true;
    case OP_to_rows:
        NEED(s.rank == 2 && shape_count(s) == shape_count(b->shape), "%s over %s", shape_text(s),
             shape_text(b->shape));
        shape[0] = shape2(shape_count(s), 1);
        return true;
    case OP_from_rows:
        shape[0] = shape2(s.dim[0] / whole(attr, n_attr, "k", 1), whole(attr, n_attr, "k", 1));
        return true;
    case OP_expert_matmul: {
        bool ta = whole(attr, n_attr, "ta", 0);
        NEED(s.rank == 2 && b->shape.rank == 3 && b->shape.dim[ta ? 1 : 2] == last &&
                 shape_count(c->shape) == b->shape.dim[0] + 1,
             "%s against experts %s", shape_text(s), shape_text(b->shape));
        shape[0] = shape2(s.dim[0], b->shape.dim[ta ? 2 : 1]);
        return true;
    }
    case OP_expert_matmul_grad:
        type[0] = F32;
        shape[0] = shape3(shape_count(c->shape) - 1, last, shape_columns(b->shape));
        return true;
    case OP_sum_squares:
        type[0] = F64;
        shape[0] = shape1(1);
        return true;
    case OP_sum_ranks: shape[0] = s; return true;
    case OP_assign:
    case OP_assign_scalar:
    case OP_metric:
    case OP_balance:
    case OP_tap:
    case OP_batch:
    case OP_use:
    case OP_reduce:
    case OP_gather:
    case OP_wait: return true;
    case OP_COUNT: break;
    }
    bug("op %d", (int)op);
}

bool op_infer(enum op op, const struct operand *in, int n_in, const struct attr *attr, int n_attr,
              enum element *type, struct shape *shape, const char **why)
{
    static const char *const divisors[] = {"count", "k", "sequence"};
    for (size_t i = 0; i < COUNT_OF(divisors); i++)
        if (whole(attr, n_attr, divisors[i], 1) < 1) {
            *why = text_format("%s: %s must be at least 1", op_rows[op].name, divisors[i]);
            return false;
        }
    if (!infer(op, in, n_in, attr, n_attr, type, shape, why)) return false;
    for (int i = 0; i < op_rows[op].results; i++)
        if (!shape_fits(shape[i])) {
            *why = text_format("%s: a shape of no or of more than 2^63 elements", op_rows[op].name);
            return false;
        }
    return true;
}
