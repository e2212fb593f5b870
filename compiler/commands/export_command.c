/* `planc export`: a checkpoint, or the last weights of a run with its plan, becomes a folder that
 * Hugging Face transformers loads. Before a weight is written its configuration is imported again:
 * the model must come out the same, and the tensors must be its weights, every one and none else.
 * The folder appears under its name when all of it is on the disk. */
#define _GNU_SOURCE
#include "base/escape.h"
#include "commands/build_sweep.h"
#include "commands/command.h"
#include "commands/export.h"
#include "text/constant.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

struct export
{
    const char *from, *to, *part; /* part: the folder until it is complete */
    int held;                     /* it, open and locked */
    enum element dtype;
    int64_t shard_bytes;
    struct saved saved; /* of a checkpoint */
    json_t *keys;       /* of the plan, by path */
    const char *beside; /* folder with a tokenizer and a configuration; NULL: none */
    json_t *beside_config;
    struct weight_source source;
    int copied, files;
};

/* ── what is exported ────────────────────────────────────────────────────────── */

/* The newest complete one of a folder. */
static int choose(struct export *e)
{
    saved_list all = {0};
    const char *why = saved_list_read(e->from, &all);
    if (why) return command_fail(EXIT_ENVIRONMENT, "%s", why);
    for (int i = 0; i < all.n; i++) {
        if (all.item[i].manifest) {
            e->saved = all.item[i];
            return EXIT_FINE;
        }
        /* one without a manifest never was complete; a damaged one is named */
        if (strncmp(all.item[i].why, "is not complete", 15))
            return command_fail(EXIT_ENVIRONMENT,
                                "%s %s; `planc checkpoint %s` lists the others, and each can be "
                                "exported by its own folder",
                                all.item[i].path, all.item[i].why, e->from);
    }
    return command_fail(EXIT_ENVIRONMENT, "'%s' has no complete checkpoint", e->from);
}

static json_t *keys_of_manifest(const json_t *manifest)
{
    const json_t *plan = json_object_get(manifest, "plan");
    json_t *keys = json_copy(json_object_get(plan, "mathematics"));
    if (keys) json_object_update(keys, json_object_get(plan, "rest"));
    return keys;
}

static int open_checkpoint(struct export *e)
{
    if (saved_is_checkpoint(e->from))
        e->saved = saved_read(e->from);
    else {
        const int status = choose(e);
        if (status != EXIT_FINE) return status;
    }
    if (!e->saved.manifest)
        return command_fail(EXIT_ENVIRONMENT, "%s %s", e->saved.path, e->saved.why);
    e->keys = keys_of_manifest(e->saved.manifest);
    const char *why =
        e->keys ? source_of_checkpoint(&e->saved, &e->source) : "its manifest does not say a plan";
    return why ? command_fail(EXIT_ENVIRONMENT, "%s: %s", e->saved.path, why) : EXIT_FINE;
}

/* A plan that is given beside a checkpoint must be of the same model. */
static int check_plan(const struct export *e, const struct plan *plan)
{
    const char *why = export_same_model(e->keys, plan);
    return why ? command_fail(EXIT_PLAN, "%s is of another plan: %s", e->saved.path, why)
               : EXIT_FINE;
}

static int open_source(struct export *e, const struct arguments *a)
{
    struct stat st;
    struct plan *plan = NULL;
    int status;
    if (stat(e->from, &st))
        return command_fail(EXIT_ENVIRONMENT, "cannot read '%s': %s", e->from, strerror(errno));
    if (a->word.n == 2 && !(plan = command_plan(a, a->word.item[1], &status))) return status;
    if (S_ISDIR(st.st_mode)) {
        status = open_checkpoint(e);
        return status == EXIT_FINE && plan ? check_plan(e, plan) : status;
    }
    if (!plan)
        return command_fail(EXIT_USAGE, "'%s' does not say its plan: planc export %s PLAN -o %s",
                            e->from, e->from, e->to);
    e->keys = export_keys(plan);
    const char *why = source_of_file(e->from, &e->source);
    return why ? command_fail(EXIT_ENVIRONMENT, "%s", why) : EXIT_FINE;
}

/* ── tokenizer ───────────────────────────────────────────────────────────────── */

