/* Needs: whole weights and state.
 * Gives: the units' flat layout (each weight aligned, the whole padded to the shards), state cut to
 *   a rank's shard, a `use` at the start of each body for every unit it reads, a `reduce` at its
 *   end for every unit whose gradient it yields, and carries whose first and next values have
 * places of their own, so that memory can lay a loop's values side by side without a copy of its
 * own. Loses: nothing. What the two axes of the mesh do to a unit: fsdp  each rank of a group keeps
 * 1/s of master weights, gradients and moments (ZeRO stage 3, Rajbhandari et al., 2020). A use
 * gathers the whole unit in the compute type, a gradient is reduce-scattered, an update walks the
 * shard. dp    replicas of such groups hold the same shards and see other samples (HSDP). A use and
 * an update need nothing from them; a gradient's shard is summed over the replicas once per step,
 * in the last micro-batch, under the rest of the backward pass. With mesh.optimizer = all the
 * replicas also cut what only the update needs, master weights and moments, into parts (ZeRO stage
 * 1 over the replicas): each adds up its part of a gradient's shard and updates it. The shards of
 * the weights in the compute type, which uses are gathered from, are put together again from all
 * parts in the first micro-batch of the next step. */
#include "ir/ir.h"
#include "passes/pipeline.h"

#include <string.h>

/* With one rank and F32 compute there is nothing to gather or to cast: weights are read where they
 * live. */
static bool gathers(const struct facts *f)
{
    return f->fsdp > 1 || f->parts > 1 || f->compute != F32;
}

static void lay_out_units(struct graph *g)
{
    int64_t shards = g->facts.fsdp, parts = g->facts.parts, state = 0;
    for (int i = 0; i < g->unit.n; i++) {
        struct unit *u = g->unit.item[i];
        int64_t at = 0;
        for (int k = 0; k < g->weight.n; k++) {
            struct weight *w = g->weight.item[k];
            if (strcmp(w->unit, u->name)) continue;
            w->offset = at;
            at += round_up(shape_count(w->value->shape), weight_alignment(g));
        }
        /* the rank that has a router's bias makes all three numbers of an element */
        int64_t least = unit_together(g, u) * shards * parts;
        u->elements = round_up(at > least ? at : least, shards * parts * weight_alignment(g));
        u->shard_elements = u->elements / shards;
        u->part_elements = u->shard_elements / parts;
        u->state_offset = state;
        u->shard_offset = state * parts;
        state += u->count * u->part_elements;
    }
}

static bool body_reads(const struct body *b, const struct unit *u)
{
    for (int i = 0; i < b->node.n; i++)
        for (int k = 0; k < b->node.item[i]->n_in; k++) {
            const struct value *v = b->node.item[i]->in[k].value;
            if (v && v->weight && !strcmp(v->weight->unit, u->name)) return true;
        }
    return false;
}

/* Regions within this one go on using what it has gathered. */
static bool reads_unit(const struct graph *old, const struct region *r, const struct body *b,
                       const struct unit *u)
{
    if (r->within) return false;
    if (body_reads(b, u)) return true;
    for (int i = 0; i < old->region.n; i++)
        for (int k = 0;
             old->region.item[i]->within && !strcmp(old->region.item[i]->within, r->name) &&
             k < old->region.item[i]->body.n;
             k++)
            if (body_reads(old->region.item[i]->body.item[k], u)) return true;
    return false;
}

/* The layers of a loop are gathered in turn, whatever their kind: if one kind reads its weights
 * here, so does every other, even if its gradient would need none. */
static bool takes_turn(const struct graph *old, const struct region *r, const struct body *b,
                       const struct unit *u)
{
    if (r->direction == ONCE || strcmp(u->loop, r->loop) || strcmp(u->variant, b->name))
        return false;
    for (int i = 0; i < r->body.n; i++)
        for (int k = 0; k < old->unit.n; k++)
            if (!strcmp(old->unit.item[k]->loop, r->loop) &&
                reads_unit(old, r, r->body.item[i], old->unit.item[k]))
                return true;
    return false;
}

