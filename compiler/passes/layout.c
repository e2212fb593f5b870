/* Packs buffers, each a range of steps and a number of bytes, into few bytes with a greedy rule: in
 * some order, each at the lowest gap between the placed buffers that are live at the same time.
 * Ordering by size is the rule of Pisarchyk and Lee (2020). Here the buffers that are live at the
 * peak come first, so they lie without gaps, as high as any layout must be, and the others fill in
 * around them. If one does not fit below, the buffer that ends highest goes first in the next try,
 * until the bound is nearly reached. `planc check` prints the remaining difference.
 *
 * Buffers that collectives touch come before the rest and have a window of their own, which a
 * collectives library can register; the rest fill its holes and continue after it. With two
 * separate allocations, each as large as its own peak, a mixture of experts would pay for its
 * logits and its gradient slots although it never has both. In the layout the window is the end of
 * the arena, so places are counted from there while packing. */
#include "passes/layout.h"

#include <stdlib.h>
#include <string.h>

/* What a buffer holds of its bytes, counted from its end, and when. */
struct part {
    int64_t low, high;
    int from, to;
};
/* full: live at the peak. busy: larger when all of it is live at the peak, and then the more of it
 * is live when those that are not full hold the most. falling: its last entry lies first. One part,
 * or those around an idle entry and that entry before and after it is idle. */
enum { PARTS = 4 };
struct item {
    struct buffer *buffer;
    int64_t bytes, at;
    int from, to, order, busy;
    bool full, falling;
    struct part part[PARTS];
    int parts;
};
struct placed {
    int64_t at, end;
    int from, to;
};
typedef int compare(const void *, const void *);

static bool owns(const struct buffer *b) { return b->kind != BUFFER_ALIAS; }
static int64_t step_bytes(const struct buffer *b) { return b->stride < 0 ? -b->stride : b->stride; }
static int64_t whole_bytes(const struct buffer *b) { return step_bytes(b) * b->entries; }
static int64_t whole_pages(int64_t bytes) { return round_up(bytes, 4096); }

static int larger_first(const void *a, const void *b)
{
    const struct item *x = a, *y = b;
    if (x->full != y->full) return x->full ? -1 : 1;
    if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
    return x->order - y->order;
}

static int longer_first(const void *a, const void *b)
{
    const struct item *x = a, *y = b;
    int p = x->to - x->from, q = y->to - y->from;
    return x->full != y->full || p == q ? larger_first(a, b) : q - p;
}

static int later_first(const void *a, const void *b)
{
    const struct item *x = a, *y = b;
    return x->full != y->full || x->from == y->from ? larger_first(a, b) : y->from - x->from;
}

static int busier_first(const void *a, const void *b)
{
    const struct item *x = a, *y = b;
    return x->full != y->full || x->busy == y->busy ? larger_first(a, b) : y->busy - x->busy;
}

/* Those placed so far, from the lowest on. */
struct shelf {
    struct placed *item;
    int n;
};

static void lay(struct shelf *s, struct placed p)
{
    int k = s->n;
    while (k > 0 && s->item[k - 1].at > p.at) k--;
    memmove(s->item + k + 1, s->item + k, (size_t)(s->n - k) * sizeof *s->item);
    s->item[k] = p, s->n++;
}

/* The lowest place at or above `at` where one part, as part of what begins at `at`, meets nobody.
 */
static int64_t free_place(const struct shelf *s, const struct part *p, int64_t at)
{
    for (int k = 0; k < s->n; k++) {
        const struct placed *other = &s->item[k];
        if (other->at >= at + p->high) break; /* the others are higher still */
        if (other->end > at + p->low && other->from <= p->to && p->from <= other->to)
            at = other->end - p->low;
    }
    return at;
}

/* Places item[first .. n) in their order around those before them; the highest byte of all of
 * them. */
