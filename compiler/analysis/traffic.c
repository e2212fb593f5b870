/* Counts what collectives move, read off the gathers and reductions of a schedule: a ring hands
 * every device all but its own part. */
#include "analysis/traffic.h"

#include <string.h>

static bool runs(const struct body *b, int64_t i)
{
    for (int k = 0; k < b->layers.n; k++)
        if (i >= b->layers.item[k].from && i < b->layers.item[k].to) return true;
    return !b->layers.n;
}

/* How often a gather or reduction of a body happens in one micro-batch. */
static int64_t times_of(const struct region *r, const struct body *b, const struct node *n)
{
    int64_t from = n->op == OP_gather ? attr_get(n, "from") : 0,
            to = n->op == OP_gather ? attr_get(n, "to") : r->count, times = 0;
    if (r->direction == ONCE) return 1;
    for (int64_t k = from; k < to && k < r->count; k++)
        times += runs(b, r->direction == DOWN ? r->count - 1 - k : k);
    return times;
}

/* Elements of a unit that a lane step names; of a loop whose layers differ, their mean. */
static double elements_of(const struct graph *g, const char *name)
{
    const struct unit *one = graph_unit(g, name);
    double all = 0, layers = 0;
    if (one) return (double)one->elements;
    for (int i = 0; i < g->unit.n; i++)
        if (!strcmp(g->unit.item[i]->loop, name)) {
            all += (double)(g->unit.item[i]->elements * g->unit.item[i]->count);
            layers += (double)g->unit.item[i]->count;
        }
    return layers > 0 ? all / layers : 0;
}

struct traffic traffic_of(const struct graph *g)
{
    struct traffic t = {0};
    for (int i = 0; i < g->region.n; i++) {
        const struct region *r = g->region.item[i];
        for (int k = 0; k < r->body.n; k++)
            for (int j = 0; j < r->body.item[k]->node.n; j++) {
                const struct node *n = r->body.item[k]->node.item[j];
                if (n->op != OP_gather && n->op != OP_reduce) continue;
                double elements = elements_of(g, attr_get_word(n, "unit")) *
                                  (double)times_of(r, r->body.item[k], n);
                double gathered = elements * (double)element_bytes(g->facts.compute);
                if (attr_or(n, "parts", 0)) t.put_together += gathered;
                if (attr_or(n, "next", 0)) t.gathered_once -= gathered; /* not in the last */
                if (n->op == OP_reduce)
                    t.reduced += 4.0 * elements;
                else if (attr_or(n, "once", 0))
                    t.gathered_once += gathered;
                else
                    t.gathered += gathered;
            }
    }
    return t;
}

double traffic_bytes(struct traffic t, int64_t fsdp, int64_t dp, int64_t accumulation)
{
    double others = (double)(fsdp - 1) / (double)fsdp, replicas = (double)(dp - 1) / (double)dp,
           summed = t.put_together > 0 ? t.reduced + t.put_together : 2 * t.reduced;
    return ((t.gathered + t.reduced) * (double)accumulation + t.gathered_once) * others +
           summed / (double)fsdp * replicas;
}

double step_cost(const struct plan *p, double flops_per_token, double moved)
{
    double peak = p->compute == BF16 ? p->cluster.flops_bf16 : p->cluster.flops_fp32;
    double link = p->fsdp <= p->cluster.devices_per_node ? p->cluster.link_node.bandwidth
                                                         : p->cluster.link_network.bandwidth;
    double flops = flops_per_token * (double)(p->global * p->sequence) / (double)(p->fsdp * p->dp);
    return peak > 0 && link > 0 ? flops / peak + moved / link : flops + 1e-6 * moved;
}
