/* Every broadcast that shape inference accepts has a gradient, and it is the right one: all pairs
 * of shapes of up to four axes of 1, 2 or 4, multiplied, and the gradient of both operands against
 * finite differences. No kernel is compiled here; ops.c has a kernel for each kind of broadcast. */
#include "interpret.h"

#include <math.h>
#include <string.h>

static uint64_t state = 1;

static double uniform(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (double)(state >> 11) / 9007199254740992.0 * 2 - 1;
}

static struct value *drawn(struct graph *g, const char *name, struct shape s)
{
    struct value *v = value_new(g, name, F32, s);
    struct numbers *x = numbers_of(v);
    for (int64_t i = 0; i < x->n; i++) x->x[i] = uniform();
    return v;
}

static double objective(const struct node *n, const struct numbers *seed)
{
    double sum = 0;
    interpret(n, false);
    const struct numbers *y = numbers_of(n->out[0]);
    for (int64_t i = 0; i < y->n; i++) sum += seed->x[i] * y->x[i];
    return sum;
}

/* NULL when both gradients agree with the differences. The product is linear in each operand, so a
 * difference is exact except for rounding, and a few elements tell a wrong order of the axes. */
static const char *differences(const struct node *n, const struct numbers *seed,
                               struct value *const *into)
{
    for (int o = 0; o < 2; o++) {
        struct numbers *x = numbers_of(n->in[o].value);
        if (!shape_same(into[o]->shape, n->in[o].value->shape))
            return text_format("the gradient of operand %d is %s", o, shape_text(into[o]->shape));
        for (int64_t e = 0; e < x->n; e += x->n / 9 + 1) {
            double keep = x->x[e], got = numbers_of(into[o])->x[e];
            x->x[e] = keep + 1;
            double above = objective(n, seed);
            x->x[e] = keep - 1;
            double want = (above - objective(n, seed)) / 2;
            x->x[e] = keep;
            if (!(fabs(want - got) <= 1e-9 * fmax(1, fabs(want))))
                return text_format("operand %d at %lld: %.9g, differences give %.9g", o,
                                   (long long)e, got, want);
        }
    }
    return NULL;
}

/* 1: the two do not go together; 0: they do, and the gradient is right; -1: said why not. */
static int pair(struct shape a, struct shape b)
{
    struct graph *g = TAKE(struct graph);
    struct region *r = region_new(g, "trial", PHASE_MICRO, ONCE, 1, "");
    struct build build = {.graph = g, .region = r, .body = body_new(r, "")};
    struct operand in[] = {by(drawn(g, "a", a)), by(drawn(g, "b", b))};
    const char *why = NULL;
    struct node *n = build_node(&build, OP_mul, in, 2, NULL, 0, &why);
    if (!n) return 1;
    struct value *seed[] = {drawn(g, "seed", n->out[0]->shape)}, *into[2];
    in[0].value->mark = in[1].value->mark = 1;
    op_gradient(&build, n, seed, into);
    for (int i = 0; i < build.body->node.n; i++) interpret(build.body->node.item[i], false);
    why = differences(n, numbers_of(seed[0]), into);
    if (why) printf("FAIL broadcast %s %s: %s\n", shape_text(a), shape_text(b), why);
    return why ? -1 : 0;
}

/* The shapes of up to four axes in order: digits in base 3. */
static struct shape shape_number(int number)
{
    static const int64_t size[] = {1, 2, 4};
    struct shape s = {.rank = 1};
    for (int shapes = 3; number >= shapes; s.rank++) number -= shapes, shapes *= 3;
    for (int i = 0; i < s.rank; i++) s.dim[i] = size[number % 3], number /= 3;
    return s;
}

int broadcast_test(const char *directory, const char *root);
int broadcast_test(const char *directory, const char *root)
{
    enum { SHAPES = 3 + 9 + 27 + 81, PAIRS = 7378 };
    int fine = 0, wrong = 0;
    (void)directory, (void)root;
    for (int a = 0; a < SHAPES; a++)
        for (int b = 0; b < SHAPES && wrong < 5; b++) {
            struct arena_mark mark = arena_mark();
            int verdict = pair(shape_number(a), shape_number(b));
            fine += verdict == 0;
            wrong += verdict < 0;
            arena_reset(mark);
        }
    if (!wrong && fine != PAIRS)
        printf("FAIL broadcast: %d pairs of shapes go together, not %d\n", fine, PAIRS);
    else if (!wrong)
        printf("ok broadcast\n");
    return 0;
}
