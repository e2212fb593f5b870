/* Runs one block of CUDA threads on one CPU thread: a fiber a CUDA thread, switched by hand, in an
 * order that is permuted anew for every block and drawn from FIBER_SEED. What a GPU leaves open is
 * drawn too, so that a kernel that is right only by luck is wrong here for some seed: who runs
 * first, whether a warp that may go on does so at once or last, and (fiber.h) whether an
 * asynchronous copy happens at once or at the very last moment.
 *   - The block's barrier and every warp mask count by themselves. A barrier counts the threads
 *     that have not ended, as GPUs do since compute capability 7.0. When nobody can go on, that is
 *     reported: who waits where, and who has ended.
 *   - Threads that meet at one operation must have come to it at the same place of the text.
 *   - Shared memory is filled with NaN before each block; after dynamic shared memory lie words
 *     that must not change.
 * A thread runs until it must wait, and its fiber then takes the next thread that has not begun:
 * kernels that never wait are a plain loop. Nothing here knows about devices, streams or global
 * memory. */
#ifndef FIBER_BLOCK_H
#define FIBER_BLOCK_H

#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define FIBER_SHARED_STATE \
    __attribute__((        \
        weak,              \
        visibility("hidden"))) /* one a module, and no compiler believes it unchanged by a call */
#define FIBER_FUNCTION static __attribute__((unused, no_sanitize("thread")))
#ifdef FIBER_RACES /* fiber_race.cc is linked too */
extern "C" void fiber_race_access(const void *at, int bytes, bool write, const void *place);
/* A read by a product that `thread` has issued. */
extern "C" void fiber_race_async(const void *at, int bytes, int thread, const void *place);
/* An access by a tensor copy, which is `agent` (fiber_clock.h). */
extern "C" void fiber_race_bulk(const void *at, int bytes, bool write, int agent,
                                const void *place);
extern "C" void fiber_race_look(const int *at);
extern "C" void fiber_race_fence();
extern "C" void fiber_race_give(const int *at);
#else
#define fiber_race_access(at, bytes, write, place) ((void)0)
#define fiber_race_bulk(at, bytes, write, agent, place) ((void)0)
#define fiber_race_look(at) ((void)0)
#define fiber_race_fence() ((void)0)
#define fiber_race_give(at) ((void)0)
#endif
#include "fiber_clock.h"
#include "fiber_tensor.h"

enum {
    FIBER_THREADS = 1024,
    FIBER_WARPS = 32,
    FIBER_STACK = 128 << 10,
    FIBER_DYNAMIC = 227 << 10,
    FIBER_CANARY = 256,
    FIBER_MEETINGS = 64,
    FIBER_MBARRIERS = 32,
    FIBER_BULKS = 64,
    FIBER_WINDOW = 384 /* where dynamic shared memory begins, to descriptors */
};

struct fiber_uint3 {
    unsigned x, y, z;
};
struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
FIBER_SHARED_STATE fiber_uint3 threadIdx, blockIdx;
FIBER_SHARED_STATE dim3 blockDim, gridDim;

/* ── switching ───────────────────────────────────────────────────────────────── */
#if defined(__x86_64__)
extern "C" __attribute__((visibility("hidden"))) void fiber_switch(void **keep, void *to);
__asm__(
    ".text\n.weak fiber_switch\n.hidden fiber_switch\n.type fiber_switch,@function\nfiber_switch:\n"
    "pushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\npushq %r15\n"
    "movq %rsp,(%rdi)\nmovq %rsi,%rsp\n"
    "popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\nret\n.size "
    "fiber_switch,.-fiber_switch\n");
