#!/usr/bin/env bash
# BF16 compute: awkward sizes against tests/oracle_own's truth, every reference family on one rank
# and on meshes, both held against float64 within the tolerances that check.py states; and what is
# kept in which type, read off the dump. What holds in F32 holds here too: no checkpointing mode and
# no fusion changes a bit. A processor without BF16 products (played by the library) trains within
# the same tolerances. The reference lies beside the repository; where it is absent its cases are
# skipped.
. "$(dirname "$0")/../lib/common.sh"
. "$top/tests/lib/training.sh"
check() { python3 "$top/tests/bf16/check.py" "$@"; }

# ── awkward sizes ────────────────────────────────────────────────────────────
cc -O2 -std=gnu17 -o truth "$top"/tests/oracle_own/*.c -lm 2>truth.log ||
    fail truth "$(tail_of truth.log)"

losses=() # settings of the model besides
# narrow NAME "TRUTH KEYS" VARIANT...
narrow() {
    local name=$1 keys=$2 variant why
    shift 2
    rm -rf "${scratch:?}/$name"
    mkdir -p "$scratch/$name/case" && cd "$scratch/$name" || return
    # shellcheck disable=SC2086
    if ! why=$("$scratch/truth" case $keys 2>&1); then fail "$name" "$why"; return; fi
    if ! "$planc" import case -o case.plan >import.log 2>&1; then
        fail "$name.import" "$(tail_of import.log)"
        return
    fi
    (numbers recipe "$PWD/case"; printf '%s\n' --set precision.compute=bf16 "${losses[@]}") \
        >settings
    build_all case.plan 8 settings "$@"
    for variant in "$@"; do
        if ! why=$(variant_run "$variant"); then fail "$name.$variant" "$why"; continue; fi
        why=$(check truth case "$variant.jsonl") && ok "$name.$variant" ||
            fail "$name.$variant" "$why"
    done
    same_bits "$name" "$@"
}
# same_bits NAME FIRST VARIANT...: those that differ from another in mode or fusion only
same_bits() {
    local name=$1 variant
    shift
    for variant in "$@"; do
        case $variant in *.none.on) continue ;; esac
        local other=${variant%.*.*}.none.on
        case " $* " in *" $other "*) variants_equal "$name.same bits $variant" "$other" "$variant" \
            ;; esac
    done
}
narrow odd "" 1.1.1.none.on 1.1.1.full.off 1.1.1.selective.on 2.1.2.none.on 2.1.2.full.on
narrow wide "hidden=64 heads=4 kv=4 head_dim=16 ffn=160 vocab=130 seq=32 tied=0 factor=1 layers=3" \
    1.1.1.none.on 1.1.1.full.off 2.2.1.none.on ${LONG:+2.2all.1.none.on 1.2all.2.full.on}
narrow \
    gpt2_odd "family=gpt2 heads=3 ffn=53 vocab=61 context=29 seq=13 layers=3 erf=1 tied=0 seed=11" \
    1.1.1.none.on 1.1.1.full.off
narrow gpt_neox_odd "family=gpt_neox heads=3 hidden=30 ffn=53 vocab=61 seq=13 tied=0 rotary=0.4
    theta=50 lr=0.003 erf=1 seed=42" 1.1.1.none.on
narrow gemma3_odd "family=gemma3 layers=3 hidden=24 heads=4 kv=2 head_dim=10 ffn=37 vocab=61
    window=5 theta=50 local_theta=20 linear=2 query_width=7 lr=0.003 seed=47" 1.1.1.none.on
losses=(--set model.balance_rate=0.02)
narrow glm4_moe_odd "family=glm4_moe kv=2 head_dim=8 heads=4 factor=1 theta=50 lr=0.003 aux=0
    balance=0.02 layers=3 dense=1 rotary=0.5 normalize=1 routed_scale=1.8 shared=2 seed=37" \
    1.1.1.none.on 1.1.1.full.off
narrow moe_mixed "family=qwen3_moe kv=2 factor=1 lr=0.003 layers=5 dense=9 normalize=1 seed=22
    balance=0.02" 1.1.1.none.on 1.1.1.full.off 1.1.1.selective.on
losses=(--set model.z_loss=0.02 --set model.router_z_loss=0.05)
narrow mixtral_odd "family=mixtral head_dim=6 kv=2 experts=7 top_k=2 seed=26 bare=1 lr=0.003
    z_loss=0.02 router_z=0.05" 1.1.1.none.on 1.1.1.full.off
losses=()

# ── the reference families ───────────────────────────────────────────────────
# held NAME VARIANT [check.py's arguments]: runs it, against float64
held() {
    local name=$1 variant=$2 why
    shift 2
    if ! why=$(variant_run "$variant"); then fail "$name.$variant" "$why"
    elif ! why=$(check truth "$@"); then fail "$name.$variant" "$why"
    else ok "$name.$variant"; fi
    case $variant in 1.1.1.none.on) echo "note $name off by at most: $why" ;; esac
}

for name in llama gpt2 qwen3 qwen3moe; do
    case=$oracle/${name}_tiny
    if [ ! -e "$case/expected.json" ]; then
        skip "$name" "there is no ../shared/oracle/${name}_tiny"
        continue
    fi
    rm -rf "${scratch:?}/$name"
    mkdir -p "$scratch/$name/pieces" && cd "$scratch/$name" || exit 1
    "$planc" import "$case" -o case.plan >import.log 2>&1 ||
        { fail "$name.import" "$(tail_of import.log)"; continue; }
    (numbers recipe "$case"; printf '%s\n' --set precision.compute=bf16) >settings
    mapfile -t settings <settings
    if "$planc" dump case.plan "${settings[@]}" --after memory >memory.ir 2>dump.log &&
        why=$(check types memory.ir); then
        ok "$name.types"
    else fail "$name.types" "$why $(tail_of dump.log)"; fi

    variants=(1.1.1.none.on 1.1.1.full.off)
    case $name in llama | \
        qwen3moe) variants+=(1.1.1.selective.on 2.1.1.none.on 2.2.1.full.on) ;; esac
    build_all case.plan 8 settings "${variants[@]}"
    for variant in "${variants[@]}"; do
        together=$(samples_together 8 "$variant")
        if [ "$name" = qwen3moe ] && [ "$together" -ne 8 ]; then
            held "$name" "$variant" "$case" "$variant.jsonl" --variant "aux_microbatch_$together"
        else held "$name" "$variant" "$case" "$variant.jsonl" "$variant.probe"; fi
    done
    same_bits "$name" "${variants[@]}"
    [ "$name" = llama ] || continue

    why=$(DNNL_MAX_CPU_ISA=AVX2 launch 1 "$PWD/1.1.1.none.on" --metrics widened.jsonl 2>&1) &&
        why=$(check truth "$case" widened.jsonl) \
        && ok "$name.widened" || fail "$name.widened" "$why"

    # the loss in pieces: the bits of the rows, and the same in every mode
    cd pieces || exit 1
    (cat ../settings; printf '%s\n' --set batch.loss_chunks=4) >settings
    build_all ../case.plan 8 settings 1.1.1.none.on 1.1.1.full.off
    for variant in 1.1.1.none.on 1.1.1.full.off; do
        held "$name.pieces" "$variant" "$case" "$variant.jsonl" "$variant.probe"
    done
    same_bits "$name.pieces" 1.1.1.none.on 1.1.1.full.off
    why=$(check text 1.1.1.none.on.jsonl ../1.1.1.none.on.jsonl) && ok "$name.pieces.loss" ||
        fail "$name.pieces.loss" "$why"
done
