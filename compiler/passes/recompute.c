/* Needs: mirror bodies that name forward values freely.
 * Gives: a decision for each such value: kept (the mirror goes on naming it, and memory gives it
 *   one place per layer) or computed again in the mirror body, marked `again`, just before the
 *   first node that needs it.
 * Loses: nothing.
 *
 * The table of policies says what is kept. Every mode keeps carries (the input of a unit), routing
 * choices (a second top-k could decide a tie differently), and what is made once (setup). Mode none
 * also keeps the inputs and outputs of core ops; a map or row value costs only a read of its
 * operands in the kernel that needs it, so it is never kept. Mode selective keeps what
 * activation_checkpoint.save names: op kinds and values of the architecture. Mode full keeps
 * nothing else: tokens x hidden elements per layer. Recomputation is the same op on the same
 * operands, hence the same bits.
 *
 * A product's result that the mirror only needs for values that the forward pass stores as well (a
 * sum with a bias and its columns, which attention reads; a sum with the residual) is not kept, but
 * these values are, if they have no more bytes: then nothing is computed twice.
 *
 * Straight code (the head and its gradient) computes its elementwise values again too, where a
 * product lies between a value and its reader: a norm's F32 copy of its BF16 input is then not kept
 * over the logits. */
#include "ir/ir.h"
#include "passes/name.h"
#include "passes/pipeline.h"

#include <string.h>

enum kept { KEPT, AGAIN };

/* What a policy says of the outputs of core ops, of what products read, and whether the plan's list
 * adds to that. */
struct policy {
    enum checkpoint_mode mode;
    enum kept core_output, core_input;
    bool listed;
};
static const struct policy policies[] = {
    {CHECKPOINT_NONE, KEPT, KEPT, false},
    {CHECKPOINT_SELECTIVE, AGAIN, AGAIN, true},
    {CHECKPOINT_FULL, AGAIN, AGAIN, false},
};

static const struct policy *policy_of(enum checkpoint_mode mode)
{
    for (size_t i = 0; i < COUNT_OF(policies); i++)
        if (policies[i].mode == mode) return &policies[i];
    bug("no policy for activation_checkpoint.mode = %s", checkpoint_names[mode]);
}

static bool in_list(const char *list, const char *word, size_t n)
{
    for (const char *c = list; *c; c += strspn(c, " ")) {
        size_t length = strcspn(c, " ");
        if (length == n && !memcmp(c, word, n)) return true;
        c += length;
    }
    return false;
}

/* "#7": node 7 of its body, a choice of mode budget. */
static bool listed_by_number(const char *save, const struct region *home, const struct value *v)
{
    for (int k = 0; strchr(save, '#') && k < home->body.n; k++)
        for (int n = 0; n < home->body.item[k]->node.n; n++) {
            if (home->body.item[k]->node.item[n] != v->node) continue;
            const char *word = text_format("#%d", n);
            if (in_list(save, word, strlen(word))) return true;
        }
    return false;
}

/* Kinds: "routing" is the plan of which token goes to which expert; else the op's name; else the
 * name that the architecture gave the value (a name that is given again has a number after it
 * here). */
static bool listed(const char *save, const struct value *v)
{
    const char *op = op_rows[v->node->op].name;
    if (v->node->op == OP_route_plan && in_list(save, "routing", strlen("routing"))) return true;
    return in_list(save, op, strlen(op)) || save_lists_value(save, v);
}

bool save_lists_value(const char *save, const struct value *v)
{
    size_t n = strlen(v->name), stem = n;
    while (stem > 0 && v->name[stem - 1] >= '0' && v->name[stem - 1] <= '9') stem--;
    if (stem == n || stem < 2 || v->name[stem - 1] != '.') stem = n + 1;
    return in_list(save, v->name, stem - 1);
}

/* Products need their operands for the gradient; the other core ops do not. */
static bool keeps_operands(enum op op)
{
    return op == OP_matmul || op == OP_attention || op == OP_expert_matmul;
}

