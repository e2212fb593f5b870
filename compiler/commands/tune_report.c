/* What `planc tune` found, as text and as JSON: the best with their predictions, the reason of
 * every other point, and the plan of -o. */
#define _XOPEN_SOURCE 700
#include "base/escape.h"
#include "passes/pipeline.h"
#include "commands/tune.h"
#include "ir/cost.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static double seconds(int64_t picoseconds) { return (double)picoseconds * 1e-12; }

static const char *words_of(const struct space *s, int64_t number)
{
    struct text t = {0};
    int *choice = TAKE_MANY(int, s->n_axes + 1);
    choice_of(s, number, choice);
    for (int k = 0; k < s->n_axes; k++) {
        const char *value = s->axis[k].choice[choice[k]];
        const char *quote = strpbrk(value, " [\"*|()") ? "'" : "";
        text_add(&t, "%s--set %s%s=%s%s", k ? " " : "", quote, s->axis[k].key, value, quote);
    }
    return t.bytes;
}

const char *tune_set_text(const struct space *s, int64_t number)
{
    int *choice = TAKE_MANY(int, s->n_axes + 1);
    choice_of(s, number, choice);
    return candidate_text(s, choice);
}

/* Differences that the model cannot see, whatever its rows say: a part of the step. */
#define RESOLUTION 0.005

/* ── finishing ───────────────────────────────────────────────────────────────── */

/* The root of the sum of squares of what each row could be wrong in the difference of two steps. */
static double width_of(const struct prediction *a, const struct prediction *b,
                       const struct machine *m)
{
    double square = 0;
    for (int i = 0; i < m->rates; i++) {
        double d = (double)(a->rate[i] - b->rate[i]) * m->rate[i].from.spread;
        square += d * d;
    }
    return sqrt(square);
}

static bool finish_rung(const struct tune *t, struct tune_rung *r)
{
    const struct search *s = r->search;
    int *choice = TAKE_MANY(int, r->space->n_axes + 1);
    r->n_best = s->n_ranked < t->top ? s->n_ranked : t->top;
    r->best = TAKE_MANY(struct tune_best, r->n_best + 1);
    struct flops flops = {0};
    for (int i = 0; i < r->n_best; i++) {
        struct tune_best *b = &r->best[i];
        const struct program *program;
        b->candidate = &s->candidate[s->ranked[i]];
        b->text = tune_set_text(r->space, b->candidate->number);
        choice_of(r->space, b->candidate->number, choice);
        candidate_step(t->candidates, r->space, choice, &b->candidate->place, &b->prediction,
                       &program, NULL);
        const char *why;
        const struct plan *p = candidate_plan(&t->arguments, r->space, choice, &why);
        if (!i) { /* the answer is compiled as a command would compile it */
            struct graph *g = p ? pass_lower(p) : NULL;
            if (g) g = pipeline_run(g, LEVEL_MEMORY);
            if (!g) return false;
            flops = cost_flops_per_token(g);
            struct program *same;
            const struct prediction *again = predict(p, g, &same);
            if (!again || (again->step != b->candidate->step && !b->candidate->measured) ||
                g->local_bytes + g->wire_bytes + cost_outside_bytes(g, p) !=
                    b->candidate->peak_bytes)
                bug("the best point, compiled, is not what the search found: %s", b->text);
        }
        b->tokens_per_second_per_device =
            (double)(p->global * p->sequence) / seconds(b->candidate->step) / (double)r->devices;
        double peak = p->compute == BF16 ? p->cluster.flops_bf16 : p->cluster.flops_fp32;
        const double each[] = {flops.full, flops.causal, i ? 0 : flops.hardware};
        for (int k = 0; k < 3 && peak > 0; k++)
            b->mfu[k] = each[k] * b->tokens_per_second_per_device / peak;
        double apart = (double)(b->candidate->step - r->best[0].candidate->step),
               width = width_of(b->prediction, r->best[0].prediction, &program->machine);
        bool close = apart < RESOLUTION * (double)r->best[0].candidate->step;
        b->apart = close ? 0 : width > 0 ? apart / width : INFINITY;
    }
    return true;
}

