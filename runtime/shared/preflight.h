/* --preflight: what every rank runs on and how fast it is, before a job is queued. */
#ifndef PLANC_PREFLIGHT_H
#define PLANC_PREFLIGHT_H

#include "trainer.h"

/* In the place of a run, on an open device: measures products, copies, links and the plan's own
 * transfers, and writes them to the file of --preflight for `planc preflight`. free_bytes: of this
 * rank's device, before the arena was taken. Collective; false: noted. Uses the whole arena. */
bool preflight_open(const char *path); /* before anything is measured: can it be written? */
bool preflight_run(struct device *d, int64_t free_bytes);

#endif
