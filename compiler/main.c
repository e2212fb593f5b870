/* The command line: one table of commands, one of options, and the words sorted by them, so that what exists is refused
 * or helped with in one voice. A command or option that does not exist yet is refused by name; nothing is ignored. */
#include "command.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CHECK = 1, BUILD = 2, RUN = 4, DUMP = 8, KEYS = 16, IMPORT = 32, ANY = 63 };

static const struct command {
    const char *name;
    int bit;                                    /* 0: planned */
    int (*run)(const struct arguments *);
    const char *usage, *help;
} commands[] = {
    {"check", CHECK, command_check, "check PLAN…", "validate plans and lay out their memory: does it fit, and what takes the room"},
    {"memory", 0, NULL, NULL, NULL},
    {"simulate", 0, NULL, NULL, NULL},
    {"tune", 0, NULL, NULL, NULL},
    {"build", BUILD, command_build, "build PLAN -o DIR [--device cpu|trace] [--fusion off]", "generate and compile the trainer: DIR/trainer and its sources"},
    {"run", RUN, command_run, "run PLAN [-n RANKS] [--fusion off] [-- trainer options]", "build (cached) and launch with mpirun"},
    {"dump", DUMP, command_dump, "dump PLAN --after PASS | --all DIR [--fusion off]", "the IR as text after a pass"},
    {"dump", DUMP, command_dump, "dump --from FILE.ir [--pass PASS]", "a dump read back, and a pass applied to it"},
    {"format", 0, NULL, NULL, NULL},
    {"keys", KEYS, command_keys, "keys [SECTION]", "every key: type, unit, default, help"},
    {"diff", 0, NULL, NULL, NULL},
    {"report", 0, NULL, NULL, NULL},
    {"import", IMPORT, command_import, "import DIR_OR_CONFIG -o FILE.plan", "a Hugging Face config.json to a plan"},
    {"export", 0, NULL, NULL, NULL},
    {"data", 0, NULL, NULL, NULL},
    {"calibrate", 0, NULL, NULL, NULL},
};

/* Where an option's word goes. */
enum option { SET, JSON, COLOR, OUTPUT, DEVICE, FUSION, RANKS, AFTER, ALL, FROM, PASS };
static const struct option_row { const char *name; enum option option; int commands; const char *value; } options[] = {
    {"--set", SET, ANY, "section.key=value"},
    {"--json", JSON, ANY, NULL},
    {"--color", COLOR, ANY, "auto, always or never"},
    {"-o", OUTPUT, BUILD | IMPORT, "a path"},
    {"--device", DEVICE, BUILD | RUN, "cpu or trace"},
    {"--fusion", FUSION, BUILD | RUN | DUMP, "on or off"},
    {"-n", RANKS, RUN, "a number of ranks"},
    {"--after", AFTER, DUMP, "a pass"},
    {"--all", ALL, DUMP, "a folder"},
    {"--from", FROM, DUMP, "a file"},
    {"--pass", PASS, DUMP, "a pass"},
};

int command_fail(int status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "planc: %s\n", text_vformat(format, args));
    va_end(args);
    return status;
}

static void usage(FILE *to)
{
    fprintf(to, "usage: planc COMMAND …\n");
    for (size_t i = 0; i < COUNT_OF(commands); i++)
        if (commands[i].bit) fprintf(to, "  %-58s %s\n", commands[i].usage, commands[i].help);
    fprintf(to, "common options: --set section.key=value (repeatable), --json, --color auto|always|never\n");
}

static int unknown_command(const char *word)
{
    if (word[0] == '-') return command_fail(EXIT_USAGE, "the command comes first: planc COMMAND … %s", word);
    const char *names[COUNT_OF(commands)];
    for (size_t i = 0; i < COUNT_OF(commands); i++) names[i] = commands[i].name;
    const char *near = nearest_name(word, names, (int)COUNT_OF(names));
    if (near) return command_fail(EXIT_USAGE, "there is no command '%s'; did you mean '%s'?", word, near);
    return command_fail(EXIT_USAGE, "there is no command '%s'; `planc help` lists them", word);
}

static const struct option_row *find_option(const char *word, size_t n)
{
    for (size_t i = 0; i < COUNT_OF(options); i++)
        if (strlen(options[i].name) == n && !strncmp(options[i].name, word, n)) return &options[i];
    return NULL;
}

