/* The time of one kernel on a machine: the only place that knows it. `check`, `memory`, `simulate`,
 * `tune` and the profile all ask here. */
#ifndef PLANC_KERNEL_COST_H
#define PLANC_KERNEL_COST_H

#include "predict/machine.h"
#include "predict/work.h"

/* What limits a kernel. */
enum limit { LIMIT_FLOPS, LIMIT_BANDWIDTH, LIMIT_LAUNCH };
extern const char *const limit_names[3];

/* What runs at the same time: nothing, a collective over the links of a node, or one over the
 * network. */
enum company { ALONE, WITH_NODE, WITH_NETWORK, WITH_BOTH };
#define COMPANIES (WITH_BOTH + 1)

#define PICOSECONDS 1e12
/* A kernel or a transfer is no longer than this, 17 minutes, and a step than 11 days; what is
 * longer is not simulated, so that sums of times fit in 64 bits. */
#define LONGEST_PICOSECONDS 1e15
#define MOST_PICOSECONDS 1e18
/* At most LONGEST_PICOSECONDS. */
int64_t whole_picoseconds(double seconds);

struct kernel_time {
    /* of the kernel itself, by what else runs meanwhile; without what lies between two kernels */
    int64_t picoseconds[COMPANIES];
    enum limit limit; /* when it runs alone */
    int rate;         /* the row that it rests on: a place in machine.rate */
    bool outside;     /* the shape lies outside a measured grid: extrapolated */
    /* what the cluster would have to say; NULL: the time is known */
    const char *missing;
};
/* On cuda: the larger of FLOPs over what of the peak the shape reaches, and bytes over what of the
 * bandwidth its class reaches. On cpu: interpolated in grids. docs/prediction.md. */
struct kernel_time kernel_time(const struct machine *m, const struct work *w);
/* Times that were worked out before, by all that they follow from; many points of a space have the
 * same kernels. A machine with a cache asks it first. From the heap. */
struct time_cache *time_cache_new(void);
void time_cache_free(struct time_cache *c); /* NULL: nothing */
/* Where a product or attention lies in its grid on cpu. */
void kernel_grid_axes(const struct work *w, double at[GRID_AXES]);
/* What the value of a grid of moves, updates or sums of squares is multiplied by: elements that
 * move; else bytes as a copy of F32 has them, 8 an element. */
double kernel_grid_elements(const struct work *w);
/* Ranks of a processor that take turns on a core; 1 where each has its own. */
double ranks_a_core(const struct machine *m);
/* Of cpu: the part of a second core that each rank has for its transfers, 0 to 1. */
double idle_part(const struct machine *m);
/* From the end of one kernel to the begin of the next. */
int64_t launch_picoseconds(const struct machine *m);

#endif
