/* What `planc tune` found, as text and as JSON: the best with their predictions, the reason of
 * every other point, and the plan of -o. */
#include "base/escape.h"
#include "passes/pipeline.h"
#include "commands/tune.h"
#include "ir/cost.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static double seconds(int64_t picoseconds) { return (double)picoseconds * 1e-12; }

static const char *time_text(int64_t picoseconds)
{
    double s = seconds(picoseconds);
    return s >= 1      ? text_format("%.3f s", s)
           : s >= 1e-3 ? text_format("%.3f ms", s * 1e3)
                       : text_format("%.1f us", s * 1e6);
}

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

static const char *set_of(const struct space *s, int64_t number)
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
        b->text = set_of(r->space, b->candidate->number);
        choice_of(r->space, b->candidate->number, choice);
        candidate_step(t->candidates, r->space, choice, &b->candidate->place, &b->prediction,
                       &program, NULL);
        const char *why;
        const struct plan *p = candidate_plan(t->candidates, r->space, choice, &why);
        if (!i) { /* the answer is compiled as a command would compile it */
            struct graph *g = p ? pass_lower(p) : NULL;
            if (g) g = pipeline_run(g, LEVEL_MEMORY);
            if (!g) return false;
            flops = cost_flops_per_token(g);
            struct program *same;
            const struct prediction *again = predict(p, g, &same);
            if (!again || again->step != b->candidate->step ||
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

/* The plan with its choices in place of what is open. */
static int write_best(const struct tune *t)
{
    const struct tune_rung *r = &t->rung[t->n_rungs - 1];
    const struct space *s = r->space;
    VECTOR(const char *) set = {0};
    for (int i = 0; i < r->n_set; i++) PUSH(&set, r->set[i]);
    int *choice = TAKE_MANY(int, s->n_axes + 1);
    choice_of(s, r->best[0].candidate->number, choice);
    PUSH(&set, intern_format("mesh.dp=%lld", (long long)r->best[0].candidate->place.at.dp));
    if (!t->natural && !t->arguments.devices && !t->arguments.ladder)
        set.n--;
    else if (!r->plan->cluster.elastic)
        set.item[set.n - 1] = "mesh.dp=auto";
    for (int k = 0; k < s->n_axes; k++)
        PUSH(&set, intern_format("%s=%s", s->axis[k].key, s->axis[k].choice[choice[k]]));
    const char *text = plan_rewrite(t->path, set.item, set.n);
    if (!text) return EXIT_PLAN;
    if (!file_write(t->arguments.output, text, strlen(text)))
        return command_fail(EXIT_ENVIRONMENT, "-o %s: %s", t->arguments.output, strerror(errno));
    const char *const *open_keys;
    int n_open;
    const char *why;
    const struct plan *wanted = candidate_plan(t->candidates, s, choice, &why),
                      *got = plan_load(t->arguments.output, NULL, 0, &open_keys, &n_open);
    if (!got) return EXIT_PLAN;
    const resolved_keys a = plan_keys(wanted), b = plan_keys(got);
    for (int i = 0; i < a.n; i++)
        for (int k = 0; k < b.n; k++)
            if (!strcmp(a.item[i].path, b.item[k].path) && strcmp(a.item[i].json, b.item[k].json) &&
                strcmp(a.item[i].path, "activation_checkpoint.mode")) {
                add_help(complain((struct span){0, 0, 0},
                                  "%s was written, but there %s is %s, not %s", t->arguments.output,
                                  a.item[i].path, b.item[k].json, a.item[i].json),
                         "put that key into %s instead of --set", t->path);
                return EXIT_PLAN;
            }
    return EXIT_FINE;
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

/* ── reasons ─────────────────────────────────────────────────────────────────── */

static int64_t most_bytes(const struct candidate *x)
{
    return (int64_t)(0.97 * (double)x->place.limit_bytes);
}

static double percent(int64_t x, int64_t least) { return 100 * ((double)x / (double)least - 1); }

/* The part of the step that is longest beyond that of the best. */
static const char *longer_part(const struct candidate *x, const struct candidate *best)
{
    int most = 0;
    for (int i = 1; i < TIME_PARTS; i++)
        if (x->parts.part[i] - best->parts.part[i] > x->parts.part[most] - best->parts.part[most])
            most = i;
    return text_format("%s takes %s more", time_part_name(most),
                       time_text(x->parts.part[most] - best->parts.part[most]));
}

const char *tune_reason(const struct tune_rung *r, const struct candidate *x)
{
    const struct candidate *best = r->n_best ? r->best[0].candidate : NULL;
    switch (x->ruling) {
    case RULED_IMPOSSIBLE: return x->place.why;
    case RULED_EXCEEDS_BOUND:
        return text_format("exceeds by %s or more: so much is alive at once",
                           text_bytes(x->least_bytes - most_bytes(x)));
    case RULED_EXCEEDS:
        return text_format("exceeds by %s", text_bytes(x->peak_bytes - most_bytes(x)));
    case RULED_BOUND:
        return text_format("takes %s or more, %.1f %% above the best: not simulated",
                           time_text(x->least_step), percent(x->least_step, best->step));
    case RULED_SLOWER:
        if (x->step == best->step) return "as fast; memory or text decides";
        return text_format("slower by %.1f %%: %s", percent(x->step, best->step),
                           longer_part(x, best));
    case RULED_BEST: return "the best";
    }
    bug("no reason");
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
    printf("    %s per step, %s to %s; %s tokens/s per device", time_text(b->candidate->step),
           time_text(p->low), time_text(p->high),
           text_count((int64_t)(b->tokens_per_second_per_device + 0.5)));
    if (b->mfu[0] > 0)
        printf("; MFU %.1f %% (full), %.1f %% (causal)", 100 * b->mfu[0], 100 * b->mfu[1]);
    printf("\n    exposed communication %s; memory %s, %.1f %%: %s; %.0f %% of the step rests on "
           "assumed rows\n",
           time_text(p->exposed_all), text_bytes(b->candidate->peak_bytes),
           100 * (double)b->candidate->peak_bytes / (double)b->candidate->place.limit_bytes,
           verdict_names[verdict_of(b->candidate)], 100 * p->assumed);
}

static void print_table(const struct tune_rung *r)
{
    printf("  %12s %14s %7s %12s %12s\n", "step", "tokens/s/dev", "MFU", "exposed", "peak");
    for (int i = 0; i < r->n_best; i++) {
        const struct tune_best *b = &r->best[i];
        const char *mfu = b->mfu[0] > 0 ? text_format("%.1f %%", 100 * b->mfu[0]) : "";
        printf("  %12s %14s %7s %12s %12s  %s\n", time_text(b->candidate->step),
               text_count((int64_t)(b->tokens_per_second_per_device + 0.5)), mfu,
               time_text(b->prediction->exposed_all), text_bytes(b->candidate->peak_bytes),
               b->text);
        if (i)
            printf("  %12s %s%s\n", "", tune_reason(r, b->candidate),
                   b->apart <= 1 ? "; not distinguishable from the best: measure both" : "");
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
        bool known = false;
        for (int k = 0; k < r->n_best; k++) known |= r->best[k].candidate == x;
        for (int k = 0; k < said.n && !known && x->place.why; k++)
            known = said.item[k] == x->place.why;
        if (known || (t->n_rungs > 1 && !x->frontier)) continue;
        if (x->place.why) PUSH(&said, x->place.why);
        if (!shown && !left)
            printf(t->n_rungs > 1 ? "  nothing faster needs less memory than the best and\n"
                                  : "  the others\n");
        if (shown++ < SHOWN)
            printf("    %s: %s%s\n", set_of(s->space, i),
                   t->n_rungs > 1 ? text_format("%s, ", text_bytes(x->peak_bytes)) : "",
                   tune_reason(r, x));
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
        printf(", %s sequences of %lld a step", text_count(r->plan->global),
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
        print_best(r), print_table(r);
    print_others(t, r);
}

void tune_print(const struct tune *t)
{
    for (int i = 0; i < t->n_rungs; i++) print_rung(t, &t->rung[i]);
    tune_print_ladder(t);
    if (t->arguments.output && t->rung[t->n_rungs - 1].n_best)
        printf("%s has the best as a plan\n", t->arguments.output);
    printf("searched in %.2f s\n", t->seconds);
}

/* ── JSON ────────────────────────────────────────────────────────────────────── */

static json_t *set_json(const struct space *s, int64_t number)
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

static json_t *candidate_json(const struct tune_rung *r, const struct candidate *x, bool frontier)
{
    json_t *o = json_pack("{s:o, s:I, s:s, s:s}", "set", set_json(r->space, x->number), "devices",
                          (json_int_t)r->devices, "verdict", verdict_names[verdict_of(x)], "reason",
                          utf8_text(tune_reason(r, x)));
    if (x->peak_bytes > 0)
        json_object_set_new(o, "peak_bytes", json_integer((json_int_t)x->peak_bytes));
    if (x->step) json_object_set_new(o, "step_seconds", json_real(seconds(x->step)));
    if (x->least_step)
        json_object_set_new(o, "least_step_seconds", json_real(seconds(x->least_step)));
    if (x->step && frontier) json_object_set_new(o, "frontier", json_boolean(x->frontier));
    for (int i = 0; i < r->n_best; i++)
        if (r->best[i].candidate == x) {
            json_object_set_new(o, "rank", json_integer(i + 1));
            json_object_set_new(o, "distinguishable", json_boolean(i && r->best[i].apart > 1));
            if (r->best[i].mfu[0] > 0) json_object_set_new(o, "mfu", mfu_json(&r->best[i]));
        }
    return o;
}

static json_t *best_json(const struct tune_rung *r)
{
    const struct tune_best *b = &r->best[0];
    const struct candidate *x = b->candidate;
    json_t *o = candidate_json(r, x, false);
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

void tune_print_json(const struct tune *t)
{
    const struct tune_rung *top = &t->rung[t->n_rungs - 1];
    json_t *candidates = json_array(), *rungs = json_array();
    int64_t simulations = 0, layouts = 0;
    for (int k = 0; k < t->n_rungs; k++) {
        const struct tune_rung *r = &t->rung[k];
        for (int64_t i = 0; i < r->search->candidates; i++)
            json_array_append_new(candidates, candidate_json(r, &r->search->candidate[i],
                                                             t->arguments.ladder != NULL));
        json_array_append_new(rungs,
                              json_pack("{s:I, s:o, s:I, s:I}", "devices", (json_int_t)r->devices,
                                        "best", r->n_best ? best_json(r) : json_null(),
                                        "simulations", (json_int_t)r->search->simulations,
                                        "possible", (json_int_t)r->search->possible));
        simulations += r->search->simulations, layouts += r->search->layouts;
    }
    json_t *o = json_pack("{s:s, s:o, s:o, s:o, s:I, s:I, s:f}", "plan", utf8_text(t->path), "best",
                          top->n_best ? best_json(top) : json_null(), "rungs", rungs, "candidates",
                          candidates, "simulations", (json_int_t)simulations, "layouts",
                          (json_int_t)layouts, "seconds", t->seconds);
    printf("%s\n", json_dumps(o, JSON_INDENT(2)));
}
