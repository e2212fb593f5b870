/* The tables in a generated program.c: everything that the plan fixes and schedule.c does not
 * contain, as numbers, so nothing is parsed when a trainer starts. What varies by rank (which range
 * of which tensor a shard holds) is computed from them once at start. Offsets are bytes; counts are
 * elements unless named. */
#ifndef PLANC_PROGRAM_H
#define PLANC_PROGRAM_H

#include <stdbool.h>
#include <stdint.h>

#include "device.h"
#include "scalar.h"

/* program.c names these by their enumerators, so their order does not matter. */
enum init_kind { INIT_NORMAL, INIT_ONES, INIT_ZEROS };
enum rate_schedule { RATE_CONSTANT, RATE_COSINE, RATE_LINEAR, RATE_WSD };
enum decay_shape { SHAPE_LINEAR, SHAPE_SQRT, SHAPE_COSINE };
enum token_format {
    FORMAT_BYTES,
    FORMAT_UINT16,
    FORMAT_UINT32,
    FORMAT_MEGATRON,
    FORMAT_NUMPY,
    FORMAT_LLMC,
    FORMAT_JSON_LINES,
    FORMAT_RECOGNISED /* the content of each file decides */
};
enum sample_order { ORDER_SEQUENTIAL, ORDER_SHUFFLED };
enum nonfinite_action { NONFINITE_STOP, NONFINITE_SKIP };
/* Whose kernels do matrix products, attention and expert products on cuda. */
enum engine { ENGINE_PLANC, ENGINE_CUBLASLT, ENGINE_CUDNN };

/* One weight of a unit. `name` may hold {i} (layer) and {e} (stacked part). stack 0: one stored
 * tensor of shape dim[0..rank); otherwise `stack` stored tensors of shape dim[1..rank). */
struct tensor {
    const char *name;
    int rank;
    int64_t dim[4];
    int64_t stack;
    int64_t offset, count; /* in the unit's flat buffer, elements */
    enum init_kind init;
    double std;
    double weight_decay; /* 0 for stored tensors of fewer than two dimensions */
    double lr_scale;     /* factor on the rate */
    /* elements from the beginning of a part to that of the next, where the parts of another tensor
     * lie between them; 0: they follow each other */
    int64_t step;
    /* the bias of a router: how many tokens of a step choose an expert on average, and how far a
     * step moves it; 0: AdamW trains it. In BF16 it is gathered as three numbers an element. */
    double balance_mean, balance_rate;
};
/* `count` instances (layers), each a flat buffer of `elements` cut into `shard` elements per rank.
 */
struct unit {
    const char *name;
    int64_t count;
    /* layer index of each instance (what {i} becomes); NULL: 0, 1, 2 … */
    const int64_t *layer;
    int64_t elements, shard;
    /* elements: instance 0's shard in master, gradient, moments; instances follow each other */
    int64_t state_offset;
    const struct tensor *tensor;
    int tensors;
    /* with program.parts: elements of a part, which is what state_offset and master, moments mean
     * then; and instance 0's shard in what is resident by shards */
    int64_t part, shard_offset;
};

/* By schedule step, [0] unused. forward: the metrics of a micro-batch need it, so a validation has
 * it. */
struct step_name {
    const char *region, *what;
    bool forward;
};
/* F64 sums over the step's micro-batches, local segment */
struct metric {
    const char *name;
    int64_t count;
    int64_t offset;
};

/* A key of the resolved plan, its value as JSON. mathematics: another value trains something
 * else. */
struct plan_key {
    const char *path, *json;
    bool mathematics;
};

/* A source of a mixture. share: of each stage, the samples of a period that are of this source; the
 * shares of all sources make the period. */
struct data_source {
    const char *name;
    const char *const *files; /* names or patterns */
    int n_files;
    const int64_t *share;
};

/* FLOPs, forward and backward, of a query and a key of one document, in all layers of one window;
 * keys at `window` or more before the query do not count. 0: no window. */
struct pair_flops {
    int64_t window;
    double flops;
};

