#!/usr/bin/env bash
# Ranks that do not run the same thing: another plan, other options, an old copy of data or weights
# on one host. Each is one line that names the rank, its host and the difference, and status 4; a
# launcher that deals ranks badly gets a warning. Several hosts are one machine: PLANC_HOST names
# them, and /proc/self/cwd is a disk of each host.
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../lib/common.sh"
small_plan small "layers = 2;  hidden = 16;  heads = 2;  kv_heads = 1;  ffn = 24;  vocab = 64" \
    "sequence = 16;  local = 2" \
    'schedule constant { steps = 3 }' \
    'data { train = "/proc/self/cwd/tokens.bin";  format = uint16 }'
python3 "$here/../faults/make.py" tokens tokens.bin 20001 64
built() { # DIR [settings]
    "$planc" build small.plan -o "$1" --device cpu "${@:2}" >"$1.build" 2>&1 ||
        fail "build_$1" "$(tail_of "$1.build")"
}
# judged NAME STATUS PATTERN: of NAME.log and `status`
judged() {
    local lines
    lines=$(grep -c '^trainer:' "$1.log")
    if [ "$status" -ne "$2" ]; then fail "$1" "exit $status, not $2: $(tail_of "$1.log")"
    elif [ "$lines" -ne "$([ "$2" -eq 0 ] && echo 0 || echo 1)" ]; then
        fail "$1" "$lines lines begin 'trainer:': $(tail_of "$1.log")"
    elif ! grep -qE "$3" "$1.log"; then fail "$1" "no /$3/: $(grep '^trainer:' "$1.log")"
    else ok "$1"; fi
}
# two NAME STATUS PATTERN A B: ranks 0 and 1 run the words of A and of B
two() {
    # shellcheck disable=SC2086
    timeout -k 5 60 mpirun --oversubscribe --bind-to none -n 1 $4 : -n 1 $5 >"$1.log" 2>&1 \
        </dev/null
    status=$?
    judged "$1" "$2" "$3"
}
built a
rm -rf copy && cp -a a copy
two same_program_in_two_places 0 'step +2 of 3' a/trainer copy/trainer
other() { # NAME PATTERN SETTINGS
    built "$1" "${@:3}"
    two "other_$1" 4 "^trainer: rank 1 on [^ ]*: does not run what rank 0 runs: $2" a/trainer \
        "$1/trainer"
}
other batch 'batch.local is 4, rank 0 has 2' --set batch.local=4
other rate 'optimizer.lr is 0.002.*, rank 0 has 0.001' --set optimizer.lr=2e-3
other seed 'init.seed is 7, rank 0 has 0' --set init.seed=7
other nonfinite 'run.nonfinite is 1, rank 0 has 0' --set run.nonfinite=skip
other width 'the number of parameters is' --set model.hidden=32
other mesh 'mesh.fsdp is 4, rank 0 has 2' --set mesh.fsdp=4
other clip 'the trainer \(another build of it\) differs' --set optimizer.clip=0.5
two other_steps 4 '^trainer: rank 1 on [^ ]*: .*: --steps is 5, rank 0 has 4' \
    'a/trainer --steps 4' 'a/trainer --steps 5'
two other_final 4 '^trainer: rank 1 on [^ ]*: .*: --final differs' 'a/trainer --final x' a/trainer
two wrong_option_of_one_rank 3 "^trainer: rank 1 on [^ ]*: unknown option" a/trainer \
    'a/trainer --stepz 5'

# ── files ────────────────────────────────────────────────────────────────────
mkdir -p here there
launch 2 a --steps 0 --final here/w.safetensors >w.log 2>&1 || fail weights "$(tail_of w.log)"
built from --set init.from=/proc/self/cwd/w.safetensors
# files NAME STATUS PATTERN TRAINER CHANGE: rank 1 has what python's CHANGE makes of the bytes t
# (tokens) and w (weights)
files() {
    cp tokens.bin here/
    python3 - "$5" <<'PY'
import os, sys
names = {"t": "tokens.bin", "w": "w.safetensors"}
scope = {n: bytearray(open("here/" + f, "rb").read()) for n, f in names.items()}
exec(sys.argv[1], scope)
for n, f in names.items():
    if os.path.exists("there/" + f): os.unlink("there/" + f)
    if scope[n] is not None: open("there/" + f, "wb").write(scope[n])
PY
    two "$1" "$2" "$3" "--wdir $scratch/here $scratch/$4/trainer" \
        "--wdir $scratch/there $scratch/$4/trainer"
}
files equal_files 0 'step +2 of 3' from pass
files data_missing 4 '^trainer: rank 1 on [^ ]*: /proc/self/cwd/tokens.bin: No such file' a \
    't = None'
files data_longer 4 \
    '^trainer: rank 1 on [^ ]*: data.train: .*tokens.bin has 40004 bytes, rank 0.s has 40002' a \
    't += bytes(2)'
files data_older 4 \
    '^trainer: rank 1 on [^ ]*: data.train: .*tokens.bin has 40002 bytes as rank 0.s, but other ones' \
    a 't = bytes(len(t))'
files data_end 4 '^trainer: rank 1 on [^ ]*: data.train: .*but other ones' a 't[-2] ^= 1'
files weights_missing 4 '^trainer: rank 1 on [^ ]*: .*w.safetensors: No such file' from 'w = None'
files weights_older 4 \
    '^trainer: rank 1 on [^ ]*: init.from: .*w.safetensors has .* but other ones' from \
    'for i in range(len(w) - 4000, len(w)): w[i] = 0'

# ── where ranks lie ──────────────────────────────────────────────────────────
built groups --set mesh.fsdp=2 --set mesh.dp=2
built wide --set mesh.fsdp=4
# hosts NAME WARNINGS TRAINER HOST...: one rank per word
hosts() {
    local name=$1 want=$2 dir=$3 words=() host
    shift 3
    for host; do words+=(${words:+:} -n 1 -x "PLANC_HOST=$host" "$dir/trainer"); done
    timeout -k 5 60 mpirun --oversubscribe --bind-to none "${words[@]}" >"$name.log" 2>&1 </dev/null
    status=$?
    if [ $status -ne 0 ]; then fail "$name" "exit $status: $(tail_of "$name.log")"
    elif [ "$(grep -c '^warning: ranks 0 to 1, an FSDP group, lie on 2 hosts' "$name.log")" -ne \
        "$want" ]; then fail "$name" \
        "$(grep -c '^warning: ranks' "$name.log") warnings, not $want: $(grep '^warning' \
        "$name.log")"
    else ok "$name"; fi
}
hosts ranks_dealt_in_turn 1 groups one two one two
hosts ranks_by_slot 0 groups one one two two
hosts group_wider_than_a_host 0 wide one one two two
