/* The scheduled graph with times in place of kernels and collectives; see program.h. It says what
 * emit/schedule.c says, in numbers: the same order of issue, the same conditions, the same events.
 */
#include "predict/program.h"

#include "ir/cost.h"

#include <math.h>
#include <string.h>

const char *const step_part_names[STEP_PARTS] = {"forward", "loss", "backward", "update"};

/* ── the slowest of n ────────────────────────────────────────────────────────── */

/* The largest of n standard normal numbers, on average: Blom (1958), the quantile (n - 3/8) / (n +
 * 1/4). */
static double largest_of(int64_t n)
{
    double low = 0, high = 8, wanted = ((double)n - 0.375) / ((double)n + 0.25);
    if (n <= 1) return 0;
    for (int i = 0; i < 60; i++) {
        double middle = (low + high) / 2;
        if (0.5 * erfc(-middle / sqrt(2)) < wanted)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* ── units and their transfers ───────────────────────────────────────────────── */

struct build_program {
    struct program *to;
    const struct plan *plan;
    const struct graph *graph;
    const struct machine *machine;
    const enum cost_class *class;
    struct parts *gather; /* by unit */
    VECTOR(struct timed) kernel;
    VECTOR(struct item *) item;
    VECTOR(int) region;
    int64_t launch;
};

static void lacks(struct build_program *b, const char *what)
{
    if (!what) return;
    for (int i = 0; i < b->to->missing.n; i++)
        if (!strcmp(b->to->missing.item[i], what)) return;
    PUSH(&b->to->missing, intern(what));
}

static void add_part(struct build_program *b, struct parts *p, struct transfer t)
{
    lacks(b, t.missing);
    if (t.latency + t.bytes <= 0) return;
    p->part[p->n++] = t;
    p->total += t.latency + t.bytes;
}

static struct parts gather_of(struct build_program *b, const struct unit *u)
{
    const struct facts *f = &b->graph->facts;
    struct parts p = {0};
    double shard = (double)u->shard_elements, bytes = (double)element_bytes(f->compute);
    add_part(b, &p, lane_time(b->machine, shard * (4 + bytes)));
    add_part(b, &p,
             transfer_time(b->machine, &b->to->rings, GATHER_SHARDS, GROUP_SHARDS, shard * bytes));
    return p;
}

/* What the device does for a reduction: runtime/cuda/device.c, runtime/cpu/device.c. */
static struct parts reduce_of(struct build_program *b, const struct unit *u, int micro)
{
    const struct facts *f = &b->graph->facts;
    struct parts p = {0};
    double shard = (double)u->shard_elements;
    bool set = micro & PART_FIRST;
    if (b->machine->device == DEVICE_CPU) /* its own part first; the grid adds the others' */
        add_part(b, &p, lane_time(b->machine, shard * (set ? 8 : 12)));
    add_part(b, &p,
             transfer_time(b->machine, &b->to->rings, REDUCE_SCATTER, GROUP_SHARDS, shard * 4));
    if (b->machine->device == DEVICE_CUDA && (f->fsdp == 1 || !set))
        add_part(b, &p, lane_time(b->machine, shard * (set ? 8 : 12)));
    if (micro & PART_LAST)
        add_part(b, &p,
                 transfer_time(b->machine, &b->to->rings, ALL_REDUCE, GROUP_REPLICAS, shard * 4));
    return p;
}

static struct parts sum_of(struct build_program *b, const struct node *n)
{
    struct parts p = {0};
    bool world = !strcmp(attr_get_word(n, "group"), "world");
    add_part(b, &p,
             transfer_time(b->machine, &b->to->rings, SUM_RANKS, world ? GROUP_WORLD : GROUP_SHARDS,
                           8.0 * (double)shape_count(n->out[0]->shape)));
    return p;
}

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
        run->kernel = b->kernel.n;
    }
    struct work w = work_of_kernel(b->graph, body, at, b->class[n->kernel]);
    struct timed t = {.name = w.name,
                      .class = w.class,
                      .time = kernel_time(b->machine, &w),
                      .launch = b->launch,
                      .flops = w.flops,
                      .bytes = w.bytes,
                      .again = w.again};
    lacks(b, t.time.missing);
    b->to->outside |= t.time.outside;
    PUSH(&b->kernel, t);
    run->kernels++;
}

