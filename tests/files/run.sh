#!/usr/bin/env bash
# Files that a trainer and the compiler write: never through a link that stands there, never half a
# file, and a disk that is full of metrics costs no weights. What a cache holds is checked.
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../lib/common.sh"
rm -rf "${scratch:?}"/*
small_plan small "layers = 2;  hidden = 16;  heads = 2;  kv_heads = 1;  ffn = 24;  vocab = 64" \
    "sequence = 16;  local = 2" \
    'schedule constant { steps = 3 }' \
    'data { train = "tokens.bin";  format = uint16 }' \
    'run { timeout = 100s }'
python3 "$here/../faults/make.py" tokens tokens.bin 20001 64
"$planc" build small.plan -o two --device cpu >two.build 2>&1 || fail build "$(tail_of two.build)"
"$planc" build small.plan -o one --device cpu --set mesh.fsdp=1 >one.build 2>&1 ||
    fail build "$(tail_of one.build)"

# went NAME RANKS STATUS PATTERN [options]: the one line matches PATTERN; the trainer is `dir`, or
# that of so many ranks
went() {
    local name=$1 ranks=$2 want=$3 pattern=$4 dir=${dir:-two} status
    [ "$ranks" -eq 1 ] && dir=one
    shift 4
    at_once timeout -k 5 60 mpirun -n "$ranks" --oversubscribe --bind-to none \
        ${limit:+bash -c "ulimit -f $limit; exec \"\$0\" \"\$@\""} $dir/trainer "$@" \
        >"$name.log" 2>&1 </dev/null
    status=$?
    if [ $status -ne "$want" ]; then
        fail "$name" "exit $status, not $want: $(tail_of "$name.log")"
    elif [ "$(grep -c '^trainer:' "$name.log")" -ne "$([ "$want" -eq 0 ] && echo 0 || echo 1)" ]; \
        then
        fail "$name" "not one line: $(grep '^trainer:' "$name.log" | tr '\n' '|')"
    elif ! grep -qE -e "$pattern" "$name.log"; then
        fail "$name" "no /$pattern/: $(grep '^trainer:' "$name.log")"
    else ok "$name"; fi
}

# ── links ────────────────────────────────────────────────────────────────────
for option in metrics final probe trace; do
    echo precious >"$option.precious"
    ln -sf "$option.precious" "$option.link"
    went "link_for_$option" 2 4 "--$option $option.link: is a symbolic link" --$option $option.link
    [ "$(cat "$option.precious")" = precious ] && ok "untouched_by_$option" ||
        fail "untouched_by_$option" "written through the link"
done
went metrics_on_stdout 2 0 '"step":2' --metrics /dev/stdout

# ── files that are something else ────────────────────────────────────────────
# An output that is the data of the run, or two outputs that are one file, would lose what is in it.
cp tokens.bin tokens.kept
for option in metrics final probe trace; do
    went "data_for_$option" 2 4 "--$option ./tokens.bin: this is a file of data.train" \
        --$option ./tokens.bin
    cmp -s tokens.bin tokens.kept && ok "data_is_kept_by_$option" ||
        fail "data_is_kept_by_$option" "written into"
    cp tokens.kept tokens.bin
done
went two_outputs_of_a_name 2 4 '--final ./shared.out: --metrics has the same file' \
    --metrics shared.out --final ./shared.out
# Numbers of another run are kept; lines of steps that are done again are not.
steps() { sed -nE 's/^\{"step":([0-9]+),.*/\1/p' "$1" | tr '\n' ' '; }
rm -rf again.jsonl* again.saved
went metrics_of_a_run 2 0 '^new run' --metrics again.jsonl --checkpoint-dir again.saved --steps 2
cp again.jsonl again.first
went metrics_of_a_new_run 2 0 '^metrics: again.jsonl had the numbers .*, which are now in .*\.1$' \
    --metrics again.jsonl --checkpoint-dir again.saved --fresh
