/* Memory and lanes of a step as one drawing in a file of its own: SVG as text, which a README
 * shows. It loads nothing and has its colours inside, for light and dark pages. */
#include "report/lanes.h"
#include "report/peak.h"

enum { WIDTH = 900, HEIGHT = 470, LEFT = 84, RIGHT = 690 };

static const char style[] =
    "text{font:13px system-ui,sans-serif;fill:#1b1f24}.soft{fill:#57606a;font-size:12px}"
    ".end{text-anchor:end}.mid{text-anchor:middle}"
    ".grid{stroke:#d8dee4}.limit{stroke:#b42318;stroke-dasharray:6 4}"
    "line{vector-effect:non-scaling-stroke}.back{fill:#fff}"
    ".k0{fill:#0072b2}.k1{fill:#e69f00}.k2{fill:#009e73}.k3{fill:#cc79a7}.k4{fill:#56b4e9}"
    ".k5{fill:#d55e00}.k6{fill:#8a7f00}.k7{fill:#8c8c8c}.wait{fill:#b42318}\n"
    "@media(prefers-color-scheme:dark){text{fill:#e6e9ed}.soft{fill:#a0a8b2}.back{fill:#14171b}"
    ".grid{stroke:#343a42}.limit{stroke:#ff8a7a}.k0{fill:#4a9fd8}.k6{fill:#d9cf4a}"
    ".wait{fill:#ff8a7a}}";

/* A drawing of 1000 x 1000 stretched over a frame. */
static void open_frame(struct text *t, int y, int height)
{
    text_add(t,
             "<svg x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" viewBox=\"0 0 1000 1000\" "
             "preserveAspectRatio=\"none\">\n",
             LEFT, y, RIGHT - LEFT, height);
}

static void add_key(struct text *t, const char *class, int y, const char *words)
{
    text_add(t,
             "<rect class=\"%s\" x=\"%d\" y=\"%d\" width=\"11\" height=\"11\"/>"
             "<text x=\"%d\" y=\"%d\">%s</text>\n",
             class, RIGHT + 24, y - 10, RIGHT + 42, y, html_text(words));
}

static void add_memory(struct text *t, const struct rung *r, int top, int height)
{
    const struct memory_chart c = memory_chart_of(r);
    for (double v = 0; v <= c.y.high; v += c.y.step)
        text_add(t, "<text class=\"soft end\" x=\"%d\" y=\"%.1f\">%s</text>\n", LEFT - 8,
                 top + height * (1 - axis_place(&c.y, v) / 1000) + 4, label_bytes(v));
    open_frame(t, top, height);
    for (double v = 0; v <= c.y.high; v += c.y.step)
        text_add(t, "<line class=\"grid\" x2=\"1000\" y1=\"%.1f\" y2=\"%.1f\"/>\n",
                 1000 - axis_place(&c.y, v), 1000 - axis_place(&c.y, v));
    text_add(t, "%s", c.areas);
    double limit = axis_place(&c.y, (double)r->ledger->limit_bytes);
    if (!c.limit_is_far)
        text_add(t, "<line class=\"limit\" x2=\"1000\" y1=\"%.1f\" y2=\"%.1f\"/>\n", 1000 - limit,
                 1000 - limit);
    text_add(t, "</svg>\n");
    if (!c.limit_is_far)
        text_add(t, "<text class=\"soft\" x=\"%d\" y=\"%.1f\">limit %s</text>\n", RIGHT + 6,
                 top + height * (1 - limit / 1000) + 4, text_bytes(r->ledger->limit_bytes));
    for (int k = c.kinds - 1; k >= 0; k--)
        add_key(t, text_format("k%d", k), top + height - 8 - 20 * k, c.kind[k].name);
    text_add(t,
             "<text class=\"soft\" x=\"%d\" y=\"%d\">memory over the %d steps of the "
             "schedule</text>\n",
             LEFT, top + height + 18, c.steps - 1);
}

static void add_lanes(struct text *t, const struct rung *r, int top, int height)
{
    static const struct {
        const char *class, *words;
    } key[] = {{"k0", "forward"}, {"k3", "loss"},   {"k2", "backward"},       {"k1", "update"},
               {"k4", "gather"},  {"k6", "reduce"}, {"wait", "compute waits"}};
    int64_t end;
    const struct recording rec = recording_of(r, &end);
    struct scale x = axis_over(0, (double)(end - rec.begin) * 1e-12, false);
    const int rows = lanes_rows(&rec);
    for (int i = 0; i < rows; i++)
        text_add(t, "<text class=\"soft end\" x=\"%d\" y=\"%d\">%s</text>\n", LEFT - 8,
                 top + height * (2 * i + 1) / (2 * rows) + 4, lanes_names[i]);
    open_frame(t, top, height);
    lanes_draw(t, &rec, &x, false);
    text_add(t, "</svg>\n");
    for (double v = 0; v <= x.high * (1 + 1e-9); v += x.step)
        text_add(t, "<text class=\"soft mid\" x=\"%.1f\" y=\"%d\">%s</text>\n",
                 LEFT + (RIGHT - LEFT) * axis_place(&x, v) / 1000, top + height + 18,
                 label_seconds(v));
    for (size_t i = 0; i < COUNT_OF(key); i++)
        add_key(t, key[i].class, top + 10 + 20 * (int)i, key[i].words);
}

void picture(struct text *t, const struct rung *r, const char *title)
{
    const struct ledger *l = r->ledger;
    text_add(t,
             "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" role=\"img\">\n"
             "<title>%s</title>\n<style>%s</style>\n"
             "<rect class=\"back\" width=\"%d\" height=\"%d\"/>\n",
             WIDTH, HEIGHT, html_text(title), style, WIDTH, HEIGHT);
    text_add(t,
             "<text x=\"%d\" y=\"26\">%s: %s of %s (%.1f %%), %s per step, %s tokens/s per device"
             "</text>\n",
             LEFT, html_text(title), text_bytes(l->peak_bytes), text_bytes(l->limit_bytes),
             100 * (double)l->peak_bytes / (double)l->limit_bytes, html_seconds(r->step_seconds),
             text_count((int64_t)(r->per_device + 0.5)));
    add_memory(t, r, 44, 200);
    add_lanes(t, r, 288, 150);
    text_add(t, "</svg>\n");
}
