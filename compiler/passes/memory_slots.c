/* The slots of gathered weights and of gradients in the memory of a device: how long each of them
 * lives, under which names regions read it, and when an entry of it is idle. layout.c lays other
 * buffers into idle entries.
 *
 * An asynchronous reader holds its buffer until the wait for its event: gradient slots are live
 * from their region to the waits of the update (and the next micro-batch begins by waiting for
 * them), gather slots from the first issue into them. */
#include "passes/memory_slots.h"

#include "passes/layout.h"
#include "passes/pipeline.h"

#include <string.h>

static const struct unit *loop_unit(const struct graph *g, const char *loop)
{
    for (int i = 0; i < g->unit.n; i++)
        if (!strcmp(g->unit.item[i]->loop, loop)) return g->unit.item[i];
    bug("no unit belongs to loop %s", loop);
}

/* Where shards of gradients wait for the sum over replicas; a unit that has slots in several
 * regions has one such place, since its gradient is one sum. */
static void put_shards(struct memory *m, const char *name, const struct buffer *slot)
{
    struct graph *g = m->graph;
    const struct unit *one = graph_unit(g, name), *u = one ? one : loop_unit(g, name);
    struct buffer *b = graph_buffer(g, shards_name(u));
    if (!b)
        b = memory_put(m, shards_name(u), BUFFER_GRADIENT_SHARDS, SEGMENT_LOCAL,
                       slot_elements(g, name) / g->facts.fsdp * 4, slot->entries, INDEX_RING,
                       slot->live_from, slot->live_to);
    if (slot->live_from < b->live_from) b->live_from = slot->live_from;
    if (slot->live_to > b->live_to) b->live_to = slot->live_to;
}

/* The slot of the first gather or reduction into it, in the order of the text, is the earliest.
 * Until when it holds something is said later. */
static void put_slot(struct memory *m, const struct node *node, int region)
{
    const struct graph *g = m->graph;
    const bool gather = node->op == OP_gather;
    const char *name = attr_get_word(node, gather ? "into" : "from");
    if (graph_buffer(g, name)) return;
    const int64_t bytes = slot_elements(g, attr_get_word(node, "unit")) *
                          (gather ? element_bytes(g->facts.compute) : 4);
    if (gather && attr_find(node, "place")) { /* its region's last step: below */
        memory_put(m, name, BUFFER_ALIAS, SEGMENT_WIRE, bytes, 1, INDEX_ONLY, node->step, m->end);
        return;
    }
    if (gather && attr_or(node, "held", 0)) {
        memory_put(m, name, BUFFER_ALIAS, SEGMENT_WIRE, bytes, attr_get(node, "ring"), INDEX_LAYER,
                   m->steps[region].first, m->steps[region].last);
        return;
    }
    struct buffer *b =
        memory_put(m, name, gather ? BUFFER_GATHERED : BUFFER_GRADIENT_SLOTS, SEGMENT_WIRE, bytes,
                   attr_get(node, "ring"), INDEX_RING, node->step, m->end);
    /* straight code waits for a gradient slot (below) before it first writes it; an iteration may
     * wait for its entry while another's is in use */
    if (!gather && g->region.item[region]->direction != ONCE) b->live_from = m->steps[region].first;
}

/* A gradient slot is in use until the update's wait, and from the first wait that frees it. */
static void live_until_waits(struct memory *m, const struct node *reduce)
{
    struct buffer *b = graph_buffer(m->graph, attr_get_word(reduce, "from"));
    int last = m->micro_last, first = b->live_from;
    for (struct node_walk at = {0}; next_node(m->graph, &at);) {
        if (at.node->op != OP_wait || attr_get(at.node, "event") != attr_get(reduce, "event"))
            continue;
        if (at.node->step > last) last = at.node->step;
        if (!attr_get(at.node, "all") && at.node->step < first) first = at.node->step;
    }
    b->live_to = last, b->live_from = first;
    if (!gradients_whole(&m->graph->facts)) put_shards(m, attr_get_word(reduce, "unit"), b);
}

