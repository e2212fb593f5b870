/* Issuing, waiting, recording, replaying. The first step is issued eagerly, which also initialises
 * everything that is lazy. Then the micro-batches (first, middle, last, or the only one), of a plan
 * that validates their forward parts too, and the update are each recorded as a graph; from then on
 * a step is a few launches. What differs between
 * replays is in device memory: scalars, and the batch, which is copied before each.
 *
 * A recording ends with all lanes joined, so the last reductions of a micro-batch do not overlap
 * with the first layers of the next. That is the reduction of one unit per micro-batch.
 *
 * Small kernels on the lanes write the current schedule step into host memory, so the watchdog
 * knows where the device is and not how far ahead the host has issued. They also measure how long
 * compute waits for transfers. */
#define _GNU_SOURCE
#include "device.h"
#include "shared/watch.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

/* Two words of the arena's staging buffer, which files do not use on this device: when the wait at
 * hand began, and the time of all. */
enum { CLOCK_BYTES = 16, NAP_NANOSECONDS = 20000 };
#define SPIN_SECONDS 50e-6
#define LOOK_SECONDS 0.25

static void *clock_words(struct device *d) { return local(d, program.staging); }

/* ── events ──────────────────────────────────────────────────────────────────── */

void cuda_record(struct device *d, struct happening *h, enum lane lane)
{
    CUDA(cuEventRecord, h->event, d->stream[lane]);
    h->piece = d->piece;
}

void cuda_wait(struct device *d, const struct happening *h, enum lane lane)
{
    if (h->piece != d->piece) return;
    CUDA(cuStreamWaitEvent, d->stream[lane], h->event, 0);
    d->used[lane] = true;
}

/* ── where the device stands ─────────────────────────────────────────────────── */

void cuda_publish(struct device *d, enum lane lane, int step, bool waiting)
{
    cuda_address at = d->position_address + (cuda_address)lane * sizeof *d->position;
    uint64_t value = (uint64_t)(uint32_t)step | (uint64_t)(d->iteration + 1) << 32 |
                     (waiting ? POSITION_WAITING : 0);
    void *clock = clock_words(d);
    int turn = lane != LANE_COMPUTE ? 0 : waiting ? 1 : 2;
    cuda_launch_runtime(RUNTIME_PUBLISH, lane, 1, 32, (void *[]){&at, &value, &clock, &turn});
}

/* Called by the thread that waits and by the watchdog: reads what the device has published. */
void device_watch(void)
{
    static _Atomic uint64_t last[LANES];
    struct device *d = &cuda;
    if (!d->running) return;
    nccl_look();
    bool moved = false;
    for (int lane = 0; lane < LANES; lane++) {
        uint64_t now = d->position[lane];
        moved |= last[lane] != now;
        last[lane] = now;
    }
    const uint64_t compute = last[LANE_COMPUTE];
    if (moved && d->running)
        position_device((int)(uint32_t)compute, (int64_t)((compute & ~POSITION_WAITING) >> 32) - 1,
                        world.size > 1 && (compute & POSITION_WAITING));
}

const char *cuda_who(char text[CUDA_WHO])
{
    int at = snprintf(text, CUDA_WHO, "rank %d on %.64s", world.rank, world_host());
    if (gpu.number >= 0) /* it has one */
        snprintf(text + at, CUDA_WHO - (size_t)at, gpu.name[0] ? ", GPU %d (%.128s)" : ", GPU %d",
                 gpu.number, gpu.name);
    return text;
}

const char *cuda_where(char text[CUDA_WHERE])
{
    char where[256], who[CUDA_WHO];
    if (cuda.issuing > 0)
        snprintf(text, CUDA_WHERE, "%s, issuing what is %s", cuda_who(who),
                 position_of(cuda.issuing, cuda.iteration, where));
    else
        snprintf(text, CUDA_WHERE, "%s, %s", cuda_who(who), position_text(where));
    return text;
}

double device_exposed_seconds(struct device *d)
{
    uint64_t word[CLOCK_BYTES / sizeof(uint64_t)];
    device_read(d, word, clock_words(d), sizeof word);
    device_clear(d, clock_words(d), sizeof word);
    return 1e-9 * (double)word[1];
}

/* ── waiting ─────────────────────────────────────────────────────────────────── */

static bool lane_done(struct device *d, enum lane lane)
{
    unsigned result = driver.cuStreamQuery(d->stream[lane]);
    if (result == CUDA_NOT_READY) return false;
    /* of any kernel or copy since the last wait: the device says which one only by where it
     * stood */
    if (result != CUDA_OK) {
        char where[256], text[CUDA_ERROR], who[CUDA_WHO];
        device_watch();
        fail_now("%s, the device stopped %s: %s", cuda_who(who), position_text(where),
                 cuda_error_text(result, text));
    }
    return true;
}

