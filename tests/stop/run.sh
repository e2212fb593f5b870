#!/usr/bin/env bash
# A run that is asked to stop loses nothing, whether a rank, mpirun or planc run is asked, by
# whatever signal, in the middle of whatever step. The model is small and its steps are short, so
# that a signal meets every part of one; LONG=1 does it ten times as often.
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../lib/common.sh"
small_plan small "layers = 2;  hidden = 128;  heads = 4;  kv_heads = 2;  ffn = 384;  vocab = 512" \
    "sequence = 64;  local = 2" \
    'schedule constant { steps = 1000000 }' \
    'data { train = "tokens.bin";  format = uint16 }'
python3 "$here/../faults/make.py" tokens tokens.bin 50001 512
"$planc" build small.plan -o two --device cpu >two.build 2>&1 || fail build "$(tail_of two.build)"
"$planc" build small.plan -o one --device cpu --set mesh.fsdp=1 --set batch.local=4 >one.build \
    2>&1 || fail build "$(tail_of one.build)"

is_over() { ! kill -0 "$launcher" 2>/dev/null; }
runs_or_over() { has_lines "$1.jsonl" 3 || is_over; }
# started DIR NAME: waits for three steps of the run in the background whose process is `launcher`
started() {
    within 120 runs_or_over "$2" && has_lines "$2.jsonl" 3 &&
        { sleep "0.$((RANDOM % 10))$((RANDOM % 10))"; return 0; }
    fail "$2" "did not start: $(tail_of "$2.log")"
    kill -KILL "$launcher" 2>/dev/null
    sweep "$scratch/$1"
    return 1
}
# ended NAME: waits for `launcher`, at most two minutes; sets `status`
ended() {
    within 120 is_over && { wait "$launcher"; status=$?; return 0; }
    fail "$1" "still running after two minutes: $(tail_of "$1.log")"
    kill -KILL "$launcher"
    sweep "$scratch/two"
    return 1
}
whole() { # FILE: a safetensors file of which every byte is there
    python3 - "$1" <<'PY'
import json, os, struct, sys
with open(sys.argv[1], "rb") as f:
    n = struct.unpack("<Q", f.read(8))[0]
    header = json.loads(f.read(n))
end = max(t["data_offsets"][1] for name, t in header.items() if name != "__metadata__")
size, want = os.path.getsize(sys.argv[1]), 8 + n + end
sys.exit(0 if size == want else "%d bytes, not %d" % (size, want))
PY
}
# stop NAME rank|mpirun SIGNAL STATUS
stop() {
    local name=$1 whom=$2
    rm -f "$name".{jsonl,st,log}
    # a shell gives a process in the background SIGINT ignored; a launcher would keep that
    env --default-signal=INT mpirun -n 2 --oversubscribe --bind-to none "$scratch/two/trainer" \
        --metrics "$name.jsonl" --final "$name.st" >"$name.log" 2>&1 </dev/null &
    launcher=$!
    started two "$name" || return
    [ "$whom" = mpirun ] || whom=$(survivors "$scratch/two" | cut -d' ' -f"$((RANDOM % 2 + 1))")
    [ "$whom" = mpirun ] && whom=$launcher
    kill "-$3" "$whom"
    ended "$name" || return
    if ! none_left "$scratch/two"; then
        fail "$name" "processes left: $(survivors "$scratch/two")"
        sweep "$scratch/two"
    elif [ ! -s "$name.st" ]; then
        fail "$name" "status $status and no weights: $(tail_of "$name.log" 6)"
    elif ! why=$(whole "$name.st" 2>&1); then fail "$name" "the weights: $why"
    elif [ "$status" -ne "$4" ]; then fail "$name" "status $status, not $4: $(tail_of "$name.log")"
    elif grep -q '^trainer:' "$name.log"; then fail "$name" "$(grep '^trainer:' "$name.log")"
    else stopped=$((stopped + 1)); fi
}
stopped=0 tried=0
for i in $(seq "$([ -n "$LONG" ] && echo 50 || echo 5)"); do
    stop rank_term rank TERM 75
    stop rank_int rank INT 75
    tried=$((tried + 2))
    # Nothing can be saved by ranks that mpirun kills before they come to run: it gives them 2 s
    # here, which it also waits before it signals.
    [ -n "$LONG" ] || [ "$i" -le 3 ] || continue
    OMPI_MCA_odls_base_sigkill_timeout=2 stop mpirun_term mpirun TERM 1
    OMPI_MCA_odls_base_sigkill_timeout=2 stop mpirun_int mpirun INT 1
    tried=$((tried + 2))
