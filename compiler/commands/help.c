/* `planc help TOPIC`: one command with its options, the manual page, the completions of two shells.
 * All of it is written from the tables of commands, options, sections and keys, so it is always
 * complete. */
#include "commands/command.h"
#include "check/keys.h"

#include <string.h>

static bool is_first(int row)
{
    return command_rows[row].bit &&
           (row == 0 || command_rows[row - 1].bit != command_rows[row].bit);
}

static const char *option_text(const struct option_row *o)
{
    return o->value ? text_format("%s %s", o->name, o->value) : o->name;
}

static bool command_help(const char *name)
{
    int bit = 0;
    for (int i = 0; i < command_count; i++) {
        if (strcmp(command_rows[i].name, name) || !command_rows[i].bit) continue;
        bit = command_rows[i].bit;
        printf("planc %s\n    %s\n", command_rows[i].usage, command_rows[i].help);
    }
    for (int o = 0; bit && o < option_count; o++)
        if (option_rows[o].commands & bit)
            printf("  %-31s  %s\n", option_text(&option_rows[o]), option_rows[o].help);
    return bit != 0;
}

/* ── The manual ──────────────────────────────────────────────────────────────── */

/* Text of a page: '-' and '\' mean themselves, and no line begins with a request. */
static void roff(const char *text)
{
    if (*text == '.' || *text == '\'') fputs("\\&", stdout);
    for (; *text; text++)
        if (*text == '-')
            fputs("\\-", stdout);
        else if (*text == '\\')
            fputs("\\e", stdout);
        else if (!strncmp(text, "…", 3)) {
            fputs("...", stdout);
            text += 2;
        } else
            putchar(*text);
}

static void tagged(const char *tag, const char *text)
{
    printf(".TP\n.B ");
    roff(tag);
    putchar('\n');
    roff(text);
    putchar('\n');
}

static void manual_keys(void)
{
    for (int s = 0; s < SECTION_COUNT; s++) {
        const struct section_row *row = &section_rows[s];
        printf(".SS ");
        roff(row->takes[0] ? text_format("%s NAME", row->path) : row->path);
        putchar('\n');
        roff(row->help);
        putchar('\n');
        for (int k = 0; k < KEY_COUNT; k++) {
            const struct key_row *key = &key_rows[k];
            if ((int)key->section != s) continue;
            tagged(key->name,
                   text_format("%s%s%s%s%s: %s%s%s", key_type_text((enum key_id)k),
                               key->unit[0] ? ", " : "", key->unit,
                               key->fallback[0] ? "; default " : "", key->fallback, key->help,
                               key->missing[0] ? ". Refused: planc cannot yet " : "",
                               key->missing));
        }
    }
}

static void manual(void)
{
    printf(".TH PLANC 1\n.SH NAME\nplanc \\- compile a plan into a distributed trainer\n.SH "
           "SYNOPSIS\n");
    for (int i = 0; i < command_count; i++) {
        if (!command_rows[i].bit) continue;
        printf(".B planc\n");
        roff(command_rows[i].usage);
        printf("\n.br\n");
    }
    printf(".SH DESCRIPTION\n");
    roff("planc reads a declarative plan (model, mesh, activation checkpointing, batch, cluster), "
         "lays out every byte of every device, and generates a trainer "
         "that mpirun launches.");
    printf("\n.SH COMMANDS\n");
    for (int i = 0; i < command_count; i++)
        if (command_rows[i].bit) tagged(command_rows[i].usage, command_rows[i].help);
    printf(".SH OPTIONS\n");
    for (int o = 0; o < option_count; o++) {
        struct text of = {0};
        int takers = 0, all = 0;
        for (int i = 0; i < command_count; i++) {
            if (!is_first(i)) continue;
            all++;
            if (!(option_rows[o].commands & command_rows[i].bit)) continue;
            text_add(&of, "%s%s", takers++ ? ", " : " Of ", command_rows[i].name);
        }
        tagged(option_text(&option_rows[o]),
               text_format("%s.%s", option_rows[o].help,
                           takers == all || !takers ? "" : text_format("%s.", of.bytes)));
    }
    printf(".SH KEYS OF A PLAN\n");
    manual_keys();
    printf(".SH EXIT STATUS\n");
    tagged("0", "all is well");
    tagged("1", "the plan is wrong");
    tagged("2", "the plan is right, and does not fit");
    tagged("3", "the command line is wrong");
    tagged("4", "a file, a disk, a tool or a device failed");
}

/* ── Completion ──────────────────────────────────────────────────────────────── */

/* What may stand after --set, one per line. */
static void key_words(const char *separator)
{
    int n = 0;
    for (int k = 0; k < KEY_COUNT; k++)
        if (!key_rows[k].missing[0] && key_rows[k].section != S_weights &&
            !key_is_of_row((enum key_id)k))
            printf("%s%s=", n++ ? separator : "", key_path((enum key_id)k));
}

static void top_sections(void)
{
    for (int s = 0, n = 0; s < SECTION_COUNT; s++)
        if (!strchr(section_rows[s].path, '.'))
            printf("%s%s", n++ ? " " : "", section_rows[s].path);
}

