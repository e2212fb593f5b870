#!/usr/bin/env bash
# Runs of other trainers: published memory within its bounds, every key of `trainer` has an effect,
# names that are not there.
. "$(cd "$(dirname "$0")" && pwd)/../lib/common.sh"

cat >run.plan <<'EOF'
use "models/llama.plan"
use "clusters/h100_96gb.plan"
plan "8B" {
    model llama { layers = 32;  hidden = 4096;  heads = 32;  kv_heads = 8;  ffn = 14336
                  vocab = 128256 }
    cluster h100_96gb { }
    mesh { fsdp = 8 }
    precision { compute = bf16 }
    activation_checkpoint { mode = selective }
    batch { sequence = 8192;  local = 1 }
}
EOF
# answer COMMAND SET…: its JSON without the plan's name
answer() {
    local sets=()
    for s in "${@:2}"; do sets+=(--set "$s"); done
    "$planc" "$1" run.plan --json "${sets[@]}" 2>&1
}
number() { grep -m1 "\"$1\"" | tr -dc '0-9'; }
# changes NAME COMMAND KEY SET SET2…: the answer is another one
changes() {
    local before after
    before=$(answer "$2" trainer=torchtitan "${@:5}")
    after=$(answer "$2" trainer=torchtitan "$4" "${@:5}")
    [ "$before" != "$after" ] && grep -q reserved_bytes <<<"$after" && ok "$1" ||
        fail "$1" "$4 changes nothing of $2"
}

# a published run: 49.59 GiB reserved
got=$(answer check trainer=torchtitan | number reserved_bytes)
[ "${got:-0}" -gt 51650000000 ] && [ "$got" -lt 55000000000 ] && ok reserved ||
    fail reserved "$got bytes, published are 49.59 GiB"
both=$(answer simulate trainer=torchtitan | number reserved_bytes)
[ "$got" = "$both" ] && ok simulate_agrees || fail simulate_agrees "$got and $both"

changes compile check - trainer.compile=on
changes engine simulate - trainer.engine=planc
changes engine_compiled simulate - trainer.engine_compiled=planc trainer.compile=on
changes rates simulate - 'trainer.rates=[h100]'
changes save check - trainer.save=plan
changes save_time simulate - trainer.save=plan
changes compile_loss check - trainer.compile_loss=on
changes logit_bytes check - trainer.logit_bytes=2
changes logit_kept_bytes check - trainer.logit_kept_bytes=4 batch.loss_chunks=8
changes fragmentation check - trainer.fragmentation=0
changes streams check - trainer.streams=off
changes gradients check - trainer.gradients=step
changes reshard_never check - trainer.reshard=never
changes reshard_always check - trainer.reshard=always
changes launch simulate - trainer.launch=20us
changes step simulate - trainer.step=1s

refused() { # NAME STATUS PATTERN COMMAND SET…
    local said status sets=()
    for s in "${@:5}"; do sets+=(--set "$s"); done
    said=$("$planc" "$4" run.plan "${sets[@]}" 2>&1)
    status=$?
    [ $status = "$2" ] && grep -q -- "$3" <<<"$said" && ok "$1" || fail "$1" "status $status: $said"
}
refused unknown 1 "there is no trainer 'megatron'" check trainer=megatron
refused no_trainer 1 "none is named" check trainer.compile=on
refused memory 1 "planc's own trainer" memory trainer=torchtitan
refused budget 1 "mode budget" check trainer=torchtitan activation_checkpoint.mode=budget
refused too_large 2 "exceeds" check trainer=torchtitan batch.local=8
"$planc" keys trainer | grep -q 'use "trainers/torchtitan.plan"' && ok keys || fail keys "not shown"

# other families: mixtures and learned positions
for plan in qwen3-30b-a3b gpt2-124m; do
    said=$("$planc" check "$top/plans/$plan.plan" --json --set trainer=torchtitan 2>&1)
    grep -q reserved_bytes <<<"$said" && ok "$plan" || fail "$plan" "$said"
done

# the table: memory within its bounds
bash "$top/tests/bench/published.sh" >table.txt 2>&1
for line in "memory, median" "memory, worst"; do
    name=${line//, /_}
    grep -q "$line.*: met" table.txt && ok "$name" || fail "$name" "$(grep "$line" table.txt)"
done
[ "$(grep -c ': called\|; predicted.*: called' table.txt)" = 2 ] && ok out_of_memory ||
    fail out_of_memory "$(grep 'out of memory' table.txt)"
# a row that was not there before, and one that cannot be expressed
head -1 "$top/tests/bench/published.csv" >held.csv
run='Llama-3.1-8B,32,4096,32,8,128,14336,128256,H100 80GB,128,128,1,8192,2,1,selective(op)'
echo "torchtitan,test,test,own,none,$run,bf16,yes,62.0,6514,," >>held.csv
echo "torchtitan,test,test,unheard,none,${run/Llama-3.1/Gemma},bf16,yes,62.0,6514,," >>held.csv
bash "$top/tests/bench/published.sh" held.csv >held.txt 2>&1
grep -q 'own .*62.00 predicted' held.txt && ok held || fail held "$(cat held.txt)"
grep -q 'not expressed: unheard' held.txt && ok named || fail named "$(cat held.txt)"
