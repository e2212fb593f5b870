/* Fusing may not change a bit. The composite layers with their gradients are taken through the fuse
 * pass with fusion on and off, both texts are compiled and run on the same numbers, and every
 * result compared as bytes: in F32 and in BF16, for widths that fill vectors and widths that do
 * not. */
#include "interpret.h"
#include "passes/pipeline.h"
#include "passes/layers.h"
#include "machine.h"

#include <string.h>

struct layer_test {
    struct graph *g;
    struct build b;
    enum element type;
    int64_t T, C;
    uint64_t state;
    int given;
    VECTOR(const struct value *) result;
    VECTOR(struct numbers *) input;
};

static double uniform(struct layer_test *l)
{
    l->state = l->state * 6364136223846793005u + 1442695040888963407u;
    return (double)(l->state >> 11) / 9007199254740992.0 * 4 - 2;
}

static struct value *given(struct layer_test *l, enum element type, int rank, int64_t a, int64_t b,
                           int64_t c)
{
    struct value *v = value_new(l->g, intern_format("in%d", l->given++), type,
                                shape_of(rank, (int64_t[]){a, b, c}));
    PUSH(&l->g->input, v);
    struct numbers *x = numbers_of(v);
    PUSH(&l->input, x); /* passes use value->note for their own ends */
    for (int64_t i = 0; i < x->n; i++)
        x->x[i] = type == I32 ? (double)((int64_t)((uniform(l) + 2) * 1e6) % l->C)
                              : as_stored(type, uniform(l));
    return v;
}

static struct value *must(struct value *v, const char *why)
{
    if (!v) bug("layer: %s", why);
    return v;
}

/* ── the layers ──────────────────────────────────────────────────────────────── */
static struct value *rms(struct layer_test *l)
{
    const char *why = "";
    return must(layer_rms_norm(&l->b, given(l, l->type, 2, l->T, l->C, 0),
                               given(l, l->type, 1, l->C, 0, 0), 1e-5, 0, &why),
                why);
}
static struct value *rms_offset(struct layer_test *l)
{
    const char *why = "";
    return must(layer_rms_norm(&l->b, given(l, l->type, 2, l->T, l->C, 0),
                               given(l, l->type, 1, l->C, 0, 0), 1e-5, 1, &why),
                why);
}
static struct value *layer(struct layer_test *l)
{
    const char *why = "";
    return must(layer_layer_norm(&l->b, given(l, l->type, 2, l->T, l->C, 0),
                                 given(l, l->type, 1, l->C, 0, 0), given(l, l->type, 1, l->C, 0, 0),
                                 1e-5, &why),
                why);
}
static struct value *swiglu(struct layer_test *l)
{
    const char *why = "";
    return must(layer_arith(&l->b, OP_mul,
                            by(layer_silu(&l->b, given(l, l->type, 2, l->T, l->C, 0))),
                            by(given(l, l->type, 2, l->T, l->C, 0)), &why),
                why);
}
static struct value *gelu(struct layer_test *l)
{
    return layer_gelu(&l->b, given(l, l->type, 2, l->T, l->C, 0), false);
}
static struct value *gelu_bias(struct layer_test *l)
{
    struct value *x = given(l, l->type, 2, l->T, l->C, 0), *bias = given(l, F32, 1, l->C, 0, 0);
    const struct attr to_f32 = attr_word("to", element_names[F32]),
                      back = attr_word("to", element_names[l->type]);
    if (l->type != F32) x = build_op(&l->b, OP_cast, (struct operand[]){by(x)}, 1, &to_f32, 1);
    struct value *sum = build2(&l->b, OP_add, by(x), by(bias));
    if (l->type != F32) sum = build_op(&l->b, OP_cast, (struct operand[]){by(sum)}, 1, &back, 1);
    return layer_gelu(&l->b, sum, true);
}
static struct value *gelu_tanh(struct layer_test *l)
{
    return layer_gelu(&l->b, given(l, l->type, 2, l->T, l->C, 0), true);
}
static struct value *softmax(struct layer_test *l)
{
    return layer_softmax(&l->b, given(l, l->type, 2, l->T, l->C, 0));
}
static struct value *rotated(struct layer_test *l, const struct attr *attr, int n_attr)
{
    struct value *x = given(l, l->type, 3, l->T, 3, l->C / 2 * 2),
                 *c = given(l, F32, 3, l->T / 2, 1, l->C / 2 * 2),
                 *s = given(l, F32, 3, l->T / 2, 1, l->C / 2 * 2);
    struct value *f = l->type == BF16 ? build_op(&l->b, OP_cast, (struct operand[]){by(x)}, 1,
                                                 (struct attr[]){attr_word("to", "f32")}, 1)
                                      : x;
    struct value *pair = build_op(&l->b, OP_rotate, (struct operand[]){by(f)}, 1, attr, n_attr);
    struct value *y = build2(&l->b, OP_add, by(build2(&l->b, OP_mul, by(f), by(c))),
                             by(build2(&l->b, OP_mul, by(pair), by(s))));
    c->mark = s->mark = -1; /* tables need no gradient */
    return y;
}
static struct value *rope(struct layer_test *l) { return rotated(l, NULL, 0); }
static struct value *rope_part(struct layer_test *l)
{
    return rotated(l, (struct attr[]){attr_whole("width", 22)}, 1);
}
static struct value *entropy(struct layer_test *l)
{
    const char *why = "";
    l->g->facts.has_ignore = true, l->g->facts.ignore = 3;
    return must(layer_cross_entropy(&l->b, given(l, l->type, 2, l->T, l->C, 0),
                                    given(l, I32, 1, l->T, 0, 0), &why),
                why);
}
static struct value *sliced(struct layer_test *l)
{
    struct value *x = given(l, l->type, 2, l->T, 2 * l->C, 0);
    struct value *a = build_op(&l->b, OP_slice, (struct operand[]){by(x)}, 1,
                               (struct attr[]){attr_whole("from", 0), attr_whole("to", l->C)}, 2);
    struct value *b =
        build_op(&l->b, OP_slice, (struct operand[]){by(x)}, 1,
                 (struct attr[]){attr_whole("from", l->C), attr_whole("to", 2 * l->C)}, 2);
    return build2(&l->b, OP_mul, by(a), by(layer_silu(&l->b, b)));
}

