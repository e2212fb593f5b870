/* Measures this machine: builds templates/cpu/measure.c as a trainer is built, starts it as `planc
 * run` starts a trainer, and reads the figures that it prints. */
#define _GNU_SOURCE
#include "commands/build_job.h"
#include "commands/build.h"
#include "commands/calibrate.h"
#include "commands/launch.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int word_index(const char *const *words, int n, const char *word)
{
    for (int i = 0; i < n; i++)
        if (!strcmp(words[i], word)) return i;
    return -1;
}

/* A line of measure.c; false: it is none. */
static bool read_line(const char *line, figure_list *all, struct cluster *c)
{
    static const char *const orders[] = {"any", "nn", "nt", "tn", "tt"};
    char class[32], engine[32], type[16], op[32], order[8];
    int ranks;
    struct figure f = {0};
    if (sscanf(line, "%31s %31s %15s %31s %7s %d %lf %lf %lf %lf", class, engine, type, op, order,
               &ranks, &f.at[0], &f.at[1], &f.at[2], &f.value) != 10)
        return false;
    if (!strcmp(class, "contention")) {
        double part = f.value < 0 ? 0 : f.value > 0.95 ? 0.95 : f.value;
        *(!strcmp(engine, "core") ? &c->contention.core : &c->contention.link) = part;
        return true;
    }
    if (!strcmp(class, "host")) {
        c->host.issue = f.value;
        return true;
    }
    int which = word_index(orders, COUNT_OF(orders), order);
    f.class = intern(class);
    f.engine = intern(engine);
    f.op = strcmp(op, "-") ? intern(op) : NULL;
    f.type = !strcmp(type, "fp32") ? F32 : !strcmp(type, "bf16") ? BF16 : -1;
    f.order = which < 0 ? ORDER_ANY : (enum order)which;
    f.ranks = ranks;
    PUSH(all, f);
    return true;
}

static bool run_program(const char *directory, const char *program, const char *what, int64_t ranks,
                        double seconds, figure_list *all, struct cluster *c)
{
    struct job j = {.log = text_format("%s/%s.%s.out", directory, program, what)};
    size_t n = 0;
    int status, before = all->n;
    job_say_all(&j, text_format("mpirun -n %ld", ranks));
    job_say(&j, text_format("%s/%s", directory, program));
    job_say_all(&j, text_format("%s %s", what, text_number(seconds)));
    if (!job_start(&j)) return false;
    status = end_program(j.process);
    char *words = file_read(j.log, &n);
    if (status) {
        if (words) fwrite(words, 1, n, stderr);
        command_fail(EXIT_ENVIRONMENT, "measuring %s with %ld ranks failed (status %d)", what,
                     ranks, status);
        return false;
    }
    for (char *line = words; line && *line;) {
        char *end = strchrnul(line, '\n'), *next = *end ? end + 1 : end;
        *end = 0;
        read_line(line, all, c);
        line = next;
    }
    if (all->n > before) return true;
    command_fail(EXIT_ENVIRONMENT, "measuring %s with %ld ranks gave no figure", what, ranks);
    return false;
}

/* A folder and all in it. */
void remove_folder(const char *directory)
{
    DIR *d = opendir(directory);
    struct stat st;
    for (struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d)) {
        const char *path = text_format("%s/%s", directory, e->d_name);
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
        if (!lstat(path, &st) && S_ISDIR(st.st_mode))
            remove_folder(path);
        else
            remove_file(path);
    }
    if (d) closedir(d);
    rmdir(directory);
}

static bool measure_in(const char *directory, figure_list *all, struct cluster *c, int64_t ranks,
                       double seconds)
{
    const struct measured_mesh mesh[] = {
        {1, 1, "alone"}, {ranks, 1, "shards"}, {1, ranks, "replicas"}};
    const int meshes = ranks > 1 ? 3 : 1;
    fprintf(stderr, "planc: compiling what measures\n");
    if (!measure_build(directory, mesh, meshes)) return false;
    for (int i = 0; i < meshes; i++) {
        int64_t n = mesh[i].fsdp * mesh[i].dp;
        fprintf(stderr, "planc: measuring with %ld rank%s (%s)\n", n, n == 1 ? "" : "s",
                mesh[i].program);
        if (i < 2 && !run_program(directory, mesh[i].program, "compute", n, seconds, all, c))
            return false;
        if (!run_program(directory, mesh[i].program, "collectives", n, 5 * seconds, all, c))
            return false;
    }
    return true;
}

const char *scratch_folder(void)
{
    const char *base = getenv("TMPDIR");
    char *directory =
        (char *)(uintptr_t)text_format("%s/planc-calibrate-XXXXXX", base && *base ? base : "/tmp");
    if (mkdtemp(directory)) return directory;
    command_fail(EXIT_ENVIRONMENT, "cannot make a folder '%s': %s", directory, strerror(errno));
    return NULL;
}

bool calibrate_measure(figure_list *all, struct cluster *c, int64_t ranks, double seconds)
{
    const char *directory = scratch_folder();
    if (!directory) return false;
    bool fine = measure_in(directory, all, c, ranks, seconds);
    remove_folder(directory);
    return fine;
}
