/* Look-ups in the rows of keys.def: sections, keys, words, defaults, and how a message names what a
 * key takes. keys_foreign.c guesses what an unknown name means. */
#include "check/keys.h"

#include <stdlib.h>
#include <string.h>

const struct section_row section_rows[SECTION_COUNT] = {
#define SECTION(id, path, takes, help) [S_##id] = {path, takes, help},
#define KEY(section, name, type, limit, unit, words, fallback, missing, help)
#include "check/keys.def"
#undef SECTION
#undef KEY
};

const struct key_row key_rows[KEY_COUNT] = {
#define SECTION(id, path, takes, help)
#define KEY(section, name, type, limit, unit, words, fallback, missing, help)         \
    [K_##section##_##name] = {S_##section, #name,    KEY_##type, LIMIT_##limit, unit, \
                              words,       fallback, missing,    help},
#include "check/keys.def"
#undef SECTION
#undef KEY
};

enum section_id section_find(const char *path)
{
    int s = 0;
    while (s < SECTION_COUNT && strcmp(section_rows[s].path, path)) s++;
    return (enum section_id)s;
}

enum key_id key_find(enum section_id section, const char *name)
{
    int k = 0;
    while (k < KEY_COUNT && (key_rows[k].section != section || strcmp(key_rows[k].name, name))) k++;
    return (enum key_id)k;
}

enum key_id key_find_path(const char *path)
{
    const char *dot = strrchr(path, '.');
    if (!dot) return KEY_COUNT;
    size_t n = (size_t)(dot - path);
    for (int s = 0; s < SECTION_COUNT; s++)
        if (strlen(section_rows[s].path) == n && !memcmp(section_rows[s].path, path, n))
            return key_find((enum section_id)s, dot + 1);
    return KEY_COUNT;
}

const char *key_path(enum key_id key)
{
    static const char *paths[KEY_COUNT];
    if (!paths[key])
        paths[key] =
            intern_format("%s.%s", section_rows[key_rows[key].section].path, key_rows[key].name);
    return paths[key];
}

bool key_is_derived(enum key_id key) { return key_rows[key].fallback[0] == '('; }

bool key_is_of_row(enum key_id key)
{
    return key_rows[key].section == S_efficiency || key_rows[key].section == S_grid ||
           key_rows[key].section == S_source;
}

/* Defaults are plan text. They are evaluated once per process and kept outside the arena, because
 * they outlive its marks. */
bool key_default(enum key_id key, struct constant *out)
{
    static struct constant known[KEY_COUNT];
    static bool ready[KEY_COUNT];
    const struct key_row *row = &key_rows[key];
    if (!row->fallback[0] || key_is_derived(key)) return false;
    if (!ready[key]) {
        bool works;
        struct constant c;
        if (words_find(row->words, row->fallback, &works)) {
            c = (struct constant){.kind = CONST_WORD, .text = intern(row->fallback)};
        } else {
            const char *text = text_format("%s = %s", row->name, row->fallback);
            struct ast *items = parse_source(source_add("the key tables", text, strlen(text)));
            if (items->n != 1 || !evaluate(items->kid[0]->kid[1], NULL, &c))
                bug("the default of %s is no value", key_path(key));
        }
        if (c.n) {
            struct constant *item = malloc(sizeof *item * (size_t)c.n);
            if (!item) bug("out of memory for the default of %s", key_path(key));
            memcpy(item, c.item, sizeof *item * (size_t)c.n);
            for (int i = 0; i < c.n; i++) item[i].at = (struct span){0};
            c.item = item;
        }
        c.at = (struct span){0};
        known[key] = c;
        ready[key] = true;
    }
    *out = known[key];
    return true;
}

/* ── Words ───────────────────────────────────────────────────────────────────── */

/* The next word of a list; false at its end. */
static bool next_word(const char **at, const char **word, size_t *n, bool *works)
{
    *at += strspn(*at, " ");
    if (!**at) return false;
    *works = **at != '-';
    *at += !*works;
    *word = *at;
    *n = strcspn(*at, " ");
    *at += *n;
    return true;
}

bool words_find(const char *words, const char *word, bool *works)
{
    const char *at = words, *one;
    size_t n;
    while (next_word(&at, &one, &n, works))
        if (strlen(word) == n && !memcmp(word, one, n)) return true;
    return false;
}

int words_index(const char *words, const char *word)
{
    const char *list[16];
    int n = words_list(words, false, list, (int)COUNT_OF(list));
    for (int i = 0; i < n; i++)
        if (!strcmp(list[i], word)) return i;
    return -1;
}

int words_list(const char *words, bool works_only, const char *out[], int most)
{
    const char *at = words, *one;
    size_t n;
    bool works;
    int count = 0;
    while (next_word(&at, &one, &n, &works))
        if (count < most && (works || !works_only)) out[count++] = intern_bytes(one, n);
    return count;
}

const char *words_text(const char *words, bool works_only)
{
    const char *list[16];
    int n = words_list(words, works_only, list, (int)COUNT_OF(list));
    struct text t = {0};
    for (int i = 0; i < n; i++) text_add(&t, "%s%s", i ? ", " : "", list[i]);
    return t.bytes ? t.bytes : "";
}

const char *section_keys(enum section_id section)
{
    struct text t = {0};
    for (int k = 0; k < KEY_COUNT; k++)
        if (key_rows[k].section == section && !key_rows[k].missing[0])
            text_add(&t, "%s%s", t.length ? ", " : "", key_rows[k].name);
    return t.bytes ? t.bytes : "no keys that work yet";
}

const char *section_names(void)
{
    struct text t = {0};
    for (int s = 0; s < SECTION_COUNT; s++)
        if (!strchr(section_rows[s].path, '.'))
            text_add(&t, "%s%s", t.length ? ", " : "", section_rows[s].path);
    return t.bytes;
}

const char *key_type_text(enum key_id key)
{
    const struct key_row *row = &key_rows[key];
    const char * or = row->words[0] ? text_format(" or %s", words_text(row->words, false)) : "";
    switch (row->type) {
    case KEY_WHOLE: return text_format("a whole number%s", or);
    case KEY_NUMBER: return text_format("a number%s", or);
    case KEY_BYTES: return "bytes (180GiB)";
    case KEY_RATE: return "bytes per second (48GB/s)";
    case KEY_FLOPS: return "operations per second (2.25PFLOP/s)";
    case KEY_TIME: return "a time (10min)";
    case KEY_INTERVAL: return "a whole number of steps or a time (30min)";
    case KEY_SWITCH: return "on or off";
    case KEY_WORD: return text_format("one of %s", words_text(row->words, false));
    case KEY_STRING: return "a string in double quotes";
    case KEY_FILES: return "a string in double quotes, or a list of them";
    case KEY_LIST: return "a list in [ ]";
    }
    return "";
}
