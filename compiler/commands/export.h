/* The parts of `planc export`: a configuration from a plan's keys (export_config.c), and tensors
 * from files (export_weights.c). */
#ifndef PLANC_EXPORT_H
#define PLANC_EXPORT_H

#include "commands/import.h"
#include "commands/saved.h"

#include <signal.h>

/* ── export_command.c ────────────────────────────────────────────────────────── */
/* The signal that asked to stop, or 0. Looked at before every read of weights. */
extern volatile sig_atomic_t export_stopped;

/* ── export_config.c ─────────────────────────────────────────────────────────── */
/* keys: of the plan, by path ("model", "model.layers"). beside: the configuration that the run
 * began with, or NULL: the longest sequence and the special tokens are taken from it, which a plan
 * does not say. NULL when fine, else why there is no such configuration. */
const char *export_config(const json_t *keys, const json_t *beside, enum element dtype,
                          struct text *to);
/* What transformers would compute otherwise than planc, or NULL. */
const char *export_note(const json_t *keys);
/* Whether an imported plan has the same model: NULL, else the first key that differs. */
const char *export_same_model(const json_t *keys, const struct plan *imported);
/* All keys of a plan, by path. */
json_t *export_keys(const struct plan *p);

/* ── export_weights.c ────────────────────────────────────────────────────────── */
/* Elements [element, element + count) of a tensor, F32, from byte `offset` of a file. */
struct weight_piece {
    int file;
    int64_t offset, element, count;
};
struct weight_tensor {
    const char *name;
    const json_t *shape;
    int64_t elements;
    VECTOR(struct weight_piece) piece; /* in the order of its elements; all of it, once */
};
struct weight_file {
    const char *path, *hash; /* hash: XXH3 64 of the file in hexadecimal, NULL: not known */
    int64_t bytes;
    int fd;
};
struct weight_source {
    VECTOR(struct weight_file) file;
    VECTOR(struct weight_tensor) tensor;
    struct weight_files names; /* as if they were read from headers */
    int64_t elements;
};
/* Each opens its files: NULL, else why not. */
const char *source_of_checkpoint(const struct saved *s, struct weight_source *w);
const char *source_of_file(const char *path, struct weight_source *w);
/* Every byte of the files that have a hash: NULL, else which is damaged. */
const char *source_verify(const struct weight_source *w);
void source_close(struct weight_source *w);
/* Writes model.safetensors, or shards of at most shard_bytes (one tensor may be more) and their
 * index, into a folder. Reads and writes a few MiB at a time. NULL, else why not. */
const char *export_weights(const struct weight_source *w, const char *folder, enum element dtype,
                           int64_t shard_bytes, int *files);

#endif
