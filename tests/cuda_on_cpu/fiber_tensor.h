/* Tensor maps as the stand-ins know them, in C and C++: what the driver's stand-in makes of a
 * tensor, and what tensor_copy's (fiber_bulk.h) reads. A real map is opaque; this one holds the
 * numbers as they were given, after the checks of the driver API, cuTensorMapEncodeTiled. Modelled
 * is what planc asks for: BF16, three dimensions, the 128-byte swizzle, zeros beyond the ends. */
#ifndef FIBER_TENSOR_H
#define FIBER_TENSOR_H

#include <stdint.h>
#include <string.h>

#define FIBER_TENSOR_MARK 0x70616d20726f736eull
struct fiber_tensor {
    uint64_t mark, at; /* at: as it was given, perhaps a device address */
    uint64_t size[3], stride[2];
    uint32_t box[3], promotion;
    uint64_t unused[7];
};

/* NULL, or what the driver refuses or nobody models here. */
static inline const char *fiber_tensor_encode(void *map, unsigned type, uint32_t rank,
                                              const void *at, const uint64_t *size,
                                              const uint64_t *stride, const uint32_t *box,
                                              const uint32_t *step, unsigned interleave,
                                              unsigned swizzle, unsigned promotion, unsigned fill)
{
    struct fiber_tensor t = {FIBER_TENSOR_MARK, (uint64_t)(uintptr_t)at, {0}, {0}, {0}, 0, {0}};
    if (type != 9 || rank != 3 || interleave || swizzle != 3 || promotion > 3 || fill)
        return "a kind of tensor map that is not modelled";
    if ((uintptr_t)map & 63) return "the map is not on a multiple of 64 bytes";
    if (!at || (uintptr_t)at & 15) return "the tensor is not on a multiple of 16 bytes";
    for (int i = 0; i < 3; i++) {
        if (!size[i] || size[i] > (uint64_t)1 << 32) return "a size of 0, or of more than 2^32";
        if (!box[i] || box[i] > 256) return "a box of 0, or of more than 256";
        if (step[i] != 1) return "steps other than 1 are not modelled";
        t.size[i] = size[i], t.box[i] = box[i];
    }
    for (int i = 0; i < 2; i++) {
        if (stride[i] % 16 || stride[i] >= (uint64_t)1 << 40)
            return "a stride that is no multiple of 16, or 2^40 or more";
        t.stride[i] = stride[i];
    }
    if (stride[0] < 2 * size[0] || stride[1] < stride[0] * size[1]) return "lines that overlap";
    if (box[0] * 2 % 16) return "a box whose lines are no multiple of 16 bytes";
    if (box[0] * 2 > 128) return "a box whose lines are longer than the swizzle";
    t.promotion = promotion;
    memcpy(map, &t, sizeof t);
    return 0;
}

/* [planes, lines, elements] without gaps, `lines_of_box` x 64 a copy: as runtime/cuda/module.c
 * asks for it. */
static inline const char *fiber_tensor_of(void *map, const void *at, int64_t planes, int64_t lines,
                                          int64_t elements, int lines_of_box)
{
    const uint64_t size[] = {(uint64_t)elements, (uint64_t)lines, (uint64_t)planes},
                   stride[] = {2 * size[0], 2 * size[0] * size[1]};
    const uint32_t box[] = {64, (uint32_t)lines_of_box, 1}, step[] = {1, 1, 1};
    return fiber_tensor_encode(map, 9, 3, at, size, stride, box, step, 0, 3, 3, 0);
}

/* From the first byte to the last. */
static inline uint64_t fiber_tensor_bytes(const struct fiber_tensor *t)
{
    return t->stride[1] * (t->size[2] - 1) + t->stride[0] * (t->size[1] - 1) + 2 * t->size[0];
}

#endif
