/* `planc plot METRICS…`: curves of runs over each other, on a terminal or as an SVG. What cannot be
 * drawn is refused before anything is: a file that is none of metrics, a key that a run lacks. */
#define _GNU_SOURCE
#include "base/escape.h"
#include "commands/command.h"
#include "report/plot.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { COLUMNS_ELSEWHERE = 80, MOST_COLUMNS = 400, MOST_RUNS = 64 };

static int terminal_columns(void)
{
    struct winsize size;
    const char *given = getenv("COLUMNS");
    long columns = given ? strtol(given, NULL, 10) : 0;
    if (columns <= 0 && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0) columns = size.ws_col;
    if (columns <= 0) columns = COLUMNS_ELSEWHERE;
    return (int)(columns < MOST_COLUMNS ? columns : MOST_COLUMNS);
}

typedef VECTOR(const char *) key_list;

static bool split_keys(const char *text, key_list *keys)
{
    for (const char *at = text;; at++) {
        const size_t n = strcspn(at, ",");
        if (n == 0) {
            command_fail(EXIT_USAGE, "--key '%s' names a key of no letters", printable_text(text));
            return false;
        }
        PUSH(keys, text_format("%.*s", (int)n, at));
        at += n;
        if (!*at) return true;
    }
}

static void print_json(const struct series *curve, int n)
{
    struct text t = {0};
    text_add(&t, "{\"curves\": [");
    for (int i = 0; i < n; i++) {
        text_add(&t, "%s\n  {\"key\": ", i ? "," : "");
        escape_json(&t, curve[i].key);
        text_add(&t, ", \"file\": ");
        escape_json(&t, curve[i].path);
        text_add(&t, ", \"points\": [");
        for (int k = 0; k < curve[i].point.n; k++)
            text_add(&t, "%s[%s, %s]", k ? ", " : "", text_number(curve[i].point.item[k].step),
                     text_number(curve[i].point.item[k].value));
        text_add(&t, "]}");
    }
    text_add(&t, "\n]}\n");
    fputs(t.bytes, stdout);
}

static bool is_svg(const char *path)
{
    const size_t n = strlen(path);
    return n > 4 && !strcmp(path + n - 4, ".svg");
}

int command_plot(const struct arguments *a)
{
    key_list keys = {0};
    struct text t = {0};
    const int n = a->word.n;
    if (n < 1 || n > MOST_RUNS)
        return command_fail(EXIT_USAGE, "plot takes 1 to %d files that a trainer's --metrics wrote",
                            MOST_RUNS);
    if (!split_keys(a->key ? a->key : "loss", &keys)) return EXIT_USAGE;
    if (a->output && (a->json || !is_svg(a->output)))
        return command_fail(EXIT_USAGE, a->json ? "plot writes -o FILE.svg or --json, not both"
                                                : "plot -o writes a picture: FILE.svg");
    struct series *curve = TAKE_MANY(struct series, keys.n * n),
                  *of_run = TAKE_MANY(struct series, keys.n);
    for (int i = 0; i < n; i++) {
        const char *why = series_read(a->word.item[i], keys.item, keys.n, of_run);
        if (why)
            return command_fail(EXIT_ENVIRONMENT, "%s: %s", printable_text(a->word.item[i]), why);
        for (int k = 0; k < keys.n; k++) curve[k * n + i] = of_run[k];
    }
    if (a->json) {
        print_json(curve, keys.n * n);
        return EXIT_FINE;
    }
    if (a->output) {
        plot_svg(&t, curve, keys.n, n);
        if (!file_write(a->output, t.bytes, t.length))
            return command_fail(EXIT_ENVIRONMENT, "cannot write '%s': %s", a->output,
                                strerror(errno));
        printf("%s: %d curve%s\n", printable_text(a->output), keys.n * n,
               keys.n * n == 1 ? "" : "s");
        return EXIT_FINE;
    }
    const bool colour = isatty(STDOUT_FILENO) && a->colour;
    for (int k = 0; k < keys.n; k++) {
        if (k) text_add(&t, "\n");
        plot_text(&t, curve + k * n, n, terminal_columns(), colour);
    }
    fputs(t.bytes, stdout);
    return EXIT_FINE;
}
