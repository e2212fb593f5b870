/* `planc simulate`: how fast will it be? The generated schedule is run against a model of the
 * cluster (compiler/predict), for the plan's own devices and for every rung of --devices. */
#include "base/escape.h"
#include "commands/command.h"
#include "analysis/rungs.h"
#include "commands/simulate_durations.h"
#include "commands/simulate_saving.h"
#include "commands/simulate_trace.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static double seconds(int64_t picoseconds) { return (double)picoseconds * 1e-12; }

/* ── text ────────────────────────────────────────────────────────────────────── */

static void print_part(const struct rung *r, const char *name, int64_t time, const char *what)
{
    if (time)
        printf("  %-16s %12s  %5.1f %%%s%s\n", name, text_seconds(seconds(time)),
               100 * (double)time / (double)r->prediction->step, what[0] ? "  " : "", what);
}

/* The class is held back by what most of its time is. */
static const char *bound_text(const int64_t limit[3])
{
    int most = 0;
    for (int i = 1; i < 3; i++)
        if (limit[i] > limit[most]) most = i;
    return text_format("bound by %s", limit_names[most]);
}

static const char *reasons_text(const int64_t exposed[REASONS])
{
    struct text t = {0};
    for (int i = 0; i < REASONS; i++)
        if (exposed[i])
            text_add(&t, "%s%s %s", t.length ? ", " : "", reason_names[i],
                     text_seconds(seconds(exposed[i])));
    return t.length ? t.bytes : "";
}

static void print_rates(const struct rung *r)
{
    const struct prediction *t = r->prediction;
    const struct machine *m = &r->program->machine;
    printf("  rests on assumed rows: %.0f %% of the step\n", 100 * t->assumed);
    for (int i = 0; i < m->rates; i++) {
        if ((double)t->rate[i] < 0.05 * (double)t->step) continue;
        static const char *const basis[] = {"measured", "published", "assumed"};
        printf("    %5.1f %%  %-32s %s, +- %.0f %%%s%s\n",
               100 * (double)t->rate[i] / (double)t->step, m->rate[i].name,
               basis[m->rate[i].from.basis], 100 * m->rate[i].from.spread,
               m->rate[i].from.source ? "; " : "",
               m->rate[i].from.source ? m->rate[i].from.source : "");
    }
}

static void print_rung(const char *path, const struct rung *r)
{
    const struct prediction *t = r->prediction;
    const struct plan *p = r->plan;
    printf("%s: %s per step, %s to %s; %s tokens/s, %s per device\n", path,
           text_seconds(r->step_seconds), text_seconds(seconds(t->low)),
           text_seconds(seconds(t->high)), text_count((int64_t)(r->tokens_per_second + 0.5)),
           text_count((int64_t)(r->per_device + 0.5)));
    printf("  mesh             fsdp %lld x dp %lld%s, local %lld, accumulation %lld\n",
           (long long)p->fsdp, (long long)p->dp, plan_parts_optimizer(p) ? ", optimizer all" : "",
           (long long)p->local, (long long)p->accumulation);
    if (r->mfu[0] > 0)
        printf("  MFU              %.1f %% (full), %.1f %% (causal), %.1f %% (hardware)\n",
               100 * r->mfu[0], 100 * r->mfu[1], 100 * r->mfu[2]);
    printf("  memory           %s, %.1f %% of a device: %s\n", text_bytes(r->peak_bytes),
           100 * (double)r->peak_bytes / (double)r->ledger->limit_bytes, verdict_names[r->verdict]);
    printf("by part\n");
    for (int i = 0; i < STEP_PARTS; i++) print_part(r, step_part_names[i], t->part[i], "");
    print_part(r, "host", t->host, "between two steps");
    print_part(r, "jitter", t->jitter, "");
    printf("by class\n");
    for (int k = 0; k < COST_CLASSES; k++)
        print_part(r, cost_class_names[k], t->kernel[k], bound_text(t->limit[k]));
    print_part(r, "launch", t->launch, "between two kernels");
    print_part(r, "slowest device", t->slowest, "of all sets the pace");
    print_part(r, "contention", t->contention, "compute that shares with collectives");
    print_part(r, "exposed", t->exposed_all, reasons_text(t->exposed));
    print_part(r, "host", t->host, "");
    print_part(r, "jitter", t->jitter, "");
    if (t->collectives) printf("collectives\n");
    int name = 28, region = 18; /* columns, as wide as their texts */
    for (int i = 0; i < t->collectives; i++) {
        const int n = (int)strlen(t->collective[i].name), m = (int)strlen(t->collective[i].region);
        name = n > name ? n : name;
        region = m > region ? m : region;
    }
    for (int i = 0; i < t->collectives; i++) {
        const struct collective_cost *c = &t->collective[i];
        int64_t exposed = 0;
        for (int k = 0; k < REASONS; k++) exposed += c->exposed[k];
        printf("  %-*s %-*s %6lld x  %12s%s%s%s\n", name, c->name, region, c->region,
               (long long)c->count, text_seconds(seconds(c->picoseconds)),
               exposed ? text_format(", exposed %s: ", text_seconds(seconds(exposed))) : ", hidden",
               exposed ? reasons_text(c->exposed) : "", text_format("; bound by %s", c->limit));
    }
    if (t->outside) printf("extrapolated: some shapes lie outside the measured grids\n");
    const struct machine *m = &r->program->machine;
    if (ranks_a_core(m) > 1)
        printf("too fast: %lld ranks of a host take turns on %lld cores (cluster.cores) and take "
               "the caches from each other, which is not in these times\n",
               (long long)m->ranks_a_host, (long long)m->cluster->cores);
    printf("what it rests on\n");
    print_rates(r);
}

