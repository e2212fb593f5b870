/* Answers what lexing asks about the words of the language, from the tables of keys.def. */
#include "check/keys.h"

#include <string.h>

static bool is_section(const char *path) { return section_find(path) != SECTION_COUNT; }

static bool has_label(const char *section)
{
    enum section_id s = section_find(section);
    return s != SECTION_COUNT && section_rows[s].takes[0];
}

static bool is_label(const char *section, const char *name)
{
    enum section_id s = section_find(section);
    bool works;
    return s != SECTION_COUNT && words_find(section_rows[s].takes, name, &works);
}

static bool has_key(const char *section, const char *name)
{
    enum section_id s = section ? section_find(section) : SECTION_COUNT;
    for (int k = 0; k < KEY_COUNT; k++)
        if ((!section || key_rows[k].section == s) && !strcmp(key_rows[k].name, name)) return true;
    return false;
}

static bool wants_text(const char *name)
{
    for (int k = 0; k < KEY_COUNT; k++)
        if ((key_rows[k].type == KEY_STRING || key_rows[k].type == KEY_FILES) &&
            !strcmp(key_rows[k].name, name))
            return true;
    return false;
}

static const char *keys_of(const char *section) { return section_keys(section_find(section)); }

static const char *first_whole(const char *section)
{
    enum section_id s = section_find(section);
    for (int k = 0; k < KEY_COUNT; k++)
        if (key_rows[k].section == s && key_rows[k].type == KEY_WHOLE && !key_rows[k].missing[0])
            return key_rows[k].name;
    return NULL;
}

static const char *weighted_files(const char *name)
{
    for (int k = 0; k < KEY_COUNT; k++)
        if (key_rows[k].type == KEY_FILES && !strcmp(key_rows[k].name, name))
            return foreign_advice("mixture");
    return NULL;
}

static const char *guess(const char *name) { return key_guess("", name); }

const struct language plan_language = {
    .is_section = is_section,
    .has_label = has_label,
    .is_label = is_label,
    .has_key = has_key,
    .wants_text = wants_text,
    .keys = keys_of,
    .first_whole = first_whole,
    .weighted_files = weighted_files,
    .guess = guess,
};
