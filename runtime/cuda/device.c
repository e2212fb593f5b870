/* The cuda device: the functions of device.h over streams and events, and device memory for the
 * host. Only functions that return data to the host wait for the device; everything else is issued.
 * A schedule relies on these rules:
 *   - a transfer begins when all compute issued before it is done (its lane waits for an event
 *     recorded on the compute lane);
 *   - compute waits for a transfer only by `await`;
 *   - collectives of the FSDP group run in the order of issue: each waits for the one before, by an
 *     event. Those of the replicas have a stream of their own and wait for the reduce lane.
 *   - both groups may have one under way: limits of their blocks, in collectives_nccl.c, make both
 *     fit. */
#define _GNU_SOURCE
#include "device.h"

#include <string.h>
#include <time.h>

#include "gemm_cublaslt.h"
#include "shared/sample.h"
#include "shared/watch.h"

struct device cuda = {.computed = {.piece = -1},
                      .collected = {.piece = -1},
                      .reduced = {.piece = -1},
                      .iteration = -1};

enum { POST_BYTES = 1 << 16, POST_ALIGN = 64 };

static cuda_address address_of(const void *at) { return (cuda_address)(uintptr_t)at; }

void *local(struct device *d, int64_t offset)
{
    return (void *)(uintptr_t)(d->arena + (cuda_address)offset);
}
void *wire(struct device *d, int64_t offset) { return local(d, program.local_bytes + offset); }

/* Where the host is in the schedule. It moves, whatever the device does; what it does the device
 * says itself. */
static void issue(struct device *d, int step)
{
    d->issuing = step;
    position_moved();
}

static bool left_out(const struct device *d, int step)
{
    return d->forward && !program.step[step].forward;
}

/* ── verbs: compute ──────────────────────────────────────────────────────────── */

void iteration(struct device *d, int64_t i) { d->iteration = i; }

/* While a step is watched; never what is recorded. */
static bool looked_at(const struct device *d) { return watching && d->piece == 0; }

static void call(struct device *d, const struct kernel *k, void *const *address,
                 const struct stretch *s, double part)
{
    if (looked_at(d))
        watch_kernel(d, k, address, s, part);
    else
        k->call(address, s);
}

void run(struct device *d, int step, const struct kernel *k, void *const *address)
{
    if (left_out(d, step)) return;
    issue(d, step);
    call(d, k, address, NULL, 1);
}

void run_shard(struct device *d, int step, const struct kernel *k, int64_t unit,
               void *const *address)
{
    const struct instance *n = &d->instance[unit];
    if (left_out(d, step)) return;
    issue(d, step);
    for (int i = 0; i < n->stretches; i++)
        call(d, k, address, &n->stretch[i], (double)n->stretch[i].count / (double)n->elements);
}

void await(struct device *d, int step, int event)
{
    const struct happening *h = &d->event[event];
    if (left_out(d, step)) return;
    issue(d, step);
    if (h->piece != d->piece) return;
    cuda_publish(d, LANE_COMPUTE, step, true);
    cuda_wait(d, h, LANE_COMPUTE);
    cuda_publish(d, LANE_COMPUTE, step, false);
}

/* ── verbs: transfers ────────────────────────────────────────────────────────── */

/* Its answer goes to `end`. */
static int64_t begin(struct device *d, int step, enum lane lane, const char *what, int64_t unit)
{
    issue(d, step);
    cuda_record(d, &d->computed, LANE_COMPUTE);
    cuda_wait(d, &d->computed, lane);
    cuda_publish(d, lane, step, false);
    return looked_at(d) ? watch_begin(d, (enum watch_lane)lane, what, unit) : -1;
}

static void end(struct device *d, enum lane lane, int64_t mark, int event)
{
    if (looked_at(d)) watch_end(d, (enum watch_lane)lane, mark);
    if (event >= 0) cuda_record(d, &d->event[event], lane);
}

static void elementwise(enum runtime_kernel kernel, enum lane lane, const void *from, void *to,
                        int64_t n)
{
    cuda_launch_runtime(kernel, lane, (n + 1023) / 1024, 256, (void *[]){&from, &to, &n});
}

/* What rounding to BF16 leaves of the biases of routers, which all lie in the first part. */
static void split_biases(const struct unit *u, enum lane lane, const float *master, uint16_t *to)
{
    for (int t = 0; t < u->tensors && world.part == 0; t++)
        if (u->tensor[t].balance_mean > 0)
            elementwise(RUNTIME_SPLIT_BF16, lane, master + u->tensor[t].offset,
                        to + u->tensor[t].offset, u->tensor[t].count);
}

