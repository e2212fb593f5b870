/* Needs: a schedule with step numbers.
 * Gives: a place for every byte: each value that outlives its kernel, every slot, all state, in
 *   one arena that is the trainer's allocation. Its end, segment `wire`, is what collectives touch.
 *   Nothing else exists at run time.
 * Loses: nothing.
 *
 * A buffer is live between two steps in text order, both included. The text of a loop stands for
 * all its iterations. So what a loop reads from outside is live until its end, and what iterations
 * hand to each other or to the backward loop has one entry per iteration or a ring of entries:
 *   saved    one entry per layer, read by the backward body; index "i"
 *   carried  a ring of two: an iteration reads entry n and writes entry n + 1; index "n", "n+1"
 *   both     a carry that the backward loop reads: count + 1 entries, so handing on is writing the
 *            next entry
 *
 * A result of a fused kernel takes the place of an operand that the kernel is the last to read,
 * where in_place.h allows it: the operand's buffer then lives as long as the result. So the
 * gradient of the logits lies in the logits, and that of a saved value in its entry.
 *
 * Records of kind ALIAS name bytes that another record owns. An asynchronous reader holds its
 * buffer until the wait for its event: gradient slots are live from their region to the waits of
 * the update (and the next micro-batch begins by waiting for them), gather slots from the first
 * issue into them. */
#include "passes/layout.h"
#include "passes/pipeline.h"
#include "passes/share.h"
#include "passes/workspace.h"

#include <string.h>

struct stretch_of {
    int first, last;
};

struct memory {
    struct graph *graph;
    holder_list holder;
    struct stretch_of *steps; /* of each region */
    int micro_first, micro_last, end;
};

static int64_t bytes_of(const struct value *v)
{
    return shape_count(v->shape) * element_bytes(v->type);
}

static struct holder *holder_of(struct value *v) { return value_root(v)->note; }

static struct holder *hold(struct memory *m, struct value *v, const struct region *r,
                           const struct body *b, int kernel, int step)
{
    struct holder *h = TAKE(struct holder);
    *h = (struct holder){
        .value = v, .region = r, .body = b, .kernel = kernel, .first = step, .last = step};
    v->note = h, h->owner = h;
    PUSH(&m->holder, h);
    return h;
}

static struct buffer *put(struct memory *m, const char *name, enum buffer_kind kind,
                          enum segment segment, int64_t bytes, int64_t entries,
                          enum buffer_index index, int from, int to)
{
    struct buffer *b = TAKE(struct buffer);
    *b = (struct buffer){.name = intern(name),
                         .kind = kind,
                         .segment = segment,
                         .bytes = bytes,
                         .entries = entries,
                         .stride = round_up(bytes, 256),
                         .index = index,
                         .live_from = from,
                         .live_to = to};
    PUSH(&m->graph->buffer, b);
    return b;
}

/* ── who holds what, how long ────────────────────────────────────────────────── */
static void find_steps(struct memory *m)
{
    struct graph *g = m->graph;
    m->steps = TAKE_MANY(struct stretch_of, g->region.n);
    int at = 1;
    for (int i = 0; i < g->region.n; i++) {
        struct region *r = g->region.item[i];
        m->steps[i] = (struct stretch_of){at, at};
        for (int k = 0; k < r->body.n; k++)
            for (int n = 0; n < r->body.item[k]->node.n; n++) {
                int step = r->body.item[k]->node.item[n]->step;
                if (step > m->steps[i].last) m->steps[i].last = step;
            }
        at = m->steps[i].last + 1;
        if (r->phase == PHASE_MICRO) {
            if (!m->micro_first) m->micro_first = m->steps[i].first;
            m->micro_last = m->steps[i].last;
        }
    }
    m->end = at;
}

static int region_number(const struct memory *m, const struct region *r)
{
    for (int i = 0; i < m->graph->region.n; i++)
        if (m->graph->region.item[i] == r) return i;
    bug("region %s is not in its graph", r->name);
}

