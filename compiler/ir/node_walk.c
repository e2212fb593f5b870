/* The one loop over the nodes of a graph, so that no pass writes it as three loops of its own. */
#include "ir/ir.h"

bool next_node_of_region(const struct region *r, struct node_walk *at)
{
    at->region = (struct region *)r;
    for (; at->body_index < r->body.n; at->body_index++, at->node_index = 0) {
        at->body = r->body.item[at->body_index];
        if (at->node_index < at->body->node.n) {
            at->node = at->body->node.item[at->node_index++];
            return true;
        }
    }
    return false;
}

bool next_node(const struct graph *g, struct node_walk *at)
{
    for (; at->region_index < g->region.n; at->region_index++, at->body_index = at->node_index = 0)
        if (next_node_of_region(g->region.item[at->region_index], at)) return true;
    return false;
}
