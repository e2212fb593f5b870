# How a run stops and goes on by the same command: signals to a rank, a limit of time, a loss that
# is not finite, two runs in one folder, folders that cannot be used; and a run of four ranks that
# is killed again and again. Sourced by run.sh.
# Steps are short and this script may be late, so the run has no end but what stops it.
sed 's/schedule cosine {.*/schedule cosine { steps = 100000000;  warmup = 3;  floor = 0.1 }/
     s/every = 4/every = 1000000/' run.plan >long.plan
rm -rf long && "$planc" build long.plan -o long >long.build 2>&1 ||
    fail long "$(tail_of long.build)"

pid_of() { rank_of "$scratch/$1" "$2"; } # DIR RANK
is_over() { ! kill -0 $launcher 2>>pids.log; }
lines_or_over() { has_lines "$1" "$2" || is_over; }
# until_lines FILE N: it has so many lines
until_lines() { within 60 lines_or_over "$1" "$2" && has_lines "$1" "$2"; }
in_background() { # LOG DIR [options]
    local log=$1 dir=$2
    shift 2
    : >"$log.log" # what an earlier run said is not waited for
    timeout -k 5 120 mpirun -n 2 --oversubscribe --bind-to none "$scratch/$dir/trainer" "$@" \
        >"$log.log" 2>&1 </dev/null &
    launcher=$!
}

# ── signals ──────────────────────────────────────────────────────────────────
rm -rf stops.saved stops.jsonl
reached=0
for signal in TERM INT USR1; do
    in_background "stop_$signal" long --checkpoint-dir stops.saved --metrics stops.jsonl
    until_lines stops.jsonl $((reached + 30)) ||
        fail "stop.$signal" "does not come on: $(tail_of "stop_$signal.log")"
    pid=$(pid_of long $((RANDOM % 2))) && kill -$signal "$pid"
    wait $launcher
    status=$?
    reached=$(wc -l <stops.jsonl)
    if [ $status -ne 75 ]; then fail "stop.$signal" "exit $status: $(tail_of "stop_$signal.log")"
    elif ! grep -q "^stopped by SIG$signal after step $((reached - 1))" "stop_$signal.log"; then
        fail "stop.$signal" "$(tail_of "stop_$signal.log")"
    elif [ ! -e "stops.saved/step-$(printf %08d "$reached")/manifest.json" ]; then
        fail "stop.$signal" "step $reached is not saved: $(ls stops.saved | tr '\n' ' ')"
    else ok "stop.$signal"; fi
done
in_background stop_USR2 long --checkpoint-dir stops.saved --metrics stops.jsonl
until_lines stops.jsonl $((reached + 20))
kill -USR2 "$(pid_of long 1)" 2>>pids.log
within 60 grep -q '^checkpoint: step-' stop_USR2.log
more_lines stops.jsonl 3
is_over || kill -TERM "$(pid_of long 0)" 2>>pids.log
wait $launcher
status=$?
if [ $status -ne 75 ]; then fail stop.USR2 "exit $status: $(tail_of stop_USR2.log)"
elif [ "$(grep -c '^checkpoint: step-' stop_USR2.log)" -ne 2 ]; then
    fail stop.USR2 "$(grep '^checkpoint' stop_USR2.log | tr '\n' '|')"
else ok stop.USR2; fi
steps=$(($(wc -l <stops.jsonl) + 20))
go stop_end 2 long --checkpoint-dir stops.saved --metrics stops.jsonl --steps $steps \
    --final stops.safetensors || fail stop.end "$(tail_of stop_end.log)"
go long_whole 2 long --checkpoint-dir long.whole --fresh --metrics long_whole.jsonl \
    --steps $steps --final long_whole.safetensors || fail long_whole "$(tail_of long_whole.log)"
holds stop.same same long_whole.jsonl stops.jsonl
cmp -s long_whole.safetensors stops.safetensors && ok stop.weights ||
    fail stop.weights "$(cmp long_whole.safetensors stops.safetensors 2>&1)"

