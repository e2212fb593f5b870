/* The plan with every key known, checked and defaulted. Everything after the checker reads this and
 * never the text, so a plan that exists is valid: sizes divide, degrees match the cluster, names
 * are families that exist. Sizes are bytes, counts are counts, times are seconds. There is one
 * number per key: a plan with alternatives is a space and gives no `struct plan`. */
#ifndef PLANC_PLAN_H
#define PLANC_PLAN_H

#include "text/constant.h"

enum element { F32, BF16, F64, I32 }; /* element types, also of the IR */
#define ELEMENTS (I32 + 1)
enum device_kind { DEVICE_CPU, DEVICE_CUDA };
enum reshard { RESHARD_FORWARD, RESHARD_BACKWARD, RESHARD_STEP };
enum checkpoint_mode {
    CHECKPOINT_NONE,
    CHECKPOINT_SELECTIVE,
    CHECKPOINT_FULL,
    CHECKPOINT_BUDGET, /* this and auto: until they are decided (passes/budget.h) */
    CHECKPOINT_AUTO
};
enum schedule_kind { SCHEDULE_CONSTANT, SCHEDULE_COSINE, SCHEDULE_LINEAR, SCHEDULE_WSD };
enum decay_shape { DECAY_LINEAR, DECAY_SQRT, DECAY_COSINE };
/* in the order of the words of data.format, then what it is without one */
enum data_format {
    DATA_BYTES,
    DATA_UINT16,
    DATA_UINT32,
    DATA_MEGATRON,
    DATA_NUMPY,
    DATA_LLMC,
    DATA_JSON_LINES,
    DATA_RECOGNISED
};
enum data_order { ORDER_SEQUENTIAL, ORDER_SHUFFLED };
enum gemm { GEMM_CUBLASLT, GEMM_PLANC };
enum attention { ATTENTION_PLANC, ATTENTION_CUDNN, ATTENTION_AUTO };
enum experts { EXPERTS_PLANC, EXPERTS_CUDNN, EXPERTS_CUBLASLT, EXPERTS_AUTO };
enum nonfinite { NONFINITE_STOP, NONFINITE_SKIP };

/* at: where the plan (or the default) says so */
struct hyper {
    const char *name;
    struct constant value;
    struct span at;
};

/* Where a figure comes from, and how far the truth may lie from it (as a part of it). */
enum basis { BASIS_MEASURED, BASIS_PUBLISHED, BASIS_ASSUMED };
struct provenance {
    double spread;
    enum basis basis;
    const char *source, *date; /* NULL: not said */
    struct span at;
};
enum order { ORDER_ANY, ORDER_NN, ORDER_NT, ORDER_TN, ORDER_TT };

/* `efficiency CLASS ENGINE TYPE { … }`: the part of a peak that kernels of a class reach. */
struct efficiency {
    const char *class, *engine;
    int type; /* enum element; -1: any */
    enum order order;
    double value, half;
    int64_t tile[2], width; /* width 0: any */
    bool split;
    struct provenance from;
};

/* `grid CLASS ENGINE TYPE OP { … }`: values at the points of one to three axes, the last axis
 * fastest. Axes rise. */
enum grid_unit { GRID_GFLOPS, GRID_NANOSECONDS, GRID_GIGABYTES, GRID_MICROSECONDS };
enum { GRID_AXES = 3 };
struct grid {
    const char *class, *engine, *op; /* op NULL: the whole class */
    int type;                        /* enum element; -1: any */
    enum order order;
    int64_t ranks;
    enum grid_unit unit;
    int axes, n[GRID_AXES];
    double *axis[GRID_AXES], *value;
    struct provenance from;
};

/* What the values of a class of grids are and how many axes it has; the keys of those: "m",
 * "gflops". The class is one of keys.def. */
enum grid_unit grid_unit_of(const char *class, int *axes);
const char *const *grid_axis_names(const char *class);
const char *grid_unit_name(enum grid_unit unit);

/* One direction, a device: bytes/s (0: not known), seconds. */
struct link {
    double bandwidth, latency, base;
    struct provenance from;
};