static int64_t pack(struct item *item, int first, int n, bool apart, struct shelf *near)
{
    int64_t end = 0, full = 0;
    for (int i = first; i < n; i++) {
        struct item *it = &item[i];
        int64_t at = apart && !it->full ? full : 0;
        for (int settled = 0, k = 0; settled < it->parts; k = (k + 1) % it->parts) {
            int64_t higher = free_place(near, &it->part[k], at);
            settled = higher > at ? 1 : settled + 1;
            at = higher;
        }
        it->at = at;
        if (it->full && at + it->bytes > full) full = at + it->bytes;
        for (int k = 0; k < it->parts; k++)
            lay(near, (struct placed){at + it->part[k].low, at + it->part[k].high, it->part[k].from,
                                      it->part[k].to});
    }
    for (int i = 0; i < near->n; i++)
        if (near->item[i].end > end) end = near->item[i].end;
    return end;
}

/* Keeps a layout: places from the arena's end become offsets from its beginning, or from the
 * window's. */
static void settle(struct graph *g, const struct item *item, int n, int64_t window, int64_t arena)
{
    g->wire_bytes = whole_pages(window), g->local_bytes = whole_pages(arena) - g->wire_bytes;
    if (g->local_bytes < 0) g->local_bytes = 0;
    for (int i = 0; i < n; i++) {
        struct buffer *b = item[i].buffer;
        b->offset = g->local_bytes + g->wire_bytes - item[i].at - item[i].bytes;
        if (b->segment == SEGMENT_WIRE) b->offset -= g->local_bytes;
        b->stride = item[i].falling ? -step_bytes(b) : step_bytes(b);
        if (item[i].falling) b->offset -= b->stride * (b->entries - 1);
    }
}

/* The local buffer that ends highest becomes the first of its kind; false when it is one of the
 * window's. */
static bool promote(struct item *item, int wire, int n)
{
    int top = 0;
    for (int i = 1; i < n; i++)
        if (item[i].at + item[i].bytes > item[top].at + item[top].bytes) top = i;
    if (top <= wire) return false;
    struct item first = item[top];
    memmove(item + wire + 1, item + wire, (size_t)(top - wire) * sizeof *item);
    item[wire] = first;
    return true;
}

static void add_part(struct item *it, int64_t low, int64_t high, int from, int to)
{
    if (low < high && from <= to) it->part[it->parts++] = (struct part){low, high, from, to};
}

/* Places are counted from the end. What others may use of an idle entry is worth most beside bytes
 * that they have anyway, so its place is the first or the last if it is one of those entries. */
static void divide(struct item *it, bool near_end)
{
    const struct buffer *b = it->buffer;
    const int64_t step = step_bytes(b);
    it->falling = b->idle_to && (b->idle_entry == 0) == near_end;
    int64_t place = it->falling ? b->idle_entry : b->entries - 1 - b->idle_entry;
    int64_t low = it->bytes, high = it->bytes;
    if (b->idle_to) low = step * place, high = low + step;
    it->parts = 0;
    add_part(it, 0, low, it->from, it->to);
    add_part(it, high, it->bytes, it->from, it->to);
    add_part(it, low, high, it->from, b->idle_from - 1);
    add_part(it, low, high, b->idle_to + 1, it->to);
}

static struct item item_of(struct buffer *b, int order, int fullest)
{
    struct item it = {.buffer = b,
                      .bytes = whole_bytes(b),
                      .from = b->live_from,
                      .to = b->live_to,
                      .order = order,
                      .full = b->live_from <= fullest && fullest <= b->live_to};
    divide(&it, false);
    return it;
}

static int64_t live_at(const struct item *it, int step)
{
    int64_t bytes = 0;
    for (int k = 0; k < it->parts; k++)
        if (it->part[k].from <= step && step <= it->part[k].to)
            bytes += it->part[k].high - it->part[k].low;
    return bytes;
}

