/* Needs: sharded bodies of primitives.
 * Gives: kernels. Every node that computes belongs to one. A core op is alone; other nodes share
 *   a kernel if they walk the same rows x columns and nothing that they need is made in between.
 *   The nodes of a kernel become neighbours in the body; views and leaves move to just before the
 *   kernel that needs them first.
 * Loses: the order of lower, which had no meaning.
 *
 * Greedy: a node joins the latest kernel that makes or reads one of its operands, if possible. The
 * result of a reduction over rows (a column, a total) is complete only when its kernel has ended,
 * so a reader of it comes later; so does a reader of a view. A node that costs nothing where it is
 * read (a cast from BF16, the constant seed of a gradient, one row for all rows) waits for its
 * first reader, so that it separates nothing. So does what only slices read, a product's result
 * with a bias: their kernel makes each slice of it, and it is not stored. A kernel that chooses k
 * of the columns of a row, takes k of them or puts k back also walks the k choices of each row, so
 * that a router is one kernel. Joining never changes a bit: every value is rounded to its type
 * wherever it is made, and the order of a reduction depends only on its length. With --fusion off
 * every node is a kernel. */
#include "passes/kernel_kind.h"
#include "passes/kernel_name.h"
#include "passes/pipeline.h"
#include "passes/sliced.h"
#include "passes/value_name.h"

/* choices: of each row, walked beside the columns; 0: none. */
struct walk {
    int64_t rows, columns, choices;
};

struct group {
    VECTOR(struct node *) node;
    struct walk walk;
    bool open;   /* can be joined */
    bool weight; /* begins with a walk over a weight */
};

struct fuse {
    struct graph *graph;
    const struct graph *old;
    const struct body *body;
    const struct region *region;
    VECTOR(struct group *) group;
    struct sliced sliced; /* of this body */
};

static struct walk walk_of_shape(struct shape s)
{
    return (struct walk){.rows = shape_rows(s), .columns = shape_columns(s)};
}

/* The rows and columns of a node: those of its result, or of what it reduces. */
static struct walk walk_of(const struct node *n)
{
    switch (op_rows[n->op].class) {
    case CLASS_MAP: return walk_of_shape(n->out[0]->shape);
    /* halves of a row are stored by the kernel that makes both */
    case CLASS_INDEX:
        return walk_of_shape((n->op == OP_beside ? n->in[0].value : n->out[0])->shape);
    case CLASS_ROW:
    case CLASS_COLUMN:
    case CLASS_TOTAL: return walk_of_shape(n->in[0].value->shape);
    case CLASS_EFFECT:
        return n->in[0].value ? walk_of_shape(n->in[0].value->shape)
                              : (struct walk){.rows = 1, .columns = 1};
    case CLASS_VIEW:
    case CLASS_LEAF:
    case CLASS_CORE:
    case CLASS_LANE: break;
    }
    return (struct walk){0};
}

static bool floating(const struct node *n)
{
    enum op_class class = op_rows[n->op].class;
    return class == CLASS_VIEW || class == CLASS_LEAF;
}

static bool joins(const struct node *n)
{
    switch (op_rows[n->op].class) {
    case CLASS_MAP:
    case CLASS_INDEX:
    case CLASS_ROW:
    case CLASS_COLUMN:
    case CLASS_TOTAL: return true;
    case CLASS_EFFECT: return n->op != OP_tap;
    case CLASS_VIEW:
    case CLASS_LEAF:
    case CLASS_CORE:
    case CLASS_LANE: return false;
    }
    return false;
}

/* One row, expanded to many. */
static bool one_row(const struct node *n)
{
    return n->op == OP_expand && shape_rows(n->in[0].value->shape) == 1 &&
           shape_rows(n->out[0]->shape) > 1 && shape_columns(n->out[0]->shape) > 1;
}

/* Only numbers and scalars, broadcast: the seed of a gradient. */
static bool constant(const struct node *n)
{
    if (op_rows[n->op].class != CLASS_MAP ||
        (n->op != OP_expand && n->op != OP_mul && n->op != OP_neg))
        return false;
    for (int i = 0; i < n->n_in; i++) {
        const struct node *from = n->in[i].value ? n->in[i].value->node : NULL;
        if (n->in[i].value && (!from || (op_rows[from->op].class != CLASS_LEAF && !constant(from))))
            return false;
    }
    return shape_count(n->out[0]->shape) > 1;
}

