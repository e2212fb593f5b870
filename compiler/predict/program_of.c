/* The scheduled graph with times in place of kernels and collectives; see program.h. It says what
 * emit/schedule.c says, in numbers: the same order of issue, the same conditions, the same events.
 */
#include "predict/program.h"
#include "predict/transfers.h"

#include "ir/cost.h"

#include <stdlib.h>
#include <string.h>

#define HOLD(p, type, n) ((type *)program_take(p, sizeof(type) * (size_t)(n)))

/* ── what a graph becomes ────────────────────────────────────────────────────── */

struct build_program {
    struct program *to;
    const struct graph *graph;
    const enum cost_class *class;
    VECTOR(struct work) work;
    VECTOR(struct item *) item;
    VECTOR(int) region;
};

static bool has_layer(const struct body *b, int64_t i)
{
    for (int k = 0; k < b->layers.n; k++)
        if (i >= b->layers.item[k].from && i < b->layers.item[k].to) return true;
    return !b->layers.n;
}

/* The unit of layer i of a loop, or the unit of straight code. */
static int unit_at(const struct graph *g, const char *name, int64_t i)
{
    int only = -1;
    for (int k = 0; k < g->unit.n; k++) {
        const struct unit *u = g->unit.item[k];
        if (!u->loop[0] && !strcmp(u->name, name)) return k;
        if (!u->loop[0] || strcmp(u->loop, name)) continue;
        if (!u->variant[0]) return k;
        only = k;
        for (int r = 0; r < g->region.n; r++)
            for (int v = 0; v < g->region.item[r]->body.n; v++) {
                const struct body *body = g->region.item[r]->body.item[v];
                if (g->region.item[r]->phase == PHASE_MICRO &&
                    !strcmp(g->region.item[r]->loop, name) && !strcmp(body->name, u->variant) &&
                    has_layer(body, i))
                    return k;
            }
    }
    return only;
}

static bool is_of_loop(const struct graph *g, const char *unit)
{
    for (int k = 0; k < g->unit.n; k++)
        if (!g->unit.item[k]->loop[0] && !strcmp(g->unit.item[k]->name, unit)) return false;
    return true;
}

static bool event_of_loop(const struct graph *g, int64_t event)
{
    for (int i = 0; i < g->region.n; i++)
        for (int k = 0; k < g->region.item[i]->body.n; k++)
            for (int n = 0; n < g->region.item[i]->body.item[k]->node.n; n++) {
                const struct node *node = g->region.item[i]->body.item[k]->node.item[n];
                if ((node->op == OP_gather || node->op == OP_reduce) &&
                    attr_get(node, "event") == event)
                    return is_of_loop(g, attr_get_word(node, "unit"));
            }
    return false;
}

/* Whether what is waited for is a reduction: then the wait is for its slot. */
static bool event_of_reduce(const struct graph *g, int64_t event)
{
    for (int i = 0; i < g->region.n; i++)
        for (int k = 0; k < g->region.item[i]->body.n; k++)
            for (int n = 0; n < g->region.item[i]->body.item[k]->node.n; n++) {
                const struct node *node = g->region.item[i]->body.item[k]->node.item[n];
                if (node->op == OP_reduce && attr_get(node, "event") == event) return true;
            }
    return false;
}

/* ── items ───────────────────────────────────────────────────────────────────── */

static struct item *add_item(struct build_program *b, struct stage *s, enum item_kind kind,
                             int step)
{
    struct item *it = &s->item[s->n++];
    *it = (struct item){.kind = kind, .number = b->item.n, .step = step, .ring = 1};
    PUSH(&b->item, it);
    PUSH(&b->region, b->to->regions);
    return it;
}

static void add_kernel(struct build_program *b, struct stage *s, const struct body *body, int at)
{
    const struct node *n = body->node.item[at];
    struct item *run = s->n ? &s->item[s->n - 1] : NULL;
    if (!run || run->kind != ITEM_RUN) {
        run = add_item(b, s, ITEM_RUN, n->step);
        run->kernel = b->work.n;
    }
    PUSH(&b->work, work_of_kernel(b->graph, body, at, b->class[n->kernel]));
    run->kernels++;
}

/* What is gathered stays for the step (reshard = step). */
static bool is_once(const struct node *n)
{
    const struct attr *once = attr_find(n, "once");
    return once && once->whole;
}

static enum series replicas_series(const struct program *p)
{
    return p->one_order ? SERIES_SHARDS : SERIES_REPLICAS;
}

