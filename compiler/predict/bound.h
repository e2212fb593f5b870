/* What no run of a program can go below, without running it: of a search, which runs only the
 * points that this does not rule out. */
#ifndef PLANC_BOUND_H
#define PLANC_BOUND_H

#include "predict/program.h"

/* Picoseconds of a step, host and jitter included, at most those of engine_run and
 * step_picoseconds. */
int64_t least_step(const struct program *p);

#endif