# ── a limit of time, an interval of time ─────────────────────────────────────
rm -rf limited limited.jsonl limited.saved && "$planc" build long.plan -o limited --set \
    run.time_limit=1s >limited.build 2>&1 || fail limited "$(tail_of limited.build)"
says time_limit 75 '^stopped by run.time_limit after step [0-9]+' 2 limited \
    --checkpoint-dir limited.saved --metrics limited.jsonl
last=$(tail -n 1 limited.jsonl | sed -E 's/^\{"step":([0-9]+),.*/\1/')
[ -e "limited.saved/step-$(printf %08d $((last + 1)))/manifest.json" ] && ok time_limit.saved ||
    fail time_limit.saved "step $last, $(ls limited.saved | tr '\n' ' ')"
says time_limit.resumed 75 "^resumed: step $((last + 1)) " 2 limited \
    --checkpoint-dir limited.saved --metrics limited.jsonl
# It goes on saving, and never sooner than that after the save before.
rm -rf timed timed.saved && "$planc" build long.plan -o timed --set checkpoint.every=500ms \
    >timed.build 2>&1 || fail timed "$(tail_of timed.build)"
began=$(date +%s.%N)
in_background timed timed --checkpoint-dir timed.saved
saves() { grep -c '^checkpoint: step-' timed.log; }
saved_or_over() { [ "$(saves)" -ge 3 ] || is_over; }
within 60 saved_or_over
kill -TERM "$(pid_of timed 0)" 2>>pids.log
wait $launcher
status=$? n=$(saves) took=$(seconds_since "$began")
[ $status -eq 75 ] && awk -v n="$n" -v s="$took" 'BEGIN { exit !(n >= 3 && n <= 2 * s + 1) }' &&
    ok every_500ms || fail every_500ms "exit $status, $n saves in $took s: $(tail_of timed.log)"

# ── a loss that is not finite ────────────────────────────────────────────────
# The rate of step 5 is no number: its update ruins the weights, and step 6 sees it.
cat >ruin.c <<'C'
#include <math.h>
#include <stdint.h>
struct program;
double __real_schedule_lr(const struct program *p, int64_t step);
double __wrap_schedule_lr(const struct program *p, int64_t step)
{
    return step == 5 ? NAN : __real_schedule_lr(p, step);
}
C
cc -O1 -c ruin.c -o ruin.o
cat >mpicc.sh <<'M'
#!/bin/sh
case " $* " in *" -c "*|*" -E "*) exec mpicc "$@" ;; esac
exec mpicc "$RUIN" "$@" -Wl,--wrap=schedule_lr
M
chmod +x mpicc.sh
for every in 4 1; do RUIN=$scratch/ruin.o MPICC=$scratch/mpicc.sh build ruined_$every \
    --set checkpoint.every=$every; rm -rf ruined_$every.saved; done
says nonfinite 4 \
    '^trainer: step 6: .*not finite.*the last checkpoint is ruined_4.saved/step-00000004' \
    2 ruined_4 --checkpoint-dir ruined_4.saved
[ "$(ls ruined_4.saved | tr '\n' ' ')" = "lock step-00000004 " ] && ok nonfinite.saved ||
    fail nonfinite.saved "$(ls ruined_4.saved | tr '\n' ' ')"
ruined='weights or moments of step 6 are not finite: not saved|step 6: .*not finite'
says nonfinite.weights 4 "^trainer: .*($ruined).*last checkpoint is ruined_1.saved/step-00000005" \
    2 ruined_1 --checkpoint-dir ruined_1.saved
[ "$(ls ruined_1.saved | tr '\n' ' ')" = "lock step-00000004 step-00000005 " ] &&
    ok nonfinite.weights_saved || fail nonfinite.weights_saved "$(ls ruined_1.saved | tr '\n' ' ')"
says nonfinite.goes_on 0 '^resumed: step 5 ' 2 two --checkpoint-dir ruined_1.saved \
    --final unruined.safetensors
cmp -s whole.safetensors unruined.safetensors && ok nonfinite.goes_on_well ||
    fail nonfinite.goes_on_well "$(cmp whole.safetensors unruined.safetensors 2>&1)"