done
[ $stopped -eq $tried ] && ok "stops_$stopped" || fail stops "$stopped of $tried kept their weights"
grep -q '^stopped by SIGINT after step' rank_int.log && ok says_which_signal ||
    fail says_which_signal "$(grep stopped rank_int.log)"

# The weights are those of the step that it names: the same as those of a run of so many steps.
step=$(sed -n 's/^stopped by SIGINT after step \([0-9]*\).*/\1/p' rank_int.log)
launch 2 two --steps "$((step + 1))" --final straight.st >straight.log 2>&1
cmp -s straight.st rank_int.st && ok weights_of_that_step ||
    fail weights_of_that_step \
    "other weights than those of $((step + 1)) steps: $(tail_of straight.log)"

# ── planc run ────────────────────────────────────────────────────────────────
# run_stopped NAME HOW: started on a terminal of its own, as a person does; status 75
run_stopped() {
    local name=run_$1 why
    rm -f "$name".{jsonl,st,log}
    why=$(python3 "$here/terminal.py" "$1" "$planc" "$name" 2>&1)
    if [ -n "$why" ]; then fail "$name" "$why: $(tail_of "$name.log" 6)"
    elif ! why=$(whole "$name.st" 2>&1); then fail "$name" "the weights: $why"
    else ok "$name"; fi
}
for how in ctrl_c term int_to_mpirun term_to_mpirun hangup; do run_stopped $how; done
rm -f twice.{jsonl,st,log} # or the steps of an earlier run would be waited for
why=$(python3 "$here/terminal.py" twice_ctrl_c_ends "$planc" twice 2>&1)
[ -z "$why" ] && ok run_ends_on_second_ctrl_c ||
    fail run_ends_on_second_ctrl_c "$why: $(tail_of twice.log)"
# A second one that comes soon meets ranks that save, or an mpirun that ends, which must not crash.
for gap in 0.05 0.2 0.5 0.8; do
    rm -f soon.{jsonl,st,log}
    why=$(GAP=$gap python3 "$here/terminal.py" twice_soon "$planc" soon 2>&1)
    [ -z "$why" ] && ok "two_ctrl_c_$gap" || fail "two_ctrl_c_$gap" "$why: $(tail_of soon.log)"
done

# ── while the ranks start ────────────────────────────────────────────────────
# A signal is no less one for coming early: mpirun has no ranks yet, or none that take it. Before
# mpirun is started nothing runs that could be saved.
early() { # SIGNAL MILLISECONDS: sets `launcher`
    env --default-signal=INT "$planc" run small.plan -- --metrics early.jsonl --final early.st \
        >early.log 2>&1 </dev/null &
    launcher=$!
    # SIGUSR2 ends whatever does not know it, such as a process that is not planc yet
    [ "$1" != USR2 ] || within 60 knows_usr2
    sleep "0.$(printf %03d "$2")"
    kill "-$1" $launcher
}
knows_usr2() { # caught, by the mask of the system's signals
    local caught
    caught=$(sed -n 's/^SigCgt:\s*//p' /proc/$launcher/status 2>/dev/null)
    [ $((0x${caught:-0} >> 11 & 1)) -eq 1 ]
}
for at in 15 60 120 180 240; do
    rm -f early.jsonl early.st
    early TERM $at
    ended early_term || continue
    if [ $status -eq 75 ] && whole early.st; then ok early_term_$at
    elif [ $status -eq 143 ] && [ ! -e early.jsonl ]; then ok early_term_$at # nothing ran yet
    else fail early_term_$at "status $status: $(tail_of early.log)"; fi
