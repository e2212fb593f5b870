/* `planc build`: writes the generated files and compiles the trainer. The kernels take longest and
 * depend neither on mesh nor on data, so their object is cached under a hash of everything that
 * goes into it; another mesh compiles only the schedule and the tables. A failed build shows the
 * compiler's messages and leaves no trainer behind. */
#define _GNU_SOURCE
#include "base/escape.h"
#include "passes/pipeline.h"
#include "commands/build_cuda.h"
#include "commands/build_job.h"
#include "commands/build_kept.h"
#include "commands/build_sweep.h"
#include "commands/predicted.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef PLANC_TRAINER_FLAGS
#define PLANC_TRAINER_FLAGS ""
#endif
#define PLAIN_FLAGS "-std=c17 -O2 -march=native -ffp-contract=off"

/* ── what a device's trainer is made of ──────────────────────────────────────── */
/* object: the texts that are compiled, the kernels' first. links: after the runtime's library. mpi:
 * by mpicc, or by cc. */
static const struct device_row {
    const char *name, *object[3], *flags, *links;
    bool mpi;
} device_rows[] = {
    [EMIT_CPU] = {"cpu",
                  {"kernels", "schedule", "program"},
                  PLAIN_FLAGS,
                  "-ldnnl -ljansson -lgomp -lm -pthread",
                  true},
    [EMIT_TRACE] =
        {"trace", {"kernels", "schedule", "program"}, PLAIN_FLAGS, "-lm -pthread", false},
    [EMIT_CUDA] = {"cuda",
                   {"launch", "schedule", "program"},
                   CUDA_HOST_FLAGS,
                   "-ljansson -lm -ldl -pthread",
                   true},
};

static const char *compiler_of(enum emit_device device)
{
    bool mpi = device_rows[device].mpi;
    const char *name = getenv(mpi ? "MPICC" : "CC");
    return name && *name ? name : mpi ? "mpicc" : "cc";
}

static bool find_places(enum emit_device device, struct places *p)
{
    const char *home = command_home();
    if (!home) return false;
    /* build/planc in its repository */
    const char *base = text_format("%s/..", home), *built = home;
    const char *installed = text_format("%s/../lib/planc", home); /* PREFIX/bin/planc */
    if (!access(installed, R_OK)) base = built = installed;
    p->runtime = text_format("%s/runtime/shared", base);
    p->templates = text_format("%s/templates", base);
    p->library = text_format("%s%s/libtrainer_%s.a", built, built == home ? "/lib" : "",
                             device_rows[device].name);
    p->compiler = compiler_of(device);
    const char *const needed[] = {p->runtime, p->templates, p->library};
    for (size_t i = 0; i < COUNT_OF(needed); i++)
        if (access(needed[i], R_OK)) {
            command_fail(EXIT_ENVIRONMENT,
                         "the trainer needs '%s', which should lie beside the compiler: %s",
                         needed[i], strerror(errno));
            return false;
        }
    return true;
}

/* ── what a result depends on ────────────────────────────────────────────────── */
static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

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
        char *bytes =
            end && (!strcmp(end, ".h") || !strcmp(end, ".cuh")) ? file_read(path, &n) : NULL;
        if (bytes) text_add_bytes(to, bytes, n);
    }
}

/* The C compiler's version and the processor it compiles for, in its own words. */
static bool add_target(struct text *to, const char *compiler, const char *scratch)
{
    struct job j = {.log = text_format("%s/.target.%d", scratch, (int)getpid())};
    job_say(&j, compiler);
    job_say_all(&j, "-march=native -dM -E -x c /dev/null");
    size_t n;
    const char *words = job_answer(&j, &n);
    if (words) text_add_bytes(to, words, n);
    return words != NULL;
}

/* ── compiling ───────────────────────────────────────────────────────────────── */
/* Compiles DIR/`file`.c; begins only. */
static bool compile(struct job *j, const struct places *p, const char *flags, const char *directory,
                    const char *file, const char *object)
{
    j->log = text_format("%s.log", object);
    job_say(j, p->compiler);
    job_say_all(j, flags);
    job_say_all(j, PLANC_TRAINER_FLAGS);
    job_say(j, "-I");
    job_say(j, p->runtime);
    job_say(j, "-I");
    job_say(j, p->templates);
    job_say(j, "-c");
    job_say(j, text_format("%s/%s.c", directory, file));
    job_say(j, "-o");
    job_say(j, object);
    return job_start(j);
}

