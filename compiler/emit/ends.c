/* What a fused kernel must do, and when: a list of ends (values to store; rows, columns or
 * everything to sum; effects). Ends are divided into phases (after a sum over rows, the rows are
 * walked again) and, inside a row, into stages (after a sum over the columns of a row, the columns
 * are walked again). The loops of every device follow this list. */
#include "emit/fused.h"

static bool reduces_row(const struct node *n)
{
    return op_rows[n->op].class == CLASS_ROW && n->op != OP_pick;
}

/* ── when ────────────────────────────────────────────────────────────────────── */
static struct timing timing_of(const struct ends *p, const struct value *v)
{
    const struct value *root = emit_root(v);
    for (int i = 0; i < p->timing.n; i++)
        if (p->timing.item[i].value == root) return p->timing.item[i];
    return (struct timing){.value = root};
}

static struct timing later(struct timing a, struct timing b)
{
    return a.phase != b.phase ? (a.phase > b.phase ? a : b) : a.stage > b.stage ? a : b;
}

/* After its operands. A row's sum that is read from rows of another count must be complete for all
 * rows. */
static struct timing behind_operands(struct fused *f, const struct ends *p, const struct node *n,
                                     const struct value *space)
{
    struct timing t = {0};
    int64_t rows, columns, mine, width;
    fused_extent(f, space, &rows, &columns);
    for (int i = 0; i < n->n_in; i++) {
        if (!n->in[i].value || !fused_inside(f, n->in[i].value)) continue;
        struct timing o = timing_of(p, n->in[i].value);
        fused_extent(f, emit_root(n->in[i].value), &mine, &width);
        if (o.stage && mine != rows) o = (struct timing){.phase = o.phase + 1};
        t = later(t, o);
    }
    return t;
}

static void end_add(struct fused *f, struct ends *p, struct end e, struct timing t)
{
    fused_extent(f, e.shape, &e.rows, &e.columns);
    e.phase = t.phase;
    e.stage = t.stage;
    if (e.phase >= p->phases) p->phases = e.phase + 1;
    PUSH(&p->end, e);
}

static void plan_node(struct fused *f, struct ends *p, struct node *n)
{
    enum op_class class = op_rows[n->op].class;
    const struct value *y = n->n_out ? n->out[0] : NULL, *a = n->n_in ? n->in[0].value : NULL;
    bool reduction = reduces_row(n) || class == CLASS_COLUMN || class == CLASS_TOTAL;
    /* halves of a row are walked together, each stored in its place */
    bool halves = n->op == OP_beside;
    const struct value *space = reduction || !y ? (n->op == OP_assign ? n->in[0].value : a)
                                : halves        ? a
                                                : y;
    struct timing t = {0};
    if (space) t = behind_operands(f, p, n, space);
    struct end e = {.node = n,
                    .of = n->n_in ? n->in[0] : (struct operand){0},
                    .shape = space,
                    .like = a ? a->type : F32};
    switch (class) {
    case CLASS_ROW:
        if (n->op == OP_pick) break;
        e.kind = n->op == OP_top_k ? END_TOP : END_ROW;
        end_add(f, p, e, t);
        t.stage++;
        if (n->op == OP_top_k) {
            PUSH(&p->timing, ((struct timing){y, t.phase, t.stage}));
            return;
        }
        break;
    case CLASS_COLUMN:
    case CLASS_TOTAL:
        e.kind = class == CLASS_COLUMN ? END_COLUMN : END_TOTAL;
        end_add(f, p, e, t);
        t = (struct timing){.phase = t.phase + 1};
        if (class == CLASS_COLUMN) { /* accumulated where it is stored */
            PUSH(&p->timing, ((struct timing){y, t.phase, 0}));
            return;
        }
        break;
    case CLASS_EFFECT:
        if (n->op == OP_tap) return;
        e.kind = n->op == OP_metric ? END_METRIC : n->op == OP_assign ? END_ASSIGN : END_SCALAR;
        if (n->op == OP_assign) e.of = n->in[1], e.like = F32;
        if (!e.shape) { /* a number */
            e.rows = e.columns = 1;
            PUSH(&p->end, e);
            p->phases = p->phases ? p->phases : 1;
            return;
        }
        end_add(f, p, e, t);
        return;
    case CLASS_MAP:
    case CLASS_INDEX: break;
    case CLASS_VIEW:
    case CLASS_LEAF: return;
    case CLASS_CORE:
    case CLASS_LANE: bug("%s in a fused kernel", op_rows[n->op].name);
    }
    PUSH(&p->timing, ((struct timing){y, t.phase, t.stage}));
    if (f->cuda && class == CLASS_TOTAL) return; /* the loop that completes it stores it */
    for (int i = 0; i < 2 && halves && emit_stored(f->e, y); i++)
        end_add(f, p,
                (struct end){.kind = END_STORE,
                             .node = n,
                             .of = n->in[i],
                             .shape = a,
                             .like = y->type,
                             .column = i * shape_columns(a->shape)},
                t);
    if (emit_stored(f->e, y) && !halves)
        end_add(f, p,
                (struct end){
                    .kind = END_STORE, .node = n, .of = by(n->out[0]), .shape = y, .like = y->type},
                t);
}

