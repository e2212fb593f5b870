/* `planc report`: what check, memory, simulate and tune say of a plan, as one page that people look
 * at. A space is shown with all its points, and its fastest point that fits as a plan. -o FILE.svg
 * draws memory and lanes alone; --json gives the numbers. */
#include "analysis/space.h"
#include "base/escape.h"
#include "commands/command.h"
#include "report/sections.h"
#include "search/search.h"

#include <errno.h>
#include <string.h>

/* Points of a space above which only those are simulated that a search cannot rule out. */
enum { ALL_SIMULATED = 2000 };

static void add_numbers(json_t *o, const struct rung *r)
{
    const struct ledger *l = r->ledger;
    json_t *more = json_pack(
        "{s:s, s:I, s:I, s:I, s:f, s:f, s:f, s:f}", "verdict", verdict_names[l->verdict], "devices",
        (json_int_t)l->devices, "peak_bytes", (json_int_t)l->peak_bytes, "limit_bytes",
        (json_int_t)l->limit_bytes, "step_seconds", r->step_seconds, "tokens_per_second_per_device",
        r->per_device, "exposed_comm_seconds", (double)r->prediction->exposed_all * 1e-12,
        "assumed_fraction", r->prediction->assumed);
    json_object_update(o, more);
    if (r->mfu[0] > 0)
        json_object_set_new(o, "mfu",
                            json_pack("{s:f, s:f, s:f}", "full", r->mfu[0], "causal", r->mfu[1],
                                      "hardware", r->mfu[2]));
}

/* The sections of one plan; false after a message. */
static bool add_plan(struct text *t, struct rung *r, json_t *numbers)
{
    if (!rung_fill(r)) return false;
    section_answer(t, r);
    section_memory(t, r);
    section_lanes(t, r);
    section_time(t, r);
    add_numbers(numbers, r);
    return true;
}

static json_t *rungs_json(const rung_list *all)
{
    json_t *list = json_array();
    for (int i = 0; i < all->n; i++) {
        const struct rung *r = &all->item[i];
        json_t *o = json_pack("{s:I}", "devices", (json_int_t)r->devices);
        if (r->why)
            json_object_set_new(o, "reason", json_string(utf8_text(r->why)));
        else {
            add_numbers(o, r);
            json_object_set_new(o, "scaling_efficiency", json_real(r->efficiency));
        }
        json_array_append_new(list, o);
    }
    return list;
}

static int add_scaling(struct text *t, const struct arguments *a, const char *path,
                       const struct plan *base, json_t *numbers)
{
    rung_list all = {0};
    bool weak = a->scaling && !strcmp(a->scaling, "weak");
    if (!rungs_read("--devices", a->devices, RUNGS_MOST, &all)) return EXIT_USAGE;
    for (int i = 0; i < all.n; i++) {
        struct rung *r = &all.item[i];
        r->plan = rung_plan(a, path, base, r->devices, weak, &r->why);
        if (r->plan && !rung_fill(r)) return error_count() ? EXIT_PLAN : EXIT_ENVIRONMENT;
    }
    rungs_compare(&all);
    section_scaling(t, &all, weak);
    json_object_set_new(numbers, "scaling", json_string(weak ? "weak" : "strong"));
    json_object_set_new(numbers, "rungs", rungs_json(&all));
    return EXIT_FINE;
}

/* The arguments with the words of a point of the space after them. */
static struct arguments at_point(const struct arguments *a, const json_t *space, int number)
{
    struct arguments b = *a;
    memset(&b.set, 0, sizeof b.set);
    for (int i = 0; i < a->set.n; i++) PUSH(&b.set, a->set.item[i]);
    const json_t *words =
        json_object_get(json_array_get(json_object_get(space, "points"), (size_t)number), "set");
    for (size_t i = 0; i < json_array_size(words); i++)
        PUSH(&b.set, json_string_value(json_array_get(words, i)));
    return b;
}

/* Any point's plan, for what all points share; NULL: every point is impossible. */
static struct plan *some_plan(const struct arguments *a, const char *path, const json_t *space)
{
    size_t n = json_array_size(json_object_get(space, "points"));
    for (size_t i = 0; i < n; i++) {
        const struct arguments b = at_point(a, space, (int)i);
        const char *const *keys;
        int open_keys;
        struct diagnostics_mark mark = diagnostics_mark();
        struct plan *p = plan_load(path, b.set.item, b.set.n, &keys, &open_keys);
        diagnostics_drop(mark);
        if (p) return plan_take_device(p, a->device), p;
    }
    return NULL;
}

/* Why each point is not the best, as planc tune says it. */
static void add_reasons(const struct arguments *a, const struct space *space, json_t *json)
{
    struct candidates *c = candidates_open(a);
    const struct search *s = search_run(
        c, space, 1, space->points <= ALL_SIMULATED ? SEARCH_ALL : SEARCH_FRONTIER, NULL);
    for (int64_t i = 0; i < s->candidates && !s->missing; i++)
        json_object_set_new(json_array_get(json_object_get(json, "points"), (size_t)i), "reason",
                            json_string(utf8_text(search_reason(c, s, &s->candidate[i]))));
    candidates_close(c);
}

