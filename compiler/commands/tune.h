/* What the files of `planc tune` share: what was searched, what was measured, what was found. */
#ifndef PLANC_TUNE_H
#define PLANC_TUNE_H

#include "analysis/rungs.h"
#include "commands/command.h"
#include "search/search.h"

/* One of the best, with what a search does not keep. */
struct tune_best {
    const struct candidate *candidate;
    const char *text; /* its set */
    struct prediction *prediction;
    double mfu[3]; /* full, causal, hardware; 0: the peak is not known */
    double tokens_per_second_per_device;
    double apart; /* how much slower than the best, in widths of the difference: at most 1 says
                     nothing */
};
/* A number of devices. */
struct tune_rung {
    int64_t devices;
    const char *const *set; /* the settings of its space */
    int n_set;
    struct space *space;
    struct plan *plan; /* some point */
    struct search *search;
    struct tune_best *best; /* n: at most --top; 0: nothing fits */
    int n_best;
};

/* A point of the first rung that was built and run on this machine. */
struct tune_run {
    int64_t number;
    const char *text;                     /* its set */
    int place;                            /* among the predicted ones, from 1, before any run */
    double predicted, measured, refitted; /* seconds of a step; refitted: predicted by rates that
                                             the runs gave */
    /* seconds of all kernels of a class in a step */
    double kernel_predicted[COST_CLASSES], kernel_measured[COST_CLASSES];
};

struct tune {
    const char *path;
    const struct arguments *given; /* the command line */
    struct arguments arguments;    /* with the choices that were opened */
    bool natural;                  /* the plan leaves nothing open */
    struct plan *base;             /* the plan, or a point of its space */
    int top;
    struct tune_rung rung[RUNGS_MOST];
    int n_rungs;
    struct candidates *candidates;
    VECTOR(struct tune_run) run; /* in the order of the runs */
    const char *rates;           /* where -o leaves the rates of the runs; NULL: nowhere */
    const char *scratch;         /* a folder that is removed at the end, or NULL */
    double began, seconds;
};

/* Searches a rung. False after a diagnostic. */
bool tune_search(struct tune *t, struct tune_rung *r);
/* tune_measure.c: searches the first rung, builds and runs its best points, refits the cluster's
 * rates, and searches again by these, until the best was run. From then on all plans have the
 * refitted cluster. An exit status, after a message. */
int tune_measure(struct tune *t);

/* The best of each rung in detail, and the plan of -o. The exit status. */
int tune_finish(struct tune *t);
void tune_print(const struct tune *t);
void tune_print_json(const struct tune *t);
const char *tune_set_text(const struct space *s, int64_t number);
json_t *tune_set_json(const struct space *s, int64_t number);

/* tune_ladder.c: nothing for one rung. */
void tune_print_ladder(const struct tune *t);
json_t *tune_ladder_json(const struct tune *t);
/* tune_measure.c: nothing without runs. */
void tune_print_runs(const struct tune *t);
json_t *tune_runs_json(const struct tune *t);

#endif
