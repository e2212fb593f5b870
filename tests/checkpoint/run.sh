#!/usr/bin/env bash
# Is a resumed run the run that was not stopped? Runs that are cut at every step and go on, on the
# same mesh to the last digit, on others to the last bits; what is refused, and what is offered
# then.
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../lib/common.sh"
export LC_ALL=C
check() { python3 "$here/check.py" "$@" 2>&1; }
# holds NAME CHECK…: a check as a verdict
holds() {
    local name=$1 why
    shift
    if why=$(check "$@"); then ok "$name"; else fail "$name" "$why"; fi
}
build() { # DIR [settings]: from run.plan
    local dir=$1
    shift
    rm -rf "$dir"
    "$planc" build run.plan -o "$dir" --device cpu "$@" >"$dir.build" 2>&1
}
go() { # LOG RANKS DIR [options]: one run, its output in LOG.log
    local log=$1 ranks=$2 dir=$3
    shift 3
    timeout -k 5 120 mpirun -n "$ranks" --oversubscribe --bind-to none "$scratch/$dir/trainer" \
        "$@" >"$log.log" 2>&1 </dev/null
}
# says NAME STATUS PATTERN RANKS DIR [options]: it ends with that status and says that in one line
says() {
    local name=$1 want=$2 pattern=$3 status
    shift 3
    case $want in 0 | 75) go "$name" "$@" ;; *) at_once go "$name" "$@" ;; esac
    status=$?
    if [ $status -ne "$want" ]; then fail "$name" "exit $status, not $want: $(tail_of "$name.log")"
    elif [ "$want" -ne 0 ] && [ "$want" -ne 75 ] && [ "$(grep -c '^trainer:' "$name.log")" -ne 1 ]
    then fail "$name" "not one line: $(tail_of "$name.log")"
    elif ! grep -qE -- "$pattern" "$name.log"; then
        fail "$name" "does not say /$pattern/: $(grep '^trainer:' "$name.log" | cut -c1-300)"
    elif ! none_left "$scratch/$2"; then
        fail "$name" "processes left: $(survivors "$scratch/$2")"
        sweep "$scratch/$2"
    else ok "$name"; fi
}

cat >run.plan <<'PLAN'
use "models/llama.plan"
use "clusters/cpu.plan"

