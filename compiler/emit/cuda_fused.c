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

#include "passes/workspace.h"

enum { BLOCK = 256 };

/* ── launches ────────────────────────────────────────────────────────────────── */
static const char *next_function(struct fused *f, int threads)
{
    int number = ++f->cuda->launches;
    return cuda_begin(f->cuda->c, number > 1 ? text_format("step%d", number) : "", threads,
                      cuda_works(f));
}

static void start_over(struct fused *f)
{
    for (int l = 0; l < LEVELS; l++) {
        struct block *b = &f->block[l];
        b->text.length = 0, b->known.n = b->name.n = 0;
        if (b->text.bytes) b->text.bytes[0] = 0;
    }
    f->cuda->sums = f->cuda->wide_sums = f->chosen.n = 0;
}

/* The second launch of a sum over rows or of a total. */
static void finish(struct fused *f, const struct end *e)
{
    const struct node *n = e->node;
    const struct value *y = n->out[0];
    struct text *to = &f->cuda->c->functions;
    const char *function = next_function(f, BLOCK), *x = "1";
    if (e->kind == END_COLUMN) {
        text_add(to, "    add_chunks<%ld, %ld>(%s, %s);\n",
                 row_chunks(&f->e->graph->facts, e->rows, e->columns).count, e->columns,
                 fused_result(f, e), cuda_work_at("const float", cuda_place_of(f, n)));
        x = text_format("%ld", (e->columns + 31) / 32);
    } else {
        const char *part = cuda_work_at("double", cuda_place_of(f, n));
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
    cuda_launch(f->cuda->c, function, x, "1", "1", BLOCK, 0, cuda_works(f));
}

/* What a block of a chunk does before and after its rows. */
static void column_open(struct fused *f, struct end *e)
{
    struct cuda_fused *c = f->cuda;
    if (e->node->out[0]->type != F32)
        bug("%s sums rows in another type than f32", e->node->out[0]->name);
    e->lane = fused_name(f, LEVEL_KERNEL, e->node->out[0]->name, "_own");
    if (!cuda_kept_in_memory(e)) {
        fused_line(f, LEVEL_KERNEL, "float %s[%ld][8] = {};", e->lane,
                   (e->columns + 8 * c->group - 1) / (8 * c->group));
        return;
    }
    fused_line(f, LEVEL_KERNEL, "float *const %s = %s + (int64_t)blockIdx.x * %ld;", e->lane,
               cuda_work_at("float", cuda_place_of(f, e->node)), e->columns);
    fused_line(f, LEVEL_KERNEL, "for (int j0 = 8 * t; j0 < %ld; j0 += %d)", e->columns,
               8 * c->group);
    fused_line(f, LEVEL_KERNEL, "    for (int j = j0; j < j0 + 8 && j < %ld; j++) %s[j] = 0;",
               e->columns, e->lane);
}

static void column_close(struct fused *f, const struct end *e, struct text *to)
{
    const struct cuda_fused *c = f->cuda;
    if (cuda_kept_in_memory(e)) return;
    text_add(to, "    store_sums<%d, %d, %ld>(%s + (int64_t)blockIdx.x * %ld, %s);\n", c->group,
             c->threads / c->group, e->columns, cuda_work_at("float", cuda_place_of(f, e->node)),
             e->columns, e->lane);
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

/* Whether the threads of a row tell each other something. */
static bool sums_rows(struct end **end, int n)
{
    return has(end, n, END_ROW) || has(end, n, END_TOP) || has(end, n, END_TOTAL);
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
    return cuda_mentions(cuda_text(&f->block[LEVEL_KERNEL].text), "t") ||
           cuda_mentions(cuda_text(&f->block[LEVEL_ROW].text), "t");
}

/* The row and the columns of a thread, and whether it has work. Returns the number of blocks. */
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
    const char *lines = cuda_text(&f->block[LEVEL_ROW].text), *type = whole_type(rows);
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

/* 64 to 96 registers: left to itself the compiler saves some for more blocks, and spills. 128 where
 * a thread has several sums of columns: more than two, or in large blocks, which have 64 or 80
 * registers otherwise, more than the eight of one piece. */
static int resident(int threads, int width, struct end **end, int n)
{
    int sums = 0;
    int64_t pieces = 0;
    for (int i = 0; i < n; i++)
        if (end[i]->kind == END_COLUMN)
            sums++, pieces += (end[i]->columns + threads * width - 1) / (threads * width);
    if (sums > 2 || (pieces > 1 && threads >= 256)) return 512 / threads;
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
    c->form = column ? FORM_CHUNKS : f->one_row && !sums_rows(end, n) ? FORM_GRID : FORM_ROWS;
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
            column_open(f, end[i]), chunks = row_chunks(&f->e->graph->facts, rows, end[i]->columns);
    }
    if (fused_picks(f, end[0]) && c->group <= 32)
        fused_line(f, LEVEL_ROW, "row_meet<%d>();", c->group);
    for (int s = 0; s < stages; s++) cuda_stage(f, end, n, s);

    if (c->form != FORM_GRID && c->threads >= 64)
        k->resident = resident(c->threads, c->width, end, n);
    const char *function = next_function(f, c->threads);
    struct text *to = &k->functions;
    const char *blocks = stand(f, to, rows, columns, &chunks);
    if (c->sums) text_add(to, "    __shared__ float shared[%d][16];\n", c->sums);
    if (c->wide_sums) text_add(to, "    __shared__ double wide_shared[%d][16];\n", c->wide_sums);
    text_add(to, "%s", cuda_text(&f->block[LEVEL_KERNEL].text));
    put_rows(f, to, rows, &chunks, sums_rows(end, n));
    for (int i = 0; i < n; i++)
        if (end[i]->kind == END_COLUMN) column_close(f, end[i], to);
    cuda_end(k);
    cuda_launch(k, function, blocks, "1", "1", c->threads, 0, cuda_works(f));
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
            if (end_of_row(end[k]) && end[k]->stage < end[i]->stage) PUSH(&own, end[k]);
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
                      .finished = cuda_finished,
                      .cuda = &cuda};
    struct ends p = {0};
    cuda.assigns = fused_ends(&f, &p);
    for (int phase = 0; phase < p.phases; phase++) fused_groups(&f, &p, phase, group);
}