static void add_gather(struct build_program *b, struct stage *s, const struct node *n)
{
    struct item *it = add_item(b, s, ITEM_GATHER, n->step);
    const char *unit = attr_get_word(n, "unit");
    it->what = intern_format("gather %s", unit);
    it->shift = attr_get(n, "shift");
    it->from = attr_get(n, "from");
    it->to = attr_get(n, "to");
    it->ring = attr_get(n, "ring");
    it->event = attr_get(n, "event");
    it->count = attr_get(n, "count");
    it->down = attr_get(n, "down") != 0;
    it->loop = is_of_loop(b->graph, unit);
    it->gather = TAKE_MANY(const struct parts *, it->count + 1);
    for (int64_t i = 0; i < it->count; i++) it->gather[i] = &b->gather[unit_at(b->graph, unit, i)];
}

static void add_reduce(struct build_program *b, struct stage *s, const struct body *body,
                       const struct node *n)
{
    struct item *it = add_item(b, s, ITEM_REDUCE, n->step);
    const char *name = attr_get_word(n, "unit");
    const struct unit *mine = b->graph->unit.item[unit_at(b->graph, name, 0)];
    for (int i = 0; i < b->graph->unit.n; i++) {
        const struct unit *u = b->graph->unit.item[i];
        if (u->loop[0] && !strcmp(u->loop, name) && !strcmp(u->variant, body->name)) mine = u;
    }
    it->what = intern_format("reduce %s", mine->name);
    it->ring = attr_get(n, "ring");
    it->event = attr_get(n, "event");
    it->loop = is_of_loop(b->graph, name);
    it->first = attr_get(n, "first") != 0;
    it->last = attr_get(n, "last") != 0;
    for (int micro = 0; micro < 4; micro++) it->reduce[micro] = reduce_of(b, mine, micro);
}

static void add_wait(struct build_program *b, struct stage *s, const struct node *n)
{
    struct item *it = add_item(b, s, ITEM_WAIT, n->step);
    const struct attr *shift = attr_find(n, "shift"), *all = attr_find(n, "all");
    it->event = attr_get(n, "event");
    it->ring = attr_get(n, "ring");
    it->shift = shift ? shift->whole : 0;
    it->all = all && all->whole;
    it->loop = event_of_loop(b->graph, it->event);
    it->slot = !b->to->region[b->to->regions].update && event_of_reduce(b->graph, it->event);
}

static void add_node(struct build_program *b, struct stage *s, const struct body *body, int at,
                     int *kernel)
{
    const struct node *n = body->node.item[at];
    if (n->op == OP_gather)
        add_gather(b, s, n);
    else if (n->op == OP_reduce)
        add_reduce(b, s, body, n);
    else if (n->op == OP_wait)
        add_wait(b, s, n);
    else if (n->op == OP_sum_ranks) {
        struct item *it = add_item(b, s, ITEM_SUM, n->step);
        it->what = intern_format("sum over %s", attr_get_word(n, "group"));
        it->event = attr_get(n, "event");
        it->reduce[0] = sum_of(b, n);
    } else if (n->kernel && n->kernel != *kernel)
        add_kernel(b, s, body, at);
    if (n->step) *kernel = n->kernel;
}

/* Clocks of a run: where each of its kernels begins, in each company. */
static void set_clocks(const struct program *p, struct item *run)
{
    for (int c = 0; c < COMPANIES; c++) {
        int64_t at = 0;
        run->clock[c] = TAKE_MANY(int64_t, run->kernels + 1);
        for (int k = 0; k < run->kernels; k++) {
            const struct timed *t = &p->kernel[run->kernel + k];
            run->clock[c][k] = at;
            at += t->launch + llround((double)t->time.picoseconds[c] * p->slowest);
        }
        run->clock[c][run->kernels] = at;
    }
}

/* ── iterations that do the same ─────────────────────────────────────────────── */

const struct parts *item_gather(const struct item *it, int64_t n)
{
    int64_t target = n + it->shift;
    return it->gather[it->down ? it->count - 1 - target : target];
}

static bool does_same(const struct part_region *r, int64_t a, int64_t b)
{
    if (r->stage_of[a] != r->stage_of[b]) return false;
    const struct stage *s = &r->stage[r->stage_of[a]];
    for (int i = 0; i < s->n; i++) {
        const struct item *it = &s->item[i];
        if (it->kind != ITEM_GATHER) continue;
        bool x = it->from <= a && a < it->to, y = it->from <= b && b < it->to;
        if (x != y || (x && item_gather(it, a)->total != item_gather(it, b)->total)) return false;
    }
    return true;
}

