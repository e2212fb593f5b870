#!/usr/bin/env bash
# What the cuda runtime believes about NVIDIA's libraries without their headers, held against the
# headers and libraries where they are; and the loader's messages, which must not need any of them.
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../lib/common.sh"
run=$top/runtime/cuda

headers=
for dir in "${CUDA_HOME:-/usr/local/cuda}/include" /usr/local/cuda-*/include /usr/include; do
    [ -z "$headers" ] && [ -e "$dir/cuda.h" ] && [ -e "$dir/cublasLt.h" ] && headers=$dir
done
declared() { # NAME COMMAND...: compiles without a word
    local name=$1
    shift
    if "$@" -Wall -fsyntax-only -I"$top" -I"$top/runtime" -isystem "$headers" >"$name.log" 2>&1 &&
        [ ! -s "$name.log" ]; then
        ok "$name"
    else
        fail "$name" "$(tail_of "$name.log")"
    fi
}
if [ -n "$headers" ] && [ -e "$headers/nccl.h" ] && [ -e "$headers/cudnn.h" ]; then
    declared declared_types_and_values cc -std=c17 "$here/vendor.c"
    declared declared_products cc -std=c17 "$here/products.c"
    declared declared_graphs cc -std=c17 "$here/graph.c"
    declared declared_parameters c++ -std=c++17 "$here/shapes.cc"
    # that this can fail: one parameter less, one value other
    mkdir -p wrong/cuda
    sed \
        's/CALL(cudnnSetStream, cudnnSetStream, (void \*handle, cuda_stream stream))/CALL(cudnnSetStream, cudnnSetStream, (void *handle))/' \
        "$run/library.h" >wrong/cuda/library.h
    c++ -std=c++17 -fsyntax-only -Iwrong -I"$top" -I"$top/runtime" -isystem "$headers" \
        "$here/shapes.cc" \
        >wrong.log 2>&1 && fail declared_wrongly "a parameter less is not seen" ||
        ok declared_wrongly
else
    skip declared_types_and_values "no headers of the CUDA toolkit, NCCL and cuDNN"
fi

# ── grouped layouts, which are newer than the toolkit's headers ──────────────
newer=
for dir in "$headers" "$top/$BUILD"/nvidia/lib/python3*/site-packages/nvidia/cu13/include; do
    [ -e "$dir/cublasLt.h" ] && grep -q cublasLtGroupedMatrixLayoutCreate "$dir/cublasLt.h" &&
        newer=$dir
done
if [ -z "$newer" ] || [ -z "$headers" ]; then
    skip declared_groups "no cuBLASLt of 13.2 or later: make deps-nvidia"
    skip accepted_groups "no cuBLASLt of 13.2 or later: make deps-nvidia"
else
    cc -std=c17 -Wall -DVENDOR -fsyntax-only -I"$top" -I"$top/runtime" -isystem "$newer" -isystem \
        "$headers" "$here/grouped.c" >grouped.log 2>&1 && [ ! -s grouped.log ] &&
        ok declared_groups || fail declared_groups "$(tail_of grouped.log)"
    cc -std=c17 -Wall -I"$top" -I"$top/runtime" "$here/grouped.c" "$run/library.c" -ldl \
        -o grouped 2>grouped.log &&
        LD_LIBRARY_PATH=$(dirname "$newer")/lib:${LD_LIBRARY_PATH:-} timeout 60 ./grouped \
            >grouped.log 2>&1 && ok accepted_groups || fail accepted_groups "$(tail_of grouped.log)"
fi

# found NAME LIBRARY PATTERN: what the loader says about a library, given LD_LIBRARY_PATH
if cc -std=c17 -Wall -I"$top" -I"$top/runtime" "$here/load.c" "$run/library.c" -ldl -o load \
    2>load.log; then
    for library in driver nvrtc nccl cublaslt cudnn; do
        said=$(./load $library 2>&1)
        if [ "$said" = there ] ||
            grep \
            -qE \
            '^no (NVIDIA driver|NVRTC|NCCL|cuBLASLt|cuDNN)[^:]*: lib[a-zA-Z]+\.so\.[0-9]+ cannot be loaded \(.+\)$' \
            <<<"$said"; then
            ok "loads_or_says_$library"
        else fail "loads_or_says_$library" "$said"; fi
    done
    mkdir -p false
    printf 'unsigned cuDriverGetVersion(int *v) { *v = 11040; return 0; }\n' >false/old.c
    printf 'unsigned cuDriverGetVersion(int *v) { *v = 13000; return 0; }\n' >false/empty.c
    for kind in old empty; do
        mkdir -p "false/$kind" && cc -shared -fPIC -o "false/$kind/libcuda.so.1" "false/$kind.c"
    done
    said=$(LD_LIBRARY_PATH=$PWD/false/old ./load driver 2>&1)
    grep \
        -qF \
        'the NVIDIA driver is of CUDA 11.4, the kernels and libraries of this trainer are of CUDA 13 and need 13.0 or later: update the driver to 580 or newer' \
        <<<"$said" && ok old_driver || fail old_driver "$said"
    said=$(LD_LIBRARY_PATH=$PWD/false/empty ./load driver 2>&1)
    grep -qF 'has no cuInit' <<<"$said" && ok symbol_missing || fail symbol_missing "$said"
