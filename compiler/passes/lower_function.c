/* The functions of architectures: one row each. Arguments are matched and checked by lower_call.c,
 * so the builder of a row sees only valid ones; shapes are checked by the composite layers and the
 * ops. */
#include "passes/lower_function.h"

#include "passes/workspace.h"

#include <string.h>

/* Sums and statistics are FP32 whatever the operand is. */
static struct value *wide(struct lower *l, struct value *v)
{
    if (v->type == F32) return v;
    struct attr to = attr_word("to", "f32");
    return build_op(&l->b, OP_cast, &(struct operand){v, 0}, 1, &to, 1);
}

static struct value *node1(struct lower *l, enum op op, const struct operand *in, int n,
                           const struct attr *attr, int n_attr, const char **why)
{
    struct node *node = build_node(&l->b, op, in, n, attr, n_attr, why);
    return node ? node->out[0] : NULL;
}

#define BUILD(name)                                                             \
    static struct meaning build_##name(struct lower *l, const struct ast *call, \
                                       struct argument *a, const char **why)
#define UNUSED (void)call, (void)why

BUILD(embedding)
{
    UNUSED;
    return lower_value(node1(l, OP_embedding, (struct operand[]){by(a[0].value), by(a[1].value)}, 2,
                             NULL, 0, why));
}
BUILD(linear)
{
    UNUSED;
    return lower_value(layer_linear(&l->b, a[0].value, a[1].value, true, l->g->facts.compute, why));
}
BUILD(matmul)
{
    UNUSED;
    return lower_value(
        layer_linear(&l->b, a[0].value, a[1].value, false, l->g->facts.compute, why));
}
BUILD(rms_norm)
{
    UNUSED;
    return lower_value(
        layer_rms_norm(&l->b, a[0].value, a[1].value, a[2].number, a[3].number, why));
}
BUILD(layer_norm)
{
    UNUSED;
    return lower_value(
        layer_layer_norm(&l->b, a[0].value, a[1].value, a[2].value, a[3].number, why));
}
BUILD(heads_of)
{
    UNUSED;
    return lower_value(layer_heads_of(&l->b, a[0].value, a[1].whole, why));
}
BUILD(merge_heads)
{
    UNUSED;
    return lower_value(layer_merge_heads(&l->b, a[0].value, why));
}
BUILD(rope)
{
    UNUSED;
    const struct rotary r = {.theta = a[1].number,
                             .factor = a[2].number,
                             .low = a[3].number,
                             .high = a[4].number,
                             .original = a[5].number,
                             .width = a[6].whole,
                             .linear = a[7].number,
                             .yarn = a[8].number,
                             .fast = a[9].number,
                             .slow = a[10].number,
                             .magnitude = a[11].number};
    return lower_value(layer_rope(&l->b, a[0].value, &r, why));
}
BUILD(silu)
{
    UNUSED;
    return lower_value(layer_silu(&l->b, a[0].value));
}
BUILD(gelu)
{
    UNUSED;
    return lower_value(layer_gelu(&l->b, a[0].value, false));
}
BUILD(gelu_tanh)
{
    UNUSED;
    return lower_value(layer_gelu(&l->b, a[0].value, true));
}
BUILD(sigmoid)
{
    UNUSED;
    return lower_value(layer_call1(&l->b, OP_sigmoid, a[0].value, why));
}
BUILD(tanh)
{
    UNUSED;
    return lower_value(layer_call1(&l->b, OP_tanh, a[0].value, why));
}
BUILD(softcap)
{
    UNUSED;
    return lower_value(layer_softcap(&l->b, a[0].value, a[1].number));
}
BUILD(exp)
{
    UNUSED;
    return lower_value(layer_call1(&l->b, OP_exp, a[0].value, why));
}
BUILD(sqrt)
{
    UNUSED;
    return lower_value(layer_call1(&l->b, OP_sqrt, a[0].value, why));
}
/* As a number of the compute type: a factor that a trainer in that type multiplies by. */
BUILD(rounded)
{
    UNUSED;
    float x = (float)a[0].number;
    if (l->g->facts.compute == BF16) {
        uint32_t bits;
        memcpy(&bits, &x, sizeof bits);
        bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u;
        memcpy(&x, &bits, sizeof bits);
    }
    return lower_constant(constant_real((double)x));
}
BUILD(cross_entropy)
{
    UNUSED;
    return lower_value(layer_cross_entropy(&l->b, a[0].value, a[1].value, why));
}
BUILD(z_loss)
{
    UNUSED;
    return lower_value(layer_z_loss(&l->b, a[0].value, a[1].value, why));
}
BUILD(logsumexp)
{
    UNUSED;
    return lower_value(layer_log_sum_exp(&l->b, a[0].value));
}
BUILD(dispatch)
{
    UNUSED;
    return lower_value(layer_dispatch(&l->b, a[0].value, a[1].routing, why));
}
BUILD(expert_linear)
{
    UNUSED;
    return lower_value(layer_expert_linear(&l->b, a[0].value, a[1].value, a[2].routing, why));
}
BUILD(combine)
{
    UNUSED;
    return lower_value(layer_combine(&l->b, a[0].value, a[1].routing, why));
}
BUILD(load)
{
    UNUSED;
    return lower_value(layer_load(&l->b, a[0].routing));
}

