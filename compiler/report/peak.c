/* Memory over the step: at every step of the schedule the bytes of each kind, as the layout has
 * them. */
#include "report/peak.h"

#include <stdlib.h>
#include <string.h>

/* A kind over all steps; the last of MEMORY_KINDS is the rest. */
struct kind {
    const char *name;
    int64_t most, *bytes; /* by step */
};
typedef VECTOR(struct kind) kind_list;

static bool is_unused(const struct term *m) { return m->inside && !strcmp(m->name, "unused"); }

static int larger_first(const void *a, const void *b)
{
    const struct kind *x = a, *y = b;
    return x->most != y->most ? (x->most > y->most ? -1 : 1) : strcmp(x->name, y->name);
}

static const char *place_of(const char *file, int line)
{
    return file ? text_format("%s:%d", file, line) : "";
}

/* What is alive at a step, largest kinds first, with the plan's lines. */
static const char *tip_of(const struct rung *r, const term_list *terms, int step, int64_t all)
{
    const char *file;
    int line;
    struct text t = {0};
    text_add(&t, "%s: %s", ledger_place(r->graph, step), ledger_deed(r->graph, step, &file, &line));
    if (file) text_add(&t, " (%s)", place_of(file, line));
    text_add(&t, "\n%s", text_bytes(all));
    for (int i = 0; i < terms->n; i++) {
        const struct term *m = &terms->item[i];
        if (is_unused(m) || m->bytes * 100 < all) continue;
        const struct holding *h = NULL;
        for (int k = 0; k < m->holding.n; k++)
            if (!h || m->holding.item[k].bytes > h->bytes) h = &m->holding.item[k];
        text_add(&t, "\n%s  %s", text_bytes(m->bytes), m->name);
        if (h) text_add(&t, ": %s%s%s", h->name, h->file ? ", " : "", place_of(h->file, h->line));
    }
    return t.bytes;
}

/* Every step's terms, put under their kinds; tips are written as transparent columns. */
static kind_list kinds_of(const struct rung *r, struct text *columns)
{
    kind_list all = {0};
    int n = r->ledger->steps + 1;
    for (int s = 0; s < n; s++) {
        term_list terms = ledger_at(r->ledger, r->plan, r->graph, s);
        int64_t sum = 0;
        for (int i = 0; i < terms.n; i++) {
            const struct term *m = &terms.item[i];
            if (is_unused(m)) continue;
            int k = 0;
            while (k < all.n && strcmp(all.item[k].name, m->name)) k++;
            if (k == all.n)
                PUSH(&all, ((struct kind){.name = m->name, .bytes = TAKE_MANY(int64_t, n)}));
            all.item[k].bytes[s] += m->bytes, sum += m->bytes;
            if (all.item[k].bytes[s] > all.item[k].most) all.item[k].most = all.item[k].bytes[s];
        }
        text_add(columns,
                 "<rect class=\"over\" x=\"%.2f\" y=\"0\" width=\"%.2f\" height=\"1000\" "
                 "data-tip=\"%s\"/>\n",
                 1000.0 * s / n, 1000.0 / n, html_text(tip_of(r, &terms, s, sum)));
    }
    qsort(all.item, (size_t)all.n, sizeof *all.item, larger_first);
    if (all.n > MEMORY_KINDS) {
        struct kind *rest = &all.item[MEMORY_KINDS - 1];
        rest->name = "smaller kinds", rest->most = 0;
        for (int s = 0; s < n; s++) {
            for (int k = MEMORY_KINDS; k < all.n; k++) rest->bytes[s] += all.item[k].bytes[s];
            if (rest->bytes[s] > rest->most) rest->most = rest->bytes[s];
        }
        all.n = MEMORY_KINDS;
    }
    return all;
}

