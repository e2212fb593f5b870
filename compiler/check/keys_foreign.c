/* Finds what an unknown name means. People bring the names of the tools they know; keys_foreign.def
 * lists them, so that micro_batch_size finds batch.local and not the nearest spelling, and tp,
 * which has no counterpart, is not taken for a misspelt dp. */
#include "check/keys.h"

#include <string.h>

enum text_id {
#define TEXT(id, text) TEXT_##id,
#include "check/keys_foreign.def"
};
static const char *const texts[] = {
#define TEXT(id, text) [TEXT_##id] = text,
#include "check/keys_foreign.def"
};

static const struct {
    const char *word, *path;
} synonyms[] = {
#define FOREIGN_KEY(name, key) {name, key},
#include "check/keys_foreign.def"
};

/* Names that mean a key in one section only. */
static const struct {
    const char *section, *word, *path;
} in_place[] = {
#define FOREIGN_KEY_OF(section, name, key) {section, name, key},
#include "check/keys_foreign.def"
};

static const struct {
    const char *word, *name;
} hypers[] = {
#define FOREIGN_HYPER(name, hyper) {name, hyper},
#include "check/keys_foreign.def"
};

static const struct {
    const char *word, *value;
} values[] = {
#define FOREIGN_VALUE(word, value) {word, value},
#include "check/keys_foreign.def"
};

static const struct {
    const char *word;
    enum text_id text;
} absent[] = {
#define FOREIGN_ABSENT(name, text) {name, TEXT_##text},
#include "check/keys_foreign.def"
};

/* Names without counterpart in one section, which mean something else in others. */
static const struct {
    const char *section, *word;
    enum text_id text;
} absent_in_place[] = {
#define FOREIGN_ABSENT_OF(section, name, text) {section, name, TEXT_##text},
#include "check/keys_foreign.def"
};

/* Values of a key that planc has nothing for. */
static const struct {
    const char *key, *word;
    enum text_id text;
} words[] = {
#define FOREIGN_WORD(key, word, text) {key, word, TEXT_##text},
#include "check/keys_foreign.def"
};

static const struct {
    const char *word;
    enum text_id text;
} sections[] = {
#define FOREIGN_SECTION(name, text) {name, TEXT_##text},
#include "check/keys_foreign.def"
};

/* What works instead of a key that keys.def calls missing. */
static const struct {
    const char *missing;
    enum text_id text;
} instead[] = {
#define MISSING_KEY(missing, text) {missing, TEXT_##text},
#include "check/keys_foreign.def"
};

/* A name as the rows spell it: in lower case, with '_' for '-'. */
static const char *spelled(const char *name)
{
    char *plain = take(strlen(name) + 1);
    for (size_t i = 0; name[i]; i++)
        plain[i] = name[i] == '-'                     ? '_'
                   : name[i] >= 'A' && name[i] <= 'Z' ? name[i] | 0x20
                                                      : name[i];
    return plain;
}

const char *foreign_section(const char *name)
{
    name = spelled(name);
    for (size_t i = 0; i < COUNT_OF(sections); i++)
        if (!strcmp(sections[i].word, name)) return texts[sections[i].text];
    return NULL;
}

const char *key_instead(enum key_id key)
{
    for (size_t i = 0; i < COUNT_OF(instead); i++)
        if (!strcmp(instead[i].missing, key_rows[key].missing)) return texts[instead[i].text];
    return NULL;
}

const char *foreign_number(const char *word)
{
    static const char *const numbers[] = {"zero", "one",   "two",   "three", "four", "five",
                                          "six",  "seven", "eight", "nine",  "ten"};
    for (size_t i = 0; i < COUNT_OF(numbers); i++)
        if (!strcmp(numbers[i], word)) return text_format("%zu", i);
    return NULL;
}

const char *foreign_advice(const char *name)
{
    name = spelled(name);
    for (size_t i = 0; i < COUNT_OF(absent); i++)
        if (!strcmp(absent[i].word, name)) return texts[absent[i].text];
    return NULL;
}

const char *foreign_advice_in(const char *section, const char *name)
{
    for (size_t i = 0; i < COUNT_OF(absent_in_place); i++)
        if (!strcmp(absent_in_place[i].section, section) && !strcmp(absent_in_place[i].word, name))
            return texts[absent_in_place[i].text];
    return foreign_advice(name);
}

