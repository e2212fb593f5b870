/* The loops of a fused kernel on cpu. Each phase is a loop over rows, each stage of it a loop over
 * the columns of the row; all ends of one stage over equally many columns share one loop. A sum
 * over a row is distributed over sixteen lanes by column, a sum of everything over sixteen lanes by
 * element, and the lanes are added in one fixed tree. So the order of a sum follows from the shape,
 * not from what else the kernel does. */
#include "emit/fused.h"

#include <stdlib.h>

enum { OP_LANES = 16, MANY = 128 }; /* of op_math.h; MANY: OP_MANY */

/* ── blocks ──────────────────────────────────────────────────────────────────── */
/* The C compiler chooses vectors by the narrowest type of a loop: where one over OP_LANES columns
 * reads BF16, half as wide ones as their sums need. So such a block is widened in front of its loop
 * and rounded behind it, by instructions where the processor has them, and the loop itself only
 * sees numbers of 32 bits. Where something takes long, such as an exponential, or is rounded to
 * BF16, OP_MANY columns are worked on: their values are arrays, and it is done for all of them,
 * step by step, between two loops; in one loop the processor would wait for one vector after the
 * other, and would round in many instructions. */

/* The spot of the first column of a block. */
static struct spot block_begin(struct spot at)
{
    return spot_named(
        at, at.offset ? text_format("j0 %c %ld", at.offset < 0 ? '-' : '+', labs(at.offset)) : "j0",
        LEVEL_TOGETHER);
}

/* One row of BF16 that every row of the kernel reads, such as a bias, is widened once. */
static const char *widened(struct fused *f, const char *pointer, const struct value *v,
                           struct spot at)
{
    int64_t rows, columns;
    fused_extent(f, v, &rows, &columns);
    bool read_only = !fused_inside(f, v);
    for (int i = 0; i < f->k->replaced.n; i++)
        read_only &= f->k->replaced.item[i].over != emit_root(v);
    if (v->type != BF16 || at.kind != COLUMN_LOOP || rows != 1 || f->one_row ||
        columns > ARRAY_COLUMNS || !read_only)
        return NULL;
    const struct spot row = {
        .row = "0", .kind = COLUMN_NAMED, .column = "all", .column_level = LEVEL_KERNEL};
    const char *array = fused_known(f, v, row);
    if (!array) {
        array = fused_name(f, LEVEL_KERNEL, v->name, "_wide");
        fused_line(f, LEVEL_KERNEL, "float %s[%ld];", array, columns);
        fused_line(f, LEVEL_KERNEL, "op_load_bf16(%s, %s, %ld);", array, pointer, columns);
        fused_know(f, LEVEL_KERNEL, v, row, array);
    }
    return text_format("%s[%s]", array, fused_index(f, v, at));
}

static const char *block_load(struct fused *f, const char *pointer, const struct value *v,
                              struct spot at)
{
    const char *wide = widened(f, pointer, v, at);
    if (wide) return wide;
    if (!f->blocks || v->type != BF16 || at.kind != COLUMN_LOOP) return NULL;
    const char *name = fused_known(f, v, at);
    if (name) return name;
    const char *block = fused_name(f, LEVEL_TOGETHER, v->name, "_block");
    fused_line(f, LEVEL_TOGETHER, "float %s[%s];", block, f->many ? "OP_MANY" : "OP_LANES");
    fused_line(f, LEVEL_TOGETHER, "%s(%s, &%s[%s]);", f->many ? "op_load_many" : "op_load_block",
               block, pointer, fused_index(f, v, block_begin(at)));
    name = intern_format("%s[k]", block);
    fused_know(f, LEVEL_TOGETHER, v, at, name);
    return name;
}

