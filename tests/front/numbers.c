/* Works out every line of a table (expression => value, or ! message) with the compiler's own
 * arithmetic and compares. Exactness is a promise of the language, so it is tested at the
 * expression and not only where a key happens to show it. */
#include "text/constant.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* What the expression comes to: its value, or "! " and the first diagnostic's message. */
static const char *outcome(const char *text)
{
    const char *entry = text_format("x = %s", text);
    struct ast *items = parse_source(source_add("line", entry, strlen(entry)));
    struct constant c;
    if (!error_count() && items->n == 1 && items->kid[0]->kind == AST_ENTRY &&
        evaluate(items->kid[0]->kid[1], NULL, &c))
        return constant_text(&c);
    char *bytes = NULL;
    size_t n = 0;
    FILE *to = open_memstream(&bytes, &n);
    if (!to) bug("no memory stream: %s", strerror(errno));
    diagnostics_print(to, false);
    if (fclose(to) != 0) bug("no memory stream: %s", strerror(errno));
    const char *from = strstr(bytes, "error: ");
    const char *message =
        from ? text_format("! %.*s", (int)strcspn(from + 7, "\n"), from + 7) : "no diagnostic";
    free(bytes);
    return message;
}

int main(int argc, char **argv)
{
    size_t n;
    char *table = argc == 2 ? file_read(argv[1], &n) : NULL;
    if (!table) {
        fprintf(stderr, "usage: numbers TABLE\n");
        return 3;
    }
    int failed = 0, lines = 0;
    for (char *line = strtok(table, "\n"); line; line = strtok(NULL, "\n")) {
        char *arrow = strstr(line, " => ");
        if (line[0] == '#' || !arrow) continue;
        *arrow = 0;
        diagnostics_reset();
        const char *got = outcome(line);
        lines++;
        if (strcmp(got, arrow + 4) != 0) {
            printf("FAIL number_%d: %s is %s, not %s\n", lines, line, got, arrow + 4);
            failed++;
        }
    }
    printf("%s", failed ? "" : text_format("ok numbers_%d\n", lines));
    return failed > 0;
}