/* --tokenizer, else the folder that the run began with. */
static int find_beside(struct export *e, const char *given, const char *plan_path)
{
    const char *from = json_string_value(json_object_get(e->keys, "init.from"));
    const char *slash = plan_path ? strrchr(plan_path, '/') : NULL;
    struct stat st;
    e->beside = given ? given
                : !from || from[0] == '/' || !slash
                    ? from
                    : text_format("%.*s/%s", (int)(slash - plan_path), plan_path, from);
    if (!e->beside) return EXIT_FINE;
    if (stat(e->beside, &st) || !S_ISDIR(st.st_mode)) {
        if (given) return command_fail(EXIT_ENVIRONMENT, "--tokenizer: '%s' is no folder", given);
        e->beside = NULL;
        return EXIT_FINE;
    }
    e->beside_config = json_load_file(text_format("%s/config.json", e->beside), 0, NULL);
    return EXIT_FINE;
}

static int copy_tokenizer(struct export *e)
{
    static const char *const name[] = {"tokenizer.json",
                                       "tokenizer.model",
                                       "tokenizer_config.json",
                                       "special_tokens_map.json",
                                       "added_tokens.json",
                                       "vocab.json",
                                       "merges.txt",
                                       "chat_template.jinja"};
    for (size_t i = 0; i < COUNT_OF(name) && e->beside; i++) {
        size_t n;
        const char *from = text_format("%s/%s", e->beside, name[i]),
                   *to = text_format("%s/%s", e->part, name[i]), *bytes = file_read(from, &n);
        if (!bytes && errno == ENOENT) continue;
        if (!bytes)
            return command_fail(EXIT_ENVIRONMENT, "cannot read '%s': %s", from,
                                file_read_why(errno));
        if (!file_write_durable(to, bytes, n))
            return command_fail(EXIT_ENVIRONMENT, "cannot write '%s': %s", to, strerror(errno));
        e->copied++;
    }
    return EXIT_FINE;
}

/* ── the folder ──────────────────────────────────────────────────────────────── */

static int fill(struct export *e)
{
    struct text config = {0};
    const char *why = export_config(e->keys, e->beside_config, e->dtype, &config),
               *path = text_format("%s/config.json", e->part);
    int status;
    if (why) return command_fail(EXIT_PLAN, "%s cannot be exported: %s", e->from, why);
    if (!file_write_durable(path, config.bytes, config.length))
        return command_fail(EXIT_ENVIRONMENT, "cannot write '%s': %s", path, strerror(errno));
    const struct plan *imported = import_folder(e->part, &e->source.names, &status);
    if (!imported) return status;
    if ((why = export_same_model(e->keys, imported)))
        return command_fail(EXIT_PLAN, "%s cannot be exported: %s", e->from, why);
    if ((why = source_verify(&e->source)) ||
        (why = export_weights(&e->source, e->part, e->dtype, e->shard_bytes, &e->files)))
        return command_fail(EXIT_ENVIRONMENT, "%s", why);
    struct weight_files written = {0};
    if ((why = weights_open(e->part, &written))) return command_fail(EXIT_ENVIRONMENT, "%s", why);
    if (written.set->tensors != e->source.tensor.n)
        bug("%ld tensors were written", written.set->tensors);
    st_close(written.set);
    return copy_tokenizer(e);
}

static bool sync_folder(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return false;
    const bool fine = !fsync(fd);
    return !close(fd) && fine;
}

static int publish(const struct export *e)
{
    const char *slash = strrchr(e->to, '/'),
               *above = !slash           ? "."
                        : slash == e->to ? "/"
                                         : text_format("%.*s", (int)(slash - e->to), e->to);
    if (!sync_folder(e->part) || rename(e->part, e->to) || !sync_folder(above))
        return command_fail(EXIT_ENVIRONMENT, "cannot make '%s': %s", e->to, strerror(errno));
    return EXIT_FINE;
}

/* What a failed export has written; it made all of it itself. */
static void remove_part(const char *folder)
{
    DIR *d = opendir(folder);
    for (struct dirent *f = d ? readdir(d) : NULL; f; f = readdir(d))
        if (strcmp(f->d_name, ".") && strcmp(f->d_name, ".."))
            (void)unlink(text_format("%s/%s", folder, f->d_name));
    if (d) closedir(d);
    if (rmdir(folder) && errno != ENOENT)
        command_fail(EXIT_ENVIRONMENT, "cannot remove '%s': %s", folder, strerror(errno));
}

