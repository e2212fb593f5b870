/* `planc tune --measure`: a prediction rests on rates, and those of one machine are known by runs
 * alone. The best points of the smallest number of devices are built and run here; what their
 * kernels took refits the cluster, as `planc calibrate --from` does, and the points are ranked
 * again: those that were run by their runs, the others by these rates. When another one is best
 * then, it is run too. Larger numbers of devices are predicted by these rates. Random tokens stand
 * in for the plan's files, since no time depends on them, and nothing is saved. */
#include "base/escape.h"
#include "commands/build.h"
#include "commands/build_job.h"
#include "commands/calibrate.h"
#include "commands/launch.h"
#include "commands/tune.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Steps: one that warms up, those that are profiled, those whose time counts. */
enum { PROFILED = 3, TIMED = 5, STEPS = 1 + PROFILED + TIMED };
/* Points that are run at first, without --top; and how often the best is run when it is another. */
enum { FEW = 3, ROUNDS = 3 };
enum { TOKEN_BYTES = 1 << 22 };

/* ── one run ─────────────────────────────────────────────────────────────────── */

/* The point as a command line would give it, with what a run that only measures changes. */
static struct arguments arguments_of(const struct tune *t, const struct tune_rung *r,
                                     int64_t number, const char *data)
{
    struct arguments a = t->arguments;
    int *choice = TAKE_MANY(int, r->space->n_axes + 1);
    a.command = "tune";
    a.fusion = true;
    memset(&a.set, 0, sizeof a.set);
    memset(&a.word, 0, sizeof a.word);
    PUSH(&a.word, t->path);
    for (int i = 0; i < r->n_set; i++) PUSH(&a.set, r->set[i]);
    choice_of(r->space, number, choice);
    for (int k = 0; k < r->space->n_axes; k++)
        PUSH(&a.set,
             intern_format("%s=%s", r->space->axis[k].key, r->space->axis[k].choice[choice[k]]));
    PUSH(&a.set, "data.format=bytes");
    PUSH(&a.set, intern_format("data.train=\"%s\"", data));
    if (r->plan->n_data_validation) PUSH(&a.set, intern_format("data.validation=\"%s\"", data));
    return a;
}

static bool write_tokens(const char *path, const struct plan *p)
{
    int64_t most = 256;
    for (int i = 0; i < p->n_hyper; i++)
        if (!strcmp(p->hyper[i].name, "vocab") && constant_is_whole(&p->hyper[i].value) &&
            p->hyper[i].value.top < most)
            most = p->hyper[i].value.top;
    unsigned char *token = take(TOKEN_BYTES);
    uint64_t x = 0x9E3779B97F4A7C15u;
    for (int i = 0; i < TOKEN_BYTES; i++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        token[i] = (unsigned char)((x >> 32) % (uint64_t)most);
    }
    if (file_write(path, (char *)token, TOKEN_BYTES)) return true;
    command_fail(EXIT_ENVIRONMENT, "cannot write '%s': %s", path, strerror(errno));
    return false;
}