cmp -s again.jsonl.1 again.first && [ "$(steps again.jsonl)" = "0 1 2 " ] &&
    ok metrics_are_kept_aside || fail metrics_are_kept_aside "$(head -c 60 again.jsonl*)"
cp again.jsonl again.second
went metrics_of_a_branch 2 0 'had the numbers .*, which are now in again.jsonl.2$' \
    --metrics again.jsonl --checkpoint-dir again.saved --resume=2 --steps 4
cmp -s again.jsonl.2 again.second && [ "$(steps again.jsonl)" = "0 1 2 3 " ] &&
    cmp -s -n 400 again.jsonl again.second && ok metrics_of_a_branch_go_on ||
    fail metrics_of_a_branch_go_on "$(steps again.jsonl)"
went metrics_go_on 2 0 '^resumed: step 4' --metrics again.jsonl --checkpoint-dir again.saved \
    --steps 5
[ "$(steps again.jsonl)" = "0 1 2 3 4 " ] && [ ! -e again.jsonl.3 ] &&
    ok metrics_of_a_run_that_goes_on || fail metrics_of_a_run_that_goes_on "$(ls again*)"
mkfifo again.pipe
cat again.pipe >again.piped & reader=$!
went metrics_in_a_pipe_go_on 2 0 '^resumed: step 5' --metrics again.pipe --checkpoint-dir \
    again.saved --steps 6
wait $reader
[ "$(steps again.piped)" = "5 " ] && ok the_pipe_has_them ||
    fail the_pipe_has_them "$(head -c 60 again.piped)"
# a model with more metrics has longer lines
printf '{"step":0,"loss":1,"load":[%s0]}\n' "$(yes 0, | head -n 9999 | tr -d '\n')" >long.jsonl
cp long.jsonl long.first && rm -f long.jsonl.1
went metrics_of_longer_lines 2 0 '^metrics: long.jsonl had the numbers .* now in .*\.1$' \
    --metrics long.jsonl --steps 2
cmp -s long.jsonl.1 long.first && [ "$(steps long.jsonl)" = "0 1 " ] && ok longer_lines_are_kept ||
    fail longer_lines_are_kept "$(head -c 60 long.jsonl*)"
echo 'a letter' >letter
went metrics_over_a_letter 2 4 '--metrics letter: it is there and holds no metrics' \
    --metrics letter
[ "$(cat letter)" = 'a letter' ] && ok letter_stays || fail letter_stays "$(head -c 60 letter)"
went allowed_key_of_nothing 2 4 '^trainer: --allow shedule.steps: the plan has no such key' \
    --checkpoint-dir none.saved --allow shedule.steps
went allowed_key_of_the_plan 2 0 '^new run' --checkpoint-dir none.saved --allow schedule.steps
# What would fail when the weights are saved fails at the start.
name=$(printf 'w%.0s' $(seq 245))
went name_too_long_at_the_end 2 4 "open .*partial: File name too long" --final "$name" \
    --metrics no.steps
[ ! -s no.steps ] && ok name_is_tried_first || fail name_is_tried_first "a step was run"
# The same folder rule as in /tmp: only the owner of a file may replace it.
if [ "$(id -u)" -eq 0 ] && command -v setpriv >/dev/null &&
    setpriv --reuid 65534 --clear-groups test -x "$scratch/one/trainer"; then
    rm -rf sticky && mkdir sticky && chmod 1777 sticky && echo precious >sticky/w.st
    (cd sticky && setpriv --reuid 65534 --clear-groups env HOME=/tmp ../one/trainer \
        --final w.st) >sticky.log 2>&1 </dev/null
    [ $? -eq 4 ] && grep -q "^trainer: --final w.st: it is another user's" sticky.log &&
        ok file_of_another_user || fail file_of_another_user "$(tail_of sticky.log)"
else
    skip file_of_another_user "not root, or others may not read this folder"
