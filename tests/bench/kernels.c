/* Generated kernels beside hand-written ones, in one process and in turns, so that whatever else
 * the machine does meets both. The figure is the best time of each, and their ratio; the bar is
 * that generation costs less than a tenth. RMSNorm forward and backward (dx and dw) over 4096 x
 * 1024, cross-entropy with its gradient over a vocabulary of 151,936. Arguments: a folder to write
 * in, the repository's root. */
#define _GNU_SOURCE
#include "machine.h"
#include "passes/pipeline.h"
#include "passes/layers.h"
#include "interpret.h"

#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROWS = 4096, WIDTH = 1024, TOKENS = 64, VOCABULARY = 151936, ROUNDS = 60 };
struct compiled {
    const char *name;
    void (*call)(void *const *address, const void *stretch);
};

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static float *numbers(int64_t n, double size)
{
    float *x = aligned_alloc(64, sizeof(float) * (size_t)n + 64);
    if (!x) bug("no memory");
    for (int64_t i = 0; i < n; i++) x[i] = (float)(size * sin((double)(i * 37 % 10007)));
    return x;
}

static struct value *input(struct graph *g, const char *name, enum element type, int64_t rows,
                           int64_t columns)
{
    struct value *v = value_new(g, intern(name), type,
                                rows ? shape_of(2, (int64_t[]){rows, columns})
                                     : shape_of(1, (int64_t[]){columns}));
    PUSH(&g->input, v);
    v->mark = type != I32;
    return v;
}

static void keep(struct build *b, struct value *v)
{
    build_op(b, OP_tap, (struct operand[]){by(v)}, 1, (struct attr[]){attr_word("name", v->name)},
             1);
}

/* The gradient of the last node made, down to `into`, the way the gradient pass does it. */
static void reverse(struct build *b, struct value *y, struct value *seed, struct value **of,
                    struct value **into, int n_into)
{
    struct {
        struct value *of, *d;
    } known[400];
    int n = 0, nodes = b->body->node.n;
    for (int i = 0; i < nodes; i++)
        for (int o = 0; o < b->body->node.item[i]->n_out; o++)
            b->body->node.item[i]->out[o]->mark = 1;
    known[n].of = y, known[n++].d = seed;
    for (int i = nodes - 1; i >= 0; i--) {
        const struct node *node = b->body->node.item[i];
        struct value *d[4] = {0}, *got[8] = {0};
        for (int k = 0; k < n && node->n_out; k++)
            if (known[k].of == node->out[0]) d[0] = known[k].d;
        if (!d[0]) continue;
        op_gradient(b, node, d, got);
        for (int o = 0; o < node->n_in; o++) {
            if (!got[o]) continue;
            int k = 0;
            while (k < n && known[k].of != node->in[o].value) k++;
            if (k < n)
                known[k].d = build2(b, OP_add, by(known[k].d), by(got[o]));
            else
                known[n].of = node->in[o].value, known[n++].d = got[o];
        }
    }
    for (int i = 0; i < n_into; i++)
        for (int k = 0; k < n; k++)
            if (known[k].of == of[i]) into[i] = known[k].d;
}

static struct build straight(struct graph *g, const char *name)
{
    struct region *r = region_new(g, name, PHASE_MICRO, ONCE, 1, "");
    return (struct build){.graph = g, .region = r, .body = body_new(r, "")};
}

static const char *names[4];

static struct graph *graph(void)
{
    struct graph *g = TAKE(struct graph);
    const char *why = "";
    struct value *x = input(g, "x", F32, ROWS, WIDTH), *w = input(g, "w", F32, 0, WIDTH),
                 *dy = input(g, "dy", F32, ROWS, WIDTH);
    struct value *logits = input(g, "logits", F32, TOKENS, VOCABULARY),
                 *targets = input(g, "targets", I32, 0, TOKENS), *got[2];
    struct build b = straight(g, "forward");
    struct value *y = layer_rms_norm(&b, x, w, 1e-5, 0, &why);
    names[0] = y->name;
    keep(&b, y);
    b = straight(g, "backward");
    y = layer_rms_norm(&b, x, w, 1e-5, 0, &why);
    reverse(&b, y, dy, (struct value *[]){x, w}, got, 2);
    names[1] = got[0]->name, names[2] = got[1]->name;
    keep(&b, got[0]);
    keep(&b, got[1]);
    b = straight(g, "loss");
    struct value *loss = layer_cross_entropy(&b, logits, targets, &why);
    struct value *one = build_op(&b, OP_zeros, NULL, 0,
                                 (struct attr[]){attr_whole("d0", 1), attr_real("value", 1)}, 2);
    reverse(&b, loss, one, &logits, got, 1);
    names[3] = got[0]->name;
    keep(&b, loss);
    keep(&b, got[0]);
    b.body->node.item[0]->mark = 0;
    graph_sweep(g);
    g->level = LEVEL_SHARD;
    g->facts.fuse = true;
    return pass_fuse(g);
}

