/* What a step costs beside memory, counted off a schedule: the bytes that collectives move, and a
 * bound on the seconds. Repairs and the points of a space are ranked by it. */
#ifndef PLANC_TRAFFIC_H
#define PLANC_TRAFFIC_H

#include "ir/ir.h"

/* Bytes of whole units that are gathered and reduced: in a micro-batch, and once in a step. They
 * depend on the structure, not on the mesh. */
struct traffic {
    double gathered, gathered_once, reduced;
    double put_together; /* gathered over the replicas once in a step, by shards */
};
/* `graph` is at LEVEL_SCHEDULE or above. */
struct traffic traffic_of(const struct graph *graph);
/* Bytes that a device receives in the collectives of a step. */
double traffic_bytes(struct traffic t, int64_t fsdp, int64_t dp, int64_t accumulation);
/* What a step costs at best, as seconds when the cluster says its rates; without them FLOPs alone,
 * bytes breaking ties. */
double step_cost(const struct plan *plan, double flops_per_token, double moved_bytes);

#endif
