/* The headers of the safetensors files beside a configuration, and whether they are what an
 * architecture stores. */
#ifndef PLANC_IMPORT_WEIGHTS_H
#define PLANC_IMPORT_WEIGHTS_H

#include "formats/safetensors.h"
#include "ir/ir.h"

struct weight_files {
    struct st_set *set;
    void *headers; /* a JSON object: tensor name to its entry */
};
/* Reads the headers of model.safetensors, or of the files of model.safetensors.index.json; none
 * there leaves `files` empty. NULL when fine, else why not, in one line. */
const char *weights_open(const char *folder, struct weight_files *w);
/* Whether a tensor is stored whose name the pattern fits; * stands for any text. */
bool weights_have(const struct weight_files *w, const char *pattern);
/* Every weight is stored with its shape, and nothing else is but what the architecture says to
 * ignore: NULL, else the first difference. */
const char *weights_match(const struct weight_files *w, const struct plan *p,
                          const struct graph *g);

#endif
