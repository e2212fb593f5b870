/* What the lanes of a program do for each of its collectives, as parts with their times. */
#ifndef PLANC_TRANSFERS_H
#define PLANC_TRANSFERS_H

#include "predict/program.h"

/* A timing begins: nothing is missing yet. What it lacks of the cluster (NULL: nothing), once. */
void missing_open(struct program *p);
void missing_add(struct program *p, const char *what);

/* By the machine, rings, shards and parts of the program. Units by number. */
struct parts transfers_gather(struct program *p, int unit);
/* Before the first gather of a unit in a step, where the replicas have parts; else none. */
struct parts transfers_together(struct program *p, int unit);
/* `micro`: PART_FIRST, PART_LAST. */
struct parts transfers_reduce(struct program *p, int unit, int micro);
/* Of a gradient's shard, in the last micro-batch; else none. */
struct parts transfers_replicas(struct program *p, int unit, int micro);
struct parts transfers_sum(struct program *p, const struct item *it); /* ITEM_SUM */

#endif
