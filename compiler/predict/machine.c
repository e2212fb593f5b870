/* Rows of a cluster's file, found by class, engine, type and shape; see machine.h. */
#include "predict/machine.h"
#include "passes/kernel_tile.h"

#include <math.h>
#include <string.h>

static const char *row_name(const char *class, const char *engine, int type, const char *op,
                            enum order order)
{
    static const char *const orders[] = {[ORDER_ANY] = "",
                                         [ORDER_NN] = " nn",
                                         [ORDER_NT] = " nt",
                                         [ORDER_TN] = " tn",
                                         [ORDER_TT] = " tt"};
    return intern_format("%s %s%s%s%s%s%s", class, engine, type < 0 ? "" : " ",
                         type < 0      ? ""
                         : type == F32 ? "fp32"
                                       : "bf16",
                         op ? " " : "", op ? op : "", orders[order]);
}

struct machine machine_of(const struct plan *p)
{
    const struct cluster *c = &p->cluster;
    struct machine m = {.cluster = c,
                        .device = p->device,
                        .multiprocessors = c->multiprocessors,
                        .taken = c->contention.multiprocessors,
                        .hosts = c->nodes,
                        .ranks_a_host = c->devices_per_node};
    bool cuda = p->device == DEVICE_CUDA;
    if (cuda && p->nccl_blocks && p->nccl_blocks < m.taken) m.taken = p->nccl_blocks;
    if (cuda) m.filled = (double)p->nccl_blocks * c->contention.block;
    for (int k = 0; k < COST_CLASSES; k++) m.engine[k] = "planc";
    m.engine[COST_GEMM] = !cuda ? "onednn" : p->gemm == GEMM_CUBLASLT ? "cublaslt" : "planc";
    if (cuda && plan_attention(p) == ATTENTION_CUDNN)
        m.engine[COST_ATTENTION] = m.engine[COST_ATTENTION_GRAD] = "cudnn";
    if (cuda) m.engine[COST_GROUPED_GEMM] = experts_names[plan_experts(p)];
    m.wgmma = cuda && !p->trainer.name && has_wgmma(p->arch, p->n_arch);
    if (p->trainer.name) m.other = true;
    if (p->trainer.engine) machine_set_engine(&m, p->trainer.engine);
    m.rates = FIXED_RATES + c->efficiencies + c->grids;
    m.rate = TAKE_MANY(struct rate, m.rates);
    m.rate[RATE_DEVICES] =
        (struct rate){"device_spread, jitter", {.spread = 0.5, .basis = BASIS_ASSUMED}};
    m.rate[RATE_LINK_NODE] = (struct rate){"link node", c->link_node.from};
    m.rate[RATE_LINK_NETWORK] = (struct rate){"link network", c->link_network.from};
    m.rate[RATE_HOST] = (struct rate){"host", c->host.from};
    m.rate[RATE_CONTENTION] = (struct rate){"contention", c->contention.from};
    for (int i = 0; i < c->efficiencies; i++) {
        const struct efficiency *e = &c->efficiency[i];
        m.rate[FIXED_RATES + i] =
            (struct rate){row_name(e->class, e->engine, e->type, NULL, e->order), e->from};
    }
    for (int i = 0; i < c->grids; i++) {
        const struct grid *g = &c->grid[i];
        m.rate[FIXED_RATES + c->efficiencies + i] =
            (struct rate){row_name(g->class, g->engine, g->type, g->op, g->order), g->from};
    }
    return m;
}

double machine_link(const struct machine *m, double bandwidth)
{
    return m->filled > 0 && m->filled < bandwidth ? m->filled : bandwidth;
}

void machine_set_engine(struct machine *m, const char *engine)
{
    for (int k = 1; k < COST_CLASSES; k++)
        for (int i = 0; i < m->cluster->efficiencies; i++)
            if (!strcmp(m->cluster->efficiency[i].engine, engine) &&
                !strcmp(m->cluster->efficiency[i].class, cost_class_names[k]))
                m->engine[k] = engine;
}

/* How well a row's type and order fit: 0 not at all, exact ones most. */
static int fit(int type, enum order order, int wanted_type, enum order wanted_order)
{
    if ((type >= 0 && wanted_type >= 0 && type != wanted_type) ||
        (order != ORDER_ANY && wanted_order != ORDER_ANY && order != wanted_order))
        return 0;
    return 1 + (type == wanted_type) + 2 * (order == wanted_order);
}