fi
# A name that goes while the run goes on: the weights stay.
mkfifo held
"$scratch/one/trainer" --final taken.st --metrics held --steps 1000000 >taken.log 2>&1 </dev/null &
run=$!
(read -r _ && mkdir taken.st && kill -TERM $run && cat >/dev/null) <held
wait $run
left=$(ls taken.st.*.partial 2>/dev/null)
grep -q "^trainer: --final taken.st: rename: .*; the file is whole, as $left\$" taken.log &&
    [ -s "$left" ] && ok weights_without_their_name ||
    fail weights_without_their_name "there is '$left': $(tail_of taken.log)"
# A closed stdout must not be the number of a file.
one/trainer --final closed.st --metrics closed.jsonl <&- >&- 2>&-
status=$?
one/trainer --final open.st >/dev/null
[ $status -eq 0 ] && cmp -s closed.st open.st && [ "$(wc -l <closed.jsonl)" -eq 3 ] &&
    ok closed_standard_files || fail closed_standard_files "status $status, or a log in the weights"

# ── what killed runs left ────────────────────────────────────────────────────
: >kept.st.4711-0.partial
ln -s final.precious kept.st.4711-1.partial
went final 2 0 'saved to kept.st' --final kept.st
left=$(ls -d kept.st.* 2>/dev/null)
[ "$left" = kept.st.4711-1.partial ] && [ "$(cat final.precious)" = precious ] &&
    ok leftovers_are_swept || fail leftovers_are_swept "there are: $left"

# ── pipes ────────────────────────────────────────────────────────────────────
mkfifo pipe
"$planc" build small.plan -o short --device cpu --set run.timeout=3s >short.build 2>&1 ||
    fail build "$(tail_of short.build)"
dir=short went pipe_without_reader 2 4 '--metrics pipe: a pipe, and nobody has opened it' \
    --metrics pipe
(sleep 1 && cat pipe >read) &
went pipe_with_reader 2 0 'step +2 of 3' --metrics pipe
wait
[ "$(wc -l <read)" -eq 3 ] && ok pipe_is_read || fail pipe_is_read "$(wc -l <read) lines"

# A reader that stops reading costs lines, not the run.
mkfifo stuck
sleep 100 <stuck & reader=$!
"$planc" build small.plan -o chatty --device cpu --set mesh.fsdp=1 --set schedule.steps=400 \
    --set run.timeout=8s >chatty.build 2>&1 || fail build "$(tail_of chatty.build)"
timeout 60 chatty/trainer --metrics stuck --final stuck.st >stuck.log 2>&1 </dev/null
status=$?
[ $status -eq 4 ] && [ -s stuck.st ] &&
    grep -q '^warning: --metrics stuck: nobody takes what is written' stuck.log &&
    ok pipe_that_is_not_read ||
    fail pipe_that_is_not_read "status $status: $(tail_of stuck.log)"
kill $reader && wait $reader 2>/dev/null
went pipe_for_a_library 2 4 '--compare pipe: it is no library' --compare pipe

# ── disks that are full ──────────────────────────────────────────────────────
went metrics_full 2 4 '^trainer: .*--metrics /dev/full: No space left.*step 0' \
    --metrics /dev/full --final full.st
cmp -s full.st kept.st && ok metrics_cost_no_weights ||
    fail metrics_cost_no_weights "$(cmp full.st kept.st 2>&1)"
# one rank: MPI's own files of shared memory are larger than the limit
limit=32 went limit_of_metrics 1 4 'limited.jsonl: File too large: files of this process' \
    --metrics limited.jsonl --final limited.st --steps 200
[ -s limited.st ] && tail -n 1 limited.jsonl | grep -q '}$' && ok limit_costs_no_weights ||
    fail limit_costs_no_weights "$(tail -n 1 limited.jsonl)"
limit=8 went limit_of_weights 1 4 'refused.st: write .*: File too large: files of this' \
    --final refused.st
