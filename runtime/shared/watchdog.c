/* What to do when a rank stands still for too long. A rank that stops takes all others with it into
 * a collective that never ends. position.c publishes where every rank of a host stands; a thread of
 * each rank looks at that page here. When its own rank has waited longer than run.timeout, it names
 * the rank that does not move and where that rank stands, and ends the run. Three kinds of silence
 * are told apart: a process that is stopped (its watchdog no longer stamps the page: certain after
 * half the time, so that the run ends within the timeout), a rank that computes without end, and
 * ranks that all wait for another host. Before the first step a wait may take ten times as long,
 * and at least a minute. */
#define _GNU_SOURCE
#include "position.h"

#include <pthread.h>
#include <stdio.h>
#include <time.h>

enum { START_TIMEOUTS = 10, START_SECONDS = 60 };

static struct position_page *page;
static pthread_t thread;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t end_now;
static bool running, ending;

static double age(int64_t stamp, int64_t now) { return 1e-9 * (double)(now - stamp); }

/* The likeliest culprit on this host: stopped before busy before waiting, and among equals who
 * moved least recently. */
static const struct position *culprit(int64_t now, double stopped_after, int *kind)
{
    const struct position *worst = NULL;
    int worst_kind = -1;
    for (int r = 0; r < world.host_size; r++) {
        const struct position *p = &page->at[r];
        int k = age(POSITION_GET(p, alive), now) > stopped_after ? 2
                : POSITION_GET(p, waiting)                       ? 0
                                                                 : 1;
        if (k > worst_kind ||
            (k == worst_kind && POSITION_GET(p, moved) < POSITION_GET(worst, moved))) {
            worst = p;
            worst_kind = k;
        }
    }
    *kind = worst_kind;
    return worst;
}

/* Before the first step ranks read data and weights and load kernels: seconds that one may wait. */
static double start_timeout(void)
{
    const double longer = START_TIMEOUTS * program.timeout_seconds;
    return longer > START_SECONDS ? longer : START_SECONDS;
}

/* `now` is of before the page is read: time that this rank is itself stopped for in between is no
 * silence of the others. */
static void look(double period, int64_t now)
{
    const struct position *mine = position_mine();
    const double timeout = program.timeout_seconds,
                 stopped_after = timeout / 2 > 4 * period ? timeout / 2 : 4 * period;
    const double limit = POSITION_GET(mine, phase) == PHASE_START ? start_timeout() : timeout;
    int kind;
    const struct position *p = culprit(now, stopped_after, &kind);
    bool waited = age(POSITION_GET(mine, moved), now) > limit;
    if (kind != 2 && !waited) return;
    if (kind == 1 && age(POSITION_GET(p, moved), now) < limit / 2) return; /* slow, but it moves */
    if (kind == 0 && !world.one_host && age(POSITION_GET(mine, moved), now) < limit + 2)
        /* the other host, which knows more, first */
        return;
    if (!position_claim()) return;
    char where[256], text[512];
    const double seconds = age(POSITION_GET(p, moved), now);
    position_place(p, POSITION_GET(p, step), POSITION_GET(p, iteration), where);
    if (kind == 0 && world.one_host)
        snprintf(text, sizeof text,
                 "every rank waits for the others; rank %d has waited longest, %.3g s, %s",
                 POSITION_GET(p, rank), seconds, where);
    else if (kind == 0)
        snprintf(
            text, sizeof text,
            "rank %d has waited %.3g s %s; every rank of its host moves, so it waits for one of "
            "another host",
            POSITION_GET(p, rank), seconds, where);
    else
        snprintf(text, sizeof text, "rank %d has not moved for %.3g s%s; it is %s",
                 POSITION_GET(p, rank), seconds, kind == 2 ? " (its process is stopped)" : "",
                 where);
    fail_print(text);
    fail_end(STATUS_ENVIRONMENT);
}

static void *watch(void *unused)
{
    double period = program.timeout_seconds / 8;
    period = period > 0.5 ? 0.5 : period < 0.02 ? 0.02 : period;
    pthread_mutex_lock(&lock);
    while (!ending) {
        int64_t before = position_now(), until = before + (int64_t)(1e9 * period);
        struct timespec t = {.tv_sec = until / 1000000000, .tv_nsec = until % 1000000000};
        position_alive();
        pthread_cond_timedwait(&end_now, &lock, &t);
        position_alive();
        if (ending) break;
        const int64_t now = position_now();
        if (age(before, now) > period + program.timeout_seconds / 4)
            /* this process was itself stopped and is going on: it accuses nobody of that time */
            position_moved();
        else {
            device_watch();
            look(period, now);
        }
    }
    pthread_mutex_unlock(&lock);
    return unused;
}

static void watchdog_close(void)
{
    if (running) {
        pthread_mutex_lock(&lock);
        ending = true;
        pthread_cond_signal(&end_now);
        pthread_mutex_unlock(&lock);
        pthread_join(thread, NULL);
        running = false;
    }
    position_withdraw();
}

void watchdog_open(void)
{
    void *shared = world_host_page((int64_t)(sizeof(struct position_page) +
                                             (size_t)world.host_size * sizeof(struct position)) +
                                   256);
    pthread_condattr_t attributes;
    /* same page, same alignment on every rank */
    page = (struct position_page *)(((uintptr_t)shared + 127) / 128 * 128);
    position_publish(page, world.host_rank, world.rank);
    world_before_leaving(watchdog_close);
    world_agree(); /* every rank has a position before any rank judges */
    position_share(page);
    if (program.timeout_seconds <= 0) return;
    if (pthread_condattr_init(&attributes) ||
        pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) ||
        pthread_cond_init(&end_now, &attributes) || pthread_create(&thread, NULL, watch, NULL))
        fail_now("rank %d: no thread for the watchdog", world.rank);
    running = true;
    world_met();
}
