/* `planc tune`: which plan to run. Every open choice of a plan is resolved by predicted time, by
 * exact branch and bound (compiler/search); a plan without open keys gets the natural ones. Points
 * are compared at one global batch and on one number of devices, so they train the same. */
#define _POSIX_C_SOURCE 200809L
#include "analysis/rungs.h"
#include "commands/calibrate.h"
#include "commands/command.h"
#include "commands/tune.h"
#include "passes/budget.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ── what is open ────────────────────────────────────────────────────────────── */

static void set(struct arguments *a, const char *key, const char *value)
{
    PUSH(&a->set, intern_format("%s=%s", key, value));
}

static struct arguments with_own_settings(const struct arguments *given)
{
    struct arguments a = *given;
    memset(&a.set, 0, sizeof a.set);
    for (int i = 0; i < given->set.n; i++) PUSH(&a.set, given->set.item[i]);
    return a;
}

static void add_choice(struct text *to, int64_t x)
{
    text_add(to, "%s%lld", to->length ? " | " : "", (long long)x);
}

/* Shards: every divisor of the devices. */
static const char *divisors(int64_t devices)
{
    struct text t = {0};
    for (int64_t x = 1; x <= devices; x++)
        if (devices % x == 0) add_choice(&t, x);
    return t.bytes;
}

/* Powers of two up to `most`, and the number that the plan has. */
static const char *powers(int64_t most, int64_t own, int64_t step)
{
    struct text t = {0};
    bool had = false;
    for (int64_t x = 1; x <= most; x *= step) {
        if (own < x && !had) add_choice(&t, own);
        had |= own <= x;
        add_choice(&t, x);
    }
    if (!had) add_choice(&t, own);
    return t.bytes;
}

/* Whether the command line gives the key a value. */
static bool is_held(const struct arguments *given, const char *key)
{
    const size_t length = strlen(key);
    for (int i = 0; i < given->set.n; i++) {
        const char *word = given->set.item[i] + strspn(given->set.item[i], " ");
        if (strncmp(word, key, length)) continue;
        if (word[length + strspn(word + length, " ")] == '=') return true;
    }
    return false;
}

/* Whether the command line gives a number of replicas; `auto` is none. */
static bool replicas_held(const struct arguments *given, const struct plan *p)
{
    return is_held(given, "mesh.dp") && p->given.dp.file;
}

static void open_key(struct arguments *a, const struct arguments *given, const char *key,
                     const char *choices)
{
    if (!is_held(given, key)) set(a, key, choices);
}

/* Opens what a plan without open keys may leave to a search, but for what the command line gives.
 * `devices`: of the largest rung. */
static void open_natural(struct arguments *a, const struct arguments *given, const struct plan *p,
                         int64_t devices)
{
    int64_t each = p->global / devices, local = each < 1 ? 1 : each > 16 ? 16 : each;
    if (!replicas_held(given, p)) {
        open_key(a, given, "mesh.fsdp", divisors(devices));
        if (!p->cluster.elastic) set(a, "mesh.dp", "auto");
    }
    open_key(a, given, "mesh.optimizer", "shard | all");
    open_key(a, given, "activation_checkpoint.mode", "none | selective | full");
    open_key(a, given, "batch.local", powers(local, p->local, 2));
    open_key(a, given, "batch.loss_chunks", powers(8, p->loss_chunks, 8));
}

/* Puts the mesh on so many devices: what is given stays, the other factor follows. False with a
 * diagnostic. */
static bool set_mesh(struct arguments *a, const struct tune *t, int64_t devices)
{
    const struct plan *p = t->base;
    if (t->natural && replicas_held(t->given, p)) {
        if (is_held(t->given, "mesh.fsdp")) return true;
        if (devices % p->dp) {
            add_help(complain(p->given.dp, "%lld devices are no whole number of %lld replicas",
                              (long long)devices, (long long)p->dp),
                     "without it, tune tries every number of replicas");
            return false;
        }
        set(a, "mesh.fsdp", text_format("%lld", (long long)(devices / p->dp)));
    } else if (p->cluster.elastic && (t->natural || !p->given.dp.file))
        set(a, "mesh.dp", text_format("%lld / mesh.fsdp", (long long)devices));
    return true;
}

/* The words that put a plan on so many devices. False with a diagnostic. */
static bool set_devices(struct arguments *a, const struct tune *t, int64_t devices)
{
    const struct plan *p = t->base;
    int64_t each = p->cluster.devices_per_node;
    if (!set_mesh(a, t, devices)) return false;
    if (p->cluster.elastic) return true;
    if (devices < each) {
        set(a, "cluster.nodes", "1");
        set(a, "cluster.devices_per_node", text_format("%lld", (long long)devices));
        return true;
    }
    if (devices % each) {
        complain(p->cluster.at, "%lld devices are no whole nodes of %lld", (long long)devices,
                 (long long)each);
        return false;
    }
    set(a, "cluster.nodes", text_format("%lld", (long long)(devices / each)));
    return true;
}

