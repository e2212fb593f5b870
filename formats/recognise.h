/* What a file without a header of its own is, judged by its first bytes: names mislead (a .npy may
 * be raw ids), and ids read in another width are valid ids that train on noise. Headers that are
 * read are in tokens_header.c. */
#ifndef FORMATS_RECOGNISE_H
#define FORMATS_RECOGNISE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum recognised {
    RECOGNISED_FINE,  /* nothing speaks against it */
    RECOGNISED_DOUBT, /* it may be something else: `why` is a warning */
    RECOGNISED_WRONG  /* it is something else: `why` says what, and what to do */
};
/* Bytes of a file's beginning that are worth looking at. */
enum { RECOGNISE_BYTES = 1 << 16 };

/* head: the first n bytes of a file of file_bytes; width: bytes of an id (1, 2 or 4) as the plan
 * says; vocabulary: ids below it are valid, 0: not known. `why` is filled unless the file is fine:
 * "a NumPy file …", to follow the file's name and a colon. */
enum recognised recognise(const unsigned char *head, size_t n, int64_t file_bytes, int width,
                          int64_t vocabulary, char *why, size_t why_bytes);
/* Bytes of an id of a file of raw ids or of text, when the plan does not say: 1, 2 or 4. */
int recognise_width(const unsigned char *head, size_t n, int64_t vocabulary);
/* JSON lines, whose bytes such a vocabulary is for. */
bool recognise_json_lines(const unsigned char *head, size_t n, int64_t vocabulary);
/* Whether it is an archive or a table, by its first bytes; `why` then says which. */
bool recognise_marked(const unsigned char *head, size_t n, int64_t file_bytes, char *why,
                      size_t why_bytes);

#endif