static bool link_trainer(const struct trainer *t, const struct places *p, const char *const *object,
                         const char *trainer)
{
    struct job j = {.log = text_format("%s.log", trainer)};
    job_say(&j, p->compiler);
    job_say_all(&j, PLANC_TRAINER_FLAGS);
    job_say(&j, "-o");
    job_say(&j, trainer);
    for (int i = 0; i < 3; i++) job_say(&j, object[i]);
    job_say(&j, p->library);
    job_say_all(&j, device_rows[t->device].links);
    return job_start(&j) && job_end(&j);
}

/* What the generated texts are compiled with: flags and the headers that they include. */
static void add_means(struct text *to, const struct places *p)
{
    text_add(to, "%s %s %s %s", p->compiler, EMIT_KERNEL_FLAGS, PLAIN_FLAGS, PLANC_TRAINER_FLAGS);
    add_headers(to, p->runtime);
    add_headers(to, p->templates);
}

static void add_kernels(struct text *to, const struct trainer *t)
{
    emit_kernels_h(to, t->graph);
    if (t->device != EMIT_CUDA)
        emit_kernels_c(to, t->graph, t->device);
    else
        emit_kernels_cu(to, t->graph), emit_launch_c(to, t->graph);
}

/* Where the kernels' object of this very text is kept, NULL: nowhere (launch.c of cuda compiles at
 * once). False: the compiler does not work. */
static bool find_kept(const struct trainer *t, const struct places *p, const char *directory,
                      const char **kept)
{
    struct text all = {0};
    *kept = NULL;
    if (t->device == EMIT_CUDA) return true;
    add_kernels(&all, t);
    add_means(&all, p);
    if (!add_target(&all, p->compiler, directory)) return false;
    const char *cache = cache_folder();
    if (cache) *kept = text_format("%s/%s.o", cache, hash_text(&all));
    return true;
}

const char *trainer_hash(const struct trainer *t)
{
    struct text all = {0};
    struct places p;
    if (!find_places(t->device, &p)) return NULL;
    add_kernels(&all, t);
    emit_schedule_c(&all, t->graph, t->plan);
    emit_program_c(&all, t->graph, t->plan, t->device);
    emit_plan_json(&all, t->graph, t->plan);
    add_means(&all, &p);
    /* a shared home: other hosts, other processors */
    const char *const also[] = {p.library, "/proc/sys/kernel/hostname"};
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
        command_fail(EXIT_ENVIRONMENT, "cannot make the folder '%s': %s", directory,
                     strerror(errno));
        return false;
    }
    int folder = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    /* where a disk has no locks, two builds at once are the caller's affair */
    if (folder >= 0 && flock(folder, LOCK_EX) == 0) sweep_folder(directory);
    return true;
}

/* Nothing of an earlier build, for another device perhaps, may be taken for this one's; what is
 * written anew keeps its time stamp where it stays the same. */
static void remove_earlier(const struct trainer *t, const char *directory)
{
    const struct {
        const char *file;
        bool stays;
    } row[] = {{"trainer", false},
               {"reference.so", false},
               {"kernels.cu", t->device == EMIT_CUDA},
               {"launch.c", t->device == EMIT_CUDA},
               {"kernels.c", t->device != EMIT_CUDA || t->reference},
               {"arguments.c", t->reference}};
    for (size_t i = 0; i < COUNT_OF(row); i++)
        if (!row[i].stays) remove_file(text_format("%s/%s", directory, row[i].file));
    cuda_remove_stale(directory);
}

/* DIR/trainer out of DIR's texts. */
static bool build_objects(const struct trainer *t, const struct places *p, const char *directory,
                          const char *trainer)
{
    const char *const *file = device_rows[t->device].object;
    const char *kept, *object[3];
    if (!find_kept(t, p, directory, &kept)) return false;
    struct job job[3] = {0};
    bool fine = true, known = kept && kept_is_whole(kept);
    for (int i = 0; i < 3; i++) {
        object[i] = text_format("%s/.%s.%d.o", directory, file[i], (int)getpid());
        if (i == 0 && known)
            object[i] = kept;
        else
            fine &= compile(&job[i], p,
                            i == 0 && t->device == EMIT_CPU ? EMIT_KERNEL_FLAGS
                                                            : device_rows[t->device].flags,
                            directory, file[i], object[i]);
    }
    for (int i = 0; i < 3; i++)
        if (i || !known) fine &= job_end(&job[i]);
    const char *fresh = text_format("%s/.trainer.%d", directory, (int)getpid());
    fine = fine && link_trainer(t, p, object, fresh);
    if (fine && rename(fresh, trainer)) {
        command_fail(EXIT_ENVIRONMENT, "cannot name '%s': %s", trainer, strerror(errno));
        fine = false;
    }
    if (!fine) remove_file(fresh);
    /* the next build of the same kernels finds them; another folder on another disk only costs a
     * compilation */
    size_t n;
    const char *bytes = fine && kept && !known ? file_read(object[0], &n) : NULL;
    if (bytes) kept_write(kept, bytes, n);
    for (int i = known; i < 3; i++) remove_file(object[i]);
    return fine;
}

