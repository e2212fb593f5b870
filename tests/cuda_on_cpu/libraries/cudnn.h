/* What the files of the stand-in cuDNN share: descriptors as bags of attributes. */
#ifndef STANDIN_CUDNN_H
#define STANDIN_CUDNN_H

#include "streams.h"

enum { SUCCESS = 0, BAD_PARAM = 2000, NOT_SUPPORTED = 3000, EXECUTION_FAILED = 5000 };
enum { /* kinds, and types of elements */
       ENGINE = 2,
       CONFIG = 3,
       PLAN = 5,
       CHOICE = 7,
       OF_POINTWISE = 13,
       GRAPH = 15,
       PACK = 16,
       TENSOR = 17,
       OF_MATMUL = 19,
       OF_REDUCTION = 22,
       OF_RESHAPE = 31,
       GROUPED = 42,
       F32 = 0,
       I32 = 4,
       BF16 = 9,
       BOOLEAN = 11
};
enum {
    IS_TYPE = 1,
    IS_FLAG = 2,
    IS_INT64 = 3,
    IS_ADDRESS = 6,
    IS_KNOB = 9,
    IS_POINTWISE = 14,
    IS_DESCRIPTOR = 15,
    IS_REDUCTION = 18,
    IS_MODE = 30,
    ATTRIBUTES = 12,
    MOST = 32
};
struct attribute {
    unsigned name, type;
    int64_t count;
    unsigned char value[8 * MOST];
};
struct descriptor {
    unsigned kind;
    bool final;
    int n;
    struct attribute of[ATTRIBUTES];
};
struct handle {
    stream_t stream;
};

/* `count` values of an attribute; NULL, and told: it has no such. */
const void *kept(const struct descriptor *d, unsigned name, unsigned type, int64_t count);
/* The same, however many there are; 0: none. */
int64_t counted(const struct descriptor *d, unsigned name, unsigned type, const void **values);
struct descriptor *part(const struct descriptor *d, unsigned name);

/* ── cudnn_graph.c ───────────────────────────────────────────────────────────── */
/* Whether it is a graph of attention or its gradient, as far as that can be run. */
bool attention_is(const struct descriptor *graph);
/* What a plan of it wants; -1: this engine (NULL: the heuristic's) does not do it. */
int64_t attention_bytes(const struct descriptor *graph, const struct descriptor *engine,
                        const struct descriptor *config);
/* by_number: the engine was asked for so */
unsigned attention_run(struct handle *handle, const struct descriptor *graph,
                       const struct descriptor *pack, int64_t workspace_bytes, bool by_number);

/* "bf16" as it lies */
float bf16_value(const unsigned char *at, int64_t i);
void bf16_put(unsigned char *at, int64_t i, float x);

#endif
