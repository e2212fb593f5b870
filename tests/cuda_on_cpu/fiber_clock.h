/* Who knows of what, for the race detector: threads of a block that meet at barriers of arrivals
 * (fiber_wgmma.h) are ordered by pairs and not all at once, as by the block's barrier. Every thread
 * counts its own releases; known[t][u] says up to which of u's releases t has learned of what u
 * did, over however many others. fenced[t][u] says the same of what has also passed a fence to the
 * asynchronous proxy on the way. A tensor copy (fiber_bulk.h) is an agent: it has a number after
 * those of the threads, knows what its issuer knew, and is known to who learns that it has landed.
 * Used by blocks that begin such a barrier, and only there. */
#ifndef FIBER_CLOCK_H
#define FIBER_CLOCK_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* threads that may be ordered so; copies until a number is used again */
enum { FIBER_CLOCKS = 512, FIBER_AGENTS = 256, FIBER_NUMBERS = FIBER_CLOCKS + FIBER_AGENTS };
struct fiber_clock {
    uint32_t known[FIBER_NUMBERS], fenced[FIBER_NUMBERS];
};
struct fiber_clocks {
    bool used;
    int threads, numbers, agents; /* agents: given out so far */
    uint32_t now[FIBER_NUMBERS];
    fiber_clock *of; /* by number */
};
FIBER_SHARED_STATE fiber_clocks fiber_c;

FIBER_FUNCTION void fiber_clocks_begin(int threads)
{
    if (fiber_c.used) return;
    if (!fiber_c.of) fiber_c.of = (fiber_clock *)malloc(FIBER_NUMBERS * sizeof *fiber_c.of);
    if (!fiber_c.of) abort();
    memset(fiber_c.of, 0, sizeof *fiber_c.of * (size_t)threads);
    memset(fiber_c.now, 0, sizeof fiber_c.now);
    fiber_c.threads = fiber_c.numbers = threads, fiber_c.agents = 0, fiber_c.used = true;
}
FIBER_FUNCTION void fiber_clock_more(fiber_clock *to, const fiber_clock *from)
{
    for (int u = 0; u < fiber_c.numbers; u++) {
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
    for (int u = 0; u < fiber_c.numbers; u++)
        if (c->known[u] > c->fenced[u]) c->fenced[u] = c->known[u];
}
/* The number of a copy that thread t issues now. */
FIBER_FUNCTION int fiber_clock_agent(int t)
{
    int agent = fiber_c.threads + fiber_c.agents++ % FIBER_AGENTS;
    if (fiber_c.numbers <= agent) fiber_c.numbers = agent + 1;
    memset(&fiber_c.of[agent], 0, sizeof fiber_c.of[agent]);
    fiber_clock_release(&fiber_c.of[agent], t);
    return agent;
}
/* It has landed: what it did, and nothing of what it knew, goes into `to`. */
FIBER_FUNCTION void fiber_clock_landed(fiber_clock *to, int agent)
{
    to->known[agent] = ++fiber_c.now[agent];
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