/* The engine against the run whose durations it was given, and the model against them. */
static void print_run(const struct rung *r, const struct measured_run *m)
{
    const struct prediction *t = r->prediction;
    printf("durations of %s: its step took %s, simulated %s (%+.1f %%); by the rates of cluster %s "
           "%s (%+.1f %%)\n",
           m->path, text_seconds(m->step_seconds), text_seconds(r->step_seconds),
           100 * (r->step_seconds / m->step_seconds - 1), r->plan->cluster.name,
           text_seconds(m->model_step), 100 * (m->model_step / m->step_seconds - 1));
    printf("  %-16s %12s %12s\n", "class", "measured", "by rates");
    for (int k = 1; k < COST_CLASSES; k++)
        if (t->kernel[k] || m->model[k] > 0)
            printf("  %-16s %12s %12s  %+.1f %%\n", cost_class_names[k],
                   text_seconds(seconds(t->kernel[k])), text_seconds(m->model[k]),
                   100 * (m->model[k] / seconds(t->kernel[k]) - 1));
    printf("  %-16s %12s %12s\n", "contention", "in them", text_seconds(m->model_contention));
    printf("  %-16s %12s %12s\n", "exposed", text_seconds(seconds(t->exposed_all)),
           text_seconds(m->model_exposed));
}

static json_t *run_json(const struct rung *r, const struct measured_run *m)
{
    json_t *classes = json_object();
    for (int k = 1; k < COST_CLASSES; k++)
        json_object_set_new(classes, cost_class_names[k],
                            json_pack("{s:f, s:f}", "measured", seconds(r->prediction->kernel[k]),
                                      "by_rates", m->model[k]));
    return json_pack("{s:s, s:f, s:f, s:f, s:f, s:f, s:o}", "file", utf8_text(m->path),
                     "step_seconds", m->step_seconds, "simulated_step_seconds", r->step_seconds,
                     "step_seconds_by_rates", m->model_step, "contention_by_rates",
                     m->model_contention, "exposed_by_rates", m->model_exposed, "classes", classes);
}

static void print_curve(const rung_list *all, bool weak)
{
    printf("scaling %s\n",
           weak ? "weak: the batch of a device stays" : "strong: the global batch stays");
    printf("  %8s %14s %12s %14s %8s %10s %12s %10s\n", "devices", "mesh", "step", "tokens/s/dev",
           "MFU", "exposed", "peak", "efficiency");
    for (int i = 0; i < all->n; i++) {
        const struct rung *r = &all->item[i];
        if (r->why) {
            printf("  %8lld impossible: %s\n", (long long)r->devices, r->why);
            continue;
        }
        const char *mfu = r->mfu[0] > 0 ? text_format("%.1f%%", 100 * r->mfu[0]) : "";
        printf("  %8lld %14s %12s %14s %8s %10s %12s %9.1f%%\n", (long long)r->devices,
               text_format("%lld x %lld", (long long)r->plan->fsdp, (long long)r->plan->dp),
               text_seconds(r->step_seconds), text_count((int64_t)(r->per_device + 0.5)), mfu,
               text_seconds(seconds(r->prediction->exposed_all)), text_bytes(r->peak_bytes),
               100 * r->efficiency);
    }
}

/* ── JSON ────────────────────────────────────────────────────────────────────── */

static json_t *reasons_json(const int64_t exposed[REASONS])
{
    json_t *o = json_object();
    for (int i = 0; i < REASONS; i++)
        json_object_set_new(o, reason_names[i], json_real(seconds(exposed[i])));
    return o;
}

