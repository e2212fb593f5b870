/* `planc check`: is the plan valid, and does it fit? All passes run up to the memory layout, so the
 * answer is the allocation itself. Exit status 2 if a plan is valid and too large. */
#define _POSIX_C_SOURCE 200809L
#include "commands/command.h"
#include "passes/pipeline.h"
#include "analysis/ledger.h"
#include "analysis/repair.h"
#include "analysis/space.h"
#include "analysis/trainer.h"
#include "base/escape.h"

#include <jansson.h>
#include <string.h>

/* As the plan writes element types. */
static const char *type_word(enum element type) { return type == BF16 ? "bf16" : "fp32"; }
/* What stays for every parameter of a shard: the weight, its gradient, two moments, all F32. */
enum { STATE_BYTES = 4 * 4 };

/* Hyper-parameters that the plan leaves to the architecture. What has no effect is left out. */
static bool is_default(const struct plan *p, int i)
{
    static const char *const scaling[] = {"rope_low", "rope_high", "rope_original"};
    const struct span at = p->hyper[i].at, body = p->architecture_body->at;
    for (size_t k = 0; k < COUNT_OF(scaling); k++)
        for (int j = 0; j < p->n_hyper && !strcmp(p->hyper[i].name, scaling[k]); j++)
            if (!strcmp(p->hyper[j].name, "rope_factor") && p->hyper[j].value.number <= 1)
                return false;
    return at.file == body.file && at.from >= body.from && at.to <= body.to;
}

static void print_defaults(const struct plan *p)
{
    int n = 0;
    for (int i = 0; i < p->n_hyper; i++)
        if (is_default(p, i))
            printf("%s%s = %s", n++ ? ", " : "  defaults    ", p->hyper[i].name,
                   constant_text(&p->hyper[i].value));
    if (n) printf("  (of %s, where the plan says nothing)\n", p->architecture);
}

static json_t *defaults_json(const struct plan *p)
{
    json_t *all = json_object();
    for (int i = 0; i < p->n_hyper; i++)
        if (is_default(p, i))
            json_object_set_new(all, p->hyper[i].name,
                                json_string(utf8_text(constant_text(&p->hyper[i].value))));
    return all;
}

static json_t *as_json(const char *path, const struct plan *p, const struct ledger *l)
{
    json_t *all = ledger_json(path, l, false);
    json_object_set_new(all, "precision",
                        json_pack("{s:s, s:s, s:s, s:s}", "compute", type_word(p->compute),
                                  "master", type_word(F32), "gradients", type_word(F32), "moments",
                                  type_word(F32)));
    json_object_set_new(all, "mesh",
                        json_pack("{s:I, s:I, s:s}", "fsdp", (json_int_t)p->fsdp, "dp",
                                  (json_int_t)p->dp, "optimizer",
                                  p->optimizer_all ? "all" : "shard"));
    json_object_set_new(all, "defaults", defaults_json(p));
    json_object_set_new(all, "activation_checkpoint",
                        json_pack("{s:s, s:s}", "wished", checkpoint_names[p->checkpoint_wished],
                                  "mode", checkpoint_names[p->checkpoint_mode]));
    json_object_set_new(all, "loss_chunks", json_integer((json_int_t)p->loss_chunks));
    json_object_set_new(all, "accumulation", json_integer((json_int_t)p->accumulation));
    json_object_set_new(all, "tokens_per_step",
                        json_integer((json_int_t)(p->global * p->sequence)));
    json_object_set_new(all, "state_bytes_per_parameter", json_integer(STATE_BYTES));
    json_object_set_new(all, "flops_per_token",
                        json_pack("{s:I, s:I, s:I}", "full", (json_int_t)l->flops.full, "causal",
                                  (json_int_t)l->flops.causal, "hardware",
                                  (json_int_t)l->flops.hardware));
    return all;
}

/* "27.91 G", for people. */
static const char *giga(double x)
{
    return text_format("%.4g %s", x < 1e9 ? x / 1e6 : x / 1e9, x < 1e9 ? "M" : "G");
}

