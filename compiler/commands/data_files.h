/* Token files of a plan, as the reader in formats/ names them. */
#ifndef PLANC_DATA_FILES_H
#define PLANC_DATA_FILES_H

#include "check/plan.h"
#include "formats/tokens.h"

enum tokens_named data_named(enum data_format format);

#endif
