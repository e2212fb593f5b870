#!/usr/bin/env bash
# Plans with alternatives, every point judged as if it were alone; and budgets: what is kept fits,
# grows with the budget, and changes no bit of what is trained.
. "$(cd "$(dirname "$0")" && pwd)/../lib/common.sh"
ask() { python3 "$top/tests/space/space.py" "$@"; }

cat >open.plan <<'P'
use "models/qwen3_moe.plan"
use "clusters/b200.plan"
plan "open" {
    model qwen3_moe { layers = 5;  hidden = 256;  vocab = 1031;  heads = 8;  kv_heads = 2
                      head_dim = 40;  experts = 7;  top_k = 3;  expert_width = 96
                      dense_layers = [1];  ffn = 300 }
    cluster b200 { nodes = 2 }
    mesh { fsdp = 1 | 3 | 4 | 8;  dp = auto;  prefetch = 0..2 }
    activation_checkpoint { mode = none | selective | full }
    batch { sequence = 120;  local = 1..3;  global = 96;  loss_chunks = 1 | 2 | 4 | 7 }
    optimizer adamw { lr = 1e-3 | 3e-4 }
}
P
"$planc" check open.plan --json >open.json 2>open.err; status=$?
[ $status -eq 0 ] && [ "$(ask count open.json)" = 864 ] && ok every_point ||
    fail every_point "exit $status, $(ask count open.json) points: $(tail_of open.err)"
ask reasons open.json >reasons
grep -q 'does not divide the 16 devices' reasons &&
    grep -q 'loss_chunks = 7 does not divide' reasons && ok impossible_points_say_why ||
    fail impossible_points_say_why "$(tail_of reasons)"
singles=()
while read -r index sets; do
    arguments=()
    for set in $sets; do arguments+=(--set "$set"); done
    "$planc" check open.plan --json "${arguments[@]}" >"one.$index.json" 2>/dev/null
    singles+=("$index=one.$index.json")
