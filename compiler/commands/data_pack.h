/* `planc data pack`. */
#ifndef PLANC_DATA_PACK_H
#define PLANC_DATA_PACK_H

#include "base/arguments.h"
#include "formats/tokens.h"

/* Ids that are read at once. */
enum { DATA_PIECE = 1 << 16 };
/* The files behind the word `pack`, in their order, into a->output. end_token: -1: none. Returns
 * the exit status, after a message when something is wrong. */
int data_pack(const struct arguments *a, const struct tokens_wish *wish, int64_t end_token);

#endif