/* One kind's area between what lies below it and its own upper edge. */
static void add_area(struct text *t, int number, const struct scale *y, const int64_t *low,
                     const int64_t *bytes, int n)
{
    text_add(t, "<path class=\"area k%d\" d=\"M0 %.1f", number,
             1000 - axis_place(y, (double)(low[0] + bytes[0])));
    for (int s = 1; s <= n; s++) {
        int64_t was = low[s - 1] + bytes[s - 1], is = s < n ? low[s] + bytes[s] : -1;
        if (is == was) continue;
        text_add(t, "H%.2f", 1000.0 * s / n);
        if (s < n) text_add(t, "V%.1f", 1000 - axis_place(y, (double)is));
    }
    text_add(t, "V%.1f", 1000 - axis_place(y, (double)low[n - 1]));
    for (int s = n - 1; s >= 0; s--) {
        if (s && low[s] == low[s - 1]) continue;
        text_add(t, "H%.2f", 1000.0 * s / n);
        if (s) text_add(t, "V%.1f", 1000 - axis_place(y, (double)low[s - 1]));
    }
    text_add(t, "Z\"/>\n");
}

static const char *label_step(double x) { return text_format("%.0f", x); }

/* A line across the drawing; its label is HTML, which follows the drawing. */
static void add_level(struct text *t, struct text *labels, const struct scale *y, int64_t bytes,
                      const char *name)
{
    double at = axis_place(y, (double)bytes);
    text_add(t, "<line class=\"limit\" x1=\"0\" x2=\"1000\" y1=\"%.1f\" y2=\"%.1f\"/>\n", 1000 - at,
             1000 - at);
    text_add(labels, "<span class=\"on\" style=\"right:0;bottom:%.2f%%\">%s %s</span>\n", at / 10,
             name, text_bytes(bytes));
}

struct memory_chart memory_chart_of(const struct rung *r)
{
    const struct ledger *l = r->ledger;
    struct memory_chart c = {.steps = l->steps + 1};
    struct text areas = {0}, columns = {0};
    const kind_list all = kinds_of(r, &columns);
    c.limit_is_far = l->limit_bytes > 3 * l->peak_bytes;
    c.y =
        axis_over(0,
                  1.1 * (double)(c.limit_is_far || l->peak_bytes > l->limit_bytes ? l->peak_bytes
                                                                                  : l->limit_bytes),
                  true);
    c.x = axis_over(0, c.steps, false);
    if (c.x.step < 1) c.x.step = 1;
    int64_t *low = TAKE_MANY(int64_t, c.steps);
    for (int k = 0; k < all.n; k++) {
        add_area(&areas, k, &c.y, low, all.item[k].bytes, c.steps);
        for (int s = 0; s < c.steps; s++) low[s] += all.item[k].bytes[s];
        c.kind[k] = (struct memory_kind){all.item[k].name, all.item[k].most,
                                         all.item[k].bytes[l->peak_step]};
    }
    c.kinds = all.n;
    c.areas = areas.bytes, c.columns = columns.bytes;
    return c;
}

void section_memory(struct text *t, const struct rung *r)
{
    const struct ledger *l = r->ledger;
    struct text labels = {0};
    const struct memory_chart c = memory_chart_of(r);
    text_add(t,
             "<section>\n<h2>Memory over the step</h2>\n<p class=\"soft\">One device; the trainer "
             "allocates %s once, and %s are outside of it. From left to right: "
             "steps of the schedule. The limit is %s%s.</p>\n",
             text_bytes(l->arena_bytes), text_bytes(l->outside_bytes), text_bytes(l->limit_bytes),
             c.limit_is_far ? ", far above this drawing" : "");
    chart_open(t, "Memory over the steps of the schedule, by kind", 300, &c.y, label_bytes);
    text_add(t, "%s", c.areas);
    if (!c.limit_is_far) add_level(t, &labels, &c.y, l->limit_bytes, "limit");
    text_add(t, "%s", c.columns);
    chart_close(t, &c.x, label_step, labels.bytes);
    text_add(t,
             "<div class=\"wide\"><table>\n<tr><th>kind</th><th class=\"n\">most</th>"
             "<th class=\"n\">at the peak, step %d</th></tr>\n",
             l->peak_step);
    for (int k = c.kinds - 1; k >= 0; k--)
        text_add(t,
                 "<tr><td><i class=\"k%d\"></i>%s</td><td class=\"n\">%s</td><td "
                 "class=\"n\">%s</td></tr>\n",
                 k, html_text(c.kind[k].name), text_bytes(c.kind[k].most),
                 text_bytes(c.kind[k].at_peak));
    text_add(t, "</table></div>\n</section>\n");
}
