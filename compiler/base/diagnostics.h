/* Errors and warnings for the author of a plan. Every message shows the text of the plan,
 * underlines the cause, points at a related place and suggests a fix. So a diagnostic is data
 * (spans, notes, help) until all of a run are known; printing sorts them and drops duplicates.
 * Defects of the compiler do not come this way: they are bug(). */
#ifndef PLANC_DIAGNOSTICS_H
#define PLANC_DIAGNOSTICS_H

#include "base/base.h"

/* A range of a source: bytes [from, to) of file number `file`; file 0 means "nowhere". */
struct span {
    int file, from, to;
};

/* Sources: files, --set texts ("--set mesh.fsdp=3") and generated texts alike. Returns its number
 * (from 1). */
int source_add(const char *name, const char *bytes, size_t n);
const char *source_name(int file);
const char *source_bytes(int file, size_t *n);
/* 1-based line and column (in code points) of a byte. */
void source_place(int file, int at, int *line, int *column);
/* The text of a line of the source with that name, or whose path ends in it; empty if there is none
 * (a graph that was read from a text has no sources). */
struct span source_line(const char *name, int line);
struct span span_join(struct span a, struct span b);

struct diagnostic;
/* an error   */
struct diagnostic *complain(struct span at, const char *format, ...) PRINTF_LIKE(2, 3);
/* a warning  */
struct diagnostic *warn(struct span at, const char *format, ...) PRINTF_LIKE(2, 3);
void add_note(struct diagnostic *d, struct span at, const char *format, ...) PRINTF_LIKE(3, 4);
void add_help(struct diagnostic *d, const char *format, ...) PRINTF_LIKE(2, 3);

int error_count(void);
/* Errors in `file`, an architecture, that have a note in another file, the plan, are caused by that
 * place: the two are swapped. Of several with the same cause in the plan, the first stays. */
void diagnostics_blame(int file);
void diagnostics_reset(void); /* forget all (between points of a space, or files) */
/* Messages after a mark can be dropped, when an attempt was only a trial. */
struct diagnostics_mark {
    struct diagnostic **last;
    int count, errors;
};
struct diagnostics_mark diagnostics_mark(void);
/* the first error's words, NULL: none */
const char *diagnostics_since(struct diagnostics_mark mark);
void diagnostics_drop(struct diagnostics_mark mark);
/* Sorted by file and place, at most 20 errors (the rest counted). Colour only if asked. */
void diagnostics_print(FILE *to, bool colour);
/* {"errors": [{file, line, column, message, help}]}: the stable form. */
void diagnostics_print_json(FILE *to);

/* The candidate nearest to `name` by edit distance, or NULL when none is near enough to be a
 * slip. */
const char *nearest_name(const char *name, const char *const *candidates, int n);

#endif
