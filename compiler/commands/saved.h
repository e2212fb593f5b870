/* Checkpoints as they lie on a disk, read by commands. docs/checkpoints.md has the format; trainers
 * write it (runtime/shared/checkpoint.h). Nothing here changes a file. */
#ifndef PLANC_SAVED_H
#define PLANC_SAVED_H

#include "base/base.h"

#include <jansson.h>

struct saved {
    const char *name, *path; /* "step-00020000", and its folder */
    int64_t run, step, bytes;
    json_t *manifest; /* NULL: not complete, or damaged */
    const char *why;  /* then: in one line, without the path */
};
typedef VECTOR(struct saved) saved_list;

bool saved_is_checkpoint(const char *path); /* is its name one, or has it a manifest? */
/* Its manifest and its parts, which must be there with the sizes of the manifest. Bytes of parts
 * are not read. */
struct saved saved_read(const char *path);
/* All checkpoints of a folder, the newest first: by run, then by step. NULL, or why the folder
 * cannot be read. */
const char *saved_list_read(const char *folder, saved_list *all);
/* A number that is not negative; else -1. */
int64_t saved_whole(const json_t *object, const char *key);

#endif
