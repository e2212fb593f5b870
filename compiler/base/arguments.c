/* Errors of the command line and the environment: one line on stderr that begins with "planc:", and
 * with --json an error without a place beside those of plans. */
#include "base/arguments.h"

#include "base/diagnostics.h"

#include <stdarg.h>
#include <stdio.h>

static bool also_listed;

void command_errors_as_json(void) { also_listed = true; }

int command_fail(int status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const char *line = text_vformat(format, args);
    va_end(args);
    fprintf(stderr, "planc: %s\n", line);
    if (also_listed) complain((struct span){0, 0, 0}, "%s", line);
    return status;
}
