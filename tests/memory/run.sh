#!/usr/bin/env bash
# Is the ledger true? First its figures against arithmetic done anew: terms, lines, formulas,
# instants, repairs, closed forms of what a layer keeps, bytes per parameter. Then trainers with
# hooks linked in (hooks.c): bytes where nobody is, filled with 0xFF, change nothing; the pages that
# are touched are those that the ledger calls live; plans at random train under a limit that is
# the prediction; what the process takes beside the arena is less than the term for it.
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../lib/common.sh"
unset OMPI_MCA_pml OMPI_MCA_ess_singleton_isolated # with all memory that MPI takes of a user
ledger() { python3 "$here/ledger.py" "$planc" "$@" 2>&1 || echo "FAIL $2: the check itself died"; }

# ── figures ──────────────────────────────────────────────────────────────────
for plan in "$top"/plans/*.plan; do
    point=() # one of a plan that leaves keys open
    grep -qE '[0-9a-z] \| [0-9a-z]' "$plan" &&
        point=(--set mesh.fsdp=16 --set batch.local=2 --set activation_checkpoint.mode=selective)
    ledger add_up "$(basename "$plan" .plan)" "$plan" "${point[@]}"
done
for mode in none full; do for chunks in 1 8; do
    ledger add_up "llama-8b.$mode.$chunks" "$top/plans/llama-8b.plan" --set mesh.fsdp=8 --set \
        "activation_checkpoint.mode=$mode" --set "batch.loss_chunks=$chunks"
done; done
ledger add_up some_layers "$top/plans/llama-8b.plan" --set activation_checkpoint.mode=full --set \
    'activation_checkpoint.layers=[0..11]'
for global in 64 256; do # one micro-batch, and four
    ledger add_up "all.$global" "$top/plans/llama-8b.plan" --set mesh.fsdp=8 --set \
        mesh.optimizer=all --set cluster.nodes=4 --set batch.local=2 --set "batch.global=$global"
done
ledger slope "$top/plans/qwen3-30b-a3b.plan"
ledger kept "$scratch"
ledger repairs mixture "$top/plans/30b-a3b-16.plan" --set activation_checkpoint.mode=none --set \
    batch.local=16 --set batch.global=512
ledger repairs dense "$top/plans/llama-8b.plan" --set mesh.fsdp=8 --set batch.local=8 --set \
    batch.global=4096 --set activation_checkpoint.mode=none
ledger repairs together "$top/plans/llama-8b.plan" --set mesh.fsdp=8 --set mesh.dp=1 --set \
    cluster.nodes=1 --set batch.local=16 --set batch.global=128 --set cluster.device.memory=60GiB
# A repair may need another global batch: then it says that it changes training, else not.
changes=("$top/plans/llama-8b.plan" --set mesh.fsdp=8 --set mesh.dp=1 --set cluster.nodes=1 --set
    batch.local=7 --set batch.global=56 --set cluster.device.memory=20GiB)
"$planc" check "${changes[@]}" >changes.log 2>&1
"$planc" check "${changes[@]}" --json >changes.json 2>&1
"$planc" check "${changes[@]}" --set batch.global=112 >same.log 2>&1
grep -q 'changes training: batch.global is 112 sequences per step instead of 56' changes.log &&
    grep -q '"changes_training": true' changes.json && grep -q 'nodes=2' same.log &&
    ! grep -q 'changes training' same.log && ok repairs.changes_training ||
    fail repairs.changes_training "$(tail_of changes.log 3) $(tail_of same.log 3)"
"$planc" check "$top/plans/30b-a3b-512.plan" --set mesh.fsdp=8 --set batch.local=8 --set \
    activation_checkpoint.mode=none >all.log 2>&1
grep -qE '^    fits .* -3.1 % moved  --set mesh.optimizer=all$' all.log && ok repairs.optimizer ||
    fail repairs.optimizer "$(tail_of all.log 12)"
# Mode auto is selective where that computes no product again, else none; check says which.
# auto NAME PLAN WANTED OTHER: it takes what WANTED takes, and OTHER takes something else
auto() {
    local mode
    for mode in auto "$3" "$4"; do
        "$planc" check "$2" --set "activation_checkpoint.mode=$mode" --json 2>/dev/null |
            grep -oE '"(peak_bytes|mode)": [^,}]+' | head -n 2 >"$1.$mode.facts"
    done
    grep -q "\"$3\"" "$1.auto.facts" && cmp -s "$1.auto.facts" "$1.$3.facts" &&
        ! cmp -s "$1.auto.facts" "$1.$4.facts" && ok "auto.$1" ||
        fail "auto.$1" "$(cat "$1.auto.facts" "$1.$3.facts")"
}
auto dense "$top/plans/gpt2-124m.plan" selective none
auto mixture "$top/plans/30b-a3b-16.plan" none selective
ledger edges "$top/plans/gpt2-124m.plan"
ledger differ "$top/plans/llama-8b.plan" "$top/plans/qwen3-30b-a3b.plan"
# What docs/memory.md says of published plans is what comes out.
while IFS= read -r line; do
    read -r -a words <<<"${line%%#*}"
    want=${line##*# arena }
    got=$(cd "$top" && "$planc" "${words[@]:1}" 2>&1 | sed -nE 's/^ +arena +([0-9.]+ GiB).*/\1/p')
    [ "$got" = "$want" ] && tr "\n" " " <"$top/docs/memory.md" | grep -q "here $want" &&
        ok "published.$want" || fail "published.$want" "${line%%#*} gives $got"
