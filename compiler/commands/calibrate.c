/* `planc calibrate`: measures this machine, or refits the rates of a cluster from files of runs,
 * and writes a cluster file for --cluster. */
#define _GNU_SOURCE
#include "commands/calibrate.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

/* The cluster of BASE, which is a plan or a cluster file. Without BASE: this machine as the library
 * has it. NULL after a message. */
static const struct cluster *base_cluster(const struct arguments *a, const char *base)
{
    const char *home = command_home();
    const char *installed = text_format("%s/../share/planc/plans", home ? home : ".");
    const char *library =
        !access(installed, R_OK) ? installed : text_format("%s/../plans", home ? home : ".");
    const char *carrier = text_format("%s/demo.plan", library);
    const char *const *open_keys;
    int n_open;
    struct plan *p = NULL;
    size_t n;
    if (base && !text_read(base, &n)) {
        command_fail(EXIT_ENVIRONMENT, "cannot read '%s': %s", base, text_read_why(errno));
        return NULL;
    }
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
        return command_fail(EXIT_USAGE, "calibrate takes one BASE.plan, not %d", a->word.n);
    const struct cluster *base = base_cluster(a, a->word.n ? a->word.item[0] : NULL);
    if (!base) return EXIT_PLAN;
    struct cluster c = *base;
    struct rates r = {0};
    for (int i = 0; i < c.grids; i++) PUSH(&r.grid, c.grid[i]);
    for (int i = 0; i < c.efficiencies; i++) PUSH(&r.efficiency, c.efficiency[i]);
    if (c.kind != DEVICE_CPU)
        return command_fail(EXIT_USAGE,
                            "calibrate measures cpu only, and cluster %s is of cuda: --from FILE "
                            "takes what a trainer's --profile-out wrote",
                            c.name);
    struct provenance now = {
        .spread = 0.1, .basis = BASIS_MEASURED, .source = host_processor(), .date = date_today()};
    figure_list all = {0};
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    c.cores = cores > 0 ? cores : 1;
    if (!calibrate_measure(&all, &c, c.cores, 4e-3)) return EXIT_ENVIRONMENT;
    c.contention.from = now;
    rates_add(&r, &all, now);
    if (!cluster_write(a->output, &c, &r))
        return command_fail(EXIT_ENVIRONMENT, "cannot write '%s': %s", a->output, strerror(errno));
    int measured = 0;
    for (int i = 0; i < r.grid.n; i++) measured += r.grid.item[i].from.date == now.date;
    printf("%s: %d of %d grids measured on %s; --cluster %s takes them\n", a->output, measured,
           r.grid.n, now.source, a->output);
    return EXIT_FINE;
}