/* The kernels of a region, ready to call. */
struct calls {
    const struct compiled *kernel[8];
    void *address[8][16];
    int n;
};

static void collect(struct machine *m, const char *region, struct calls *c)
{
    for (int i = 0; i < m->emit->kernel.n; i++) {
        const struct emit_kernel *k = &m->emit->kernel.item[i];
        if (!k->node.n || strcmp(k->region->name, region)) continue;
        struct argument *a;
        int n = emit_arguments(m->emit, k, &a);
        c->kernel[c->n] = dlsym(m->object, text_format("k_%s", k->kernel->name));
        for (int j = 0; j < n; j++)
            c->address[c->n][j] = a[j].kind == ARGUMENT_SCALARS
                                      ? machine_place(m, "scalars", F32, 16)->bytes
                                      : machine_place(m, a[j].value->name, a[j].value->type,
                                                      shape_count(a[j].value->shape))
                                            ->bytes;
        c->n++;
    }
}

static void call(const struct calls *c)
{
    for (int i = 0; i < c->n; i++) c->kernel[i]->call((void *const *)c->address[i], NULL);
}

static double difference(const float *a, const float *b, int64_t n)
{
    double worst = 0;
    for (int64_t i = 0; i < n; i++)
        worst = fmax(worst, fabs((double)a[i] - (double)b[i]) / fmax(1e-3, fabs((double)b[i])));
    return worst;
}

static void report(const char *name, const double *best, double bytes, double off, int kernels)
{
    printf("%-44s generated %8.3f ms  %5.1f GB/s  (%d kernel%s)   by hand %8.3f ms   ratio %.3f   "
           "difference %.1e\n",
           name, 1e3 * best[0], 1e-9 * bytes / best[0], kernels, kernels > 1 ? "s" : "",
           1e3 * best[1], best[0] / best[1], off);
}

#define PLACE(i, n) ((float *)(void *)machine_place(m, names[i], F32, n)->bytes)

static double since(struct machine *m, int i, int64_t n, const float *generated)
{
    return difference(generated, PLACE(i, n), n);
}

/* The caches hold what neither wants: the other one ran just before, on the same bytes. */
static void evict(void)
{
    enum { BYTES = 64 << 20 };
    static volatile char *all;
    if (!all) all = (volatile char *)numbers(BYTES / 4, 1);
    for (int64_t i = 0; i < BYTES; i += 64) all[i]++;
}

static float *copy(const float *x, int64_t n)
{
    return memcpy(numbers(n, 0), x, sizeof *x * (size_t)n);
}

