/* Rates from what trainers measured (--profile-out). A kernel that is a product or attention
 * corrects the points of its grid around it, or its row of efficiencies; generated loops
 * give what each op takes an element (least squares without negative times). Rows that no kernel
 * determines stay. */
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
    /* a sum of squares is also called once to begin, which takes nearly nothing */
    if (w->ops == 1 && w->op[0].op == OP_sum_squares) o.seconds = 2 * number_of(k, "mean_seconds");
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

static int rising(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

typedef VECTOR(double) number_list;

static double median(number_list *x)
{
    qsort(x->item, (size_t)x->n, sizeof(double), rising);
    return x->item[x->n / 2];
}

static const char *device;

const char *calibrate_device(void) { return device; }

double calibrate_host_step(const struct run_times *all)
{
    number_list x = {0};
    for (int i = 0; i < all->host.n; i++) PUSH(&x, all->host.item[i]);
    return x.n ? median(&x) : 0;
}

/* A row of `collectives` of a run with one rank. */
static void read_copy(json_t *c, bool bf16, struct run_times *all)
{
    const char *kind = word_of(c, "kind"), *micro = word_of(c, "micro");
    const bool set = !strcmp(micro, "first") || !strcmp(micro, "only");
    const double part = number_of(c, "part_bytes"), seconds = number_of(c, "seconds"),
                 times = !strcmp(kind, "gather")  ? bf16 ? 3 : 2
                         : strcmp(kind, "reduce") ? 0
                         : set                    ? 2
                                                  : 3;
    if (times * part > 0 && seconds > 0) PUSH(&all->copy, ((struct copied){times * part, seconds}));
}

bool calibrate_read(const char *path, struct run_times *all, struct cluster *c)
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
    double host = number_of(file, "mean_step_seconds") - number_of(file, "schedule_seconds");
    if (number_of(file, "schedule_seconds") > 0 && host > 0) PUSH(&all->host, host);
    json_t *collectives = json_object_get(file, "collectives");
    const bool alone = number_of(file, "fsdp") == 1 && number_of(file, "dp") == 1,
               bf16 = !strcmp(word_of(file, "compute"), "bf16");
    for (size_t i = 0; alone && i < json_array_size(collectives); i++)
        read_copy(json_array_get(collectives, i), bf16, all);
    for (size_t i = 0; i < json_array_size(kernels); i++)
        if (!read_kernel(path, json_array_get(kernels, i), ranks > 0 ? ranks : 1, &all->kernel))
            return false;
    return true;
}

/* ── products, attention ─────────────────────────────────────────────────────── */
static bool multiplies(enum cost_class class)
{
    return class == COST_GEMM || class == COST_GROUPED_GEMM || class == COST_ATTENTION ||
           class == COST_ATTENTION_GRAD;
}