BUILD(slice)
{
    (void)call;
    struct attr at[] = {attr_whole("from", a[1].whole), attr_whole("to", a[2].whole)};
    return lower_value(node1(l, OP_slice, (struct operand[]){by(a[0].value)}, 1, at, 2, why));
}

/* Router logits are FP32 sums whatever the compute type: a product that goes straight into a
 * softmax, or into f32, is not rounded. */
static void unrounded(struct lower *l, struct value *v)
{
    struct node *n = v->node;
    for (int i = 0; n && n->op == OP_matmul && i < n->n_attr; i++)
        if (n == l->b.body->node.item[l->b.body->node.n - 1] && !strcmp(n->attr[i].key, "to")) {
            n->attr[i] = attr_word("to", element_names[F32]);
            n->out[0]->type = F32;
        }
}
BUILD(softmax)
{
    UNUSED;
    unrounded(l, a[0].value);
    return lower_value(layer_softmax(&l->b, a[0].value));
}
BUILD(f32)
{
    UNUSED;
    unrounded(l, a[0].value);
    return lower_value(wide(l, a[0].value));
}

BUILD(sum)
{
    UNUSED;
    struct value *x = wide(l, a[0].value);
    return lower_value(build1(&l->b,
                              !a[1].axis                   ? OP_sum_all
                              : !strcmp(a[1].axis, "rows") ? OP_sum_rows
                                                           : OP_sum_last,
                              by(x)));
}

static struct value *zeros(struct lower *l, struct shape s)
{
    struct attr attr[SHAPE_RANK];
    return build_op(&l->b, OP_zeros, NULL, 0, attr, attr_dims(attr, s));
}
BUILD(zeros)
{
    UNUSED;
    return lower_value(zeros(l, a[0].shape));
}
BUILD(ones)
{
    UNUSED;
    return lower_value(layer_arith(&l->b, OP_add, by(zeros(l, a[0].shape)), num(1), why));
}

BUILD(route)
{
    (void)call;
    struct meaning m = {.kind = MEANS_ROUTING};
    struct shape s = a[0].value->shape;
    if (l->plan->device == DEVICE_CUDA && s.rank && s.dim[s.rank - 1] > CUDA_EXPERTS) {
        *why = text_format("on cuda up to %d experts can be counted, not %s", CUDA_EXPERTS,
                           text_count(s.dim[s.rank - 1]));
        return lower_nothing();
    }
    return layer_route(&l->b, wide(l, a[0].value), a[1].whole, a[2].truth, a[3].value, &m.routing,
                       why)
               ? m
               : lower_nothing();
}

/* The first weight that goes into a value, nearest first, and the hyper-parameters among its
 * dimensions that are `heads`. */
static void note_heads(struct lower *l, struct diagnostic *d, struct value *v, int64_t heads)
{
    for (int depth = 0; v && depth < 32; depth++) {
        const struct node *n = v->node;
        if (!n) return;
        for (int i = 0; i < n->n_in; i++) {
            const struct declared_weight *w =
                n->in[i].value ? lower_declared(l, n->in[i].value) : NULL;
            if (!w || n->in[i].value->shape.rank < 2) continue;
            for (int h = 0; h < l->plan->n_hyper; h++) {
                const struct hyper *hyper = &l->plan->hyper[h];
                if (!constant_is_whole(&hyper->value) || hyper->value.top != heads ||
                    !lower_mentions(w->dims, hyper->name))
                    continue;
                add_note(d, hyper->at, "%s is %lld", hyper->name, (long long)heads);
                return;
            }
        }
        v = n->n_in ? n->in[0].value : NULL;
    }
}