/* A stack on which fiber_switch finds `entry` as the place to return to. */
FIBER_FUNCTION void *fiber_prepare(char *top, void (*entry)())
{
    void **sp = (void **)((uintptr_t)top & ~(uintptr_t)15);
    *--sp = 0; /* entry begins as if called: 8 bytes off 16 */
    *--sp = (void *)entry;
    for (int i = 0; i < 6; i++) *--sp = 0;
    return sp;
}
#else
#include <ucontext.h>
FIBER_FUNCTION void fiber_switch(void **keep, void *to)
{
    ucontext_t *from = (ucontext_t *)malloc(sizeof *from), *into = (ucontext_t *)to;
    *keep = from;
    if (swapcontext(from, into)) abort();
    free(from);
}
FIBER_FUNCTION void *fiber_prepare(char *top, void (*entry)())
{
    ucontext_t *u = (ucontext_t *)malloc(sizeof *u);
    if (getcontext(u)) abort();
    u->uc_stack.ss_sp = top - FIBER_STACK / 2, u->uc_stack.ss_size = FIBER_STACK / 2,
    u->uc_link = 0;
    makecontext(u, entry, 0);
    return u;
}
#endif

/* ── state ───────────────────────────────────────────────────────────────────── */
/* Where threads meet: the place in the text and what they do there. */
struct fiber_place {
    const char *what, *file;
    int line;
};
FIBER_FUNCTION bool fiber_same_text(const char *a, const char *b)
{
    return a == b || !strcmp(a, b);
}
FIBER_FUNCTION bool fiber_same_place(const fiber_place &a, const fiber_place &b)
{
    return a.line == b.line && fiber_same_text(a.file, b.file);
}
#define FIBER_HERE const char *file = __builtin_FILE(), int line = __builtin_LINE()

struct fiber_copy {
    void *to;
    const void *from;
    bool valid;
};
/* A barrier of arrivals (fiber_wgmma.h): how many still have to come, phases that are over, who
 * began it when; what those know who have arrived in this phase, and in those before; bytes that
 * tensor copies still have to bring. */
struct fiber_mbarrier {
    uint64_t *at;
    int count, pending;
    uint32_t phase, epoch;
    int starter;
    uint32_t begun;
    fiber_clock *gathered;
    int64_t bytes;
};
/* A tensor copy under way (fiber_bulk.h): its map, the place as a shared address, coordinates. */
struct fiber_bulk {
    fiber_tensor map;
    uint32_t to;
    int from[3];
    fiber_mbarrier *barrier;
    int agent;
    const void *place;
};
enum fiber_state {
    FIBER_NEW,
    FIBER_READY,
    FIBER_RUNNING,
    FIBER_AT_BARRIER,
    FIBER_IN_WARP,
    FIBER_AT_MBARRIER,
    FIBER_ENDED
};
struct fiber_thread {
    fiber_uint3 index;
    fiber_state state;
    int fiber;
    uint32_t mask; /* of the warp operation it waits for */
    fiber_place place;
    /* asynchronous copies under way; group[i] of them belong to the i-th open group */
    fiber_copy *copy;
    int copies, copies_kept, groups, group[64];
    fiber_mbarrier *at; /* that it waits for */
};
struct fiber_stack {
    void *sp;
    char *base;
    int thread;
};
/* The lanes of one mask of one warp at a warp operation. Values lie in two slots a lane, taken in
 * turn, so that a fast lane's next value does not meet a slow lane that has not yet read this
 * one. */
