/* The calls of schedule.c that are no kernels: gathers, reductions and waits, with the instance,
 * the slot and the event of each. */
#include "emit/schedule.h"

#include <string.h>

void schedule_say(struct lines *to, const char *comment, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    PUSH(&to->item, ((struct line){text_vformat(format, args), comment}));
    va_end(args);
}

const char *schedule_event(struct schedule_text *s, int64_t event)
{
    const struct graph *g = s->places.graph;
    for (struct node_walk at = {0}; next_node(g, &at);) {
        const struct node *node = at.node;
        bool gather = node->op == OP_gather,
             lane = gather || node->op == OP_reduce || node->op == OP_sum_ranks;
        if (node->op == OP_reduce && attr_get(node, "summed") == event)
            return place_constant(
                &s->places, text_format("event %ld", event),
                text_format("%s.summed", place_slot_name(attr_get_word(node, "from"))), event,
                attr_find(node, "shards") && attr_get(node, "ring") > 1 ? "first event of a ring"
                                                                        : "event");
        if (!lane || attr_get(node, "event") != event) continue;
        const char *what = node->op == OP_sum_ranks ? node->out[0]->name
                                                    : attr_get_word(node, gather ? "into" : "from");
        return place_constant(&s->places, text_format("event %ld", event),
                              text_format("%s.done", place_slot_name(what)), event, "event");
    }
    bug("event %ld belongs to no collective", event);
}

/* The event of an entry of slots; what is not a loop's has one. */
static const char *event_ring(struct schedule_text *s, int64_t event, int64_t ring,
                              const char *entry, bool loop)
{
    const char *name = schedule_event(s, event);
    return loop ? place_entry(name, entry, ring, NULL) : name;
}

static const char *shifted(const char *running, int64_t shift)
{
    if (!strcmp(running, "0")) return text_format("%ld", shift);
    return shift < 0 ? text_format("(%s - %ld)", running, -shift)
                     : text_format("(%s + %ld)", running, shift);
}

/* Of a sum that stands in another sum. */
static const char *without_parentheses(const char *sum)
{
    return sum[0] == '(' ? intern_bytes(sum + 1, strlen(sum) - 2) : sum;
}

const char *schedule_loop_count(struct schedule_text *s, const char *loop, int64_t count)
{
    return place_constant(&s->places, text_format("count %s", loop), text_format("%s.count", loop),
                          count, "iterations");
}

const char *schedule_instance(struct schedule_text *s, const struct unit *u, const char *index)
{
    const char *first = place_unit(&s->places, u);
    return u->loop[0] ? text_format("%s + %s", first, place_instance(&s->places, u, index)) : first;
}

/* Which layer of a loop a gather fetches: a loop that runs down begins with the last. In
 * parentheses when it is a sum. */
static const char *gather_layer(struct schedule_text *s, struct here h, const struct node *n,
                                const struct unit *u)
{
    int64_t shift = attr_get(n, "shift");
    if (!attr_get(n, "down")) return shifted(h.running, shift);
    if (h.region->direction == DOWN && !strcmp(h.region->loop, u->loop))
        return shift ? shifted(h.index, -shift) : h.index;
    const char *count = schedule_loop_count(s, u->loop, attr_get(n, "count"));
    const char *last = shift + 1 ? text_format("%s - %ld", count, shift + 1) : count;
    bool once = !strcmp(h.running, "0");
    return once ? text_format("(%s)", last) : text_format("(%s - %s)", last, h.running);
}

static const char *gather_instance(struct schedule_text *s, struct here h, const struct node *n,
                                   const struct unit *u)
{
    if (!u->loop[0]) return place_unit(&s->places, u);
    const char *index = without_parentheses(gather_layer(s, h, n, u));
    if (place_has_variants(s->places.graph, u->loop))
        return text_format("%s_instance[%s]", emit_identifier(u->loop), index);
    const char *first = place_unit(&s->places, u);
    return strcmp(index, "0") ? text_format("%s + %s", first, index) : first;
}

/* In which iterations it is issued: "if (i < 3) ", "" for all. */
static const char *gather_condition(const struct graph *g, struct here h, const struct node *n)
{
    /* a forward pass alone leaves other layers in the slots than a backward pass does */
    const char *once = attr_or(n, "next", 0)              ? "!(micro & MICRO_LAST)"
                       : !attr_or(n, "once", 0)           ? ""
                       : g->facts.reshard == RESHARD_STEP ? "micro & MICRO_FIRST"
                                                          : "micro & (MICRO_FIRST | MICRO_FORWARD)";
    if (h.region->direction == ONCE) return once[0] ? text_format("if (%s) ", once) : "";
    int64_t from = attr_get(n, "from"), to = attr_get(n, "to");
    const char *after = from > 0 ? text_format("%s >= %ld", h.running, from) : "",
               *before = to < h.region->count ? text_format("%s < %ld", h.running, to) : "";
    struct text all = {0};
    const char *const condition[] = {once, after, before};
    for (size_t i = 0; i < COUNT_OF(condition); i++) {
        bool first = !all.length, sum = i == 0 && once[0] != '!' && (after[0] || before[0]);
        if (condition[i][0])
            text_add(&all, "%s%s%s%s", first ? "if (" : " && ", sum ? "(" : "", condition[i],
                     sum ? ")" : "");
    }
    return all.length ? text_format("%s) ", all.bytes) : "";
}

