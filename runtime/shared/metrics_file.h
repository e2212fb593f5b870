/* What stands under the name of --metrics before a run writes there. */
#ifndef PLANC_METRICS_FILE_H
#define PLANC_METRICS_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Makes `path` the file of a run whose next step is `first`: lines from that step on go, and where
 * they are of another run (a new run; `branches`: it goes on from an older checkpoint) the whole
 * file is kept as PATH.1, PATH.2, … and that is said. A file of something else is refused. Pipes
 * and devices keep nothing. line: room of `size` bytes for a line of metrics. False: noted. */
bool metrics_file_begin(const char *path, int64_t first, bool branches, char *line, size_t size);

/* Puts `text` (,"key":value…} and the end of the line) in the place of the end of the last line, if
 * that is of this step and says nothing of a validation. */
void metrics_file_extend(const char *path, int64_t step, const char *text, size_t n);

#endif
