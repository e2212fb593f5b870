/* --tensorboard: the numbers of every step as a file that TensorBoard reads. Rank 0 only. */
#ifndef PLANC_TENSORBOARD_H
#define PLANC_TENSORBOARD_H

#include "trainer.h"

/* Makes the folder where it is missing and a new file in it, for a run that begins with step
 * `first`. Events of that step and later are cut from the files of earlier processes, when it is
 * not 0. tag_bytes and elements: of all tags of a step together, and of all its lists. Before the
 * first step; false: noted. */
bool tensorboard_open(const char *folder, int64_t first, int64_t tag_bytes, int64_t elements);
/* One step: begin, its numbers and lists, end. Each does nothing without a file. */
void tensorboard_begin(int64_t step);
void tensorboard_number(const char *tag, double value);
/* Two histograms: `tag` of the n values, and `tag`_by_expert, whose bucket e holds value e. */
void tensorboard_list(const char *tag, const double *value, int64_t n);
void tensorboard_end(void);
bool tensorboard_whole(void); /* every step is in the file; false: noted */

#endif
