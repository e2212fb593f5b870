/* What a step takes and why: the outcome of a run, put into parts that sum up to the step. */
#ifndef PLANC_PREDICTION_H
#define PLANC_PREDICTION_H

#include "predict/engine.h"

/* A gather, reduction or sum of the schedule over the step. */
struct collective_cost {
    const char *name;           /* "gather layers" */
    const char *region;         /* that issues it */
    int64_t count, picoseconds; /* in the step; of all of them, undisturbed */
    int64_t exposed[REASONS];   /* compute waited while it ran */
    const char *limit;          /* "link node", "link network", "memory" */
};

/* All times picoseconds of one step. */
struct prediction {
    int64_t step;
    /* These sum up to the step: kernels alone, by class; what the slowest device is longer; what
     * collectives slow compute; what is between kernels; what compute waits; host; jitter. */
    int64_t kernel[COST_CLASSES], slowest, contention, launch, exposed[REASONS], host, jitter;
    int64_t limit[COST_CLASSES][3]; /* kernel[] by what holds back: enum limit */
    int64_t part[STEP_PARTS]; /* of the compute lane; with host and jitter they are the step */
    struct collective_cost *collective;
    int collectives;
    int64_t exposed_all;
    int64_t *rate;     /* of the step, by row that it rests on: places in machine.rate */
    double assumed;    /* part of the step that rests on assumed rows */
    int64_t low, high; /* the step where rows err by their spreads, independently of each other */
    bool outside;      /* some shape lies outside the measured grids */
};

/* Of a program without missing figures. In the arena. */
struct prediction *prediction_of(const struct program *p, const struct outcome *o);
/* The program of a plan's graph run once; NULL when the cluster lacks figures, which stand in
 * (*program)->missing. */
struct prediction *predict(const struct plan *plan, const struct graph *g,
                           struct program **program);

#endif
