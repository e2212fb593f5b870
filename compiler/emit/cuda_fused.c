/* The loops of a fused kernel on cuda. Every group of ends over equally many rows is a launch of
 * its own, in one of three forms:
 *   grid    only elements of one long row: each thread has eight neighbours, or four if some are
 *           F32, so the threads of a warp always read and write whole lines
 *   rows    a power of two of threads, which depends on the columns, share a row; if it is read
 *           again, they walk over it again
 *   chunks  like rows, but a block takes several rows one after the other and keeps the sums of
 *           its columns per thread; they go to the workspace, and a second launch adds the chunks
 *
 * A total leaves one number per row in the workspace, and a second launch adds them up too. The
 * same thread always has the eight columns 8 t + 8 G i .., however an index op cuts the row into
 * pieces, so the order of a sum depends only on the length of the row. If a piece consists of whole
 * eights (or fours), its elements are read and written together. */
#include "emit/cuda_fused.h"

#include <ctype.h>
#include <string.h>

#include "passes/workspace.h"

/* sums of wider rows are kept in memory, not in registers */
enum { BLOCK = 256, KEPT_COLUMNS = 4 * 8 * 512 };

/* ── the workspace ───────────────────────────────────────────────────────────── */
static const struct facts *facts_of(const struct fused *f)
{
    return &f->cuda->c->emit->graph->facts;
}

static int64_t place_of(const struct fused *f, const struct node *n)
{
    int64_t at = 0;
    for (int i = 0; i < f->k->node.n; i++) {
        if (f->k->node.item[i] == n) return at;
        at += workspace_of_node(facts_of(f), f->k->node.item[i]);
    }
    bug("%s is not of kernel %s", op_rows[n->op].name, f->k->kernel->name);
}

static const char *work_at(const char *type, int64_t place)
{
    return place ? text_format("(%s *)((char *)work + %ld)", type, place)
                 : text_format("(%s *)work", type);
}

/* After the rows' numbers lies their sum, where no argument holds it. */
static const char *finished(struct fused *f, const struct value *v)
{
    const struct shape s = v->node->in[0].value->shape;
    int64_t columns = shape_columns(s);
    if (op_rows[v->node->op].class != CLASS_TOTAL)
        bug("%s is needed in kernel %s by another launch than its own", v->name,
            f->k->kernel->name);
    return text_format("(%s)(%s)[%ld]", c_type(v->type, false),
                       work_at("const double", place_of(f, v->node)), shape_count(s) / columns);
}

static bool works(const struct fused *f)
{
    for (int i = 0; i < f->k->node.n; i++)
        if (workspace_of_node(facts_of(f), f->k->node.item[i])) return true;
    return false;
}

/* ── one element ─────────────────────────────────────────────────────────────── */
static bool kept_in_memory(const struct end *e) { return e->columns > KEPT_COLUMNS; }

