/* One element of one value as C: a variable if the kernel computes it, a load if it comes from
 * outside, a literal if it is a number. Broadcasting, views and index ops become places (spot.c),
 * so the remaining text is plain arithmetic on arrays, which the C compiler vectorises. Every
 * variable is rounded to the type of its IR value, stored or not; so fused and unfused kernels
 * agree to the last bit. */
#include "emit/fused.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

/* ── scopes ──────────────────────────────────────────────────────────────────── */
struct block *fused_block(struct fused *f, int level)
{
    return &f->block[f->one_row && level == LEVEL_ROW ? LEVEL_KERNEL : level];
}

void fused_line(struct fused *f, int level, const char *format, ...)
{
    struct block *s = fused_block(f, level);
    va_list args;
    va_start(args, format);
    text_add(&s->text, "%*s%s\n", s->indent, "", text_vformat(format, args));
    va_end(args);
}

const char *fused_name(struct fused *f, int level, const char *stem, const char *ending)
{
    if (f->canonical) return intern_format("v%d%s", f->counter++, ending);
    const char *name = intern_format("%s%s", emit_identifier(stem), ending);
    for (bool fresh = false; !fresh;) {
        fresh = true;
        for (int i = 0; i < f->n_argument && fresh; i++)
            fresh = emit_argument_name(&f->argument[i], i, false) != name;
        for (int l = 0; l < LEVELS && fresh; l++)
            for (int i = 0; i < f->block[l].name.n && fresh; i++)
                fresh = f->block[l].name.item[i] != name;
        if (!fresh) name = intern_format("%s_", name);
    }
    PUSH(&fused_block(f, level)->name, name);
    return name;
}

void fused_know(struct fused *f, int level, const struct value *v, struct spot at, const char *name)
{
    PUSH(&fused_block(f, level)->known,
         ((struct written){v, intern(at.row), spot_column_text(at), name}));
}

const char *fused_known(const struct fused *f, const struct value *v, struct spot at)
{
    const char *row = intern(at.row), *column = spot_column_text(at);
    for (int l = 0; l < LEVELS; l++)
        for (int i = 0; i < f->block[l].known.n; i++) {
            const struct written *w = &f->block[l].known.item[i];
            if (w->value == v && w->row == row && w->column == column) return w->name;
        }
    return NULL;
}

void fused_store(struct fused *f, const char *array, const char *index, const char *x,
                 const char *comment)
{
    if (f->k->replaced.n)
        text_add(&f->behind, "%*s%s[%s] = %s;%s\n", f->block[LEVEL_COLUMN].indent, "", array, index,
                 x, comment);
    else
        fused_line(f, LEVEL_COLUMN, "%s[%s] = %s;%s", array, index, x, comment);
}

void fused_stored(struct fused *f)
{
    if (f->behind.length) text_add(&f->block[LEVEL_COLUMN].text, "%s", f->behind.bytes);
    f->behind.length = 0;
}

/* The op's C of one element, with the names a, b, c and `ignore` replaced. */
static const char *filled_in(const struct node *n, const char *const *operand)
{
    struct text t = {0};
    if (attr_find(n, "accuracy"))
        return text_format("op_%s_%s(%s)", op_rows[n->op].name, attr_get_word(n, "accuracy"),
                           operand[0]);
    for (const char *c = op_rows[n->op].expression; *c;) {
        size_t length = 0;
        while (isalnum((unsigned char)c[length]) || c[length] == '_') length++;
        if (length == 1 && *c >= 'a' && *c <= 'c')
            text_add(&t, "%s", operand[*c - 'a']);
        else if (length == 6 && !strncmp(c, "ignore", 6))
            text_add(&t, "%ld", attr_get(n, "ignore"));
        else
            text_add_bytes(&t, c, length ? length : 1);
        c += length ? length : 1;
    }
    return t.bytes;
}

