/* The composite layers of the language as functions over primitives, so a norm or a loss needs no
 * kernel, gradient or cost of its own; fusion makes them fast. They keep the numeric contract:
 * operands have the compute type, statistics and sums are F32, and the result of a layer is rounded
 * once to the type in which it is stored. */
#include "ir/ir.h"
#include "passes/layers.h"

#include <math.h>

static struct value *to_type(struct build *b, struct value *x, enum element type)
{
    if (x->type == type) return x;
    return build_op(b, OP_cast, (struct operand[]){by(x)}, 1,
                    (struct attr[]){attr_word("to", element_names[type])}, 1);
}

static struct value *to_f32(struct build *b, struct value *x)
{
    return x->type == BF16 ? to_type(b, x, F32) : x;
}

/* As an operand of F32 arithmetic. A weight is read as it is: one cast of it would be a kernel of
 * its own in every layer. */
static struct operand f32(struct build *b, struct value *x)
{
    return by(x->weight ? x : to_f32(b, x));
}

static bool attr_same(const struct attr *a, const struct attr *b)
{
    return a->key == b->key && a->kind == b->kind &&
           (a->kind == ATTR_WHOLE  ? a->whole == b->whole
            : a->kind == ATTR_REAL ? a->real == b->real
                                   : a->word == b->word);
}

/* The result of a node of b's body that is the same already, else of a new one: two losses over
 * the same logits share what both need. Operands are values, not numbers. */
static struct value *once(struct build *b, enum op op, const struct operand *in, int n_in,
                          const struct attr *attr, int n_attr)
{
    for (int i = 0; i < b->body->node.n; i++) {
        const struct node *n = b->body->node.item[i];
        bool same = n->op == op && n->n_in == n_in && n->n_attr == n_attr;
        for (int k = 0; same && k < n_in; k++) same = in[k].value && n->in[k].value == in[k].value;
        for (int k = 0; same && k < n_attr; k++) same = attr_same(&n->attr[k], &attr[k]);
        if (same) return n->out[0];
    }
    return build_op(b, op, in, n_in, attr, n_attr);
}
static struct value *once1(struct build *b, enum op op, struct value *x)
{
    return once(b, op, (struct operand[]){by(x)}, 1, NULL, 0);
}
static struct value *once2(struct build *b, enum op op, struct value *x, struct value *y)
{
    return once(b, op, (struct operand[]){by(x), by(y)}, 2, NULL, 0);
}

static struct value *reshaped(struct build *b, struct value *x, struct shape s)
{
    struct attr attr[SHAPE_RANK];
    if (shape_same(x->shape, s)) return x;
    return build_op(b, OP_reshape, (struct operand[]){by(x)}, 1, attr, attr_dims(attr, s));
}

static int64_t last_axis(const struct value *x) { return shape_columns(x->shape); }

static bool is_vector(const struct value *g, int64_t n)
{
    return g->shape.rank == 1 && g->shape.dim[0] == n;
}

struct value *layer_arith(struct build *b, enum op op, struct operand x, struct operand y,
                          const char **why)
{
    enum element type = F32;
    for (int i = 0; i < 2; i++) {
        struct operand *o = i ? &y : &x;
        if (!o->value) continue;
        if (o->value->type == I32) {
            *why = "ids are not numbers to calculate with";
            return NULL;
        }
        if (o->value->type == BF16 && !o->value->weight) type = BF16;
        if (o->value->type == BF16) {
            struct operand other = i ? x : y;
            if (!other.value || other.value->type == BF16) type = BF16;
        }
    }
    bool arithmetic = (x.value && !x.value->weight) || (y.value && !y.value->weight);
    if (x.value) x = arithmetic ? f32(b, x.value) : by(to_f32(b, x.value));
    if (y.value) y = arithmetic ? f32(b, y.value) : by(to_f32(b, y.value));
    struct node *n = build_node(b, op, (struct operand[]){x, y}, 2, NULL, 0, why);
    return n ? to_type(b, n->out[0], type) : NULL;
}

/* Of an F32 value; `type`: of what it is computed for, and as exact as that has to be. */
static struct node *function_for(struct build *b, enum op op, struct value *f, enum element type,
                                 const char **why)
{
    const struct attr accuracy = attr_word("accuracy", element_names[BF16]);
    return build_node(b, op, (struct operand[]){by(f)}, 1, &accuracy,
                      op == OP_sigmoid && type == BF16, why);
}