done < <(ask sets open.json 11)
why=$(ask same open.json "${singles[@]}") && [ ${#singles[@]} -gt 15 ] && ok points_as_if_alone ||
    fail points_as_if_alone "${#singles[@]} points: $why"
"$planc" check open.plan >open.txt 2>&1 && grep -q '864 plans' open.txt &&
    grep -q 'mesh.fsdp = 1 | 3 | 4 | 8' open.txt && ok said_in_words ||
    fail said_in_words "$(head -n 3 open.txt)"
# Sorted by verdict; the limit, the largest local batch of each choice, one line a reason.
grep -E '^  (fits|tight|exceeds) ' open.txt | awk '{print $1}' | uniq >verdicts.txt
[ "$(sort -u verdicts.txt | wc -l)" = "$(wc -l <verdicts.txt)" ] &&
    grep -q '% FLOPs .*% moved' open.txt &&
    grep -q 'above 97 % of it, 172.999 GiB, a point exceeds' open.txt &&
    grep -q 'the largest local batch that fits' open.txt && ok sorted ||
        fail sorted "$(head -n 12 open.txt | tail -n 4)"
[ "$(grep -c '^  impossible ' open.txt)" -gt 0 ] &&
    [ "$(grep -c '^  impossible ' open.txt)" -lt 17 ] &&
    grep -qE '^  impossible  [0-9]+ points, the first of them' open.txt && ok reasons_once ||
    fail reasons_once "$(grep -c '^  impossible ' open.txt) lines"
# What the architecture refuses in pieces, it takes whole, whichever stands first.
cat >no_pieces.plan <<'P'
architecture no_pieces {
    hyper { layers; hidden; vocab }
    x = embedding(tokens, weight("embed", [vocab, hidden]))
    repeat layers "layers.{i}" { x = x + linear(silu(x), weight("w", [hidden, hidden])) }
    loss = sum(x * x)
}
cluster here { elastic = on;  device "processor" { kind = cpu;  outside = 1MiB } }
plan "no_pieces" {
    model no_pieces { layers = 2;  hidden = 16;  vocab = 64 }
    cluster here { }
    batch { sequence = 32;  local = 4 }
}
P
for open in '1 | 4' '4 | 1'; do
    name=whole_only_${open%% *}_first
    "$planc" check no_pieces.plan --set "batch.loss_chunks=$open" >no_pieces.txt 2>&1
    grep -q 'a space of 2 plans: 1 fits\?, .* 1 impossible' no_pieces.txt && ok "$name" ||
        fail "$name" "$(tail_of no_pieces.txt)"
done
# A setting after a plan of diff is for that plan, one before both for both.
"$planc" diff --set mesh.fsdp=8 "$top/plans/llama-8b.plan" "$top/plans/llama-8b.plan" --set \
    batch.local=2 >sides.txt 2>&1
grep -qE '^A .*llama-8b.plan --set mesh.fsdp=8$' sides.txt &&
    grep -qE '^B .*llama-8b.plan --set mesh.fsdp=8 --set batch.local=2$' sides.txt &&
    grep -q '^  peak .*+' sides.txt && ok diff_sides || fail diff_sides "$(head -n 3 sides.txt)"
# A plan that fits is told what it wastes, and the largest local batch.
"$planc" check "$top/plans/llama-8b.plan" --set activation_checkpoint.mode=none >waste.txt 2>&1
grep -q -- '--set activation_checkpoint.mode=selective .*less memory for the same work' waste.txt &&
    grep -q -- '--set batch.local=2 .*the largest local batch that fits' waste.txt && ok advice ||
        fail advice "$(tail_of waste.txt)"
# The loss in pieces, and fewer slots with it, come before anything is computed again.
"$planc" check "$top/plans/llama-8b.plan" --set cluster.nodes=1 --set mesh.fsdp=8 --set \
    batch.local=8 \
    --set activation_checkpoint.mode=none >combined.txt 2>&1
grep -q -- 'fits .*mode=budget --set batch.loss_chunks=8' combined.txt && ok repairs_combined ||
    fail repairs_combined "$(grep -A2 'repairs, each' combined.txt)"
# With one layer all computed again may take more than all kept: what fits as it is, is.
for layers in 1 2; do
    one=("$top/plans/demo.plan" --set model.layers=$layers --set batch.local=2 --json)
    none=$("$planc" check "${one[@]}" --set activation_checkpoint.mode=none |
        grep -o '"peak_bytes": [0-9]*' | head -n 1 | cut -d' ' -f2)
    "$planc" check "${one[@]}" --set activation_checkpoint.mode=budget --set \
        "activation_checkpoint.budget=${none}B" >budget.$layers.json 2>budget.err &&
        grep -q "\"peak_bytes\": $none" budget.$layers.json && ok budget_none_$layers ||
            fail budget_none_$layers "$(tail_of budget.err)"
done
"$planc" check open.plan --set batch.sequence=60000 --set batch.local=64 --set batch.global=1024 \
    --set cluster.device.memory=4GiB >none.txt 2>&1
[ $? -eq 2 ] && ok nothing_fits || fail nothing_fits "$(head -n 2 none.txt)"
for command in "build open.plan -o out" "run open.plan" "dump open.plan --after lower"; do
    "$planc" $command >refused.txt 2>&1
    [ $? -eq 1 ] && grep -q \
        'mesh.fsdp, mesh.prefetch, activation_checkpoint.mode, batch.local, batch.loss_chunks, optimizer.lr' \
        refused.txt \
        && ok "${command%% *}_names_the_open_keys" ||
        fail "${command%% *}_names_the_open_keys" "$(tail_of refused.txt)"
done
sed \
    's/mode = none | selective | full/mode = budget;  budget = 5GiB | 6GiB/; s/fsdp = 1 | 3 | 4 | 8/fsdp = 8/; s/lr = 1e-3 | 3e-4/lr = 1e-3/' \
    open.plan >open_budget.plan
"$planc" check open_budget.plan --json >open_budget.json 2>open_budget.err &&
    [ "$(ask count open_budget.json)" = 72 ] && ok budgets_as_alternatives ||
    fail budgets_as_alternatives "$(tail_of open_budget.err)"

# ── budgets ──
cat >too_much.plan <<'P'
use "models/llama.plan"
use "clusters/h100.plan"
plan "a budget larger than the device" {
    model llama { layers = 32;  hidden = 4096;  heads = 32;  ffn = 11008;  vocab = 32000 }
    cluster h100 { nodes = 8 }
    mesh { fsdp = 64 }
    activation_checkpoint { mode = budget;  budget = 200GiB }
    batch { sequence = 4096;  local = 8 }
}
P
"$planc" check too_much.plan >too_much.txt 2>&1
[ $? -eq 2 ] && grep -q -- '--set activation_checkpoint.mode=full' too_much.txt &&
    ok budget_over_the_device_is_repaired ||
    fail budget_over_the_device_is_repaired "$(tail_of too_much.txt)"
cat >budget.plan <<'P'
use "models/llama.plan"
use "clusters/cpu.plan"
plan "budget" {
    model llama { layers = 5;  hidden = 48;  heads = 6;  kv_heads = 2;  ffn = 101;  vocab = 97 }
    cluster cpu { }
    mesh { fsdp = 2 }
    batch { sequence = 24;  local = 4 }
    optimizer adamw { lr = 3e-3 }
    schedule constant { steps = 4 }
    data { train = "tokens.bin";  format = uint16 }
}
P
python3 -c "
import random, struct
random.seed(5)
open('tokens.bin', 'wb').write(struct.pack('<1000H', *(random.randrange(97) for _ in range(1000))))"
settings=(--set activation_checkpoint.mode=budget --set cluster.device.outside=0B)
"$planc" check budget.plan --json --set activation_checkpoint.mode=none --set \
    cluster.device.outside=0B >none.json
"$planc" check budget.plan --json --set activation_checkpoint.mode=full --set \
    cluster.device.outside=0B >full.json
most=$(ask peak none.json) least=$(ask peak full.json)
again() {
    "$planc" dump budget.plan --after recompute "${settings[@]}" --set \
        "activation_checkpoint.budget=${1}B" | grep -c ' again'
}
monotone=1 before=999999 within=1 last=
for part in 0 1 2 3 4 5 6 8 10; do
    budget=$((least + (most - least) * part / 10))
    "$planc" check budget.plan --json "${settings[@]}" --set \
        "activation_checkpoint.budget=${budget}B" >at.json 2>at.err ||
        { within=0; last=$(tail_of at.err); }
    [ "$(ask peak at.json)" -le "$budget" ] || { within=0 last="$(ask peak at.json) over $budget"; }
done
[ $within = 1 ] && ok peak_within_the_budget || fail peak_within_the_budget "$last"
# what is kept is the beginning of one list, so bytes saved never fall when the budget grows
saved() {
    "$planc" dump budget.plan --after memory "${settings[@]}" --set \
        "activation_checkpoint.budget=${1}B" |
        awk \
        '/^buffer .*kind="saved"/ { split($0, a, " bytes="); split(a[2], b, " "); split($0, c, " entries="); split(c[2], d, " "); s += b[1] * d[1] } END { print s + 0 }'
}
before=0
for part in 0 1 2 3 4 5 6 7 8 9 10; do
    now=$(saved $((least + (most - least) * part / 10)))
    [ "$now" -ge "$before" ] || monotone=0
    before=$now
done
[ $monotone = 1 ] && ok larger_budgets_keep_more || fail larger_budgets_keep_more "fell to $now"
[ "$(saved $((most * 2)))" -gt "$(saved "$least")" ] && ok a_budget_matters ||
    fail a_budget_matters "the same is kept"
launched() { # NAME settings…: trains and saves
    local name=$1
    shift
    "$planc" build budget.plan -o "$name" "$@" >"$name.log" 2>&1 &&
        launch 2 "$PWD/$name" --final "$name.safetensors" >>"$name.log" 2>&1 ||
        fail "trained.$name" "$(tail_of "$name.log")"
}
launched kept --set activation_checkpoint.mode=none
launched middle "${settings[@]}" --set \
    "activation_checkpoint.budget=$((least + (most - least) / 3))B"
launched tight "${settings[@]}" --set "activation_checkpoint.budget=${least}B"
for name in middle tight; do
    cmp -s kept.safetensors $name.safetensors && ok "same_bits.$name" ||
        fail "same_bits.$name" "the trained weights differ"
done

# a point's time is of its own engines and links, not of those of the first point
"$planc" check "$top/plans/llama-8b.plan" --json --set 'run.gemm=planc|cublaslt' \
    --set 'cluster.link.node.bandwidth=100GB/s|400GB/s' >engines.json 2>engines.err
for gemm in planc cublaslt; do
    for link in 100 400; do
        "$planc" simulate "$top/plans/llama-8b.plan" --json --set run.gemm=$gemm \
            --set cluster.link.node.bandwidth=${link}GB/s >engine.$gemm.$link.json 2>>engines.err
    done
done
said=$(python3 - <<'P' 2>&1
import json
points = json.load(open("engines.json"))["points"]
assert len(points) == 4
for p in points:
    chosen = dict(s.split("=") for s in p["set"])
    link = chosen["cluster.link.node.bandwidth"].removesuffix("GB/s")
    one = json.load(open(f"engine.{chosen['run.gemm']}.{link}.json"))["rungs"][0]
    assert p["step_seconds"] == one["step_seconds"], (p["set"], p, one["step_seconds"])
P
) && ok step_by_engine || fail step_by_engine "$said $(tail_of engines.err)"