static void tap(struct layer_test *l, struct value *v);
/* The weights of the chosen columns. `seen`: the choices too. */
static struct value *choice(struct layer_test *l, struct value *p, struct value *by_what, int64_t k,
                            bool seen)
{
    struct value *ids = build_op(&l->b, OP_top_k, (struct operand[]){by(by_what)}, 1,
                                 (struct attr[]){attr_whole("k", k)}, 1),
                 *w = build2(&l->b, OP_take, by(p), by(ids));
    if (seen) tap(l, ids);
    return build2(&l->b, OP_div, by(w), by(build1(&l->b, OP_sum_last, by(w))));
}
static struct value *router(struct layer_test *l)
{
    struct value *p = layer_softmax(&l->b, given(l, F32, 2, l->T, l->C, 0));
    return choice(l, p, p, 9, false);
}
static struct value *router_biased(struct layer_test *l)
{
    struct value *p = build1(&l->b, OP_sigmoid, by(given(l, F32, 2, l->T, l->C, 0))),
                 *bias = given(l, F32, 1, l->C, 0, 0);
    bias->mark = -1;
    return choice(l, p, build2(&l->b, OP_add, by(p), by(bias)), 4, true);
}
/* Both statistics of a balance loss beside the choice, and a choice of one. */
static struct value *router_summed(struct layer_test *l)
{
    struct value *p = layer_softmax(&l->b, given(l, F32, 2, l->T, l->C, 0));
    struct value *mass = build1(&l->b, OP_sum_rows, by(p)), *w = choice(l, p, p, 1, true);
    return build2(&l->b, OP_mul, by(build2(&l->b, OP_mul, by(p), by(mass))), by(w));
}

static void tap(struct layer_test *l, struct value *v)
{
    build_op(&l->b, OP_tap, (struct operand[]){by(v)}, 1,
             (struct attr[]){attr_word("name", intern_format("result.%d", l->result.n))}, 1);
    PUSH(&l->result, emit_root(v));
}

/* What the value of tap number k is called after fuse. */
static const char *shown(const struct graph *g, int k)
{
    const char *name = text_format("result.%d", k);
    for (struct node_walk at = {0}; next_node(g, &at);)
        if (at.node->op == OP_tap && !strcmp(attr_get_word(at.node, "name"), name))
            return emit_root(at.node->in[0].value)->name;
    bug("no tap %s", name);
}

/* Gradients of `y` seeded with random numbers, for every float input. */
static void reverse(struct layer_test *l, struct value *y)
{
    struct {
        struct value *of, *d;
    } *known = TAKE_MANY(__typeof__(*known), 4000);
    int n = 0, nodes = l->b.body->node.n;
    for (int i = 0; i < l->g->input.n; i++)
        l->g->input.item[i]->mark =
            l->g->input.item[i]->mark < 0 ? 0 : l->g->input.item[i]->type != I32;
    for (int i = 0; i < nodes; i++)
        for (int o = 0; o < l->b.body->node.item[i]->n_out; o++)
            l->b.body->node.item[i]->out[o]->mark = 1;
    struct value *seed =
        given(l, y->type, y->shape.rank, y->shape.dim[0], y->shape.dim[1], y->shape.dim[2]);
    seed->mark = 0;
    known[n].of = y, known[n++].d = seed;
    for (int i = nodes - 1; i >= 0; i--) {
        const struct node *node = l->b.body->node.item[i];
        struct value *d[4] = {0}, *into[8] = {0};
        for (int o = 0; o < node->n_out; o++)
            for (int k = 0; k < n; k++)
                if (known[k].of == node->out[o]) d[o] = known[k].d;
        if (!node->n_out || !d[0]) continue;
        op_gradient(&l->b, node, d, into);
        for (int o = 0; o < node->n_in; o++) {
            if (!into[o]) continue;
            int k = 0;
            while (k < n && known[k].of != node->in[o].value) k++;
            if (k < n)
                known[k].d = build2(&l->b, OP_add, by(known[k].d), by(into[o]));
            else
                known[n].of = node->in[o].value, known[n++].d = into[o];
        }
    }
    tap(l, y);
    for (int i = 0; i < l->g->input.n; i++)
        for (int k = 0; k < n; k++)
            if (known[k].of == l->g->input.item[i] && known[k].d->node) tap(l, known[k].d);
}