static void add_gather(struct build_program *b, struct stage *s, const struct node *n, bool parts)
{
    struct item *it = add_item(b, s, parts ? ITEM_PARTS : ITEM_GATHER, n->step);
    const struct parts *of = parts ? b->to->together : b->to->gather;
    const char *unit = attr_get_word(n, "unit");
    it->what = intern_format(parts ? "gather %s over replicas" : "gather %s", unit);
    it->after_parts = !parts && attr_or(n, "parts", 0);
    it->shift = attr_get(n, "shift");
    it->from = attr_get(n, "from");
    it->to = attr_get(n, "to");
    it->ring = attr_get(n, "ring");
    it->event = attr_get(n, "event");
    it->count = attr_get(n, "count");
    it->down = attr_get(n, "down") != 0;
    it->once = parts || is_once(n);
    it->next = attr_or(n, "next", 0);
    it->loop = is_of_loop(b->graph, unit);
    if (parts) it->series = replicas_series(b->to), it->event = -1;
    it->gather = HOLD(b->to, const struct parts *, it->count + 1);
    for (int64_t i = 0; i < it->count; i++) it->gather[i] = &of[unit_at(b->graph, unit, i)];
}

static void add_reduce(struct build_program *b, struct stage *s, const struct body *body,
                       const struct node *n)
{
    struct item *it = add_item(b, s, ITEM_REDUCE, n->step);
    const char *name = attr_get_word(n, "unit");
    int mine = unit_at(b->graph, name, 0);
    for (int i = 0; i < b->graph->unit.n; i++) {
        const struct unit *u = b->graph->unit.item[i];
        if (u->loop[0] && !strcmp(u->loop, name) && !strcmp(u->variant, body->name)) mine = i;
    }
    it->unit = mine;
    it->what = intern_format("reduce %s", b->graph->unit.item[mine]->name);
    it->ring = attr_get(n, "ring");
    it->event = attr_get(n, "event");
    it->loop = is_of_loop(b->graph, name);
    it->first = attr_get(n, "first") != 0;
    it->last = attr_get(n, "last") != 0;
    const bool shards = attr_find(n, "shards") != NULL;
    it->after_sums = shards && it->loop && !b->to->one_order ? attr_get(n, "summed") + 1 : 0;
    if (!it->last) return; /* the parts of a gradient are summed over the replicas together */
    it = add_item(b, s, ITEM_REPLICAS, n->step);
    it->unit = mine;
    it->what = intern_format("sum %s over replicas", b->graph->unit.item[mine]->name);
    it->event = attr_get(n, "summed");
    it->ring = shards ? attr_get(n, "ring") : 1;
    it->loop = shards && is_of_loop(b->graph, name);
    it->series = replicas_series(b->to);
}

static void add_wait(struct build_program *b, struct stage *s, const struct node *n)
{
    struct item *it = add_item(b, s, ITEM_WAIT, n->step);
    const struct attr *shift = attr_find(n, "shift"), *all = attr_find(n, "all");
    it->event = attr_get(n, "event");
    it->ring = attr_get(n, "ring");
    it->shift = shift ? shift->whole : 0;
    it->all = all && all->whole;
    it->once = is_once(n);
    it->loop = event_of_loop(b->graph, it->event);
    it->slot = !b->to->region[b->to->regions].update && event_of_reduce(b->graph, it->event);
    const struct attr *summed = attr_find(n, "summed");
    if (!summed) return;
    it = add_item(b, s, ITEM_WAIT, n->step);
    it->event = summed->whole;
    it->ring = attr_or(n, "sums", 1);
    it->all = it->loop = it->ring > 1;
    it->series = replicas_series(b->to);
}

static void add_node(struct build_program *b, struct stage *s, const struct body *body, int at,
                     int *kernel)
{
    const struct node *n = body->node.item[at];
    if (n->op == OP_gather) {
        if (attr_or(n, "parts", 0)) add_gather(b, s, n, true);
        add_gather(b, s, n, false);
    } else if (n->op == OP_reduce)
        add_reduce(b, s, body, n);
    else if (n->op == OP_wait)
        add_wait(b, s, n);
    else if (n->op == OP_sum_ranks) {
        struct item *it = add_item(b, s, ITEM_SUM, n->step);
        it->what = intern_format("sum over %s", attr_get_word(n, "group"));
        it->event = attr_get(n, "event");
        it->world = !strcmp(attr_get_word(n, "group"), "world");
        it->numbers = shape_count(n->out[0]->shape);
    } else if (n->kernel && n->kernel != *kernel)
        add_kernel(b, s, body, at);
    if (n->step) *kernel = n->kernel;
}

/* ── regions ─────────────────────────────────────────────────────────────────── */

static enum part_of_step part_of(const struct region *r)
{
    if (r->phase == PHASE_UPDATE) return STEP_UPDATE;
    if (strstr(r->name, ".backward")) return STEP_BACKWARD;
    if (strstr(r->name, ".forward")) return STEP_FORWARD;
    return STEP_LOSS;
}

/* At most: each interaction of lanes, and a run of kernels between any two. */
static int items_of(const struct body *body)
{
    int n = 1;
    for (int i = 0; i < body->node.n; i++) {
        enum op op = body->node.item[i]->op;
        if (op == OP_gather || op == OP_reduce || op == OP_wait || op == OP_sum_ranks) n += 3;
    }
    return n;
}