/* In a loop over columns. */
static void element(struct fused *f, const struct end *e)
{
    const struct spot at = spot_start(f, true);
    const char *x = fused_operand(f, &e->of, e->like, at);
    switch (e->kind) {
    case END_STORE:
        if (!cuda_store_together(f, fused_result(f, e), e->node->out[0], at, x))
            fused_line(f, LEVEL_COLUMN, "%s = %s;", fused_target(f, e, at),
                       c_store(e->node->out[0]->type, x));
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
    case END_COLUMN:
        if (kept_in_memory(e))
            fused_line(f, LEVEL_COLUMN, "%s[j] += %s;", e->lane, x);
        else
            fused_line(f, LEVEL_COLUMN, "%s[%s][k] += %s;", e->lane,
                       e->columns > 8 * f->cuda->group ? "i" : "0", x);
        return;
    case END_METRIC: fused_line(f, LEVEL_COLUMN, "%s += %s;", fused_target(f, e, at), x); return;
    case END_SCALAR:
        fused_line(f, LEVEL_COLUMN, "%s = (float)%s;", fused_target(f, e, at), x);
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
        fused_line(f, LEVEL_ROW, "%s(%s)[%s] = %s;", first, work_at("double", place_of(f, e->node)),
                   at.row, x);
        return;
    case END_METRIC:
        fused_line(f, LEVEL_ROW, "%s%s += %s;", first, fused_target(f, e, at), x);
        return;
    case END_SCALAR:
        fused_line(f, LEVEL_ROW, "%s%s = (float)%s;", first, fused_target(f, e, at), x);
        return;
    case END_COLUMN:
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

static bool mentions(const char *text, const char *word)
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

static const char *text_of(const struct text *t) { return t->length ? t->bytes : ""; }

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
    for (int i = 0; i < w->n; i++) element(f, w->end[i]);
    text_add(&t, "%s#pragma unroll\n%*sfor (int k = 0; k < %d; k++) {\n", text_of(&together->text),
             indent, "", f->cuda->width);
    if (leave || mentions(column->text.bytes, "j"))
        text_add(&t, "%*sconst auto j = j0 + k;\n", indent + 4, "");
    if (leave) text_add(&t, "%*sif (%s) continue;\n", indent + 4, "", leave);
    text_add(&t, "%s%*s}\n%s", column->text.bytes, indent, "", text_of(&f->cuda->behind));
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
    fused_line(f, LEVEL_ROW, "%s %s = %s;", is_wide(e) ? "double" : "float", e->lane,
               e->node->op == OP_max_last ? "-INFINITY" : "0");
}

/* Adds up what the threads of the row have. */
static void sum_close(struct fused *f, const struct end *e)
{
    const struct value *y = e->node->out[0];
    int group = f->cuda->group, used = row_threads(e->columns);
    const char *room = "";
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
                   work_at("double", place_of(f, e->node)), f->one_row ? "0" : "r", all);
        return;
    }
    if (is_wide(e) && y->type != F64) sum = text_format("(float)%s", sum);
    fused_declare(f, y, spot_start(f, false), sum);
}

/* One stage of a row: what the last stage's sums are good for, then a sweep for each number of
 * columns. */
static void stage(struct fused *f, struct end **end, int n, int number)
{
    VECTOR(struct end *) now = {0};
    for (int i = 0; i < n; i++) {
        bool swept = end[i]->columns > 1 || end[i]->kind == END_ROW || end[i]->kind == END_COLUMN;
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
            if (e->kind == END_ROW || e->kind == END_TOTAL) sum_open(f, e);
            w.sums |= e->kind == END_COLUMN && !kept_in_memory(e);
            w.end[w.n++] = e;
            now.item[k] = NULL;
        }
        fused_pieces(f, w.columns, piece, &w);
        for (int k = 0; k < w.n; k++)
            if (w.end[k]->kind == END_ROW || w.end[k]->kind == END_TOTAL) sum_close(f, w.end[k]);
    }
}

/* ── launches ────────────────────────────────────────────────────────────────── */
static const char *next_function(struct fused *f, int threads)
{
    int number = ++f->cuda->launches;
    return cuda_begin(f->cuda->c, number > 1 ? text_format("step%d", number) : "", threads,
                      works(f));
}

static void start_over(struct fused *f)
{
    for (int l = 0; l < LEVELS; l++) {
        struct block *b = &f->block[l];
        b->text.length = 0, b->known.n = b->name.n = 0;
        if (b->text.bytes) b->text.bytes[0] = 0;
    }
    f->cuda->sums = f->cuda->wide_sums = 0;
}

/* The second launch of a sum over rows or of a total. */
static void finish(struct fused *f, const struct end *e)
{
    const struct node *n = e->node;
    const struct value *y = n->out[0];
    struct text *to = &f->cuda->c->functions;
    const char *function = next_function(f, BLOCK), *x = "1";
    if (e->kind == END_COLUMN) {
        text_add(to, "    add_chunks<%ld, %ld>(%s, %s);\n", row_chunks(e->rows, e->columns).count,
                 e->columns, fused_result(f, e), work_at("const float", place_of(f, n)));
        x = text_format("%ld", (e->columns + 31) / 32);
    } else {
        const char *part = work_at("double", place_of(f, n));
        text_add(to, "    const double s = add_numbers(%s, %ld);\n", part, e->rows);
        if (!emit_stored(f->e, y))
            text_add(to, "    if (threadIdx.x == 0) (%s)[%ld] = s;\n", part, e->rows);
        else if (y->type == BF16)
            text_add(to, "    if (threadIdx.x == 0) %s[0] = op_to_bf16((float)s);\n",
                     fused_result(f, e));
        else
            text_add(to, "    if (threadIdx.x == 0) %s[0] = (%s)s;\n", fused_result(f, e),
                     c_type(y->type, true));
    }
    cuda_end(f->cuda->c);
    cuda_launch(f->cuda->c, function, x, "1", "1", BLOCK, 0, works(f));
}