/* ── values ──────────────────────────────────────────────────────────────────── */
const char *fused_argument(const struct fused *f, enum argument_kind kind, const struct value *v,
                           const char *name)
{
    for (int i = 0; i < f->n_argument; i++) {
        const struct argument *a = &f->argument[i];
        bool value = a->kind == ARGUMENT_IN || a->kind == ARGUMENT_OUT;
        if (a->kind == kind &&
            (value ? a->value == v : a->name == name || kind == ARGUMENT_SCALARS))
            return emit_argument_name(a, i, f->canonical);
        if (kind == ARGUMENT_IN && a->kind == ARGUMENT_OUT && a->over == v)
            return emit_argument_name(a, i, f->canonical);
    }
    bug("kernel %s has no argument %s", f->k->kernel->name, v ? v->name : name ? name : "scalars");
}

static const char *load(struct fused *f, const char *pointer, const struct value *v, struct spot at)
{
    const char *special = f->load ? f->load(f, pointer, v, at) : NULL;
    if (special) return special;
    const char *place = text_format("%s[%s]", pointer, fused_index(f, v, at));
    return v->type == BF16 ? text_format("op_from_bf16(%s)", place) : place;
}

const char *fused_many_opening(const struct fused *f)
{
    const int indent = f->block[LEVEL_COLUMN].indent;
    return text_format("%*sOP_EACH(k) {\n%*sconst int64_t j = j0 + k;\n", indent - 4, "", indent,
                       "");
}

/* Ends the loop over OP_MANY columns, does something with all of them, begins the next. */
static void between_loops(struct fused *f, const char *line)
{
    struct text *t = &f->block[LEVEL_COLUMN].text;
    const char *opening = fused_many_opening(f);
    const size_t n = strlen(opening);
    const int indent = f->block[LEVEL_COLUMN].indent - 4;
    if (t->length >= n && !memcmp(t->bytes + t->length - n, opening, n))
        t->length -= n; /* nothing in it yet */
    else
        text_add(t, "%*s}\n", indent, "");
    text_add(t, "%*s%s\n%s", indent, "", line, opening);
}

/* In a loop over OP_MANY columns; `many`: the function that makes the value of its operand. */
static const char *declare_many(struct fused *f, const struct value *v, struct spot at,
                                const char *expression, const char *many)
{
    const char *array = fused_name(f, LEVEL_TOGETHER, v->name, "");
    fused_line(f, LEVEL_TOGETHER, "float %s[OP_MANY];", array);
    fused_line(f, LEVEL_COLUMN, "%s[k] = %s;", array, expression);
    if (many) between_loops(f, text_format("%s(%s);", many, array));
    const char *name = intern_format("%s[k]", array);
    if (v->type == BF16) {
        const char *half = fused_name(f, LEVEL_TOGETHER, v->name, "_half");
        fused_line(f, LEVEL_TOGETHER, "bf16 %s[OP_MANY];", half);
        between_loops(f, text_format("op_round_many(%s, %s);", array, half));
        PUSH(&f->rounded, ((struct rounded){name, half}));
    }
    fused_know(f, LEVEL_COLUMN, v, at, name);
    return name;
}

const char *fused_declare(struct fused *f, const struct value *v, struct spot at,
                          const char *expression)
{
    int level = spot_level(at);
    if (f->many && level == LEVEL_COLUMN) return declare_many(f, v, at, expression, NULL);
    const char *name = fused_name(f, level, v->name, "");
    if (f->blocks && v->type == BF16 && level == LEVEL_COLUMN) {
        const char *exact = fused_name(f, level, v->name, "_exact");
        fused_line(f, level, "const float %s = %s;", exact, expression);
        PUSH(&f->rounded, ((struct rounded){name, exact}));
        expression = exact;
    }
    fused_line(f, level, v->type == BF16 ? "const %s %s = op_round_bf16(%s);" : "const %s %s = %s;",
               c_type(v->type, false), name, expression);
    fused_know(f, level, v, at, name);
    return name;
}

/* C of one element: a variable, a literal or a load. */
static const char *element(struct fused *f, const struct value *v, struct spot at);

const char *fused_operand(struct fused *f, const struct operand *o, enum element like,
                          struct spot at)
{
    return o->value ? element(f, o->value, at) : c_number(o->number, like);
}

