#!/usr/bin/env bash
# `planc report`: every page is well formed and loads nothing, its numbers are those of simulate and
# memory, hostile titles stay text, bad input is refused. With chromium (skipped by name without it)
# no page is wider than its window and the console stays silent.
. "$(cd "$(dirname "$0")" && pwd)/../lib/common.sh"
plans=$top/plans
export HOME=$scratch # of chromium's own files

# page NAME STATUS ARGUMENT…: makes NAME.html with that status, and it is a good page
page() {
    local said status
    rm -f "$1.html"
    said=$("$planc" report "${@:3}" -o "$1.html" 2>&1)
    status=$?
    [ $status = "$2" ] && said=$(python3 "$top/tests/report/page.py" "$1.html" 2>&1) && ok "$1" ||
        fail "$1" "status $status: $said"
}
# refused NAME STATUS PATTERN ARGUMENT…: no page is written, and the message says why
refused() {
    local said status
    rm -f refused.html
    said=$("$planc" report "${@:4}" 2>&1)
    status=$?
    [ $status = "$2" ] && grep -qE -- "$3" <<<"$said" && [ ! -e refused.html ] && ok "$1" ||
        fail "$1" "status $status: $said"
}

for step in 1 2 3 4; do
    printf '{"step":%d,"loss":%d.5,"grad_norm":1.5,"tokens_per_second":2000,' $step $((9 - step))
    printf '"step_seconds":0.5,"predicted_step_seconds":0.6}\n'
done >run.jsonl
printf '{"step":5,"lo' >>run.jsonl # a run that was ended in the middle of a line
{
    cat run.jsonl
    printf '\nno metrics\n'
} >bad.jsonl
printf '{"step":1}\n' >empty.jsonl
sed 's|plan "a byte-level llama"|plan "</script><b>\&'"'"' \xff"|' "$plans/demo.plan" >hostile.plan

"$planc" simulate "$plans/demo.plan" --trace step.json >/dev/null 2>&1 # in the form of a trainer's
page demo 0 "$plans/demo.plan" --devices 2,4,6 --set batch.global=48 --metrics run.jsonl
page trace 0 "$plans/demo.plan" --trace step.json
page cuda 0 "$plans/30b-a3b-16.plan" --devices 16,64
page hostile 0 hostile.plan
cat >chunks.plan <<'PLAN'
use "models/gemma2.plan"
use "clusters/cpu.plan"
plan "dimensions without a name on many paths" {
    model gemma2 { layers = 2;  hidden = 24;  heads = 3;  ffn = 40;  vocab = 61;  z_loss = 0.001 }
    cluster cpu { }
    mesh { fsdp = 4 }
    precision { compute = bf16 }
    activation_checkpoint { mode = full }
    batch { sequence = 32;  local = 1;  loss_chunks = 2 }
}
PLAN
(ulimit -t 20 && page chunks 0 chunks.plan) # seconds of CPU; it took hours and all memory
page replicas 0 "$plans/demo.plan" --set mesh.dp=2 --set mesh.optimizer=all
grep -q 'fsdp 2 x dp 2, optimizer all, local batch' replicas.html && ok optimizer ||
    fail optimizer "$(grep -o 'devices: fsdp[^;]*' replicas.html)"
page exceeds 2 "$plans/llama-8b.plan" --set batch.local=64 --set batch.global=32768
page space 0 "$plans/30b-a3b-16.plan" --set 'batch.local=1|2|64' \
    --set 'activation_checkpoint.mode=none|full'
grep -q 'slower by [0-9.]* %: .* takes .* more' space.html &&
    grep -q 'exceeds by .* at .*, step' space.html && ok reasons ||
    fail reasons "$(grep -o '<td>[^<]*by[^<]*' space.html | head -n 3)"
"$planc" report "$plans/demo.plan" --json --devices 2,4 --set batch.global=16 --metrics run.jsonl \
    >numbers.json 2>&1
"$planc" report "$plans/demo.plan" --json --trace step.json >trace.json 2>&1
"$planc" report "$plans/30b-a3b-16.plan" --json --set 'batch.local=1|2' >space.json 2>&1
said=$(python3 "$top/tests/report/numbers.py" 2>&1) && ok json || fail json "$said"
said=$("$planc" report "$plans/llama-8b.plan" -o picture.svg 2>&1) &&
    said=$(python3 "$top/tests/report/picture.py" picture.svg 2>&1) && ok picture ||
    fail picture "$said"
said=$(python3 "$top/tests/report/picture.py" "$top/docs/report.svg" 2>&1) &&
    ok picture_of_readme || fail picture_of_readme "$said"
grep -q 'Predicted: 600.00 ms (+20.0 %)' demo.html && ok predicted_beside_measured ||
    fail predicted_beside_measured "$(grep -o 'A step took[^<]*' demo.html)"
said=$(python3 "$top/tests/report/same.py" "$planc" "$plans/30b-a3b-16.plan" cuda.html 2>&1) &&
    ok numbers_of_simulate || fail numbers_of_simulate "$said"

refused no_output 3 'wants -o' "$plans/demo.plan"
refused no_plan 3 'takes one plan' -o refused.html
refused trace_absent 4 'No such file' "$plans/demo.plan" -o refused.html --trace absent.json
refused trace_empty 4 'no traceEvents' "$plans/demo.plan" -o refused.html --trace numbers.json
refused trace_of_another 4 "none of this plan's" "$plans/moe-small.plan" -o refused.html \
    --trace step.json
refused picture_of_run 3 'a picture has memory' "$plans/demo.plan" -o refused.svg --trace step.json
refused scaling 3 'strong or weak' "$plans/demo.plan" -o refused.html --scaling x --devices 2
refused scaling_alone 3 'is of --devices' "$plans/demo.plan" -o refused.html --scaling weak
refused metrics_absent 4 'No such file' "$plans/demo.plan" -o refused.html --metrics absent.jsonl
refused metrics_bad 4 'line 5 is no metrics' "$plans/demo.plan" -o refused.html --metrics bad.jsonl
refused metrics_empty 4 'no loss' "$plans/demo.plan" -o refused.html --metrics empty.jsonl
refused not_writable 4 'cannot write' "$plans/demo.plan" -o absent/refused.html

chromium=$(command -v chromium || command -v chromium-browser)
for name in demo trace cuda hostile exceeds space; do
    if [ -z "$chromium" ]; then
        skip "browser_$name" "there is no chromium"
        continue
    fi
    said=$(python3 "$top/tests/report/browser.py" "$chromium" "$name.html" 2>&1) &&
        ok "browser_$name" || fail "browser_$name" "$said"
done