/* Moves rows about by an index that is kept: cheaper to do again than to keep. */
static bool moves_rows(enum op op)
{
    return op == OP_dispatch || op == OP_collect || op == OP_to_rows || op == OP_from_rows;
}

/* Bits of value->mark of the old graph. READ: a product or attention reads it, through views too.
 * INSTEAD: kept in the place of a product's result. Others: for the functions that set them. */
enum { READ = 1, INSTEAD = 2, FROM = 4, SAME = 8, MADE = 16, BEHIND = 32 };

static void mark_core_inputs(const struct graph *g)
{
    for (int i = 0; i < g->region.n; i++)
        for (int k = 0; k < g->region.item[i]->body.n; k++) {
            struct body *b = g->region.item[i]->body.item[k];
            for (int n = 0; n < b->node.n; n++)
                for (int o = 0; o < b->node.item[n]->n_out; o++) b->node.item[n]->out[o]->mark = 0;
            for (int n = b->node.n - 1; n >= 0; n--) {
                struct node *node = b->node.item[n];
                bool core = keeps_operands(node->op);
                bool view = op_rows[node->op].class == CLASS_VIEW && node->out[0]->mark;
                for (int o = 0; o < node->n_in; o++)
                    if (node->in[o].value && (core || view)) node->in[o].value->mark = READ;
            }
        }
}

/* node->note of the old graph: its region. What a mirror body has made again. */
struct made {
    const struct value *old;
    struct value *now;
    int64_t products; /* before the reader that it was made for */
};
struct made_list {
    VECTOR(struct made) item;
};

/* A map or row value may be made twice: early, for a norm that products read or a product that is
 * computed again, and late, for the gradient. Both read the same operands; one value for both would
 * have to be kept between them, in F32 where a norm computes in F32. What products read and is no
 * norm (SwiGLU) has its gradient in the same kernel; so has the norm of a kept value that one
 * product reads: its gradient is known before that of the product's weight. */
struct again {
    struct made_list early, late;
    const struct policy *policy;
    const char *save;
    const struct region *region;
    struct build *build;
    int64_t products; /* of the body, before the node at hand */
};

static enum kept decide(const struct again *a, const struct value *v, const struct region *home)
{
    const struct node *n = v->node;
    enum op_class class = op_rows[n->op].class;
    if (home->phase == PHASE_SETUP) return KEPT;
    /* made once per micro-batch: only what costs nothing to make again is */
    if (home->direction == ONCE) {
        return class == CLASS_VIEW || class == CLASS_LEAF ? AGAIN : KEPT;
    }
    if (n->op == OP_top_k || v->mark & INSTEAD) return KEPT;
    if (moves_rows(n->op)) return AGAIN;
    /* names choose among what mode none would keep: not every step of an expression is a value that
     * anybody reads back */
    bool worth = class == CLASS_CORE || v->mark & READ;
    if (a->policy->listed && worth && listed(a->save, v)) return KEPT;
    if (a->policy->listed && listed_by_number(a->save, home, v)) return KEPT;
    if (class == CLASS_CORE) return a->policy->core_output;
    if (class == CLASS_VIEW || class == CLASS_LEAF) return AGAIN;
    return v->mark & READ ? a->policy->core_input : AGAIN;
}

/* ── in the place of a product's result ──────────────────────────────────────── */
/* What a mirror body needs of its forward region: kept, or computed again. */
struct need {
    const struct again *again;
    const struct region *home;
    VECTOR(const struct value *) value;
};

static bool needs(const struct need *need, const struct value *v)
{
    for (int i = 0; i < need->value.n; i++)
        if (need->value.item[i] == v) return true;
    return false;
}

static void add_need(struct need *need, const struct value *v)
{
    const struct node *n = v ? v->node : NULL;
    if (!n || n->note != need->home || needs(need, v)) return;
    PUSH(&need->value, v);
    if (decide(need->again, v, need->home) == KEPT) return;
    for (int i = 0; i < n->n_in; i++) add_need(need, n->in[i].value);
}

