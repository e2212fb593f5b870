# What is left of a save that was killed, refused or cut off from power, at every call that changes
# the folder: a complete checkpoint loads, always, and the run that goes on from it ends with the
# weights of one that nothing happened to.
# Sourced by run.sh; trainers: one (a rank), pair (two), saving every 4 steps of 12, keep = 1.
if [ "$BUILD" = build-sanitize ]; then
    skip faults "a preloaded library goes before the sanitizer's own"
    return 0
fi
cc -O1 -Wall -shared -fPIC -o faults.so "$here/faults.c" -ldl ||
    { fail faults "faults.c does not compile"; return 0; }
# faulty RANKS [VARIABLE=VALUE…] -- [options]: like go, with the library; its folder is `hit`
faulty() {
    local ranks=$1 vars=()
    shift
    while [ "$1" != -- ]; do vars+=("$1"); shift; done
    shift
    if [ "$ranks" -eq 1 ]; then
        { env LD_PRELOAD="$scratch/faults.so" FAULT_DIR=hit "${vars[@]}" timeout -k 5 60 \
            "$scratch/one/trainer" --checkpoint-dir hit "$@" >hit.log 2>&1 </dev/null
        } 2>>killed.log
    else
        local pass=()
        for v in "${vars[@]}"; do pass+=(-x "$v"); done
        timeout -k 5 60 mpirun -n "$ranks" --oversubscribe --bind-to none -x \
            LD_PRELOAD="$scratch/faults.so" -x FAULT_DIR=hit "${pass[@]}" \
            "$scratch/pair/trainer" --checkpoint-dir hit "$@" >hit.log 2>&1 </dev/null
    fi
}
plain() { # RANKS [options]: the same trainer, with nothing in its way
    local ranks=$1
    shift
    if [ "$ranks" -eq 1 ]; then
        timeout -k 5 60 "$scratch/one/trainer" --checkpoint-dir hit "$@" >after.log 2>&1 </dev/null
    else timeout -k 5 60 mpirun -n "$ranks" --oversubscribe --bind-to none "$scratch/pair/trainer" \
        --checkpoint-dir hit "$@" >after.log 2>&1 </dev/null; fi
}
# What a run that nothing happens to ends with, and how far it has come when faults begin.
for ranks in 1 2; do
    rm -rf hit && plain $ranks --final "want.$ranks" && rm -rf hit && plain $ranks --steps 4 &&
        rm -rf "start.$ranks" && cp -r hit "start.$ranks"
    rm -f "calls.$ranks"
    faulty $ranks FAULT_RANK=0 FAULT_COUNT="$scratch/calls.$ranks" -- ||
        fail "faults.$ranks" "$(tail_of hit.log)"
done
calls=$(wc -l <calls.1)

# goes_on NAME RANKS: what is there loads, and trains to the same weights
goes_on() {
    if ! plain "$2" --resume --final "$1.end"; then fail "$1" "$(tail_of after.log)"; return 1; fi
    cmp -s "want.$2" "$1.end" || { fail "$1" "other weights after $(head -n 1 after.log)"
    return 1; }
    rm -f "$1.end"
    [ "$(ls hit | tr '\n' ' ')" = "lock step-00000012 " ] ||
        { fail "$1" "left in the folder: $(ls hit | tr '\n' ' ')"; return 1; }
}

# ── killed at every call ─────────────────────────────────────────────────────
# killed COUNT RANKS AT RANK: 0 when the run goes on well
killed() {
    rm -rf hit && cp -r "start.$1" hit
    faulty "$1" FAULT_KIND=kill FAULT_AT="$2" FAULT_RANK="$3" -- && return 0 # beyond its last call
    goes_on "killed.$1.$2.$3" "$1"
}
trials=0 good=0
for at in $(seq "$calls"); do
    trials=$((trials + 1))
    killed 1 "$at" 0 && good=$((good + 1))
done
count=$([ -n "${LONG:-}" ] && echo $((1000 - calls)) || echo $((48 > calls ? 48 - calls : 4)))
for i in $(seq "$count"); do # two ranks: any of them, anywhere
    trials=$((trials + 1))
    killed 2 $((i * 7919 % ($(wc -l <calls.2) - 1) + 1)) $((i % 2)) && good=$((good + 1))
done
[ $good -eq $trials ] && ok "killed.$trials" || fail killed "$good of $trials"

# ── refused at every call ────────────────────────────────────────────────────
# refused KIND AT: one line and status 4, or nothing was lost by it; then the run goes on
refused() {
    local name=refused.$1.$2 status
    rm -rf hit && cp -r start.1 hit
    faulty 1 FAULT_KIND="$1" FAULT_AT="$2" --
    status=$?
    if [ $status -ne 0 ]; then
        [ $status -eq 4 ] && [ "$(grep -c '^trainer:' hit.log)" -eq 1 ] ||
            { fail "$name" "exit $status: $(tail_of hit.log)"; return 1; }
        grep -E '^trainer:' hit.log | grep -qE 'hit|step' ||
            { fail "$name" "names nothing: $(grep '^trainer:' hit.log)"; return 1; }
        ls hit | grep -q partial && { fail "$name" "left behind: $(ls hit | tr '\n' ' ')"
        return 1; }
    fi
    if [ $status -eq 0 ] && [ "$1" != SHORT ] && ! sed -n "$2p" calls.1 | grep -q ' close '; then
        fail "$name" "$(sed -n "$2p" calls.1) failed, exit 0"; return 1; fi
    if [ $status -ne 0 ] && [ "$1" = SHORT ]; then
        fail "$name" "exit $status: $(tail_of hit.log)"; return 1; fi
    goes_on "$name" 1
}
trials=0 good=0
for at in $(seq "$calls"); do
    line=$(sed -n "${at}p" calls.1)
    case $line in
        *write*) kinds="EIO SHORT ENOSPC" ;;
        *create*|*mkdir*|*sync*) kinds=ENOSPC ;;
        *) kinds=EIO ;;
    esac
    [ -n "${LONG:-}" ] && kinds="EIO ENOSPC $(case $line in *write*) echo SHORT ;; esac)"
    for kind in $kinds; do
        trials=$((trials + 1))
        refused "$kind" "$at" && good=$((good + 1))
    done
