#!/usr/bin/env bash
# Generated kernels by themselves: every op of ops.def against a naive loop and its gradient against
# finite differences; the composite layers with fusion on and off, bit by bit; updates over a shard;
# and the functions of op_math.h. The test links the compiler's own objects, emits the kernels'
# text, compiles it with the flags of a real build and calls it; then all of it again as cuda
# kernels.
. "$(cd "$(dirname "$0")" && pwd)/../lib/common.sh"
flags=$(printf '#include "emit/emit.h"\nEMIT_KERNEL_FLAGS\n' | cc -E -P -I "$top/compiler" - |
    tail -n 1 | tr -d '"')
[ "$BUILD" = build-sanitize ] &&
    export \
    SANITIZE_FLAGS="-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -g"

if cc $flags -Wall -Wextra -I "$top/runtime" -I "$top/runtime/shared" \
    "$top/tests/kernels/math/math.c" -o math -lm 2>math.err; then
    ./math
else fail math "$(tail_of math.err)"; fi
if cc $flags -Wall -Wextra ${SANITIZE_FLAGS:-} -I "$top/runtime" -I "$top/runtime/shared" \
    "$top/tests/kernels/math/pairs.c" "$top/runtime/cpu/gemm_bf16.c" -o pairs -lm 2>pairs.err; then
    ./pairs
else fail bf16.products "$(tail_of pairs.err)"; fi
if cc $flags -Wall -Wextra ${SANITIZE_FLAGS:-} -I "$top/runtime" -I "$top/runtime/shared" \
    "$top/tests/kernels/math/floats.c" "$top"/runtime/cpu/gemm_*.c -o floats -ldnnl -lgomp -lm \
    2>floats.err; then
    ./floats
else fail f32.products "$(tail_of floats.err)"; fi
if cc $flags -Wall -Wextra ${SANITIZE_FLAGS:-} -I "$top/runtime" -I "$top/runtime/shared" \
    "$top/tests/kernels/math/tiles.c" "$top/runtime/cpu/gemm_tiles.c" -o tiles -lm 2>tiles.err; then
    ./tiles
else fail tiles "$(tail_of tiles.err)"; fi

objects=$(ls "$top/$BUILD"/compiler/*/*.o | grep -vE 'compiler/(commands|analysis|search|report)/')
if ! cc -std=c17 -g -O1 -Wall -Wextra -rdynamic ${SANITIZE_FLAGS:-} -I "$top/compiler" -I \
    "$top/runtime" -I "$top/runtime/shared" -I "$top/tests/kernels" "$top"/tests/kernels/*.c \
    $objects "$top/$BUILD"/gen/*.o \
    -o kernels -ljansson -lm -ldl 2>kernels.err; then
    fail kernels "$(tail_of kernels.err)"
    exit 0
fi
for which in broadcast ops fusion update; do
    ./kernels $which "$scratch" "$top" 2>$which.err ||
        fail $which "status $?: $(tail_of $which.err)"
done
# A processor without BF16 products and tiles of attention, as the library sees it: operands are
# widened, and attention's products are the library's.
DNNL_MAX_CPU_ISA=AVX2 KEEP_KERNELS=1 ./kernels ops "$scratch" "$top" 2>widened.err |
    sed -n 's/^\([a-zA-Z]*\) \(.*bf16\|attention.*\)/\1 widened.\2/p'
[ "${PIPESTATUS[0]}" -eq 0 ] || fail widened "$(tail_of widened.err)"
# The same as cuda kernels, thread by thread on this processor. (Fibers and sanitizers do not know
# each other's stacks.)
[ "$BUILD" = build-sanitize ] && { skip fibers "sanitizers do not follow fibers"; exit 0; }
mkdir -p fibers
for which in ops fusion update; do
    KERNELS_ON=fibers ./kernels $which "$scratch/fibers" "$top" 2>fibers.$which.err |
        sed -n 's/^\([a-zA-Z]*\) /\1 fibers./p'
    [ "${PIPESTATUS[0]}" -eq 0 ] || fail fibers.$which "$(tail_of fibers.$which.err)"
done