# ── batches that are left out ────────────────────────────────────────────────
build left_out --set 'run.skip_batches=[2, 5..7]'
rm -rf left_out.saved
go left_out_a 2 left_out --checkpoint-dir left_out.saved --metrics left_out.jsonl --steps 3 &&
    go left_out_b 2 left_out --checkpoint-dir left_out.saved --metrics left_out.jsonl ||
    fail left_out "$(tail_of left_out_b.log)"
why=$(python3 - <<'P'
import json
rows = [json.loads(l) for l in open("whole.jsonl")]
left = [json.loads(l) for l in open("left_out.jsonl")]
batches = [b for b in range(20) if b not in (2, 5, 6, 7)][:12]
want = [rows[b]["tokens_hash"] for b in batches if b < 12]
if [r["tokens_hash"] for r in left][:len(want)] != want:
    print("other samples")
if [(r["step"], r["lr"]) for r in left] != [(r["step"], r["lr"]) for r in rows]:
    print("other steps or rates")
m = json.load(open("left_out.saved/step-00000012/manifest.json"))
skipped = m["plan"]["rest"].get("run.skip_batches")
if m["counters"]["sample"] != 8 * (batches[-1] + 1) or skipped != [2, [5, 7]]:
    print(m["counters"], skipped)
P
)
[ -z "$why" ] && ok left_out || fail left_out "$why"

# ── folders ──────────────────────────────────────────────────────────────────
rm -rf lock.saved lock.jsonl
in_background lock_a long --checkpoint-dir lock.saved --steps 100000000 --metrics lock.jsonl
until_lines lock.jsonl 3
says lock 4 'another run writes there \(host .*, process [0-9]+' 2 two --checkpoint-dir lock.saved
kill -TERM "$(pid_of long 0)" && wait $launcher
[ $? -eq 75 ] && ok lock.first_goes_on || fail lock.first_goes_on "$(tail_of lock_a.log)"
says lock.released 0 '^resumed' 2 long --checkpoint-dir lock.saved --steps 1
# Somebody removes the file: it is taken again at the next save; where another run has one by then,
# nothing is saved.
rm -f lock_b.jsonl
in_background lock_b long --checkpoint-dir lock.saved --fresh --steps 100000000 --metrics \
    lock_b.jsonl
until_lines lock_b.jsonl 3
rm lock.saved/lock && kill -USR2 "$(pid_of long 1)"
within 60 grep -q '^checkpoint: step' lock_b.log
says lock.taken_again 4 'another run writes there' 2 two --checkpoint-dir lock.saved
rm lock.saved/lock && : >lock.saved/lock
locked lock.saved/lock
kill -USR2 "$(pid_of long 1)" && wait $launcher
status=$?
kill $holder 2>>pids.log
wait $holder 2>>pids.log
if [ $status -eq 4 ] && grep -q '^trainer: .*lock.saved: another run writes there' lock_b.log; then
    ok lock.lost
else fail lock.lost "exit $status: $(tail_of lock_b.log)"; sweep "$scratch/long"; fi
: >file && ln -sfn saved link
says folder.file 4 'checkpoint folder file: is no folder' 2 two --checkpoint-dir file
says folder.link 4 'checkpoint folder link: is a link' 2 two --checkpoint-dir link
says folder.below_a_file 4 'checkpoint folder file/below' 2 two --checkpoint-dir file/below
rm -rf made
says folder.made 0 '^step 0' 2 two --checkpoint-dir made/a/b --steps 1
if [ "$(id -u)" -eq 0 ] && command -v setpriv >/dev/null; then
    rm -rf others && mkdir others && cp -r saved others/saved && chmod -R go-w others &&
        chmod 755 others
    as_nobody() { timeout -k 5 60 setpriv --reuid 65534 --regid 65534 --clear-groups env HOME=/tmp \
        "$scratch/one/trainer" "$@" >nobody.log 2>&1 </dev/null; }
    as_nobody --checkpoint-dir others/saved
    status=$?
    if grep -qE 'cannot execute|Permission denied.*trainer$' nobody.log; then
        skip folder.others "another user cannot reach this folder"
    elif [ $status -eq 4 ] && [ "$(grep -c '^trainer:' nobody.log)" -eq 1 ] &&
        grep -q "others/saved: Permission denied (it is another user's)" nobody.log; then
        ok folder.others
    else fail folder.others "exit $status: $(tail_of nobody.log)"; fi
