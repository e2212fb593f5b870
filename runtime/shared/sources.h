/* The streams of data.train, and where in them a sample of the run lies: for data.c, which reads
 * them. What others ask of them is in trainer.h (data_tokens and so on). */
#ifndef PLANC_SOURCES_H
#define PLANC_SOURCES_H

#include "stream.h"

/* Opens and scans the files of the plan, with `r`. False: noted. */
bool sources_open(struct reader *r);
/* All ranks come here. False: the files of two ranks may differ. */
bool sources_agree(void);
/* Which stream sample n of the run is of, and which of its samples. */
const struct stream *sources_sample(int64_t n, int64_t *sample);
/* Says which epochs begin in a step whose first sample of the run is `sample`. */
void sources_say_epochs(int64_t step, int64_t sample);
/* Of what the files hold, the same on every rank; 0: no files are open. Reads on the first call. */
uint64_t sources_fingerprint(struct reader *r);

#endif
