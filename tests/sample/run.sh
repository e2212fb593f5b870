#!/usr/bin/env bash
# --sample: what a model writes is what its logits say. The tokens that were written are given to
# the same model as data; --probe then shows the logits behind each of them, and a plain search
# must choose the same tokens: the likeliest, or by the probabilities of a temperature.
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../lib/common.sh"
rm -rf "${scratch:?}"/*
plan() { # NAME FAMILY "model keys" [lines of the plan]
    cat >"$1.plan" <<PLAN
use "models/$2.plan"
use "clusters/cpu.plan"

plan "$1" {
    model $2 { layers = 2;  hidden = 24;  heads = 4;  vocab = 97;  $3 }
    cluster cpu { }
    batch { sequence = 20;  local = 1;  global = 4 }
    optimizer adamw { lr = 1e-2 }
    schedule constant { steps = 4 }
    data { train = "tokens.bin";  format = uint16 }
    ${4:-}
}
PLAN
}
python3 "$here/../faults/make.py" tokens tokens.bin 2001 97
plan llama llama "kv_heads = 2;  ffn = 40"
plan gpt2 gpt2 "context = 20"
plan moe qwen3_moe "kv_heads = 2;  experts = 5;  top_k = 2;  expert_width = 12"

holds() { # NAME CHECK…
    local name=$1 why
    shift
    if why=$(python3 "$here/check.py" "$@" 2>&1); then ok "$name"; else fail "$name" "$why"; fi
}
build() { # PLAN DIR [settings]
    "$planc" build "$1.plan" -o "$2" --device cpu "${@:3}" >"$2.build" 2>&1 ||
        fail "build_$2" "$(tail_of "$2.build")"
}
# writes NAME RANKS DIR [options]: NAME.log
writes() {
    timeout -k 5 60 mpirun -n "$2" --oversubscribe --bind-to none "$3/trainer" "${@:4}" \
        >"$1.log" 2>&1 </dev/null && return
    fail "$1" "exit $?: $(tail_of "$1.log")"
    return 1
}
# judged NAME DIR: what NAME.log says was written, against the logits of DIR, from a sample of it on
judged() {
    python3 "$here/check.py" data "$1.log" given.bin && cp tokens.bin tokens.kept &&
        cp given.bin tokens.bin
    writes "$1.probe" 1 "$2" --steps 1 --probe "$1.json"
    mv tokens.kept tokens.bin
    holds "$1" "${3:-greedy}" "$1.log" "$1.json" "${@:4}"
}
prompt=(--prompt 5,17,80)

# ── every family, on one rank ────────────────────────────────────────────────
for family in llama gpt2 moe; do
    build $family $family
    writes $family 1 $family --steps 0 --sample 15 "${prompt[@]}" && judged $family $family
done
build llama halves --set precision.compute=bf16 --set batch.loss_chunks=4
writes bf16_chunks 1 halves --steps 0 --sample 15 "${prompt[@]}" && judged bf16_chunks halves
writes warm 1 llama --steps 0 --sample 15 "${prompt[@]}" --temperature 0.7 --seed 3 &&
    judged warm llama warm 0.7 3
writes again 1 llama --steps 0 --sample 15 "${prompt[@]}" --temperature 0.7 --seed 3
writes other 1 llama --steps 0 --sample 15 "${prompt[@]}" --temperature 0.7 --seed 4
cmp -s <(grep -A1 '^sample:' warm.log) <(grep -A1 '^sample:' again.log) && ok repeatable ||
    fail repeatable "the same seed gives other tokens"
cmp -s <(grep -A1 '^sample:' warm.log) <(grep -A1 '^sample:' other.log) &&
    fail seeds_differ "another seed gives the same tokens" || ok seeds_differ
# more than the context holds: the last token follows the 20 before it
writes long 1 llama --steps 0 --sample 40 && python3 "$here/check.py" tail long.log tail.log &&
    judged tail llama last

# ── every mesh; after steps, which it does not change ────────────────────────
build llama shards --set mesh.fsdp=2
build llama replicas --set mesh.fsdp=2 --set mesh.dp=2
build moe moe_shards --set mesh.fsdp=2 --set batch.local=2
writes shards 2 shards --steps 0 --sample 15 "${prompt[@]}"
writes replicas 4 replicas --steps 0 --sample 15 "${prompt[@]}"
writes moe_shards 2 moe_shards --steps 0 --sample 15 "${prompt[@]}"
for pair in llama.shards llama.replicas moe.moe_shards; do
    cmp -s <(grep -A1 '^sample:' "${pair%.*}.log") <(grep -A1 '^sample:' "${pair#*.}.log") &&
        ok "mesh.$pair" || fail "mesh.$pair" "$(tail_of "${pair#*.}.log" 1)"
done
writes without 2 shards --final without.st
writes with 2 shards --final with.st --sample 5 --checkpoint-dir saved
cmp -s without.st with.st && ok weights_stay || fail weights_stay "sampling changes the weights"
writes resumed 2 shards --sample 5 --checkpoint-dir saved && grep -q 'nothing is left' \
    resumed.log && cmp -s <(grep -A1 '^sample:' with.log) <(grep -A1 '^sample:' resumed.log) &&
    ok from_a_checkpoint || fail from_a_checkpoint "$(tail_of resumed.log)"

# ── bytes are text ───────────────────────────────────────────────────────────
build llama bytes --set data.format=bytes --set data.train=bytes.plan --set model.vocab=256
cp llama.plan bytes.plan
writes bytes 1 bytes --steps 0 --sample 60 --prompt 'naïve' --temperature 2
holds bytes text bytes.log 'naïve' 60

# ── refused ──────────────────────────────────────────────────────────────────
refused() { # NAME STATUS PATTERN DIR [options]
    at_once timeout -k 5 60 mpirun -n 1 "$4/trainer" --steps 0 "${@:5}" >"$1.log" 2>&1 </dev/null
    [ $? -eq "$2" ] && [ "$(grep -c '^trainer:' "$1.log")" -eq 1 ] &&
        grep -qE -- "^trainer: .*$3" "$1.log" && ok "$1" || fail "$1" "$(tail_of "$1.log")"
}
refused no_sample 3 'are of --sample N: it is missing' llama --prompt 5
refused zero 3 'whole number of at least 1' llama --sample 0
refused cold 3 '--temperature wants a number of at least 0' llama --sample 3 --temperature -1
refused words 4 "--prompt wants ids \(464,2068\), not 'the cat'" llama --sample 3 --prompt 'the cat'
refused id 4 '--prompt: 97 is not in the vocabulary, ids 0 to 96' llama --sample 3 --prompt 5,97
refused no_ids 4 "holds no ids" llama --sample 3 --prompt ' , '