BUILD(attention)
{
    struct value *q = a[0].value, *k = a[1].value;
    if (q->shape.rank == 3 && k->shape.rank == 3 && q->shape.dim[1] % k->shape.dim[1]) {
        int64_t n = q->shape.dim[1], m = k->shape.dim[1], lower = m;
        struct diagnostic *d = complain(
            call->at,
            "%lld query heads cannot share %lld key heads: %lld / %lld is not a whole number",
            (long long)n, (long long)m, (long long)n, (long long)m);
        note_heads(l, d, q, n);
        note_heads(l, d, k, m);
        if (lower > n) lower = n;
        if (lower > 1 << 20) return lower_nothing(); /* no search of an hour for a hint */
        while (n % lower) lower--;
        add_help(d, "%lld key heads would do", (long long)lower);
        return lower_nothing();
    }
    struct attention_rule rule = {
        .window = a[3].whole, .scale = a[4].number, .softcap = a[5].number};
    return lower_value(layer_attention(&l->b, q, k, a[2].value, rule, why));
}

const struct function lower_functions[] = {
    {"embedding", {{"ids", IDS, NULL}, {"W", VALUE, NULL}}, build_embedding},
    {"linear", {{"x", VALUE, NULL}, {"W", VALUE, NULL}}, build_linear},
    {"matmul", {{"x", VALUE, NULL}, {"W", VALUE, NULL}}, build_matmul},
    {"rms_norm",
     {{"x", VALUE, NULL}, {"g", VALUE, NULL}, {"eps", NUMBER, NULL}, {"offset", NUMBER, "0"}},
     build_rms_norm},
    {"layer_norm",
     {{"x", VALUE, NULL}, {"g", VALUE, NULL}, {"b", VALUE, NULL}, {"eps", NUMBER, NULL}},
     build_layer_norm},
    {"heads_of", {{"x", VALUE, NULL}, {"d", SIZE, NULL}}, build_heads_of},
    {"merge_heads", {{"x", VALUE, NULL}}, build_merge_heads},
    {"rope",
     {{"x", VALUE, NULL},
      {"theta", ABOVE, NULL},
      {"factor", ABOVE, "1"},
      {"low", ABOVE, "1"},
      {"high", ABOVE, "4"},
      {"original", ABOVE, "8192"},
      {"width", SIZE, ""},
      {"linear", ABOVE, "1"},
      {"yarn", ABOVE, "1"},
      {"fast", ABOVE, "32"},
      {"slow", ABOVE, "1"},
      {"magnitude", NUMBER, "0"}},
     build_rope},
    {"attention",
     {{"q", VALUE, NULL},
      {"k", VALUE, NULL},
      {"v", VALUE, NULL},
      {"window", OFFSET, "0"},
      {"scale", ABOVE, "0"},
      {"softcap", NUMBER, "0"}},
     build_attention},
    {"silu", {{"x", VALUE, NULL}}, build_silu},
    {"gelu", {{"x", VALUE, NULL}}, build_gelu},
    {"gelu_tanh", {{"x", VALUE, NULL}}, build_gelu_tanh},
    {"sigmoid", {{"x", VALUE, NULL}}, build_sigmoid},
    {"rounded", {{"x", NUMBER, NULL}}, build_rounded},
    {"tanh", {{"x", VALUE, NULL}}, build_tanh},
    {"softcap", {{"x", VALUE, NULL}, {"c", NUMBER, NULL}}, build_softcap},
    {"exp", {{"x", EITHER, NULL}}, build_exp},
    {"sqrt", {{"x", EITHER, NULL}}, build_sqrt},
    {"softmax", {{"x", VALUE, NULL}}, build_softmax},
    {"f32", {{"x", VALUE, NULL}}, build_f32},
    {"sum", {{"x", VALUE, NULL}, {"over", AXIS, ""}}, build_sum},
    {"slice", {{"x", VALUE, NULL}, {"from", OFFSET, NULL}, {"to", SIZE, NULL}}, build_slice},
    {"route",
     {{"p", VALUE, NULL}, {"k", SIZE, NULL}, {"normalize", TRUTH, NULL}, {"bias", VALUE, ""}},
     build_route},
    {"dispatch", {{"x", VALUE, NULL}, {"r", ROUTING, NULL}}, build_dispatch},
    {"expert_linear",
     {{"z", VALUE, NULL}, {"W", VALUE, NULL}, {"r", ROUTING, NULL}},
     build_expert_linear},
    {"combine", {{"z", VALUE, NULL}, {"r", ROUTING, NULL}}, build_combine},
    {"load", {{"r", ROUTING, NULL}}, build_load},
    {"cross_entropy", {{"logits", VALUE, NULL}, {"targets", IDS, NULL}}, build_cross_entropy},
    {"z_loss", {{"logits", VALUE, NULL}, {"targets", IDS, NULL}}, build_z_loss},
    {"logsumexp", {{"x", VALUE, NULL}}, build_logsumexp},
    {"zeros", {{"shape", SHAPE, NULL}}, build_zeros},
    {"ones", {{"shape", SHAPE, NULL}}, build_ones},
};
const size_t lower_function_count = COUNT_OF(lower_functions);
