#!/usr/bin/env bash
# How fast this machine is with what the compiler makes: a generated RMSNorm beside one written by
# hand, the demo's plan on one and on two ranks, in FP32 and in BF16, then a dense model and a
# mixture beside PyTorch (BENCH_PEERS="dense bf16": only this one). Figures, not verdicts: they
# belong to the machine and to what else it is doing.
set -u
cd "$(dirname "$0")/.." || exit 1
BUILD=${BUILD:-build}
planc=$BUILD/planc
out=$BUILD/bench
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
    OMPI_MCA_btl_vader_single_copy_mechanism=none
die() { echo "bench: $1" >&2; exit 1; }
mkdir -p "$out" || die "cannot make $out"

"$planc" build tests/bench/norm.plan -o "$out/norm" >/dev/null || die "the norm did not build"
# The kernels that read `gain`, and their arguments by what the schedule calls them. The first is
# the forward pass. What the others take from further kernels is the gradient of the result; what
# only they have is scratch.
kernels=$(python3 - "$out/norm/schedule.c" <<'PY'
import re, sys
call = r"run\(d, \d+, &(k_\w+), \(void \*\[\]\)\{([^}]*), 0\}\)"
calls = [(name, rest.split(", ")) for name, rest in re.findall(call, open(sys.argv[1]).read())]
norm = [c for c in calls if "gain" in c[1]]
outside = {n for c in calls if c not in norm and "gradient" not in c[0] for n in c[1]}
known = {"gain": "g", "grad_gain": "dg[1]", "layers_in": "x", norm[0][1][-1]: "y[1]",
         norm[-1][1][-1]: "dx[1]"}
inside = {n for _, names in norm[1:] for n in names} - set(known)
scratch = [n for n in sorted(inside) if n not in outside or n.startswith("gain_")]
known |= {n: f"scratch[{i}]" for i, n in enumerate(scratch)}
for which, kernels in ("FORWARD", norm[:1]), ("BACKWARD", norm[1:]):
    arguments = ((k, ",".join(known.get(n, "dy") for n in names)) for k, names in kernels)
    print(f"-D{which}=" + ",".join(k for k, _ in kernels))
    print(f"-D{which}_CALLS=" + "".join(f"CALL({k},{given})" for k, given in arguments))
print(f"-DSCRATCH={len(scratch) + 1}")
PY
)
mapfile -t defines <<<"$kernels"
flags="-std=c17 -O3 -march=native -ffp-contract=off -fno-math-errno -fno-trapping-math"
# shellcheck disable=SC2086
cc $flags -fopenmp-simd -Iruntime/shared -Itemplates "${defines[@]}" -o "$out/rms_norm" \
    tests/bench/rms_norm.c "$out/norm/kernels.c" "$BUILD"/runtime/cpu/gemm_*.o -ldnnl -lgomp \
    -lm || die "the comparison did not compile"
OMP_NUM_THREADS=1 "$out/rms_norm" || die "the comparison did not run"

text=$out/text.bin
[ -s "$text" ] || head -c 1000000 < <(cat docs/*.md README.md compiler/*/*.c compiler/*/*.c \
    compiler/*/*.c compiler/*/*.c) >"$text"
for fsdp in 1 2; do
    for type in fp32 bf16; do
        "$planc" build plans/demo.plan -o "$out/$type.$fsdp" --set "data.train=$text" --set \
            data.format=bytes --set "mesh.fsdp=$fsdp" --set "batch.local=$((4 / fsdp))" \
            --set "precision.compute=$type" >/dev/null || die "the demo's plan did not build"
        OMP_NUM_THREADS=1 mpirun -n "$fsdp" --oversubscribe --bind-to none \
            "$out/$type.$fsdp/trainer" --steps "${BENCH_STEPS:-60}" --log-every 1000 |
            sed -n "s/^speed: /$fsdp rank(s), $type: /p"
    done
done

# shellcheck disable=SC2086
bash tests/bench/peers.sh ${BENCH_PEERS:-} || die "the comparison with PyTorch did not run"

# Points of the reference's space per second, on one core: structures, layouts, event runs.
# shellcheck disable=SC2046
cc -std=c17 -O2 -I compiler -o "$out/points" tests/predict/points.c "$BUILD"/gen/*.o \
    $(ls "$BUILD"/compiler/*/*.o | grep -vE 'compiler/(commands|analysis|search|report)/') \
    -ljansson -lm -ldl ||
    die "the points did not compile"
"$out/points" --bench plans/30b-a3b-512.plan 'mesh.prefetch=0..3' 'mesh.reduce_slots=1..3' \
    'batch.loss_chunks=1|2|4|8' || die "the points did not run"
for command in check simulate; do
    for i in 1 2 3 4 5; do
        from=$(date +%s.%N)
        "$planc" "$command" plans/30b-a3b-16.plan >/dev/null
        date +%s.%N | awk -v a="$from" '{ printf "%.1f\n", ($1 - a) * 1e3 }'
    done | sort -n | awk -v c="$command" 'NR == 3 { printf "%s of the reference: %s ms\n", c, $1 }'
done
