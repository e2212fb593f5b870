/* `planc dump`: the IR as text after any pass, of a plan or of such a text. A text is complete, so
 * a test can begin and end anywhere. A text that breaks a rule is refused with its line. */
#include "commands/command.h"

#include "ir/ir.h"
#include "passes/pipeline.h"

#include <errno.h>
#include <string.h>

/* LEVEL_LOWER … by name; false after one line with the names that there are. */
static bool level_of(const char *name, enum level *level)
{
    for (int k = LEVEL_LOWER; k <= LEVEL_MEMORY; k++)
        if (!strcmp(level_names[k], name)) {
            *level = (enum level)k;
            return true;
        }
    const char *near = nearest_name(name, level_names, LEVEL_MEMORY + 1);
    struct text all = {0};
    for (int k = LEVEL_LOWER; k <= LEVEL_MEMORY; k++)
        text_add(&all, "%s%s", k ? ", " : "", level_names[k]);
    if (near)
        command_fail(EXIT_USAGE, "there is no pass '%s'; did you mean '%s'?", name, near);
    else
        command_fail(EXIT_USAGE, "there is no pass '%s': there are %s", name, all.bytes);
    return false;
}

static int print(const struct graph *g)
{
    struct text t = {0};
    if (!g) return EXIT_PLAN;
    ir_print(&t, g);
    fwrite(t.bytes, 1, t.length, stdout); /* main asks whether all of it went out */
    return EXIT_FINE;
}

static int from_text(const struct arguments *a)
{
    size_t n;
    const char *bytes = text_read(a->from, &n), *why = NULL;
    if (!bytes)
        return command_fail(EXIT_ENVIRONMENT, "cannot read '%s': %s", a->from,
                            text_read_why(errno));
    struct graph *g = ir_parse(bytes, n, &why);
    if (!g) return command_fail(EXIT_PLAN, "%s: %s", a->from, why);
    if ((why = ir_check(g))) return command_fail(EXIT_PLAN, "%s: %s", a->from, why);
    if (!a->fusion) g->facts.fuse = false;
    if (a->device && g->level >= LEVEL_MEMORY)
        return command_fail(EXIT_USAGE, "%s is laid out already; --device wants a text before '%s'",
                            a->from, level_names[LEVEL_MEMORY]);
    if (a->device)
        g->facts.device = strcmp(a->device, device_names[DEVICE_CUDA]) ? DEVICE_CPU : DEVICE_CUDA;
    if (g->facts.device == DEVICE_CPU)
        g->facts.shared_bytes = g->facts.multiprocessors = 0, g->facts.wgmma = false;
    if (!a->pass) return print(g);
    enum level level;
    if (!level_of(a->pass, &level)) return EXIT_USAGE;
    if (level <= g->level)
        return command_fail(EXIT_PLAN,
                            "%s is a text after '%s': the pass '%s' does not come after that",
                            a->from, level_names[g->level], a->pass);
    return print(pipeline_run(g, level));
}

static int all_passes(const struct arguments *a, struct graph *g)
{
    if (!make_folders(a->all))
        return command_fail(EXIT_ENVIRONMENT, "cannot make the folder '%s': %s", a->all,
                            strerror(errno));
    for (int k = LEVEL_LOWER; k <= LEVEL_MEMORY; k++) {
        if (k) g = pipeline_run(g, (enum level)k);
        if (!g) return EXIT_PLAN;
        struct text t = {0};
        ir_print(&t, g);
        const char *path = text_format("%s/%02d-%s.ir", a->all, k, level_names[k]);
        if (!file_write(path, t.bytes, t.length))
            return command_fail(EXIT_ENVIRONMENT, "cannot write '%s': %s", path, strerror(errno));
    }
    return EXIT_FINE;
}

int command_dump(const struct arguments *a)
{
    if (a->from) {
        if (a->word.n || a->after || a->all)
            return command_fail(EXIT_USAGE,
                                "dump --from takes a text and perhaps a --pass, no plan");
        return from_text(a);
    }
    if (a->pass) return command_fail(EXIT_USAGE, "--pass goes with --from");
    if (a->word.n != 1) return command_fail(EXIT_USAGE, "dump takes one plan");
    if (!a->after == !a->all)
        return command_fail(EXIT_USAGE, "dump wants either --after PASS or --all DIR");
    enum level level = LEVEL_LOWER;
    if (a->after && !level_of(a->after, &level)) return EXIT_USAGE;
    int status;
    struct plan *plan = command_plan(a, a->word.item[0], &status);
    if (!plan) return status;
    struct graph *g = pass_lower(plan);
    if (!g) return EXIT_PLAN;
    if (!a->fusion) g->facts.fuse = false;
    if (a->all) return all_passes(a, g);
    return print(level == LEVEL_LOWER ? g : pipeline_run(g, level));
}
