/* Token files of a plan, as the reader in formats/ names them. */
#ifndef PLANC_DATA_FILES_H
#define PLANC_DATA_FILES_H

#include "check/plan.h"
#include "formats/tokens.h"

/* tokenizer_size.c: ids of a tokenizer.json or of a model of sentencepiece: the largest one and 1.
 * 0: *why says why it is not known. */
int64_t tokenizer_size(const char *path, const char **why);

enum tokens_named data_named(enum data_format format);

#endif