static bool yields_unit(const struct body *b, const struct unit *u)
{
    for (int i = 0; i < b->gradient.n; i++)
        if (!strcmp(b->gradient.item[i].weight->weight->unit, u->name)) return true;
    return false;
}

/* A node of the update phase: state has the shard's length now, and what is computed from it
 * follows. */
static void copy_cut(struct build *b, const struct node *old)
{
    struct operand in[8];
    struct attr attr[4];
    const char *why = NULL;
    for (int i = 0; i < old->n_in; i++)
        in[i] = old->in[i].value ? by(copied(old->in[i].value)) : old->in[i];
    for (int i = 0; i < old->n_attr; i++) {
        attr[i] = old->attr[i];
        if (!strcmp(attr[i].key, "elements"))
            attr[i].whole = graph_unit(b->graph, attr_get_word(old, "unit"))->part_elements;
    }
    b->file = old->file, b->line = old->line;
    b->base = old->n_out ? old->out[0]->name : NULL;
    struct node *n = build_node(b, old->op, in, old->n_in, attr, old->n_attr, &why);
    if (!n) bug("%s: %s", op_rows[old->op].name, why);
    for (int i = 0; i < old->n_out; i++) {
        n->out[i]->name = old->out[i]->name; /* the old graph's name stands for the same thing */
        copied_as(old->out[i], n->out[i]);
    }
}

/* ── places for carries ──────────────────────────────────────────────────────── */
static bool own_place(const struct value *v)
{
    if (!v->node || v->mark) return false;
    enum op_class class = op_rows[v->node->op].class;
    return class != CLASS_VIEW && class != CLASS_LEAF && class != CLASS_LANE;
}

static bool made_by(const struct body *b, const struct value *v)
{
    for (int i = 0; i < b->node.n; i++)
        if (b->node.item[i] == v->node) return true;
    return false;
}

static const struct value *behind_views(const struct value *v)
{
    while (v && v->node && op_rows[v->node->op].class == CLASS_VIEW) v = v->node->in[0].value;
    return v;
}

static bool reads(const struct region *r, const struct value *v)
{
    for (struct node_walk at = {0}; next_node_of_region(r, &at);)
        for (int o = 0; o < at.node->n_in; o++)
            if (behind_views(at.node->in[o].value) == v) return true;
    return false;
}

/* Whether a node reads `v` while region number `at`, a loop, runs over its bytes, or after it: a
 * node, or another loop that begins with it. */
static bool read_later(const struct graph *g, int at, const struct value *v)
{
    for (int i = at; i < g->region.n; i++) {
        const struct region *r = g->region.item[i];
        if (reads(r, v)) return true;
        for (int k = 0; k < r->carry.n && i > at; k++)
            if (behind_views(r->carry.item[k].first) == v) return true;
    }
    return false;
}

/* A carry starts in a value made for it by straight code, and for nobody who reads it once the loop
 * has begun; else a copy is put in, in a region of its own before the loop. */
static void place_firsts(struct graph *g, struct region *r, const struct graph *old, int at)
{
    struct region *enter = NULL;
    for (int i = 0; i < r->carry.n; i++) {
        struct carry *c = &r->carry.item[i];
        bool straight = false;
        for (int k = 0; k < g->region.n; k++)
            straight |= g->region.item[k]->direction == ONCE &&
                        g->region.item[k]->phase == r->phase && g->region.item[k] != enter &&
                        made_by(g->region.item[k]->body.item[0], c->first);
        if (!straight || !own_place(c->first) ||
            read_later(old, at, old->region.item[at]->carry.item[i].first)) {
            if (!enter) {
                enter = region_new(g, intern_format("%s.enter", r->name), r->phase, ONCE, 1, "");
                body_new(enter, "");
                /* stands before the loop, which is the newest region */
                g->region.item[g->region.n - 1] = r;
                g->region.item[g->region.n - 2] = enter;
            }
            struct build b = {
                .graph = g, .region = enter, .body = enter->body.item[0], .base = c->first->name};
            c->first = build1(&b, OP_copy, by(c->first));
        }
        c->first->mark = 1;
    }
}

