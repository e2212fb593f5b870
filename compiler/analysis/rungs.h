/* A plan on other numbers of devices: each one a plan of its own, laid out and simulated. */
#ifndef PLANC_ANALYSIS_RUNGS_H
#define PLANC_ANALYSIS_RUNGS_H

#include "analysis/ledger.h"
#include "analysis/trainer.h"
#include "base/arguments.h"
#include "predict/prediction.h"

/* One number of devices. */
struct rung {
    int64_t devices;
    const char *why; /* it is impossible; NULL: it is not */
    struct plan *plan;
    struct graph *graph; /* at LEVEL_MEMORY */
    struct ledger *ledger;
    struct trainer_memory trainer; /* of another trainer's run */
    int64_t peak_bytes;            /* the trainer's reservation, else the plan's peak */
    enum verdict verdict;
    struct program *program;
    struct prediction *prediction;
    double step_seconds, tokens_per_second, per_device, efficiency;
    double mfu[3]; /* full, causal, hardware; 0: the peak is not known */
};
typedef VECTOR(struct rung) rung_list;

enum { RUNGS_MOST = 32 }; /* in one list */

/* The rising numbers of devices of an option, "16,64,512", at most `most` of them. False after one
 * line that says what the option takes. */
bool rungs_read(const char *option, const char *text, int most, rung_list *all);
/* The plan on `devices` devices: its mesh as it is, dp following when the plan leaves it to. NULL
 * with *why. */
struct plan *rung_plan(const struct arguments *given, const char *path, const struct plan *base,
                       int64_t devices, bool weak, const char **why);
/* Lays the rung's plan out and simulates it. False when figures of the cluster are missing, which
 * has been said. */
bool rung_fill(struct rung *r);
/* Relative to the first rung that is possible: tokens/s per device. */
void rungs_compare(rung_list *all);

#endif
