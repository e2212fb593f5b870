/* `planc format FILE…`: the canonical layout on stdout, into the file (--write), or only whether
 * the file has it (--check, for a hook). A file that does not parse is not changed; its errors are
 * shown. */
#include "text/ast.h"
#include "commands/command.h"

#include <errno.h>
#include <string.h>

static int format_one(const struct arguments *a, const char *path)
{
    size_t n;
    const char *bytes = text_read(path, &n);
    if (!bytes)
        return command_fail(EXIT_ENVIRONMENT, "cannot read '%s': %s", path, text_read_why(errno));
    int file = source_add(path, bytes, n), before = error_count();
    parse_source(file);
    if (error_count() > before) return EXIT_PLAN;
    const char *text = format_source(file);
    bool same = strlen(text) == n && !memcmp(text, bytes, n);
    if (a->check)
        return same ? EXIT_FINE
                    : command_fail(EXIT_PLAN,
                                   "'%s' is not in the canonical layout; planc format --write %s",
                                   path, path);
    if (!a->write) {
        fputs(text, stdout);
        return EXIT_FINE;
    }
    if (same || file_write(path, text, strlen(text))) return EXIT_FINE;
    return command_fail(EXIT_ENVIRONMENT, "cannot write '%s': %s", path, strerror(errno));
}

int command_format(const struct arguments *a)
{
    if (!a->word.n) return command_fail(EXIT_USAGE, "format wants a file");
    if (a->check && a->write)
        return command_fail(EXIT_USAGE, "--check changes nothing and --write does: one of them");
    if (a->word.n > 1 && !a->check && !a->write)
        return command_fail(EXIT_USAGE,
                            "several files are formatted with --write or looked at with --check");
    int worst = EXIT_FINE;
    for (int i = 0; i < a->word.n; i++) {
        int status = format_one(a, a->word.item[i]);
        if (status > worst) worst = status;
    }
    return worst;
}
