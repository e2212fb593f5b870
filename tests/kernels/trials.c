/* What every op of ops.def is tried on: shapes, types and attributes. */
#include "trials.h"

#include <math.h>
#include <string.h>

struct trials trials;

static double uniform(double low, double high)
{
    trials.state = trials.state * 6364136223846793005u + 1442695040888963407u;
    return low + (high - low) * (double)(trials.state >> 11) / 9007199254740992.0;
}

static struct shape shape(int64_t a, int64_t b, int64_t c)
{
    int64_t dim[3] = {a, b, c};
    return shape_of(c ? 3 : b ? 2 : 1, dim);
}

static struct operand given(enum element type, struct shape s, double low, double high)
{
    struct value *v = value_new(trials.g, intern_format("in%d", trials.given++), type, s);
    PUSH(&trials.g->input, v);
    struct numbers *x = numbers_of(v);
    for (int64_t i = 0; i < x->n; i++)
        x->x[i] = type == I32 ? floor(uniform(low, high)) : as_stored(type, uniform(low, high));
    return by(v);
}

static struct operand f32(int64_t a, int64_t b, int64_t c)
{
    return given(F32, shape(a, b, c), -2, 2);
}
/* Of the type that core ops are on trial in. */
static struct operand floats(int64_t a, int64_t b, int64_t c)
{
    return given(trials.type, shape(a, b, c), -2, 2);
}

static struct node *node(enum op op, const struct operand *in, int n_in, const struct attr *attr,
                         int n_attr)
{
    const char *why = NULL;
    struct node *n = build_node(&trials.b, op, in, n_in, attr, n_attr, &why);
    if (!n) bug("%s: %s", op_rows[op].name, why);
    return n;
}

static struct operand first(struct node *n) { return by(n->out[0]); }

static bool is_real(enum element type) { return type == F32 || type == BF16; }

/* The last node built is the one on trial; its gradient follows it (not when it is `large`:
 * differences take long). */
static void trial(const char *what, struct node *n)
{
    const char *type = trials.type == BF16 ? ".bf16" : "";
    struct trial x = {
        .op = n->op,
        .name = text_format("%s%s%s%s", op_rows[n->op].name, what[0] ? "." : "", what, type)};
    x.last = trials.b.body->node.n - 1;
    x.first = trials.trial.n ? trials.trial.item[trials.trial.n - 1].end : 0;
    bool differentiable = n->n_out > 0 && strcmp(what, "large");
    for (int i = 0; i < n->n_out; i++) differentiable &= is_real(n->out[i]->type);
    if (differentiable) {
        for (int i = 0; i < n->n_out; i++)
            x.seed[i] = n->op == OP_attention && i
                            ? NULL
                            : given(n->out[i]->type, n->out[i]->shape, -1, 1).value;
        for (int i = 0; i < n->n_in; i++) /* a table needs none */
            if (n->in[i].value)
                n->in[i].value->mark =
                    is_real(n->in[i].value->type) && !(i && !strcmp(what, "repeated"));
        op_gradient(&trials.b, n, x.seed, x.into);
    }
    x.end = trials.b.body->node.n;
    PUSH(&trials.trial, x);
}

