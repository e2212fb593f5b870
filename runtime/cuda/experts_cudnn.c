/* Expert products by cuDNN: one operation of its graphs, for rows sorted by expert and the number
 * of each expert's first row, which it reads on the device. It needs one number per expert of
 * `first`; the last one, the number of rows, is an extent.
 *
 * Version 9.19 has engines for weights [out, in]: for the product but not for the gradient of its
 * operand, which is tried all the same. It has no operation for the gradient of the weights.
 * Engines without a fixed order of sums are not used. The choice depends on version, device, shape
 * and workspace only, and whether it applies on addresses that are alike on all ranks. */
#include "experts_cudnn.h"

#include "device.h"
#include "start_cudnn.h"
#include "shared/trainer.h"

enum { SHAPES = 32 };
struct entry {
    struct grouped_product key;
    void *plan;
    struct dnn_graph graph;
};

static struct {
    struct entry entry[SHAPES];
    int entries;
} known;

static void *tensor(struct dnn_graph *g, int64_t id, int type, int64_t planes, int64_t rows,
                    int64_t columns, bool across)
{
    struct dnn_tensor t = {id,
                           type,
                           {planes, rows, columns},
                           {rows * columns, across ? 1 : columns, across ? rows : 1},
                           true,
                           false};
    return dnn_tensor_3(g, &t);
}

void cudnn_grouped_graph(struct dnn_graph *g, const struct grouped_product *p)
{
    void *z = tensor(g, GROUPED_Z, DNN_BF16, 1, p->rows, p->in, false),
         *w = tensor(g, GROUPED_W, DNN_BF16, p->experts, p->in, p->out, !p->across);
    void *first = tensor(g, GROUPED_FIRST, DNN_I32, p->experts, 1, 1, false),
         *y = tensor(g, GROUPED_Y, DNN_BF16, 1, p->rows, p->out, false);
    dnn_grouped_matmul(g, z, w, first, y);
}

static struct entry *find(const struct grouped_product *p, int64_t room)
{
    char where[CUDA_WHERE];
    int64_t bytes;
    for (int i = 0; i < known.entries; i++) {
        const struct grouped_product *k = &known.entry[i].key;
        if (k->experts == p->experts && k->rows == p->rows && k->in == p->in && k->out == p->out &&
            k->across == p->across)
            return &known.entry[i];
    }
    if (known.entries == SHAPES)
        fail_now("%s: more than %d different shapes of grouped products; run.experts = planc "
                 "does without cuDNN",
                 cuda_where(where), SHAPES);
    struct entry *e = &known.entry[known.entries++];
    e->key = *p;
    void *device = dnn_device_of(&e->graph, dnn.handle);
    cudnn_grouped_graph(&e->graph, p);
    e->plan = dnn_plan(&e->graph, device, NULL, room, &bytes);
    return e;
}

static const int64_t id[GROUPED_ADDRESSES] = {GROUPED_Z, GROUPED_W, GROUPED_FIRST, GROUPED_Y};

bool cudnn_grouped_known(const struct grouped_product *p, int64_t bytes)
{
    return !p->gradient && find(p, bytes)->plan;
}

bool cudnn_grouped_fits(void *const *address)
{
    for (int i = 0; i < GROUPED_ADDRESSES; i++)
        if ((uintptr_t)address[i] % DNN_ALIGNMENT) return false;
    return true;
}

void cudnn_grouped_product(const struct grouped_product *p, void *const *address, void *stream,
                           void *work, int64_t bytes)
{
    const struct entry *e = find(p, bytes);
    char where[CUDA_WHERE];
    unsigned status = cudnn.cudnnSetStream(dnn.handle, (cuda_stream)stream);
    if (!status) status = dnn_run(dnn.handle, e->plan, GROUPED_ADDRESSES, id, address, work);
    if (status)
        fail_now("%s: %s failed at a product of %lld rows by %lld experts: %s", cuda_where(where),
                 dnn.name, (long long)p->rows, (long long)p->experts,
                 cudnn.cudnnGetErrorString(status));
}
