/* Attention by cuDNN. In cuDNN attention is a graph of plain operations whose pattern it
 * recognises: forward, softmax(scale q k' + mask) v with the softmax spelled out and its
 * log-sum-exp kept; backward, the products and sums of its gradient. Query heads that share a key
 * head are repeated extents.
 *
 * Every run gives the same bits: engines without a fixed order of sums are not used. Backward, one
 * engine of Blackwell and, from 9.25 on, one of Hopper add up dq in a fixed order if they are
 * requested by number and knobs; Hopper's wants dq as an F32 tensor that is rounded afterwards.
 * What the heuristic names for the plain graph on a Hopper keeps all slopes in memory instead, two
 * bytes per query and key, which fits the workspace only for short sequences. For the graph with
 * the F32 tensor it names engines that add in any order, and does not mark them: so that graph is
 * never left to the heuristic. The choice depends on version, device, shape and workspace only, so
 * ranks agree. */
#include "attention_cudnn.h"

#include "device.h"
#include "start_cudnn.h"

#include <math.h>
#include <string.h>

enum { SHAPES = 32, EDGE = 256 };
struct entry {
    struct attention key;
    int64_t bytes;
    bool summed;
    void *plan;
    struct dnn_graph graph;
};

static struct {
    struct entry entry[SHAPES];
    int entries;
} known;

/* ── the graph ───────────────────────────────────────────────────────────────── */
/* [sequences, heads, sequence, width] as stored in rows of tokens, or with the last two swapped. */
static void *rows(struct dnn_graph *g, const struct attention *a, int64_t id, int64_t heads,
                  bool across)
{
    int64_t row = heads * a->width, s = a->sequence, w = a->width;
    struct dnn_tensor t = {id,
                           DNN_BF16,
                           {a->sequences, heads, across ? w : s, across ? s : w},
                           {s * row, w, across ? 1 : row, across ? row : 1},
                           true,
                           false};
    return dnn_tensor(g, &t);
}
/* One number per query, [sequences, heads, sequence, 1], packed. */
static void *column(struct dnn_graph *g, const struct attention *a, int64_t id, bool kept)
{
    int64_t s = a->sequence;
    struct dnn_tensor t = {id,   DNN_F32, {a->sequences, a->heads, s, 1}, {a->heads * s, s, 1, 1},
                           kept, false};
    return dnn_tensor(g, &t);
}
static void *number(struct dnn_graph *g, int64_t id)
{
    struct dnn_tensor t = {id, DNN_F32, {1, 1, 1, 1}, {1, 1, 1, 1}, false, true};
    return dnn_tensor(g, &t);
}
/* Values between two operations; their ids begin after those of addresses. */
static int64_t next_id(const struct dnn_graph *g) { return ATTENTION_ADDRESSES + g->n; }
/* one number per query and key */
static void *squares(struct dnn_graph *g, const struct attention *a, int type, bool across)
{
    int64_t s = a->sequence;
    struct dnn_tensor t = {next_id(g),
                           type,
                           {a->sequences, a->heads, s, s},
                           {a->heads * s * s, s * s, across ? 1 : s, across ? s : 1},
                           false,
                           false};
    return dnn_tensor(g, &t);
}
/* one row per query or key, of every query head, packed by head */
static void *per_head(struct dnn_graph *g, const struct attention *a, int type)
{
    int64_t s = a->sequence, w = a->width;
    struct dnn_tensor t = {
        next_id(g), type, {a->sequences, a->heads, s, w}, {a->heads * s * w, s * w, w, 1},
        false,      false};
    return dnn_tensor(g, &t);
}

/* Scores whose key comes after their query are replaced by `never`. */
static void *masked(struct dnn_graph *g, const struct attention *a, void *scores, void *never)
{
    void *query = squares(g, a, DNN_I32, false), *key = squares(g, a, DNN_I32, false),
         *seen = squares(g, a, DNN_BOOLEAN, false), *y = squares(g, a, DNN_F32, false);
    dnn_index(g, 2, scores, query);
    dnn_index(g, 3, scores, key);
    dnn_pointwise(g, DNN_NOT_LESS, query, key, seen);
    dnn_select(g, scores, never, seen, y);
    return y;
}