/* ── the trials ──────────────────────────────────────────────────────────────── */
static void map_trials(enum op op)
{
    bool positive = op == OP_log || op == OP_sqrt || op == OP_rsqrt || op == OP_div;
    double low = positive ? 0.3 : -2, high = 2;
    int operands = op_rows[op].operands;
    static const struct {
        const char *name;
        int64_t a[3], b[3];
    } form[] = {{"", {7, 37, 0}, {7, 37, 0}},
                {"row", {7, 37, 0}, {7, 1, 0}},
                {"column", {7, 37, 0}, {37, 0, 0}},
                {"one", {7, 37, 0}, {1, 0, 0}},
                {"vector", {100, 0, 0}, {100, 0, 0}},
                {"stat", {50, 1, 0}, {50, 1, 0}},
                {"repeated", {12, 3, 10}, {4, 1, 10}},
                {"heads", {4, 3, 16}, {4, 3, 1}},
                {"spread_first", {1, 16, 0}, {5, 16, 0}}};
    for (size_t i = 0; i < COUNT_OF(form); i++) {
        struct shape a = shape(form[i].a[0], form[i].a[1], form[i].a[2]),
                     b = shape(form[i].b[0], form[i].b[1], form[i].b[2]);
        if (operands == 1 && i != 0 && i != 4 && i != 5) continue;
        struct operand in[3] = {given(F32, a, low, high), given(F32, b, low, high),
                                given(F32, a, low, high)};
        if (op == OP_select) {
            in[0] = given(F32, b, low, high);
            in[1] = given(F32, a, low, high);
            for (int64_t k = 0; k < numbers_of(in[0].value)->n; k += 2)
                numbers_of(in[0].value)->x[k] = 0;
        }
        trial(form[i].name, node(op, in, operands, NULL, 0));
    }
    if (operands == 2) {
        trial("number_right",
              node(op, (struct operand[]){given(F32, shape(9, 17, 0), low, high), num(0.7)}, 2,
                   NULL, 0));
        trial("number_left",
              node(op, (struct operand[]){num(1.3), given(F32, shape(9, 17, 0), low, high)}, 2,
                   NULL, 0));
    }
    if (op == OP_sigmoid)
        trial("for_bf16", node(op, (struct operand[]){given(F32, shape(7, 150, 0), -9, 9)}, 1,
                               (struct attr[]){attr_word("accuracy", "bf16")}, 1));
    for (int k = 0; k < 2 && op != OP_select; k++) {
        enum element type = k ? F64 : BF16;
        struct operand in[2] = {given(type, shape(6, 35, 0), low, high),
                                given(type, shape(6, 35, 0), low, high)};
        trial(k ? "f64" : "bf16", node(op, in, operands, NULL, 0));
    }
}

/* Every way to spread over the axes of [4, 3, 2, 5], and a first axis that repeats: the kernel of
 * the product, and those that sum its gradient up again. */
static void broadcast_trials(void)
{
    static const int64_t all[] = {4, 3, 2, 5};
    for (int rank = 1; rank <= 4; rank++)
        for (int spread = 0; spread < 1 << rank; spread++)
            for (int half = 0; half < (rank == 4 && !(spread & 1) ? 2 : 1); half++) {
                struct shape s = {.rank = rank};
                for (int i = 0; i < rank; i++) s.dim[i] = spread >> i & 1 ? 1 : all[4 - rank + i];
                if (half) s.dim[0] = 2;
                struct operand in[] = {given(F32, shape_of(4, all), -2, 2), given(F32, s, -2, 2)};
                trial(text_format("spread.%s", shape_text(s)), node(OP_mul, in, 2, NULL, 0));
            }
}

static void cast_trials(void)
{
    static const struct {
        const char *name, *to;
        enum element from;
    } row[] = {
        {"down", "bf16", F32}, {"up", "f32", BF16}, {"narrow", "f32", F64}, {"same", "f32", F32}};
    for (size_t i = 0; i < COUNT_OF(row); i++)
        trial(row[i].name,
              node(OP_cast, (struct operand[]){given(row[i].from, shape(5, 33, 0), -2, 2)}, 1,
                   (struct attr[]){attr_word("to", row[i].to)}, 1));
}

static void expand_trials(void)
{
    static const int64_t from[][3] = {{1, 0, 0}, {8, 1, 0}, {30, 0, 0}, {4, 1, 0}};
    static const int64_t to[][3] = {{8, 30, 0}, {8, 30, 0}, {8, 30, 0}, {4, 1, 0}};
    for (int i = 0; i < 4; i++) {
        struct attr attr[] = {attr_whole("d0", to[i][0]), attr_whole("d1", to[i][1])};
        trial(text_format("%d", i),
              node(OP_expand, (struct operand[]){f32(from[i][0], from[i][1], 0)}, 1, attr, 2));
    }
}

