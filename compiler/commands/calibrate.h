/* Rates of a cluster that are measured or fitted, on their way from one file to another. */
#ifndef PLANC_COMMAND_CALIBRATE_H
#define PLANC_COMMAND_CALIBRATE_H

#include "commands/command.h"

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

/* calibrate_grids.c: the rows of a cluster as vectors that grow, and what says when and where. */
struct rates {
    VECTOR(struct grid) grid;
    VECTOR(struct efficiency) efficiency;
};
/* Points become grids, each in the place of the row that it replaces. Points that a grid's axes
 * have and nobody measured take the values of their neighbours. */
void rates_add(struct rates *r, const figure_list *all, struct provenance from);
/* The processor of this host, in its own words; today, 2026-11-29. */
const char *host_processor(void);
const char *date_today(void);

/* calibrate_write.c: a file for --cluster, with every key of the cluster. False with errno. */
bool cluster_write(const char *path, const struct cluster *c, const struct rates *r);

#endif
