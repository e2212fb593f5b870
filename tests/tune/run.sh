#!/usr/bin/env bash
# planc tune: the search against trying every point of ten spaces, its plan, its reasons, its JSON,
# and bad input.
. "$(cd "$(dirname "$0")" && pwd)/../lib/common.sh"
[ "$BUILD" = build-sanitize ] &&
    flags="-fsanitize=address,undefined -fno-sanitize-recover=undefined"
objects=$(ls "$top/$BUILD"/compiler/*/*.o | grep -v '/commands/')
if ! cc -std=c17 -g -O1 -Wall -Wextra ${flags:-} -I "$top/compiler" "$top/tests/tune/search.c" \
    $objects "$top/$BUILD"/gen/*.o -o search -ljansson -lm -ldl 2>build.err; then
    fail build "$(tail_of build.err)"
    exit 0
fi
plans=$top/plans

# ── the search finds what trying every point finds ──
: >factors
# same NAME PLAN SET…: with all that is simulated
same() {
    local said
    said=$(./search "${@:2}" 2>&1) && echo "$said" >>factors && ok "same_$1" ||
        fail "same_$1" "$(head -c 400 <<<"$said")"
}
modes='activation_checkpoint.mode=none|selective|full'
same reference "$plans/30b-a3b-512.plan"
same reference_rings "$plans/30b-a3b-512.plan" 'mesh.prefetch=0|1|3' 'mesh.reduce_slots=1|2' \
    'batch.local=2|8' 'mesh.fsdp=16|64'
same reference_reshard "$plans/30b-a3b-512.plan" 'mesh.reshard=forward|backward|step' \
    'batch.loss_chunks=1|8' 'batch.local=1|4' 'mesh.fsdp=8|32'
same slow_network "$plans/30b-a3b-512.plan" cluster.link.network.bandwidth=5GB/s
same fast_network "$plans/30b-a3b-512.plan" cluster.link.network.bandwidth=400GB/s
same little_memory "$plans/30b-a3b-512.plan" cluster.device.memory=48GiB
same dense "$plans/llama-8b.plan" 'mesh.fsdp=8|64|512' "$modes" 'batch.local=1|2' \
    'batch.loss_chunks=1|8' mesh.dp=auto
same odd_divisors "$plans/30b-a3b-16.plan" cluster.nodes=3 'mesh.fsdp=2|3|4|6|8|12|24' "$modes" \
    'batch.local=1|2|3|5' batch.global=720
same no_graphs "$plans/30b-a3b-16.plan" run.graph=off 'mesh.fsdp=8|16' "$modes" 'batch.local=1|2|4'
same processors "$plans/demo.plan" 'mesh.fsdp=1|2|4' 'mesh.dp=4/mesh.fsdp' batch.global=64 \
    "$modes" 'batch.local=1|2|4|8'
same small_mixture "$plans/moe-small.plan" 'mesh.fsdp=1|2' 'mesh.dp=2/mesh.fsdp' batch.global=24 \
    "$modes" 'batch.local=2|4|6'
said=$(awk '{ fit += $3; run += $5 } END { printf "%d %d", fit, run }' factors)
awk '{ exit !($2 > 0 && $1 > 2 * $2) }' <<<"$said" && ok saves_more_than_half ||
    fail saves_more_than_half "fit and simulated: $said"

# ── the command ──
reference=$plans/30b-a3b-512.plan
ask() { python3 -c "import json, sys; o = json.load(open(sys.argv[1])); $2" "$1" 2>&1; }
"$planc" tune "$reference" --json -o best.plan >best.json 2>best.err
said=$(ask best.json '
assert len(o["candidates"]) == 48 and all(c["reason"] for c in o["candidates"])
steps = [c["step_seconds"] for c in o["candidates"] if "step_seconds" in c]
best = o["best"]
assert best["step_seconds"] == min(steps) and best["devices"] == 512
assert best["verdict"] == "fits" and 0 < o["simulations"] < 48
assert {"mesh", "mfu", "tokens_per_second_per_device", "exposed_comm_seconds"} <= set(best)
for c in o["candidates"]:
    if "step_seconds" not in c and c["verdict"] != "exceeds":
        assert c["least_step_seconds"] > best["step_seconds"], c
') && ok json || fail json "$said $(tail_of best.err)"
[ "$(grep -c '^use\|#' best.plan)" = "$(grep -c '^use\|#' "$reference")" ] &&
    [ "$(diff best.plan "$reference" | grep -c '^<')" = 3 ] && ok plan_keeps_the_rest ||
    fail plan_keeps_the_rest "$(diff best.plan "$reference" | head -n 8)"
step=$("$planc" simulate best.plan --json 2>/dev/null |
    python3 -c 'import json, sys; print(json.load(sys.stdin)["rungs"][0]["step_seconds"])')
[ "$step" = "$(ask best.json 'print(o["best"]["step_seconds"])')" ] && ok plan_takes_as_long ||
    fail plan_takes_as_long "$step"
for i in 1 2; do "$planc" tune "$reference" | grep -v '^searched' >text.$i; done
cmp -s text.1 text.2 && [ -s text.1 ] && ok deterministic || fail deterministic "two texts differ"
grep -q 'exceeds by .* alive at once' text.1 && grep -q 'above the best: not simulated' text.1 &&
    grep -q 'slower by .*more' text.1 && ok reasons || fail reasons "$(tail_of text.1)"
"$planc" tune "$plans/demo.plan" --set batch.global=32 -o demo.plan >demo.txt 2>demo.err &&
    grep -q 'leaves nothing open' demo.txt && "$planc" check demo.plan >demo.check 2>&1 &&
    ok natural_choices || fail natural_choices "$(tail_of demo.err) $(tail_of demo.check)"
"$planc" tune "$plans/llama-8b.plan" --devices 64 --json >devices.json 2>devices.err
said=$(ask devices.json 'assert o["best"]["devices"] == 64
assert all(c["devices"] == 64 for c in o["candidates"])') && ok devices ||
    fail devices "$said $(tail_of devices.err)"

for devices in 16 512; do
    "$planc" tune "$plans/30b-a3b-$devices.plan" -o "found.$devices.plan" >found.txt 2>&1
    "$planc" format --write "found.$devices.plan" >>found.txt 2>&1
    diff <(grep -v '^#' "found.$devices.plan") \
        <(grep -v '^#' "$plans/30b-a3b-$devices-best.plan") >found.diff &&
        ok "library_best_$devices" || fail "library_best_$devices" "$(tail_of found.diff)"
done
"$planc" tune "$reference" --ladder 16,64,512 >ladder.txt 2>&1 &&
    grep -q 'who is best where' ladder.txt && grep -q '% of linear' ladder.txt &&
    grep -q 'impossible .*mesh.fsdp=64' ladder.txt && ok ladder ||
    fail ladder "$(tail_of ladder.txt)"

# ── bad input ──
# refused NAME STATUS PATTERN ARGUMENT…
refused() {
    local said status
    said=$("$planc" tune "${@:4}" 2>&1)
    status=$?
    [ $status = "$2" ] && grep -qE -- "$3" <<<"$said" && ok "$1" ||
        fail "$1" "status $status: $(head -c 400 <<<"$said")"
}
refused no_global 1 'gives no global batch' "$plans/demo.plan"
refused global_auto 1 'gives no global batch' "$reference" --set batch.global=auto
refused global_open 1 'batch.global is open' "$reference" --set 'batch.global=2048|4096'
refused mathematics_open 1 'optimizer.lr is open' "$reference" --set 'optimizer.lr=1e-3|3e-4'
refused cluster_open 1 'cluster.nodes is open' "$reference" --set 'cluster.nodes=32|64'
refused devices_differ 1 '--devices .* compares' "$plans/demo.plan" --set 'mesh.fsdp=1|2' \
    --set batch.global=32
refused nothing_fits 2 'nothing fits' "$reference" --set cluster.device.memory=2GiB
refused measure 3 "'--measure' is not available" "$reference" --measure
refused top_zero 3 'from 1 to 64' "$reference" --top 0
refused ladder_falls 3 'rising' "$reference" --ladder 64,16
refused no_whole_nodes 1 'no whole nodes' "$reference" --devices 20
refused output_nowhere 4 'nowhere' "$reference" -o /nowhere/best.plan
refused too_many 1 'close a key' "$reference" --set batch.loss_chunks=1..4096 \
    --set mesh.prefetch=0..8
