/* Draws curves. Both forms show the same: an axis of steps, an axis of values, a mark or a colour a
 * run, and in the legend the last and the least value of each. Where a run has more steps than the
 * drawing has columns, a column shows the mean of its steps, so that noise does not hide a curve.
 */
#include "report/plot.h"
#include "base/escape.h"
#include "report/page.h"

#include <math.h>
#include <string.h>

enum { ROWS = 18, LABEL = 10, LEAST_COLUMNS = 40, RUNS_SHOWN = 8 };
static const char marks[] = "*o+x#@%&";
/* Okabe and Ito's colours, and the nearest of a terminal's */
static const char *const colours[RUNS_SHOWN] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                                "#e69f00", "#56b4e9", "#8a7f00", "#666666"};
static const int codes[RUNS_SHOWN] = {34, 31, 32, 35, 33, 36, 93, 90};

struct range {
    double low, high;
};
struct frame {
    struct range step, value;
};

static void widen(struct range *r, double x)
{
    r->low = fmin(r->low, x);
    r->high = fmax(r->high, x);
}

static struct frame frame_of(const struct series *curve, int n)
{
    struct frame f = {{INFINITY, -INFINITY}, {INFINITY, -INFINITY}};
    for (int i = 0; i < n; i++)
        for (int k = 0; k < curve[i].point.n; k++) {
            widen(&f.step, curve[i].point.item[k].step);
            widen(&f.value, curve[i].point.item[k].value);
        }
    /* a curve of one value lies in the middle */
    if (!(f.step.high > f.step.low)) f.step.high = f.step.low + 1;
    if (!(f.value.high > f.value.low)) {
        const double room = f.value.low != 0 ? 0.1 * fabs(f.value.low) : 1;
        f.value.low -= room;
        f.value.high += room;
    }
    return f;
}

static double part(const struct range *r, double x) { return (x - r->low) / (r->high - r->low); }

/* The mean of a curve's values in each of `columns` equal parts of the steps; NAN: none there. */
static double *means(const struct series *c, const struct frame *f, int columns)
{
    double *sum = TAKE_MANY(double, columns);
    int *count = TAKE_MANY(int, columns);
    for (int k = 0; k < c->point.n; k++) {
        const int at = (int)(part(&f->step, c->point.item[k].step) * (columns - 1) + 0.5);
        sum[at] += c->point.item[k].value;
        count[at]++;
    }
    for (int at = 0; at < columns; at++) sum[at] = count[at] ? sum[at] / count[at] : (double)NAN;
    return sum;
}

static const char *summary(const struct series *c)
{
    const struct series_point *last = &c->point.item[c->point.n - 1], *least = c->point.item;
    for (int k = 0; k < c->point.n; k++)
        if (c->point.item[k].value < least->value) least = &c->point.item[k];
    return text_format("last %.6g at step %.0f, least %.6g at step %.0f", last->value, last->step,
                       least->value, least->step);
}

/* ── characters ──────────────────────────────────────────────────────────────── */

static void draw_curve(unsigned char *cell, const double *mean, const struct frame *f, int columns,
                       unsigned char mark)
{
    int before = -1, row_before = 0;
    for (int at = 0; at < columns; at++) {
        if (isnan(mean[at])) continue;
        const int row = (int)((1 - part(&f->value, mean[at])) * (ROWS - 1) + 0.5);
        /* columns between two points that are far apart are filled in a straight line */
        for (int x = before < 0 ? at : before + 1; x <= at; x++) {
            const double along = before < 0 ? 1 : (double)(x - before) / (at - before);
            const int y = (int)floor(row_before + (row - row_before) * along + 0.5);
            cell[(before < 0 ? row : y) * columns + x] = mark;
        }
        before = at;
        row_before = row;
    }
}

static void add_mark(struct text *t, int run, bool colour)
{
    run %= RUNS_SHOWN;
    if (colour)
        text_add(t, "\033[%dm%c\033[0m", codes[run], marks[run]);
    else
        text_add_bytes(t, &marks[run], 1);
}

void plot_text(struct text *t, const struct series *curve, int n, int columns, bool colour)
{
    const struct frame f = frame_of(curve, n);
    const int width = (columns > LEAST_COLUMNS ? columns : LEAST_COLUMNS) - LABEL - 3;
    unsigned char *cell = take((size_t)(ROWS * width)); /* 1 + the run; 0: none */
    for (int i = n - 1; i >= 0; i--)
        draw_curve(cell, means(&curve[i], &f, width), &f, width, (unsigned char)(i + 1));
    text_add(t, "%s\n", printable_text(curve[0].key));
    for (int row = 0; row < ROWS; row++) {
        const double value = f.value.high - (f.value.high - f.value.low) * (double)row / (ROWS - 1);
        int end = width;
        while (end > 0 && !cell[row * width + end - 1]) end--;
        if (row % 4 == 0 || row == ROWS - 1)
            text_add(t, "%*.4g |", LABEL, value);
        else
            text_add(t, "%*s |", LABEL, "");
        for (int x = 0; x < end; x++)
            if (cell[row * width + x])
                add_mark(t, cell[row * width + x] - 1, colour);
            else
                text_add(t, " ");
        text_add(t, "\n");
    }
    text_add(t, "%*s +", LABEL, "");
    for (int x = 0; x < width; x++) text_add(t, "-");
    const char *first = text_format("%.0f", f.step.low), *last = text_format("%.0f", f.step.high);
    text_add(t, "\n%*s  %s%*s\n", LABEL, "", first, width - (int)strlen(first), last);
    for (int i = 0; i < n; i++) {
        text_add(t, "  ");
        add_mark(t, i, colour);
        text_add(t, " %s: %s steps, %s\n", printable_text(curve[i].path),
                 text_count(curve[i].point.n), summary(&curve[i]));
    }
}

