/* The command line: one table of commands, one of options, and the words sorted by them. A command
 * or option that does not exist yet is refused by name; nothing is ignored. */
#include "commands/command.h"
#include "check/keys.h"
#include "ir/ir.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    CHECK = 1,
    BUILD = 2,
    RUN = 4,
    DUMP = 8,
    KEYS = 16,
    IMPORT = 32,
    FORMAT = 64,
    MEMORY = 128,
    DIFF = 256,
    SIMULATE = 512,
    CALIBRATE = 1024,
    EXPORT = 2048,
    CHECKPOINT = 4096,
    TUNE = 8192,
    REPORT = 16384,
    DATA = 32768,
    PLOT = 65536,
    PREFLIGHT = 131072,
    ANY = 262143
};

const struct command_row command_rows[] = {
    {"check", CHECK, command_check, "check PLAN…",
     "check plans and lay out their memory: do they fit, what takes the memory"},
    {"memory", MEMORY, command_memory, "memory PLAN [--at 120GiB]",
     "every byte of a device at the peak, by kind and by line of the plan"},
    {"simulate", SIMULATE, command_simulate, "simulate PLAN [--devices 16,64,512] [--trace FILE]",
     "predicted step time, tokens/s, MFU, exposed communication, scaling curve"},
    {"tune", TUNE, command_tune, "tune PLAN [--ladder 16,64,512] [-o BEST.plan]",
     "the fastest of all open choices, by prediction, and why the others are not"},
    {"build", BUILD, command_build, "build PLAN -o DIR [--device DEVICE] [--arch LIST]",
     "generate and compile the trainer: DIR/trainer and its sources"},
    {"run", RUN, command_run, "run PLAN [-n RANKS] [--fusion off] [-- trainer options]",
     "build (cached) and launch with mpirun"},
    {"dump", DUMP, command_dump, "dump PLAN --after PASS | --all DIR [--fusion off]",
     "the IR as text after a pass"},
    {"dump", DUMP, command_dump, "dump --from FILE.ir [--pass PASS]",
     "read a dump, and apply a pass to it"},
    {"format", FORMAT, command_format, "format FILE… [--write | --check]",
     "the canonical layout of a plan; comments are kept"},
    {"keys", KEYS, command_keys, "keys [SECTION]", "every key: type, unit, default, help"},
    {"diff", DIFF, command_diff, "diff A B",
     "what changes between two plans: parameters, memory, whether checkpoints resume"},
    {"report", REPORT, command_report, "report PLAN -o FILE.html [--metrics FILE] [--trace FILE]",
     "one page to look at: memory, lanes, time, scaling, a space, a run"},
    {"import", IMPORT, command_import, "import DIR_OR_CONFIG -o FILE.plan",
     "a Hugging Face config.json to a plan"},
    {"export", EXPORT, command_export, "export CHECKPOINT -o DIR [--dtype fp32]",
     "a checkpoint to a folder that Hugging Face transformers loads"},
    {"export", EXPORT, command_export, "export FILE.safetensors PLAN -o DIR",
     "the same of a trainer's --final"},
    {"checkpoint", CHECKPOINT, command_checkpoint, "checkpoint DIR",
     "the checkpoints of a folder: step, date, size, mesh, plan"},
    {"data", DATA, command_data, "data FILE… [--format NAME] [--field NAME]",
     "what files of tokens are: format, tokens, documents, largest id, first tokens"},
    {"data", DATA, command_data, "data pack FILE… -o FILE [--as FORMAT] [--end-token ID]",
     "join files of tokens, and write them in another format"},
    {"data", DATA, command_data, "data tokenize FILE… --model FILE -o FILE [--as FORMAT]",
     "text to tokens, by a model of sentencepiece"},
    {"preflight", PREFLIGHT, command_preflight, "preflight PLAN [--from FILE] [-o FILE.plan]",
     "before a job: what every rank runs on, links as measured, the step with them"},
    {"plot", PLOT, command_plot, "plot METRICS… [--key loss,grad_norm] [-o FILE.svg]",
     "curves of runs over each other, on the terminal or as a picture"},
    {"calibrate", CALIBRATE, command_calibrate, "calibrate [BASE.plan] [--from FILE…] -o FILE.plan",
     "measure this machine, or refit rates from runs: a file for --cluster"},
};
const int command_count = COUNT_OF(command_rows);

