/* Reading safetensors: one file, the files of an index, or a folder of Hugging Face transformers.
 * Import and trainer take the same files and refuse the same ones. */
#ifndef FORMATS_SAFETENSORS_H
#define FORMATS_SAFETENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ST_OTHER cannot be read, but its place in the file is checked like that of all others. */
enum st_type { ST_F32, ST_BF16, ST_F16, ST_OTHER };
struct st_tensor {
    const char *name, *file, *dtype;
    int fd;
    enum st_type type;
    int rank;
    int64_t dim[8], begin, bytes; /* begin: from the beginning of the file */
    bool used;                    /* for the caller */
};
enum { ST_FILES = 4096 };
struct st_set {
    const char *path;         /* of the file or index that was found */
    struct st_tensor *tensor; /* by name */
    int64_t tensors;
    bool none; /* the folder holds neither a file nor an index */
    int fd[ST_FILES], files;
    struct st_block *blocks;
};

/* A file, an index, or a folder: in it model.safetensors, else model.safetensors.index.json. False:
 * st_why says why, in one line with the file's name. st_close either way. */
bool st_open(struct st_set *set, const char *path);
void st_close(struct st_set *set);
const char *st_why(void);
struct st_tensor *st_find(struct st_set *set, const char *name); /* NULL: not there */
/* Elements [element, element + n) as floats; not of ST_OTHER. */
bool st_read(const struct st_tensor *t, int64_t element, int64_t n, float *to);
/* Whether some other tensor that is `used` has the shape and the values of `t`: of its elements
 * part `part` of `parts` is compared. */
bool st_is_copy(const struct st_set *set, const struct st_tensor *t, int64_t part, int64_t parts);
/* {i} and {e} in a pattern stand for a number, * for any text. */
bool st_matches(const char *pattern, const char *name);
void st_shape_text(int rank, const int64_t *dim, char *to, size_t bytes); /* "[257, 64]" */

#endif
