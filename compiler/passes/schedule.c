/* Needs: kernels, `use` and `reduce` marks.
 * Gives: lanes, events and step numbers. A `use` becomes the issue of a gather some units ahead
 *   and a wait here; a `reduce` gets an event, and the next writer of its slot a wait; every step
 *   has a number.
 * Loses: `use`.
 *
 * The order: let the uses of a micro-batch, loops unrolled, be positions 0, 1, 2 … Before a body at
 * position s computes, it issues the gathers of every position up to s + prefetch that was not
 * issued before. In a loop that is one position per iteration, s + n + prefetch. It is in this loop
 * for most n and after it for the last few, so the body has one gather for each region that is
 * possible, with the range of n for which it is the right one. Nothing is peeled; the text is the
 * same for every number of layers.
 *
 * A backward loop that comes after its forward loop with no other loop in between finds the last
 * layers in the forward loop's slots: as many as run ahead of a loop, whose slots nobody could have
 * used in between anyway, and at least one. These positions have no gather, and their iterations
 * wait for none. Layer i lies in slot i modulo the number of slots in both loops, so nothing is
 * moved. Such a backward loop ends with the first layers in the slots, where the next micro-batch
 * finds them: what straight code gathers of the forward loop, it gathers in a step's first
 * micro-batch alone. (In later ones its event is long over, so waiting for it is nothing.)
 *
 * What straight code before the forward loop reads, the embedding, comes next after the last layer
 * of the backward loop: that loop issues its gather too, for the next micro-batch, into the slot
 * that the layer after the first ones has just left. In a step's first micro-batch, whose weights
 * are new, straight code gathers it. With one micro-batch a step nothing is left for another.
 *
 * Collectives are issued in the order of this text, on every rank. Those of the FSDP group run one
 * after the other in that order. Sums over replicas run one after the other on a lane of their own,
 * each after the reduction before it, so no gather and no reduction waits for one; a gradient slot
 * is free when its reduction is done. The update waits for both. The units of a loop share
 * prefetch + 1 gather slots and reduce_slots gradient slots, used in turn.
 *
 * Where the replicas have parts of a shard, the first gather of a unit in a step comes after one
 * over the replicas, on their lane, which makes the shard that it gathers from. When only parts of
 * gradients are kept, a shard passes through a ring of as many entries as the unit has gradient
 * slots, and a reduction comes after the sum that has read its entry. */
#include "ir/ir.h"
#include "passes/pipeline.h"

#include <string.h>

struct use {
    const struct region *region;
    const struct unit *unit;
    int64_t count, start, ring;
    int64_t
        held, /* so many of its first iterations find their weights where the mirror left them */
        kept, /* and so many those that the mirror leaves for the next micro-batch */
        once; /* of these, so many of the first are gathered in a step's first micro-batch alone */
    int event;
    bool first;        /* of the unit in a micro-batch */
    bool early;        /* gathered in the micro-batch before, */
    const char *place; /* into the first entry of this loop's slots that `kept` leaves free */
    const char *buffer;
};
struct gradient_slot {
    const struct region *region;
    const struct unit *unit;
    int64_t ring;
    int event, summed; /* the slot is free; the shard is summed over the replicas */
    const char *buffer;
};

struct schedule {
    struct graph *graph;
    const struct graph *old;
    VECTOR(struct use) use;
    VECTOR(struct gradient_slot) slot;
    int64_t positions, issued; /* straight code has issued positions below `issued` */
    int events;
    VECTOR(const struct unit *) over; /* whose reductions the update has waited for */
};

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

/* One entry per region and unit: the variants of a loop share slots as large as the largest of
 * them. */
static const struct unit *shared_unit(const struct graph *g, const struct unit *u)
{
    for (int i = 0; i < g->unit.n; i++)
        if (u->loop[0] && !strcmp(g->unit.item[i]->loop, u->loop)) return g->unit.item[i];
    return u;
}

static struct use *find_use(struct schedule *s, const struct region *r, const struct unit *u)
{
    for (int i = 0; i < s->use.n; i++)
        if (s->use.item[i].region == r && s->use.item[i].unit == shared_unit(s->graph, u))
            return &s->use.item[i];
    return NULL;
}

