/* Where every rank stands, and what to do when one stands for too long. A rank that stops takes all
 * others with it into a collective that never ends, and from inside MPI all of them look alike. So
 * every rank publishes its position in a page that the ranks of its host share, and a thread of
 * each looks at it: whoever has waited longer than run.timeout names the rank that does not move
 * and where it stands, and ends the run. Three kinds of silence are told apart: a process that is
 * stopped (its watchdog no longer stamps the page: certain after half the time, so that all is over
 * within the timeout), one that computes without end, and all waiting for another host. */
#define _GNU_SOURCE
#include "trainer.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

struct position {
    _Alignas(128) _Atomic int64_t moved, alive; /* nanoseconds of the monotonic clock */
    _Atomic int64_t training_step, iteration;
    _Atomic int step, rank, phase, waiting;
};
struct page {
    _Atomic int claimed;
    struct position at[];
};

static struct position alone; /* before the page is there */
static struct page *page;
static struct position *mine = &alone;
static pthread_t thread;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t end_now;
static bool running, ending;

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

#define PUT(field, value) atomic_store_explicit(&mine->field, value, memory_order_release)
#define GET(p, field) atomic_load_explicit(&(p)->field, memory_order_acquire)

void position_moved(void) { PUT(moved, now_ns()); }
void position_phase(enum phase phase)
{
    PUT(phase, (int)phase);
    position_moved();
}
void position_step(int64_t training_step)
{
    PUT(training_step, training_step);
    position_moved();
}
void position_set(int schedule_step)
{
    PUT(step, schedule_step);
    position_moved();
}
void position_iteration(int64_t i) { PUT(iteration, i); }
void position_device(int schedule_step, int64_t i, bool waiting)
{
    PUT(step, schedule_step);
    PUT(iteration, i);
    PUT(waiting, waiting);
    position_moved();
}
void position_wait(bool waiting)
{
    PUT(waiting, waiting);
    position_moved();
}

bool position_claim(void)
{
    static _Atomic int claimed;
    return atomic_exchange(page ? &page->claimed : &claimed, 1) == 0;
}

bool position_claimed(void) { return page && atomic_load(&page->claimed); }

/* ── judging ─────────────────────────────────────────────────────────────────── */

static double age(int64_t stamp, int64_t now) { return 1e-9 * (double)(now - stamp); }

static const char *place(const struct position *p, int step, int64_t i, char text[256])
{
    char index[32] = "";
    if (i >= 0) snprintf(index, sizeof index, "[%lld]", (long long)i);
    if (GET(p, phase) == PHASE_START)
        snprintf(text, 256, "before the first step");
    else if (GET(p, phase) == PHASE_END)
        snprintf(text, 256, "behind the last step");
    else if (GET(p, phase) == PHASE_WRITE)
        snprintf(text, 256, "behind the last step, where weights are written");
    else if (step < 1 || step > program.steps)
        snprintf(text, 256, "before the schedule of training step %lld",
                 (long long)GET(p, training_step));
    else
        snprintf(text, 256, "at step %d of the schedule (%s%s, %s) of training step %lld", step,
                 program.step[step].region, index, program.step[step].what,
                 (long long)GET(p, training_step));
    return text;
}

const char *position_of(int schedule_step, int64_t i, char text[256])
{
    return place(mine, schedule_step, i, text);
}
const char *position_text(char text[256])
{
    return position_of(GET(mine, step), GET(mine, iteration), text);
}

/* The likeliest culprit on this host: stopped before busy before waiting, and among equals who
 * moved least recently. */
static const struct position *culprit(int64_t now, double stopped_after, int *kind)
{
    const struct position *worst = NULL;
    int worst_kind = -1;
    for (int r = 0; r < world.host_size; r++) {
        const struct position *p = &page->at[r];
        int k = age(GET(p, alive), now) > stopped_after ? 2 : GET(p, waiting) ? 0 : 1;
        if (k > worst_kind || (k == worst_kind && GET(p, moved) < GET(worst, moved))) {
            worst = p;
            worst_kind = k;
        }
    }
    *kind = worst_kind;
    return worst;
}

