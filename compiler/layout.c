/* Packs buffers, each a stretch of steps by a number of bytes, into as few bytes as a greedy rule finds: largest first,
 * each at the lowest gap between the buffers already placed that are live with it. The rule is the one of Pisarchyk and
 * Lee (2020, "greedy by size"); what it misses of the bound is printed by those who care, never hidden. */
#include "layout.h"

#include <stdlib.h>
#include <string.h>

struct item { struct buffer *buffer; int64_t bytes; int order; };

static bool owns(const struct buffer *b, enum segment segment) { return b->segment == segment && strcmp(b->kind, "alias"); }
static int64_t whole_bytes(const struct buffer *b) { return b->stride * b->entries; }
static bool together(const struct buffer *a, const struct buffer *b) { return a->live_from <= b->live_to && b->live_from <= a->live_to; }

static int larger_first(const void *a, const void *b)
{
    const struct item *x = a, *y = b;
    if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
    return x->order - y->order;
}

static int lower_first(const void *a, const void *b)
{
    const struct buffer *x = *(struct buffer *const *)a, *y = *(struct buffer *const *)b;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

int64_t layout_place(struct graph *g, enum segment segment)
{
    struct item *item = TAKE_MANY(struct item, g->buffer.n + 1);
    struct buffer **near = TAKE_MANY(struct buffer *, g->buffer.n + 1);
    int n = 0;
    int64_t end = 0;
    for (int i = 0; i < g->buffer.n; i++)
        if (owns(g->buffer.item[i], segment)) item[n] = (struct item){g->buffer.item[i], whole_bytes(g->buffer.item[i]), n}, n++;
    qsort(item, (size_t)n, sizeof *item, larger_first);
    for (int i = 0; i < n; i++) {
        int neighbours = 0;
        for (int k = 0; k < i; k++)
            if (together(item[k].buffer, item[i].buffer)) near[neighbours++] = item[k].buffer;
        qsort(near, (size_t)neighbours, sizeof *near, lower_first);
        int64_t at = 0;
        for (int k = 0; k < neighbours && at + item[i].bytes > near[k]->offset; k++) {
            int64_t behind = near[k]->offset + whole_bytes(near[k]);
            if (behind > at) at = behind;
        }
        item[i].buffer->offset = at;
        if (at + item[i].bytes > end) end = at + item[i].bytes;
    }
    return (end + 4095) / 4096 * 4096;
}

int64_t layout_bound(const struct graph *g, enum segment segment, int *step)
{
    int64_t most = 0;
    *step = 0;
    for (int i = 0; i < g->buffer.n; i++) { /* live bytes only rise where something begins */
        if (!owns(g->buffer.item[i], segment)) continue;
        int at = g->buffer.item[i]->live_from;
        int64_t live = 0;
        for (int k = 0; k < g->buffer.n; k++)
            if (owns(g->buffer.item[k], segment) && g->buffer.item[k]->live_from <= at && at <= g->buffer.item[k]->live_to) live += whole_bytes(g->buffer.item[k]);
        if (live > most) most = live, *step = at;
    }
    return most;
}
