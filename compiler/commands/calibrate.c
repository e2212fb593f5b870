/* `planc calibrate`: measures this machine, or refits the rates of a cluster from files of runs,
 * and writes a cluster file for --cluster. */
#define _GNU_SOURCE
#include "commands/calibrate.h"
#include "commands/launch.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

/* The folder of the library of plans. */
static const char *library_plans(void)
{
    const char *home = command_home(),
               *installed = text_format("%s/../share/planc/plans", home ? home : ".");
    return !access(installed, R_OK) ? installed : text_format("%s/../plans", home ? home : ".");
}

/* The cluster of BASE, which is a plan or a cluster file. Without BASE: this machine as the library
 * has it. NULL after a message. */
static const struct cluster *base_cluster(const struct arguments *a, const char *plans,
                                          const char *base)
{
    const char *carrier = text_format("%s/demo.plan", plans);
    const char *const *open_keys;
    int n_open;
    struct plan *p = NULL;
    struct diagnostics_mark mark = diagnostics_mark();
    if (base) p = plan_load(base, a->set.item, a->set.n, &open_keys, &n_open);
    if (p || !base) {
        diagnostics_drop(mark);
        if (!p) p = plan_load(carrier, a->set.item, a->set.n, &open_keys, &n_open);
        return p ? &p->cluster : NULL;
    }
    diagnostics_drop(mark);
    plan_replace_cluster(base); /* no plan of its own: a file for --cluster */
    p = plan_load(carrier, a->set.item, a->set.n, &open_keys, &n_open);
    return p ? &p->cluster : NULL;
}

int command_calibrate(const struct arguments *a)
{
    if (!a->output) return command_fail(EXIT_USAGE, "calibrate wants -o FILE.plan");
    if (a->word.n > 1)
        return command_fail(EXIT_USAGE,
                            "calibrate takes one BASE.plan, not %d; --from goes before "
                            "each file of a run",
                            a->word.n);
    if (!can_write(a->output))
        return command_fail(EXIT_ENVIRONMENT, "cannot write '%s': %s", a->output, strerror(errno));
    json_in_arena();
    const char *plans = library_plans(), *from = a->word.n ? a->word.item[0] : NULL;
    size_t n;
    if (from && !text_read(from, &n))
        return command_fail(EXIT_ENVIRONMENT, "cannot read '%s': %s", from, text_read_why(errno));
    const struct cluster *base = base_cluster(a, plans, from);
    if (!base) return EXIT_PLAN;
    struct cluster c = *base, before = *base;
    struct rates r = rates_of(&c);
    struct provenance now = {
        .spread = 0.1, .basis = BASIS_MEASURED, .source = host_processor(), .date = date_today()};
    figure_list all = {0};
    struct run_times seen = {0};
    for (int i = 0; i < a->profiles.n; i++)
        if (!calibrate_read(a->profiles.item[i], &seen, &c)) return EXIT_ENVIRONMENT;
    if (a->profiles.n)
        now.source = intern_format("runs on %s", calibrate_device() ? calibrate_device()
                                                                    : "a device without a name");
    if (!a->profiles.n) {
        if (c.kind != DEVICE_CPU)
            return command_fail(EXIT_USAGE,
                                "calibrate measures cpu only, and cluster %s is of cuda: --from "
                                "FILE takes what a trainer's --profile-out wrote",
                                c.name);
        const long cores = sysconf(_SC_NPROCESSORS_ONLN);
        c.cores = cores > 0 ? cores : 1;
        if (!launcher_settings())
            return command_fail(EXIT_ENVIRONMENT, "cannot set the launcher's variables: %s",
                                strerror(errno));
        if (!calibrate_measure(&all, &c, c.cores, 2e-3)) return EXIT_ENVIRONMENT;
        c.contention.from = now;
        figures_share(&all, c.cores);
        rates_add(&r, &all, now);
        if (!calibrate_runs(plans, c.cores, &seen, &c)) return EXIT_ENVIRONMENT;
    }
    if (seen.host.n) c.host.step = calibrate_host_step(&seen), c.host.from = now;
    calibrate_fit(&c, &r, &seen, now, !a->profiles.n);
    if (!cluster_write(a->output, &c, &r))
        return command_fail(EXIT_ENVIRONMENT, "cannot write '%s': %s", a->output, strerror(errno));
    calibrate_say(a->output, a->json, &before, &c, &r, now);
    return EXIT_FINE;
}