plan "to be resumed" {
    model llama { layers = 2;  hidden = 48;  heads = 4;  kv_heads = 2;  head_dim = 12
                  ffn = 64;  vocab = 257 }
    cluster cpu { }
    mesh { fsdp = 2 }
    batch { sequence = 32;  local = 2;  global = 8 }
    optimizer adamw { lr = 1e-3 }
    schedule cosine { steps = 12;  warmup = 3;  floor = 0.1 }
    data { train = "tokens.bin";  format = uint16;  order = shuffled }
    checkpoint { directory = "saved";  every = 4;  keep = 2 }
    run { timeout = 20s }
}
PLAN
# 50 samples an epoch, so epochs end within the run
python3 "$here/../faults/make.py" tokens tokens.bin 1601 257
rm -rf saved ./*.jsonl ./*.safetensors

# ── one run, uninterrupted ───────────────────────────────────────────────────
build two
go whole 2 two --metrics whole.jsonl --final whole.safetensors || fail whole "$(tail_of whole.log)"
holds whole.steps steps whole.jsonl 0 11
holds whole.sound sound saved/step-00000012
holds whole.state state saved/step-00000012 whole.safetensors
[ "$(ls saved | tr '\n' ' ')" = "lock step-00000008 step-00000012 " ] && ok whole.keep ||
    fail whole.keep "$(ls saved | tr '\n' ' ')"

# The script of docs/checkpoints.md reads it.
sed -n '/^```python$/,/^```$/p' "$top/docs/checkpoints.md" | grep -v '^```' >read.py
python3 read.py saved/step-00000012 model.embed_tokens.weight moment2 >read.log 2>&1
grep -q '^\[257, 48\] 12336 ' read.log && ok whole.read || fail whole.read "$(tail_of read.log)"

# ── cut at every step, resumed, cut again ────────────────────────────────────
rm -rf cut cut.jsonl
for k in $(seq 1 12); do
    go "cut_$k" 2 two --checkpoint-dir cut --metrics cut.jsonl --steps "$k" --final \
        cut.safetensors || fail "cut_$k" "$(tail_of "cut_$k.log")"
    [ "$k" -eq 1 ] || head -n 1 "cut_$k.log" | grep -q "^resumed: step $((k - 1)) of cut/step-" ||
        fail "cut_$k.first_line" "$(head -n 1 "cut_$k.log")"
done
holds cut.same same whole.jsonl cut.jsonl
cmp -s whole.safetensors cut.safetensors && ok cut.weights ||
    fail cut.weights "$(cmp whole.safetensors cut.safetensors 2>&1)"
holds cut.equal equal saved/step-00000012 cut/step-00000012
for part in 0 1; do
    cmp -s saved/step-00000012/part-0000$part.safetensors \
        cut/step-00000012/part-0000$part.safetensors && ok "cut.part_$part" ||
        fail "cut.part_$part" "other bytes"
done

# The log's end is of the whole run: what the eleven processes before have spent is in it.
line='^goodput: [0-9.]+ % of [0-9.]+ s since 20[0-9TZ:-]+ were steps; [0-9.]+ s to start, [0-9.]+ s '
line+='held up by saves, [0-9.]+ s lost or not running; the run was resumed 11 times$'
grep -qE "$line" cut_12.log && grep -qE '^goodput: .* s of this process were steps' cut_12.log &&
    ok goodput.lines || fail goodput.lines "$(grep '^goodput' cut_12.log | tr '\n' '|')"
why=$(python3 - <<'P'
import json
m = json.load(open("cut/step-00000012/manifest.json"))
steps = sum(json.loads(line)["step_seconds"] for line in open("cut.jsonl"))
if abs(m["spent"]["steps"] - steps) > 1e-3 or m["spent"]["starts"] <= 0:
    print(m["spent"], steps)
if [r[0] for r in m["data"]["read"]] != list(range(12)):
    print(m["data"])
P
) && [ -z "$why" ] && ok goodput.kept || fail goodput.kept "$why"
# Another build of the trainer: the same plan, so the log says it.
rm -rf again && cp -r two again && printf x >>again/trainer
says build.other 0 'of another build of the trainer: last bits may differ' 2 again \
    --checkpoint-dir cut
says build.same 0 'nothing is left to do' 2 two --checkpoint-dir cut
! grep -q 'another build' build.same.log && ok build.same_is_silent ||
    fail build.same_is_silent "$(grep build build.same.log)"

# ── on other meshes ──────────────────────────────────────────────────────────
# mesh_case NAME RANKS SETTINGS…: steps 0 to 5 by the trainer `base` on two ranks, the rest on
# another mesh, against BASE.jsonl, which is all on two
mesh_case() {
    local name=$1 ranks=$2
    shift 2
    build "mesh_$name" "$@"
    rm -rf "mesh_$name.saved" "mesh_$name.jsonl"
    if ! go "mesh_$name" 2 $base --checkpoint-dir "mesh_$name.saved" --metrics "mesh_$name.jsonl" \
        --steps 6; then
        fail "mesh.$name" "$(tail_of "mesh_$name.log")"
    elif ! go "mesh_$name" "$ranks" "mesh_$name" --checkpoint-dir "mesh_$name.saved" --metrics \
        "mesh_$name.jsonl"; then
        fail "mesh.$name" "$(tail_of "mesh_$name.log")"
    else
        holds "mesh.$name" near $base.jsonl "mesh_$name.jsonl" 1e-5
        holds "mesh.$name.sound" sound "mesh_$name.saved/step-00000012"
    fi
}
cp whole.jsonl two.jsonl
base=two
mesh_case one 1 --set mesh.fsdp=1
mesh_case four 4 --set mesh.fsdp=4
mesh_case replicas 4 --set mesh.dp=2 --set batch.local=1
mesh_case full 2 --set activation_checkpoint.mode=full --set mesh.prefetch=0 --set batch.local=1
mesh_case eight 8 --set mesh.fsdp=8 --set batch.local=1
build twelve --set batch.global=12
go twelve 2 twelve --checkpoint-dir twelve.saved --fresh --metrics twelve.jsonl ||
    fail twelve "$(tail_of twelve.log)"
base=twelve
mesh_case three 3 --set batch.global=12 --set mesh.fsdp=3
# the replicas' parts of the optimizer: into them, from them, and from some into others
base=two
mesh_case parts 4 --set mesh.dp=2 --set batch.local=1 --set mesh.optimizer=all
build cut --set mesh.fsdp=1 --set mesh.dp=2 --set mesh.optimizer=all
go cut 2 cut --checkpoint-dir cut.saved --fresh --metrics cut.jsonl --final cut.safetensors ||
    fail cut "$(tail_of cut.log)"
holds cut.near near two.jsonl cut.jsonl 1e-5
holds cut.state state cut.saved/step-00000012 cut.safetensors
base=cut
mesh_case from_parts 4 --set mesh.fsdp=4
[ -z "${LONG:-}" ] || mesh_case other_parts 4 --set mesh.dp=2 --set mesh.optimizer=all

# ── what is refused, how a run stops ─────────────────────────────────────────
build one --set mesh.fsdp=1 --set checkpoint.keep=1
. "$here/families.sh"
. "$here/refuse.sh"
. "$here/stops.sh"

# ── faults ───────────────────────────────────────────────────────────────────
build pair --set checkpoint.keep=1
. "$here/faults.sh"