static void find_holders(struct memory *m)
{
    struct graph *g = m->graph;
    for (int i = 0; i < g->input.n; i++) {
        struct holder *h = hold(m, g->input.item[i], NULL, NULL, 0, m->micro_first);
        h->last = m->micro_last, h->outside = true;
    }
    for (int i = 0; i < g->region.n; i++) {
        struct region *r = g->region.item[i];
        for (int k = 0; k < r->carry.n; k++) {
            hold(m, r->carry.item[k].value, r, NULL, 0, m->steps[i].first)->last = m->steps[i].last;
            hold(m, r->carry.item[k].last, NULL, NULL, 0, m->steps[i].last);
        }
        for (int k = 0; k < r->body.n; k++)
            for (int n = 0; n < r->body.item[k]->node.n; n++) {
                struct node *node = r->body.item[k]->node.item[n];
                if (!node->kernel) continue;
                for (int o = 0; o < node->n_out && value_root(node->out[o]) == node->out[o]; o++) {
                    struct holder *h =
                        hold(m, node->out[o], r, r->body.item[k], node->kernel, node->step);
                    if (r->phase == PHASE_SETUP) h->outside = true, h->last = m->end, h->first = 0;
                    /* a core op always writes */
                    if (op_rows[node->op].class == CLASS_CORE) h->outside = true;
                }
            }
    }
}

static void read_at(struct memory *m, struct value *v, const struct region *r, int kernel, int step)
{
    struct holder *h = holder_of(v);
    if (!h) return; /* weights and leaves */
    if (h->kernel && h->kernel == kernel && v == h->value) return;
    h->outside = true;
    struct stretch_of here = m->steps[region_number(m, r)];
    bool same = h->region == r, once = !h->region || h->region->direction == ONCE;
    int last = same || (once && r->direction == ONCE) ? step : here.last;
    if (!same && !once) h->saved = true;
    if (last > h->last) h->last = last;
}

static void find_reads(struct memory *m)
{
    struct graph *g = m->graph;
    for (int i = 0; i < g->region.n; i++) {
        struct region *r = g->region.item[i];
        for (int k = 0; k < r->body.n; k++) {
            struct body *b = r->body.item[k];
            for (int n = 0; n < b->node.n; n++) {
                const struct node *node = b->node.item[n];
                for (int o = 0; o < node->n_in && node->step; o++)
                    if (node->in[o].value)
                        read_at(m, node->in[o].value, r, node->kernel, node->step);
                if (node->op == OP_assign && node->in[0].value->node->op != OP_state)
                    bug("only state is assigned");
            }
        }
    }
    /* saved values live from the start of their loop */
    for (int i = 0; i < m->holder.n; i++) {
        struct holder *h = m->holder.item[i];
        if (h->saved) h->first = m->steps[region_number(m, h->region)].first;
    }
}

/* ── records ─────────────────────────────────────────────────────────────────── */
static void put_state(struct memory *m)
{
    struct graph *g = m->graph;
    int64_t elements = 0, stage = 0;
    for (int i = 0; i < g->unit.n; i++) {
        elements += g->unit.item[i]->count * g->unit.item[i]->shard_elements;
        if (g->unit.item[i]->shard_elements > stage) stage = g->unit.item[i]->shard_elements;
    }
    for (int kind = 0; is_state((enum buffer_kind)kind); kind++)
        put(m, state_name((enum buffer_kind)kind), (enum buffer_kind)kind, SEGMENT_LOCAL,
            elements * 4, 1, INDEX_ONLY, 0, m->end);
    put(m, "scalars", BUFFER_SCALARS, SEGMENT_LOCAL, 64, 1, INDEX_ONLY, 0, m->end);
    put(m, "io", BUFFER_STAGING, SEGMENT_LOCAL, 1 << 20, 1, INDEX_ONLY, 0, m->end);
    int64_t work = g->facts.device == DEVICE_CUDA ? workspace_bytes(g) : 0;
    if (work) put(m, "workspace", BUFFER_WORKSPACE, SEGMENT_LOCAL, work, 1, INDEX_ONLY, 0, m->end);
    if (g->facts.fsdp > 1)
        put(m, "stage", BUFFER_REDUCE_STAGING, SEGMENT_WIRE, stage * 4, 1, INDEX_ONLY, 0, m->end);
    for (int i = 0; i < g->region.n; i++)
        for (int k = 0; k < g->region.item[i]->body.n; k++)
            for (int n = 0; n < g->region.item[i]->body.item[k]->node.n; n++) {
                const struct node *node = g->region.item[i]->body.item[k]->node.item[n];
                if (node->op != OP_metric) continue;
                const char *metric = intern_format("metric.%s", attr_get_word(node, "name"));
                if (!graph_buffer(g, metric))
                    put(m, metric, BUFFER_METRICS, SEGMENT_LOCAL,
                        shape_count(node->in[0].value->shape) * 8, 1, INDEX_ONLY, 0, m->end);
            }
}