/* Where an option's word goes. */
enum option {
    SET,
    JSON,
    COLOR,
    OUTPUT,
    DEVICE,
    ARCH,
    FUSION,
    REFERENCE,
    RANKS,
    AFTER,
    ALL,
    FROM,
    PASS,
    WRITE,
    ONLY_CHECK,
    AT,
    CLUSTER,
    DEVICES,
    SCALING,
    TRACE,
    FAILURES,
    STALL,
    DTYPE,
    SHARD,
    TOKENIZER,
    FORMAT_NAME,
    FIELD,
    AS,
    END_TOKEN,
    MODEL,
    LADDER,
    TOP,
    MEASURE,
    METRICS,
    DURATIONS,
    KEY,
    OPTIONS
};
const struct option_row option_rows[] = {
    {"--set", SET,
     CHECK | MEMORY | SIMULATE | TUNE | BUILD | RUN | DUMP | DIFF | IMPORT | CALIBRATE | EXPORT |
         REPORT | PREFLIGHT,
     "section.key=value", "one more entry of the plan; may be given several times"},
    {"--cluster", CLUSTER,
     CHECK | MEMORY | SIMULATE | TUNE | BUILD | RUN | DUMP | DIFF | REPORT | PREFLIGHT,
     "a file or a name",
     "use this cluster, of a file or of the library; of the plan's cluster only nodes counts"},
    {"--devices", DEVICES, SIMULATE | REPORT, "numbers of devices",
     "a curve over these numbers of devices: 16,64,512; the mesh stays, dp follows where the plan "
     "leaves it to"},
    {"--devices", DEVICES, TUNE, "a number of devices", "search at this one, not the plan's own"},
    {"--ladder", LADDER, TUNE, "numbers of devices",
     "search at each of these numbers of devices; the last one decides: 16,64,512"},
    {"--top", TOP, TUNE, "a number", "so many of the best are shown (default 5)"},
    {"--measure", MEASURE, TUNE, NULL,
     "build and run the best of the smallest number of devices here, and rank again by what they "
     "took"},
    {"--scaling", SCALING, SIMULATE | REPORT, "strong or weak",
     "strong: the global batch stays (the default); weak: that of a device"},
    {"--trace", TRACE, SIMULATE, "a file",
     "write the simulated step as a trainer's --trace writes a run, for Perfetto"},
    {"--trace", TRACE, REPORT, "a file",
     "what a trainer's --trace wrote, drawn beside the prediction"},
    {"--json", JSON, ANY & ~(RUN | DUMP | FORMAT), NULL, "the result as JSON, errors too"},
    {"--json", JSON, RUN | DUMP | FORMAT, NULL, "errors as JSON"},
    {"--color", COLOR, ANY, "auto, always or never", "colour in messages; auto: on a terminal"},
    {"--metrics", METRICS, REPORT, "a file",
     "what a trainer's --metrics wrote: its curves, measured beside predicted"},
    {"--key", KEY, PLOT, "names",
     "what is drawn, a chart each: loss,grad_norm; of a list load[0]; default: loss"},
    {"-o", OUTPUT, BUILD | IMPORT | CALIBRATE | EXPORT | TUNE | REPORT | DATA | PLOT | PREFLIGHT,
     "a path", "where the result goes"},
    {"--device", DEVICE, CHECK | MEMORY | SIMULATE | TUNE | DUMP | REPORT | PREFLIGHT,
     "cpu or cuda", "device of the trainer, if not the one of the cluster"},
    {"--device", DEVICE, BUILD | RUN, "cpu, cuda or trace",
     "device of the trainer, if not the one of the cluster; trace prints every step and runs none"},
    {"--arch", ARCH, BUILD | RUN | PREFLIGHT, "sm_90a,sm_100a",
     "architectures to compile cuda kernels for; default: the cluster's"},
    {"--reference", REFERENCE, BUILD, NULL,
     "cuda: also make DIR/reference.so, the same kernels for this machine, for the trainer's "
     "--compare"},
    {"--fusion", FUSION, BUILD | RUN | DUMP, "on or off", "off: one kernel for every op"},
    {"-n", RANKS, RUN, "a number of ranks", "processes to start; the mesh says how many"},
    {"--after", AFTER, DUMP, "a pass", "the pass after which the text is printed"},
    {"--all", ALL, DUMP, "a folder", "a text after every pass, in this folder"},
    {"--from", FROM, DUMP, "a file", "a text that was dumped, in the place of a plan"},
    {"--from", FROM, CALIBRATE, "a file",
     "what a trainer's --profile-out or --metrics wrote; may be given several times"},
    {"--from", FROM, PREFLIGHT, "a file", "what a trainer's --preflight wrote"},
    {"--pass", PASS, DUMP, "a pass", "the pass that is applied to that text"},
    {"--at", AT, MEMORY, "a number of bytes",
     "also show the first step with more than this: 120GiB (GiB is 2^30 bytes, GB 10^9)"},
    {"--durations", DURATIONS, SIMULATE, "a file",
     "take the time of every kernel and collective from this file of a trainer's --profile-out, "
     "and compare the step with that run's"},
    {"--failures", FAILURES, SIMULATE, "a time",
     "mean time between two failures of the run: also show how often to save it; with --stall"},
    {"--stall", STALL, SIMULATE, "a time",
     "how long a save holds the run up: a trainer's log and metrics say it"},
    {"--dtype", DTYPE, EXPORT, "bf16 or fp32", "type of the exported weights; bf16 if not given"},
    {"--shard", SHARD, EXPORT, "a number of bytes", "the most in one file of weights; 5GB"},
    {"--tokenizer", TOKENIZER, EXPORT, "a folder",
     "copy the tokenizer from here; if not given, from init.from"},
    {"--format", FORMAT_NAME, DATA, "a name",
     "what the files are, a word of data.format; if not given, their content decides"},
    {"--field", FIELD, DATA, "a name", "of JSON lines, the string whose bytes are read; text"},
    {"--as", AS, DATA, "a format",
     "what pack writes: raw, bytes, uint16, uint32, npy, llmc or megatron; if not given, raw, or "
     "npy for FILE.npy"},
    {"--end-token", END_TOKEN, DATA, "a token id",
     "the id that ends a document; pack writes it where a document does not end in it"},
    {"--model", MODEL, DATA, "a file", "of tokenize: a model of sentencepiece"},
    {"--write", WRITE, FORMAT, NULL, "change the files"},
    {"--check", ONLY_CHECK, FORMAT, NULL, "only name the files without canonical layout: status 1"},
};
const int option_count = COUNT_OF(option_rows);

