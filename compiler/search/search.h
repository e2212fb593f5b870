/* The fastest points of a space, by exact branch and bound over predictions: a point whose least
 * memory does not fit, or whose least time lies above what was found, is not laid out or run. The
 * answer is that of trying every point. */
#ifndef PLANC_SEARCH_H
#define PLANC_SEARCH_H

#include "analysis/candidates.h"

enum ruling {
    RULED_IMPOSSIBLE,    /* its keys do not go together */
    RULED_EXCEEDS_BOUND, /* what is alive at once is more than a device offers */
    RULED_EXCEEDS,       /* its layout is */
    RULED_BOUND,         /* its least time lies above what was found */
    RULED_SLOWER,        /* simulated */
    RULED_BEST
};

/* A step in parts that sum up to it: kernels by class, then these. */
enum { PART_SLOWEST = COST_CLASSES, PART_CONTENTION, PART_LAUNCH, PART_HOST, PART_JITTER };
enum { PART_EXPOSED = PART_JITTER + 1, TIME_PARTS = PART_EXPOSED + REASONS };
struct time_parts {
    int64_t part[TIME_PARTS];
};
struct time_parts time_parts_of(const struct prediction *t);
/* What a part is called: "gemm", "exposed link". */
const char *time_part_name(int part);

struct candidate {
    int64_t number; /* in the order of the axes */
    struct place place;
    enum ruling ruling;
    int64_t least_bytes, peak_bytes; /* 0: not asked for */
    int64_t least_step, step;        /* picoseconds; 0: not asked for */
    struct time_parts parts;         /* of a simulated one */
    bool frontier; /* simulated, and no other simulated one is as fast with less memory */
    bool measured; /* step is that of a run */
};
struct search {
    const struct space *space;
    struct candidate *candidate; /* by number; those that are another one's plan are left out */
    int64_t candidates;
    int *place_of; /* by number: where the candidate is that this point is */
    int *ranked;   /* where the simulated ones are, best first: by time, memory, text */
    int n_ranked;
    int64_t layouts, simulations, possible;
    const char *missing; /* a figure of the cluster without which nothing is predicted; or NULL */
};

/* Told how far a search is, often: `done` of `all` points are checked and bounded, or (decided)
 * either ruled out or run. */
struct search_watcher {
    void (*told)(struct search_watcher *w, bool decided, int64_t done, int64_t all);
};
/* `top` points are exact, best first. watcher: NULL is fine. */
enum search_how {
    SEARCH_BEST,
    SEARCH_FRONTIER, /* and every point that none beats in both time and memory */
    SEARCH_ALL       /* every point that fits is run */
};
struct search *search_run(struct candidates *c, const struct space *s, int top, enum search_how how,
                          struct search_watcher *watcher);
/* A simulated point was run: its step is that of the run, its parts grow alike, and all simulated
 * ones are ranked again. */
void search_measured(struct search *s, int64_t number, int64_t picoseconds);
/* The candidate that a point is. */
struct candidate *search_candidate(const struct search *s, int64_t number);

/* reason.c: why a candidate is not the best, with the step of the schedule that exceeds or the part
 * of the time that is longer. In the arena. */
const char *search_reason(struct candidates *c, const struct search *s, const struct candidate *x);
/* "1.234 s", "12.345 ms", "6.7 us". */
const char *search_time_text(int64_t picoseconds);

#endif
