/* Trains small models of the library for a few steps and reads what each of their kernels took:
 * what generated loops take an element depends on how they are fused, so it is measured in them. */
#include "commands/build.h"
#include "commands/build_job.h"
#include "commands/calibrate.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

/* The families differ in their ops; two types, since loops convert. */
static const struct run {
    const char *plan;
    int64_t local;
    const char *set[12];
} runs[] = {
    {"demo.plan", 3, {"model.layers=2", "model.hidden=192", "model.ffn=512"}},
    {"demo.plan",
     2,
     {"model.layers=2", "model.hidden=384", "model.ffn=1024", "batch.sequence=128",
      "precision.compute=bf16"}},
    {"gpt2-124m.plan",
     2,
     {"model.layers=2", "model.hidden=128", "model.heads=4", "model.vocab=2048",
      "model.context=256", "precision.compute=fp32", "batch.sequence=192"}},
    {"gpt2-124m.plan",
     4,
     {"model.layers=2", "model.hidden=256", "model.heads=4", "model.vocab=1024",
      "model.context=256", "precision.compute=bf16", "batch.sequence=64"}},
    {"moe-small.plan", 2, {"model.layers=2"}},
    {"moe-small.plan", 1, {"model.layers=2", "precision.compute=bf16"}},
};

/* Each is run in every round, so that what disturbs a machine for a while does not last as long as
 * all runs of a model. */
enum { ROUNDS = 2 };

static const char *folder_of(const char *directory, size_t model, int64_t ranks)
{
    return text_format("%s/%zu-%lld", directory, model, (long long)ranks);
}

static bool build_one(const struct run *run, int64_t ranks, const char *plans,
                      const char *directory, const char *data)
{
    struct arguments a = {.command = "calibrate", .fusion = true};
    plan_replace_cluster(text_format("%s/clusters/cpu.plan", plans));
    const char *common[] = {intern_format("mesh.fsdp=%lld", (long long)ranks),
                            "mesh.dp=1",
                            intern_format("batch.local=%lld", (long long)run->local),
                            intern_format("batch.global=%lld", (long long)(run->local * ranks)),
                            "data.format=bytes",
                            intern_format("data.train=\"%s\"", data)};
    struct trainer t;
    if (mkdir(directory, 0700)) {
        command_fail(EXIT_ENVIRONMENT, "cannot make a folder '%s': %s", directory, strerror(errno));
        return false;
    }
    PUSH(&a.word, text_format("%s/%s", plans, run->plan));
    for (int i = 0; run->set[i]; i++) PUSH(&a.set, run->set[i]);
    for (size_t i = 0; i < COUNT_OF(common); i++) PUSH(&a.set, common[i]);
    struct diagnostics_mark mark = diagnostics_mark();
    if (trainer_plan(&a, &t) != EXIT_FINE || trainer_build(&t, directory) != EXIT_FINE)
        return false;
    diagnostics_drop(mark);
    return true;
}

static bool run_one(const struct run *run, int64_t ranks, const char *directory,
                    struct run_times *all, struct cluster *c)
{
    struct job j = {.log = text_format("%s/run.log", directory)};
    const char *out = text_format("%s/profile.json", directory);
    size_t n = 0;
    job_say_all(&j, text_format("mpirun -n %lld", (long long)ranks));
    job_say(&j, text_format("%s/trainer", directory));
    job_say_all(&j, "--steps 12 --profile 10 --profile-out");
    job_say(&j, out);
    if (!job_start(&j)) return false;
    int status = end_program(j.process);
    char *words = file_read(j.log, &n);
    remove_file(j.log);
    if (status) {
        if (words) fwrite(words, 1, n, stderr);
        command_fail(EXIT_ENVIRONMENT, "a run of %s that measures failed (status %d)", run->plan,
                     status);
        return false;
    }
    return calibrate_read(out, all, c);
}

/* Of the kernels from `first` to `end`, which a run of this model measured before, and of the same
 * ones that `again` measured, the faster times: other programs only make them slower. */
static void take_faster(observation_list *all, int first, int end, const observation_list *again)
{
    for (int i = 0; i < again->n; i++)
        for (int k = first; k < end; k++) {
            struct observation *o = &all->item[k];
            const struct observation *s = &again->item[i];
            if (strcmp(o->work.name, s->work.name)) continue;
            if (s->seconds < o->seconds) o->seconds = s->seconds;
            break;
        }
}

/* All models with so many ranks, round by round. */
static bool run_all(int64_t ranks, const char *directory, struct run_times *all, struct cluster *c)
{
    int first[COUNT_OF(runs)], end[COUNT_OF(runs)];
    for (int round = 0; round < ROUNDS; round++)
        for (size_t i = 0; i < COUNT_OF(runs); i++) {
            struct run_times again = {0};
            fprintf(stderr, "planc: measuring kernels of %s with %lld rank%s (%zu of %zu)\n",
                    runs[i].plan, (long long)ranks, ranks == 1 ? "" : "s",
                    (size_t)round * COUNT_OF(runs) + i + 1, ROUNDS * COUNT_OF(runs));
            if (!run_one(&runs[i], ranks, folder_of(directory, i, ranks), &again, c)) return false;
            if (round == 0) {
                first[i] = all->kernel.n;
                for (int k = 0; k < again.kernel.n; k++) PUSH(&all->kernel, again.kernel.item[k]);
                end[i] = all->kernel.n;
            } else
                take_faster(&all->kernel, first[i], end[i], &again.kernel);
            for (int k = 0; k < again.copy.n; k++) PUSH(&all->copy, again.copy.item[k]);
            for (int k = 0; k < again.host.n; k++) PUSH(&all->host, again.host.item[k]);
        }
    return true;
}

bool calibrate_runs(const char *plans, int64_t ranks, struct run_times *all, struct cluster *c)
{
    enum { BYTES = 1 << 18 };
    char *text = take(BYTES);
    const char *directory = scratch_folder();
    if (!directory) return false;
    const char *data = text_format("%s/data.txt", directory);
    for (int i = 0; i < BYTES; i++) text[i] = (char)(32 + (i * 7919 + i / 96) % 95);
    bool fine = file_write(data, text, BYTES);
    if (!fine) command_fail(EXIT_ENVIRONMENT, "cannot write '%s': %s", data, strerror(errno));
    for (int several = 0; several < (ranks > 1 ? 2 : 1) && fine; several++) {
        const int64_t n = several ? ranks : 1;
        fprintf(stderr, "planc: compiling models with %lld rank%s\n", (long long)n,
                n == 1 ? "" : "s");
        for (size_t i = 0; i < COUNT_OF(runs) && fine; i++)
            fine = build_one(&runs[i], n, plans, folder_of(directory, i, n), data);
        fine = fine && run_all(n, directory, all, c);
    }
    remove_folder(directory);
    return fine;
}
