#!/usr/bin/env bash
# Validation: it changes no bit of training, whatever the family, mesh, precision, accumulation or
# chunks; every mesh reads the same tokens; and its loss is the one that training on these tokens
# from the same weights begins with.
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../lib/common.sh"
export LC_ALL=C
holds() { # NAME CHECK…: a check as a verdict
    local name=$1 why
    shift
    if why=$(python3 "$here/check.py" "$@" 2>&1); then ok "$name"; else fail "$name" "$why"; fi
}
# run_of NAME RANKS PLAN [settings]: NAME.jsonl, NAME.log
run_of() {
    local name=$1 ranks=$2 plan=$3
    shift 3
    rm -rf "$name" "$name.jsonl"
    "$planc" build "$plan" -o "$name" --device cpu "$@" >"$name.log" 2>&1 &&
        timeout -k 5 120 mpirun -n "$ranks" --oversubscribe --bind-to none \
            "$scratch/$name/trainer" --metrics "$name.jsonl" --final "$name.safetensors" \
            >"$name.log" 2>&1 </dev/null && return
    fail "$name" "$(tail_of "$name.log")"
    return 1
}
plan() { # FAMILY "model keys"
    cat >"$1.plan" <<PLAN
use "models/$1.plan"
use "clusters/cpu.plan"

plan "$1 to be validated" {
    model $1 { layers = 2;  hidden = 24;  heads = 4;  vocab = 257;  $2 }
    cluster cpu { }
    mesh { fsdp = 2 }
    batch { sequence = 16;  local = 2;  global = 8 }
    optimizer adamw { lr = 1e-2 }
    schedule constant { steps = 6 }
    data { train = "tokens.bin";  format = uint16;  order = shuffled }
}
PLAN
}
python3 "$here/../faults/make.py" tokens tokens.bin 1601 257
python3 "$here/../faults/make.py" tokens other.bin 401 257
others=(--set data.validation=other.bin --set run.validate_every=2)
plan llama "kv_heads = 2;  ffn = 40"
plan qwen3_moe "kv_heads = 2;  experts = 5;  top_k = 2;  expert_width = 12;  dense_layers = [0]
    ffn = 20"

# ── no bit of training ───────────────────────────────────────────────────────
# same NAME RANKS PLAN [settings]: with and without; both end with the same weights
same() {
    local name=$1
    run_of "$name.with" "$2" "$3" "${others[@]}" "${@:4}" &&
        run_of "$name.without" "$2" "$3" "${@:4}" || return
    holds "$name" unchanged "$name.with.jsonl" "$name.without.jsonl"
    cmp -s "$name.with.safetensors" "$name.without.safetensors" && ok "$name.weights" ||
        fail "$name.weights" "they differ"
    holds "$name.every" every "$name.with.jsonl" 2
}
same llama 2 llama.plan
same accumulated 1 llama.plan --set mesh.fsdp=1 --set batch.loss_chunks=4
same replicas 4 llama.plan --set mesh.dp=2 --set precision.compute=bf16 --set \
    mesh.reshard=step
same mixture 2 qwen3_moe.plan --set mesh.reshard=backward --set activation_checkpoint.mode=full

# ── what it gathers ──────────────────────────────────────────────────────────
# Once each unit that the forward part uses: what is gathered ahead of the backward part is not.
cat >gathers.c <<'C'
#include <stdint.h>
#include <stdio.h>
static int gathers;
typedef const void *own_part(const void *of, int64_t at, int64_t n, void *to);
void __real_collective_gather(void *, int64_t, int64_t, own_part *, const void *);
void __wrap_collective_gather(void *slot, int64_t shard, int64_t bytes, own_part *part,
                              const void *of)
{
    gathers++;
    __real_collective_gather(slot, shard, bytes, part, of);
}
static void __attribute__((destructor)) tell(void) { fprintf(stderr, "gathers: %d\n", gathers); }
C
cc -O1 -c gathers.c -o gathers.o
cat >mpicc.sh <<'M'
#!/bin/sh
case " $* " in *" -c "*|*" -E "*) exec mpicc "$@" ;; esac
exec mpicc "$COUNTED" "$@" -Wl,--wrap=collective_gather
M
chmod +x mpicc.sh
export COUNTED=$scratch/gathers.o
gathers() { # NAME [settings]: of one step of rank 0
    MPICC=$scratch/mpicc.sh run_of "$1" 2 llama.plan --set run.steps=1 "${@:2}" &&
        grep -m 1 '^gathers: ' "$1.log" | tr -dc 0-9
}
# two layers, what is before and what is behind them; twice, by two micro-batches
for mode in forward step; do
    once=(--set mesh.reshard=$mode --set batch.global=8 --set mesh.prefetch=2)
    without=$(gathers gathers.without "${once[@]}")
    with=$(gathers gathers.with "${others[@]}" --set run.validate_every=1 \
        --set run.validate_steps=1 "${once[@]}")
    want=$([ $mode = step ] && echo 4 || echo 8)
    [ -n "$without" ] && [ $((with - without)) = "$want" ] && ok "gathers.$mode" ||
        fail "gathers.$mode" "$without without, $with with a validation"
done

