/* What the files of the checker share, from files to a plan: load.c (files), collect.c (which text
 * belongs to which key), value.c (evaluates that text), hyper.c (hyper-parameters), resolve.c (all
 * keys together, and the plan). Nothing outside check/ includes this. */
#ifndef PLANC_CHECK_H
#define PLANC_CHECK_H

#include "check/keys.h"
#include "check/plan.h"

struct file {
    const char *path, *real;
    int source;
    struct ast *items;
    bool loading;
};

/* A block at file level that a name stands for. */
struct named_block {
    const char *name;
    const struct ast *block;
    int file;
};

/* Later layers replace earlier ones; twice in one layer is an error (but the last --set wins). */
enum layer { LAYER_NONE, LAYER_CLUSTER, LAYER_PLAN, LAYER_SET };
enum state { UNSEEN, BUSY, KNOWN, ABSENT, OPEN, FAILED };

struct slot {
    enum layer layer;
    const struct ast *entry; /* NULL: the key is not given */
    enum state state;
    struct constant value; /* KNOWN; OPEN: the first of the alternatives */
    struct span at;        /* the entry, or the default */
    bool idle;             /* it is given and has no effect in this plan */
};

/* A hyper-parameter as the architecture declares it. */
enum hyper_type { HYPER_COUNT, HYPER_NUMBER, HYPER_SWITCH, HYPER_LIST };
struct declared {
    const char *name;
    enum hyper_type type;
    const struct ast *fallback;
    struct span at;
    struct slot slot;
};

/* An entry at file level. */
struct file_constant {
    const char *name;
    int source;
    const struct ast *entry;
    enum state state;
    struct constant value;
};

/* A block at file level that belongs in a plan; `first`: the cluster or architecture that has its
 * name already, or NULL. */
struct outside {
    const struct ast *head, *first;
};

/* `weights "pattern" { … }` of the optimizer. */
struct group {
    const char *pattern;
    struct span at;
    struct slot decay, scale; /* of the keys of S_weights */
};

/* `source "name" { … }` of data. */
struct source {
    const char *name;
    struct span at;
    struct slot files, weight;
};

/* A block or an entry that names a section: `cluster b200 { }`, `schedule = cosine`. */
struct naming {
    enum layer layer;
    const char *name;
    struct span at;
};

struct rate_row;
struct rate_set;

struct checker {
    VECTOR(struct file) file; /* [0] is the plan's */
    VECTOR(struct named_block) architecture;
    VECTOR(struct named_block) cluster;
    VECTOR(struct named_block) trainer;    /* `trainer NAME { … }` of files */
    VECTOR(struct named_block) rates;      /* `rates NAME { … }` */
    const struct named_block *replacement; /* the cluster of --cluster's file */
    int loading_replacement;               /* that file, while it is loaded; else 0 */
    VECTOR(struct file_constant) constant;
    VECTOR(struct outside) outside;     /* blocks of a plan that stand at file level */
    VECTOR(const struct ast *) setting; /* entries of --set, in order */
    VECTOR(const struct ast *) require; /* heads, of the plan block */
    const struct ast *plan;             /* its block */
    /* what `model` and `cluster` name, when it exists */
    const struct named_block *model, *machines;
    struct naming naming[SECTION_COUNT];
    struct span section_at[SECTION_COUNT]; /* where the plan first speaks of it */
    struct span block_at[SECTION_COUNT];   /* its first block in the plan */
    /* the block that is read is the second of its section */
    struct second {
        struct span at, first;
        bool said;
    } second;
    struct slot key[KEY_COUNT];
    VECTOR(struct declared) declared;
    VECTOR(struct group) group;   /* of the optimizer, in order */
    VECTOR(struct source) source; /* of data, in order */
    VECTOR(struct rate_row *) rate;
    VECTOR(struct rate_set *) rate_set; /* values that --set gives them */
    /* a misspelling of it was reported: its absence is no second error */
    bool absent_is_fine[KEY_COUNT];
    bool hyper_misspelt;
    /* syntax errors: what is missing may be what was not understood */
    bool broken;
    /* the expression being evaluated reads a key that is open or failed */
    bool tainted;
    bool tainted_open;
    /* constants and hyper-parameters that are being evaluated, each for the one before it */
    int chained;
    VECTOR(const char *) open;
};
/* Each takes a few frames of the stack. */
enum { CHAIN_LIMIT = 1000 };

/* load.c */
void load_all(struct checker *c, const char *path, const char *const *set, int n_set);
const char *library_file(
    const char *folder,
    const char *name); /* "clusters/h100.plan" when the library has it or the like, else NULL */
/* against the plan's folder, or the current one for --set */
const char *path_resolve(const struct checker *c, const char *text, struct span at);

/* collect.c */
void collect(struct checker *c);
bool section_given(const struct checker *c, enum section_id s);

/* collect_unknown.c: names that are not there, each one diagnostic with a fix. */
void unknown_key(struct checker *c, const char *section, const char *name, struct span at);
/* an entry of the plan itself */
void unknown_root(struct checker *c, const char *name, struct span at);
/* `name`: of the entry in it, if that is all that was written (training.seq_len = 4096); or NULL.
 */