/* DIR/reference.so: the kernels of the same graph as text for this machine, with which --compare
 * judges the device's. */
static bool build_reference(const struct places *p, const char *directory)
{
    static const char *const file[] = {"kernels", "arguments"};
    const char *object[COUNT_OF(file)];
    struct job job[COUNT_OF(file)] = {0},
               link = {.log = text_format("%s/.reference.%d.log", directory, (int)getpid())};
    bool fine = true;
    for (size_t i = 0; i < COUNT_OF(file); i++) {
        object[i] = text_format("%s/.%s.%d.o", directory, file[i], (int)getpid());
        fine &= compile(&job[i], p, EMIT_KERNEL_FLAGS " -fPIC -fvisibility=hidden", directory,
                        file[i], object[i]);
    }
    for (size_t i = 0; i < COUNT_OF(file); i++) fine &= job_end(&job[i]);
    job_say(&link, p->compiler);
    job_say_all(&link, PLANC_TRAINER_FLAGS " -shared -Wl,-Bsymbolic -o");
    job_say(&link, text_format("%s/reference.so", directory));
    for (size_t i = 0; i < COUNT_OF(file); i++) job_say(&link, object[i]);
    job_say(&link, "-lm");
    fine = fine && job_start(&link) && job_end(&link);
    for (size_t i = 0; i < COUNT_OF(file); i++) remove_file(object[i]);
    return fine;
}

int trainer_build(const struct trainer *t, const char *directory)
{
    struct places p;
    struct text copied = {0};
    if (!find_places(t->device, &p)) return EXIT_ENVIRONMENT;
    remove_earlier(t, directory);
    if (!emit_files(t->graph, t->plan, t->device, t->reference, directory))
        return command_fail(EXIT_ENVIRONMENT, "cannot write into '%s': %s", directory,
                            strerror(errno));
    if (t->device == EMIT_CUDA) {
        if (!cuda_copy_templates(t->graph, &p, directory, &copied)) return EXIT_ENVIRONMENT;
        int status = cuda_cubins(t, directory, &copied, t->demanded);
        if (status != EXIT_FINE) return status;
    }
    if (!build_objects(t, &p, directory, text_format("%s/trainer", directory)))
        return EXIT_ENVIRONMENT;
    return !t->reference || build_reference(&p, directory) ? EXIT_FINE : EXIT_ENVIRONMENT;
}

/* ── measuring ───────────────────────────────────────────────────────────────── */
bool measure_build(const char *directory, const struct measured_mesh *mesh, int n)
{
    struct places p;
    struct job job = {0};
    if (!find_places(EMIT_CPU, &p)) return false;
    const char *object = text_format("%s/measure.o", directory);
    if (!compile(&job, &p, EMIT_KERNEL_FLAGS, text_format("%s/cpu", p.templates), "measure",
                 object) ||
        !job_end(&job))
        return false;
    for (int i = 0; i < n; i++) {
        const char *name = text_format("mesh_%d", i);
        struct text tables = {0};
        text_add(&tables,
                 "#include \"program.h\"\nconst struct program program = {.fsdp = %ld, .dp = %ld, "
                 ".timeout_seconds = 60};\n",
                 mesh[i].fsdp, mesh[i].dp);
        struct job tables_job = {0}, link = {.log = text_format("%s/link.log", directory)};
        if (!file_write(text_format("%s/%s.c", directory, name), tables.bytes, tables.length))
            return command_fail(EXIT_ENVIRONMENT, "cannot write into '%s': %s", directory,
                                strerror(errno)),
                   false;
        const char *table = text_format("%s/%s.o", directory, name);
        if (!compile(&tables_job, &p, PLAIN_FLAGS, directory, name, table) || !job_end(&tables_job))
            return false;
        job_say(&link, p.compiler);
        job_say_all(&link, PLANC_TRAINER_FLAGS " -o");
        job_say(&link, text_format("%s/%s", directory, mesh[i].program));
        job_say(&link, object);
        job_say(&link, table);
        job_say(&link, p.library);
        job_say_all(&link, device_rows[EMIT_CPU].links);
        if (!job_start(&link) || !job_end(&link)) return false;
    }
    return true;
}

