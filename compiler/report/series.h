/* The numbers of a run, as a trainer's --metrics wrote them: one curve a key. */
#ifndef PLANC_REPORT_SERIES_H
#define PLANC_REPORT_SERIES_H

#include "base/base.h"

struct series_point {
    double step, value;
};
typedef VECTOR(struct series_point) series_points;
struct series {
    const char *path, *key;
    series_points point; /* in the order of the file */
};

/* The curve of every key in the file at `path`, in curve[0 .. keys). A key is a name of a number,
 * or NAME[I], one number of a list. NULL, or why there is none, in the arena: a file that cannot be
 * read, a line that is no metrics, a key that no line has. A last line that is not whole is left
 * out: the run was ended while it was written. */
const char *series_read(const char *path, const char *const *key, int keys, struct series *curve);

#endif
