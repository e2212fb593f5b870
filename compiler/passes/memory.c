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
 * Records of kind ALIAS name bytes that another record owns. memory_slots.c records the slots that
 * collectives read and write. */
#include "passes/layout.h"
#include "passes/memory_slots.h"
#include "passes/pipeline.h"
#include "passes/share.h"
#include "passes/workspace.h"

#include <string.h>

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

struct buffer *memory_put(struct memory *m, const char *name, enum buffer_kind kind,
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

int memory_region(const struct memory *m, const struct region *r)
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
    struct stretch_of here = m->steps[memory_region(m, r)];
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
        if (h->saved) h->first = m->steps[memory_region(m, h->region)].first;
    }
}

/* ── records ─────────────────────────────────────────────────────────────────── */
static void put_state(struct memory *m)
{
    struct graph *g = m->graph;
    int64_t elements = 0, shards = 0, stage = 0;
    for (int i = 0; i < g->unit.n; i++) {
        elements += g->unit.item[i]->count * g->unit.item[i]->part_elements;
        shards += g->unit.item[i]->count * g->unit.item[i]->shard_elements;
        if (g->unit.item[i]->shard_elements > stage) stage = g->unit.item[i]->shard_elements;
    }
    for (int kind = 0; is_state((enum buffer_kind)kind); kind++) {
        const bool whole = kind == BUFFER_GRADIENT && gradients_whole(&g->facts);
        memory_put(m, state_name((enum buffer_kind)kind), (enum buffer_kind)kind, SEGMENT_LOCAL,
                   (whole ? shards : elements) * 4, 1, INDEX_ONLY, 0, m->end);
    }
    if (g->facts.parts > 1)
        memory_put(m, state_name(BUFFER_WEIGHTS), BUFFER_WEIGHTS, SEGMENT_LOCAL,
                   shards * element_bytes(g->facts.compute), 1, INDEX_ONLY, 0, m->end);
    memory_put(m, "scalars", BUFFER_SCALARS, SEGMENT_LOCAL, 64, 1, INDEX_ONLY, 0, m->end);
    memory_put(m, "io", BUFFER_STAGING, SEGMENT_LOCAL, 1 << 20, 1, INDEX_ONLY, 0, m->end);
    int64_t work = g->facts.device == DEVICE_CUDA ? workspace_bytes(g) : 0;
    if (work)
        memory_put(m, "workspace", BUFFER_WORKSPACE, SEGMENT_LOCAL, work, 1, INDEX_ONLY, 0, m->end);
    if (g->facts.fsdp > 1)
        memory_put(m, "stage", BUFFER_REDUCE_STAGING, SEGMENT_WIRE, stage * 4, 1, INDEX_ONLY, 0,
                   m->end);
    for (int i = 0; i < g->region.n; i++)
        for (int k = 0; k < g->region.item[i]->body.n; k++)
            for (int n = 0; n < g->region.item[i]->body.item[k]->node.n; n++) {
                const struct node *node = g->region.item[i]->body.item[k]->node.item[n];
                if (node->op != OP_metric) continue;
                const char *metric = intern_format("metric.%s", attr_get_word(node, "name"));
                if (!graph_buffer(g, metric))
                    memory_put(m, metric, BUFFER_METRICS, SEGMENT_LOCAL,
                               shape_count(node->in[0].value->shape) * 8, 1, INDEX_ONLY, 0, m->end);
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
    if (!saved && first->last > m->steps[memory_region(m, r)].last)
        bug("%s is read after the loop that overwrites it", first->value->name);
    first->placed = last->placed = value->placed = true;
    int64_t entries = in_place ? 1 : saved ? r->count + 1 : 2;
    struct buffer *own =
        memory_put(m, c->value->name,
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
            memory_put(m, name[i], BUFFER_ALIAS, own->segment, own->bytes, 1, INDEX_ONLY, from, to);
        for (int b = 0; b < r->body.n; b++)
            memory_put(m, r->body.item[b]->next.item[k]->name, BUFFER_ALIAS, own->segment,
                       own->bytes, 1, INDEX_ONLY, from, to);
        return;
    }
    memory_put(m, c->first->name, BUFFER_ALIAS, SEGMENT_LOCAL, own->bytes, 1, INDEX_ONLY, from, to)
        ->offset = 0;
    memory_put(m, c->last->name, BUFFER_ALIAS, SEGMENT_LOCAL, own->bytes, 1, INDEX_ONLY, from, to)
        ->offset = r->count % entries * own->stride;
    for (int b = 0; b < r->body.n; b++) {
        struct buffer *next =
            memory_put(m, r->body.item[b]->next.item[k]->name, BUFFER_ALIAS, SEGMENT_LOCAL,
                       own->bytes, entries, saved ? INDEX_LAYER : INDEX_RING_NEXT, from, to);
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
                    memory_put(m, v->name, BUFFER_ALIAS, SEGMENT_WIRE, bytes_of(v), slot->entries,
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
                    memory_put(m, part->name, BUFFER_ALIAS, SEGMENT_LOCAL, bytes_of(part),
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
        memory_put(m, h->value->name, kind, SEGMENT_LOCAL, bytes_of(h->value),
                   h->saved ? layers_of(h->region, h->body) : 1,
                   h->saved ? INDEX_LAYER : INDEX_ONLY, h->first, h->last);
    }
    for (int i = 0; i < m->holder.n; i++) {
        const struct holder *h = m->holder.item[i];
        if (h->owner == h) continue;
        const struct buffer *own = graph_buffer_must(g, h->owner->value->name);
        memory_put(m, h->value->name, BUFFER_ALIAS, SEGMENT_LOCAL, own->bytes, own->entries,
                   own->index, h->first, h->last)
            ->over = h->over->name;
    }
    for (int i = 0; i < g->region.n; i++) /* a sum over ranks works in place */
        for (int k = 0; k < g->region.item[i]->body.n; k++)
            for (int n = 0; n < g->region.item[i]->body.item[k]->node.n; n++) {
                const struct node *node = g->region.item[i]->body.item[k]->node.item[n];
                if (node->op != OP_sum_ranks) continue;
                memory_put(m, node->out[0]->name, BUFFER_ALIAS, SEGMENT_LOCAL,
                           bytes_of(node->out[0]), 1, INDEX_ONLY, node->step, node->step);
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

/* The gather that fills a slot which lies in the last entry of another; NULL: of no such slot. */
static const struct node *gathered_early(const struct graph *g, const struct buffer *slot)
{
    for (struct node_walk at = {0}; next_node(g, &at);)
        if (at.node->op == OP_gather && attr_find(at.node, "place") &&
            !strcmp(attr_get_word(at.node, "into"), slot->name))
            return at.node;
    return NULL;
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
            const struct node *early = gathered_early(g, alias);
            const struct buffer *own = early ? graph_buffer(g, attr_get_word(early, "place"))
                                             : slot_read(g, r, g->unit.item[k]);
            alias->offset = own->offset + (early ? own->stride * (own->entries - 1) : 0);
            if (!early) alias->stride = own->stride;
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
    memory_slots(&m);
    put_values(&m);
    if (!places) return g;
    layout_place(g);
    settle_aliases(&m);
    return g;
}

struct graph *pass_memory(const struct graph *old) { return memory_of(old, true); }

struct graph *memory_sizes(const struct graph *old) { return memory_of(old, false); }