/* Reading BF16 as F32 costs a reader nothing, while a kernel for it would store what is there
 * already in half the bytes: it goes where its first reader goes. So does what is constant. */
static bool rides(const struct fuse *f, const struct node *n)
{
    return f->graph->facts.fuse &&
           ((n->op == OP_cast && n->in[0].value->type == BF16 && n->out[0]->type == F32) ||
            constant(n) || one_row(n) || is_sliced(&f->sliced, n));
}

/* Earliest group (by number) in which `v` can be read; *in: the group that makes it while it runs,
 * or -1. node->mark is the number of a node's group in this body, -1 outside. */
static int ready(const struct fuse *f, const struct value *v, int *in)
{
    *in = -1;
    const struct node *n = v ? v->node : NULL;
    if (!n || n->note != f) return 0;
    if (op_rows[n->op].class == CLASS_LEAF) return 0;
    if (op_rows[n->op].class == CLASS_VIEW) {
        int inside, at = ready(f, n->in[0].value, &inside);
        return inside >= 0 ? inside + 1 : at;
    }
    if (n->mark == -1 && rides(f, n)) {
        int first = 0;
        for (int i = 0; i < n->n_in; i++) {
            int inside, then = ready(f, n->in[i].value, &inside);
            if (then > first) first = then;
            if (inside > *in) *in = inside;
        }
        return first;
    }
    int at = (int)n->mark;
    enum op_class class = op_rows[n->op].class;
    bool whole =
        class == CLASS_COLUMN || class == CLASS_TOTAL || class == CLASS_CORE || class == CLASS_LANE;
    if (whole) return at + 1;
    *in = at;
    return at;
}

/* Row values ([R,1]) join any walk over the same rows; a walk over rows alone becomes wider when
 * columns join. */
static bool fits(struct walk *g, struct walk n, bool take)
{
    if (g->rows != n.rows) return false;
    if (g->columns == n.columns || n.columns == 1) return true;
    if (g->columns != 1 || n.rows == 1) return false;
    if (take) g->columns = n.columns;
    return true;
}

/* What may walk the choices of a kernel that walks more columns. */
static bool of_choices(const struct node *n, int64_t choices)
{
    enum op_class class = op_rows[n->op].class;
    return shape_columns((class == CLASS_ROW ? n->in[0].value : n->out[0])->shape) == choices &&
           (class == CLASS_MAP || n->op == OP_take || n->op == OP_sum_last || n->op == OP_max_last);
}

/* Columns that a node leads to choices from, or from choices to; 0: none. *choices: how many. A
 * thread of a GPU holds what a kernel knows of its choices: of more than 32 they would spill. */
enum { MOST_CHOICES = 32 };
static int64_t columns_of_choices(const struct node *n, int64_t *choices)
{
    *choices = 0;
    if (n->op != OP_top_k && n->op != OP_take && n->op != OP_put) return 0;
    struct shape whole = (n->op == OP_put ? n->out[0] : n->in[0].value)->shape,
                 part = (n->op == OP_put ? n->in[0].value : n->out[0])->shape;
    *choices = shape_columns(part);
    return *choices > 1 && *choices <= MOST_CHOICES && shape_columns(whole) > *choices
               ? shape_columns(whole)
               : 0;
}

/* Whether a node walks the choices of a group, or makes it walk them. */
static bool fits_choices(struct group *g, const struct node *n, struct walk s)
{
    if (g->walk.rows != s.rows) return false;
    int64_t choices, columns = columns_of_choices(n, &choices);
    if (!columns) return g->walk.choices && of_choices(n, g->walk.choices);
    if (g->walk.columns == columns && (!g->walk.choices || g->walk.choices == choices)) {
        g->walk.choices = choices;
        return true;
    }
    if (n->op != OP_put || g->walk.choices || g->walk.columns != choices) return false;
    for (int i = 0; i < g->node.n; i++)
        if (walk_of(g->node.item[i]).columns > 1 && !of_choices(g->node.item[i], choices))
            return false;
    g->walk.columns = columns, g->walk.choices = choices;
    return true;
}