static void index_trials(enum op op)
{
    switch ((int)op) {
    case OP_rotate:
        trial("", node(op, (struct operand[]){f32(6, 3, 64)}, 1, NULL, 0));
        trial("narrow", node(op, (struct operand[]){f32(6, 3, 10)}, 1, NULL, 0));
        trial("part", node(op, (struct operand[]){f32(6, 3, 64)}, 1,
                           (struct attr[]){attr_whole("width", 16)}, 1));
        trial("odd part", node(op, (struct operand[]){f32(6, 3, 27)}, 1,
                               (struct attr[]){attr_whole("width", 10)}, 1));
        return;
    case OP_slice:
        trial("", node(op, (struct operand[]){f32(6, 96, 0)}, 1,
                       (struct attr[]){attr_whole("from", 32), attr_whole("to", 64)}, 2));
        trial("odd", node(op, (struct operand[]){f32(6, 31, 0)}, 1,
                          (struct attr[]){attr_whole("from", 3), attr_whole("to", 30)}, 2));
        return;
    case OP_pad:
        trial("", node(op, (struct operand[]){f32(6, 32, 0)}, 1,
                       (struct attr[]){attr_whole("from", 32), attr_whole("total", 96)}, 2));
        trial("odd", node(op, (struct operand[]){f32(6, 27, 0)}, 1,
                          (struct attr[]){attr_whole("from", 3), attr_whole("total", 31)}, 2));
        trial("start", node(op, (struct operand[]){f32(6, 27, 0)}, 1,
                            (struct attr[]){attr_whole("from", 0), attr_whole("total", 31)}, 2));
        return;
    case OP_beside:
        trial("", node(op, (struct operand[]){f32(6, 32, 0), f32(6, 32, 0)}, 2, NULL, 0));
        trial("odd", node(op, (struct operand[]){f32(6, 27, 0), f32(6, 27, 0)}, 2, NULL, 0));
        trial("one", node(op, (struct operand[]){f32(6, 1, 0), f32(6, 1, 0)}, 2, NULL, 0));
        return;
    case OP_onehot:
        trial("", node(op, (struct operand[]){given(I32, shape(9, 0, 0), 0, 33), f32(9, 1, 0)}, 2,
                       (struct attr[]){attr_whole("columns", 33)}, 1));
        return;
    case OP_put:
        trial("", node(op,
                       (struct operand[]){first(node(OP_top_k, (struct operand[]){f32(9, 12, 0)}, 1,
                                                     (struct attr[]){attr_whole("k", 3)}, 1)),
                                          f32(9, 3, 0)},
                       2, (struct attr[]){attr_whole("columns", 12)}, 1));
        return;
    case OP_pick:
        trial("", node(op, (struct operand[]){f32(9, 33, 0), given(I32, shape(9, 0, 0), 0, 33)}, 2,
                       NULL, 0));
        trial("outside",
              node(op, (struct operand[]){f32(40, 33, 0), given(I32, shape(40, 0, 0), -5, 40)}, 2,
                   NULL, 0));
        return;
    case OP_load: {
        struct operand starts = given(I32, shape(6, 0, 0), 0, 1);
        for (int i = 0, at = 0; i < 6; at += i++ % 3) numbers_of(starts.value)->x[i] = at;
        trial("", node(op, (struct operand[]){starts}, 1, NULL, 0));
        return;
    }
    case OP_take:
        trial("", node(op,
                       (struct operand[]){f32(9, 12, 0),
                                          first(node(OP_top_k, (struct operand[]){f32(9, 12, 0)}, 1,
                                                     (struct attr[]){attr_whole("k", 3)}, 1))},
                       2, NULL, 0));
        return;
    }
}

static void reduction_trials(enum op op)
{
    static const int64_t form[][3] = {{7, 64, 0}, {7, 37, 0},   {5, 3, 10}, {100, 1, 0},
                                      {33, 0, 0}, {3, 1000, 0}, {1, 48, 0}};
    for (size_t i = 0; i < COUNT_OF(form); i++)
        trial(text_format("%zu", i),
              node(op, (struct operand[]){f32(form[i][0], form[i][1], form[i][2])}, 1, NULL, 0));
}

