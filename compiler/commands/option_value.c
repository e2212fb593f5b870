/* Values of options that are quantities in a plan's units. They are no text of a plan: a bad one is
 * a usage error of one line, without a place. */
#include "commands/command.h"
#include "text/constant.h"

#include <string.h>

bool option_quantity(const char *option, const char *text, struct option_range range,
                     double *number)
{
    struct ast written = {.kind = AST_NUMBER,
                          .at = {source_add(option, text, strlen(text)), 0, (int)strlen(text)},
                          .text = text};
    struct constant c;
    struct diagnostics_mark mark = diagnostics_mark();
    const bool fine = strspn(text, "0123456789.") && constant_from_number(&written, &c) &&
                      c.unit == range.unit && c.number >= range.least && c.number < 9e18;
    diagnostics_drop(mark);
    if (fine)
        *number = c.number;
    else
        command_fail(EXIT_USAGE, "%s takes %s, not '%s'", option, range.what, text);
    return fine;
}
