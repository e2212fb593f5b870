#!/usr/bin/env bash
# planc beside PyTorch, where it is (`make deps-peers`), on a dense model and a mixture, in FP32 and
# BF16: peers.sh [MODEL TYPE]. A part of `make bench`; BENCH_ROUNDS and BENCH_STEPS say how long.
set -u
cd "$(dirname "$0")/../.." || exit 1
BUILD=${BUILD:-build}
out=$BUILD/bench
python=${PLANC_PEERS:-$PWD/$BUILD/peers/bin/python}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
    OMPI_MCA_btl_vader_single_copy_mechanism=none
die() { echo "bench: $1" >&2; exit 1; }
mkdir -p "$out" || die "cannot make $out"
text=$out/text.bin
[ -s "$text" ] || head -c 1000000 < <(cat docs/*.md README.md compiler/*/*.c compiler/*/*.c \
    compiler/*/*.c compiler/*/*.c) >"$text"
if [ ! -x "$python" ]; then
    echo "no PyTorch in $BUILD/peers (make deps-peers): planc alone"
    python=
fi
for model in ${1:-dense mixture}; do
    for type in ${2:-fp32 bf16}; do
        "$BUILD/planc" build "tests/bench/$model.plan" -o "$out/$model.$type" \
            --set "data.train=$PWD/$text" --set "precision.compute=$type" >/dev/null ||
            die "$model.plan did not build"
        # shellcheck disable=SC2086
        python3 tests/bench/peers.py "$model" "$type" "$out/$model.$type/trainer" \
            "$out/$model.$type/kernels.c" "${BENCH_ROUNDS:-3}" "${BENCH_STEPS:-6}" $python ||
            die "$model in $type was not measured"
    done
done
