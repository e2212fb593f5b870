/* Needs: gradients.
 * Gives: the update phase. The squared norm of all resident gradient shards is summed unit by
 *   unit, over the ranks in rank order. It determines the clipping coefficient and, if it or the
 *   step's loss is not finite, that nothing is updated. Then AdamW, over primitives, unit by unit
 *   in the order in which the next forward pass needs the weights. The bias of a router is in no
 *   norm, is not clipped, and moves by the load of the experts instead.
 * Loses: nothing. State has its full length here; `shard` cuts it.
 *
 * The loss enters the squared norm times zero, so if the loss of one rank is NaN or infinite, every
 * rank knows before any weight changes. The sum over the world counts every replica's shards, hence
 * the division by dp, but where each replica has a part of its own. AdamW with decoupled weight
 * decay: Loshchilov and Hutter, 2019, algorithm 2. */
#include "ir/ir.h"
#include "passes/pipeline.h"

#include <string.h>

static struct value *leaf(struct build *b, enum op op, const char *key, const char *name)
{
    struct attr attr[] = {attr_word(key, name)};
    return build_op(b, op, NULL, 0, attr, 1);
}

static int64_t unit_elements(const struct graph *g, const struct unit *u)
{
    int64_t n = 0;
    for (int i = 0; i < g->weight.n; i++)
        if (!strcmp(g->weight.item[i]->unit, u->name))
            n += shape_count(g->weight.item[i]->value->shape);
    return n;
}

static struct value *state(struct build *b, const struct unit *u, const char *name)
{
    struct attr attr[] = {attr_word("name", name), attr_word("unit", u->name),
                          attr_whole("elements", unit_elements(b->graph, u))};
    b->base = name;
    return build_op(b, OP_state, NULL, 0, attr, 3);
}

static struct value *to_f32(struct build *b, struct value *x)
{
    return build_op(b, OP_cast, (struct operand[]){by(x)}, 1,
                    (struct attr[]){attr_word("to", "f32")}, 1);
}

static void put_scalar(struct build *b, const char *name, struct value *x)
{
    build_op(b, OP_assign_scalar, (struct operand[]){by(x)}, 1,
             (struct attr[]){attr_word("name", name)}, 1);
}

static struct region *unit_region(struct graph *g, const char *prefix, const struct unit *u,
                                  struct build *b)
{
    bool loop = u->loop[0] != 0;
    struct region *r = region_new(g, intern_format("%s.%s", prefix, u->name), PHASE_UPDATE,
                                  loop ? UP : ONCE, u->count, loop ? u->loop : "");
    *b = (struct build){.graph = g, .region = r, .body = body_new(r, u->variant)};
    return r;
}

/* The sum of squares so far, plus this unit's. */
static struct value *norm_unit(struct graph *g, const struct unit *u, struct value *sum)
{
    struct build b;
    struct region *r = unit_region(g, "norm", u, &b);
    bool loop = r->direction != ONCE;
    struct value *before = sum;
    if (loop) {
        before = value_new(g, fresh_name(g, "squares"), F64, sum->shape);
        PUSH(&r->carry, ((struct carry){.value = before, .first = sum}));
    }
    struct value *gradient = state(&b, u, "gradient");
    b.base = "squares";
    struct value *after =
        build2(&b, OP_add, by(before), by(build1(&b, OP_sum_squares, by(gradient))));
    if (!loop) return after;
    PUSH(&b.body->next, after);
    return r->carry.item[0].last = value_new(g, fresh_name(g, "squares"), F64, sum->shape);
}

static void clip(struct graph *g, struct value *squares)
{
    struct region *r = region_new(g, "clip", PHASE_UPDATE, ONCE, 1, "");
    struct build b = {.graph = g, .region = r, .body = body_new(r, ""), .base = "squares"};
    struct value *all = build_op(&b, OP_sum_ranks, (struct operand[]){by(squares)}, 1,
                                 (struct attr[]){attr_word("group", "world")}, 1);
    b.base = "norm";
    const double once = (double)g->facts.parts / (double)g->facts.dp;
    struct value *norm = build1(&b, OP_sqrt, by(build2(&b, OP_mul, by(all), num(once))));
    struct value *shown = to_f32(&b, norm);
    put_scalar(&b, "norm", shown);
    if (g->facts.clip > 0) {
        b.base = "coefficient";
        struct value *coefficient =
            build2(&b, OP_div, num(g->facts.clip), by(build2(&b, OP_add, by(norm), num(1e-6))));
        put_scalar(&b, "clip", to_f32(&b, build2(&b, OP_min, by(coefficient), num(1))));
    } else {
        b.base = "coefficient";
        put_scalar(
            &b, "clip",
            build_op(&b, OP_select, (struct operand[]){by(shown), num(1), num(1)}, 3, NULL, 0));
    }
    b.base = "skip";
    put_scalar(&b, "skip", build2(&b, OP_sub, num(1), by(build1(&b, OP_finite, by(shown)))));
}