/* Points on different numbers of devices train the same, but say nothing about one machine. False
 * after a diagnostic. */
static bool on_these_devices(const struct tune *t, const struct tune_rung *r)
{
    int64_t other = r->devices;
    for (int64_t i = 0; i < r->search->candidates && other == r->devices; i++) {
        const struct place *x = &r->search->candidate[i].place;
        if (!x->why) other = x->at.fsdp * x->at.dp;
    }
    if (other == r->devices) return true;
    const bool ladder = t->arguments.ladder;
    if (ladder || t->arguments.devices)
        add_help(complain(t->base->given.dp,
                          "a mesh that is given is on %lld devices, --%s asks for %lld",
                          (long long)other, ladder ? "ladder" : "devices", (long long)r->devices),
                 ladder ? "--set mesh.dp=auto follows the number of devices"
                        : "--set 'mesh.dp=%lld / mesh.fsdp'",
                 (long long)r->devices);
    else
        add_help(complain((struct span){0, 0, 0}, "points of %s are on %lld and on %lld devices",
                          t->path, (long long)r->devices, (long long)other),
                 "--devices %lld compares them on as many", (long long)r->devices);
    return false;
}

/* Some plan of a space, for what all of them share. NULL: none is possible; `why`: of the last. */
static struct plan *some_plan(const struct arguments *a, const struct space *s, const char **why)
{
    int *choice = TAKE_MANY(int, s->n_axes + 1);
    for (bool more = true; more; more = candidate_next(s, choice)) {
        struct plan *p = space_plan(s, choice, why);
        if (p) {
            plan_take_device(p, a->device);
            return p;
        }
    }
    return NULL;
}

static bool global_given(const struct plan *p, const char *path)
{
    if (p->given.global.file) return true;
    add_help(complain((struct span){0, 0, 0},
                      "%s gives no global batch: tune compares plans that train the same, so "
                      "their steps must have equally many sequences",
                      path),
             "--set batch.global=%lld, or another number of sequences per step",
             (long long)p->global);
    return false;
}

/* Keys that a prediction of time cannot decide between. False after a diagnostic. */
static bool comparable(const struct space *s, const struct plan *p)
{
    const resolved_keys all = plan_keys(p);
    for (int k = 0; k < s->n_axes; k++) {
        const char *key = s->axis[k].key;
        bool other = !strncmp(key, "cluster.", 8);
        for (int i = 0; i < all.n && !other; i++)
            other = !strcmp(all.item[i].path, key) && all.item[i].mathematics;
        if (!other) continue;
        add_help(complain((struct span){0, 0, 0}, "%s is open: %s", key,
                          strncmp(key, "cluster.", 8)
                              ? "it changes what is trained, and no prediction of time decides that"
                              : "tune compares plans on one machine"),
                 "--set '%s=%s' decides, or another of its values", key, s->axis[k].choice[0]);
        return false;
    }
    return true;
}

/* ── progress ────────────────────────────────────────────────────────────────── */

/* A line on stderr once a search takes longer than a second: rewritten on a terminal, else one
 * every few seconds. */
struct progress {
    struct search_watcher watcher; /* first: it is handed on as this */
    const struct tune_rung *rung;
    double began, said; /* said 0: nothing yet */
    bool terminal;
};
static const double SILENT_SECONDS = 1, REWRITE_SECONDS = 0.2, LINE_SECONDS = 5;

static void show_progress(struct search_watcher *w, bool decided, int64_t done, int64_t all)
{
    struct progress *p = (struct progress *)w;
    double at = command_clock(), wait = p->terminal ? REWRITE_SECONDS : LINE_SECONDS;
    if (at - p->began < SILENT_SECONDS || (p->said > 0 && at - p->said < wait)) return;
    p->said = at;
    struct arena_mark mark = arena_mark();
    fprintf(stderr, "%splanc: %lld device%s: %s of %s points %s, %.0f s%s", p->terminal ? "\r" : "",
            (long long)p->rung->devices, p->rung->devices == 1 ? "" : "s", text_count(done),
            text_count(all), decided ? "decided" : "checked", at - p->began,
            p->terminal ? "\033[K" : "\n");
    arena_reset(mark);
}

static void end_progress(const struct progress *p)
{
    if (p->terminal && p->said > 0) fprintf(stderr, "\r\033[K");
}

/* ── the command ─────────────────────────────────────────────────────────────── */

