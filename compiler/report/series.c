/* Reads metrics line by line and keeps only what is drawn: the metrics of a long run of a mixture
 * are larger than memory should be, because every line has the load of every expert. */
#define _GNU_SOURCE
#include "report/series.h"
#include "base/diagnostics.h"
#include "base/escape.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Beyond these an axis has no round ticks. */
static const double MOST_STEP = 9e15, MOST_VALUE = 1e300;

/* NAME or NAME[I] of a line; NULL: it is not there. */
static const json_t *value_of(const json_t *row, const char *key)
{
    const char *open = strchr(key, '[');
    if (!open) return json_object_get(row, key);
    char *end;
    const long i = strtol(open + 1, &end, 10);
    const json_t *list = json_object_get(row, text_format("%.*s", (int)(open - key), key));
    return end > open + 1 && !strcmp(end, "]") && i >= 0 ? json_array_get(list, (size_t)i) : NULL;
}

/* Keys of the first line that can be drawn, and what `key` may have meant. */
static const char *no_such_key(const char *key, json_t *row)
{
    struct text all = {0};
    const char *name;
    json_t *value;
    VECTOR(const char *) names = {0};
    json_object_foreach(row, name, value)
    {
        const bool list = json_is_array(value) && json_array_size(value) > 0;
        if (!strcmp(name, "step") || (!json_is_number(value) && !list)) continue;
        if (list && !strcmp(name, key))
            return text_format("'%s' is a list of %zu numbers: %s[0] is the first of them",
                               printable_text(key), json_array_size(value), printable_text(key));
        const char *shown = intern(printable_text(name));
        text_add(&all, "%s%s%s", all.length ? ", " : "", shown, list ? "[0]" : "");
        PUSH(&names, shown);
    }
    const char *near = nearest_name(key, names.item, names.n);
    return text_format("no step has a number '%s'%s%s%s; there are %s", printable_text(key),
                       near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "",
                       all.length ? all.bytes : "none");
}

static const char *read_lines(FILE *f, const char *const *key, int keys, struct series *curve,
                              json_t **first)
{
    char *line = NULL;
    size_t room = 0;
    ssize_t n;
    const char *why = NULL;
    for (int number = 1; !why && (n = getline(&line, &room, f)) > 0; number++) {
        json_t *row = json_loadb(line, (size_t)n, 0, NULL);
        const json_t *step = json_object_get(row, "step");
        const bool whole = line[n - 1] == '\n';
        if (!whole && !row) break;
        if (!json_is_number(step))
            why = text_format("line %d is no metrics of a step: an object with \"step\"", number);
        for (int k = 0; !why && k < keys; k++) {
            const json_t *v = value_of(row, key[k]);
            if (json_is_number(v) && (fabs(json_number_value(v)) > MOST_VALUE ||
                                      fabs(json_number_value(step)) > MOST_STEP))
                why = text_format("line %d: a number too large to draw", number);
            else if (json_is_number(v))
                PUSH(&curve[k].point,
                     ((struct series_point){json_number_value(step), json_number_value(v)}));
        }
        if (!*first && !why)
            *first = row;
        else
            json_decref(row);
    }
    if (!why && ferror(f)) why = strerror(errno);
    free(line);
    return why;
}

const char *series_read(const char *path, const char *const *key, int keys, struct series *curve)
{
    struct stat s;
    json_t *first = NULL;
    FILE *f = fopen(path, "re");
    if (!f) return strerror(errno);
    for (int k = 0; k < keys; k++) curve[k] = (struct series){.path = path, .key = key[k]};
    const char *why = fstat(fileno(f), &s) != 0 ? strerror(errno)
                      : S_ISDIR(s.st_mode)      ? strerror(EISDIR)
                      : S_ISCHR(s.st_mode) || S_ISBLK(s.st_mode)
                          ? "a device, not the metrics of a run"
                          : read_lines(f, key, keys, curve, &first);
    if (!why && !first) why = "it holds no step";
    for (int k = 0; !why && k < keys; k++)
        if (!curve[k].point.n) why = no_such_key(key[k], first);
    json_decref(first);
    fclose(f);
    return why;
}