static struct value *sigmoid_for(struct build *b, struct value *f, enum element type)
{
    const char *why = "";
    struct node *n = function_for(b, OP_sigmoid, f, type, &why);
    if (!n) bug("%s: %s", f->name, why);
    return n->out[0];
}

struct value *layer_call1(struct build *b, enum op op, struct value *x, const char **why)
{
    struct node *n = function_for(b, op, to_f32(b, x), x->type, why);
    return n ? to_type(b, n->out[0], x->type) : NULL;
}

struct value *layer_linear(struct build *b, struct value *x, struct value *w, bool stored_out_in,
                           enum element out, const char **why)
{
    if (x->type == F32 && w->type == BF16) x = to_type(b, x, BF16);
    struct attr attr[] = {attr_whole("ta", 0), attr_whole("tb", stored_out_in),
                          attr_word("to", element_names[out])};
    struct node *n = build_node(b, OP_matmul, (struct operand[]){by(x), by(w)}, 2, attr, 3, why);
    return n ? n->out[0] : NULL;
}

struct value *layer_rms_norm(struct build *b, struct value *x, struct value *g, double eps,
                             double offset, const char **why)
{
    int64_t n = last_axis(x);
    if (!is_vector(g, n)) {
        *why = text_format("rows of %s against a weight of %s", shape_text(x->shape),
                           shape_text(g->shape));
        return NULL;
    }
    struct value *f = to_f32(b, x);
    struct value *mean =
        build2(b, OP_mul, by(build1(b, OP_sum_last, by(build2(b, OP_mul, by(f), by(f))))),
               num(1.0 / (double)n));
    struct value *r = build1(b, OP_rsqrt, by(build2(b, OP_add, by(mean), num(eps))));
    struct value *normal = build2(b, OP_mul, by(f), by(r));
    struct value *y = build2(b, OP_mul, by(normal), f32(b, g));
    /* normal g + normal offset, so that no kernel adds to a weight */
    if (offset > 0) {
        struct value *more =
            offset < 1 || offset > 1 ? build2(b, OP_mul, by(normal), num(offset)) : normal;
        y = build2(b, OP_add, by(y), by(more));
    }
    return to_type(b, y, x->type);
}

struct value *layer_layer_norm(struct build *b, struct value *x, struct value *g,
                               struct value *bias, double eps, const char **why)
{
    int64_t n = last_axis(x);
    if (!is_vector(g, n) || !is_vector(bias, n)) {
        *why = text_format("rows of %s against a weight of %s and a bias of %s",
                           shape_text(x->shape), shape_text(g->shape), shape_text(bias->shape));
        return NULL;
    }
    struct value *f = to_f32(b, x);
    struct value *mean = build2(b, OP_mul, by(build1(b, OP_sum_last, by(f))), num(1.0 / (double)n));
    struct value *c = build2(b, OP_sub, by(f), by(mean));
    struct value *variance =
        build2(b, OP_mul, by(build1(b, OP_sum_last, by(build2(b, OP_mul, by(c), by(c))))),
               num(1.0 / (double)n));
    struct value *r = build1(b, OP_rsqrt, by(build2(b, OP_add, by(variance), num(eps))));
    struct value *normal = build2(b, OP_mul, by(c), by(r));
    struct value *y = build2(b, OP_mul, by(normal), f32(b, g));
    return to_type(b, build2(b, OP_add, by(y), f32(b, bias)), x->type);
}

struct value *layer_silu(struct build *b, struct value *x)
{
    struct value *f = to_f32(b, x);
    return to_type(b, build2(b, OP_mul, by(f), by(sigmoid_for(b, f, x->type))), x->type);
}

