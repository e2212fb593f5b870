/* Neighbouring elements of either type, in F32 while they are worked with: 16 bytes at a time where
 * rows allow it, one by one where they do not. */
#ifndef CUDA_PIECE_CUH
#define CUDA_PIECE_CUH

#include "machine.cuh"
#include "op_math.h"

DEVICE float piece_widen(float x) { return x; }
DEVICE float piece_widen(bf16 x) { return op_from_bf16(x); }

template <int EACH, class T> DEVICE void piece_load(float to[EACH], const T *from)
{
    if (EACH == 1) {
        to[0] = piece_widen(*from);
        return;
    }
    static_assert(EACH == 1 || EACH * sizeof(T) == 16, "16 bytes or one element");
    uint4 all = *(const uint4 *)from;
    uint32_t word[4] = {all.x, all.y, all.z, all.w};
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        if (sizeof(T) == 4)
            to[e] = op_from_bits((int32_t)word[e]);
        else
            to[e] = op_from_bits((int32_t)(e & 1 ? word[e / 2] & 0xffff0000u : word[e / 2] << 16));
    }
}

template <int EACH> DEVICE void piece_store(float *to, const float from[EACH])
{
    if (EACH == 1)
        *to = from[0];
    else
        *(float4 *)to = make_float4(from[0], from[1 % EACH], from[2 % EACH], from[3 % EACH]);
}

template <int EACH> DEVICE void piece_store(bf16 *to, const float from[EACH])
{
    if (EACH == 1)
        *to = op_to_bf16(from[0]);
    else {
        uint32_t word[4];
#pragma unroll
        for (int w = 0; w < 4; w++)
            word[w] = pack_bf16(from[2 * w % EACH], from[(2 * w + 1) % EACH]);
        *(uint4 *)to = make_uint4(word[0], word[1], word[2], word[3]);
    }
}

#endif
