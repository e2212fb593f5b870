/* Memory over the step: at every step of the schedule the bytes of each kind, as the layout has
 * them. */
#include "report/sections.h"

#include <stdlib.h>
#include <string.h>

enum { KINDS = 8 };

/* A kind over all steps; the last of KINDS is the rest. */
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
    if (all.n > KINDS) {
        struct kind *rest = &all.item[KINDS - 1];
        rest->name = "smaller kinds", rest->most = 0;
        for (int s = 0; s < n; s++) {
            for (int k = KINDS; k < all.n; k++) rest->bytes[s] += all.item[k].bytes[s];
            if (rest->bytes[s] > rest->most) rest->most = rest->bytes[s];
        }
        all.n = KINDS;
    }
    return all;
}

/* One kind's area between what lies below it and its own upper edge. */
static void add_area(struct text *t, int number, const struct scale *y, const int64_t *low,
                     const int64_t *bytes, int n)
{
    text_add(t, "<path class=\"area k%d\" d=\"", number);
    for (int s = 0; s < n; s++) {
        double at = 1000 - axis_place(y, (double)(low[s] + bytes[s]));
        text_add(t, "%s%.2f %.1fH%.2f", s ? "L" : "M", 1000.0 * s / n, at, 1000.0 * (s + 1) / n);
    }
    for (int s = n - 1; s >= 0; s--) {
        double at = 1000 - axis_place(y, (double)low[s]);
        text_add(t, "L%.2f %.1fH%.2f", 1000.0 * (s + 1) / n, at, 1000.0 * s / n);
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

void section_memory(struct text *t, const struct rung *r)
{
    const struct ledger *l = r->ledger;
    struct text columns = {0}, labels = {0};
    kind_list all = kinds_of(r, &columns);
    int n = l->steps + 1;
    bool far = l->limit_bytes > 3 * l->peak_bytes;
    double top =
        1.1 * (double)(far || l->peak_bytes > l->limit_bytes ? l->peak_bytes : l->limit_bytes);
    struct scale y = axis_over(0, top, true), x = axis_over(0, n, false);
    if (x.step < 1) x.step = 1;
    text_add(t,
             "<section>\n<h2>Memory over the step</h2>\n<p class=\"soft\">One device; the trainer "
             "allocates %s once, and %s are outside of it. From left to right: "
             "steps of the schedule. The limit is %s%s.</p>\n",
             text_bytes(l->arena_bytes), text_bytes(l->outside_bytes), text_bytes(l->limit_bytes),
             far ? ", far above this drawing" : "");
    chart_open(t, "Memory over the steps of the schedule, by kind", 300, &y, label_bytes);
    int64_t *low = TAKE_MANY(int64_t, n);
    for (int k = 0; k < all.n; k++) {
        add_area(t, k, &y, low, all.item[k].bytes, n);
        for (int s = 0; s < n; s++) low[s] += all.item[k].bytes[s];
    }
    if (!far) add_level(t, &labels, &y, l->limit_bytes, "limit");
    text_add_bytes(t, columns.bytes, columns.length);
    chart_close(t, &x, label_step, labels.bytes);
    text_add(t,
             "<div class=\"wide\"><table>\n<tr><th>kind</th><th class=\"n\">most</th>"
             "<th class=\"n\">at the peak, step %d</th></tr>\n",
             l->peak_step);
    for (int k = all.n - 1; k >= 0; k--)
        text_add(t,
                 "<tr><td><i class=\"k%d\"></i>%s</td><td class=\"n\">%s</td><td "
                 "class=\"n\">%s</td></tr>\n",
                 k, html_text(all.item[k].name), text_bytes(all.item[k].most),
                 text_bytes(all.item[k].bytes[l->peak_step]));
    text_add(t, "</table></div>\n</section>\n");
}
