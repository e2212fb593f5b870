/* Memory over the steps of a schedule as a drawing, for a page and for a picture. */
#ifndef PLANC_REPORT_PEAK_H
#define PLANC_REPORT_PEAK_H

#include "report/sections.h"

enum { MEMORY_KINDS = 8 };
struct memory_kind {
    const char *name;
    int64_t most, at_peak; /* bytes */
};
struct memory_chart {
    struct scale x, y;
    int steps;
    bool limit_is_far;                     /* above the drawing */
    const char *areas, *columns;           /* in a drawing of 1000 x 1000: kinds from below; tips */
    struct memory_kind kind[MEMORY_KINDS]; /* class k0, k1 … of the areas */
    int kinds;
};
struct memory_chart memory_chart_of(const struct rung *r);

#endif