struct machine calibrate_machine(const struct cluster *c, const struct rates *r,
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

/* The time that a product has by these rates, on the engine that it was measured on. */
static struct kernel_time product_time(const struct cluster *c, const struct rates *r,
                                       const struct observation *o)
{
    struct cluster room;
    struct machine m = calibrate_machine(c, r, &room, o->ranks);
    m.engine[o->work.class] = o->engine;
    return kernel_time(&m, &o->work);
}

/* What the shapes around a point of a grid, or on a row of efficiencies, want it to become. */
struct wish {
    double error, weight; /* sums over shapes; error: of logarithms */
};

/* One pass over all: each point takes the mean error of the shapes around it, by their weights, so
 * that shapes which contradict each other meet in the middle. Returns the largest change. */
static double correct_products(const struct cluster *c, struct rates *r,
                               const observation_list *all, struct provenance from)
{
    struct arena_mark begin = arena_mark();
    struct wish **of = TAKE_MANY(struct wish *, r->efficiency.n + r->grid.n + 1);
    double worst = 0;
    for (int i = 0; i < all->n; i++) {
        const struct observation *o = &all->item[i];
        if (!multiplies(o->work.class)) continue;
        struct kernel_time t = product_time(c, r, o);
        double error = t.missing ? 0 : log((double)t.picoseconds[ALONE] / PICOSECONDS / o->seconds);
        int row = t.rate - FIXED_RATES, n = 1, index[1 << GRID_AXES] = {0};
        double weight[1 << GRID_AXES] = {1}, at[GRID_AXES];
        if (t.missing || (c->kind == DEVICE_CUDA && t.limit != LIMIT_FLOPS)) continue;
        const struct grid *g = row < r->efficiency.n ? NULL : &r->grid.item[row - r->efficiency.n];
        if (g) kernel_grid_axes(&o->work, at), n = grid_corners(g, at, index, weight);
        if (!of[row]) of[row] = TAKE_MANY(struct wish, g ? grid_points(g) : 1);
        for (int k = 0; k < n; k++)
            of[row][index[k]].error += weight[k] * error, of[row][index[k]].weight += weight[k];
    }
    for (int row = 0; row < r->efficiency.n + r->grid.n; row++) {
        struct grid *g = row < r->efficiency.n ? NULL : &r->grid.item[row - r->efficiency.n];
        struct efficiency *e = g ? NULL : &r->efficiency.item[row];
        for (int k = 0; of[row] && k < (g ? grid_points(g) : 1); k++) {
            const struct wish *w = &of[row][k];
            if (!(w->weight > 0)) continue;
            double change = w->error / w->weight;
            *(g ? &g->value[k] : &e->value) *= exp(g ? change : 0.5 * change);
            *(g ? &g->from : &e->from) = from;
            if (fabs(change) > worst) worst = fabs(change);
        }
    }
    arena_reset(begin);
    return worst;
}

/* ── loops ───────────────────────────────────────────────────────────────────── */
struct unknown {
    int type, op; /* enum op, or OP_CALL */
    int64_t ranks;
    double more; /* ns an element beyond a copy */
};

static bool is_walk(const struct work *w)
{
    return !multiplies(w->class) && !calibrate_by_bytes(w);
}

static const struct grid *copy_of(const struct cluster *c, const struct rates *r,
                                  const struct observation *o)
{
    struct cluster room;
    int rate;
    struct machine m = calibrate_machine(c, r, &room, o->ranks);
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

/* What each call takes beside its loops. */
enum { OP_CALL = OP_COUNT };
/* ns an element that an op would have to take before it is doubted, and how much: kernels share
 * their ops, and few of them tell one op from another. */
#define USUAL_NANOSECONDS 0.5
#define USUAL_CALL_NANOSECONDS 200
#define LEAST_SPREAD 0.03
#define DOUBT 1e-3

static int unknown_of(const struct observation *o, int op, unknown_list *all)
{
    for (int i = 0; i < all->n; i++)
        if (all->item[i].type == (int)o->work.type && all->item[i].op == op &&
            all->item[i].ranks == o->ranks)
            return i;
    PUSH(all, ((struct unknown){(int)o->work.type, op, o->ranks, 0}));
    return all->n - 1;
}

struct share_of_kernel {
    int unknown;
    double seconds; /* for each nanosecond of it */
};
typedef VECTOR(struct share_of_kernel) share_list;

/* Coordinate descent on the sum of squared relative errors, and of the doubt; nothing goes below
 * 0. */
static void descend(unknown_list *x, const observation_list *all, const share_list *of,
                    double *left)
{
    for (int sweep = 0; sweep < SWEEPS; sweep++)
        for (int j = 0; j < x->n; j++) {
            double usual = x->item[j].op == OP_CALL ? USUAL_CALL_NANOSECONDS : USUAL_NANOSECONDS,
                   doubt = DOUBT / (usual * usual), up = -doubt * x->item[j].more, down = doubt;
            for (int i = 0; i < all->n; i++) {
                double a = 0, weight = 1 / (all->item[i].seconds * all->item[i].seconds);
                for (int k = 0; k < of[i].n; k++)
                    if (of[i].item[k].unknown == j) a += of[i].item[k].seconds;
                up += a * left[i] * weight, down += a * a * weight;
            }
            double step = up / down;
            if (x->item[j].more + step < 0) step = -x->item[j].more;
            x->item[j].more += step;
            for (int i = 0; i < all->n && step != 0; i++)
                for (int k = 0; k < of[i].n; k++)
                    if (of[i].item[k].unknown == j) left[i] -= of[i].item[k].seconds * step;
        }
}

static void fit_walks(const struct cluster *c, struct rates *r, const observation_list *all,
                      struct provenance from)
{
    unknown_list x = {0};
    double *left = TAKE_MANY(double, all->n + 1);
    share_list *of = TAKE_MANY(share_list, all->n + 1);
    for (int i = 0; i < all->n; i++) {
        const struct observation *o = &all->item[i];
        if (!is_walk(&o->work) || !copy_of(c, r, o)) continue;
        left[i] = o->seconds - copy_seconds(c, r, o);
        PUSH(&of[i], ((struct share_of_kernel){unknown_of(o, OP_CALL, &x), 1e-9}));
        for (int k = 0; k < o->work.ops; k++)
            if (op_rows[o->work.op[k].op].cost != COST_NONE)
                PUSH(&of[i], ((struct share_of_kernel){unknown_of(o, (int)o->work.op[k].op, &x),
                                                       1e-9 * o->work.op[k].elements}));
    }
    descend(&x, all, of, left);
    figure_list figures = {0};
    for (int j = 0; j < x.n; j++) {
        const struct unknown *u = &x.item[j];
        struct observation any = {.work.type = (enum element)u->type, .ranks = u->ranks};
        bool call = u->op == OP_CALL;
        struct figure f = {.class = intern(call ? "map" : cost_class_names[op_rows[u->op].cost]),
                           .engine = intern("planc"),
                           .op = intern(call ? "call" : op_rows[u->op].name),
                           .type = u->type,
                           .ranks = u->ranks,
                           .at = {16384},
                           .value = (call ? 0 : copy_of(c, r, &any)->value[0]) + u->more};
        if (strcmp(f.op, "copy")) PUSH(&figures, f);
    }
    rates_add(r, &figures, from);
}

/* ── the spread of products ──────────────────────────────────────────────────── */

/* The standard deviation that the median distance from the middle stands for. */
#define NORMAL_DISTANCE 1.4826
static double spread_of(number_list *error, double middle)
{
    for (int i = 0; i < error->n; i++) error->item[i] = fabs(error->item[i] - middle);
    double spread = NORMAL_DISTANCE * median(error);
    return spread < LEAST_SPREAD ? LEAST_SPREAD : spread;
}

/* Grids that were just measured: kernels in a trainer find other things in the caches, so each grid
 * takes the median error of the kernels that it answers for. */
static void scale_products(const struct cluster *c, struct rates *r, const observation_list *all)
{
    number_list *error = TAKE_MANY(number_list, r->grid.n + 1);
    for (int i = 0; i < all->n; i++) {
        const struct observation *o = &all->item[i];
        if (!multiplies(o->work.class)) continue;
        struct kernel_time t = product_time(c, r, o);
        int row = t.rate - FIXED_RATES - r->efficiency.n;
        if (t.missing || row < 0 || r->grid.item[row].ranks != o->ranks) continue;
        PUSH(&error[row], log((double)t.picoseconds[ALONE] / PICOSECONDS / o->seconds));
    }
    for (int i = 0; i < r->grid.n; i++) {
        if (error[i].n < 2) continue;
        int count = 1;
        for (int a = 0; a < r->grid.item[i].axes; a++) count *= r->grid.item[i].n[a];
        const double middle = median(&error[i]);
        for (int k = 0; k < count; k++) r->grid.item[i].value[k] *= exp(middle);
        r->grid.item[i].from.spread = spread_of(&error[i], middle);
    }
}

void calibrate_fit(const struct cluster *c, struct rates *r, const struct run_times *all,
                   struct provenance from, bool measured)
{
    if (measured)
        scale_products(c, r, &all->kernel);
    else
        for (int i = 0; i < SWEEPS && correct_products(c, r, &all->kernel, from) > 1e-9; i++) {}
    if (c->kind == DEVICE_CUDA) return;
    fit_walks(c, r, &all->kernel, from);
    calibrate_fit_bytes(c, r, all, from);
}
