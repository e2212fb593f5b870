/* Graphs of attention in the stand-in cuDNN: operation by operation, in the order in which they
 * were given, over dense arrays. What a value is rounded to follows from its tensor's type, what a
 * reshape moves from the strides of its two ends. Operands that share heads have fewer of them:
 * neighbours share one. Tensors that are kept are read from, and written to, the addresses of the
 * pack; numbers by value are read when the plan is executed, all else when its turn comes.
 *
 * Engines: the heuristic's does the forward pass, and a gradient that keeps all slopes in its
 * workspace, two bytes a query and key. Engine 5 with STAGES 2 does the plain gradient on
 * Blackwell, engine 6 with STAGES 4 on Hopper the one whose dq is an F32 tensor first, as cuDNN
 * 9.28 says of described devices (tests/cuda_library). The heuristic's way for the latter adds in
 * any order, so here it adds something else each time. STANDIN_CUDNN_WORKSPACE: the bytes that each
 * of them wants instead. */
#include "cudnn.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OPERATIONS = 32, VALUES = 64, RANK = 4, IDS = 16, STAGES = 14 };

struct array {
    int64_t id, extent[RANK], stride[RANK];
    int32_t type;
    bool kept, by_value, written;
    double *at;
};
struct work {
    const struct descriptor *graph;
    int n;
    int64_t id[IDS];
    unsigned char *at[IDS]; /* by value: NULL */
    float number[IDS];
    unsigned char *workspace;
    size_t workspace_bytes;
    bool any_order;
};
struct run {
    const struct work *of;
    struct array value[VALUES];
    int values;
    bool wrong;
};

static int operations(const struct descriptor *graph, struct descriptor *to[OPERATIONS])
{
    const void *at = NULL;
    int64_t n = counted(graph, 801, IS_DESCRIPTOR, &at);
    if (n > OPERATIONS) return 0;
    memcpy(to, at, (size_t)n * sizeof *to);
    return (int)n;
}

bool attention_is(const struct descriptor *graph)
{
    struct descriptor *op[OPERATIONS];
    int n = operations(graph, op);
    return n > 1 && op[0]->kind != GROUPED;
}

static int64_t number_of(const struct descriptor *d, unsigned name)
{
    int64_t x = 0;
    const void *at = kept(d, name, IS_INT64, 1);
    if (at) memcpy(&x, at, sizeof x);
    return x;
}
static int32_t word_of(const struct descriptor *d, unsigned name, unsigned type)
{
    int32_t x = -1;
    const void *at = kept(d, name, type, 1);
    if (at) memcpy(&x, at, sizeof x);
    return x;
}
static bool flag_of(const struct descriptor *d, unsigned name)
{
    const bool *at = kept(d, name, IS_FLAG, 1);
    return at && *at;
}

static struct array described(const struct descriptor *tensor)
{
    struct array a = {.id = number_of(tensor, 906),
                      .type = word_of(tensor, 901, IS_TYPE),
                      .by_value = flag_of(tensor, 908)};
    const void *extent = kept(tensor, 902, IS_INT64, RANK),
               *stride = kept(tensor, 903, IS_INT64, RANK);
    if (extent) memcpy(a.extent, extent, sizeof a.extent);
    if (stride) memcpy(a.stride, stride, sizeof a.stride);
    a.kept = !flag_of(tensor, 907);
    return a;
}

/* The last operation's result before rounding: F32 and kept, of a gradient that is summed so. */
static bool is_summed(const struct descriptor *graph)
{
    struct descriptor *op[OPERATIONS];
    int n = operations(graph, op);
    for (int i = 0; i < n; i++)
        if (op[i]->kind == OF_MATMUL) {
            struct array y = described(part(op[i], 1522));
            if (y.kept && y.type == F32) return true;
        }
    return false;
}
static bool is_gradient(const struct descriptor *graph)
{
    struct descriptor *op[OPERATIONS];
    int n = operations(graph, op);
    for (int i = 0; i < n; i++)
        if (op[i]->kind == OF_RESHAPE) return true;
    return false;
}

