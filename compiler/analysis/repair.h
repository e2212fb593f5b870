/* What would make a plan fit. Each repair is the plan with other settings, compiled and judged. */
#ifndef PLANC_COMMAND_REPAIR_H
#define PLANC_COMMAND_REPAIR_H

#include "base/arguments.h"
#include "check/plan.h"
#include "analysis/ledger.h"

struct repair {
    VECTOR(const char *) set; /* "batch.loss_chunks=16" */
    int64_t peak_bytes;
    enum verdict verdict;
    /* per token, and bytes that a device's collectives move in a step: 0.33 is a third more */
    double flops_more, moved_more;
    double step_seconds; /* predicted; 0: the cluster does not say how fast it is */
    double cost;         /* what it is ranked by among those with its verdict */
    int64_t global;      /* sequences of a step */
    /* another batch.global than the plan's: other gradients, and a rate that may be wrong */
    bool changes_training;
};
typedef VECTOR(struct repair) repair_list;

/* Best first; none when nothing that is tried makes the peak smaller. `plan`, `graph` and `ledger`
 * are those that `path` under the command's settings gives. Leaves no diagnostics. */
repair_list repairs_find(const struct arguments *a, const char *path, const struct plan *plan,
                         const struct graph *graph, const struct ledger *ledger);
/* Of a plan that fits: what takes less memory and costs neither FLOPs nor bytes, then the largest
 * local batch that fits where it is larger. */
repair_list advice_find(const struct arguments *a, const char *path, const struct plan *plan,
                        const struct graph *graph, const struct ledger *ledger);
void advice_print(const repair_list *all);
void repairs_print(const repair_list *all, const struct plan *plan);
json_t *repairs_json(const repair_list *all);

#endif
