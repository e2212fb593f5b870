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
/* A run's metrics, one JSON object a line; out (or NULL) gets the numbers as "run". NULL, or why
 * the file is none. */
const char *section_run(struct text *t, const char *path, json_t *out);
/* What a trainer's --trace wrote, beside the rung's prediction; out gets "trace". As above. */
const char *section_trace(struct text *t, const struct rung *r, const char *path, json_t *out);

/* picture.c: memory and lanes of a step as an SVG file. */
void picture(struct text *t, const struct rung *r, const char *title);

#endif