static void usage(FILE *to)
{
    fprintf(to, "usage: planc COMMAND …\n");
    for (size_t i = 0; i < COUNT_OF(command_rows); i++)
        if (command_rows[i].bit)
            fprintf(to, "  %-*s %s\n", (strstr(command_rows[i].usage, "…") ? 2 : 0) + 58,
                    command_rows[i].usage, command_rows[i].help);
    fprintf(
        to,
        "common options: --set section.key=value (repeatable), --json, --color auto|always|never\n"
        "`planc help COMMAND` explains a command, `planc keys` lists the keys of a plan\n");
}

static int unknown_command(const char *word)
{
    if (word[0] == '-')
        return command_fail(EXIT_USAGE, "the command comes first: planc COMMAND … %s", word);
    if (strlen(word) > 5 && !strcmp(word + strlen(word) - 5, ".plan"))
        return command_fail(EXIT_USAGE, "the command comes first: planc check %s", word);
    const char *names[COUNT_OF(command_rows)];
    for (size_t i = 0; i < COUNT_OF(command_rows); i++) names[i] = command_rows[i].name;
    const char *near = nearest_name(word, names, (int)COUNT_OF(names));
    if (near)
        return command_fail(EXIT_USAGE, "there is no command '%s'; did you mean '%s'?", word, near);
    return command_fail(EXIT_USAGE, "there is no command '%s'; `planc help` lists them", word);
}