/* What a block of a chunk does before and after its rows. */
static void column_open(struct fused *f, struct end *e)
{
    struct cuda_fused *c = f->cuda;
    if (e->node->out[0]->type != F32)
        bug("%s sums rows in another type than f32", e->node->out[0]->name);
    e->lane = fused_name(f, LEVEL_KERNEL, e->node->out[0]->name, "_own");
    if (!kept_in_memory(e)) {
        fused_line(f, LEVEL_KERNEL, "float %s[%ld][8] = {};", e->lane,
                   (e->columns + 8 * c->group - 1) / (8 * c->group));
        return;
    }
    fused_line(f, LEVEL_KERNEL, "float *const %s = %s + (int64_t)blockIdx.x * %ld;", e->lane,
               work_at("float", place_of(f, e->node)), e->columns);
    fused_line(f, LEVEL_KERNEL, "for (int j0 = 8 * t; j0 < %ld; j0 += %d)", e->columns,
               8 * c->group);
    fused_line(f, LEVEL_KERNEL, "    for (int j = j0; j < j0 + 8 && j < %ld; j++) %s[j] = 0;",
               e->columns, e->lane);
}

static void column_close(struct fused *f, const struct end *e, struct text *to)
{
    const struct cuda_fused *c = f->cuda;
    if (kept_in_memory(e)) return;
    text_add(to, "    store_sums<%d, %d, %ld>(%s + (int64_t)blockIdx.x * %ld, %s);\n", c->group,
             c->threads / c->group, e->columns, work_at("float", place_of(f, e->node)), e->columns,
             e->lane);
}

static int64_t longest(struct end **end, int n)
{
    int64_t columns = 1;
    for (int i = 0; i < n; i++)
        if (end[i]->columns > columns) columns = end[i]->columns;
    return columns;
}

static bool has(struct end **end, int n, enum end_kind kind)
{
    for (int i = 0; i < n; i++)
        if (end[i]->kind == kind) return true;
    return false;
}

static const char *whole_type(int64_t most) { return most > INT32_MAX / 2 ? "int64_t" : "int"; }

/* Whether one of the long arguments is of F32. */
static bool moves_floats(const struct fused *f, int64_t columns)
{
    for (int i = 0; i < f->n_argument; i++) {
        const struct argument *a = &f->argument[i];
        if (a->kind == ARGUMENT_STATE ||
            ((a->kind == ARGUMENT_IN || a->kind == ARGUMENT_OUT) && a->value->type == F32 &&
             shape_count(a->value->shape) == columns))
            return true;
    }
    return false;
}

static const char *place_in_row(const struct cuda_fused *c)
{
    return c->group == 1           ? "0"
           : c->threads > c->group ? text_format("(int)threadIdx.x %% %d", c->group)
                                   : "(int)threadIdx.x";
}

static bool uses_t(const struct fused *f)
{
    return mentions(text_of(&f->block[LEVEL_KERNEL].text), "t") ||
           mentions(text_of(&f->block[LEVEL_ROW].text), "t");
}