static int64_t weight_bytes(void) { return program.compute_type == TYPE_BF16 ? 2 : 4; }

static void copy(struct device *d, enum lane lane, void *to, const void *from, int64_t bytes)
{
    CUDA(cuMemcpyDtoDAsync, address_of(to), address_of(from), (size_t)bytes, d->stream[lane]);
}

/* This rank's master weights of an instance in the compute type. */
static void cast_weights(struct device *d, enum lane lane, const struct instance *n, char *to)
{
    const int64_t part = state_part(n->unit);
    const float *master = local(d, program.master + 4 * (n->unit->state_offset + n->index * part));
    if (program.compute_type == TYPE_BF16) {
        elementwise(RUNTIME_CAST_BF16, lane, master, to, part);
        split_biases(n->unit, lane, master, (uint16_t *)(void *)to);
    } else
        copy(d, lane, to, master, 4 * part);
}

/* Of an instance, where the replicas have parts. */
static char *resident_shard(struct device *d, const struct instance *n)
{
    const struct unit *u = n->unit;
    return local(d, program.weights + weight_bytes() * (u->shard_offset + n->index * u->shard));
}

void gather_replicas(struct device *d, int step, int64_t unit, int micro)
{
    const struct instance *n = &d->instance[unit];
    const int64_t bytes = n->unit->part * weight_bytes();
    if (left_out(d, step) || !(micro & MICRO_FIRST)) return;
    char *shard = resident_shard(d, n);
    int64_t mark = begin(d, step, LANE_REPLICAS, "gather over replicas", unit);
    cast_weights(d, LANE_REPLICAS, n, shard + world.replica * bytes);
    nccl_gather_replicas(d, shard, bytes);
    end(d, LANE_REPLICAS, mark, -1);
    cuda_record(d, &d->together, LANE_REPLICAS);
    cuda_wait(d, &d->together, LANE_GATHER);
}

void gather(struct device *d, int step, int64_t unit, void *slot, int event)
{
    const struct instance *n = &d->instance[unit];
    const int64_t shard = n->unit->shard, bytes = weight_bytes();
    char *mine = (char *)slot + world.shard * shard * bytes;
    if (left_out(d, step)) return;
    int64_t mark = begin(d, step, LANE_GATHER, "gather", unit);
    if (program.parts)
        copy(d, LANE_GATHER, mine, resident_shard(d, n), shard * bytes);
    else
        cast_weights(d, LANE_GATHER, n, mine);
    if (nccl_of_shards()) nccl_gather(d, LANE_GATHER, slot, shard, bytes);
    end(d, LANE_GATHER, mark, event);
}

/* In the first micro-batch the sum of the group lands where it is kept; later it comes through
 * `stage` and is added. */
void reduce(struct device *d, int step, int64_t unit, void *slot, void *stage, void *into,
            int micro, int event)
{
    const int64_t shard = d->instance[unit].unit->shard;
    const bool set = (micro & MICRO_FIRST) != 0;
    if (left_out(d, step)) return;
    int64_t mark = begin(d, step, LANE_REDUCE, "reduce", unit);
    watch_micro(mark, micro);
    /* one rank has no stage: what it adds later comes from the slot */
    const bool scatters = program.fsdp > 1 || (nccl_of_shards() && set);
    if (scatters) nccl_reduce_scatter(d, LANE_REDUCE, slot, set ? into : stage, shard);
    if (!scatters || !set)
        elementwise(set ? RUNTIME_SET_F32 : RUNTIME_ADD_F32, LANE_REDUCE,
                    program.fsdp > 1 ? stage : slot, into, shard);
    end(d, LANE_REDUCE, mark, event);
}

/* After all that was issued on the reduce lane, and so after the compute before that. */
static void after_reductions(struct device *d)
{
    cuda_record(d, &d->reduced, LANE_REDUCE);
    cuda_wait(d, &d->reduced, LANE_REPLICAS);
}

void sum_replicas(struct device *d, int step, int64_t unit, void *shard, int micro, int event)
{
    if (left_out(d, step) || !(micro & MICRO_LAST)) return;
    issue(d, step);
    after_reductions(d);
    cuda_publish(d, LANE_REPLICAS, step, false);
    int64_t mark = looked_at(d) ? watch_begin(d, WATCH_REPLICAS, "sum over replicas", unit) : -1;
    nccl_sum_replicas(d, shard, d->instance[unit].unit->shard);
    end(d, LANE_REPLICAS, mark, event);
}

