/* A race detector for kernels under fibers. Kernel text compiled with -fsanitize=thread calls a
 * function before every load and store; here are those functions, without the sanitizer's own
 * library, for which a barrier of a block would mean nothing. Two accesses to the same bytes of one
 * launch, one of them a store, by two threads, are a race unless
 *   - a barrier of the block lies between them, or
 *   - the two are lanes of a warp that met at a __syncwarp in between (a shuffle orders no memory),
 *     or
 *   - the first thread's arrival at a barrier of arrivals came between, and the second has learned
 *     of it by a wait (fiber_clock.h). Of a tensor copy, which is like a thread of its own, nobody
 *     learns in another way.
 * Blocks of one launch are ordered by signals alone: what lies before a barrier, a signal_fence
 * and a signal_give of one block comes before what another block does after a signal_look that
 * reads it, a signal_fence and a barrier (the thread itself: after the fence). So a race is found
 * whatever order was drawn, in shared and in global memory, where permuting threads finds it only
 * when the value shows. Integer atomics do not count as accesses. An asynchronous copy stores when
 * it is issued and again when it is waited for. Cells are two bytes. */
#include <dlfcn.h>

#include <algorithm>
#include <map>
#include <vector>

#include "fiber_block.h"

namespace
{
struct stamp {
    uint32_t launch, block, epoch, syncs, clock, place;
    uint16_t thread;
};
/* other: the latest read of a thread that is not `read`'s */
struct cell {
    stamp write, read, other;
};
enum { CELLS = 2048, PAGES = 1 << 17 };
struct page {
    uintptr_t number;
    cell *cells;
};
page pages[PAGES];

cell *cell_of(uintptr_t at)
{
    uintptr_t number = at >> 12;
    size_t i = (size_t)(number * 0x9e3779b97f4a7c15u >> 47);
    while (pages[i].cells && pages[i].number != number) i = (i + 1) % PAGES;
    if (!pages[i].cells)
        pages[i].number = number, pages[i].cells = (cell *)calloc(CELLS, sizeof(cell));
    if (!pages[i].cells) abort();
    return &pages[i].cells[(at & 4095) / 2];
}
uintptr_t base()
{
    static uintptr_t at;
    Dl_info info;
    if (!at && dladdr((void *)fiber_race_access, &info)) at = (uintptr_t)info.dli_fbase;
    return at;
}
bool is_shared(uintptr_t at)
{
    return (at >= (uintptr_t)fiber_dynamic &&
            at < (uintptr_t)fiber_dynamic + sizeof fiber_dynamic) ||
           (at >= (uintptr_t)fiber_m.shared_from && at < (uintptr_t)fiber_m.shared_to);
}
/* ── what blocks know of each other ──────────────────────────────────────────── */
/* Of each block how many of its epochs are over, and of each of its threads how many releases:
 * accesses before them can be seen. */
struct clock_of_block {
    uint32_t over = 0;
    std::vector<uint32_t> releases;
};
struct clock_of_blocks {
    std::vector<clock_of_block> of;
    clock_of_block &block(uint32_t number)
    {
        if (of.size() <= number) of.resize(number + 1);
        return of[number];
    }
    void learn(uint32_t number, const clock_of_block &other)
    {
        clock_of_block &b = block(number);
        b.over = std::max(b.over, other.over);
        if (b.releases.size() < other.releases.size()) b.releases.resize(other.releases.size());
        for (size_t t = 0; t < other.releases.size(); t++)
            b.releases[t] = std::max(b.releases[t], other.releases[t]);
    }
    void learn(const clock_of_blocks &other)
    {
        for (size_t b = 0; b < other.of.size(); b++) learn((uint32_t)b, other.of[b]);
    }
    bool knows(const stamp &s) const
    {
        if (s.block >= of.size()) return false;
        const clock_of_block &b = of[s.block];
        return s.epoch < b.over || (s.thread < b.releases.size() && s.clock < b.releases[s.thread]);
    }
};
/* What a thread learned, in which epoch and after how many of its releases: others know it in the
 * next epoch, or when they have learned of a later release. */
struct lesson {
    int thread;
    uint32_t epoch, release;
    clock_of_blocks clock;
};
bool taught(const lesson &l, int thread)
{
    return l.thread == thread || (fiber_c.used && fiber_c.of[thread].known[l.thread] > l.release);
}
struct {
    uint32_t launch, block;
    clock_of_blocks known; /* by all threads */
    std::vector<lesson> lessons;
    std::map<int, clock_of_blocks> looked, fenced; /* by a thread, since its last fence and at it */
} here;
struct signal {
    uint32_t launch;
    clock_of_blocks clock;
};
std::map<const int *, signal> signals;

uint32_t this_block() { return blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z); }
void follow_block()
{
    if (here.launch == fiber_m.launch && here.block == this_block()) return;
    here.launch = fiber_m.launch, here.block = this_block();
    here.known.of.clear(), here.lessons.clear(), here.looked.clear(), here.fenced.clear();
}
bool known(const stamp &before, const stamp &now)
{
    follow_block();
    bool own = false;
    for (size_t i = 0; i < here.lessons.size();) {
        lesson &l = here.lessons[i];
        if (l.epoch < now.epoch) {
            here.known.learn(l.clock);
            std::swap(l, here.lessons.back());
            here.lessons.pop_back();
        } else {
            own = own || (taught(l, now.thread) && l.clock.knows(before));
            i++;
        }
    }
    return own || here.known.knows(before);
}

