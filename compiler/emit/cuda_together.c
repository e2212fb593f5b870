/* How a thread of a fused cuda kernel accesses its neighbouring elements: with one access of 16
 * bytes (or 8) before the loop over them, if the rows of the array consist of whole groups of
 * neighbours. Stores are collected in the loop and written after it. */
#include "emit/cuda_fused.h"

#include <string.h>

/* Element [row, j0 + offset] of `v` as an index, when `width` from there on are aligned and
 * neighbours; else NULL. */
static const char *together_index(const struct fused *f, const struct value *v, struct spot at)
{
    int64_t rows, columns;
    fused_extent(f, v, &rows, &columns);
    if (!f->cuda->together || (at.kind != COLUMN_LOOP && at.kind != COLUMN_TURNED) ||
        at.row_level == LEVEL_COLUMN || v->type == F64)
        return NULL;
    if (columns % f->cuda->width || at.offset % f->cuda->width) return NULL;
    const char *column = at.kind == COLUMN_TURNED ? text_format("j0 + %s", at.column)
                         : at.offset ? text_format("j0 %c %ld", at.offset < 0 ? '-' : '+',
                                                   at.offset < 0 ? -at.offset : at.offset)
                                     : "j0";
    return fused_index(f, v, spot_named(at, column, LEVEL_TOGETHER));
}

/* All neighbours of a thread lie in one half: both halves of the row are one text, and no two
 * threads of a warp go different ways. */
const char *cuda_turn(struct fused *f, int64_t half)
{
    struct cuda_fused *c = f->cuda;
    const char *key = text_format("%ld", half);
    if (!c->together || half % c->width) return NULL;
    for (int i = 0; i < c->read.n; i++)
        if (!strcmp(c->read.item[i].pointer, "turn") && !strcmp(c->read.item[i].index, key))
            return c->read.item[i].name;
    const char *name = fused_name(f, LEVEL_TOGETHER, "turn", "");
    fused_line(f, LEVEL_TOGETHER, "const int %s = j0 < %ld ? %ld : -%ld;", name, half, half, half);
    PUSH(&c->read, ((struct together){"turn", key, name}));
    return name;
}

const char *cuda_load_together(struct fused *f, const char *pointer, const struct value *v,
                               struct spot at)
{
    const char *index = together_index(f, v, at);
    if (!index) return NULL;
    struct cuda_fused *c = f->cuda;
    for (int i = 0; i < c->read.n; i++)
        if (!strcmp(c->read.item[i].pointer, pointer) && !strcmp(c->read.item[i].index, index))
            return text_format("%s[k]", c->read.item[i].name);
    const char *name = fused_name(f, LEVEL_TOGETHER, v->name, text_format("_%d", f->cuda->width));
    fused_line(f, LEVEL_TOGETHER, "%s %s[%d];", c_type(v->type, false), name, f->cuda->width);
    fused_line(f, LEVEL_TOGETHER, "load(%s, &%s[%s]);", name, pointer, index);
    PUSH(&c->read, ((struct together){pointer, index, name}));
    return text_format("%s[k]", name);
}

/* Gathers what goes to `pointer`; false when it cannot. */
bool cuda_store_together(struct fused *f, const char *pointer, const struct value *v,
                         struct spot at, const char *x)
{
    const char *index = together_index(f, v, at);
    if (!index) return false;
    const char *name = fused_name(f, LEVEL_TOGETHER, v->name, text_format("_%d", f->cuda->width));
    fused_line(f, LEVEL_TOGETHER, "%s %s[%d];", c_type(v->type, false), name, f->cuda->width);
    fused_line(f, LEVEL_COLUMN, "%s[k] = %s;", name, x);
    text_add(&f->cuda->behind, "%*sstore(&%s[%s], %s);\n", f->block[LEVEL_TOGETHER].indent, "",
             pointer, index, name);
    return true;
}