/* Slices of a map that only they read share its kernel, whatever their widths are. */
static bool cuts(const struct fuse *f, struct group *g, const struct node *n)
{
    const struct node *from = n->op == OP_slice ? n->in[0].value->node : NULL;
    if (!from || !is_sliced(&f->sliced, from)) return false;
    const int64_t columns = shape_columns(n->out[0]->shape);
    if (g->walk.columns < columns) g->walk.columns = columns;
    return true;
}

/* One row of as many numbers as are walked, for all rows: a gain or a bias. */
static bool for_all_rows(const struct value *v, struct walk w)
{
    return v->type != I32 && w.rows > 1 && shape_rows(v->shape) == 1 &&
           shape_columns(v->shape) == w.columns;
}

/* What is read where `v`, BF16 as F32, has not been placed yet. */
static const struct value *behind_cast(const struct fuse *f, const struct value *v)
{
    const struct node *n = v ? v->node : NULL;
    const bool waits = n && n->note == f && n->mark == -1 && n->op == OP_cast && rides(f, n);
    return waits ? n->in[0].value : v;
}

/* Whether both read the same. That a gain is read twice is no reason to share a kernel. */
static bool reads_same(const struct fuse *f, const struct group *g, const struct node *n)
{
    for (int b = 0; b < n->n_in; b++) {
        const struct value *v = behind_cast(f, n->in[b].value);
        if (!v || shape_count(v->shape) <= 1 || for_all_rows(v, g->walk)) continue;
        for (int i = 0; i < g->node.n; i++)
            for (int a = 0; a < g->node.item[i]->n_in; a++)
                if (g->node.item[i]->in[a].value == v) return true;
    }
    return false;
}

/* A column that is only known at run time cannot be found again through a rotation or padding made
 * in the same kernel. */
static bool index_allowed(const struct node *n, const struct group *g)
{
    if (n->op != OP_pick && n->op != OP_take) return true;
    for (int k = 0; k < g->node.n; k++)
        if (g->node.item[k]->op == OP_rotate || g->node.item[k]->op == OP_pad ||
            g->node.item[k]->op == OP_beside)
            return false;
    return true;
}

/* No later kernel waits for its results: scalars, and values for the probe. */
static bool waits_for_none(const struct group *g)
{
    return (g->walk.rows == 1 && g->walk.columns == 1) || g->node.item[0]->op == OP_tap;
}

/* Whether `v` is a weight's gradient, or the start of a carry that ends as one. */
static bool ends_as_gradient(const struct graph *g, const struct value *v)
{
    for (int i = 0; i < g->region.n; i++) {
        const struct region *r = g->region.item[i];
        for (int k = 0; k < r->body.n; k++)
            for (int n = 0; n < r->body.item[k]->gradient.n; n++)
                if (r->body.item[k]->gradient.item[n].value == v) return true;
        for (int k = 0; k < r->carry.n; k++)
            if (r->carry.item[k].first == v && ends_as_gradient(g, r->carry.item[k].last))
                return true;
    }
    return false;
}

/* As many rows as a weight has may be those of a micro-batch, by chance. */
static bool walks_weight(const struct fuse *f, const struct node *n)
{
    enum op_class class = op_rows[n->op].class;
    return f->region->phase == PHASE_MICRO && (class == CLASS_MAP || class == CLASS_INDEX) &&
           ends_as_gradient(f->old, n->out[0]);
}

/* The kernel that all readers of `n` will join, because it makes their other operands; -1: none. */
static int joined_by_readers(const struct fuse *f, const struct node *n)
{
    const struct value *y = n->out[0];
    int64_t readers = 0;
    int kernel = -1;
    for (int i = 0; i < f->body->node.n; i++) {
        const struct node *r = f->body->node.item[i];
        int maker = -1, first = 0, reads = 0;
        for (int a = 0; a < r->n_in; a++) reads += r->in[a].value == y;
        if (!reads) continue;
        for (int a = 0; a < r->n_in; a++) {
            const struct value *v = r->in[a].value;
            if (!v || v == y) continue;
            if (v->node && v->node->note == f->body) return -1; /* it is not known yet */
            int in, at = ready(f, v, &in);
            if (at > first) first = at;
            if (in > maker) maker = in;
        }
        if (!joins(r) || maker < first || (kernel >= 0 && maker != kernel)) return -1;
        readers += reads, kernel = maker;
    }
    return readers == y->mark ? kernel : -1;
}