static struct need needs_of(const struct again *a, const struct region *home,
                            const struct body *mirror)
{
    struct need need = {.again = a, .home = home};
    for (int i = 0; i < mirror->node.n; i++)
        for (int o = 0; o < mirror->node.item[i]->n_in; o++)
            add_need(&need, mirror->node.item[i]->in[o].value);
    return need;
}

/* Whether the forward pass stores `v` whatever is kept: a product reads it, or a node that comes
 * after a product made of it. Reading BF16 as F32 is no value of its own. */
static bool is_stored(const struct body *b, struct value *v)
{
    bool stored = v->mark & READ;
    v->mark |= SAME;
    for (int i = 0; i < b->node.n; i++) {
        const struct node *n = b->node.item[i];
        int64_t marks = 0;
        for (int o = 0; o < n->n_in; o++)
            if (n->in[o].value) marks |= n->in[o].value->mark & (SAME | MADE | BEHIND);
        if (!marks) continue;
        stored |= marks & SAME && marks & BEHIND;
        const enum op_class class = op_rows[n->op].class;
        const bool same = class == CLASS_VIEW || (n->op == OP_cast && n->out[0]->type == F32);
        if (!same || marks != SAME) marks = MADE | (marks & BEHIND);
        if (class == CLASS_CORE) marks |= BEHIND;
        for (int o = 0; o < n->n_out; o++) n->out[o]->mark |= marks;
    }
    for (int i = 0; i < b->node.n; i++)
        for (int o = 0; o < b->node.item[i]->n_out; o++)
            b->node.item[i]->out[o]->mark &= ~(int64_t)(SAME | MADE | BEHIND);
    return stored;
}

static int64_t bytes_of(const struct value *v)
{
    return shape_count(v->shape) * element_bytes(v->type);
}

/* Marks what is kept in the place of `product`, if that is possible. */
static void keep_instead(const struct again *a, const struct region *home, const struct body *body,
                         const struct body *mirror, struct value *product)
{
    const struct need before = needs_of(a, home, mirror);
    VECTOR(struct value *) instead = {0};
    if (product->mark & READ || !needs(&before, product) || decide(a, product, home) == AGAIN)
        return;
    product->mark |= FROM;
    for (int i = 0; i < body->node.n; i++) {
        const struct node *n = body->node.item[i];
        const enum op_class class = op_rows[n->op].class;
        bool from = false;
        for (int o = 0; o < n->n_in; o++) from |= n->in[o].value && n->in[o].value->mark & FROM;
        if (!from || (class != CLASS_MAP && class != CLASS_INDEX && class != CLASS_VIEW)) continue;
        if (class != CLASS_VIEW && is_stored(body, n->out[0]))
            PUSH(&instead, n->out[0]);
        else
            n->out[0]->mark |= FROM;
    }
    for (int i = 0; i < body->node.n; i++)
        for (int o = 0; o < body->node.item[i]->n_out; o++)
            body->node.item[i]->out[o]->mark &= ~(int64_t)FROM;
    int64_t bytes = 0;
    for (int i = 0; i < instead.n; i++) {
        if (!needs(&before, instead.item[i]) || decide(a, instead.item[i], home) == KEPT) continue;
        bytes += bytes_of(instead.item[i]);
        instead.item[i]->mark |= INSTEAD | FROM;
    }
    const struct need behind = needs_of(a, home, mirror);
    const bool better = !needs(&behind, product) && bytes <= bytes_of(product);
    for (int i = 0; i < instead.n; i++) {
        if (instead.item[i]->mark & FROM && !better) instead.item[i]->mark &= ~(int64_t)INSTEAD;
        instead.item[i]->mark &= ~(int64_t)FROM;
    }
}

/* For the products of the forward body of `mirror`. */
static void keep_others(const struct graph *g, const struct again *a, const struct body *mirror)
{
    for (int i = 0; i < g->region.n && a->region->mirror; i++) {
        const struct region *home = g->region.item[i];
        if (strcmp(home->name, a->region->mirror)) continue;
        for (int k = 0; k < home->body.n; k++) {
            const struct body *body = home->body.item[k];
            if (strcmp(body->name, mirror->name)) continue;
            for (int n = 0; n < body->node.n; n++)
                if (op_is_product(body->node.item[n]->op))
                    keep_instead(a, home, body, mirror, body->node.item[n]->out[0]);
        }
    }
}