/* How the plan of -o names a file: library files by their place there, a neighbour by its name. */
static const char *use_text(const struct tune *t, const char *path)
{
    const char *library = plan_library(), *slash = strrchr(path, '/'),
               *output_slash = strrchr(t->arguments.output, '/');
    size_t n = library ? strlen(library) : 0;
    if (n && !strncmp(path, library, n) && path[n] == '/') return path + n + 1;
    size_t folder = slash ? (size_t)(slash - path) : 0,
           output_folder = output_slash ? (size_t)(output_slash - t->arguments.output) : 0;
    if (folder == output_folder && !strncmp(path, t->arguments.output, folder))
        return slash ? slash + 1 : path;
    char *whole = realpath(path, NULL);
    const char *kept = whole ? text_format("%s", whole) : path;
    free(whole);
    return kept;
}

/* The cluster that --cluster or --set cluster=NAME put in place of the plan's; false: neither. */
static bool other_cluster_of(const struct tune *t, struct other_cluster *to)
{
    const struct arguments *a = &t->arguments;
    *to = (struct other_cluster){.name = t->base->cluster.name};
    if (a->cluster) {
        to->use = use_text(t, a->cluster);
        return true;
    }
    for (int i = a->set.n - 1; i >= 0; i--) {
        if (strncmp(a->set.item[i], "cluster=", 8)) continue;
        const char *file = plan_cluster_file(to->name);
        to->use = file ? use_text(t, file) : NULL;
        return true;
    }
    return false;
}

/* Whether the written plan is the point; else a diagnostic. With --measure the rates are those of
 * the runs, whatever the plan's cluster says. */
static bool is_the_point(const struct tune *t, const int *choice)
{
    const struct tune_rung *r = &t->rung[t->n_rungs - 1];
    const char *const *open_keys;
    int n_open;
    const char *why, *replaced = plan_replaced_cluster();
    const struct plan *wanted = candidate_plan(&t->arguments, r->space, choice, &why);
    if (!t->run.n) plan_replace_cluster(NULL);
    const struct plan *got = plan_load(t->arguments.output, NULL, 0, &open_keys, &n_open);
    plan_replace_cluster(replaced);
    if (!got) return false;
    const resolved_keys a = plan_keys(wanted), b = plan_keys(got);
    for (int i = 0; i < a.n; i++)
        for (int k = 0; k < b.n; k++)
            if (!strcmp(a.item[i].path, b.item[k].path) && strcmp(a.item[i].json, b.item[k].json) &&
                strcmp(a.item[i].path, "activation_checkpoint.mode")) {
                add_help(complain((struct span){0, 0, 0},
                                  "%s was written, but there %s is %s, not %s", t->arguments.output,
                                  a.item[i].path, b.item[k].json, a.item[i].json),
                         "put that key into %s instead of --set", t->path);
                return false;
            }
    return true;
}

/* The plan with its choices in place of what is open. */
static int write_best(const struct tune *t)
{
    const struct tune_rung *r = &t->rung[t->n_rungs - 1];
    const struct space *s = r->space;
    VECTOR(const char *) set = {0};
    for (int i = 0; i < r->n_set; i++) PUSH(&set, r->set[i]);
    int *choice = TAKE_MANY(int, s->n_axes + 1);
    choice_of(s, r->best[0].candidate->number, choice);
    bool moved = t->natural || t->arguments.devices || t->arguments.ladder;
    if (moved && r->plan->cluster.elastic)
        PUSH(&set, intern_format("mesh.dp=%lld", (long long)r->best[0].candidate->place.at.dp));
    else if (moved)
        PUSH(&set, "mesh.dp=auto");
    for (int k = 0; k < s->n_axes; k++)
        PUSH(&set, intern_format("%s=%s", s->axis[k].key, s->axis[k].choice[choice[k]]));
    struct other_cluster other;
    bool exchanged = other_cluster_of(t, &other);
    const char *text = plan_rewrite(t->path, set.item, set.n, exchanged ? &other : NULL);
    if (!text) return EXIT_PLAN;
    if (!file_write(t->arguments.output, text, strlen(text)))
        return command_fail(EXIT_ENVIRONMENT, "-o %s: %s", t->arguments.output, strerror(errno));
    return is_the_point(t, choice) ? EXIT_FINE : EXIT_PLAN;
}

