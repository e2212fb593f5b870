/* What `planc import` and `planc export` know about Hugging Face configurations, as data: which key
 * is which hyper-parameter, what a missing key means, and which values would change the
 * mathematics. A family is a row; the code reads rows, in both directions. */
#ifndef PLANC_IMPORT_H
#define PLANC_IMPORT_H

#include "check/plan.h"
#include "commands/import_weights.h"

enum import_kind {
    IMPORT_WHOLE, /* from 1 */
    IMPORT_COUNT, /* from 0 */
    IMPORT_REAL,
    IMPORT_FRACTION,
    IMPORT_TRUTH,
    IMPORT_WORD,
    IMPORT_WHOLE_OR_NONE, /* null is 0, and something else than an absent key */
    IMPORT_REAL_OR_NONE,
};

/* `config` becomes `hyper`; several names, with | between, are names that versions of transformers
 * give one thing. otherwise: what its absence (or null) means: NULL: it must be there;
 * "": the architecture's own default; else the value as a plan writes it. A real number is
 * positive, a fraction may be 0. A word is one of `words`, pairs of what the configuration and the
 * plan call it: "gelu_new off gelu on". */
struct import_key {
    const char *config, *hyper;
    enum import_kind kind;
    const char *otherwise, *words;
};

/* A key that must be absent, null or one of the JSON values in `allowed` ("false", "0", "\"silu\"";
 * "*": anything, it is never used; "[1]": a list of 1s), because of `why`. "*" with a `why` warns
 * of what is neither absent nor 0 nor false. */
struct import_limit {
    const char *config, *allowed[4], *why;
};

/* Which layers of a mixture are dense: those in the list `layers`, and those whose number, from 1,
 * `step` does not divide; `width` is theirs, and becomes the hyper-parameter ffn. */
struct import_dense {
    const char *layers, *step, *width;
};

/* Which layers see the whole sequence: every n-th, where n is the hyper-parameter `hyper`; from the
 * list layer_types, else from the key `config`, else `otherwise`. */
struct import_period {
    const char *config, *hyper;
    int otherwise;
};

/* How rotary positions differ from those of a llama, which has llama3 or yarn scaling and nothing
 * of what follows. */
struct import_rope {
    /* the scaling that there is instead */
    enum { SCALING_LLAMA3_YARN, SCALING_NONE, SCALING_LINEAR, SCALING_YARN } scaling;
    /* names of rope_theta and partial_rotary_factor at the top level, NULL: these; the part of a
     * head that is turned when it is absent, the hyper-parameter `rotary`, NULL: there is none */
    const char *base, *part, *part_otherwise;
    /* theta of the layers with a window when it is absent, the hyper-parameter rope_local_theta;
     * NULL: all layers are alike */
    const char *local;
};

struct import_family {
    const char *model_type, *class, *architecture; /* "llama", "LlamaForCausalLM", "llama" */
    const struct import_key *key;
    int keys;
    const struct import_limit *limit;
    int limits;
    /* of rotary positions when absent; NULL: the family has none */
    const char *theta;
    const char *longest;       /* key of the longest sequence */
    struct import_dense dense; /* NULLs: all layers are alike */
    /* pattern of a stored name that says fused_experts = on; NULL: none */
    const char *fused;
    /* What an exported configuration says beside the keys: the limits that transformers reads. */
    const char *exported;
    struct import_period period; /* NULLs: the layers are alike, or attention has no window */
    /* use_sliding_window gives all layers but the first ones a window: the hyper-parameters window
     * and full_layers */
    bool window_after;
    struct import_rope rope;
};
extern const struct import_family import_families[];
extern const int import_family_count;

/* Limits that hold for every family. */
extern const struct import_limit import_limits[];
extern const int import_limit_count;

/* Probabilities of dropout, which planc does not have: anything above 0 is warned about, since only
 * the noise of training is lost. NULL after the last. */
extern const char *const import_dropouts[];

/* Keys that say nothing about the mathematics of training. */
bool import_is_harmless(const char *key);

/* The plan of the configuration in a folder, whose weights must be `weights`, every one and none
 * else. Writes nothing that stays. NULL after a message, *status then set. */
struct plan *import_folder(const char *folder, const struct weight_files *weights, int *status);

#endif
