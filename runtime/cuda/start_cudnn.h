/* cuDNN, opened once for attention (attention_cudnn.c) and expert products (experts_cudnn.c). */
#ifndef START_CUDNN_H
#define START_CUDNN_H

#include <stdbool.h>

/* What it is asked for. A refusal names the keys that do without, and each part has an oldest
 * version. */
struct dnn_use {
    bool attention, experts;
};

/* The library on this device; handle is NULL until it is open. capability: 90, 100. name: "cuDNN
 * 9.19.0" */
struct dnn {
    void *handle;
    int capability;
    char name[48];
};
extern struct dnn dnn;

/* Once, in a current context, before the first use; false: noted, with what is missing. */
bool cudnn_open(struct dnn_use use, int major, int minor);
/* Every rank calls it, when all have opened: each finds engines by itself, and finds what the
 * others do when library and device (`device`: any number that tells kinds of devices apart) are
 * theirs. False: noted. */
bool cudnn_same(struct dnn_use use, double device);

#endif
