#!/usr/bin/env bash
# Damaged texts: the compiler answers every one of them, and never by falling over. A few hundred in
# `make test`, as many thousands with LONG=1. Their seeds are fixed, so a failure is there again the
# next time. libFuzzer takes another way in every run: the text that it breaks the front end with is
# shown.
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../lib/common.sh"
count=$([ -n "${LONG:-}" ] && echo 30000 || echo 1500)
[ "$BUILD" = build ] || count=$((count / 3))
# Where clang is, the front end is damaged by coverage, in one process; damage from outside then
# only has to be a sample.
guided=
if command -v clang >/dev/null &&
    printf \
    'int LLVMFuzzerTestOneInput(const unsigned char *d, unsigned long n) { return d && n > 9 ? 0 : 0; }\n' \
    |
    clang -x c -fsanitize=fuzzer,address,undefined - -o probe 2>/dev/null; then guided=1; fi
[ -z "$guided" ] || [ -n "${LONG:-}" ] || count=$((count / 3))
rm -f broken.*
mkdir -p a b
cp "$top"/plans/*.plan "$top"/plans/models/*.plan "$top"/plans/clusters/*.plan \
    "$top"/tests/golden/*.test . 2>/dev/null
for n in 1 2; do
    dir=$([ $n = 1 ] && echo a || echo b)
    (why=$(python3 "$here/fuzz.py" "$planc" plan $count $n $dir ./*.plan ./*.test) &&
        ok plans_$n || fail plans_$n "$(tr '\n' '|' <<<"$why")") &
done
wait
"$planc" dump "$top/tests/golden/lower_tiny.test" --after lower >lower.ir 2>dump.log &&
    "$planc" dump "$top/tests/golden/lower_tiny.test" --after memory >memory.ir 2>>dump.log ||
    { fail dumps "$(tail_of dump.log)"; exit 0; }
why=$(python3 "$here/fuzz.py" "$planc" ir $count 3 a lower.ir memory.ir) && ok dumps ||
    fail dumps "$(tr '\n' '|' <<<"$why")"

# ── guided by coverage ────────────────────────────────────────────────────────
if [ -z "$guided" ]; then
    skip guided "no clang with libFuzzer (clang and libclang-rt-14-dev)"
elif ! make -s -C "$top" -j2 SANITIZE= build/planc-fuzz >guided.log 2>&1; then
    fail guided "does not build: $(tail_of guided.log)"
else
    # so many texts, however fast the machine is; LONG=1: for so long
    rm -rf "$scratch/guided"
    seconds=900 options=(-seed=1 -runs=6000 -timeout=100)
    [ -z "${LONG:-}" ] || options=()
    if bash "$here/front.sh" $seconds "$scratch/guided" "${options[@]}" >guided.log 2>&1; then
        echo "note guided: $(sed -nE 's/^stat::number_of_executed_units: *//p' \
            guided.log) texts, $(sed -nE 's/.* cov: ([0-9]+) .*/\1/p' guided.log |
            tail -1) edges"
        ok guided
    else
        found=$(ls "$scratch"/guided/*-[0-9a-f]* 2>/dev/null | head -1)
        fail guided "$found: $(grep -aE 'internal failure|runtime error|SUMMARY' guided.log |
            head -2 | tr '\n' '|')"
        # for base64 -d | gunzip, where the folder is not kept
        [ -z "$found" ] || gzip -9c "$found" | base64 -w 800
    fi
fi