static int make_part(struct export *e)
{
    e->part = text_format("%s.%d.part", e->to, (int)getpid());
    sweep_beside(e->to, ".part", remove_part);
    if (mkdir(e->part, 0777))
        return command_fail(EXIT_ENVIRONMENT, "cannot make '%s': %s", e->part, strerror(errno));
    e->held = open(e->part, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    /* where a disk has no locks, the next export may take it for one that was killed */
    if (e->held >= 0) (void)flock(e->held, LOCK_EX | LOCK_NB);
    return EXIT_FINE;
}

/* ── signals ─────────────────────────────────────────────────────────────────── */

volatile sig_atomic_t export_stopped;
static void stop(int number) { export_stopped = number; }

/* What is ignored stays ignored (nohup). */
static void take_signals(void (*handler)(int))
{
    static const int number[] = {SIGINT, SIGTERM, SIGHUP};
    for (size_t i = 0; i < COUNT_OF(number); i++) {
        struct sigaction now, own = {.sa_handler = handler, .sa_flags = SA_RESTART};
        if (sigaction(number[i], NULL, &now) == 0 && now.sa_handler != SIG_IGN)
            sigaction(number[i], &own, NULL);
    }
}

/* ── the command line ────────────────────────────────────────────────────────── */

static int read_options(struct export *e, const struct arguments *a)
{
    struct stat st;
    if (a->word.n < 1 || a->word.n > 2 || !a->output)
        return command_fail(EXIT_USAGE,
                            "export takes a checkpoint, or weights and their plan, and -o DIR");
    if (a->word.n == 1 && a->set.n)
        return command_fail(EXIT_USAGE, "--set is for the plan, and none is given");
    e->dtype = BF16;
    if (a->dtype && !strcmp(a->dtype, "fp32"))
        e->dtype = F32;
    else if (a->dtype && strcmp(a->dtype, "bf16"))
        return command_fail(EXIT_USAGE, "--dtype is bf16 or fp32, not '%s'", a->dtype);
    static const struct option_range bytes = {UNIT_BYTES, 1, "a number of bytes, such as 5GB"};
    double shard_bytes = 5e9;
    if (a->shard && !option_quantity("--shard", a->shard, bytes, &shard_bytes)) return EXIT_USAGE;
    e->shard_bytes = (int64_t)shard_bytes;
    size_t n = strlen(a->output);
    while (n > 1 && a->output[n - 1] == '/') n--;
    e->from = a->word.item[0];
    e->to = intern_bytes(a->output, n);
    if (!lstat(e->to, &st))
        return command_fail(EXIT_ENVIRONMENT, "-o: '%s' exists; export makes a new folder", e->to);
    return EXIT_FINE;
}

static const char *source_text(const struct export *e)
{
    return e->saved.manifest ? text_format("step %ld of %s", e->saved.step, e->saved.path)
                             : e->from;
}

static void print_json(const struct export *e)
{
    json_t *o =
        json_pack("{s:s, s:s, s:I, s:s, s:i, s:i}", "folder", utf8_text(e->to), "source",
                  utf8_text(e->saved.manifest ? e->saved.path : e->from), "parameters",
                  (json_int_t)e->source.elements, "dtype", e->dtype == BF16 ? "bf16" : "fp32",
                  "files", e->files, "tokenizer_files", e->copied);
    if (e->saved.manifest) json_object_set_new(o, "step", json_integer(e->saved.step));
    if (export_note(e->keys)) json_object_set_new(o, "note", json_string(export_note(e->keys)));
    printf("%s\n", json_dumps(o, JSON_INDENT(2)));
}

int command_export(const struct arguments *a)
{
    struct export e = {0};
    json_in_arena();
    int status = read_options(&e, a);
    if (status == EXIT_FINE) status = open_source(&e, a);
    const char *plan_path =
        a->word.n == 2
            ? a->word.item[1]
            : json_string_value(json_object_get(json_object_get(e.saved.manifest, "plan"), "file"));
    if (status == EXIT_FINE) status = find_beside(&e, a->tokenizer, plan_path);
    if (status != EXIT_FINE) return status;
    take_signals(stop);
    status = make_part(&e);
    if (status != EXIT_FINE) return status;
    status = fill(&e);
    if (status == EXIT_FINE) status = publish(&e);
    source_close(&e.source);
    if (status != EXIT_FINE) remove_part(e.part);
    if (e.held >= 0) close(e.held);
    take_signals(SIG_DFL);
    if (status != EXIT_FINE && export_stopped) raise(export_stopped);
    if (status != EXIT_FINE) return status;
    if (a->json) {
        print_json(&e);
        return EXIT_FINE;
    }
    printf("%s: %s, %s parameters as %s in %d file%s\n", e.to, source_text(&e),
           text_count(e.source.elements), e.dtype == BF16 ? "BF16" : "F32", e.files,
           e.files == 1 ? "" : "s");
    if (export_note(e.keys)) printf("  %s\n", export_note(e.keys));
    if (e.copied)
        printf("  %d files of the tokenizer from %s\n", e.copied, e.beside);
    else
        printf("  no tokenizer: %s\n",
               e.beside ? text_format("'%s' has none", e.beside) : "--tokenizer DIR copies one");
    return EXIT_FINE;
}
