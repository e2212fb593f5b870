/* `planc report`: what check, memory and simulate say of a plan, as one page that people look at.
 * A space is shown with all its points, and its fastest point that fits as a plan. */
#include "commands/command.h"
#include "analysis/space.h"
#include "report/sections.h"

#include <errno.h>
#include <string.h>

/* The sections of one plan; false after a message. */
static bool add_plan(struct text *t, struct rung *r)
{
    if (!rung_fill(r)) return false;
    section_answer(t, r);
    section_memory(t, r);
    section_lanes(t, r);
    section_time(t, r);
    return true;
}

static int add_scaling(struct text *t, const struct arguments *a, const char *path,
                       const struct plan *base)
{
    rung_list all = {0};
    bool weak = a->scaling && !strcmp(a->scaling, "weak");
    if (!rungs_read(a->devices, &all)) return EXIT_USAGE;
    for (int i = 0; i < all.n; i++) {
        struct rung *r = &all.item[i];
        r->plan = rung_plan(a, path, base, r->devices, weak, &r->why);
        if (r->plan && !rung_fill(r)) return error_count() ? EXIT_PLAN : EXIT_ENVIRONMENT;
    }
    rungs_compare(&all);
    section_scaling(t, &all, weak);
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

static int add_space(struct text *t, const struct arguments *a, const char *path,
                     const struct space *space, struct arguments *best, struct plan **plan)
{
    json_t *all = json_array();
    int status = check_space(a, space, path, all);
    const json_t *json = json_array_get(all, 0);
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
    *plan = command_plan(best, path, &status);
    if (!*plan) return status;
    text_add(t, "<p>A space of plans. Its fastest point that fits, which is shown below:");
    for (int i = a->set.n; i < best->set.n; i++) text_add(t, " %s", html_text(best->set.item[i]));
    text_add(t, "</p>\n%s", points.bytes);
    return EXIT_FINE;
}

static int fill_page(struct text *t, const struct arguments *a, const char *path, struct plan *plan,
                     const struct space *space)
{
    struct arguments given = *a;
    int status = EXIT_FINE;
    if (space) {
        status = add_space(t, a, path, space, &given, &plan);
        if (status != EXIT_FINE) return status;
    }
    if (plan->trainer.name) {
        complain(plan->cluster.at, "report draws planc's own layout and schedule, not those of %s",
                 plan->trainer.name);
        return EXIT_PLAN;
    }
    struct rung r = {.devices = plan->fsdp * plan->dp, .plan = plan};
    if (!add_plan(t, &r)) return error_count() ? EXIT_PLAN : EXIT_ENVIRONMENT;
    if (a->devices) status = add_scaling(t, &given, path, plan);
    if (status != EXIT_FINE) return status;
    const char *why = a->metrics ? section_run(t, a->metrics) : NULL;
    if (why) return command_fail(EXIT_ENVIRONMENT, "--metrics %s: %s", a->metrics, why);
    return r.ledger->verdict == EXCEEDS ? EXIT_NO_FIT : EXIT_FINE;
}

int command_report(const struct arguments *a)
{
    if (a->word.n != 1) return command_fail(EXIT_USAGE, "report takes one plan, not %d", a->word.n);
    if (!a->output) return command_fail(EXIT_USAGE, "report wants -o FILE.html");
    if (a->scaling && strcmp(a->scaling, "weak") && strcmp(a->scaling, "strong"))
        return command_fail(EXIT_USAGE, "--scaling is strong or weak, not '%s'", a->scaling);
    if (a->scaling && !a->devices)
        return command_fail(EXIT_USAGE, "--scaling is of --devices 16,64,512");
    json_in_arena();
    const char *path = a->word.item[0];
    int status = EXIT_FINE;
    struct space *space;
    struct plan *plan = command_plan_or_space(a, path, &space, &status);
    if (!plan && !space) return status;
    struct text t = {0};
    const char *title = plan ? plan->title : path;
    page_open(&t, title);
    text_add(&t, "<h1>%s</h1>\n<p class=\"soft\">%s, by planc " PLANC_VERSION "</p>\n",
             html_text(title), html_text(path));
    status = fill_page(&t, a, path, plan, space);
    if (status != EXIT_FINE && status != EXIT_NO_FIT) return status;
    page_close(&t);
    if (!file_write(a->output, t.bytes, t.length))
        return command_fail(EXIT_ENVIRONMENT, "cannot write '%s': %s", a->output, strerror(errno));
    printf("%s: %s\n", a->output, text_bytes((int64_t)t.length));
    return status;
}
