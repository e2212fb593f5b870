/* Asynchronous copies of a thread and the arrivals that wait for them: when they land, and who is
 * told. Part of fiber_block.h, whose scheduler lets them land when nobody else can go on. */
#ifndef FIBER_COPY_H
#define FIBER_COPY_H

FIBER_FUNCTION void fiber_copy_now(const fiber_copy *c)
{
    if (c->valid)
        memcpy(c->to, c->from, 16);
    else
        memset(c->to, 0, 16);
}
FIBER_FUNCTION void fiber_mbarrier_arrives(fiber_mbarrier *b, int t)
{
    fiber_clock_release(&b->gathered[0], t);
    if (--b->pending) return;
    b->pending = b->count, b->phase++;
    fiber_clock_more(&b->gathered[1], &b->gathered[0]);
    memset(&b->gathered[0], 0, sizeof b->gathered[0]);
    for (int i = 0; i < fiber_m.threads; i++)
        if (fiber_m.thread[i].state == FIBER_AT_MBARRIER && fiber_m.thread[i].at == b)
            fiber_wake(i);
}
/* The oldest `count` copies of a thread, and arrivals that come then. */
FIBER_FUNCTION void fiber_copies_land_first(fiber_thread *t, int count)
{
    int current = fiber_m.current, left = count, came = 0;
    fiber_m.current = (int)(t - fiber_m.thread);
    for (int i = 0; i < count; i++) {
        fiber_race_access(t->copy[i].to, 16, true, __builtin_return_address(0));
        fiber_copy_now(&t->copy[i]);
    }
    memmove(t->copy, t->copy + count, sizeof *t->copy * (size_t)(t->copies - count));
    t->copies -= count;
    for (int g = 0; g < t->groups && left; g++) {
        int of = t->group[g] < left ? t->group[g] : left;
        t->group[g] -= of, left -= of;
    }
    for (int i = 0; i < t->arrivals; i++) t->arrival[i].copies -= count;
    while (came < t->arrivals && t->arrival[came].copies <= 0)
        fiber_mbarrier_arrives(t->arrival[came++].at, fiber_m.current);
    memmove(t->arrival, t->arrival + came, sizeof t->arrival[0] * (size_t)(t->arrivals - came));
    t->arrivals -= came;
    fiber_m.current = current;
}
/* the oldest so many; one more than there are: what is not committed too */
FIBER_FUNCTION void fiber_copies_land(fiber_thread *t, int groups)
{
    int count = 0, taken = groups < t->groups ? groups : t->groups;
    for (int i = 0; i < taken; i++) count += t->group[i];
    if (groups > t->groups) count = t->copies;
    fiber_copies_land_first(t, count);
    memmove(t->group, t->group + taken, sizeof *t->group * (size_t)(t->groups - taken));
    t->groups -= taken;
}
/* Nobody can go on: the oldest arrivals of some thread come. */
FIBER_FUNCTION bool fiber_arrivals_land()
{
    if (!fiber_c.used) return false;
    int from = (int)(fiber_random() % (unsigned)fiber_m.threads);
    for (int i = 0; i < fiber_m.threads; i++) {
        fiber_thread *t = &fiber_m.thread[(from + i) % fiber_m.threads];
        if (!t->arrivals) continue;
        fiber_copies_land_first(t, t->arrival[0].copies);
        return true;
    }
    return false;
}

#endif