static const char *leaf(struct fused *f, const struct value *v, struct spot at)
{
    const struct node *n = v->node;
    struct text t = {0};
    switch ((enum leaf_op)n->op) {
    case LEAF_OP_zeros:
        return c_number(attr_find(n, "value") ? attr_get_real(n, "value") : 0, v->type);
    case LEAF_OP_scalar:
        text_add(&t, "%s[SCALAR_", fused_argument(f, ARGUMENT_SCALARS, NULL, NULL));
        for (const char *c = attr_get_word(n, "name"); *c; c++)
            text_add(&t, "%c", toupper((unsigned char)*c));
        text_add(&t, "]");
        return t.bytes;
    case LEAF_OP_decay: return f->cuda ? "decay" : "(float)s->decay";
    case LEAF_OP_lr_scale: return f->cuda ? "lr_scale" : "(float)s->lr_scale";
    case LEAF_OP_balance_mean: return f->cuda ? "balance_mean" : "(float)s->balance_mean";
    case LEAF_OP_balance_rate: return f->cuda ? "balance_rate" : "(float)s->balance_rate";
    case LEAF_OP_metric_sum:
        return text_format("%s[0]",
                           fused_argument(f, ARGUMENT_METRIC, NULL, attr_get_word(n, "name")));
    /* a variable: it is the old value even after the assignment of a new one */
    case LEAF_OP_state: {
        const char *name = fused_known(f, v, at);
        return name ? name
                    : fused_declare(
                          f, v, at,
                          load(f, fused_argument(f, ARGUMENT_STATE, NULL, attr_get_word(n, "name")),
                               v, at));
    }
    }
    bug("leaf %s", op_rows[n->op].name);
}

/* A column that is only known when the kernel runs, held inside the row. */
static const char *picked(struct fused *f, const struct node *n, struct spot at)
{
    const struct value *a = n->in[0].value, *ids = n->in[1].value, *y = n->out[0];
    int64_t rows, columns;
    fused_extent(f, a, &rows, &columns);
    struct spot row = spot_at_column(at, 0);
    const char *id = element(f, ids, spot_reshaped(f, y, ids, row));
    int level = row.row_level;
    const char *where = fused_name(f, level, y->name, "_at");
    fused_line(f, level, "const int64_t %s = %s >= 0 && %s < %ld ? %s : 0;", where, id, id, columns,
               id);
    const char *x = element(f, a, spot_settled(f, a, spot_named(row, where, level)));
    return fused_declare(f, y, row,
                         text_format("%s == %s ? %s : %s", id, where, x, c_number(0, y->type)));
}

