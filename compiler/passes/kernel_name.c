/* A kernel's name is read off its nodes. What it works on comes from the architecture's names: the
 * weight of a matrix product or of a norm, the products whose results an activation reads, else
 * the name of its result. What it does comes from its ops: an rsqrt or a gain is a norm, a rotation
 * is rope, and so on. The kind of the computation is the ending: "_grad" for a gradient, "_again"
 * for a second computation. In a body that is a variant the body's name comes first. Two kernels
 * that do the same in one body (two attentions) are numbered in program order. */
#include "passes/kernel_name.h"
#include "passes/layers.h"

#include "passes/name.h"

#include <string.h>

/* One kernel, and where it stands. */
struct group {
    const struct graph *graph;
    const struct region *region;
    const struct body *body;
    VECTOR(const struct node *) node;
    bool grad, again, forward; /* which kinds of nodes it has */
};

/* The product that makes the logits, which `tap` shows; NULL when there is none. */
static const struct node *head_product(const struct graph *g)
{
    for (struct node_walk at = {0}; next_node(g, &at);) {
        const struct node *tap = at.node;
        if (tap->op != OP_tap || strcmp(attr_get_word(tap, "name"), "logits")) continue;
        const struct node *made = value_maker(tap->in[0].value);
        while (made && !op_is_product(made->op) && made->n_in)
            made = value_maker(made->in[0].value);
        return made;
    }
    return NULL;
}

/* ── kernels of one op ───────────────────────────────────────────────────────── */
/* A tied weight is "lm_head" where it makes the logits, and what it is called elsewhere. */
static bool is_head(const struct group *k, const struct weight *w)
{
    const struct node *head = head_product(k->graph);
    if (!head || node_weight(head) != w) return false;
    for (int i = 0; i < k->body->node.n; i++)
        if (k->body->node.item[i] == head) return true;
    return false;
}

static const char *product_name(const struct group *k, const struct node *n)
{
    const struct weight *read = node_weight(n),
                        *w = read ? read : gradient_weight(k->graph, k->body, n->out[0]);
    if (!w)
        return text_format("%s_matmul%s", name_of_value(n->out[0]),
                           node_is_gradient(n) ? "_grad" : "");
    bool experts = n->op == OP_expert_matmul || n->op == OP_expert_matmul_grad;
    const char *layer = name_of_weight(w), *end = strstr(layer, "proj");
    if (is_head(k, w))
        layer = "lm_head";
    else if (experts)
        layer = text_format("%s_experts", layer);
    else if (!end || end[4])
        layer = text_format("%s_proj", layer);
    return text_format("%s%s", layer,
                       !node_is_gradient(n) ? ""
                       : read               ? "_grad_input"
                                            : "_grad_weight");
}

static const char *core_name(const struct group *k, const struct node *n)
{
    const char *op = op_rows[n->op].name;
    if (op_is_product(n->op)) return product_name(k, n);
    if (n->op == OP_embedding || n->op == OP_embedding_grad) {
        const struct weight *w =
            n->op == OP_embedding ? node_weight(n) : gradient_weight(k->graph, k->body, n->out[0]);
        const char *name = w ? name_of_weight(w) : "";
        return w && !name_starts(op, name) ? text_format("%s_%s", name, op) : op;
    }
    if (n->op == OP_sum_squares) return text_format("%s_squares", name_cleaned(k->region->name));
    return node_is_gradient(n) && n->op != OP_attention_grad ? text_format("grad_%s", op) : op;
}

/* ── fused kernels ───────────────────────────────────────────────────────────── */
static bool has(const struct group *k, enum op op)
{
    for (int i = 0; i < k->node.n; i++)
        if (k->node.item[i]->op == op) return true;
    return false;
}

static bool all_are(const struct group *k, enum op op)
{
    for (int i = 0; i < k->node.n; i++)
        if (k->node.item[i]->op != op) return false;
    return true;
}

static bool made_here(const struct group *k, const struct value *v)
{
    const struct node *n = value_maker(v);
    return n && n->kernel == k->node.item[0]->kernel;
}

/* Weights that multiply: the gains of norms. Without any, those that are added, or whose gradients
 * are sums made here: biases. */
static struct words gains(const struct group *k)
{
    struct words w = {0};
    for (int i = 0; i < k->node.n; i++)
        for (int x = 0; x < k->node.item[i]->n_in && k->node.item[i]->op == OP_mul; x++) {
            const struct weight *gain = value_weight(k->node.item[i]->in[x].value);
            if (gain && gain->value->shape.rank == 1) words_add(&w, name_of_weight(gain));
        }
    return w;
}

