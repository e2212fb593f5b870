#!/usr/bin/env bash
# The rate of every step, from the keys of a plan to schedule_lr: the tables of a trainer are linked
# with the runtime's file alone and compared with a naive computation. Groups of weights with a rate
# of their own: the first step moves them by that part of what it moves them without it.
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

# ── groups ───────────────────────────────────────────────────────────────────
python3 "$here/../faults/make.py" tokens tokens.bin 2001 64
grouped() { # TO GROUPS: small.plan with these groups
    sed "s/optimizer adamw { lr = 8e-4 }/optimizer adamw { lr = 8e-4;  clip = off; $2 }/" \
        small.plan >"$1"
}
decays='weights "*up_proj*" { weight_decay = 0.3 }'
grouped alike.plan "weights \"*norm*\" { weight_decay = 0.2 }; $decays"
grouped groups.plan "weights \"*norm*\" { lr_scale = 3;  weight_decay = 0.2 }; \\
    weights \"*.mlp.*\" { lr_scale = 0 }; weights \"*q_proj*\" { lr_scale = 0.25 }; $decays"
trained() { # NAME RANKS STEPS PLAN [settings]: NAME.st
    "$planc" build "$4" -o "$1" --device cpu "${@:5}" >"$1.log" 2>&1 &&
        timeout 60 mpirun -n "$2" --oversubscribe --bind-to none "$1/trainer" --steps "$3" \
            --final "$1.st" >"$1.log" 2>&1 </dev/null || fail "$1" "$(tail_of "$1.log")"
}
two=(--set mesh.fsdp=2 --set batch.local=1)
trained start 1 0 small.plan
trained alike 1 1 alike.plan
trained groups 1 1 groups.plan
trained shards 2 1 groups.plan "${two[@]}"
for run in groups shards; do
    why=$(python3 "$here/groups.py" start.st alike.st $run.st 'norm=3' 'mlp=0' 'q_proj=0.25' \
        2>&1) && ok "lr_scale.$run" || fail "lr_scale.$run" "$why"
done
refused() { # NAME PATTERN GROUP
    sed "s/optimizer adamw { lr = 8e-4 }/optimizer adamw { weights \"*norm*\" { $3 } }/" \
        small.plan >"$1.plan"
    "$planc" check "$1.plan" >"$1.log" 2>&1
    [ $? -eq 1 ] && grep -qE -- "$2" "$1.log" && ok "$1" || fail "$1" "$(tail_of "$1.log" 6)"
}
refused negative 'lr_scale' 'lr_scale = -1'
refused misspelt "did you mean 'lr_scale'" 'lr_scal = 2'
refused twice 'lr_scale is given twice' 'lr_scale = 2;  lr_scale = 3'
refused left_open "cannot be left open" 'lr_scale = 2 | 3'
