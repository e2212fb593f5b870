/* A body for every named wrapper of templates/cuda/wgmma.cuh, from the layouts of the PTX manual
 * ("Asynchronous Warpgroup Level Matrix Instructions") and as strict as the manual:
 *   - A product reads shared memory when it is issued and again when it is waited for; it is
 *     computed at one of the two, as the block has drawn. To the race detector both are reads by
 *     the warp's first lane, so that a stage which is overwritten before the wait is a race.
 *   - What other threads have written must have passed wgmma_written() on the way from the writer
 * to the reader; what tensor copies have brought need not.
 *   - Sums are NaN from the first product to the wait for the last, and nobody may touch them; nor
 *     an operand in registers. Several sums may be under way. After a wait wgmma_begin() must come
 *     before the first product of sums, and before one with an operand in registers.
 *   - All four warps of a warpgroup issue the same products in the same order.
 * Operands are found by the bits of their descriptors alone. */
#ifndef FIBER_WGMMA_H
#define FIBER_WGMMA_H

#include "fiber_wrappers.h"

/* ── barriers of arrivals ────────────────────────────────────────────────────── */
constexpr uint64_t FIBER_MBARRIER_WORD = 0x6d62617272696572;

FIBER_FUNCTION fiber_mbarrier *fiber_mbarrier_at(uint64_t *at, const fiber_place &place)
{
    int me = fiber_m.current;
    for (int i = 0; i < fiber_m.mbarriers; i++) {
        fiber_mbarrier *b = &fiber_m.mbarrier[i];
        if (b->at != at) continue;
        if (*at != FIBER_MBARRIER_WORD) {
            fiber_report("thread %d at %s (%s:%d): the barrier has been overwritten", me,
                         place.what, place.file, place.line);
            fiber_fail_now();
        }
        if (b->epoch == fiber_m.epoch && b->starter != me &&
            fiber_c.of[me].known[b->starter] < b->begun) {
            fiber_report("thread %d at %s (%s:%d): nothing lies between the barrier's beginning "
                         "and this",
                         me, place.what, place.file, place.line);
            fiber_fail_now();
        }
        return b;
    }
    fiber_report("thread %d at %s (%s:%d): no barrier was begun here", me, place.what, place.file,
                 place.line);
    fiber_fail_now();
    return 0;
}
FIBER_FUNCTION void mbarrier_begin(uint64_t *at, int count, FIBER_HERE)
{
    if (fiber_m.mbarriers == FIBER_MBARRIERS || fiber_m.threads > FIBER_CLOCKS || count < 1 ||
        (uintptr_t)at & 7) {
        fiber_report("mbarrier_begin (%s:%d): %d barriers, %d threads, %d arrivals", file, line,
                     fiber_m.mbarriers, fiber_m.threads, count);
        fiber_fail_now();
    }
    fiber_clocks_begin(fiber_m.threads);
    int i = fiber_m.mbarriers++;
    if (!fiber_m.mbarrier[i].at) /* kept from block to block */
        fiber_m.mbarrier[i].gathered = (fiber_clock *)malloc(2 * sizeof(fiber_clock));
    fiber_mbarrier *b = &fiber_m.mbarrier[i];
    memset(b->gathered, 0, 2 * sizeof(fiber_clock));
    *b = {at,
          count,
          count,
          0,
          fiber_m.epoch,
          fiber_m.current,
          fiber_c.now[fiber_m.current] + 1,
          b->gathered,
          0};
    *at = FIBER_MBARRIER_WORD;
}
FIBER_FUNCTION void mbarrier_arrive(uint64_t *at, FIBER_HERE)
{
    fiber_mbarrier_arrives(fiber_mbarrier_at(at, {"mbarrier_arrive", file, line}), fiber_m.current);
}
FIBER_FUNCTION void mbarrier_wait(uint64_t *at, int parity, FIBER_HERE)
{
    fiber_mbarrier *b = fiber_mbarrier_at(at, {"mbarrier_wait", file, line});
    while ((int)(b->phase & 1) == parity) {
        fiber_m.thread[fiber_m.current].at = b;
        fiber_wait(FIBER_AT_MBARRIER, 0, {"mbarrier_wait", file, line});
    }
    fiber_clock_acquire(fiber_m.current, &b->gathered[1]);
}

