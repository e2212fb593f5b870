/* Rates of a cluster that are measured or fitted, on their way from one file to another. */
#ifndef PLANC_COMMAND_CALIBRATE_H
#define PLANC_COMMAND_CALIBRATE_H

#include "commands/command.h"
#include "predict/kernel_cost.h"

/* One measured value: a point of a grid. */
struct figure {
    const char *class, *engine, *op; /* op NULL: the whole class */
    int type;                        /* enum element; -1: any */
    enum order order;
    int64_t ranks;
    double at[GRID_AXES], value;
};
typedef VECTOR(struct figure) figure_list;

/* Measures this machine with `ranks` processes and with one: adds points, and sets what a cluster
 * says in single numbers. seconds: of one figure, at most. False after a message. */
bool calibrate_measure(figure_list *all, struct cluster *c, int64_t ranks, double seconds);

/* Compute of several ranks: what a point has more or less than with one rank is noise, but for the
 * median of its row, which all points take. */
void figures_share(figure_list *all, int64_t ranks);
/* calibrate_grids.c: the rows of a cluster as vectors that grow, and what says when and where. */
struct rates {
    VECTOR(struct grid) grid;
    VECTOR(struct efficiency) efficiency;
};
/* A cluster's rows, copied. */
struct rates rates_of(const struct cluster *c);
int grid_points(const struct grid *g); /* values of it */
/* Points become grids, each in the place of the row that it replaces. Points that a grid's axes
 * have and nobody measured take the values of their neighbours. */
void rates_add(struct rates *r, const figure_list *all, struct provenance from);
/* The processor of this host, in its own words; today, 2026-11-29. */
const char *host_processor(void);
const char *date_today(void);

/* calibrate_fit.c: a kernel as a run measured it. */
struct observation {
    struct work work;
    const char *engine;
    int64_t ranks; /* of a host, at work together */
    double seconds;
};
typedef VECTOR(struct observation) observation_list;
/* Of a run with one rank, where a collective copies its own part and waits for nobody: bytes read
 * and written, as predict/transfers.c counts them. */
struct copied {
    double bytes, seconds;
};
/* What runs measured. */
struct run_times {
    observation_list kernel;
    VECTOR(struct copied) copy;
    VECTOR(double) host; /* seconds of a step outside of its schedule, one of each run */
};
/* Reads a file of --profile-out, or of --metrics, which says how far steps lie apart. False after a
 * message that names the file. */
bool calibrate_read(const char *path, struct run_times *all, struct cluster *c);
/* The device that the files read so far name; NULL: none does. */
const char *calibrate_device(void);
/* Seconds of a step outside of its schedule, the median of the runs; 0: none says. */
double calibrate_host_step(const struct run_times *all);
/* measured: the products' grids were measured just now; runs then only scale them. */
void calibrate_fit(const struct cluster *c, struct rates *r, const struct run_times *all,
                   struct provenance from, bool measured);
/* A machine of so many ranks with these rates; `room` is its cluster. */
struct machine calibrate_machine(const struct cluster *c, const struct rates *r,
                                 struct cluster *room, int64_t ranks);

/* calibrate_bytes.c: kernels that are measured as they are, by their bytes: moves, updates, sums of
 * squares. */
bool calibrate_by_bytes(const struct work *w);
/* Grids of them, and of the copies of one rank. */
void calibrate_fit_bytes(const struct cluster *c, struct rates *r, const struct run_times *all,
                         struct provenance from);

/* calibrate_runs.c: trains small models of the library with every kind of kernel, and reads what
 * their kernels took. False after a message. */
bool calibrate_runs(const char *plans, int64_t ranks, struct run_times *all, struct cluster *c);
/* A folder for what is built, and its end. NULL after a message. */
const char *scratch_folder(void);
void remove_folder(const char *directory);

/* calibrate_changes.c: what is other than before, for people or as JSON. */
void calibrate_say(const char *path, bool json, const struct cluster *before,
                   const struct cluster *after, const struct rates *r, struct provenance now);

/* calibrate_write.c: a file for --cluster, with every key of the cluster. False with errno. */
bool cluster_write(const char *path, const struct cluster *c, const struct rates *r);

#endif
