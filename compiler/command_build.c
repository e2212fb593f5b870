/* `planc build`: five generated files and the trainer compiled from them. The kernels are the slow part and depend on
 * neither mesh nor data, so their object is kept under a hash of everything that goes into it; another mesh compiles
 * only the schedule and the tables. A build that fails shows the compiler's own words and leaves no trainer behind. */
#define _GNU_SOURCE
#include "command_build.h"

#define XXH_INLINE_ALL
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#ifndef PLANC_TRAINER_FLAGS
#define PLANC_TRAINER_FLAGS ""
#endif
#define HASH_DIGITS 32
#define PLAIN_FLAGS "-std=c17 -O2 -march=native -ffp-contract=off"

static void remove_file(const char *path)
{
    if (unlink(path) && errno != ENOENT) command_fail(EXIT_ENVIRONMENT, "cannot remove '%s': %s", path, strerror(errno));
}

/* ── a command line ───────────────────────────────────────────────────────── */
struct line { VECTOR(char *) word; };

static void say(struct line *l, const char *word) { PUSH(&l->word, (char *)(uintptr_t)text_format("%s", word)); }
static void say_all(struct line *l, const char *words)
{
    for (const char *s = words; *s;) {
        size_t n = strcspn(s, " ");
        if (n) say(l, text_format("%.*s", (int)n, s));
        s += n + (s[n] == ' ');
    }
}

/* A program that is running and where its words go. */
struct job { struct line line; const char *log; int process; bool running; };

static bool job_start(struct job *j)
{
    PUSH(&j->line.word, NULL);
    j->running = start_program(j->line.word.item, j->log, &j->process);
    if (j->running) return true;
    command_fail(EXIT_ENVIRONMENT, "cannot start %s: %s", j->line.word.item[0], strerror(errno));
    remove_file(j->log);
    return false;
}

/* True when it ended well; otherwise its own words are shown. */
static bool job_end(struct job *j)
{
    if (!j->running) return false;
    int status = end_program(j->process);
    size_t n = 0;
    char *words = status ? file_read(j->log, &n) : NULL;
    remove_file(j->log);
    if (!status) return true;
    struct text command = {0};
    for (int i = 0; j->line.word.item[i]; i++) text_add(&command, "%s%s", i ? " " : "", j->line.word.item[i]);
    if (words && n) fwrite(words, 1, n, stderr);
    command_fail(EXIT_ENVIRONMENT, "this command failed (status %d): %s", status, command.bytes);
    return false;
}

/* ── where things are ─────────────────────────────────────────────────────── */
struct places { const char *runtime, *templates, *library, *compiler; };

static const char *compiler_of(enum emit_device device)
{
    const char *name = getenv(device == EMIT_CPU ? "MPICC" : "CC");
    return name && *name ? name : device == EMIT_CPU ? "mpicc" : "cc";
}

static bool find_places(enum emit_device device, struct places *p)
{
    const char *home = command_home();
    if (!home) return false;
    const char *base = text_format("%s/..", home), *built = home; /* build/planc in its repository */
    const char *installed = text_format("%s/../lib/planc", home); /* PREFIX/bin/planc */
    if (!access(installed, R_OK)) base = built = installed;
    p->runtime = text_format("%s/runtime", base);
    p->templates = text_format("%s/templates", base);
    p->library = text_format("%s%s/libtrainer_%s.a", built, built == home ? "/lib" : "", device == EMIT_CPU ? "cpu" : "trace");
    p->compiler = compiler_of(device);
    const char *const needed[] = {p->runtime, p->templates, p->library};
    for (size_t i = 0; i < COUNT_OF(needed); i++)
        if (access(needed[i], R_OK)) {
            command_fail(EXIT_ENVIRONMENT, "the trainer needs '%s', which should lie beside the compiler: %s", needed[i], strerror(errno));
            return false;
        }
    return true;
}

const char *cache_folder(void)
{
    const char *base = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if ((!base || base[0] != '/') && (!home || !*home)) return NULL;
    const char *path = base && base[0] == '/' ? text_format("%s/planc", base) : text_format("%s/.cache/planc", home);
    return make_folders(path) ? path : NULL;
}

