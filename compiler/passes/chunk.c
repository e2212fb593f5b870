/* Needs: the region where forward turns into backward, with the cross-entropies in it, which are
 *   marked by their picks (attribute loss).
 * Gives: with batch.loss_chunks > 1, three regions in its place: what comes before the logits; a
 *   loop over chunks of the rows, each with logits, loss, their gradient and the two products that
 *   use it, before the next chunk begins; what comes after. Logits then need the memory of one
 *   chunk, and nothing is computed twice.
 * Loses: nothing. With one chunk the graph is unchanged.
 *
 * The loop begins at the product that makes the logits (or at what else their rows come from) and
 * holds every node that works row by row from there, until rows are summed or multiplied by a
 * matrix. Sums add to a carry, the weight gradient of the head is added to in place (matmul_add),
 * and rows that are read outside are written to their place in the whole (put_part). Row values
 * that only the loop reads (seeds, scales) are made in it. A loss that cannot be cut is refused
 * with its line: NULL, after a diagnostic. */
#include "base/diagnostics.h"
#include "passes/pipeline.h"
#include "passes/chunk_rows.h"

#include <string.h>

enum where {
    BEFORE,
    BEGINS, /* in the loop, on the way to the logits */
    PIECE,  /* in the loop */
    LEAVES, /* in the loop, and its result is read after it only */
    BEHIND
};

struct chunk {
    struct graph *graph;
    const struct body *body;
    int64_t rows, count;
};

static bool is_loss(const struct node *n) { return n->op == OP_pick && attr_find(n, "loss"); }

static bool refuse(const struct node *n, int64_t count, const char *why)
{
    struct diagnostic *d =
        complain(source_line(n->file, n->line),
                 "batch.loss_chunks = %ld cannot cut this loss into pieces: %s", count, why);
    add_help(d, "batch.loss_chunks = 1");
    return false;
}

/* ── what goes into the loop ─────────────────────────────────────────────────── */
static bool is_here(const struct chunk *c, const struct node *n) { return n && n->note == c; }

static bool in_pieces(const struct node *n) { return n->mark == BEGINS || n->mark == PIECE; }

/* From the logits back to the product, the table or the rows from outside that they come from. */
static void begin_at(struct chunk *c, const struct value *v)
{
    struct node *n = v->node;
    if (!is_here(c, n) || n->mark == BEGINS || op_rows[n->op].class == CLASS_LEAF ||
        !rows_kept(n, c->rows))
        return;
    n->mark = BEGINS;
    for (int k = 0; k < n->n_in && op_rows[n->op].class != CLASS_CORE; k++)
        if (n->in[k].value && rows_of_operand(n, k, c->rows) == ROWS_ALONG)
            begin_at(c, n->in[k].value);
}

/* What a node reads of the loop: nothing, its rows one by one, or more than a piece has. */
static enum where reads(const struct chunk *c, const struct node *n)
{
    enum where most = BEFORE;
    bool row_by_row = rows_kept(n, c->rows) || rows_summed(n, c->rows) || n->op == OP_tap;
    for (int k = 0; k < n->n_in; k++) {
        const struct node *from = n->in[k].value ? n->in[k].value->node : NULL;
        if (!is_here(c, from) || from->mark == BEFORE) continue;
        bool along =
            row_by_row && (n->op == OP_tap || rows_of_operand(n, k, c->rows) == ROWS_ALONG);
        if (!in_pieces(from) || !along) return BEHIND;
        most = PIECE;
    }
    return most;
}

/* node->mark: enum where. NULL, or a beginning that needs what the loop leaves. */
static const struct node *place_nodes(struct chunk *c)
{
    for (int i = 0; i < c->body->node.n; i++) {
        struct node *n = c->body->node.item[i];
        enum where where = reads(c, n);
        if (n->mark == BEGINS && where == BEHIND) return n;
        if (n->mark == BEGINS) continue;
        n->mark = where;
        if (where == PIECE && (n->op == OP_matmul || rows_summed(n, c->rows))) n->mark = LEAVES;
    }
    return NULL;
}

/* Rows that are read outside the loop: value->mark 1; 2 when something else than a metric does. */
static void want(struct value *v, int64_t how)
{
    if (v && v->mark < how) v->mark = how;
}

static void find_wanted(const struct chunk *c, const struct graph *old)
{
    for (int i = 0; i < c->body->node.n; i++)
        for (int o = 0; o < c->body->node.item[i]->n_out; o++)
            c->body->node.item[i]->out[o]->mark = 0;
    for (int i = 0; i < old->region.n; i++) {
        const struct region *r = old->region.item[i];
        for (int k = 0; k < r->carry.n; k++) want(r->carry.item[k].first, 2);
        for (int k = 0; k < r->body.n; k++) {
            const struct body *b = r->body.item[k];
            for (int n = 0; n < b->node.n; n++) {
                const struct node *node = b->node.item[n];
                if (is_here(c, node) && node->mark != BEHIND) continue;
                for (int o = 0; o < node->n_in; o++)
                    want(node->in[o].value, node->op == OP_metric ? 1 : 2);
            }
            for (int n = 0; n < b->gradient.n; n++) want(b->gradient.item[n].value, 2);
        }
    }
}