struct fiber_meeting {
    uint32_t mask, arrived, of[2]; /* of: which threads had arrived when it ended */
    int turn;
    fiber_place place;
    alignas(16) unsigned char slot[2][32][64];
};
struct fiber_warp {
    uint32_t alive;
    int meetings;
    fiber_meeting *meeting[FIBER_MEETINGS];
    /* how many __syncwarp ended, and which was the last that two lanes had together */
    uint32_t syncs, synced[32][32];
};
struct fiber_machine {
    fiber_thread thread[FIBER_THREADS];
    fiber_stack stack[FIBER_THREADS];
    fiber_warp warp[FIBER_WARPS];
    int threads, alive, current, stacks, free_stack[FIBER_THREADS], free_stacks;
    int ready[FIBER_THREADS], ready_first, ready_count; /* a ring */
    /* the order in which threads begin: warp by warp, lane by lane */
    int begun, warp_step, warp_from, lane_step, lane_from;
    bool eager;      /* who may go on does so before others begin, the latest first */
    bool copy_early; /* asynchronous copies happen at once */
    int barrier_count, barrier_sum[2], barrier_all[2], barrier_turn;
    fiber_place barrier_place;
    uint32_t launch, epoch; /* of this process; barriers of this block so far */
    uint64_t random;
    bool seeded, failed;
    void *home;
    unsigned char *shared_from, *shared_to; /* where the module's __shared__ variables lie */
    void (*call)(void *function, void **argument);
    void *function;
    void **argument;
    int64_t steps; /* switches, for the curious */
    int64_t dynamic_bytes;
    int mbarriers, registers[FIBER_THREADS / 128]; /* registers: a thread, by warpgroup */
    fiber_mbarrier mbarrier[FIBER_MBARRIERS];
    int bulks;
    fiber_bulk bulk[FIBER_BULKS];
    char error[1024];
};
FIBER_SHARED_STATE fiber_machine fiber_m;
FIBER_SHARED_STATE alignas(128) unsigned char fiber_dynamic[FIBER_DYNAMIC + FIBER_CANARY];

FIBER_FUNCTION uint32_t fiber_random()
{
    fiber_m.random = fiber_m.random * 6364136223846793005u + 1442695040888963407u;
    uint32_t x = (uint32_t)(fiber_m.random >> 32);
    return (x ^ x >> 15) * 0x2c1b3c6du;
}
FIBER_FUNCTION int fiber_coprime(int n) /* a step that visits all of n */
{
    for (;;) {
        int step = (int)(fiber_random() % (unsigned)n) | 1, a = step, b = n;
        while (b) {
            int r = a % b;
            a = b, b = r;
        }
        if (a == 1) return step;
    }
}

/* ── who goes on ─────────────────────────────────────────────────────────────── */
FIBER_FUNCTION void fiber_wake(int t)
{
    fiber_m.thread[t].state = FIBER_READY;
    fiber_m.ready[(fiber_m.ready_first + fiber_m.ready_count++) % FIBER_THREADS] = t;
}
/* the i-th to begin; may be beyond the block's last thread */
FIBER_FUNCTION int fiber_in_order(int i)
{
    int warps = (fiber_m.threads + 31) / 32;
    int w = (int)(((int64_t)fiber_m.warp_step * (i / 32) + fiber_m.warp_from) % warps);
    return w * 32 + ((fiber_m.lane_step * (i % 32) + fiber_m.lane_from) & 31);
}
FIBER_FUNCTION int fiber_take_ready()
{
    if (!fiber_m.ready_count) return -1;
    fiber_m.ready_count--;
    if (fiber_m.eager)
        return fiber_m.ready[(fiber_m.ready_first + fiber_m.ready_count) % FIBER_THREADS];
    int t = fiber_m.ready[fiber_m.ready_first];
    fiber_m.ready_first = (fiber_m.ready_first + 1) % FIBER_THREADS;
    return t;
}
FIBER_FUNCTION int fiber_take_new()
{
    while (fiber_m.begun < (fiber_m.threads + 31) / 32 * 32) {
        int t = fiber_in_order(fiber_m.begun++);
        if (t < fiber_m.threads) return t;
    }
    return -1;
}
FIBER_FUNCTION bool fiber_bulks_land();
FIBER_FUNCTION int fiber_next()
{
    for (;;) {
        int t = fiber_m.eager ? fiber_take_ready() : fiber_take_new();
        if (t < 0) t = fiber_m.eager ? fiber_take_new() : fiber_take_ready();
        if (t >= 0 || !fiber_bulks_land()) return t;
    }
}

FIBER_FUNCTION void fiber_report(const char *format, ...)
{
    if (fiber_m.failed) return;
    fiber_m.failed = true;
    int n = snprintf(fiber_m.error, sizeof fiber_m.error, "block (%u, %u, %u): ", blockIdx.x,
                     blockIdx.y, blockIdx.z);
    va_list list;
    va_start(list, format);
    vsnprintf(fiber_m.error + n, sizeof fiber_m.error - (size_t)n, format, list);
    va_end(list);
}
/* to who launched the block, for good when it failed */
FIBER_FUNCTION void fiber_leave(void **keep) { fiber_switch(keep, fiber_m.home); }
FIBER_FUNCTION void fiber_fail_now()
{
    void *gone;
    fiber_leave(&gone);
}

