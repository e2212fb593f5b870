#!/usr/bin/env bash
# What goes wrong around a trainer: the wrong number of ranks, a rank that hangs or dies, a request
# to stop, data and weights that are not what the plan says. Each must end everywhere, quickly, with
# one line that names the cause; a case that leaves a process behind has failed however good its
# message.
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../lib/common.sh"
make_py="$here/make.py"

cat >small.plan <<'PLAN'
use "models/llama.plan"
use "clusters/cpu.plan"

plan "small" {
    model llama { layers = 2;  hidden = 48;  heads = 4;  kv_heads = 2;  head_dim = 12
                  ffn = 64;  vocab = 256 }
    cluster cpu { }
    mesh { fsdp = 2 }
    batch { sequence = 32;  local = 2 }
    optimizer adamw { lr = 1e-3 }
    schedule constant { steps = 4 }
    data { train = "good.bin";  format = uint16 }
    run { timeout = 100s }
}
PLAN
python3 "$make_py" tokens good.bin 20001 256
make_trainer() { # DIR [settings]
    local dir=$1
    shift
    rm -rf "$dir"
    "$planc" build small.plan -o "$dir" --device cpu "$@" >"$dir.build" 2>&1
}
# refused NAME DIR RANKS PATTERN STATUS: one line, everywhere gone, before a watchdog could end it
refused() {
    local name=$1 dir=$scratch/$2 ranks=$3 pattern=$4 want=$5 status lines
    if [ ! -x "$dir/trainer" ]; then
        # What the compiler can already see it may refuse; the rule is the same.
        lines=$(grep -c '^planc:' "$dir.build")
        if [ "$lines" -eq 1 ] && grep -E '^planc:' "$dir.build" | grep -qE "$pattern"; then
            ok "$name"
        else
            fail "$name" "no trainer: $(tail_of "$dir.build")"
        fi
        return
    fi
    at_once timeout -k 5 60 mpirun -n "$ranks" --oversubscribe --bind-to none "$dir/trainer" \
        >"$name.log" 2>&1 </dev/null
    status=$?
    lines=$(grep -c '^trainer:' "$name.log")
    if ! none_left "$dir"; then fail "$name" "processes left: $(survivors "$dir")"; sweep "$dir"
    elif [ $status -ne "$want" ]; then
        fail "$name" "exit $status, not $want: $(tail_of "$name.log")"
    elif [ "$lines" -ne 1 ]; then
        fail "$name" "$lines lines begin 'trainer:': $(grep '^trainer:' "$name.log" | head -n 3 |
            tr '\n' '|')"
    elif ! grep '^trainer:' "$name.log" | grep -qE "$pattern"; then
        fail "$name" "does not say /$pattern/: $(grep '^trainer:' "$name.log")"
    else ok "$name"; fi
}
# accepted NAME DIR RANKS: runs to its end
accepted() {
    local name=$1 dir=$scratch/$2
    if [ ! -x "$dir/trainer" ]; then fail "$name" "no trainer: $(tail_of "$dir.build")"; return; fi
    timeout -k 5 60 mpirun -n "$3" --oversubscribe --bind-to none "$dir/trainer" >"$name.log" 2>&1 \
        </dev/null && ok "$name" || fail "$name" "$(tail_of "$name.log")"
}

# ── the number of ranks ──────────────────────────────────────────────────────
make_trainer four --set mesh.fsdp=4
refused ranks_1_of_4 four 1 '4.*1|1.*4' 4
refused ranks_3_of_4 four 3 '4.*3|3.*4' 4
refused ranks_8_of_4 four 8 '4.*8|8.*4' 4
accepted ranks_4_of_4 four 4

# ── ranks that stop ──────────────────────────────────────────────────────────
# How long a rank may stand still: long enough for a step on a machine that is busy, longer with
# sanitizers.
timeout=$([ "$BUILD" = build ] && echo 6 || echo 15)
make_trainer long --set mesh.fsdp=2 --set mesh.dp=2 --set schedule.steps=100000000 \
    --set run.timeout=${timeout}s