static int rising(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* The median of the steps behind those that were profiled. 0 after a message. */
static double median_step(const char *metrics)
{
    size_t bytes;
    char *text = file_read(metrics, &bytes);
    double step[STEPS];
    int n = 0;
    for (const char *line = text; line && *line && n < STEPS;
         line += strcspn(line, "\n"), line += *line == '\n') {
        json_t *row = json_loadb(line, strcspn(line, "\n"), 0, NULL);
        double seconds = json_number_value(json_object_get(row, "step_seconds"));
        if (json_number_value(json_object_get(row, "step")) > PROFILED && seconds > 0)
            step[n++] = seconds;
    }
    if (!n) {
        command_fail(EXIT_ENVIRONMENT, "a run left no time of a step in %s", metrics);
        return 0;
    }
    qsort(step, (size_t)n, sizeof *step, rising);
    return n % 2 ? step[n / 2] : (step[n / 2 - 1] + step[n / 2]) / 2;
}

/* Sums over a step by class. False after a message. */
static bool read_kernels(const char *profile, struct tune_run *run)
{
    json_t *file = json_load_file(profile, 0, NULL), *kernel;
    size_t i;
    json_array_foreach(json_object_get(file, "kernels"), i, kernel)
    {
        const char *name = json_string_value(json_object_get(kernel, "class"));
        double calls = json_number_value(json_object_get(kernel, "calls"));
        int class = 0;
        while (class < COST_CLASSES && strcmp(cost_class_names[class], name ? name : "")) class ++;
        if (class == COST_CLASSES) continue;
        run->kernel_predicted[class] +=
            calls * json_number_value(json_object_get(kernel, "predicted_seconds"));
        run->kernel_measured[class] +=
            calls * json_number_value(json_object_get(kernel, "mean_seconds"));
    }
    if (file) return true;
    command_fail(EXIT_ENVIRONMENT, "a run left no profile in %s", profile);
    return false;
}

/* Builds a point in a folder of its own, runs it, and reads what it took. */
static int run_point(const struct tune *t, struct tune_run *run, const char *folder,
                     const char *data)
{
    const struct tune_rung *r = &t->rung[0];
    const struct arguments a = arguments_of(t, r, run->number, data);
    struct diagnostics_mark mark = diagnostics_mark();
    struct trainer trainer;
    int status = trainer_plan(&a, &trainer);
    if (status != EXIT_FINE) return status;
    diagnostics_drop(mark); /* warnings that were said of the plan, or are of its data */
    if (!make_private_folders(folder))
        return command_fail(EXIT_ENVIRONMENT, "cannot make a folder '%s': %s", folder,
                            strerror(errno));
    status = trainer_build(&trainer, folder);
    if (status != EXIT_FINE) return status;
    const char *metrics = text_format("%s/metrics.jsonl", folder),
               *profile = text_format("%s/profile.json", folder);
    struct job j = {.log = text_format("%s/run.log", folder)};
    job_say_all(&j, text_format("mpirun -n %lld", (long long)r->devices));
    job_say(&j, text_format("%s/trainer", folder));
    job_say_all(&j, text_format("--fresh --steps %d --profile %d --profile-out", STEPS, PROFILED));
    job_say(&j, profile);
    job_say(&j, "--metrics");
    job_say(&j, metrics);
    job_say(&j, "--checkpoint-dir");
    job_say(&j, text_format("%s/checkpoints", folder));
    if (!job_start(&j)) return EXIT_ENVIRONMENT;
    int ended = end_program(j.process);
    size_t n = 0;
    char *words = file_read(j.log, &n);
    if (ended) {
        if (words) fwrite(words, 1, n, stderr);
        return command_fail(EXIT_ENVIRONMENT, "the run of %s failed (status %d)", run->text, ended);
    }
    run->measured = median_step(metrics);
    return run->measured > 0 && read_kernels(profile, run) ? EXIT_FINE : EXIT_ENVIRONMENT;
}

/* ── the rates ───────────────────────────────────────────────────────────────── */

/* The plan's cluster with the rates of all runs so far, as a file. */
static bool refit(const struct tune *t, const char *path)
{
    struct cluster c = t->base->cluster;
    struct rates r = rates_of(&c);
    struct run_times seen = {0};
    const struct provenance now = {
        .spread = 0.1, .basis = BASIS_MEASURED, .source = host_processor(), .date = date_today()};
    for (int i = 0; i < t->run.n; i++)
        if (!calibrate_read(text_format("%s/%d/profile.json", t->scratch, i), &seen, &c))
            return false;
    calibrate_fit(&c, &r, &seen, now, false);
    if (cluster_write(path, &c, &r)) return true;
    command_fail(EXIT_ENVIRONMENT, "cannot write '%s': %s", path, strerror(errno));
    return false;
}

static bool was_run(const struct tune *t, int64_t number)
{
    for (int i = 0; i < t->run.n; i++)
        if (t->run.item[i].number == number) return true;
    return false;
}

/* Builds and runs those of the first `few` predicted points that were not run yet. refitted: by
 * rates of runs before. */
static int run_best(struct tune *t, int few, bool refitted, const char *data)
{
    const struct search *s = t->rung[0].search;
    for (int i = 0; i < s->n_ranked && i < few; i++) {
        const struct candidate *x = &s->candidate[s->ranked[i]];
        if (was_run(t, x->number)) continue;
        struct tune_run run = {.number = x->number,
                               .text = tune_set_text(t->rung[0].space, x->number),
                               .place = refitted ? 0 : i + 1,
                               .predicted = (double)x->step / PICOSECONDS};
        if (!t->arguments.json)
            fprintf(stderr, "planc: building and running %s\n", printable_text(run.text));
        int status = run_point(t, &run, text_format("%s/%d", t->scratch, t->run.n), data);
        if (status != EXIT_FINE) return status;
        PUSH(&t->run, run);
    }
    return EXIT_FINE;
}

/* What the refitted rates say of the points that were run; these are ranked by their runs. */
static void predict_again(struct tune *t)
{
    const struct tune_rung *r = &t->rung[0];
    int *choice = TAKE_MANY(int, r->space->n_axes + 1);
    for (int i = 0; i < t->run.n; i++) {
        struct tune_run *run = &t->run.item[i];
        struct arena_mark mark = arena_mark();
        choice_of(r->space, run->number, choice);
        const struct place place = candidate_place(t->candidates, r->space, choice);
        run->refitted =
            (double)candidate_step(t->candidates, r->space, choice, &place, NULL, NULL, NULL) /
            PICOSECONDS;
        arena_reset(mark);
        search_measured(r->search, run->number, (int64_t)(run->measured * PICOSECONDS));
    }
}

int tune_measure(struct tune *t)
{
    struct tune_rung *first = &t->rung[0];
    t->scratch = scratch_folder();
    if (!t->scratch) return EXIT_ENVIRONMENT;
    const char *data = text_format("%s/tokens", t->scratch);
    if (!launcher_settings())
        return command_fail(EXIT_ENVIRONMENT, "cannot set the launcher's variables: %s",
                            strerror(errno));
    if (!write_tokens(data, t->base)) return EXIT_ENVIRONMENT;
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    if (t->base->device == DEVICE_CPU && cores > 0 && first->devices > cores && !t->arguments.json)
        fprintf(stderr,
                "planc: %lld ranks share %ld cores here, so the runs are slower than they would "
                "be on as many devices\n",
                (long long)first->devices, cores);
    for (int round = 0;; round++) {
        if (!tune_search(t, first)) return EXIT_PLAN;
        predict_again(t);
        struct search *s = first->search;
        if (!s->n_ranked || round == ROUNDS) break;
        if (round && was_run(t, s->candidate[s->ranked[0]].number)) break;
        int status = run_best(t, round ? 1 : t->arguments.top ? t->top : FEW, round > 0, data);
        if (status != EXIT_FINE) return status;
        const char *rates = text_format("%s/rates.%d.plan", t->scratch, round);
        if (!refit(t, rates)) return EXIT_ENVIRONMENT;
        plan_replace_cluster(rates);
        candidates_close(t->candidates);
        t->candidates = candidates_open(&t->arguments);
    }
    const char *output = t->arguments.output;
    if (!output || !t->run.n) return EXIT_FINE;
    size_t n = strlen(output), end = n > 5 && !strcmp(output + n - 5, ".plan") ? n - 5 : n;
    t->rates = text_format("%.*s.cluster.plan", (int)end, output);
    return refit(t, t->rates) ? EXIT_FINE : EXIT_ENVIRONMENT;
}

/* NULL: nothing was run. */
static const struct tune_run *fastest_run(const struct tune *t)
{
    const struct tune_run *best = NULL;
    for (int i = 0; i < t->run.n; i++)
        if (!best || t->run.item[i].measured < best->measured) best = &t->run.item[i];
    return best;
}

/* ── what was wrong ──────────────────────────────────────────────────────────── */

/* Means over the runs, of those that the plan's own rates chose, of what a class of kernels takes
 * in a step; the last row is the rest of the step: collectives, waits, the host. */
struct error_row {
    const char *name;
    double predicted, measured;
};

static void errors_of(const struct tune *t, struct error_row row[COST_CLASSES + 1])
{
    struct error_row *rest = &row[COST_CLASSES];
    int n = 0;
    for (int k = 0; k < COST_CLASSES; k++) row[k] = (struct error_row){.name = cost_class_names[k]};
    *rest = (struct error_row){.name = "the rest"};
    for (int i = 0; i < t->run.n; i++) {
        const struct tune_run *r = &t->run.item[i];
        if (!r->place) continue; /* predicted by rates of runs */
        n++;
        rest->predicted += r->predicted, rest->measured += r->measured;
        for (int k = 0; k < COST_CLASSES; k++) {
            row[k].predicted += r->kernel_predicted[k];
            row[k].measured += r->kernel_measured[k];
            rest->predicted -= r->kernel_predicted[k];
            rest->measured -= r->kernel_measured[k];
        }
    }
    for (int k = 0; k <= COST_CLASSES && n; k++) row[k].predicted /= n, row[k].measured /= n;
}

static int wronger_first(const void *a, const void *b)
{
    const struct error_row *x = a, *y = b;
    double dx = x->measured - x->predicted, dy = y->measured - y->predicted;
    dx = dx < 0 ? -dx : dx, dy = dy < 0 ? -dy : dy;
    return dx > dy ? -1 : dx < dy;
}

static const char *error_text(double predicted, double measured)
{
    return text_format("%+.1f %%", 100 * (predicted / measured - 1));
}

void tune_print_runs(const struct tune *t)
{
    const struct tune_run *best = fastest_run(t);
    if (!best) return;
    struct error_row row[COST_CLASSES + 1];
    printf("measured on %lld device%s here, with random tokens: the median of %d steps\n",
           (long long)t->rung[0].devices, t->rung[0].devices == 1 ? "" : "s", TIMED);
    printf("  %12s %12s %9s %12s %9s\n", "measured", "predicted", "error", "refitted", "error");
    for (int i = 0; i < t->run.n; i++) {
        const struct tune_run *r = &t->run.item[i];
        printf("  %12s %12s %9s %12s %9s  %s\n", text_seconds(r->measured),
               text_seconds(r->predicted), error_text(r->predicted, r->measured),
               text_seconds(r->refitted), error_text(r->refitted, r->measured), r->text);
    }
    printf("  where the prediction was wrong, in a step, mean of the runs:\n");
    errors_of(t, row);
    qsort(row, COUNT_OF(row), sizeof *row, wronger_first);
    for (size_t k = 0; k < COUNT_OF(row) && k < 5; k++)
        if (row[k].measured > 0 || row[k].predicted > 0)
            printf("    %-16s %s measured, %s predicted\n", row[k].name,
                   text_seconds(row[k].measured), text_seconds(row[k].predicted));
    printf("  the fastest run: %s", best->text);
    printf(best->place ? "; by prediction it was number %d\n"
                       : "; the refitted rates put it first\n",
           best->place);
    if (t->rates) printf("  %s has the refitted rates, for --cluster\n", t->rates);
}

json_t *tune_runs_json(const struct tune *t)
{
    const struct tune_run *best = fastest_run(t);
    json_t *runs = json_array(), *kernels = json_array();
    struct error_row row[COST_CLASSES + 1];
    errors_of(t, row);
    for (int i = 0; i < t->run.n; i++) {
        const struct tune_run *r = &t->run.item[i];
        json_t *o = json_pack("{s:o, s:f, s:f, s:f, s:b}", "set",
                              tune_set_json(t->rung[0].space, r->number), "measured_seconds",
                              r->measured, "predicted_seconds", r->predicted, "refitted_seconds",
                              r->refitted, "fastest", r == best);
        if (r->place) json_object_set_new(o, "predicted_rank", json_integer(r->place));
        json_array_append_new(runs, o);
    }
    for (size_t k = 0; k < COUNT_OF(row); k++)
        if (row[k].measured > 0 || row[k].predicted > 0)
            json_array_append_new(kernels, json_pack("{s:s, s:f, s:f}", "class", row[k].name,
                                                     "measured_seconds", row[k].measured,
                                                     "predicted_seconds", row[k].predicted));
    json_t *o = json_pack("{s:I, s:o, s:o}", "devices", (json_int_t)t->rung[0].devices, "runs",
                          runs, "kernels", kernels);
    if (t->rates) json_object_set_new(o, "cluster", json_string(utf8_text(t->rates)));
    return o;
}
