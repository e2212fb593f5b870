/* Every op of ops.def: its kernel against a naive loop, its gradient against finite differences.
 * The list is ops.def itself, so an op that nobody wrote a trial for fails by name. All trials are
 * nodes of one body, each node a kernel of its own, so that one compilation serves them all. */
#include "trials.h"

#include <math.h>

/* Finite differences of sum(seed * result) in double. NULL when they agree. */
static const char *differences(const struct trial *x)
{
    const struct node *n = trials.b.body->node.item[x->last];
    for (int i = x->first; i < x->end; i++) interpret(trials.b.body->node.item[i], false);
    for (int o = 0; o < n->n_in; o++) {
        if (!n->in[o].value || !x->into[o]) continue;
        struct numbers *in = numbers_of(n->in[o].value), *got = numbers_of(x->into[o]);
        int64_t step = in->n / 40 + 1;
        for (int64_t e = 0; e < in->n; e += step) {
            double side[2], keep = in->x[e], h = 1e-5;
            for (int s = 0; s < 2; s++) {
                in->x[e] = keep + (s ? h : -h);
                interpret(n, false);
                side[s] = 0;
                for (int k = 0; k < n->n_out; k++)
                    for (int64_t i = 0; x->seed[k] && i < numbers_of(n->out[k])->n; i++)
                        side[s] += numbers_of(x->seed[k])->x[i] * numbers_of(n->out[k])->x[i];
            }
            in->x[e] = keep;
            interpret(n, false);
            double want = (side[1] - side[0]) / (2 * h);
            if (fabs(want - got->x[e]) > 1e-6 * fmax(1, fabs(want)))
                return text_format(
                    "gradient of operand %d at %lld: %.9g, finite differences give %.9g", o,
                    (long long)e, got->x[e], want);
        }
    }
    return NULL;
}

static const char *kernels_agree(struct machine *m, const struct trial *x)
{
    for (int i = x->first; i < x->end; i++) interpret(trials.b.body->node.item[i], true);
    for (int i = x->first; i < x->end; i++) {
        const struct node *n = trials.b.body->node.item[i];
        if (!n->kernel) continue;
        for (int o = 0; o < n->n_out; o++) {
            if (n->op == OP_attention_grad && o == 3) continue; /* room, not a result */
            const struct value *v = n->out[o];
            const struct place *p = machine_place(m, v->name, v->type, shape_count(v->shape));
            double bar = v->type == I32    ? 0
                         : v->type == BF16 ? 0.008
                         : v->type == F64  ? 1e-12
                                           : 1e-5;
            for (int64_t e = 0; e < p->n; e++) {
                double want = numbers_of(v)->x[e], got = machine_get(p, e);
                if (!(fabs(want - got) <= bar * fmax(1, fabs(want))))
                    return text_format("%s %s at %lld: %.9g, a naive loop gives %.9g",
                                       op_rows[n->op].name, shape_text(v->shape), (long long)e, got,
                                       want);
            }
        }
    }
    return NULL;
}

/* One kernel per node, every result kept. */
static void make_kernels(void)
{
    for (int i = 0, n = trials.b.body->node.n; i < n; i++) {
        struct node *node = trials.b.body->node.item[i];
        if (op_rows[node->op].class == CLASS_VIEW || op_rows[node->op].class == CLASS_LEAF)
            continue;
        node->kernel = trials.g->kernel.n + 1;
        struct kernel k = {.number = node->kernel,
                           .name = intern_format("%s_%d", op_rows[node->op].name, node->kernel),
                           .class = KERNEL_MAP};
        PUSH(&trials.g->kernel, k);
        for (int o = 0; o < node->n_out; o++)
            build_op(&trials.b, OP_tap, (struct operand[]){by(node->out[o])}, 1,
                     (struct attr[]){attr_word("name", "x")}, 1);
    }
}

int ops_test(const char *directory, const char *root);
int ops_test(const char *directory, const char *root)
{
    trials.g = TAKE(struct graph);
    trials.g->facts.sequence = 8;
    trials.g->facts.device = machine_device();
    struct region *r = region_new(trials.g, "trials", PHASE_MICRO, ONCE, 1, "");
    trials.b = (struct build){.graph = trials.g, .region = r, .body = body_new(r, "")};
    for (int op = 0; op < OP_COUNT; op++) {
        int before = trials.trial.n;
        if (elsewhere((enum op)op)) continue;
        trials_of((enum op)op);
        trials.type = BF16;
        if (op_rows[op].class == CLASS_CORE && moves_bf16((enum op)op)) trials_of((enum op)op);
        trials.type = F32;
        if (trials.trial.n == before && op != OP_attention_grad)
            printf("FAIL %s: no trial for this op\n", op_rows[op].name);
    }
    make_kernels();
    struct machine *m = machine_open(trials.g, directory, "ops", root);
    if (!m) return 1;
    for (int i = 0; i < trials.g->input.n; i++) {
        const struct value *v = trials.g->input.item[i];
        machine_put(m, v->name, v->type, shape_count(v->shape), numbers_of(v)->x);
    }
    for (int i = 0; i < trials.b.body->node.n; i++) {
        const struct node *n = trials.b.body->node.item[i];
        if (n->op == OP_matmul_add)
            machine_put(m, n->out[0]->name, F32, shape_count(n->out[0]->shape),
                        numbers_of(n->in[2].value)->x);
    }
    machine_run(m, NULL, 0);
    for (int i = 0; i < trials.trial.n; i++) {
        const struct trial *x = &trials.trial.item[i];
        const char *why = differences(x);
        if (!why) why = kernels_agree(m, x);
        if (why)
            printf("FAIL %s: %s\n", x->name, why);
        else
            printf("ok %s\n", x->name);
    }
    const char *over = machine_overrun(m);
    if (over)
        printf("FAIL bounds: %s was written outside\n", over);
    else
        printf("ok bounds\n");
    machine_close(m);
    return 0;
}
