/* A trainer in the cache and its start, for the commands that run one. */
#ifndef PLANC_COMMAND_RUN_H
#define PLANC_COMMAND_RUN_H

#include "commands/build.h"

/* Builds the trainer of a plan where the cache does not have it; *trainer: its path. Anything but
 * EXIT_FINE after a message. */
int run_prepare(const struct trainer *t, const char **trainer);
/* Starts it with these options, under mpirun where it is no trace: the launcher's status. */
int run_start(const struct trainer *t, const char *trainer, const char *const *option, int n);

#endif
