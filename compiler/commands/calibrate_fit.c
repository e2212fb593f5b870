/* Rates from what trainers measured (--profile-out). A kernel that is a product or attention
 * corrects the points of its grid around its shape, or its row of efficiencies; generated loops
 * give what each op takes an element (least squares without negative times); moves give a grid of
 * each op. Rows that no kernel determines stay. */
#include "commands/calibrate.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <string.h>

enum { SWEEPS = 400 };

static bool refuse(const char *path, const char *why)
{
    command_fail(EXIT_ENVIRONMENT, "'%s' is no file of --profile-out or --metrics: %s", path, why);
    return false;
}

static double number_of(json_t *o, const char *key)
{
    return json_number_value(json_object_get(o, key));
}
static const char *word_of(json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}

static int word_index(const char *const *words, int n, const char *word)
{
    for (int i = 0; i < n; i++)
        if (words[i] && !strcmp(words[i], word)) return i;
    return -1;
}

/* A row of `kernels`. */
static bool read_kernel(const char *path, json_t *k, int64_t ranks, observation_list *all)
{
    static const char *const orders[] = {"any", "nn", "nt", "tn", "tt"};
    json_t *ops = json_object_get(k, "ops");
    struct observation o = {.seconds = number_of(k, "seconds"), .ranks = ranks};
    struct work *w = &o.work;
    int class = word_index(cost_class_names, COST_CLASSES, word_of(k, "class"));
    int order = word_index(orders, COUNT_OF(orders), word_of(k, "order"));
    if (class < 0) return refuse(path, text_format("class '%s' of a kernel", word_of(k, "class")));
    if (!(o.seconds >= 0)) return refuse(path, "seconds of a kernel");
    w->name = intern(word_of(k, "name"));
    w->class = (enum cost_class) class;
    w->type = strcmp(word_of(k, "type"), "bf16") ? F32 : BF16;
    w->order = order < 0 ? ORDER_ANY : (enum order)order;
    w->mixed = json_is_true(json_object_get(k, "mixed"));
    w->weight_gradient = json_is_true(json_object_get(k, "weight_gradient"));
    w->library = json_is_true(json_object_get(k, "library"));
    w->m = number_of(k, "m"), w->n = number_of(k, "n"), w->k = number_of(k, "k");
    w->rows = number_of(k, "rows"), w->experts = number_of(k, "experts");
    w->heads = number_of(k, "heads"), w->width = number_of(k, "width");
    w->sequence = number_of(k, "sequence"), w->columns = number_of(k, "columns");
    w->flops = number_of(k, "flops"), w->bytes = number_of(k, "bytes");
    w->unit = -1;
    w->op = TAKE_MANY(struct op_work, json_array_size(ops) + 1);
    for (size_t i = 0; i < json_array_size(ops); i++) {
        const char *name = json_string_value(json_array_get(json_array_get(ops, i), 0));
        int op = 0;
        while (op < OP_COUNT && strcmp(op_rows[op].name, name ? name : "")) op++;
        if (op == OP_COUNT) return refuse(path, text_format("op '%s'", name ? name : ""));
        w->op[w->ops++] = (struct op_work){
            (enum op)op, json_number_value(json_array_get(json_array_get(ops, i), 1))};
    }
    o.engine = intern(word_of(k, "engine"));
    if (o.seconds > 0) PUSH(all, o);
    return true;
}

/* One JSON object per step: how far steps lie from their mean. */
static bool read_metrics(const char *path, const char *text, struct cluster *c)
{
    double sum = 0, squares = 0;
    int n = 0;
    for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n') {
        json_t *step = json_loadb(line, strcspn(line, "\n"), 0, NULL);
        double seconds = step ? number_of(step, "step_seconds") : 0;
        if (!(seconds > 0)) return refuse(path, "a line without step_seconds");
        if (number_of(step, "step") < 1) continue; /* the first step warms up */
        sum += seconds, squares += seconds * seconds, n++;
    }
    if (n < 3) return refuse(path, "it has fewer than four steps");
    double mean = sum / n, variance = squares / n - mean * mean;
    double jitter = variance > 0 ? sqrt(variance) / mean : 0;
    c->jitter = jitter;
    return true;
}

static const char *device;

const char *calibrate_device(void) { return device; }