/* `products`: made behind so many of them; -1: anywhere. */
static struct value *found(const struct made_list *list, const struct value *old, int64_t products)
{
    for (int i = 0; i < list->item.n; i++)
        if (list->item.item[i].old == old &&
            (products < 0 || list->item.item[i].products == products))
            return list->item.item[i].now;
    return NULL;
}

/* What a product wrote or reads has bytes of its own as soon as it is made. */
static bool has_bytes(const struct value *old)
{
    return op_rows[old->node->op].class == CLASS_CORE || old->mark & READ;
}

/* Made of sums over its rows, whose gradient waits for all products that read it. */
static bool is_norm(const struct value *v)
{
    const struct node *n = v->node;
    if (!n) return false;
    enum op_class class = op_rows[n->op].class;
    if (class == CLASS_ROW && n->op != OP_pick) return true;
    if (class != CLASS_MAP && class != CLASS_INDEX && class != CLASS_VIEW) return false;
    for (int i = 0; i < n->n_in; i++)
        if (n->in[i].value && is_norm(n->in[i].value)) return true;
    return false;
}

/* Whether one product reads `v` and nothing else does, through views too. */
static bool one_product_reads(const struct region *home, const struct value *v)
{
    int products = 0;
    for (struct node_walk at = {0}; next_node_of_region(home, &at);)
        for (int i = 0; i < at.node->n_in; i++) {
            if (at.node->in[i].value != v) continue;
            if (op_rows[at.node->op].class == CLASS_VIEW)
                products += one_product_reads(home, at.node->out[0]) ? 1 : 2;
            else
                products += at.node->op == OP_matmul ? 1 : 2;
        }
    return products == 1;
}

/* Kept values of as many elements that `v` is made of; a number a row is none. */
static int kept_sources(const struct again *a, const struct region *home, const struct value *v,
                        int64_t count)
{
    const struct node *n = v->node;
    if (shape_count(v->shape) != count) return 0;
    if (!n || n->note != home || decide(a, v, home) == KEPT) return 1;
    int all = 0;
    for (int i = 0; i < n->n_in; i++)
        if (n->in[i].value) all += kept_sources(a, home, n->in[i].value, count);
    return all;
}

/* Values of as many elements that the elementwise value `v` is made of in the end, and in *bytes
 * the size of an element of the last of them; more than 1 as soon as it is not known to be one. */
static int sources(const struct value *v, int64_t count, int64_t *bytes)
{
    const struct node *n = v->node;
    if (shape_count(v->shape) != count) return 0; /* a number a row or column is kept */
    if (!n || has_bytes(v) || op_rows[n->op].class != CLASS_MAP)
        return *bytes = element_bytes(v->type), 1;
    int all = 0;
    for (int i = 0; i < n->n_in; i++)
        if (n->in[i].value && (i == 0 || n->in[i].value != n->in[0].value))
            all += sources(n->in[i].value, count, bytes);
    return all;
}

/* Straight code that reads an elementwise value behind a product, or in another region than the one
 * that makes it: made again from one value that is no larger. */
static bool once_again(const struct again *a, const struct value *v, const struct region *home)
{
    int64_t bytes = 0;
    if (a->region->direction != ONCE || home->direction != ONCE || home->phase != PHASE_MICRO ||
        op_rows[v->node->op].class != CLASS_MAP || has_bytes(v) || shape_columns(v->shape) < 2)
        return false;
    if (home == a->region && v->node->mark == a->products) return false;
    return sources(v, shape_count(v->shape), &bytes) == 1 && bytes <= element_bytes(v->type);
}