int tune_finish(struct tune *t)
{
    bool fits = true;
    for (int i = 0; i < t->n_rungs; i++) {
        if (!finish_rung(t, &t->rung[i])) return EXIT_PLAN;
        fits = t->rung[i].n_best > 0;
    }
    if (!fits) return EXIT_NO_FIT;
    return t->arguments.output ? write_best(t) : EXIT_FINE;
}

/* ── text ────────────────────────────────────────────────────────────────────── */

static enum verdict verdict_of(const struct candidate *x)
{
    if (x->ruling == RULED_IMPOSSIBLE) return IMPOSSIBLE;
    int64_t bytes = x->peak_bytes > 0 ? x->peak_bytes : x->least_bytes;
    return ledger_verdict(bytes, x->place.limit_bytes);
}

static void print_axes(const struct tune *t, const struct space *s)
{
    if (t->natural)
        printf("  %s leaves nothing open, so these were opened; --set 'mesh.prefetch=1 | 2' opens "
               "others\n",
               t->path);
    for (int k = 0; k < s->n_axes; k++) {
        printf("  %s =", s->axis[k].key);
        for (int i = 0; i < s->axis[k].n; i++) printf("%s %s", i ? " |" : "", s->axis[k].choice[i]);
        printf("\n");
    }
}

static void print_best(const struct tune_rung *r)
{
    const struct tune_best *b = &r->best[0];
    const struct prediction *p = b->prediction;
    printf("  best: %s\n", words_of(r->space, b->candidate->number));
    printf("    %s per step, %s; %s tokens/s per device", search_time_text(b->candidate->step),
           b->candidate->measured
               ? "measured"
               : text_format("%s to %s", search_time_text(p->low), search_time_text(p->high)),
           text_count((int64_t)(b->tokens_per_second_per_device + 0.5)));
    if (b->mfu[0] > 0)
        printf("; MFU %.1f %% (full), %.1f %% (causal)", 100 * b->mfu[0], 100 * b->mfu[1]);
    printf("\n    exposed communication %s; memory %s, %.1f %%: %s; %.0f %% of the step rests on "
           "assumed rows\n",
           search_time_text(p->exposed_all), text_bytes(b->candidate->peak_bytes),
           100 * (double)b->candidate->peak_bytes / (double)b->candidate->place.limit_bytes,
           verdict_names[verdict_of(b->candidate)], 100 * p->assumed);
    if (r->plan->device == DEVICE_CUDA && r->plan->compute == F32)
        printf("    precision.compute = fp32 leaves the tensor cores unused: --set "
               "precision.compute=bf16\n");
}

static void print_table(const struct tune *t, const struct tune_rung *r)
{
    printf("  %12s %14s %7s %12s %12s\n", "step", "tokens/s/dev", "MFU", "exposed", "peak");
    for (int i = 0; i < r->n_best; i++) {
        const struct tune_best *b = &r->best[i];
        const char *mfu = b->mfu[0] > 0 ? text_format("%.1f %%", 100 * b->mfu[0]) : "";
        printf("  %12s %14s %7s %12s %12s  %s\n", search_time_text(b->candidate->step),
               text_count((int64_t)(b->tokens_per_second_per_device + 0.5)), mfu,
               search_time_text(b->prediction->exposed_all), text_bytes(b->candidate->peak_bytes),
               b->text);
        if (i)
            printf("  %12s %s%s\n", "", search_reason(t->candidates, r->search, b->candidate),
                   b->apart <= 1 ? "; not distinguishable from the best: measure both" : "");
    }
}

static bool is_shown(const struct tune_rung *r, const struct candidate *x)
{
    for (int k = 0; k < r->n_best; k++)
        if (r->best[k].candidate == x) return true;
    return false;
}