FIBER_FUNCTION void wgmma_written() { fiber_clock_fence(fiber_m.current); }

/* ── registers ───────────────────────────────────────────────────────────────── */
FIBER_FUNCTION void fiber_registers(int count, const char *file, int line)
{
    if (count % 8 || count < 24 || count > 256) {
        fiber_report("%d registers a thread (%s:%d)", count, file, line);
        fiber_fail_now();
    }
    fiber_m.registers[fiber_m.current / 128] = count;
}
template <int count> FIBER_FUNCTION void registers_give(FIBER_HERE)
{
    fiber_registers(count, file, line);
}
template <int count> FIBER_FUNCTION void registers_take(FIBER_HERE)
{
    fiber_registers(count, file, line);
}

/* ── products ────────────────────────────────────────────────────────────────── */
/* The 16 bytes at `line` and `chunk` of an operand: lines are rows when it is deep, with two chunks
 * of k; else they are 16 of k, with a chunk for every eight rows. */
FIBER_FUNCTION const unsigned char *fiber_chunk(uint64_t descriptor, bool deep, int line, int chunk)
{
    uint32_t start = (uint32_t)(descriptor & 0x3fff) << 4,
             leading = (uint32_t)(descriptor >> 16 & 0x3fff) << 4,
             stride = (uint32_t)(descriptor >> 32 & 0x3fff) << 4;
    uint32_t at = start + (uint32_t)(line % 8) * 128 + (uint32_t)(line / 8) * stride;
    at +=
        deep ? (uint32_t)chunk * 16 : (uint32_t)(chunk / 8) * leading + (uint32_t)(chunk % 8) * 16;
    at ^= (at >> 7 & 7) << 4;
    int64_t from = (int64_t)at - FIBER_WINDOW;
    if (descriptor >> 62 != 1 || descriptor & 0x3fffc000c000c000u || from < 0 ||
        from + 16 > fiber_m.dynamic_bytes) {
        fiber_report("descriptor %#llx: %s", (unsigned long long)descriptor,
                     descriptor >> 62 != 1 ? "not the 128-byte swizzle"
                     : descriptor & 0x3fffc000c000c000u
                         ? "bits that must be 0"
                         : "outside of the block's dynamic shared memory");
        fiber_fail_now();
    }
    return fiber_dynamic + from;
}
/* Element [row][k] of a, or [k][column] of b: `along` is the row or column. */
FIBER_FUNCTION float fiber_operand(uint64_t descriptor, bool deep, int along, int k)
{
    uint16_t element;
    const unsigned char *chunk = deep
                                     ? fiber_chunk(descriptor, true, along, k / 8) + k % 8 * 2
                                     : fiber_chunk(descriptor, false, k, along / 8) + along % 8 * 2;
    memcpy(&element, chunk, 2);
    return fiber_low(element);
}

enum { FIBER_ISSUES = 32, FIBER_LOGGED = 128, FIBER_SUMS = 6 };
struct fiber_issue { /* of one lane */
    uint64_t a, b;
    float *d;
    const uint32_t *in; /* a in registers, and what was in them; or NULL */
    uint32_t was[4];
    int n, kind; /* columns; bits: a deep, b deep, more, a in registers */
};
static_assert(sizeof(fiber_issue) <= 64, "fits in a slot");
FIBER_FUNCTION bool fiber_same_product(const fiber_issue *x, const fiber_issue *y)
{
    return x->a == y->a && x->b == y->b && x->n == y->n && x->kind == y->kind;
}
struct fiber_sums { /* of one warp, while products of them are under way */
    int pending, n;
    float *of[32], now[32][128];
};
struct fiber_queued {
    fiber_issue lane[32];
    fiber_sums *sums;
};
struct fiber_issued { /* of one warp */
    fiber_queued queue[FIBER_ISSUES];
    int queued, groups, group[FIBER_ISSUES]; /* group[i]: how many of the queue */
    uint32_t total;
    bool begun;
    fiber_sums sums[FIBER_SUMS];
};
struct fiber_warpgroup {
    fiber_issue log[FIBER_LOGGED];
    fiber_issued warp[4];
};
FIBER_SHARED_STATE fiber_warpgroup *fiber_group[FIBER_THREADS / 128];
FIBER_FUNCTION fiber_issued *fiber_issued_of(int warp)
{
    fiber_warpgroup **g = &fiber_group[warp / 4];
    if (!*g && !(*g = (fiber_warpgroup *)calloc(1, sizeof **g))) abort();
    return &(*g)->warp[warp % 4];
}