is_over() { ! kill -0 $launcher 2>/dev/null; }
runs_or_over() { has_lines "$1.jsonl" 3 || is_over; }
# start_long NAME: launches in the background and waits for the first steps; sets `launcher`
start_long() {
    rm -f "$1.jsonl"
    mpirun -n 4 --oversubscribe --bind-to none "$scratch/long/trainer" --metrics \
        "$scratch/$1.jsonl" >"$1.log" 2>&1 </dev/null &
    launcher=$!
    within 120 runs_or_over "$1" && has_lines "$1.jsonl" 3 && return 0
    fail "$1" "did not start: $(tail_of "$1.log")"
    kill -KILL $launcher 2>/dev/null
    sweep "$scratch/long"
    return 1
}
rank_pid() { rank_of "$scratch/long" "$1"; }
# end_of NAME: waits for the launcher, two minutes at most; sets `status`
end_of() {
    within 120 is_over && { wait $launcher; status=$?; return 0; }
    fail "$1" "still running after two minutes: $(tail_of "$1.log")"
    kill -KILL $launcher 2>/dev/null
    wait $launcher 2>/dev/null
    sweep "$scratch/long"
    return 1
}
gone() {
    none_left "$scratch/long" && return
    fail "$1" "processes left: $(survivors "$scratch/long")"
    sweep "$scratch/long"
    return 1
}

for rank in 2 0; do
    name=stopped_rank_$rank
    if start_long $name; then
        kill -STOP "$(rank_pid $rank)"
        if end_of $name && gone $name; then
            line=$(grep '^trainer:' $name.log)
            stood=$(sed -nE 's/.* has not moved for ([0-9.]+) s.*/\1/p' <<<"$line")
            if [ $status -ne 4 ]; then fail $name "exit $status: $(tail_of $name.log)"
            elif [ "$(grep -c '^trainer:' $name.log)" -ne 1 ]; then
                fail $name "not one line: $(tail_of $name.log)"
            elif ! grep -qE "rank $rank\b.*step|step.*rank $rank\b" <<<"$line"; then
                fail $name "does not name the rank and the step: $line"
            elif ! awk -v s="$stood" -v t=$timeout 'BEGIN { exit !(s > t / 8) }'; then
                fail $name "too soon, run.timeout is $timeout s: $line"
            else ok $name; fi
        fi
    fi
done

# Stopped for less than half of run.timeout, which makes a rank a stopped one, but for more than
# that together: slow is not dead, and the clock begins anew.
name=paused_rank
if start_long $name; then
    pid=$(rank_pid 1) goes_on=yes
    for _ in 1 2 3 4 5; do
        kill -STOP "$pid"
        sleep "$(awk -v t=$timeout 'BEGIN { print t / 8 }')"
        kill -CONT "$pid"
        more_lines $name.jsonl 3 || { goes_on=no; break; } # no step is done without it
    done
    if [ $goes_on = no ]; then
        fail $name "it does not go on: $(tail_of $name.log)"
        kill -KILL $launcher 2>/dev/null
        sweep "$scratch/long"
    else
        kill -STOP "$pid" # and then for good
        if end_of $name && gone $name; then
            grep -q '^trainer:.*rank 1' $name.log && ok $name || fail $name "$(tail_of $name.log)"
        fi
    fi
fi

# Stopped before the ranks have met, where no watchdog sees it: MPI would wait for ever. They start
# slowly, as without common.sh.
name=stopped_at_start
env -u OMPI_MCA_pml mpirun -n 4 --oversubscribe --bind-to none "$scratch/long/trainer" >$name.log \
    2>&1 </dev/null &
launcher=$!
is_there() { pid=$(rank_pid 2); }
within 60 is_there
kill -STOP "$pid"
if end_of $name && gone $name; then
    # mpirun that is told to abort while its ranks still start has been seen to crash itself (status
    # 139): nobody is left then either
    if { [ $status -eq 4 ] || [ $status -eq 139 ]; } &&
        [ "$(grep -ac '^trainer:' $name.log)" -eq 1 ]; then
        ok $name
    else
        fail $name "exit $status: $(tail_of $name.log)"
    fi
fi

if start_long killed_rank; then
    kill -KILL "$(rank_pid 1)"
    if end_of killed_rank && gone killed_rank; then
        [ $status -ne 0 ] && ok killed_rank || fail killed_rank "exit 0"
    fi
fi