static void add_region(struct build_program *b, const struct region *from)
{
    struct part_region *r = &b->to->region[b->to->regions];
    *r = (struct part_region){.name = from->name,
                              .part = part_of(from),
                              .update = from->phase == PHASE_UPDATE,
                              .count = from->direction == ONCE ? 1 : from->count,
                              .pieces = from->direction != ONCE && from->within,
                              .down = from->direction == DOWN,
                              .stage = HOLD(b->to, struct stage, from->body.n),
                              .stages = from->body.n};
    for (int k = 0; k < from->body.n; k++) {
        const struct body *body = from->body.item[k];
        int kernel = 0;
        r->stage[k].item = HOLD(b->to, struct item, items_of(body));
        for (int n = 0; n < body->node.n; n++) add_node(b, &r->stage[k], body, n, &kernel);
    }
    r->stage_of = HOLD(b->to, int16_t, r->count);
    for (int64_t n = 0; n < r->count; n++)
        for (int k = from->body.n - 1; k >= 0; k--)
            if (has_layer(from->body.item[k], r->down ? r->count - 1 - n : n))
                r->stage_of[n] = (int16_t)k;
    r->kind = HOLD(b->to, int16_t, r->count);
    b->to->regions++;
}

static int64_t events_of(const struct program *p)
{
    int64_t most = 0;
    for (int i = 0; i < p->items; i++)
        if (p->by_number[i]->kind != ITEM_RUN &&
            p->by_number[i]->event + p->by_number[i]->ring > most)
            most = p->by_number[i]->event + p->by_number[i]->ring;
    return most;
}

/* ── the whole ───────────────────────────────────────────────────────────────────── */

const struct work *program_work(const struct graph *g, int *n)
{
    const enum cost_class *class = cost_of_kernels(g);
    VECTOR(struct work) all = {0};
    for (int i = 0; i < g->region.n; i++)
        for (int k = 0; k < g->region.item[i]->body.n && g->region.item[i]->phase != PHASE_SETUP;
             k++) {
            const struct body *body = g->region.item[i]->body.item[k];
            int kernel = 0;
            for (int at = 0; at < body->node.n; at++) {
                const struct node *node = body->node.item[at];
                if (node->kernel && node->kernel != kernel)
                    PUSH(&all, work_of_kernel(g, body, at, class[node->kernel]));
                if (node->step) kernel = node->kernel;
            }
        }
    *n = all.n;
    return all.item;
}

struct program *program_of(const struct plan *plan, const struct machine *m, const struct graph *g)
{
    struct program *p = calloc(1, sizeof *p);
    if (!p) bug("out of memory for a program");
    *p = (struct program){.accumulation = plan->accumulation,
                          .tokens = plan->local * plan->sequence,
                          .one_order = m->device == DEVICE_CPU,
                          .joins = m->device == DEVICE_CUDA && plan->graph,
                          .compute = g->facts.compute,
                          .cut = g->facts.parts > 1,
                          .machine = *m};
    p->region = HOLD(p, struct part_region, g->region.n);
    p->units = g->unit.n;
    p->shard = HOLD(p, int64_t, g->unit.n);
    p->part = HOLD(p, int64_t, g->unit.n);
    p->gather = HOLD(p, struct parts, g->unit.n);
    p->together = HOLD(p, struct parts, g->unit.n);
    p->alike = HOLD(p, int, g->unit.n + 1);
    p->unit_name = HOLD(p, const char *, g->unit.n + 1);
    for (int i = 0; i < g->unit.n; i++) {
        p->shard[i] = g->unit.item[i]->shard_elements;
        p->part[i] = g->unit.item[i]->part_elements;
        p->unit_name[i] = g->unit.item[i]->name;
    }
    struct build_program b = {.to = p, .graph = g, .class = cost_of_kernels(g)};
    for (int i = 0; i < g->region.n; i++)
        if (g->region.item[i]->phase != PHASE_SETUP) add_region(&b, g->region.item[i]);
    p->kernels = b.work.n;
    p->kernel = HOLD(p, struct timed, b.work.n + 1);
    p->work = HOLD(p, struct work, b.work.n + 1);
    for (int i = 0; i < b.work.n; i++) {
        p->work[i] = b.work.item[i];
        p->work[i].op = HOLD(p, struct op_work, p->work[i].ops + 1);
        for (int k = 0; k < p->work[i].ops; k++) p->work[i].op[k] = b.work.item[i].op[k];
    }
    p->items = b.item.n;
    p->by_number = HOLD(p, struct item *, b.item.n + 1);
    p->region_of = HOLD(p, int, b.item.n + 1);
    for (int i = 0; i < p->items; i++) {
        struct item *it = p->by_number[i] = b.item.item[i];
        p->region_of[i] = b.region.item[i];
        for (int c = 0; it->kind == ITEM_RUN && c < COMPANIES; c++)
            it->clock[c] = HOLD(p, int64_t, it->kernels + 1);
    }
    p->events = events_of(p);
    program_time(p, plan->fsdp, plan->dp);
    return p;
}