[ -z "$(ls refused.st* 2>/dev/null)" ] && ok limit_leaves_nothing ||
    fail limit_leaves_nothing "$(ls refused.st*)"

# ── a file system that is read-only ──────────────────────────────────────────
mkdir -p sealed
sealed='mount -t tmpfs -o ro none sealed && exec "$@"'
for option in checkpoint-dir tensorboard metrics final; do
    name=sealed_$option
    unshare -rm sh -c "$sealed" sh true 2>/dev/null || { skip "$name" "no mount here"; continue; }
    at_once unshare -rm sh -c "$sealed" sh mpirun -n 2 --oversubscribe --bind-to none two/trainer \
        "--$option" sealed/name >"$name.log" 2>&1 </dev/null
    [ $? -eq 4 ] && grep -q '^trainer: .*sealed.*: Read-only file system$' "$name.log" &&
        ok "$name" || fail "$name" "$(grep '^trainer:' "$name.log")"
done

# ── the order of tensors ─────────────────────────────────────────────────────
cat >order.plan <<'PLAN'
use "models/llama.plan"
use "clusters/cpu.plan"

plan "order" {
    model llama { layers = 11;  hidden = 16;  heads = 2;  kv_heads = 1;  ffn = 24;  vocab = 64 }
    cluster cpu { }
    batch { sequence = 16;  local = 1 }
    optimizer adamw { lr = 1e-3 }
    schedule constant { steps = 1 }
    data { train = "tokens.bin";  format = uint16 }
}
PLAN
for mode in none selective full; do
    "$planc" build order.plan -o "$mode" --device cpu --set "activation_checkpoint.mode=$mode" \
        >"$mode.build" 2>&1 && launch 1 "$mode" --final "$mode.st" --probe "$mode.probe" \
        >"$mode.log" 2>&1 || fail "order_$mode" "$(tail_of "$mode.build")$(tail_of "$mode.log")"
done
same=yes
for mode in selective full; do
    cmp -s none.st "$mode.st" && cmp -s none.probe "$mode.probe" || same=no
done
[ $same = yes ] && ok order_of_tensors ||
    fail order_of_tensors "$(for mode in selective full; do
        cmp none.st $mode.st 2>&1; cmp none.probe $mode.probe 2>&1; done | tr '\n' '|')"

# ── what the compiler reads and writes ───────────────────────────────────────
# said NAME STATUS PATTERN command…: it answers, and waits for nobody
said() {
    local name=$1 want=$2 pattern=$3 status
    shift 3
    timeout 20 "$planc" "$@" >"$name.log" 2>&1 </dev/null
    status=$?
    [ $status -eq "$want" ] && grep -qE -e "$pattern" "$name.log" && ok "$name" ||
        fail "$name" "status $status: $(tail_of "$name.log")"
}
cp small.plan own.plan
echo '{"step":0,"loss":1}' >own.jsonl
said report_over_its_plan 3 "-o own.plan: 'own.plan' is what is read" report own.plan -o own.plan
said report_over_its_metrics 3 'is what is read' report own.plan --metrics own.jsonl -o own.jsonl
said tune_over_its_plan 3 'is what is read' tune own.plan -o ./own.plan
said trace_over_its_plan 3 'is what is read' simulate own.plan --trace own.plan
cmp -s own.plan small.plan && ok plans_are_spared || fail plans_are_spared "the plan was replaced"
ln -sf trace.precious trace.plans
said trace_in_place_of_a_link 0 'tokens/s' simulate own.plan --trace trace.plans
[ "$(cat trace.precious)" = precious ] && ok untouched_by_simulate ||
    fail untouched_by_simulate "written through the link"