const struct efficiency *machine_efficiency(const struct machine *m, enum cost_class class,
                                            const char *engine, enum element type, enum order order,
                                            int64_t width, int *rate)
{
    const struct efficiency *best = NULL;
    int best_fit = 0;
    double best_far = 0;
    for (int i = 0; i < m->cluster->efficiencies; i++) {
        const struct efficiency *e = &m->cluster->efficiency[i];
        if (strcmp(e->class, cost_class_names[class]) || strcmp(e->engine, engine)) continue;
        int good = fit(e->type, e->order, (int)type, order);
        double far = !e->width || !width ? 1e3 : fabs(log((double)e->width) - log((double)width));
        if (good > best_fit || (good == best_fit && good && far < best_far))
            best = e, best_fit = good, best_far = far, *rate = FIXED_RATES + i;
    }
    return best;
}

/* The interval of an axis that `x` lies in, and how far in it. */
static int place_on(const double *axis, int n, double x, double *part, bool *outside)
{
    *part = 0;
    if (n == 1 || x <= axis[0]) {
        *outside |= x < axis[0] * 0.999 || (n == 1 && x > axis[0] * 1.001);
        return 0;
    }
    if (x >= axis[n - 1]) {
        *outside |= x > axis[n - 1] * 1.001;
        *part = 1;
        return n - 2;
    }
    int k = 0;
    while (axis[k + 1] < x) k++;
    *part = log(x / axis[k]) / log(axis[k + 1] / axis[k]);
    return k;
}

int grid_corners(const struct grid *g, const double at[GRID_AXES], int index[1 << GRID_AXES],
                 double weight[1 << GRID_AXES])
{
    int low[GRID_AXES] = {0}, n = 0;
    double part[GRID_AXES] = {0};
    bool outside = false;
    for (int a = 0; a < g->axes; a++)
        low[a] = place_on(g->axis[a], g->n[a], at[a], &part[a], &outside);
    for (int corner = 0; corner < 1 << g->axes; corner++) {
        double all = 1;
        int place = 0;
        for (int a = 0; a < g->axes; a++) {
            int high = corner >> a & 1;
            all *= high ? part[a] : 1 - part[a];
            place = place * g->n[a] + low[a] + (high && g->n[a] > 1);
        }
        if (all > 0) index[n] = place, weight[n++] = all;
    }
    return n;
}

double grid_value(const struct grid *g, const double at[GRID_AXES], bool *outside)
{
    int low[GRID_AXES] = {0};
    double part[GRID_AXES] = {0}, sum = 0;
    for (int a = 0; a < g->axes; a++)
        low[a] = place_on(g->axis[a], g->n[a], at[a], &part[a], outside);
    for (int corner = 0; corner < 1 << g->axes; corner++) {
        double weight = 1;
        int index = 0;
        for (int a = 0; a < g->axes; a++) {
            int high = corner >> a & 1;
            weight *= high ? part[a] : 1 - part[a];
            index = index * g->n[a] + low[a] + (high && g->n[a] > 1);
        }
        if (weight > 0) sum += weight * log(g->value[index]);
    }
    return exp(sum);
}

const struct grid *machine_grid(const struct machine *m, const char *class, const char *engine,
                                int type, const char *op, enum order order, int64_t ranks,
                                int *rate)
{
    const struct grid *best = NULL;
    int best_fit = 0;
    double best_far = 0;
    for (int i = 0; i < m->cluster->grids; i++) {
        const struct grid *g = &m->cluster->grid[i];
        if (strcmp(g->class, class) || strcmp(g->engine, engine) ||
            (g->op && (!op || strcmp(g->op, op))))
            continue;
        int good = fit(g->type, g->order, type, order);
        if (good && g->op) good += 8;
        double far = fabs(log((double)g->ranks / (double)ranks));
        if (good > best_fit || (good == best_fit && good && far < best_far))
            best = g, best_fit = good, best_far = far,
            *rate = FIXED_RATES + m->cluster->efficiencies + i;
    }
    return best;
}

static void want(missing_list *all, const char *what)
{
    for (int i = 0; i < all->n; i++)
        if (!strcmp(all->item[i], what)) return;
    PUSH(all, intern(what));
}

void machine_missing(const struct machine *m, bool several_ranks, bool several_hosts,
                     missing_list *all)
{
    const struct cluster *c = m->cluster;
    if (m->device == DEVICE_CPU) {
        if (several_hosts && !(c->link_network.bandwidth > 0))
            want(all, "cluster.link.network.bandwidth");
        return;
    }
    if (!(c->bandwidth > 0)) want(all, "cluster.device.bandwidth");
    if (!m->multiprocessors) want(all, "cluster.device.multiprocessors");
    if (several_ranks && m->ranks_a_host > 1 && !(c->link_node.bandwidth > 0))
        want(all, "cluster.link.node.bandwidth");
    if (several_hosts && !(c->link_network.bandwidth > 0))
        want(all, "cluster.link.network.bandwidth");
}
