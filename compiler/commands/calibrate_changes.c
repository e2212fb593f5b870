/* What a calibration changed, row by row: of a grid the ratio of the new values to what the old
 * rows answered at the same points. */
#include "base/escape.h"
#include "commands/calibrate.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct change {
    const char *row;
    double before, after; /* of a single number */
    int points;           /* of a grid; 0: a single number */
    bool known;           /* some row answered before */
    double middle, low, high;
    const char *basis; /* of that row */
};
typedef VECTOR(struct change) change_list;

static const char *const basis_names[] =
    {[BASIS_MEASURED] = "measured", [BASIS_PUBLISHED] = "published", [BASIS_ASSUMED] = "assumed"};

static const char *name_of(const char *what, const char *class, const char *engine, int type,
                           const char *op, enum order order, int64_t ranks)
{
    static const char *const orders[] = {"", " nn", " nt", " tn", " tt"};
    return text_format("%s %s %s%s%s%s%s%s", what, class, engine,
                       type < 0      ? ""
                       : type == F32 ? " fp32"
                                     : " bf16",
                       op ? " " : "", op ? op : "", orders[order],
                       ranks > 1 ? text_format(", %lld ranks", (long long)ranks) : "");
}

static int rising(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static bool same_values(const struct grid *a, const struct grid *b)
{
    int count = 1;
    for (int k = 0; k < a->axes; k++) {
        if (a->n[k] != b->n[k] ||
            memcmp(a->axis[k], b->axis[k], sizeof(double) * (size_t)a->n[k]) != 0)
            return false;
        count *= a->n[k];
    }
    for (int i = 0; i < count; i++)
        if (fabs(a->value[i] - b->value[i]) > 1e-9 * a->value[i]) return false;
    return true;
}

/* The grid that was there, or that would have answered in its place. */
static const struct grid *answered(const struct machine *before, const struct grid *g)
{
    int row;
    const struct grid *old =
        machine_grid(before, g->class, g->engine, g->type, g->op, g->order, g->ranks, &row);
    return old && old->axes == g->axes && old->unit == g->unit ? old : NULL;
}

static void compare_grid(change_list *all, const struct machine *before, const struct grid *g)
{
    const struct grid *old = answered(before, g);
    struct change c = {.row =
                           name_of("grid", g->class, g->engine, g->type, g->op, g->order, g->ranks),
                       .points = 1};
    bool outside = false;
    for (int a = 0; a < g->axes; a++) c.points *= g->n[a];
    if (old && old->ranks == g->ranks && same_values(old, g)) return;
    if (old) {
        double *ratio = TAKE_MANY(double, c.points);
        for (int i = 0; i < c.points; i++) {
            double at[GRID_AXES] = {0};
            for (int a = g->axes - 1, rest = i; a >= 0; rest /= g->n[a], a--)
                at[a] = g->axis[a][rest % g->n[a]];
            ratio[i] = g->value[i] / grid_value(old, at, &outside);
        }
        qsort(ratio, (size_t)c.points, sizeof *ratio, rising);
        c.known = true;
        c.basis = basis_names[old->from.basis];
        c.middle = ratio[c.points / 2], c.low = ratio[0], c.high = ratio[c.points - 1];
    }
    PUSH(all, c);
}

static void compare_number(change_list *all, const char *row, double before, double after)
{
    if (fabs(before - after) > 1e-9 * fabs(before))
        PUSH(all, ((struct change){.row = row, .before = before, .after = after}));
}

static void compare(change_list *all, const struct cluster *before, const struct cluster *after,
                    const struct rates *r)
{
    struct plan carrier = {.cluster = *before, .device = before->kind};
    struct machine m = machine_of(&carrier);
    compare_number(all, "cores", (double)before->cores, (double)after->cores);
    compare_number(all, "jitter", before->jitter, after->jitter);
    compare_number(all, "host.step, seconds", before->host.step, after->host.step);
    compare_number(all, "host.launch, seconds", before->host.launch, after->host.launch);
    compare_number(all, "host.issue, seconds", before->host.issue, after->host.issue);
    compare_number(all, "contention.core", before->contention.core, after->contention.core);
    compare_number(all, "contention.link", before->contention.link, after->contention.link);
    for (int i = 0; i < r->efficiency.n && i < before->efficiencies; i++) {
        const struct efficiency *a = &before->efficiency[i], *b = &r->efficiency.item[i];
        compare_number(all, name_of("efficiency", b->class, b->engine, b->type, NULL, b->order, 1),
                       a->value, b->value);
    }
    for (int i = 0; i < r->grid.n; i++) compare_grid(all, &m, &r->grid.item[i]);
}

static void print_change(const struct change *c)
{
    if (!c->points)
        printf("%s: %.4g -> %.4g\n", c->row, c->before, c->after);
    else if (!c->known)
        printf("%s: new, %d points\n", c->row, c->points);
    else
        printf("%s: %d points, %.3g x what was %s (%.3g to %.3g)\n", c->row, c->points, c->middle,
               c->basis, c->low, c->high);
}

static json_t *change_json(const struct change *c)
{
    if (!c->points)
        return json_pack("{s:s, s:f, s:f}", "row", c->row, "before", c->before, "after", c->after);
    if (!c->known) return json_pack("{s:s, s:i}", "row", c->row, "points", c->points);
    return json_pack("{s:s, s:i, s:s, s:f, s:[f,f]}", "row", c->row, "points", c->points, "before",
                     c->basis, "ratio", c->middle, "ratio_interval", c->low, c->high);
}

void calibrate_say(const char *path, bool json, const struct cluster *before,
                   const struct cluster *after, const struct rates *r, struct provenance now)
{
    change_list all = {0};
    json_t *list = json_array();
    int measured = 0, rows = r->grid.n + r->efficiency.n;
    compare(&all, before, after, r);
    for (int i = 0; i < r->grid.n; i++) measured += r->grid.item[i].from.date == now.date;
    for (int i = 0; i < r->efficiency.n; i++)
        measured += r->efficiency.item[i].from.date == now.date;
    for (int i = 0; i < all.n; i++)
        if (json)
            json_array_append_new(list, change_json(&all.item[i]));
        else
            print_change(&all.item[i]);
    if (json)
        printf("%s\n",
               json_dumps(json_pack("{s:s, s:s, s:s, s:s, s:i, s:i, s:o}", "file", utf8_text(path),
                                    "cluster", after->name ? after->name : "measured", "source",
                                    now.source, "date", now.date, "rows", rows, "rows_measured",
                                    measured, "changes", list),
                          JSON_INDENT(2)));
    else
        printf("%s: %d of %d rows of rates measured, %s, %s; --cluster %s takes them\n", path,
               measured, rows, now.source, now.date, path);
}
