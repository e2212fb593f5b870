/* Files that a trainer writes, under names that were given to it. */
#ifndef PLANC_OUTPUT_H
#define PLANC_OUTPUT_H

#include "trainer.h"

/* The words for errno behind a failed open, write or close of an output. */
const char *output_why(int error);

/* That this file is read by the run, as `what`: no output may take its place. Before outputs are
 * opened. */
void output_spare(const char *what, const char *path);

/* Whether neither the run reads this file nor another option writes it; output_open asks, too.
 * False: noted. */
bool output_is_free(const char *option, const char *path);

/* Opens `path` for writing, creating it; `flags`: more of open()'s (O_TRUNC, O_APPEND). Not through
 * a link; a pipe must find a reader within run.timeout. -1: noted, with the option's name. */
int output_open(const char *option, const char *path, int flags);

/* A file that appears under its name when all of it is on the disk. */
enum { OUTPUT_WAITING = 256 << 20 }; /* bytes that may wait for the disk */
struct output {
    const char *option, *path;
    char *folder, *temporary;
    size_t temporary_bytes;
    int64_t waiting;
    int fd; /* -1: not being written */
};
/* Before the first step: can it be written? Removes what killed runs left. False: noted. */
bool output_prepare(struct output *o, const char *option, const char *path);
/* Each false when noted; nothing of the new file is left then, and the old one is untouched. May be
 * begun again. Where only the name cannot be given, the file stays under its temporary one. */
bool output_begin(struct output *o);
bool output_put(struct output *o, const void *bytes, int64_t n);
bool output_end(struct output *o);

#endif