static const char *indexed(struct fused *f, const struct node *n, struct spot at)
{
    const struct value *a = n->in[0].value, *y = n->out[0];
    int64_t rows, columns, a_rows, width;
    fused_extent(f, y, &rows, &columns);
    fused_extent(f, a, &a_rows, &width);
    if (at.kind == COLUMN_NAMED && (n->op == OP_rotate || n->op == OP_pad || n->op == OP_beside))
        bug("%s at a column that is not known", op_rows[n->op].name);
    /* taken back, and once more without turning */
    if (at.kind == COLUMN_TURNED && (n->op == OP_rotate || n->op == OP_pad || n->op == OP_slice ||
                                     n->op == OP_beside || n->op == OP_load)) {
        f->straight = true, f->split = f->high;
        return c_number(0, y->type);
    }
    /* the columns of y that this piece covers */
    int64_t low = at.kind == COLUMN_FIXED ? at.offset : f->low + at.offset,
            high = at.kind == COLUMN_FIXED ? low + 1 : f->high + at.offset;
#define BREAK(c) ((c) > low && (c) < high ? (void)(f->split = (c)-at.offset) : (void)0)
    switch ((enum index_op)n->op) {
    case INDEX_OP_slice: return element(f, a, spot_shifted(at, attr_get(n, "from")));
    case INDEX_OP_rotate: {
        const int64_t turned = attr_or(n, "width", width);
        if (f->turn && !f->straight && at.kind == COLUMN_LOOP && !at.offset && !f->low &&
            f->high == width && turned == width) {
            const char *turn = f->turn(f, width / 2);
            if (turn)
                return element(f, a,
                               (struct spot){.row = at.row,
                                             .row_level = at.row_level,
                                             .kind = COLUMN_TURNED,
                                             .column = turn});
        }
        BREAK(turned);
        BREAK(turned / 2);
        return element(f, a,
                       spot_shifted(at, low >= turned      ? 0
                                        : low < turned / 2 ? turned / 2
                                                           : -(turned / 2)));
    }
    case INDEX_OP_pad: {
        int64_t from = attr_get(n, "from");
        BREAK(from);
        BREAK(from + width);
        return low >= from && low < from + width ? element(f, a, spot_shifted(at, -from))
                                                 : c_number(0, y->type);
    }
    case INDEX_OP_beside:
        BREAK(width);
        return low < width ? element(f, a, at)
                           : element(f, n->in[1].value, spot_shifted(at, -width));
    case INDEX_OP_onehot: {
        const struct value *g = n->in[1].value;
        const char *id = element(f, a, spot_reshaped(f, g, a, spot_settled(f, g, at))),
                   *x = element(f, g, spot_settled(f, g, at));
        return fused_declare(f, y, at,
                             text_format("%s == %s ? %s : %s",
                                         c_cast("int32_t", spot_column_text(at)), id, x,
                                         c_number(0, y->type)));
    }
    case INDEX_OP_put: {
        struct text t = {0};
        for (int64_t c = 0; c < width; c++) {
            const char *id = element(f, a, spot_at_column(at, c)),
                       *x = element(f, n->in[1].value, spot_at_column(at, c));
            text_add(&t, "%s(%s == %s ? %s : %s)", c ? " + " : "",
                     c_cast("int32_t", spot_column_text(at)), id, x, c_number(0, y->type));
        }
        return fused_declare(f, y, at, t.bytes);
    }
    case INDEX_OP_load:
        return fused_declare(
            f, y, at,
            text_format("(float)(%s - %s)", element(f, a, spot_shifted(at, 1)), element(f, a, at)));
    case INDEX_OP_take: {
        const char *id = element(f, n->in[1].value, at);
        return fused_declare(f, y, at, element(f, a, spot_named(at, id, spot_level(at))));
    }
    }
    bug("index op %s", op_rows[n->op].name);
#undef BREAK
}

/* Whether the element of a result is that of its first operand: an expansion, or times 1. */
static bool is_same_number(const struct node *n, const char *operand)
{
    const struct operand *second = n->op == OP_mul ? &n->in[1] : NULL;
    bool same = n->op == OP_expand || (second && !second->value && second->number == 1);
    return same && n->in[0].value && n->in[0].value->type == n->out[0]->type &&
           (c_is_name(operand) || shape_count(n->out[0]->shape) == 1);
}

static const char *mapped(struct fused *f, const struct node *n, struct spot at)
{
    const struct value *y = n->out[0];
    const char *operand[3] = {NULL};
    enum element widest = y->type;
    for (int i = 0; i < n->n_in; i++) {
        const struct value *v = n->in[i].value;
        struct spot s = at;
        if (v) s = n->op == OP_valid ? spot_reshaped(f, y, v, at) : spot_of_operand(f, y, v, at);
        operand[i] = fused_operand(f, &n->in[i], y->type, s);
        if (v && v->type == F64) widest = F64;
    }
    if (is_same_number(n, operand[0])) {
        fused_know(f, spot_level(at), y, at, operand[0]);
        return operand[0];
    }
    const bool together = f->many && spot_level(at) == LEVEL_COLUMN && widest == F32 &&
                          fused_takes_long(n->op),
               cast = widest != y->type || n->op == OP_valid;
    const char *x = together ? operand[0] : filled_in(n, operand);
    const char *accuracy = attr_find(n, "accuracy") ? attr_get_word(n, "accuracy") : "f32";
    const char *name =
        together
            ? declare_many(f, y, at, x, text_format("op_%s_many_%s", op_rows[n->op].name, accuracy))
            : fused_declare(f, y, at, cast ? c_cast(c_type(y->type, false), x) : x);
    for (int i = 0; i < f->kept.n; i++) {
        const struct kept *k = &f->kept.item[i];
        if (k->value == y && k->first == f->stage && at.kind == COLUMN_LOOP && !at.offset)
            fused_store(f, k->array, k->in_argument ? fused_index(f, y, at) : "j", name,
                        " /* for the next loop */");
    }
    return name;
}