static void forward_graph(struct dnn_graph *g, const struct attention *a)
{
    void *q = rows(g, a, ATTENTION_Q, a->heads, false),
         *k = rows(g, a, ATTENTION_K, a->kv_heads, true),
         *v = rows(g, a, ATTENTION_V, a->kv_heads, false);
    void *o = rows(g, a, ATTENTION_O, a->heads, false),
         *stats = column(g, a, ATTENTION_STATS, true), *scale = number(g, ATTENTION_SCALE),
         *never = number(g, ATTENTION_NEVER);
    void *product = squares(g, a, DNN_F32, false), *scores = squares(g, a, DNN_F32, false),
         *less = squares(g, a, DNN_F32, false), *power = squares(g, a, DNN_F32, false);
    void *weight = squares(g, a, DNN_BF16, false), *top = column(g, a, next_id(g), false),
         *sum = column(g, a, next_id(g), false), *log = column(g, a, next_id(g), false);
    dnn_matmul(g, q, k, product);
    dnn_pointwise(g, DNN_MUL, product, scale, scores);
    scores = masked(g, a, scores, never);
    dnn_reduce(g, DNN_REDUCE_MAX, scores, top);
    dnn_pointwise(g, DNN_SUB, scores, top, less);
    dnn_pointwise(g, DNN_EXP, less, NULL, power);
    dnn_reduce(g, DNN_REDUCE_ADD, power, sum);
    dnn_pointwise(g, DNN_LOG, sum, NULL, log);
    dnn_pointwise(g, DNN_ADD, top, log, stats);
    dnn_pointwise(g, DNN_DIV, power, sum, weight);
    dnn_matmul(g, weight, v, o);
}

/* d = x' rows, with one number of x per query and key; summed over query heads that share a key
 * head. */
static void to_keys(struct dnn_graph *g, const struct attention *a, void *x, void *of, int64_t id)
{
    void *turned = squares(g, a, DNN_BF16, true), *to = rows(g, a, id, a->kv_heads, false);
    dnn_reshape(g, x, turned);
    if (a->heads == a->kv_heads) {
        dnn_matmul(g, turned, of, to);
        return;
    }
    void *all = per_head(g, a, DNN_BF16);
    dnn_matmul(g, turned, of, all);
    dnn_reduce(g, DNN_REDUCE_ADD, all, to);
}