static struct machine *run(struct layer_test *l, bool fuse, const char *directory, const char *name,
                           const char *root)
{
    l->g->facts.fuse = fuse;
    l->g->level = LEVEL_SHARD;
    struct machine *m = machine_open(pass_fuse(l->g), directory,
                                     text_format("%s.%s", name, fuse ? "on" : "off"), root);
    if (!m) return NULL;
    for (int i = 0; i < l->g->input.n; i++) {
        struct value *v = l->g->input.item[i];
        machine_put(m, v->name, v->type, shape_count(v->shape), l->input.item[i]->x);
    }
    double scalars[16] = {0, 0, 0, 0.125};
    machine_put(m, "scalars", F32, 16, scalars);
    machine_run(m, NULL, 0);
    return m;
}

int fusion_test(const char *directory, const char *root);
int fusion_test(const char *directory, const char *root)
{
    static const struct {
        const char *name;
        struct value *(*build)(struct layer_test *);
    } row[] = {{"rms_norm", rms},
               {"layer_norm", layer},
               {"swiglu", swiglu},
               {"gelu", gelu},
               {"gelu_tanh", gelu_tanh},
               {"softmax", softmax},
               {"rope", rope},
               {"cross_entropy", entropy},
               {"slice", sliced},
               {"rms_norm_offset", rms_offset},
               {"rope_part", rope_part},
               {"gelu_bias", gelu_bias},
               {"router", router},
               {"router_biased", router_biased},
               {"router_summed", router_summed}};
    static const struct {
        enum element type;
        int64_t T, C;
    } form[] = {{F32, 8, 144}, {F32, 6, 101}, {BF16, 6, 150}};
    for (size_t f = 0; f < COUNT_OF(form); f++) {
        struct layer_test l = {
            .type = form[f].type, .T = form[f].T, .C = form[f].C, .g = TAKE(struct graph)};
        struct region *r = region_new(l.g, "layers", PHASE_MICRO, ONCE, 1, "");
        int ends[COUNT_OF(row) + 1] = {0};
        /* every layer in one graph: one compilation; a region of its own each */
        struct layer_test all = l;
        all.b.graph = l.g;
        for (size_t i = 0; i < COUNT_OF(row); i++) {
            if (i) r = region_new(l.g, intern_format("layers%zu", i), PHASE_MICRO, ONCE, 1, "");
            all.b = (struct build){.graph = l.g, .region = r, .body = body_new(r, "")};
            reverse(&all, row[i].build(&all));
            ends[i + 1] = all.result.n;
        }
        const char *name =
            text_format("fusion.%s.%lld", element_names[form[f].type], (long long)form[f].C);
        struct machine *on = run(&all, true, directory, name, root),
                       *off = run(&all, false, directory, name, root);
        if (!on || !off) continue;
        for (size_t i = 0; i < COUNT_OF(row); i++) {
            const char *why = NULL;
            for (int k = ends[i]; k < ends[i + 1] && !why; k++) {
                const struct value *v = all.result.item[k];
                int64_t n = shape_count(v->shape), bytes = n * element_bytes(v->type);
                const struct place *a = machine_place(on, shown(on->graph, k), v->type, n),
                                   *b = machine_place(off, shown(off->graph, k), v->type, n);
                if (memcmp(a->bytes, b->bytes, (size_t)bytes))
                    why =
                        text_format("%s %s differs with fusion off", v->name, shape_text(v->shape));
                bool nothing = true;
                for (int64_t e = 0; e < a->n; e++) nothing &= a->bytes[e] == 0xa5;
                if (nothing) why = text_format("%s was not written", v->name);
            }
            if (why)
                printf("FAIL %s.%s: %s\n", name, row[i].name, why);
            else
                printf("ok %s.%s\n", name, row[i].name);
        }
        const char *over = machine_overrun(on) ? machine_overrun(on) : machine_overrun(off);
        if (over)
            printf("FAIL %s.bounds: %s was written outside\n", name, over);
        else
            printf("ok %s.bounds\n", name);
        if (on->graph->kernel.n * 2 > off->graph->kernel.n)
            printf("FAIL %s.count: %d kernels with fusion, %d without\n", name, on->graph->kernel.n,
                   off->graph->kernel.n);
        else
            printf("ok %s.count\nnote %s: %d kernels with fusion, %d without\n", name, name,
                   on->graph->kernel.n, off->graph->kernel.n);
        machine_close(on);
        machine_close(off);
    }
    return 0;
}
