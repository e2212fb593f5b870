/* A launch under fibers: every block of the grid in turn, in an order that is drawn, shared memory
 * as a GPU would leave it (with what nobody can rely on), arguments unpacked by a function made
 * from the kernel's own type. Two entry points: fiber_launch for programs that hold the kernel's
 * text, and the table that thunks.sh writes after a whole module, for the stand-in driver, which
 * knows kernels by name. */
#ifndef FIBER_LAUNCH_H
#define FIBER_LAUNCH_H

#include <link.h>

#include <type_traits>
#include <utility>

#include "fiber_block.h"
#include "fiber_kernel.h"

/* __shared__ variables are thread-local, because those of one module then lie together (an
 * attribute for a section is ignored in templates) and can be filled before each block. Those of
 * other kernels lie there too, which costs time: after a kernel's first block it is known which
 * lines it touches. */
#define __shared__ static thread_local
static thread_local char fiber_shared_mark; /* so that there is one, and where */
struct fiber_range {
    unsigned char *from, *to;
};
FIBER_FUNCTION int fiber_find_shared(struct dl_phdr_info *info, size_t, void *data)
{
    fiber_range *r = (fiber_range *)data;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *h = &info->dlpi_phdr[i];
        unsigned char *from = (unsigned char *)info->dlpi_tls_data,
                      *mark = (unsigned char *)&fiber_shared_mark;
        if (h->p_type == PT_TLS && from && mark >= from && mark < from + h->p_memsz)
            *r = {from, from + h->p_memsz};
    }
    return 0;
}
enum { FIBER_KNOWN = 512 };
constexpr int64_t FIBER_LINE = 64;
struct fiber_touched {
    void *function;
    unsigned char *line;
    int64_t lines;
};
FIBER_SHARED_STATE fiber_touched fiber_known[FIBER_KNOWN];

/* NaN as F32, F64, BF16; -1 as an integer */
FIBER_FUNCTION void fiber_poison(void *at, int64_t bytes) { memset(at, 0xff, (size_t)bytes); }
FIBER_FUNCTION fiber_touched *fiber_touches(void *function, int64_t lines)
{
    int i = (int)((uintptr_t)function / 16 % FIBER_KNOWN), tried = 0;
    while (fiber_known[i].function && fiber_known[i].function != function && tried++ < FIBER_KNOWN)
        i = (i + 1) % FIBER_KNOWN;
    if (tried > FIBER_KNOWN) return 0;
    if (!fiber_known[i].line) {
        fiber_known[i].function = function, fiber_known[i].lines = lines;
        fiber_known[i].line = (unsigned char *)calloc((size_t)lines + 1, 1);
    }
    return &fiber_known[i];
}
/* Marks what differs from the filling. */
FIBER_FUNCTION void fiber_touches_more(fiber_touched *k)
{
    int64_t bytes = fiber_m.shared_to - fiber_m.shared_from;
    for (int64_t i = 0; k && i < k->lines; i++) {
        if (k->line[i]) continue;
        const unsigned char *p = fiber_m.shared_from + i * FIBER_LINE;
        int64_t left = bytes - i * FIBER_LINE, n = left < FIBER_LINE ? left : FIBER_LINE;
        for (int64_t j = 0; j < n; j++)
            if (p[j] != 0xff) {
                k->line[i] = 1;
                break;
            }
    }
}
FIBER_FUNCTION void fiber_poison_touched(const fiber_touched *k)
{
    int64_t bytes = fiber_m.shared_to - fiber_m.shared_from;
    if (!k) fiber_poison(fiber_m.shared_from, bytes);
    for (int64_t i = 0; k && i < k->lines; i++) {
        int64_t left = bytes - i * FIBER_LINE;
        if (k->line[i])
            fiber_poison(fiber_m.shared_from + i * FIBER_LINE,
                         left < FIBER_LINE ? left : FIBER_LINE);
    }
}

FIBER_FUNCTION void fiber_wgmma_ends();
FIBER_FUNCTION void fiber_bulk_ends();
FIBER_FUNCTION void fiber_seed(uint64_t seed)
{
    fiber_m.random = seed * 0x9e3779b97f4a7c15u + 1, fiber_m.seeded = true;
}

FIBER_FUNCTION void fiber_block_begins(int64_t shared_bytes)
{
    fiber_m.alive = fiber_m.threads, fiber_m.begun = 0,
    fiber_m.ready_first = fiber_m.ready_count = 0;
    fiber_m.barrier_count = fiber_m.barrier_turn = 0;
    fiber_m.barrier_sum[0] = fiber_m.barrier_all[0] = 0, fiber_m.epoch = 0;
    uint32_t draw = fiber_random();
    fiber_m.eager = draw >> 8 & 1, fiber_m.copy_early = draw >> 9 & 1;
    int warps = (fiber_m.threads + 31) / 32;
    fiber_m.warp_step = fiber_coprime(warps),
    fiber_m.warp_from = (int)(fiber_random() % (unsigned)warps);
    fiber_m.lane_step = (int)(fiber_random() & 31) | 1,
    fiber_m.lane_from = (int)(fiber_random() & 31);
    for (int t = 0; t < fiber_m.threads; t++) fiber_m.thread[t].state = FIBER_NEW;
    fiber_m.mbarriers = fiber_m.bulks = 0, fiber_m.dynamic_bytes = shared_bytes,
    fiber_c.used = false;
    for (int w = 0; w < warps; w++) {
        int left = fiber_m.threads - w * 32;
        fiber_m.warp[w].alive = left >= 32 ? 0xffffffffu : (1u << left) - 1;
        fiber_m.warp[w].meetings = 0;
        memset(fiber_m.warp[w].synced, 0, sizeof fiber_m.warp[w].synced), fiber_m.warp[w].syncs = 0;
    }
    fiber_poison(fiber_dynamic, shared_bytes);
    memset(fiber_dynamic + shared_bytes, 0xa5, FIBER_CANARY);
}

