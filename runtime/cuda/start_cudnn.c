/* The one handle on cuDNN, and the refusals before training; see start_cudnn.h. */
#include "start_cudnn.h"

#include "library.h"
#include "shared/trainer.h"

#include <stdio.h>

struct dnn dnn;

static const char *way_out(struct dnn_use use)
{
    if (use.attention && use.experts)
        return "run.attention = \"planc\" and run.experts = \"planc\" do without cuDNN";
    return use.attention ? "run.attention = \"planc\" does without cuDNN"
                         : "run.experts = \"planc\" does without cuDNN";
}

bool cudnn_open(struct dnn_use use, int major, int minor)
{
    char why[LIBRARY_WHY];
    if (!cuda_library_open(LIBRARY_CUDNN, why))
        return fail_note("rank %d: %s; %s", world.rank, why, way_out(use));
    size_t version = cudnn.cudnnGetVersion();
    snprintf(dnn.name, sizeof dnn.name, "cuDNN %zu.%zu.%zu", version / 10000, version / 100 % 100,
             version % 100);
    if (use.attention && version < 91000)
        return fail_note("rank %d: %s is too old, attention needs 9.10 or later; run.attention = "
                         "\"planc\" does without",
                         world.rank, dnn.name);
    if (use.experts && version < 91800)
        return fail_note("rank %d: %s is too old, grouped products need 9.18 or later; "
                         "run.experts = \"planc\" does without",
                         world.rank, dnn.name);
    unsigned status = cudnn.cudnnCreate(&dnn.handle);
    if (status)
        return fail_note("rank %d: %s does not start on this device: %s; %s", world.rank, dnn.name,
                         cudnn.cudnnGetErrorString(status), way_out(use));
    dnn.capability = major * 10 + minor;
    return true;
}

bool cudnn_same(struct dnn_use use, double device)
{
    const double mine[2] = {(double)cudnn.cudnnGetVersion(), device};
    double *all = ROOM(double, 2 * world.size);
    world_exchange(mine, 2, all);
    for (int r = 1; r < world.size; r++)
        if (all[2 * r] != all[0] || all[2 * r + 1] != all[1])
            return fail_note("rank %d has another %s than rank 0: their results would differ; %s",
                             r, all[2 * r] != all[0] ? "cuDNN" : "kind of device", way_out(use));
    return true;
}
