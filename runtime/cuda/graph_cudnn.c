/* Descriptors, one after the other: see graph_cudnn.h. */
#include "graph_cudnn.h"

#include "library.h"

#include <string.h>

enum { /* kinds of descriptors, attributes, types of attributes, as of cuDNN 9 */
       KIND_POINTWISE = 0,
       KIND_ENGINE = 2,
       KIND_CONFIG = 3,
       KIND_HEURISTIC = 4,
       KIND_PLAN = 5,
       KIND_CHOICE = 7,
       KIND_OF_POINTWISE = 13,
       KIND_GRAPH = 15,
       KIND_PACK = 16,
       KIND_TENSOR = 17,
       KIND_MATMUL = 18,
       KIND_OF_MATMUL = 19,
       KIND_REDUCTION = 21,
       KIND_OF_REDUCTION = 22,
       KIND_OF_RESHAPE = 31,
       KIND_DEVICE = 38,
       KIND_OF_GROUPED = 42,
       POINTWISE_MODE = 0,
       POINTWISE_PRECISION = 1,
       POINTWISE_AXIS = 9,
       OF_POINTWISE = 750,
       OF_POINTWISE_X = 751,
       OF_POINTWISE_B = 752,
       OF_POINTWISE_Y = 753,
       OF_POINTWISE_T = 758,
       HEURISTIC_MODE = 200,
       HEURISTIC_GRAPH = 201,
       HEURISTIC_RESULTS = 202,
       HEURISTIC_DEVICE = 204,
       CONFIG_ENGINE = 300,
       CONFIG_CHOICES = 302,
       PLAN_CONFIG = 401,
       PLAN_WORKSPACE = 402,
       PLAN_DEVICE = 407,
       CHOICE_KNOB = 600,
       CHOICE_VALUE = 601,
       GRAPH_OPERATIONS = 801,
       TENSOR_ALIGNMENT = 900,
       TENSOR_TYPE = 901,
       TENSOR_EXTENTS = 902,
       TENSOR_STRIDES = 903,
       TENSOR_ID = 906,
       TENSOR_IS_VIRTUAL = 907,
       TENSOR_BY_VALUE = 908,
       PACK_IDS = 1000,
       PACK_ADDRESSES = 1001,
       PACK_WORKSPACE = 1003,
       ENGINE_GRAPH = 1300,
       ENGINE_NUMBER = 1301,
       ENGINE_NOTES = 1303,
       ENGINE_DEVICE = 1307,
       MATMUL_PRECISION = 1500,
       OF_MATMUL_A = 1520,
       OF_MATMUL_B = 1521,
       OF_MATMUL_C = 1522,
       OF_MATMUL = 1523,
       REDUCTION_OPERATOR = 1600,
       REDUCTION_PRECISION = 1601,
       OF_REDUCTION_X = 1610,
       OF_REDUCTION_Y = 1611,
       OF_REDUCTION = 1612,
       OF_RESHAPE_X = 2200,
       OF_RESHAPE_Y = 2201,
       DEVICE_HANDLE = 2701,
       DEVICE_JSON = 2702,
       OF_GROUPED_MODE = 2900,
       OF_GROUPED_PRECISION = 2901,
       OF_GROUPED_Z = 2902,
       OF_GROUPED_W = 2903,
       OF_GROUPED_FIRST = 2904,
       OF_GROUPED_Y = 2905,
       IS_HANDLE = 0,
       IS_TYPE = 1,
       IS_BOOLEAN = 2,
       IS_INT64 = 3,
       IS_ADDRESS = 6,
       IS_HEURISTIC = 8,
       IS_KNOB = 9,
       IS_NOTE = 11,
       IS_POINTWISE = 14,
       IS_DESCRIPTOR = 15,
       IS_REDUCTION = 18,
       IS_TEXT = 24,
       IS_GROUPED_MODE = 30,
       HEURISTIC_A = 3,
       NOTE_NOT_DETERMINISTIC = 4,
       NOTES = 16,
       CONFIGS = 8,
       ROWS_AS_THEY_LIE = 0,
};

