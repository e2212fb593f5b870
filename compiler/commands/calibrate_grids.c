/* Measured points become grids of a cluster. */
#define _GNU_SOURCE
#include "commands/calibrate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

const char *host_processor(void)
{
    FILE *f = fopen("/proc/cpuinfo", "re");
    char line[512];
    const char *name = "a processor that has no name";
    while (f && fgets(line, sizeof line, f)) {
        const char *colon = strchr(line, ':');
        if (!colon || strncmp(line, "model name", 10)) continue;
        name = intern_bytes(colon + 2, strcspn(colon + 2, "\n\"\\"));
        break;
    }
    if (f) fclose(f);
    return name;
}

const char *date_today(void)
{
    time_t now = time(NULL);
    char date[16];
    struct tm day;
    strftime(date, sizeof date, "%Y-%m-%d", gmtime_r(&now, &day));
    return intern(date);
}

int grid_points(const struct grid *g)
{
    int count = 1;
    for (int a = 0; a < g->axes; a++) count *= g->n[a];
    return count;
}

static struct grid grid_copy(const struct grid *g)
{
    struct grid to = *g;
    to.value = TAKE_MANY(double, grid_points(g));
    memcpy(to.value, g->value, sizeof *to.value * (size_t)grid_points(g));
    return to;
}

struct rates rates_of(const struct cluster *c)
{
    struct rates r = {0};
    for (int i = 0; i < c->grids; i++) PUSH(&r.grid, grid_copy(&c->grid[i]));
    for (int i = 0; i < c->efficiencies; i++) PUSH(&r.efficiency, c->efficiency[i]);
    return r;
}

static bool same_grid(const struct figure *a, const struct figure *b)
{
    return a->class == b->class && a->engine == b->engine && a->op == b->op && a->type == b->type &&
           a->order == b->order && a->ranks == b->ranks;
}

static int rising(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* The different values of one coordinate. */
static void set_axis(struct grid *g, int axis, const figure_list *all, const struct figure *of)
{
    g->axis[axis] = TAKE_MANY(double, all->n);
    int n = 0;
    for (int i = 0; i < all->n; i++)
        if (same_grid(&all->item[i], of)) g->axis[axis][n++] = all->item[i].at[axis];
    qsort(g->axis[axis], (size_t)n, sizeof(double), rising);
    g->n[axis] = 0;
    for (int i = 0; i < n; i++)
        if (!i || g->axis[axis][i] != g->axis[axis][i - 1])
            g->axis[axis][g->n[axis]++] = g->axis[axis][i];
}

static int place(const struct grid *g, int axis, double x)
{
    for (int i = 0; i < g->n[axis]; i++)
        if (g->axis[axis][i] == x) return i;
    bug("no such point of an axis");
}

/* Where nobody measured: the mean of the neighbours that are one smaller along an axis, which are
 * filled first; where there is none, of those that are one larger. */
static void fill_from(struct grid *g, int step)
{
    int count = 1, stride[GRID_AXES];
    for (int a = g->axes - 1; a >= 0; a--) stride[a] = count, count *= g->n[a];
    for (int k = 0; k < count; k++) {
        int i = step < 0 ? k : count - 1 - k, n = 0;
        double sum = 0;
        if (g->value[i] > 0) continue;
        for (int a = 0; a < g->axes; a++) {
            int at = i / stride[a] % g->n[a] + step;
            if (at < 0 || at >= g->n[a] || !(g->value[i + step * stride[a]] > 0)) continue;
            sum += log(g->value[i + step * stride[a]]);
            n++;
        }
        if (n) g->value[i] = exp(sum / n);
    }
}

static struct grid grid_of(const figure_list *all, const struct figure *of)
{
    struct grid g = {.class = of->class,
                     .engine = of->engine,
                     .op = of->op,
                     .type = of->type,
                     .order = of->order,
                     .ranks = of->ranks};
    int count = 1;
    g.unit = grid_unit_of(of->class, &g.axes);
    for (int a = 0; a < g.axes; a++) set_axis(&g, a, all, of), count *= g.n[a];
    g.value = TAKE_MANY(double, count);
    for (int i = 0; i < all->n; i++) {
        const struct figure *f = &all->item[i];
        if (!same_grid(f, of)) continue;
        int at = 0;
        for (int a = 0; a < g.axes; a++) at = at * g.n[a] + place(&g, a, f->at[a]);
        g.value[at] = f->value > 1e-9 ? f->value : 1e-9;
    }
    fill_from(&g, -1);
    fill_from(&g, 1);
    return g;
}

static bool same_row(const struct grid *a, const struct grid *b)
{
    return !strcmp(a->class, b->class) && !strcmp(a->engine, b->engine) &&
           !strcmp(a->op ? a->op : "", b->op ? b->op : "") && a->type == b->type &&
           a->order == b->order && a->ranks == b->ranks;
}

/* A row that was assumed and says less exactly what this one says is of no use beside it. */
static bool covers(const struct grid *a, const struct grid *old)
{
    return same_row(a, old) || (old->from.basis == BASIS_ASSUMED && !strcmp(a->class, old->class) &&
                                !strcmp(a->engine, old->engine) &&
                                !strcmp(a->op ? a->op : "", old->op ? old->op : "") &&
                                (a->type == old->type || (a->type < 0)) && old->order == ORDER_ANY);
}

void rates_add(struct rates *r, const figure_list *all, struct provenance from)
{
    for (int i = 0; i < all->n; i++) {
        bool first = true;
        for (int k = 0; k < i && first; k++) first = !same_grid(&all->item[i], &all->item[k]);
        if (!first) continue;
        struct grid g = grid_of(all, &all->item[i]);
        g.from = from;
        int n = 0;
        for (int k = 0; k < r->grid.n; k++)
            if (!covers(&g, &r->grid.item[k])) r->grid.item[n++] = r->grid.item[k];
        r->grid.n = n;
        PUSH(&r->grid, g);
    }
}

static bool same_figure(const struct figure *a, const struct figure *b)
{
    return a->class == b->class && a->engine == b->engine && a->op == b->op && a->type == b->type &&
           a->order == b->order;
}

/* The same point with one rank; NULL: none. */
static const struct figure *alone(const figure_list *all, const struct figure *of)
{
    for (int i = 0; i < all->n; i++)
        if (all->item[i].ranks == 1 && same_figure(&all->item[i], of) &&
            !memcmp(all->item[i].at, of->at, sizeof of->at))
            return &all->item[i];
    return NULL;
}

void figures_share(figure_list *all, int64_t ranks)
{
    if (ranks < 2) return;
    bool *done = TAKE_MANY(bool, all->n + 1);
    const struct figure **one = TAKE_MANY(const struct figure *, all->n + 1);
    double *ratio = TAKE_MANY(double, all->n + 1);
    for (int i = 0; i < all->n; i++) {
        int axes, n = 0;
        const struct figure *f = &all->item[i];
        if (done[i] || f->ranks != ranks || grid_unit_of(f->class, &axes) != GRID_GFLOPS) continue;
        for (int k = i; k < all->n; k++) {
            const struct figure *g = &all->item[k];
            if (g->ranks != ranks || !same_figure(g, f)) continue;
            done[k] = true;
            one[k] = alone(all, g);
            if (one[k]) ratio[n++] = g->value / one[k]->value;
        }
        if (!n) continue;
        qsort(ratio, (size_t)n, sizeof *ratio, rising);
        for (int k = i; k < all->n; k++)
            if (one[k] && all->item[k].ranks == ranks && same_figure(&all->item[k], f))
                all->item[k].value = one[k]->value * ratio[n / 2];
    }
}
