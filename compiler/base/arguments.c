/* Errors of the command line and the environment: one line on stderr that begins with "planc:". */
#include "base/arguments.h"

#include <stdarg.h>
#include <stdio.h>

int command_fail(int status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "planc: %s\n", text_vformat(format, args));
    va_end(args);
    return status;
}