static struct words biases(const struct group *k)
{
    struct words w = {0};
    for (int i = 0; i < k->node.n; i++) {
        const struct node *n = k->node.item[i];
        const struct weight *bias = n->op == OP_add ? node_weight(n) : NULL;
        if (!bias && n->n_out && op_rows[n->op].class == CLASS_COLUMN)
            bias = gradient_weight(k->graph, k->body, n->out[0]);
        if (!bias) continue;
        const char *name = name_of_weight(bias);
        if (name_starts(name, "b_") && name[2]) name = text_format("%s_bias", name + 2);
        words_add(&w, name);
    }
    return w;
}

/* The layers whose results the kernel reads. */
static struct words sources(const struct group *k)
{
    struct words w = {0};
    for (int i = 0; i < k->node.n; i++)
        for (int x = 0; x < k->node.item[i]->n_in; x++) {
            const struct value *v = k->node.item[i]->in[x].value;
            const struct weight *from = v && !made_here(k, v) ? value_layer(v) : NULL;
            if (from) words_add(&w, name_of_weight(from));
        }
    return w;
}

/* Results that nothing in the kernel reads. */
static struct words results(const struct group *k)
{
    struct words w = {0};
    for (int i = 0; i < k->node.n; i++)
        for (int o = 0; o < k->node.item[i]->n_out; o++) {
            bool read = false;
            for (int j = 0; j < k->node.n; j++)
                for (int x = 0; x < k->node.item[j]->n_in; x++)
                    read |= k->node.item[j]->in[x].value == k->node.item[i]->out[o];
            if (!read) words_add(&w, name_of_value(k->node.item[i]->out[o]));
        }
    return w;
}

/* Its only op but casts, or NULL. */
static const char *only_op(const struct group *k)
{
    const char *name = NULL;
    for (int i = 0; i < k->node.n; i++) {
        enum op op = k->node.item[i]->op;
        if (op == OP_cast || op == OP_expand || op_rows[op].class == CLASS_VIEW) continue;
        if (name && name != op_rows[op].name) return NULL;
        name = op_rows[op].name;
    }
    return name;
}

/* The residual stream: the layer's result, added to a value of the same name as the sum. */
static bool adds_residual(const struct group *k)
{
    for (int i = 0; i < k->node.n; i++) {
        const struct node *n = k->node.item[i];
        if (n->op != OP_add || !n->in[0].value || !n->in[1].value) continue;
        for (int x = 0; x < 2; x++) {
            const struct value *stream = n->in[x].value;
            if (!made_here(k, stream) && !value_weight(stream) && !value_layer(stream) &&
                name_stem(stream->name) == name_stem(n->out[0]->name))
                return true;
        }
    }
    return false;
}

/* The activation that the kernel computes, or whose gradient; NULL: none. */
static const char *activation(const struct group *k)
{
    bool cubes = false, halves = false, steep = false;
    for (int i = 0; i < k->node.n; i++)
        for (int x = 0; x < k->node.item[i]->n_in; x++)
            if (!k->node.item[i]->in[x].value) {
                cubes |= k->node.item[i]->in[x].number == 0.044715;
                halves |= k->node.item[i]->in[x].number == 0.5;
                steep |= k->node.item[i]->in[x].number == GELU_STEEPNESS;
            }
    if (has(k, OP_sigmoid) && steep) return "gelu";
    if (has(k, OP_sigmoid)) {
        for (int i = 0; i < k->node.n; i++)
            for (int x = 0; x < k->node.item[i]->n_in && k->node.item[i]->op == OP_mul; x++) {
                const struct node *s = value_maker(k->node.item[i]->in[x].value),
                                  *other = k->node.item[i];
                if (s && s->op == OP_sigmoid && other->in[1 - x].value &&
                    value_maker(other->in[1 - x].value) == value_maker(s->in[0].value))
                    return "silu";
            }
        return "sigmoid";
    }
    if (has(k, OP_tanh)) return cubes ? "gelu" : "tanh";
    if (has(k, OP_erf)) return halves ? "gelu" : "erf";
    if (has(k, OP_exp)) return has(k, OP_sum_last) ? "softmax" : "exp";
    return has(k, OP_div) && has(k, OP_sum_last) && !k->grad ? "normalize" : NULL;
}

/* In the order of the forward pass. */
static struct words rotated(const struct group *k)
{
    struct words w = {0};
    for (int i = 0; i < k->node.n; i++) {
        const struct node *n = k->node.item[k->grad ? k->node.n - 1 - i : i];
        if (n->op == OP_rotate) words_add(&w, name_of_value(n->out[0]));
    }
    return w;
}

static struct words metrics(const struct group *k)
{
    struct words w = {0};
    for (int i = 0; i < k->node.n; i++)
        if (k->node.item[i]->op == OP_metric)
            words_add(&w, name_cleaned(attr_get_word(k->node.item[i], "name")));
    return w;
}

/* Zeros with a place of their own. */
static bool only_clears(const struct group *k)
{
    for (int i = 0; i < k->node.n; i++) {
        const struct node *from = value_maker(k->node.item[i]->in[0].value);
        if (k->node.item[i]->op != OP_copy || !from || from->op != OP_zeros) return false;
    }
    return true;
}

