/* Proves of one laid-out schedule that every reader finds what it was meant to find. */
#ifndef PLANC_PROVE_H
#define PLANC_PROVE_H

#include "ir/ir.h"

/* Runs two micro-batches and an update of the graph (at LEVEL_MEMORY) over addresses instead of
 * numbers. NULL when all is well, else the first thing wrong, with its step. Time and memory grow
 * with layers x kernels: a test's tool, not check's. */
const char *prove(const struct graph *g);

#endif