/* One option with its value; false after saying why not. `colour`: auto, always or never. */
static bool take_option(struct arguments *a, const struct option_row *row, const char *value, const char **colour)
{
    const char **once = NULL;
    switch (row->option) {
    case SET: PUSH(&a->set, value); return true;
    case JSON: a->json = true; return true;
    case COLOR:
        *colour = value;
        if (!strcmp(value, "auto") || !strcmp(value, "always") || !strcmp(value, "never")) return true;
        command_fail(EXIT_USAGE, "--color is auto, always or never, not '%s'", value);
        return false;
    case FUSION:
        a->fusion = strcmp(value, "off") != 0;
        if (!a->fusion || !strcmp(value, "on")) return true;
        command_fail(EXIT_USAGE, "--fusion is on or off, not '%s'", value);
        return false;
    case OUTPUT: once = &a->output; break;
    case DEVICE: once = &a->device; break;
    case RANKS: once = &a->ranks; break;
    case AFTER: once = &a->after; break;
    case ALL: once = &a->all; break;
    case FROM: once = &a->from; break;
    case PASS: once = &a->pass; break;
    }
    if (*once) {
        command_fail(EXIT_USAGE, "%s is given twice", row->name);
        return false;
    }
    *once = value;
    return true;
}

/* Sorts the words behind the command. False after one line that says what is wrong. */
static bool sort_words(struct arguments *a, int bit, char **word, int n, const char **colour)
{
    for (int i = 0; i < n; i++) {
        const char *w = word[i];
        if (!strcmp(w, "--")) {
            if (bit != RUN) {
                command_fail(EXIT_USAGE, "only run hands on words behind --");
                return false;
            }
            while (++i < n) PUSH(&a->rest, word[i]);
            return true;
        }
        if (w[0] != '-' || !w[1]) {
            PUSH(&a->word, w);
            continue;
        }
        /* --name=value; -o and -n take the next word */
        const char *equals = w[1] == '-' ? strchr(w, '=') : NULL;
        const struct option_row *row = find_option(w, equals ? (size_t)(equals - w) : strlen(w));
        if (!row || !(row->commands & bit)) {
            command_fail(EXIT_USAGE, "%s has no option '%s'", a->command, w);
            return false;
        }
        const char *value = equals ? equals + 1 : NULL;
        if (row->value && !value && i + 1 < n) value = word[++i];
        if (row->value && !value) {
            command_fail(EXIT_USAGE, "%s wants %s", row->name, row->value);
            return false;
        }
        if (!row->value && value) {
            command_fail(EXIT_USAGE, "%s takes no value", row->name);
            return false;
        }
        if (!take_option(a, row, value, colour)) return false;
    }
    return true;
}

struct plan *command_plan(const struct arguments *a, const char *path, int *status)
{
    *status = EXIT_PLAN;
    size_t n;
    if (!file_read(path, &n)) {
        *status = command_fail(EXIT_ENVIRONMENT, "cannot read '%s': %s", path, strerror(errno));
        return NULL;
    }
    const char *const *open_keys = NULL;
    int n_open = 0;
    struct plan *plan = plan_load(path, a->set.item, a->set.n, &open_keys, &n_open);
    if (plan || error_count()) return plan;
    struct text keys = {0};
    for (int i = 0; i < n_open; i++) text_add(&keys, "%s%s", i ? ", " : "", open_keys[i]);
    struct diagnostic *d = complain((struct span){0, 0, 0}, "%s leaves %s open: %s works on one plan, not on a space of them", path,
                                    keys.length ? keys.bytes : "something", a->command);
    if (n_open) add_help(d, "--set %s=… decides", open_keys[0]);
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        usage(stderr);
        return EXIT_USAGE;
    }
    const char *word = argv[1];
    if (!strcmp(word, "help") || !strcmp(word, "--help") || !strcmp(word, "-h")) {
        usage(stdout);
        return EXIT_FINE;
    }
    const struct command *command = NULL;
    for (size_t i = 0; i < COUNT_OF(commands) && !command; i++)
        if (!strcmp(commands[i].name, word)) command = &commands[i];
    if (!command) return unknown_command(word);
    if (!command->bit) return command_fail(EXIT_USAGE, "'%s' is not available in this version", word);

    for (int i = 2; i < argc && strcmp(argv[i], "--"); i++)
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
            for (size_t k = 0; k < COUNT_OF(commands); k++)
                if (commands[k].bit == command->bit) printf("planc %s\n    %s\n", commands[k].usage, commands[k].help);
            return EXIT_FINE;
        }

    struct arguments a = {.command = word, .fusion = true};
    const char *colour = "auto";
    if (!sort_words(&a, command->bit, argv + 2, argc - 2, &colour)) return EXIT_USAGE;
    a.colour = !strcmp(colour, "always") || (!strcmp(colour, "auto") && isatty(STDERR_FILENO) && !getenv("NO_COLOR"));

    int status = command->run(&a);
    if (a.json && error_count()) diagnostics_print_json(stdout);
    else diagnostics_print(stderr, a.colour);
    if (error_count() && status == EXIT_FINE) status = EXIT_PLAN;
    if (fflush(stdout) || ferror(stdout)) return command_fail(EXIT_ENVIRONMENT, "cannot write the result: %s", strerror(errno));
    return status;
}
