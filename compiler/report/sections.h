/* The sections of a report, each a heading, a drawing and a table with the same numbers. */
#ifndef PLANC_REPORT_SECTIONS_H
#define PLANC_REPORT_SECTIONS_H

#include "analysis/rungs.h"
#include "report/page.h"

/* Does it fit, how fast is it, what holds it back: a sentence. */
void section_answer(struct text *t, const struct rung *r);
/* Where the time goes: by part and by class, both add up to the step. */
void section_time(struct text *t, const struct rung *r);
void section_memory(struct text *t, const struct rung *r);
/* The last micro-batch of a step and the update. */
void section_lanes(struct text *t, const struct rung *r);
void section_scaling(struct text *t, const rung_list *rungs, bool weak);
/* `space`: what `planc check --json` gives; limit_bytes and tokens of a step and number of devices
 * of its points. Returns the place of the fastest point that fits, -1: none. */
int section_space(struct text *t, const json_t *space, double limit_bytes, double tokens);
/* A run's metrics, one JSON object per line. NULL, or why the file is none. */
const char *section_run(struct text *t, const char *path);

#endif
