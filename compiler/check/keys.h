/* The tables of keys.def as C sees them: numbers for sections and keys, rows, and look-ups by
 * path. */
#ifndef PLANC_KEYS_H
#define PLANC_KEYS_H

#include "text/constant.h"
#include "text/language.h"

enum section_id {
#define SECTION(id, path, takes, help) S_##id,
#define KEY(section, name, type, limit, unit, words, fallback, missing, help)
#include "check/keys.def"
#undef SECTION
#undef KEY
    SECTION_COUNT
};

enum key_id {
#define SECTION(id, path, takes, help)
#define KEY(section, name, type, limit, unit, words, fallback, missing, help) K_##section##_##name,
#include "check/keys.def"
#undef SECTION
#undef KEY
    KEY_COUNT
};

enum key_type {
    KEY_WHOLE,
    KEY_NUMBER,
    KEY_BYTES,
    KEY_RATE,
    KEY_FLOPS,
    KEY_TIME,
    KEY_INTERVAL, /* whole steps, or a time */
    KEY_SWITCH,
    KEY_WORD,
    KEY_STRING,
    KEY_FILES,
    KEY_LIST
};
enum key_limit { LIMIT_ANY, LIMIT_POSITIVE, LIMIT_NOT_NEGATIVE, LIMIT_FRACTION, LIMIT_BELOW_ONE };

struct section_row {
    const char *path, *takes, *help;
};
struct key_row {
    enum section_id section;
    const char *name;
    enum key_type type;
    enum key_limit limit;
    const char *unit, *words, *fallback, *missing, *help;
};

extern const struct section_row section_rows[SECTION_COUNT];
extern const struct key_row key_rows[KEY_COUNT];

/* By path; SECTION_COUNT, KEY_COUNT when there is none. */
enum section_id section_find(const char *path);
enum key_id key_find(enum section_id section, const char *name);
enum key_id key_find_path(const char *path); /* "mesh.fsdp", "cluster.device.memory" */
const char *key_path(enum key_id key);
/* The default of a key as a value; false when there is none or it follows from other keys. */
bool key_default(enum key_id key, struct constant *out);
/* its default follows from others: `auto` is a value */
bool key_is_derived(enum key_id key);

/* Whether a key is one of the rows that a cluster has many of: no path names it. */
bool key_is_of_row(enum key_id key);

/* The place of a word among a row's, or -1: an enumerator of plan.h. */
int words_index(const char *words, const char *word);
/* Whether `word` is in a row's words; *works false when it is one of those that do not work yet. */
bool words_find(const char *words, const char *word, bool *works);
/* The words one by one, '-' off; how many. works_only: without those that do not work yet. */
int words_list(const char *words, bool works_only, const char *out[], int most);
/* "bf16, fp32" */
const char *words_text(const char *words, bool works_only);

/* What the value of a key is, as `planc keys` and messages say it: "a whole number", "bytes", "one
 * of bf16, fp32". */
const char *key_type_text(enum key_id key);
/* The names of a section's keys that work, and of the sections: "fsdp, dp, reshard". */
const char *section_keys(enum section_id section);
const char *section_names(void);
/* A key known by another name elsewhere ("learning_rate"), or misspelt, or in another section: its
 * path, or NULL. */
const char *key_guess(const char *section, const char *name);

/* keys_language.c: the answers to what lexing asks (language_use). */
extern const struct language plan_language;

/* keys_foreign.c: the words of other tools. What there is instead of something that planc has not
 * ("tp"); the declared hyper-parameter that a name means ("n_layer"); the word of a key that a
 * value means ("bfloat16"). NULL: not known. */
/* The path of the key that a name of another tool means, and nothing else: no guess. */
const char *foreign_key(const char *name);
const char *foreign_advice(const char *name);
const char *foreign_advice_in(const char *section, const char *name);
/* what to write instead of a value that planc has nothing for ("fp8") */
const char *foreign_word(enum key_id key, const char *word);
const char *foreign_hyper(const char *name, const char *const *declared, int n);
const char *foreign_value(enum key_id key, const char *word);
/* what to write instead of a section of other tools */
const char *foreign_section(const char *name);
/* what works in place of a key that does not work yet */
const char *key_instead(enum key_id key);
const char *foreign_number(const char *word); /* "2" for "two" */
const char *foreign_switch(const char *word); /* "on" or "off" for "true", "no" … */

#endif
