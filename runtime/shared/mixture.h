/* Which source each sample of a run is of. A stage of the plan has whole shares for each source;
 * their sum is a period. In every period each source has exactly its share, spread evenly, so the
 * same run has the same samples on every mesh and after every resume, and no state is kept. */
#ifndef PLANC_MIXTURE_H
#define PLANC_MIXTURE_H

#include <stdint.h>

/* Makes the tables of program.source and program.stage_step. Only before the first step. */
void mixture_open(void);
/* The source of sample n of the run; *of: its number among the samples of that source. */
int mixture_source(int64_t n, int64_t *of);
/* Samples of a source among the first n of the run. */
int64_t mixture_count(int source, int64_t n);
/* Samples in which the stage that sample n is in has exact shares. */
int64_t mixture_period(int64_t n);

#endif