/* Made in the place of the carry itself: added to it, or put together in it piece by piece. */
static bool in_place(const struct value *v, const struct value *carry)
{
    const struct node *n = v->node;
    return n && ((n->op == OP_put_part && n->in[0].value == carry) ||
                 (n->op == OP_matmul_add && n->in[2].value == carry));
}

static void place_nexts(struct build *b)
{
    for (int i = 0; i < b->body->gradient.n; i++) b->body->gradient.item[i].value->mark = 1;
    for (int i = 0; i < b->body->next.n; i++) {
        struct value *v = b->body->next.item[i];
        b->base = v->name;
        if (!in_place(v, b->region->carry.item[i].value) && (!own_place(v) || !made_by(b->body, v)))
            v = b->body->next.item[i] = build1(b, OP_copy, by(v));
        v->mark = 1;
    }
}

/* Whether another region before (step -1) or after (step 1) region `i` yields a gradient of this
 * unit in the micro-batch: a tied weight's gradient comes in parts, of which only the first sets
 * the shard and only the last is summed over replicas. */
static bool yielded_elsewhere(const struct graph *g, const struct unit *u, int i, int step)
{
    for (int k = i + step; k >= 0 && k < g->region.n; k += step)
        for (int j = 0; j < g->region.item[k]->body.n && g->region.item[k]->phase == PHASE_MICRO;
             j++)
            if (yields_unit(g->region.item[k]->body.item[j], u)) return true;
    return false;
}

/* A slot is reduced whole, so what this body has no gradient for (the other weights of a tied one's
 * unit) is zero in it. */
static void fill_slot(struct build *b, const struct unit *u)
{
    for (int k = 0; k < b->graph->weight.n; k++) {
        const struct weight *w = b->graph->weight.item[k];
        bool there = strcmp(w->unit, u->name);
        for (int i = 0; i < b->body->gradient.n; i++)
            there |= b->body->gradient.item[i].weight == w->value;
        if (there) continue;
        struct attr dim[SHAPE_RANK];
        int rank = attr_dims(dim, w->value->shape);
        b->base = w->value->name;
        struct value *zero = build1(b, OP_copy, by(build_op(b, OP_zeros, NULL, 0, dim, rank)));
        zero->mark = 1;
        PUSH(&b->body->gradient, ((struct yield_gradient){w->value, zero}));
    }
}

struct graph *pass_shard(const struct graph *old)
{
    struct graph *g = graph_begin(old, LEVEL_SHARD);
    lay_out_units(g);
    for (int i = 0; i < old->region.n; i++) {
        const struct region *from = old->region.item[i];
        struct region *r = region_begin(g, from);
        place_firsts(g, r, old, i);
        for (int k = 0; k < from->body.n; k++) {
            struct body *body = body_begin(r, from->body.item[k]);
            struct build b = {.graph = g, .region = r, .body = body};
            for (int u = 0; u < g->unit.n && r->phase == PHASE_MICRO && gathers(&g->facts); u++)
                if (reads_unit(old, from, from->body.item[k], g->unit.item[u]) ||
                    takes_turn(old, from, from->body.item[k], g->unit.item[u]))
                    build_op(&b, OP_use, NULL, 0,
                             (struct attr[]){attr_word("unit", g->unit.item[u]->name)}, 1);
            for (int n = 0; n < from->body.item[k]->node.n; n++) {
                if (r->phase == PHASE_UPDATE)
                    copy_cut(&b, from->body.item[k]->node.item[n]);
                else
                    node_copy(&b, from->body.item[k]->node.item[n]);
            }
            body_end(body, from->body.item[k]);
            b.file = NULL;
            place_nexts(&b);
            for (int u = 0; u < g->unit.n; u++) {
                if (!yields_unit(body, g->unit.item[u])) continue;
                fill_slot(&b, g->unit.item[u]);
                struct attr attr[] = {
                    attr_word("unit", g->unit.item[u]->name),
                    attr_whole("first", !yielded_elsewhere(old, g->unit.item[u], i, -1)),
                    attr_whole("last", !yielded_elsewhere(old, g->unit.item[u], i, 1)),
                    attr_whole("replicas", g->facts.dp)};
                build_op(&b, OP_reduce, NULL, 0, attr, 4);
            }
        }
        region_end(g, r, from);
    }
    return g;
}