static bool has_bias(const struct graph *g, const struct unit *u)
{
    for (int i = 0; i < g->weight.n; i++)
        if (g->weight.item[i]->balances && !strcmp(g->weight.item[i]->unit, u->name)) return true;
    return false;
}

static struct value *of_elements(struct build *b, const struct unit *u, enum op op)
{
    return build_op(b, op, NULL, 0,
                    (struct attr[]){attr_word("unit", u->name),
                                    attr_whole("elements", unit_elements(b->graph, u))},
                    2);
}

static struct value *chosen(struct build *b, struct value *when, struct value *x, struct value *y)
{
    return build_op(b, OP_select, (struct operand[]){by(when), by(x), by(y)}, 3, NULL, 0);
}

/* Where an element is the bias of a router, another rule moves it, and it has no moments. */
static void balance(struct build *b, const struct unit *u, struct value *load, struct value *p,
                    struct value **p1, struct value *m, struct value **m1, struct value *v,
                    struct value **v1)
{
    b->base = "balance";
    struct value *mean = of_elements(b, u, OP_balance_mean),
                 *rate = of_elements(b, u, OP_balance_rate);
    struct value *side = build1(b, OP_sign, by(build2(b, OP_sub, by(mean), by(load))));
    struct value *moved = build2(b, OP_add, by(p), by(build2(b, OP_mul, by(rate), by(side))));
    *p1 = chosen(b, mean, moved, *p1);
    *m1 = chosen(b, mean, m, *m1);
    *v1 = chosen(b, mean, v, *v1);
}

static void update_unit(struct graph *g, const struct unit *u)
{
    const struct facts *f = &g->facts;
    struct build b;
    unit_region(g, "update", u, &b);
    struct value *gradient = state(&b, u, "gradient"), *p = state(&b, u, "master"),
                 *m = state(&b, u, "moment1"), *v = state(&b, u, "moment2");
    b.base = "scalar";
    struct value *lr = leaf(&b, OP_scalar, "name", "lr"),
                 *bias1 = leaf(&b, OP_scalar, "name", "bias1"),
                 *bias2 = leaf(&b, OP_scalar, "name", "bias2");
    struct value *coefficient = leaf(&b, OP_scalar, "name", "clip");
    struct value *decay = of_elements(&b, u, OP_decay);
    if (f->group_rates) {
        struct value *scale = of_elements(&b, u, OP_lr_scale);
        b.base = "rate";
        lr = build2(&b, OP_mul, by(lr), by(scale));
    }
    b.base = "clipped";
    struct value *c = build2(&b, OP_mul, by(gradient), by(coefficient));
    b.base = "first";
    struct value *m_old = build2(&b, OP_mul, by(m), num(f->beta1)),
                 *m_new = build2(&b, OP_mul, by(c), num(1 - f->beta1));
    struct value *m1 = build2(&b, OP_add, by(m_old), by(m_new));
    b.base = "second";
    struct value *v_old = build2(&b, OP_mul, by(v), num(f->beta2));
    struct value *v_new =
        build2(&b, OP_mul, by(build2(&b, OP_mul, by(c), by(c))), num(1 - f->beta2));
    struct value *v1 = build2(&b, OP_add, by(v_old), by(v_new));
    b.base = "change";
    struct value *deviation =
        build2(&b, OP_add, by(build1(&b, OP_sqrt, by(build2(&b, OP_div, by(v1), by(bias2))))),
               num(f->eps));
    struct value *change =
        build2(&b, OP_div, by(build2(&b, OP_div, by(m1), by(bias1))), by(deviation));
    struct value *kept = build2(&b, OP_sub, num(1), by(build2(&b, OP_mul, by(lr), by(decay))));
    b.base = "weights";
    struct value *shrunk = build2(&b, OP_mul, by(p), by(kept)),
                 *moved = build2(&b, OP_mul, by(change), by(lr));
    struct value *p1 = build2(&b, OP_sub, by(shrunk), by(moved));
    if (has_bias(g, u)) balance(&b, u, gradient, p, &p1, m, &m1, v, &v1);
    build2(&b, OP_assign, by(p), by(p1));
    build2(&b, OP_assign, by(m), by(m1));
    build2(&b, OP_assign, by(v), by(v1));
}

struct graph *pass_optimizer(const struct graph *old)
{
    struct graph *g = graph_begin(old, LEVEL_OPTIMIZER);
    for (int i = 0; i < old->region.n; i++) region_copy(g, old->region.item[i]);
    struct region *r = region_new(g, "norm", PHASE_UPDATE, ONCE, 1, "");
    struct build b = {.graph = g, .region = r, .body = body_new(r, ""), .base = "squares"};
    struct value *squares = build2(&b, OP_mul, by(leaf(&b, OP_metric_sum, "name", "loss")), num(0));
    for (int i = 0; i < g->unit.n; i++) squares = norm_unit(g, g->unit.item[i], squares);
    clip(g, squares);
    for (int i = 0; i < g->unit.n; i++) update_unit(g, g->unit.item[i]);
    return g;
}