done < <(sed -e ':a' -e '/\\$/{N;s/\\\n *//;ba' -e '}' "$top/docs/memory.md" |
    grep -E '^ +planc check .*# arena ')
# how long one point takes is said, not tested: machines differ, and others may use this one
best=$(for _ in 1 2 3; do
    s=$(date +%s%N)
    "$planc" check "$top/plans/30b-a3b-16.plan" >/dev/null 2>&1
    echo $((($(date +%s%N) - s) / 1000))
done | sort -n | head -n 1)
echo "note reference_point: $best us"
for wrong in 120 120GB/s GiB ''; do
    "$planc" memory "$top/plans/gpt2-124m.plan" --at "$wrong" >at.log 2>&1
    [ $? -eq 3 ] && [ "$(wc -l <at.log)" = 1 ] &&
        grep -q "^planc: --at takes a number of bytes.*, not '$wrong'$" at.log &&
        ok "at_is_bytes.${wrong:-empty}" ||
        fail "at_is_bytes.${wrong:-empty}" "$(tail_of at.log)"
done

# ── trainers ─────────────────────────────────────────────────────────────────
if [ "$BUILD" = build-sanitize ]; then
    skip trainers "the sanitizer has memory of its own"
    exit 0
fi
cat >mpicc.sh <<'M'
#!/bin/sh
case " $* " in *" -c "*|*" -E "*) exec mpicc "$@" -O1 ;; esac
exec mpicc "$@" $HOOKS -Wl,--wrap=run,--wrap=run_shard,--wrap=load_batch,--wrap=madvise \
    -Wl,--wrap=position_step,--wrap=position_phase
M
cat >limited.sh <<'M'
#!/bin/sh
ulimit -d "$1" && shift && exec "$@"
M
chmod +x mpicc.sh limited.sh
python3 "$here/../faults/make.py" tokens tokens.bin 40001 97

# hooked NAME PLAN [settings]: a trainer with hooks, in NAME; quickly compiled
hooked() {
    local name=$1
    shift
    rm -rf "$name"
    mkdir -p "$name.dead"
    { python3 "$here/ledger.py" "$planc" dead "$name.dead/dead.h" "$@" &&
        mpicc -std=c17 -O1 -Wall -Wextra -Werror -I "$name.dead" -I "$top" -I "$top/runtime" -I \
        "$top/runtime/shared" -c "$here/hooks.c" -o "$name.dead/hooks.o" &&
        HOOKS=$scratch/$name.dead/hooks.o MPICC=$scratch/mpicc.sh "$planc" build "$1" -o "$name" \
        --device cpu "${@:2}"; } >"$name.build" 2>&1
}
# goes RANKS LIMIT_KIB|unlimited NAME [options], under what MEMORY_* say; log and metrics are
# NAME.log, NAME.jsonl
goes() {
    local ranks=$1 limit=$2 name=$3 names=() word
    shift 3
    for word in MEMORY_POISON MEMORY_LAZY MEMORY_REPORT; do
        [ -n "${!word:-}" ] && names+=(-x "$word")
    done
    timeout 120 mpirun -n "$ranks" --oversubscribe --bind-to none "${names[@]}" ./limited.sh \
        "$limit" "$scratch/$name/trainer" --metrics "$name.jsonl" "$@" >"$name.log" 2>&1 </dev/null
}
# same_training NAME A B: metrics except times, and final weights
same_training() {
    if ! why=$(python3 "$here/../lib/numbers.py" same "$2.jsonl" "$3.jsonl"); then fail "$1" "$why"
    elif ! cmp -s "$2.st" "$3.st"; then fail "$1" "final weights differ"
    else ok "$1"; fi
}
# poisoned NAME RANKS, lazy NAME RANKS PLAN [settings]: of a hooked trainer that is there
poisoned() {
    if goes "$2" unlimited "$1" --final "$1.st" && cp "$1.jsonl" "$1.clean.jsonl" &&
        cp "$1.st" "$1.clean.st" && MEMORY_POISON=1 goes "$2" unlimited "$1" --final "$1.st"
    then same_training "poison.$1" "$1" "$1.clean"; else fail "poison.$1" "$(tail_of "$1.log")"; fi
}
lazy() {
    if MEMORY_LAZY=1 MEMORY_REPORT=$scratch/$1.report goes "$2" unlimited "$1"; then
        ledger pages "$1" "$scratch/$1.report" "$2" "${@:3}"
    else
        fail "pages.$1" "$(tail_of "$1.log")"
    fi
}

