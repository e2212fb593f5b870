#!/usr/bin/env bash
# The rate of every step, from the keys of a plan to schedule_lr: the tables of a trainer are linked
# with the runtime's file alone and compared with a naive computation.
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../lib/common.sh"
rm -rf "${scratch:?}"/*
cat >small.plan <<'PLAN'
use "models/llama.plan"
use "clusters/cpu.plan"

plan "small" {
    model llama { layers = 1;  hidden = 16;  heads = 2;  ffn = 24;  vocab = 64 }
    cluster cpu { }
    batch { sequence = 16;  local = 2 }
    optimizer adamw { lr = 8e-4 }
    data { train = "tokens.bin" }
}
PLAN
cat >print.c <<'C'
#include "trainer.h"

#include <stdio.h>

int main(void)
{
    for (int64_t s = 0; s < 30; s++) printf("%.17g\n", schedule_lr(&program, s));
    return 0;
}
C
# rate NAME KIND WARMUP FROM TO STEPS FLOOR DECAY SHAPE
rate() {
    local why settings=(--set "schedule=$2" --set "schedule.warmup=$3" --set "schedule.steps=$6")
    [ "$4" = 0 ] || settings+=(--set "schedule.warmup_from=$4")
    [ "$5" = 1 ] || settings+=(--set "schedule.warmup_to=$5")
    [ "$2" = constant ] || settings+=(--set "schedule.floor=$7")
    [ "$2" = wsd ] && settings+=(--set "schedule.decay=$8" --set "schedule.decay_shape=$9")
    if ! texts small.plan "$1" "${settings[@]}" >"$1.log" 2>&1; then
        fail "$1" "$(tail_of "$1.log")"
    elif ! cc -std=c17 -I"$1" -I"$top/runtime/shared" -I"$top/runtime" -I"$top" -o "$1.print" \
        print.c "$1/program.c" "$top/runtime/shared/schedule_lr.c" -lm >"$1.log" 2>&1; then
        fail "$1" "$(tail_of "$1.log")"
    elif why=$("./$1.print" | python3 "$here/check.py" "${@:2}" 2>&1); then ok "$1"
    else fail "$1" "$why"; fi
}
rate warm_from cosine 5 0.2 1 20 0.1 0 linear
rate warm_to constant 4 0.5 0.75 20 0 0 linear
rate linear_stays linear 3 0 1 12 0.25 0 linear
rate wsd_linear wsd 3 0 1 20 0.1 8 linear
rate wsd_sqrt wsd 3 0.1 1 20 0.1 8 sqrt
rate wsd_cosine wsd 0 0 1 20 0 8 cosine
rate wsd_sqrt_without_decay wsd 2 0 1 10 0.5 0 sqrt

warned() { # NAME PATTERN [settings]
    "$planc" check small.plan "${@:3}" >"$1.log" 2>&1
    grep -qE -- "$2" "$1.log" && ok "$1" || fail "$1" "$(tail_of "$1.log")"
}
warned no_warmup 'schedule.warmup_from has no effect: the warm-up has no steps' --set \
    schedule.warmup_from=0.5
warned no_wsd 'schedule.decay_shape has no effect: only wsd' --set schedule=cosine --set \
    schedule.steps=9 --set schedule.decay_shape=sqrt
warned too_high 'warmup_from' --set schedule.warmup=3 --set schedule.warmup_from=1.5
