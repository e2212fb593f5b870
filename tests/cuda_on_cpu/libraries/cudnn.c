/* libcudnn.so.9 as far as it is asked: descriptors that keep what is set; graphs of one grouped
 * product, whose engine is a plain loop by the extents, strides and addresses that were described;
 * and graphs of attention (cudnn_graph.c). Every attribute must have its type, operands must be
 * whole and aligned as they were said to be, and the numbers of first rows are read when the
 * product's turn on its stream comes. STANDIN_CUDNN_WORKSPACE: the bytes that a plan of a product
 * wants; what it is given is filled with NaN. The first product is told on stderr. */
#include "cudnn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static size_t size_of(unsigned type)
{
    switch (type) {
    case IS_TYPE:
    case 8:
    case IS_KNOB:
    case 11:
    case IS_POINTWISE:
    case IS_REDUCTION:
    case IS_MODE: return 4;
    case IS_FLAG: return 1;
    case 0:
    case IS_INT64:
    case IS_ADDRESS:
    case IS_DESCRIPTOR: return 8;
    default: return 0;
    }
}
int64_t counted(const struct descriptor *d, unsigned name, unsigned type, const void **values)
{
    for (int i = 0; d && d->final && i < d->n; i++)
        if (d->of[i].name == name && d->of[i].type == type)
            return *values = d->of[i].value, d->of[i].count;
    return 0;
}
const void *kept(const struct descriptor *d, unsigned name, unsigned type, int64_t count)
{
    for (int i = 0; d && d->final && i < d->n; i++)
        if (d->of[i].name == name && d->of[i].type == type && d->of[i].count == count)
            return d->of[i].value;
    fprintf(stderr, "stand-in cuDNN: no finished descriptor with %lld of attribute %u, type %u\n",
            (long long)count, name, type);
    return NULL;
}
struct descriptor *part(const struct descriptor *d, unsigned name)
{
    struct descriptor *p = NULL;
    const void *at = kept(d, name, IS_DESCRIPTOR, 1);
    return at ? memcpy(&p, at, sizeof p), p : NULL;
}

EXPORTED unsigned cudnnGetProperty(unsigned what, int *value)
{
    return *value = what == 0 ? 9 : what == 1 ? 19 : 0, SUCCESS;
}
EXPORTED size_t cudnnGetVersion(void) { return (size_t)standin_setting("STANDIN_CUDNN", 91900); }
EXPORTED const char *cudnnGetErrorString(unsigned status)
{
    return status == SUCCESS     ? "CUDNN_STATUS_SUCCESS"
           : status == BAD_PARAM ? "CUDNN_STATUS_BAD_PARAM"
                                 : "CUDNN_STATUS_NOT_SUPPORTED";
}
EXPORTED unsigned cudnnCreate(struct handle **handle)
{
    return (*handle = calloc(1, sizeof **handle)) ? SUCCESS : EXECUTION_FAILED;
}
EXPORTED unsigned cudnnDestroy(struct handle *handle) { return free(handle), SUCCESS; }
EXPORTED unsigned cudnnSetStream(struct handle *handle, stream_t stream)
{
    return handle->stream = stream, SUCCESS;
}
EXPORTED unsigned cudnnBackendCreateDescriptor(unsigned kind, struct descriptor **d)
{
    if (!(*d = calloc(1, sizeof **d))) return EXECUTION_FAILED;
    return (*d)->kind = kind, SUCCESS;
}
EXPORTED unsigned cudnnBackendDestroyDescriptor(struct descriptor *d) { return free(d), SUCCESS; }
EXPORTED unsigned cudnnBackendSetAttribute(struct descriptor *d, unsigned name, unsigned type,
                                           int64_t count, const void *from)
{
    if (d->final || !size_of(type) || count < 1 || count > MOST || d->n == ATTRIBUTES)
        return BAD_PARAM;
    struct attribute *a = &d->of[d->n++];
    *a = (struct attribute){.name = name, .type = type, .count = count};
    memcpy(a->value, from, size_of(type) * (size_t)count);
    return SUCCESS;
}

/* ── the one operation ───────────────────────────────────────────────────────── */
struct tensor {
    int32_t type;
    int64_t id, alignment, extent[3], stride[3];
    unsigned char *at;
};
struct product {
    struct tensor z, w, first, y;
    unsigned char *workspace;
    size_t workspace_bytes;
};