/* Where a thread stands, and whether it has anything to do. Returns the number of blocks. */
static const char *stand(struct fused *f, struct text *to, int64_t rows, int64_t columns,
                         const struct row_chunks *chunks)
{
    const struct cuda_fused *c = f->cuda;
    int side_by_side = c->threads / c->group;
    if (f->cuda->assigns)
        text_add(to, "    if (%s[SCALAR_SKIP] != 0) return;\n",
                 fused_argument(f, ARGUMENT_SCALARS, NULL, NULL));
    if (c->c->walks) {
        text_add(to,
                 "    const int64_t j0 = from / %d * %d + %d * ((int64_t)blockIdx.x * %d + "
                 "threadIdx.x);\n",
                 c->width, c->width, c->width, BLOCK);
        return text_format("(s->from %% %d + s->count + %d) / %d", c->width, c->width * BLOCK - 1,
                           c->width * BLOCK);
    }
    switch (c->form) {
    case FORM_GRID:
        if (columns > 1)
            text_add(to, "    const %s j0 = %d * ((%s)blockIdx.x * %d + (int)threadIdx.x);\n",
                     whole_type(columns), c->width, whole_type(columns), c->threads);
        return text_format("%ld", (columns + c->width * c->threads - 1) / (c->width * c->threads));
    case FORM_ROWS:
        if (uses_t(f)) text_add(to, "    const int t = %s;\n", place_in_row(c));
        if (f->one_row) return "1";
        text_add(to, "    const %s r = (%s)blockIdx.x%s;\n", whole_type(rows), whole_type(rows),
                 side_by_side > 1 ? text_format(c->group > 1 ? " * %d + (int)threadIdx.x / %d"
                                                             : " * %d + (int)threadIdx.x",
                                                side_by_side, c->group)
                                  : "");
        if (rows % side_by_side) text_add(to, "    if (r >= %ld) return;\n", rows);
        return text_format("%ld", (rows + side_by_side - 1) / side_by_side);
    case FORM_CHUNKS:
        if (uses_t(f)) text_add(to, "    const int t = %s;\n", place_in_row(c));
        return text_format("%ld", chunks->count);
    }
    bug("form %d", (int)c->form);
}

static bool is_light(const struct emit_kernel *k)
{
    for (int i = 0; i < k->node.n; i++)
        if (fused_takes_long(k->node.item[i]->op)) return false;
    return true;
}

/* The row's own lines, in the loop over a chunk's rows where there is one. */
static void put_rows(struct fused *f, struct text *to, int64_t rows,
                     const struct row_chunks *chunks, bool sums_rows)
{
    const struct cuda_fused *c = f->cuda;
    const char *lines = text_of(&f->block[LEVEL_ROW].text), *type = whole_type(rows);
    if (f->one_row) return;
    if (c->form == FORM_CHUNKS) {
        int side_by_side = c->threads / c->group;
        text_add(to, "    const %s r0 = (%s)blockIdx.x * %ld, r1 = %s;\n", type, type, chunks->rows,
                 rows % chunks->rows ? text_format("r0 < %ld ? r0 + %ld : %ld", rows - chunks->rows,
                                                   chunks->rows, rows)
                                     : text_format("r0 + %ld", chunks->rows));
        /* rows do not wait for each other: read some ahead */
        if (!sums_rows) text_add(to, "#pragma unroll %d\n", is_light(f->k) ? 4 : 1);
        text_add(to, "    for (%s r = r0%s; r < r1; %s) {\n", type,
                 side_by_side > 1 ? text_format(" + (int)threadIdx.x / %d", c->group) : "",
                 side_by_side > 1 ? text_format("r += %d", side_by_side) : "r++");
        /* the last row's sums have been read */
        if (c->sums || c->wide_sums) text_add(to, "        __syncthreads();\n");
    }
    text_add(to, "%s%s", lines, c->form == FORM_CHUNKS ? "    }\n" : "");
}

/* 64 to 96 registers, with many sums of columns 128: left to itself the compiler saves some for
 * more blocks, and spills. */
static int resident(int threads, struct end **end, int n)
{
    int sums = 0;
    for (int i = 0; i < n; i++) sums += end[i]->kind == END_COLUMN;
    if (sums > 2) return 512 / threads;
    return threads == 512 ? 2 : threads == 256 ? 3 : threads == 128 ? 5 : 11;
}