/* NCCL sums into another place, or into the part itself, which then goes to the beginning. */
void scatter_replicas(struct device *d, int step, int64_t unit, void *shard, void *into, int micro,
                      int event)
{
    const int64_t part = d->instance[unit].unit->part;
    float *own = (float *)shard + world.replica * part, *to = into == shard ? own : into;
    if (left_out(d, step) || !(micro & MICRO_LAST)) return;
    issue(d, step);
    after_reductions(d);
    cuda_publish(d, LANE_REPLICAS, step, false);
    int64_t mark = looked_at(d) ? watch_begin(d, WATCH_REPLICAS, "sum over replicas", unit) : -1;
    nccl_scatter_replicas(d, shard, to, part);
    if (to != into) copy(d, LANE_REPLICAS, into, to, 4 * part);
    end(d, LANE_REPLICAS, mark, event);
}

void reduce_after(struct device *d, int step, int event)
{
    if (left_out(d, step)) return;
    issue(d, step);
    cuda_wait(d, &d->event[event], LANE_REDUCE);
}

void sum_ranks(struct device *d, int step, const char *group, double *address, int64_t count,
               int event)
{
    const bool whole_world = !strcmp(group, "world");
    if (left_out(d, step)) return;
    int64_t mark = begin(d, step, LANE_REDUCE, "sum over ranks", -1);
    if (nccl_of_shards()) nccl_sum_numbers(d, LANE_REDUCE, address, count);
    if (!whole_world || program.dp == 1) {
        end(d, LANE_REDUCE, mark, event);
        return;
    }
    after_reductions(d);
    nccl_sum_numbers(d, LANE_REPLICAS, address, count);
    end(d, LANE_REPLICAS, mark, event); /* the mark is of both */
}

/* ── verbs: the host's part ──────────────────────────────────────────────────── */

/* What is recorded copies no batch: which one it is changes, so device_play copies it before it
 * replays. */
void load_batch(struct device *d, int step, int32_t *tokens, int32_t *targets, int micro)
{
    load_documents(d, step, tokens, targets, NULL, micro);
}

void load_documents(struct device *d, int step, int32_t *tokens, int32_t *targets, int32_t *starts,
                    int micro)
{
    (void)micro;
    issue(d, step);
    d->tokens = address_of(tokens);
    d->targets = address_of(targets);
    d->starts = starts ? address_of(starts) : 0;
    if (d->piece == 0) cuda_copy_batch(d);
}

/* Rows of ids that a micro-batch has. */
static int64_t batch_rows(void) { return (program.separate ? 3 : 2) * program.tokens; }

void cuda_copy_batch(struct device *d)
{
    const size_t bytes = (size_t)program.tokens * sizeof(int32_t);
    int32_t *tokens = d->batch + batch_rows() * d->micro_batch, *targets = tokens + program.tokens,
            *starts = d->starts ? targets + program.tokens : NULL;
    data_batch(d->micro_batch, tokens, targets, starts);
    if (starts) CUDA(cuMemcpyHtoDAsync, d->starts, starts, bytes, d->stream[LANE_COMPUTE]);
    CUDA(cuMemcpyHtoDAsync, d->tokens, tokens, bytes, d->stream[LANE_COMPUTE]);
    CUDA(cuMemcpyHtoDAsync, d->targets, targets, bytes, d->stream[LANE_COMPUTE]);
}

void tap(struct device *d, int step, const char *name, enum element_type type, const void *value,
         int64_t rows, int64_t columns)
{
    issue(d, step);
    if (d->piece != 0) return; /* what is recorded shows nothing */
    if (!d->forward) probe_tap(d, name, type, value, rows, columns); /* no validation */
    sample_tap(d, name, type, value, rows, columns);
}

/* ── device memory for the host ──────────────────────────────────────────────── */

void *device_staging(struct device *d) { return d->staging; }

static bool in_staging(const struct device *d, const void *at)
{
    const char *from = (const char *)d->staging;
    return (const char *)at >= from && (const char *)at < from + program.staging_bytes;
}

