/* From a kernel's numbers to its time. On cuda a formula: products in tiles and whole waves over
 * the multiprocessors, the rest by bytes; the efficiencies in it are rows of the cluster's file. On
 * cpu measured grids, since caches and libraries make steps that no short formula has. */
#include "predict/kernel_cost.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const limit_names[3] = {"compute", "memory", "launch"};

int64_t whole_picoseconds(double seconds)
{
    double ps = seconds * PICOSECONDS;
    return ps < LONGEST_PICOSECONDS ? (int64_t)(ps + 0.5) : (int64_t)LONGEST_PICOSECONDS;
}

int64_t launch_picoseconds(const struct machine *m)
{
    return whole_picoseconds(m->cluster->host.launch);
}

static const char *type_word(enum element type) { return type == BF16 ? "bf16" : "fp32"; }

/* ── cuda ────────────────────────────────────────────────────────────────────── */

/* What a kernel may use: all of the device, or what a collective leaves of it. */
struct share {
    double multiprocessors, bandwidth;
};

static struct share share_of(const struct machine *m, enum company company)
{
    const struct cluster *c = m->cluster;
    struct share s = {(double)m->multiprocessors, c->bandwidth};
    if (company == ALONE) return s;
    double node = machine_link(m, c->link_node.bandwidth),
           network = machine_link(m, c->link_network.bandwidth),
           link = company == WITH_NODE      ? node
                  : company == WITH_NETWORK ? network
                                            : node + network;
    s.multiprocessors -= (double)m->taken * (company == WITH_BOTH ? 2 : 1);
    s.bandwidth -= c->contention.traffic * link;
    if (s.multiprocessors < 1) s.multiprocessors = 1;
    if (s.bandwidth < 0.1 * c->bandwidth) s.bandwidth = 0.1 * c->bandwidth;
    return s;
}

/* Kernels have smaller tiles for small results, at some loss; planc's own are 1, 0.85 and 0.5. */
static const struct {
    double m, n, speed;
} cuts[] = {{1, 1, 1}, {1, 0.5, 0.87}, {0.5, 0.5, 0.6}};

/* Tiles of all experts: sum of ceil(rows / tile). Rows fall evenly from the fullest expert, with 1
 * + imbalance times the mean, to the emptiest. */
static double tiles_of_experts(const struct work *w, double imbalance, double tile)
{
    enum { STRATA = 32 };
    int n = w->experts < STRATA ? (int)w->experts : STRATA;
    double mean = w->rows / w->experts, sum = 0;
    for (int i = 0; i < n; i++)
        sum += ceil(mean * (1 + imbalance * (1 - 2 * (i + 0.5) / n)) / tile);
    return sum * w->experts / n;
}

/* Seconds of a product: whole waves of tiles, each as long as its sums and what it takes to begin.
 * Source of the form: NVIDIA, Matrix Multiplication Background User's Guide (tile and wave
 * quantization). */
static double product_seconds(const struct machine *m, const struct efficiency *e,
                              const struct work *w, struct share s, double peak)
{
    double all = (double)m->multiprocessors, best = 0;
    double planes = w->mixed && !m->other ? 3 : 1; /* an F32 operand is three planes of BF16 */
    for (size_t c = 0; c < COUNT_OF(cuts); c++) {
        double tm = (double)e->tile[0] * cuts[c].m, tn = (double)e->tile[1] * cuts[c].n;
        double tiles = ceil(w->n / tn), k = w->k;
        if (w->class == COST_GROUPED_GEMM && w->weight_gradient)
            tiles *= ceil(w->m / tm) * w->experts, k = w->rows / w->experts;
        else if (w->class == COST_GROUPED_GEMM)
            tiles *= tiles_of_experts(w, m->cluster->imbalance, tm);
        else
            tiles *= ceil(w->m / tm);
        for (int parts = 1; parts == 1 || (e->split && parts <= 32 && k / parts >= 512);
             parts *= 2) {
            double waves = ceil(tiles * parts / s.multiprocessors);
            double seconds = waves * 2 * tm * tn * planes * (k / parts + e->half) /
                             (peak / all * e->value * cuts[c].speed);
            if (parts > 1) seconds += parts * w->m * w->n * 8 / s.bandwidth;
            if (best == 0 || seconds < best) best = seconds;
        }
    }
    return best;
}