static void launch_of(struct fused *f, struct end **end, int n)
{
    struct cuda_fused *c = f->cuda;
    struct cuda_kernel *k = c->c;
    int64_t rows = end[0]->rows, columns = longest(end, n);
    bool column = has(end, n, END_COLUMN);
    struct row_chunks chunks = {1, 1};
    int stages = 0;
    start_over(f);
    f->one_row = rows == 1;
    c->form = column                                                           ? FORM_CHUNKS
              : f->one_row && !has(end, n, END_ROW) && !has(end, n, END_TOTAL) ? FORM_GRID
                                                                               : FORM_ROWS;
    c->group = row_threads(columns);
    c->threads = c->group > 32 || f->one_row ? c->group : BLOCK;
    c->width = c->form == FORM_GRID && moves_floats(f, columns) ? 4 : 8;
    if (c->form == FORM_GRID) {
        int64_t needed = (columns + c->width - 1) / c->width;
        c->threads = columns == 1 ? 1 : 32;
        while (c->threads < BLOCK && c->threads < needed) c->threads *= 2;
        if (k->walks) c->threads = BLOCK;
        c->group = c->threads;
    }
    c->first = c->threads == 1 && c->form == FORM_GRID ? ""
               : c->form == FORM_GRID                  ? "if (j0 == 0) "
               : c->group > 1                          ? "if (t == 0) "
                                                       : "";
    f->block[LEVEL_KERNEL].indent = 4, f->block[LEVEL_ROW].indent = column ? 8 : 4;
    for (int i = 0; i < n; i++) {
        if (end[i]->stage >= stages) stages = end[i]->stage + 1;
        if (end[i]->kind == END_COLUMN)
            column_open(f, end[i]), chunks = row_chunks(rows, end[i]->columns);
    }
    for (int s = 0; s < stages; s++) stage(f, end, n, s);

    if (c->form != FORM_GRID && c->threads >= 64) k->resident = resident(c->threads, end, n);
    const char *function = next_function(f, c->threads);
    struct text *to = &k->functions;
    const char *blocks = stand(f, to, rows, columns, &chunks);
    if (c->sums) text_add(to, "    __shared__ float shared[%d][16];\n", c->sums);
    if (c->wide_sums) text_add(to, "    __shared__ double wide_shared[%d][16];\n", c->wide_sums);
    text_add(to, "%s", text_of(&f->block[LEVEL_KERNEL].text));
    put_rows(f, to, rows, &chunks, has(end, n, END_ROW) || has(end, n, END_TOTAL));
    for (int i = 0; i < n; i++)
        if (end[i]->kind == END_COLUMN) column_close(f, end[i], to);
    cuda_end(k);
    cuda_launch(k, function, blocks, "1", "1", c->threads, 0, works(f));
    for (int i = 0; i < n; i++)
        if (end[i]->kind == END_COLUMN || end[i]->kind == END_TOTAL) finish(f, end[i]);
}

/* All ends of one phase over one number of rows: one launch; but sums over rows whose blocks would
 * be cut otherwise have their own, because the order in which they are added must not depend on
 * what else the kernel does. */
static void group(struct fused *f, struct end **end, int n)
{
    VECTOR(struct end *) rest = {0};
    int widest = row_threads(longest(end, n));
    for (int i = 0; i < n; i++)
        if (end[i]->kind != END_COLUMN || row_threads(end[i]->columns) == widest)
            PUSH(&rest, end[i]);
    if (rest.n) launch_of(f, rest.item, rest.n);
    for (int i = 0; i < n; i++) {
        if (end[i]->kind != END_COLUMN || row_threads(end[i]->columns) == widest) continue;
        VECTOR(struct end *) own = {0};
        for (int k = 0; k < n; k++)
            if (end[k]->kind == END_ROW && end[k]->stage < end[i]->stage) PUSH(&own, end[k]);
        PUSH(&own, end[i]);
        launch_of(f, own.item, own.n);
    }
}

void emit_cuda_fused(struct cuda_kernel *c)
{
    struct cuda_fused cuda = {.c = c};
    struct fused f = {.e = c->emit,
                      .k = c->kernel,
                      .canonical = c->canonical,
                      .argument = c->argument,
                      .n_argument = c->n_argument,
                      .load = cuda_load_together,
                      .turn = cuda_turn,
                      .finished = finished,
                      .cuda = &cuda};
    struct ends p = {0};
    cuda.assigns = fused_ends(&f, &p);
    for (int phase = 0; phase < p.phases; phase++) fused_groups(&f, &p, phase, group);
}