/* Stores x, which is rounded already, or what it was rounded from. */
static void block_store(struct fused *f, const struct end *e, struct spot at, const char *x)
{
    const char *to = text_format(
                   "&%s[%s]", fused_result(f, e),
                   fused_index(f, e->node->out[0], block_begin(fused_stored_at(e, at)))),
               *from = NULL;
    for (int i = 0; i < f->rounded.n; i++)
        if (f->rounded.item[i].name == x) from = f->rounded.item[i].from;
    if (f->many && from) {
        text_add(&f->block_stores, "%*smemcpy(%s, %s, sizeof %s);\n",
                 f->block[LEVEL_TOGETHER].indent, "", to, from, from);
        return;
    }
    const char *block = fused_name(f, LEVEL_TOGETHER, e->node->out[0]->name, "_block");
    fused_line(f, LEVEL_TOGETHER, "float %s[%s];", block, f->many ? "OP_MANY" : "OP_LANES");
    fused_line(f, LEVEL_COLUMN, "%s[k] = %s;", block, from ? from : x);
    text_add(&f->block_stores, "%*s%s(%s, %s);\n", f->block[LEVEL_TOGETHER].indent, "",
             f->many ? "op_store_halves_many"
             : from  ? "op_store_block"
                     : "op_store_halves",
             to, block);
}

/* ── loops ───────────────────────────────────────────────────────────────────── */
/* What is done with one element; `lane`: C of its lane. */
static void end_element(struct fused *f, const struct end *e, struct spot at, int level,
                        const char *lane)
{
    const char *x = fused_operand(f, &e->of, e->like, at);
    switch (e->kind) {
    case END_STORE:
        if (f->blocks && level == LEVEL_COLUMN && e->node->out[0]->type == BF16) {
            block_store(f, e, at, x);
            return;
        }
        x = c_store(e->node->out[0]->type, x);
        if (level == LEVEL_COLUMN)
            fused_store(f, fused_result(f, e),
                        fused_index(f, e->node->out[0], fused_stored_at(e, at)), x, "");
        else
            fused_line(f, level, "%s = %s;", fused_target(f, e, at), x);
        return;
    case END_ROW:
        if (e->node->op == OP_max_last)
            fused_line(f, level, "%s[%s] = op_max(%s[%s], %s);", e->lane, lane, e->lane, lane, x);
        else
            fused_line(f, level, "%s[%s] += %s;", e->lane, lane, x);
        return;
    case END_TOP: fused_line(f, level, "%s[j] = %s;", e->lane, x); return;
    case END_TOTAL: fused_line(f, level, "%s[%s] += %s;", e->lane, lane, x); return;
    case END_COLUMN: {
        struct spot column = at;
        column.row = "0";
        fused_line(f, level, "%s[%s] += %s;", fused_result(f, e),
                   fused_index(f, e->node->out[0], column), x);
        return;
    }
    case END_METRIC: fused_line(f, level, "%s += %s;", fused_target(f, e, at), x); return;
    case END_ASSIGN: fused_line(f, level, "%s = %s;", fused_target(f, e, at), x); return;
    case END_SCALAR:
        fused_line(f, level, "%s = %s;", fused_target(f, e, at), c_scalar(&e->of, x));
        return;
    }
}

struct sweep {
    struct end **end;
    int n;
    int64_t columns;
    bool lanes, aligned;
};

static void sweep_body(struct fused *f, const struct sweep *w, const char *row_lane,
                       const char *total_lane)
{
    struct block *b = &f->block[LEVEL_COLUMN];
    struct block *together = &f->block[LEVEL_TOGETHER];
    b->text.length = f->behind.length = together->text.length = f->block_stores.length = 0;
    b->known.n = b->name.n = together->known.n = together->name.n = f->rounded.n = 0;
    for (int i = 0; i < f->kept.n; i++) { /* before anything is stored in its place */
        const struct kept *k = &f->kept.item[i];
        int64_t rows, columns;
        fused_extent(f, k->value, &rows, &columns);
        if (k->first >= f->stage || k->last < f->stage || columns != w->columns) continue;
        struct spot at = spot_start(f, true);
        const char *name =
            fused_name(f, f->many ? LEVEL_TOGETHER : LEVEL_COLUMN, k->value->name, "");
        if (f->many) {
            fused_line(f, LEVEL_TOGETHER, "float %s[OP_MANY];", name);
            name = intern_format("%s[k]", name);
        }
        fused_line(f, LEVEL_COLUMN, "%s%s = %s[%s];", f->many ? "" : "const float ", name, k->array,
                   k->in_argument ? fused_index(f, k->value, at) : "j");
        fused_know(f, LEVEL_COLUMN, k->value, at, name);
    }
    for (int i = 0; i < w->n; i++)
        end_element(f, w->end[i], spot_start(f, true), LEVEL_COLUMN,
                    w->end[i]->kind == END_TOTAL ? total_lane : row_lane);
    fused_stored(f);
    if (!b->text.length) text_add(&b->text, "%s", "");
}

