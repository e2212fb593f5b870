/* The text of one sweep over the columns of a row on cuda: what a thread does with each element,
 * the sums that threads add up, and what an earlier launch of the kernel left in the workspace. */
#include "emit/cuda_fused.h"

#include <ctype.h>
#include <string.h>

#include "passes/workspace.h"

/* sums of wider rows are kept in memory, not in registers */
enum { KEPT_COLUMNS = 4 * 8 * 512 };

/* ── the workspace ───────────────────────────────────────────────────────────── */
static const struct facts *facts_of(const struct fused *f)
{
    return &f->cuda->c->emit->graph->facts;
}

int64_t cuda_place_of(const struct fused *f, const struct node *n)
{
    int64_t at = 0;
    for (int i = 0; i < f->k->node.n; i++) {
        if (f->k->node.item[i] == n) return at;
        at += workspace_of_node(facts_of(f), f->k->node.item[i]);
    }
    bug("%s is not of kernel %s", op_rows[n->op].name, f->k->kernel->name);
}

const char *cuda_work_at(const char *type, int64_t place)
{
    return place ? text_format("(%s *)((char *)work + %ld)", type, place)
                 : text_format("(%s *)work", type);
}

/* After the rows' numbers lies their sum, where no argument holds it. */
const char *cuda_finished(struct fused *f, const struct value *v)
{
    const struct shape s = v->node->in[0].value->shape;
    int64_t columns = shape_columns(s);
    if (op_rows[v->node->op].class != CLASS_TOTAL)
        bug("%s is needed in kernel %s by another launch than its own", v->name,
            f->k->kernel->name);
    return text_format("(%s)(%s)[%ld]", c_type(v->type, false),
                       cuda_work_at("const double", cuda_place_of(f, v->node)),
                       shape_count(s) / columns);
}

bool cuda_works(const struct fused *f)
{
    for (int i = 0; i < f->k->node.n; i++)
        if (workspace_of_node(facts_of(f), f->k->node.item[i])) return true;
    return false;
}

/* ── one element ─────────────────────────────────────────────────────────────── */
bool cuda_kept_in_memory(const struct end *e) { return e->columns > KEPT_COLUMNS; }

/* In a loop over columns. */
static void element(struct fused *f, const struct end *e)
{
    const struct spot at = spot_start(f, true);
    const char *x = fused_operand(f, &e->of, e->like, at);
    switch (e->kind) {
    case END_STORE:
        if (!cuda_store_together(f, fused_result(f, e), e->node->out[0], fused_stored_at(e, at), x))
            fused_store(f, fused_result(f, e),
                        fused_index(f, e->node->out[0], fused_stored_at(e, at)),
                        c_store(e->node->out[0]->type, x), "");
        return;
    case END_ASSIGN:
        if (!cuda_store_together(
                f,
                fused_argument(f, ARGUMENT_STATE, NULL,
                               attr_get_word(emit_root(e->node->in[0].value)->node, "name")),
                e->shape, at, x))
            fused_line(f, LEVEL_COLUMN, "%s = %s;", fused_target(f, e, at), x);
        return;
    case END_ROW:
    case END_TOTAL:
        if (e->node->op == OP_max_last)
            fused_line(f, LEVEL_COLUMN, "%s = op_max(%s, %s);", e->lane, e->lane, x);
        else
            fused_line(f, LEVEL_COLUMN, "%s += %s;", e->lane, x);
        return;
    case END_TOP:
        fused_line(f, LEVEL_COLUMN, "%s[%s][k] = %s;", e->lane,
                   e->columns > 8 * f->cuda->group ? "i" : "0", x);
        return;
    case END_COLUMN:
        if (cuda_kept_in_memory(e))
            fused_line(f, LEVEL_COLUMN, "%s[j] += %s;", e->lane, x);
        else
            fused_line(f, LEVEL_COLUMN, "%s[%s][k] += %s;", e->lane,
                       e->columns > 8 * f->cuda->group ? "i" : "0", x);
        return;
    case END_METRIC: fused_line(f, LEVEL_COLUMN, "%s += %s;", fused_target(f, e, at), x); return;
    case END_SCALAR:
        fused_line(f, LEVEL_COLUMN, "%s = %s;", fused_target(f, e, at), c_scalar(&e->of, x));
        return;
    }
}

