/* Which samples a run has read: hashes of the samples of some of its steps, spread over all of
 * them. A run that is resumed reads those samples again and compares, so that files that were
 * changed, or an order that is another one, are seen where it matters: in what was trained on. */
#ifndef PLANC_READINGS_H
#define PLANC_READINGS_H

#include <stdbool.h>
#include <stdint.h>

/* Of step `step`, which began at sample `sample` of the run: the sum of all ranks' data_hash. */
struct reading {
    int64_t step, sample;
    uint64_t hash;
};
enum { READINGS = 64 };
/* The steps whose number is a multiple of `every`, a power of two, and behind them the last one. */
struct readings {
    int64_t every;
    int n;
    struct reading at[READINGS + 1];
};
void readings_add(struct readings *r, struct reading next);
/* False: the n numbers cannot be such a list. For what comes from a file. */
bool readings_set(struct readings *r, const struct reading *list, int n);

#endif
