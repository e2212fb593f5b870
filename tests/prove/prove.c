/* Proves a laid-out schedule by running it over addresses: each write puts a fresh mark on its
 * bytes, each read demands the mark of the very value it means, from the very iteration it means. A
 * buffer given away too early, a ring one entry short, a carry that reads the wrong end, a wait
 * that is missing, a slot written while a collective still reads it: all are a wrong mark, found at
 * the step that would have trained on it. The passes that lay out memory are not asked how they did
 * it; only their texts are believed, and only as far as the records go.
 *
 * Order: the text is one for all ranks and no step of it asks for the rank, so collectives are
 * issued in one order everywhere if they are issued in one order here; an event is recorded by one
 * lane step, waited for once it was recorded, and not recorded again before a wait. The events of
 * sums over replicas are the exception: their lane has one order, so the latest recording stands
 * for all before it.
 *
 * Two lanes of collectives: a sum over replicas follows the reduction that completes its shard, in
 * the same step, and touches nothing but resident gradients. Their readers are the update's
 * kernels, which must come after a wait for the reduction and one for the sum.
 *
 * What stays for the whole run (weights, moments, scalars, staging) is written by nothing that is
 * proved here, so a reader of it is wrong.
 *
 * Lanes: a gather fills its slot from its issue to the wait for its event, a reduce reads its slot
 * as long; a step that touches those bytes in between is wrong, whatever a fast link would have got
 * away with. */
#include "prove.h"

#include <setjmp.h>
#include <string.h>

struct range {
    int64_t from, to;
    int64_t mark;
};
struct flight {
    int64_t from, to;
    int event;
    bool fills;
};
struct kept {
    const char *name;
    int64_t from, to;
};
/* The gradient of a unit on its way into the resident shards. */
struct sum {
    const char *unit;
    int slot, summed;   /* events */
    bool reduces, adds; /* what has not been waited for */
};
/* Marks of a value by iteration of its loop (one entry for straight code). note of the value. */
struct marks {
    int64_t *of;
    int64_t n;
};

struct prove {
    const struct graph *g;
    VECTOR(struct range) bytes; /* of the arena; sorted, apart */
    VECTOR(struct kept) kept;
    VECTOR(struct flight) flight;
    VECTOR(struct sum) sum;
    int64_t fresh;
    const struct region *region;
    const struct body *body;
    int64_t i, n; /* layer and running count */
    bool first_micro, last_micro;
    int step;
    /* what check_over's kernel walks: a result, or its halves when it is two values side by side */
    struct shape walked;
    bool halves;
    jmp_buf out;
    const char *why;
};

_Noreturn static void wrong(struct prove *p, const char *format, ...) PRINTF_LIKE(2, 3);
static void wrong(struct prove *p, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    p->why = text_format("step %d of %s, iteration %lld: %s", p->step, p->region->name,
                         (long long)p->n, text_vformat(format, args));
    va_end(args);
    longjmp(p->out, 1);
}

/* ── bytes ───────────────────────────────────────────────────────────────────── */
/* Addresses are the arena's: segment wire begins after local_bytes. */
static int64_t address_of(struct prove *p, const struct buffer *b, int64_t offset, int64_t bytes,
                          const char *what)
{
    bool wire = b->segment == SEGMENT_WIRE;
    if (offset < 0 || offset + bytes > p->g->wire_bytes + (wire ? 0 : p->g->local_bytes))
        wrong(p, "%s lies outside its segment", what);
    return offset + (wire ? p->g->local_bytes : 0);
}

/* What is there for good (weights, moments, scalars, staging) is nobody else's. */
static void keep_clear(struct prove *p, int64_t from, int64_t to, const char *what)
{
    for (int k = 0; k < p->kept.n; k++)
        if (p->kept.item[k].from < to && from < p->kept.item[k].to)
            wrong(p, "%s is written over %s", what, p->kept.item[k].name);
}