else
    fail load "$(tail_of load.log)"
fi

# ── graphs before cuDNN, for devices that are not there ──────────
# The library wants a driver to hand its kernels to; this one takes every kernel and does nothing.
mkdir -p driver
names=$(for lib in "$headers"/../lib*/stubs/libcuda.so; do [ -e "$lib" ] &&
    nm -D --defined-only "$lib" && break; done 2>/dev/null | \
    awk '$3 ~ /^cu[A-Z]/ { sub(/@.*/, "", $3); print $3 }' | sort -u)
{
    for name in $names; do
        case $name in
        cuLibraryLoadData | cuLibraryGetKernel | cuModuleLoadData | \
            cuModuleGetFunction) echo "int $name(void **to) { *to = (void *)16; return 0; }" ;;
        cuGetErrorName | \
            cuGetErrorString) echo \
            "int $name(int error, const char **text) { (void)error; *text = \"none\"; return 0; }" \
            ;;
        cuDriverGetVersion) echo "int $name(int *version) { *version = 13000; return 0; }" ;;
        cuKernelGetAttribute | \
            cuOccupancyMax*) echo "int $name(int *value) { *value = 1; return 0; }" ;;
        cuKernelSetAttribute | cuFuncSetAttribute | cuLibraryUnload | \
            cuModuleUnload) echo "int $name(void) { return 0; }" ;;
        *) echo "int $name(void) { return 34; }" ;;
        esac
    done
} >driver/driver.c
if [ -z "$headers" ] || [ -z "$names" ]; then
    skip attention_graphs "no CUDA toolkit with a stub of the driver"
elif ! cc -shared -fPIC -Wl,-soname,libcuda.so.1 -o driver/libcuda.so.1 driver/driver.c \
    2>driver.log; then
    fail attention_graphs "$(tail_of driver.log)"
else
    # judged PROGRAM CAPABILITY WANTED (a pattern) [FOLDERS WORD]: what the library (of FOLDERS)
    # says of every shape, one word a shape
    judged() {
        local status said name=$1_graphs_$2${5:-}
        LD_LIBRARY_PATH=$PWD/driver:${4:-$(dirname "$headers")/lib64:$(dirname \
            "$headers")/lib}:${LD_LIBRARY_PATH:-} timeout 100 ./$1 $2 >$name 2>&1
        status=$?
        said=$(sed 's/.*: //; s/^[0-9]* bytes do not fit/large/; s/no plan/none/' $name | \
            tr '\n' ' ')
        if [ $status = 2 ]; then skip $name "$(tail_of $name)"
        elif [[ $said =~ ^$3\ $ ]]; then ok $name
        else fail $name "$(tail_of $name 6)"; fi
    }
    ln -sf libcuda.so.1 driver/libcuda.so
    for what in attention experts; do
        cc -std=c17 -Wall -I"$top" -I"$top/runtime" "$here/$what.c" "$run/${what}_cudnn.c" \
            "$run/start_cudnn.c" "$run/graph_cudnn.c" "$run/library.c" -ldl -o $what 2>$what.log \
            || fail ${what}_graphs "$(tail_of $what.log)"
    done
    [ -x attention ] && judged attention 90 "fits large fits fits fits large" &&
        judged attention 100 "fits fits fits fits fits fits"
    # Hopper's engine with ordered sums came later
    wheels=$(echo "$top/$BUILD"/nvidia/lib/python3*/site-packages/nvidia)
    for capability in 90 100; do
        if [ -e "$wheels/cudnn/lib/libcudnn.so.9" ]; then
            judged attention $capability "fits fits fits fits fits fits" \
                "$wheels/cudnn/lib:$wheels/cu13/lib" _newer
        else
            skip attention_graphs_${capability}_newer "no cuDNN of 9.25 or later: make deps-nvidia"
        fi
    done
    # for the gradient's layout 9.19 has no engine
    [ -x experts ] && judged experts 90 "fits fits (none|fits)" &&
        judged experts 100 "fits fits (none|fits)"
fi