bool calibrate_read(const char *path, observation_list *all, struct cluster *c)
{
    size_t n;
    char *text = text_read(path, &n);
    if (!text) {
        command_fail(EXIT_ENVIRONMENT, "cannot read '%s': %s", path, text_read_why(errno));
        return false;
    }
    json_error_t why;
    json_t *file = json_loadb(text, n, 0, &why);
    if (!file && !strncmp(text, "{\"step\":", 8)) return read_metrics(path, text, c);
    if (!file) return refuse(path, text_format("line %d: %s", why.line, why.text));
    if (number_of(file, "step") >= 0 && json_object_get(file, "step_seconds") &&
        !json_object_get(file, "planc_profile"))
        return read_metrics(path, text, c);
    json_t *kernels = json_object_get(file, "kernels");
    if (number_of(file, "planc_profile") != 1 || !json_is_array(kernels))
        return refuse(path, "it has no \"planc_profile\": 1 and no kernels");
    if (strcmp(word_of(file, "device"), c->kind == DEVICE_CUDA ? "cuda" : "cpu"))
        return refuse(
            path, text_format("it is of device '%s', the cluster is not", word_of(file, "device")));
    if (*word_of(file, "device_name")) device = intern(word_of(file, "device_name"));
    int64_t ranks = (int64_t)number_of(file, "ranks_a_host");
    for (size_t i = 0; i < json_array_size(kernels); i++)
        if (!read_kernel(path, json_array_get(kernels, i), ranks > 0 ? ranks : 1, all))
            return false;
    return true;
}

/* ── products, attention ─────────────────────────────────────────────────────── */
static bool multiplies(enum cost_class class)
{
    return class == COST_GEMM || class == COST_GROUPED_GEMM || class == COST_ATTENTION ||
           class == COST_ATTENTION_GRAD;
}

static struct machine machine_for(const struct cluster *c, const struct rates *r,
                                  struct cluster *room, int64_t ranks)
{
    *room = *c;
    room->grid = r->grid.item, room->grids = r->grid.n;
    room->efficiency = r->efficiency.item, room->efficiencies = r->efficiency.n;
    room->devices_per_node = ranks;
    struct plan p = {.cluster = *room, .device = c->kind};
    struct machine m = machine_of(&p);
    m.cluster = room;
    return m;
}

/* One pass over all: the points around each shape take the whole error of it, by their weights. */
static double correct_products(const struct cluster *c, struct rates *r,
                               const observation_list *all, struct provenance from)
{
    double worst = 0;
    for (int i = 0; i < all->n; i++) {
        const struct observation *o = &all->item[i];
        struct cluster room;
        if (!multiplies(o->work.class)) continue;
        struct arena_mark mark = arena_mark();
        struct machine m = machine_for(c, r, &room, o->ranks);
        m.engine[o->work.class] = o->engine;
        struct kernel_time t = kernel_time(&m, &o->work);
        double error = t.missing ? 0 : log((double)t.picoseconds[ALONE] / PICOSECONDS / o->seconds);
        int row = t.rate - FIXED_RATES;
        arena_reset(mark);
        if (t.missing || (c->kind == DEVICE_CUDA && t.limit != LIMIT_FLOPS)) continue;
        if (fabs(error) > worst) worst = fabs(error);
        if (row < r->efficiency.n) {
            r->efficiency.item[row].value *= exp(0.5 * error);
            r->efficiency.item[row].from = from;
            continue;
        }
        struct grid *g = &r->grid.item[row - r->efficiency.n];
        g->from = from;
        int index[1 << GRID_AXES];
        double weight[1 << GRID_AXES], squares = 0, at[GRID_AXES];
        kernel_grid_axes(&o->work, at);
        int n = grid_corners(g, at, index, weight);
        for (int k = 0; k < n; k++) squares += weight[k] * weight[k];
        for (int k = 0; k < n; k++) g->value[index[k]] *= exp(error * weight[k] / squares);
    }
    return worst;
}

/* ── loops ───────────────────────────────────────────────────────────────────── */
struct unknown {
    int type;
    enum op op;
    int64_t ranks;
    double more; /* ns an element beyond a copy */
};

static bool is_walk(enum cost_class class) { return !multiplies(class) && class != COST_MOVE; }

static const struct grid *copy_of(const struct cluster *c, const struct rates *r,
                                  const struct observation *o)
{
    struct cluster room;
    int rate;
    struct machine m = machine_for(c, r, &room, o->ranks);
    return machine_grid(&m, "map", "planc", (int)o->work.type, "copy", ORDER_ANY, o->ranks, &rate);
}

static double copy_seconds(const struct cluster *c, const struct rates *r,
                           const struct observation *o)
{
    bool outside = false;
    const struct grid *g = copy_of(c, r, o);
    double element = o->work.type == BF16 ? 4 : 8;
    return o->work.bytes / element * 1e-9 *
           grid_value(g, (double[GRID_AXES]){o->work.bytes}, &outside);
}

typedef VECTOR(struct unknown) unknown_list;