bool tune_search(struct tune *t, struct tune_rung *r)
{
    const struct plan *base = t->base;
    struct arguments a = with_own_settings(&t->arguments);
    bool moved = t->natural || t->arguments.devices || t->arguments.ladder;
    if (moved && !set_devices(&a, t, r->devices)) return false;
    r->set = a.set.item, r->n_set = a.set.n;
    const char *why;
    if (plan_or_space_load(t->path, a.set.item, a.set.n, &r->space)) {
        add_help(complain((struct span){0, 0, 0},
                          "nothing is left open: every key that tune may choose has a value"),
                 "planc simulate predicts one plan");
        return false;
    }
    if (!r->space) return false;
    r->plan = some_plan(&a, r->space, &why);
    if (r->plan && !comparable(r->space, r->plan)) return false;
    struct progress progress = {.watcher = {show_progress},
                                .rung = r,
                                .began = command_clock(),
                                .terminal = isatty(STDERR_FILENO)};
    r->search = search_run(t->candidates, r->space, t->top,
                           t->arguments.ladder ? SEARCH_FRONTIER : SEARCH_BEST,
                           t->arguments.json ? NULL : &progress.watcher);
    end_progress(&progress);
    if (!on_these_devices(t, r)) return false;
    if (r->search->missing) {
        add_help(complain(base->cluster.at, "cluster %s does not say how fast it is: %s",
                          base->cluster.name, r->search->missing),
                 "`planc keys cluster` says what it is; --cluster FILE.plan takes another cluster");
        return false;
    }
    return true;
}

/* False after one line. */
static bool read_rungs(const struct arguments *given, struct tune *t)
{
    rung_list all = {0};
    if (given->ladder && !rungs_read("--ladder", given->ladder, RUNGS_MOST, &all)) return false;
    if (given->devices && !rungs_read("--devices", given->devices, 1, &all)) return false;
    for (; t->n_rungs < all.n; t->n_rungs++)
        t->rung[t->n_rungs].devices = all.item[t->n_rungs].devices;
    return true;
}

static bool read_top(const char *text, struct tune *t)
{
    char *end;
    long n = text ? strtol(text, &end, 10) : 5;
    t->top = (int)n;
    if (!text || (end != text && !*end && n >= 1 && n <= 64)) return true;
    command_fail(EXIT_USAGE, "--top takes a number from 1 to 64, not '%s'", text);
    return false;
}

/* Fills what the command line and the plan say. */
static int begin(struct tune *t)
{
    const struct arguments *given = t->given;
    const char *why = NULL;
    if (given->output && !can_write(given->output))
        return command_fail(EXIT_ENVIRONMENT, "-o %s: %s", given->output, strerror(errno));
    if (given->ladder && given->devices)
        return command_fail(EXIT_USAGE, "--ladder has its numbers of devices: no --devices");
    if (!read_top(given->top, t)) return EXIT_USAGE;
    if (!read_rungs(given, t)) return EXIT_USAGE;
    int status;
    struct space *space;
    t->base = command_plan_or_space(given, t->path, &space, &status);
    if (!t->base && !space) return status;
    t->natural = !space;
    if (space) t->base = some_plan(given, space, &why);
    if (!t->base) {
        add_help(complain((struct span){0, 0, 0},
                          "no point of %s is a valid plan; the last one: %s", t->path, why),
                 "planc check gives the reason of each point");
        return EXIT_PLAN;
    }
    if (!global_given(t->base, t->path)) return EXIT_PLAN;
    if (!t->n_rungs)
        t->rung[t->n_rungs++] = (struct tune_rung){.devices = t->base->fsdp * t->base->dp};
    if (t->natural) open_natural(&t->arguments, given, t->base, t->rung[t->n_rungs - 1].devices);
    return EXIT_FINE;
}

static int search_and_say(struct tune *t)
{
    int status = t->arguments.measure ? tune_measure(t) : EXIT_FINE;
    if (status != EXIT_FINE) return status;
    for (int i = t->arguments.measure; i < t->n_rungs; i++)
        if (!tune_search(t, &t->rung[i])) return EXIT_PLAN;
    status = tune_finish(t);
    t->seconds = command_clock() - t->began;
    if (status != EXIT_FINE && status != EXIT_NO_FIT) return status;
    if (t->arguments.json)
        tune_print_json(t);
    else
        tune_print(t);
    return status;
}

int command_tune(const struct arguments *a)
{
    if (a->word.n != 1) return command_fail(EXIT_USAGE, "tune takes one plan, not %d", a->word.n);
    json_in_arena();
    struct tune t = {.path = a->word.item[0],
                     .given = a,
                     .arguments = with_own_settings(a),
                     .began = command_clock()};
    int status = begin(&t);
    if (status != EXIT_FINE) return status;
    t.candidates = candidates_open(&t.arguments);
    status = search_and_say(&t);
    candidates_close(t.candidates);
    if (t.scratch) remove_folder(t.scratch);
    return status;
}
