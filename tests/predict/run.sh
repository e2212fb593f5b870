#!/usr/bin/env bash
# Predictions (compiler/predict, planc simulate): the engine against closed forms and against the
# laws that every run keeps; the command's report against itself and against its trace; what a
# cluster does not say; bad input.
. "$(cd "$(dirname "$0")" && pwd)/../lib/common.sh"
[ "$BUILD" = build-sanitize ] &&
    flags="-fsanitize=address,undefined -fno-sanitize-recover=undefined"
objects=$(ls "$top/$BUILD"/compiler/*/*.o | grep -vE 'compiler/(commands|analysis|search|report)/')
if ! cc -std=c17 -g -O1 -Wall -Wextra ${flags:-} -I "$top/compiler" "$top/tests/predict/engine.c" \
    $objects "$top/$BUILD"/gen/*.o -o engine -ljansson -lm -ldl 2>build.err; then
    fail build "$(tail_of build.err)"
    exit 0
fi

cc -std=c17 -g -O1 -Wall -Wextra ${flags:-} -I "$top/compiler" "$top/tests/predict/points.c" \
    $objects "$top/$BUILD"/gen/*.o -o points -ljansson -lm -ldl 2>points.err ||
    fail build_points "$(tail_of points.err)"

# holds NAME ARGUMENT…: the engine's checks say nothing
# the programs of engine.c live until it ends
holds() {
    local said
    said=$(ASAN_OPTIONS=${ASAN_OPTIONS:-}:detect_leaks=0 ./engine "${@:2}" 2>&1) && ok "$1" ||
        fail "$1" "${said:-died}"
}
# refused NAME STATUS PATTERN ARGUMENT…: simulate ends so, and says so
refused() {
    local said status
    said=$("$planc" simulate "${@:4}" 2>&1)
    status=$?
    [ $status = "$2" ] && grep -qE -- "$3" <<<"$said" && ok "$1" ||
        fail "$1" "status $status: $said"
}

holds closed_forms hand

# ── laws, for plans of the library and their variants ──
plans=$top/plans
holds demo "$plans/demo.plan"
holds demo_dp "$plans/demo.plan" mesh.fsdp=2 mesh.dp=2 batch.global=32
holds demo_alone "$plans/demo.plan" mesh.fsdp=1
holds demo_bf16 "$plans/demo.plan" precision.compute=bf16 activation_checkpoint.mode=full
holds moe_small "$plans/moe-small.plan"
holds moe_dense_between "$plans/moe-small.plan" model.layers=9 'model.dense_layers=[0,2,4,6,8]'
holds moe_accumulation "$plans/moe-small.plan" batch.global=36 batch.loss_chunks=4
holds gpt2 "$plans/gpt2-124m.plan"
holds llama_8b "$plans/llama-8b.plan"
holds qwen3_30b "$plans/qwen3-30b-a3b.plan"
for mode in none selective full; do
    holds "reference_16_$mode" "$plans/30b-a3b-16.plan" activation_checkpoint.mode=$mode
done
for fsdp in 8 64 512; do
    holds "reference_512_$fsdp" "$plans/30b-a3b-512.plan" mesh.fsdp=$fsdp batch.local=2 \
        activation_checkpoint.mode=selective batch.loss_chunks=4
done
holds reference_no_prefetch "$plans/30b-a3b-16.plan" mesh.prefetch=0 mesh.reduce_slots=1
holds parts_ahead "$plans/gpt2-124m.plan" mesh.optimizer=all mesh.prefetch=2
holds reference_far_ahead "$plans/30b-a3b-16.plan" mesh.prefetch=3 mesh.reduce_slots=3
holds every_second_layer "$plans/30b-a3b-16.plan" activation_checkpoint.every=2
holds gathered_once "$plans/30b-a3b-16.plan" mesh.reshard=step batch.local=2
holds slow_network "$plans/30b-a3b-16.plan" cluster.link.network.bandwidth=1GB/s
holds no_graphs "$plans/30b-a3b-16.plan" run.graph=off
holds odd_nodes "$plans/30b-a3b-16.plan" cluster.nodes=3 cluster.devices_per_node=4 mesh.fsdp=6 \
    batch.global=480

for local in 2 8; do # gradients that accumulate, and one micro-batch
    holds "parts_$local" "$plans/30b-a3b-512.plan" mesh.optimizer=all mesh.fsdp=8 \
        batch.local=$local activation_checkpoint.mode=none
done
holds parts_slow "$plans/30b-a3b-512.plan" mesh.optimizer=all mesh.fsdp=8 batch.local=8 \
    activation_checkpoint.mode=none mesh.reduce_slots=1 cluster.link.network.bandwidth=5GB/s
holds parts_cpu "$plans/demo.plan" mesh.optimizer=all mesh.dp=2 batch.global=32

# ── points of spaces, each against its own compilation ──
# same NAME PLAN SET…
same() { local said; said=$(./points "${@:2}" 2>&1) && ok "$1" || fail "$1" "${said:-died}"; }
same points_reference "$plans/30b-a3b-512.plan"
same points_rings "$plans/30b-a3b-512.plan" mesh.fsdp=16 'mesh.prefetch=0|1|3' \
    'mesh.reduce_slots=1|2' 'batch.loss_chunks=1|4|8' 'batch.local=1|4'
same points_mixture "$plans/moe-small.plan" 'mesh.fsdp=1|2|3' 'mesh.dp=1|2' 'batch.local=4|6' \
    batch.global=72 'batch.loss_chunks=1|4' precision.compute=bf16
same points_dense "$plans/demo.plan" 'mesh.fsdp=1|2|4' 'batch.local=2|8' batch.global=32 \
    'activation_checkpoint.mode=none|selective|full'
same points_reshard "$plans/30b-a3b-512.plan" 'mesh.fsdp=8|16' activation_checkpoint.mode=none \
    'mesh.reshard=forward|backward|step' 'batch.local=1|8' 'batch.loss_chunks=1|8'
same points_parts "$plans/30b-a3b-512.plan" 'mesh.optimizer=shard|all' 'mesh.fsdp=8|64|512' \
    activation_checkpoint.mode=none 'batch.local=1|4|8' 'mesh.reshard=forward|step'
same points_parts_cpu "$plans/moe-small.plan" mesh.optimizer=all 'mesh.fsdp=1|2|3' \
    'mesh.dp=1|2|3' 'batch.local=2|4' batch.global=72 precision.compute=bf16
# one sequence has as many tokens as the model has positions, or as the vocabulary has entries
same points_positions "$plans/gpt2-124m.plan" 'batch.local=1|2|4' batch.global=auto
same points_vocabulary "$plans/demo.plan" 'batch.local=1|2|4' 'batch.loss_chunks=1|2' \
    batch.global=32
same points_hybrid "$plans/llama-8b.plan" 'mesh.fsdp=8|64|512' 'batch.loss_chunks=1|8'
# Where sizes coincide a point has other kernels, and is what simulate says of it all the same; and
# what the architecture refuses is no point.
coincide() { # KEY=VALUE…: every possible point of five local batches
    local set=("$top/tests/predict/coincide.plan" --json) w
    for w in "$@"; do set+=(--set "$w"); done
    "$planc" check "${set[@]}" --set 'batch.local=1|2|3|4|8' >coincide.json 2>coincide.err || return
    for w in 1 2 3 4 8; do
        "$planc" simulate "${set[@]}" --set batch.local=$w >coincide.$w.json 2>coincide.err
    done
    python3 - <<'PY'
import json
possible = []
for p in json.load(open("coincide.json"))["points"]:
    local = p["set"][0].split("=")[1]
    one = json.load(open(f"coincide.{local}.json"))
    assert ("rungs" in one) == ("step_seconds" in p), (p, one)
    if "rungs" not in one:
        continue
    r = one["rungs"][0]
    assert (p["step_seconds"], p["peak_bytes"]) == (r["step_seconds"], r["peak_bytes"]), (p, r)
    possible.append(local)
assert possible == ["2", "4", "8"], possible
PY
}
said=$(coincide batch.loss_chunks=1 2>&1 && coincide batch.loss_chunks=8 2>&1) &&
    ok points_that_coincide ||
    fail points_that_coincide "$(tail -n 3 <<<"$said" | head -c 500) $(tail_of coincide.err)"

# ── the command ──
# gathers NAME: of layers, in a step of eight micro-batches
gathers() {
    "$planc" simulate "$plans/30b-a3b-512.plan" --set mesh.fsdp=16 --set batch.local=1 \
        --set activation_checkpoint.mode=none --set mesh.reshard="$1" --json | python3 -c '
import json, sys
print(sum(c["count"] for c in json.load(sys.stdin)["rungs"][0]["collectives"]
          if c["name"] == "gather layers"))'
}
# the last layer lies in its slot from the forward pass, and the first one from the micro-batch
# before: 48 + 47, then seven times 47 + 47
said="$(gathers forward) $(gathers backward) $(gathers step)"
[ "$said" = "753 384 48" ] && ok gathers_by_reshard || fail gathers_by_reshard "$said"
for plan in demo moe-small gpt2-124m llama-8b qwen3-30b-a3b 30b-a3b-16; do
    "$planc" simulate "$plans/$plan.plan" --json >report.json 2>report.err &&
        python3 "$top/tests/predict/report.py" report.json >report.out 2>&1 && ok "report_$plan" ||
        fail "report_$plan" "$(tail_of report.err) $(tail_of report.out)"
done
"$planc" simulate "$plans/llama-8b.plan" --set cluster.nodes=2 --set mesh.fsdp=8 --set mesh.dp=2 \
    --set batch.global=16 --set batch.local=1 --json >tail.json 2>tail.err
said=$(python3 "$top/tests/predict/tail.py" tail.json 2>&1) && ok tail || fail tail "$said"
# the longest names and regions leave the columns where they are
"$planc" simulate "$plans/30b-a3b-16-best.plan" --set mesh.fsdp=8 --set mesh.optimizer=all >wide.txt
said=$(awk '/^collectives/ { on = 1; next } /^what/ { on = 0 }
    on { at[index($0, " x  ")]++ } END { for (k in at) n++; print n + 0, at[0] + 0 }' wide.txt)
[ "$said" = "1 0" ] && ok columns || fail columns "$said: $(grep -m2 'over replicas' wide.txt)"
# four ranks on two cores are said to be predicted too fast, two are not
for ranks in 2 4; do
    cores=(--set mesh.fsdp=$ranks --set batch.global=$((4 * ranks)) --set cluster.cores=2)
    "$planc" simulate "$plans/demo.plan" "${cores[@]}" >cores.$ranks.txt 2>cores.err
    "$planc" simulate "$plans/demo.plan" "${cores[@]}" --json >cores.$ranks.json 2>>cores.err
done
grep -q '^too fast: 4 ranks of a host take turns on 2 cores' cores.4.txt &&
    ! grep -q '^too fast' cores.2.txt && grep -q '"ranks_a_core": 2.0' cores.4.json &&
    ! grep -q ranks_a_core cores.2.json && ok cores || fail cores "$(tail_of cores.err)"
reference=$plans/30b-a3b-16.plan
"$planc" simulate "$plans/moe-small.plan" --set batch.global=8 --trace step.json --json >traced.json
said=$(python3 "$top/tests/predict/trace.py" traced.json step.json 2>&1) && ok trace ||
    fail trace "$said"
"$planc" simulate "$reference" --devices 8,16,20,64,512 --json >curve.json
said=$(python3 - curve.json <<'P' 2>&1
import json, sys
o = json.load(open(sys.argv[1]))
r = o["rungs"]
assert o["scaling"] == "strong"
assert [x["devices"] for x in r] == [8, 16, 20, 64, 512]
none = [r.pop(2), r.pop(0)]
assert [x["verdict"] for x in none] == ["impossible"] * 2 and all(x["reason"] for x in none)
assert [x["mesh"]["dp"] for x in r] == [1, 4, 32] and {x["mesh"]["fsdp"] for x in r} == {16}
assert {x["global"] for x in r} == {4096} and r[0]["scaling_efficiency"] == 1
assert 1 > r[1]["scaling_efficiency"] > r[2]["scaling_efficiency"] > 0.5
P
) && ok curve || fail curve "$said"
"$planc" simulate "$reference" --devices 16,32 --scaling weak --json >weak.json
said=$(python3 - weak.json <<'P' 2>&1
import json, sys
o = json.load(open(sys.argv[1]))
assert o["scaling"] == "weak" and [x["global"] for x in o["rungs"]] == [4096, 8192]
P
) && ok weak || fail weak "$said"
"$planc" simulate "$reference" --json >a.json
"$planc" simulate "$reference" --json >b.json
cmp -s a.json b.json && ok deterministic || fail deterministic "two reports differ"

step_of() {
    python3 -c 'import json, sys; print(json.load(sys.stdin)["rungs"][0]["step_seconds"])'
}
slow=$("$planc" simulate "$reference" --set cluster.efficiency.gemm=0.3 --json | step_of)
fast=$(step_of <a.json)
awk -v a="$slow" -v b="$fast" 'BEGIN { exit !(a > b * 1.05) }' && ok set_efficiency ||
    fail set_efficiency "$slow against $fast"

# Fewer blocks of NCCL leave more to compute and fill less of a link: of a gather, latency and what
# the narrower of the link and the blocks lets through.
for blocks in '' 32 8 4 2 1; do
    "$planc" simulate "$plans/llama-8b.plan" ${blocks:+--set run.nccl_blocks=$blocks} \
        --json >blocks.${blocks:-none}.json 2>>blocks.err
done
said=$(python3 - <<'P' 2>&1
import json
of = {b: json.load(open(f"blocks.{b}.json"))["rungs"][0] for b in ("none", 32, 8, 4, 2, 1)}
gather = {b: r["collectives"][0]["seconds"] for b, r in of.items()}
assert gather["none"] == gather[32] < gather[8] < gather[4] < gather[2] < gather[1], gather
ratio = (gather[1] - gather[2]) / (gather[2] - gather[4])
assert abs(ratio - 2) < 1e-6, ratio
assert of[8]["step_seconds"] < of["none"]["step_seconds"] < of[1]["step_seconds"]
rests = {b: {x["name"]: x["seconds"] for x in r["rates"]} for b, r in of.items()}
assert rests[1]["contention"] > 10 * rests[1].get("link network", 0), rests[1]
P
) && ok blocks || fail blocks "$said $(tail_of blocks.err)"
sed 's/;  block = [0-9.]*GB.s//' "$plans/clusters/h100.plan" |
    sed "s#\.\./rates#$plans/rates#" >unsaid.plan
said=$("$planc" check "$plans/llama-8b.plan" --cluster unsaid.plan --set run.nccl_blocks=8 2>&1)
grep -q 'run.nccl_blocks takes from the bandwidth of collectives is not predicted' <<<"$said" &&
    ! "$planc" check "$plans/llama-8b.plan" --set run.nccl_blocks=8 2>&1 |
    grep -q 'not predicted' && ok blocks_unsaid || fail blocks_unsaid "$said"

# ── what is not there, and bad input ──
cat >bare.plan <<'P'
cluster bare {
    devices_per_node = 8
    device "somebody's" { kind = cuda;  arch = "sm_90a";  memory = 80GiB }
}
P
refused no_rates 1 'not say how fast it is: .*cluster.device.bandwidth.*efficiency gemm cublaslt' \
    "$reference" --cluster bare.plan
cat >two.plan <<'P'
cluster one { device "x" { kind = cuda;  memory = 80GiB } }
cluster two { device "y" { kind = cuda;  memory = 80GiB } }
P
# sums of picoseconds would leave 64 bits
for slow in link.network.bandwidth=1B/s device.bandwidth=1B/s efficiency.gemm=1e-9 jitter=1e6 \
    host.step=100000h; do
    refused "slow_${slow%%=*}" 1 'a step takes less than 11 days' "$plans/30b-a3b-16-best.plan" \
        --set cluster.$slow
done
refused slow_batch 1 'a step takes less than 11 days' "$plans/30b-a3b-16-best.plan" --set \
    batch.global=409600000
refused two_clusters 1 'a file of one cluster' "$reference" --cluster two.plan
refused cluster_not_there 4 'cannot read' "$reference" --cluster nowhere.plan
refused space 1 'leaves mesh.fsdp, .* open' "$plans/30b-a3b-512.plan"
refused space_to_tune 1 'planc tune .*30b-a3b-512.plan` compares them' "$plans/30b-a3b-512.plan"
# one reader of such lists, whatever the command and the option
lists=
refuses_lists() { # COMMAND OPTION ARGUMENT…
    local list said status
    for list in 0 -1 16, ,16 many '' 16,16 64,16 1048577 "$(seq -s, 33)"; do
        said=$("$planc" "$1" "$reference" "${@:3}" "$2" "$list" 2>&1)
        status=$?
        [ $status = 3 ] && [ "$said" = "planc: $2 takes rising numbers of devices, 16,64,512, \
at most 32, up to 1,048,576; not '$list'" ] || lists="$1 $2 '$list': status $status, $said"
    done
}
refuses_lists simulate --devices
refuses_lists report --devices -o refused.html
refuses_lists tune --ladder
[ -z "$lists" ] && ok lists_of_devices || fail lists_of_devices "$lists"
refused scaling_word 3 'strong or weak' "$reference" --devices 16 --scaling sideways
refused none_possible 2 'impossible' "$reference" --devices 24
refused trace_nowhere 4 'No such file' "$plans/demo.plan" --trace /nowhere/x.json
refused no_such_row 1 'no row cluster.efficiency.gem' "$reference" --set cluster.efficiency.gem=1
cat >other.plan <<'P'
cluster other {
    devices_per_node = 4
    device "y" { kind = cuda;  arch = "sm_90a";  memory = 180GiB }
}
P
said=$("$planc" check "$reference" --cluster other.plan --set mesh.fsdp=8 --json |
    python3 -c 'import json, sys; print(json.load(sys.stdin)["devices"])')
[ "$said" = 8 ] && ok nodes_still_count || fail nodes_still_count "$said devices, not 2 nodes of 4"

# ── the durations of a run in the place of the predicted ones ────────────────
cat >durations.plan <<P
use "$plans/models/llama.plan"
use "$plans/clusters/cpu.plan"

plan "durations" {
    model llama { layers = 2;  hidden = 32;  heads = 2;  ffn = 64;  vocab = 256 }
    cluster cpu { host { step = 10s } }
    mesh { fsdp = 2 }
    batch { sequence = 32;  local = 2;  global = 8 }
    optimizer adamw { lr = 1e-3 }
    schedule constant { steps = 6 }
    data { train = "$plans/demo.plan";  format = bytes }
}
P
"$planc" build durations.plan -o durations >durations.build 2>&1
OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout 60 mpirun -n 2 --oversubscribe \
    --bind-to none durations/trainer --profile 4 --profile-out run.json >durations.log 2>&1
# no machine takes 10 s between such steps, and one step says little
OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout 60 mpirun -n 2 --oversubscribe \
    --bind-to none durations/trainer --steps 2 >short.log 2>&1
grep -q 'so far off .* planc calibrate' durations.log && grep -q 'predicted 10[0-9]*\.' short.log &&
    ! grep -q 'planc calibrate' short.log && ok far_off ||
    fail far_off "$(grep speed durations.log short.log)"
"$planc" simulate durations.plan --durations run.json --json >durations.json 2>durations.err
said=$(python3 - durations.json run.json <<'P' 2>&1
import json, sys
rung, run = json.load(open(sys.argv[1])), json.load(open(sys.argv[2]))
d, r = rung["durations"], rung["rungs"][0]
assert d["step_seconds"] == run["mean_step_seconds"]
assert d["simulated_step_seconds"] == r["step_seconds"]
kernels = sum(k["calls"] * k["mean_seconds"] for k in run["kernels"])
classes = sum(c["measured"] for c in d["classes"].values())
assert abs(classes / kernels - 1) < 1e-6, (classes, kernels)
assert {c["micro"] for c in run["collectives"] if c["kind"] == "reduce"} == {"first", "last"}
assert r["step_seconds"] >= kernels and not r["extrapolated"]
# step by step the engine is right also where ranks wait for each other on a busy machine
steps = [s["step_seconds"] for s in run["replay"]]
assert len(steps) == run["steps"] and abs(sum(steps) / len(steps) / d["step_seconds"] - 1) < 1e-6
assert all(len(s["kernels"]) == len(run["order"]) for s in run["replay"])
assert abs(r["step_seconds"] / d["step_seconds"] - 1) < 0.01, (r["step_seconds"], d["step_seconds"])
parts = classes + sum(r["other"].values()) + r["exposed_comm_seconds"]
assert abs(parts / r["step_seconds"] - 1) < 1e-6, (parts, r["step_seconds"])
P
) && ok durations || fail durations "$said $(tail_of durations.err) $(tail_of durations.log)"
refused durations_mesh 3 'fsdp = 2, the plan has 1' durations.plan --durations run.json \
    --set mesh.fsdp=1 --set batch.global=8
refused durations_other 3 'of another plan' durations.plan --durations run.json --set model.layers=1
refused durations_none 4 'cannot read' durations.plan --durations nowhere.json
echo '{"planc_profile": 1}' >empty.json
refused durations_empty 3 'no file of --profile-out' durations.plan --durations empty.json
refused durations_devices 3 'one run' durations.plan --durations run.json --devices 2,4

# ── how often to save: sqrt(2 x stall x time between failures) ───────────────
"$planc" simulate "$top/plans/llama-8b.plan" --failures 3.1h --stall 2s --json >saving.json 2>&1 &&
    python3 -c '
import json, sys
c = json.load(open(sys.argv[1]))["checkpoints"]
want = (2 * 2 * 3.1 * 3600) ** 0.5
assert abs(c["interval_seconds"] - want) < 1e-6 * want, c
assert abs(c["lost_fraction"] - 4 / want) < 1e-6 and c["bytes"] == 12 * 8030261248, c
' saving.json 2>saving.why && ok saving || fail saving "$(tail_of saving.why)"
"$planc" simulate "$top/plans/llama-8b.plan" --failures 3.1h >saving.log 2>&1
[ $? -eq 3 ] && grep -q 'go together' saving.log && ok saving_half ||
    fail saving_half "$(tail_of saving.log)"
"$planc" simulate "$top/plans/llama-8b.plan" --failures 3 --stall 2s >saving.log 2>&1
[ $? -eq 3 ] && grep -q "^planc: --failures takes a time, .*, not '3'$" saving.log &&
    ok saving_time || fail saving_time "$(tail_of saving.log)"