cat >tiny.plan <<'P'
use "models/llama.plan"
use "clusters/cpu.plan"
plan "tiny" {
    model llama { layers = 3;  hidden = 64;  heads = 4;  kv_heads = 2;  ffn = 176;  vocab = 512 }
    cluster cpu { }
    mesh { fsdp = 2 }
    batch { sequence = 64;  local = 2;  global = 8;  loss_chunks = 2 }
    schedule constant { steps = 3 }
    data { train = "tokens.bin";  format = uint16 }
}
P
sed \
    's/layers = 3;  hidden = 64;  heads = 4;  kv_heads = 2;  ffn = 176;  vocab = 512/layers = 2;  hidden = 512;  heads = 4;  ffn = 512;  vocab = 12000/; s/"tiny"/"large"/' \
    tiny.plan >large.plan
hooked tiny tiny.plan & hooked large large.plan & wait
poisoned tiny 2
lazy tiny 2 tiny.plan
# The test of the test: a live buffer that is filled is noticed.
if MEMORY_POISON=2 goes 2 unlimited tiny --final tiny.st && cmp -s tiny.st tiny.clean.st; then
    fail poison_is_seen "nothing changed"
else
    ok poison_is_seen
fi
# What is asked for while it trains: nothing by us, always the same by libraries, and they keep no
# more and no more.
MEMORY_REPORT=$scratch/tiny.steps goes 2 unlimited tiny --steps 24 &&
    ledger allocations tiny "$scratch/tiny.steps" 2 || fail allocations.tiny "$(tail_of tiny.log)"

# limit NAME RANKS PLAN [settings]: two steps under RLIMIT_DATA of what check says, resident memory
# at most that
limit() {
    local name=$1 ranks=$2 bytes
    shift 2
    bytes=$("$planc" check "$@" --json 2>/dev/null | grep -oE '"peak_bytes": [0-9]+' | head -n 1 |
        grep -oE '[0-9]+')
    if MEMORY_REPORT=$scratch/$name.report goes "$ranks" $((bytes / 1024)) "$name" --steps 2; then
        ok "limit.$name"
        ledger resident "$name" "$scratch/$name.report" "$ranks" "$@"
    else
        fail "limit.$name" "$((bytes / 1024)) KiB: $(tail_of "$name.log")"
    fi
}
limit large 2 large.plan
# Checkpoints: the second copy is in the ledger, and a save asks for no memory.
sed 's/schedule constant/checkpoint { directory = "saved";  every = 1;  keep = 1 }\n    &/' \
    large.plan >saving.plan
rm -rf saved
hooked saving saving.plan
limit saving 2 saving.plan
rm -rf saved
MEMORY_REPORT=$scratch/saving.steps goes 2 unlimited saving --steps 4 &&
    ledger asks_nothing saving "$scratch/saving.steps" 2 ||
    fail asks_nothing.saving "$(tail_of saving.log)"
lazy large 2 large.plan
arena=$("$planc" check large.plan --json | grep -oE '"arena_bytes": [0-9]+' | grep -oE '[0-9]+')
goes 2 $((arena * 95 / 100 / 1024)) large --steps 2
status=$?
if [ $status -ne 0 ] && [ "$(grep -c '^trainer:' large.log)" = 1 ] &&
    grep -q "^trainer:.*$(printf '%d' "$arena") bytes" large.log; then
    ok too_little_is_said
else
    fail too_little_is_said "exit $status: $(tail_of large.log)"
fi

# Plans at random: the same ones every time; seeds from 1.
draw() {
    python3 "$here/random_plan.py" "$1" "random_$1.plan" tokens.bin >"random_$1.ranks" &&
        hooked "random_$1" "random_$1.plan"
}
count=$([ -n "${LONG:-}" ] && echo 200 || echo 20) running=0
for seed in $(seq "$count"); do
    draw "$seed" &
    running=$((running + 1))
    if [ $running -ge 2 ]; then wait -n; running=$((running - 1)); fi
done
wait
for seed in $(seq "$count"); do
    name=random_$seed ranks=$(cat "random_$seed.ranks")
    if [ ! -x "$name/trainer" ]; then fail "build.$name" "$(tail_of "$name.build")"; continue; fi
    limit "$name" "$ranks" "$name.plan"
    [ $((seed % 4)) -eq 0 ] && poisoned "$name" "$ranks"
    [ $((seed % 4)) -eq 2 ] && lazy "$name" "$ranks" "$name.plan"
    rm -rf "$name" "$name.dead"
done
exit 0
