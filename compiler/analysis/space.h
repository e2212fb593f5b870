/* `planc check` of a plan with open alternatives: every point is judged. */
#ifndef PLANC_COMMAND_SPACE_H
#define PLANC_COMMAND_SPACE_H

#include "base/arguments.h"
#include "check/plan.h"

#include <jansson.h>

/* The exit status: fine when a point fits. `all` (NULL: print) gets the plan's JSON. */
int check_space(const struct arguments *a, const struct space *s, const char *path, json_t *all);

#endif