static bool stays(enum buffer_kind kind)
{
    switch (kind) {
    case BUFFER_MASTER:
    case BUFFER_GRADIENT:
    case BUFFER_MOMENT1:
    case BUFFER_MOMENT2:
    case BUFFER_SCALARS:
    case BUFFER_STAGING:
    case BUFFER_REDUCE_STAGING:
    case BUFFER_METRICS: return true;
    case BUFFER_WORKSPACE:
    case BUFFER_GATHERED:
    case BUFFER_GRADIENT_SLOTS:
    case BUFFER_CARRIED:
    case BUFFER_SAVED:
    case BUFFER_BATCH:
    case BUFFER_TABLES:
    case BUFFER_WORKING:
    case BUFFER_ALIAS: return false;
    }
    bug("buffer kind %d", (int)kind);
}

static void keep_all(struct prove *p)
{
    p->region = p->g->region.item[0];
    for (int i = 0; i < p->g->buffer.n; i++) {
        const struct buffer *b = p->g->buffer.item[i];
        if (!stays(b->kind)) continue;
        int64_t from = address_of(p, b, b->offset, b->bytes, b->name);
        keep_clear(p, from, from + b->bytes, b->name);
        PUSH(&p->kept, ((struct kept){b->name, from, from + b->bytes}));
    }
}

static void write_bytes(struct prove *p, int64_t from, int64_t to, int64_t mark, const char *what)
{
    keep_clear(p, from, to, what);
    for (int k = 0; k < p->flight.n; k++) {
        const struct flight *f = &p->flight.item[k];
        if (f->from < to && from < f->to)
            wrong(p, "%s is written where event %d is still under way", what, f->event);
    }
    VECTOR(struct range) now = {0};
    bool put = false;
    for (int k = 0; k < p->bytes.n; k++) {
        struct range r = p->bytes.item[k];
        if (!put && r.to > from) {
            if (r.from < from) PUSH(&now, ((struct range){r.from, from, r.mark}));
            PUSH(&now, ((struct range){from, to, mark}));
            put = true;
        }
        if (r.to <= from || r.from >= to)
            PUSH(&now, r);
        else if (r.to > to)
            PUSH(&now, ((struct range){to, r.to, r.mark}));
    }
    if (!put) PUSH(&now, ((struct range){from, to, mark}));
    p->bytes.n = 0;
    for (int k = 0; k < now.n; k++) PUSH(&p->bytes, now.item[k]);
}

static void read_bytes(struct prove *p, int64_t from, int64_t to, int64_t mark, const char *what)
{
    int64_t at = from;
    for (int k = 0; k < p->flight.n; k++) {
        const struct flight *f = &p->flight.item[k];
        if (f->fills && f->from < to && from < f->to)
            wrong(p, "%s is read before event %d is waited for", what, f->event);
    }
    for (int k = 0; k < p->bytes.n && at < to; k++) {
        const struct range *r = &p->bytes.item[k];
        if (r->to <= at) continue;
        if (r->from > at) break;
        if (r->mark != mark) wrong(p, "%s is read where something else was written since", what);
        at = r->to;
    }
    if (at < to) wrong(p, "%s is read where nothing was written", what);
}

/* ── values ──────────────────────────────────────────────────────────────────── */
static bool looked_through(const struct node *n)
{
    return n && (n->op == OP_sum_ranks || n->op == OP_put_part ||
                 (op_rows[n->op].class == CLASS_VIEW && n->op != OP_part));
}

static const struct value *bytes_of(const struct value *v)
{
    while (looked_through(v->node)) v = v->node->in[0].value;
    return v;
}

static struct marks *marks_of(const struct value *v, int64_t n)
{
    struct value *own = (struct value *)(uintptr_t)v;
    if (!own->note) {
        struct marks *m = TAKE(struct marks);
        m->n = n;
        m->of = TAKE_MANY(int64_t, n);
        own->note = m;
    }
    return own->note;
}

static const struct region *home_of(const struct graph *g, const struct value *v, bool *carry,
                                    bool *last)
{
    *carry = *last = false;
    for (int i = 0; i < g->region.n; i++) {
        const struct region *r = g->region.item[i];
        for (int k = 0; k < r->carry.n; k++) {
            if (r->carry.item[k].value == v) return *carry = true, r;
            if (r->carry.item[k].last == v) return *last = true, r;
        }
        for (int k = 0; k < r->body.n; k++)
            for (int n = 0; n < r->body.item[k]->node.n; n++)
                for (int o = 0; o < r->body.item[k]->node.item[n]->n_out; o++)
                    if (r->body.item[k]->node.item[n]->out[o] == v) return r;
    }
    return NULL;
}