# ── the same tokens, and the right loss ──────────────────────────────────────
holds mesh near accumulated.with.jsonl llama.with.jsonl
# from the weights of the last step, the first step of training on these tokens has this loss
run_of exact 2 llama.plan "${others[@]}" --set run.validate_steps=1 --set run.steps=2 &&
    "$planc" export exact.safetensors llama.plan -o exact.hf.new --dtype fp32 >exact.export 2>&1 &&
    rm -rf exact.hf && mv exact.hf.new exact.hf &&
    run_of first 2 llama.plan --set data.train=other.bin --set data.order=sequential --set \
        run.steps=1 --set init.from=exact.hf && holds exact is exact.jsonl first.jsonl ||
    fail exact "$(tail_of exact.export)"
run_of bytes 1 llama.plan "${others[@]}" --set data.format=bytes --set mesh.fsdp=1 &&
    grep -q '"validation_bits_per_byte":' bytes.jsonl &&
    grep -qE '^validation after step 1: loss [0-9.]+, [0-9.]+ bits per byte  \([0-9]+ batches' \
        bytes.log && ok bytes || fail bytes "$(tail_of bytes.log)"

grep -qE '^goodput: [0-9.]+ % of [0-9.]+ s were steps; ' bytes.log && ok goodput ||
    fail goodput "$(tail_of bytes.log)"

# ── a stop ends it ───────────────────────────────────────────────────────────
# A validation of eight million tokens, which takes far longer than a signal or run.time_limit, is
# stopped after step 1. The run that goes on makes one first, of fewer tokens, and is otherwise as
# if there had been no stop.
python3 "$here/../faults/make.py" tokens million.bin 1000001 257
{ for _ in 1 2 3 4 5 6 7 8; do head -c 2000000 million.bin; done; head -c 2 million.bin
} >large.bin
long=(--set data.validation=large.bin --set run.validate_every=2)
stopped() { # NAME STATUS: NAME.log and NAME.jsonl are those of a run that ended in it
    if [ "$2" -ne 75 ]; then fail "$1" "status $2: $(tail_of "$1.log")"
    elif ! grep -qE '^validation after step 1: no loss, the stop ended it after [0-9]+ of 62500 ' \
        "$1.log"; then fail "$1" "$(tail_of "$1.log" 6)"
    elif grep -q validation_loss "$1.jsonl"; then fail "$1" "it has a loss"
    else ok "$1"; fi
}
rm -rf cut cut.saved cut.jsonl
"$planc" build llama.plan -o cut --device cpu "${long[@]}" >cut.build 2>&1 ||
    fail cut "$(tail_of cut.build)"
timeout -k 5 200 mpirun -n 2 --oversubscribe --bind-to none "$scratch/cut/trainer" --metrics \
    cut.jsonl --checkpoint-dir cut.saved >cut.log 2>&1 </dev/null &
launcher=$!
within 60 test -s cut.jsonl
# step 1 takes milliseconds: when a rank has computed for 0.3 s, it validates
pid=$(rank_of "$scratch/cut" 1)
ticks() { awk '{ print $14 }' "/proc/$pid/stat"; }
has_computed() { [ "$(ticks)" -ge $((from + 30)) ]; }
from=$(ticks)
within 60 has_computed
kill -TERM "$pid"
wait $launcher
stopped cut $?
"$planc" build llama.plan -o goes_on --device cpu "${others[@]}" >goes_on.build 2>&1 ||
    fail goes_on "$(tail_of goes_on.build)"
if timeout -k 5 60 mpirun -n 2 --oversubscribe --bind-to none "$scratch/goes_on/trainer" --metrics \
    cut.jsonl --checkpoint-dir cut.saved >goes_on.log 2>&1 </dev/null &&
    grep -q '^resumed: step 2 ' goes_on.log; then
    holds goes_on unchanged cut.jsonl llama.with.jsonl
    holds goes_on.every every cut.jsonl 2
    holds goes_on.loss near cut.jsonl llama.with.jsonl
else fail goes_on "$(tail_of goes_on.log)"; fi
rm -rf limited limited.jsonl
"$planc" build llama.plan -o limited --device cpu "${long[@]}" --set run.time_limit=2s \
    >limited.build 2>&1 || fail limited "$(tail_of limited.build)"
timeout -k 5 200 mpirun -n 2 --oversubscribe --bind-to none "$scratch/limited/trainer" \
    --metrics limited.jsonl >limited.log 2>&1 </dev/null
status=$?
if grep -q '^stopped by run.time_limit' limited.log &&
    ! grep -q '^validation after step 1:' limited.log; then
    skip limited "this machine needs 2 s to start"
else stopped limited $status; fi

# ── refused ──────────────────────────────────────────────────────────────────
refused() { # NAME PATTERN [settings]
    "$planc" check llama.plan "${@:3}" >"$1.log" 2>&1
    [ $? -eq 1 ] && grep -qE -- "$2" "$1.log" && ok "$1" || fail "$1" "$(tail_of "$1.log")"
}
refused no_steps 'not when to validate' --set data.validation=other.bin
refused no_files 'no files to validate on' --set run.validate_every=2
"$planc" build llama.plan -o short --device cpu "${others[@]}" --set run.validate_steps=9 \
    >short.log 2>&1 && ! timeout 60 mpirun -n 2 --oversubscribe short/trainer >short.log 2>&1 &&
    grep -q 'hold 25 samples of sequence 16, a validation of 9 steps needs 72' short.log &&
    ok short || fail short "$(tail_of short.log)"