/* Rows of a few threads up to those of several warps; one choice, some, all; ties, NaN. */
static void top_trials(void)
{
    static const int64_t form[][3] = {{7, 5, 2},   {9, 1, 1},    {6, 16, 16},
                                      {5, 128, 8}, {3, 300, 11}, {2, 1000, 3}};
    for (size_t i = 0; i < COUNT_OF(form); i++)
        for (int ties = 0; ties < 2; ties++) {
            struct operand p = f32(form[i][0], form[i][1], 0);
            for (int64_t x = 0; x < form[i][0] * form[i][1] && ties; x++)
                numbers_of(p.value)->x[x] = x % 7 == 3    ? NAN
                                            : x % 11 == 5 ? -INFINITY
                                                          : (double)(x % 3);
            trial(text_format("%zu%s", i, ties ? " ties" : ""),
                  node(OP_top_k, (struct operand[]){p}, 1,
                       (struct attr[]){attr_whole("k", form[i][2])}, 1));
        }
}

static void matmul_trials(void)
{
    for (int ta = 0; ta < 2; ta++)
        for (int tb = 0; tb < 2; tb++)
            for (int to = 0; to < (trials.type == BF16 ? 2 : 1); to++)
                trial(text_format("%d%d%s", ta, tb, to ? ".rounded" : ""),
                      node(OP_matmul,
                           (struct operand[]){ta ? floats(13, 7, 0) : floats(7, 13, 0),
                                              tb ? floats(19, 13, 0) : floats(13, 19, 0)},
                           2,
                           (struct attr[]){attr_whole("ta", ta), attr_whole("tb", tb),
                                           attr_word("to", to ? "bf16" : "f32")},
                           3));
    if (trials.type == F32) return;
    /* one operand of each type, and more rows, columns and depth than a panel and the tile of sums
     * have */
    for (int form = 0; form < 8; form++) {
        int ta = form & 1, tb = form >> 1 & 1, swap = form >> 2;
        struct operand a = given(swap ? F32 : BF16, shape(ta ? 300 : 9, ta ? 9 : 300, 0), -0.5,
                                 0.5),
                       b = given(swap ? BF16 : F32, shape(tb ? 11 : 300, tb ? 300 : 11, 0), -0.5,
                                 0.5);
        trial("large", node(OP_matmul, (struct operand[]){a, b}, 2,
                            (struct attr[]){attr_whole("ta", ta), attr_whole("tb", tb),
                                            attr_word("to", form % 3 ? "bf16" : "f32")},
                            3));
    }
    trial("large",
          node(OP_matmul, (struct operand[]){floats(700, 20, 0), floats(20, 600, 0)}, 2,
               (struct attr[]){attr_whole("ta", 0), attr_whole("tb", 0), attr_word("to", "bf16")},
               3));
    trial("large",
          node(OP_matmul, (struct operand[]){floats(20, 530, 0), f32(520, 20, 0)}, 2,
               (struct attr[]){attr_whole("ta", 1), attr_whole("tb", 1), attr_word("to", "bf16")},
               3));
}

static void attention_trials(void)
{
    /* rows, heads, key heads, width, sequence; window, longest document; scale, cap */
    static const struct {
        int64_t size[5], window, document;
        double scale, softcap;
    } form[] = {{{38, 6, 3, 10, 19}, 0, 0, 0, 0},      {{16, 2, 2, 8, 8}, 0, 0, 0, 0},
                {{150, 2, 1, 16, 150}, 0, 0, 0, 0},    {{600, 1, 1, 4, 300}, 0, 0, 0, 0},
                {{150, 2, 1, 16, 75}, 1, 0, 0, 0},     {{600, 1, 1, 4, 300}, 7, 0, 0, 1.5},
                {{340, 2, 1, 8, 340}, 90, 0, 0.25, 0}, {{150, 2, 1, 16, 150}, 0, 0, 0.5, 2},
                {{400, 2, 2, 4, 200}, 0, 9, 0, 0},     {{700, 1, 1, 8, 350}, 60, 300, 0.1, 3},
                {{170, 3, 1, 48, 85}, 0, 0, 0, 0},     {{297, 1, 1, 16, 297}, 101, 130, 0, 0},
                {{347, 1, 1, 32, 347}, 0, 40, 0, 2}};
    for (size_t i = 0; i < COUNT_OF(form); i++) {
        const int64_t *s = form[i].size;
        struct operand in[] = {floats(s[0], s[1], s[3]), floats(s[0], s[2], s[3]),
                               floats(s[0], s[2], s[3]), num(0)};
        struct attr attr[4] = {attr_whole("sequence", s[4])};
        int n_attr = 1;
        if (form[i].window) attr[n_attr++] = attr_whole("window", form[i].window);
        if (form[i].scale > 0) attr[n_attr++] = attr_real("scale", form[i].scale);
        if (form[i].softcap > 0) attr[n_attr++] = attr_real("softcap", form[i].softcap);
        if (form[i].document) {
            in[3] = given(I32, shape(s[0], 0, 0), 0, 1);
            double *starts = numbers_of(in[3].value)->x;
            for (int64_t t = 0, left = 0; t < s[0]; t++) {
                bool begins = t % s[4] == 0 || left == 0;
                if (begins) left = (int64_t)uniform(1, (double)form[i].document + 1);
                starts[t] = begins ? (double)t : starts[t - 1];
                left--;
            }
        }
        trial(text_format("%zu", i),
              node(OP_attention, in, form[i].document ? 4 : 3, attr, n_attr));
    }
}