/* Of a ladder: the points that go on, those that nothing beats in both time and memory. */
static void print_survivors(const struct tune *t, const struct tune_rung *r)
{
    const struct search *s = r->search;
    printf("  survivors (nothing is both faster and smaller)\n");
    for (int i = 0; i < s->n_ranked; i++) {
        const struct candidate *x = &s->candidate[s->ranked[i]];
        if (x->frontier)
            printf("  %12s %12s  %s%s%s\n", search_time_text(x->step), text_bytes(x->peak_bytes),
                   tune_set_text(s->space, x->number), i ? ": " : "",
                   i ? search_reason(t->candidates, r->search, x) : "");
    }
}

/* Reasons of the others, in the order of the axes; those of one impossible rule are one line. */
static void print_others(const struct tune *t, const struct tune_rung *r)
{
    enum { SHOWN = 64 };
    const struct search *s = r->search;
    VECTOR(const char *) said = {0};
    int shown = 0;
    int64_t left = 0;
    for (int64_t i = 0; i < s->candidates; i++) {
        const struct candidate *x = &s->candidate[i];
        bool known = is_shown(r, x);
        for (int k = 0; k < said.n && !known && x->place.why; k++)
            known = said.item[k] == x->place.why;
        if (known) continue;
        if (x->place.why) PUSH(&said, x->place.why);
        if (!shown && !left) printf("  the others\n");
        if (shown++ < SHOWN)
            printf("    %s: %s\n", tune_set_text(s->space, x->number),
                   search_reason(t->candidates, r->search, x));
        else
            left++;
    }
    if (left) printf("    and %s more: --json has every one\n", text_count(left));
}

static void print_rung(const struct tune *t, const struct tune_rung *r)
{
    const struct search *s = r->search;
    printf("%s on %lld device%s", t->path, (long long)r->devices, r->devices == 1 ? "" : "s");
    if (r->plan)
        printf(", %s sequences of %lld per step", text_count(r->plan->global),
               (long long)r->plan->sequence);
    printf("\n");
    if (r == t->rung) print_axes(t, s->space);
    printf("  %s points: %s possible, %s laid out, %s simulated%s\n", text_count(s->candidates),
           text_count(s->possible), text_count(s->layouts), text_count(s->simulations),
           s->simulations ? text_format(", %.1f times fewer than all",
                                        (double)s->possible / (double)s->simulations)
                          : "");
    if (!r->n_best)
        printf("  nothing fits: --set mesh.fsdp, activation_checkpoint.mode=full and "
               "batch.loss_chunks lower the memory; planc check says by how much\n");
    else
        print_best(r), print_table(t, r);
    if (t->n_rungs > 1 && r->n_best)
        print_survivors(t, r);
    else
        print_others(t, r);
}

void tune_print(const struct tune *t)
{
    for (int i = 0; i < t->n_rungs; i++) {
        print_rung(t, &t->rung[i]);
        if (!i) tune_print_runs(t);
    }
    tune_print_ladder(t);
    if (t->arguments.output && t->rung[t->n_rungs - 1].n_best)
        printf("%s has the best as a plan\n", t->arguments.output);
    printf("searched in %.2f s\n", t->seconds);
}

/* ── JSON ────────────────────────────────────────────────────────────────────── */

json_t *tune_set_json(const struct space *s, int64_t number)
{
    json_t *set = json_array();
    int *choice = TAKE_MANY(int, s->n_axes + 1);
    choice_of(s, number, choice);
    for (int k = 0; k < s->n_axes; k++)
        json_array_append_new(set, json_string(utf8_text(text_format(
                                       "%s=%s", s->axis[k].key, s->axis[k].choice[choice[k]]))));
    return set;
}

static json_t *mfu_json(const struct tune_best *b)
{
    json_t *o = json_pack("{s:f, s:f}", "full", b->mfu[0], "causal", b->mfu[1]);
    if (b->mfu[2] > 0) json_object_set_new(o, "hardware", json_real(b->mfu[2]));
    return o;
}