FIBER_FUNCTION void fiber_product_reads(const fiber_issue *p, int warp)
{
#ifdef FIBER_RACES
    bool deep_a = p->kind & 1, deep_b = p->kind & 2;
    auto look = [&](uint64_t of, bool deep, int line, int chunk) {
        fiber_race_async(fiber_chunk(of, deep, line, chunk), 16, warp * 32,
                         __builtin_return_address(0));
    };
    for (int i = 0; i < 16 && !p->in; i++)
        for (int c = 0; c < 2; c++)
            look(p->a, deep_a, deep_a ? warp % 4 * 16 + i : i, deep_a ? c : warp % 4 * 2 + c);
    for (int line = 0; line < (deep_b ? p->n : 16); line++)
        for (int c = 0; c < (deep_b ? 2 : p->n / 8); c++) look(p->b, deep_b, line, c);
#else
    (void)p, (void)warp;
#endif
}
/* The warp's 16 rows; sums in the order of k, as fiber_mma. */
FIBER_FUNCTION void fiber_product_now(const fiber_queued *q, int warp)
{
    static float d[16][256], a[16][16], b[16][256];
    const fiber_issue *p = q->lane;
    bool deep_a = p->kind & 1, deep_b = p->kind & 2, more = p->kind & 4;
    int n = p->n;
    auto sum = [&](int lane, int i)
        -> float & { /* row g, columns 8 j + 2 t …; eight rows below */
                     return d[lane / 4 + i / 2 % 2 * 8][i / 4 * 8 + lane % 4 * 2 + i % 2];
    };
    for (int lane = 0; lane < 32; lane++)
        for (int i = 0; i < n / 2; i++) sum(lane, i) = more ? q->sums->now[lane][i] : 0.0f;
    for (int k = 0; k < 16; k++)
        for (int j = 0; j < n; j++) b[k][j] = fiber_operand(p->b, deep_b, j, k);
    for (int m = 0; m < 16 && !p->in; m++)
        for (int k = 0; k < 16; k++) a[m][k] = fiber_operand(p->a, deep_a, warp % 4 * 16 + m, k);
    for (int lane = 0; lane < 32 && p->in; lane++)
        for (int i = 0; i < 4; i++) {
            float *at = &a[lane / 4 + i % 2 * 8][lane % 4 * 2 + i / 2 * 8];
            at[0] = fiber_low(q->lane[lane].in[i]), at[1] = fiber_high(q->lane[lane].in[i]);
        }
    for (int m = 0; m < 16; m++)
        for (int k = 0; k < 16; k++)
            for (int j = 0; j < n; j++) d[m][j] += a[m][k] * b[k][j];
    for (int lane = 0; lane < 32; lane++)
        for (int i = 0; i < n / 2; i++) q->sums->now[lane][i] = sum(lane, i);
}
/* Those that lane 0 sums in at d, of those under way or begun now; NULL: too many. */
FIBER_FUNCTION fiber_sums *fiber_sums_of(fiber_issued *w, unsigned char (*all)[64])
{
    const fiber_issue *p = (const fiber_issue *)all[0];
    for (fiber_sums &s : w->sums)
        if (s.pending && s.of[0] == p->d) return &s;
    for (fiber_sums &s : w->sums) {
        if (s.pending) continue;
        s.n = p->n;
        for (int lane = 0; lane < 32; lane++) {
            s.of[lane] = ((const fiber_issue *)all[lane])->d;
            memcpy(s.now[lane], s.of[lane], (size_t)p->n * 2);
            fiber_poison(s.of[lane], p->n * 2);
        }
        return &s;
    }
    return 0;
}
/* Nobody has touched them since. */
FIBER_FUNCTION bool fiber_sums_poisoned(const fiber_sums *s)
{
    static const uint32_t poison = 0xffffffffu;
    for (int lane = 0; lane < 32; lane++)
        if (memcmp(s->of[lane], &poison, 4) ||
            memcmp((char *)s->of[lane] + 4, s->of[lane], (size_t)s->n * 2 - 4))
            return false;
    return true;
}
FIBER_FUNCTION void fiber_product_issue(unsigned char (*all)[64], int warp,
                                        const fiber_place &place)
{
    fiber_issued *w = fiber_issued_of(warp);
    const fiber_issue *p = (const fiber_issue *)all[0];
    fiber_issue *logged = &fiber_group[warp / 4]->log[w->total % FIBER_LOGGED];
    bool first = true, same = true, full = w->queued == FIBER_ISSUES;
    for (int i = 0; i < 4; i++)
        first = first && fiber_issued_of(warp / 4 * 4 + i)->total <= w->total;
    if (first) *logged = *p;
    for (int lane = 0; lane < 32; lane++)
        same = same && fiber_same_product((const fiber_issue *)all[lane], logged);
    fiber_sums *s = fiber_sums_of(w, all);
    bool begun = s && ((s->pending && !p->in) || w->begun), untouched = s && s->n == p->n;
    for (int lane = 0; lane < 32 && s; lane++)
        untouched = untouched && s->of[lane] == ((const fiber_issue *)all[lane])->d;
    if (!fiber_c.used || !begun || !same || !untouched || !fiber_sums_poisoned(s) || full) {
        fiber_report("warp %d at %s (%s:%d): %s", warp, place.what, place.file, place.line,
                     !fiber_c.used ? "a block without barriers of arrivals is not modelled"
                     : full || !s  ? "too many products under way"
                     : !begun      ? "no wgmma_begin since the sums were free"
                     : !same       ? "lanes or warps of the warpgroup issue different products"
                                   : "the sums of products under way were touched");
        return;
    }
    w->total++, s->pending++;
    fiber_queued *q = &w->queue[w->queued++];
    for (int lane = 0; lane < 32; lane++) q->lane[lane] = *(const fiber_issue *)all[lane];
    q->sums = s;
    fiber_product_reads(p, warp);
    if (fiber_m.copy_early) fiber_product_now(q, warp);
}
/* One product is over: its operand in registers is still what it was, and its sums are there after
 * the last. */
