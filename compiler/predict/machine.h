/* The rates of a plan's cluster, ready to be asked: which engine runs each class of kernels, which
 * row of the cluster's file says how fast, and how far the truth may lie from it. A prediction adds
 * up times by row, so it can say which part of it rests on rows that were assumed. */
#ifndef PLANC_MACHINE_H
#define PLANC_MACHINE_H

#include "ir/ir.h"

/* Where a figure comes from: a row of the cluster's file. */
struct rate {
    const char *name; /* "gemm cublaslt bf16", "link network" */
    struct provenance from;
};

/* Rates that are no row of efficiencies or grids; they stand first in `rate`. */
enum fixed_rate {
    RATE_LINK_NODE,
    RATE_LINK_NETWORK,
    RATE_HOST,
    RATE_CONTENTION,
    RATE_DEVICES /* device_spread and jitter */
};
#define FIXED_RATES (RATE_DEVICES + 1)

struct machine {
    const struct cluster *cluster;
    enum device_kind device; /* what the trainer is for */
    /* who runs each class: "cublaslt"; "planc" does what an engine does not take */
    const char *engine[COST_CLASSES];
    bool wgmma; /* planc's products of BF16 are those of warpgroups, where the cluster has a row */
    bool other; /* another trainer's kernels: F32 operands of BF16 products are BF16 there */
    int64_t multiprocessors; /* of cuda */
    /* of them, by a collective: the cluster's contention, or fewer where the plan says so */
    int64_t taken;
    /* bytes/s of a link that the thread blocks of a collective fill at most, where the plan limits
     * them; 0: as much as the link has */
    double filled;
    int64_t ranks_a_host, hosts;
    struct time_cache *cache; /* kernel_cost.h; NULL: none */
    struct rate *rate;        /* fixed ones, efficiencies, grids */
    int rates;
};

/* What a collective gets of a link of so many bytes/s. */
double machine_link(const struct machine *m, double bandwidth);
/* `plan`: engines by its keys run.gemm, run.attention, run.experts; oneDNN multiplies on cpu. The
 * machine reads the plan's cluster as long as it is used. */
struct machine machine_of(const struct plan *plan);
/* Puts another trainer's engines in: the same name for every class that its rows name; classes
 * without a row of that engine keep their own. */
void machine_set_engine(struct machine *m, const char *engine);

/* The row of efficiencies for a class; NULL: none. Exact order and type are taken before `any`,
 * the nearest width of those that are there. *rate: its number in m->rate. */
const struct efficiency *machine_efficiency(const struct machine *m, enum cost_class class,
                                            const char *engine, enum element type, enum order order,
                                            int64_t width, int *rate);

/* A value of a grid: interpolated between its points, linearly in the logarithms of axes and of
 * values; outside its range the nearest edge, and *outside is set. */
double grid_value(const struct grid *g, const double at[GRID_AXES], bool *outside);
/* The points that a value is interpolated between: their places and weights; how many. */
int grid_corners(const struct grid *g, const double at[GRID_AXES], int index[1 << GRID_AXES],
                 double weight[1 << GRID_AXES]);
/* The grid of a class, `op` NULL or the op's name (the class's own grid when the op has none),
 * measured with `ranks` active or, when there is none, with the nearest number. NULL: none. */
const struct grid *machine_grid(const struct machine *m, const char *class, const char *engine,
                                int type, const char *op, enum order order, int64_t ranks,
                                int *rate);

/* What a cluster must say for a prediction and does not: texts such as "cluster.device.bandwidth";
 * none when it says all that is the same for every plan. What single kernels lack is found when
 * they are asked for. */
typedef VECTOR(const char *) missing_list;
void machine_missing(const struct machine *m, bool several_ranks, bool several_hosts,
                     missing_list *all);

#endif
