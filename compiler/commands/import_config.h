/* A configuration of Hugging Face transformers, read into entries of a model block. A value that
 * would change the mathematics is refused with its line in the file. */
#ifndef PLANC_IMPORT_CONFIG_H
#define PLANC_IMPORT_CONFIG_H

#include "commands/command.h"
#include "commands/import.h"

#include <jansson.h>

struct import {
    const char *config, *folder; /* the file; its folder, absolute */
    json_t *root;
    int source;
    const struct import_family *family;
    struct text model;  /* entries of the model block */
    struct text absent; /* what the configuration does not say, and is as transformers has it */
    int entries;
};

/* Opens a config.json, or the one of a folder. EXIT_FINE, or another status after a message. */
int import_open(struct import *im, const char *path);
/* Reads all of it; false after diagnostics. */
bool import_read(struct import *im);
/* One more entry of the model block. */
void import_entry(struct import *im, const char *hyper, const char *value);
/* What the configuration leaves to transformers, which is said. */
void import_absent(struct import *im, const char *config, const char *value);
/* Where a key stands: its first quoted appearance. */
struct span import_key_at(const struct import *im, const char *key);
/* A whole number from `least` on, or what its absence means. False after a message. */
bool import_whole(struct import *im, const char *key, json_int_t least, json_int_t otherwise,
                  json_int_t *whole);
/* import_window.c: which layers have a window, of a family in which they may differ; whether a key
 * of the configuration is about that. */
void import_window(struct import *im);
bool import_window_reads(const struct import_family *f, const char *key);
/* Rotary positions, of a family that has them; whether a key of the configuration is theirs. */
void import_rope(struct import *im);
bool import_rope_reads(const struct import_family *f, const char *key);
/* A value of the configuration as text, shortened where it is long. */
const char *import_value_text(const json_t *v);
/* Whether the configuration has a value there, and not null. */
bool import_is_there(const json_t *v);

#endif
