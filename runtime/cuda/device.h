/* What the files of the cuda device share: device.c (the functions of device.h), find.c (which GPU,
 * how much memory), module.c (kernels and their launches), play.c (waiting, recording, replaying),
 * collectives_nccl.c. They use the driver API only; a lane is a stream, an event of the schedule a
 * CUDA event without timing. There is one device per process.
 *
 * Pieces. Everything that is issued eagerly is piece 0; everything recorded into one graph is a
 * piece of its own. An event orders work of one piece. Between pieces no waits are needed: the
 * recording of a graph ends with the compute lane waiting for all others, graphs are launched on
 * the compute lane one after the other, and between eager work and a graph the trainer drains the
 * device. So a wait for an event of another piece does nothing. */
#ifndef PLANC_DEVICE_CUDA_H
#define PLANC_DEVICE_CUDA_H

#include "library.h"
#include "shared/launch.h"
#include "shared/trainer.h"

enum lane { LANE_COMPUTE, LANE_GATHER, LANE_REDUCE, LANE_REPLICAS, LANES };
/* those of micro-batches are numbered by enum micro */
enum { GRAPH_UPDATE = (MICRO_FIRST | MICRO_LAST | MICRO_FORWARD) + 1, GRAPHS };
/* piece of its latest recording; -1: never recorded */
struct happening {
    cuda_event event;
    int64_t piece;
};

/* The position of the device, written by it into host memory: schedule step, iteration + 1 in the
 * upper half, and in the topmost bit that the compute lane waits for another lane. */
#define POSITION_WAITING ((uint64_t)1 << 63)

struct device {
    cuda_address arena; /* local_bytes, then wire */
    int64_t granted;    /* what the driver says the arena has */
    cuda_stream stream[LANES];
    /* of checkpoints: the lane that copies to the host, and what compute had done when it began */
    cuda_stream copy;
    cuda_event copy_from;
    struct happening *event; /* of the schedule */
    /* compute so far, when a transfer was issued; the latest collective of the FSDP group; the
     * reduce lane so far, when a sum over replicas was issued; the latest gather over replicas */
    struct happening computed, collected, reduced, together;
    int64_t piece, pieces; /* being issued; graphs recorded so far */
    bool used[LANES];      /* in the piece that is being recorded */
    struct instance *instance;
    bool forward; /* a validation: steps that it does not need are left out */
    int issuing;  /* the schedule step that the host is at; 0: none */
    int64_t iteration;

    float *staging;      /* pinned: program.staging_bytes */
    unsigned char *post; /* pinned: what the host writes or reads in passing */
    int64_t posted;      /* bytes of it on their way */
    /* pinned: tokens, targets and, of separate documents, starts of each micro-batch of a step */
    int32_t *batch;
    int64_t micro_batch;
    /* where the schedule wants them; known once it has said so. starts 0: it wants none */
    cuda_address tokens, targets, starts;
    volatile uint64_t *position;   /* pinned: of each lane */
    cuda_address position_address; /* the same, for the device */

    cuda_graph_exec graph[GRAPHS]; /* NULL: not recorded */
    bool played, recorded;         /* a whole step eagerly; all that can be recorded */
    /* something may be under way that publishes positions */
    _Atomic bool running;
};
enum { CUDA_WHO = 256, CUDA_WHERE = 576, NCCL_ERROR = 480 };
extern struct device cuda;

/* ── device_cuda.c ───────────────────────────────────────────────────────────── */
void cuda_copy_batch(struct device *d); /* d->micro_batch to where the schedule wants it */

/* ── cuda_find.c ─────────────────────────────────────────────────────────────── */
extern struct gpu {
    int number, major, minor, multiprocessors, shared;
    char name[128];
    cuda_context context;
    int64_t total, free;
} gpu;
bool cuda_take_arena(struct device *d); /* false: noted */
/* zeroed, for the whole run; ends the run when there is none */
void *cuda_pinned(int64_t bytes);