/* Largest flat length among the variants that share a loop's slots. */
static int64_t slot_elements(const struct graph *g, const char *unit)
{
    int64_t n = 0;
    for (int i = 0; i < g->unit.n; i++) {
        const struct unit *u = g->unit.item[i];
        if ((!strcmp(u->name, unit) || (u->loop[0] && !strcmp(u->loop, unit))) && u->elements > n)
            n = u->elements;
    }
    return n;
}

static void put_slots(struct memory *m)
{
    struct graph *g = m->graph;
    for (int i = 0; i < g->region.n; i++)
        for (int k = 0; k < g->region.item[i]->body.n; k++)
            for (int n = 0; n < g->region.item[i]->body.item[k]->node.n; n++) {
                const struct node *node = g->region.item[i]->body.item[k]->node.item[n];
                bool gather = node->op == OP_gather;
                if (!gather && node->op != OP_reduce) continue;
                const char *name = attr_get_word(node, gather ? "into" : "from");
                struct buffer *b = graph_buffer(g, name);
                if (b) continue; /* the first issue in text order is the earliest */
                int64_t bytes = slot_elements(g, attr_get_word(node, "unit")) *
                                (gather ? element_bytes(g->facts.compute) : 4);
                if (gather && attr_or(node, "held", 0)) {
                    put(m, name, BUFFER_ALIAS, SEGMENT_WIRE, bytes, attr_get(node, "ring"),
                        INDEX_LAYER, m->steps[i].first, m->steps[i].last);
                    continue;
                }
                b = put(m, name, gather ? BUFFER_GATHERED : BUFFER_GRADIENT_SLOTS, SEGMENT_WIRE,
                        bytes, attr_get(node, "ring"), INDEX_RING, node->step, m->end);
                /* straight code waits for a gradient slot (below) before it first writes it; an
                 * iteration may wait for its entry while another's is in use */
                if (!gather && g->region.item[i]->direction != ONCE)
                    b->live_from = m->steps[i].first;
            }
    /* a gather slot's last reader is its region; a gradient slot's the update's wait */
    for (int i = 0; i < g->region.n; i++) {
        const struct region *r = g->region.item[i];
        for (int k = 0; k < g->unit.n; k++) {
            struct buffer *b = graph_buffer(g, slot_name(SLOT_GATHER, r->name, g->unit.item[k]));
            if (b) b->live_to = m->steps[i].last;
        }
        for (int k = 0; k < r->body.n; k++)
            for (int n = 0; n < r->body.item[k]->node.n; n++) {
                const struct node *node = r->body.item[k]->node.item[n];
                if (node->op != OP_reduce) continue;
                struct buffer *b = graph_buffer(g, attr_get_word(node, "from"));
                int last = m->micro_last, first = b->live_from;
                for (int j = 0; j < g->region.n; j++)
                    for (int q = 0; q < g->region.item[j]->body.n; q++)
                        for (int w = 0; w < g->region.item[j]->body.item[q]->node.n; w++) {
                            const struct node *wait = g->region.item[j]->body.item[q]->node.item[w];
                            if (wait->op != OP_wait ||
                                attr_get(wait, "event") != attr_get(node, "event"))
                                continue;
                            if (wait->step > last) last = wait->step;
                            if (!attr_get(wait, "all") && wait->step < first) first = wait->step;
                        }
                b->live_to = last, b->live_from = first;
            }
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

static const struct unit *loop_unit(const struct graph *g, const char *loop)
{
    for (int i = 0; i < g->unit.n; i++)
        if (!strcmp(g->unit.item[i]->loop, loop)) return g->unit.item[i];
    bug("no unit belongs to loop %s", loop);
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
                int from = m->steps[region_number(m, graph_region(g, r->mirror))].last + 1,
                    to = m->steps[i].first - 1;
                own->live_to = m->steps[i].last;
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
            put(m, slot_name(SLOT_GATHER, r->name, u), BUFFER_ALIAS, SEGMENT_WIRE, own->bytes,
                own->entries, u->loop[0] ? INDEX_LAYER : INDEX_ONLY, own->live_from, own->live_to);
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
            put(m, slot_name(SLOT_GATHER, r->name, g->unit.item[k]), BUFFER_ALIAS, SEGMENT_WIRE,
                own->bytes, 1, INDEX_ONLY, own->live_from, own->live_to);
        }
}

/* The gradient slot that a carry ends in, and its place there; NULL when it ends in none. */
static struct buffer *slot_of_carry(const struct memory *m, const struct carry *c, int64_t *offset)
{
    const struct graph *g = m->graph;
    for (int i = 0; i < g->region.n; i++)
        for (int k = 0; k < g->region.item[i]->body.n; k++) {
            const struct body *b = g->region.item[i]->body.item[k];
            for (int n = 0; n < b->gradient.n; n++) {
                if (b->gradient.item[n].value != c->last) continue;
                const struct weight *w = b->gradient.item[n].weight->weight;
                const struct unit *u = graph_unit(g, w->unit);
                *offset = w->offset * 4;
                return graph_buffer(g, slot_name(SLOT_GRADIENT, g->region.item[i]->name, u));
            }
        }
    return NULL;
}

static void put_carry(struct memory *m, const struct region *r, int k)
{
    const struct carry *c = &r->carry.item[k];
    struct holder *value = holder_of(c->value), *first = holder_of(c->first),
                  *last = holder_of(c->last);
    bool saved = value->saved, in_place = true;
    int from = first->first, to = last->last;
    int64_t at = 0;
    struct buffer *slot = slot_of_carry(m, c, &at);
    for (int b = 0; b < r->body.n; b++) {
        struct holder *next = holder_of(r->body.item[b]->next.item[k]);
        saved |= next->saved;
        if (next->last > to) to = next->last;
        next->placed = true;
        in_place &= next == value;
    }
    if (slot && !in_place) bug("%s ends in a gradient slot but is not made there", c->value->name);
    if (value->last > to) to = value->last;
    if (first->last > to) to = first->last;
    if (!saved && first->last > m->steps[region_number(m, r)].last)
        bug("%s is read after the loop that overwrites it", first->value->name);
    first->placed = last->placed = value->placed = true;
    int64_t entries = in_place ? 1 : saved ? r->count + 1 : 2;
    struct buffer *own = put(m, c->value->name,
                             slot    ? BUFFER_ALIAS
                             : saved ? BUFFER_SAVED
                                     : BUFFER_CARRIED,
                             slot ? SEGMENT_WIRE : SEGMENT_LOCAL, bytes_of(c->value), entries,
                             in_place ? INDEX_ONLY
                             : saved  ? INDEX_LAYER
                                      : INDEX_RING,
                             from, to);
    if (slot) own->offset = at;
    if (in_place) { /* one place under every name */
        const char *const name[] = {c->first->name, c->last->name};
        for (int i = 0; i < 2; i++)
            put(m, name[i], BUFFER_ALIAS, own->segment, own->bytes, 1, INDEX_ONLY, from, to);
        for (int b = 0; b < r->body.n; b++)
            put(m, r->body.item[b]->next.item[k]->name, BUFFER_ALIAS, own->segment, own->bytes, 1,
                INDEX_ONLY, from, to);
        return;
    }
    put(m, c->first->name, BUFFER_ALIAS, SEGMENT_LOCAL, own->bytes, 1, INDEX_ONLY, from, to)
        ->offset = 0;
    put(m, c->last->name, BUFFER_ALIAS, SEGMENT_LOCAL, own->bytes, 1, INDEX_ONLY, from, to)
        ->offset = r->count % entries * own->stride;
    for (int b = 0; b < r->body.n; b++) {
        struct buffer *next =
            put(m, r->body.item[b]->next.item[k]->name, BUFFER_ALIAS, SEGMENT_LOCAL, own->bytes,
                entries, saved ? INDEX_LAYER : INDEX_RING_NEXT, from, to);
        next->offset = saved ? own->stride : 0;
    }
}

static int64_t layers_of(const struct region *r, const struct body *b)
{
    int64_t n = b->layers.n ? 0 : r->count;
    for (int i = 0; i < b->layers.n; i++) n += b->layers.item[i].to - b->layers.item[i].from;
    return n;
}

static void put_values(struct memory *m)
{
    struct graph *g = m->graph;
    for (int i = 0; i < g->region.n; i++)
        for (int k = 0; k < g->region.item[i]->carry.n; k++) put_carry(m, g->region.item[i], k);
    for (int i = 0; i < g->region.n; i++)
        for (int k = 0; k < g->region.item[i]->body.n; k++) {
            const struct body *b = g->region.item[i]->body.item[k];
            for (int n = 0; n < b->gradient.n; n++) {
                const struct weight *w = b->gradient.item[n].weight->weight;
                struct value *v = b->gradient.item[n].value;
                if (graph_buffer(g, v->name)) continue; /* a carry made in the slot */
                const struct unit *u = graph_unit(g, w->unit);
                const struct buffer *slot =
                    graph_buffer(g, slot_name(SLOT_GRADIENT, g->region.item[i]->name, u));
                holder_of(v)->placed = true;
                struct buffer *alias =
                    put(m, v->name, BUFFER_ALIAS, SEGMENT_WIRE, bytes_of(v), slot->entries,
                        INDEX_RING, slot->live_from, slot->live_to);
                alias->stride = slot->stride;
                alias->offset = w->offset * 4;
            }
        }
    for (int i = 0; i < g->region.n; i++)
        for (int k = 0; k < g->region.item[i]->body.n; k++)
            for (int n = 0; n < g->region.item[i]->body.item[k]->node.n; n++) {
                const struct node *node = g->region.item[i]->body.item[k]->node.item[n];
                if (node->op != OP_part && node->op != OP_put_part) continue;
                struct value *part = node->op == OP_part ? node->out[0] : node->in[1].value;
                struct holder *whole = holder_of(node->in[0].value);
                struct buffer *alias =
                    put(m, part->name, BUFFER_ALIAS, SEGMENT_LOCAL, bytes_of(part),
                        g->facts.loss_chunks, INDEX_RING, whole->first, whole->last);
                alias->stride = bytes_of(part);
                if (node->op == OP_put_part) holder_of(part)->placed = true;
            }
    share_places(g); /* after everything that has a place of its own */
    for (int i = 0; i < m->holder.n; i++) {
        struct holder *h = m->holder.item[i];
        if (!h->outside || h->placed) continue;
        enum buffer_kind kind = !h->region                        ? BUFFER_BATCH
                                : h->region->phase == PHASE_SETUP ? BUFFER_TABLES
                                : h->saved                        ? BUFFER_SAVED
                                                                  : BUFFER_WORKING;
        put(m, h->value->name, kind, SEGMENT_LOCAL, bytes_of(h->value),
            h->saved ? layers_of(h->region, h->body) : 1, h->saved ? INDEX_LAYER : INDEX_ONLY,
            h->first, h->last);
    }
    for (int i = 0; i < m->holder.n; i++) {
        const struct holder *h = m->holder.item[i];
        if (h->owner == h) continue;
        const struct buffer *own = graph_buffer_must(g, h->owner->value->name);
        put(m, h->value->name, BUFFER_ALIAS, SEGMENT_LOCAL, own->bytes, own->entries, own->index,
            h->first, h->last)
            ->over = h->over->name;
    }
    for (int i = 0; i < g->region.n; i++) /* a sum over ranks works in place */
        for (int k = 0; k < g->region.item[i]->body.n; k++)
            for (int n = 0; n < g->region.item[i]->body.item[k]->node.n; n++) {
                const struct node *node = g->region.item[i]->body.item[k]->node.item[n];
                if (node->op != OP_sum_ranks) continue;
                put(m, node->out[0]->name, BUFFER_ALIAS, SEGMENT_LOCAL, bytes_of(node->out[0]), 1,
                    INDEX_ONLY, node->step, node->step);
            }
}

/* Offsets of aliases are relative until their owner has one. */
static void settle_carry(struct memory *m, const struct region *r, int k)
{
    struct graph *g = m->graph;
    const struct carry *c = &r->carry.item[k];
    struct buffer *own = graph_buffer(g, c->value->name);
    int64_t at;
    struct buffer *slot = slot_of_carry(m, c, &at);
    if (slot) own->offset += slot->offset;
    graph_buffer(g, c->first->name)->offset += own->offset;
    graph_buffer(g, c->last->name)->offset += own->offset;
    for (int b = 0; b < r->body.n; b++)
        graph_buffer(g, r->body.item[b]->next.item[k]->name)->offset += own->offset;
}

static void settle_body(struct memory *m, const struct region *r, const struct body *b)
{
    struct graph *g = m->graph;
    for (int n = 0; n < b->gradient.n; n++) {
        const struct value *v = b->gradient.item[n].value;
        const struct unit *u = graph_unit(g, b->gradient.item[n].weight->weight->unit);
        if (v->node)
            graph_buffer(g, v->name)->offset +=
                graph_buffer(g, slot_name(SLOT_GRADIENT, r->name, u))->offset;
    }
    for (int n = 0; n < b->node.n; n++) {
        const struct node *node = b->node.item[n];
        if (node->op == OP_sum_ranks)
            graph_buffer(g, node->out[0]->name)->offset =
                graph_buffer(g, value_root(node->in[0].value)->name)->offset;
        if (node->op == OP_part)
            graph_buffer(g, node->out[0]->name)->offset =
                graph_buffer(g, value_root(node->in[0].value)->name)->offset;
        if (node->op == OP_put_part)
            graph_buffer(g, node->in[1].value->name)->offset =
                graph_buffer(g, value_root(node->in[0].value)->name)->offset;
    }
}

static void settle_aliases(struct memory *m)
{
    struct graph *g = m->graph;
    for (int i = 0; i < m->holder.n; i++) {
        const struct holder *h = m->holder.item[i];
        if (h->owner != h)
            graph_buffer(g, h->value->name)->offset =
                graph_buffer(g, h->owner->value->name)->offset;
    }
    for (int i = 0; i < g->region.n; i++)
        for (int k = 0; k < g->region.item[i]->carry.n; k++) settle_carry(m, g->region.item[i], k);
    for (int i = 0; i < g->region.n; i++) {
        const struct region *r = g->region.item[i];
        for (int k = 0; k < r->body.n; k++) settle_body(m, r, r->body.item[k]);
        for (int k = 0; k < g->unit.n; k++) {
            struct buffer *alias =
                graph_buffer(g, slot_name(SLOT_GATHER, r->name, g->unit.item[k]));
            if (!alias || alias->kind != BUFFER_ALIAS) continue;
            const struct buffer *own = slot_read(g, r, g->unit.item[k]);
            alias->offset = own->offset, alias->stride = own->stride;
        }
    }
}

/* Every buffer with its size and the steps that it lives for; offsets when `places`. */
static struct graph *memory_of(const struct graph *old, bool places)
{
    struct memory m = {.graph = graph_begin(old, LEVEL_MEMORY)};
    struct graph *g = m.graph;
    for (int i = 0; i < old->region.n; i++) region_copy(g, old->region.item[i]);
    kernels_copy(g, old);
    g->steps = old->steps;
    find_steps(&m);
    find_holders(&m);
    find_reads(&m);
    put_state(&m);
    put_slots(&m);
    put_kept(&m);
    put_held(&m);
    put_within(&m);
    put_idle(&m);
    put_values(&m);
    if (!places) return g;
    layout_place(g);
    settle_aliases(&m);
    return g;
}

struct graph *pass_memory(const struct graph *old) { return memory_of(old, true); }

struct graph *memory_sizes(const struct graph *old) { return memory_of(old, false); }
