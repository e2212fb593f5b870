/* Coverage-guided damage: libFuzzer hands over texts, and each goes the way of a plan: parsed, laid
 * out, checked, lowered. It must end in a plan or in diagnostics; a crash, a hang, a sanitizer's
 * report or bug() is a find. A first line "# --set a.b=c" is also a setting, so that those are
 * damaged too. Built by clang with the compiler's own sources. */
#define _POSIX_C_SOURCE 200809L
#include "check/keys.h"
#include "commands/command.h"
#include "ir/ir.h"
#include "passes/pipeline.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const char *input_file(void)
{
    static char path[64];
    if (!path[0]) snprintf(path, sizeof path, "fuzz.%d.plan", (int)getpid());
    return path;
}

static void remove_input(void) { remove(input_file()); }

/* Straight into the file: the atomic way of base.c costs more than the check. */
static void write_input(const uint8_t *data, size_t n)
{
    static FILE *to;
    if (!to) {
        to = fopen(input_file(), "wb");
        atexit(remove_input);
    }
    if (!to || fseek(to, 0, SEEK_SET) || fwrite(data, 1, n, to) != n || fflush(to) ||
        ftruncate(fileno(to), (off_t)n))
        abort();
}

static void laid_out(const char *text, size_t n)
{
    int before = error_count(), file = source_add("text", text, n);
    parse_source(file);
    if (error_count() > before) return;
    const char *once = format_source(file),
               *twice = format_source(source_add("once", once, strlen(once)));
    if (strcmp(once, twice)) bug("laying out twice gives another text");
}

static void first_point(const struct space *space)
{
    const char *why = NULL;
    int *choice = TAKE_MANY(int, space->n_axes + 1);
    if (!space_plan(space, choice, &why) && !why) bug("an impossible point without a reason");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static FILE *nowhere;
    if (!nowhere && !(nowhere = fopen("/dev/null", "w"))) abort();
    language_use(&plan_language);
    struct arena_mark mark = arena_mark();
    const char *set[1] = {NULL};
    int n_set = 0;
    char *text = take(n + 1);
    memcpy(text, data, n);
    laid_out(text, n);
    diagnostics_reset();
    const char *end = memchr(text, '\n', n);
    if (end && n > 8 && memcmp(text, "# --set ", 8) == 0)
        set[n_set++] = text_format("%.*s", (int)(end - text - 8), text + 8);
    write_input(data, n);
    struct space *space;
    struct plan *plan = plan_or_space_load(input_file(), set, n_set, &space);
    if (plan)
        pass_lower(plan);
    else if (space)
        first_point(space);
    else if (!error_count())
        bug("no plan, and nothing said");
    diagnostics_print(nowhere, false);
    diagnostics_print_json(nowhere);
    diagnostics_reset();
    arena_reset(mark);
    return 0;
}