/* That of this command, else of another. */
static const struct option_row *find_option(const char *word, size_t n, int bit)
{
    const struct option_row *found = NULL;
    for (size_t i = 0; i < COUNT_OF(option_rows); i++)
        if (strlen(option_rows[i].name) == n && !strncmp(option_rows[i].name, word, n) &&
            (!found || option_rows[i].commands & bit))
            found = &option_rows[i];
    return found;
}

static const char *nearest_option(const char *word, int bit)
{
    const char *names[COUNT_OF(option_rows)];
    int n = 0;
    for (size_t i = 0; i < COUNT_OF(option_rows); i++)
        if (option_rows[i].commands & bit) names[n++] = option_rows[i].name;
    return nearest_name(text_format("%.*s", (int)strcspn(word, "="), word), names, n);
}

/* One option with its value; false after a message. `colour`: auto, always or never. */
static bool take_option(struct arguments *a, const struct option_row *row, const char *value,
                        const char **colour)
{
    const char **once = NULL;
    switch ((enum option)row->option) {
    case SET:
        PUSH(&a->set, value);
        PUSH(&a->set_words, a->word.n);
        return true;
    case REFERENCE: a->reference = true; return true;
    case JSON: a->json = true; return true;
    case WRITE: a->write = true; return true;
    case MEASURE: a->measure = true; return true;
    case ONLY_CHECK: a->check = true; return true;
    case COLOR:
        *colour = value;
        if (!strcmp(value, "auto") || !strcmp(value, "always") || !strcmp(value, "never"))
            return true;
        command_fail(EXIT_USAGE, "--color is auto, always or never, not '%s'", value);
        return false;
    case FUSION:
        a->fusion = strcmp(value, "off");
        if (!a->fusion || !strcmp(value, "on")) return true;
        command_fail(EXIT_USAGE, "--fusion is on or off, not '%s'", value);
        return false;
    case OUTPUT: once = &a->output; break;
    case DEVICE:
        if (strcmp(value, "cpu") && strcmp(value, "cuda") &&
            (strcmp(value, "trace") || !a->traces)) {
            command_fail(EXIT_USAGE, "there is no device '%s'; --device of %s is %s", value,
                         a->command, a->traces ? "cpu, cuda or trace" : "cpu or cuda");
            return false;
        }
        once = &a->device;
        break;
    case ARCH: once = &a->arch; break;
    case RANKS: once = &a->ranks; break;
    case AFTER: once = &a->after; break;
    case ALL: once = &a->all; break;
    case FROM:
        if (!strcmp(a->command, "calibrate")) {
            PUSH(&a->profiles, value);
            return true;
        }
        once = &a->from;
        break;
    case PASS: once = &a->pass; break;
    case AT: once = &a->at; break;
    case CLUSTER: once = &a->cluster; break;
    case DEVICES: once = &a->devices; break;
    case SCALING: once = &a->scaling; break;
    case TRACE: once = &a->trace; break;
    case FAILURES: once = &a->failures; break;
    case STALL: once = &a->stall; break;
    case DTYPE: once = &a->dtype; break;
    case SHARD: once = &a->shard; break;
    case TOKENIZER: once = &a->tokenizer; break;
    case FORMAT_NAME: once = &a->format; break;
    case FIELD: once = &a->field; break;
    case AS: once = &a->as; break;
    case END_TOKEN: once = &a->end_token; break;
    case MODEL: once = &a->model; break;
    case LADDER: once = &a->ladder; break;
    case TOP: once = &a->top; break;
    case METRICS: once = &a->metrics; break;
    case DURATIONS: once = &a->durations; break;
    case KEY: once = &a->key; break;
    case OPTIONS: bug("no option");
    }
    *once = value;
    return true;
}

static bool may_repeat(const struct arguments *a, enum option option)
{
    return option == SET || (option == FROM && !strcmp(a->command, "calibrate"));
}