static double attention_seconds(const struct machine *m, const struct efficiency *e,
                                const struct work *w, struct share s, double peak)
{
    double reached = e->value * w->sequence / (w->sequence + e->half);
    return w->flops / (peak * reached) * (double)m->multiprocessors / s.multiprocessors;
}

/* A library takes some shapes only; what it does not take is planc's. */
static const char *engine_of(const struct machine *m, const struct work *w)
{
    const char *engine = m->engine[w->class];
    bool library = !strcmp(engine, "cublaslt") || !strcmp(engine, "cudnn");
    bool forward = w->class != COST_GROUPED_GEMM || strcmp(engine, "cudnn") || w->forward;
    return library && (!w->library || !forward) ? "planc" : engine;
}

static bool multiplies(enum cost_class class)
{
    return class == COST_GEMM || class == COST_GROUPED_GEMM || class == COST_ATTENTION ||
           class == COST_ATTENTION_GRAD;
}

static struct kernel_time cuda_time(const struct machine *m, const struct work *w)
{
    struct kernel_time t = {0};
    const struct cluster *c = m->cluster;
    const char *engine = engine_of(m, w);
    bool multiply = multiplies(w->class);
    const struct efficiency *e = NULL;
    if (!strcmp(engine, "planc") && m->wgmma && w->wgmma)
        e = machine_efficiency(m, w->class, "wgmma", BF16, w->order, (int64_t)w->width, &t.rate);
    if (!e)
        e = machine_efficiency(m, w->class, engine, w->type, w->order, (int64_t)w->width, &t.rate);
    if (!e) {
        t.missing = intern_format("cluster.efficiency %s %s%s%s", cost_class_names[w->class],
                                  engine, multiply ? " " : "", multiply ? type_word(w->type) : "");
        return t;
    }
    double peak = w->type == BF16 ? c->flops_bf16 : c->flops_fp32;
    if (multiply && !(peak > 0)) {
        t.missing = intern_format("cluster.device.flops.%s", type_word(w->type));
        return t;
    }
    for (int k = 0; k < COMPANIES; k++) {
        struct share s = share_of(m, (enum company)k);
        double moved = multiply ? 0.9 : e->value * w->bytes / (w->bytes + e->half);
        double memory = w->bytes > 0 ? w->bytes / (s.bandwidth * moved) : 0;
        double flops = !multiply ? 0
                       : w->class == COST_GEMM || w->class == COST_GROUPED_GEMM
                           ? product_seconds(m, e, w, s, peak)
                           : attention_seconds(m, e, w, s, peak);
        if (k == ALONE) t.limit = flops >= memory ? LIMIT_FLOPS : LIMIT_BANDWIDTH;
        t.picoseconds[k] = whole_picoseconds(flops > memory ? flops : memory);
    }
    if (t.limit == LIMIT_BANDWIDTH && t.picoseconds[ALONE] < launch_picoseconds(m))
        t.limit = LIMIT_LAUNCH;
    return t;
}

/* ── cpu ─────────────────────────────────────────────────────────────────────── */

static double reach(const struct grid *g, double x, double y, double z, bool *outside)
{
    return grid_value(g, (double[GRID_AXES]){x, y, z}, outside);
}

static const char *want_grid(const char *class, const char *engine, enum element type)
{
    return intern_format("cluster.grid %s %s %s", class, engine, type_word(type));
}

/* A kernel of a generated walk: what its bytes take at the size of the walk, as a copy of F32 does,
 * and what each op takes an element beyond a copy while all is at hand. */