static struct group *group_for(struct fuse *f, struct node *n)
{
    int first = 0, maker = -1;
    for (int i = 0; i < n->n_in; i++) {
        int in, at = ready(f, n->in[i].value, &in);
        if (at > first) first = at;
        if (in > maker) maker = in;
    }
    struct walk s = walk_of(n);
    bool walks = joins(n) && f->graph->facts.fuse;
    /* what straight code makes again comes after products, not in the kernel that made it first */
    bool late = n->again && f->region->direction == ONCE && maker < f->group.n - 1;
    if (walks && maker >= first && maker >= 0 && !late) {
        struct group *g = f->group.item[maker];
        if (g->open && index_allowed(n, g) &&
            (cuts(f, g, n) || fits_choices(g, n, s) || fits(&g->walk, s, true)))
            return n->mark = maker, g;
    }
    /* without a maker: the newest kernel if it has the same walk (in the update any), or one that
     * reads the same; a second computation stays as late as it was put, or what it makes would have
     * to be kept. What fills a weight's gradient is not put to activations: that they have the same
     * walk would be chance, and kernels would be others at other batches. */
    const int with = walks && maker < 0 && n->n_out == 1 ? joined_by_readers(f, n) : -1;
    if (with >= first && f->group.item[with]->open && index_allowed(n, f->group.item[with]) &&
        fits(&f->group.item[with]->walk, s, false))
        return n->mark = with, f->group.item[with];
    const bool weight = walks_weight(f, n);
    bool newest = true;
    for (int k = f->group.n - 1; walks && k >= first; k--) {
        struct group *g = f->group.item[k];
        bool near = (newest && g->weight == weight) || f->region->phase == PHASE_UPDATE;
        if (g->open && (near || (!n->again && reads_same(f, g, n))) && index_allowed(n, g) &&
            fits(&g->walk, s, near))
            return n->mark = k, g;
        newest &= waits_for_none(g);
    }
    struct group *g = TAKE(struct group);
    g->walk = s, g->open = walks, g->weight = weight;
    n->mark = f->group.n;
    PUSH(&f->group, g);
    return g;
}

/* ── writing the new body ────────────────────────────────────────────────────── */
static void emit_floating(struct build *b, const struct fuse *f, const struct value *v)
{
    struct node *n = v ? v->node : NULL;
    if (!n || n->note != f || !floating(n) || n->mark == -2) return;
    for (int i = 0; i < n->n_in; i++) emit_floating(b, f, n->in[i].value);
    n->mark = -2;
    node_copy(b, n);
}

/* Whether it still waits for its first reader. */
static bool waits(const struct fuse *f, const struct node *n)
{
    return n->note == f && n->mark == -1 && rides(f, n);
}

/* Into group `mark`, after those of its operands that have waited. */
static void put(struct fuse *f, struct group *group, int64_t mark, struct node *n)
{
    for (int i = 0; i < n->n_in; i++) {
        struct node *from = n->in[i].value ? n->in[i].value->node : NULL;
        if (from && waits(f, from)) put(f, group, mark, from);
    }
    n->mark = mark;
    PUSH(&group->node, n);
}

static void place(struct fuse *f, struct node *n)
{
    struct group *group = group_for(f, n);
    put(f, group, n->mark, n);
}

/* A reader takes its operands into its kernel if they walk as it does, are one number per row, or
 * it is a slice of them. */
static bool takes_along(const struct fuse *f, const struct node *reader, const struct node *n)
{
    struct walk x = walk_of(reader), y = walk_of(n);
    return joins(reader) && x.rows == y.rows &&
           (x.columns == y.columns || (y.columns == 1 && constant(n)) || is_sliced(&f->sliced, n));
}

/* Those that a reader cannot take along (another walk, a kernel of its own, after a view) get their
 * place before it. */
static void place_behind_view(struct fuse *f, const struct value *v)
{
    struct node *n = v ? v->node : NULL;
    for (; n && n->note == f && op_rows[n->op].class == CLASS_VIEW; n = n->in[0].value->node) {}
    if (n && waits(f, n)) place(f, n);
}

