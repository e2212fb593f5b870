#!/usr/bin/env bash
# mesh.reshard: when a gathered unit is let go changes how often it is gathered and what that takes,
# and no bit of what is trained. Trainers of all three modes on several meshes, the gathers that a
# step issues, the peak that the trainer maps, and what a plan over its memory is offered.
. "$(cd "$(dirname "$0")" && pwd)/../lib/common.sh"
. "$top/tests/lib/training.sh"
python3 "$top/tests/faults/make.py" tokens tokens.bin 4097 96
plan() { # NAME USE MODEL
    cat >"$1.plan" <<P
use "models/$2.plan"
use "clusters/cpu.plan"
plan "$1" {
    model $2 { $3 }
    cluster cpu { }
    batch { sequence = 16;  global = 16 }
    optimizer adamw { lr = 1e-3;  clip = 1.0 }
    schedule constant { steps = 3 }
    data { train = "tokens.bin";  format = uint16 }
}
P
}
plan dense llama "layers = 3; hidden = 32; heads = 4; kv_heads = 2; ffn = 48; vocab = 96; tied = on"
plan sparse qwen3_moe "layers = 3; hidden = 32; heads = 4; kv_heads = 2; head_dim = 8; vocab = 96
    experts = 4; top_k = 2; expert_width = 16; dense_layers = [1]; ffn = 48; tied = off"

# same NAME PLAN FSDP.DP.ACCUMULATION.MODE.FUSION [--set ...]
same() {
    local name=$1 plan=$2 variant=$3 mode why
    shift 3
    for mode in forward backward step; do
        mkdir -p "$name.$mode"
        (
            cd "$name.$mode" || exit
            ln -sf ../tokens.bin .
            variant_build "../$plan.plan" 16 "$variant" --set "mesh.reshard=$mode" "$@"
            variant_run "$variant"
        ) >"$name.$mode.why" 2>&1 || { fail "$name.$mode" "$(cat "$name.$mode.why")"; return; }
    done
    for mode in backward step; do
        variants_equal "bits.$name.$mode" "$name.forward/$variant" "$name.$mode/$variant"
        # what was laid out is what was mapped
        grep -qE 'mapped|arena' "$name.$mode/$variant.log" && ok "peak.$name.$mode" ||
            fail "peak.$name.$mode" "$(tail_of "$name.$mode/$variant.log")"
    done
}
same fsdp2 dense 2.1.2.none.on
same hsdp dense 2.2.2.full.on --set mesh.prefetch=2
same bf16 dense 1.1.4.none.on --set precision.compute=bf16
same chunks dense 2.1.1.selective.off --set batch.loss_chunks=2
same sparse sparse 4.1.2.none.on --set mesh.prefetch=0
if [ -n "${LONG:-}" ]; then
    same parts dense 2.2all.1.none.on
    same parts_added sparse 2.2all.2.full.on --set mesh.prefetch=2
    same parts_bf16 sparse 1.2all.1.none.on --set precision.compute=bf16
fi

# ── gathers of a step, by the trace device: three layers, what is before and what is after them ──
# count NAME WANTED MODE [--set ...]
count() {
    local name=$1 want=$2 mode=$3 got
    shift 3
    "$planc" build dense.plan -o "$name" --device trace --set "mesh.reshard=$mode" --set \
        mesh.fsdp=2 "$@" >"$name.build" 2>&1 || { fail "$name" "$(tail_of "$name.build")"; return; }
    got=$("$name/trainer" --steps 1 2>/dev/null | grep -cE '(^| )gather( |$)')
    [ "$got" = "$want" ] && ok "$name" || fail "$name" "$got gathers, not $want"
}
# Tied: the unit before the layers is read after them too. forward: a gather for every use, the
# layers twice, except those that the backward loop finds in the forward loop's slots: as many as
# run ahead, at least one, at most all; backward: each unit once per micro-batch; step: once.
three=(--set batch.local=4 --set batch.global=24)
count gathers.forward.1 8 forward --set batch.local=8
count gathers.backward.1 5 backward --set batch.local=8
count gathers.step.1 5 step --set batch.local=8
# (the first layers are still there in the second and the third micro-batch)
count gathers.forward.3 22 forward "${three[@]}"
count gathers.forward.3.prefetch2 17 forward "${three[@]}" --set mesh.prefetch=2
count gathers.forward.prefetch0 8 forward --set batch.local=8 --set mesh.prefetch=0
count gathers.forward.prefetch2 7 forward --set batch.local=8 --set mesh.prefetch=2
count gathers.forward.prefetch9 6 forward --set batch.local=8 --set mesh.prefetch=9
count gathers.forward.chunks 8 forward --set batch.local=8 --set batch.loss_chunks=4
count gathers.forward.one_layer 4 forward --set batch.local=8 --set model.layers=1
count gathers.backward.3 15 backward "${three[@]}"
count gathers.step.3 5 step "${three[@]}"

