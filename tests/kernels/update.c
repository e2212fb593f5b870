/* Kernels that walk a unit's shard and those that have an effect on scalars and metrics: what
 * changes must be what the formula says, only inside the stretches that were handed over, and not
 * at all when the step is skipped. */
#include "interpret.h"
#include "passes/pipeline.h"
#include "machine.h"

#include <math.h>

enum { N = 300 };
static const struct walk stretches[] = {{0, 100, 0.1, 1, 0, 0},
                                        {128, 37, 0.0, 1, 0, 0},
                                        {170, 1, 0.1, 1, 0, 0},
                                        {200, 64, 0.1, 1, 0, 0}};

static bool inside(int64_t j, double *decay)
{
    for (size_t i = 0; i < COUNT_OF(stretches); i++)
        if (j >= stretches[i].from && j < stretches[i].from + stretches[i].count)
            return *decay = stretches[i].decay, true;
    return false;
}

static struct value *leaf(struct build *b, enum op op, const char *name)
{
    struct attr attr[] = {attr_word("name", name), attr_word("unit", "u"),
                          attr_whole("elements", N)};
    return build_op(b, op, NULL, 0, attr, op == OP_state ? 3 : 1);
}

static struct graph *graph(void)
{
    struct graph *g = TAKE(struct graph);
    struct unit *u = TAKE(struct unit);
    *u = (struct unit){.name = intern("u"),
                       .loop = intern(""),
                       .variant = intern(""),
                       .count = 1,
                       .elements = N,
                       .shard_elements = N};
    PUSH(&g->unit, u);
    struct region *r = region_new(g, "update", PHASE_UPDATE, ONCE, 1, "");
    struct build b = {.graph = g, .region = r, .body = body_new(r, "")};
    struct value *grad = leaf(&b, OP_state, "gradient"), *p = leaf(&b, OP_state, "master"),
                 *m = leaf(&b, OP_state, "moment1");
    struct value *decay =
        build_op(&b, OP_decay, NULL, 0,
                 (struct attr[]){attr_word("unit", "u"), attr_whole("elements", N)}, 2);
    struct value *m1 = build2(&b, OP_add, by(build2(&b, OP_mul, by(m), num(0.9))),
                              by(build2(&b, OP_mul, by(grad), num(0.1))));
    struct value *kept = build2(&b, OP_sub, num(1),
                                by(build2(&b, OP_mul, by(leaf(&b, OP_scalar, "lr")), by(decay))));
    struct value *p1 = build2(&b, OP_sub, by(build2(&b, OP_mul, by(p), by(kept))),
                              by(build2(&b, OP_mul, by(m1), by(leaf(&b, OP_scalar, "lr")))));
    build2(&b, OP_assign, by(p), by(p1));
    build2(&b, OP_assign, by(m), by(m1));
    r = region_new(g, "norm", PHASE_UPDATE, ONCE, 1, "");
    b = (struct build){.graph = g, .region = r, .body = body_new(r, "")};
    struct value *squares = build1(&b, OP_sum_squares, by(leaf(&b, OP_state, "gradient")));
    struct value *all = build2(&b, OP_add, by(squares), by(leaf(&b, OP_metric_sum, "loss")));
    struct value *norm = build_op(&b, OP_cast, (struct operand[]){by(build1(&b, OP_sqrt, by(all)))},
                                  1, (struct attr[]){attr_word("to", "f32")}, 1);
    build_op(&b, OP_assign_scalar, (struct operand[]){by(norm)}, 1,
             (struct attr[]){attr_word("name", "norm")}, 1);
    build_op(&b, OP_assign_scalar, (struct operand[]){num(0.5)}, 1,
             (struct attr[]){attr_word("name", "clip")}, 1);
    r = region_new(g, "metrics", PHASE_MICRO, ONCE, 1, "");
    b = (struct build){.graph = g, .region = r, .body = body_new(r, "")};
    struct value *load = value_new(g, intern("counts"), F32, shape_of(1, (int64_t[]){20}));
    PUSH(&g->input, load);
    build_op(&b, OP_metric, (struct operand[]){by(build2(&b, OP_mul, by(load), num(2)))}, 1,
             (struct attr[]){attr_word("name", "load")}, 1);
    struct value *constant = build_op(
        &b, OP_zeros, NULL, 0, (struct attr[]){attr_whole("d0", 20), attr_real("value", 3)}, 2);
    build_op(&b, OP_metric,
             (struct operand[]){
                 by(build1(&b, OP_sum_all, by(build2(&b, OP_add, by(load), by(constant)))))},
             1, (struct attr[]){attr_word("name", "total")}, 1);
    g->facts.fuse = true;
    g->level = LEVEL_SHARD;
    return g;
}