void schedule_say_gather(struct schedule_text *s, struct lines *to, struct here h,
                         const struct node *n)
{
    const struct graph *g = s->places.graph;
    const struct unit *u = place_find_unit(g, attr_get_word(n, "unit"));
    const char *target = shifted(h.running, attr_get(n, "shift"));
    const char *instance = gather_instance(s, h, n, u);
    const char *when = gather_condition(g, h, n);
    const char *into = attr_get_word(n, "into"),
               *entry = attr_or(n, "held", 0) ? gather_layer(s, h, n, u) : target;
    if (attr_or(n, "parts", 0))
        schedule_say(to, "over the replicas", "%sgather_replicas(d, %d, %s, micro);", when, n->step,
                     instance);
    schedule_say(to, text_format("%s ahead", attr_get_word(n, "unit")),
                 "%sgather(d, %d, %s, %s, %s);", when, n->step, instance,
                 place_slot(&s->places, into, u, entry, attr_get(n, "ring")),
                 event_ring(s, attr_get(n, "event"), attr_get(n, "ring"), target, u->loop[0]));
}

/* Whether an event is one of a ring that a loop's slots have. */
static bool event_of_loop(const struct graph *g, int64_t event)
{
    for (struct node_walk at = {0}; next_node(g, &at);) {
        const struct node *node = at.node;
        if ((node->op == OP_gather || node->op == OP_reduce) && attr_get(node, "event") == event)
            return place_find_unit(g, attr_get_word(node, "unit"))->loop[0] != 0;
    }
    return false;
}

/* With one replica nothing is summed over them; of a gradient that comes in parts only the last
 * part is. */
static bool sums_replicas(const struct node *reduce)
{
    return attr_get(reduce, "replicas") > 1 && attr_get(reduce, "last");
}

static bool is_summed(const struct graph *g, int64_t event)
{
    for (struct node_walk at = {0}; next_node(g, &at);)
        if (at.node->op == OP_reduce && attr_get(at.node, "summed") == event)
            return sums_replicas(at.node);
    return false;
}

void schedule_say_wait(struct schedule_text *s, struct lines *to, struct here h,
                       const struct node *n)
{
    int64_t event = attr_get(n, "event"), ring = attr_get(n, "ring");
    bool loop = event_of_loop(s->places.graph, event);
    const char *entry =
        attr_or(n, "shift", 0) ? shifted(h.running, attr_get(n, "shift")) : h.running;
    if (loop && attr_or(n, "all", 0))
        schedule_say(to, NULL, "for (int e = 0; e < %ld; e++) await(d, %d, %s + e);", ring, n->step,
                     schedule_event(s, event));
    else
        schedule_say(to, NULL, "%sawait(d, %d, %s);",
                     attr_or(n, "once", 0) ? "if (micro & MICRO_FIRST) "
                     : attr_or(n, "from", 0)
                         ? text_format("if (%s >= %ld) ", h.running, attr_get(n, "from"))
                         : "",
                     n->step, event_ring(s, event, ring, entry, loop));
    int64_t summed = attr_or(n, "summed", -1), sums = attr_or(n, "sums", 1);
    if (!is_summed(s->places.graph, summed)) return;
    if (sums > 1)
        schedule_say(to, NULL, "for (int e = 0; e < %ld; e++) await(d, %d, %s + e);", sums, n->step,
                     schedule_event(s, summed));
    else
        schedule_say(to, NULL, "await(d, %d, %s);", n->step, schedule_event(s, summed));
}

void schedule_say_reduce(struct schedule_text *s, struct lines *to, struct here h,
                         const struct node *n)
{
    const struct graph *g = s->places.graph;
    const struct unit *u = place_find_unit(g, attr_get_word(n, "unit"));
    const struct unit *mine = u;
    for (int i = 0; i < g->unit.n; i++)
        if (u->loop[0] && !strcmp(g->unit.item[i]->loop, u->loop) &&
            !strcmp(g->unit.item[i]->variant, h.body->name))
            mine = g->unit.item[i];
    const char *instance = schedule_instance(s, mine, h.index),
               *state = place_state(&s->places, BUFFER_GRADIENT, mine, h.index), *into = state;
    const int64_t ring = attr_get(n, "ring");
    const bool shards = attr_find(n, "shards") != NULL;
    const char *summed = NULL;
    if (shards) into = place_slot(&s->places, attr_get_word(n, "shards"), u, h.running, ring);
    if (sums_replicas(n) || shards)
        summed = shards ? event_ring(s, attr_get(n, "summed"), ring, h.running, u->loop[0])
                        : schedule_event(s, attr_get(n, "summed"));
    const char *stage = graph_buffer(g, "stage") ? place_plain(&s->places, "stage") : "0";
    /* of a gradient that comes in parts */
    static const char *const part[] = {"0", "micro & MICRO_LAST", "micro & MICRO_FIRST", "micro"};
    if (shards && u->loop[0])
        schedule_say(to, "its shard is free", "reduce_after(d, %d, %s);", n->step, summed);
    schedule_say(to, mine->name, "reduce(d, %d, %s, %s, %s, %s, %s, %s);", n->step, instance,
                 place_slot(&s->places, attr_get_word(n, "from"), u, h.running, ring), stage, into,
                 part[2 * attr_get(n, "first") + attr_get(n, "last")],
                 event_ring(s, attr_get(n, "event"), ring, h.running, u->loop[0]));
    if (!sums_replicas(n)) return;
    if (g->facts.parts > 1)
        schedule_say(to, "over the replicas", "scatter_replicas(d, %d, %s, %s, %s, micro, %s);",
                     n->step, instance, into, state, summed);
    else
        schedule_say(to, "over the replicas", "sum_replicas(d, %d, %s, %s, micro, %s);", n->step,
                     instance, into, summed);
}
