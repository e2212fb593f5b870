/* What lanes do: gathers fill slots that kernels read weights from, reductions read slots that
 * gradients are made in, and events say when each is done. */
#include "state.h"

#include <string.h>

void read_weight(struct prove *p, const struct weight *w)
{
    const struct unit *u = graph_unit(p->g, w->unit);
    const struct buffer *b = graph_buffer(p->g, slot_name(SLOT_GATHER, p->region->name, u));
    if (!b) return; /* read where the master lives */
    const char *owner = slot_read(p->g, p->region, u)->name;
    int64_t instance = u->loop[0] ? p->i : 0, entry = b->index == INDEX_LAYER ? p->i : p->n;
    int64_t size = element_bytes(p->g->facts.compute), bytes = shape_count(w->value->shape) * size;
    int64_t from = address_of(p, b, b->offset + (entry % b->entries) * b->stride + w->offset * size,
                              bytes, w->value->name);
    for (int k = p->gathered.n - 1; k >= 0; k--)
        if (!strcmp(p->gathered.item[k].buffer, owner) &&
            p->gathered.item[k].instance == instance) {
            read_bytes(p, from, from + bytes, p->gathered.item[k].mark, w->value->name);
            return;
        }
    wrong(p, "%s is read and was never gathered", w->value->name);
}

/* A lane step begins: its event must have been waited for since it was last recorded. */
static void take_off(struct prove *p, struct flight f)
{
    for (int k = 0; k < p->flight.n; k++)
        if (p->flight.item[k].event == f.event)
            wrong(p, "event %d is recorded again before anyone has waited for it", f.event);
    PUSH(&p->flight, f);
}

static bool records(const struct graph *g, int event, enum op op)
{
    for (int i = 0; i < g->region.n; i++)
        for (int k = 0; k < g->region.item[i]->body.n; k++)
            for (int j = 0; j < g->region.item[i]->body.item[k]->node.n; j++) {
                const struct node *n = g->region.item[i]->body.item[k]->node.item[j];
                if (n->op == op && event >= attr_get(n, "event") &&
                    event < attr_get(n, "event") + attr_get(n, "ring"))
                    return true;
            }
    return false;
}

static void put_together(struct prove *p, const struct node *n, int64_t layer)
{
    const char *unit = attr_get_word(n, "unit");
    if (p->g->facts.parts == 1) return;
    if (attr_or(n, "parts", 0)) PUSH(&p->together, ((struct gathered){unit, layer, 0}));
    for (int k = 0; k < p->together.n; k++)
        if (!strcmp(p->together.item[k].buffer, unit) && p->together.item[k].instance == layer)
            return;
    wrong(p, "%s[%lld] is gathered before its shard was put together", unit, (long long)layer);
}

/* The reduction into an entry of the ring of shards. */
static void fill_shard(struct prove *p, const struct node *n, int64_t entry)
{
    const struct buffer *b = graph_buffer(p->g, attr_get_word(n, "shards"));
    const int64_t from = address_of(p, b, b->offset + entry * b->stride, b->bytes, b->name);
    int kept = 0;
    for (int k = 0; k < p->flight.n; k++)
        if (!p->flight.item[k].shard || p->flight.item[k].from != from)
            p->flight.item[kept++] = p->flight.item[k];
    p->flight.n = kept;
    write_bytes(p, from, from + b->bytes, ++p->fresh, b->name);
    PUSH(&p->flight, ((struct flight){from, from + b->bytes, (int)(attr_get(n, "summed") + entry),
                                      true, true}));
}

void gather(struct prove *p, const struct node *n)
{
    int64_t at = p->n + attr_get(n, "shift");
    if (p->region->direction != ONCE && (p->n < attr_get(n, "from") || p->n >= attr_get(n, "to")))
        return;
    if (attr_or(n, "once", 0) && !p->first_micro) return;
    if (attr_or(n, "next", 0) && p->last_micro) return;
    const struct buffer *b = graph_buffer(p->g, attr_get_word(n, "into"));
    int64_t layer = attr_get(n, "down") ? attr_get(n, "count") - 1 - at : at;
    put_together(p, n, layer);
    int64_t ring = attr_get(n, "ring"), entry = (attr_or(n, "held", 0) ? layer : at) % ring,
            from = address_of(p, b, b->offset + entry * b->stride, b->bytes, b->name);
    const char *owner = b->name;
    for (int r = 0; r < p->g->region.n && b->kind == BUFFER_ALIAS; r++)
        for (int u = 0; u < p->g->unit.n; u++)
            if (!strcmp(slot_name(SLOT_GATHER, p->g->region.item[r]->name, p->g->unit.item[u]),
                        b->name))
                owner = slot_read(p->g, p->g->region.item[r], p->g->unit.item[u])->name;
    struct gathered one = {owner, layer, ++p->fresh};
    write_bytes(p, from, from + b->bytes, one.mark, b->name);
    PUSH(&p->gathered, one);
    take_off(p, (struct flight){from, from + b->bytes, (int)(attr_get(n, "event") + at % ring),
                                true, false});
}