static double walk_seconds(const struct machine *m, const struct work *w, struct kernel_time *t)
{
    int row;
    const struct grid *copy =
        machine_grid(m, "map", "planc", (int)w->type, "copy", ORDER_ANY, m->ranks_a_host, &t->rate);
    if (!copy || !copy->op) {
        t->missing = text_format("%s copy", want_grid("map", "planc", w->type));
        return 0;
    }
    double element = w->type == BF16 ? 4 : 8, seconds = 0; /* bytes that a copy moves of one */
    double base = copy->value[0];
    const struct grid *call =
        machine_grid(m, "map", "planc", (int)w->type, "call", ORDER_ANY, m->ranks_a_host, &row);
    if (call && call->op && !strcmp(call->op, "call")) seconds += call->value[0] * 1e-9;
    seconds += w->bytes / element * reach(copy, w->bytes, 0, 0, &t->outside) * 1e-9;
    for (int i = 0; i < w->ops; i++) {
        const char *class = cost_class_names[op_rows[w->op[i].op].cost];
        const struct grid *g =
            machine_grid(m, class, "planc", (int)w->type, op_rows[w->op[i].op].name, ORDER_ANY,
                         m->ranks_a_host, &row);
        if (!g) continue; /* as a copy */
        if (g->value[0] > base) seconds += w->op[i].elements * (g->value[0] - base) * 1e-9;
    }
    return seconds;
}

/* A kernel of one op that is measured by its bytes: a move by its elements, the others by the bytes
 * of a copied F32. NULL: none is. */
static const struct grid *whole_kernel(const struct machine *m, const struct work *w, int *rate)
{
    const char *op = w->class == COST_TOTAL && w->ops == 1 ? op_rows[w->op[0].op].name
                     : w->class == COST_MOVE && w->ops     ? op_rows[w->op[0].op].name
                                                           : NULL;
    if (w->class != COST_MOVE && w->class != COST_UPDATE && !op) return NULL;
    const struct grid *g = machine_grid(m, cost_class_names[w->class], "planc", (int)w->type, op,
                                        ORDER_ANY, m->ranks_a_host, rate);
    return g && (w->class != COST_TOTAL || (g->op && !strcmp(g->op, op))) ? g : NULL;
}

double kernel_grid_elements(const struct work *w)
{
    if (w->class == COST_MOVE) return w->ops ? w->op[0].elements : 0;
    return w->bytes / 8;
}

void kernel_grid_axes(const struct work *w, double at[GRID_AXES])
{
    bool grouped = w->class == COST_GROUPED_GEMM, dense = w->class == COST_GEMM;
    at[0] = grouped ? w->rows / w->experts : dense ? w->m : w->sequence;
    at[1] = grouped || dense ? w->n : w->width;
    at[2] = grouped && w->weight_gradient ? w->m : w->k;
}

double idle_part(const struct machine *m)
{
    double ranks = m->ranks_a_host > 0 ? (double)m->ranks_a_host : 1,
           cores = m->cluster->cores > 0 ? (double)m->cluster->cores : ranks,
           idle = cores / ranks - 1;
    return idle < 0 ? 0 : idle > 1 ? 1 : idle;
}

double ranks_a_core(const struct machine *m)
{
    const double ranks = (double)m->ranks_a_host, cores = (double)m->cluster->cores;
    return m->device == DEVICE_CPU && cores > 0 && ranks > cores ? ranks / cores : 1;
}