static void loop_line(struct fused *f, int extra, const char *line)
{
    struct block *b = fused_block(f, LEVEL_ROW);
    text_add(&b->text, "%*s%s\n", b->indent + extra, "", line);
}

static void loop_body(struct fused *f)
{
    text_add(&fused_block(f, LEVEL_ROW)->text, "%s", f->block[LEVEL_COLUMN].text.bytes);
}

static void loop_text(struct fused *f, const struct text *t)
{
    if (t->length) text_add(&fused_block(f, LEVEL_ROW)->text, "%s", t->bytes);
}

/* The columns [from, whole), a lane each. */
static void sweep_lanes(struct fused *f, const struct sweep *w, int64_t from, int64_t whole)
{
    const int inner = fused_block(f, LEVEL_ROW)->indent + 4;
    f->block[LEVEL_COLUMN].indent = inner + 4;
    f->block[LEVEL_TOGETHER].indent = inner;
    f->blocks = true;
    sweep_body(f, w, "k", "k");
    f->blocks = false;
    if (whole - from >= MANY) /* a vector is loaded while another is added */
        loop_line(f, -fused_block(f, LEVEL_ROW)->indent, "#pragma GCC unroll 2");
    loop_line(f, 0, text_format("for (int64_t j0 = %ld; j0 < %ld; j0 += OP_LANES) {", from, whole));
    loop_text(f, &f->block[LEVEL_TOGETHER].text);
    loop_line(f, -fused_block(f, LEVEL_ROW)->indent, "#pragma omp simd");
    loop_line(f, 4, "for (int k = 0; k < OP_LANES; k++) {");
    loop_line(f, 8, "const int64_t j = j0 + k;");
    loop_body(f);
    loop_line(f, 4, "}");
    loop_text(f, &f->block_stores);
    loop_line(f, 0, "}");
    f->block[LEVEL_COLUMN].indent = inner;
}

/* Whether a sweep is done in loops over OP_MANY columns: something in the kernel takes long or is
 * rounded to BF16, and every value is a float of its own column or of a row. */
static bool many_at_once(const struct fused *f, const struct sweep *w)
{
    bool worth_it = false;
    if (f->high - f->low < MANY || (w->lanes && (!w->aligned || f->low % OP_LANES))) return false;
    for (int i = 0; i < w->n; i++)
        if (w->end[i]->kind == END_TOTAL || w->end[i]->like == F64) return false;
    for (int i = 0; i < f->k->node.n; i++) {
        const struct node *n = f->k->node.item[i];
        const enum op_class class = op_rows[n->op].class;
        const bool plain = class == CLASS_MAP || class == CLASS_COLUMN || class == CLASS_VIEW ||
                           class == CLASS_TOTAL || n->op == OP_sum_last || n->op == OP_max_last ||
                           n->op == OP_pick || n->op == OP_onehot || n->op == OP_slice ||
                           n->op == OP_pad || n->op == OP_beside || n->op == OP_rotate;
        if (!plain || n->n_out != 1) return false;
        if (n->out[0]->type != F32 && n->out[0]->type != BF16) return false;
        worth_it |= fused_takes_long(n->op) || (n->out[0]->type == BF16 && class == CLASS_MAP);
    }
    return worth_it;
}

/* The columns [from, whole), OP_MANY at a time. */
static void sweep_many(struct fused *f, const struct sweep *w, int64_t from, int64_t whole)
{
    const int inner = fused_block(f, LEVEL_ROW)->indent + 4;
    f->block[LEVEL_COLUMN].indent = inner + 4;
    f->block[LEVEL_TOGETHER].indent = inner;
    f->blocks = f->many = true;
    sweep_body(f, w, "k - vector_", "");
    f->blocks = f->many = false;
    loop_line(f, 0, text_format("for (int64_t j0 = %ld; j0 < %ld; j0 += OP_MANY) {", from, whole));
    loop_text(f, &f->block[LEVEL_TOGETHER].text);
    text_add(&fused_block(f, LEVEL_ROW)->text, "%s", fused_many_opening(f));
    loop_body(f);
    loop_line(f, 4, "}");
    loop_text(f, &f->block_stores);
    loop_line(f, 0, "}");
    f->block[LEVEL_COLUMN].indent = inner;
}

