/* The trace of a simulated step, in the form of a trainer's --trace. */
#ifndef PLANC_COMMAND_SIMULATE_TRACE_H
#define PLANC_COMMAND_SIMULATE_TRACE_H

#include "predict/engine.h"

/* One step of one rank, every kernel and transfer. False with errno. */
bool simulate_trace(struct program *p, const char *path);

#endif