struct value *layer_gelu(struct build *b, struct value *x, bool tanh_form)
{
    struct value *f = to_f32(b, x), *inner;
    if (tanh_form && x->type == BF16) { /* the same as a sigmoid, in fewer operations */
        struct value *slope = build2(b, OP_add,
                                     by(build2(b, OP_mul, by(build2(b, OP_mul, by(f), by(f))),
                                               num(GELU_STEEPNESS * 0.044715))),
                                     num(GELU_STEEPNESS));
        inner = sigmoid_for(b, build2(b, OP_mul, by(slope), by(f)), BF16);
        return to_type(b, build2(b, OP_mul, by(f), by(inner)), BF16);
    }
    if (tanh_form) { /* 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) */
        struct value *cube = build2(b, OP_mul, by(build2(b, OP_mul, by(f), by(f))), by(f));
        struct value *sum =
            build2(b, OP_add, by(f), by(build2(b, OP_mul, by(cube), num(0.044715))));
        inner = build1(b, OP_tanh,
                       by(build2(b, OP_mul, by(sum), num(sqrt(2.0 / 3.14159265358979323846)))));
    } else { /* 0.5 x (1 + erf(x / sqrt 2)) */
        inner = build1(b, OP_erf, by(build2(b, OP_mul, by(f), num(sqrt(0.5)))));
    }
    struct value *half = build2(b, OP_mul, by(f), num(0.5));
    return to_type(b, build2(b, OP_mul, by(half), by(build2(b, OP_add, by(inner), num(1.0)))),
                   x->type);
}

struct value *layer_softcap(struct build *b, struct value *x, double cap)
{
    if (cap == 0) return x;
    struct value *part = build2(b, OP_mul, by(to_f32(b, x)), num(1.0 / cap));
    return to_type(b, build2(b, OP_mul, by(build1(b, OP_tanh, by(part))), num(cap)), x->type);
}

struct value *layer_softmax(struct build *b, struct value *x)
{
    struct value *f = to_f32(b, x);
    struct value *e =
        build1(b, OP_exp, by(build2(b, OP_sub, by(f), by(build1(b, OP_max_last, by(f))))));
    return build2(b, OP_div, by(e), by(build1(b, OP_sum_last, by(e))));
}

/* ── rotary positions ────────────────────────────────────────────────────────── */
/* The region that runs once before the first step; it is first. */
static struct region *setup_region(struct graph *g)
{
    struct region *r = graph_region(g, "setup");
    if (r) return r;
    r = region_new(g, "setup", PHASE_SETUP, ONCE, 1, "");
    body_new(r, "");
    for (int i = g->region.n - 1; i > 0; i--) g->region.item[i] = g->region.item[i - 1];
    return g->region.item[0] = r;
}

/* The value of an op without operands in the setup region; the same one when it is asked for
 * again. */
static struct value *setup_value(struct build *b, enum op op, const struct attr *attr, int n,
                                 const char *stem)
{
    struct region *r = setup_region(b->graph);
    struct build s = {.graph = b->graph,
                      .region = r,
                      .body = r->body.item[0],
                      .file = b->file,
                      .line = b->line,
                      .base = stem};
    return once(&s, op, NULL, 0, attr, n);
}

/* A value that every layer of a micro-batch reads, made from its batch: in the straight code that
 * comes first, once. */
static struct value *micro_value(struct build *b, enum op op, const struct operand *in, int n_in,
                                 const struct attr *attr, int n, const char *stem)
{
    struct region *r = NULL;
    for (int i = 0; i < b->graph->region.n && !r; i++)
        if (b->graph->region.item[i]->phase == PHASE_MICRO) r = b->graph->region.item[i];
    struct build s = *b;
    s.region = r, s.body = r->body.item[0], s.base = stem;
    return once(&s, op, in, n_in, attr, n);
}

/* A table by position, [S, 1, d]; with separate documents its row for each row of the batch. */
static struct value *of_rows(struct build *b, struct value *table)
{
    if (!graph_starts(b->graph)) return table;
    struct value *at = layer_positions(b);
    int64_t rows = at->shape.dim[0], d = last_axis(table);
    struct attr attr[SHAPE_RANK];
    struct shape flat = shape_of(2, (int64_t[]){table->shape.dim[0], d}),
                 by_row = shape_of(3, (int64_t[]){rows, 1, d});
    struct value *v = micro_value(b, OP_reshape, &(struct operand){table, 0}, 1, attr,
                                  attr_dims(attr, flat), table->name);
    v = micro_value(b, OP_embedding, (struct operand[]){by(at), by(v)}, 2, NULL, 0, table->name);
    return micro_value(b, OP_reshape, &(struct operand){v, 0}, 1, attr, attr_dims(attr, by_row),
                       table->name);
}

/* Between which pairs of columns YaRN goes over from wave lengths as they are to wave lengths
 * stretched: those that turn `fast` and `slow` times within `original` positions (Peng et al.,
 * 2023, section 3.2, as transformers rounds it). */
