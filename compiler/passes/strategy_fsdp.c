/* Fully sharded data parallelism (ZeRO stage 3; Rajbhandari et al., 2020): each rank of a group
 * keeps 1/s of a unit's master weights, gradients and moments. A use gathers the whole unit in the
 * compute type; a gradient is reduce-scattered. With one rank and F32 compute there is nothing to
 * gather or to cast: weights are read where they live. */
#include "passes/strategy.h"

static int64_t degree(const struct facts *f) { return f->fsdp; }

static void at_use(struct build *b, const struct unit *u)
{
    const struct facts *f = &b->graph->facts;
    if (f->fsdp == 1 && f->compute == F32) return;
    build_op(b, OP_use, NULL, 0, (struct attr[]){attr_word("unit", u->name)}, 1);
}

static void at_gradient(struct build *b, const struct unit *u, struct node *reduce)
{
    /* every unit's slot is reduced; with one rank that is a sum into the shard */
    (void)b, (void)u, (void)reduce;
}

const struct strategy strategy_fsdp = {"fsdp", degree, degree, at_use, at_gradient};
