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
 * kernels, which must come after a wait for the reduction and one for the sum. Where only parts of
 * gradients are kept, the reduction fills an entry of a ring of shards until that sum; the next one
 * into the entry comes after it on the device (reduce_after). And where the replicas have parts of
 * the weights, the first gather of a layer in a step comes after the one that puts its shard
 * together.
 *
 * What stays for the whole run (weights, moments, scalars, staging) is written by nothing that is
 * proved here, so a reader of it is wrong.
 *
 * Lanes: a gather fills its slot from its issue to the wait for its event, a reduce reads its slot
 * as long; a step that touches those bytes in between is wrong, whatever a fast link would have got
 * away with. */
#include "prove.h"
#include "state.h"

#include <string.h>

/* ── values ──────────────────────────────────────────────────────────────────── */
static bool looked_through(const struct node *n)
{
    return n && (n->op == OP_sum_ranks || n->op == OP_put_part ||
                 (op_rows[n->op].class == CLASS_VIEW && n->op != OP_part));
}

const struct value *bytes_of(const struct value *v)
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

int64_t meant(struct prove *p, const struct value *v)
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

static void make(struct prove *p, const struct value *v)
{
    int64_t from, to;
    struct marks *m = marks_of(v, p->region->direction == ONCE ? 1 : p->region->count);
    int64_t mark = m->of[p->region->direction == ONCE ? 0 : p->i] = ++p->fresh;
    if (place(p, v, &from, &to)) write_bytes(p, from, to, mark, v->name);
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
    if (!setjmp(p->out)) {
        keep_all(p);
        for (int round = 0; round < 4; round++) {
            const bool only = !gradients_whole(&g->facts); /* one micro-batch a step */
            if (only && round == 2) continue;
            p->first_micro = round == 1, p->last_micro = round == 2 || (only && round == 1);
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