struct program {
    const char *title, *plan_path, *device;                          /* "cpu", "cuda", "trace" */
    int64_t fsdp, dp, accumulation, local, sequence, global, tokens; /* tokens: local x sequence */
    int64_t parameters, vocabulary;
    double flops_per_token; /* forward and backward, full convention, a document a sample */
    /* separate documents: what of it their lengths decide, and the rest */
    const struct pair_flops *pair;
    int pairs;
    double other_flops_per_token;
    /* memory */
    int64_t local_bytes, wire_bytes;                     /* the arena is both, wire after local */
    int64_t master, gradient, moment1, moment2, scalars; /* local segment */
    /* local segment: for saving, loading, checking */
    int64_t staging, staging_bytes;
    /* into how many parts, one of each replica, a shard of master weights and moments is cut; 0: it
     * is not. Then `weights` (local segment) has the shards in the compute type, and gradients are
     * whole shards, of which the rank's part comes first, or parts. */
    int64_t parts, weights;
    bool gradients_whole;
    enum element_type compute_type;
    /* instances are numbered unit by unit in this order */
    const struct unit *unit;
    int units;
    const struct metric *metric;
    int metrics; /* [0] is "loss" */
    const struct step_name *step;
    int steps; /* highest step number */
    int events;
    /* recipe */
    double lr, beta1, beta2;
    enum rate_schedule schedule;
    int64_t warmup, schedule_steps, decay;
    double floor, warmup_from, warmup_to; /* parts of lr */
    enum decay_shape decay_shape;         /* of wsd */
    int64_t run_steps;
    const char *const *data_train;
    int data_trains; /* names or patterns, in this order; of a mixture those of all sources */
    const struct data_source *source;
    int sources; /* 0: one stream */
    /* the first step of each stage of a mixture, as batches of the data are counted */
    const int64_t *stage_step;
    int stages;
    /* validation: names or patterns; validate_every 0: never, validate_steps 0: all of them */
    const char *const *data_validation;
    int data_validations;
    int64_t validate_every, validate_steps;
    enum token_format data_format;
    const char *data_field; /* of JSON lines; NULL: "text" */
    enum sample_order data_order;
    int64_t data_seed;
    bool has_ignore;
    int64_t ignore; /* -1: only the targets of documents' last tokens are masked */
    /* documents of a sample are kept apart; the id that ends one, -1: none does */
    bool separate;
    int64_t end_token;
    const char *init_from;
    int64_t init_seed;
    /* stored names that may be there and are not read ({i} allowed) */
    const char *const *tensor_ignore;
    int tensor_ignores;
    const char *const *tensor_prefix;
    int tensor_prefixes; /* a stored name may start with this instead of `tensor_prefix[0]`, e.g.
                            "transformer." and "" */
    double timeout_seconds, time_limit_seconds; /* limit 0: none */
    enum nonfinite_action nonfinite;
    /* checkpoints. given: the plan speaks of them, so a second copy is in its ledger; every_steps
     * or every_seconds is 0, keep 0: all */
    struct {
        bool given;
        const char *directory; /* 0: not given */
        int64_t every_steps;
        double every_seconds;
        int64_t keep, keep_every;
        bool async;
    } saving;
    const struct plan_key *plan_key;
    int plan_keys;
    /* batches of the data that are left out: [from, behind) */
    const int64_t (*skip_batch)[2];
    int skip_batches;
    const char *const *cpu_feature;
    int cpu_features; /* what kernels.c was compiled for: "avx512f" … */
    /* cuda; zero on cpu */
    /* local segment: what the kernels of the compute lane share */
    int64_t workspace, workspace_bytes;
    bool nccl;           /* one rank uses it too */
    int64_t nccl_blocks; /* of a collective at most; 0: not said */
    bool graph;
    enum engine gemm, attention, experts;
    /* where the host lacks the library that the engine is, planc's kernels do it */
    bool attention_auto, experts_auto;
    /* of one device for the compute type, what MFU is a part of; 0: not known */
    double peak_flops;
    /* assumed beside the arena: context, modules, communicators; 0 on cpu */
    int64_t outside_bytes;
};
extern const struct program program;

/* What the compiler knew of a kernel: its shape as members of a JSON object, and the seconds that a
 * call was predicted to take (0: not known). Programs that are written by hand have none. */
struct predicted_kernel {
    const char *name, *shape;
    double seconds;
};
struct predicted {
    const char *cluster, *device, *arch; /* device: as the cluster names it; arch: "", "sm_90a" */
    double step_seconds;                 /* 0: not predicted for this device */
    const struct predicted_kernel *kernel;
    int kernels;
};
extern const struct predicted predicted __attribute__((weak));

#endif
