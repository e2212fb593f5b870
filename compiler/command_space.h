/* `planc check` of a plan with open alternatives: every point is judged. */
#ifndef PLANC_COMMAND_SPACE_H
#define PLANC_COMMAND_SPACE_H

#include "command.h"

#include <jansson.h>

/* -1 when the plan leaves nothing open (or is wrong: plan_load will say so); else the exit status: fine when a point fits.
 * `all` (NULL: print) gets the plan's JSON. */
int check_space(const struct arguments *a, const char *path, json_t *all);

#endif