/* ── what a result depends on ─────────────────────────────────────────────── */
static int by_name(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

/* Adds the headers of a folder and of the folders in it, in the order of their names. */
static void add_headers(struct text *to, const char *folder)
{
    DIR *d = opendir(folder);
    if (!d) return;
    VECTOR(const char *) name = {0};
    for (struct dirent *e = readdir(d); e; e = readdir(d))
        if (e->d_name[0] != '.') PUSH(&name, text_format("%s", e->d_name));
    closedir(d);
    if (name.n) qsort(name.item, (size_t)name.n, sizeof *name.item, by_name);
    for (int i = 0; i < name.n; i++) {
        const char *path = text_format("%s/%s", folder, name.item[i]), *end = strrchr(path, '.');
        struct stat st;
        if (stat(path, &st)) continue;
        if (S_ISDIR(st.st_mode)) add_headers(to, path);
        size_t n;
        char *bytes = end && !strcmp(end, ".h") ? file_read(path, &n) : NULL;
        if (bytes) text_add_bytes(to, bytes, n);
    }
}

/* The C compiler's version and the processor it compiles for, in its own words. */
static bool add_target(struct text *to, const char *compiler, const char *scratch)
{
    struct job j = {.log = text_format("%s/.target.%d", scratch, (int)getpid())};
    say(&j.line, compiler);
    say_all(&j.line, "-march=native -dM -E -x c /dev/null");
    if (!job_start(&j)) return false;
    /* the log holds the answer: read it before job_end removes it */
    int status = end_program(j.process);
    size_t n = 0;
    char *bytes = file_read(j.log, &n);
    remove_file(j.log);
    if (status || !bytes) {
        if (bytes) fwrite(bytes, 1, n, stderr);
        command_fail(EXIT_ENVIRONMENT, "%s cannot say what it compiles for", compiler);
        return false;
    }
    text_add_bytes(to, bytes, n);
    return true;
}

static const char *hash_text(const struct text *t)
{
    XXH128_hash_t h = XXH3_128bits(t->bytes ? t->bytes : "", t->length);
    return text_format("%016llx%016llx", (unsigned long long)h.high64, (unsigned long long)h.low64);
}

/* ── compiling ────────────────────────────────────────────────────────────── */
/* Compiles DIR/`file`.c; begins only. */
static bool compile(struct job *j, const struct trainer *t, const struct places *p, const char *directory, const char *file, const char *object)
{
    bool kernels = !strcmp(file, "kernels");
    j->log = text_format("%s.log", object);
    say(&j->line, p->compiler);
    say_all(&j->line, kernels && t->device == EMIT_CPU ? EMIT_KERNEL_FLAGS : PLAIN_FLAGS);
    say_all(&j->line, PLANC_TRAINER_FLAGS);
    say(&j->line, "-I");
    say(&j->line, p->runtime);
    say(&j->line, "-I");
    say(&j->line, p->templates);
    say(&j->line, "-c");
    say(&j->line, text_format("%s/%s.c", directory, file));
    say(&j->line, "-o");
    say(&j->line, object);
    return job_start(j);
}

static bool link_trainer(const struct trainer *t, const struct places *p, const char *const *object, const char *trainer)
{
    struct job j = {.log = text_format("%s.log", trainer)};
    say(&j.line, p->compiler);
    say_all(&j.line, PLANC_TRAINER_FLAGS);
    say(&j.line, "-o");
    say(&j.line, trainer);
    for (int i = 0; i < 3; i++) say(&j.line, object[i]);
    say(&j.line, p->library);
    say_all(&j.line, t->device == EMIT_CPU ? "-ldnnl -ljansson -lgomp -lm -pthread" : "-lm -pthread");
    return job_start(&j) && job_end(&j);
}

/* What the generated texts are compiled with: flags and the headers that they include. */
static void add_means(struct text *to, const struct places *p)
{
    text_add(to, "%s %s %s %s", p->compiler, EMIT_KERNEL_FLAGS, PLAIN_FLAGS, PLANC_TRAINER_FLAGS);
    add_headers(to, p->runtime);
    add_headers(to, p->templates);
}

/* A kept object ends with the hash of what stands before it, which linkers do not look at: a disk that was full or a machine
 * that went down must not make every later build fail. */
static const char *hash_bytes(const char *bytes, size_t n)
{
    return hash_text(&(struct text){.bytes = (char *)(uintptr_t)bytes, .length = n});
}

static bool object_is_whole(const char *path)
{
    size_t n = 0;
    char *bytes = file_read(path, &n);
    return bytes && n > HASH_DIGITS && !memcmp(bytes + n - HASH_DIGITS, hash_bytes(bytes, n - HASH_DIGITS), HASH_DIGITS);
}

static void object_keep(const char *path, const char *object)
{
    size_t n = 0;
    char *bytes = file_read(object, &n);
    struct text all = {0};
    if (!bytes) return;
    text_add_bytes(&all, bytes, n);
    text_add_bytes(&all, hash_bytes(bytes, n), HASH_DIGITS);
    if (!file_write(path, all.bytes, all.length)) remove_file(path);
}

/* Where the kernels' object of this very text is kept, NULL: nowhere. False: the compiler does not work. */
static bool find_kept(const struct trainer *t, const struct places *p, const char *directory, const char **kept)
{
    struct text all = {0};
    emit_kernels_h(&all, t->graph);
    emit_kernels_c(&all, t->graph, t->device);
    add_means(&all, p);
    if (!add_target(&all, p->compiler, directory)) return false;
    const char *cache = cache_folder();
    *kept = cache ? text_format("%s/%s.o", cache, hash_text(&all)) : NULL;
    return true;
}

const char *trainer_hash(const struct trainer *t)
{
    struct text all = {0};
    struct places p;
    if (!find_places(t->device, &p)) return NULL;
    emit_kernels_h(&all, t->graph);
    emit_kernels_c(&all, t->graph, t->device);
    emit_schedule_c(&all, t->graph, t->plan);
    emit_program_c(&all, t->graph, t->plan, t->device);
    emit_plan_json(&all, t->graph, t->plan);
    add_means(&all, &p);
    const char *const also[] = {p.library, "/proc/sys/kernel/hostname"}; /* a shared home: other hosts, other processors */
    for (size_t i = 0; i < COUNT_OF(also); i++) {
        size_t n;
        char *bytes = file_read(also[i], &n);
        if (bytes) text_add_bytes(&all, bytes, n);
    }
    return hash_text(&all);
}

bool trainer_folder(const char *directory)
{
    if (!make_folders(directory)) {
        command_fail(EXIT_ENVIRONMENT, "cannot make the folder '%s': %s", directory, strerror(errno));
        return false;
    }
    int folder = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder >= 0) (void)flock(folder, LOCK_EX); /* where a disk has no locks, two builds at once are the caller's affair */
    return true;
}