/* A piece of pinned memory that nothing on its way uses. */
static unsigned char *post(struct device *d, int64_t bytes)
{
    if (d->posted + bytes > POST_BYTES) cuda_settle(d);
    unsigned char *at = d->post + d->posted;
    d->posted += (bytes + POST_ALIGN - 1) / POST_ALIGN * POST_ALIGN;
    return at;
}

void device_write(struct device *d, void *to, const void *from, int64_t bytes)
{
    if (in_staging(d, from)) {
        CUDA(cuMemcpyHtoDAsync, address_of(to), from, (size_t)bytes, d->stream[LANE_COMPUTE]);
        cuda_settle(d);
        return;
    }
    for (int64_t done = 0; done < bytes; done += POST_BYTES) {
        const int64_t n = bytes - done < POST_BYTES ? bytes - done : POST_BYTES;
        unsigned char *through = post(d, n);
        memcpy(through, (const char *)from + done, (size_t)n);
        CUDA(cuMemcpyHtoDAsync, address_of(to) + (cuda_address)done, through, (size_t)n,
             d->stream[LANE_COMPUTE]);
    }
}

void device_read(struct device *d, void *to, const void *from, int64_t bytes)
{
    if (in_staging(d, to)) {
        CUDA(cuMemcpyDtoHAsync, to, address_of(from), (size_t)bytes, d->stream[LANE_COMPUTE]);
        cuda_settle(d);
        return;
    }
    for (int64_t done = 0; done < bytes; done += POST_BYTES) {
        const int64_t n = bytes - done < POST_BYTES ? bytes - done : POST_BYTES;
        unsigned char *through = post(d, n);
        CUDA(cuMemcpyDtoHAsync, through, address_of(from) + (cuda_address)done, (size_t)n,
             d->stream[LANE_COMPUTE]);
        cuda_settle(d);
        memcpy((char *)to + done, through, (size_t)n);
    }
}

/* ── a second copy, for checkpoints ──────────────────────────────────────────── */

/* It is the host's memory that a copy takes. */
int64_t device_copy_bytes(int64_t bytes) { return (void)bytes, 0; }

void *device_host_memory(struct device *d, int64_t bytes)
{
    const int64_t have = machine_available_bytes() / world.host_size;
    char need[32], left[32], who[CUDA_WHO];
    if (have > 0 && bytes > have) {
        fail_note("%s: a checkpoint's second copy takes %s bytes of host memory; the %d ranks of "
                  "this host have %s each: checkpoint { async = off } takes none",
                  cuda_who(who), count_text(bytes, need), world.host_size, count_text(have, left));
        return NULL;
    }
    CUDA(cuStreamCreateWithPriority, &d->copy, CUDA_STREAM_NON_BLOCKING, 0);
    CUDA(cuEventCreate, &d->copy_from, CUDA_EVENT_NO_TIMING);
    return cuda_pinned(bytes);
}

void device_copy_out(struct device *d, void *to, const void *from, int64_t bytes)
{
    CUDA(cuEventRecord, d->copy_from, d->stream[LANE_COMPUTE]);
    CUDA(cuStreamWaitEvent, d->copy, d->copy_from, 0);
    CUDA(cuMemcpyDtoHAsync, to, address_of(from), (size_t)bytes, d->copy);
}

void device_copied(struct device *d)
{
    const struct timespec nap = {.tv_nsec = 100000};
    unsigned result;
    while ((result = driver.cuStreamQuery(d->copy)) == CUDA_NOT_READY) nanosleep(&nap, NULL);
    if (result != CUDA_OK) {
        char text[CUDA_ERROR], who[CUDA_WHO];
        fail_now("%s, copying a checkpoint from the device: cuStreamQuery: %s", cuda_who(who),
                 cuda_error_text(result, text));
    }
}

void device_clear(struct device *d, void *at, int64_t bytes)
{
    CUDA(cuMemsetD8Async, address_of(at), 0, (size_t)bytes, d->stream[LANE_COMPUTE]);
}

/* ── for observers ─────────────────────────────────────────────────────────── */

_Static_assert((int)WATCH_COMPUTE == (int)LANE_COMPUTE && (int)WATCH_GATHER == (int)LANE_GATHER &&
                   (int)WATCH_REDUCE == (int)LANE_REDUCE &&
                   (int)WATCH_REPLICAS == (int)LANE_REPLICAS,
               "lanes");
static struct {
    cuda_event *at, base;
    int64_t n;
    double base_seconds;
} stamp;