static json_t *collectives_json(const struct prediction *t)
{
    json_t *list = json_array();
    for (int i = 0; i < t->collectives; i++) {
        const struct collective_cost *c = &t->collective[i];
        json_array_append_new(list, json_pack("{s:s, s:s, s:I, s:f, s:o, s:s}", "name", c->name,
                                              "region", c->region, "count", (json_int_t)c->count,
                                              "seconds", seconds(c->picoseconds), "exposed",
                                              reasons_json(c->exposed), "bound", c->limit));
    }
    return list;
}

static json_t *classes_json(const struct prediction *t)
{
    json_t *o = json_object();
    for (int k = 1; k < COST_CLASSES; k++) {
        json_t *bound = json_object();
        for (int i = 0; i < 3; i++)
            json_object_set_new(bound, limit_names[i], json_real(seconds(t->limit[k][i])));
        json_object_set_new(
            o, cost_class_names[k],
            json_pack("{s:f, s:o}", "seconds", seconds(t->kernel[k]), "bound", bound));
    }
    return o;
}

static json_t *rates_json(const struct rung *r)
{
    static const char *const basis[] = {"measured", "published", "assumed"};
    const struct machine *m = &r->program->machine;
    json_t *list = json_array();
    for (int i = 0; i < m->rates; i++) {
        const struct rate *rate = &m->rate[i];
        if (!r->prediction->rate[i]) continue;
        json_t *o = json_pack("{s:s, s:f, s:s, s:f}", "name", rate->name, "seconds",
                              seconds(r->prediction->rate[i]), "basis", basis[rate->from.basis],
                              "spread", rate->from.spread);
        if (rate->from.source)
            json_object_set_new(o, "source", json_string(utf8_text(rate->from.source)));
        if (rate->from.date)
            json_object_set_new(o, "date", json_string(utf8_text(rate->from.date)));
        json_array_append_new(list, o);
    }
    return list;
}

static json_t *rung_json(const struct rung *r)
{
    if (r->why)
        return json_pack("{s:I, s:s, s:s}", "devices", (json_int_t)r->devices, "verdict",
                         "impossible", "reason", utf8_text(r->why));
    const struct prediction *t = r->prediction;
    const struct plan *p = r->plan;
    json_t *parts = json_object();
    for (int i = 0; i < STEP_PARTS; i++)
        json_object_set_new(parts, step_part_names[i], json_real(seconds(t->part[i])));
    json_t *o = json_pack(
        "{s:I, s:s, s:{s:I, s:I, s:s}, s:I, s:I, s:I, s:f, s:[f,f], s:f, s:f, s:f, s:o, s:I, s:I, "
        "s:f, "
        "s:f, s:f}",
        "devices", (json_int_t)r->devices, "verdict", verdict_names[r->verdict], "mesh", "fsdp",
        (json_int_t)p->fsdp, "dp", (json_int_t)p->dp, "optimizer",
        p->optimizer_all ? "all" : "shard", "local", (json_int_t)p->local, "accumulation",
        (json_int_t)p->accumulation, "global", (json_int_t)p->global, "step_seconds",
        r->step_seconds, "step_seconds_interval", seconds(t->low), seconds(t->high),
        "tokens_per_second", r->tokens_per_second, "tokens_per_second_per_device", r->per_device,
        "exposed_comm_seconds", seconds(t->exposed_all), "exposed", reasons_json(t->exposed),
        "peak_bytes", (json_int_t)r->peak_bytes, "limit_bytes", (json_int_t)r->ledger->limit_bytes,
        "memory_fraction", (double)r->peak_bytes / (double)r->ledger->limit_bytes,
        "scaling_efficiency", r->efficiency, "assumed_fraction", t->assumed);
    if (r->mfu[0] > 0)
        json_object_set_new(o, "mfu",
                            json_pack("{s:f, s:f, s:f}", "full", r->mfu[0], "causal", r->mfu[1],
                                      "hardware", r->mfu[2]));
    if (p->trainer.name) {
        json_object_set_new(o, "trainer", json_string(p->trainer.name));
        json_object_set_new(o, "reserved_bytes", json_integer((json_int_t)r->trainer.reserved));
        json_object_set_new(o, "allocated_bytes", json_integer((json_int_t)r->trainer.allocated));
    }
    json_object_set_new(o, "extrapolated", json_boolean(t->outside));
    if (ranks_a_core(&r->program->machine) > 1)
        json_object_set_new(o, "ranks_a_core", json_real(ranks_a_core(&r->program->machine)));
    json_object_set_new(o, "parts", parts);
    json_object_set_new(o, "classes", classes_json(t));
    json_object_set_new(o, "other",
                        json_pack("{s:f, s:f, s:f, s:f, s:f}", "launch", seconds(t->launch),
                                  "slowest_device", seconds(t->slowest), "contention",
                                  seconds(t->contention), "host", seconds(t->host), "jitter",
                                  seconds(t->jitter)));
    json_object_set_new(o, "step_picoseconds", json_integer((json_int_t)t->step));
    json_object_set_new(o, "collectives", collectives_json(t));
    json_object_set_new(o, "rates", rates_json(r));
    return o;
}