FIBER_FUNCTION void fiber_product_over(fiber_queued *q, int warp)
{
    fiber_product_reads(q->lane, warp);
    for (int lane = 0; lane < 32 && q->lane[0].in; lane++)
        if (memcmp(q->lane[lane].in, q->lane[lane].was, sizeof q->lane[lane].was))
            fiber_report("warp %d: the operand in registers of a product under way was touched",
                         warp);
    if (!fiber_m.copy_early) fiber_product_now(q, warp);
    if (--q->sums->pending) return;
    if (!fiber_sums_poisoned(q->sums))
        fiber_report("warp %d: the sums of products under way were touched", warp);
    for (int lane = 0; lane < 32; lane++)
        memcpy(q->sums->of[lane], q->sums->now[lane], (size_t)q->sums->n * 2);
}
FIBER_FUNCTION void fiber_products_end(fiber_issued *w, int warp, int behind)
{
    int count = 0, taken = w->groups > behind ? w->groups - behind : 0;
    for (int g = 0; g < taken; g++) count += w->group[g];
    for (int i = 0; i < count; i++) fiber_product_over(&w->queue[i], warp);
    memmove(w->queue, w->queue + count, sizeof w->queue[0] * (size_t)(w->queued - count));
    memmove(w->group, w->group + taken, sizeof w->group[0] * (size_t)(w->groups - taken));
    w->queued -= count, w->groups -= taken;
    if (!count) return;
    w->begun = false;
    fiber_clock over = {}; /* the other lanes know that the products are over */
    fiber_clock_release(&over, warp * 32);
    for (int lane = 1; lane < 32; lane++) fiber_clock_acquire(warp * 32 + lane, &over);
}