bool is_agent(int thread) { return fiber_c.used && thread >= fiber_c.threads; }
bool ordered(const stamp &before, const stamp &now, bool shared)
{
    if (before.launch != now.launch) return true;
    if (before.block != now.block) return shared || known(before, now); /* each has its shared */
    if (is_agent(before.thread) || is_agent(now.thread))
        return (before.thread == now.thread && before.clock == now.clock) ||
               fiber_c.of[now.thread].known[before.thread] > before.clock;
    if (before.thread == now.thread || before.epoch != now.epoch) return true;
    if (fiber_c.used && fiber_c.of[now.thread].known[before.thread] > before.clock) return true;
    const fiber_warp *w = &fiber_m.warp[now.thread / 32];
    return before.thread / 32 == now.thread / 32 &&
           w->synced[before.thread % 32][now.thread % 32] > before.syncs;
}
struct name {
    char text[32];
    explicit name(const stamp &s)
    {
        if (s.launch == fiber_m.launch && s.block == this_block() && is_agent(s.thread))
            strcpy(text, "a tensor copy");
        else
            snprintf(text, sizeof text, "thread %d", s.thread);
    }
};
void race(const char *before_word, const stamp &before, const char *now_word, const stamp &now,
          uintptr_t at)
{
    fiber_report("race at %#lx%s: %s of block %u %s it at +%#x, and %s of block %u %s it at +%#x "
                 "with nothing between (addr2line -e the module)",
                 (unsigned long)at, is_shared(at) ? " (shared memory)" : "", name(before).text,
                 before.block, before_word, before.place, name(now).text, now.block, now_word,
                 now.place);
}
void check(uintptr_t at, bool write, const stamp &now)
{
    cell *c = cell_of(at);
    bool shared = is_shared(at);
    if (!ordered(c->write, now, shared))
        race("writes", c->write, write ? "writes" : "reads", now, at);
    if (!write) {
        if (c->read.thread != now.thread || c->read.block != now.block) c->other = c->read;
        c->read = now;
        return;
    }
    if (!ordered(c->read, now, shared)) race("reads", c->read, "writes", now, at);
    if (!ordered(c->other, now, shared)) race("reads", c->other, "writes", now, at);
    c->write = now;
}
/* Written by a thread, and `now` has not learned of it over a fence. */
bool unfenced(const stamp &w, const stamp &now)
{
    return w.launch == now.launch && w.block == now.block && !is_agent(w.thread) &&
           fiber_c.of[now.thread].fenced[w.thread] <= w.clock;
}
stamp stamp_of(int thread, const void *place)
{
    return {fiber_m.launch,
            this_block(),
            fiber_m.epoch,
            is_agent(thread) ? 0 : fiber_m.warp[thread / 32].syncs,
            fiber_c.used ? fiber_c.now[thread] : 0,
            (uint32_t)((uintptr_t)place - base()),
            (uint16_t)thread};
}
} // namespace

extern "C" void fiber_race_access(const void *address, int bytes, bool write, const void *place)
{
    uintptr_t at = (uintptr_t)address;
    /* its own stack */
    if (at - (uintptr_t)fiber_m.stack[fiber_m.thread[fiber_m.current].fiber].base < FIBER_STACK ||
        fiber_m.failed)
        return;
    stamp now = stamp_of(fiber_m.current, place);
    for (uintptr_t i = at & ~(uintptr_t)1; i < at + (uintptr_t)bytes; i += 2) check(i, write, now);
}

