/* Needs: the region where forward turns into backward, with the product that makes the logits in
 * it.
 * Gives: with batch.loss_chunks > 1, three regions in its place: what comes before the logits; a
 *   loop over pieces of the rows, each with logits, loss, their gradient and the two products that
 *   take it on, before the next piece begins; what comes behind. Logits then take a piece's room,
 *   and nothing is computed twice.
 * Loses: nothing. With one piece the graph passes unchanged.
 * The loop holds every node that depends on the logits until its rows are summed up: losses add to
 * a carry, the weight gradient of the head is added to in place (matmul_add), and each piece's
 * gradient with respect to the rows is made in its place (put_part) in the whole. Row values that
 * only the loop reads (seeds, scales) are made in it. */
#include "ir/ir.h"

#include <string.h>

enum where { BEFORE, PIECE, BEHIND };

struct chunk {
    struct graph *graph;
    const struct graph *old;
    const struct body *body;
    int64_t rows, count;
};

static bool by_rows(const struct chunk *c, const struct value *v)
{
    return v->shape.rank > 0 && v->shape.dim[0] == c->rows;
}

/* Sums over the rows, or hands rows on to what is not the loss: the last node of the loop on this
 * path. */
static bool leaves(const struct node *n)
{
    return op_rows[n->op].class == CLASS_TOTAL || n->op == OP_matmul;
}

static const struct node *logits_of(const struct body *b)
{
    for (int i = 0; i < b->node.n; i++)
        if (b->node.item[i]->op == OP_tap &&
            !strcmp(attr_get_word(b->node.item[i], "name"), "logits"))
            return b->node.item[i]->in[0].value->node;
    return NULL;
}

/* node->mark: enum where. A node is of the loop when it reads the loop's rows; behind when it reads
 * what the loop leaves. */
static void place_nodes(struct chunk *c, const struct node *logits)
{
    for (int i = 0; i < c->body->node.n; i++) c->body->node.item[i]->note = c;
    for (int i = 0; i < c->body->node.n; i++) {
        struct node *n = c->body->node.item[i];
        n->mark = n == logits ? PIECE : BEFORE;
        for (int k = 0; k < n->n_in; k++) {
            const struct node *from = n->in[k].value ? n->in[k].value->node : NULL;
            if (!from || from->note != c) continue;
            if (from->mark == BEHIND || (from->mark == PIECE && leaves(from) && from != logits))
                n->mark = BEHIND;
            else if (from->mark == PIECE && n->mark == BEFORE)
                n->mark = PIECE;
        }
        if (op_rows[n->op].class == CLASS_EFFECT && n->op != OP_tap && n->mark == PIECE)
            n->mark = BEHIND;
    }
}

/* Cheap row values that do not read the logits, when the loop wants them: made again in it. */
static bool made_in_loop(const struct chunk *c, const struct node *n)
{
    if (!n || n->note != c || n->mark != BEFORE) return false;
    enum op_class class = op_rows[n->op].class;
    if (class == CLASS_LEAF) return true;
    if (class != CLASS_MAP && class != CLASS_INDEX && class != CLASS_VIEW) return false;
    for (int i = 0; i < n->n_in; i++) {
        const struct value *v = n->in[i].value;
        if (v && !made_in_loop(c, v->node) && !(v->node == NULL && !v->weight)) return false;
    }
    return true;
}

/* ── the loop ────────────────────────────────────────────────────────────────── */
struct pair {
    const struct value *old;
    struct value *now;
};
struct loop {
    struct chunk *c;
    struct build *b;
    VECTOR(struct pair) known;
};

static struct value *in_loop(struct loop *l, const struct value *v);

/* The node with rows of one piece; attributes that give a shape follow. */
static struct node *piece_of(struct loop *l, const struct node *n, enum op op, struct operand *in,
                             int n_in)
{
    struct attr attr[12];
    for (int i = 0; i < n->n_attr; i++) {
        attr[i] = n->attr[i];
        if (!strcmp(attr[i].key, "d0") && attr[i].whole == l->c->rows) attr[i].whole /= l->c->count;
    }
    l->b->file = n->file, l->b->line = n->line;
    l->b->base = n->n_out ? n->out[0]->name : NULL;
    const char *why = NULL;
    struct node *now = build_node(l->b, op, in, n_in, attr, n->n_attr, &why);
    if (!now) bug("%s in pieces: %s", op_rows[n->op].name, why);
    return now;
}

static struct value *know(struct loop *l, const struct value *old, struct value *now)
{
    PUSH(&l->known, ((struct pair){old, now}));
    return now;
}

static struct value *in_loop(struct loop *l, const struct value *v)
{
    for (int i = 0; i < l->known.n; i++)
        if (l->known.item[i].old == v) return l->known.item[i].now;
    const struct node *n = v->node;
    if (made_in_loop(l->c, n)) {
        struct operand in[8];
        for (int i = 0; i < n->n_in; i++)
            in[i] = n->in[i].value ? by(in_loop(l, n->in[i].value)) : n->in[i];
        return know(l, v, piece_of(l, n, n->op, in, n->n_in)->out[0]);
    }
    if (v->weight || !by_rows(l->c, v)) return copied(v);
    l->b->base = v->name;
    return know(l, v,
                build_op(l->b, OP_part, (struct operand[]){by(copied(v))}, 1,
                         (struct attr[]){attr_whole("count", l->c->count)}, 1));
}

