#!/usr/bin/env bash
# The cuda path without a GPU: kernel text compiled for this processor and executed thread by thread (fiber.h), first the
# fibers themselves, then every templates_*.cc beside this file: programs that launch kernels of templates/cuda and hold
# them against plain loops.
. "$(dirname "$0")/../lib/common.sh"
here=$top/tests/cuda_on_cpu
compile() { # compile SOURCE PROGRAM
    g++ -std=c++17 -O2 -march=native -ffp-contract=off -fno-strict-aliasing -fno-gnu-unique -Wall -Wextra -Wno-unknown-pragmas -Wno-unused-function \
        -I"$top/templates/cuda" -I"$top/runtime" -DPLANC_MACHINE="\"$here/fiber.h\"" -o "$2" "$1" >"$2.log" 2>&1
}

# ── the fibers themselves ────────────────────────────────────────────────────
if compile "$here/fibers.cc" fibers && [ ! -s fibers.log ]; then
    ./fibers >fibers.out 2>&1 && ok fibers || fail fibers "$(tail_of fibers.out)"
    # A planted mistake is wrong for some order, or named.
    for mistake in no_barrier no_barrier_before_reuse no_syncwarp no_copy_wait copy_too_early; do
        ./fibers $mistake >planted.out 2>&1
        [ $? = 1 ] && grep -q '^wrong with seed' planted.out && ok "fibers.$mistake" || fail "fibers.$mistake" "not found: $(tail_of planted.out)"
    done
    while read -r mistake words; do
        ./fibers "$mistake" >planted.out 2>&1
        [ $? = 1 ] && grep -q "$words" planted.out && ok "fibers.$mistake" || fail "fibers.$mistake" "not found: $(tail_of planted.out)"
    done <<'WORDS'
divergent a barrier under a condition
conditional deadlock: 127 wait at __syncthreads .*; 1 wait at __syncwarp .* thread 77
lane_missing deadlock: 31 wait at __shfl_xor_sync .* with mask 0xffffffff
not_in_mask is not in its own mask 0x0000ffff
too_far behind its 500 bytes
WORDS
else
    fail fibers.compile "$(tail_of fibers.log)"
fi

# ── the stand-in libraries ───────────────────────────────────────────────────
libraries=$scratch/libraries
if "$here/libraries/build.sh" "$libraries" >libraries.log 2>&1 && [ ! -s libraries.log ] && "$here/module.sh" "$here/libraries/check.cu" check.so -I"$top/templates/cuda" 2>>libraries.log &&
    cc -std=c17 -O1 -g -Wall -Wextra -I"$top/runtime" -o check "$here/libraries/check.c" -L"$libraries/lib" -l:libcuda.so.1 -l:libnccl.so.2 -l:libcublasLt.so.13 2>>libraries.log; then
    check() { LD_LIBRARY_PATH=$libraries/lib STANDIN_NCCL_SECONDS=3 timeout 60 ./check ./check.so "$@" >check.out 2>&1; }
    for order in first last random; do
        for lazy in 0 1; do
            for name in streams graphs products; do
                STANDIN_ORDER=$order STANDIN_LAZY=$lazy check $name && ok "libraries.$name.$order.$lazy" || fail "libraries.$name.$order.$lazy" "$(tail_of check.out)"
            done
        done
    done
    STANDIN_ORDER=random check ranks && ok libraries.ranks || fail libraries.ranks "$(tail_of check.out)"
    while read -r name words; do
        check "$name"
        grep -q "$words" check.out && ok "libraries.$name" || fail "libraries.$name" "not found: $(tail_of check.out)"
    done <<'WORDS'
no_wait wrong without the wait
deadlock kernel deadlock, block (0, 0, 0): deadlock: 31 wait at __syncthreads
strays strays touches .*, which is nobody's
host_address argument 0, .*, is no address of the device
too_much_shared cuLaunchKernel gives 1 and 701
ranks.sizes here all-gather 1 of 200001 elements, on rank 1 all-gather 1 of 200000
ranks.order here all-reduce 1 of 200001 elements, on rank 0 all-gather
ranks.absent a peer does not come
WORDS
    check follows && fail libraries.follows "the host follows a device address" || ok libraries.follows
    [ -z "$(ls /dev/shm | grep '^standin-nccl-')" ] && ok libraries.nothing_left || fail libraries.nothing_left "in /dev/shm"
else
    fail libraries "$(tail_of libraries.log)"
fi

# ── templates ────────────────────────────────────────────────────────────────
for source in "$here"/templates_*.cc; do
    [ -e "$source" ] || continue
    name=$(basename "$source" .cc)
    compile "$source" "$name" || { fail "$name.compile" "$(grep -m 3 error "$name.log" | tr '\n' '|')"; continue; }
    for seed in 1 2; do
        FIBER_SEED=$seed timeout 120 "./$name" >"$name.$seed.out" 2>&1 && ok "$name.$seed" || fail "$name.$seed" "$(tail_of "$name.$seed.out" 4)"
    done
done
