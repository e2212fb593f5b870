/* `planc simulate --durations FILE`: a trainer's --profile-out says how long each kernel and each
 * collective took. With these the simulated step is the engine's alone, and differs from the step
 * of the run by what the engine has wrong. */
#include "commands/simulate_durations.h"

#include "commands/command.h"
#include "predict/measured.h"

#include <errno.h>
#include <jansson.h>
#include <string.h>

static double number_of(json_t *o, const char *key)
{
    return json_number_value(json_object_get(o, key));
}
static const char *word_of(json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}

static bool refuse(const char *path, const char *why)
{
    command_fail(EXIT_USAGE, "--durations %s: %s", path, why);
    return false;
}

static json_t *read_file(const char *path, int *status)
{
    size_t n;
    json_error_t why;
    char *text = text_read(path, &n);
    if (!text) {
        *status =
            command_fail(EXIT_ENVIRONMENT, "cannot read '%s': %s", path, text_read_why(errno));
        return NULL;
    }
    *status = EXIT_USAGE;
    json_t *file = json_loadb(text, n, 0, &why);
    if (!file)
        refuse(path, text_format("no file of --profile-out: line %d: %s", why.line, why.text));
    else if (number_of(file, "planc_profile") != 1 ||
             !json_is_array(json_object_get(file, "kernels")) ||
             !json_is_array(json_object_get(file, "collectives")))
        refuse(path, "no file of --profile-out: it has no \"planc_profile\": 1 and no kernels");
    else if (!(number_of(file, "mean_step_seconds") > 0))
        refuse(path, "it has no mean_step_seconds: a trainer of another version wrote it");
    else
        return file;
    return NULL;
}

/* One number that the plan and the file must have alike. */
static bool same(const char *path, json_t *file, const char *key, int64_t here)
{
    int64_t there = (int64_t)number_of(file, key);
    return there == here ||
           refuse(path, text_format("it is of a run with %s = %lld, the plan has %lld", key,
                                    (long long)there, (long long)here));
}

static struct duration duration_of(json_t *o, bool kernel)
{
    const char *micro = word_of(o, "micro");
    return (struct duration){.name = intern(word_of(o, kernel ? "name" : "kind")),
                             .unit = intern(word_of(o, "unit")),
                             .instance = (int64_t)number_of(o, "instance"),
                             .micro = !strcmp(micro, "only")     ? PART_FIRST | PART_LAST
                                      : !strcmp(micro, "first")  ? PART_FIRST
                                      : !strcmp(micro, "last")   ? PART_LAST
                                      : !strcmp(micro, "middle") ? 0
                                                                 : -1,
                             .calls = number_of(o, "calls"),
                             .seconds = number_of(o, "mean_seconds")};
}

static struct duration *list_of(json_t *list, bool kernel, int *n)
{
    *n = (int)json_array_size(list);
    struct duration *all = TAKE_MANY(struct duration, *n + 1);
    for (int i = 0; i < *n; i++) all[i] = duration_of(json_array_get(list, (size_t)i), kernel);
    return all;
}

static double *numbers_of(json_t *list, int *n)
{
    *n = (int)json_array_size(list);
    double *all = TAKE_MANY(double, *n + 1);
    for (int i = 0; i < *n; i++) all[i] = json_number_value(json_array_get(list, (size_t)i));
    return all;
}

/* Steps one by one, and the order of their calls. */
static void read_steps(json_t *file, struct durations *d)
{
    json_t *replay = json_object_get(file, "replay"), *order = json_object_get(file, "order");
    d->steps = (int)json_array_size(replay);
    d->orders = (int)json_array_size(order);
    d->step = TAKE_MANY(struct measured_step, d->steps + 1);
    d->order = TAKE_MANY(int, d->orders + 1);
    for (int i = 0; i < d->orders; i++) {
        const double at = json_number_value(json_array_get(order, (size_t)i));
        if (at < 0 || at >= d->kernels) d->steps = 0;
        d->order[i] = (int)at;
    }
    for (int i = 0; i < d->steps; i++) {
        json_t *o = json_array_get(replay, (size_t)i);
        struct measured_step *s = &d->step[i];
        s->kernel = numbers_of(json_object_get(o, "kernels"), &s->kernels);
        s->issue = numbers_of(json_object_get(o, "issues"), &s->issues);
        s->wake = numbers_of(json_object_get(o, "wakes"), &s->wakes);
        s->collective = numbers_of(json_object_get(o, "collectives"), &s->collectives);
        s->between = number_of(o, "between_seconds");
        s->host = number_of(o, "step_seconds") - number_of(o, "schedule_seconds");
    }
}

