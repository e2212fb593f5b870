/* cuDNN, opened once for attention (attention_cudnn.c) and expert products (experts_cudnn.c). */
#ifndef START_CUDNN_H
#define START_CUDNN_H

#include <stdbool.h>

/* What it is asked for; each part has an oldest version. ordered: attention whose gradient has a
 * known order and fits, on the device at hand. */
struct dnn_use {
    bool attention, ordered, experts;
};

/* The library on this device; handle is NULL until it is open. capability: 90, 100. name: "cuDNN
 * 9.19.0" */
struct dnn {
    void *handle;
    int capability;
    char name[48];
};
extern struct dnn dnn;

/* In a current context, before the first use; once for each use. False: `why` (LIBRARY_WHY bytes)
 * says what is missing. */
bool cudnn_open(struct dnn_use use, int major, int minor, char *why);

#endif