static int yarn_attributes(struct attr *attr, const struct rotary *r, int64_t width)
{
    const double turns[] = {r->fast, r->slow};
    double pair[2];
    for (int i = 0; i < 2; i++)
        pair[i] =
            (double)width * log(r->original / (turns[i] * 6.283185307179586)) / (2 * log(r->theta));
    const double from = fmax(floor(pair[0]), 0), to = fmin(ceil(pair[1]), (double)width - 1);
    const bool equal = !(from < to) && !(from > to);
    attr[0] = attr_real("yarn", r->yarn);
    attr[1] = attr_real("from", from);
    attr[2] = attr_real("to", equal ? to + 0.001 : to);
    attr[3] = attr_real("magnitude", r->magnitude > 0 ? r->magnitude : 0.1 * log(r->yarn) + 1);
    return 4;
}

struct value *layer_rope(struct build *b, struct value *x, const struct rotary *r, const char **why)
{
    int64_t d = last_axis(x), width = r->width ? r->width : d;
    if (x->shape.rank != 3 || width % 2) {
        *why = text_format("rotary positions turn pairs inside heads; %s is not [tokens, heads, an "
                           "even number]",
                           shape_text(r->width ? shape_of(1, &width) : x->shape));
        return NULL;
    }
    if (width > d) {
        *why = text_format("the width %lld is more than the %lld columns of a head",
                           (long long)width, (long long)d);
        return NULL;
    }
    if (r->yarn > 1 && (r->factor > 1 || r->linear < 1 || r->linear > 1)) {
        *why = "rotary positions are scaled in one way: factor, linear or yarn";
        return NULL;
    }
    if (r->yarn > 1 && (!(r->theta > 1) || r->fast <= r->slow)) {
        *why = r->theta > 1 ? text_format("fast = %s is not above slow = %s", text_number(r->fast),
                                          text_number(r->slow))
                            : "yarn needs a theta above 1";
        return NULL;
    }
    struct attr attr[13] = {attr_whole("sequence", b->graph->facts.sequence),
                            attr_whole("d", d),
                            attr_real("theta", r->theta),
                            attr_real("factor", r->factor),
                            attr_real("low", r->low),
                            attr_real("high", r->high),
                            attr_real("original", r->original)};
    int n = 7, part = 0;
    if (width < d) attr[n++] = attr_whole("width", width), part = 1;
    if (r->linear < 1 || r->linear > 1) attr[n++] = attr_real("linear", r->linear);
    if (r->yarn > 1) n += yarn_attributes(&attr[n], r, width);
    struct value *c = of_rows(b, setup_value(b, OP_rope_cos, attr, n, "rope_cos")),
                 *s = of_rows(b, setup_value(b, OP_rope_sin, attr, n, "rope_sin"));
    struct value *f = to_f32(b, x);
    struct value *straight = build2(b, OP_mul, by(f), by(c));
    struct value *pair = build_op(b, OP_rotate, (struct operand[]){by(f)}, 1, &attr[7], part);
    struct value *turned = build2(b, OP_mul, by(pair), by(s));
    return to_type(b, build2(b, OP_add, by(straight), by(turned)), x->type);
}

struct value *layer_positions(struct build *b)
{
    const struct facts *f = &b->graph->facts;
    struct value *starts = graph_starts(b->graph);
    if (starts)
        return micro_value(b, OP_positions, &(struct operand){starts, 0}, 1, NULL, 0, "positions");
    return setup_value(
        b, OP_positions,
        (struct attr[]){attr_whole("tokens", f->tokens), attr_whole("sequence", f->sequence)}, 2,
        "positions");
}

struct value *layer_heads_of(struct build *b, struct value *x, int64_t head_dim, const char **why)
{
    int64_t n = last_axis(x);
    if (x->shape.rank != 2 || head_dim < 1 || n % head_dim) {
        *why = text_format("%s does not cut into heads of %lld", shape_text(x->shape),
                           (long long)head_dim);
        return NULL;
    }
    return reshaped(b, x, shape_of(3, (int64_t[]){x->shape.dim[0], n / head_dim, head_dim}));
}