/* Gathered by an earlier region. */
static bool used(const struct schedule *s, const struct unit *u)
{
    for (int i = 0; i < s->use.n; i++)
        if (s->use.item[i].unit == shared_unit(s->graph, u)) return true;
    return false;
}

/* The same, and that region has kept it. */
static bool kept(const struct schedule *s, const struct unit *u)
{
    return s->graph->facts.reshard != RESHARD_FORWARD && used(s, u);
}

static struct gradient_slot *find_slot(struct schedule *s, const struct region *r,
                                       const struct unit *u)
{
    for (int i = 0; i < s->slot.n; i++)
        if (s->slot.item[i].region == r && s->slot.item[i].unit == shared_unit(s->graph, u))
            return &s->slot.item[i];
    return NULL;
}

/* Of a new use after those so far: how many iterations find their weights in the mirror's slots. */
static int64_t held_of(const struct schedule *s, const struct use *u)
{
    const struct use *before = NULL;
    for (int i = 0; i < s->use.n; i++)
        if (s->use.item[i].region->direction != ONCE) before = &s->use.item[i];
    bool mirror = before && u->region->mirror && u->region->direction == DOWN &&
                  before->unit == u->unit && !strcmp(before->region->name, u->region->mirror);
    return mirror ? least(most(s->graph->facts.prefetch, 1), u->ring) : 0;
}

/* How long the weights of the units that share a slot are at most: unlike the slot, which is
 * padded, that is the same for every number of shards. */
static int64_t slot_length(const struct graph *g, const struct unit *u)
{
    int64_t length = 0;
    for (int i = 0; i < g->weight.n; i++) {
        const struct weight *w = g->weight.item[i];
        if (shared_unit(g, graph_unit(g, w->unit)) == u)
            length = most(length, w->offset + shape_count(w->value->shape));
    }
    return length;
}

/* Whether straight code reads a unit, then a loop runs up whose first layers are kept and that has
 * a slot beside theirs which is large enough, and the micro-batch's last gathers are for the way
 * down. */
static void find_early(struct schedule *s)
{
    if (s->use.n < 3) return;
    struct use *one = &s->use.item[0];
    const struct use *up = &s->use.item[1], *down = &s->use.item[s->use.n - 1];
    const int64_t prefetch = s->graph->facts.prefetch;
    if (one->region->direction != ONCE || one->unit->loop[0] || up->region->direction != UP ||
        prefetch < 1 || !down->held || down->unit != up->unit || up->kept != prefetch ||
        up->ring != prefetch + 1 ||
        slot_elements(s->graph, unit_shared_name(one->unit)) >
            slot_elements(s->graph, unit_shared_name(up->unit)) ||
        slot_length(s->graph, one->unit) > slot_length(s->graph, up->unit))
        return;
    one->early = true, one->place = up->buffer;
}

static void collect(struct schedule *s, const struct graph *old)
{
    const struct facts *f = &old->facts;
    for (struct node_walk at = {0}; next_node(old, &at);) {
        const struct node *node = at.node;
        if (node->op != OP_use && node->op != OP_reduce) continue;
        const struct unit *u =
            shared_unit(s->graph, graph_unit(s->graph, attr_get_word(node, "unit")));
        if (node->op == OP_use && !find_use(s, at.region, u) && !kept(s, u)) {
            bool all = f->reshard != RESHARD_FORWARD;
            struct use one = {.region = at.region,
                              .unit = u,
                              .count = at.region->count,
                              .start = s->positions,
                              .ring =
                                  all ? at.region->count : least(f->prefetch + 1, at.region->count),
                              .event = s->events};
            one.buffer = slot_name(SLOT_GATHER, at.region->name, u);
            one.held = all ? 0 : held_of(s, &one);
            one.first = !used(s, u);
            s->positions += at.region->count, s->events += (int)one.ring;
            PUSH(&s->use, one);
        }
        if (node->op == OP_reduce && !find_slot(s, at.region, u)) {
            struct gradient_slot one = {.region = at.region,
                                        .unit = u,
                                        .ring = least(f->reduce_slots, at.region->count),
                                        .event = s->events};
            one.buffer = slot_name(SLOT_GRADIENT, at.region->name, u);
            s->events += (int)one.ring;
            PUSH(&s->slot, one);
        }
    }
    for (int i = 0; i < s->slot.n; i++) {
        s->slot.item[i].summed = s->events;
        s->events += gradients_whole(f) ? 1 : (int)s->slot.item[i].ring;
    }
    for (int i = 0; i < s->use.n; i++) {
        const struct use *back = &s->use.item[i];
        struct use *there =
            back->held ? find_use(s, graph_region(old, back->region->mirror), back->unit) : NULL;
        if (there && f->accumulation > 1) there->kept = least(f->prefetch, there->ring);
    }
    find_early(s);
}