static double start(int kind, int64_t j)
{
    return as_stored(F32, sin((double)(j * 7 + kind * 31)) * (j % 11 == 0 ? 3 : 0.2));
}

static void check(const char *name, double got, double want, double bar)
{
    if (fabs(got - want) <= bar * fmax(1, fabs(want)))
        printf("ok update.%s\n", name);
    else
        printf("FAIL update.%s: %.9g, not %.9g\n", name, got, want);
}

static void fill(struct machine *m, double skip)
{
    double x[4096] = {0}, zero[256] = {0}, counts[20];
    static const char *const name[] = {"state.master", "state.gradient", "state.moment1"};
    for (int k = 0; k < 3; k++) {
        for (int64_t j = 0; j < 4096; j++) x[j] = j < N ? start(k, j) : 0;
        machine_put(m, name[k], F32, 4096, x);
    }
    machine_put(m, "scalars", F32, 16, (double[16]){0.01, 0, 0, 0, 0, 0, skip});
    zero[0] = 2.5;
    machine_put(m, "metric.loss", F64, 256, zero);
    zero[0] = 0;
    machine_put(m, "metric.load", F64, 256, zero);
    machine_put(m, "metric.total", F64, 256, zero);
    for (int i = 0; i < 20; i++) counts[i] = i;
    machine_put(m, "counts", F32, 20, counts);
}

/* Largest difference from the formula, in units of what F32 rounds; outside the stretches nothing
 * may change. */
static double worst(struct machine *m, bool skipped)
{
    double most = 0;
    const struct place *p = machine_place(m, "state.master", F32, 4096),
                       *o = machine_place(m, "state.moment1", F32, 4096);
    for (int64_t j = 0; j < N; j++) {
        double decay = 0, master = start(0, j), grad = start(1, j), moment = start(2, j);
        if (inside(j, &decay) && !skipped) {
            moment = 0.9 * moment + 0.1 * grad;
            master = master * (1 - 0.01 * decay) - moment * 0.01;
        }
        most = fmax(most, fmax(fabs(machine_get(p, j) - master), fabs(machine_get(o, j) - moment)));
    }
    return most;
}

int update_test(const char *directory, const char *root);
int update_test(const char *directory, const char *root)
{
    struct machine *m = machine_open(pass_fuse(graph()), directory, "update", root);
    if (!m) return 1;
    fill(m, 0);
    machine_run(m, stretches, COUNT_OF(stretches));
    double squares = 2.5, decay;
    for (int64_t j = 0; j < N; j++) squares += inside(j, &decay) ? start(1, j) * start(1, j) : 0;
    check("assign", worst(m, false), 0, 1e-6);
    check("norm", machine_get(machine_place(m, "scalars", F32, 16), 4), sqrt(squares), 1e-6);
    check("assign_scalar", machine_get(machine_place(m, "scalars", F32, 16), 5), 0.5, 0);
    check("metric", machine_get(machine_place(m, "metric.load", F64, 256), 19), 38, 0);
    check("metric_total", machine_get(machine_place(m, "metric.total", F64, 256), 0), 250, 1e-6);
    machine_run(m, NULL, 0);
    check("metric_adds", machine_get(machine_place(m, "metric.load", F64, 256), 19), 76, 0);
    fill(m, 1);
    machine_run(m, stretches, COUNT_OF(stretches));
    check("skipped", worst(m, true), 0, 0);
    if (machine_overrun(m))
        printf("FAIL update.bounds: %s\n", machine_overrun(m));
    else
        printf("ok update.bounds\n");
    machine_close(m);
    return 0;
}
