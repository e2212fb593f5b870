/* Where an element of a value is: the row and column of a spot as C. Broadcasting, views and index
 * ops only move the spot, so the text of a value stays plain arithmetic on arrays. A spot knows at
 * which level (kernel, row, column) it is known, and with it everything that is computed there. */
#include "emit/fused.h"

#include <stdlib.h>
#include <string.h>

const char *spot_column_text(struct spot at)
{
    switch (at.kind) {
    case COLUMN_FIXED: return intern_format("%ld", at.offset);
    case COLUMN_LOOP:
        return at.offset ? intern_format("j %c %ld", at.offset > 0 ? '+' : '-', labs(at.offset))
                         : intern("j");
    case COLUMN_NAMED: return intern(at.column);
    case COLUMN_TURNED: return intern_format("j + %s", at.column);
    }
    bug("column kind %d", (int)at.kind);
}

static int column_level(struct spot at)
{
    return at.kind == COLUMN_LOOP || at.kind == COLUMN_TURNED ? LEVEL_COLUMN
           : at.kind == COLUMN_NAMED                          ? at.column_level
                                                              : LEVEL_KERNEL;
}

int spot_level(struct spot at)
{
    return at.row_level > column_level(at) ? at.row_level : column_level(at);
}

bool fused_inside(const struct fused *f, const struct value *v)
{
    const struct value *root = emit_root(v);
    return root->node && root->node->kernel == f->k->kernel->number;
}

void fused_extent(const struct fused *f, const struct value *v, int64_t *rows, int64_t *columns)
{
    int64_t n = shape_count(v->shape);
    *columns = f->flat ? n : shape_columns(v->shape);
    *rows = *columns ? n / *columns : 0;
}

struct spot spot_start(const struct fused *f, bool loop)
{
    return (struct spot){.row = f->one_row ? "0" : "r",
                         .row_level = f->one_row ? LEVEL_KERNEL : LEVEL_ROW,
                         .kind = loop ? COLUMN_LOOP : COLUMN_FIXED};
}

struct spot spot_at_column(struct spot at, int64_t column)
{
    at.kind = COLUMN_FIXED;
    at.offset = column;
    return at;
}

struct spot spot_named(struct spot at, const char *name, int level)
{
    at.kind = COLUMN_NAMED;
    at.column = name;
    at.column_level = level;
    return at;
}

struct spot spot_shifted(struct spot at, int64_t by_columns)
{
    at.offset += by_columns;
    if (at.kind == COLUMN_NAMED) {
        at.column =
            intern_format("(%s %c %ld)", at.column, by_columns < 0 ? '-' : '+', labs(by_columns));
        at.offset = 0;
    }
    return at;
}

struct spot spot_settled(const struct fused *f, const struct value *v, struct spot at)
{
    int64_t rows, columns;
    fused_extent(f, v, &rows, &columns);
    if (rows == 1) at.row = "0", at.row_level = LEVEL_KERNEL;
    if (columns == 1) at = spot_at_column(at, 0);
    return at;
}

/* The row of an operand that is broadcast to `out` at row `at.row`: axes matched from the last; 1
 * spreads, the first repeats. */
static const char *broadcast_row(const struct value *out, const struct value *in, const char *row)
{
    struct text t = {0};
    int leading = out->shape.rank - 1, skip = out->shape.rank - in->shape.rank;
    bool same = true;
    int64_t stride_out = 1, stride_in = 1;
    for (int k = leading - 1; k >= 0; k--) {
        int64_t all = out->shape.dim[k], mine = k >= skip ? in->shape.dim[k - skip] : 1;
        same &= all == mine;
        if (mine > 1) {
            struct text term = {0};
            text_add(&term, "%s", row);
            if (stride_out > 1) text_add(&term, " / %ld", stride_out);
            if (mine < all)
                text_add(&term, " %% %ld", mine);
            else if (k > 0)
                text_add(&term, " %% %ld", all);
            if (stride_in > 1) text_add(&term, " * %ld", stride_in);
            text_add(&t, "%s%s", t.length ? " + " : "", term.bytes);
        }
        stride_out *= all;
        stride_in *= mine;
    }
    return same || !strcmp(row, "0") ? row : t.length ? intern_format("(%s)", t.bytes) : "0";
}

struct spot spot_of_operand(const struct fused *f, const struct value *out, const struct value *in,
                            struct spot at)
{
    int64_t rows, columns, in_rows, in_columns;
    fused_extent(f, out, &rows, &columns);
    fused_extent(f, in, &in_rows, &in_columns);
    if (!f->flat && in_rows > 1) at.row = broadcast_row(out, in, at.row);
    return spot_settled(f, in, at);
}

/* On cuda rows and columns are 32-bit numbers where they can be; a factor of 64 bits where an index
 * cannot. */
static const char *wide(const struct fused *f, const struct value *v)
{
    return f->cuda && shape_count(v->shape) > INT32_MAX ? "LL" : "";
}

struct spot spot_reshaped(const struct fused *f, const struct value *from, const struct value *to,
                          struct spot at)
{
    int64_t rows, columns, to_rows, to_columns;
    fused_extent(f, from, &rows, &columns);
    fused_extent(f, to, &to_rows, &to_columns);
    at = spot_settled(f, from, at);
    if (columns == to_columns) return spot_settled(f, to, at);
    int level = spot_level(at);
    const char *flat = columns == 1 ? at.row
                       : rows == 1  ? spot_column_text(at)
                                    : intern_format("(%s * %ld%s + %s)", at.row, columns,
                                                    wide(f, from), spot_column_text(at));
    struct spot s = at;
    if (to_columns == 1) {
        s.row =
            rows == 1 && at.kind == COLUMN_LOOP && at.offset ? intern_format("(%s)", flat) : flat;
        s.row_level = level;
        return spot_settled(f, to, s);
    }
    s.row = to_rows == 1 ? "0" : intern_format("(%s / %ld)", flat, to_columns);
    s.row_level = to_rows == 1 ? LEVEL_KERNEL : level;
    return spot_settled(
        f, to,
        spot_named(s, to_rows == 1 ? flat : intern_format("%s %% %ld", flat, to_columns), level));
}

const char *fused_index(const struct fused *f, const struct value *v, struct spot at)
{
    int64_t rows, columns;
    fused_extent(f, v, &rows, &columns);
    at = spot_settled(f, v, at);
    if (columns == 1) return at.row;
    if (!strcmp(at.row, "0")) return spot_column_text(at);
    return text_format("%s * %ld%s + %s", at.row, columns, wide(f, v), spot_column_text(at));
}
