/* `planc keys [SECTION]`: the tables of keys.def, to be read. Nothing is written here that is not in a row, so the
 * command cannot fall behind the checker. A key that does not work yet says so, as the checker would. */
#include "command.h"
#include "keys.h"

#include <jansson.h>
#include <string.h>

static void print_key(enum key_id key)
{
    const struct key_row *row = &key_rows[key];
    const char *type = key_type_text(key);
    const char *list[16];
    int refused = words_list(row->words, false, list, 16) - words_list(row->words, true, list, 16);
    const char *unit = row->unit[0] ? text_format(", %s", row->unit) : "";
    const char *fallback = row->fallback[0] ? text_format("; default %s", row->fallback) : "";
    printf("  %-17s %s%s%s\n  %-17s   %s\n", row->name, type, unit, fallback, "", row->help);
    if (row->missing[0])
        printf("  %-17s   refused: planc cannot %s yet\n", "", row->missing);
    else if (refused)
        printf("  %-17s   of these work: %s\n", "", words_text(row->words, true));
}

static void print_section(enum section_id section)
{
    const struct section_row *row = &section_rows[section];
    printf("%s%s\n  %s\n", row->path, row->takes[0] ? " NAME" : "", row->help);
    if (row->takes[0] && row->takes[0] != '*')
        printf("  NAME: %s\n", words_text(row->takes, true));
    for (int k = 0; k < KEY_COUNT; k++)
        if (key_rows[k].section == section)
            print_key((enum key_id)k);
}

static json_t *section_as_json(enum section_id section)
{
    json_t *keys = json_array();
    for (int k = 0; k < KEY_COUNT; k++) {
        const struct key_row *row = &key_rows[k];
        if (row->section == section)
            json_array_append_new(keys, json_pack("{s:s, s:s, s:s, s:s, s:b, s:s}", "name", row->name, "type", key_type_text((enum key_id)k), "unit",
                                                  row->unit, "default", row->fallback, "works", !row->missing[0], "help", row->help));
    }
    const struct section_row *row = &section_rows[section];
    return json_pack("{s:s, s:s, s:o}", "section", row->path, "help", row->help, "keys", keys);
}

/* Whether a section is the one asked for, or lies in it (cluster.device in cluster). */
static bool is_within(const char *path, const char *wanted)
{
    size_t n = strlen(wanted);
    return strncmp(path, wanted, n) == 0 && (path[n] == 0 || path[n] == '.');
}

int command_keys(const struct arguments *a)
{
    const char *wanted = a->word.n ? a->word.item[0] : "", *names[SECTION_COUNT];
    if (a->word.n > 1)
        return command_fail(EXIT_USAGE, "keys takes one section, not %d", a->word.n);
    json_in_arena();
    json_t *all = a->json ? json_array() : NULL;
    int printed = 0;
    for (int s = 0; s < SECTION_COUNT; s++) {
        names[s] = section_rows[s].path;
        if (wanted[0] && !is_within(names[s], wanted))
            continue;
        if (all)
            json_array_append_new(all, section_as_json((enum section_id)s));
        else if (printed)
            printf("\n");
        if (!all)
            print_section((enum section_id)s);
        printed++;
    }
    if (printed && all)
        printf("%s\n", json_dumps(all, JSON_INDENT(2)));
    if (printed)
        return EXIT_FINE;
    const char *near = nearest_name(wanted, names, SECTION_COUNT);
    return command_fail(EXIT_USAGE, "there is no section '%s'%s", wanted,
                        near ? text_format("; did you mean '%s'?", near) : "; `planc keys` prints all");
}
