#!/usr/bin/env bash
# BF16 trainers end to end: no checkpointing mode and no fusion changes a bit,
# and the numbers stay as near to the float64 truth as BF16's eight bits of mantissa let them.
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../lib/common.sh"
. "$top/tests/lib/training.sh"
cc -O2 -std=gnu17 -o truth "$here"/../oracle_own/*.c -lm 2>truth.log || { fail truth "$(tail_of truth.log)"; exit 0; }

# narrow NAME "TRUTH KEYS" VARIANT...
narrow() {
    local name=$1 keys=$2 variant why
    shift 2
    rm -rf "${scratch:?}/$name"
    mkdir -p "$scratch/$name/case" && cd "$scratch/$name" || return
    # shellcheck disable=SC2086
    if ! why=$("$scratch/truth" case $keys 2>&1); then fail "$name" "$why"; return; fi
    if ! "$planc" import case -o case.plan >import.log 2>&1; then fail "$name.import" "$(tail_of import.log)"; return; fi
    numbers recipe "$PWD/case" >settings
    printf '%s\n' --set precision.compute=bf16 >>settings
    build_all case.plan 8 settings "$@"
    for variant in "$@"; do
        if ! why=$(variant_run "$variant"); then fail "$name.$variant" "$why"; continue; fi
        why=$(numbers expect case "$variant.jsonl" --tol-loss 5e-3 --tol-norm 5e-2) && ok "$name.$variant" || fail "$name.$variant" "$why"
    done
    for variant in "$@"; do
        case $variant in
        *.off) variants_equal "$name fusion ${variant%.off}" "$variant" "${variant%.off}.on" ;;
        *.full.on) variants_equal "$name none=full ${variant%.full.on}" "${variant%.full.on}.none.on" "$variant" ;;
        *.selective.on) variants_equal "$name none=selective ${variant%.selective.on}" "${variant%.selective.on}.none.on" "$variant" ;;
        esac
    done
}
narrow odd "" 1.1.1.none.on 1.1.1.full.on 1.1.1.selective.on 1.1.1.none.off 2.1.2.none.on 2.1.2.full.on 2.1.2.full.off
narrow wide "hidden=64 heads=4 kv=4 head_dim=16 ffn=160 vocab=130 seq=32 tied=0 factor=1 layers=3" 1.1.1.none.on 1.1.1.full.off 1.1.1.full.on 2.2.1.none.on