static void stamp(struct build *b, enum lane lane)
{
    struct node *n = b->body->node.item[b->body->node.n - 1];
    n->lane = lane, n->step = ++b->graph->steps;
}

/* once: in the first micro-batch of a step alone; next: in all but the last, for the one after */
enum gather_when { GATHER_ALWAYS, GATHER_ONCE, GATHER_NEXT };
static void put_gather(struct build *b, const struct use *target, int64_t shift, int64_t from,
                       int64_t to, enum gather_when when)
{
    struct attr attr[14] = {attr_word("unit", unit_shared_name(target->unit)),
                            attr_word("into", target->buffer),
                            attr_whole("shift", shift),
                            attr_whole("from", from),
                            attr_whole("to", to),
                            attr_whole("ring", target->ring),
                            attr_whole("event", target->event),
                            attr_whole("count", target->count),
                            attr_whole("down", target->region->direction == DOWN)};
    int n = 9;
    if (when == GATHER_ONCE || b->graph->facts.reshard == RESHARD_STEP)
        attr[n++] = attr_whole("once", 1);
    if (when == GATHER_NEXT) attr[n++] = attr_whole("next", 1);
    if (target->held) attr[n++] = attr_whole("held", target->held);
    if (target->early) attr[n++] = attr_word("place", target->place);
    if (target->first && b->graph->facts.parts > 1 && when != GATHER_NEXT)
        attr[n++] = attr_whole("parts", 1);
    build_op(b, OP_gather, NULL, 0, attr, n);
    stamp(b, LANE_GATHER);
}

/* For all reductions through a slot and all sums over replicas that follow them. */
static void put_wait_for_sums(struct build *b, const struct gradient_slot *t)
{
    const bool shards = !gradients_whole(&b->graph->facts);
    struct attr attr[] = {attr_whole("event", t->event), attr_whole("ring", t->ring),
                          attr_whole("all", 1), attr_whole("summed", t->summed),
                          attr_whole("sums", t->ring)};
    build_op(b, OP_wait, NULL, 0, attr, shards ? 5 : 4);
    stamp(b, LANE_COMPUTE);
}

static void put_wait(struct build *b, int event, int64_t ring, bool all)
{
    struct attr attr[] = {attr_whole("event", event), attr_whole("ring", ring),
                          attr_whole("all", all)};
    build_op(b, OP_wait, NULL, 0, attr, 3);
    stamp(b, LANE_COMPUTE);
}

static void put_wait_for_gather(struct build *b, const struct use *u)
{
    struct attr attr[6] = {attr_whole("event", u->event), attr_whole("ring", u->ring),
                           attr_whole("all", 0)};
    int n = 3;
    if (b->graph->facts.reshard == RESHARD_STEP) attr[n++] = attr_whole("once", 1);
    if (u->held) attr[n++] = attr_whole("from", u->held);
    if (u->once) attr[n++] = attr_whole("kept", u->once);
    build_op(b, OP_wait, NULL, 0, attr, n);
    stamp(b, LANE_COMPUTE);
}

/* Gathers that straight code issues: positions issued .. limit - 1. */
static void issue_until(struct schedule *s, struct build *b, int64_t limit)
{
    for (int i = 0; i < s->use.n; i++) {
        struct use *t = &s->use.item[i];
        for (int64_t p = most(s->issued, t->start + t->held); p < least(limit, t->start + t->count);
             p++) {
            /* those before it were not gathered in an earlier loop, which does so every time */
            const bool once = p - t->start < t->kept && p - t->start == t->once;
            t->once += once;
            put_gather(b, t, p - t->start, 0, 1, once || t->early ? GATHER_ONCE : GATHER_ALWAYS);
        }
    }
    s->issued = most(s->issued, least(limit, s->positions));
}