void cuda_settle(struct device *d)
{
    const double from = clock_seconds();
    double looked = from;
    for (int lane = 0; lane < LANES; lane++)
        while (!lane_done(d, lane)) {
            double now = clock_seconds();
            if (now - from > SPIN_SECONDS)
                nanosleep(&(struct timespec){.tv_nsec = NAP_NANOSECONDS}, NULL);
            if (now - looked > LOOK_SECONDS) {
                device_watch();
                looked = now;
            }
        }
    d->posted = 0;
}

/* ── recording ───────────────────────────────────────────────────────────────── */

static void play(struct device *d, enum play what, int micro)
{
    switch (what) {
    case PLAY_SETUP: schedule_setup(d); break;
    case PLAY_MICRO_BATCH:
        d->forward = micro & (MICRO_FORWARD | MICRO_LOGITS);
        schedule_micro_batch(d, micro & (MICRO_FIRST | MICRO_LAST | MICRO_FORWARD));
        d->forward = false;
        break;
    case PLAY_UPDATE: schedule_update(d); break;
    }
}

/* All lanes meet. Compute waits for what is left of collectives, as in an `await`. */
static void join(struct device *d)
{
    const int step = d->issuing;
    bool waits = false;
    for (int lane = 0; lane < LANES; lane++) waits |= lane != LANE_COMPUTE && d->used[lane];
    if (!waits) return;
    cuda_publish(d, LANE_COMPUTE, step, true);
    for (int lane = 0; lane < LANES; lane++)
        if (lane != LANE_COMPUTE && d->used[lane]) {
            cuda_record(d, &d->computed, (enum lane)lane);
            cuda_wait(d, &d->computed, LANE_COMPUTE);
        }
    cuda_publish(d, LANE_COMPUTE, step, false);
}

static cuda_graph_exec record(struct device *d, enum play what, int micro)
{
    cuda_graph graph = NULL;
    cuda_graph_exec exec = NULL;
    d->piece = ++d->pieces;
    for (int lane = 0; lane < LANES; lane++) d->used[lane] = false;
    CUDA(cuStreamBeginCapture, d->stream[LANE_COMPUTE], CUDA_CAPTURE_RELAXED);
    play(d, what, micro);
    join(d);
    CUDA(cuStreamEndCapture, d->stream[LANE_COMPUTE], &graph);
    /* else all of it runs at the compute lane's */
    CUDA(cuGraphInstantiateWithFlags, &exec, graph, CUDA_GRAPH_NODE_PRIORITY);
    CUDA(cuGraphDestroy, graph);
    d->piece = 0;
    d->issuing = 0;
    return exec;
}

/* Every graph of the run, while nothing is under way. */
static void record_all(struct device *d)
{
    d->recorded = true;
    for (int64_t j = 0; j < program.accumulation; j++) {
        int micro = (j == 0 ? MICRO_FIRST : 0) | (j + 1 == program.accumulation ? MICRO_LAST : 0);
        if (!d->graph[micro]) d->graph[micro] = record(d, PLAY_MICRO_BATCH, micro);
        micro |= MICRO_FORWARD;
        if (program.data_validations && !d->graph[micro])
            d->graph[micro] = record(d, PLAY_MICRO_BATCH, micro);
    }
    d->graph[GRAPH_UPDATE] = record(d, PLAY_UPDATE, 0);
}

void cuda_forget(struct device *d)
{
    for (int i = 0; i < GRAPHS; i++)
        if (d->graph[i]) CUDA(cuGraphExecDestroy, d->graph[i]);
    memset(d->graph, 0, sizeof d->graph);
}

void device_drain(struct device *d)
{
    d->issuing = 0;
    cuda_settle(d);
    if (d->running) device_watch();
    d->running = false;
    if (program.graph && d->played && !d->recorded) record_all(d);
}

void device_play(struct device *d, enum play what, int micro)
{
    const bool shows = what == PLAY_MICRO_BATCH && micro & MICRO_LOGITS;
    cuda_graph_exec graph = shows                      ? NULL
                            : what == PLAY_MICRO_BATCH ? d->graph[micro]
                            : what == PLAY_UPDATE      ? d->graph[GRAPH_UPDATE]
                                                       : NULL;
    d->running = true;
    if (what == PLAY_MICRO_BATCH) d->micro_batch = micro & MICRO_FIRST ? 0 : d->micro_batch + 1;
    const bool watched = watching;
    /* nothing of a validation is watched */
    if (shows || micro & MICRO_FORWARD) watching = false;
    if (graph && !watching) {
        if (what == PLAY_MICRO_BATCH) cuda_copy_batch(d);
        CUDA(cuGraphLaunch, graph, d->stream[LANE_COMPUTE]);
    } else
        play(d, what, micro);
    watching = watched;
    d->played |= what == PLAY_UPDATE;
}