/* Of a value that has one column. */
static void single(struct fused *f, const struct end *e)
{
    const struct spot at = spot_start(f, false);
    const char *x = fused_operand(f, &e->of, e->like, at), *first = f->cuda->first;
    switch (e->kind) {
    case END_STORE:
        fused_line(f, LEVEL_ROW, "%s%s = %s;", first, fused_target(f, e, at),
                   c_store(e->node->out[0]->type, x));
        return;
    case END_ASSIGN:
        fused_line(f, LEVEL_ROW, "%s%s = %s;", first, fused_target(f, e, at), x);
        return;
    case END_TOTAL:
        fused_line(f, LEVEL_ROW, "%s(%s)[%s] = %s;", first,
                   cuda_work_at("double", cuda_place_of(f, e->node)), at.row, x);
        return;
    case END_METRIC:
        fused_line(f, LEVEL_ROW, "%s%s += %s;", first, fused_target(f, e, at), x);
        return;
    case END_SCALAR:
        fused_line(f, LEVEL_ROW, "%s%s = %s;", first, fused_target(f, e, at), c_scalar(&e->of, x));
        return;
    case END_COLUMN:
    case END_TOP:
    case END_ROW: bug("%s is no single number", e->node->out[0]->name);
    }
}

/* ── sweeps ──────────────────────────────────────────────────────────────────── */
struct sweep {
    struct end **end;
    int n;
    int64_t columns;
    bool sums;
};

bool cuda_mentions(const char *text, const char *word)
{
    size_t n = strlen(word);
    for (const char *c = text; *c;) {
        size_t length = 0;
        while (isalnum((unsigned char)c[length]) || c[length] == '_') length++;
        if (length == n && !strncmp(c, word, n)) return true;
        c += length ? length : 1;
    }
    return false;
}

const char *cuda_text(const struct text *t) { return t->length ? t->bytes : ""; }

static void row_text(struct fused *f, int extra, const char *line)
{
    struct block *b = fused_block(f, LEVEL_ROW);
    text_add(&b->text, "%*s%s\n", b->indent + extra, "", line);
}

/* What all ends do to a thread's neighbours, from j0 on. `leave`: where a column is not of the
 * piece, or NULL. Values that are the same for the whole row are written to the row's own text on
 * the way, so the loop's first line may only come after this. */
static const char *neighbours(struct fused *f, const struct sweep *w, int indent, const char *leave)
{
    struct text t = {0};
    struct block *column = &f->block[LEVEL_COLUMN], *together = &f->block[LEVEL_TOGETHER];
    column->text.length = together->text.length = f->cuda->behind.length = 0;
    column->known.n = column->name.n = together->known.n = together->name.n = f->cuda->read.n = 0;
    together->indent = indent, column->indent = indent + 4;
    f->behind.length = 0;
    for (int i = 0; i < w->n; i++) element(f, w->end[i]);
    fused_stored(f);
    text_add(&t, "%s#pragma unroll\n%*sfor (int k = 0; k < %d; k++) {\n",
             cuda_text(&together->text), indent, "", f->cuda->width);
    if (leave || cuda_mentions(column->text.bytes, "j"))
        text_add(&t, "%*sconst auto j = j0 + k;\n", indent + 4, "");
    if (leave) text_add(&t, "%*sif (%s) continue;\n", indent + 4, "", leave);
    text_add(&t, "%s%*s}\n%s", column->text.bytes, indent, "", cuda_text(&f->cuda->behind));
    return t.bytes;
}

/* The stretch of a shard begins and ends anywhere: fours that lie in it whole, and what is left of
 * the first and the last. */
static void shard_piece(struct fused *f, const struct sweep *w)
{
    int indent = fused_block(f, LEVEL_ROW)->indent + 4;
    f->cuda->together = true;
    const char *whole = neighbours(f, w, indent, NULL);
    f->cuda->together = false;
    const char *rest = neighbours(f, w, indent, "j < from || j >= from + count");
    row_text(f, 0, text_format("if (j0 >= from && j0 + %d <= from + count) {", f->cuda->width));
    text_add(&fused_block(f, LEVEL_ROW)->text, "%s", whole);
    row_text(f, 0, "} else {");
    text_add(&fused_block(f, LEVEL_ROW)->text, "%s", rest);
    row_text(f, 0, "}");
}

static const char *between(const char *low, const char *high)
{
    return text_format("%s%s%s", low, *low && *high ? " && " : "", high);
}

