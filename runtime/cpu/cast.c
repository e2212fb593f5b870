/* See cast.h. */
#include "cpu/cast.h"

#include "cpu/wider.h"
#include "shared/world.h"

#include <string.h>

/* To nearest, ties to even; a NaN stays one. */
static inline uint16_t one_bf16(const float *from)
{
    uint32_t x;
    memcpy(&x, from, 4);
    uint32_t rounded =
        (int32_t)(x & 0x7fffffff) > 0x7f800000 ? x | 0x400000 : x + 0x7fffu + (x >> 16 & 1);
    return (uint16_t)(rounded >> 16);
}

/* Two cache lines at a time, and those that come later are fetched meanwhile. */
enum { LINES = 32, AHEAD = 1024 };
FOR_WIDER static void to_bf16(const float *restrict from, uint16_t *restrict to, int64_t n)
{
    int64_t done = 0;
    for (; done + LINES <= n; done += LINES) {
        __builtin_prefetch(from + done + AHEAD);
        __builtin_prefetch(from + done + AHEAD + LINES / 2);
        for (int64_t i = done; i < done + LINES; i++) to[i] = one_bf16(from + i);
    }
    for (; done < n; done++) to[done] = one_bf16(from + done);
}

/* What rounding to BF16 leaves of the biases of routers, as two more numbers an element after the
 * first: the three add up to the F32 one. They all lie in the first part; those of them that are in
 * [at, at + n) of it go to `to`. */
static void split_biases(const struct unit *u, const float *master, int64_t at, int64_t n,
                         uint16_t *to)
{
    for (int t = 0; t < u->tensors && world.part == 0; t++) {
        const struct tensor *w = &u->tensor[t];
        if (!(w->balance_mean > 0)) continue;
        for (int64_t i = w->offset; i < w->offset + w->count; i++) {
            float left = master[i], rounded;
            for (int64_t k = i - at; k < i - at + 3 * w->count; k += w->count, left -= rounded) {
                uint16_t bits;
                to_bf16(&left, &bits, 1);
                if (k >= 0 && k < n) to[k] = bits;
                memcpy(&rounded, &(uint32_t){(uint32_t)bits << 16}, 4);
            }
        }
    }
}

void cast_bf16(const struct unit *u, const float *master, int64_t at, int64_t n, uint16_t *to)
{
    to_bf16(master + at, to, n);
    split_biases(u, master, at, n, to);
}