/* More than three words are no name: the last one will do. */
static const char *short_name(struct words w)
{
    if (w.item.n > 3) w.item.item[0] = w.item.item[w.item.n - 1], w.item.n = 1;
    return words_joined(&w);
}

static const char *fused_name(const struct group *k)
{
    struct words gain = gains(k), bias = biases(k), from = sources(k);
    const char *active = activation(k), *only = only_op(k), *region = name_cleaned(k->region->name);
    if (has(k, OP_pick) || has(k, OP_onehot)) return "lm_head_loss";
    if (gain.item.n) {
        struct words w = {0};
        if (!k->grad && adds_residual(k)) words_add(&w, "residual");
        for (int i = 0; i < gain.item.n; i++) words_add(&w, gain.item.item[i]);
        if (has(k, OP_rotate)) words_add(&w, "rope");
        return words_joined(&w);
    }
    if (has(k, OP_rotate)) {
        struct words w = rotated(k);
        words_add(&w, "rope");
        return words_joined(&w);
    }
    if (active) {
        struct words w = from.item.n ? from : results(k);
        return text_format("%s_%s", short_name(w), active);
    }
    if (has(k, OP_metric)) {
        struct words w = metrics(k);
        return w.item.n > 3 ? "metrics" : text_format("%s_metrics", words_joined(&w));
    }
    if (from.item.n && adds_residual(k)) return text_format("%s_residual", short_name(from));
    if (bias.item.n) return short_name(bias);
    struct words w = only && from.item.n ? from : results(k);
    const char *name = w.item.n ? short_name(w) : region, *does = only_clears(k) ? "zero" : only;
    return does && strcmp(does, name) ? text_format("%s_%s", name, does) : name;
}

/* ── all of them ─────────────────────────────────────────────────────────────── */
static const char *update_name(const struct group *k)
{
    const char *region = name_cleaned(k->region->name);
    if (has(k, OP_assign) || has(k, OP_assign_scalar) || all_are(k, OP_copy)) return region;
    if (k->node.n == 1 && op_rows[k->node.item[0]->op].class == CLASS_CORE)
        return core_name(k, k->node.item[0]);
    for (int i = 0; i < k->node.n; i++) {
        const struct node *first = value_maker(k->node.item[i]->in[0].value);
        if (first && first->op == OP_metric_sum) return text_format("%s_start", region);
    }
    const char *only = only_op(k);
    return text_format("%s_%s", region, only ? only : short_name(results(k)));
}

static const char *name_of(const struct group *k)
{
    if (k->region->phase == PHASE_UPDATE) return update_name(k);
    const struct node *core = NULL;
    for (int i = 0; i < k->node.n && !core; i++)
        if (op_rows[k->node.item[i]->op].class == CLASS_CORE) core = k->node.item[i];
    struct text t = {0};
    if (k->body->name[0]) text_add(&t, "%s_", k->body->name);
    text_add(&t, "%s", core ? core_name(k, core) : fused_name(k));
    if (!core && k->grad) text_add(&t, k->forward ? "_and_grad" : "_grad");
    if (k->again && !k->forward && !k->grad) text_add(&t, "_again");
    return name_cleaned(t.bytes);
}

/* A value of the forward pass or of the gradient that fills its kernel's rows: a number a row that
 * a gradient needs later does not make a norm a gradient. */
static void note_kind(struct group *k, const struct node *n, const struct kernel *of)
{
    if (!n->n_out) return;
    bool fills = of->columns <= 1 || shape_count(n->out[0]->shape) > of->rows ||
                 op_rows[n->op].class == CLASS_CORE;
    k->again |= n->again;
    k->grad |= fills && node_is_gradient(n);
    k->forward |= fills && !node_is_gradient(n) && !n->again;
}

void kernels_name(struct graph *g)
{
    struct group *group = TAKE_MANY(struct group, g->kernel.n + 1);
    for (struct node_walk at = {0}; next_node(g, &at);) {
        const struct node *node = at.node;
        if (!node->kernel) continue;
        struct group *to = &group[node->kernel - 1];
        to->graph = g, to->region = at.region;
        to->body = at.body;
        note_kind(to, node, &g->kernel.item[node->kernel - 1]);
        PUSH(&to->node, node);
    }
    for (int i = 0; i < g->kernel.n; i++) g->kernel.item[i].name = intern(name_of(&group[i]));
    for (int i = 0; i < g->kernel.n; i++) {
        const char *base = g->kernel.item[i].name;
        int same = 1;
        for (int j = 0; j < i; j++) {
            if (g->kernel.item[j].name != g->kernel.item[i].name) continue;
            g->kernel.item[i].name = intern_format("%s_%d", base, ++same);
            j = -1; /* the numbered name may be that of another kernel */
        }
    }
}