/* ── entry point ─────────────────────────────────────────────────────────── */
static int device_of(const struct arguments *a, struct trainer *t)
{
    bool traced = a->device && !strcmp(a->device, "trace"),
         cuda = !traced && t->plan->device == DEVICE_CUDA;
    t->device = traced ? EMIT_TRACE : cuda ? EMIT_CUDA : EMIT_CPU;
    const char *name = device_rows[t->device].name,
               *why = a->arch && cuda ? plan_set_arch(t->plan, a->arch) : NULL;
    if (why) return command_fail(EXIT_USAGE, "--arch: %s", why);
    if (a->arch && !cuda)
        return command_fail(EXIT_USAGE, "--arch is of cuda devices, and this trainer is for %s",
                            name);
    if (a->reference && !cuda)
        return command_fail(
            EXIT_USAGE,
            "--reference is what kernels of cuda are compared with, and this trainer is for %s",
            name);
    for (int i = 0; i < t->plan->n_arch && cuda; i++)
        if (atoi(t->plan->arch[i] + 3) < 80)
            return command_fail(EXIT_USAGE,
                                "kernels need sm_80 or later, with its BF16 products; %s is older",
                                t->plan->arch[i]);
    t->demanded = a->arch != NULL;
    t->reference = a->reference;
    return EXIT_FINE;
}

int trainer_plan(const struct arguments *a, struct trainer *t)
{
    int status;
    if (a->word.n != 1)
        return command_fail(EXIT_USAGE, "%s takes one plan, not %d", a->command, a->word.n);
    *t = (struct trainer){.plan = command_plan(a, a->word.item[0], &status)};
    if (!t->plan) return status;
    status = device_of(a, t);
    if (status != EXIT_FINE) return status;
    t->graph = pass_lower(t->plan);
    if (!t->graph) return EXIT_PLAN;
    if (!a->fusion) t->graph->facts.fuse = false;
    t->graph = pipeline_run(t->graph, LEVEL_MEMORY);
    if (!t->graph) return EXIT_PLAN;
    if (t->device == EMIT_CPU || t->device == EMIT_CUDA)
        t->plan->predicted = predicted_tables(t->plan, t->graph);
    return EXIT_FINE;
}

/* "cuda (sm_90a, sm_100a)" */
static const char *device_text(const struct trainer *t)
{
    struct text all = {0};
    text_add(&all, "%s", device_rows[t->device].name);
    for (int i = 0; i < t->plan->n_arch && t->device == EMIT_CUDA; i++)
        text_add(&all, "%s%s", i ? ", " : " (", t->plan->arch[i]);
    return t->device == EMIT_CUDA ? text_format("%s)", all.bytes) : all.bytes;
}

static void print_json(const struct arguments *a, const struct trainer *t)
{
    json_t *arch = json_array();
    for (int i = 0; i < t->plan->n_arch && t->device == EMIT_CUDA; i++)
        json_array_append_new(arch, json_string(t->plan->arch[i]));
    const int64_t ranks = t->plan->fsdp * t->plan->dp,
                  arena = t->graph->local_bytes + t->graph->wire_bytes;
    json_t *o =
        json_pack("{s:s, s:s, s:s, s:s, s:o, s:I, s:i, s:I}", "plan", utf8_text(a->word.item[0]),
                  "trainer", utf8_text(text_format("%s/trainer", a->output)), "title",
                  utf8_text(t->plan->title ? t->plan->title : ""), "device",
                  device_rows[t->device].name, "arch", arch, "ranks", (json_int_t)ranks, "kernels",
                  t->graph->kernel.n, "arena_bytes", (json_int_t)arena);
    printf("%s\n", json_dumps(o, JSON_INDENT(2)));
}

int command_build(const struct arguments *a)
{
    struct trainer t;
    if (!a->output) return command_fail(EXIT_USAGE, "build wants -o DIR");
    json_in_arena();
    int status = trainer_plan(a, &t);
    if (status != EXIT_FINE) return status;
    if (!trainer_folder(a->output)) return EXIT_ENVIRONMENT;
    status = trainer_build(&t, a->output);
    if (status != EXIT_FINE) return status;
    int64_t ranks = t.plan->fsdp * t.plan->dp;
    if (a->json) {
        print_json(a, &t);
        return EXIT_FINE;
    }
    printf("%s/trainer: %s for %lld rank%s on %s, %d kernels, %s per rank\n", a->output,
           printable_text(t.plan->title ? t.plan->title : a->word.item[0]), (long long)ranks,
           ranks == 1 ? "" : "s", device_text(&t), t.graph->kernel.n,
           text_bytes(t.graph->local_bytes + t.graph->wire_bytes));
    return EXIT_FINE;
}