/* Whose memory is the limit when the plan does not say what a device offers. */
static const char *machine_text(const struct plan *p)
{
    return p->device == DEVICE_CPU ? "this machine's available memory / ranks"
                                   : text_format("this machine's available memory / ranks: cluster "
                                                 "%s does not say what a cuda device offers",
                                                 p->cluster.name);
}

static double ratio(int64_t a, int64_t b) { return b ? (double)a / (double)b : 1; }

/* What is kept for the backward pass, and who chose it. */
static void print_kept(const struct plan *p)
{
    const char *why = "", *cut = "";
    if (p->checkpoint_wished == CHECKPOINT_AUTO && !p->trainer.name)
        why = p->checkpoint_mode == CHECKPOINT_SELECTIVE
                  ? " (auto: it computes no product again)"
                  : " (auto: selective would compute products again)";
    if (p->checkpoint_wished == CHECKPOINT_BUDGET) why = " (within the budget)";
    if (!p->chunks_wished && p->loss_chunks > 1)
        cut = p->checkpoint_wished == CHECKPOINT_BUDGET ? " (so less is computed again)"
                                                        : " (in fewer it does not fit)";
    printf("  checkpoint  %s%s; loss in %lld chunk%s%s\n", checkpoint_names[p->checkpoint_mode],
           why, (long long)p->loss_chunks, p->loss_chunks == 1 ? "" : "s", cut);
}

/* The mesh, what a step takes, and how it trains: what a person wants to see before starting. */
static void print_step(const struct plan *p)
{
    static const char *const way[] = {[SCHEDULE_CONSTANT] = "constant",
                                      [SCHEDULE_COSINE] = "cosine",
                                      [SCHEDULE_LINEAR] = "linear",
                                      [SCHEDULE_WSD] = "wsd"};
    int64_t devices = p->fsdp * p->dp;
    printf("  mesh        fsdp %lld x dp %lld = %lld device%s", (long long)p->fsdp,
           (long long)p->dp, (long long)devices, devices == 1 ? "" : "s");
    if (!p->cluster.elastic)
        printf(", %lld node%s of %lld", (long long)p->cluster.nodes,
               p->cluster.nodes == 1 ? "" : "s", (long long)p->cluster.devices_per_node);
    if (plan_parts_optimizer(p)) printf("; the optimizer over all");
    printf("\n  step        %s tokens: %lld sequences of %lld, local %lld x %lld device%s x "
           "accumulation %lld\n",
           text_count(p->global * p->sequence), (long long)p->global, (long long)p->sequence,
           (long long)p->local, (long long)devices, devices == 1 ? "" : "s",
           (long long)p->accumulation);
    print_kept(p);
    printf("  training    adamw, lr %s, betas %s %s, eps %s, weight decay %s, clip %s; %s",
           text_number(p->lr), text_number(p->beta1), text_number(p->beta2), text_number(p->eps),
           text_number(p->weight_decay), p->clip > 0 ? text_number(p->clip) : "off",
           way[p->schedule]);
    if (p->run_steps)
        printf("; %s steps, %.4g G tokens", text_count(p->run_steps),
               (double)p->run_steps * (double)p->global * (double)p->sequence * 1e-9);
    if (!p->n_data_train || !p->run_steps)
        printf("; the trainer will want%s%s%s",
               p->n_data_train ? "" : " data { train = \"tokens-*.bin\" }",
               p->n_data_train || p->run_steps ? "" : " and",
               p->run_steps ? "" : " steps: run { steps }, schedule { steps } or --steps");
    printf("\n");
}

/* "16 B per parameter / 8 shards" */
static const char *state_text(const struct plan *p)
{
    const char *shards = text_format("%lld shard%s", (long long)p->fsdp, p->fsdp == 1 ? "" : "s");
    if (!plan_parts_optimizer(p))
        return text_format("%d B per parameter / %s", STATE_BYTES, shards);
    const bool whole = p->accumulation > 1; /* gradients of several micro-batches are added up */
    return text_format("%d B per parameter / %lld devices; %s%s weights / %s",
                       STATE_BYTES - (whole ? 4 : 0), (long long)(p->fsdp * p->dp),
                       whole ? text_format("%s gradients and ", type_word(F32)) : "",
                       type_word(p->compute), shards);
}

