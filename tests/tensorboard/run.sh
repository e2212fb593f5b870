#!/usr/bin/env bash
# --tensorboard: event files hold the numbers of --metrics, under the same names, in the encoding of
# TFRecord and protobuf, as a reader of our own and TensorBoard's own (`make deps-peers`, or any
# python3 that has it) see them. A resumed run continues the curve; a full disk and a bad folder
# cost no weights.
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../lib/common.sh"
rm -rf "${scratch:?}"/*
cat >small.plan <<'PLAN'
use "models/qwen3_moe.plan"
use "clusters/cpu.plan"

plan "small" {
    model qwen3_moe {
        layers = 2;  hidden = 16;  heads = 2;  kv_heads = 1;  vocab = 64
        experts = 5;  top_k = 2;  expert_width = 8
    }
    cluster cpu { }
    mesh { fsdp = 2 }
    batch { sequence = 16;  local = 2 }
    optimizer adamw { lr = 1e-3 }
    schedule constant { steps = 6 }
    data { train = "tokens.bin";  validation = "tokens.bin";  format = uint16 }
    run { validate_every = 2;  validate_steps = 1;  timeout = 30s }
    checkpoint { directory = "saved";  every = 2 }
}
PLAN
python3 "$here/../faults/make.py" tokens tokens.bin 20001 64
"$planc" build small.plan -o two --device cpu >two.build 2>&1 || fail build "$(tail_of two.build)"
sed '/checkpoint {/d' small.plan >plain.plan
"$planc" build plain.plan -o one --device cpu --set mesh.fsdp=1 >one.build 2>&1 ||
    fail build_one "$(tail_of one.build)"

# run NAME RANKS STATUS [options]
run() {
    local name=$1 ranks=$2 want=$3 dir=two status
    [ "$ranks" -eq 1 ] && dir=one
    shift 3
    at_once timeout -k 5 60 mpirun -n "$ranks" --oversubscribe --bind-to none \
        ${limit:+bash -c "ulimit -f $limit; exec \"\$0\" \"\$@\""} $dir/trainer "$@" \
        >"$name.log" 2>&1 </dev/null
    status=$?
    [ $status -eq "$want" ] && return
    fail "$name" "exit $status, not $want: $(tail_of "$name.log")"
    return 1
}
holds() { # NAME CHECK…
    local name=$1 why
    shift
    if why=$("$@" 2>&1); then ok "$name"; else fail "$name" "$why"; fi
}
events() { python3 "$here/events.py" "$@"; }

# ── the numbers of --metrics, each once, also of a run that was resumed ──────────
run whole 2 0 --metrics m.jsonl --tensorboard deep/in/events --steps 5 --checkpoint-dir saved &&
    holds same_as_metrics events same deep/in/events m.jsonl
cp -r deep before
echo kept >deep/in/events/events.out.tfevents.1.other
rm -rf saved/step-00000005
printf 'torn' >>"$(echo deep/in/events/*.planc)"
run resumed 2 0 --metrics m.jsonl --tensorboard deep/in/events --checkpoint-dir saved &&
    grep -q '^trainer: \|resum' resumed.log && holds resumed events same deep/in/events m.jsonl
[ "$(cat deep/in/events/events.out.tfevents.1.other)" = kept ] && ok others_are_kept ||
    fail others_are_kept "a file of another program was changed"
[ "$(ls deep/in/events/*.planc | wc -l)" -eq 2 ] && ok a_file_a_process ||
    fail a_file_a_process "$(ls deep/in/events)"
run fresh 2 0 --metrics fresh.jsonl --tensorboard before/in/events --fresh --steps 3 \
    --checkpoint-dir saved_fresh

# ── TensorBoard's own reader ────────────────────────────────────────────────────
python=
for p in "$top/$BUILD/peers/bin/python3" "$top/build/peers/bin/python3" python3; do
    "$p" -c 'import tensorboard' 2>/dev/null && python=$p && break
done
if [ -n "$python" ]; then
    rm deep/in/events/events.out.tfevents.1.other
    holds reader "$python" "$here/reader.py" deep/in/events m.jsonl
    # the events of the run before are in the folder, and are dropped when the new ones begin
    holds reader_of_a_new_run "$python" "$here/reader.py" before/in/events fresh.jsonl
else
    for name in reader reader_of_a_new_run; do
        skip $name "tensorboard is not installed (make deps-peers)"
    done
fi

# ── a bad folder, a full disk ───────────────────────────────────────────────────
: >file
refused() { # NAME PATTERN [options]
    run "$1" 2 4 --fresh --checkpoint-dir "$1.saved" "${@:3}" || return
    [ "$(grep -c '^trainer:' "$1.log")" -eq 1 ] && grep -q "^trainer: .*$2" "$1.log" && ok "$1" ||
        fail "$1" "$(tail_of "$1.log")"
}
refused folder_is_a_file '--tensorboard file/sub: make file: \|--tensorboard file/sub: .*: Not a' \
    --tensorboard file/sub
refused no_such_folder '--tensorboard /proc/none: make /proc/none: ' --tensorboard /proc/none
limit=64 run full 1 4 --tensorboard full --final full.st --steps 200 &&
    grep -q '^trainer: .*--tensorboard full: File too large: files.*nothing of step [0-9]* and' \
    full.log && [ -s full.st ] && ok full_disk || fail full_disk "$(tail_of full.log)"
holds full_disk_leaves_whole_events events whole full
