#!/usr/bin/env bash
# Runs every suite (tests/*/run.sh), shows what failed or was skipped and how long each took, shows
# all failures together once more, and ends with the one line that machines read: "N passed, N
# failed, N skipped". A suite that dies, prints nothing or runs out of time is a failure of its own,
# so that a broken script never looks like a clean run. Suites that mostly wait (for a watchdog, for
# a rank to be gone) run beside those that compute.
#   SUITES="golden oracle"  only these suites
#   UPDATE=1                rewrite wanted outputs
#   LONG=1                  the long cases too
set -u
here=$(cd "$(dirname "$0")" && pwd)
export BUILD=${BUILD:-build} UPDATE=${UPDATE:-} LONG=${LONG:-}
logs=$here/../$BUILD/tests
mkdir -p "$logs" || exit 1
waiting=" faults runtime stop agree skip files cuda_start "
# Those that take longest, so that they begin first.
longest=(cuda_on_cpu checkpoint oracle_own cuda tune import export memory)
limit=$([ -n "$LONG" ] && echo 7200 || echo 1500)

# failures SUITE: the FAIL lines of its log, each with the first lines that follow it
failures() {
    tr -d '\0' <"$logs/$1.log" | LC_ALL=C awk -v suite="$1" '
        /^FAIL / { print "  " suite ": " substr($0, 1, 800); more = 3; next }
        /^(ok|skip|note) / { more = 0 }
        more > 0 { print "      " substr($0, 1, 800); more-- }'
}
# run_suite NAME: its verdicts into NAME.log, its sums into NAME.sums, what failed into NAME.failed,
# what a person wants to know to stdout in one piece
run_suite() {
    local suite=$1 log=$logs/$1.log start status seconds p f s report failed
    start=$(date +%s.%N)
    timeout -k 10 "$limit" bash "$here/$suite/run.sh" >"$log" 2>&1
    status=$?
    seconds=$(awk -v a="$start" -v b="$(date +%s.%N)" 'BEGIN { printf "%.1f", b - a }')
    p=$(grep -ac '^ok ' "$log")
    f=$(grep -ac '^FAIL ' "$log")
    s=$(grep -ac '^skip ' "$log")
    failed=$(failures "$suite")
    if [ $((p + f + s)) -eq 0 ] || { [ $status -ne 0 ] && [ "$f" -eq 0 ]; }; then
        f=$((f + 1))
        failed="  $suite: FAIL the suite itself ended with status $status; its last lines:"
        failed+=$(echo; tail -n 5 "$log" | sed 's/^/      /')
    fi
    report=$(grep -aE '^(skip|note) ' "$log" | sed "s/^/  $suite: /")
    report+=${failed:+${report:+$'\n'}$failed}
    printf '%s' "${failed:+$failed$'\n'}" >"$logs/$suite.failed"
    echo "$p $f $s" >"$logs/$suite.sums"
    printf '%s%-12s %4d ok %4d failed %4d skipped %8s s\n' "${report:+$report$'\n'}" "$suite" "$p" \
        "$f" "$s" "$seconds"
}

suites=()
for script in "$here"/*/run.sh; do
    suite=$(basename "$(dirname "$script")")
    [ "$suite" = gpu ] && continue   # a command of its own, for machines with a GPU
    case " ${SUITES:-$suite} " in *" $suite "*) suites+=("$suite") ;; esac
    rm -f "$logs/$suite".{sums,failed}
done
# Two lanes take suites from one list until it is empty, the longest first, so that neither core is
# idle at the end. The first lane begins with those that wait.
claims=$(mktemp -d) || exit 1
trap 'rm -rf "$claims"' EXIT
lane() { # SUITE...: runs each that the other lane has not taken
    local suite
    for suite; do mkdir "$claims/$suite" 2>/dev/null && run_suite "$suite"; done
}
among() { case " ${*:2} " in *" $1 "*) ;; *) return 1 ;; esac; }
computing=() waits=()
for suite in "${longest[@]}"; do
    among "$suite" "${suites[@]}" && computing+=("$suite")
done
for suite in "${suites[@]}"; do
    if among "$suite" $waiting; then waits+=("$suite")
    elif ! among "$suite" "${longest[@]}"; then computing+=("$suite"); fi
done
lane "${waits[@]}" "${computing[@]}" &
lane "${computing[@]}" "${waits[@]}"
wait

passed=0 failed=0 skipped=0
for suite in "${suites[@]}"; do
    read -r p f s <"$logs/$suite.sums" ||
        { p=0 f=1 s=0; echo "  $suite: FAIL no result" >"$logs/$suite.failed"; }
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
    [ "$f" -eq 0 ] || cat "$logs/$suite.failed"
done
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ] && [ $((passed + failed + skipped)) -gt 0 ]
