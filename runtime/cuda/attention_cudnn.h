/* Attention by cuDNN, for attention_known() and attention() of launch.h: used if the library has a
 * deterministic engine that fits the workspace. Otherwise the answer is false and the caller
 * launches our own kernels. */
#ifndef ATTENTION_CUDNN_H
#define ATTENTION_CUDNN_H

#include <stddef.h>

#include "graph_cudnn.h"
#include "shared/launch.h"

/* As in launch.h, within `bytes` of device memory at `work`. The first use of a shape looks for an
 * engine and compiles it, so it should not be in a capture; later ones only launch. An error of the
 * library ends the run. */
bool cudnn_attention_known(const struct attention *a, int64_t bytes);
void cudnn_attention(const struct attention *a, void *const *p, void *stream, void *work,
                     int64_t bytes);

/* The graph of an attention, for the library: q, k, v, o and so on by their numbers in launch.h,
 * then what else has an address. */
enum {
    ATTENTION_Q,
    ATTENTION_K,
    ATTENTION_V,
    ATTENTION_O,
    ATTENTION_DO,
    ATTENTION_DQ,
    ATTENTION_DK,
    ATTENTION_DV,
    ATTENTION_STATS,
    ATTENTION_DELTA,
    ATTENTION_SCALE,
    ATTENTION_NEVER,
    ATTENTION_ONE,
    ATTENTION_SUM, /* dq in F32, of a gradient that is summed so */
    ATTENTION_ADDRESSES
};
/* How an attention is asked for. `engine` NULL: what the heuristic says. summed: dq is added up in
 * an F32 tensor of its own and rounded from there. */
struct attention_way {
    const struct dnn_engine *engine;
    bool summed;
};
struct attention_way cudnn_attention_way(const struct attention *a, int capability, size_t version);
void cudnn_attention_graph(struct dnn_graph *g, const struct attention *a, bool summed);

#endif