/* Whether every value that `v` needs in the kernel has `count` elements or one: then its rows need
 * not be distinguished. */
static bool is_flat(const struct fused *f, const struct value *v, int64_t count)
{
    const struct value *root = emit_root(v);
    if (shape_count(v->shape) != count) return shape_count(v->shape) == 1;
    if (!fused_inside(f, v)) return true;
    enum op_class class = op_rows[root->node->op].class;
    return class == CLASS_MAP;
}

static bool kernel_is_flat(const struct fused *f)
{
    int64_t count = 0;
    for (int i = 0; i < f->k->node.n; i++) {
        const struct node *n = f->k->node.item[i];
        enum op_class class = op_rows[n->op].class;
        if (class == CLASS_VIEW || class == CLASS_LEAF || n->op == OP_tap) continue;
        if (class == CLASS_TOTAL || class == CLASS_EFFECT) {
            if (class == CLASS_TOTAL && count && shape_count(n->in[0].value->shape) != count)
                return false;
            for (int o = 0; o < n->n_in; o++)
                if (n->in[o].value && shape_count(n->in[o].value->shape) > 1) {
                    if (!count) count = shape_count(n->in[o].value->shape);
                    if (shape_count(n->in[o].value->shape) != count) return false;
                }
            continue;
        }
        if (class != CLASS_MAP) return false;
        int64_t mine = shape_count(n->out[0]->shape);
        if (mine == 1) continue;
        if (!count) count = mine;
        if (mine != count) return false;
        for (int o = 0; o < n->n_in; o++)
            if (n->in[o].value && !is_flat(f, n->in[o].value, count)) return false;
    }
    return true;
}

bool fused_ends(struct fused *f, struct ends *p)
{
    bool assigns = false, other = false, total = false;
    f->flat = kernel_is_flat(f);
    for (int i = 0; i < f->k->node.n; i++)
        total |= op_rows[f->k->node.item[i]->op].class == CLASS_TOTAL;
    if (f->cuda && total) f->flat = false; /* the order of a total there is by rows */
    for (int i = 0; i < f->k->node.n; i++) plan_node(f, p, f->k->node.item[i]);
    for (int i = 0; i < p->end.n; i++)
        p->end.item[i].kind == END_ASSIGN ? (assigns = true) : (other = true);
    if (assigns && other) bug("kernel %s assigns state and does other things", f->k->kernel->name);
    return assigns;
}

