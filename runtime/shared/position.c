/* Where this rank stands, published where the other ranks of its host can read it. A rank that
 * stops takes all others with it into a collective that never ends, and from inside MPI all of them
 * look alike; so each rank writes its position into a page that the ranks of a host share, and
 * watchdog.c judges what it reads there. This file only writes positions and puts them into words:
 * it knows neither MPI nor how a run ends. */
#include "position.h"

#include <stdio.h>
#include <time.h>

static struct position alone; /* before the page is there */
static struct position_page *page;
static struct position *mine = &alone;

int64_t position_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

#define PUT(field, value) atomic_store_explicit(&mine->field, value, memory_order_release)

void position_moved(void) { PUT(moved, position_now()); }
void position_alive(void) { PUT(alive, position_now()); }
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

const char *position_place(const struct position *p, int step, int64_t i, char text[256])
{
    char index[32] = "";
    if (i >= 0) snprintf(index, sizeof index, "[%lld]", (long long)i);
    if (POSITION_GET(p, phase) == PHASE_START)
        snprintf(text, 256, "before the first step");
    else if (POSITION_GET(p, phase) == PHASE_END)
        snprintf(text, 256, "after the last step");
    else if (POSITION_GET(p, phase) == PHASE_SAVE)
        snprintf(text, 256, "after training step %lld, where a checkpoint is written",
                 (long long)POSITION_GET(p, training_step));
    else if (POSITION_GET(p, phase) == PHASE_WRITE)
        snprintf(text, 256, "after the last step, where weights are written");
    else if (POSITION_GET(p, phase) == PHASE_SAMPLE)
        snprintf(text, 256, "after the last step, where --sample writes tokens");
    else if (step < 1 || step > program.steps)
        snprintf(text, 256, "before the schedule of training step %lld",
                 (long long)POSITION_GET(p, training_step));
    else
        snprintf(text, 256, "at step %d of the schedule (%s%s, %s) of training step %lld", step,
                 program.step[step].region, index, program.step[step].what,
                 (long long)POSITION_GET(p, training_step));
    return text;
}

const char *position_of(int schedule_step, int64_t i, char text[256])
{
    return position_place(mine, schedule_step, i, text);
}
const char *position_text(char text[256])
{
    return position_of(POSITION_GET(mine, step), POSITION_GET(mine, iteration), text);
}

const struct position *position_mine(void) { return mine; }

void position_publish(struct position_page *shared, int slot, int rank)
{
    mine = &shared->at[slot];
    PUT(rank, rank);
    PUT(iteration, -1);
    position_alive();
    position_moved();
}

void position_share(struct position_page *shared) { page = shared; }

void position_withdraw(void)
{
    mine = &alone;
    page = NULL;
}