/* The mark that a reader here means. Values of loops have one per iteration, by layer. */
static int64_t meant(struct prove *p, const struct value *v)
{
    if (v->node && v->node->op == OP_part) return meant(p, bytes_of(v->node->in[0].value));
    bool carry, last;
    const struct region *home = home_of(p->g, v, &carry, &last);
    const struct marks *m = v->note;
    if (!m) wrong(p, "%s is read and was never made", v->name);
    return m->of[home && home->direction != ONCE && !last ? p->i : 0];
}

static int64_t ordinal(const struct body *b, int64_t i)
{
    int64_t n = 0;
    for (int k = 0; k < b->layers.n; k++) {
        if (i < b->layers.item[k].to) return n + i - b->layers.item[k].from;
        n += b->layers.item[k].to - b->layers.item[k].from;
    }
    return i;
}

static bool handed_on(const struct graph *g, const struct value *v)
{
    for (int i = 0; i < g->region.n; i++)
        for (int k = 0; k < g->region.item[i]->carry.n; k++) {
            if (g->region.item[i]->carry.item[k].value == v) return true;
            for (int b = 0; b < g->region.item[i]->body.n; b++)
                if (g->region.item[i]->body.item[b]->next.item[k] == v) return true;
        }
    return false;
}

static bool place(struct prove *p, const struct value *v, int64_t *from, int64_t *to)
{
    const struct buffer *b = graph_buffer(p->g, v->name);
    if (!b) return false;
    int64_t entry = 0;
    switch (b->index) {
    case INDEX_ONLY: break;
    case INDEX_LAYER: entry = handed_on(p->g, v) ? p->i : ordinal(p->body, p->i); break;
    case INDEX_RING: entry = p->n % b->entries; break;
    case INDEX_RING_NEXT: entry = (p->n + 1) % b->entries; break;
    }
    int64_t bytes = shape_count(v->shape) * element_bytes(v->type);
    *from = address_of(p, b, b->offset + entry * b->stride, bytes, v->name);
    *to = *from + bytes;
    return true;
}

/* ── weights and slots ───────────────────────────────────────────────────────── */
/* Marks of gathered units: by the buffer that owns the slot, and by instance. */
struct gathered {
    const char *buffer;
    int64_t instance, mark;
};
static VECTOR(struct gathered) gathered;

