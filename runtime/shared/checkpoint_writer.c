/* The thread that writes a checkpoint while training goes on. It has at most one job: this rank's
 * part, or, on rank 0 when all parts are on the disk, the manifest and the name. It decides nothing
 * and tells nobody: the main thread asks for its state at the end of a step. */
#define _GNU_SOURCE
#include "checkpoint_run.h"

#include <errno.h>
#include <pthread.h>
#include <time.h>

struct save_at_hand save_at_hand;

static struct {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    enum job job;
    enum save_state state;
    bool threaded;
} writer = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool publish(char why[WHY_BYTES])
{
    char name[CHECKPOINT_NAME];
    const struct save_at_hand *s = &save_at_hand;
    folder_name(&(struct saved){.run = run_folder.run, .step = s->at.step}, name);
    metrics_sync(); /* a run that is resumed from it has the lines up to it */
    return manifest_write(s->folder, &s->at, run_folder.run, s->hash, why) &&
           folder_publish(run_folder.path, s->temporary, name, why) &&
           folder_prune(run_folder.path, run_folder.run, s->at.step, why);
}

static bool write_part(struct device *d, void (*between)(void))
{
    struct save_at_hand *s = &save_at_hand;
    return part_write(s->folder, s->at.step, d, between, &s->written, s->why);
}

static enum save_state do_job(enum job job)
{
    switch (job) {
    case JOB_PART: return write_part(NULL, NULL) ? SAVE_WRITTEN : SAVE_FAILED;
    case JOB_PUBLISH: return publish(save_at_hand.why) ? SAVE_PUBLISHED : SAVE_FAILED;
    case JOB_NONE:
    case JOB_STOP: break;
    }
    return SAVE_NONE;
}

static void *work(void *unused)
{
    pthread_mutex_lock(&writer.lock);
    for (;;) {
        while (writer.job == JOB_NONE) pthread_cond_wait(&writer.work, &writer.lock);
        const enum job job = writer.job;
        if (job == JOB_STOP) break;
        pthread_mutex_unlock(&writer.lock);
        const enum save_state state = do_job(job);
        pthread_mutex_lock(&writer.lock);
        writer.state = state;
        writer.job = JOB_NONE;
        pthread_cond_broadcast(&writer.done);
    }
    pthread_mutex_unlock(&writer.lock);
    return unused;
}

bool writer_open(void)
{
    pthread_condattr_t monotonic;
    if (pthread_condattr_init(&monotonic) ||
        pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC) ||
        pthread_cond_init(&writer.work, NULL) || pthread_cond_init(&writer.done, &monotonic) ||
        pthread_create(&writer.thread, NULL, work, NULL))
        return fail_note("rank %d: no thread for checkpoints", world.rank);
    writer.threaded = true;
    return true;
}

void writer_close(void)
{
    if (!writer.threaded) return;
    writer_give(JOB_STOP);
    pthread_join(writer.thread, NULL);
    writer.threaded = false;
}

void writer_give(enum job job)
{
    pthread_mutex_lock(&writer.lock);
    writer.job = job;
    pthread_cond_signal(&writer.work);
    pthread_mutex_unlock(&writer.lock);
}

enum save_state writer_state(void)
{
    pthread_mutex_lock(&writer.lock);
    const enum save_state state = writer.state;
    pthread_mutex_unlock(&writer.lock);
    return state;
}

void writer_set(enum save_state state)
{
    pthread_mutex_lock(&writer.lock);
    writer.state = state;
    pthread_mutex_unlock(&writer.lock);
}

void writer_part_now(struct device *d, void (*between)(void))
{
    writer_set(SAVE_WRITING);
    writer_set(write_part(d, between) ? SAVE_WRITTEN : SAVE_FAILED);
}

bool writer_wait(int64_t milliseconds)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    const int64_t ns = until.tv_nsec + milliseconds % 1000 * 1000000;
    until.tv_sec += milliseconds / 1000 + ns / 1000000000;
    until.tv_nsec = ns % 1000000000;
    pthread_mutex_lock(&writer.lock);
    const bool busy = writer.job != JOB_NONE;
    while (writer.job != JOB_NONE &&
           pthread_cond_timedwait(&writer.done, &writer.lock, &until) != ETIMEDOUT) {}
    pthread_mutex_unlock(&writer.lock);
    return busy;
}