static bool handles_bf16(const struct fused *f)
{
    for (int i = 0; i < f->n_argument; i++)
        if (f->argument[i].value && f->argument[i].value->type == BF16) return true;
    return false;
}

/* The columns [f->low, f->high), in which no index op breaks. */
static void sweep_piece(struct fused *f, const void *of)
{
    const struct sweep *w = of;
    f->block[LEVEL_COLUMN].indent = fused_block(f, LEVEL_ROW)->indent + 4;
    if (emit_walks_shard(f->k)) {
        sweep_body(f, w, "j & 15", "j & 15");
        loop_line(f, 0, "for (int64_t j = s->from; j < s->from + s->count; j++) {");
        loop_body(f);
        loop_line(f, 0, "}");
        return;
    }
    int64_t whole = f->low, next;
    if (many_at_once(f, w)) {
        next = whole + (f->high - whole) / MANY * MANY;
        sweep_many(f, w, whole, next);
        whole = next;
    }
    next = whole + (f->high - whole) / OP_LANES * OP_LANES;
    if ((w->lanes ? w->aligned && whole % OP_LANES == 0 : handles_bf16(f)) && next > whole) {
        sweep_lanes(f, w, whole, next);
        whole = next;
    }
    if (whole == f->high) return;
    sweep_body(f, w, "j & 15",
               w->aligned ? "j & 15"
                          : text_format("(%s * %ld + j) & 15", f->one_row ? "0" : "r", w->columns));
    loop_line(f, 0, text_format("for (int64_t j = %ld; j < %ld; j++) {", whole, f->high));
    loop_body(f);
    loop_line(f, 0, "}");
}

static void lanes_open(struct fused *f, struct end *e, int level)
{
    const struct value *y = e->node->out[0];
    bool wide = e->kind == END_TOTAL || e->like == F64;
    e->lane = fused_name(f, level, y->name, "_lane");
    fused_line(f, level, "%s %s[OP_LANES] = {0};", wide ? "double" : "float", e->lane);
    if (e->node->op == OP_max_last) {
        if (wide) bug("the largest of a row of f64");
        fused_line(f, level, "for (int k = 0; k < OP_LANES; k++) %s[k] = -INFINITY;", e->lane);
    }
}

static void top_open(struct fused *f, struct end *e)
{
    e->lane = fused_name(f, LEVEL_KERNEL, e->node->out[0]->name, "_row");
    fused_line(f, LEVEL_KERNEL, "float %s[%ld];", e->lane, e->columns);
}

static void top_close(struct fused *f, const struct end *e)
{
    const char *to = fused_choices(f, e);
    fused_line(f, LEVEL_ROW, "op_top_k(%s, %ld, %s, %ld);", e->lane, e->columns, to,
               attr_get(e->node, "k"));
}

static void lanes_close(struct fused *f, const struct end *e, int level)
{
    const struct value *y = e->node->out[0];
    bool wide = e->kind == END_TOTAL || e->like == F64;
    const char *name = fused_name(f, level, y->name, "");
    const char *sum = text_format("op_%s_lanes_%s(%s)", e->node->op == OP_max_last ? "max" : "sum",
                                  wide ? "f64" : "f32", e->lane);
    if (wide && y->type != F64) sum = text_format("(float)%s", sum);
    fused_line(f, level, y->type == BF16 ? "const %s %s = op_round_bf16(%s);" : "const %s %s = %s;",
               c_type(y->type, false), name, sum);
    struct spot at = spot_start(f, false);
    if (level == LEVEL_KERNEL) at.row = "0";
    fused_know(f, level, y, at, name);
}

/* One stage of a row: what the last stage's sums are good for, then a sweep for each number of
 * columns. */
