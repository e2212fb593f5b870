/* What `planc import` knows of other people's configurations, as data: which key is which hyper-parameter, what an absent
 * key means there, and which values would change the mathematics. A family is a row; the code reads rows. */
#ifndef PLANC_IMPORT_H
#define PLANC_IMPORT_H

#include "base.h"

enum import_kind { IMPORT_WHOLE, IMPORT_REAL, IMPORT_TRUTH };

/* `config` becomes `hyper`. otherwise: what its absence (or null) means: NULL: it must be there; "": the architecture's
 * own default; else the value as a plan writes it. */
struct import_key { const char *config, *hyper; enum import_kind kind; const char *otherwise; };

/* A key that must be absent, null or one of the JSON values in `allowed` ("false", "0", "\"silu\""), because of `why`. */
struct import_limit { const char *config, *allowed[3], *why; };

struct import_family {
    const char *model_type, *class, *architecture;   /* "llama", "LlamaForCausalLM", "llama" */
    const struct import_key *key; int keys;
    const struct import_limit *limit; int limits;
    bool rope;                                       /* has rope_theta and scaling in one of their spellings */
    const char *theta;                               /* when absent */
};
extern const struct import_family import_families[];
extern const int import_family_count;

/* Limits that hold for every family. */
extern const struct import_limit import_limits[];
extern const int import_limit_count;

/* Keys that say nothing about the mathematics of training. */
bool import_is_harmless(const char *key);

#endif
