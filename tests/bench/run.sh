#!/usr/bin/env bash
# `make bench` works: with few steps it says a figure for every one of its cases.
. "$(dirname "$0")/../lib/common.sh"
(cd "$top" && BENCH_STEPS=3 BENCH_ROUNDS=1 BENCH_PEERS="mixture bf16" PLANC_PEERS=/nowhere \
    timeout 1200 bash tests/bench.sh) >bench.log 2>&1
status=$?
for line in '^rms_norm forward ' '^rms_norm backward ' '^1 rank\(s\), fp32: ' \
    '^1 rank\(s\), bf16: ' \
    '^2 rank\(s\), fp32: ' '^2 rank\(s\), bf16: ' \
    '^mixture bf16: planc [0-9]+ tokens/s, ' "^  planc's step: .*products "; do
    name=$(tr -cs 'a-z0-9\n' _ <<<"$line")
    [ $status -eq 0 ] && grep -qE "$line.*[0-9]" bench.log && ok "bench$name" ||
        fail "bench$name" "status $status: $(tail_of bench.log)"
done