static void stage(struct fused *f, struct end **end, int n, int number)
{
    VECTOR(struct end *) now = {0};
    f->stage = number;
    for (int i = 0; i < n; i++)
        if (end[i]->stage == number) PUSH(&now, end[i]);
    for (int i = 0; i < now.n; i++)
        if (now.item[i]->columns == 1 && !end_of_row(now.item[i]))
            end_element(f, now.item[i], spot_start(f, false), LEVEL_ROW,
                        f->one_row ? "0" : "r & 15");
    for (int i = 0; i < now.n; i++) {
        struct end *first = now.item[i];
        if (!first || (first->columns == 1 && !end_of_row(first))) continue;
        struct sweep w = {
            .end = TAKE_MANY(struct end *, now.n), .columns = first->columns, .aligned = true};
        for (int k = i; k < now.n; k++) {
            struct end *e = now.item[k];
            if (!e || e->columns != w.columns || (e->columns == 1 && !end_of_row(e))) continue;
            w.lanes |= e->kind == END_ROW || e->kind == END_TOTAL;
            w.aligned &= e->kind != END_TOTAL || f->one_row || w.columns % 16 == 0;
            if (e->kind == END_ROW) lanes_open(f, e, LEVEL_ROW);
            if (e->kind == END_TOP) top_open(f, e);
            w.end[w.n++] = e;
            now.item[k] = NULL;
        }
        fused_pieces(f, w.columns, sweep_piece, &w);
        for (int k = 0; k < w.n; k++) {
            if (w.end[k]->kind == END_ROW) lanes_close(f, w.end[k], LEVEL_ROW);
            if (w.end[k]->kind == END_TOP) top_close(f, w.end[k]);
        }
    }
}

/* ── kernels ─────────────────────────────────────────────────────────────────── */
/* All ends of one phase over one number of rows. */
static void group(struct fused *f, struct end **end, int n)
{
    int stages = 0;
    struct block *row = &f->block[LEVEL_ROW], *kernel = &f->block[LEVEL_KERNEL];
    f->one_row = end[0]->rows == 1;
    row->text.length = 0;
    row->known.n = row->name.n = 0;
    row->indent = 8;
    for (int i = 0; i < n; i++) {
        if (end[i]->stage >= stages) stages = end[i]->stage + 1;
        if (end[i]->kind == END_TOTAL) lanes_open(f, end[i], LEVEL_KERNEL);
        if (end[i]->kind == END_COLUMN) {
            if (end[i]->node->out[0]->type != F32)
                bug("%s sums rows in another type than f32", end[i]->node->out[0]->name);
            fused_line(f, LEVEL_KERNEL, "memset(%s, 0, %ld * sizeof *%s);", fused_result(f, end[i]),
                       end[i]->columns, fused_result(f, end[i]));
        }
    }
    fused_keep(f, end, n);
    fused_picks(f, end[0]);
    for (int s = 0; s < stages; s++) stage(f, end, n, s);
    f->kept.n = f->chosen.n = 0;
    if (!f->one_row && row->text.length)
        text_add(&kernel->text, "    for (int64_t r = 0; r < %ld; r++) {\n%s    }\n", end[0]->rows,
                 row->text.bytes);
    for (int i = 0; i < n; i++)
        if (end[i]->kind == END_TOTAL) lanes_close(f, end[i], LEVEL_KERNEL);
    row->known.n = row->name.n = 0;
}

void emit_fused_body(struct text *to, const struct emit *e, const struct emit_kernel *k,
                     bool canonical)
{
    struct fused f = {.e = e, .k = k, .canonical = canonical, .load = block_load};
    struct ends p = {0};
    f.n_argument = emit_arguments(e, k, &f.argument);
    f.block[LEVEL_KERNEL].indent = 4;
    if (fused_ends(&f, &p))
        fused_line(&f, LEVEL_KERNEL, "if (%s[SCALAR_SKIP] != 0) return;",
                   fused_argument(&f, ARGUMENT_SCALARS, NULL, NULL));
    for (int phase = 0; phase < p.phases; phase++) fused_groups(&f, &p, phase, group);
    text_add(to, "%s", f.block[LEVEL_KERNEL].text.length ? f.block[LEVEL_KERNEL].text.bytes : "");
}