static void expert_trials(enum op op)
{
    enum { T = 11, E = 5, K = 2, A = 8, B = 12, WIDE = 83 };
    struct attr k[] = {attr_whole("k", K)}, experts[] = {attr_whole("experts", E)};
    struct operand p = f32(T, E, 0);
    /* nobody chooses expert 3 */
    for (int i = 0; i < T; i++) numbers_of(p.value)->x[i * E + 3] = -9;
    struct node *chosen = node(OP_top_k, (struct operand[]){p}, 1, k, 1);
    struct node *plan = node(OP_route_plan, (struct operand[]){first(chosen)}, 1, experts, 1);
    struct operand place = by(plan->out[0]), starts = by(plan->out[1]);
    switch ((int)op) {
    case OP_route_plan: trial("", plan); return;
    case OP_dispatch:
        trial("", node(op, (struct operand[]){floats(T, A, 0), place}, 2, k, 1));
        trial("wide", node(op, (struct operand[]){floats(T, WIDE, 0), place}, 2, k, 1));
        return;
    case OP_collect:
        trial("", node(op, (struct operand[]){floats(T * K, A, 0), place}, 2, k, 1));
        trial("wide", node(op, (struct operand[]){floats(T * K, WIDE, 0), place}, 2, k, 1));
        return;
    case OP_to_rows:
        trial("", node(op, (struct operand[]){f32(T, K, 0), place}, 2, NULL, 0));
        return;
    case OP_from_rows:
        trial("", node(op, (struct operand[]){f32(T * K, 1, 0), place}, 2, k, 1));
        return;
    case OP_expert_matmul:
        trial("", node(op, (struct operand[]){floats(T * K, A, 0), floats(E, B, A), starts}, 3,
                       (struct attr[]){attr_whole("ta", 0)}, 1));
        trial("transposed",
              node(op, (struct operand[]){floats(T * K, A, 0), floats(E, A, B), starts}, 3,
                   (struct attr[]){attr_whole("ta", 1)}, 1));
        return;
    case OP_expert_matmul_grad:
        trial("", node(op, (struct operand[]){floats(T * K, B, 0), floats(T * K, A, 0), starts}, 3,
                       NULL, 0));
        return;
    }
}

static void rope_trials(enum op op)
{
    static const char *const name[] = {"", "llama3", "part", "linear"};
    for (int i = 0; i < 4; i++) {
        struct attr attr[8] = {attr_whole("sequence", 50), attr_whole("d", 16),
                               attr_real("theta", 10000),  attr_real("factor", i == 1 ? 8 : 1),
                               attr_real("low", 1),        attr_real("high", 4),
                               attr_real("original", 64)};
        attr[7] = i == 2 ? attr_whole("width", 6) : attr_real("linear", 8);
        trial(name[i], node(op, NULL, 0, attr, i < 2 ? 7 : 8));
    }
    struct attr yarn[] = {attr_whole("sequence", 50),  attr_whole("d", 16),
                          attr_real("theta", 10000),   attr_real("yarn", 4),
                          attr_real("from", 1),        attr_real("to", 3),
                          attr_real("magnitude", 1.2), attr_whole("width", 12)};
    trial("yarn", node(op, NULL, 0, yarn, 7));
    trial("yarn_part", node(op, NULL, 0, yarn, 8));
}

