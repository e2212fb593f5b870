/* Replicas (with fsdp: HSDP). Each holds the same state and sees other samples; a unit's gradient
 * shard is summed over the replicas once a step, in the last micro-batch, behind the reduce-scatter
 * and under the rest of the backward pass. */
#include "passes/strategy.h"

static int64_t degree(const struct facts *f) { return f->dp; }
static int64_t whole(const struct facts *f)
{
    (void)f;
    return 1;
}
static void at_use(struct build *b, const struct unit *u) { (void)b, (void)u; }

static void at_gradient(struct build *b, const struct unit *u, struct node *reduce)
{
    (void)u;
    struct attr *attr = TAKE_MANY(struct attr, reduce->n_attr + 1);
    for (int i = 0; i < reduce->n_attr; i++) attr[i] = reduce->attr[i];
    attr[reduce->n_attr] = attr_whole("replicas", b->graph->facts.dp);
    reduce->attr = attr;
    reduce->n_attr++;
}

const struct strategy strategy_dp = {"dp", degree, whole, at_use, at_gradient};