static void *make(struct dnn_graph *g, unsigned kind)
{
    void *d = NULL;
    if (!g->status && g->n == DNN_DESCRIPTORS) g->status = 1;
    if (!g->status) g->status = cudnn.cudnnBackendCreateDescriptor(kind, &d);
    if (g->status) return NULL;
    return g->made[g->n++] = d;
}

static void set(struct dnn_graph *g, void *d, unsigned attribute, unsigned type, int64_t count,
                const void *from)
{
    if (!g->status) g->status = cudnn.cudnnBackendSetAttribute(d, attribute, type, count, from);
}
static void set_number(struct dnn_graph *g, void *d, unsigned attribute, int64_t value)
{
    set(g, d, attribute, IS_INT64, 1, &value);
}
static void set_word(struct dnn_graph *g, void *d, unsigned attribute, unsigned type, int value)
{
    set(g, d, attribute, type, 1, &value);
}
static void set_flag(struct dnn_graph *g, void *d, unsigned attribute, bool value)
{
    set(g, d, attribute, IS_BOOLEAN, 1, &value);
}
static void set_part(struct dnn_graph *g, void *d, unsigned attribute, void *part)
{
    set(g, d, attribute, IS_DESCRIPTOR, 1, &part);
}

static void finish(struct dnn_graph *g, void *d)
{
    if (!g->status) g->status = cudnn.cudnnBackendFinalize(d);
}

static void finish_operation(struct dnn_graph *g, void *d)
{
    finish(g, d);
    if (!g->status && g->operations == DNN_OPERATIONS) g->status = 1;
    if (!g->status) g->operation[g->operations++] = d;
}

void dnn_drop(struct dnn_graph *g)
{
    while (g->n) cudnn.cudnnBackendDestroyDescriptor(g->made[--g->n]);
    memset(g, 0, sizeof *g);
}

/* ── tensors and operations ──────────────────────────────────────────────────── */
static void *tensor(struct dnn_graph *g, const struct dnn_tensor *t, int rank)
{
    void *d = make(g, KIND_TENSOR);
    set_word(g, d, TENSOR_TYPE, IS_TYPE, t->type);
    set(g, d, TENSOR_EXTENTS, IS_INT64, rank, t->extent);
    set(g, d, TENSOR_STRIDES, IS_INT64, rank, t->stride);
    set_number(g, d, TENSOR_ID, t->id);
    set_number(g, d, TENSOR_ALIGNMENT, DNN_ALIGNMENT);
    set_flag(g, d, TENSOR_BY_VALUE, t->by_value);
    set_flag(g, d, TENSOR_IS_VIRTUAL, !t->kept && !t->by_value);
    finish(g, d);
    return d;
}
void *dnn_tensor(struct dnn_graph *g, const struct dnn_tensor *t) { return tensor(g, t, 4); }
void *dnn_tensor_3(struct dnn_graph *g, const struct dnn_tensor *t) { return tensor(g, t, 3); }

void dnn_matmul(struct dnn_graph *g, void *a, void *b, void *c)
{
    void *how = make(g, KIND_MATMUL), *d;
    set_word(g, how, MATMUL_PRECISION, IS_TYPE, DNN_F32);
    finish(g, how);
    d = make(g, KIND_OF_MATMUL);
    set_part(g, d, OF_MATMUL_A, a);
    set_part(g, d, OF_MATMUL_B, b);
    set_part(g, d, OF_MATMUL_C, c);
    set_part(g, d, OF_MATMUL, how);
    finish_operation(g, d);
}