/* False: what was wrong is in fiber_m.error. */
FIBER_FUNCTION bool fiber_run(dim3 grid, dim3 block, int64_t shared_bytes,
                              void (*call)(void *, void **), void *function, void **argument)
{
    if (!fiber_m.seeded)
        fiber_seed(getenv("FIBER_SEED") ? strtoull(getenv("FIBER_SEED"), 0, 10) : 1);
    fiber_m.launch++, fiber_m.failed = false, fiber_m.threads = (int)(block.x * block.y * block.z);
    fiber_m.call = call, fiber_m.function = function, fiber_m.argument = argument;
    blockDim = block, gridDim = grid, blockIdx = {0, 0, 0};
    if (fiber_m.threads < 1 || fiber_m.threads > FIBER_THREADS || shared_bytes < 0 ||
        shared_bytes > FIBER_DYNAMIC) {
        fiber_report("%d threads with %lld bytes of shared memory are more than a block can have",
                     fiber_m.threads, (long long)shared_bytes);
        return false;
    }
    for (int t = 0; t < fiber_m.threads; t++)
        fiber_m.thread[t].index = {(unsigned)t % block.x, (unsigned)t / block.x % block.y,
                                   (unsigned)t / block.x / block.y};
    fiber_range shared = {0, 0};
    dl_iterate_phdr(fiber_find_shared, &shared);
    fiber_m.shared_from = shared.from, fiber_m.shared_to = shared.to;
    int64_t lines = (fiber_m.shared_to - fiber_m.shared_from + FIBER_LINE - 1) / FIBER_LINE;
    fiber_touched *known = lines ? fiber_touches(function, lines) : 0;
    bool first = known && !known->line[lines];
    if (first)
        fiber_poison(fiber_m.shared_from, fiber_m.shared_to - fiber_m.shared_from),
            known->line[lines] = 1;
    int64_t blocks = (int64_t)grid.x * grid.y * grid.z, step = 1, from = 0;
    if (blocks > 1 && blocks <= INT32_MAX)
        step = fiber_coprime((int)blocks), from = fiber_random() % (unsigned)blocks;
    for (int64_t b = 0; b < blocks; b++) {
        int64_t which = (b * step + from) % blocks;
        blockIdx = {(unsigned)(which % grid.x), (unsigned)(which / grid.x % grid.y),
                    (unsigned)(which / grid.x / grid.y)};
        fiber_block_begins(shared_bytes);
        fiber_go_on(&fiber_m.home);
        fiber_bulk_ends();
        fiber_wgmma_ends();
        for (int i = 0; i < FIBER_CANARY && !fiber_m.failed; i++)
            if (fiber_dynamic[shared_bytes + i] != 0xa5)
                fiber_report("wrote %d bytes after its %lld bytes of dynamic shared memory", i,
                             (long long)shared_bytes);
        if (first && (b == 0 || b + 1 == blocks || fiber_m.failed)) fiber_touches_more(known);
        if (lines) fiber_poison_touched(known);
        if (fiber_m.failed) {
            for (int t = 0; t < fiber_m.threads; t++)
                fiber_m.thread[t].copies = fiber_m.thread[t].groups = 0;
            fiber_m.stacks = fiber_m.free_stacks = 0; /* fibers that wait for ever are begun anew */
            return false;
        }
    }
    return true;
}

template <class... P, size_t... I>
FIBER_FUNCTION void fiber_apply(void (*kernel)(P...), void **argument, std::index_sequence<I...>)
{
    (void)argument;
    kernel(*(std::remove_reference_t<P> *)argument[I]...);
}
template <class... P> FIBER_FUNCTION void fiber_call(void *function, void **argument)
{
    fiber_apply((void (*)(P...))function, argument, std::index_sequence_for<P...>());
}
/* For tests: launches and ends the program when the kernel did something that it must not.
 * Arguments are converted as in a call. */
template <class... P> struct fiber_launch_of {
    static void go(dim3 grid, dim3 block, int64_t shared_bytes, void (*kernel)(P...), P... value)
    {
        void *argument[] = {(void *)&value..., 0};
        if (fiber_run(grid, block, shared_bytes, fiber_call<P...>, (void *)kernel, argument))
            return;
        fprintf(stderr, "fiber: %s\n", fiber_m.error);
        exit(1);
    }
};
template <class... P, class... A>
FIBER_FUNCTION void fiber_launch(dim3 grid, dim3 block, int64_t shared_bytes, void (*kernel)(P...),
                                 A... value)
{
    fiber_launch_of<P...>::go(grid, block, shared_bytes, kernel, (P)value...);
}

template <class... P> struct fiber_signature {
    static inline const int sizes[] = {(int)sizeof(P)..., 0};
    static uint64_t pointers()
    {
        uint64_t bits = 0;
        int i = 0;
        ((bits |= (uint64_t)std::is_pointer<P>::value << i++), ...);
        return bits;
    }
};
template <class... P>
FIBER_FUNCTION fiber_kernel fiber_describe(const char *name, void (*kernel)(P...), int threads)
{
    return {name,
            (void *)kernel,
            fiber_call<P...>,
            threads,
            fiber_signature<P...>::sizes,
            fiber_signature<P...>::pointers()};
}

#endif
