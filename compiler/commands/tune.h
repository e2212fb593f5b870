/* What the files of `planc tune` share: what was searched, and what was found. */
#ifndef PLANC_TUNE_H
#define PLANC_TUNE_H

#include "commands/command.h"
#include "search/search.h"

enum { TUNE_RUNGS = 8 };

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
    double seconds;
};
struct tune {
    const char *path;
    struct arguments arguments; /* with the choices that were opened */
    bool natural;               /* the plan leaves nothing open */
    int64_t own_devices;
    int top;
    struct tune_rung rung[TUNE_RUNGS];
    int n_rungs;
    struct candidates *candidates;
    double began, seconds;
};

/* The best of each rung in detail, and the plan of -o. The exit status. */
int tune_finish(struct tune *t);
void tune_print(const struct tune *t);
void tune_print_ladder(const struct tune *t); /* nothing for one rung */
void tune_print_json(const struct tune *t);
/* Why a candidate is not the best. */
const char *tune_reason(const struct tune_rung *r, const struct candidate *x);

#endif
