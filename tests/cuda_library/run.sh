#!/usr/bin/env bash
# What the cuda runtime believes about NVIDIA's libraries without their headers, held against the headers and libraries where they
# are; and the loader's messages, which must not need any of them.
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../lib/common.sh"
run=$top/runtime

headers=
for dir in "${CUDA_HOME:-/usr/local/cuda}/include" /usr/local/cuda-*/include /usr/include; do
    [ -z "$headers" ] && [ -e "$dir/cuda.h" ] && [ -e "$dir/cublasLt.h" ] && headers=$dir
done
declared() { # NAME COMMAND...: compiles without a word
    local name=$1
    shift
    if "$@" -Wall -fsyntax-only -I"$run" -isystem "$headers" >"$name.log" 2>&1 && [ ! -s "$name.log" ]; then ok "$name"; else fail "$name" "$(tail_of "$name.log")"; fi
}
if [ -n "$headers" ] && [ -e "$headers/nccl.h" ] && [ -e "$headers/cudnn.h" ]; then
    declared declared_types_and_values cc -std=c17 "$here/vendor.c"
    declared declared_products cc -std=c17 "$here/products.c"
    declared declared_parameters c++ -std=c++17 "$here/shapes.cc"
    # that this can fail: one parameter less, one value other
    mkdir -p wrong
    sed 's/CALL(cudnnSetStream, cudnnSetStream, (void \*handle, cuda_stream stream))/CALL(cudnnSetStream, cudnnSetStream, (void *handle))/' "$run/cuda_library.h" >wrong/cuda_library.h
    c++ -std=c++17 -fsyntax-only -Iwrong -isystem "$headers" "$here/shapes.cc" >wrong.log 2>&1 && fail declared_wrongly "a parameter less is not seen" || ok declared_wrongly
else
    skip declared_types_and_values "no headers of the CUDA toolkit, NCCL and cuDNN"
fi

# found NAME LIBRARY PATTERN: what the loader says about a library, given LD_LIBRARY_PATH
if cc -std=c17 -Wall -I"$run" "$here/load.c" "$run/cuda_library.c" -ldl -o load 2>load.log; then
    for library in driver nvrtc nccl cublaslt cudnn; do
        said=$(./load $library 2>&1)
        if [ "$said" = there ] || grep -qE '^no (NVIDIA driver|NVRTC|NCCL|cuBLASLt|cuDNN)[^:]*: lib[a-zA-Z]+\.so\.[0-9]+ cannot be loaded \(.+\)$' <<<"$said"; then ok "loads_or_says_$library"
        else fail "loads_or_says_$library" "$said"; fi
    done
    mkdir -p false
    printf 'unsigned cuDriverGetVersion(int *v) { *v = 11040; return 0; }\n' >false/old.c
    printf 'unsigned cuDriverGetVersion(int *v) { *v = 13000; return 0; }\n' >false/empty.c
    for kind in old empty; do
        mkdir -p "false/$kind" && cc -shared -fPIC -o "false/$kind/libcuda.so.1" "false/$kind.c"
    done
    said=$(LD_LIBRARY_PATH=$PWD/false/old ./load driver 2>&1)
    grep -qF 'the NVIDIA driver is of CUDA 11.4, this trainer needs 12.0 or later: update the driver' <<<"$said" && ok old_driver || fail old_driver "$said"
    said=$(LD_LIBRARY_PATH=$PWD/false/empty ./load driver 2>&1)
    grep -qF 'has no cuInit' <<<"$said" && ok symbol_missing || fail symbol_missing "$said"
else
    fail load "$(tail_of load.log)"
fi