static struct kernel_time cpu_time(const struct machine *m, const struct work *w)
{
    struct kernel_time t = {0};
    const char *engine = m->engine[w->class], *class = cost_class_names[w->class];
    double seconds = 0;
    if (multiplies(w->class)) {
        const struct grid *g = machine_grid(m, class, engine, (int)(w->mixed ? F32 : w->type), NULL,
                                            w->order, m->ranks_a_host, &t.rate);
        t.limit = LIMIT_FLOPS;
        if (!g)
            t.missing = want_grid(class, engine, w->mixed ? F32 : w->type);
        else {
            double at[GRID_AXES];
            kernel_grid_axes(w, at);
            seconds = w->flops / (1e9 * grid_value(g, at, &t.outside));
        }
    } else if (w->class == COST_MOVE || whole_kernel(m, w, &t.rate)) {
        const struct grid *g = whole_kernel(m, w, &t.rate);
        t.limit = LIMIT_BANDWIDTH;
        if (!g)
            t.missing = want_grid(class, engine, w->type);
        else
            seconds = kernel_grid_elements(w) * reach(g, w->bytes, 0, 0, &t.outside) * 1e-9;
    } else {
        t.limit = LIMIT_BANDWIDTH;
        seconds = walk_seconds(m, w, &t);
    }
    seconds *= ranks_a_core(m);
    /* a collective takes time from the core that it shares with compute */
    double taken = m->cluster->contention.core * (1 - idle_part(m));
    if (taken > 0.95) taken = 0.95;
    t.picoseconds[ALONE] = whole_picoseconds(seconds);
    for (int c = WITH_NODE; c < COMPANIES; c++)
        t.picoseconds[c] = whole_picoseconds(seconds / (1 - taken));
    return t;
}

static struct kernel_time work_out(const struct machine *m, const struct work *w)
{
    struct kernel_time t = m->device == DEVICE_CUDA ? cuda_time(m, w) : cpu_time(m, w);
    for (int c = 0; c < COMPANIES; c++) /* everything takes time */
        if (t.picoseconds[c] < 1) t.picoseconds[c] = 1;
    return t;
}

/* ── what was worked out before ──────────────────────────────────────────────── */

enum { CACHE_PLACES = 1 << 14, KEY_NUMBERS = 19 };
struct time_cache {
    struct known_time {
        bool used;
        double key[KEY_NUMBERS];
        struct kernel_time time;
    } place[CACHE_PLACES];
};

struct time_cache *time_cache_new(void)
{
    struct time_cache *c = calloc(1, sizeof *c);
    if (!c) bug("out of memory for the times of kernels");
    return c;
}

void time_cache_free(struct time_cache *c) { free(c); }

static uint64_t mixed_with(uint64_t hash, double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    hash = (hash ^ bits) * 0x9E3779B97F4A7C15u;
    return hash ^ hash >> 29;
}

/* All that a time follows from; of the list of ops 64 bits. */
static void key_of(const struct machine *m, const struct work *w, double key[KEY_NUMBERS])
{
    uint64_t ops = 0;
    for (int i = 0; i < w->ops; i++)
        ops = mixed_with(mixed_with(ops, w->op[i].op), w->op[i].elements);
    const double all[KEY_NUMBERS] = {w->class,
                                     w->type,
                                     w->order,
                                     w->mixed,
                                     w->library + 2 * w->forward + 4 * w->wgmma,
                                     w->m,
                                     w->n,
                                     w->k,
                                     w->rows,
                                     w->experts,
                                     w->weight_gradient,
                                     w->width,
                                     w->sequence,
                                     w->flops,
                                     w->bytes,
                                     w->ops,
                                     w->tokens,
                                     (double)m->ranks_a_host};
    memcpy(key, all, sizeof all);
    memcpy(&key[KEY_NUMBERS - 1], &ops, sizeof ops);
}

static struct known_time *place_of(struct time_cache *c, const double key[KEY_NUMBERS])
{
    uint64_t hash = 0;
    for (int i = 0; i < KEY_NUMBERS; i++) hash = mixed_with(hash, key[i]);
    return &c->place[hash % CACHE_PLACES];
}

struct kernel_time kernel_time(const struct machine *m, const struct work *w)
{
    double key[KEY_NUMBERS];
    if (!m->cache) return work_out(m, w);
    key_of(m, w, key);
    struct known_time *k = place_of(m->cache, key);
    if (k->used && !memcmp(k->key, key, sizeof key)) return k->time;
    *k = (struct known_time){.used = true, .time = work_out(m, w)};
    memcpy(k->key, key, sizeof key);
    return k->time;
}