bool elsewhere(enum op op)
{
    switch (op) {
    case OP_state:
    case OP_decay:
    case OP_lr_scale:
    case OP_balance_mean:
    case OP_balance_rate:
    case OP_scalar:
    case OP_metric_sum:
    case OP_zeros:
    case OP_sum_squares:
    case OP_assign:
    case OP_assign_scalar:
    case OP_metric:
    case OP_part:
    case OP_put_part:
    case OP_sum_ranks:
    case OP_balance:
    case OP_tap:
    case OP_batch:
    case OP_use:
    case OP_reduce:
    case OP_gather:
    case OP_wait: return true;
    default: return false; /* the trials below say what they do not know */
    }
}

void trials_of(enum op op)
{
    switch ((int)op) {
    case OP_cast: cast_trials(); return;
    case OP_expand: expand_trials(); return;
    case OP_valid:
        trial("", node(op, (struct operand[]){given(I32, shape(40, 0, 0), 0, 4)}, 1,
                       (struct attr[]){attr_whole("ignore", 2)}, 1));
        return;
    case OP_rotate:
    case OP_slice:
    case OP_pad:
    case OP_beside:
    case OP_onehot:
    case OP_put:
    case OP_pick:
    case OP_load:
    case OP_take: index_trials(op); return;
    case OP_top_k: top_trials(); return;
    case OP_sum_last:
    case OP_max_last:
    case OP_sum_rows:
    case OP_sum_all: reduction_trials(op); return;
    case OP_reshape: { /* seen through: by the op that reads it */
        struct attr attr[] = {attr_whole("d0", 6), attr_whole("d1", 20)};
        struct node *view = node(op, (struct operand[]){f32(12, 10, 0)}, 1, attr, 2);
        trial("", node(OP_neg, (struct operand[]){first(view)}, 1, NULL, 0));
        return;
    }
    case OP_positions: {
        struct operand starts = given(I32, shape(50, 0, 0), 0, 1);
        for (int i = 0; i < 50; i++) numbers_of(starts.value)->x[i] = i - i % 7;
        trial("starts", node(op, &starts, 1, NULL, 0));
        trial("", node(op, NULL, 0,
                       (struct attr[]){attr_whole("tokens", 40), attr_whole("sequence", 8)}, 2));
        return;
    }
    case OP_rope_cos:
    case OP_rope_sin: rope_trials(op); return;
    case OP_matmul: matmul_trials(); return;
    case OP_matmul_add: { /* in place: result and last operand are one buffer */
        struct node *n =
            node(op, (struct operand[]){floats(13, 7, 0), floats(13, 19, 0), f32(7, 19, 0)}, 3,
                 (struct attr[]){attr_whole("ta", 1), attr_whole("tb", 0)}, 2);
        trial("", n);
        return;
    }
    case OP_embedding:
        trial("",
              node(op, (struct operand[]){given(I32, shape(30, 0, 0), 0, 11), floats(11, 24, 0)}, 2,
                   NULL, 0));
        return;
    case OP_embedding_grad:
        trial("",
              node(op, (struct operand[]){given(I32, shape(30, 0, 0), 0, 11), floats(30, 24, 0)}, 2,
                   (struct attr[]){attr_whole("rows", 11)}, 1));
        return;
    case OP_mul:
        map_trials(op);
        broadcast_trials();
        return;
    case OP_sum_middle:
        trial("", node(op, (struct operand[]){f32(7, 5, 37)}, 1, NULL, 0));
        trial("one", node(op, (struct operand[]){f32(7, 1, 3)}, 1, NULL, 0));
        return;
    case OP_attention: attention_trials(); return;
    case OP_attention_grad: return; /* the gradient of every attention trial */
    default: break;
    }
    if (op_rows[op].class == CLASS_MAP)
        map_trials(op);
    else if (op_rows[op].class == CLASS_CORE)
        expert_trials(op);
}

bool moves_bf16(enum op op)
{
    switch ((int)op) {
    case OP_matmul:
    case OP_matmul_add:
    case OP_embedding:
    case OP_embedding_grad:
    case OP_attention:
    case OP_dispatch:
    case OP_collect:
    case OP_expert_matmul:
    case OP_expert_matmul_grad: return true;
    }
    return false;
}
