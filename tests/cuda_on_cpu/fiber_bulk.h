/* Bodies for mbarrier_expect and tensor_copy of templates/cuda/wgmma.cuh, from the PTX manual
 * ("cp.async.bulk.tensor", "Tensor Memory Access", "mbarrier", "Proxies"):
 *   - A copy lands at once, or at any time up to the moment when nobody else can go on, and copies
 *     land in any order. It reads and writes as a thread of its own, from its issue on: who has
 *     not waited for its barrier, the issuing thread included, knows nothing of it.
 *   - A barrier's phase ends when all arrivals have come and all bytes that it was told to expect;
 *     bytes that come earlier than they are expected are counted.
 *   - 16-byte chunk c of each line of 128 bytes lies at c ^ (bits 7 to 9 of its shared address).
 *   - What lies outside the tensor, before its first element too, arrives as zeros and counts.
 *   - What threads have written in the place, and the barrier's beginning, must have passed
 *     wgmma_written() on the way to who issues the copy. */
#ifndef FIBER_BULK_H
#define FIBER_BULK_H

#include "fiber_wgmma.h"

FIBER_FUNCTION void fiber_refuse(const fiber_place &place, const char *why)
{
    fiber_report("thread %d at %s (%s:%d): %s", fiber_m.current, place.what, place.file, place.line,
                 why);
    fiber_fail_now();
}

FIBER_FUNCTION void mbarrier_expect(uint64_t *at, int bytes, FIBER_HERE)
{
    fiber_place place = {"mbarrier_expect", file, line};
    fiber_mbarrier *b = fiber_mbarrier_at(at, place);
    if (bytes < 0 || b->bytes + bytes >= 1 << 20) fiber_refuse(place, "2^20 bytes or more");
    b->bytes += bytes;
    fiber_mbarrier_arrives(b, fiber_m.current);
}

FIBER_FUNCTION void tensor_copy(void *to, const void *map, int element, int line_at, int plane,
                                uint64_t *at, FIBER_HERE)
{
    fiber_place place = {"tensor_copy", file, line};
    fiber_mbarrier *b = fiber_mbarrier_at(at, place);
    fiber_bulk c = {{}, shared_address(to),         {element, line_at, plane}, b,
                    0,  __builtin_return_address(0)};
    memcpy(&c.map, map, sizeof c.map);
    int64_t bytes = (int64_t)c.map.box[0] * c.map.box[1] * c.map.box[2] * 2,
            from = (int64_t)c.to - FIBER_WINDOW;
    if (c.map.mark != FIBER_TENSOR_MARK || (uintptr_t)map & 63)
        fiber_refuse(place, "this is no tensor map");
    if (c.map.box[0] != 64) fiber_refuse(place, "lines of other than 128 bytes are not modelled");
    if (c.to & 1023) fiber_refuse(place, "the place is no multiple of 1,024 bytes");
    if (from < 0 || from + bytes > fiber_m.dynamic_bytes)
        fiber_refuse(place, "a box that leaves the block's dynamic shared memory");
    if (fiber_c.of[fiber_m.current].fenced[b->starter] < b->begun)
        fiber_refuse(place, "nothing tells tensor copies of the barrier's beginning: "
                            "wgmma_written is missing");
    if (fiber_m.bulks == FIBER_BULKS) fiber_refuse(place, "too many tensor copies under way");
    c.agent = fiber_clock_agent(fiber_m.current);
    fiber_m.bulk[fiber_m.bulks++] = c;
    fiber_bulk_touches(&c);
    if (fiber_m.copy_early)
        fiber_bulk_lands(fiber_m.bulks - 1);
    else if (!(fiber_random() & 3))
        fiber_bulk_lands((int)(fiber_random() % (unsigned)fiber_m.bulks));
}

/* When a block has ended. */
FIBER_FUNCTION void fiber_bulk_ends()
{
    if (fiber_m.bulks)
        fiber_report("the block ends with %d tensor copies that nobody waited for", fiber_m.bulks);
    for (int i = 0; i < fiber_m.mbarriers; i++)
        if (fiber_m.mbarrier[i].bytes)
            fiber_report("the block ends while a barrier expects %lld bytes",
                         (long long)fiber_m.mbarrier[i].bytes);
}

#endif
