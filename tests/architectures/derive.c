/* The gradient of whole architectures: each plan's graph before gradients is run in double
 * precision by the naive interpreter of tests/kernels, with weights moved a little along a drawn
 * direction, and the change of the loss is held against what the graph with gradients, and with
 * the loss in one piece and in two, says along that direction. Arguments: plans. Lines:
 *   fine FILE PIECES      refused FILE PIECES      FAIL FILE PIECES: why
 *   rough FILE PIECES     (not finite, or a choice of experts changes on the way) */
#include "interpret.h"
#include "passes/pipeline.h"

#include "base/diagnostics.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_LAYERS = 8 };

struct saved {
    struct value *value;
    struct numbers *numbers;
};
struct state {
    double step;        /* along the direction */
    double loss, slope; /* what the graph says */
    int64_t iteration, piece;
    struct {
        const char *region;
        VECTOR(struct saved) value[MOST_LAYERS];
    } loop[16];
    int loops;
};

/* A number in [-1, 1) that is a function of its place. */
static double drawn(uint64_t a, uint64_t b, uint64_t c, uint64_t kind)
{
    uint64_t x = a * 0x9E3779B97F4A7C15u + b * 0xBF58476D1CE4E5B9u + c * 0x94D049BB133111EBu + kind;
    for (int i = 0; i < 3; i++) x ^= x >> 31, x *= 0xD6E8FEB86659FD93u;
    return (double)(x >> 11) / 4503599627370496.0 - 1;
}

/* Element e of weight k of layer i along the direction. The bias of a router stays: what is handed
 * back for it is no derivative. */
static double along(const struct graph *g, int k, int64_t i, int64_t e)
{
    return g->weight.item[k]->balances ? 0 : drawn((uint64_t)k, (uint64_t)i, (uint64_t)e, 2);
}

static struct numbers *fresh(struct value *v)
{
    v->note = NULL;
    return numbers_of(v);
}

static void set_weights(const struct graph *g, const struct state *s)
{
    for (int k = 0; k < g->weight.n; k++) {
        struct value *v = g->weight.item[k]->value;
        struct numbers *x = fresh(v);
        int64_t i = graph_unit(g, g->weight.item[k]->unit)->loop[0] ? s->iteration : 0;
        for (int64_t e = 0; e < x->n; e++)
            x->x[e] =
                0.6 * drawn((uint64_t)k, (uint64_t)i, (uint64_t)e, 1) + s->step * along(g, k, i, e);
    }
}

static void run_node(const struct graph *g, struct state *s, const struct node *n)
{
    struct numbers *in = n->n_in && n->in[0].value ? numbers_of(n->in[0].value) : NULL;
    for (int o = 0; o < n->n_out; o++) fresh(n->out[o]);
    struct numbers *out = n->n_out ? numbers_of(n->out[0]) : NULL;
    if (n->op == OP_part) {
        memcpy(out->x, in->x + s->piece * out->n, sizeof *out->x * (size_t)out->n);
    } else if (n->op == OP_put_part) {
        struct numbers *part = numbers_of(n->in[1].value);
        memcpy(out->x, in->x, sizeof *out->x * (size_t)out->n);
        memcpy(out->x + s->piece * part->n, part->x, sizeof *out->x * (size_t)part->n);
    } else if (n->op == OP_scalar) {
        out->x[0] = 1.0 / (double)g->facts.tokens;
    } else if (n->op == OP_metric) {
        if (!strcmp(attr_get_word(n, "name"), "loss")) s->loss = in->x[0];
    } else {
        interpret(n, false);
    }
}

static const struct body *body_of(const struct region *r, int64_t i)
{
    for (int k = 0; k < r->body.n; k++) {
        const struct body *b = r->body.item[k];
        if (!b->layers.n) return b;
        for (int j = 0; j < b->layers.n; j++)
            if (i >= b->layers.item[j].from && i < b->layers.item[j].to) return b;
    }
    return r->body.item[0];
}

static void run_body(const struct graph *g, struct state *s, const struct body *b)
{
    set_weights(g, s);
    for (int n = 0; n < b->node.n; n++) run_node(g, s, b->node.item[n]);
    for (int n = 0; n < b->gradient.n; n++) {
        const struct numbers *d = numbers_of(b->gradient.item[n].value);
        int k = 0;
        while (g->weight.item[k]->value != b->gradient.item[n].weight) k++;
        int64_t i = graph_unit(g, g->weight.item[k]->unit)->loop[0] ? s->iteration : 0;
        for (int64_t e = 0; e < d->n; e++) s->slope += d->x[e] * along(g, k, i, e);
    }
}

