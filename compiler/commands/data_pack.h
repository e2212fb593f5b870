/* `planc data pack` and `planc data tokenize`. */
#ifndef PLANC_DATA_PACK_H
#define PLANC_DATA_PACK_H

#include "base/arguments.h"
#include "commands/sentencepiece.h"
#include "formats/tokens.h"

/* Ids that are read at once. */
enum { DATA_PIECE = 1 << 16 };
/* The files behind the first word, in their order, into a->output. end_token: -1: none. model:
 * NULL, or what turns their text into ids. Returns the exit status, after a message when something
 * is wrong. */
int data_pack(const struct arguments *a, const struct tokens_wish *wish, int64_t end_token,
              struct sentencepiece *model);

#endif