/* Nodes are looked at from those that must run: what walks rows is put as late as its first reader
 * lets it, so that a chain that a matrix product interrupts only by its position (silu(gate), then
 * up, then their product) is one kernel. */
static void wanted(struct fuse *f, struct node *n)
{
    if (n->note != f->body) return; /* of another body, or had already */
    n->note = f, n->mark = -1;
    for (int i = 0; i < n->n_in; i++) {
        const struct value *v = n->in[i].value;
        if (v && v->node) wanted(f, v->node);
    }
    if (floating(n) || rides(f, n)) return;
    for (int i = 0; i < n->n_in; i++) {
        struct node *from = n->in[i].value ? n->in[i].value->node : NULL;
        if (!from || !waits(f, from) || !takes_along(f, n, from))
            place_behind_view(f, n->in[i].value);
    }
    place(f, n);
}

/* All that still wait: no reader of this body takes them, so they are gradients or go on to others.
 */
static void place_all(struct fuse *f)
{
    for (int i = 0; i < f->body->node.n; i++)
        if (waits(f, f->body->node.item[i])) place(f, f->body->node.item[i]);
}

static void fuse_body(struct graph *g, const struct graph *from, struct region *r,
                      const struct body *old, struct body *now)
{
    struct fuse *f = TAKE(struct fuse); /* its address marks this body's nodes */
    *f = (struct fuse){.graph = g, .old = from, .body = old, .region = r};
    struct build b = {.graph = g, .region = r, .body = now};
    for (int i = 0; i < old->node.n; i++) old->node.item[i]->note = (void *)(uintptr_t)old;
    f->sliced = find_sliced(old);
    for (int i = 0; i < old->node.n; i++) {
        struct node *n = old->node.item[i];
        enum op_class class = op_rows[n->op].class;
        /* it waits for every gradient: all that is left comes before it */
        if (n->op == OP_reduce) break;
        if (class == CLASS_CORE || class == CLASS_EFFECT || class == CLASS_LANE) wanted(f, n);
    }
    /* sums over rows go where what they read is read anyway */
    for (int i = 0; i < old->node.n && old->node.item[i]->op != OP_reduce; i++)
        if (op_rows[old->node.item[i]->op].class != CLASS_COLUMN) wanted(f, old->node.item[i]);
    for (int i = 0; i < old->node.n; i++) {
        if (old->node.item[i]->op == OP_reduce) place_all(f);
        wanted(f, old->node.item[i]);
    }
    place_all(f);
    for (int k = 0; k < f->group.n; k++) {
        struct group *group = f->group.item[k];
        struct node *first = group->node.item[0];
        for (int i = 0; i < group->node.n; i++)
            for (int a = 0; a < group->node.item[i]->n_in; a++)
                emit_floating(&b, f, group->node.item[i]->in[a].value);
        struct kernel kernel = {0};
        if (op_rows[first->op].class != CLASS_LANE && first->op != OP_tap) {
            kernel = (struct kernel){.number = g->kernel.n + 1,
                                     .name = "",
                                     .rows = group->walk.rows,
                                     .columns = group->walk.columns};
            kernel_describe(&kernel, group->node.item, group->node.n);
            PUSH(&g->kernel, kernel);
        }
        for (int i = 0; i < group->node.n; i++)
            node_copy(&b, group->node.item[i])->kernel = kernel.number;
    }
    for (int i = 0; i < old->node.n; i++)
        for (int o = 0; o < old->node.item[i]->n_out; o++)
            emit_floating(&b, f, old->node.item[i]->out[o]);
    body_end(now, old);
}

struct graph *pass_fuse(const struct graph *old)
{
    struct graph *g = graph_begin(old, LEVEL_FUSE);
    count_readers(old);
    for (int i = 0; i < old->region.n; i++) {
        struct region *r = region_begin(g, old->region.item[i]);
        for (int k = 0; k < old->region.item[i]->body.n; k++)
            fuse_body(g, old, r, old->region.item[i]->body.item[k],
                      body_begin(r, old->region.item[i]->body.item[k]));
        region_end(g, r, old->region.item[i]);
    }
    kernels_name(g);
    values_name(g);
    return g;
}