static int64_t stages_of(const struct descriptor *config)
{
    const void *at = NULL;
    struct descriptor *choice;
    int64_t n = counted(config, 302, IS_DESCRIPTOR, &at);
    for (int64_t i = 0; i < n; i++) {
        memcpy(&choice, (const char *)at + i * (int64_t)sizeof choice, sizeof choice);
        if (word_of(choice, 600, IS_KNOB) == STAGES) return number_of(choice, 601);
    }
    return -1;
}

/* Of the first product, q k'. */
int64_t attention_bytes(const struct descriptor *graph, const struct descriptor *engine,
                        const struct descriptor *config)
{
    struct descriptor *op[OPERATIONS];
    int n = operations(graph, op), i = 0;
    const char *compute = getenv("STANDIN_COMPUTE");
    const int major = compute ? atoi(compute) : 9;
    const int64_t set = standin_setting("STANDIN_CUDNN_WORKSPACE", 0);
    while (i < n && op[i]->kind != OF_MATMUL) i++;
    if (i == n) return -1;
    if (set > 0) return set;
    const struct array q = described(part(op[i], 1520));
    const int64_t rows = q.extent[0] * q.extent[1] * q.extent[2], width = q.extent[3];
    if (!is_gradient(graph)) return engine ? -1 : 256;
    if (!engine) return is_summed(graph) ? 4 * rows * width + 256 : 2 * rows * q.extent[2] + 256;
    const int64_t number = number_of(engine, 1301), stages = stages_of(config);
    if (number == 5 && stages == 2 && major == 10 && !is_summed(graph))
        return 8 * rows * width + 128;
    if (number == 6 && stages == 4 && major == 9 && is_summed(graph))
        return 4 * rows * width + 8 * q.extent[0] * q.extent[1] * ((q.extent[2] + 63) / 64) + 512;
    return -1;
}

/* ── arrays ──────────────────────────────────────────────────────────────────── */
static int64_t count_of(const struct array *a)
{
    return a->extent[0] * a->extent[1] * a->extent[2] * a->extent[3];
}
static void place(const struct array *a, int64_t i, int64_t at[RANK])
{
    for (int k = RANK - 1; k >= 0; k--) at[k] = i % a->extent[k], i /= a->extent[k];
}
/* Of an array that has fewer of some extent: neighbours share one. */
static int64_t shared(const struct array *a, const int64_t at[RANK], const int64_t of[RANK])
{
    int64_t i = 0;
    for (int k = 0; k < RANK; k++) i = i * a->extent[k] + at[k] * a->extent[k] / of[k];
    return i;
}
static int64_t offset(const struct array *a, int64_t i)
{
    int64_t at[RANK], sum = 0;
    place(a, i, at);
    for (int k = 0; k < RANK; k++) sum += at[k] * a->stride[k];
    return sum;
}
static double rounded(double x, int32_t type)
{
    unsigned char half[2];
    if (type == F32) return (float)x;
    if (type != BF16) return x;
    bf16_put(half, 0, (float)x);
    return bf16_value(half, 0);
}

static int slot_of(const struct run *r, int64_t id)
{
    for (int i = 0; i < r->of->n; i++)
        if (r->of->id[i] == id) return i;
    return -1;
}

/* An operand or a result, made at its first use; what is kept has its bytes. */
static struct array *value_of(struct run *r, const struct descriptor *tensor, bool result)
{
    struct array a = described(tensor);
    for (int i = 0; i < r->values; i++)
        if (r->value[i].id == a.id) return &r->value[i];
    int slot = slot_of(r, a.id);
    if (r->values == VALUES || count_of(&a) < 1 || (!result && slot < 0) || (a.kept && slot < 0)) {
        fprintf(stderr, "stand-in cuDNN: tensor %lld has no value yet\n", (long long)a.id);
        r->wrong = true;
        r->values = 0;
    }
    struct array *to = &r->value[r->values++];
    *to = a;
    to->at = calloc((size_t)count_of(&a) + 1, sizeof *to->at);
    for (int64_t i = 0; !result && slot >= 0 && i < count_of(to); i++) {
        float x = r->of->number[slot];
        if (r->of->at[slot] && a.type == F32)
            memcpy(&x, r->of->at[slot] + 4 * offset(to, i), sizeof x);
        else if (r->of->at[slot])
            x = bf16_value(r->of->at[slot], offset(to, i));
        to->at[i] = x;
    }
    return to;
}
static struct array *operand(struct run *r, const struct descriptor *op, unsigned name)
{
    return value_of(r, part(op, name), false);
}
static struct array *result(struct run *r, const struct descriptor *op, unsigned name)
{
    struct array *y = value_of(r, part(op, name), true);
    y->written = true;
    return y;
}