static bool read_tensor(const struct descriptor *operation, unsigned name, struct tensor *t)
{
    const struct descriptor *d = part(operation, name);
    const void *type = kept(d, 901, IS_TYPE, 1), *extent = kept(d, 902, IS_INT64, 3),
               *stride = kept(d, 903, IS_INT64, 3), *id = kept(d, 906, IS_INT64, 1),
               *alignment = kept(d, 900, IS_INT64, 1);
    if (!type || !extent || !stride || !id || !alignment || d->kind != TENSOR) return false;
    memcpy(&t->type, type, 4), memcpy(&t->id, id, 8), memcpy(&t->alignment, alignment, 8);
    memcpy(t->extent, extent, sizeof t->extent), memcpy(t->stride, stride, sizeof t->stride);
    return true;
}
static bool read_product(const struct descriptor *graph, struct product *p)
{
    const struct descriptor *o = part(graph, 801);
    const void *mode = kept(o, 2900, IS_MODE, 1), *precision = kept(o, 2901, IS_TYPE, 1);
    const int32_t none = 0;
    if (!mode || !precision || o->kind != GROUPED || memcmp(mode, &none, 4) ||
        memcmp(precision, &none, 4))
        return false;
    if (!read_tensor(o, 2902, &p->z) || !read_tensor(o, 2903, &p->w) ||
        !read_tensor(o, 2904, &p->first) || !read_tensor(o, 2905, &p->y))
        return false;
    const int64_t *z = p->z.extent, *w = p->w.extent, *first = p->first.extent, *y = p->y.extent;
    bool types =
        p->z.type == BF16 && p->w.type == BF16 && p->first.type == I32 && p->y.type == BF16;
    return types && z[0] == 1 && y[0] == 1 && z[1] == y[1] && z[2] == w[1] && y[2] == w[2] &&
           first[0] == w[0] && first[1] == 1 && first[2] == 1 && z[2] % 8 == 0 && y[2] % 8 == 0;
}
/* Of a configuration by the heuristic, or of one with an engine. */
static const struct descriptor *engine_of(const struct descriptor *config)
{
    const void *at;
    return counted(config, 300, IS_DESCRIPTOR, &at) ? part(config, 300) : NULL;
}
static const struct descriptor *graph_of(const struct descriptor *config)
{
    const struct descriptor *engine = engine_of(config);
    return engine ? part(engine, 1300) : part(config, 801);
}
/* What a plan wants. */
static int64_t bytes_of(const struct descriptor *plan)
{
    const struct descriptor *config = part(plan, 401), *graph = graph_of(config);
    return attention_is(graph) ? attention_bytes(graph, engine_of(config), config)
                               : standin_setting("STANDIN_CUDNN_WORKSPACE", 128);
}
EXPORTED unsigned cudnnBackendFinalize(struct descriptor *d)
{
    struct product p;
    if (d->final) return BAD_PARAM;
    d->final = true;
    if (d->kind == PLAN && attention_is(graph_of(part(d, 401))) && bytes_of(d) < 0)
        return NOT_SUPPORTED;
    return d->kind == GRAPH && !attention_is(d) && !read_product(d, &p) ? NOT_SUPPORTED : SUCCESS;
}

/* The heuristic names one configuration, which remembers its graph; its engine has no notes; a plan
 * wants what the setting says. */
EXPORTED unsigned cudnnBackendGetAttribute(struct descriptor *d, unsigned name, unsigned type,
                                           int64_t wanted, int64_t *count, void *to)
{
    if (!d->final && d->kind != CONFIG) return BAD_PARAM;
    if (name == 202 && type == IS_DESCRIPTOR && wanted > 0) {
        struct descriptor *config, *graph = part(d, 201);
        memcpy(&config, to, sizeof config);
        *count = 1;
        cudnnBackendSetAttribute(config, 801, IS_DESCRIPTOR, 1, &graph);
        return cudnnBackendFinalize(config);
    }
    if (name == 402 && type == IS_INT64) {
        const int64_t bytes = bytes_of(d);
        return memcpy(to, &bytes, sizeof bytes), *count = 1, SUCCESS;
    }
    if (name == 300 || name == 1303) {
        struct descriptor *engine;
        if (name == 1303) return *count = 0, SUCCESS;
        memcpy(&engine, to, sizeof engine);
        return engine->final = true, *count = 1, SUCCESS;
    }
    return NOT_SUPPORTED;
}