extern "C" void fiber_race_async(const void *address, int bytes, int thread, const void *place)
{
    uintptr_t at = (uintptr_t)address;
    if (fiber_m.failed) return;
    stamp now = stamp_of(thread, place);
    for (uintptr_t i = at; i < at + (uintptr_t)bytes; i += 2) {
        check(i, false, now);
        const stamp &w = cell_of(i)->write;
        if (unfenced(w, now))
            fiber_report("thread %d writes %#lx at +%#x, and a product of thread %d reads it "
                         "without wgmma_written between",
                         w.thread, (unsigned long)i, w.place, thread);
    }
}

extern "C" void fiber_race_bulk(const void *address, int bytes, bool write, int agent,
                                const void *place)
{
    uintptr_t at = (uintptr_t)address;
    if (fiber_m.failed) return;
    stamp now = stamp_of(agent, place);
    for (uintptr_t i = at; i < at + (uintptr_t)bytes; i += 2) {
        const stamp w = cell_of(i)->write;
        check(i, write, now);
        if (write && unfenced(w, now))
            fiber_report("thread %d writes %#lx at +%#x, and a tensor copy overwrites it without "
                         "wgmma_written between",
                         w.thread, (unsigned long)i, w.place);
    }
}

extern "C" void fiber_race_look(const int *at)
{
    follow_block();
    auto found = signals.find(at);
    if (found != signals.end() && found->second.launch == fiber_m.launch)
        here.looked[fiber_m.current].learn(found->second.clock);
}
extern "C" void fiber_race_fence()
{
    follow_block();
    int t = fiber_m.current;
    clock_of_block own;
    own.over = fiber_m.epoch;
    if (fiber_c.used) {
        own.releases.assign(fiber_c.of[t].known, fiber_c.of[t].known + fiber_c.threads);
        own.releases[(size_t)t] = ++fiber_c.now[t];
    }
    if (here.looked.count(t))
        here.lessons.push_back(
            {t, fiber_m.epoch, fiber_c.used ? fiber_c.now[t] : 0, here.looked[t]});
    here.looked.erase(t);
    clock_of_blocks all = here.known;
    for (const lesson &l : here.lessons)
        if (taught(l, t) || l.epoch < fiber_m.epoch) all.learn(l.clock);
    all.learn(here.block, own);
    here.fenced[t] = all;
}
extern "C" void fiber_race_give(const int *at)
{
    follow_block();
    signals[at] = {fiber_m.launch, here.fenced[fiber_m.current]};
}

#define HERE __builtin_return_address(0)
#define OF(bytes)                                                                               \
    extern "C" void __tsan_read##bytes(void *at) { fiber_race_access(at, bytes, false, HERE); } \
    extern "C" void __tsan_write##bytes(void *at) { fiber_race_access(at, bytes, true, HERE); } \
    extern "C" void __tsan_unaligned_read##bytes(void *at)                                      \
    {                                                                                           \
        fiber_race_access(at, bytes, false, HERE);                                              \
    }                                                                                           \
    extern "C" void __tsan_unaligned_write##bytes(void *at)                                     \
    {                                                                                           \
        fiber_race_access(at, bytes, true, HERE);                                               \
    }                                                                                           \
    extern "C" void __tsan_volatile_read##bytes(void *at)                                       \
    {                                                                                           \
        fiber_race_access(at, bytes, false, HERE);                                              \
    }                                                                                           \
    extern "C" void __tsan_volatile_write##bytes(void *at)                                      \
    {                                                                                           \
        fiber_race_access(at, bytes, true, HERE);                                               \
    }
OF(1)
OF(2)
OF(4)
OF(8)
OF(16)
extern "C" void __tsan_read_range(void *at, size_t bytes)
{
    fiber_race_access(at, (int)bytes, false, HERE);
}
extern "C" void __tsan_write_range(void *at, size_t bytes)
{
    fiber_race_access(at, (int)bytes, true, HERE);
}
extern "C" void __tsan_init() {}
extern "C" void __tsan_func_entry(void *) {}
extern "C" void __tsan_func_exit() {}