void fused_groups(struct fused *f, struct ends *p, int phase,
                  void (*group)(struct fused *f, struct end **end, int n))
{
    VECTOR(struct end *) now = {0};
    for (int i = 0; i < p->end.n; i++)
        if (p->end.item[i].phase == phase) PUSH(&now, &p->end.item[i]);
    for (int i = 0; i < now.n; i++) {
        if (!now.item[i]) continue;
        VECTOR(struct end *) same = {0};
        int64_t rows = now.item[i]->rows;
        for (int j = i; j < now.n; j++)
            if (now.item[j] && now.item[j]->rows == rows) {
                PUSH(&same, now.item[j]);
                now.item[j] = NULL;
            }
        group(f, same.item, same.n);
    }
}

/* ── where an end leaves what it made ────────────────────────────────────────── */
const char *fused_result(const struct fused *f, const struct end *e)
{
    return fused_argument(f, ARGUMENT_OUT, e->node->out[0], NULL);
}

const char *fused_choices(struct fused *f, const struct end *e)
{
    const struct value *ids = e->node->out[0];
    if (emit_stored(f->e, ids))
        return text_format("&%s[%s * %ld]", fused_result(f, e), f->one_row ? "0" : "r",
                           shape_columns(ids->shape));
    const char *array = fused_name(f, LEVEL_ROW, ids->name, "");
    fused_line(f, LEVEL_ROW, "int32_t %s[%ld];", array, shape_columns(ids->shape));
    PUSH(&f->chosen, ((struct chosen){ids, array}));
    return array;
}

struct spot fused_stored_at(const struct end *e, struct spot at)
{
    at.offset += e->column;
    return at;
}

const char *fused_target(const struct fused *f, const struct end *e, struct spot at)
{
    struct text t = {0};
    switch (e->kind) {
    case END_STORE:
        return text_format("%s[%s]", fused_result(f, e),
                           fused_index(f, e->node->out[0], fused_stored_at(e, at)));
    case END_METRIC:
        return text_format("%s[%s]",
                           fused_argument(f, ARGUMENT_METRIC, NULL, attr_get_word(e->node, "name")),
                           e->shape ? fused_index(f, e->shape, at) : "0");
    case END_ASSIGN:
        return text_format(
            "%s[%s]",
            fused_argument(f, ARGUMENT_STATE, NULL,
                           attr_get_word(emit_root(e->node->in[0].value)->node, "name")),
            fused_index(f, e->shape, at));
    case END_SCALAR:
        text_add(&t, "%s[SCALAR_", fused_argument(f, ARGUMENT_SCALARS, NULL, NULL));
        for (const char *c = attr_get_word(e->node, "name"); *c; c++)
            text_add(&t, "%c", *c >= 'a' && *c <= 'z' ? *c - 'a' + 'A' : *c);
        text_add(&t, "]");
        return t.bytes;
    case END_ROW:
    case END_TOP:
    case END_COLUMN:
    case END_TOTAL: break;
    }
    bug("an end of kind %d has no place", (int)e->kind);
}

void fused_pieces(struct fused *f, int64_t columns, void (*piece)(struct fused *f, const void *of),
                  const void *of)
{
    for (f->low = 0; f->low < columns; f->low = f->high) {
        f->high = columns;
        for (;;) {
            struct {
                size_t length;
                int known, name;
            } before[LEVELS];
            for (int l = 0; l < LEVELS; l++)
                before[l].length = f->block[l].text.length, before[l].known = f->block[l].known.n,
                before[l].name = f->block[l].name.n;
            int counter = f->counter;
            f->split = 0;
            piece(f, of);
            if (!f->split) break;
            for (int l = 0; l < LEVELS; l++) {
                struct block *b = &f->block[l];
                b->text.length = before[l].length, b->known.n = before[l].known,
                b->name.n = before[l].name;
                if (b->text.bytes) b->text.bytes[b->text.length] = 0;
            }
            f->counter = counter;
            f->high = f->split;
        }
    }
}
