/* Expert products by cuDNN, for grouped_product() of launch.h: used if the library has a
 * deterministic engine that fits the workspace. */
#ifndef EXPERTS_CUDNN_H
#define EXPERTS_CUDNN_H

#include "graph_cudnn.h"
#include "shared/launch.h"

/* As in launch.h, on `stream`, within `bytes` of device memory at `work`. The first use of a shape
 * looks for an engine and compiles it, so it should not be in a capture; later ones only launch. An
 * error of the library ends the run. */
bool cudnn_grouped_known(const struct grouped_product *p, int64_t bytes);
bool cudnn_grouped_fits(void *const *address); /* whether it takes these */
void cudnn_grouped_product(const struct grouped_product *p, void *const *address, void *stream,
                           void *work, int64_t bytes);

/* The graph, for the library: z, w, first, y by their numbers in launch.h. */
enum { GROUPED_Z, GROUPED_W, GROUPED_FIRST, GROUPED_Y, GROUPED_ADDRESSES };
void cudnn_grouped_graph(struct dnn_graph *g, const struct grouped_product *p);

#endif
