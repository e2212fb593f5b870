#!/usr/bin/env bash
# fuzz.sh SECONDS FOLDER [SEED]: draws architectures from SEED on (the time, when left out) and
# compiles them, for as long as it says. A plan that breaks a pass stays in FOLDER/broken, and its
# number, which is its seed, is printed.
seconds=$1 folder=$2 seed=${3:-$(date +%s)}
top=$(cd "$(dirname "$0")/../.." && pwd)
BUILD=${BUILD:-build}
. "$top/tests/architectures/harness.sh"
mkdir -p "$folder/broken" && cd "$folder" || exit 4
harness || { cat compile.err; exit 4; }
end=$(($(date +%s) + seconds)) all=0 bad=0
while [ "$(date +%s)" -lt "$end" ]; do
    drawn "$seed" 200 && derived || exit 4
    while read -r _ file rest; do
        bad=$((bad + 1))
        cp "plans/${file%:}" broken/
        echo "$folder/broken/$(basename "${file%:}"): ${rest:0:300}"
    done < <(grep -h '^FAIL' said slopes)
    all=$((all + 200)) seed=$((seed + 200))
done
echo "$all architectures, $bad broken, the next seed is $seed"
[ "$bad" -eq 0 ]
