/* HTML without a library: what leaves html_text cannot end an element or an attribute. */
#include "report/page.h"
#include "base/escape.h"

#include <math.h>
#include <string.h>

const char *html_text(const char *s)
{
    struct text t = {0};
    text_add(&t, "%s", "");
    size_t n = strcspn(s, "\n"); /* the end of a line is the one control byte that stays */
    if (s[n])
        return text_format("%s\n%s", html_text(text_format("%.*s", (int)n, s)),
                           html_text(s + n + 1));
    for (const char *c = printable_text(s); *c; c++) switch (*c) {
        case '&': text_add(&t, "&amp;"); break;
        case '<': text_add(&t, "&lt;"); break;
        case '>': text_add(&t, "&gt;"); break;
        case '"': text_add(&t, "&quot;"); break;
        case '\'': text_add(&t, "&#39;"); break;
        default: text_add_bytes(&t, c, 1);
        }
    return t.bytes;
}

const char *html_seconds(double s)
{
    return s >= 1      ? text_format("%.3f s", s)
           : s >= 1e-3 ? text_format("%.2f ms", s * 1e3)
                       : text_format("%.1f µs", s * 1e6);
}

/* ── the page ────────────────────────────────────────────────────────────────── */

/* Okabe and Ito's colours, darker or lighter where contrast asks for it. */
static const char style[] =
    ":root{color-scheme:light dark;--back:#fff;--text:#1b1f24;--soft:#57606a;--rule:#d8dee4;"
    "--c0:#0072b2;--c1:#e69f00;--c2:#009e73;--c3:#cc79a7;--c4:#56b4e9;--c5:#d55e00;--c6:#8a7f00;"
    "--c7:#8c8c8c;--bad:#b42318}\n"
    "@media(prefers-color-scheme:dark){:root{--back:#14171b;--text:#e6e9ed;--soft:#a0a8b2;"
    "--rule:#343a42;--c0:#4a9fd8;--c6:#d9cf4a;--bad:#ff8a7a}}\n"
    "@media print{:root{--back:#fff;--text:#1b1f24;--soft:#57606a;--rule:#d8dee4;--c0:#0072b2;"
    "--c6:#8a7f00;--bad:#b42318}.chart,p,tr{break-inside:avoid}"
    "h2,p{break-after:avoid}}\n"
    "*{box-sizing:border-box;print-color-adjust:exact;-webkit-print-color-adjust:exact}\n"
    "body{margin:0;background:var(--back);color:var(--text);font:16px/1.5 system-ui,sans-serif}\n"
    "main{max-width:960px;margin:0 auto;padding:32px 20px 64px}\n"
    "h1{font-size:24px;line-height:1.3;margin:0 0 4px;overflow-wrap:anywhere}\n"
    "h2{font-size:18px;margin:48px 0 8px}p{margin:0 0 12px;overflow-wrap:anywhere}\n"
    ".soft,td.soft,caption{color:var(--soft);font-size:14px}\n"
    ".answer{font-size:20px;line-height:1.45;margin:16px 0}.bad{color:var(--bad)}\n"
    ".chart{position:relative;margin:20px 0 44px 76px;border-left:1px solid var(--rule);"
    "border-bottom:1px solid var(--rule)}\n"
    ".chart svg{display:block;width:100%;height:100%}\n"
    ".chart span{position:absolute;font-size:12px;line-height:1;color:var(--soft);"
    "white-space:nowrap}\n"
    ".chart .y{right:100%;margin-right:8px;transform:translateY(50%)}\n"
    ".chart .x{top:100%;margin-top:8px;transform:translateX(-50%)}\n"
    ".chart .end{transform:translateX(-100%)}.chart .on{padding:2px 4px;"
    "background:var(--back);color:var(--text)}\n"
    "line,path{vector-effect:non-scaling-stroke;fill:none;stroke-width:1.5}\n"
    ".grid{stroke:var(--rule);stroke-width:1}.limit{stroke:var(--bad);stroke-dasharray:6 4}\n"
    ".k0{fill:var(--c0);stroke:var(--c0)}.k1{fill:var(--c1);stroke:var(--c1)}"
    ".k2{fill:var(--c2);stroke:var(--c2)}.k3{fill:var(--c3);stroke:var(--c3)}"
    ".k4{fill:var(--c4);stroke:var(--c4)}.k5{fill:var(--c5);stroke:var(--c5)}"
    ".k6{fill:var(--c6);stroke:var(--c6)}.k7{fill:var(--c7);stroke:var(--c7)}\n"
    "rect,.area{stroke:none}.over{fill:transparent}.over:hover{fill:var(--text);opacity:.15}\n"
    ".dot{stroke-width:9;stroke-linecap:round}.wait{fill:var(--bad);stroke:var(--bad)}"
    ".line{fill:none}.dash{stroke-dasharray:5 4}\n"
    "i{display:inline-block;width:12px;height:12px;margin-right:8px;border-radius:2px}\n"
    "i.k0{background:var(--c0)}i.k1{background:var(--c1)}i.k2{background:var(--c2)}"
    "i.k3{background:var(--c3)}i.k4{background:var(--c4)}i.k5{background:var(--c5)}"
    "i.k6{background:var(--c6)}i.k7{background:var(--c7)}i.wait{background:var(--bad)}\n"
    "th.n{white-space:normal}.wide{overflow-x:auto}table{border-collapse:collapse;width:100%;font-"
    "size:14px}\n"
    "td,th{text-align:left;padding:4px 12px 4px 0;border-bottom:1px solid var(--rule);"
    "vertical-align:top;overflow-wrap:anywhere}\n"
    "td:first-child{min-width:112px}td.n:first-child{min-width:0}\n"
    ".why{min-width:220px}@media(max-width:560px){.chart .odd{display:none}}\n"
    "td.n,th.n{text-align:right}td.n{white-space:nowrap;font-variant-numeric:tabular-nums}\n"
    ".bar{width:30%;min-width:60px}.bar b{display:block;height:12px;margin-top:5px;"
    "background:var(--c0)}\n"
    "#tip{position:fixed;display:none;max-width:340px;padding:8px 10px;font-size:12px;"
    "line-height:1.4;white-space:pre-line;overflow-wrap:anywhere;pointer-events:none;z-index:9;"
    "background:var(--text);color:var(--back);border-radius:4px}\n";