static int unknown_of(const struct cluster *c, const struct rates *r, const struct observation *o,
                      enum op op, unknown_list *all)
{
    for (int i = 0; i < all->n; i++)
        if (all->item[i].type == (int)o->work.type && all->item[i].op == op &&
            all->item[i].ranks == o->ranks)
            return i;
    struct cluster room;
    int rate;
    struct machine m = machine_for(c, r, &room, o->ranks);
    const struct grid *copy = copy_of(c, r, o),
                      *g = machine_grid(&m, cost_class_names[op_rows[op].cost], "planc",
                                        (int)o->work.type, op_rows[op].name, ORDER_ANY, o->ranks,
                                        &rate);
    double more = g ? g->value[0] - copy->value[0] : 0;
    PUSH(all, ((struct unknown){(int)o->work.type, op, o->ranks, more > 0 ? more : 0}));
    return all->n - 1;
}

/* Coordinate descent on the sum of squared relative errors; nothing goes below 0. */
static void fit_walks(const struct cluster *c, struct rates *r, const observation_list *all,
                      struct provenance from)
{
    unknown_list x = {0};
    double *left = TAKE_MANY(double, all->n + 1);
    int **of = TAKE_MANY(int *, all->n + 1);
    for (int i = 0; i < all->n; i++) {
        const struct observation *o = &all->item[i];
        if (!is_walk(o->work.class) || !copy_of(c, r, o)) continue;
        of[i] = TAKE_MANY(int, o->work.ops + 1);
        left[i] = o->seconds - copy_seconds(c, r, o);
        for (int k = 0; k < o->work.ops; k++) {
            of[i][k] = op_rows[o->work.op[k].op].cost == COST_NONE
                           ? -1
                           : unknown_of(c, r, o, o->work.op[k].op, &x);
            if (of[i][k] >= 0) left[i] -= 1e-9 * o->work.op[k].elements * x.item[of[i][k]].more;
        }
    }
    for (int sweep = 0; sweep < SWEEPS; sweep++)
        for (int j = 0; j < x.n; j++) {
            double up = 0, down = 0;
            for (int i = 0; i < all->n; i++) {
                const struct observation *o = &all->item[i];
                double a = 0, weight = 1 / (o->seconds * o->seconds);
                for (int k = 0; of[i] && k < o->work.ops; k++)
                    if (of[i][k] == j) a += 1e-9 * o->work.op[k].elements;
                up += a * left[i] * weight, down += a * a * weight;
            }
            double step = down > 0 ? up / down : 0;
            if (x.item[j].more + step < 0) step = -x.item[j].more;
            x.item[j].more += step;
            for (int i = 0; i < all->n && step != 0; i++)
                for (int k = 0; of[i] && k < all->item[i].work.ops; k++)
                    if (of[i][k] == j) left[i] -= 1e-9 * all->item[i].work.op[k].elements * step;
        }
    figure_list figures = {0};
    for (int j = 0; j < x.n; j++) {
        struct observation any = {.work.type = (enum element)x.item[j].type,
                                  .ranks = x.item[j].ranks};
        struct figure f = {.class = intern(cost_class_names[op_rows[x.item[j].op].cost]),
                           .engine = intern("planc"),
                           .op = intern(op_rows[x.item[j].op].name),
                           .type = x.item[j].type,
                           .ranks = x.item[j].ranks,
                           .at = {16384},
                           .value = copy_of(c, r, &any)->value[0] + x.item[j].more};
        if (strcmp(f.op, "copy")) PUSH(&figures, f);
    }
    rates_add(r, &figures, from);
}

/* ── moves ───────────────────────────────────────────────────────────────────── */
static void fit_moves(struct rates *r, const observation_list *all, struct provenance from)
{
    figure_list figures = {0};
    for (int i = 0; i < all->n; i++) {
        const struct observation *o = &all->item[i];
        if (o->work.class != COST_MOVE || !o->work.ops || !(o->work.op[0].elements > 0)) continue;
        struct figure f = {.class = intern("move"),
                           .engine = intern("planc"),
                           .op = intern(op_rows[o->work.op[0].op].name),
                           .type = (int)o->work.type,
                           .ranks = o->ranks,
                           .at = {o->work.bytes},
                           .value = 1e9 * o->seconds / o->work.op[0].elements};
        PUSH(&figures, f);
    }
    rates_add(r, &figures, from);
}

void calibrate_fit(const struct cluster *c, struct rates *r, const observation_list *all,
                   struct provenance from)
{
    for (int i = 0; i < SWEEPS && correct_products(c, r, all, from) > 1e-9; i++) {}
    if (c->kind == DEVICE_CUDA) return;
    fit_walks(c, r, all, from);
    fit_moves(r, all, from);
}