/* Nobody can go on: groups of threads by where they wait. */
FIBER_FUNCTION void fiber_report_deadlock()
{
    char text[900];
    int n = 0, ended = 0, places = 0;
    bool told[FIBER_THREADS] = {};
    for (int t = 0; t < fiber_m.threads; t++) {
        fiber_thread *a = &fiber_m.thread[t];
        if (a->state == FIBER_ENDED) {
            ended++;
            continue;
        }
        if (told[t]) continue;
        int count = 0;
        for (int u = t; u < fiber_m.threads; u++) {
            fiber_thread *b = &fiber_m.thread[u];
            bool same = b->state == a->state && fiber_same_place(a->place, b->place) &&
                        (a->state == FIBER_AT_BARRIER || b->mask == a->mask);
            if (same) told[u] = true, count++;
        }
        if (places++ < 4 && n < (int)sizeof text) {
            n += snprintf(text + n, sizeof text - (size_t)n, "%s%d wait at %s (%s:%d)",
                          places == 1 ? "" : "; ", count, a->place.what, a->place.file,
                          a->place.line);
            if (a->state == FIBER_IN_WARP && n < (int)sizeof text)
                n += snprintf(text + n, sizeof text - (size_t)n, " with mask 0x%08x", a->mask);
            if (n < (int)sizeof text)
                n +=
                    snprintf(text + n, sizeof text - (size_t)n, ", the first of them thread %d", t);
        }
    }
    long long bytes = 0;
    for (int i = 0; i < fiber_m.mbarriers && !bytes; i++) bytes = fiber_m.mbarrier[i].bytes;
    if (bytes)
        fiber_report("deadlock: %s; %d have ended; a barrier expects %lld bytes", text, ended,
                     bytes);
    else
        fiber_report("deadlock: %s; %d have ended", text, ended);
}