/* Where what is not live at the peak has to fit in: the step at which that is the most. */
static void find_busy(struct item *item, int n, int fullest)
{
    int last = 0, at = 0;
    for (int i = 0; i < n; i++)
        if (item[i].to > last) last = item[i].to;
    int64_t *change = TAKE_MANY(int64_t, last + 2), live = 0, most = 0;
    for (int i = 0; i < n; i++)
        if (!item[i].full) {
            change[item[i].from] += item[i].bytes;
            change[item[i].to + 1] -= item[i].bytes;
        }
    for (int k = 0; k <= last; k++) {
        live += change[k];
        if (live >= most) most = live, at = k;
    }
    for (int i = 0; i < n; i++) {
        int64_t there = live_at(&item[i], at);
        bool whole = live_at(&item[i], fullest) == item[i].bytes;
        item[i].busy = 3 * whole + (there > 0) + (there == item[i].bytes);
    }
}

static int collect(struct graph *g, enum segment segment, int fullest, struct item *item, int n)
{
    for (int i = 0; i < g->buffer.n; i++) {
        struct buffer *b = g->buffer.item[i];
        if (owns(b) && b->segment == segment) item[n] = item_of(b, n, fullest), n++;
    }
    return n;
}

/* The most bytes that owning buffers hold at one step: what no layout can go below. *step:
 * where. */
int64_t layout_bound(const struct graph *g, int *step)
{
    int last = 0;
    for (int i = 0; i < g->buffer.n; i++)
        if (g->buffer.item[i]->live_to > last) last = g->buffer.item[i]->live_to;
    /* by step, against the one before it */
    int64_t *change = TAKE_MANY(int64_t, last + 2), most = 0, live = 0;
    for (int i = 0; i < g->buffer.n; i++) {
        const struct buffer *b = g->buffer.item[i];
        if (!owns(b)) continue;
        change[b->live_from] += whole_bytes(b), change[b->live_to + 1] -= whole_bytes(b);
        if (b->idle_to)
            change[b->idle_from] -= step_bytes(b), change[b->idle_to + 1] += step_bytes(b);
    }
    *step = 0;
    for (int k = 0; k <= last; k++) {
        live += change[k];
        if (live > most) most = live, *step = k;
    }
    return most;
}

void layout_place(struct graph *g)
{
    static compare *const of_wire[] = {longer_first, larger_first, later_first, busier_first},
                          *const of_local[] = {larger_first, longer_first, later_first};
    const int patience = 20; /* tries without a better one */
    struct item *item = TAKE_MANY(struct item, g->buffer.n + 1);
    struct shelf near = {TAKE_MANY(struct placed, PARTS * g->buffer.n + 1), 0},
                 all = {TAKE_MANY(struct placed, PARTS * g->buffer.n + 1), 0};
    int fullest;
    int64_t least = INT64_MAX, bound = layout_bound(g, &fullest);
    int wire = collect(g, SEGMENT_WIRE, fullest, item, 0),
        n = collect(g, SEGMENT_LOCAL, fullest, item, wire);
    find_busy(item, n, fullest);
    const size_t orders = COUNT_OF(of_wire) * COUNT_OF(of_local);
    for (size_t w = 0; w < 2 * orders; w++) {
        qsort(item, (size_t)wire, sizeof *item, of_wire[w % COUNT_OF(of_wire)]);
        qsort(item + wire, (size_t)(n - wire), sizeof *item,
              of_local[w % orders / COUNT_OF(of_wire)]);
        near.n = 0;
        int64_t window = pack(item, 0, wire, w >= orders, &near);
        for (int k = 0; k < patience; k++) {
            memcpy(all.item, near.item, (size_t)near.n * sizeof *all.item);
            all.n = near.n;
            int64_t arena = pack(item, wire, n, false, &all);
            if (arena < least) settle(g, item, n, window, least = arena), k = -1;
            if (least <= bound + bound / 512) return;
            if (!promote(item, wire, n)) break;
        }
    }
}