static void run_loop(const struct graph *g, struct state *s, const struct region *r)
{
    int mine = s->loops++, mirrored = -1;
    s->loop[mine].region = r->name;
    for (int k = 0; k < mine; k++)
        if (r->mirror && !strcmp(s->loop[k].region, r->mirror)) mirrored = k;
    for (int k = 0; k < r->carry.n; k++)
        r->carry.item[k].value->note = numbers_of(r->carry.item[k].first);
    for (int64_t n = 0; n < r->count; n++) {
        int64_t i = r->direction == DOWN ? r->count - 1 - n : n;
        const struct body *b = body_of(r, i);
        s->iteration = i, s->piece = n;
        for (int k = 0; mirrored >= 0 && k < s->loop[mirrored].value[i].n; k++)
            s->loop[mirrored].value[i].item[k].value->note =
                s->loop[mirrored].value[i].item[k].numbers;
        run_body(g, s, b);
        for (int k = 0; k < r->carry.n; k++)
            PUSH(&s->loop[mine].value[i],
                 ((struct saved){r->carry.item[k].value, r->carry.item[k].value->note}));
        for (int m = 0; m < b->node.n; m++)
            for (int o = 0; o < b->node.item[m]->n_out; o++)
                PUSH(&s->loop[mine].value[i],
                     ((struct saved){b->node.item[m]->out[o], b->node.item[m]->out[o]->note}));
        struct numbers **next = TAKE_MANY(struct numbers *, r->carry.n + 1);
        for (int k = 0; k < r->carry.n; k++) next[k] = numbers_of(b->next.item[k]);
        for (int k = 0; k < r->carry.n; k++) r->carry.item[k].value->note = next[k];
    }
    for (int k = 0; k < r->carry.n; k++) r->carry.item[k].last->note = r->carry.item[k].value->note;
    s->iteration = s->piece = 0;
}

static struct state run(const struct graph *g, double step)
{
    struct state s = {.step = step};
    for (int i = 0; i < g->input.n; i++) {
        struct numbers *x = fresh(g->input.item[i]);
        /* rows of documents of three tokens, which end with their sample; or ids */
        const bool starts = !strcmp(g->input.item[i]->name, "starts");
        for (int64_t e = 0; e < x->n; e++)
            x->x[e] = starts ? (double)(e - e % g->facts.sequence % 3)
                             : floor(2.5 + 2.5 * drawn(0, (uint64_t)i, (uint64_t)e, 3));
    }
    for (int i = 0; i < g->region.n; i++) {
        const struct region *r = g->region.item[i];
        if (r->direction == ONCE)
            run_body(g, &s, r->body.item[0]);
        else
            run_loop(g, &s, r);
    }
    return s;
}

static struct graph *graph_of(const char *path, const char *pieces, enum level level)
{
    const char *const set[] = {intern_format("batch.loss_chunks=%s", pieces),
                               "precision.compute=fp32"};
    const char *const *open_keys;
    int n_open;
    struct plan *p = plan_load(path, set, 2, &open_keys, &n_open);
    struct graph *g = p ? pass_lower(p) : NULL;
    return g && level > LEVEL_LOWER ? pipeline_run(g, level) : g;
}

static void derive(const char *path, const char *pieces)
{
    struct graph *plain = graph_of(path, pieces, LEVEL_LOWER),
                 *whole = plain ? graph_of(path, pieces, LEVEL_CHUNK) : NULL;
    if (!whole) {
        printf("refused %s %s\n", path, pieces);
        diagnostics_reset();
        return;
    }
    struct state at = run(whole, 0), here = run(plain, 0);
    double h = 1e-6, want = (run(plain, h).loss - run(plain, -h).loss) / (2 * h),
           wide = (run(plain, 4 * h).loss - run(plain, -4 * h).loss) / (8 * h);
    bool smooth = fabs(want - wide) <= 1e-4 * fmax(1, fabs(want)); /* no choice has changed */
    if (!isfinite(at.loss) && !isfinite(here.loss))
        printf("rough %s %s\n", path, pieces); /* nothing to hold against it */
    else if (!(fabs(at.loss - here.loss) <= 1e-9 * fmax(1, fabs(here.loss))))
        printf("FAIL %s %s: the loss is %.12g, not %.12g\n", path, pieces, at.loss, here.loss);
    else if (smooth && !(fabs(want - at.slope) <= 1e-4 * fmax(1, fabs(want))))
        printf("FAIL %s %s: the slope is %.9g, differences give %.9g\n", path, pieces, at.slope,
               want);
    else
        printf("%s %s %s\n", smooth ? "fine" : "rough", path, pieces);
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int i = 1; i < argc; i++)
        for (int pieces = 1; pieces <= 2; pieces++) {
            struct arena_mark mark = arena_mark();
            derive(argv[i], pieces == 1 ? "1" : "2");
            arena_reset(mark);
        }
    return 0;
}