static void put_slots(struct memory *m)
{
    struct graph *g = m->graph;
    for (struct node_walk at = {0}; next_node(g, &at);)
        if (at.node->op == OP_gather || at.node->op == OP_reduce)
            put_slot(m, at.node, at.region_index);
    for (int i = 0; i < g->region.n; i++) {
        const struct region *r = g->region.item[i];
        /* a gather slot's last reader is its region */
        for (int k = 0; k < g->unit.n; k++) {
            struct buffer *b = graph_buffer(g, slot_name(SLOT_GATHER, r->name, g->unit.item[k]));
            if (b) b->live_to = m->steps[i].last;
        }
        for (struct node_walk at = {0}; next_node_of_region(r, &at);)
            if (at.node->op == OP_reduce) live_until_waits(m, at.node);
    }
}

/* The step at which an entry of a gather slot is first filled; a loop is meant from its beginning,
 * since its text stands for all its iterations. */
static int filled_from(const struct memory *m, const struct buffer *b, int64_t entry)
{
    for (int i = 0; i < m->graph->region.n; i++)
        for (int k = 0; k < m->graph->region.item[i]->body.n; k++) {
            const struct region *r = m->graph->region.item[i];
            for (int n = 0; n < r->body.item[k]->node.n; n++) {
                const struct node *node = r->body.item[k]->node.item[n];
                if (node->op != OP_gather || strcmp(attr_get_word(node, "into"), b->name)) continue;
                int64_t shift = attr_get(node, "shift"), from = attr_get(node, "from"),
                        to = r->direction == ONCE ? 1 : attr_get(node, "to");
                for (int64_t at = from; at < to && at < from + b->entries; at++)
                    if ((at + shift) % b->entries == entry)
                        return r->direction == ONCE ? node->step : m->steps[i].first;
            }
        }
    return b->live_from;
}

/* Whether a slot is filled in the first micro-batch of a step and kept for the others. */
static bool keeps_first(const struct graph *g, const char *slot)
{
    for (struct node_walk at = {0}; next_node(g, &at);)
        if (at.node->op == OP_gather && attr_or(at.node, "once", 0) &&
            !strcmp(attr_get_word(at.node, "into"), slot))
            return true;
    return false;
}

/* Layers that a backward loop finds in its forward loop's slots stay there in between. The slot of
 * the first layer that it gathers itself is idle until then. */
static void put_held(struct memory *m)
{
    struct graph *g = m->graph;
    for (int i = 0; i < g->region.n; i++) {
        const struct region *r = g->region.item[i];
        for (int k = 0; k < r->body.n; k++)
            for (int n = 0; n < r->body.item[k]->node.n; n++) {
                const struct node *node = r->body.item[k]->node.item[n];
                int64_t held = node->op == OP_gather ? attr_or(node, "held", 0) : 0;
                if (!held) continue;
                struct buffer *own = slot_read(g, r, loop_unit(g, attr_get_word(node, "unit")));
                int from = m->steps[memory_region(m, graph_region(g, r->mirror))].last + 1,
                    to = m->steps[i].first - 1;
                own->live_to = m->steps[i].last;
                /* its last layers are the first ones of the next micro-batch */
                if (keeps_first(g, own->name))
                    own->live_from = m->micro_first, own->live_to = m->micro_last;
                if (held >= own->entries || from > to) continue;
                own->idle_entry = (r->count - 1 - held) % own->entries;
                own->idle_from = from, own->idle_to = to;
            }
    }
}

/* Of a loop's gather slots, the last that is filled for the first time waits for it: a backward
 * loop that begins `prefetch` units ahead fills one slot only when it runs. */