/* ── a picture ───────────────────────────────────────────────────────────────── */

enum { WIDE = 960, LEFT = 90, RIGHT = 20, TOP = 46, HIGH = 300, LINE = 20, POINTS = 1200 };

/* The i-th tick of an axis, never -0, and how many there are. */
static double tick(const struct scale *a, int i)
{
    return (ceil(a->low / a->step - 1e-9) + i) * a->step + 0.0;
}

static int tick_count(const struct scale *a)
{
    int n = 0;
    while (n < 12 && tick(a, n) <= a->high + 1e-9 * a->step) n++;
    return n;
}

/* One chart whose upper edge is at `top`; the height that it took. */
static int draw_chart(struct text *t, const struct series *curve, int n, int top)
{
    const struct frame f = frame_of(curve, n);
    const double room = 0.04 * (f.value.high - f.value.low);
    const struct scale x = axis_over(f.step.low, f.step.high, false),
                       y = axis_over(f.value.low - room, f.value.high + room, false);
    const double wide = WIDE - LEFT - RIGHT;
    const int zero = top + TOP + HIGH;
    text_add(t, "<text x=\"%d\" y=\"%d\" font-size=\"16\" font-weight=\"bold\">%s</text>\n", LEFT,
             top + 30, html_text(curve[0].key));
    for (int i = 0; i < tick_count(&y); i++) {
        const double v = tick(&y, i), at = zero - axis_place(&y, v) / 1000 * HIGH;
        text_add(t,
                 "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#d8dee4\"/>\n<text "
                 "x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.4g</text>\n",
                 LEFT, WIDE - RIGHT, at, at, LEFT - 8, at + 4, v);
    }
    for (int i = 0; i < tick_count(&x); i++)
        text_add(t, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%.6g</text>\n",
                 LEFT + axis_place(&x, tick(&x, i)) / 1000 * wide, zero + 18, tick(&x, i));
    text_add(t, "<path d=\"M%d %dV%dH%d\" fill=\"none\" stroke=\"#57606a\"/>\n", LEFT, top + TOP,
             zero, WIDE - RIGHT);
    for (int i = n - 1; i >= 0; i--) {
        const char *colour = colours[i % RUNS_SHOWN];
        const double *mean = means(&curve[i], &f, POINTS);
        int points = 0;
        text_add(t, "<path fill=\"none\" stroke=\"%s\" stroke-width=\"1.5\"%s d=\"", colour,
                 i >= RUNS_SHOWN ? " stroke-dasharray=\"6 4\"" : "");
        for (int at = 0; at < POINTS; at++)
            if (!isnan(mean[at]))
                text_add(t, "%c%.1f %.1f", points++ ? 'L' : 'M',
                         LEFT + wide * (double)at / (POINTS - 1),
                         zero - axis_place(&y, mean[at]) / 1000 * HIGH);
        text_add(t, "%s\"/>\n", points == 1 ? "h3" : ""); /* a single point is seen too */
    }
    for (int i = 0; i < n; i++) {
        const int at = zero + 44 + LINE * i;
        text_add(t,
                 "<path d=\"M%d %dh24\" stroke=\"%s\" stroke-width=\"3\"%s/>\n<text x=\"%d\" "
                 "y=\"%d\">%s: %s steps, %s</text>\n",
                 LEFT, at - 4, colours[i % RUNS_SHOWN],
                 i >= RUNS_SHOWN ? " stroke-dasharray=\"6 4\"" : "", LEFT + 32, at,
                 html_text(curve[i].path), text_count(curve[i].point.n), summary(&curve[i]));
    }
    return TOP + HIGH + 44 + LINE * n;
}

void plot_svg(struct text *t, const struct series *curve, int keys, int n)
{
    struct text body = {0};
    int high = 0;
    for (int k = 0; k < keys; k++) high += draw_chart(&body, curve + k * n, n, high);
    text_add(t,
             "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 "
             "%d %d\" font-family=\"sans-serif\" font-size=\"13\" fill=\"#1b1f24\">\n<rect "
             "width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n%s</svg>\n",
             WIDE, high + 10, WIDE, high + 10, body.bytes);
}
