/* --sample: the model writes tokens after the last step. */
#ifndef PLANC_SAMPLE_H
#define PLANC_SAMPLE_H

#include "trainer.h"

/* Reads the prompt and takes memory; before the first step. False: noted. */
bool sample_open(const struct options *o);
/* The device shows logits: `rows` more of the micro-batch at hand. */
void sample_tap(struct device *d, const char *name, enum element_type type, const void *value,
                int64_t rows, int64_t columns);
/* Writes the tokens and says them. Collective. What signals_stop() is on a rank that was asked to
 * stop meanwhile, else 0. */
int sample_write(struct device *d);

#endif