else
    skip folder.others "needs root and setpriv"
fi
# Metrics: what is no file of metrics is not cut.
rm -rf cut_metrics && cp -r saved cut_metrics && rm -rf cut_metrics/step-00000012 &&
    echo "a letter" >letter.txt
says metrics.other_file 4 'letter.txt: it is there and holds no metrics' 2 two \
    --checkpoint-dir cut_metrics --metrics letter.txt
[ "$(cat letter.txt)" = "a letter" ] && ok metrics.other_file_stays ||
    fail metrics.other_file_stays "$(cat letter.txt)"
{ head -n 10 whole.jsonl; printf '{"step":10,"lo'; } >torn.jsonl
says metrics.torn 0 '^resumed: step 8' 2 two --checkpoint-dir cut_metrics --metrics torn.jsonl
holds metrics.cut same whole.jsonl torn.jsonl
head -n 5 whole.jsonl >gap.jsonl && rm -rf cut_metrics/step-00000012
says metrics.gap 0 'gap.jsonl: its last step is 4, and the run goes on with step 8' \
    2 two --checkpoint-dir cut_metrics --metrics gap.jsonl

# ── killed at random ─────────────────────────────────────────────────────────
sed 's/fsdp = 2 }/fsdp = 2;  dp = 2 }/
     s/local = 2/local = 1/
     s/schedule cosine {.*/schedule constant { }/
     s/every = 4;/every = 10;/' run.plan >four.plan
rm -rf four four.saved && "$planc" build four.plan -o four >four.build 2>&1 ||
    fail killed_runs "$(tail_of four.build)"
kills=$([ -n "${LONG:-}" ] && echo 100 || echo 6) done_kills=0
newest() { ls four.saved 2>>pids.log | grep -E '^step-[0-9]+$' | tail -n 1; }
is_to_be_killed() {
    [ "$(survivors "$scratch/four" | wc -w)" -eq 4 ] &&
        { [ $((i % 3)) -eq 0 ] || [ "$(newest)" != "$before" ]; }
}
for i in $(seq "$kills"); do
    before=$(newest)
    timeout -k 5 120 mpirun -n 4 --oversubscribe --bind-to none "$scratch/four/trainer" \
        --checkpoint-dir four.saved --steps 100000000 >four.log 2>&1 </dev/null &
    launcher=$!
    # every third is killed while it starts or soon after, the others behind a save of their own
    within 60 is_to_be_killed
    sleep "0.$((RANDOM % 10))$((RANDOM % 10))"
    victims=$(survivors "$scratch/four")
    [ $((RANDOM % 2)) -eq 0 ] && victims=$(echo "$victims" | tr ' ' '\n' | grep . | shuf -n 1)
    # shellcheck disable=SC2086
    kill -KILL $victims 2>>pids.log && done_kills=$((done_kills + 1))
    wait $launcher 2>>pids.log
    none_left "$scratch/four" || sweep "$scratch/four"
done
last=$(ls four.saved | sed -nE 's/^step-0*([0-9]+)$/\1/p' | sort -n | tail -n 1)
steps=$((${last:-0} + 25))
go four_end 4 four --checkpoint-dir four.saved --steps $steps --final four.safetensors ||
    fail killed_runs "$(tail_of four_end.log)"
rm -rf four.whole
go four_whole 4 four --checkpoint-dir four.whole --steps $steps --final four_whole.safetensors ||
    fail killed_runs "$(tail_of four_whole.log)"
if [ "${last:-0}" -lt 10 ]; then fail killed_runs "no step was saved in $kills runs"
elif ! cmp -s four.safetensors four_whole.safetensors; then
    fail killed_runs "other weights at step $steps after $done_kills kills"
else ok "killed_runs.$done_kills"; \
    echo "note killed_runs: $done_kills kills, $steps steps, the same bytes"; fi