int trainer_build(const struct trainer *t, const char *directory)
{
    struct places p;
    if (!find_places(t->device, &p)) return EXIT_ENVIRONMENT;
    const char *trainer = text_format("%s/trainer", directory);
    remove_file(trainer);
    if (!emit_files(t->graph, t->plan, t->device, directory)) return command_fail(EXIT_ENVIRONMENT, "cannot write into '%s': %s", directory, strerror(errno));

    static const char *const file[] = {"kernels", "schedule", "program"};
    const char *kept, *object[3];
    if (!find_kept(t, &p, directory, &kept)) return EXIT_ENVIRONMENT;
    struct job job[3] = {0};
    bool fine = true, known = kept && object_is_whole(kept);
    for (int i = 0; i < 3; i++) {
        object[i] = text_format("%s/.%s.%d.o", directory, file[i], (int)getpid());
        if (i == 0 && known) object[i] = kept;
        else fine &= compile(&job[i], t, &p, directory, file[i], object[i]);
    }
    for (int i = 0; i < 3; i++)
        if (i || !known) fine &= job_end(&job[i]);
    const char *fresh = text_format("%s/.trainer.%d", directory, (int)getpid());
    fine = fine && link_trainer(t, &p, object, fresh);
    if (fine && rename(fresh, trainer)) {
        command_fail(EXIT_ENVIRONMENT, "cannot name '%s': %s", trainer, strerror(errno));
        fine = false;
    }
    if (!fine) remove_file(fresh);
    /* the next build of the same kernels finds them; another folder on another disk only costs a compilation */
    if (fine && kept && !known) object_keep(kept, object[0]);
    for (int i = known; i < 3; i++) remove_file(object[i]);
    return fine ? EXIT_FINE : EXIT_ENVIRONMENT;
}

/* ── the door ─────────────────────────────────────────────────────────────── */
static int device_of(const struct arguments *a, struct plan *p, enum emit_device *device)
{
    bool traced = a->device && !strcmp(a->device, "trace");
    const char *why = a->arch && p->device == DEVICE_CUDA ? plan_set_arch(p, a->arch) : NULL;
    if (why) return command_fail(EXIT_USAGE, "--arch: %s", why);
    if (a->arch && (p->device == DEVICE_CPU || traced)) return command_fail(EXIT_USAGE, "--arch is of cuda devices, and this trainer is for %s", traced ? "trace" : "cpu");
    *device = traced ? EMIT_TRACE : EMIT_CPU;
    if (traced || p->device == DEVICE_CPU) return EXIT_FINE;
    return command_fail(EXIT_USAGE, "building for cuda is not available in this version; --device cpu builds for this machine");
}

int trainer_plan(const struct arguments *a, struct trainer *t)
{
    int status;
    if (a->word.n != 1) return command_fail(EXIT_USAGE, "%s takes one plan, not %d", a->command, a->word.n);
    t->plan = command_plan(a, a->word.item[0], &status);
    if (!t->plan) return status;
    status = device_of(a, t->plan, &t->device);
    if (status != EXIT_FINE) return status;
    t->graph = pass_lower(t->plan);
    if (!t->graph) return EXIT_PLAN;
    if (!a->fusion) t->graph->facts.fuse = false;
    t->graph = pipeline_run(t->graph, LEVEL_MEMORY);
    return EXIT_FINE;
}

int command_build(const struct arguments *a)
{
    struct trainer t;
    if (!a->output) return command_fail(EXIT_USAGE, "build wants -o DIR");
    int status = trainer_plan(a, &t);
    if (status != EXIT_FINE) return status;
    if (!trainer_folder(a->output)) return EXIT_ENVIRONMENT;
    status = trainer_build(&t, a->output);
    if (status != EXIT_FINE) return status;
    int64_t ranks = t.plan->fsdp * t.plan->dp;
    printf("%s/trainer: %s for %lld rank%s on %s, %d kernels, %s a rank\n", a->output, t.plan->title ? t.plan->title : a->word.item[0], (long long)ranks,
           ranks == 1 ? "" : "s", t.device == EMIT_CPU ? "cpu" : "trace", t.graph->kernel.n, text_bytes(t.graph->local_bytes + t.graph->wire_bytes));
    return EXIT_FINE;
}