/* Gathers that iteration n of a loop at position `start` issues: position start + n + prefetch. */
static void issue_in_loop(struct schedule *s, struct build *b, const struct use *here)
{
    int64_t ahead = here->start + s->graph->facts.prefetch;
    for (int i = 0; i < s->use.n; i++) {
        const struct use *t = &s->use.item[i];
        int64_t shift = ahead - t->start, from = most(0, t->held - shift),
                to = least(here->count, t->count - shift);
        if (from < to || t == here) put_gather(b, t, shift, from, most(from, to), GATHER_ALWAYS);
    }
    const struct use *one = &s->use.item[0];
    if (one->early && here->start + here->count == s->positions)
        put_gather(b, one, ahead - s->positions, s->positions - ahead, s->positions - ahead + 1,
                   GATHER_NEXT);
    s->issued =
        most(s->issued, least(here->start + here->count + s->graph->facts.prefetch, s->positions));
}

static void begin_body(struct schedule *s, struct build *b, const struct region *old,
                       const struct body *body)
{
    const struct use *first = NULL, *last = NULL;
    for (int n = 0; n < body->node.n; n++) {
        if (body->node.item[n]->op != OP_use) continue;
        const struct use *u =
            find_use(s, old, graph_unit(s->graph, attr_get_word(body->node.item[n], "unit")));
        if (!u) continue; /* an earlier region's */
        if (!first) first = u;
        last = u;
    }
    if (!first) return;
    if (old->direction == ONCE)
        issue_until(s, b, last->start + last->count + s->graph->facts.prefetch);
    else
        issue_in_loop(s, b, first);
    for (int n = 0; n < body->node.n; n++)
        if (body->node.item[n]->op == OP_use) {
            const struct use *u =
                find_use(s, old, graph_unit(s->graph, attr_get_word(body->node.item[n], "unit")));
            if (u) put_wait_for_gather(b, u);
        }
}

/* The gradient line that a value ends in, and its region. */
static const struct yield_gradient *yielded(const struct graph *g, const struct value *v,
                                            const struct region **at)
{
    for (int i = 0; i < g->region.n; i++)
        for (int k = 0; k < g->region.item[i]->body.n; k++)
            for (int n = 0; n < g->region.item[i]->body.item[k]->gradient.n; n++)
                if (g->region.item[i]->body.item[k]->gradient.item[n].value == v)
                    return *at = g->region.item[i],
                           &g->region.item[i]->body.item[k]->gradient.item[n];
    return NULL;
}

/* The slot this node's result is written to, when it is a finished weight gradient. */
static struct gradient_slot *slot_written(struct schedule *s, const struct region *r,
                                          const struct body *body, const struct node *n)
{
    for (int i = 0; i < body->gradient.n; i++)
        for (int o = 0; o < n->n_out; o++)
            if (body->gradient.item[i].value == n->out[o])
                return find_slot(s, r,
                                 graph_unit(s->graph, body->gradient.item[i].weight->weight->unit));
    /* or the start of a carry that ends as one: it is added up in the slot */
    for (int i = 0; i < s->old->region.n; i++)
        for (int k = 0; k < s->old->region.item[i]->carry.n; k++)
            for (int o = 0; o < n->n_out; o++)
                if (s->old->region.item[i]->carry.item[k].first == n->out[o]) {
                    const struct region *end;
                    const struct yield_gradient *y =
                        yielded(s->old, s->old->region.item[i]->carry.item[k].last, &end);
                    if (y) return find_slot(s, end, graph_unit(s->graph, y->weight->weight->unit));
                }
    return NULL;
}

