#!/usr/bin/env bash
# Generated kernels beside hand-written ones, measured in turns in one process. Three lines; a ratio
# of 1.1 is the bar.
. "$(cd "$(dirname "$0")" && pwd)/../lib/common.sh"
out=$top/$BUILD/bench
mkdir -p "$out" || exit 4
objects=$(ls "$top/$BUILD"/compiler/*/*.o | grep -vE 'compiler/(commands|analysis|search|report)/')
cc -std=c17 -O2 -rdynamic -I "$top/compiler" -I "$top/tests/kernels" -I "$top/runtime/shared" \
    "$top/tests/bench/kernels.c" "$top/tests/kernels/machine.c" "$top/tests/kernels/fibers.c" \
    "$top/tests/kernels/interpret.c" $objects "$top/$BUILD"/gen/*.o -o "$out/kernels" -ljansson \
    -lm -ldl || exit 4
exec "$out/kernels" "$out" "$top"