struct value *layer_merge_heads(struct build *b, struct value *x, const char **why)
{
    if (x->shape.rank != 3) {
        *why = text_format("%s has no heads to merge", shape_text(x->shape));
        return NULL;
    }
    return reshaped(b, x,
                    shape_of(2, (int64_t[]){x->shape.dim[0], x->shape.dim[1] * x->shape.dim[2]}));
}

struct value *layer_attention(struct build *b, struct value *q, struct value *k, struct value *v,
                              struct attention_rule rule, const char **why)
{
    int64_t sequence = b->graph->facts.sequence;
    struct attr attr[ATTENTION_ATTRIBUTES] = {attr_whole("sequence", sequence)};
    int n_attr = 1;
    if (rule.window > 0 && rule.window < sequence)
        attr[n_attr++] = attr_whole("window", rule.window);
    if (rule.scale > 0) attr[n_attr++] = attr_real("scale", rule.scale);
    if (rule.softcap > 0) attr[n_attr++] = attr_real("softcap", rule.softcap);
    struct operand in[] = {by(q), by(k), by(v), by(graph_starts(b->graph))};
    struct node *n = build_node(b, OP_attention, in, in[3].value ? 4 : 3, attr, n_attr, why);
    return n ? n->out[0] : NULL;
}

static struct value *scalar(struct build *b, const char *name)
{
    return build_op(b, OP_scalar, NULL, 0, (struct attr[]){attr_word("name", name)}, 1);
}

static struct value *widened(struct build *b, struct value *x)
{
    if (x->type != BF16) return x;
    return once(b, OP_cast, (struct operand[]){by(x)}, 1,
                (struct attr[]){attr_word("to", element_names[F32])}, 1);
}

struct value *layer_log_sum_exp(struct build *b, struct value *x)
{
    struct value *f = widened(b, x), *top = once1(b, OP_max_last, f);
    struct value *power = once1(b, OP_exp, once2(b, OP_sub, f, top));
    return once2(b, OP_add, once1(b, OP_log, once1(b, OP_sum_last, power)), top);
}

static bool logits_of_targets(const struct value *logits, const struct value *targets,
                              const char **why)
{
    bool fit = logits->shape.rank == 2 && shape_count(targets->shape) == logits->shape.dim[0] &&
               targets->type == I32;
    if (!fit)
        *why = text_format("logits %s against targets %s", shape_text(logits->shape),
                           shape_text(targets->shape));
    return fit;
}

/* The sum of a number a row, over the rows whose target counts. Scaled by row, so that loss and its
 * gradient are one walk over the logits. */
static struct value *over_targets(struct build *b, struct value *rows, struct value *targets)
{
    const struct facts *facts = &b->graph->facts;
    if (facts->has_ignore) {
        struct value *valid = once(b, OP_valid, (struct operand[]){by(targets)}, 1,
                                   (struct attr[]){attr_whole("ignore", facts->ignore)}, 1);
        rows = build_op(b, OP_select, (struct operand[]){by(valid), by(rows), num(0)}, 3, NULL, 0);
    }
    return build1(b, OP_sum_all, by(build2(b, OP_mul, by(rows), by(scalar(b, "loss_scale")))));
}

struct value *layer_cross_entropy(struct build *b, struct value *logits, struct value *targets,
                                  const char **why)
{
    if (!logits_of_targets(logits, targets, why)) return NULL;
    build_op(b, OP_tap, (struct operand[]){by(logits)}, 1,
             (struct attr[]){attr_word("name", "logits")}, 1);
    struct value *lse = layer_log_sum_exp(b, logits);
    /* marked as a term of the loss, so that passes find the logits */
    struct value *score =
        build_op(b, OP_pick, (struct operand[]){by(widened(b, logits)), by(targets)}, 2,
                 (struct attr[]){attr_whole("loss", 1)}, 1);
    return over_targets(b, build2(b, OP_sub, by(lse), by(score)), targets);
}

struct value *layer_z_loss(struct build *b, struct value *logits, struct value *targets,
                           const char **why)
{
    if (!logits_of_targets(logits, targets, why)) return NULL;
    struct value *lse = layer_log_sum_exp(b, logits);
    return over_targets(b, build2(b, OP_mul, by(lse), by(lse)), targets);
}

/* ── mixture of experts ──────────────────────────────────────────────────────── */
struct value *layer_balance_weight(struct build *b, struct value *w)
{
    if (w->shape.rank == 1) return w;
    return build1(b, OP_sum_rows, by(to_f32(b, w)));
}