int main(int argc, char **argv)
{
    if (argc != 3) return 3;
    struct machine *m = machine_open(graph(), argv[1], "bench", argv[2]);
    char *command;
    if (!m ||
        asprintf(&command,
                 "cc %s -shared -fPIC -I %s/runtime/shared %s/tests/bench/hand.c -o %s/hand.so -lm",
                 EMIT_KERNEL_FLAGS, argv[2], argv[2], argv[1]) < 0 ||
        system(command))
        return 4;
    void *hand = dlopen(text_format("%s/hand.so", argv[1]), RTLD_NOW);
    if (!hand) return 4;
    void (*rms_forward)(const float *, const float *, float *, int64_t, int64_t, float) =
        (__typeof__(rms_forward))dlsym(hand, "hand_rms_forward");
    void (*rms_backward)(const float *, const float *, const float *, float *, float *, int64_t,
                         int64_t, float) =
        (__typeof__(rms_backward))dlsym(hand, "hand_rms_backward");
    void (*entropy)(const float *, const int32_t *, float, float *, float *, int64_t, int64_t) =
        (__typeof__(entropy))dlsym(hand, "hand_entropy");

    const float *x =
        (const float *)(void *)memcpy(machine_place(m, "x", F32, ROWS * WIDTH)->bytes,
                                      numbers(ROWS * WIDTH, 1.5), sizeof(float) * ROWS * WIDTH);
    const float *w = (const float *)(void *)memcpy(machine_place(m, "w", F32, WIDTH)->bytes,
                                                   numbers(WIDTH, 1.2), sizeof(float) * WIDTH);
    const float *dy =
        (const float *)(void *)memcpy(machine_place(m, "dy", F32, ROWS * WIDTH)->bytes,
                                      numbers(ROWS * WIDTH, 0.7), sizeof(float) * ROWS * WIDTH);
    const float *logits = (const float *)(void *)memcpy(
        machine_place(m, "logits", F32, (int64_t)TOKENS * VOCABULARY)->bytes,
        numbers((int64_t)TOKENS * VOCABULARY, 6), sizeof(float) * TOKENS * VOCABULARY);
    int32_t *targets = (int32_t *)(void *)machine_place(m, "targets", I32, TOKENS)->bytes;
    for (int i = 0; i < TOKENS; i++) targets[i] = i * 2371 % VOCABULARY;
    machine_put(m, "scalars", F32, 16, (double[16]){0, 0, 0, 1.0 / TOKENS});
    struct calls forward = {0}, backward = {0}, losses = {0};
    collect(m, "forward", &forward);
    collect(m, "backward", &backward);
    collect(m, "loss", &losses);
    double best[3][2];
    for (int i = 0; i < 3; i++) best[i][0] = best[i][1] = INFINITY;
    /* both write to the same places, since addresses have an effect on speed */
    float *y = PLACE(0, ROWS * WIDTH), *dx = PLACE(1, ROWS * WIDTH), *dw = PLACE(2, WIDTH),
          *dlogits = PLACE(3, (int64_t)TOKENS * VOCABULARY), loss;
    for (int round = 0; round < ROUNDS; round++)
        /* who goes first changes: what ran before has an effect */
        for (int turn = 0; turn < 2; turn++) {
            int side = (round + turn) % 2;
#define TIME(i, generated, by_hand)                 \
    do {                                            \
        evict();                                    \
        double at = seconds();                      \
        if (side)                                   \
            by_hand;                                \
        else                                        \
            generated;                              \
        at = seconds() - at;                        \
        if (at < best[i][side]) best[i][side] = at; \
    } while (0)
            TIME(0, call(&forward), rms_forward(x, w, y, ROWS, WIDTH, 1e-5f));
            TIME(1, call(&backward), rms_backward(x, w, dy, dx, dw, ROWS, WIDTH, 1e-5f));
            TIME(2, call(&losses),
                 entropy(logits, targets, 1.0f / TOKENS, dlogits, &loss, TOKENS, VOCABULARY));
        }
    call(&forward), call(&backward), call(&losses);
    float *made[] = {copy(y, ROWS * WIDTH), copy(dx, ROWS * WIDTH), copy(dw, WIDTH),
                     copy(dlogits, (int64_t)TOKENS * VOCABULARY)};
    rms_forward(x, w, y, ROWS, WIDTH, 1e-5f);
    rms_backward(x, w, dy, dx, dw, ROWS, WIDTH, 1e-5f);
    entropy(logits, targets, 1.0f / TOKENS, dlogits, &loss, TOKENS, VOCABULARY);
    double row = 4.0 * ROWS * WIDTH, wide = 4.0 * TOKENS * VOCABULARY;
    report("RMSNorm forward, 4096 x 1024", best[0], 2 * row, since(m, 0, ROWS * WIDTH, made[0]),
           forward.n);
    report("RMSNorm backward (dx, dw), 4096 x 1024", best[1], 3 * row,
           fmax(since(m, 1, ROWS * WIDTH, made[1]), since(m, 2, WIDTH, made[2])), backward.n);
    report("cross-entropy and gradient, 64 x 151,936", best[2], 2 * wide,
           since(m, 3, (int64_t)TOKENS * VOCABULARY, made[3]), losses.n);
    return 0;
}