/* A carry whose first is zeros made before the loop. */
static struct carry *carried(struct graph *g, struct build *before, struct region *loop,
                             const struct value *like, const char *name)
{
    static const char *const key[] = {"d0", "d1", "d2", "d3"};
    struct attr attr[SHAPE_RANK + 1];
    for (int i = 0; i < like->shape.rank; i++) attr[i] = attr_whole(key[i], like->shape.dim[i]);
    attr[like->shape.rank] = attr_word("to", element_names[like->type]);
    before->base = name;
    struct value *zeros = build_op(before, OP_zeros, NULL, 0, attr, like->shape.rank + 1);
    struct carry c = {.first = build1(before, OP_copy, by(zeros)),
                      .value = value_new(g, fresh_name(g, name), like->type, like->shape)};
    c.last = value_new(g, fresh_name(g, name), like->type, like->shape);
    PUSH(&loop->carry, c);
    return &loop->carry.item[loop->carry.n - 1];
}

/* A node that leaves: what it adds to, and its result behind the loop. */
static void leave(struct loop *l, struct build *before, const struct node *n, struct operand *in)
{
    const struct value *y = n->out[0];
    struct graph *g = l->c->graph;
    struct carry *c = carried(g, before, l->b->region, y, y->name);
    struct value *next;
    if (n->op != OP_matmul) {
        struct value *part = piece_of(l, n, n->op, in, n->n_in)->out[0];
        next = build2(l->b, OP_add, by(c->value), by(part));
        /* rows stay rows; the other product adds them up, whatever its result's shape */
    } else if (!attr_get(n, "ta")) {
        struct value *part = piece_of(l, n, n->op, in, n->n_in)->out[0];
        next = build2(l->b, OP_put_part, by(c->value), by(part));
    } else {
        struct operand with[] = {in[0], in[1], by(c->value)};
        next = piece_of(l, n, OP_matmul_add, with, 3)->out[0];
    }
    PUSH(&l->b->body->next, next);
    copied_as(y, c->last);
}

static void cut(struct graph *g, const struct graph *old, const struct region *from)
{
    struct chunk c = {.graph = g,
                      .old = old,
                      .body = from->body.item[0],
                      .rows = g->facts.tokens,
                      .count = g->facts.loss_chunks};
    const struct node *logits = logits_of(c.body);
    if (!logits || logits->op != OP_matmul || !by_rows(&c, logits->out[0]))
        bug("the logits are not the rows of a product");
    place_nodes(&c, logits);

    struct region *head =
        region_new(g, intern_format("%s.head", from->name), from->phase, ONCE, 1, "");
    struct build before = {.graph = g, .region = head, .body = body_new(head, "")};
    for (int i = 0; i < c.body->node.n; i++)
        if (c.body->node.item[i]->mark == BEFORE &&
            op_rows[c.body->node.item[i]->op].class != CLASS_EFFECT)
            node_copy(&before, c.body->node.item[i]);

    struct region *pieces = region_new(g, intern_format("%s.pieces", from->name), from->phase, UP,
                                       c.count, intern_format("%s.pieces", from->name));
    pieces->within = head->name;
    struct build b = {.graph = g, .region = pieces, .body = body_new(pieces, "")};
    struct loop l = {.c = &c, .b = &b};
    for (int i = 0; i < c.body->node.n; i++) {
        const struct node *n = c.body->node.item[i];
        struct operand in[8];
        if (n->mark != PIECE) continue;
        for (int k = 0; k < n->n_in; k++)
            in[k] = n->in[k].value ? by(in_loop(&l, n->in[k].value)) : n->in[k];
        before.file = n->file, before.line = n->line;
        if (leaves(n) && n != logits)
            leave(&l, &before, n, in);
        else {
            struct node *now = piece_of(&l, n, n->op, in, n->n_in);
            for (int o = 0; o < n->n_out; o++) know(&l, n->out[o], now->out[o]);
        }
    }

    struct region *behind = region_new(g, from->name, from->phase, ONCE, 1, "");
    behind->within = head->name;
    struct build after = {.graph = g, .region = behind, .body = body_new(behind, "")};
    for (int i = 0; i < c.body->node.n; i++) {
        const struct node *n = c.body->node.item[i];
        if (n->mark == BEHIND || (n->mark == BEFORE && op_rows[n->op].class == CLASS_EFFECT))
            node_copy(&after, n);
    }
    body_end(after.body, c.body);
}

struct graph *pass_chunk(const struct graph *old)
{
    struct graph *g = graph_begin(old, LEVEL_CHUNK);
    for (int i = 0; i < old->region.n; i++) {
        const struct region *r = old->region.item[i];
        bool turn = r->direction == ONCE && r->phase == PHASE_MICRO && logits_of(r->body.item[0]);
        if (turn && g->facts.loss_chunks > 1)
            cut(g, old, r);
        else
            region_copy(g, r);
    }
    if (g->facts.loss_chunks > 1) graph_sweep(g);
    return g;
}