/* What was between kernels is what neither they nor waits took: of steps one by one that is not the
 * same everywhere. */
static struct prediction *prediction_of_steps(const struct program *p, const struct outcome *o)
{
    struct prediction *t = prediction_of(p, o);
    int64_t rest = o->picoseconds - t->slowest - t->contention - t->exposed_all;
    for (int k = 0; k < COST_CLASSES; k++) rest -= t->kernel[k];
    t->launch = rest;
    return t;
}

bool durations_apply(const char *path, struct rung *r, struct measured_run *m, int *status)
{
    json_t *file = read_file(path, status);
    if (!file) return false;
    const struct plan *p = r->plan;
    if (strcmp(word_of(file, "device"), p->device == DEVICE_CUDA ? "cuda" : "cpu"))
        return refuse(
            path, text_format("it is of device '%s', the plan is not", word_of(file, "device")));
    if (!same(path, file, "fsdp", p->fsdp) || !same(path, file, "dp", p->dp) ||
        !same(path, file, "accumulation", p->accumulation) ||
        !same(path, file, "tokens", p->local * p->sequence))
        return false;
    double step = number_of(file, "mean_step_seconds"),
           schedule = number_of(file, "schedule_seconds");
    struct durations d = {.between = number_of(file, "between_seconds"),
                          .host = step - schedule,
                          .issue = number_of(file, "issue_seconds"),
                          .wake = number_of(file, "wake_seconds")};
    d.kernel = list_of(json_object_get(file, "kernels"), true, &d.kernels);
    d.collective = list_of(json_object_get(file, "collectives"), false, &d.collectives);
    json_t *sequence = json_object_get(file, "sequence");
    d.sequences = (int)json_array_size(sequence);
    d.sequence = TAKE_MANY(double, d.sequences + 1);
    for (int i = 0; i < d.sequences; i++)
        d.sequence[i] = json_number_value(json_array_get(sequence, (size_t)i));
    read_steps(file, &d);

    const struct prediction *model = r->prediction;
    *m = (struct measured_run){.path = path, .step_seconds = step, .model_step = r->step_seconds};
    for (int k = 0; k < COST_CLASSES; k++) m->model[k] = (double)model->kernel[k] / PICOSECONDS;
    m->model_contention = (double)model->contention / PICOSECONDS;
    m->model_exposed = (double)model->exposed_all / PICOSECONDS;

    const char *without = program_measured(r->program, &d);
    if (without)
        return refuse(
            path, text_format("it does not say how long %s takes: it is of another plan", without));
    const struct outcome *o = engine_run(engine_new(r->program), true, NULL);
    without = measured_otherwise(r->program, o->tally, &d);
    if (without)
        return refuse(path, text_format("its run called %s another number of times in a step: it "
                                        "is of another plan",
                                        without));
    if (d.sequences && measured_collectives(r->program, o->tally) != d.sequences)
        return refuse(path, "its run had another number of collectives in a step: it is of "
                            "another plan");
    struct machine *machine = &r->program->machine;
    for (int i = 0; i < machine->rates; i++)
        machine->rate[i].from = (struct provenance){.basis = BASIS_MEASURED, .source = path};
    const double before = r->step_seconds;
    const struct outcome *steps = measured_steps(r->program, &d);
    r->prediction = steps ? prediction_of_steps(r->program, steps) : prediction_of(r->program, o);
    r->step_seconds = (double)r->prediction->step / PICOSECONDS;
    const double faster = before / r->step_seconds;
    r->tokens_per_second *= faster, r->per_device *= faster;
    for (int i = 0; i < 3; i++) r->mfu[i] *= faster;
    return true;
}