static void put_idle(struct memory *m)
{
    struct graph *g = m->graph;
    for (int s = 0; s < g->buffer.n; s++) {
        struct buffer *b = g->buffer.item[s];
        if (b->kind != BUFFER_GATHERED || b->entries < 2 || b->idle_to ||
            g->facts.reshard != RESHARD_FORWARD)
            continue;
        int last = b->live_from;
        for (int64_t e = 0; e < b->entries; e++) {
            int first = filled_from(m, b, e);
            if (first > last) last = first, b->idle_entry = e;
        }
        b->idle_from = b->live_from, b->idle_to = last - 1;
        if (last == b->live_from) b->idle_from = b->idle_to = 0;
    }
}

static bool body_reads(const struct body *b, const struct unit *u)
{
    for (int n = 0; n < b->node.n; n++)
        for (int k = 0; k < b->node.item[n]->n_in; k++) {
            const struct value *v = b->node.item[n]->in[k].value;
            if (v && v->weight && !strcmp(v->weight->unit, u->name)) return true;
        }
    return false;
}

/* It, or a region within it. */
static bool region_reads(const struct graph *g, const struct region *r, const struct unit *u)
{
    bool reads = false;
    for (int i = 0; i < g->region.n; i++) {
        const struct region *at = g->region.item[i];
        bool meant = at == r || (at->within && !strcmp(at->within, r->name));
        for (int k = 0; k < at->body.n && meant; k++) reads |= body_reads(at->body.item[k], u);
    }
    return reads;
}

/* What an earlier region has gathered and kept is read under a record of this region's own, by
 * layer, because a backward loop counts the other way. With reshard = step it is kept to the end
 * of the last micro-batch, and from the beginning: the later ones find it there. */
static void put_kept(struct memory *m)
{
    struct graph *g = m->graph;
    for (int i = 0; i < g->region.n && g->facts.reshard != RESHARD_FORWARD; i++)
        for (int k = 0; k < g->unit.n && g->region.item[i]->phase == PHASE_MICRO; k++) {
            const struct region *r = g->region.item[i];
            const struct unit *u = g->unit.item[k];
            struct buffer *own = kept_slot(g, u);
            if (!own) continue;
            if (g->facts.reshard == RESHARD_STEP)
                own->live_from = m->micro_first, own->live_to = m->micro_last;
            if (r->within || !region_reads(g, r, u)) continue;
            if (m->steps[i].last > own->live_to) own->live_to = m->steps[i].last;
            if (graph_buffer(g, slot_name(SLOT_GATHER, r->name, u))) continue;
            memory_put(m, slot_name(SLOT_GATHER, r->name, u), BUFFER_ALIAS, SEGMENT_WIRE,
                       own->bytes, own->entries, u->loop[0] ? INDEX_LAYER : INDEX_ONLY,
                       own->live_from, own->live_to);
        }
}

/* Regions within another go on reading its gathered units, under records of their own. */
static void put_within(struct memory *m)
{
    struct graph *g = m->graph;
    for (int i = 0; i < g->region.n; i++)
        for (int k = 0; k < g->unit.n && g->region.item[i]->within; k++) {
            const struct region *r = g->region.item[i];
            struct buffer *own =
                graph_buffer(g, slot_name(SLOT_GATHER, r->within, g->unit.item[k]));
            if (!own) continue;
            if (m->steps[i].last > own->live_to) own->live_to = m->steps[i].last;
            struct buffer *kept = kept_slot(g, g->unit.item[k]);
            if (kept && own->live_to > kept->live_to) kept->live_to = own->live_to;
            memory_put(m, slot_name(SLOT_GATHER, r->name, g->unit.item[k]), BUFFER_ALIAS,
                       SEGMENT_WIRE, own->bytes, 1, INDEX_ONLY, own->live_from, own->live_to);
        }
}

void memory_slots(struct memory *m)
{
    put_slots(m);
    put_kept(m);
    put_held(m);
    put_within(m);
    put_idle(m);
}
