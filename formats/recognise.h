/* What a file of tokens is, judged by its first bytes: names mislead (a .npy may be raw ids, a .bin
 * may begin with a header), and ids read in another width are valid ids that train on noise. */
#ifndef FORMATS_RECOGNISE_H
#define FORMATS_RECOGNISE_H

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

#endif