/* `mesh.fsdp=16`, and no file of that name. */
static bool is_entry(const char *word)
{
    size_t n = strspn(word, "abcdefghijklmnopqrstuvwxyz_.0123456789");
    return word[n] == '=' && access(word, F_OK) != 0;
}

/* An option that the command does not have. `row`: another command has it; `near`: one that it has
 * and that is spelt alike; `next`: the word behind. Each may be NULL. */
static void refuse_option(const struct arguments *a, const char *w, const struct option_row *row,
                          const char *near, const char *next)
{
    const char *equals = w[1] == '-' ? strchr(w, '=') : NULL, *dot = strchr(w, '.');
    if (row)
        command_fail(EXIT_USAGE,
                     "%s has no option '%s', which others have; `planc help %s` lists its own",
                     a->command, row->name, a->command);
    else if (equals && dot && dot < equals)
        command_fail(EXIT_USAGE, "%s has no option '%s'; a key of the plan is given by --set %s",
                     a->command, w, w + 2);
    else if (!equals && dot && next)
        command_fail(EXIT_USAGE, "%s has no option '%s'; a key of the plan is given by --set %s=%s",
                     a->command, w, w + strspn(w, "-"), next);
    else if (near)
        command_fail(EXIT_USAGE, "%s has no option '%s'; did you mean '%s'?", a->command, w, near);
    else
        command_fail(EXIT_USAGE, "%s has no option '%s'; `planc help %s` lists those", a->command,
                     w, a->command);
}