/* ── cuda_module.c ───────────────────────────────────────────────────────────── */
/* Kernels of templates/cuda/runtime.cuh, which every module has. */
enum runtime_kernel {
    RUNTIME_CAST_BF16,
    RUNTIME_SPLIT_BF16,
    RUNTIME_SET_F32,
    RUNTIME_ADD_F32,
    RUNTIME_PUBLISH,
    RUNTIME_CHECKSUM,
    RUNTIME_KERNELS
};
/* finds or makes the cubin, loads it, looks all functions up; collective; false: noted */
bool cuda_module_open(void);
void cuda_launch_runtime(enum runtime_kernel kernel, enum lane lane, int64_t blocks, int threads,
                         void **argument);
const char *cuda_module_name(void); /* "kernels.sm_90a.cubin", or how it was made */

/* ── cuda_play.c ─────────────────────────────────────────────────────────────── */
/* Records, or waits on the stream of `lane` for the latest recording if it is of this piece. */
void cuda_record(struct device *d, struct happening *h, enum lane lane);
void cuda_wait(struct device *d, const struct happening *h, enum lane lane);
void cuda_publish(struct device *d, enum lane lane, int step, bool waiting);
void cuda_forget(struct device *d); /* the graphs: at the end */
void cuda_settle(struct device *d); /* until all lanes have done what they were given */
/* "rank 2, issuing step 12 of the schedule (…)": the step at which a call failed. */
const char *cuda_where(char text[CUDA_WHERE]);
/* "rank 2 on node07, GPU 3 (NVIDIA H200)" */
const char *cuda_who(char text[CUDA_WHO]);

/* ── start_engines.c ─────────────────────────────────────────────────────────── */
/* Of this run; program has what the plan wishes. */
extern struct engines {
    enum engine gemm, attention, experts;
} engines;
void engines_open(void);                  /* loads libraries; collective; may end the run */
void engines_ask(void);                   /* what they take, in the arena's workspace; collective */
bool engines_take(const struct offer *o); /* one of launch_offer */
void engines_say(void);                   /* at start */

/* ── start_nccl.c ────────────────────────────────────────────────────────────── */
bool nccl_environment(void); /* before the first call of NCCL; collective; false: noted */
/* What the communicators touch of the arena; collective. */
void nccl_register(struct device *d, const nccl_comm *comm, int comms);
void nccl_forget(void);
void nccl_describe(int blocks); /* blocks: the limit of a collective; 0: none */
const char *nccl_said(unsigned result, nccl_comm comm, char text[NCCL_ERROR]);

/* ── collectives_nccl.c ──────────────────────────────────────────────────────── */
/* NCCL is loaded and its communicators are made only for several ranks.
 * Collective; false: noted. */
bool nccl_open(void);
void nccl_know(struct device *d); /* the arena, after cuda_take_arena; collective */
void nccl_close(void);
void nccl_say(void);       /* at start */
bool nccl_wanted(void);    /* more than one rank, or run.nccl = on */
bool nccl_of_shards(void); /* whether the FSDP group has a communicator */
/* On a lane's stream. gather: the whole slot from each rank's part, which lies in it. reduce: this
 * rank's shard of the sum. Collectives of the replicas come on LANE_REPLICAS alone, so its stream
 * is their order; gather: the whole shard from each one's `bytes`, which lie in it; scatter: `to`,
 * or this one's part in place, is its part of the sum. */
void nccl_gather(struct device *d, enum lane lane, void *slot, int64_t shard, int64_t bytes);
void nccl_reduce_scatter(struct device *d, enum lane lane, const void *slot, void *to,
                         int64_t shard);
void nccl_sum_replicas(struct device *d, void *shard, int64_t count);
void nccl_gather_replicas(struct device *d, void *shard, int64_t bytes);
void nccl_scatter_replicas(struct device *d, const void *shard, void *to, int64_t part);
/* F64: over the shards on LANE_REDUCE; over the replicas on LANE_REPLICAS. */
void nccl_sum_numbers(struct device *d, enum lane lane, double *value, int64_t count);
void nccl_look(void); /* for errors of communicators; one ends the run */

#endif
