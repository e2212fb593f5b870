# What every suite needs: where things are, how a verdict is printed, how ranks are launched on a
# machine with fewer cores than ranks, and a way to be sure that none of them survives. Sourced by
# tests/*/run.sh; a suite prints lines
#   ok NAME      FAIL NAME: why      skip NAME: reason
# and tests/run.sh counts them.
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
BUILD=${BUILD:-build}
planc=$top/$BUILD/planc
suite=$(basename "$(cd "$(dirname "$0")" && pwd)")
scratch=$top/$BUILD/tests/$suite
oracle=$top/../shared/oracle
mkdir -p "$scratch" && cd "$scratch" || exit 1

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# containers forbid it, and Open MPI then complains on every start
export OMPI_MCA_btl_vader_single_copy_mechanism=none
# A trainer starts in 0.05 s instead of 0.4: Open MPI does not look for networks whose transport it
# would not take here, and needs no daemon for a rank without mpirun. LONG=1: as a user starts it.
[ -n "${LONG:-}" ] || export OMPI_MCA_pml=ob1 OMPI_MCA_ess_singleton_isolated=1
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} TMPDIR=${TMPDIR:-/tmp}
# kernels kept by a person's own builds must not stand in for those under test
export XDG_CACHE_HOME=$top/$BUILD/tests/cache
if [ "$BUILD" = build-sanitize ]; then
    # Open MPI and its transports keep memory for the life of the process; everything of ours must
    # still be clean.
    export LSAN_OPTIONS="suppressions=$top/tests/lib/lsan.supp:print_suppressions=0"
    # whole stacks, or suppressions match nothing
    export ASAN_OPTIONS="detect_leaks=1:abort_on_error=0:exitcode=66:fast_unwind_on_malloc=0"
    export UBSAN_OPTIONS="print_stacktrace=1:halt_on_error=1:exitcode=66"
fi

ok()   { printf 'ok %s\n' "$1"; }
fail() { printf 'FAIL %s: %s\n' "$1" "$2"; }
skip() { printf 'skip %s: %s\n' "$1" "$2"; }
# The last lines of a file on one line, for a verdict.
tail_of() { tail -n "${2:-3}" "$1" 2>/dev/null | tr '\n' '|' | cut -c1-400; }

# texts PLAN DIR [option…]: a build for cuda whose texts alone are wanted: no NVRTC, and a C
# compiler that only makes empty files.
texts() {
    printf '#!/bin/sh\nfor word; do [ "$before" = -o ] && : >"$word"; before=$word; done\n' \
        >"$scratch/no_compiler" && chmod +x "$scratch/no_compiler" &&
        MPICC=$scratch/no_compiler PLANC_NVRTC=/nowhere "$planc" build "$1" -o "$2" --device cuda \
        "${@:3}"
}

# small_plan TITLE SIZES BATCH LINE...: TITLE.plan, a llama on two ranks of cpu. SIZES are the keys
# of its model, BATCH those of the batch; each LINE is one more line of the plan.
small_plan() {
    local title=$1 sizes=$2 batch=$3
    shift 3
    {
        printf 'use "models/llama.plan"\nuse "clusters/cpu.plan"\n\nplan "%s" {\n' "$title"
        printf '    model llama { %s }\n    cluster cpu { }\n    mesh { fsdp = 2 }\n' "$sizes"
        printf '    batch { %s }\n    optimizer adamw { lr = 1e-3 }\n' "$batch"
        printf '    %s\n' "$@"
        printf '}\n'
    } >"$title.plan"
}

# launch RANKS DIR [trainer options]: output goes where the caller sends it.
launch() {
    local ranks=$1 dir=$2
    shift 2
    mpirun -n "$ranks" --oversubscribe --bind-to none "$dir/trainer" "$@" </dev/null
}
# at_once COMMAND…: for a run that is refused. When a rank has ended with an error, mpirun waits for
# a second before it kills the others; here it does not, unless LONG=1.
at_once() {
    if [ -n "${LONG:-}" ]; then "$@"; else OMPI_MCA_odls_base_sigkill_timeout=0 "$@"; fi
}
# judged NAME STATUS PATTERN: a run that ended with `status` and wrote NAME.log. It says PATTERN,
# and one line that begins with "trainer:" unless STATUS is 0 or 75.
judged() {
    local lines told=1
    case $2 in 0 | 75) told=0 ;; esac
    lines=$(grep -c '^trainer:' "$1.log")
    if [ "$status" -ne "$2" ]; then fail "$1" "exit $status, not $2: $(tail_of "$1.log")"
    elif [ "$lines" -ne $told ]; then
        fail "$1" "$lines lines begin 'trainer:': $(grep '^trainer:' "$1.log" |
            tr '\n' '|') $(tail_of "$1.log")"
    elif ! grep -qE "$3" "$1.log"; then
        fail "$1" "no /$3/: $(grep '^trainer:' "$1.log")$(tail_of "$1.log")"
    else ok "$1"; fi
}
# within SECONDS COMMAND…: repeats it until it succeeds; 1 if it does not within that time. Cases
# wait for what must happen, as long as a busy machine may take, and never for a time.
within() {
    local end=$((SECONDS + $1))
    shift
    until "$@"; do
        [ $SECONDS -lt $end ] || return 1
        sleep 0.05
    done
}
has_lines() { [ -s "$1" ] && [ "$(wc -l <"$1")" -ge "$2" ]; }
# more_lines FILE N: it gets N more lines
more_lines() { within 60 has_lines "$1" $(($(wc -l <"$1") + $2)); }
# locked FILE: `holder` is a process that holds its lock. It waits, should a look have the lock just
# then.
cannot_lock() { ! flock -n "$1" true; }
locked() {
    flock --no-fork "$1" sleep 600 &
    holder=$!
    within 60 cannot_lock "$1"
}
# Trainers of this folder that are still alive; a killed rank needs a moment to leave /proc.
survivors() { pgrep -f "^$1/trainer" | tr '\n' ' '; }
is_empty() { [ -z "$(survivors "$1")" ]; }
none_left() { within 30 is_empty "$1"; }
# rank_of DIR RANK: the process of that rank
rank_of() {
    local p
    for p in $(survivors "$1"); do
        grep -qzx "OMPI_COMM_WORLD_RANK=$2" "/proc/$p/environ" 2>/dev/null && { echo "$p"; return; }
    done
    return 1
}
# Ends what a failed case left behind, and only that: processes of this very trainer.
sweep() {
    local p
    for p in $(survivors "$1"); do
        kill -CONT "$p" 2>/dev/null
        kill -KILL "$p" 2>/dev/null
    done
}
seconds_since() { awk -v a="$1" -v b="$(date +%s.%N)" 'BEGIN { printf "%.1f", b - a }'; }