static void print_text(const char *path, const struct plan *p, const struct ledger *l,
                       double seconds)
{
    printf("%s: %s, %.1f %% of what each of %lld device%s offers (%s)\n", path,
           verdict_names[l->verdict], 100 * (double)l->peak_bytes / (double)l->limit_bytes,
           (long long)l->devices, l->devices == 1 ? "" : "s", ledger_device(p));
    printf("  parameters  %s", text_count(l->parameters));
    if (l->active_parameters != l->parameters)
        printf("  (%s active)", text_count(l->active_parameters));
    printf("\n  FLOPs       %s per token (full), %s (causal), %s (hardware)", giga(l->flops.full),
           giga(l->flops.causal), giga(l->flops.hardware));
    printf("\n  precision   %s weights, %s gradients, two %s moments: %s; computes in %s\n",
           type_word(F32), type_word(F32), type_word(F32), state_text(p), type_word(p->compute));
    print_defaults(p);
    print_step(p);
    printf("  peak        %s at %s\n", text_bytes(l->peak_bytes), l->peak_at);
    printf("  arena       %s  (what the trainer allocates)\n", text_bytes(l->arena_bytes));
    printf("  outside     %s\n", text_bytes(l->outside_bytes));
    printf("  limit       %s  (%s); above 97 %% of it, %s, a plan exceeds\n",
           text_bytes(l->limit_bytes),
           l->limit_is_machine ? machine_text(p) : "from the cluster of the plan",
           text_bytes(l->peak_bytes - ledger_over(l)));
    if (l->host_bytes && p->device == DEVICE_CUDA)
        printf("  host        %s per host for copies of checkpoints being written; %s\n",
               text_bytes(l->host_bytes),
               l->host_limit_bytes ? text_format("it has %s", text_bytes(l->host_limit_bytes))
                                   : "cluster.host_memory does not say what it has");
    if (l->peak_bytes <= l->limit_bytes)
        printf("  margin      %s\n", text_bytes(l->limit_bytes - l->peak_bytes));
    printf("  layout      %.4f x the bytes that are live at the peak\n",
           ratio(l->arena_bytes, l->fullest_bytes));
    for (int i = 0; i < l->term.n; i++)
        if (l->term.item[i].inside)
            printf("    %12s  %-14s %s\n", text_bytes(l->term.item[i].bytes), l->term.item[i].name,
                   l->term.item[i].formula);
    printf("  checked in %.1f ms; planc memory shows every buffer\n", seconds * 1e3);
}

/* Over by how much, where, and who sits there. */
static void print_excess(const struct plan *p, const struct graph *g, const struct ledger *l)
{
    const struct holding *all[3] = {0};
    const char *file;
    int line;
    const char *deed = ledger_deed(g, l->peak_step, &file, &line);
    printf("  over by     %s above 97 %% of the limit, at %s: %s%s\n", text_bytes(ledger_over(l)),
           l->peak_at, deed, file ? text_format("  (%s:%d)", file, line) : "");
    for (int i = 0; i < l->term.n; i++)
        for (int k = 0; k < l->term.item[i].holding.n; k++) {
            const struct holding *h = &l->term.item[i].holding.item[k];
            for (int n = 0; n < 3; n++)
                if (!all[n] || h->bytes > all[n]->bytes) {
                    for (int m = 2; m > n; m--) all[m] = all[m - 1];
                    all[n] = h;
                    break;
                }
        }
    printf("  the three largest buffers:\n");
    for (int n = 0; n < 3 && all[n]; n++)
        printf("    %12s  %s: %s  (%s:%d)\n", text_bytes(all[n]->bytes), all[n]->name,
               all[n]->formula, all[n]->file ? all[n]->file : p->path, all[n]->line);
}

/* Nothing of the device is in the way. */
static bool only_host_exceeds(const struct ledger *l)
{
    return ledger_verdict(l->peak_bytes, l->limit_bytes) != EXCEEDS;
}

