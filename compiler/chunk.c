/* Needs: the region where forward turns into backward. */
#include "ir.h"

struct graph *pass_chunk(const struct graph *old)
{
    struct graph *g = graph_begin(old, LEVEL_CHUNK);
    for (int i = 0; i < old->region.n; i++) region_copy(g, old->region.item[i]);
    return g;
}