static const char script[] =
    "const tip = document.getElementById('tip');\n"
    "document.addEventListener('pointermove', e => {\n"
    "  const said = e.target.dataset && e.target.dataset.tip;\n"
    "  tip.style.display = said ? 'block' : 'none';\n"
    "  if (!said) return;\n"
    "  tip.textContent = said;\n"
    "  const w = tip.offsetWidth, h = tip.offsetHeight;\n"
    "  tip.style.left = Math.max(4, Math.min(e.clientX + 14, innerWidth - w - 4)) + 'px';\n"
    "  tip.style.top = Math.max(4, e.clientY + 14 + h > innerHeight ? e.clientY - h - 10\n"
    "    : e.clientY + 14) + 'px';\n"
    "});\n";

void page_open(struct text *t, const char *title)
{
    text_add(t,
             "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
             "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
             "<title>%s</title>\n<style>\n%s</style>\n</head>\n<body>\n<main>\n",
             html_text(title), style);
}

void page_close(struct text *t)
{
    text_add(t,
             "</main>\n<div id=\"tip\"></div>\n<script>\n%s</script>\n</body>\n"
             "</html>\n",
             script);
}

/* ── axes ────────────────────────────────────────────────────────────────────── */

/* At most six ticks. */
static double round_step(double span, bool bytes)
{
    double unit = 1;
    while (bytes && unit * 1024 < span) unit *= 1024;
    double least = span / unit / 6, power = pow(10, floor(log10(least)));
    const double times[] = {1, 2, 5, 10};
    for (size_t i = 0; i < COUNT_OF(times); i++)
        if (times[i] * power >= least * (1 - 1e-9)) return times[i] * power * unit;
    return 10 * power * unit;
}

struct scale axis_over(double low, double high, bool bytes)
{
    if (!(high > low)) high = low + (low > 0 ? low : 1);
    return (struct scale){low, high, round_step(high - low, bytes)};
}

double axis_place(const struct scale *a, double x)
{
    return 1000 * (x - a->low) / (a->high - a->low);
}

const char *label_bytes(double x)
{
    static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    int u = 0;
    while (u < 4 && x >= 1024) x /= 1024, u++;
    return text_format("%.4g %s", x, unit[u]);
}

const char *label_count(double x)
{
    return x >= 1e9   ? text_format("%.4g G", x / 1e9)
           : x >= 1e6 ? text_format("%.4g M", x / 1e6)
           : x >= 1e4 ? text_format("%.4g k", x / 1e3)
                      : text_format("%.4g", x);
}

const char *label_seconds(double x)
{
    return x == 0      ? "0"
           : x >= 1    ? text_format("%.4g s", x)
           : x >= 1e-3 ? text_format("%.4g ms", x * 1e3)
                       : text_format("%.4g µs", x * 1e6);
}

/* Never -0. */
static double first_tick(const struct scale *a)
{
    return ceil(a->low / a->step - 1e-9) * a->step + 0.0;
}

/* ── charts ──────────────────────────────────────────────────────────────────── */

void chart_open(struct text *t, const char *name, int height, const struct scale *y,
                const char *(*label)(double))
{
    text_add(t, "<div class=\"chart\" style=\"height:%dpx\">\n", height);
    for (double v = first_tick(y); label && v <= y->high * (1 + 1e-9); v += y->step)
        text_add(t, "<span class=\"y\" style=\"bottom:%.2f%%\">%s</span>\n", axis_place(y, v) / 10,
                 label(v));
    text_add(t,
             "<svg viewBox=\"0 0 1000 1000\" preserveAspectRatio=\"none\" role=\"img\" "
             "aria-label=\"%s\">\n",
             html_text(name));
    for (double v = first_tick(y); label && v <= y->high * (1 + 1e-9); v += y->step)
        text_add(t, "<line class=\"grid\" x1=\"0\" x2=\"1000\" y1=\"%.1f\" y2=\"%.1f\"/>\n",
                 1000 - axis_place(y, v), 1000 - axis_place(y, v));
}

void chart_close(struct text *t, const struct scale *x, const char *(*label)(double),
                 const char *labels)
{
    int n = 0;
    text_add(t, "</svg>\n%s", labels ? labels : "");
    for (double v = first_tick(x); v <= x->high + 1e-9 * x->step; v += x->step, n++)
        text_add(t, "<span class=\"x%s%s\" style=\"left:%.2f%%\">%s</span>\n",
                 axis_place(x, v) > 960 ? " end" : "", n % 2 ? " odd" : "", axis_place(x, v) / 10,
                 label(v));
    text_add(t, "</div>\n");
}

void chart_line(struct text *t, const char *class, const double *x, const double *y, int n)
{
    text_add(t, "<path class=\"line %s\" d=\"", class);
    for (int i = 0; i < n; i++) text_add(t, "%s%.1f %.1f", i ? "L" : "M", x[i], y[i]);
    text_add(t, "\"/>\n");
}

void chart_point(struct text *t, const char *class, double x, double y, const char *tip)
{
    text_add(t, "<path class=\"dot %s\" d=\"M%.1f %.1fh.01\" data-tip=\"%s\"/>\n", class, x, y,
             html_text(tip));
}