static void read_weight(struct prove *p, const struct weight *w)
{
    const struct unit *u = graph_unit(p->g, w->unit);
    const struct buffer *b = graph_buffer(p->g, slot_name(SLOT_GATHER, p->region->name, u));
    if (!b) return; /* read where the master lives */
    const char *owner = slot_read(p->g, p->region, u)->name;
    int64_t instance = u->loop[0] ? p->i : 0, entry = b->index == INDEX_LAYER ? p->i : p->n;
    int64_t size = element_bytes(p->g->facts.compute), bytes = shape_count(w->value->shape) * size;
    int64_t from = address_of(p, b, b->offset + (entry % b->entries) * b->stride + w->offset * size,
                              bytes, w->value->name);
    for (int k = gathered.n - 1; k >= 0; k--)
        if (!strcmp(gathered.item[k].buffer, owner) && gathered.item[k].instance == instance) {
            read_bytes(p, from, from + bytes, gathered.item[k].mark, w->value->name);
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

static void gather(struct prove *p, const struct node *n)
{
    int64_t at = p->n + attr_get(n, "shift");
    if (p->region->direction != ONCE && (p->n < attr_get(n, "from") || p->n >= attr_get(n, "to")))
        return;
    if (attr_or(n, "once", 0) && !p->first_micro) return;
    const struct buffer *b = graph_buffer(p->g, attr_get_word(n, "into"));
    int64_t layer = attr_get(n, "down") ? attr_get(n, "count") - 1 - at : at;
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
    PUSH(&gathered, one);
    take_off(p,
             (struct flight){from, from + b->bytes, (int)(attr_get(n, "event") + at % ring), true});
}

static void reduce(struct prove *p, const struct node *n)
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
    take_off(p, (struct flight){from, from + b->bytes, event, false});
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
static void read_gradient(struct prove *p, const struct node *state)
{
    const char *unit = attr_get_word(state, "unit");
    for (int k = 0; k < p->sum.n; k++) {
        const struct sum *s = &p->sum.item[k];
        if (strcmp(s->unit, unit)) continue;
        if (s->reduces) wrong(p, "the gradient of %s is read before event %d", unit, s->slot);
        if (s->adds) wrong(p, "the gradient of %s is read before event %d", unit, s->summed);
    }
}

static void wait_for(struct prove *p, const struct node *n)
{
    if (attr_or(n, "once", 0) && !p->first_micro) return;
    if (p->n < attr_or(n, "from", 0)) return;
    int first = (int)attr_get(n, "event"), ring = (int)attr_get(n, "ring"),
        one = first + (int)(p->n % ring), kept = 0;
    bool all = attr_get(n, "all"), found = false;
    for (int k = 0; k < p->flight.n; k++) {
        int e = p->flight.item[k].event;
        found |= e == one;
        if (all ? e < first || e >= first + ring : e != one)
            p->flight.item[kept++] = p->flight.item[k];
    }
    p->flight.n = kept;
    for (int k = 0; k < p->sum.n; k++) {
        struct sum *s = &p->sum.item[k];
        if (all ? s->slot >= first && s->slot < first + ring : s->slot == one) s->reduces = false;
        if (s->summed == attr_or(n, "summed", -1)) s->adds = false;
    }
    /* a slot is waited for before its first use too; a gather is always issued when a node
     * waits */
    if (!all && !found && records(p->g, one, OP_gather))
        wrong(p, "event %d is waited for and nobody has recorded it", one);
}

/* ── running ─────────────────────────────────────────────────────────────────── */
static void read_value(struct prove *p, const struct value *v)
{
    if (v->weight) {
        read_weight(p, v->weight);
        return;
    }
    int64_t from, to;
    const struct value *root = bytes_of(v);
    if (root->node && root->node->op == OP_state && node_state(root->node) == BUFFER_GRADIENT)
        read_gradient(p, root->node);
    if (root->node && op_rows[root->node->op].class == CLASS_LEAF) return;
    if (root->weight) {
        read_weight(p, root->weight);
        return;
    }
    if (!place(p, root, &from, &to)) wrong(p, "%s is read and has no bytes", root->name);
    read_bytes(p, from, to, meant(p, root), root->name);
}

static bool inside(const struct body *b, int first, int last, const struct value *v)
{
    for (int k = first; k < last; k++)
        for (int o = 0; o < b->node.item[k]->n_out; o++)
            if (b->node.item[k]->out[o] == v) return true;
    return false;
}

static void make(struct prove *p, const struct value *v)
{
    int64_t from, to;
    struct marks *m = marks_of(v, p->region->direction == ONCE ? 1 : p->region->count);
    int64_t mark = m->of[p->region->direction == ONCE ? 0 : p->i] = ++p->fresh;
    if (place(p, v, &from, &to)) write_bytes(p, from, to, mark, v->name);
}

/* How often a kernel has walked the row, or all rows (`after`), before a value of it is known; and
 * whether `over` is read for it at its own element. */
struct depth {
    int rows, after;
    bool reads;
};
static struct depth depth_of(struct prove *p, const struct body *b, int first, int last,
                             const struct value *v, const struct value *over)
{
    struct depth d = {0};
    if (v == over) return (struct depth){0, 0, true};
    if (!inside(b, first, last, v)) return d;
    const struct node *n = v->node;
    for (int i = 0; i < n->n_in; i++) {
        if (!n->in[i].value) continue;
        const struct value *a = n->in[i].value;
        struct depth x = depth_of(p, b, first, last, a, over);
        if (a != over && bytes_of(a) == over) wrong(p, "%s is read as another shape", over->name);
        bool half = p->halves && n->op == OP_slice && a == over &&
                    shape_same(v->shape, p->walked) &&
                    attr_get(n, "from") % shape_columns(p->walked) == 0;
        if (x.reads && !half && (n->op != OP_pick || p->halves) && !shape_same(a->shape, p->walked))
            wrong(p, "%s is read for %s, which has another shape", over->name, a->name);
        if (x.reads && !half && op_rows[n->op].class == CLASS_INDEX && n->op != OP_beside)
            wrong(p, "%s is written over and read at other elements, for %s", over->name, v->name);
        if (x.rows > d.rows) d.rows = x.rows;
        if (x.after > d.after) d.after = x.after;
        d.reads |= x.reads;
    }
    if (d.reads && d.after) wrong(p, "%s is read again behind a sum over rows", over->name);
    switch (op_rows[n->op].class) {
    case CLASS_ROW: return (struct depth){d.rows + (n->op != OP_pick), d.after, false};
    case CLASS_COLUMN:
    case CLASS_TOTAL: return (struct depth){0, d.after + 1, false};
    case CLASS_MAP:
    case CLASS_INDEX:
    case CLASS_EFFECT:
    case CLASS_VIEW:
    case CLASS_LEAF:
    case CLASS_CORE:
    case CLASS_LANE: break;
    }
    return d;
}

/* `out` may be written over `over` element by element: nothing of the kernel wants an element later
 * in the row's sweeps than `out` is made, or another one than its own but for what a row is picked
 * for before any sum of it. */
static void check_over(struct prove *p, const struct body *b, int first, int last,
                       const struct value *over, const struct value *out)
{
    p->halves = out->node->op == OP_beside;
    p->walked = p->halves ? out->node->in[0].value->shape : over->shape;
    struct depth at = depth_of(p, b, first, last, out, over);
    if ((op_rows[out->node->op].class != CLASS_MAP && !p->halves) ||
        !shape_same(out->shape, over->shape) || out->type != over->type || at.after)
        wrong(p, "%s cannot be written over %s", out->name, over->name);
    for (int k = first; k < last; k++) {
        const struct node *n = b->node.item[k];
        for (int i = 0; i < n->n_in; i++) {
            const struct value *a = n->in[i].value;
            struct depth x = a ? depth_of(p, b, first, last, a, over) : (struct depth){0};
            if (!x.reads) continue;
            if (n->op == OP_pick ? x.rows > 0 || i > 0 || at.rows == 0 : x.rows > at.rows)
                wrong(p, "%s is read after %s was written over it", over->name, out->name);
        }
    }
}

/* All reads of a kernel come before all its writes, and they do not touch: rows are walked in turn.
 * But a result may lie where an operand lay, when its buffer says so. */
static void run_kernel(struct prove *p, int first, int last)
{
    const struct body *b = p->body;
    VECTOR(struct flight) read = {0};
    VECTOR(const struct value *) from_there = {0};
    for (int k = first; k < last; k++)
        for (int a = 0; a < b->node.item[k]->n_in; a++) {
            const struct value *v = b->node.item[k]->in[a].value;
            if (!v || inside(b, first, last, v)) continue;
            read_value(p, v);
            struct flight f = {0};
            bool own = b->node.item[k]->op == OP_matmul_add && a == 2;
            if (!own && !v->weight && place(p, bytes_of(v), &f.from, &f.to))
                PUSH(&read, f), PUSH(&from_there, bytes_of(v));
        }
    for (int k = first; k < last; k++)
        for (int o = 0; o < b->node.item[k]->n_out; o++) {
            int64_t from, to;
            const struct value *v = b->node.item[k]->out[o];
            if (looked_through(v->node)) continue;
            const struct buffer *mine = graph_buffer(p->g, v->name);
            for (int r = 0; place(p, v, &from, &to) && r < read.n; r++) {
                if (read.item[r].from >= to || from >= read.item[r].to) continue;
                if (!mine->over || strcmp(mine->over, from_there.item[r]->name) ||
                    from != read.item[r].from || to != read.item[r].to)
                    wrong(p, "%s is written over what its kernel reads", v->name);
                check_over(p, b, first, last, from_there.item[r], v);
            }
            make(p, v);
        }
}

/* A part was made in its place: the whole is another value now. */
static void put_part(struct prove *p, const struct node *n)
{
    int64_t from, to;
    const struct value *whole = bytes_of(n->in[0].value);
    read_value(p, n->in[1].value);
    if (!place(p, whole, &from, &to)) wrong(p, "%s has no bytes", whole->name);
    struct marks *m = marks_of(whole, p->region->count);
    m->of[p->i] = ++p->fresh;
    write_bytes(p, from, to, m->of[p->i], whole->name);
}

/* The batch is written from outside. */
static void load_batch(struct prove *p)
{
    for (int i = 0; i < p->g->input.n; i++) {
        const struct value *v = p->g->input.item[i];
        const struct buffer *at = graph_buffer(p->g, v->name);
        marks_of(v, 1)->of[0] = ++p->fresh;
        if (!at) continue;
        int64_t from = address_of(p, at, at->offset, at->bytes, v->name);
        write_bytes(p, from, from + at->bytes, p->fresh, v->name);
    }
}

static void run_lane(struct prove *p, const struct node *n)
{
    switch ((enum lane_op)n->op) {
    case LANE_OP_gather: gather(p, n); return;
    case LANE_OP_reduce: reduce(p, n); return;
    case LANE_OP_wait: wait_for(p, n); return;
    case LANE_OP_sum_ranks: read_value(p, n->in[0].value); return;
    case LANE_OP_batch: load_batch(p); return;
    case LANE_OP_use: wrong(p, "the schedule pass left a use");
    }
    bug("lane op %d", (int)n->op);
}

static void run_body(struct prove *p)
{
    const struct body *b = p->body;
    for (int k = 0, end; k < b->node.n; k = end) {
        const struct node *n = b->node.item[k];
        end = k + 1;
        if (n->step) p->step = n->step;
        if (op_rows[n->op].class == CLASS_LANE)
            run_lane(p, n);
        else if (n->op == OP_put_part)
            put_part(p, n);
        else if (n->op == OP_tap)
            read_value(p, n->in[0].value);
        else if (n->kernel) {
            while (end < b->node.n && (b->node.item[end]->kernel == n->kernel)) end++;
            run_kernel(p, k, end);
        }
    }
}

static int64_t mark_now(struct prove *p, const struct value *v)
{
    const struct value *root = bytes_of(v);
    return meant(p, root);
}

static void run_region(struct prove *p, const struct region *r)
{
    p->region = r;
    for (int64_t n = 0; n < r->count; n++) {
        p->n = n, p->i = r->direction == DOWN ? r->count - 1 - n : n;
        for (int k = 0; k < r->body.n; k++) {
            p->body = r->body.item[k];
            bool runs = !p->body->layers.n || r->phase == PHASE_UPDATE;
            for (int l = 0; l < p->body->layers.n; l++)
                runs |= p->i >= p->body->layers.item[l].from && p->i < p->body->layers.item[l].to;
            if (runs) break;
        }
        /* what this iteration finds: the first, or what the last one handed on */
        for (int c = 0; c < r->carry.n; c++) {
            struct marks *m = marks_of(r->carry.item[c].value, r->count);
            if (n == 0) m->of[p->i] = mark_now(p, r->carry.item[c].first);
        }
        run_body(p);
        int64_t next_i = r->direction == DOWN ? p->i - 1 : p->i + 1;
        for (int c = 0; c < r->carry.n; c++) {
            int64_t mark = mark_now(p, p->body->next.item[c]);
            if (n + 1 < r->count)
                marks_of(r->carry.item[c].value, r->count)->of[next_i] = mark;
            else
                marks_of(r->carry.item[c].last, 1)->of[0] = mark;
        }
    }
}

static void forget(const struct graph *g) { ir_verify(g); /* empties the notes */ }

const char *prove(const struct graph *g)
{
    struct prove *p = TAKE(struct prove);
    p->g = g;
    if (g->level != LEVEL_MEMORY) return "only a laid-out schedule can be proved";
    forget(g);
    gathered.n = 0;
    if (!setjmp(p->out)) {
        keep_all(p);
        for (int round = 0; round < 4; round++) {
            p->first_micro = round == 1, p->last_micro = round == 2;
            for (int i = 0; i < g->region.n; i++) {
                static const enum phase phase[] = {PHASE_SETUP, PHASE_MICRO, PHASE_MICRO,
                                                   PHASE_UPDATE};
                if (g->region.item[i]->phase == phase[round]) run_region(p, g->region.item[i]);
            }
        }
        if (p->flight.n)
            p->why = text_format("event %d is never waited for", p->flight.item[0].event);
    }
    forget(g);
    return p->why;
}