/* Whether rows as long as the logits would be kept whole, which is what nobody wants who cuts. */
static bool check_wanted(const struct chunk *c, const struct node *loss)
{
    int64_t logits = shape_count(loss->in[0].value->shape);
    for (int i = 0; i < c->body->node.n; i++) {
        const struct node *n = c->body->node.item[i];
        for (int o = 0; o < n->n_out && in_pieces(n); o++)
            if (n->out[o]->mark == 2 && shape_count(n->out[o]->shape) >= logits)
                return refuse(
                    loss, c->count,
                    text_format("the gradient needs all of its %s at once; a loss can be cut when "
                                "it is a sum of cross-entropies of logits that a product makes, "
                                "each multiplied by numbers",
                                shape_text(n->out[o]->shape)));
    }
    return true;
}

/* Cheap row values that do not read the logits, when the loop wants them: made again in it. */
static bool made_in_loop(const struct chunk *c, const struct node *n)
{
    if (!is_here(c, n) || n->mark != BEFORE) return false;
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
struct made {
    const struct value *old;
    bool rows; /* a piece of it, or all */
    struct value *now;
};
struct loop {
    struct chunk *c;
    struct build *before, *b, *after;
    VECTOR(struct made) made;
};

static struct value *know(struct loop *l, const struct value *old, bool rows, struct value *now)
{
    PUSH(&l->made, ((struct made){old, rows, now}));
    return now;
}

static void at_node(struct build *b, const struct node *n)
{
    b->file = n->file, b->line = n->line;
    b->base = n->n_out ? n->out[0]->name : NULL;
}

/* The node on one piece, or once more as it is; attributes that give a shape follow. */
static struct node *again(struct loop *l, const struct node *n, enum op op, struct operand *in,
                          int n_in, bool rows)
{
    struct attr attr[12];
    for (int i = 0; i < n->n_attr; i++) {
        attr[i] = n->attr[i];
        if (rows && !strcmp(attr[i].key, "d0")) attr[i].whole /= l->c->count;
        if (op == OP_matmul_add && !strcmp(attr[i].key, "to"))
            attr[i] = attr_word("to", element_names[F32]);
    }
    at_node(l->b, n);
    const char *why = NULL;
    struct node *now = build_node(l->b, op, in, n_in, attr, n->n_attr, &why);
    if (!now) bug("%s in pieces: %s", op_rows[n->op].name, why);
    return now;
}

/* Bytes of its own in front of the loop: weights, numbers and views of them have none there. */
static struct value *laid_out(struct loop *l, const struct value *old)
{
    struct value *v = copied(old);
    const struct value *root = v;
    while (root->node && op_rows[root->node->op].class == CLASS_VIEW)
        root = root->node->in[0].value;
    bool none = root->weight || (root->node && op_rows[root->node->op].class == CLASS_LEAF);
    l->before->base = old->name;
    return none ? build1(l->before, OP_copy, by(v)) : v;
}

static struct value *part_of(struct loop *l, const struct value *old, struct value *whole)
{
    l->b->base = old->name;
    return know(l, old, true,
                build_op(l->b, OP_part, (struct operand[]){by(whole)}, 1,
                         (struct attr[]){attr_whole("count", l->c->count)}, 1));
}

static struct value *of_type(struct build *b, struct value *v, enum element type)
{
    if (v->type == type) return v;
    return build_op(b, OP_cast, (struct operand[]){by(v)}, 1,
                    (struct attr[]){attr_word("to", element_names[type])}, 1);
}

static struct value *rows_in_loop(struct loop *l, const struct value *v);
static struct value *all_in_loop(struct loop *l, const struct value *v);

/* The operand of a node that is made in the loop. */
static struct operand operand(struct loop *l, const struct node *n, int k, bool rows)
{
    const struct value *v = n->in[k].value;
    if (!v) return n->in[k];
    enum rows_use use = rows ? rows_of_operand(n, k, l->c->rows) : ROWS_SAME;
    if (use == ROWS_SAME) return by(all_in_loop(l, v));
    enum element type = n->out[0]->type;
    if (use == ROWS_ALONG) {
        struct value *part = rows_in_loop(l, v);
        /* a weight of BF16 is read as the F32 numbers that it holds; a piece of it is no weight */
        return by(v->weight && op_rows[n->op].class == CLASS_MAP ? of_type(l->b, part, type)
                                                                 : part);
    }
    struct attr attr[SHAPE_RANK];
    for (int i = 0; i < v->shape.rank; i++)
        attr[i] = attr_whole(dim_names[i], i ? v->shape.dim[i] : l->c->rows);
    l->before->base = v->name;
    struct value *table = of_type(l->before, copied(v), type);
    return by(part_of(
        l, v,
        build_op(l->before, OP_expand, (struct operand[]){by(table)}, 1, attr, v->shape.rank)));
}

static struct value *known(const struct loop *l, const struct value *v, bool rows)
{
    for (int i = 0; i < l->made.n; i++)
        if (l->made.item[i].old == v && l->made.item[i].rows == rows) return l->made.item[i].now;
    return NULL;
}

static struct value *made_again(struct loop *l, const struct value *v, bool rows)
{
    const struct node *n = v->node;
    struct operand in[8];
    for (int i = 0; i < n->n_in; i++) in[i] = operand(l, n, i, rows);
    return know(l, v, rows, again(l, n, n->op, in, n->n_in, rows)->out[0]);
}

/* A piece of a value that has the rows. */
static struct value *rows_in_loop(struct loop *l, const struct value *v)
{
    struct value *now = known(l, v, true);
    if (now) return now;
    if (made_in_loop(l->c, v->node) && rows_kept(v->node, l->c->rows))
        return made_again(l, v, true);
    return part_of(l, v, laid_out(l, v));
}

static struct value *all_in_loop(struct loop *l, const struct value *v)
{
    struct value *now = known(l, v, false);
    if (now) return now;
    return made_in_loop(l->c, v->node) ? made_again(l, v, false) : copied(v);
}

/* A carry whose first is zeros made before the loop. */
static struct carry *carried(struct loop *l, const struct value *like, enum element type)
{
    struct graph *g = l->c->graph;
    struct attr attr[SHAPE_RANK + 1];
    int rank = attr_dims(attr, like->shape);
    attr[rank] = attr_word("to", element_names[type]);
    l->before->base = like->name;
    struct value *zeros = build_op(l->before, OP_zeros, NULL, 0, attr, rank + 1);
    struct carry c = {.first = build1(l->before, OP_copy, by(zeros)),
                      .value = value_new(g, fresh_name(g, like->name), type, like->shape)};
    c.last = value_new(g, fresh_name(g, like->name), type, like->shape);
    PUSH(&l->b->region->carry, c);
    return &l->b->region->carry.item[l->b->region->carry.n - 1];
}

static bool is_gradient(const struct body *b, const struct value *v)
{
    for (int i = 0; i < b->gradient.n; i++)
        if (b->gradient.item[i].value == v) return true;
    return false;
}

/* Rows that are read after the loop: each piece is made in its place. */
static void hand_on(struct loop *l, const struct value *old, struct value *part)
{
    bool view = part->node && op_rows[part->node->op].class == CLASS_VIEW;
    l->b->base = old->name;
    if (view) part = build1(l->b, OP_copy, by(part));
    struct carry *c = carried(l, old, old->type);
    l->b->base = old->name;
    PUSH(&l->b->body->next, build2(l->b, OP_put_part, by(c->value), by(part)));
    l->after->base = old->name;
    bool slot = is_gradient(l->c->body, old); /* only a product adds up in a slot */
    copied_as(old, slot ? build1(l->after, OP_copy, by(c->last)) : c->last);
}

/* A sum over rows, added to piece by piece. */
static void leave_sum(struct loop *l, const struct node *n, struct operand *in)
{
    const struct value *y = n->out[0];
    bool product = n->op == OP_matmul;
    struct carry *c = carried(l, y, product ? F32 : y->type);
    struct value *last = c->last;
    if (product) {
        struct operand with[] = {in[0], in[1], by(c->value)};
        PUSH(&l->b->body->next, again(l, n, OP_matmul_add, with, 3, false)->out[0]);
    } else {
        struct value *sum = c->value, *part = again(l, n, n->op, in, n->n_in, false)->out[0];
        PUSH(&l->b->body->next, build2(l->b, OP_add, by(sum), by(part)));
    }
    at_node(l->after, n);
    if (last->type != y->type)
        last = of_type(l->after, last, y->type);
    else if (!product && is_gradient(l->c->body, y))
        last = build1(l->after, OP_copy, by(last));
    copied_as(y, last);
}

static void make_loop(struct loop *l)
{
    for (int i = 0; i < l->c->body->node.n; i++) {
        const struct node *n = l->c->body->node.item[i];
        struct operand in[8];
        if (!in_pieces(n) && n->mark != LEAVES) continue;
        l->before->file = n->file, l->before->line = n->line;
        for (int k = 0; k < n->n_in; k++)
            in[k] = n->op == OP_tap ? by(rows_in_loop(l, n->in[k].value)) : operand(l, n, k, true);
        if (n->mark == LEAVES && rows_summed(n, l->c->rows)) {
            leave_sum(l, n, in);
            continue;
        }
        struct node *now = again(l, n, n->op, in, n->n_in, true);
        for (int o = 0; o < n->n_out; o++) {
            know(l, n->out[o], true, now->out[o]);
            if (n->mark == LEAVES || n->out[o]->mark) hand_on(l, n->out[o], now->out[o]);
        }
    }
}

/* A gradient that was finished before the loop goes where the others do: after it. */
static void move_gradients(struct loop *l)
{
    for (int i = 0; i < l->c->body->gradient.n; i++) {
        const struct value *v = l->c->body->gradient.item[i].value;
        if (!is_here(l->c, v->node) || v->node->mark != BEFORE) continue;
        at_node(l->after, v->node);
        l->after->base = v->name;
        copied_as(v, build1(l->after, OP_copy, by(copied(v))));
    }
}

static void cut(struct chunk *c, const struct region *from)
{
    struct graph *g = c->graph;
    struct region *head =
        region_new(g, intern_format("%s.head", from->name), from->phase, ONCE, 1, "");
    struct build before = {.graph = g, .region = head, .body = body_new(head, "")};
    for (int i = 0; i < c->body->node.n; i++)
        if (c->body->node.item[i]->mark == BEFORE &&
            op_rows[c->body->node.item[i]->op].class != CLASS_EFFECT)
            node_copy(&before, c->body->node.item[i]);

    struct region *pieces = region_new(g, intern_format("%s.pieces", from->name), from->phase, UP,
                                       c->count, intern_format("%s.pieces", from->name));
    struct region *behind = region_new(g, from->name, from->phase, ONCE, 1, "");
    pieces->within = behind->within = head->name;
    struct build b = {.graph = g, .region = pieces, .body = body_new(pieces, "")},
                 after = {.graph = g, .region = behind, .body = body_new(behind, "")};
    struct loop l = {.c = c, .before = &before, .b = &b, .after = &after};
    make_loop(&l);
    for (int i = 0; i < c->body->node.n; i++) {
        const struct node *n = c->body->node.item[i];
        if (n->mark == BEHIND || (n->mark == BEFORE && op_rows[n->op].class == CLASS_EFFECT))
            node_copy(&after, n);
    }
    move_gradients(&l);
    body_end(after.body, c->body);
}

/* ── entry point ─────────────────────────────────────────────────────────── */
static const struct region *turn_of(const struct graph *g)
{
    const struct region *turn = NULL;
    for (int i = 0; i < g->region.n; i++) {
        const struct region *r = g->region.item[i];
        for (int n = 0; r->direction == ONCE && n < r->body.item[0]->node.n; n++) {
            const struct node *node = r->body.item[0]->node.item[n];
            if (node->op == OP_metric && !strcmp(attr_get_word(node, "name"), "loss")) turn = r;
        }
    }
    return turn;
}

/* A cross-entropy of the region, or NULL. Those of other regions are refused: forward and backward
 * meet in one region only. */
static bool find_losses(const struct graph *g, const struct region *turn, const struct node **loss)
{
    *loss = NULL;
    for (struct node_walk at = {0}; next_node(g, &at);) {
        const struct node *node = at.node;
        if (!is_loss(node)) continue;
        if (at.region != turn)
            return refuse(node, g->facts.loss_chunks, "only one after the last repeat can be cut");
        *loss = node;
    }
    return true;
}

struct graph *pass_chunk(const struct graph *old)
{
    struct graph *g = graph_begin(old, LEVEL_CHUNK);
    const struct region *turn = g->facts.loss_chunks > 1 ? turn_of(old) : NULL;
    const struct node *loss = NULL;
    if (turn && !find_losses(old, turn, &loss)) return NULL;
    struct chunk c = {.graph = g,
                      .body = loss ? turn->body.item[0] : NULL,
                      .rows = g->facts.tokens,
                      .count = g->facts.loss_chunks};
    for (int i = 0; loss && i < c.body->node.n; i++)
        c.body->node.item[i]->note = &c, c.body->node.item[i]->mark = BEFORE;
    for (int i = 0; loss && i < c.body->node.n; i++)
        if (is_loss(c.body->node.item[i])) begin_at(&c, c.body->node.item[i]->in[0].value);
    const struct node *wrong = loss ? place_nodes(&c) : NULL;
    if (wrong) {
        refuse(wrong, c.count, "its logits depend on another loss");
        return NULL;
    }
    if (loss) {
        find_wanted(&c, old);
        if (!check_wanted(&c, loss)) return NULL;
    }
    for (int i = 0; i < old->region.n; i++) {
        if (loss && old->region.item[i] == turn)
            cut(&c, turn);
        else
            region_copy(g, old->region.item[i]);
    }
    if (loss) graph_sweep(g);
    return g;
}