/* The weight behind a value of layer_balance_weight, or NULL. */
static struct weight *balance_weight(const struct value *bias)
{
    const struct value *v = bias;
    while (!v->weight && v->node && (v->node->op == OP_sum_rows || v->node->op == OP_cast))
        v = v->node->in[0].value;
    return v->weight && v->weight->balances ? v->weight : NULL;
}

bool layer_route(struct build *b, struct value *p, int64_t k, bool normalize, struct value *bias,
                 struct routing *r, const char **why)
{
    struct weight *moved = bias ? balance_weight(bias) : NULL;
    struct value *choice = p;
    if (bias && !moved) {
        *why = "the bias is no weight with a balance: weight(\"name\", [experts], init = zeros, "
               "balance = 1e-3)";
        return false;
    }
    if (bias && last_axis(p) != last_axis(bias)) {
        *why = text_format("scores %s against a bias of %s", shape_text(p->shape),
                           shape_text(bias->shape));
        return false;
    }
    if (bias) choice = build2(b, OP_add, by(p), by(bias));
    struct attr top[] = {attr_whole("k", k)};
    struct node *n = build_node(b, OP_top_k, (struct operand[]){by(choice)}, 1, top, 1, why);
    if (!n) return false;
    *r = (struct routing){.ids = n->out[0], .k = k, .experts = last_axis(p)};
    r->weights = build2(b, OP_take, by(p), by(r->ids));
    if (normalize)
        r->weights = build2(b, OP_div, by(r->weights), by(build1(b, OP_sum_last, by(r->weights))));
    struct attr experts[] = {attr_whole("experts", r->experts)};
    n = build_node(b, OP_route_plan, (struct operand[]){by(r->ids)}, 1, experts, 1, why);
    if (!n) return false;
    r->place = n->out[0], r->first = n->out[1];
    if (!moved) return true;
    moved->choices += k;
    build_op(b, OP_balance, (struct operand[]){by(moved->value), by(layer_load(b, r))}, 2, NULL, 0);
    return true;
}

struct value *layer_dispatch(struct build *b, struct value *x, const struct routing *r,
                             const char **why)
{
    struct node *n = build_node(b, OP_dispatch, (struct operand[]){by(x), by(r->place)}, 2,
                                (struct attr[]){attr_whole("k", r->k)}, 1, why);
    return n ? n->out[0] : NULL;
}

struct value *layer_expert_linear(struct build *b, struct value *z, struct value *w,
                                  const struct routing *r, const char **why)
{
    struct node *n = build_node(b, OP_expert_matmul, (struct operand[]){by(z), by(w), by(r->first)},
                                3, (struct attr[]){attr_whole("ta", 0)}, 1, why);
    return n ? n->out[0] : NULL;
}

/* The weights go into the operand of the last expert product, which is linear: then neither the
 * experts' output nor the permuted input is needed for the gradient of a weight, it is the inner
 * product of what is there. */
struct value *layer_combine(struct build *b, struct value *z, const struct routing *r,
                            const char **why)
{
    struct node *n = build_node(b, OP_to_rows, (struct operand[]){by(r->weights), by(r->place)}, 2,
                                NULL, 0, why);
    if (!n) return NULL;
    struct operand weight = by(n->out[0]);
    struct node *product = z->node && z->node->op == OP_expert_matmul ? z->node : NULL;
    struct value *scaled = product ? product->in[0].value : z;
    scaled = to_type(b, build2(b, OP_mul, by(to_f32(b, scaled)), weight), scaled->type);
    if (product) {
        n = build_node(b, OP_expert_matmul,
                       (struct operand[]){by(scaled), product->in[1], product->in[2]}, 3,
                       product->attr, product->n_attr, why);
        if (!n) return NULL;
        scaled = n->out[0];
    }
    n = build_node(b, OP_collect, (struct operand[]){by(scaled), by(r->place)}, 2,
                   (struct attr[]){attr_whole("k", r->k)}, 1, why);
    return n ? n->out[0] : NULL;
}

struct value *layer_load(struct build *b, const struct routing *r)
{
    return once1(b, OP_load, r->first);
}

void layer_metric(struct build *b, const char *name, struct value *v)
{
    build_op(b, OP_metric, (struct operand[]){by(to_f32(b, v))}, 1,
             (struct attr[]){attr_word("name", name)}, 1);
}
