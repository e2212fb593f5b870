#!/usr/bin/env bash
# build.sh DIR: the stand-in libraries with the sonames of the real ones, into DIR/lib; and damaged
# ones for what a trainer says about them, each beside links to the sound ones: DIR/no-NAME (a file
# that is no library), DIR/old (a driver without cuGraphLaunch), DIR/untensored (one without tensor
# maps), DIR/ungrouped (cuBLASLt 13.0), DIR/unwindowed (NCCL 2.26).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1/lib" && cd "$1"
flags="-std=c17 -O2 -g -ffp-contract=off -Wall -Wextra -Wshadow -Wconversion -fvisibility=hidden -fPIC -shared"
make_driver() { # TO [options]
    local to=$1
    shift
    ${CC:-cc} $flags -Wl,-soname,libcuda.so.1 "$@" -o "$to.new" "$here/streams.c" "$here/driver.c" \
        "$here/module.c" -lpthread -ldl && mv "$to.new" "$to"
}
make_driver lib/libcuda.so.1
${CC:-cc} $flags -march=native -O3 -Wl,-soname,libcublasLt.so.13 -o lib/libcublasLt.so.13 \
    "$here/cublaslt.c" -Llib -l:libcuda.so.1
${CC:-cc} $flags -march=native -O3 -Wl,-soname,libcudnn.so.9 -o lib/libcudnn.so.9 "$here/cudnn.c" \
    "$here/cudnn_graph.c" -Llib -l:libcuda.so.1 -lm
${CC:-cc} $flags -Wl,-soname,libnccl.so.2 -o lib/libnccl.so.2 "$here/nccl.c" -Llib -l:libcuda.so.1 \
    -lrt
${CC:-cc} $flags -Wl,-soname,libnvrtc.so.13 -DSTANDIN_MODULE="\"$here/../module.sh\"" -o \
    lib/libnvrtc.so.13 "$here/nvrtc.c"
rm -rf ungrouped && mkdir ungrouped # a cuBLASLt from before it had grouped layouts
${CC:-cc} $flags -DcublasLtGroupedMatrixLayoutCreate=hidden_layout -Wl,-soname,libcublasLt.so.13 \
    -o ungrouped/libcublasLt.so.13 "$here/cublaslt.c" -Llib -l:libcuda.so.1
for other in lib/*; do
    [ "$other" = lib/libcublasLt.so.13 ] || ln -s "../$other" ungrouped/
done
rm -rf unwindowed && mkdir unwindowed # an NCCL from before it had symmetric windows
${CC:-cc} $flags -DncclCommWindowRegister=hidden_window -Wl,-soname,libnccl.so.2 -o \
    unwindowed/libnccl.so.2 "$here/nccl.c" -Llib -l:libcuda.so.1 -lrt
for other in lib/*; do
    [ "$other" = lib/libnccl.so.2 ] || ln -s "../$other" unwindowed/
done
for name in libcuda.so.1 libcublasLt.so.13 libnccl.so.2 libnvrtc.so.13 libcudnn.so.9; do
    rm -rf "no-$name" && mkdir "no-$name"
    for other in lib/*; do [ "$other" = "lib/$name" ] || ln -s "../$other" "no-$name/"; done
    printf 'not a library\n' >"no-$name/$name"
done
rm -rf old && mkdir old
ln -s ../lib/libcublasLt.so.13 ../lib/libnccl.so.2 ../lib/libnvrtc.so.13 old/
make_driver old/libcuda.so.1 -DcuGraphLaunch=hidden_graph_launch
rm -rf untensored && mkdir untensored
for other in lib/*; do [ "$other" = lib/libcuda.so.1 ] || ln -s "../$other" untensored/; done
make_driver untensored/libcuda.so.1 -DcuTensorMapEncodeTiled=hidden_encode