static void pointwise(struct dnn_graph *g, int op, int64_t axis, void *x, void *b, void *which,
                      void *y)
{
    void *how = make(g, KIND_POINTWISE), *d;
    set_word(g, how, POINTWISE_MODE, IS_POINTWISE, op);
    set_word(g, how, POINTWISE_PRECISION, IS_TYPE, op == DNN_NOT_LESS ? DNN_BOOLEAN : DNN_F32);
    if (op == DNN_INDEX) set_number(g, how, POINTWISE_AXIS, axis);
    finish(g, how);
    d = make(g, KIND_OF_POINTWISE);
    set_part(g, d, OF_POINTWISE, how);
    set_part(g, d, OF_POINTWISE_X, x);
    set_part(g, d, OF_POINTWISE_Y, y);
    if (b) set_part(g, d, OF_POINTWISE_B, b);
    if (which) set_part(g, d, OF_POINTWISE_T, which);
    finish_operation(g, d);
}
void dnn_pointwise(struct dnn_graph *g, int op, void *x, void *b, void *y)
{
    pointwise(g, op, 0, x, b, NULL, y);
}
void dnn_select(struct dnn_graph *g, void *x, void *b, void *which, void *y)
{
    pointwise(g, DNN_SELECT, 0, x, b, which, y);
}
void dnn_index(struct dnn_graph *g, int axis, void *x, void *y)
{
    pointwise(g, DNN_INDEX, axis, x, NULL, NULL, y);
}

void dnn_reduce(struct dnn_graph *g, int op, void *x, void *y)
{
    void *how = make(g, KIND_REDUCTION), *d;
    set_word(g, how, REDUCTION_PRECISION, IS_TYPE, DNN_F32);
    set_word(g, how, REDUCTION_OPERATOR, IS_REDUCTION, op);
    finish(g, how);
    d = make(g, KIND_OF_REDUCTION);
    set_part(g, d, OF_REDUCTION, how);
    set_part(g, d, OF_REDUCTION_X, x);
    set_part(g, d, OF_REDUCTION_Y, y);
    finish_operation(g, d);
}

void dnn_reshape(struct dnn_graph *g, void *x, void *y)
{
    void *d = make(g, KIND_OF_RESHAPE);
    set_part(g, d, OF_RESHAPE_X, x);
    set_part(g, d, OF_RESHAPE_Y, y);
    finish_operation(g, d);
}

void dnn_grouped_matmul(struct dnn_graph *g, void *z, void *w, void *first, void *y)
{
    void *d = make(g, KIND_OF_GROUPED);
    set_word(g, d, OF_GROUPED_MODE, IS_GROUPED_MODE, ROWS_AS_THEY_LIE);
    set_word(g, d, OF_GROUPED_PRECISION, IS_TYPE, DNN_F32);
    set_part(g, d, OF_GROUPED_Z, z);
    set_part(g, d, OF_GROUPED_W, w);
    set_part(g, d, OF_GROUPED_FIRST, first);
    set_part(g, d, OF_GROUPED_Y, y);
    finish_operation(g, d);
}

/* ── plans ───────────────────────────────────────────────────────────────────── */
void *dnn_device_of(struct dnn_graph *g, void *handle)
{
    void *d = make(g, KIND_DEVICE);
    set(g, d, DEVICE_HANDLE, IS_HANDLE, 1, &handle);
    finish(g, d);
    return d;
}

void *dnn_device_as(struct dnn_graph *g, const char *json)
{
    void *d = make(g, KIND_DEVICE);
    set(g, d, DEVICE_JSON, IS_TEXT, (int64_t)strlen(json), json);
    finish(g, d);
    return d;
}

/* Whether the engine of a configuration says that its sums have an order. */
static bool is_deterministic(void *config)
{
    void *engine = NULL;
    int32_t note[NOTES];
    int64_t n = 0;
    bool fine =
        cudnn.cudnnBackendCreateDescriptor(KIND_ENGINE, &engine) == 0 &&
        cudnn.cudnnBackendGetAttribute(config, CONFIG_ENGINE, IS_DESCRIPTOR, 1, &n, &engine) == 0 &&
        cudnn.cudnnBackendGetAttribute(engine, ENGINE_NOTES, IS_NOTE, NOTES, &n, note) == 0;
    for (int64_t i = 0; fine && i < n && i < NOTES; i++) fine = note[i] != NOTE_NOT_DETERMINISTIC;
    if (engine) cudnn.cudnnBackendDestroyDescriptor(engine);
    return fine;
}