static const char *element(struct fused *f, const struct value *v, struct spot at)
{
    const struct node *n = v->node;
    const struct value *root = emit_root(v);
    if (root->node && op_rows[root->node->op].class == CLASS_LEAF)
        return leaf(f, root, spot_settled(f, root, v == root ? at : spot_reshaped(f, v, root, at)));
    if (!fused_inside(f, v)) return load(f, fused_argument(f, ARGUMENT_IN, root, NULL), v, at);
    if (v != root) return element(f, n->in[0].value, spot_reshaped(f, v, n->in[0].value, at));
    at = spot_settled(f, v, at);
    const char *name = fused_known(f, v, at);
    if (name) return name;
    for (int i = 0; i < f->kept.n && at.kind == COLUMN_NAMED; i++) { /* taken from a row */
        const struct kept *k = &f->kept.item[i];
        if (k->value == v && k->first < f->stage && k->last >= f->stage)
            return text_format("%s[%s]", k->array,
                               k->in_argument ? fused_index(f, v, at) : spot_column_text(at));
    }
    switch (op_rows[n->op].class) {
    case CLASS_MAP: return mapped(f, n, at);
    case CLASS_INDEX: return indexed(f, n, at);
    case CLASS_ROW:
        if (n->op == OP_pick) return picked(f, n, at);
        break;
    case CLASS_COLUMN:
    case CLASS_TOTAL: break;
    case CLASS_VIEW:
    case CLASS_LEAF:
    case CLASS_CORE:
    case CLASS_EFFECT:
    case CLASS_LANE: bug("%s inside kernel %s", v->name, f->k->kernel->name);
    }
    for (int i = 0; i < f->chosen.n; i++)
        if (f->chosen.item[i].value == v)
            return text_format("%s[%s]", f->chosen.item[i].array, spot_column_text(at));
    /* a reduction that an earlier loop of this kernel has finished */
    if (!emit_stored(f->e, v) && f->finished)
        return fused_declare(f, v, (struct spot){.row = "0"}, f->finished(f, v));
    if (!emit_stored(f->e, v))
        bug("%s is needed in kernel %s where it is not known", v->name, f->k->kernel->name);
    return load(f, fused_argument(f, ARGUMENT_OUT, v, NULL), v, at);
}

bool fused_reads_replaced(const struct fused *f, const struct value *v, const struct value *but)
{
    for (int i = 0; i < f->k->replaced.n; i++)
        if (f->k->replaced.item[i].over == v) return true;
    if (v == but || !v->node || !fused_inside(f, v)) return false;
    if (op_rows[v->node->op].class != CLASS_MAP) return false;
    for (int i = 0; i < v->node->n_in; i++)
        if (v->node->in[i].value && fused_reads_replaced(f, v->node->in[i].value, but)) return true;
    return false;
}

bool fused_picks(struct fused *f, const struct end *first)
{
    bool any = false;
    for (int i = 0; i < f->k->node.n && f->k->replaced.n && !first->phase; i++) {
        const struct node *n = f->k->node.item[i];
        int64_t rows, columns;
        if (n->op != OP_pick || !fused_reads_replaced(f, n->in[0].value, NULL)) continue;
        fused_extent(f, n->out[0], &rows, &columns);
        if (rows != first->rows) continue;
        element(f, n->out[0], spot_start(f, false));
        any = true;
    }
    return any;
}

bool fused_takes_long(enum op op)
{
    return op == OP_exp || op == OP_log || op == OP_tanh || op == OP_erf || op == OP_sigmoid;
}
