/* The tables of the hand-written plan. */
#include "tiny.h"

#ifndef TRAIN
#define TRAIN "tokens.bin"
#endif
#ifndef DEVICE
#define DEVICE "cpu"
#endif
#ifndef INIT
#define INIT 0
#endif
#ifndef NONFINITE
#define NONFINITE 0
#endif
#ifndef FEATURES
#define FEATURES "sse2"
#endif

static const struct tensor layer_tensors[] = {
    {"model.layers.{i}.shift.weight", 1, {V}, 0, 0, V, INIT_NORMAL, 0.5, 0, 1},
    {"model.layers.{i}.mix.weight", 2, {2, V}, 0, MIX_AT, 2 * V, INIT_ONES, 0, 0.1, 1},
};
static const struct tensor table_tensors[] = {
    {"model.table.weight", 2, {V, V}, 0, 0, V *V, INIT_NORMAL, 0.5, 0.1, 1},
    {"model.bias.weight", 1, {V}, 0, BIAS_AT, V, INIT_ZEROS, 0, 0, 1},
};
static const struct unit units[] = {
    {"layers", LAYERS, 0, LAYER_ELEMENTS, LAYER_SHARD, 0, layer_tensors, 2},
    {"table", 1, 0, TABLE_ELEMENTS, TABLE_SHARD, LAYERS *LAYER_SHARD, table_tensors, 2},
};
static const struct metric metrics[] = {{"loss", 1, METRICS},
                                        {"ce", 1, METRICS + 8},
                                        {"load", 3, METRICS + 16}};
static const struct step_name steps[] = {
    {"", ""},
    {"prologue", "load"},
    {"prologue", "gather table"},
    {"layers.forward", "gather layer"},
    {"prologue", "wait for table"},
    {"prologue", "look up"},
    {"layers.forward", "wait for layer"},
    {"layers.forward", "shift"},
    {"loss", "tap"},
    {"loss", "cross-entropy"},
    {"table.backward", "table gradient"},
    {"table.backward", "reduce table"},
    {"layers.backward", "wait for slot"},
    {"layers.backward", "layer gradient"},
    {"layers.backward", "reduce layer"},
    {"update", "wait for gradients"},
    {"update", "squares"},
    {"update", "sum of squares"},
    {"update", "wait for sum"},
    {"update", "norm"},
    {"update", "adamw"},
};
static const char *const trains[] = {TRAIN};
static const char *const ignores[] = {"model.layers.{i}.buffer", "*rotary.inv_freq"};
static const char *const prefixes[] = {"model.", ""};
static const char *const features[] = {FEATURES};

const struct program program = {
    .title = "tiny",
    .plan_path = "tiny.plan",
    .device = DEVICE,
    .fsdp = FSDP,
    .dp = DP,
    .accumulation = ACCUMULATION,
    .local = LOCAL,
    .sequence = SEQUENCE,
    .global = GLOBAL,
    .tokens = TOKENS,
    .parameters = LAYERS * 3 * V + V * V + V,
    .vocabulary = V,
    .flops_per_token = 6.0 * V,
    .local_bytes = LOCAL_BYTES,
    .wire_bytes = WIRE_BYTES,
    .master = MASTER,
    .gradient = GRADIENT,
    .moment1 = MOMENT1,
    .moment2 = MOMENT2,
    .scalars = SCALARS,
    .staging = STAGING,
    .staging_bytes = STAGING_BYTES,
    .compute_type = COMPUTE,
    .unit = units,
    .units = 2,
    .metric = metrics,
    .metrics = 3,
    .step = steps,
    .steps = sizeof steps / sizeof *steps - 1,
    .events = 8,
    .lr = 1e-2,
    .beta1 = 0.9,
    .beta2 = 0.95,
    .schedule = RATE_COSINE,
    .warmup = 2,
    .warmup_to = 1,
    .schedule_steps = 12,
    .floor = 0.1,
    .run_steps = 12,
    .data_train = trains,
    .data_trains = sizeof trains / sizeof *trains,
    .data_format = FORMAT,
#ifdef IGNORE
    .has_ignore = true,
    .ignore = IGNORE,
#endif
    .init_from = INIT,
    .init_seed = 1,
    .tensor_ignore = ignores,
    .tensor_ignores = 2,
    .tensor_prefix = prefixes,
    .tensor_prefixes = 2,
    .gemm = ENGINE_PLANC,
    .timeout_seconds = TIMEOUT,
    .nonfinite = NONFINITE,
    .cpu_feature = features,
    .cpu_features = 1,
};