# A request to stop: at a step boundary, on all ranks, however it arrives.
whole_steps() { # the metrics end with a whole line, steps without a gap
    awk \
        '{ if (!match($0, /"step": *[0-9]+/)) exit 1; s = substr($0, RSTART, RLENGTH); sub(/.*: */, "", s); if (s + 0 != NR - 1) exit 1 } !/}$/ { exit 1 }' \
        \
        "$1"
}
for way in one_rank launcher; do
    name=terminated_by_$way
    if start_long $name; then
        if [ $way = one_rank ]; then kill -TERM "$(rank_pid 3)"; else kill -TERM $launcher; fi
        if end_of $name && gone $name; then
            # mpirun that is itself told to end passes that on, ends with a status of its own, and
            # kills the ranks that still work soon after
            if [ $way = launcher ]; then sed -i '$d' $name.jsonl; fi
            if [ $way = one_rank ] && [ $status -ne 75 ]; then
                fail $name "exit $status, not 75: $(tail_of $name.log)"
            elif [ $status -eq 0 ]; then fail $name "exit 0: $(tail_of $name.log)"
            elif ! whole_steps $name.jsonl; then
                fail $name "the metrics do not end at a step: $(tail -n 1 $name.jsonl)"
            else ok $name; fi
        fi
    fi
done

# ── token files ──────────────────────────────────────────────────────────────
# 4 steps x 4 samples x 32 + 1 tokens are read: 513.
tokens_case() { # NAME COUNT PATTERN [INDEX=ID]
    local name=$1 count=$2 pattern=$3
    shift 3
    python3 "$make_py" tokens "$name.bin" "$count" 256 "$@"
    make_trainer "$name" --set "data.train=$name.bin"
    if [ "$pattern" = accepted ]; then
        accepted "$name" "$name" 2
    else
        refused "$name" "$name" 2 "$pattern" 4
    fi
}
tokens_case id_256 513 '256' 10=256
tokens_case id_257 513 '257' 10=257
tokens_case id_65535 513 '65535' 10=65535
tokens_case id_256_last_sequence 513 '256' 500=256
tokens_case id_256_last_target 513 '256' 512=256
tokens_case id_255 513 accepted 10=255 500=255 512=255
tokens_case one_and_a_half_batches 193 accepted
tokens_case too_short 32 'short|few|32|33'
tokens_case one_sample 33 accepted
: >empty.bin
make_trainer empty --set data.train=empty.bin
refused empty_file empty 2 'empty' 4
python3 "$make_py" tokens odd.bin 513 256 && printf x >>odd.bin
make_trainer odd --set data.train=odd.bin
refused odd_sized_file odd 2 'odd' 4
make_trainer absent --set data.train=absent.bin
refused absent_file absent 2 'absent.bin' 4

rm -f pipe.bin && mkfifo pipe.bin 2>/dev/null
make_trainer pipe --set data.train=pipe.bin
refused pipe_for_tokens pipe 2 'pipe.bin' 4