struct cluster {
    const char *name;        /* "b200", "cpu" */
    const char *device_name; /* "NVIDIA B200" */
    enum device_kind kind;
    bool elastic; /* as many devices as the mesh asks for */
    int64_t nodes, devices_per_node;
    int64_t host_memory; /* bytes of a host; 0: not known */
    const char *arch;    /* "sm_100a"; NULL on cpu */
    int64_t multiprocessors;
    int64_t memory_bytes;  /* what a device offers; 0: read from the machine */
    int64_t outside_bytes; /* context, modules, communicators: assumed */
    double bandwidth;      /* device memory, bytes/s; 0: not known */
    double flops_bf16, flops_fp32;
    struct link link_node, link_network;
    int64_t cores; /* of a host; 0: not known */
    /* standard deviations, as parts: of devices' speeds, of a step's time */
    double device_spread, jitter;
    double imbalance; /* of the rows of experts: the fullest has 1 + this times the mean */
    struct {
        double launch, step; /* seconds: between two kernels, between two steps */
        double issue;        /* seconds of compute: issuing a collective */
        struct provenance from;
    } host;
    struct {
        int64_t multiprocessors;
        double block; /* bytes/s of a link that a thread block fills; 0: not known */
        double traffic, core, link;
        struct provenance from;
    } contention;
    /* rows that hold for this cluster's architecture; later ones replaced earlier ones */
    struct efficiency *efficiency;
    struct grid *grid;
    int efficiencies, grids;
    struct span at;
};

/* An optimizer group, for weights whose stored name the pattern stands for; of each of its numbers
 * the last group that matches and gives it counts. */
struct weight_group {
    const char *pattern;
    bool has_decay, has_scale;
    double weight_decay, lr_scale;
    struct span at;
};

/* The checkpoints of a run. every_steps or every_seconds is 0; keep 0: all. */
struct saving {
    bool given;            /* the plan has a checkpoint section */
    const char *directory; /* resolved; NULL: not given */
    int64_t every_steps, keep, keep_every;
    double every_seconds;
    bool async;
};

/* A key with the value that it has, as JSON. mathematics: a run that goes on with another value
 * computes something else than it would have, beyond the last bits. */
struct resolved_key {
    const char *path, *json;
    bool mathematics;
};
typedef VECTOR(struct resolved_key) resolved_keys;

/* Another trainer, whose run check and simulate answer for. name NULL: none. */
enum trainer_save { TRAINER_SAVE_SECOND, TRAINER_SAVE_PLAN };
enum trainer_gradients { TRAINER_GRADIENTS_BACKWARD, TRAINER_GRADIENTS_STEP };
enum trainer_reshard { TRAINER_RESHARD_DEFAULT, TRAINER_RESHARD_ALWAYS, TRAINER_RESHARD_NEVER };
struct other_trainer {
    const char *name;
    const char *engine; /* of its efficiencies; NULL: planc's own hold */
    bool compile, streams;
    enum trainer_save save;
    enum trainer_gradients gradients;
    enum trainer_reshard reshard;
    double logit_bytes, logit_kept_bytes; /* of a logit */
    double fragmentation;                 /* part of live activations */
    struct span at;
};

/* A source of tokens of a mixture. share: of each stage, the samples of a period that are of this
 * source; the shares of all sources make the period. */
struct data_source {
    const char *name;
    const char *const *files; /* resolved, may be patterns */
    int n_files;
    int64_t *share;
};