static void print_host_excess(const struct ledger *l)
{
    printf("  over by     %s of host memory, for copies of checkpoints being written: "
           "checkpoint { async = off } writes while the run waits and needs none\n",
           text_bytes(l->host_bytes - l->host_limit_bytes));
}

/* A run of another trainer: its memory against what the device offers. */
static int check_trainer(const char *path, const struct plan *p, struct graph *lowered, json_t *all)
{
    int64_t limit;
    if (!ledger_limit(p, &limit)) return EXIT_ENVIRONMENT;
    const struct trainer_memory m = trainer_memory(p, lowered, limit);
    const enum verdict v = ledger_verdict(m.reserved, limit);
    if (all)
        json_array_append_new(all, trainer_json(path, p, &m, limit));
    else
        trainer_print(path, p, &m, limit);
    data_files_check(p);
    return v == EXCEEDS ? EXIT_NO_FIT : EXIT_FINE;
}

/* One plan; its JSON goes into `all` when that is wanted. */
static int check_one(const struct arguments *a, const char *path, json_t *all)
{
    double start = command_clock();
    int status;
    struct space *space;
    struct plan *plan = command_plan_or_space(a, path, &space, &status);
    if (space && space->trainer)
        return command_fail(EXIT_USAGE,
                            "%s has open keys; a run of another trainer is answered "
                            "one plan at a time",
                            path);
    if (space) return check_space(a, space, path, all);
    struct graph *g = plan ? pass_lower(plan) : NULL;
    if (!g) return plan ? EXIT_PLAN : status;
    if (plan->trainer.name) return check_trainer(path, plan, g, all);
    g = pipeline_run(g, LEVEL_MEMORY);
    if (!g) return EXIT_PLAN;
    const struct ledger *l = ledger_read(plan, g);
    if (!l) return EXIT_ENVIRONMENT;
    bool exceeds = l->verdict == EXCEEDS;
    repair_list repairs = {0};
    const bool host = exceeds && only_host_exceeds(l);
    if (exceeds && !host) repairs = repairs_find(a, path, plan, g, l);
    const repair_list advice = exceeds ? (repair_list){0} : advice_find(a, path, plan, g, l);
    double seconds = command_clock() - start;
    if (all) {
        json_t *o = as_json(path, plan, l);
        json_object_set_new(o, "repairs", repairs_json(&repairs));
        json_object_set_new(o, "advice", repairs_json(&advice));
        json_array_append_new(all, o);
    } else {
        print_text(path, plan, l, seconds);
        if (host)
            print_host_excess(l);
        else if (exceeds)
            print_excess(plan, g, l), repairs_print(&repairs, plan);
        else
            advice_print(&advice);
    }
    data_files_check(plan);
    if (l->verdict == TIGHT)
        warn(plan->model_at, "tight: %s of %s", text_bytes(l->peak_bytes),
             text_bytes(l->limit_bytes));
    if (!exceeds) return EXIT_FINE;
    return EXIT_NO_FIT;
}

int command_check(const struct arguments *a)
{
    if (!a->word.n) return command_fail(EXIT_USAGE, "check wants a plan");
    json_in_arena();
    json_t *all = a->json ? json_array() : NULL;
    int worst = EXIT_FINE;
    for (int i = 0; i < a->word.n; i++) {
        if (i && !a->json && !error_count()) printf("\n");
        int status = check_one(a, a->word.item[i], all);
        /* a plan that is wrong outweighs one that is too large; what failed around them outweighs
         * both */
        if (status == EXIT_ENVIRONMENT || (status == EXIT_PLAN && worst != EXIT_ENVIRONMENT) ||
            worst == EXIT_FINE)
            worst = status;
        if (a->word.n > 1 && !a->json) {
            diagnostics_print(stderr, a->colour);
            diagnostics_reset();
        }
    }
    if (!all || worst == EXIT_PLAN || worst == EXIT_ENVIRONMENT) return worst;
    printf("%s\n", json_dumps(a->word.n == 1 ? json_array_get(all, 0) : all, JSON_INDENT(2)));
    return worst;
}
