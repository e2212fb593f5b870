/* What a mesh axis does to a unit: where its weights come from at a use, and what happens to its
 * gradient. A row in the registry and a file are all that a new axis needs; shard.c asks every row
 * in order and knows none of them by name. */
#ifndef PLANC_STRATEGY_H
#define PLANC_STRATEGY_H

#include "ir/ir.h"

struct strategy {
    const char *axis; /* the key of the mesh: "fsdp", "dp" */
    int64_t (*degree)(const struct facts *f);
    /* parts a unit's state is cut into along this axis */
    int64_t (*shards)(const struct facts *f);
    /* At the start of a body that reads the unit's weights / at the end of one that yields its
     * gradients. */
    void (*at_use)(struct build *b, const struct unit *u);
    void (*at_gradient)(struct build *b, const struct unit *u, struct node *reduce);
};
extern const struct strategy strategy_fsdp, strategy_dp;
extern const struct strategy *const strategies[];
extern const int strategy_count;

#endif