float bf16_value(const unsigned char *at, int64_t i)
{
    uint16_t half;
    uint32_t bits;
    float x;
    memcpy(&half, at + 2 * i, 2);
    bits = (uint32_t)half << 16;
    return memcpy(&x, &bits, 4), x;
}
void bf16_put(unsigned char *at, int64_t i, float x)
{
    uint32_t bits;
    memcpy(&bits, &x, 4);
    uint16_t half = (uint16_t)(x != x ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    memcpy(at + 2 * i, &half, 2);
}
static int64_t first_of(const struct product *p, int64_t e)
{
    int32_t row;
    return memcpy(&row, p->first.at + 4 * e * p->first.stride[0], 4), row;
}
static enum standin_progress run_product(void *data)
{
    const struct product *p = data;
    const int64_t experts = p->w.extent[0], rows = p->z.extent[1], in = p->z.extent[2],
                  out = p->y.extent[2];
    if (p->workspace) memset(p->workspace, 0xff, p->workspace_bytes);
    for (int64_t e = 0; e < experts; e++) {
        int64_t from = first_of(p, e), to = e + 1 < experts ? first_of(p, e + 1) : rows;
        if (from < 0 || from > to || to > rows)
            return standin_error(719, "stand-in cuDNN: expert %lld has rows %lld to %lld of %lld",
                                 (long long)e, (long long)from, (long long)to, (long long)rows),
                   STANDIN_FAILED;
        for (int64_t r = from; r < to; r++)
            for (int64_t o = 0; o < out; o++) {
                float sum = 0;
                for (int64_t i = 0; i < in; i++)
                    sum += bf16_value(p->z.at, r * p->z.stride[1] + i * p->z.stride[2]) *
                           bf16_value(p->w.at,
                                      e * p->w.stride[0] + i * p->w.stride[1] + o * p->w.stride[2]);
                bf16_put(p->y.at, r * p->y.stride[1] + o * p->y.stride[2], sum);
            }
    }
    return STANDIN_DONE;
}

static bool find_address(const struct descriptor *pack, struct tensor *t)
{
    const int64_t *extent = t->extent, *stride = t->stride;
    size_t bytes = (t->type == I32 ? 4 : 2) *
                   (size_t)(1 + (extent[0] - 1) * stride[0] + (extent[1] - 1) * stride[1] +
                            (extent[2] - 1) * stride[2]);
    const void *ids = kept(pack, 1000, IS_INT64, 4), *addresses = kept(pack, 1001, IS_ADDRESS, 4);
    for (int i = 0; ids && addresses && i < 4; i++) {
        int64_t id;
        void *at;
        memcpy(&id, (const unsigned char *)ids + 8 * i, 8),
            memcpy(&at, (const unsigned char *)addresses + 8 * i, 8);
        if (id == t->id && (intptr_t)at % t->alignment == 0 && (t->at = standin_memory(at, bytes)))
            return true;
    }
    fprintf(stderr,
            "stand-in cuDNN: operand %lld has no address, is not aligned as it was said to be or "
            "is not in one allocation\n",
            (long long)t->id);
    return false;
}
EXPORTED unsigned cudnnBackendExecute(struct handle *handle, struct descriptor *plan,
                                      struct descriptor *pack)
{
    static bool told;
    struct product p = {.workspace_bytes = (size_t)standin_setting("STANDIN_CUDNN_WORKSPACE", 128)};
    const void *workspace = kept(pack, 1003, IS_ADDRESS, 1);
    void *at;
    if (plan->kind != PLAN || pack->kind != PACK || !workspace) return BAD_PARAM;
    const struct descriptor *graph = graph_of(part(plan, 401));
    if (attention_is(graph))
        return attention_run(handle, graph, pack, bytes_of(plan),
                             engine_of(part(plan, 401)) != NULL);
    if (!read_product(graph, &p)) return BAD_PARAM;
    memcpy(&at, workspace, sizeof at);
    if (p.workspace_bytes && !(p.workspace = standin_memory(at, p.workspace_bytes)))
        return BAD_PARAM;
    if (!find_address(pack, &p.z) || !find_address(pack, &p.w) || !find_address(pack, &p.first) ||
        !find_address(pack, &p.y))
        return BAD_PARAM;
    if (!told) fprintf(stderr, "stand-in cuDNN: grouped products\n");
    told = true;
    return standin_enqueue(handle->stream, "grouped product", run_product, &p, sizeof p)
               ? EXECUTION_FAILED
               : SUCCESS;
}
