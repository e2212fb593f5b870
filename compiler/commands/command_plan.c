/* From a file to the plan that a command works on: read, checked, for its device, with its budget
 * decided; or one message that says which of these failed, and what to do. */
#include "commands/command.h"
#include "passes/budget.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

/* `demo` and `7b.pln` where demo.plan and 7b.plan lie; NULL when there is nothing of the kind. */
static const char *whole_name(const char *path)
{
    const char *folder = strrchr(path, '/'), *dot = strrchr(path, '.');
    const char *added = text_format("%s.plan", path),
               *exchanged = dot && (!folder || dot > folder)
                                ? text_format("%.*s.plan", (int)(dot - path), path)
                                : added;
    return access(added, R_OK) == 0 ? added : access(exchanged, R_OK) == 0 ? exchanged : NULL;
}

static bool is_readable(const struct arguments *a, const char *path, int *status)
{
    size_t n;
    *status = EXIT_PLAN;
    if (text_read(path, &n)) return true;
    int why = errno;
    const char *near = why == ENOENT ? whole_name(path) : NULL,
               *help = near ? text_format("did you mean '%s'?", near) : "";
    *status = EXIT_ENVIRONMENT;
    if (!a->json)
        command_fail(EXIT_ENVIRONMENT, "cannot read '%s': %s%s%s", path, text_read_why(why),
                     near ? "; " : "", help);
    else {
        struct diagnostic *d =
            complain((struct span){0, 0, 0}, "cannot read '%s': %s", path, text_read_why(why));
        if (near) add_help(d, "%s", help);
    }
    return false;
}

/* A plan for its device, with its budget decided; NULL when it has no feasible point. */
static struct plan *decided(const struct arguments *a, struct plan *plan, int *status)
{
    if (plan) {
        plan_take_device(plan, a->device);
        plan_warn_of_engines(plan);
        if (!tokenizer_fits(plan)) return NULL;
    }
    if (!plan || budget_decide(plan)) return plan;
    /* it is right; or it says no budget at all */
    if (plan->checkpoint_budget || plan->cluster.memory_bytes) *status = EXIT_NO_FIT;
    return NULL;
}

struct plan *command_plan_or_space(const struct arguments *a, const char *path,
                                   struct space **space, int *status)
{
    *space = NULL;
    return is_readable(a, path, status)
               ? decided(a, plan_or_space_load(path, a->set.item, a->set.n, space), status)
               : NULL;
}

struct plan *command_plan(const struct arguments *a, const char *path, int *status)
{
    if (!is_readable(a, path, status)) return NULL;
    const char *const *open_keys = NULL;
    int n_open = 0;
    struct plan *plan = plan_load(path, a->set.item, a->set.n, &open_keys, &n_open);
    if (plan && plan->trainer.name && strcmp(a->command, "simulate")) {
        add_help(complain(plan->trainer.at, "%s is about planc's own trainer, not %s", a->command,
                          plan->trainer.name),
                 "check and simulate answer for a run of another trainer");
        return decided(a, NULL, status);
    }
    if (plan || error_count()) return decided(a, plan, status);
    struct text keys = {0};
    for (int i = 0; i < n_open; i++) text_add(&keys, "%s%s", i ? ", " : "", open_keys[i]);
    struct diagnostic *d = complain(
        (struct span){0, 0, 0}, "%s leaves %s open: %s works on one plan, not on a space of them",
        path, keys.length ? keys.bytes : "something", a->command);
    struct diagnostics_mark mark = diagnostics_mark(); /* what follows says nothing: it was said */
    struct space *space = NULL;
    if (n_open) plan_or_space_load(path, a->set.item, a->set.n, &space);
    diagnostics_drop(mark);
    if (space && space->n_axes)
        add_help(d,
                 strpbrk(space->axis[0].choice[0], " [\"'*|")
                     ? "%s--set '%s=%s' decides, or another of its values"
                     : "%s--set %s=%s decides, or another of its values",
                 strcmp(a->command, "simulate")
                     ? ""
                     : text_format("`planc tune %s` compares them all; ", path),
                 space->axis[0].key, space->axis[0].choice[0]);
    else if (n_open)
        add_help(d, "--set %s=… decides", open_keys[0]);
    return NULL;
}