done
[ $good -eq $trials ] && ok "refused.$trials" || fail refused "$good of $trials"
# On two ranks the one whose disk fails speaks, and both leave.
rm -rf hit && cp -r start.2 hit
faulty 2 FAULT_KIND=ENOSPC FAULT_AT=3 FAULT_RANK=1 --
status=$?
if [ $status -eq 4 ] && [ "$(grep -c '^trainer:' hit.log)" -eq 1 ] &&
    grep -q '^trainer:.*part-00001.*No space left.*last checkpoint is hit/step-00000004' hit.log; \
    then ok refused.rank_1
else fail refused.rank_1 "exit $status: $(tail_of hit.log)"; fi

# ── a rank that hangs or dies in a save ──────────────────────────────────────
for kind in STOP kill; do
    rm -rf hit && cp -r start.2 hit
    faulty 2 FAULT_KIND=$kind FAULT_AT=4 FAULT_RANK=1 --
    status=$?
    if ! none_left "$scratch/pair"; then
        fail "rank.$kind" "left: $(survivors "$scratch/pair")"; sweep "$scratch/pair"
    elif [ $status -eq 0 ] || [ $status -eq 124 ]; then # 124: timeout had to end it
        fail "rank.$kind" "exit $status: $(tail_of hit.log)"
    elif goes_on "rank.$kind" 2; then ok "rank.$kind"; fi
done

# The same where each rank is alone on its host, and nobody there sees that it stands still: in a
# save that the run waits for, and while rank 0 writes the last weights.
# alone NAME FOLDER RANK CALL SECONDS [options]: RANK is stopped in its CALL-th call that changes
# FOLDER, and the run ends by itself within SECONDS
alone() {
    local name=$1 folder=$2 rank=$3 call=$4 limit=$5 status
    shift 5
    local each=(-x LD_PRELOAD="$scratch/faults.so" -x FAULT_DIR="$folder" -x FAULT_KIND=STOP
                -x FAULT_AT="$call" -x FAULT_RANK="$rank")
    rm -rf hit ends && mkdir ends
    timeout -k 5 "$limit" mpirun --oversubscribe --bind-to none \
        -n 1 "${each[@]}" -x PLANC_HOST=a "$scratch/apart/trainer" --checkpoint-dir hit "$@" : \
        -n 1 "${each[@]}" -x PLANC_HOST=b "$scratch/apart/trainer" --checkpoint-dir hit "$@" \
        >hit.log 2>&1 </dev/null
    status=$?
    if ! none_left "$scratch/apart"; then
        fail "$name" "left: $(survivors "$scratch/apart")"; sweep "$scratch/apart"
    elif [ $status -eq 0 ] || [ $status -eq 124 ]; then
        fail "$name" "exit $status: $(tail_of hit.log)"
    elif ! grep -qE '^trainer: rank [01] has waited .* one of another host' hit.log; then
        fail "$name" "$(tail_of hit.log)"
    else ok "$name"; fi
}
build apart --set checkpoint.async=off --set run.timeout=5s
alone rank.alone_in_a_save hit 1 2 100
# Two calls before the first step find out whether the file can be written.
[ -n "$LONG" ] && alone rank.alone_in_the_start ends 0 2 200 --steps 2 --final ends/weights
alone rank.alone_in_the_end ends 0 4 100 --steps 2 --final ends/weights

# ── power ────────────────────────────────────────────────────────────────────
rm -rf hit record && cp -r start.1 hit && mkdir record
faulty 1 FAULT_RECORD=record -- --steps 8 || fail power "$(tail_of hit.log)"
# power FORGET: how many of the folders that could be on the disk load no checkpoint, or an older
# one than they must
power() {
    local n=0 state least
    bad=0
    python3 "$here/powerloss.py" record start.1 hit "power.$1" --forget "$1" >power.log 2>&1 ||
        { fail "power.$1" "$(tail_of power.log)"; bad=-1; return; }
    while read -r least; do
        state=power.$1/state.$n n=$((n + 1))
        timeout 60 "$scratch/one/trainer" --checkpoint-dir "$state" --resume --steps 0 >after.log \
            2>&1 </dev/null &&
            [ "$(head -n 1 after.log | sed -nE 's/^resumed: step ([0-9]+) .*/\1/p')" -ge "$least" \
                ] && continue
        bad=$((bad + 1))
        why="$state, at least $least: $(tail_of after.log)"
        [ "$1" = none ] || break # one is enough to show that it would be seen
    done <"power.$1/least"
    states=$n
}
power none
[ $bad -eq 0 ] && ok "power.$states" || fail power "$bad of $states: $why"
for kind in file folder; do
    power $kind
    [ $bad -gt 0 ] && ok "power.without_flush_of_a_$kind" ||
        fail "power.without_flush_of_a_$kind" "all $states load: the test shows nothing"
done
