/* The rows of ops.def, and the names under which the text of the IR shows enumerators and reads
 * them back: each name stands once, here. */
#include "ir/ir.h"

const struct op_row op_rows[OP_COUNT] = {
#define OP(name, class, operands, results, cost, expression, help, template, workspace, bound, \
           terms)                                                                              \
    {#name,    CLASS_##class,         operands,      results,       COST_##cost,               \
     template, WORKSPACE_##workspace, BOUND_##bound, TERMS_##terms, expression,                \
     help},
#include "ir/ops.def"
};
const char *const bound_names[] = {"BOUND_EXACT", "BOUND_ROUNDED", "BOUND_SUMMED", "BOUND_PRODUCT",
                                   "BOUND_ATTENTION"};
const char *const cost_class_names[COST_CLASSES] = {
    "none", "gemm",   "grouped_gemm", "attention", "attention_grad", "map",
    "row",  "column", "total",        "move",      "update"};

const char *const experts_names[] = {"planc", "cudnn", "cublaslt", "auto"};
const char *const level_names[] = {"lower",     "join",  "split", "gradient", "chunk", "optimizer",
                                   "recompute", "shard", "fuse",  "schedule", "memory"};
const char *const element_names[] = {[F32] = "f32", [BF16] = "bf16", [F64] = "f64", [I32] = "i32"};
const char *const lane_names[] = {"none", "compute", "gather", "reduce", "replicas", "host"};
const char *const phase_names[] = {"setup", "micro", "update"};
const char *const direction_names[] = {"once", "up", "down"};
const char *const reshard_names[] = {"forward", "backward", "step"};
const char *const checkpoint_names[] = {"none", "selective", "full", "budget", "auto"};
const char *const weight_init_names[] = {"normal", "ones", "zeros"};
const char *const segment_names[] = {"local", "wire"};
const char *const buffer_kind_names[] = {
    [BUFFER_MASTER] = "master",
    [BUFFER_GRADIENT] = "gradient",
    [BUFFER_MOMENT1] = "moment1",
    [BUFFER_MOMENT2] = "moment2",
    [BUFFER_WEIGHTS] = "weights",
    [BUFFER_SCALARS] = "scalars",
    [BUFFER_STAGING] = "staging",
    [BUFFER_WORKSPACE] = "workspace",
    [BUFFER_REDUCE_STAGING] = "reduce staging",
    [BUFFER_METRICS] = "metrics",
    [BUFFER_GATHERED] = "gathered",
    [BUFFER_GRADIENT_SLOTS] = "gradient slots",
    [BUFFER_GRADIENT_SHARDS] = "gradient shards",
    [BUFFER_CARRIED] = "carried",
    [BUFFER_SAVED] = "saved",
    [BUFFER_BATCH] = "batch",
    [BUFFER_TABLES] = "tables",
    [BUFFER_WORKING] = "working",
    [BUFFER_ALIAS] = "alias",
};
const char *const buffer_index_names[] =
    {[INDEX_ONLY] = "", [INDEX_LAYER] = "i", [INDEX_RING] = "n", [INDEX_RING_NEXT] = "n+1"};
const char *const kernel_class_names[] = {"map", "row", "column", "row+column"};
/* Attributes of a shape. */
const char *const dim_names[] = {"d0", "d1", "d2", "d3"};