static void *plan_of(struct dnn_graph *g, void *device, void *config, int64_t room, int64_t *bytes)
{
    void *d = make(g, KIND_PLAN);
    int64_t n = 0;
    set_part(g, d, PLAN_CONFIG, config);
    set_part(g, d, PLAN_DEVICE, device);
    finish(g, d);
    bool fits = !g->status &&
                cudnn.cudnnBackendGetAttribute(d, PLAN_WORKSPACE, IS_INT64, 1, &n, bytes) == 0 &&
                n == 1 && *bytes <= room;
    g->status = 0; /* that one cannot be had spoils nothing: the next is tried */
    return fits ? d : NULL;
}

static void *engine_config(struct dnn_graph *g, void *device, void *graph,
                           const struct dnn_engine *engine)
{
    void *e = make(g, KIND_ENGINE), *choice[DNN_KNOBS], *config;
    set_part(g, e, ENGINE_GRAPH, graph);
    set_number(g, e, ENGINE_NUMBER, engine->number);
    set_part(g, e, ENGINE_DEVICE, device);
    finish(g, e);
    for (int i = 0; i < engine->knobs; i++) {
        choice[i] = make(g, KIND_CHOICE);
        set_word(g, choice[i], CHOICE_KNOB, IS_KNOB, engine->choice[i].knob);
        set_number(g, choice[i], CHOICE_VALUE, engine->choice[i].value);
        finish(g, choice[i]);
    }
    config = make(g, KIND_CONFIG);
    set_part(g, config, CONFIG_ENGINE, e);
    set(g, config, CONFIG_CHOICES, IS_DESCRIPTOR, engine->knobs, choice);
    finish(g, config);
    return config;
}

void *dnn_plan(struct dnn_graph *g, void *device, const struct dnn_engine *engine, int64_t room,
               int64_t *bytes)
{
    void *graph = make(g, KIND_GRAPH), *heuristic, *config[CONFIGS], *plan = NULL;
    int64_t n = 0;
    set(g, graph, GRAPH_OPERATIONS, IS_DESCRIPTOR, g->operations, g->operation);
    finish(g, graph);
    if (engine) {
        config[0] = engine_config(g, device, graph, engine);
        return g->status ? NULL : plan_of(g, device, config[0], room, bytes);
    }
    heuristic = make(g, KIND_HEURISTIC);
    set_part(g, heuristic, HEURISTIC_GRAPH, graph);
    set_word(g, heuristic, HEURISTIC_MODE, IS_HEURISTIC, HEURISTIC_A);
    set_part(g, heuristic, HEURISTIC_DEVICE, device);
    finish(g, heuristic);
    for (int i = 0; i < CONFIGS; i++) config[i] = make(g, KIND_CONFIG);
    if (!g->status)
        g->status = cudnn.cudnnBackendGetAttribute(heuristic, HEURISTIC_RESULTS, IS_DESCRIPTOR,
                                                   CONFIGS, &n, config);
    for (int64_t i = 0; !plan && !g->status && i < n && i < CONFIGS; i++)
        if (is_deterministic(config[i])) plan = plan_of(g, device, config[i], room, bytes);
    return plan;
}

unsigned dnn_run(void *handle, void *plan, int n, const int64_t *id, void *const *address,
                 void *workspace)
{
    struct dnn_graph g = {0};
    void *pack = make(&g, KIND_PACK);
    set(&g, pack, PACK_WORKSPACE, IS_ADDRESS, 1, &workspace);
    set(&g, pack, PACK_ADDRESSES, IS_ADDRESS, n, address);
    set(&g, pack, PACK_IDS, IS_INT64, n, id);
    finish(&g, pack);
    unsigned status = g.status ? g.status : cudnn.cudnnBackendExecute(handle, plan, pack);
    dnn_drop(&g);
    return status;
}
