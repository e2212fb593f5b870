#!/usr/bin/env bash
# The demonstration: a plan becomes a trainer that learns English on this machine, on two ranks that
# share the weights (FSDP 2), in less than two minutes. Nothing is downloaded: the text is the King
# James Bible of the Debian package bible-kjv. It fails when the loss is too high at the end.
set -u -o pipefail
cd "$(dirname "$0")/.." || exit 1
BUILD=${BUILD:-build}
planc=$BUILD/planc
out=$BUILD/demo
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_btl_vader_single_copy_mechanism=none
die() {
    echo "demo: $1" >&2
    exit 1
}
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
"$planc" check plans/demo.plan "${settings[@]}" >"$out/check.txt" || {
    cat "$out/check.txt"
    die "the plan does not check"
}
sed -n '1p; /^  peak /p; /^  limit /p' "$out/check.txt"
echo
echo "== planc build plans/demo.plan -o $out/trainer"
start=$(date +%s.%N)
"$planc" build plans/demo.plan -o "$out/trainer" "${settings[@]}" || die "the trainer did not build"
awk -v a="$start" -v b="$(date +%s.%N)" 'BEGIN { printf "compiled in %.1f s\n\n", b - a }'

echo "== mpirun -n 2 $out/trainer/trainer"
rm -f "$out/metrics.jsonl"
mpirun -n 2 --oversubscribe --bind-to none "$out/trainer/trainer" --log-every 50 \
    --metrics "$out/metrics.jsonl" --final "$out/final.safetensors" \
    --sample 160 --prompt "In the beginning" --temperature 0.6 |
    sed -u -e "/^sample: /,\$ { w $out/sample.txt" -e 'd' -e '}' ||
    die "the trainer ended with status $?"
echo
echo "metrics     $out/metrics.jsonl      weights $out/final.safetensors"
echo "generated   $out/trainer/: schedule.c, kernels.c, program.c, plan.json"
python3 tests/lib/demo.py "$out/metrics.jsonl" "$bytes" || die "the loss is too high"
echo
echo "== what it writes after \"In the beginning\""
tail -n +2 "$out/sample.txt" || die "the model wrote nothing"
