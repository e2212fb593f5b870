/* Curves: tokens/s over numbers of devices, and the points of a space. */
#include "report/sections.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ── scaling ─────────────────────────────────────────────────────────────────── */

static const char *label_devices(double x)
{
    return x == floor(x) ? text_count((int64_t)(exp2(x) + 0.5)) : "";
}

static void scaling_chart(struct text *t, const rung_list *rungs)
{
    double *px = TAKE_MANY(double, rungs->n), *py = TAKE_MANY(double, rungs->n);
    const struct rung *row[2] = {NULL, NULL};
    double least = INFINITY, most = 0, high = 0;
    for (int i = 0; i < rungs->n; i++) {
        const struct rung *r = &rungs->item[i];
        if (r->why) continue;
        double at = log2((double)r->devices);
        if (at < least) least = at, row[0] = r;
        if (at > most) most = at, row[1] = r;
        if (r->per_device > high) high = r->per_device;
    }
    if (!row[0]) return;
    struct scale x = axis_over(floor(least), ceil(most) > floor(least) ? ceil(most) : least + 1,
                               false),
                 y = axis_over(0, 1.1 * high, false);
    x.step = ceil(x.step);
    int n = 0;
    chart_open(t, "Tokens per second and device over the number of devices", 240, &y, label_count);
    for (int i = 0; i < rungs->n; i++)
        if (!rungs->item[i].why) {
            px[n] = axis_place(&x, log2((double)rungs->item[i].devices));
            py[n++] = 1000 - axis_place(&y, rungs->item[i].per_device);
        }
    for (int i = 1; i < n; i++) /* by devices */
        for (int k = i; k && px[k - 1] > px[k]; k--) {
            double a = px[k], b = py[k];
            px[k] = px[k - 1], py[k] = py[k - 1], px[k - 1] = a, py[k - 1] = b;
        }
    chart_line(t, "k0", px, py, n);
    for (int i = 0; i < rungs->n; i++) {
        const struct rung *r = &rungs->item[i];
        if (!r->why)
            chart_point(t, "k0", axis_place(&x, log2((double)r->devices)),
                        1000 - axis_place(&y, r->per_device),
                        text_format("%s devices\n%s tokens/s per device\nefficiency %.1f %%",
                                    text_count(r->devices),
                                    text_count((int64_t)(r->per_device + 0.5)),
                                    100 * r->efficiency));
    }
    chart_close(t, &x, label_devices, NULL);
}

void section_scaling(struct text *t, const rung_list *rungs, bool weak)
{
    text_add(t,
             "<section>\n<h2>Scaling</h2>\n<p class=\"soft\">%s. Tokens/s a device over the number "
             "of devices; a flat line is perfect.</p>\n",
             weak ? "Weak: the batch of a device stays" : "Strong: the global batch stays");
    scaling_chart(t, rungs);
    text_add(t, "<div class=\"wide\"><table>\n<tr><th class=\"n\">devices</th><th class=\"n\">step"
                "</th><th class=\"n\">tokens/s per device</th><th class=\"n\">exposed</th><th "
                "class=\"n\">peak</th><th class=\"n\">efficiency</th></tr>\n");
    for (int i = 0; i < rungs->n; i++) {
        const struct rung *r = &rungs->item[i];
        if (r->why)
            text_add(t, "<tr><td class=\"n\">%s</td><td colspan=\"5\">impossible: %s</td></tr>\n",
                     text_count(r->devices), html_text(r->why));
        else
            text_add(
                t,
                "<tr><td class=\"n\">%s</td><td class=\"n\">%s</td><td class=\"n\">%s</td><td "
                "class=\"n\">%s</td><td class=\"n\">%s</td><td class=\"n\">%.1f %%</td></tr>\n",
                text_count(r->devices), html_seconds(r->step_seconds),
                text_count((int64_t)(r->per_device + 0.5)),
                html_seconds((double)r->prediction->exposed_all * 1e-12),
                text_bytes(r->ledger->peak_bytes), 100 * r->efficiency);
    }
    text_add(t, "</table></div>\n</section>\n");
}

/* ── a space ─────────────────────────────────────────────────────────────────── */

struct place {
    int number; /* in the space */
    const char *set, *reason;
    enum verdict verdict;
    double bytes, seconds, rate; /* rate: tokens/s */
    bool frontier;               /* fits, and nothing that needs less is as fast */
};
typedef VECTOR(struct place) place_list;

static int by_bytes(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? -1 : 1;
    return x->rate != y->rate ? (x->rate > y->rate ? -1 : 1) : x->number - y->number;
}

static enum verdict verdict_of(const char *name)
{
    int k = FITS;
    while (k < IMPOSSIBLE && strcmp(verdict_names[k], name)) k++;
    return (enum verdict)k;
}

