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
# two NAME STATUS PATTERN A B: ranks 0 and 1 run the words of A and of B
two() {
    # shellcheck disable=SC2086
    at_once timeout -k 5 60 mpirun --oversubscribe --bind-to none -n 1 $4 : -n 1 $5 >"$1.log" \
        2>&1 </dev/null
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
other nonfinite 'run.nonfinite is skip, rank 0 has stop' --set run.nonfinite=skip
other width 'the number of parameters is' --set model.hidden=32
other mesh 'mesh.fsdp is 4, rank 0 has 2' --set mesh.fsdp=4
other clip 'the trainer \(another build of it\) differs' --set optimizer.clip=0.5
two other_steps 4 '^trainer: rank 1 on [^ ]*: .*: --steps is 5, rank 0 has 4' \
    'a/trainer --steps 4' 'a/trainer --steps 5'
two other_final 4 '^trainer: rank 1 on [^ ]*: .*: --final differs' 'a/trainer --final x' a/trainer
two wrong_option_of_one_rank 3 "^trainer: rank 1 on [^ ]*: unknown option" a/trainer \
    'a/trainer --stepz 5'

# Ranks of one host use each other's memory, ranks of two hosts use MPI: the same bits. Parts of
# several pieces, of unequal lengths; sums of several neighbours, added to what is there.
# placed NAME TRAINER HOST...: one rank per word; the weights are NAME.st
placed() {
    local name=$1 dir=$2 words=() host
    shift 2
    for host; do
        words+=(${words:+:} -n 1 -x "PLANC_HOST=$host" "$dir/trainer" --final "$name.st")
    done
    timeout -k 5 60 mpirun --oversubscribe --bind-to none "${words[@]}" >"$name.log" 2>&1 \
        </dev/null || fail "$name" "$(tail_of "$name.log")"
}
same_bits() { # NAME A B
    cmp "$2.st" "$3.st" >/dev/null 2>&1 && ok "$1" || fail "$1" "$(cmp "$2.st" "$3.st" 2>&1)"
}
# near_and_far NAME [settings] -- HOST...
near_and_far() {
    local name=$1 settings=() ranks
    shift
    while [ "$1" != -- ]; do settings+=("$1"); shift; done
    shift
    ranks=("$@")
    built "$name" "${settings[@]}"
    placed "near_$name" "$name" "${ranks[@]/*/one}"
    placed "far_$name" "$name" "$@"
    same_bits "near_and_far_$name" "near_$name" "far_$name"
}
tall=(--set model.vocab=40001 --set mesh.fsdp=1 --set mesh.dp=3 --set batch.global=6)
placed near_shards a one one
placed far_shards a one two
same_bits near_and_far_shards near_shards far_shards
near_and_far four --set mesh.fsdp=4 --set batch.global=16 -- one one two two
near_and_far replicas "${tall[@]}" -- one two three
near_and_far parts "${tall[@]}" --set mesh.optimizer=all -- one two three
near_and_far parts_of_two --set mesh.fsdp=1 --set mesh.dp=2 --set mesh.optimizer=all \
    --set batch.global=8 --set precision.compute=bf16 -- one two
near_and_far groups --set mesh.fsdp=2 --set mesh.dp=2 -- one two three four
placed replicas_near groups one two one two
placed shards_near groups one one two two
same_bits replicas_near near_groups replicas_near
same_bits shards_near near_groups shards_near
# A system that has no such files, of one rank or of all.
if [ "$BUILD" = build ]; then
    echo 'int memfd_create(const char *n, unsigned flags) { return (void)n, (void)flags, -1; }' |
        cc -shared -fPIC -x c - -o no_files.so || fail no_files "the library does not compile"
    for who in 0 0,1,2; do
        LIST=$who NO_FILES=$scratch/no_files.so timeout -k 5 60 mpirun -n 3 --oversubscribe \
            --bind-to none sh -c 'case ,$LIST, in *,$OMPI_COMM_WORLD_RANK,*) export \
            LD_PRELOAD=$NO_FILES ;; esac; exec replicas/trainer --final no_files.st' \
            >no_files.log 2>&1 </dev/null || fail "no_files.$who" "$(tail_of no_files.log)"
        same_bits "no_files.$who" near_replicas no_files
    done
else
    skip no_files "the sanitizer's library would have to come first"
fi

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

# ── more than is compared at the start ───────────────────────────────────────
# 128 MiB of tokens, 134 MB of weights, of which every second block of 64 KiB is compared. The bytes
# that differ lie between; a run that never comes there is right to go on.
# large NAME STATUS PATTERN TRAINER FILE AT [OPTIONS]: rank 1 has other bytes from AT
large() {
    rm -f "there/$5"
    cp --sparse=always "here/$5" there/
    # shellcheck disable=SC2046
    [ -z "$6" ] || printf '\1\0%.0s' $(seq 2048) |
        dd of="there/$5" bs=1 seek="$6" conv=notrunc status=none
    two "$1" "$2" "$3" "--wdir $scratch/here $scratch/$4/trainer ${7:-}" \
        "--wdir $scratch/there $scratch/$4/trainer ${7:-}"
}
rm -f here/* there/*
at=$((1001 * 65536 + 1000)) # of a block that is not compared
batch=$((at / 32 / 4))      # samples of 16 tokens, four a step
truncate -s 128M here/tokens.bin
built far --set "run.skip_batches=[0..$((batch + 8))]"
large large_data_equal 0 'step +2 of 3' far tokens.bin ''
large large_data_elsewhere 0 'step +2 of 3' a tokens.bin $at
large large_data_differs 4 \
    '^trainer: data.train: ranks 0 and 1 have not the same 17 tokens from token 3280[0-9]* of /proc/' \
    far tokens.bin $at
wide=(--set model.vocab=65536 --set model.hidden=512 --set model.tied=on)
built seeds "${wide[@]}" --set data.train=tokens.bin
(cd here && launch 2 "$scratch/seeds" --steps 0 --final w.safetensors) >seeds.log 2>&1 ||
    fail seeds "$(tail_of seeds.log)"
cp --sparse=always here/tokens.bin there/
built tall "${wide[@]}" --set init.from=/proc/self/cwd/w.safetensors
large large_weights_equal 0 '^weights: /proc/self/cwd/w.safetensors' tall w.safetensors '' \
    '--steps 0'
large large_weights_differ 4 \
    '^trainer: .*init.from: .*w.safetensors: ranks [01] and [01] have not' \
    tall w.safetensors $((21 * 65536 + 777)) '--steps 0'
rm -rf here there

# ── where ranks lie ──────────────────────────────────────────────────────────
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
