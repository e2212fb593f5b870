/* Grids over bytes from what trainers measured: moves, updates and sums of squares, each as it is,
 * and what a rank copies of its own part of a collective. They rest on memory and on the last
 * cache, which other programs use too: a run beside such a program takes up to twice as long in
 * them, while its products take as long as ever. So each point is held against its neighbours. */
#include "commands/calibrate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Of a smaller copy what the thread that copies takes to begin is most. */
#define LEAST_COPIED (1 << 20)

bool calibrate_by_bytes(const struct work *w)
{
    return w->class == COST_MOVE || w->class == COST_UPDATE ||
           (w->ops == 1 && w->op[0].op == OP_sum_squares);
}

static int rising(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* By row, then by bytes. */
static int row_order(const void *a, const void *b)
{
    const struct figure *x = a, *y = b;
    int order = strcmp(x->class, y->class);
    if (!order) order = strcmp(x->op ? x->op : "", y->op ? y->op : "");
    if (!order) order = x->type - y->type;
    if (!order) order = (x->ranks > y->ranks) - (x->ranks < y->ranks);
    return order;
}
static int point_order(const void *a, const void *b)
{
    const int order = row_order(a, b);
    return order ? order : rising(((const struct figure *)a)->at, ((const struct figure *)b)->at);
}

/* The median of point `at` of the n of a row and of two on either side; of fewer at the ends. */
static double median_around(const struct figure *row, int n, int at)
{
    const int last = n - 1 - at, side = at < last ? at : last, wide = side < 2 ? side : 2;
    double near[5];
    for (int i = 0; i <= 2 * wide; i++) near[i] = row[at - wide + i].value;
    qsort(near, (size_t)(2 * wide + 1), sizeof *near, rising);
    return near[wide];
}

/* Adds rows of these points, each with the median of those around it: times of such kernels change
 * little from one size to the next. A size that was seen more than once has the geometric mean. */
static void add_rows(struct rates *r, figure_list *all, struct provenance from)
{
    figure_list figures = {0};
    if (!all->n) return;
    qsort(all->item, (size_t)all->n, sizeof *all->item, point_order);
    for (int begin = 0, end; begin < all->n; begin = end) {
        for (end = begin; end < all->n && !row_order(&all->item[begin], &all->item[end]); end++) {}
        int seen = 0;
        for (int i = begin; i < end; i++) {
            struct figure f = all->item[i];
            const double value = median_around(&all->item[begin], end - begin, i - begin);
            seen = i > begin && f.at[0] == all->item[i - 1].at[0] ? seen + 1 : 1;
            f.value = value;
            if (seen == 1) {
                PUSH(&figures, f);
                continue;
            }
            double *mean = &figures.item[figures.n - 1].value;
            *mean = exp((log(*mean) * (seen - 1) + log(value)) / seen);
        }
    }
    rates_add(r, &figures, from);
}

static void fit_kernels(struct rates *r, const observation_list *all, struct provenance from)
{
    figure_list figures = {0};
    for (int i = 0; i < all->n; i++) {
        const struct observation *o = &all->item[i];
        const double elements = kernel_grid_elements(&o->work);
        const bool update = o->work.class == COST_UPDATE;
        if (!calibrate_by_bytes(&o->work) || !(elements > 0)) continue;
        PUSH(&figures,
             ((struct figure){.class = intern(cost_class_names[o->work.class]),
                              .engine = intern("planc"),
                              .op = update ? NULL : intern(op_rows[o->work.op[0].op].name),
                              .type = (int)o->work.type,
                              .ranks = o->ranks,
                              .at = {o->work.bytes},
                              .value = 1e9 * o->seconds / elements}));
    }
    add_rows(r, &figures, from);
}

/* What handing a collective over takes, seconds; 0: not known. The row of one rank also has the way
 * back, on which who waits is woken as the thread that moves was: half of it. */
static double handing_over_seconds(const struct cluster *c, const struct rates *r)
{
    struct cluster room;
    struct machine m = calibrate_machine(c, r, &room, 1);
    int row;
    const struct grid *g = machine_grid(&m, "gather", "mpi", -1, NULL, ORDER_ANY, 1, &row);
    return g && g->ranks <= 1 ? 1e-6 * g->value[0] / 2 : 0;
}

/* In a trainer what is copied is in no cache of the core that copies, other than in a copy that is
 * measured again and again. */
static void fit_copies(const struct cluster *c, struct rates *r, const struct run_times *all,
                       struct provenance from)
{
    const double handing = handing_over_seconds(c, r);
    figure_list figures = {0};
    for (int i = 0; i < all->copy.n; i++) {
        const struct copied *p = &all->copy.item[i];
        const double moving = p->seconds > 2 * handing ? p->seconds - handing : p->seconds / 2;
        if (p->bytes < LEAST_COPIED) continue;
        PUSH(&figures, ((struct figure){.class = intern("copy"),
                                        .engine = intern("planc"),
                                        .type = -1,
                                        .ranks = 1,
                                        .at = {p->bytes},
                                        .value = 1e-9 * p->bytes / moving}));
    }
    add_rows(r, &figures, from);
}

void calibrate_fit_bytes(const struct cluster *c, struct rates *r, const struct run_times *all,
                         struct provenance from)
{
    fit_kernels(r, &all->kernel, from);
    fit_copies(c, r, all, from);
}