void reduce(struct prove *p, const struct node *n)
{
    const struct buffer *b = graph_buffer(p->g, attr_get_word(n, "from"));
    int64_t entry = p->n % attr_get(n, "ring"),
            from = address_of(p, b, b->offset + entry * b->stride, b->bytes, b->name);
    for (int k = 0; k < p->body->gradient.n; k++) {
        const struct yield_gradient *y = &p->body->gradient.item[k];
        const struct unit *u = graph_unit(p->g, y->weight->weight->unit);
        if (strcmp(slot_name(SLOT_GRADIENT, p->region->name, u), b->name)) continue;
        int64_t at = from + y->weight->weight->offset * 4;
        read_bytes(p, at, at + shape_count(y->weight->shape) * 4, meant(p, bytes_of(y->value)),
                   y->value->name);
    }
    int event = (int)(attr_get(n, "event") + entry), summed = (int)attr_get(n, "summed");
    take_off(p, (struct flight){from, from + b->bytes, event, false, false});
    if (attr_find(n, "shards")) fill_shard(p, n, entry), summed += (int)entry;
    if (summed >= attr_get(n, "event") && summed < attr_get(n, "event") + attr_get(n, "ring"))
        wrong(p, "event %d is of a slot and of a sum over replicas", summed);
    for (int k = 0; k < p->body->gradient.n; k++) {
        const struct weight *w = p->body->gradient.item[k].weight->weight;
        const struct unit *u = graph_unit(p->g, w->unit);
        if (strcmp(slot_name(SLOT_GRADIENT, p->region->name, u), b->name)) continue;
        struct sum one = {w->unit, event, summed, true, p->last_micro && attr_get(n, "last")};
        PUSH(&p->sum, one);
        return;
    }
    wrong(p, "%s is reduced and nothing of it is made here", b->name);
}

/* Of a gradient that the update reads. */
void read_gradient(struct prove *p, const struct node *state)
{
    const char *unit = attr_get_word(state, "unit");
    for (int k = 0; k < p->sum.n; k++) {
        const struct sum *s = &p->sum.item[k];
        if (strcmp(s->unit, unit)) continue;
        if (s->reduces) wrong(p, "the gradient of %s is read before event %d", unit, s->slot);
        if (s->adds) wrong(p, "the gradient of %s is read before event %d", unit, s->summed);
    }
}

void wait_for(struct prove *p, const struct node *n)
{
    if (attr_or(n, "once", 0) && !p->first_micro) return;
    if (p->n < attr_or(n, "from", 0)) return;
    if (p->n < attr_or(n, "kept", 0) && !p->first_micro) return;
    int first = (int)attr_get(n, "event"), ring = (int)attr_get(n, "ring"),
        one = first + (int)(p->n % ring), kept = 0, summed = (int)attr_or(n, "summed", -1),
        sums = summed < 0 ? 0 : (int)attr_or(n, "sums", 1);
    bool all = attr_get(n, "all"), found = false;
    for (int k = 0; k < p->flight.n; k++) {
        int e = p->flight.item[k].event;
        found |= e == one;
        if (p->flight.item[k].shard ? e < summed || e >= summed + sums
            : all                   ? e < first || e >= first + ring
                                    : e != one)
            p->flight.item[kept++] = p->flight.item[k];
    }
    p->flight.n = kept;
    for (int k = 0; k < p->sum.n; k++) {
        struct sum *s = &p->sum.item[k];
        if (all ? s->slot >= first && s->slot < first + ring : s->slot == one) s->reduces = false;
        if (s->summed >= summed && s->summed < summed + sums) s->adds = false;
    }
    /* a slot is waited for before its first use too; a gather is always issued when a node
     * waits */
    if (!all && !found && records(p->g, one, OP_gather))
        wrong(p, "event %d is waited for and nobody has recorded it", one);
}