/* ── operations ──────────────────────────────────────────────────────────────── */
static void matmul(struct run *r, const struct descriptor *op)
{
    const struct array *a = operand(r, op, 1520), *b = operand(r, op, 1521);
    struct array *c = result(r, op, 1522);
    for (int64_t i = 0; i < count_of(c); i++) {
        int64_t at[RANK], from[RANK], of[RANK];
        double sum = 0;
        place(c, i, at);
        for (int64_t k = 0; k < a->extent[3]; k++) {
            memcpy(from, at, sizeof from), memcpy(of, c->extent, sizeof of);
            from[3] = k, of[3] = a->extent[3];
            const double x = a->at[shared(a, from, of)];
            memcpy(from, at, sizeof from), memcpy(of, c->extent, sizeof of);
            from[2] = k, of[2] = b->extent[2];
            sum += x * b->at[shared(b, from, of)];
        }
        c->at[i] = rounded(sum, c->type);
    }
}

static void pointwise(struct run *r, const struct descriptor *op)
{
    const struct descriptor *how = part(op, 750);
    const int32_t mode = word_of(how, 0, IS_POINTWISE);
    const void *at_b, *at_t;
    const struct array *x = operand(r, op, 751),
                       *b = counted(op, 752, IS_DESCRIPTOR, &at_b) ? operand(r, op, 752) : NULL,
                       *t = counted(op, 758, IS_DESCRIPTOR, &at_t) ? operand(r, op, 758) : NULL;
    struct array *y = result(r, op, 753);
    for (int64_t i = 0; i < count_of(y); i++) {
        int64_t at[RANK];
        place(y, i, at);
        const double u = x->at[shared(x, at, y->extent)],
                     v = b ? b->at[shared(b, at, y->extent)] : 0,
                     which = t ? t->at[shared(t, at, y->extent)] : 0;
        double z = 0;
        switch (mode) {
        case 0: z = u + v; break;
        case 1: z = u * v; break;
        case 6: z = u / v; break;
        case 9: z = u - v; break;
        case 13: z = exp(u); break;
        case 15: z = log(u); break;
        case 21: z = u; break;
        case 303: z = u >= v; break;
        case 501: z = (double)at[number_of(how, 9)]; break;
        case 601: z = which != 0 ? u : v; break;
        default: fprintf(stderr, "stand-in cuDNN: pointwise mode %d\n", mode), r->wrong = true;
        }
        y->at[i] = rounded(z, y->type);
    }
}

static void reduction(struct run *r, const struct descriptor *op)
{
    const bool largest = word_of(part(op, 1612), 1600, IS_REDUCTION) == 3;
    const struct array *x = operand(r, op, 1610);
    struct array *y = result(r, op, 1611);
    for (int64_t i = 0; i < count_of(y); i++) y->at[i] = largest ? -INFINITY : 0;
    for (int64_t i = 0; i < count_of(x); i++) {
        int64_t at[RANK];
        place(x, i, at);
        double *to = &y->at[shared(y, at, x->extent)];
        *to = largest ? fmax(*to, x->at[i]) : *to + x->at[i];
    }
    for (int64_t i = 0; i < count_of(y); i++) y->at[i] = rounded(y->at[i], y->type);
}

static void reshape(struct run *r, const struct descriptor *op)
{
    const struct array *x = operand(r, op, 2200);
    struct array *y = result(r, op, 2201);
    double *line = calloc((size_t)count_of(x) + 1, sizeof *line);
    if (count_of(x) != count_of(y)) r->wrong = true;
    for (int64_t i = 0; i < count_of(x) && !r->wrong; i++) {
        if (offset(x, i) >= count_of(x) || offset(y, i) >= count_of(y))
            r->wrong = true;
        else
            line[offset(x, i)] = x->at[i];
    }
    for (int64_t i = 0; i < count_of(y) && !r->wrong; i++)
        y->at[i] = rounded(line[offset(y, i)], y->type);
    free(line);
}

