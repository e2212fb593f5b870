/* Asynchronous copies of a thread, and tensor copies: when they land, and who is told. Part of
 * fiber_block.h, whose scheduler lets tensor copies land when nobody else can go on. */
#ifndef FIBER_COPY_H
#define FIBER_COPY_H

FIBER_FUNCTION void fiber_copy_now(const fiber_copy *c)
{
    if (c->valid)
        memcpy(c->to, c->from, 16);
    else
        memset(c->to, 0, 16);
}
FIBER_FUNCTION void fiber_mbarrier_turns(fiber_mbarrier *b)
{
    if (b->pending || b->bytes) return;
    b->pending = b->count, b->phase++;
    fiber_clock_more(&b->gathered[1], &b->gathered[0]);
    memset(&b->gathered[0], 0, sizeof b->gathered[0]);
    for (int i = 0; i < fiber_m.threads; i++)
        if (fiber_m.thread[i].state == FIBER_AT_MBARRIER && fiber_m.thread[i].at == b)
            fiber_wake(i);
}
FIBER_FUNCTION void fiber_mbarrier_arrives(fiber_mbarrier *b, int t)
{
    fiber_clock_release(&b->gathered[0], t);
    if (b->pending-- == 0)
        fiber_report("thread %d arrives at a barrier that has had all arrivals and expects %lld "
                     "bytes",
                     t, (long long)b->bytes);
    fiber_mbarrier_turns(b);
}

/* ── tensor copies ───────────────────────────────────────────────────────────── */
/* Where element 0 of line i of the box comes from, NULL outside of the tensor, and its chunk c of
 * 16 bytes goes. */
FIBER_FUNCTION const uint16_t *fiber_bulk_line(const fiber_bulk *c, int i)
{
    int64_t line = (int64_t)c->from[1] + i % (int)c->map.box[1],
            plane = (int64_t)c->from[2] + i / (int)c->map.box[1];
    if (line < 0 || line >= (int64_t)c->map.size[1] || plane < 0 ||
        plane >= (int64_t)c->map.size[2])
        return 0;
    return (const uint16_t *)(c->map.at + (uint64_t)line * c->map.stride[0] +
                              (uint64_t)plane * c->map.stride[1]);
}
FIBER_FUNCTION unsigned char *fiber_bulk_chunk(const fiber_bulk *c, int i, int chunk)
{
    uint32_t at = c->to + (uint32_t)i * 128 + (uint32_t)chunk * 16;
    return fiber_dynamic + ((at ^ (at >> 7 & 7) << 4) - FIBER_WINDOW);
}
/* To the race detector: all that the copy reads and writes, when it is issued and when it lands. */
FIBER_FUNCTION void fiber_bulk_touches(const fiber_bulk *c)
{
#ifdef FIBER_RACES
    for (int i = 0; i < (int)(c->map.box[1] * c->map.box[2]); i++) {
        const uint16_t *from = fiber_bulk_line(c, i);
        int64_t first = c->from[0] < 0 ? 0 : c->from[0],
                end = c->from[0] + 64 < (int64_t)c->map.size[0] ? c->from[0] + 64
                                                                : (int64_t)c->map.size[0];
        if (from && first < end)
            fiber_race_bulk(from + first, (int)(end - first) * 2, false, c->agent, c->place);
        for (int k = 0; k < 8; k++)
            fiber_race_bulk(fiber_bulk_chunk(c, i, k), 16, true, c->agent, c->place);
    }
#else
    (void)c;
#endif
}
FIBER_FUNCTION void fiber_bulk_lands(int which)
{
    fiber_bulk c = fiber_m.bulk[which];
    fiber_m.bulk[which] = fiber_m.bulk[--fiber_m.bulks];
    fiber_bulk_touches(&c);
    for (int i = 0; i < (int)(c.map.box[1] * c.map.box[2]); i++) {
        const uint16_t *from = fiber_bulk_line(&c, i);
        for (int k = 0; k < 8; k++) {
            uint16_t chunk[8];
            for (int e = 0; e < 8; e++) {
                int64_t element = (int64_t)c.from[0] + k * 8 + e;
                bool inside = from && element >= 0 && element < (int64_t)c.map.size[0];
                chunk[e] = inside ? from[element] : 0;
            }
            memcpy(fiber_bulk_chunk(&c, i, k), chunk, 16);
        }
    }
    fiber_clock_landed(&c.barrier->gathered[0], c.agent);
    c.barrier->bytes -= (int64_t)c.map.box[1] * c.map.box[2] * 128;
    fiber_mbarrier_turns(c.barrier);
}

/* ── copies of threads ───────────────────────────────────────────────────────── */
/* The oldest so many groups; one more than there are: what is not committed too. */
FIBER_FUNCTION void fiber_copies_land(fiber_thread *t, int groups)
{
    int current = fiber_m.current, count = 0, taken = groups < t->groups ? groups : t->groups;
    for (int i = 0; i < taken; i++) count += t->group[i];
    if (groups > t->groups) count = t->copies;
    fiber_m.current = (int)(t - fiber_m.thread);
    for (int i = 0; i < count; i++) {
        fiber_race_access(t->copy[i].to, 16, true, __builtin_return_address(0));
        fiber_copy_now(&t->copy[i]);
    }
    fiber_m.current = current;
    memmove(t->copy, t->copy + count, sizeof *t->copy * (size_t)(t->copies - count));
    t->copies -= count;
    memmove(t->group, t->group + taken, sizeof *t->group * (size_t)(t->groups - taken));
    t->groups -= taken;
}
/* Nobody can go on: some tensor copy lands. */
FIBER_FUNCTION bool fiber_bulks_land()
{
    if (!fiber_m.bulks) return false;
    fiber_bulk_lands((int)(fiber_random() % (unsigned)fiber_m.bulks));
    return true;
}

#endif