bool device_stamps(struct device *d, int64_t n)
{
    (void)d;
    cuda_event *more = ROOM(cuda_event, n);
    if (stamp.n == 0) CUDA(cuEventCreate, &stamp.base, CUDA_EVENT_DEFAULT);
    for (int64_t i = 0; i < n; i++)
        if (i < stamp.n)
            more[i] = stamp.at[i];
        else
            CUDA(cuEventCreate, &more[i], CUDA_EVENT_DEFAULT);
    stamp.at = more;
    stamp.n = n > stamp.n ? n : stamp.n;
    return true;
}

/* The first of a step is the one that all are counted from: the device has nothing to do then. */
void device_stamp(struct device *d, enum watch_lane lane, int64_t number)
{
    if (number == 0) {
        cuda_settle(d);
        stamp.base_seconds = clock_seconds();
        CUDA(cuEventRecord, stamp.base, d->stream[LANE_COMPUTE]);
    }
    CUDA(cuEventRecord, stamp.at[number], d->stream[lane]);
}

double device_stamp_seconds(struct device *d, int64_t number)
{
    float milliseconds = 0;
    (void)d;
    CUDA(cuEventElapsedTime, &milliseconds, stamp.base, stamp.at[number]);
    return stamp.base_seconds + 1e-3 * (double)milliseconds;
}

void device_copy(struct device *d, void *to, const void *from, int64_t bytes)
{
    CUDA(cuMemcpyDtoDAsync, address_of(to), address_of(from), (size_t)bytes,
         d->stream[LANE_COMPUTE]);
}

/* Our own kernels are made for the plan's shapes: without the library nothing multiplies any two
 * squares. */
bool device_square_product(struct device *d, enum element_type type, int64_t n, const void *a,
                           const void *b, void *c)
{
    const struct product p = {
        .m = n, .n = n, .k = n, .lda = n, .ldb = n, .ldc = n, .a = type, .b = type, .c = type};
    return engines.gemm == ENGINE_CUBLASLT &&
           cublaslt_product(&p, a, b, c, d->stream[LANE_COMPUTE], workspace(),
                            program.workspace_bytes);
}

/* ── coming up, and the end ──────────────────────────────────────────────────── */

/* Transfers go before compute where both want to run. */
static void open_lanes(struct device *d)
{
    int least = 0, greatest = 0;
    CUDA(cuCtxGetStreamPriorityRange, &least, &greatest);
    for (int lane = 0; lane < LANES; lane++)
        CUDA(cuStreamCreateWithPriority, &d->stream[lane], CUDA_STREAM_NON_BLOCKING,
             lane == LANE_COMPUTE ? least : greatest);
    d->event = ROOM(struct happening, program.events + 1);
    for (int i = 0; i <= program.events; i++) {
        d->event[i].piece = -1;
        CUDA(cuEventCreate, &d->event[i].event, CUDA_EVENT_NO_TIMING);
    }
    CUDA(cuEventCreate, &d->computed.event, CUDA_EVENT_NO_TIMING);
    CUDA(cuEventCreate, &d->collected.event, CUDA_EVENT_NO_TIMING);
    CUDA(cuEventCreate, &d->reduced.event, CUDA_EVENT_NO_TIMING);
    CUDA(cuEventCreate, &d->together.event, CUDA_EVENT_NO_TIMING);
}

struct device *device_open(void)
{
    struct device *d = &cuda;
    cuda_module_open();
    world_agree(); /* nobody waits in NCCL for a rank that has no kernels */
    nccl_open();
    engines_open();
    if (!cuda_take_arena(d)) return NULL;
    open_lanes(d);
    d->instance = segments_instances();
    d->staging = cuda_pinned(program.staging_bytes);
    d->post = cuda_pinned(POST_BYTES);
    d->batch = cuda_pinned(program.accumulation * batch_rows() * (int64_t)sizeof(int32_t));
    d->position = cuda_pinned(LANES * (int64_t)sizeof *d->position);
    CUDA(cuMemHostGetDevicePointer, &d->position_address, (void *)(uintptr_t)d->position, 0);
    nccl_know(d);
    engines_ask();
    /* what no kernel has written yet is 0, as on every device, and not what was there before */
    device_clear(d, local(d, 0), program.local_bytes + program.wire_bytes);
    device_drain(d);
    return d;
}

void device_close(struct device *d)
{
    device_drain(d);
    cuda_forget(d); /* a communicator does not end while a graph holds collectives of it */
    nccl_close();
}
