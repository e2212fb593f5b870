/* Who knows of what, for the race detector: threads of a block that meet at barriers of arrivals
 * (fiber_wgmma.h) are ordered by pairs and not all at once, as by the block's barrier. Every thread
 * counts its own releases; known[t][u] says up to which of u's releases t has learned of what u
 * did, over however many others. fenced[t][u] says the same of what has also passed a fence to the
 * asynchronous proxy on the way. Used by blocks that begin such a barrier, and only there. */
#ifndef FIBER_CLOCK_H
#define FIBER_CLOCK_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { FIBER_CLOCKS = 512 }; /* threads that may be ordered so */
struct fiber_clock {
    uint32_t known[FIBER_CLOCKS], fenced[FIBER_CLOCKS];
};
struct fiber_clocks {
    bool used;
    int threads;
    uint32_t now[FIBER_CLOCKS];
    fiber_clock *of; /* by thread */
};
FIBER_SHARED_STATE fiber_clocks fiber_c;

FIBER_FUNCTION void fiber_clocks_begin(int threads)
{
    if (fiber_c.used) return;
    if (!fiber_c.of) fiber_c.of = (fiber_clock *)malloc(FIBER_CLOCKS * sizeof *fiber_c.of);
    if (!fiber_c.of) abort();
    memset(fiber_c.of, 0, sizeof *fiber_c.of * (size_t)threads);
    memset(fiber_c.now, 0, sizeof fiber_c.now);
    fiber_c.threads = threads, fiber_c.used = true;
}
FIBER_FUNCTION void fiber_clock_more(fiber_clock *to, const fiber_clock *from)
{
    for (int u = 0; u < fiber_c.threads; u++) {
        if (from->known[u] > to->known[u]) to->known[u] = from->known[u];
        if (from->fenced[u] > to->fenced[u]) to->fenced[u] = from->fenced[u];
    }
}
/* What t has done and knows goes into `to`. */
FIBER_FUNCTION void fiber_clock_release(fiber_clock *to, int t)
{
    if (!fiber_c.used) return;
    fiber_clock_more(to, &fiber_c.of[t]);
    to->known[t] = ++fiber_c.now[t];
}
FIBER_FUNCTION void fiber_clock_acquire(int t, const fiber_clock *from)
{
    if (fiber_c.used) fiber_clock_more(&fiber_c.of[t], from);
}
/* All that t has done and knows has passed a fence. */
FIBER_FUNCTION void fiber_clock_fence(int t)
{
    if (!fiber_c.used) return;
    fiber_clock *c = &fiber_c.of[t];
    c->known[t] = ++fiber_c.now[t];
    for (int u = 0; u < fiber_c.threads; u++)
        if (c->known[u] > c->fenced[u]) c->fenced[u] = c->known[u];
}
/* Threads `first` to first + 31 of `lanes`, or all from `first` on when `lanes` is 0, tell each
 * other. */
FIBER_FUNCTION void fiber_clock_meet(int first, uint32_t lanes)
{
    if (!fiber_c.used) return;
    static fiber_clock all;
    memset(&all, 0, sizeof all);
    int end = lanes ? first + 32 : fiber_c.threads;
    if (end > fiber_c.threads) end = fiber_c.threads;
    for (int t = first; t < end; t++)
        if (!lanes || lanes >> (t - first) & 1) fiber_clock_release(&all, t);
    for (int t = first; t < end; t++)
        if (!lanes || lanes >> (t - first) & 1) fiber_clock_acquire(t, &all);
}

#endif