# ── weight files ─────────────────────────────────────────────────────────────
cc -O2 -std=gnu17 -o truth "$here"/../oracle_own/*.c -lm && mkdir -p weights &&
    ./truth weights hidden=48 heads=4 kv=2 head_dim=12 ffn=64 vocab=256 factor=1 tied=0
weights_case() { # NAME KIND PATTERN
    mkdir -p "$1.from"
    cp weights/config.json "$1.from/"
    python3 "$make_py" tensors weights/model.safetensors "$1.from/model.safetensors" "$2"
    make_trainer "$1" --set "init.from=$scratch/$1.from"
    if [ "$3" = accepted ]; then accepted "$1" "$1" 2; else refused "$1" "$1" 2 "$3" 4; fi
}
weights_case tensors_fine none accepted
weights_case tensor_missing missing 'lm_head|missing'
weights_case tensor_extra extra 'model.surprise.weight'
weights_case tensor_misshaped misshaped 'embed_tokens'
weights_case tensor_truncated truncated 'model.safetensors'
weights_case tensor_dtype dtype 'model.norm.weight'
weights_case tensor_overlap overlap 'model.safetensors|lm_head'
weights_case tensor_twice duplicate 'model.norm.weight'
weights_case header_not_json not_json 'model.safetensors'
weights_case header_huge huge_header 'model.safetensors'
make_trainer from_absent --set "init.from=$scratch/nowhere"
refused from_absent from_absent 2 'nowhere' 4

# ── numbers that are none ────────────────────────────────────────────────────
weights_case nonfinite_stop nan 'finite|nan|NaN'
# A loss that is finite and a gradient that is not: the root of a zero.
cat >steep.plan <<'PLAN'
use "clusters/cpu.plan"

architecture steep {
    hyper { hidden; vocab }
    embed = weight("embed.weight", [vocab, hidden])
    zero = weight("zero.weight", [hidden], init = zeros)
    loss = cross_entropy(linear(embedding(tokens, embed), embed), targets) + sum(sqrt(zero))
}

plan "steep" {
    model steep { hidden = 16;  vocab = 256 }
    cluster cpu { }
    mesh { fsdp = 2 }
    batch { sequence = 32;  local = 2 }
    schedule constant { steps = 3 }
    data { train = "good.bin";  format = uint16 }
}
PLAN
steep() { # DIR [settings]
    local dir=$1
    shift
    rm -rf "$dir"
    "$planc" build steep.plan -o "$dir" --device cpu "$@" >"$dir.build" 2>&1
}
steep infinite_gradient_stop --set run.nonfinite=stop
refused infinite_gradient_stop infinite_gradient_stop 2 'step 0.*gradient|gradient.*step 0' 4
steep infinite_gradient_skip --set run.nonfinite=skip
launch 2 "$scratch/infinite_gradient_skip" --metrics infinite.jsonl --final infinite.safetensors \
    >infinite.log 2>&1
# every step was skipped: no success, and the weights are those of the beginning
[ $? -eq 4 ] && why=$(python3 - 2>&1 <<'PYTHON'
import json, math, struct
steps = [json.loads(line) for line in open("infinite.jsonl")]
steps = [s for s in steps if "loss" in s]
assert len(steps) == 3 and all(math.isfinite(s["loss"]) for s in steps), steps
assert all("grad_norm" not in s and s["skipped"] for s in steps), steps
with open("infinite.safetensors", "rb") as f:
    header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
    begin, end = header["zero.weight"]["data_offsets"]
    at = f.tell()
    f.seek(at + begin)
    assert not any(f.read(end - begin)), "a skipped step changed a weight"
PYTHON
) && ok infinite_gradient_skip ||
    fail infinite_gradient_skip "$(tail -n 1 <<<"$why") $(tail_of infinite.log)"

# ── files that cannot be written ─────────────────────────────────────────────
if [ -x "$scratch/long/trainer" ]; then
    for option in --metrics --final; do
        name=unwritable${option#-}
        at_once timeout -k 5 60 mpirun -n 4 --oversubscribe --bind-to none \
            "$scratch/four/trainer" $option /nonexistent/folder/file >"$name.log" 2>&1 </dev/null
        status=$?
        if [ $status -eq 4 ] && [ "$(grep -c '^trainer:' "$name.log")" -eq 1 ] &&
            none_left "$scratch/four"; then
            ok "$name"
        else fail "$name" "exit $status: $(tail_of "$name.log")"; sweep "$scratch/four"; fi
    done
    # A file is put in the place of a file, and what is none is refused before the first step.
    for there in folder.final pipe.bin; do
        mkdir -p folder.final
        at_once timeout -k 5 60 mpirun -n 4 --oversubscribe --bind-to none \
            "$scratch/four/trainer" --final $there >final_on.log 2>&1 </dev/null
        status=$?
        if [ $status -eq 4 ] && [ "$(grep -c '^trainer:' final_on.log)" -eq 1 ] &&
            ! grep -q '^step' final_on.log && [ ! -f $there ]; then
            ok "final_on_$there"
        else fail "final_on_$there" "exit $status: $(tail_of final_on.log)"; fi
    done
    at_once timeout -k 5 60 mpirun -n 4 --oversubscribe --bind-to none "$scratch/four/trainer" \
        --no-such-option >option.log 2>&1 </dev/null
    status=$?
    if [ $status -eq 3 ] && [ "$(grep -c '^trainer:' option.log)" -eq 1 ]; then
        ok unknown_option
    else
        fail unknown_option "exit $status: $(tail_of option.log)"
    fi
    timeout -k 5 60 mpirun -n 4 --oversubscribe --bind-to none "$scratch/four/trainer" --help \
        >help.log 2>&1 </dev/null
    status=$?
    [ $status -eq 0 ] && [ "$(grep -c '^usage: mpirun' help.log)" -eq 1 ] && ok help ||
        fail help "exit $status: $(tail_of help.log)"
fi