FIBER_FUNCTION void fiber_thread_main();
FIBER_FUNCTION int fiber_free_stack()
{
    if (fiber_m.free_stacks) return fiber_m.free_stack[--fiber_m.free_stacks];
    int i = fiber_m.stacks++;
    fiber_stack *s = &fiber_m.stack[i];
    if (!s->base) {
        s->base = (char *)mmap(0, FIBER_STACK, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (s->base == MAP_FAILED || mprotect(s->base, 4096, PROT_NONE)) {
            perror("fiber stack");
            abort();
        }
    }
    /* stacks that would fall on the same cache lines */
    s->sp = fiber_prepare(s->base + FIBER_STACK - 64 - i % 32 * 192, fiber_thread_main);
    return i;
}
/* From a waiting thread, or from home, to the next thread. */
FIBER_FUNCTION void fiber_go_on(void **keep)
{
    int t = fiber_next();
    if (t < 0) {
        fiber_report_deadlock();
        fiber_leave(keep);
        return;
    }
    fiber_thread *next = &fiber_m.thread[t];
    if (next->state == FIBER_NEW) {
        next->fiber = fiber_free_stack();
        fiber_m.stack[next->fiber].thread = t;
    }
    next->state = FIBER_RUNNING;
    fiber_m.current = t;
    threadIdx = next->index;
    fiber_m.steps++;
    void *to = fiber_m.stack[next->fiber].sp;
    if (keep == &fiber_m.stack[next->fiber].sp) return; /* itself */
    fiber_switch(keep, to);
}
FIBER_FUNCTION void fiber_wait(fiber_state state, uint32_t mask, const fiber_place &place)
{
    fiber_thread *me = &fiber_m.thread[fiber_m.current];
    me->state = state, me->mask = mask, me->place = place;
    fiber_go_on(&fiber_m.stack[me->fiber].sp);
}

/* ── meeting ─────────────────────────────────────────────────────────────────── */
FIBER_FUNCTION void fiber_barrier_opens()
{
    fiber_m.barrier_count = 0, fiber_m.epoch++;
    fiber_clock_meet(0, 0);
    fiber_m.barrier_turn ^= 1;
    fiber_m.barrier_sum[fiber_m.barrier_turn] = fiber_m.barrier_all[fiber_m.barrier_turn] = 0;
    int warps = (fiber_m.threads + 31) / 32;
    fiber_m.warp_from = (int)(fiber_random() % (unsigned)warps),
    fiber_m.lane_from = (int)(fiber_random() & 31);
    for (int i = 0; i < warps * 32; i++) {
        int t = fiber_in_order(i);
        if (t < fiber_m.threads && fiber_m.thread[t].state == FIBER_AT_BARRIER) fiber_wake(t);
    }
}
/* The block's barrier; gives how many threads said so. */
FIBER_FUNCTION int fiber_barrier(const fiber_place &place, bool says)
{
    if (fiber_m.barrier_count && !fiber_same_place(fiber_m.barrier_place, place)) {
        fiber_report("thread %d is at %s (%s:%d) while others wait at %s (%s:%d): a barrier under "
                     "a condition",
                     fiber_m.current, place.what, place.file, place.line,
                     fiber_m.barrier_place.what, fiber_m.barrier_place.file,
                     fiber_m.barrier_place.line);
        fiber_fail_now();
    }
    fiber_m.barrier_place = place;
    int turn = fiber_m.barrier_turn;
    fiber_m.barrier_sum[turn] += says, fiber_m.barrier_all[turn]++;
    fiber_thread *me = &fiber_m.thread[fiber_m.current];
    if (++fiber_m.barrier_count == fiber_m.alive) {
        me->state = FIBER_AT_BARRIER;
        fiber_barrier_opens();
    } else {
        me->state = FIBER_AT_BARRIER;
    }
    me->place = place;
    fiber_go_on(&fiber_m.stack[me->fiber].sp);
    return fiber_m.barrier_sum[turn];
}

FIBER_FUNCTION fiber_meeting *fiber_meeting_of(fiber_warp *w, uint32_t mask)
{
    for (int i = 0; i < w->meetings; i++)
        if (w->meeting[i]->mask == mask) return w->meeting[i];
    if (w->meetings == FIBER_MEETINGS) {
        fiber_report("more than %d masks in one warp", FIBER_MEETINGS);
        fiber_fail_now();
    }
    int i = w->meetings++;
    if (!w->meeting[i] && posix_memalign((void **)&w->meeting[i], 64, sizeof *w->meeting[i]))
        abort();
    fiber_meeting *m = w->meeting[i];
    m->mask = mask, m->arrived = 0, m->turn = 0;
    return m;
}
FIBER_FUNCTION void fiber_meeting_ends(fiber_warp *w, fiber_meeting *m, int but)
{
    uint32_t arrived = m->arrived;
    m->of[m->turn] = arrived;
    m->arrived = 0, m->turn ^= 1;
    if (!strcmp(m->place.what, "__syncwarp")) {
        w->syncs++;
        for (int a = 0; a < 32; a++)
            for (int b = 0; b < 32; b++)
                if (arrived >> a & arrived >> b & 1) w->synced[a][b] = w->syncs;
        fiber_clock_meet((int)(w - fiber_m.warp) * 32, arrived);
    }
    int first = (int)(w - fiber_m.warp) * 32, from = fiber_m.lane_from;
    for (int i = 0; i < 32; i++) {
        int lane = (i * fiber_m.lane_step + from) & 31;
        if (arrived >> lane & 1 && first + lane != but) fiber_wake(first + lane);
    }
}
/* Leaves `bytes` of `value` in this lane's slot, waits until all of `mask` that have not ended are
 * here, and gives all their slots (read at once). The last to come does `all` over them first, for
 * operations that happen together. */
template <class All>
FIBER_FUNCTION unsigned char (*fiber_meet(uint32_t mask, const fiber_place &place,
                                          const void *value, int bytes, uint32_t *who, All all))[64]
{
    int t = fiber_m.current, lane = t & 31;
    fiber_warp *w = &fiber_m.warp[t >> 5];
    if (!(mask >> lane & 1)) {
        fiber_report("thread %d at %s (%s:%d) is not in its own mask 0x%08x", t, place.what,
                     place.file, place.line, mask);
        fiber_fail_now();
    }
    fiber_meeting *m = fiber_meeting_of(w, mask);
    if (m->arrived && (!fiber_same_text(m->place.what, place.what) ||
                       (!fiber_same_place(m->place, place) && strcmp(place.what, "__syncwarp")))) {
        fiber_report("thread %d is at %s (%s:%d) while lanes of its mask 0x%08x wait at %s (%s:%d)",
                     t, place.what, place.file, place.line, mask, m->place.what, m->place.file,
                     m->place.line);
        fiber_fail_now();
    }
    m->place = place;
    int turn = m->turn;
    memcpy(m->slot[turn][lane], value, (size_t)bytes);
    m->arrived |= 1u << lane;
    if (m->arrived == (mask & w->alive)) {
        all(m->slot[turn], m->arrived);
        fiber_meeting_ends(w, m, t);
    } else {
        fiber_wait(FIBER_IN_WARP, mask, place);
    }
    if (who) *who = m->of[turn];
    return m->slot[turn];
}

/* A thread has ended: those who waited for it may go on. A warp operation that all must do together
 * can then not be done. */
FIBER_FUNCTION void fiber_ends(int t)
{
    fiber_warp *w = &fiber_m.warp[t >> 5];
    fiber_m.thread[t].state = FIBER_ENDED;
    fiber_m.alive--;
    w->alive &= ~(1u << (t & 31));
    if (fiber_m.barrier_count && fiber_m.barrier_count == fiber_m.alive) fiber_barrier_opens();
    for (int i = 0; i < w->meetings; i++) {
        fiber_meeting *m = w->meeting[i];
        if (!m->arrived || m->arrived != (m->mask & w->alive)) continue;
        if (!strncmp(m->place.what, "__", 2))
            fiber_meeting_ends(w, m, -1);
        else
            fiber_report("thread %d has ended while others of its warp are at %s (%s:%d)", t,
                         m->place.what, m->place.file, m->place.line);
    }
}
FIBER_FUNCTION void fiber_copies_land(fiber_thread *t, int groups);

/* The life of a fiber: one thread after another. */
FIBER_FUNCTION void fiber_thread_main()
{
    for (;;) {
        int t = fiber_m.current, fiber = fiber_m.thread[t].fiber;
        fiber_m.call(fiber_m.function, fiber_m.argument);
        if (fiber_m.thread[t].groups | fiber_m.thread[t].copies)
            fiber_copies_land(&fiber_m.thread[t], fiber_m.thread[t].groups + 1);
        fiber_ends(t);
        void **keep = &fiber_m.stack[fiber].sp;
        int next = fiber_m.failed || !fiber_m.alive ? -1 : fiber_next();
        /* goes on with another thread on the same stack */
        if (next >= 0 && fiber_m.thread[next].state == FIBER_NEW) {
            fiber_m.thread[next].fiber = fiber;
            fiber_m.thread[next].state = FIBER_RUNNING;
            fiber_m.current = next;
            threadIdx = fiber_m.thread[next].index;
            continue;
        }
        fiber_m.free_stack[fiber_m.free_stacks++] = fiber;
        if (next < 0) {
            if (fiber_m.alive) fiber_report_deadlock();
            fiber_leave(keep);
        } else {
            fiber_m.thread[next].state = FIBER_RUNNING;
            fiber_m.current = next;
            threadIdx = fiber_m.thread[next].index;
            fiber_switch(keep, fiber_m.stack[fiber_m.thread[next].fiber].sp);
        }
        /* someone gave this stack another thread */
    }
}

#include "fiber_copy.h"

#endif
