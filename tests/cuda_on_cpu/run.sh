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

# ── templates ────────────────────────────────────────────────────────────────
for source in "$here"/templates_*.cc; do
    [ -e "$source" ] || continue
    name=$(basename "$source" .cc)
    compile "$source" "$name" || { fail "$name.compile" "$(grep -m 3 error "$name.log" | tr '\n' '|')"; continue; }
    for seed in 1 2; do
        FIBER_SEED=$seed timeout 120 "./$name" >"$name.$seed.out" 2>&1 && ok "$name.$seed" || fail "$name.$seed" "$(tail_of "$name.$seed.out" 4)"
    done
done
