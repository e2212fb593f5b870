#!/usr/bin/env bash
# Runs every suite (tests/*/run.sh), shows what failed or was skipped and how long each took, and ends with the one
# line that machines read: "N passed, N failed, N skipped". A suite that dies, prints nothing or runs out of time is a
# failure of its own, so that a broken script never looks like a clean run.
#   SUITES="golden oracle"  only these      UPDATE=1  rewrite wanted outputs      LONG=1  the long cases too
set -u
here=$(cd "$(dirname "$0")" && pwd)
export BUILD=${BUILD:-build} UPDATE=${UPDATE:-} LONG=${LONG:-}
logs=$here/../$BUILD/tests
mkdir -p "$logs" || exit 1
passed=0 failed=0 skipped=0
limit=$([ -n "$LONG" ] && echo 7200 || echo 900)
for script in "$here"/*/run.sh; do
    suite=$(basename "$(dirname "$script")")
    case " ${SUITES:-$suite} " in *" $suite "*) ;; *) continue ;; esac
    log=$logs/$suite.log
    start=$(date +%s.%N)
    timeout -k 10 "$limit" bash "$script" >"$log" 2>&1
    status=$?
    seconds=$(awk -v a="$start" -v b="$(date +%s.%N)" 'BEGIN { printf "%.1f", b - a }')
    p=$(grep -c '^ok ' "$log")
    f=$(grep -c '^FAIL ' "$log")
    s=$(grep -c '^skip ' "$log")
    grep -E '^(FAIL|skip|note) ' "$log" | sed "s/^/  $suite: /"
    if [ $((p + f + s)) -eq 0 ] || { [ $status -ne 0 ] && [ "$f" -eq 0 ]; }; then
        f=$((f + 1))
        echo "  $suite: FAIL the suite itself ended with status $status; its last lines:"
        tail -n 5 "$log" | sed 's/^/      /'
    fi
    printf '%-12s %4d ok %4d failed %4d skipped %8s s\n' "$suite" "$p" "$f" "$s" "$seconds"
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
done
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ] && [ $((passed + failed + skipped)) -gt 0 ]