static json_t *candidate_json(const struct tune *t, const struct tune_rung *r,
                              const struct candidate *x, bool frontier)
{
    json_t *o =
        json_pack("{s:o, s:I, s:s, s:s}", "set", tune_set_json(r->space, x->number), "devices",
                  (json_int_t)r->devices, "verdict", verdict_names[verdict_of(x)], "reason",
                  utf8_text(search_reason(t->candidates, r->search, x)));
    if (x->peak_bytes > 0)
        json_object_set_new(o, "peak_bytes", json_integer((json_int_t)x->peak_bytes));
    if (x->step) json_object_set_new(o, "step_seconds", json_real(seconds(x->step)));
    if (x->least_step)
        json_object_set_new(o, "least_step_seconds", json_real(seconds(x->least_step)));
    if (x->measured) json_object_set_new(o, "measured", json_true());
    if (x->step && frontier) json_object_set_new(o, "frontier", json_boolean(x->frontier));
    for (int i = 0; i < r->n_best; i++)
        if (r->best[i].candidate == x) {
            json_object_set_new(o, "rank", json_integer(i + 1));
            json_object_set_new(o, "distinguishable", json_boolean(i && r->best[i].apart > 1));
            if (r->best[i].mfu[0] > 0) json_object_set_new(o, "mfu", mfu_json(&r->best[i]));
        }
    return o;
}

static json_t *best_json(const struct tune *t, const struct tune_rung *r)
{
    const struct tune_best *b = &r->best[0];
    const struct candidate *x = b->candidate;
    json_t *o = candidate_json(t, r, x, false);
    const struct prediction *p = b->prediction;
    json_t *more = json_pack(
        "{s:{s:I, s:I}, s:I, s:I, s:I, s:[f,f], s:f, s:f, s:I, s:f}", "mesh", "fsdp",
        (json_int_t)x->place.at.fsdp, "dp", (json_int_t)x->place.at.dp, "local",
        (json_int_t)x->place.at.local, "accumulation", (json_int_t)x->place.at.accumulation,
        "global", (json_int_t)x->place.global, "step_seconds_interval", seconds(p->low),
        seconds(p->high), "tokens_per_second_per_device", b->tokens_per_second_per_device,
        "exposed_comm_seconds", seconds(p->exposed_all), "limit_bytes",
        (json_int_t)x->place.limit_bytes, "assumed_fraction", p->assumed);
    json_object_update(o, more);
    return o;
}

static json_t *rung_json(const struct tune *t, const struct tune_rung *r)
{
    const struct search *s = r->search;
    json_t *o = json_pack("{s:I, s:o, s:I, s:I}", "devices", (json_int_t)r->devices, "best",
                          r->n_best ? best_json(t, r) : json_null(), "simulations",
                          (json_int_t)s->simulations, "possible", (json_int_t)s->possible),
           *survivors = json_array();
    for (int i = 0; i < s->n_ranked && t->arguments.ladder; i++)
        if (s->candidate[s->ranked[i]].frontier)
            json_array_append_new(survivors,
                                  tune_set_json(s->space, s->candidate[s->ranked[i]].number));
    if (t->arguments.ladder) json_object_set_new(o, "survivors", survivors);
    return o;
}

void tune_print_json(const struct tune *t)
{
    const struct tune_rung *top = &t->rung[t->n_rungs - 1];
    json_t *candidates = json_array(), *rungs = json_array();
    int64_t simulations = 0, layouts = 0;
    for (int k = 0; k < t->n_rungs; k++) {
        const struct tune_rung *r = &t->rung[k];
        for (int64_t i = 0; i < r->search->candidates; i++)
            json_array_append_new(candidates, candidate_json(t, r, &r->search->candidate[i],
                                                             t->arguments.ladder != NULL));
        json_array_append_new(rungs, rung_json(t, r));
        simulations += r->search->simulations, layouts += r->search->layouts;
    }
    json_t *o = json_pack("{s:s, s:o, s:o, s:o, s:I, s:I, s:f}", "plan", utf8_text(t->path), "best",
                          top->n_best ? best_json(t, top) : json_null(), "rungs", rungs,
                          "candidates", candidates, "simulations", (json_int_t)simulations,
                          "layouts", (json_int_t)layouts, "seconds", t->seconds);
    if (t->n_rungs > 1 && top->n_best) json_object_set_new(o, "ladder", tune_ladder_json(t));
    if (t->run.n) json_object_set_new(o, "measured", tune_runs_json(t));
    printf("%s\n", json_dumps(o, JSON_INDENT(2)));
}