static void gradient_graph(struct dnn_graph *g, const struct attention *a, bool summed)
{
    void *q = rows(g, a, ATTENTION_Q, a->heads, false),
         *k = rows(g, a, ATTENTION_K, a->kv_heads, true),
         *v = rows(g, a, ATTENTION_V, a->kv_heads, true);
    void *o = rows(g, a, ATTENTION_O, a->heads, false),
         *d_o = rows(g, a, ATTENTION_DO, a->heads, false),
         *dq = rows(g, a, ATTENTION_DQ, a->heads, false);
    void *stats = column(g, a, ATTENTION_STATS, true), *delta = column(g, a, ATTENTION_DELTA, true);
    void *scale = number(g, ATTENTION_SCALE), *never = number(g, ATTENTION_NEVER),
         *one = number(g, ATTENTION_ONE);
    int64_t s = a->sequence, w = a->width;
    struct dnn_tensor both = {
        next_id(g), DNN_F32, {a->sequences, a->heads, s, w}, {s * a->heads * w, w, a->heads * w, 1},
        false,      false};
    void *inner = dnn_tensor(g, &both), *plain = column(g, a, next_id(g), false);
    dnn_pointwise(g, DNN_MUL, d_o, o, inner);
    dnn_reduce(g, DNN_REDUCE_ADD, inner, plain);
    dnn_pointwise(g, DNN_MUL, plain, one, delta);

    void *product = squares(g, a, DNN_F32, false), *scores = squares(g, a, DNN_F32, false),
         *less = squares(g, a, DNN_F32, false), *weight = squares(g, a, DNN_F32, false);
    dnn_matmul(g, q, k, product);
    dnn_pointwise(g, DNN_MUL, product, scale, scores);
    dnn_pointwise(g, DNN_SUB, scores, stats, less);
    dnn_pointwise(g, DNN_EXP, masked(g, a, less, never), NULL, weight);
    to_keys(g, a, weight, d_o, ATTENTION_DV);

    void *slope = squares(g, a, DNN_F32, false), *apart = squares(g, a, DNN_F32, false),
         *share = squares(g, a, DNN_F32, false), *scaled = squares(g, a, DNN_F32, false);
    dnn_matmul(g, d_o, v, slope);
    dnn_pointwise(g, DNN_SUB, slope, delta, apart);
    dnn_pointwise(g, DNN_MUL, apart, weight, share);
    dnn_pointwise(g, DNN_MUL, share, scale, scaled);
    to_keys(g, a, scaled, q, ATTENTION_DK);

    struct dnn_tensor turned = {next_id(g),
                                DNN_F32,
                                {a->sequences, a->kv_heads, s, w},
                                {s * a->kv_heads * w, w, a->kv_heads * w, 1},
                                false,
                                false};
    void *keys = dnn_tensor(g, &turned);
    dnn_reshape(g, k, keys);
    if (!summed) {
        dnn_matmul(g, scaled, keys, dq);
        return;
    }
    struct dnn_tensor long_dq = {
        ATTENTION_SUM, DNN_F32, {a->sequences, a->heads, s, w}, {a->heads * s * w, s * w, w, 1},
        true,          false};
    void *sum = dnn_tensor(g, &long_dq);
    dnn_matmul(g, scaled, keys, sum);
    dnn_pointwise(g, DNN_IDENTITY, sum, NULL, dq);
}

void cudnn_attention_graph(struct dnn_graph *g, const struct attention *a, bool summed)
{
    if (a->gradient)
        gradient_graph(g, a, summed);
    else
        forward_graph(g, a);
}

/* ── the choice ──────────────────────────────────────────────────────────────── */
struct attention_way cudnn_attention_way(const struct attention *a, int capability, size_t version)
{
    static const struct dnn_engine ordered = {5, 2, {{DNN_KNOB_KERNEL, 31}, {DNN_KNOB_STAGES, 2}}};
    static const struct dnn_engine ordered_since_9_23 = {5,
                                                         6,
                                                         {{DNN_KNOB_TILE_M, 3},
                                                          {DNN_KNOB_TILE_N, 2},
                                                          {DNN_KNOB_KERNEL, 2},
                                                          {DNN_KNOB_STREAM_K, 0},
                                                          {DNN_KNOB_CLUSTER_M, 0},
                                                          {DNN_KNOB_STAGES, 2}}};
    static const struct dnn_engine ordered_on_hopper = {6,
                                                        6,
                                                        {{DNN_KNOB_TILE_M, 2},
                                                         {DNN_KNOB_TILE_N, 1},
                                                         {DNN_KNOB_KERNEL, 2},
                                                         {DNN_KNOB_STREAM_K, 0},
                                                         {DNN_KNOB_CLUSTER_M, 0},
                                                         {DNN_KNOB_STAGES, 4}}};
    struct attention_way way = {NULL, false};
    if (a->gradient && capability == 90 && version >= 92500)
        way = (struct attention_way){&ordered_on_hopper, true};
    else if (a->gradient && capability >= 100 && capability <= 103 && version >= 91800)
        way.engine = version < 92300 ? &ordered : &ordered_since_9_23;
    return way;
}

static int64_t up(int64_t bytes) { return (bytes + EDGE - 1) / EDGE * EDGE; }