/* Sorts the words after the command. False after one line that says what is wrong. */
static bool sort_words(struct arguments *a, int bit, char **word, int n, const char **colour)
{
    bool given[OPTIONS] = {false};
    for (int i = 0; i < n; i++) {
        const char *w = word[i];
        if (!strcmp(w, "--") && bit == KEYS) {
            while (++i < n) PUSH(&a->word, word[i]);
            return true;
        }
        if (!strcmp(w, "--")) {
            if (bit != RUN) {
                command_fail(EXIT_USAGE, "only run passes words after -- to the trainer");
                return false;
            }
            while (++i < n) PUSH(&a->rest, word[i]);
            return true;
        }
        if (w[0] != '-' || !w[1]) {
            if (is_entry(w)) {
                command_fail(EXIT_USAGE, "a key of the plan is given by --set %s", w);
                return false;
            }
            PUSH(&a->word, w);
            continue;
        }
        /* --name=value; -o and -n take the next word */
        const char *equals = w[1] == '-' ? strchr(w, '=') : NULL;
        const struct option_row *row =
            find_option(w, equals ? (size_t)(equals - w) : strlen(w), bit);
        if (!row || !(row->commands & bit)) {
            const char *near = nearest_option(w, bit);
            if (bit == KEYS && !row && !near) { /* `planc keys --lr`: an option of another tool */
                PUSH(&a->word, w);
                continue;
            }
            refuse_option(a, w, row, near, i + 1 < n ? word[i + 1] : NULL);
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
        if (row->option == SET && !strchr(value, '=') && i + 1 < n && word[i + 1][0] != '-' &&
            access(word[i + 1], F_OK) != 0) {
            const char *rest = word[i + 1][0] == '=' ? word[i + 1] + 1 : word[i + 1];
            if (!rest[0] && i + 2 < n) rest = word[i + 2];
            command_fail(EXIT_USAGE, "--set takes one word: --set %s=%s", value, rest);
            return false;
        }
        /* of two values one would be ignored */
        if (given[row->option] && !may_repeat(a, (enum option)row->option)) {
            command_fail(EXIT_USAGE, "%s is given twice", row->name);
            return false;
        }
        given[row->option] = true;
        if (!take_option(a, row, value, colour)) return false;
    }
    return true;
}

/* `planc report x.plan -o x.plan`: the result would be all that is left of the plan. calibrate may
 * put a cluster's new rates in the place of the old ones. */
static bool spares_inputs(const struct arguments *a)
{
    bool reads_trace = !strcmp(a->command, "report");
    const char *const to[] = {a->output, reads_trace ? NULL : a->trace}, *const one[] = {
                                                                             a->cluster, a->metrics,
                                                                             a->from,
                                                                             reads_trace ? a->trace
                                                                                         : NULL};
    for (size_t k = 0; k < COUNT_OF(to); k++) {
        const char *lost = NULL;
        for (int i = 0; i < a->word.n && !lost && strcmp(a->command, "calibrate"); i++)
            if (is_same_file(to[k], a->word.item[i])) lost = a->word.item[i];
        for (int i = 0; i < a->profiles.n && !lost; i++)
            if (is_same_file(to[k], a->profiles.item[i])) lost = a->profiles.item[i];
        for (size_t i = 0; i < COUNT_OF(one) && !lost; i++)
            if (is_same_file(to[k], one[i])) lost = one[i];
        if (!lost) continue;
        command_fail(EXIT_USAGE, "%s %s: '%s' is what is read, and would be replaced",
                     k ? "--trace" : "-o", to[k], lost);
        return false;
    }
    return true;
}

/* `n` words after the command; returns its status. */
static int run_command(const struct command_row *command, struct arguments *a, char **word, int n)
{
    const char *colour = "auto";
    if (!sort_words(a, command->bit, word, n, &colour)) return EXIT_USAGE;
    a->colour = !strcmp(colour, "always") ||
                (!strcmp(colour, "auto") && isatty(STDERR_FILENO) && !getenv("NO_COLOR"));
    if (!spares_inputs(a)) return EXIT_USAGE;
    if (a->cluster) {
        size_t size;
        const char *file = plan_cluster_file(a->cluster);
        if (!text_read(file ? file : a->cluster, &size))
            return command_fail(EXIT_ENVIRONMENT, "--cluster: cannot read '%s': %s", a->cluster,
                                text_read_why(errno));
        plan_replace_cluster(a->cluster = file);
    }
    return command->run(a);
}

int main(int argc, char **argv)
{
    if (!have_standard_files()) return EXIT_ENVIRONMENT;
    signal(SIGXFSZ, SIG_IGN); /* a limit on the size of files: an error of write() */
    language_use(&plan_language);
    if (argc < 2) {
        usage(stderr);
        return EXIT_USAGE;
    }
    const char *word = argv[1];
    if (!strcmp(word, "--version") || !strcmp(word, "-V") || !strcmp(word, "version")) {
        printf("planc " PLANC_VERSION "\n");
        return EXIT_FINE;
    }
    if (!strcmp(word, "help") || !strcmp(word, "--help") || !strcmp(word, "-h")) {
        if (argc == 2) usage(stdout);
        if (argc == 2 || (argc == 3 && help_print(argv[2]))) return EXIT_FINE;
        return argc == 3 ? command_fail(EXIT_USAGE,
                                        "there is no help on '%s': a command, a section or key of "
                                        "a plan, or man, bash or zsh",
                                        argv[2])
                         : command_fail(EXIT_USAGE, "help is for one command at a time");
    }
    const struct command_row *command = NULL;
    for (size_t i = 0; i < COUNT_OF(command_rows) && !command; i++)
        if (!strcmp(command_rows[i].name, word)) command = &command_rows[i];
    if (!command) return unknown_command(word);
    if (!command->bit)
        return command_fail(EXIT_USAGE, "'%s' is not available in this version", word);

    for (int i = 2; i < argc && strcmp(argv[i], "--"); i++)
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h"))
            return help_print(word) ? EXIT_FINE : EXIT_USAGE;

    bool json = false;
    for (int i = 2; i < argc && strcmp(argv[i], "--"); i++) json |= !strcmp(argv[i], "--json");
    if (json) command_errors_as_json();
    struct arguments a = {.command = word, .traces = command->bit & (BUILD | RUN), .fusion = true};
    int status = run_command(command, &a, argv + 2, argc - 2);
    if (json && error_count())
        diagnostics_print_json(stdout);
    else
        diagnostics_print(stderr, a.colour);
    if (error_count() && status == EXIT_FINE) status = EXIT_PLAN;
    if (fflush(stdout) || ferror(stdout))
        return command_fail(EXIT_ENVIRONMENT, "cannot write the result: %s", strerror(errno));
    return status;
}