said pipe_for_metrics 4 'it is a named pipe' report own.plan -o own.html --metrics pipe
said pipe_for_a_cluster 4 'it is a named pipe' check own.plan --cluster pipe
said endless_metrics 4 'larger than planc reads' report own.plan -o own.html --metrics /dev/zero
said pipe_for_a_report 4 "cannot write 'pipe'" report own.plan -o pipe
mkdir -p piped && mkfifo piped/manifest.json
said pipe_for_a_manifest 0 'manifest.json: it is a named pipe' checkpoint piped
(exec >&- && "$planc" report own.plan -o closed.html) 2>/dev/null
head -c 100 closed.html | grep -q '^<!doctype html' && ok closed_stdout_of_planc ||
    fail closed_stdout_of_planc "$(head -c 100 closed.html)"

# ── what the compiler writes ─────────────────────────────────────────────────
mkdir -p linked
echo precious >schedule.precious
ln -s ../schedule.precious linked/schedule.c
: >linked/.schedule.4711.o && : >linked/.trainer.4711 && : >linked/kernels.c.4711.part &&
    : >linked/.keep.o
"$planc" build small.plan -o linked --device cpu >linked.build 2>&1 ||
    fail build_linked "$(tail_of linked.build)"
[ "$(cat schedule.precious)" = precious ] && [ ! -L linked/schedule.c ] &&
    [ -s linked/schedule.c ] &&
    ok build_replaces_a_link || fail build_replaces_a_link "$(ls -l linked/schedule.c)"
left=$(cd linked && ls -dA .s* .t* .k* ./*.part 2>/dev/null | tr '\n' ' ')
[ "$left" = '.keep.o ' ] && ok build_sweeps || fail build_sweeps "left: $left"

export XDG_CACHE_HOME=$scratch/cache
ran() { # NAME: `planc run` trains
    timeout -k 5 120 "$planc" run small.plan -- --steps 1 >"$1.log" 2>&1 </dev/null &&
        grep -q '^loss: mean' "$1.log" && ! grep -q OWNED "$1.log"
}
mkdir -p cache/planc
chmod 755 cache cache/planc
touch -d '2 hours ago' "cache/planc/$(printf %032d 7).o.4711.part" cache/planc/.target.4711
: >cache/planc/.target.4712
ran cached && ok run_of_a_cache || fail run_of_a_cache "$(tail_of cached.log)"
modes=$(stat -c %a cache/planc cache/planc/run-* | sort -u)
[ "$modes" = 700 ] && ok cache_is_private || fail cache_is_private "modes $modes"
left=$(ls -A cache/planc | grep 471 | tr '\n' ' ')
[ "$left" = '.target.4712 ' ] && ok cache_is_swept || fail cache_is_swept "left: $left"
trainer=$(echo cache/planc/run-*/trainer)
before=$(stat -c %Y.%i "$trainer")
ran again && [ "$(stat -c %Y.%i "$trainer")" = "$before" ] && ok cache_is_used ||
    fail cache_is_used "built again: $(tail_of again.log)"
printf '#!/bin/sh\necho OWNED\n' >"$trainer"
ran tampered && ok tampered_trainer_is_not_run ||
    fail tampered_trainer_is_not_run "$(tail_of tampered.log)"
printf 'x' >>"$(dirname "$trainer")/program.c"
before=$(stat -c %Y.%i "$trainer")
ran touched && [ "$(stat -c %Y.%i "$trainer")" != "$before" ] && ok tampered_text_is_built_again ||
    fail tampered_text_is_built_again "$(tail_of touched.log)"
kept=$(echo cache/planc/????????????????????????????????.o)
printf 'x' | dd of="$kept" bs=1 seek=100 conv=notrunc 2>/dev/null
rm -rf cache/planc/run-*
ran damaged && ok damaged_object_is_compiled ||
    fail damaged_object_is_compiled "$(tail_of damaged.log)"
chmod 777 cache/planc
"$planc" run small.plan -- --steps 1 >open.log 2>&1 </dev/null
[ $? -eq 4 ] && grep -q "planc: '.*cache/planc' is not used: .*others may write" open.log &&
    ok open_cache_is_refused || fail open_cache_is_refused "$(tail_of open.log)"
