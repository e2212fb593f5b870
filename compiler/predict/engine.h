/* The discrete-event run of a program: one rank, since all ranks do the same. Compute is one lane.
 * Collectives of the FSDP group run one at a time in the order of issue, and so do those of the
 * replicas, beside them and each after the reduction before it (on cpu all have one order). None
 * begins before the compute that was issued before it. While collectives run, compute is as slow as
 * their company makes it, and two on the same link have half of it each; rates change at each
 * event. Time is whole picoseconds. */
#ifndef PLANC_ENGINE_H
#define PLANC_ENGINE_H

#include "predict/program.h"

/* Why compute waited for a collective: its bytes, its start and steps, another collective before
 * it in the one order, or a slot that was to be written again. */
enum reason { REASON_LINK, REASON_LATENCY, REASON_ORDER, REASON_SLOT };
#define REASONS (REASON_SLOT + 1)
extern const char *const reason_names[REASONS];

/* Behind those of the items: what issuing collectives took, and waking up after waits. */
#define ISSUES(p) ((p)->items)
#define WAKES(p) ((p)->items + 1)
#define TALLIES(p) ((p)->items + 2)

/* Of one item over the step. */
struct tally {
    int64_t count;
    int64_t busy;             /* of a collective: picoseconds of all of them, undisturbed */
    int64_t extra;            /* of a run: picoseconds beyond those that it takes alone */
    int64_t exposed[REASONS]; /* of a collective: compute waited while it ran */
};

struct outcome {
    struct tally *tally;      /* by item number, then ISSUES, WAKES */
    int64_t part[STEP_PARTS]; /* the compute lane's time in each part of the step */
    /* from the begin of a step to the end of its last work, joins included; without host and
     * jitter. The sum over runs of count x alone + extra, and over collectives of exposed and of
     * issues and wakes */
    int64_t picoseconds;
    int64_t iterations; /* that were run, not extrapolated */
};

/* Told of everything that runs, in order of its end; times from the begin of the step. kernel:
 * of the program, -1: none; item: the collective; layer: iteration of its loop in layer order, -1:
 * no loop. */
struct watcher {
    void (*ran)(struct watcher *w, const struct item *item, int kernel, int64_t layer, int64_t from,
                int64_t to);
    void *context;
};

struct engine *engine_new(struct program *p); /* in the program's memory */
/* One step from a state in which nothing is under way, which a step ends in, so that steps are
 * equal. unrolled: no iteration is extrapolated; a watcher needs that. The outcome is the engine's
 * until its next run. */
const struct outcome *engine_run(struct engine *e, bool unrolled, struct watcher *w);

/* A step's time, host and jitter included. */
int64_t step_picoseconds(const struct program *p, const struct outcome *o);

#endif