static place_list places_of(const json_t *space, double tokens)
{
    place_list all = {0};
    size_t i, k;
    json_t *point, *word;
    json_array_foreach(json_object_get(space, "points"), i, point)
    {
        struct text set = {0};
        json_array_foreach(json_object_get(point, "set"), k, word)
            text_add(&set, "%s%s", k ? " " : "", json_string_value(word));
        const char *reason = json_string_value(json_object_get(point, "reason"));
        struct place p = {.number = (int)i,
                          .set = set.bytes ? set.bytes : "",
                          .verdict =
                              verdict_of(json_string_value(json_object_get(point, "verdict"))),
                          .reason = reason ? reason : "",
                          .bytes = json_number_value(json_object_get(point, "peak_bytes")),
                          .seconds = json_number_value(json_object_get(point, "step_seconds"))};
        p.rate = p.seconds > 0 ? tokens / p.seconds : 0;
        PUSH(&all, p);
    }
    qsort(all.item, (size_t)all.n, sizeof *all.item, by_bytes);
    double best = 0;
    for (int n = 0; n < all.n; n++) {
        struct place *p = &all.item[n];
        bool fits = p->verdict == FITS || p->verdict == TIGHT;
        p->frontier = fits && p->rate > best;
        if (p->frontier) best = p->rate;
    }
    return all;
}

/* Why a point is not the answer. */
static const char *reason_of(const struct place *p, const struct place *best, double limit)
{
    if (p->reason[0] && p != best)
        return p->frontier ? text_format("%s; on the frontier", p->reason) : p->reason;
    if (p->verdict == EXCEEDS)
        return text_format("needs %s, %.0f %% of the limit", text_bytes((int64_t)p->bytes),
                           100 * p->bytes / limit);
    if (p == best) return "the fastest that fits";
    if (p->frontier) return "on the frontier: nothing that needs less memory is as fast";
    return best ? text_format("%.1f %% slower than the fastest that fits",
                              100 * (p->seconds / best->seconds - 1))
                : verdict_names[p->verdict];
}

static void space_chart(struct text *t, const place_list *all, const struct place *best,
                        double limit)
{
    double low = INFINITY, high = 0, rate = 0;
    for (int i = 0; i < all->n; i++) {
        const struct place *p = &all->item[i];
        if (!(p->rate > 0)) continue;
        low = fmin(low, p->bytes), high = fmax(high, p->bytes), rate = fmax(rate, p->rate);
    }
    if (!(rate > 0)) return;
    bool far = limit > 3 * high;
    double edge = far ? high : fmax(high, limit);
    struct scale x = axis_over(0.9 * low, edge + 0.08 * (edge - 0.9 * low), true),
                 y = axis_over(0, 1.1 * rate, false);
    double *px = TAKE_MANY(double, all->n), *py = TAKE_MANY(double, all->n);
    int n = 0;
    chart_open(t, "Peak memory against tokens per second, one dot a point", 300, &y, label_count);
    if (!far)
        text_add(t, "<line class=\"limit\" y1=\"0\" y2=\"1000\" x1=\"%.1f\" x2=\"%.1f\"/>\n",
                 axis_place(&x, limit), axis_place(&x, limit));
    for (int i = 0; i < all->n; i++)
        if (all->item[i].frontier)
            px[n] = axis_place(&x, all->item[i].bytes),
            py[n++] = 1000 - axis_place(&y, all->item[i].rate);
    chart_line(t, "k2", px, py, n);
    for (int i = 0; i < all->n; i++) {
        const struct place *p = &all->item[i];
        if (p->rate > 0)
            chart_point(
                t,
                p->verdict == EXCEEDS ? "wait"
                : p->frontier         ? "k2"
                                      : "k7",
                axis_place(&x, p->bytes), 1000 - axis_place(&y, p->rate),
                text_format("%s\n%s, %s tokens/s\n%s", p->set, text_bytes((int64_t)p->bytes),
                            text_count((int64_t)(p->rate + 0.5)), reason_of(p, best, limit)));
    }
    chart_close(t, &x, label_bytes, NULL);
    text_add(
        t,
        "<p class=\"soft\"><i class=\"k2\"></i>frontier &emsp; <i class=\"k7\"></i>others that "
        "fit &emsp; <i class=\"wait\"></i>exceed; the dashed line is the limit, %s%s</p>\n",
        text_bytes((int64_t)limit), far ? ", far right of this drawing" : "");
}

int section_space(struct text *t, const json_t *space, double limit, double tokens)
{
    place_list all = places_of(space, tokens);
    const struct place *best = NULL;
    for (int i = 0; i < all.n; i++)
        if (all.item[i].frontier) best = &all.item[i];
    text_add(
        t,
        "<section>\n<h2>Every point: peak against speed</h2>\n<p class=\"soft\">%d points, all "
        "with %s tokens per step.</p>\n",
        all.n, text_count((int64_t)tokens));
    space_chart(t, &all, best, limit);
    text_add(t, "<div class=\"wide\"><table>\n<tr><th>point</th><th class=\"n\">peak</th><th "
                "class=\"n\">step</th><th class=\"n\">tokens/s</th><th>why</th></tr>\n");
    for (int i = 0; i < all.n; i++) {
        const struct place *p = &all.item[i];
        text_add(t,
                 "<tr><td>%s</td><td class=\"n\">%s</td><td class=\"n\">%s</td><td "
                 "class=\"n\">%s</td><td class=\"why\">%s</td></tr>\n",
                 html_text(p->set), p->bytes > 0 ? text_bytes((int64_t)p->bytes) : "",
                 p->seconds > 0 ? html_seconds(p->seconds) : "",
                 p->rate > 0 ? text_count((int64_t)(p->rate + 0.5)) : "",
                 html_text(reason_of(p, best, limit)));
    }
    text_add(t, "</table></div>\n</section>\n");
    return best ? best->number : -1;
}