void unknown_section(struct checker *c, const char *path, const char *name, struct span at);
void unknown_hyper(struct checker *c, const char *name, struct span at);
/* label: NULL, a word or a string */
void suggest_key(struct diagnostic *d, enum section_id s, const struct ast *label);
/* of what is no entry yet */
void suggest_entry(struct checker *c, const char *prefix, const struct ast *head);
/* `optimizer { type = adamw }`: whether the entry names its section; says so, and gives the
 * name. */
bool key_names_section(enum section_id s, const char *key, const struct ast *value);
const char *complain_of_named_key(struct checker *c, enum section_id s, const char *key,
                                  const struct ast *entry);
const char *section_name_meant(const struct checker *c, enum section_id s, const char *text);

/* value_wrong.c: each complains and returns false (wrong_unit: true) when something is wrong. */
bool value_wrong_type(enum key_id key, const struct ast *e, const struct constant *got);
bool value_wrong_unit(enum key_id key, const struct ast *e, const struct constant *got);
bool value_within(enum key_id key, const struct ast *e, const struct constant *v);
void value_words_help(struct diagnostic *d, const struct key_row *row);
/* for a number whose unit is not wanted */
void unit_help(struct diagnostic *d, const struct ast *e, const struct constant *got);
/* for a string where none is wanted */
void unquoted_help(struct diagnostic *d, const char *name, const char *text);

/* value.c */
void check_keys(struct checker *c); /* every key that is given */
/* A key's value, computed on first use; NULL when it is open, wrong, or not given and without
 * default. */
const struct constant *key_value(struct checker *c, enum key_id key);
bool key_given(const struct checker *c, enum key_id key);
/* Evaluates in the names of a section (SECTION_COUNT: none). *open: it reads an open key; false
 * after a diagnostic, or when what it reads is wrong or open. */
bool value_evaluate(struct checker *c, enum section_id section, const struct ast *e,
                    struct constant *out, bool *open);
/* value_names.c: a constant of a file; false when the file has none of that name. */
bool value_of_constant(struct checker *c, int source, const char *name, struct constant *out);
/* The name that a slip may have meant in a section; NULL: none. */
const char *value_near(struct checker *c, enum section_id section, const char *word);
/* One value or alternatives: each is given to `one`; state KNOWN, OPEN or FAILED. */
typedef bool value_one(struct checker *c, const void *row, const struct ast *e,
                       struct constant *out, bool *open);
void value_of_entry(struct checker *c, struct slot *slot, const void *row, bool wants_list,
                    value_one *one, const char *path);

/* `key = auto`; of an entry that is there. */
bool value_is_auto(const struct slot *slot);
/* The value of a key that stands in a place of its own. */
void value_of_key(struct checker *c, enum key_id key, struct slot *slot, const char *path);

/* check_group.c: groups of weights. */
void group_collect(struct checker *c, const struct ast *block);
void group_refuse_path(struct span at);
void group_check(struct checker *c);
void group_resolve(const struct checker *c, struct plan *p);

/* check_source.c: sources of tokens. */
void source_collect(struct checker *c, const struct ast *block);
void source_refuse_path(struct span at);
void source_check(struct checker *c);
void source_resolve(struct checker *c, struct plan *p);

/* check_rates.c: rows of efficiencies and grids of the cluster. */
void rates_collect(struct checker *c, const struct ast *block);
void rates_collect_named(struct checker *c); /* last of all that is collected */
bool rates_place(struct checker *c, const char *path, const struct ast *entry);
void rates_check(struct checker *c);
void rates_resolve(const struct checker *c, struct plan *p);

/* hyper.c */
void hyper_declare(struct checker *c);
struct declared *hyper_find(struct checker *c, const char *name);
const struct constant *hyper_value(struct checker *c, struct declared *d);
void hyper_check(struct checker *c);
void hyper_resolve(struct checker *c, struct plan *p);
void stored_resolve(struct checker *c, struct plan *p);

/* resolve.c: files and texts, nothing computed yet (NULL: no plan in them); then values, rules and
 * the plan (NULL: wrong since `before` errors, or open). */
struct checker *check_begin(const char *path, const char *const *set, int n_set);
struct plan *check_end(struct checker *c, int before);

/* check_training.c: names of optimizer and schedule, rates, steps, data. */
void check_training(struct checker *c);

/* A whole key's number. False when it has none; *state, when asked for, then is what a key that
 * follows from it becomes. */
bool whole_value(struct checker *c, enum key_id key, int64_t *out, enum state *state);
/* Where the plan gives a key; else where it speaks of its section; else the plan's head. */
struct span place_of(const struct checker *c, enum key_id key);
/* Where a key is given that has no effect in this plan, for the warning that says so. Points of a
 * space that differ only in such keys are one plan. */
struct span idle_place(struct slot *slot);

/* derive.c: the keys that follow from others; KNOWN, OPEN or FAILED. */
void derive_key(struct checker *c, enum key_id key, struct slot *slot);
void check_together(struct checker *c);

#endif