/* `early`: a core op that is computed again asks, else the gradient does. */
static struct value *get(struct again *a, bool early, const struct value *old)
{
    /* inputs, weights, carries */
    if (!old->node) return copied(old);
    const struct region *home = old->node->note;
    bool once = once_again(a, old, home);
    if (home == a->region && !once) return copied(old);
    bool mirrored = a->region->mirror && !strcmp(a->region->mirror, home->name);
    if (!once && ((home->direction != ONCE && !mirrored) || decide(a, old, home) == KEPT))
        return copied(old);
    struct node *n = old->node;
    /* the weights of experts: wanted before their products, and their gradient behind these */
    if ((op_rows[n->op].class == CLASS_CORE && (!moves_rows(n->op) || n->op == OP_to_rows)) ||
        (old->mark & READ && is_norm(old) &&
         !(one_product_reads(home, old) &&
           kept_sources(a, home, old, shape_count(old->shape)) == 1)))
        early = true;
    struct value *known = early || has_bytes(old) ? found(&a->early, old, -1) : NULL;
    if (!known && !early) known = found(&a->late, old, once ? a->products : -1);
    if (known) return known;
    struct operand in[8];
    if (n->n_in > (int)COUNT_OF(in)) bug("%s has %d operands", op_rows[n->op].name, n->n_in);
    for (int i = 0; i < n->n_in; i++)
        in[i] = n->in[i].value ? by(get(a, early, n->in[i].value)) : n->in[i];
    struct build b = *a->build;
    const char *why = NULL;
    b.file = n->file, b.line = n->line,
    b.again = op_rows[n->op].class != CLASS_LEAF && op_rows[n->op].class != CLASS_VIEW;
    b.base = old->name;
    struct node *now = build_node(&b, n->op, in, n->n_in, n->attr, n->n_attr, &why);
    if (!now) bug("%s again: %s", op_rows[n->op].name, why);
    struct value *result = NULL;
    for (int o = 0; o < n->n_out; o++) {
        if (early)
            PUSH(&a->early.item, ((struct made){n->out[o], now->out[o], a->products}));
        else
            PUSH(&a->late.item, ((struct made){n->out[o], now->out[o], a->products}));
        if (n->out[o] == old) result = now->out[o];
    }
    return result;
}

struct graph *pass_recompute(const struct graph *old)
{
    struct graph *g = graph_begin(old, LEVEL_RECOMPUTE);
    mark_core_inputs(old);
    for (int i = 0; i < old->region.n; i++)
        for (int k = 0; k < old->region.item[i]->body.n; k++)
            for (int n = 0, products = 0; n < old->region.item[i]->body.item[k]->node.n; n++) {
                struct node *node = old->region.item[i]->body.item[k]->node.item[n];
                node->note = old->region.item[i], node->mark = products;
                products += op_rows[node->op].class == CLASS_CORE;
            }
    for (int i = 0; i < old->region.n; i++) {
        const struct region *from = old->region.item[i];
        if (from->phase != PHASE_MICRO) {
            region_copy(g, from);
            continue;
        }
        struct region *r = region_begin(g, from);
        for (int k = 0; k < from->body.n; k++) {
            struct body *body = body_begin(r, from->body.item[k]);
            struct build b = {.graph = g, .region = r, .body = body};
            struct again a = {.policy = policy_of(from->body.item[k]->keep),
                              .save = from->body.item[k]->save,
                              .region = from,
                              .build = &b};
            keep_others(old, &a, from->body.item[k]);
            for (int n = 0; n < from->body.item[k]->node.n; n++) {
                const struct node *node = from->body.item[k]->node.item[n];
                struct operand in[8];
                a.products = node->mark;
                struct node changed = *node;
                if (node->n_in > (int)COUNT_OF(in))
                    bug("%s has %d operands", op_rows[node->op].name, node->n_in);
                for (int o = 0; o < node->n_in; o++) {
                    in[o] = node->in[o];
                    if (!in[o].value) continue;
                    struct value *now = get(&a, false, in[o].value), *stand_in = TAKE(struct value);
                    *stand_in = *in[o].value;
                    copied_as(stand_in, now);
                    in[o].value = stand_in;
                }
                changed.in = in;
                node_copy(&b, &changed);
            }
            body_end(body, from->body.item[k]);
        }
        region_end(g, r, from);
    }
    graph_sweep(g);
    return g;
}