# Layers of two kinds share slots; another loop between forward and backward loop needs the bytes.
"$planc" build sparse.plan -o kinds --device trace --set mesh.fsdp=2 --set batch.local=8 \
    >kinds.build 2>&1 && got=$(kinds/trainer --steps 1 2>/dev/null | grep -cE '(^| )gather( |$)')
[ "$got" = 7 ] && ok gathers.kinds ||
    fail gathers.kinds "$got gathers, not 7: $(tail_of kinds.build)"

# ── memory: a slot an instance, and a repair that gives them back ──
slots() { "$planc" dump dense.plan --after memory --set mesh.fsdp=2 --set batch.local=8 --set \
    "mesh.reshard=$1" --set model.layers=24 | grep '^buffer gather.layers.* kind="gathered"' |
    grep -oE 'entries=[0-9]+' | tr '\n' ' '; }
[ "$(slots forward)" = "entries=2 " ] && [ "$(slots backward)" = "entries=24 " ] &&
    [ "$(slots step)" = "entries=24 " ] && ok slots ||
    fail slots "$(slots forward)/ $(slots backward)/ $(slots step)"
wide=(--set mesh.fsdp=2 --set batch.local=8 --set model.layers=24 --set model.hidden=512)
peak() { "$planc" check dense.plan --json "${wide[@]}" --set "mesh.reshard=$1" |
    grep -m 1 -oE '"peak_bytes": *[0-9]+' | grep -oE '[0-9]+'; }
memory=$(($(peak forward) * 105 / 100)) # enough when layers are let go, not when they are kept
"$planc" check dense.plan "${wide[@]}" --set mesh.reshard=step --set \
    "cluster.device.memory=$((memory >> 20))MiB" >repair.log 2>&1
[ $? -eq 2 ] && grep -q -- '--set mesh.reshard=forward' repair.log && ok repair ||
    fail repair "$(tail_of repair.log)"
# a point of a space takes what the same plan alone takes
"$planc" check dense.plan --json --set mesh.fsdp=2 --set 'mesh.reshard=forward | backward | step' \
    --set 'batch.local=2 | 4' >space.json 2>space.err
why=$(python3 - "$planc" <<'P'
import json, subprocess, sys
points = json.load(open("space.json"))
points = points[0]["points"] if isinstance(points, list) else points["points"]
for p in points:
    one = ["--set=mesh.fsdp=2"] + [f"--set={s}" for s in p["set"]]
    words = [w for s in ["mesh.fsdp=2"] + p["set"] for w in ("--set", s)]
    alone = json.loads(subprocess.run([sys.argv[1], "check", "dense.plan", "--json", *words],
                                      capture_output=True, text=True).stdout)
    alone = alone[0] if isinstance(alone, list) else alone
    if alone["peak_bytes"] != p["peak_bytes"]:
        sys.exit(f"{p['set']}: {p['peak_bytes']} in the space, {alone['peak_bytes']} alone")
if len(points) != 6:
    sys.exit(f"{len(points)} points")
P
) 2>&1 && ok space || fail space "$why $(tail_of space.err)"