FIBER_FUNCTION void fiber_products_begin(fiber_issued *w, int) { w->begun = true; }
FIBER_FUNCTION void fiber_products_commit(fiber_issued *w, int)
{
    int committed = 0;
    for (int g = 0; g < w->groups; g++) committed += w->group[g];
    if (w->groups < FIBER_ISSUES)
        w->group[w->groups++] = w->queued - committed;
    else
        fiber_report("too many groups of products");
}

template <class Together>
FIBER_FUNCTION void fiber_warp_does(const fiber_place &place, Together together)
{
    int warp = fiber_m.current / 32;
    fiber_meet(0xffffffffu, place, "", 0, 0,
               [=](unsigned char(*)[64], uint32_t) { together(fiber_issued_of(warp), warp); });
    if (fiber_m.failed) fiber_fail_now();
}
FIBER_FUNCTION void wgmma_begin(FIBER_HERE)
{
    fiber_warp_does({"wgmma_begin", file, line}, fiber_products_begin);
}
FIBER_FUNCTION void wgmma_commit(FIBER_HERE)
{
    fiber_warp_does({"wgmma_commit", file, line}, fiber_products_commit);
}
template <int behind> FIBER_FUNCTION void wgmma_wait(FIBER_HERE)
{
    fiber_warp_does({"wgmma_wait", file, line},
                    [](fiber_issued *w, int warp) { fiber_products_end(w, warp, behind); });
}
template <class T> FIBER_FUNCTION void wgmma_settle(T &) {}
/* What it names is for compilers of GPUs; what is touched too early is found either way. */
template <int behind, class... T> FIBER_FUNCTION void wgmma_wait_for(T &...)
{
    wgmma_wait<behind>("wgmma_wait_for", behind);
}
FIBER_FUNCTION void wgmma_wait_all(float (&)[32][4], FIBER_HERE) { wgmma_wait<0>(file, line); }
FIBER_FUNCTION void fiber_product(const fiber_issue &mine, const fiber_place &place)
{
    int warp = fiber_m.current / 32;
    fiber_meet(0xffffffffu, place, &mine, sizeof mine, 0,
               [=](unsigned char(*all)[64], uint32_t) { fiber_product_issue(all, warp, place); });
    if (fiber_m.failed) fiber_fail_now();
}
template <bool DEEP_A, bool DEEP_B, int N>
FIBER_FUNCTION void wgmma_64xNx16(float (&d)[N][4], uint64_t a, uint64_t b, bool more, FIBER_HERE)
{
    static_assert(N <= 32, "at most 256 columns");
    fiber_product({a, b, d[0], 0, {}, 8 * N, (DEEP_A ? 1 : 0) | (DEEP_B ? 2 : 0) | (more ? 4 : 0)},
                  {"wgmma_64xNx16", file, line});
}
template <bool DEEP_B, int N>
FIBER_FUNCTION void wgmma_64xNx16(float (&d)[N][4], const uint32_t (&a)[4], uint64_t b, FIBER_HERE)
{
    static_assert(N <= 32, "at most 256 columns");
    fiber_product({0, b, d[0], a, {a[0], a[1], a[2], a[3]}, 8 * N, (DEEP_B ? 2 : 0) | 4},
                  {"wgmma_64xNx16", file, line});
}

/* When a block has ended: what is still under way, and registers that there are not. */
FIBER_FUNCTION void fiber_wgmma_ends()
{
    int registers = 0, groups = fiber_m.threads / 128;
    for (int g = 0; g < groups; g++) {
        registers += fiber_m.registers[g], fiber_m.registers[g] = 0;
        for (int i = 0; i < 4 && fiber_group[g]; i++) {
            fiber_issued *w = &fiber_group[g]->warp[i];
            if (w->queued)
                fiber_report("warp %d ends with products that nobody waited for", g * 4 + i);
            if (w->total != fiber_group[g]->warp[0].total)
                fiber_report("warps of a warpgroup issue different numbers of products");
        }
        free(fiber_group[g]), fiber_group[g] = 0;
    }
    if (registers > 512) fiber_report("%d registers a thread and warpgroup, of 512", registers);
}

#endif
