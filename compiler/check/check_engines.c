/* Keys of cuda's engines and of NCCL that do nothing for this plan: on a cpu, for another trainer,
 * for a model without what they are about, for one rank or for several. None is ignored without a
 * word. */
#include "check/check.h"

#include <string.h>

static bool calls(const struct ast *e, const char *function)
{
    if (e->kind == AST_CALL && !strcmp(e->text, function)) return true;
    for (int i = 0; i < e->n; i++)
        if (e->kid[i] && calls(e->kid[i], function)) return true;
    return false;
}

/* Of a plan for cuda and planc's trainer. */
static void warn_of_idle(const struct plan *p)
{
    const long long ranks = p->fsdp * p->dp;
    if (p->given.experts.file && !calls(p->architecture_body, "expert_linear"))
        warn(p->given.experts, "run.experts has no effect: %s has no experts", p->architecture);
    if (p->given.attention.file && !calls(p->architecture_body, "attention"))
        warn(p->given.attention, "run.attention has no effect: %s has no attention",
             p->architecture);
    if (p->given.nccl.file && ranks > 1)
        warn(p->given.nccl, "run.nccl has no effect: %lld ranks always use NCCL", ranks);
    if (p->given.nccl_blocks.file && ranks == 1 && !p->nccl)
        add_help(warn(p->given.nccl_blocks, "run.nccl_blocks has no effect: one rank has no NCCL"),
                 "run { nccl = on } tries it with one");
    if (p->given.nccl_blocks.file && ranks > 1 && !(p->cluster.contention.block > 0))
        add_help(warn(p->given.nccl_blocks,
                      "what run.nccl_blocks takes from the bandwidth of collectives is not "
                      "predicted: cluster %s does not say what a block moves",
                      p->cluster.name),
                 "cluster.contention.block = 36.7GB/s, or what it is");
}

void plan_warn_of_engines(const struct plan *p)
{
    const struct {
        struct span at;
        const char *key;
        bool any_trainer; /* predictions of another trainer read it too */
    } row[] = {{p->given.graph, "run.graph", false},
               {p->given.gemm, "run.gemm", false},
               {p->given.attention, "run.attention", false},
               {p->given.experts, "run.experts", false},
               {p->given.nccl, "run.nccl", false},
               {p->given.nccl_blocks, "run.nccl_blocks", true}};
    for (size_t i = 0; i < COUNT_OF(row); i++) {
        if (!row[i].at.file) continue;
        if (p->device == DEVICE_CPU)
            warn(row[i].at, "%s is of cuda devices alone: without effect on cpu", row[i].key);
        else if (p->trainer.name && !row[i].any_trainer)
            warn(row[i].at, "%s is of planc's own trainer: without effect on %s", row[i].key,
                 p->trainer.name);
    }
    if (p->device == DEVICE_CUDA && !p->trainer.name) warn_of_idle(p);
}