static void command_words(void)
{
    for (int i = 0; i < command_count; i++)
        if (is_first(i)) printf("%s ", command_rows[i].name);
    printf("help");
}

static void options_by_command(void)
{
    for (int i = 0; i < command_count; i++) {
        if (!is_first(i)) continue;
        printf("        %s) options=\"--help", command_rows[i].name);
        for (int o = 0; o < option_count; o++)
            if (option_rows[o].commands & command_rows[i].bit) printf(" %s", option_rows[o].name);
        printf("\" ;;\n");
    }
}

/* bash splits words at '=': what follows "--set mesh.fsdp" is a word of its own, which is the
 * person's to write. */
static void bash_completion(void)
{
    printf("# Completion of planc for bash; written by `planc help bash`.\n_planc()\n{\n"
           "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} "
           "command=${COMP_WORDS[1]} options=\n    COMPREPLY=()\n"
           "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n        COMPREPLY=($(compgen -W \"");
    command_words();
    printf("\" -- \"$word\"))\n        return\n    fi\n    case $command in\n");
    options_by_command();
    printf("        help) COMPREPLY=($(compgen -W \"");
    command_words();
    printf(" man bash zsh\" -- \"$word\")); return ;;\n    esac\n    case $before in\n        "
           "--set)\n            COMPREPLY=($(compgen -W \"");
    key_words(" ");
    printf(
        "\" -- \"$word\"))\n            compopt -o nospace 2>/dev/null\n            return ;;\n"
        "        --color) COMPREPLY=($(compgen -W \"auto always never\" -- \"$word\")); return ;;\n"
        "        --device) COMPREPLY=($(compgen -W \"cpu cuda trace\" -- \"$word\")); return ;;\n"
        "        --arch) COMPREPLY=($(compgen -W \"sm_90a sm_100a\" -- \"$word\")); return ;;\n"
        "        --fusion) COMPREPLY=($(compgen -W \"on off\" -- \"$word\")); return ;;\n    esac\n"
        "    case $word in\n        -*) COMPREPLY=($(compgen -W \"$options\" -- \"$word\")); "
        "return ;;\n    esac\n"
        "    if [ \"$command\" = keys ]; then\n        COMPREPLY=($(compgen -W \"");
    top_sections();
    printf("\" -- \"$word\"))\n    else\n        compopt -o filenames 2>/dev/null\n"
           "        mapfile -t COMPREPLY < <(compgen -d -- \"$word\"; for end in plan ir json; do "
           "compgen -f -X \"!*.$end\" -- \"$word\"; done)\n"
           "    fi\n}\ncomplete -F _planc planc\n");
}

/* A word of zsh's _describe: "name:text", quoted. */
static void described(const char *name, const char *text)
{
    printf("        '%s:", name);
    for (; *text; text++)
        if (*text == '\'')
            fputs("'\\''", stdout);
        else
            putchar(*text);
    printf("'\n");
}

static void zsh_completion(void)
{
    printf("#compdef planc\n# Completion of planc for zsh; written by `planc help "
           "zsh`.\n_planc()\n{\n    local -a commands options keys\n    commands=(\n");
    for (int i = 0; i < command_count; i++)
        if (is_first(i)) described(command_rows[i].name, command_rows[i].help);
    described("help", "a command and its options");
    printf("    )\n    if (( CURRENT == 2 )); then\n        _describe command commands\n        "
           "return\n    fi\n    case $words[2] in\n");
    for (int i = 0; i < command_count; i++) {
        if (!is_first(i)) continue;
        printf("    %s) options=(\n", command_rows[i].name);
        for (int o = 0; o < option_count; o++)
            if (option_rows[o].commands & command_rows[i].bit)
                described(option_rows[o].name, option_rows[o].help);
        printf("    ) ;;\n");
    }
    printf("    esac\n    keys=(");
    key_words(" ");
    printf(")\n    case $words[CURRENT-1] in\n    --set) compadd -S '' -- $keys; return ;;\n    "
           "--color) compadd auto always never; return ;;\n"
           "    --device) compadd cpu cuda trace; return ;;\n    --arch) compadd sm_90a sm_100a; "
           "return ;;\n    --fusion) compadd on off; return ;;\n    esac\n"
           "    if [[ $words[CURRENT] == -* ]]; then\n        _describe option options\n    elif "
           "[[ $words[2] == keys ]]; then\n        compadd ");
    top_sections();
    printf("\n    elif [[ $words[2] == help ]]; then\n        compadd ");
    command_words();
    printf(" man bash zsh\n    else\n        _files -g '*.(plan|ir|json)(-.)'\n    fi\n}\n_planc "
           "\"$@\"\n");
}

bool help_print(const char *topic)
{
    if (!strcmp(topic, "man"))
        manual();
    else if (!strcmp(topic, "bash"))
        bash_completion();
    else if (!strcmp(topic, "zsh"))
        zsh_completion();
    else
        return command_help(topic) || keys_print(topic);
    return true;
}