struct plan {
    const char *path, *title;
    const char *predicted;               /* C text that program.c ends with; NULL: none */
    const char *architecture;            /* "llama" */
    const struct ast *architecture_body; /* items of its block */
    struct hyper *hyper;
    int n_hyper; /* every declared hyper-parameter, defaulted */
    struct span model_at;
    /* entries at file level of the architecture's file */
    struct hyper *constant;
    int n_constants;
    /* Said in the architecture's block `stored { prefix "model." ""; ignore "*.inv_freq" }`: other
     * prefixes that a stored name may have instead of the first, and stored names (patterns with *)
     * that may be there and are not read. */
    const char *const *stored_prefix;
    int n_stored_prefix;
    const char *const *stored_ignore;
    int n_stored_ignore;
    struct cluster cluster;
    struct other_trainer trainer;
    /* what the trainer is for: the cluster's kind, but where a command's --device says otherwise */
    enum device_kind device;
    /* of cuda: what kernels are compiled for, the cluster's or those of --arch; else none */
    const char *const *arch;
    int n_arch;
    int64_t fsdp, dp, prefetch, reduce_slots;
    enum reshard reshard;
    /* master weights and moments are cut over the replicas too (mesh.optimizer = all) */
    bool optimizer_all;
    enum element compute; /* weights, gradients and moments of a shard are F32 */
    enum checkpoint_mode checkpoint_mode, checkpoint_wished; /* wished: what the plan says */
    int64_t checkpoint_every;
    const char *checkpoint_layers; /* "0..4 8..12", half open; "": all */
    /* op kinds and value names, blanks between: what selective keeps */
    const char *checkpoint_save;
    /* bytes that a device's peak may reach (mode budget); 0: 92 % of what it offers */
    int64_t checkpoint_budget;
    /* the other layers' mode, and what it keeps: none, but where a budget decides */
    enum checkpoint_mode checkpoint_rest;
    const char *checkpoint_rest_save;
    int64_t sequence, local, global, accumulation;
    int64_t loss_chunks, chunks_wished; /* wished: what the plan says; 0: as few as fit */
    double lr, beta1, beta2, eps, weight_decay, clip; /* clip 0: none */
    struct weight_group *group;
    int n_groups;
    enum schedule_kind schedule;
    int64_t warmup, schedule_steps, decay;
    enum decay_shape decay_shape;
    double warmup_from, warmup_to, floor; /* parts of lr */
    /* resolved against the plan's folder, may be patterns; 0: not given */
    const char *const *data_train;
    int n_data_train;
    /* A mixture; then data_train has the files of all of them. 0: none. stage_step: the first step
     * of each stage. */
    struct data_source *source;
    int n_sources;
    int64_t *stage_step;
    int n_stages;
    const char *const *data_validation; /* the same of other files */
    int n_data_validation;
    enum data_format data_format;
    const char *data_field;     /* of JSON lines */
    const char *data_tokenizer; /* resolved; NULL: not given */
    enum data_order data_order;
    int64_t data_seed;
    /* separate documents: no target of a document's last token counts. It is given the id ignore,
     * which is -1 where data.ignore is off */
    bool has_ignore;
    int64_t ignore;
    bool separate;     /* data.documents */
    int64_t end_token; /* of a document; -1: none */
    int64_t init_seed;
    const char *init_from;                      /* resolved; NULL: seeded */
    int64_t run_steps;                          /* default: schedule_steps; 0: not given */
    int64_t validate_every, validate_steps;     /* 0: never; 0: all of data_validation */
    double timeout_seconds, time_limit_seconds; /* limit 0: none */
    const char *skip_batches;                   /* "1000..1011", half open; "": none */
    struct saving saving;
    struct constant *value; /* of every key, by enum key_id; read where has_value says so */
    bool *has_value;
    enum nonfinite nonfinite;
    bool graph; /* of cuda alone, as are the four below */
    enum gemm gemm;
    enum attention attention;
    enum experts experts;
    bool nccl;           /* one rank uses it too */
    int64_t nccl_blocks; /* of a collective at most; 0: not said */
    /* where the plan says it, for diagnostics and for the ledger's lines */
    struct {
        struct span mesh, batch, checkpoint, save, layers, budget, data, saving;
    } at;
    /* none when the plan leaves them to their defaults */
    struct {
        struct span graph, gemm, attention, experts, nccl, nccl_blocks, dp, global;
    } given;
    /* of a space: the number of the point of this plan. Where keys of axes have no effect, many
     * points are one plan: the one in which these keys have their standard choice */
    int64_t point;
};

/* Each replica has a part of its shard's optimizer: there are replicas, and the plan says so. */
static inline bool plan_parts_optimizer(const struct plan *p)
{
    return p->optimizer_all && p->dp > 1;
}