/* Where the parts of the workspace begin: stats at 0, delta, the sum of dq, what the engine wants.
 */
struct attention_room {
    int64_t delta, sum, engine;
};

static struct attention_room attention_room(const struct attention *a, bool summed)
{
    int64_t numbers = a->sequences * a->heads * a->sequence * (int64_t)sizeof(float),
            behind = up(numbers) + (a->gradient ? up(numbers) : 0);
    return (struct attention_room){.delta = up(numbers),
                                   .sum = behind,
                                   .engine = behind + (summed ? up(numbers * a->width) : 0)};
}

static struct entry *find(const struct attention *a, int64_t bytes)
{
    char where[CUDA_WHERE];
    for (int i = 0; i < known.entries; i++) {
        const struct attention *k = &known.entry[i].key;
        if (k->sequences == a->sequences && k->sequence == a->sequence && k->heads == a->heads &&
            k->kv_heads == a->kv_heads && k->width == a->width && k->gradient == a->gradient)
            return &known.entry[i];
    }
    if (known.entries == SHAPES)
        fail_now("%s: more than %d different shapes of attention; run.attention = planc does "
                 "without cuDNN",
                 cuda_where(where), SHAPES);
    struct entry *e = &known.entry[known.entries++];
    *e = (struct entry){.key = *a};
    const struct attention_way way =
        cudnn_attention_way(a, dnn.capability, cudnn.cudnnGetVersion());
    void *device = dnn_device_of(&e->graph, dnn.handle);
    cudnn_attention_graph(&e->graph, a, way.summed);
    e->plan = dnn_plan(&e->graph, device, way.engine, bytes - attention_room(a, way.summed).engine,
                       &e->bytes);
    e->summed = way.summed;
    return e;
}

bool cudnn_attention_known(const struct attention *a, int64_t bytes)
{
    return dnn.handle && find(a, bytes)->plan;
}

void cudnn_attention(const struct attention *a, void *const *p, void *stream, void *work,
                     int64_t bytes)
{
    static float one = 1.0f, never = -INFINITY;
    const struct entry *e = find(a, bytes);
    struct attention_room room = attention_room(a, e->summed);
    float scale = a->scale;
    char *base = work;
    void *address[ATTENTION_ADDRESSES] = {
        [ATTENTION_STATS] = base,   [ATTENTION_DELTA] = base + room.delta,
        [ATTENTION_SCALE] = &scale, [ATTENTION_NEVER] = &never,
        [ATTENTION_ONE] = &one,     [ATTENTION_SUM] = base + room.sum};
    static const int64_t forward[] = {ATTENTION_Q,     ATTENTION_K,     ATTENTION_V,    ATTENTION_O,
                                      ATTENTION_STATS, ATTENTION_SCALE, ATTENTION_NEVER};
    int64_t id[ATTENTION_ADDRESSES];
    void *at[ATTENTION_ADDRESSES];
    int n = !a->gradient ? (int)(sizeof forward / sizeof *forward)
            : e->summed  ? ATTENTION_ADDRESSES
                         : ATTENTION_SUM;
    memcpy(address, p, sizeof *p * (a->gradient ? ATTENTION_DV + 1 : ATTENTION_O + 1));
    for (int i = 0; i < n; i++) {
        id[i] = a->gradient ? i : forward[i];
        at[i] = address[id[i]];
    }
    unsigned status = cudnn.cudnnSetStream(dnn.handle, (cuda_stream)stream);
    if (!status) status = dnn_run(dnn.handle, e->plan, n, id, at, base + room.engine);
    char where[CUDA_WHERE];
    if (status)
        fail_now("%s: %s failed at attention%s of %lld x %lld tokens: %s", cuda_where(where),
                 dnn.name, a->gradient ? "'s gradient" : "", (long long)a->sequences,
                 (long long)a->sequence, cudnn.cudnnGetErrorString(status));
}
