/* Which steps --compare, --profile and --trace observe, and the time stamps that they read.
 * --compare observes the first step and needs no clock. The first step also counts the events of a
 * step, so that memory for the time stamps of later steps is allocated before the clock runs.
 * --profile observes the steps after the first, --trace the first two of those. */
#include "watch.h"

#include <stdatomic.h>
#include <stdlib.h>

enum { TRACED = 2 };

bool watching;

static struct {
    bool compare, profile, trace;
    int64_t profiled;       /* steps 1 to this one */
    bool timing, comparing; /* in the current step */
    atomic_llong marks;     /* of the current step */
    double begun;           /* the schedule of the current step */
    int64_t room;           /* marks there is room for */
    struct mark *mark;
} look;

static int64_t last_timed(void)
{
    int64_t traced = look.trace ? TRACED : 0;
    return traced > look.profiled ? traced : look.profiled;
}

bool watch_open(struct device *d, const struct options *o, int64_t first)
{
    const int64_t steps = o->steps - first;
    look.compare = o->compare != NULL;
    look.profile = o->profile > 0;
    look.profiled = o->profile;
    look.trace = o->trace != NULL;
    if (last_timed() > 0 && steps <= last_timed())
        return fail_note("%s looks at step%s 1%s of a run, and this one has %lld: --steps %lld",
                         look.profiled == last_timed() ? "--profile" : "--trace",
                         last_timed() == 1 ? "" : "s", last_timed() == 1 ? "" : " and more",
                         (long long)(steps < 0 ? 0 : steps), (long long)(first + last_timed() + 1));
    if (look.compare && !compare_open(o->compare)) return false;
    if (look.trace && !trace_open(o->trace)) return false;
    if (o->profile_out && !profile_out_open(o->profile_out, o->profile)) return false;
    if (look.profile) profile_open(d);
    return true;
}

void watch_step(int64_t step)
{
    atomic_store(&look.marks, 0);
    look.comparing = look.compare && step == 0;
    look.timing = step > 0 && step <= last_timed();
    watching = look.comparing || look.timing || (step == 0 && last_timed() > 0);
    look.begun = clock_seconds();
}

static int64_t mark_add(struct mark m)
{
    int64_t i = atomic_fetch_add(&look.marks, 1);
    if (!look.timing || i >= look.room) return -1;
    look.mark[i] = m;
    return i;
}

void watch_kernel(struct device *d, const struct kernel *k, void *const *address,
                  const struct stretch *s, double part)
{
    if (look.comparing) compare_before(d, k, address, s);
    int64_t mark = watch_begin(d, WATCH_COMPUTE, NULL, -1);
    if (mark >= 0) look.mark[mark].kernel = k, look.mark[mark].part = part;
    k->call(address, s);
    watch_end(d, WATCH_COMPUTE, mark);
    if (look.comparing) compare_after(d, k, address, s);
}

int64_t watch_begin(struct device *d, enum watch_lane lane, const char *what, int64_t unit)
{
    int64_t mark = mark_add((struct mark){.what = what, .unit = unit, .lane = lane});
    if (mark >= 0) device_stamp(d, lane, 2 * mark);
    return mark;
}

void watch_micro(int64_t mark, int micro)
{
    if (mark >= 0) look.mark[mark].micro = micro;
}

void watch_end(struct device *d, enum watch_lane lane, int64_t mark)
{
    if (mark >= 0) device_stamp(d, lane, 2 * mark + 1);
}

/* What the first step ran, and something for what only later ones do. */
static void make_room(struct device *d)
{
    look.room = atomic_load(&look.marks) + 64;
    look.mark = ROOM(struct mark, look.room);
    if (!device_stamps(d, 2 * look.room)) fail_now("%s", fail_noted());
}

/* Kernels and transfers only. */
static int64_t without_host(struct mark *mark, int64_t marks)
{
    int64_t n = 0;
    for (int64_t i = 0; i < marks; i++)
        if (mark[i].kernel || mark[i].lane != WATCH_COMPUTE) mark[n++] = mark[i];
    return n;
}

void watch_step_end(struct device *d, int64_t step, double seconds)
{
    if (step == 0 && last_timed() > 0) make_room(d);
    if (look.timing) {
        const double played = clock_seconds() - look.begun;
        int64_t n = atomic_load(&look.marks) < look.room ? atomic_load(&look.marks) : look.room;
        for (int64_t i = 0; i < n; i++) {
            look.mark[i].from = device_stamp_seconds(d, 2 * i);
            look.mark[i].to = device_stamp_seconds(d, 2 * i + 1);
        }
        if (step <= look.profiled) profile_out_step(look.mark, n, played);
        n = without_host(look.mark, n);
        if (step <= look.profiled) profile_step(look.mark, n, seconds);
        if (look.trace && step <= TRACED) trace_step(look.mark, n, step);
    }
    watching = false;
}

void watch_step_took(int64_t step, double seconds)
{
    if (step > 0 && step <= look.profiled) profile_out_took(seconds);
}

bool watch_close(struct device *d)
{
    (void)d;
    bool fine = true;
    if (look.profile) profile_close();
    fine &= profile_out_close();
    if (look.trace) fine &= trace_close();
    if (look.compare) fine &= compare_close();
    return fine;
}