/* ── the command ─────────────────────────────────────────────────────────────── */

static int simulate(const struct arguments *a, const struct plan *base, const char *path)
{
    rung_list all = {0};
    bool weak = a->scaling && !strcmp(a->scaling, "weak");
    if (a->scaling && !weak && strcmp(a->scaling, "strong"))
        return command_fail(EXIT_USAGE, "--scaling is strong or weak, not '%s'", a->scaling);
    if (a->scaling && !a->devices)
        return command_fail(EXIT_USAGE, "--scaling is of --devices 16,64,512");
    struct saving_times saving;
    if (!saving_read(a, &saving)) return EXIT_USAGE;
    if (a->devices && a->failures)
        return command_fail(EXIT_USAGE, "--failures is of one number of devices, not of --devices");
    if (a->devices && !rungs_read("--devices", a->devices, RUNGS_MOST, &all)) return EXIT_USAGE;
    if (a->devices && a->durations)
        return command_fail(EXIT_USAGE, "--durations is of one run, not of --devices");
    if (a->devices && a->trace && all.n > 1)
        return command_fail(EXIT_USAGE, "--trace shows one step: one number of devices");
    if (!a->devices) PUSH(&all, ((struct rung){.devices = base->fsdp * base->dp}));
    bool possible = false;
    for (int i = 0; i < all.n; i++) {
        struct rung *r = &all.item[i];
        r->plan = a->devices ? rung_plan(a, path, base, r->devices, weak, &r->why)
                             : (struct plan *)(uintptr_t)base;
        if (!r->plan) continue;
        if (!rung_fill(r)) return error_count() ? EXIT_PLAN : EXIT_ENVIRONMENT;
        possible = true;
    }
    struct measured_run run = {0};
    int status = EXIT_FINE;
    if (a->durations && !durations_apply(a->durations, &all.item[0], &run, &status)) return status;
    rungs_compare(&all);
    if (a->trace && possible && !simulate_trace(all.item[0].program, a->trace))
        return command_fail(EXIT_ENVIRONMENT, "--trace %s: %s", a->trace, strerror(errno));
    if (a->json) {
        json_t *rungs = json_array();
        for (int i = 0; i < all.n; i++) json_array_append_new(rungs, rung_json(&all.item[i]));
        json_t *o =
            json_pack("{s:s, s:s, s:s, s:o}", "plan", utf8_text(path), "cluster",
                      base->cluster.name, "scaling", weak ? "weak" : "strong", "rungs", rungs);
        if (saving.interval > 0 && possible)
            json_object_set_new(
                o, "checkpoints",
                json_pack(
                    "{s:f, s:I, s:f, s:I}", "interval_seconds", saving.interval, "interval_steps",
                    (json_int_t)saving_steps(&saving, all.item[0].step_seconds), "lost_fraction",
                    saving.lost, "bytes", (json_int_t)(12 * all.item[0].ledger->parameters)));
        if (run.path) json_object_set_new(o, "durations", run_json(&all.item[0], &run));
        printf("%s\n", json_dumps(o, JSON_INDENT(2)));
    } else {
        for (int i = 0; i < all.n && all.n == 1; i++)
            if (!all.item[i].why) print_rung(path, &all.item[i]);
        if (run.path) print_run(&all.item[0], &run);
        if (saving.interval > 0 && possible)
            saving_print(&saving, all.item[0].step_seconds, all.item[0].ledger->parameters);
        if (a->devices) print_curve(&all, weak);
    }
    return possible ? EXIT_FINE : EXIT_NO_FIT;
}

int command_simulate(const struct arguments *a)
{
    if (a->word.n != 1)
        return command_fail(EXIT_USAGE, "simulate takes one plan, not %d", a->word.n);
    json_in_arena();
    int status;
    struct plan *plan = command_plan(a, a->word.item[0], &status);
    return plan ? simulate(a, plan, a->word.item[0]) : status;
}