static int add_space(struct text *t, const struct arguments *a, const char *path,
                     const struct space *space, struct arguments *best, struct plan **plan,
                     json_t *numbers)
{
    json_t *all = json_array();
    int status = check_space(a, space, path, all);
    json_t *json = json_array_get(all, 0);
    if (status == EXIT_FINE || status == EXIT_NO_FIT) {
        add_reasons(a, space, json);
        json_object_set(numbers, "points", json_object_get(json, "points"));
    }
    if (status != EXIT_FINE && status != EXIT_NO_FIT) return status;
    const struct plan *p = some_plan(a, path, json);
    int64_t limit;
    if (!p) {
        text_add(t, "<p class=\"answer bad\">No point of this space is possible.</p>\n");
        return EXIT_NO_FIT;
    }
    if (!ledger_limit(p, &limit))
        return command_fail(EXIT_ENVIRONMENT, "cannot read this machine's memory: %s",
                            strerror(errno));
    struct text points = {0};
    int number = section_space(&points, json, (double)limit, (double)(p->global * p->sequence));
    if (number < 0) {
        text_add(t,
                 "<p class=\"answer bad\">No point of this space is known to fit and to be "
                 "fast.</p>\n%s",
                 points.bytes);
        return EXIT_NO_FIT;
    }
    *best = at_point(a, json, number);
    json_object_set(
        numbers, "best",
        json_object_get(json_array_get(json_object_get(json, "points"), (size_t)number), "set"));
    *plan = command_plan(best, path, &status);
    if (!*plan) return status;
    text_add(t, "<p>A space of plans. Its fastest point that fits, which is shown below:");
    for (int i = a->set.n; i < best->set.n; i++) text_add(t, " %s", html_text(best->set.item[i]));
    text_add(t, "</p>\n%s", points.bytes);
    return EXIT_FINE;
}

/* What of a run there is. */
static int add_run(struct text *t, const struct arguments *a, const struct rung *r, json_t *numbers)
{
    const char *why = a->metrics ? section_run(t, a->metrics, numbers) : NULL;
    if (why) return command_fail(EXIT_ENVIRONMENT, "--metrics %s: %s", a->metrics, why);
    why = a->trace ? section_trace(t, r, a->trace, numbers) : NULL;
    if (why) return command_fail(EXIT_ENVIRONMENT, "--trace %s: %s", a->trace, why);
    return EXIT_FINE;
}

static int fill_page(struct text *t, const struct arguments *a, const char *path, struct rung *r,
                     const struct space *space, json_t *numbers)
{
    struct arguments given = *a;
    int status = EXIT_FINE;
    if (space) {
        status = add_space(t, a, path, space, &given, &r->plan, numbers);
        if (status != EXIT_FINE) return status;
    }
    if (r->plan->trainer.name) {
        complain(r->plan->cluster.at,
                 "report draws planc's own layout and schedule, not those of "
                 "%s",
                 r->plan->trainer.name);
        return EXIT_PLAN;
    }
    r->devices = r->plan->fsdp * r->plan->dp;
    if (!add_plan(t, r, numbers)) return error_count() ? EXIT_PLAN : EXIT_ENVIRONMENT;
    if (a->devices) status = add_scaling(t, &given, path, r->plan, numbers);
    if (status == EXIT_FINE) status = add_run(t, a, r, numbers);
    if (status != EXIT_FINE) return status;
    return r->ledger->verdict == EXCEEDS ? EXIT_NO_FIT : EXIT_FINE;
}

static bool is_picture(const char *path)
{
    size_t n = path ? strlen(path) : 0;
    return n > 4 && !strcmp(path + n - 4, ".svg");
}

static int fine_words(const struct arguments *a)
{
    if (a->word.n != 1) return command_fail(EXIT_USAGE, "report takes one plan, not %d", a->word.n);
    if (!a->output && !a->json)
        return command_fail(EXIT_USAGE, "report wants -o FILE.html, -o FILE.svg or --json");
    if (a->scaling && strcmp(a->scaling, "weak") && strcmp(a->scaling, "strong"))
        return command_fail(EXIT_USAGE, "--scaling is strong or weak, not '%s'", a->scaling);
    if (a->scaling && !a->devices)
        return command_fail(EXIT_USAGE, "--scaling is of --devices 16,64,512");
    if (is_picture(a->output) && (a->devices || a->metrics || a->trace))
        return command_fail(EXIT_USAGE, "a picture has memory and lanes alone: -o FILE.html shows "
                                        "--devices, --metrics and --trace");
    return EXIT_FINE;
}

int command_report(const struct arguments *a)
{
    int status = fine_words(a);
    if (status != EXIT_FINE) return status;
    json_in_arena();
    const char *path = a->word.item[0];
    struct space *space;
    struct plan *plan = command_plan_or_space(a, path, &space, &status);
    if (!plan && !space) return status;
    struct text t = {0};
    const char *title = plan ? plan->title : path;
    struct rung r = {.plan = plan};
    json_t *numbers = json_pack("{s:s}", "plan", utf8_text(path));
    page_open(&t, title);
    text_add(&t, "<h1>%s</h1>\n<p class=\"soft\">%s, by planc " PLANC_VERSION "</p>\n",
             html_text(title), html_text(path));
    status = fill_page(&t, a, path, &r, space, numbers);
    if (status != EXIT_FINE && status != EXIT_NO_FIT) return status;
    page_close(&t);
    if (is_picture(a->output)) {
        memset(&t, 0, sizeof t);
        if (r.ledger) picture(&t, &r, title);
    }
    if (is_picture(a->output) && !r.ledger) {
        complain((struct span){0, 0, 0}, "no point of %s fits: there is nothing to draw", path);
        return EXIT_NO_FIT;
    }
    if (a->output && !file_write(a->output, t.bytes, t.length))
        return command_fail(EXIT_ENVIRONMENT, "cannot write '%s': %s", a->output, strerror(errno));
    if (a->json)
        printf("%s\n", json_dumps(numbers, JSON_INDENT(2)));
    else
        printf("%s: %s\n", a->output, text_bytes((int64_t)t.length));
    return status;
}
