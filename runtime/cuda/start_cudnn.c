/* The one handle on cuDNN, and what it lacks; see start_cudnn.h. */
#include "start_cudnn.h"

#include "library.h"
#include <stdio.h>

struct dnn dnn;

bool cudnn_open(struct dnn_use use, int major, int minor, char *why)
{
    /* since when: attention; experts; the engines of attention_cudnn.c on each architecture */
    enum { ATTENTION = 91000, EXPERTS = 91800, ORDERED = 92500 };
    const int capability = major * 10 + minor;
    if (!cuda_library_open(LIBRARY_CUDNN, why)) return false;
    size_t version = cudnn.cudnnGetVersion(), oldest = use.experts   ? EXPERTS
                                                       : use.ordered ? ORDERED
                                                                     : ATTENTION;
    snprintf(dnn.name, sizeof dnn.name, "cuDNN %zu.%zu.%zu", version / 10000, version / 100 % 100,
             version % 100);
    if (version < oldest)
        return snprintf(why, LIBRARY_WHY, "%s is too old, %s need%s 9.%zu or later", dnn.name,
                        use.experts ? "grouped products" : "attention", use.experts ? "" : "s",
                        oldest / 100 % 100),
               false;
    if (use.ordered && capability != 90 && (capability < 100 || capability > 103))
        return snprintf(why, LIBRARY_WHY,
                        "%s has no gradient of attention with ordered sums for compute capability "
                        "%d.%d",
                        dnn.name, major, minor),
               false;
    unsigned status = dnn.handle ? 0 : cudnn.cudnnCreate(&dnn.handle);
    if (status)
        return snprintf(why, LIBRARY_WHY, "%s does not start on this device: %s", dnn.name,
                        cudnn.cudnnGetErrorString(status)),
               false;
    dnn.capability = capability;
    return true;
}