static enum standin_progress run_graph(void *data)
{
    const struct work *w = data;
    struct run *r = calloc(1, sizeof *r);
    struct descriptor *op[OPERATIONS];
    int n = operations(w->graph, op);
    r->of = w;
    if (w->workspace) memset(w->workspace, 0xff, w->workspace_bytes);
    for (int i = 0; i < n && !r->wrong; i++) switch (op[i]->kind) {
        case OF_MATMUL: matmul(r, op[i]); break;
        case OF_POINTWISE: pointwise(r, op[i]); break;
        case OF_REDUCTION: reduction(r, op[i]); break;
        case OF_RESHAPE: reshape(r, op[i]); break;
        default: r->wrong = true;
        }
    for (int v = 0; v < r->values; v++) {
        const struct array *a = &r->value[v];
        const int slot = slot_of(r, a->id);
        for (int64_t i = 0; a->written && a->kept && slot >= 0 && !r->wrong && i < count_of(a);
             i++) {
            const float x =
                (float)(w->any_order ? a->at[i] + 1e-3 * (double)(standin_random() % 8) : a->at[i]);
            if (a->type == F32)
                memcpy(w->at[slot] + 4 * offset(a, i), &x, sizeof x);
            else
                bf16_put(w->at[slot], offset(a, i), x);
        }
        free(a->at);
    }
    const bool wrong = r->wrong;
    free(r);
    if (wrong) standin_error(719, "stand-in cuDNN: a graph of attention that cannot be run");
    return wrong ? STANDIN_FAILED : STANDIN_DONE;
}

/* The tensor of an id, wherever an operation has it. */
static bool tensor_of(const struct descriptor *graph, int64_t id, struct array *to)
{
    static const unsigned names[] = {1520, 1521, 1522, 751, 752, 753, 758, 1610, 1611, 2200, 2201};
    struct descriptor *op[OPERATIONS];
    const void *at;
    int n = operations(graph, op);
    for (int i = 0; i < n; i++)
        for (size_t k = 0; k < sizeof names / sizeof *names; k++)
            if (counted(op[i], names[k], IS_DESCRIPTOR, &at)) {
                *to = described(part(op[i], names[k]));
                if (to->id == id) return true;
            }
    return false;
}

unsigned attention_run(struct handle *handle, const struct descriptor *graph,
                       const struct descriptor *pack, int64_t workspace_bytes, bool by_number)
{
    static bool told;
    struct work w = {.graph = graph,
                     .workspace_bytes = (size_t)workspace_bytes,
                     .any_order = is_summed(graph) && !by_number};
    const void *ids = NULL, *addresses = NULL, *workspace = kept(pack, 1003, IS_ADDRESS, 1);
    const int64_t n = counted(pack, 1000, IS_INT64, &ids);
    void *at;
    if (n < 1 || n > IDS || counted(pack, 1001, IS_ADDRESS, &addresses) != n || !workspace)
        return BAD_PARAM;
    w.n = (int)n;
    memcpy(w.id, ids, (size_t)n * sizeof *w.id);
    memcpy(&at, workspace, sizeof at);
    if (!(w.workspace = standin_memory(at, w.workspace_bytes))) return BAD_PARAM;
    for (int i = 0; i < w.n; i++) {
        struct array a;
        memcpy(&at, (const char *)addresses + i * (int)sizeof at, sizeof at);
        if (!tensor_of(graph, w.id[i], &a)) return BAD_PARAM;
        if (a.by_value) {
            memcpy(&w.number[i], at, sizeof w.number[i]);
            continue;
        }
        const int64_t last = offset(&a, count_of(&a) - 1);
        w.at[i] = standin_memory(at, (size_t)(last + 1) * (a.type == F32 ? 4 : 2));
        if (!w.at[i] || (uintptr_t)at % 16) {
            fprintf(stderr,
                    "stand-in cuDNN: tensor %lld is not in one allocation, or not aligned\n",
                    (long long)w.id[i]);
            return BAD_PARAM;
        }
    }
    if (!told) fprintf(stderr, "stand-in cuDNN: attention\n");
    told = true;
    return standin_enqueue(handle->stream, "attention", run_graph, &w, sizeof w) ? EXECUTION_FAILED
                                                                                 : SUCCESS;
}