done
for at in 60 120; do
    rm -f early.jsonl early.st
    early USR2 $at
    started two early || continue
    kill -USR1 $launcher
    ended early_save && [ $status -eq 75 ] && whole early.st && ok early_save_$at ||
        fail early_save_$at "status $status: $(tail_of early.log)"
done

# A rank that is not seen is not waited for once one that is seen has met it. A wait of seconds
# would be a thousand steps.
mkdir -p unseen slow
real=$(command -v mpirun)
cat >unseen/mpirun <<END
#!/bin/sh
# the second rank is a child of a shell, as if another host's daemon had started it
shift 2
exec "$real" -n 1 "\$@" : -n 1 sh -c 'trap "" USR1 USR2; "\$0" "\$@"; exit \$?' "\$@"
END
printf '#!/bin/sh\nsleep 7\nexec "%s" "$@"\n' "$real" >slow/mpirun
chmod +x unseen/mpirun slow/mpirun
soon() { # NAME: stopped before its first step or soon after
    ended "$1" && [ $status -eq 75 ] && whole early.st &&
        [ "$(wc -l <early.jsonl)" -lt 300 ] && ok "$1" ||
        fail "$1" "status $status, $(wc -l <early.jsonl) steps: $(tail_of early.log)"
}
rm -f early.jsonl early.st
PATH=$scratch/unseen:$PATH early TERM 120
soon early_unseen
if [ -n "$LONG" ]; then # ranks that start slowly are waited for
    rm -f early.jsonl early.st
    PATH=$scratch/slow:$PATH early TERM 120
    soon early_slow
fi

# ── a request to save ────────────────────────────────────────────────────────
rm -f saved.{jsonl,st,log}
mpirun -n 2 --oversubscribe --bind-to none "$scratch/two/trainer" --metrics saved.jsonl --final \
    saved.st >saved.log 2>&1 </dev/null &
launcher=$!
if started two saved; then
    kill -USR2 $launcher
    within 60 test -s saved.st && whole saved.st && mv saved.st saved.first
    more_lines saved.jsonl 3
    kill -USR1 $launcher
    if ended saved; then
        if [ $status -ne 75 ]; then fail save_and_go_on "status $status: $(tail_of saved.log)"
        elif [ "$(grep -c 'as SIGUSR2 asked' saved.log)" -ne 1 ]; then
            fail save_and_go_on "saved $(grep -c 'as SIGUSR2 asked' saved.log) times"
        elif [ ! -s saved.first ] || cmp -s saved.first saved.st; then
            fail save_and_go_on "it did not go on"
        else ok save_and_go_on; fi
    fi
fi

# ── a console that nobody reads ──────────────────────────────────────────────
rm -f unread.{jsonl,st} unread.pipe && mkfifo unread.pipe
sleep 200 <unread.pipe & reader=$!
"$scratch/one/trainer" --log-every 1 --metrics unread.jsonl --final unread.st >unread.pipe \
    2>unread.log </dev/null &
launcher=$!
if started one unread; then
    before=0 now=1
    for _ in $(seq 100); do
        [ "$before" -ne "$now" ] || break
        before=$now
        sleep 1
        now=$(wc -l <unread.jsonl)
    done
    kill -TERM $launcher
    if ended unread; then
        if [ $status -eq 75 ] && whole unread.st; then
            ok unread_console
        else
            fail unread_console "status $status: $(tail_of unread.log)"
        fi
    fi
fi
kill $reader 2>/dev/null
wait $reader 2>/dev/null

# ── a launcher that would not wait ───────────────────────────────────────────
warned() {
    OMPI_MCA_odls_base_sigkill_timeout=$1 launch 2 two --steps 4 --final warned.st 2>&1 |
        grep -c '^warning: mpirun that is told to end kills its ranks after'
}
[ "$(warned 0)" -eq 1 ] && ok warns_of_a_short_timeout ||
    fail warns_of_a_short_timeout "nothing is said"
[ "$(warned 60)" -eq 0 ] && ok no_warning_of_a_long_one || fail no_warning_of_a_long_one "it warns"
