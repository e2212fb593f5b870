/* The functions of a device: everything that a generated schedule.c calls. The same text runs on
 * cpu (threads and MPI), on trace (prints, executes nothing) and on cuda (streams, events, NCCL),
 * so the rules are those of the strictest device:
 *   - work is issued on lanes and done later: `run` on the compute lane, collectives on the gather,
 *     the reduce and the replicas lane;
 *   - a collective waits, on its device, for all compute issued before it; compute waits for a
 *     collective only by `await` on its event;
 *   - collectives are issued in one order on all ranks. Those of the FSDP group (gather and reduce
 *     lane) execute one after the other in that order, and so do those of the replicas (replicas
 *     lane), each of which begins when all that was issued on the reduce lane before it is done;
 *     what the one group waits for of the other (gather_replicas, reduce_after) was issued before.
 *     So at most two are under way, of two groups. Ranks may execute the two in another order, or
 *     one may wait for a rank that executes the other: that ends only if both fit on a device at
 *     once, which the device has to guarantee (cuda: by limits of their thread blocks). A device
 *     may execute all of them in the one order of issue instead;
 *   - no function returns device data to the host, allocates, or depends on the step except through
 *     the scalars in device memory, so the micro-batch (first, middle, last) and the update can be
 *     captured once and replayed;
 *   - every function takes the number of its schedule step, which the runtime publishes before it
 *     does anything, so that a watchdog can say where a rank is.
 * A device is one allocation. Its end is `wire`, what collectives touch (same offsets on every
 * rank); `local` counts from its beginning and may use space of `wire` while no collective needs
 * it. */
#ifndef PLANC_DEVICE_H
#define PLANC_DEVICE_H

#include <stdint.h>

struct device;

/* What a kernel works on when it walks a unit's shard: elements [from, from + count) of the unit's
 * shard buffers, all of one decay group. Other kernels get NULL. */
struct stretch {
    int64_t from, count;
    double decay, lr_scale, balance_mean, balance_rate;
};

/* One compute kernel. cpu: `call` is the function; trace: NULL. For the profile: flops and bytes of
 * one call, and the class: the op of a kernel of one op ("matmul", "attention_grad"), what a fused
 * one walks ("map", "row", "column", "row+column"), or NULL. */
struct kernel {
    const char *name;
    void (*call)(void *const *address, const struct stretch *s);
    double flops, bytes;
    const char *class;
};

/* What activations and gathered weights are kept in. */
enum element_type { TYPE_F32, TYPE_BF16 };

/* Which micro-batch of the step: a step of one is both. FORWARD: of a validation, for which a
 * device leaves out the steps that program.step does not mark. LOGITS: the same, issued step by
 * step, for --sample, which looks at them; a schedule never sees it. */
enum micro { MICRO_FIRST = 1, MICRO_LAST = 2, MICRO_FORWARD = 4, MICRO_LOGITS = 8 };

/* Addresses in the allocation (on trace: the offset itself, tagged by segment, never read). */
void *local(struct device *d, int64_t offset);
void *wire(struct device *d, int64_t offset);

/* Published position: the loop iteration now running (layer index), -1 outside loops. No step
 * number of its own. */
void iteration(struct device *d, int64_t i);

/* Compute lane: one kernel. `address`: its arguments in order; NULL-terminated. */
void run(struct device *d, int step, const struct kernel *k, void *const *address);
/* Compute lane: one kernel over each segment of instance `unit`'s shard on this rank (padding left
 * out). */
void run_shard(struct device *d, int step, const struct kernel *k, int64_t unit,
               void *const *address);

/* Replicas lane, in the first micro-batch; nothing in others: the parts of unit instance `unit`,
 * cast from the FP32 master to the compute type, gathered over the replicas to its resident shard.
 * The gather lane goes on when that is done. Only schedules with parts call it. */
void gather_replicas(struct device *d, int step, int64_t unit, int micro);
/* Gather lane: the shards of unit instance `unit`, cast from the FP32 master to the compute type
 * (with parts: the resident shards), to `slot` (whole flat unit). `event`: done. */
void gather(struct device *d, int step, int64_t unit, void *slot, int event);
/* Reduce lane: `slot` (FP32, whole flat unit) is summed over the FSDP group, each rank its shard,
 * through `stage` (shard-sized FP32), and set (first micro-batch) or added to the resident gradient
 * shard at `into`. `event`: done, the slot may be written again. */
void reduce(struct device *d, int step, int64_t unit, void *slot, void *stage, void *into,
            int micro, int event);
/* Replicas lane, in the last micro-batch; nothing in others: the gradient shard at `shard`, which
 * the latest reduction has completed, is summed over the replicas. `event`: this and all before it
 * on the lane are done. Only schedules of several replicas call it. */
void sum_replicas(struct device *d, int step, int64_t unit, void *shard, int micro, int event);
/* The same where the replicas have parts: each its part of the sum, which goes to `into` (FP32, a
 * part; it may be the beginning of `shard`). What else was in `shard` is lost. */
void scatter_replicas(struct device *d, int step, int64_t unit, void *shard, void *into, int micro,
                      int event);
/* Reduce lane: what is issued on it from here on begins when the event's latest recording is done;
 * at once when it was never recorded. */
void reduce_after(struct device *d, int step, int event);
/* Reduce lane, and for the group "world" then the replicas lane: `count` F64 at `address` summed
 * over the ranks of `group` ("fsdp", "world"): over the shards of each replica, then over the
 * replicas. */
void sum_ranks(struct device *d, int step, const char *group, double *address, int64_t count,
               int event);
/* Compute lane: waits for the event's latest recording; returns at once when it was never
 * recorded. */
void await(struct device *d, int step, int event);

/* Host lane, then compute waits: token ids of this micro-batch, int32, tokens x 2 (inputs and
 * targets). */
void load_batch(struct device *d, int step, int32_t *tokens, int32_t *targets, int micro);
/* The same with separate documents: also the first row of the document that each row is of. */
void load_documents(struct device *d, int step, int32_t *tokens, int32_t *targets, int32_t *starts,
                    int micro);
/* For --probe and --sample: rows x columns of `type` named `name`. Nothing otherwise. */
void tap(struct device *d, int step, const char *name, enum element_type type, const void *value,
         int64_t rows, int64_t columns);

/* ── what schedule.c gives ───────────────────────────────────────────────────── */
void schedule_setup(struct device *d); /* once, before the first step: tables */
void schedule_micro_batch(struct device *d, int micro);
void schedule_update(struct device *d); /* norm, clipping, optimizer */

#endif