const char *foreign_word(enum key_id key, const char *word)
{
    for (size_t i = 0; i < COUNT_OF(words); i++)
        if (!strcmp(words[i].word, word) && !strcmp(words[i].key, key_path(key)))
            return texts[words[i].text];
    return NULL;
}

const char *foreign_key(const char *name)
{
    name = spelled(name);
    for (size_t i = 0; i < COUNT_OF(synonyms); i++)
        if (!strcmp(synonyms[i].word, name)) return synonyms[i].path;
    return NULL;
}

const char *foreign_hyper(const char *name, const char *const *declared, int n)
{
    name = spelled(name);
    for (size_t i = 0; i < COUNT_OF(hypers); i++)
        for (int k = 0; k < n && !strcmp(hypers[i].word, name); k++)
            if (!strcmp(hypers[i].name, declared[k])) return declared[k];
    return NULL;
}

const char *foreign_switch(const char *word)
{
    for (size_t i = 0; i < COUNT_OF(values); i++)
        if (!strcmp(values[i].word, word) &&
            (!strcmp(values[i].value, "on") || !strcmp(values[i].value, "off")))
            return values[i].value;
    return NULL;
}

const char *foreign_value(enum key_id key, const char *word)
{
    bool works;
    for (size_t i = 0; i < COUNT_OF(values); i++) {
        const char *ours = values[i].value;
        bool is_switch = key_rows[key].type == KEY_SWITCH && foreign_switch(word) == ours;
        if (!strcmp(values[i].word, word) &&
            (is_switch || words_find(key_rows[key].words, ours, &works)))
            return ours;
    }
    return NULL;
}

/* ── Guessing ────────────────────────────────────────────────────────────────── */

static const char *guess_in_section(const char *section, const char *name)
{
    const char *names[KEY_COUNT];
    int n = 0;
    enum section_id s = section_find(section);
    for (int k = 0; k < KEY_COUNT; k++)
        if (key_rows[k].section == s) names[n++] = key_rows[k].name;
    const char *near = nearest_name(name, names, n);
    return near ? intern_format("%s.%s", section, near) : NULL;
}

/* The same name in another section, one that works before one that does not; or the nearest name
 * anywhere. */
static const char *guess_anywhere(const char *name)
{
    const char *found = NULL, *names[KEY_COUNT];
    bool works = false;
    int n = 0;
    for (int k = 0; k < KEY_COUNT; k++) {
        if (key_is_of_row((enum key_id)k)) continue;
        names[n++] = key_rows[k].name;
        if (!strcmp(key_rows[k].name, name) && (!found || (!works && !key_rows[k].missing[0]))) {
            found = key_path((enum key_id)k);
            works = !key_rows[k].missing[0];
        }
    }
    const char *near = found ? NULL : nearest_name(name, names, n);
    return near ? guess_anywhere(near) : found;
}

const char *key_guess(const char *section, const char *name)
{
    for (size_t i = 0; i < COUNT_OF(in_place); i++)
        if (!strcmp(in_place[i].section, section) && !strcmp(in_place[i].word, name))
            return in_place[i].path;
    const char *plain = spelled(name), *names[COUNT_OF(synonyms)];
    if (strchr(name, '-')) name = intern(plain);
    for (size_t i = 0; i < COUNT_OF(synonyms); i++) {
        names[i] = synonyms[i].word;
        if (!strcmp(plain, names[i])) return synonyms[i].path;
    }
    if (foreign_advice_in(section, name)) return NULL;
    const char *near = guess_in_section(section, name);
    if (near) return near;
    for (int k = 0; k < KEY_COUNT; k++) /* an exact name elsewhere is no slip of the pen */
        if (!key_is_of_row((enum key_id)k) && !strcmp(key_rows[k].name, name))
            return guess_anywhere(name);
    const char *word = nearest_name(name, names, (int)COUNT_OF(names));
    for (size_t i = 0; word && i < COUNT_OF(synonyms); i++)
        if (synonyms[i].word == word) return synonyms[i].path;
    return strlen(name) >= 4 ? guess_anywhere(name) : NULL;
}