static void set_kinds(struct part_region *r)
{
    VECTOR(int64_t) first = {0};
    r->kind = TAKE_MANY(int16_t, r->count);
    for (int64_t n = 0; n < r->count; n++) {
        int k = 0;
        while (k < first.n && !does_same(r, first.item[k], n)) k++;
        if (k == first.n) PUSH(&first, n);
        r->kind[n] = (int16_t)k;
    }
}

/* ── regions ─────────────────────────────────────────────────────────────────── */

static enum part_of_step part_of(const struct region *r)
{
    if (r->phase == PHASE_UPDATE) return STEP_UPDATE;
    if (strstr(r->name, ".backward")) return STEP_BACKWARD;
    if (strstr(r->name, ".forward")) return STEP_FORWARD;
    return STEP_LOSS;
}

static void add_region(struct build_program *b, const struct region *from)
{
    struct part_region *r = &b->to->region[b->to->regions];
    *r = (struct part_region){.name = from->name,
                              .part = part_of(from),
                              .update = from->phase == PHASE_UPDATE,
                              .count = from->direction == ONCE ? 1 : from->count,
                              .down = from->direction == DOWN,
                              .stage = TAKE_MANY(struct stage, from->body.n),
                              .stages = from->body.n};
    for (int k = 0; k < from->body.n; k++) {
        const struct body *body = from->body.item[k];
        int kernel = 0;
        r->stage[k].item = TAKE_MANY(struct item, body->node.n + 1);
        for (int n = 0; n < body->node.n; n++) add_node(b, &r->stage[k], body, n, &kernel);
    }
    r->stage_of = TAKE_MANY(int16_t, r->count);
    for (int64_t n = 0; n < r->count; n++)
        for (int k = from->body.n - 1; k >= 0; k--)
            if (has_layer(from->body.item[k], r->down ? r->count - 1 - n : n))
                r->stage_of[n] = (int16_t)k;
    set_kinds(r);
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

/* How much longer a collective takes while compute runs. */
static double disturbed_by_compute(const struct machine *m)
{
    double part = m->cluster->contention.link;
    if (m->device == DEVICE_CPU) part *= 1 - idle_part(m);
    return part < 0.95 ? 1 / (1 - part) : 20;
}

struct program *program_of(const struct plan *plan, const struct machine *m, const struct graph *g)
{
    struct program *p = TAKE(struct program);
    *p = (struct program){.accumulation = plan->accumulation,
                          .tokens = plan->local * plan->sequence,
                          .devices = plan->fsdp * plan->dp,
                          .joins = m->device == DEVICE_CUDA && plan->graph,
                          .host = llround(m->cluster->host.step * PICOSECONDS),
                          .machine = *m,
                          .rings = rings_of(m, plan->fsdp, plan->dp),
                          .disturbed = disturbed_by_compute(m)};
    p->slowest = 1 + m->cluster->device_spread * largest_of(p->devices);
    p->late = 1 + m->cluster->jitter * largest_of(p->devices);
    machine_missing(m, p->devices > 1, p->rings.of[GROUP_WORLD].nodes > 1, &p->missing);
    p->region = TAKE_MANY(struct part_region, g->region.n);
    struct build_program b = {.to = p,
                              .plan = plan,
                              .graph = g,
                              .machine = m,
                              .class = cost_of_kernels(g),
                              .gather = TAKE_MANY(struct parts, g->unit.n),
                              .launch = launch_picoseconds(m)};
    for (int i = 0; i < g->unit.n; i++) b.gather[i] = gather_of(&b, g->unit.item[i]);
    for (int i = 0; i < g->region.n; i++)
        if (g->region.item[i]->phase != PHASE_SETUP) add_region(&b, g->region.item[i]);
    p->kernel = b.kernel.item;
    p->kernels = b.kernel.n;
    p->items = b.item.n;
    p->by_number = b.item.item;
    p->region_of = b.region.item;
    for (int i = 0; i < p->items; i++)
        if (p->by_number[i]->kind == ITEM_RUN) set_clocks(p, p->by_number[i]);
    p->events = events_of(p);
    return p;
}
