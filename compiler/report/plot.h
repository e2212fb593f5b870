/* Curves of several runs over each other, in characters or as a picture. */
#ifndef PLANC_REPORT_PLOT_H
#define PLANC_REPORT_PLOT_H

#include "report/series.h"

/* One chart a key: curve[0 .. n) are the same key of n runs. */
/* For a terminal of this many columns; colour: escape codes of eight colours. */
void plot_text(struct text *t, const struct series *curve, int n, int columns, bool colour);
/* A whole SVG of `keys` charts, one below the other; curve[k * n + i] is key k of run i. */
void plot_svg(struct text *t, const struct series *curve, int keys, int n);

#endif
