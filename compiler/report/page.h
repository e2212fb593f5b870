/* The parts of an HTML page that every section uses: escaped text, numbers with units, round axes,
 * and a chart whose drawing stretches while its labels keep their size. */
#ifndef PLANC_REPORT_PAGE_H
#define PLANC_REPORT_PAGE_H

#include "base/base.h"

/* Any bytes as text of an element or of an attribute in quotes. In the arena. */
const char *html_text(const char *s);
/* "1.234 s", "56.7 ms". In the arena. */
const char *html_seconds(double seconds);

/* From the doctype to the begin of <main>, and the end. */
void page_open(struct text *t, const char *title);
void page_close(struct text *t);

/* A linear axis from low to high with ticks at multiples of a round step (1, 2 or 5 times a power
 * of `base`, which is 10, or of 1024 for bytes). high > low. */
struct scale {
    double low, high, step;
};
struct scale axis_over(double low, double high, bool bytes);
/* Where x lies in a drawing of 1000 units, from the left or bottom. */
double axis_place(const struct scale *a, double x);

/* A chart: labels stand outside of the drawing. label: in the arena, of a tick. The drawing is
 * between chart_open and chart_close, in units of 1000 x 1000 with y down. */
void chart_open(struct text *t, const char *name, int height, const struct scale *y,
                const char *(*label)(double));
/* labels: more of them, HTML, placed by `left` and `bottom`; NULL: none. */
void chart_close(struct text *t, const struct scale *x, const char *(*label)(double),
                 const char *labels);
const char *label_bytes(double x);
const char *label_count(double x);
const char *label_seconds(double x);

/* A line through n points, in places of the drawing; a point that can be hovered. */
void chart_line(struct text *t, const char *class, const double *x, const double *y, int n);
void chart_point(struct text *t, const char *class, double x, double y, const char *tip);

#endif
