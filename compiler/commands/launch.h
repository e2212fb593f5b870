/* Runs a launcher so that a signal stops the trainer without losing its weights. */
#ifndef PLANC_COMMAND_LAUNCH_H
#define PLANC_COMMAND_LAUNCH_H

#include <stdbool.h>

/* Starts argv[0] (found along PATH) and waits: its exit status, or 128 + the signal that ended it.
 * -1 with errno when it cannot be started. SIGTERM, SIGINT and SIGHUP, sent to this process or, but
 * for SIGHUP, to the launcher, are passed on as SIGUSR1 (save, then stop) when `ranks` trainers
 * take signals; a second one ends the launcher and with it the ranks. */
int launch(char *const *argv, long long ranks);
/* Variables that say to Open MPI how trainers are placed; what the user set stays. False with
 * errno. */
bool launcher_settings(void);

#endif