static void look(double period)
{
    const int64_t now = now_ns();
    const double limit = program.timeout_seconds,
                 stopped_after = limit / 2 > 4 * period ? limit / 2 : 4 * period;
    int kind;
    const struct position *p = culprit(now, stopped_after, &kind);
    bool waited = GET(mine, phase) != PHASE_START && age(GET(mine, moved), now) > limit;
    if (kind != 2 && !waited) return;
    if (kind == 1 && age(GET(p, moved), now) < limit / 2) return; /* slow, but it moves */
    if (kind == 0 && !world.one_host && GET(mine, phase) == PHASE_WRITE)
        /* rank 0 writes, and its own host sees whether it moves */
        return;
    if (kind == 0 && !world.one_host && age(GET(mine, moved), now) < limit + 2)
        /* the other host, which knows more, first */
        return;
    if (!position_claim()) return;
    char where[256], text[512];
    const double seconds = age(GET(p, moved), now);
    place(p, GET(p, step), GET(p, iteration), where);
    if (kind == 0 && world.one_host)
        snprintf(text, sizeof text,
                 "every rank waits for the others; rank %d has waited longest, %.3g s, %s",
                 GET(p, rank), seconds, where);
    else if (kind == 0)
        snprintf(text, sizeof text,
                 "rank %d has waited %.3g s %s; no rank of its host stands still, so it is one of "
                 "another host",
                 GET(p, rank), seconds, where);
    else
        snprintf(text, sizeof text, "rank %d has not moved for %.3g s%s; it stands %s",
                 GET(p, rank), seconds, kind == 2 ? " (its process is stopped)" : "", where);
    fail_print(text);
    world_abort(STATUS_ENVIRONMENT);
}

static void *watch(void *unused)
{
    double period = program.timeout_seconds / 8;
    period = period > 0.5 ? 0.5 : period < 0.02 ? 0.02 : period;
    pthread_mutex_lock(&lock);
    while (!ending) {
        int64_t before = now_ns(), until = before + (int64_t)(1e9 * period);
        struct timespec t = {.tv_sec = until / 1000000000, .tv_nsec = until % 1000000000};
        PUT(alive, before);
        pthread_cond_timedwait(&end_now, &lock, &t);
        int64_t now = now_ns();
        PUT(alive, now);
        if (ending) break;
        if (1e-9 * (double)(now - before) > period + program.timeout_seconds / 4)
            /* this process was itself stopped and is going on: it accuses nobody of that time */
            position_moved();
        else {
            device_watch();
            look(period);
        }
    }
    pthread_mutex_unlock(&lock);
    return unused;
}

void watchdog_open(void)
{
    struct page *shared = world_host_page(
        (int64_t)(sizeof(struct page) + (size_t)world.host_size * sizeof(struct position)) + 256);
    pthread_condattr_t attributes;
    /* same page, same alignment on every rank */
    shared = (struct page *)(((uintptr_t)shared + 127) / 128 * 128);
    mine = &shared->at[world.host_rank];
    PUT(rank, world.rank);
    PUT(iteration, -1);
    PUT(alive, now_ns());
    position_moved();
    world_agree(); /* everybody has a position before anybody judges */
    page = shared;
    if (program.timeout_seconds <= 0) return;
    if (pthread_condattr_init(&attributes) ||
        pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) ||
        pthread_cond_init(&end_now, &attributes) || pthread_create(&thread, NULL, watch, NULL))
        fail_now("rank %d: no thread for the watchdog", world.rank);
    running = true;
    world_met();
}

void watchdog_close(void)
{
    if (running) {
        pthread_mutex_lock(&lock);
        ending = true;
        pthread_cond_signal(&end_now);
        pthread_mutex_unlock(&lock);
        pthread_join(thread, NULL);
        running = false;
    }
    mine = &alone;
    page = NULL;
}
