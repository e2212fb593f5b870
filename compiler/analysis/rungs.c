/* The rungs of a scaling curve: which plan a number of devices gives, its layout and its time. */
#include "analysis/rungs.h"
#include "passes/pipeline.h"
#include "passes/budget.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static double seconds(int64_t picoseconds) { return (double)picoseconds * 1e-12; }

bool rungs_read(const char *option, const char *text, int most, rung_list *all)
{
    for (const char *s = text; *s || !all->n;) {
        char *end;
        errno = 0;
        long long n = strtoll(s, &end, 10), before = all->n ? all->item[all->n - 1].devices : 0;
        if (end == s || errno || n <= before || n > 1 << 20 || (*end && *end != ',') ||
            (*end == ',' && !end[1]) || all->n == most) {
            command_fail(
                EXIT_USAGE, "%s takes %s, up to 1,048,576; not '%s'", option,
                most == 1 ? "one number of devices"
                          : text_format("rising numbers of devices, 16,64,512, at most %d", most),
                text);
            return false;
        }
        PUSH(all, ((struct rung){.devices = n}));
        s = *end ? end + 1 : end;
    }
    return true;
}

static void set_whole(struct arguments *a, const char *key, int64_t x)
{
    PUSH(&a->set, intern_format("%s=%lld", key, (long long)x));
}

struct plan *rung_plan(const struct arguments *given, const char *path, const struct plan *base,
                       int64_t devices, bool weak, const char **why)
{
    struct arguments a = *given;
    memset(&a.set, 0, sizeof a.set);
    for (int i = 0; i < given->set.n; i++) PUSH(&a.set, given->set.item[i]);
    int64_t own = base->fsdp * base->dp, each = base->cluster.devices_per_node;
    if (base->cluster.elastic && devices != own) {
        if (base->given.dp.file || devices % base->fsdp) {
            *why = intern_format("fsdp %lld x dp %lld is %lld devices", (long long)base->fsdp,
                                 (long long)base->dp, (long long)own);
            return NULL;
        }
        set_whole(&a, "mesh.dp", devices / base->fsdp);
    } else if (!base->cluster.elastic && devices < each) {
        set_whole(&a, "cluster.nodes", 1);
        set_whole(&a, "cluster.devices_per_node", devices);
    } else if (!base->cluster.elastic) {
        if (devices % each) {
            *why = intern_format("%lld devices are no whole nodes of %lld", (long long)devices,
                                 (long long)each);
            return NULL;
        }
        set_whole(&a, "cluster.nodes", devices / each);
    }
    int64_t global = base->global;
    if (weak && (global * devices) % own) {
        *why = "the batch of a device is no whole number of sequences";
        return NULL;
    }
    set_whole(&a, "batch.global", weak ? global * devices / own : global);
    const char *const *open_keys;
    int n_open;
    struct diagnostics_mark mark = diagnostics_mark();
    struct plan *p = plan_load(path, a.set.item, a.set.n, &open_keys, &n_open);
    if (p) plan_take_device(p, a.device);
    if (p && !budget_decide(p)) p = NULL;
    if (!p) *why = intern(diagnostics_since(mark) ? diagnostics_since(mark) : "it is no plan");
    diagnostics_drop(mark);
    return p;
}

bool rung_fill(struct rung *r)
{
    struct graph *g = pass_lower(r->plan);
    if (!g) return false;
    if (r->plan->trainer.name) {
        int64_t limit;
        if (!ledger_limit(r->plan, &limit)) return false;
        r->trainer = trainer_memory(r->plan, g, limit);
        trainer_save(r->plan, g);
    }
    g = r->graph = pipeline_run(g, LEVEL_MEMORY);
    if (!g) return false;
    r->ledger = ledger_read(r->plan, g);
    if (!r->ledger) return false;
    r->peak_bytes = r->plan->trainer.name ? r->trainer.reserved : r->ledger->peak_bytes;
    r->verdict = r->plan->trainer.name ? ledger_verdict(r->peak_bytes, r->ledger->limit_bytes)
                                       : r->ledger->verdict;
    r->prediction = predict(r->plan, g, &r->program);
    if (!r->prediction) {
        struct text list = {0};
        for (int i = 0; i < r->program->missing.n; i++)
            text_add(&list, "%s%s", i ? ", " : "", r->program->missing.item[i]);
        struct diagnostic *d =
            complain(r->plan->cluster.at, "cluster %s does not say how fast it is: %s",
                     r->plan->cluster.name, list.bytes);
        add_help(d, "`planc keys cluster` says what they are; --cluster FILE.plan takes another "
                    "cluster");
        return false;
    }
    const struct plan *p = r->plan;
    double tokens = (double)(p->global * p->sequence),
           peak = p->compute == BF16 ? p->cluster.flops_bf16 : p->cluster.flops_fp32;
    r->step_seconds = seconds(r->prediction->step);
    r->tokens_per_second = tokens / r->step_seconds;
    r->per_device = r->tokens_per_second / (double)r->devices;
    const double flops[] = {r->ledger->flops.full, r->ledger->flops.causal,
                            r->ledger->flops.hardware};
    for (int i = 0; i < 3 && peak > 0; i++) r->mfu[i] = flops[i] * r->per_device / peak;
    return true;
}

void rungs_compare(rung_list *all)
{
    double first = 0;
    for (int i = 0; i < all->n; i++) {
        struct rung *r = &all->item[i];
        if (r->why) continue;
        if (first == 0) first = r->per_device;
        r->efficiency = r->per_device / first;
    }
}