/* The columns [f->low, f->high), in which no index op breaks. */
static void piece(struct fused *f, const void *of)
{
    const struct sweep *w = of;
    struct cuda_fused *c = f->cuda;
    if (c->c->walks) {
        shard_piece(f, w);
        return;
    }
    int64_t low = f->low, high = f->high, reach = 8 * c->group;
    bool once = w->columns <= reach, unrolled = !once && w->sums;
    int indent = fused_block(f, LEVEL_ROW)->indent, inner = indent + (unrolled ? 8 : 4);
    int width = c->width;
    c->together = low % width == 0 && high % width == 0;
    const char *low_j = low % width ? text_format("j >= %ld", low) : "",
               *high_j = high % width ? text_format("j < %ld", high) : "";
    const char *body =
        neighbours(f, w, inner, c->together ? NULL : text_format("!(%s)", between(low_j, high_j)));
    const char *low_j0 = low >= width ? text_format("j0 >= %ld", low / width * width) : "";
    const char *high_j0 =
        high < reach || c->form == FORM_GRID || !once ? text_format("j0 < %ld", high) : "";
    const char *inside = between(low_j0, high_j0);
    if (c->form == FORM_GRID)
        row_text(f, 0, text_format("if (%s) {", inside));
    else if (once && *inside)
        row_text(f, 0, text_format("if (const int j0 = 8 * t; %s) {", inside));
    else if (once)
        row_text(f, 0, "{"), row_text(f, 4, "const int j0 = 8 * t;");
    else if (unrolled) {
        row_text(f, -indent, "#pragma unroll");
        row_text(f, 0,
                 text_format("for (int i = 0; i < %ld; i++)", (w->columns + reach - 1) / reach));
        row_text(f, 4, text_format("if (const int j0 = 8 * t + %ld * i; %s) {", reach, inside));
    } else {
        row_text(f, 0, text_format("for (int j0 = 8 * t; j0 < %ld; j0 += %ld) {", high, reach));
        if (*low_j0) row_text(f, 4, text_format("if (j0 < %ld) continue;", low / width * width));
    }
    text_add(&fused_block(f, LEVEL_ROW)->text, "%s", body);
    row_text(f, inner - indent - 4, "}");
}

/* ── rows ────────────────────────────────────────────────────────────────────── */
static bool is_wide(const struct end *e) { return e->kind == END_TOTAL || e->like == F64; }

static void sum_open(struct fused *f, struct end *e)
{
    e->lane = fused_name(f, LEVEL_ROW, e->node->out[0]->name, "_own");
    if (e->kind == END_TOP) {
        fused_line(f, LEVEL_ROW, "float %s[%ld][8] = {};", e->lane,
                   (e->columns + 8 * f->cuda->group - 1) / (8 * f->cuda->group));
        return;
    }
    fused_line(f, LEVEL_ROW, "%s %s = %s;", is_wide(e) ? "double" : "float", e->lane,
               e->node->op == OP_max_last ? "-INFINITY" : "0");
}

/* Adds up what the threads of the row have. */
static void sum_close(struct fused *f, const struct end *e)
{
    const struct value *y = e->node->out[0];
    int group = f->cuda->group, used = row_threads(e->columns);
    const char *room = "";
    if (e->kind == END_TOP) {
        const char *to = fused_choices(f, e);
        fused_line(f, LEVEL_ROW, "row_top<%d, %d, %ld, %ld, %s>(%s, %s);", group,
                   used < group ? used : group, e->columns, attr_get(e->node, "k"),
                   emit_stored(f->e, y) ? "false" : "true", to, e->lane);
        return;
    }
    if (group > 32)
        room = is_wide(e) ? text_format(", wide_shared[%d]", f->cuda->wide_sums++)
                          : text_format(", shared[%d]", f->cuda->sums++);
    const char *sum =
        text_format("row_%s<%d, %d>(%s%s)", e->node->op == OP_max_last ? "max" : "sum", group,
                    used < group ? used : group, e->lane, room);
    if (e->kind == END_TOTAL) {
        const char *all = fused_name(f, LEVEL_ROW, y->name, "_row");
        fused_line(f, LEVEL_ROW, "const double %s = %s;", all, sum);
        fused_line(f, LEVEL_ROW, "%s(%s)[%s] = %s;", f->cuda->first,
                   cuda_work_at("double", cuda_place_of(f, e->node)), f->one_row ? "0" : "r", all);
        return;
    }
    if (is_wide(e) && y->type != F64) sum = text_format("(float)%s", sum);
    fused_declare(f, y, spot_start(f, false), sum);
}

/* One stage of a row: what the last stage's sums are good for, then a sweep for each number of
 * columns. */
void cuda_stage(struct fused *f, struct end **end, int n, int number)
{
    VECTOR(struct end *) now = {0};
    for (int i = 0; i < n; i++) {
        bool swept = end[i]->columns > 1 || end_of_row(end[i]) || end[i]->kind == END_COLUMN;
        if (end[i]->stage != number) continue;
        if (swept)
            PUSH(&now, end[i]);
        else
            single(f, end[i]);
    }
    for (int i = 0; i < now.n; i++) {
        if (!now.item[i]) continue;
        struct sweep w = {.end = TAKE_MANY(struct end *, now.n), .columns = now.item[i]->columns};
        for (int k = i; k < now.n; k++) {
            struct end *e = now.item[k];
            if (!e || e->columns != w.columns) continue;
            if (end_of_row(e) || e->kind == END_TOTAL) sum_open(f, e);
            w.sums |= e->kind == END_TOP || (e->kind == END_COLUMN && !cuda_kept_in_memory(e));
            w.end[w.n++] = e;
            now.item[k] = NULL;
        }
        fused_pieces(f, w.columns, piece, &w);
        for (int k = 0; k < w.n; k++)
            if (end_of_row(w.end[k]) || w.end[k]->kind == END_TOTAL) sum_close(f, w.end[k]);
    }
}
