#!/usr/bin/env bash
# The demonstration: a plan becomes a trainer that learns real English on this machine, in about two
# minutes, on two ranks that share the weights (FSDP 2). Nothing is downloaded: the text is the King
# James Bible of the package bible-kjv. It ends with the facts worth looking at and fails loudly
# when the loss is not what it should be.
set -u
cd "$(dirname "$0")/.." || exit 1
BUILD=${BUILD:-build}
planc=$BUILD/planc
out=$BUILD/demo
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
    OMPI_MCA_btl_vader_single_copy_mechanism=none
die() { echo "demo: $1" >&2; exit 1; }
mkdir -p "$out" || die "cannot make $out"

text=$out/bible.txt
if [ ! -s "$text" ]; then
    bible -f gen1:1-rev22:21 >"$text.part" || die "the bible program failed (package bible-kjv)"
    mv "$text.part" "$text"
fi
bytes=$(stat -c %s "$text")
[ "$bytes" -gt 4000000 ] || die "$text has only $bytes bytes"

settings=(--set "data.train=$text" --set data.format=bytes)
echo "== planc check plans/demo.plan"
"$planc" check plans/demo.plan "${settings[@]}" || die "the plan does not check"
echo
echo "== planc build plans/demo.plan -o $out/trainer"
start=$(date +%s.%N)
"$planc" build plans/demo.plan -o "$out/trainer" "${settings[@]}" || die "the trainer did not build"
awk -v a="$start" -v b="$(date +%s.%N)" 'BEGIN { printf "compiled in %.1f s\n\n", b - a }'

echo "== mpirun -n 2 $out/trainer/trainer"
rm -f "$out/metrics.jsonl"
mpirun -n 2 --oversubscribe --bind-to none "$out/trainer/trainer" --metrics "$out/metrics.jsonl" \
    --final "$out/final.safetensors" --log-every 100 ||
    die "the trainer ended with status $?"
echo
python3 tests/lib/demo.py "$out/metrics.jsonl" "$out/trainer/plan.json" "$bytes" ||
    die "the model did not learn what it should have"
echo "generated   $out/trainer/: $(cd "$out/trainer" &&
    ls -m -- *.c *.h *.json trainer 2>/dev/null)"
echo "metrics     $out/metrics.jsonl      weights $out/final.safetensors"