/* plan_keys.c: every key with its value, the model's first: what a checkpoint says of the plan that
 * it was made by, and what another plan is compared with. */
resolved_keys plan_keys(const struct plan *p);

/* From a file: parses it and what it uses, applies `set` (texts of --set, in order), checks,
 * resolves. NULL after diagnostics. *open_keys: the names of keys left open ("mesh.fsdp"), when
 * that is the reason. */
struct plan *plan_load(const char *path, const char *const *set, int n_set,
                       const char *const **open_keys, int *n_open);

/* rewrite.c: the text of a plan's file with these entries ("mesh.fsdp=16", as for --set) in place
 * of what it says. other: the cluster that takes the place of the plan's own; `use`: the file that
 * brings it, NULL when the plan's files do. NULL after diagnostics. */
struct other_cluster {
    const char *name, *use;
};
const char *plan_rewrite(const char *path, const char *const *set, int n_set,
                         const struct other_cluster *other);

/* From here on every plan that is loaded has the one cluster of this file in place of its own, of
 * which only `nodes` still counts (--cluster). */
void plan_replace_cluster(const char *path); /* NULL: no longer */
const char *plan_replaced_cluster(void);
/* The path of a cluster file that is given as a file or by the name of one of the library ("h100");
 * NULL: there is neither. */
const char *plan_cluster_file(const char *word);

/* The plan library, beside the compiler or where it was installed; NULL when there is none. */
const char *plan_library(void);

/* `*` stands for anything, {i} and {e} for a number. The name may be an architecture's, with {i}
 * and {e} in it. */
bool stored_matches(const char *pattern, const char *name);
/* How many letters of a pattern would have to change for it to stand for the name. */
int stored_distance(const char *pattern, const char *name);
/* Decoupled decay of a weight: that of the last group that its stored name is in; else the
 * optimizer's, for stored tensors of two or more dimensions. */
double plan_weight_decay(const struct plan *p, const char *stored, int rank);
/* Factor on the rate of a weight; whether any group gives one. */
double plan_lr_scale(const struct plan *p, const char *stored);
bool plan_scales_rates(const struct plan *p);

extern const char *const device_names[]; /* by enum device_kind: "cpu", "cuda" */
/* Takes the plan to the kind of device of that name ("cpu", "cuda"; --device), before a budget is
 * decided: what a processor offers is then read from the machine, and what libraries take beside
 * the plan is what they take on that kind. Another name, trace for one, or NULL leaves the plan
 * where its cluster is. */
void plan_take_device(struct plan *p, const char *name);
/* Who runs attention and expert products, never `auto`: that is cuDNN, and cuBLASLt, where one of
 * the plan's architectures has engines of theirs that may be used (sm_90, sm_100, sm_103). A
 * trainer of an `auto` plan does without a library that its host lacks. */
enum attention plan_attention(const struct plan *p);
enum experts plan_experts(const struct plan *p);
/* Warns of keys about cuda's engines and NCCL that do nothing on the plan's device, for its
 * trainer, its model or its mesh. */
void plan_warn_of_engines(const struct plan *p);

/* The architectures of --arch, "sm_90a,sm_100a"; NULL, or why that is no list of them. */
const char *plan_set_arch(struct plan *p, const char *list);

/* A plan with open alternatives, as a space: one axis an open key, its choices in the order of the
 * text, ranges written out. Points are numbered in the order of the axes, the last one fastest. */
struct axis {
    const char *key;
    const char *const *choice;
    int n;
    int standard; /* of the choices, the key's default; 0 where it is none of them */
};
struct space {
    struct axis *axis;
    int n_axes;
    int64_t points;
    const char *trainer; /* that the plan names; NULL: none */
    struct checker *checker;
    const struct ast ***tree;
};
/* A file read and checked once: its plan, or the space of its open keys (the plan is NULL then);
 * neither after diagnostics. */
struct plan *plan_or_space_load(const char *path, const char *const *set, int n_set,
                                struct space **space);
/* The plan of one point: choice[k] of axis k. NULL when its keys do not go together, *why then
 * saying it. Says nothing. */
struct plan *space_plan(const struct space *s, const int *choice, const char **why);

#endif
