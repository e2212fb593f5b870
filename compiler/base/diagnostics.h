/* What the compiler says to the person who wrote the plan. Every message shows the plan's own text,
 * underlines the culprit, points at the accomplice and offers a way out; so a diagnostic is data
 * (spans, notes, help) until all of a run are known, and printing sorts them and drops doubles.
 * Errors of ours never come this way: they are bug(). */
#ifndef PLANC_DIAGNOSTICS_H
#define PLANC_DIAGNOSTICS_H

#include "base/base.h"

/* A stretch of a source: bytes [from, to) of file number `file`; file 0 means "nowhere". */
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
/* The text of a line of the source of that name, or of the one whose path ends in it; nowhere when
 * there is none (a graph that was read from a text has no sources). */
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
/* What was said about a place in `file`, an architecture, and has a note in another file, the plan,
 * is the fault of that
 * place: the two change places. Of several that come from one number of the plan, the first
 * stays. */
void diagnostics_blame(int file);
void diagnostics_reset(void); /* forget all (between points of a space, or files) */
/* What is said from a mark on can be taken back, when a try was only a try. */
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