static void schedule_body(struct schedule *s, struct build *b, const struct region *old,
                          const struct body *body)
{
    VECTOR(const struct gradient_slot *) waited = {0};
    begin_body(s, b, old, body);
    int kernel = 0;
    for (int i = 0; i < body->node.n; i++) {
        const struct node *n = body->node.item[i];
        enum op_class class = op_rows[n->op].class;
        if (n->op == OP_use) continue;
        if (n->op == OP_reduce) {
            const struct gradient_slot *t =
                find_slot(s, old, graph_unit(s->graph, attr_get_word(n, "unit")));
            struct attr attr[] = {attr_word("unit", unit_shared_name(t->unit)),
                                  attr_whole("first", attr_get(n, "first")),
                                  attr_whole("last", attr_get(n, "last")),
                                  attr_whole("replicas", attr_get(n, "replicas")),
                                  attr_word("from", t->buffer),
                                  attr_whole("ring", t->ring),
                                  attr_whole("event", t->event),
                                  attr_whole("summed", t->summed),
                                  attr_word("shards", shards_name(t->unit))};
            build_op(b, OP_reduce, NULL, 0, attr, gradients_whole(&b->graph->facts) ? 8 : 9);
            stamp(b, LANE_REDUCE);
            continue;
        }
        if (!kernel || n->kernel != kernel) /* what this kernel will write */
            for (int j = i; j < body->node.n &&
                            (j == i || (n->kernel && body->node.item[j]->kernel == n->kernel));
                 j++) {
                const struct gradient_slot *t = slot_written(s, old, body, body->node.item[j]);
                bool done = !t;
                for (int k = 0; k < waited.n && !done; k++) done = waited.item[k] == t;
                if (done) continue;
                put_wait(b, t->event, t->ring, false);
                PUSH(&waited, t);
            }
        struct node *now = node_copy(b, n);
        if (class == CLASS_VIEW || class == CLASS_LEAF) continue;
        bool same = n->kernel && n->kernel == kernel;
        kernel = n->kernel;
        now->lane = n->op == OP_sum_ranks ? LANE_REDUCE
                    : n->op == OP_tap     ? LANE_HOST
                                          : LANE_COMPUTE;
        now->step = same ? b->graph->steps : ++b->graph->steps;
        if (n->op == OP_sum_ranks) {
            struct attr *attr = TAKE_MANY(struct attr, now->n_attr + 1);
            for (int k = 0; k < now->n_attr; k++) attr[k] = now->attr[k];
            attr[now->n_attr++] = attr_whole("event", s->events);
            now->attr = attr;
            put_wait(b, s->events++, 1, false);
        }
    }
}

/* Before the first body that reads the resident gradients of a unit, every reduction of it has to
 * be over. */
static void wait_for_unit(struct schedule *s, struct build *b, const struct body *body)
{
    for (int i = 0; i < body->node.n; i++) {
        const struct node *n = body->node.item[i];
        if (n->op != OP_state || node_state(n) != BUFFER_GRADIENT) continue;
        const struct unit *u = graph_unit(s->graph, attr_get_word(n, "unit"));
        bool over = false;
        for (int k = 0; k < s->over.n && !over; k++) over = s->over.item[k] == u;
        if (over) continue;
        PUSH(&s->over, u);
        for (int k = 0; k < s->slot.n; k++)
            if (s->slot.item[k].unit == shared_unit(s->graph, u))
                put_wait_for_sums(b, &s->slot.item[k]);
    }
}

struct graph *pass_schedule(const struct graph *old)
{
    struct schedule s = {.graph = graph_begin(old, LEVEL_SCHEDULE), .old = old};
    struct graph *g = s.graph;
    collect(&s, old);
    bool begun = false;
    for (int i = 0; i < old->region.n; i++) {
        const struct region *from = old->region.item[i];
        struct region *r = region_begin(g, from);
        for (int k = 0; k < from->body.n; k++) {
            struct body *body = body_begin(r, from->body.item[k]);
            struct build b = {.graph = g, .region = r, .body = body};
            if (from->phase == PHASE_MICRO && !begun) {
                /* slots of the micro-batch before may still be on their way, and their bytes are
                 * about to serve others */
                for (int t = 0; t < s.slot.n; t++)
                    put_wait(&b, s.slot.item[t].event, s.slot.item[t].ring, true);
                build_op(&b, OP_batch, NULL, 0, NULL, 0);
                stamp(&b, LANE_HOST);
                begun = true;
            }
            if (from->phase == PHASE_UPDATE) wait_for_unit(&s, &b, from->body.item[k]);
            schedule_body(&s, &b, from, from->body.item[k]);
            body_end(body, from->body.item[k]);
        }
        region_end(g, r, from);
    }
    kernels_copy(g, old);
    return g;
}
