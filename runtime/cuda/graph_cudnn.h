/* Operation graphs for cuDNN. Its back end takes a computation as descriptors of tensors and
 * operations, each a handle whose attributes are set one by one; here an operation is one call. An
 * error in any of them is seen once, at the end. Descriptors stay until graph_drop, because later
 * ones refer to earlier ones. The device is a descriptor too, so a graph can be tested, and its
 * engines compiled, for a device that is not there. */
#ifndef GRAPH_CUDNN_H
#define GRAPH_CUDNN_H

#include <stdbool.h>
#include <stdint.h>

/* cudnn_graph.h's, as of 9; tests/cuda_library/attention.c compares them with the vendor's header.
 */
enum {
    DNN_F32 = 0,
    DNN_I32 = 4,
    DNN_BF16 = 9,
    DNN_BOOLEAN = 11,
    DNN_ADD = 0,
    DNN_MUL = 1,
    DNN_DIV = 6,
    DNN_SUB = 9,
    DNN_EXP = 13,
    DNN_LOG = 15,
    DNN_IDENTITY = 21,
    DNN_NOT_LESS = 303,
    DNN_INDEX = 501,
    DNN_SELECT = 601,
    DNN_REDUCE_ADD = 0,
    DNN_REDUCE_MAX = 3,
    DNN_KNOB_STAGES = 14,
    DNN_KNOB_KERNEL = 24,
    DNN_KNOB_CLUSTER_M = 27,
    DNN_KNOB_STREAM_K = 38,
    DNN_KNOB_TILE_M = 40,
    DNN_KNOB_TILE_N = 41,
};

/* Four extents, beginning on DNN_ALIGNMENT bytes, and elements between neighbours along each. `id`
 * names it to the plan; kept: in memory, not only between two operations; by_value: one number on
 * the host. */
struct dnn_tensor {
    int64_t id;
    int type;
    int64_t extent[4], stride[4];
    bool kept, by_value;
};

enum { DNN_ALIGNMENT = 16, DNN_DESCRIPTORS = 256, DNN_OPERATIONS = 32, DNN_KNOBS = 6 };
struct dnn_graph {
    void *made[DNN_DESCRIPTORS], *operation[DNN_OPERATIONS];
    int n, operations;
    unsigned status;
};

/* A tensor's descriptor; NULL when the graph is spoilt. */
void *dnn_tensor(struct dnn_graph *g, const struct dnn_tensor *t);
/* The same of three extents; the fourth is not looked at. */
void *dnn_tensor_3(struct dnn_graph *g, const struct dnn_tensor *t);
/* c = a b, of the last two extents; sums in F32. */
void dnn_matmul(struct dnn_graph *g, void *a, void *b, void *c);
/* y = op(x, b), element by element, extents of 1 repeated; b may be NULL. */
void dnn_pointwise(struct dnn_graph *g, int op, void *x, void *b, void *y);
/* y = where(which, x, b) */
void dnn_select(struct dnn_graph *g, void *x, void *b, void *which, void *y);
/* y = the index along `axis` */
void dnn_index(struct dnn_graph *g, int axis, void *x, void *y);
void dnn_reduce(struct dnn_graph *g, int op, void *x, void *y);
void dnn_reshape(struct dnn_graph *g, void *x, void *y);
/* y = z w[e] for the rows of each expert e, [1, rows, in] and [experts, in, out]: `first` [experts,
 * 1, 1] has the first row of each; sums in F32. */
void dnn_grouped_matmul(struct dnn_graph *g, void *z, void *w, void *first, void *y);
void dnn_drop(struct dnn_graph *g);

/* An engine by number with its knobs, for where the heuristic's choices are not what is wanted. */
struct dnn_engine {
    int64_t number;
    int knobs;
    struct {
        int knob;
        int64_t value;
    } choice[DNN_KNOBS];
};

/* The device at the handle, or the one that the library's JSON describes. */
void *dnn_device_of(struct dnn_graph *g, void *handle);
void *dnn_device_as(struct dnn_graph *g, const char *json);
/* The first plan for it, of `engine` or of what the heuristic names, that needs at most `room`
 * bytes and always gives the same bits. NULL: there is none. It belongs to g, as do the operations,
 * none of which may be added any more. */
void *dnn_plan(struct dnn_graph *g, void *device, const struct dnn_engine *engine, int64_t room,
               int64_t *bytes);
/* Runs it on the handle's stream: address[i] is that of the tensor id[i] (on the device; by value:
 * on the host). A status. */
unsigned dnn_run(void *handle, void *plan, int n, const int64_t *id, void *const *address,
                 void *workspace);

#endif
