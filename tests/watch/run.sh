#!/usr/bin/env bash
# Observers of a run: --profile and --trace on ranks of the cpu, and all three
# on a cuda trainer under the stand-in libraries of tests/cuda_on_cpu, whose kernels run here thread
# by thread. Watching changes no bit; what is compared can be found wrong.
. "$(dirname "$0")/../lib/common.sh"
. "$top/tests/lib/training.sh"
here=$top/tests/watch

python3 "$top/tests/faults/make.py" tokens tokens.bin 4097 64
plan() { # NAME SIZES
    printf \
        'use "models/qwen3_moe.plan"\nuse "clusters/cpu.plan"\nplan "watched" {\n    model qwen3_moe { %s }\n    cluster cpu { }\n    batch { sequence = 12;  local = 2 }\n    schedule constant { steps = 50 }\n    data { train = "tokens.bin";  format = uint16 }\n}\n' \
        "$2" >"$1.plan"
}
plan \
    small \
    'layers = 2;  hidden = 32;  heads = 4;  kv_heads = 2;  head_dim = 8;  vocab = 64;  experts = 3;  top_k = 2;  expert_width = 16;  ffn = 16'
bits() {
    sed -n 's/.*\("step":[0-9]*\).*\("loss":[^,]*\).*\("grad_norm":[^,]*\).*/\1 \2 \3/p' "$1"
}

# ── two ranks of the cpu ─────────────────────────────────────────────────────
if "$planc" build small.plan -o cpu --device cpu --set mesh.fsdp=2 >cpu.build 2>&1; then
    rm -f plain.jsonl seen.jsonl trace.json
    launch 2 cpu --steps 5 --metrics plain.jsonl >plain.log 2>&1 &&
        launch 2 cpu --steps 5 --metrics seen.jsonl --profile 3 --trace trace.json >seen.log 2>&1 \
        && ok cpu.watched || fail cpu.watched "$(tail_of seen.log)"
    [ -n "$(bits plain.jsonl)" ] && [ "$(bits plain.jsonl)" = "$(bits seen.jsonl)" ] &&
        ok cpu.same_bits || fail cpu.same_bits "$(diff <(bits plain.jsonl) <(bits seen.jsonl) |
        tail_of /dev/stdin)"
    why=$(python3 "$here/look.py" trace trace.json 2 compute gather reduce) && ok cpu.trace ||
        fail cpu.trace "$why"
    why=$(python3 "$here/look.py" profile seen.log cpu/kernels.c) && ok cpu.profile ||
        fail cpu.profile "$why"
    launch 2 cpu --steps 2 --profile 3 >few.log 2>&1
    [ $? -eq 4 ] && grep -q \
        '^trainer: --profile looks at steps 1 and more of a run, and this one has 2: --steps 4' \
        few.log && ok too_few_steps || fail too_few_steps "$(tail_of few.log)"
    launch 2 cpu --steps 2 --profile 1 --trace few.json >few.log 2>&1
    [ $? -eq 4 ] && grep -q '^trainer: --trace looks at steps 1 and more .* 2: --steps 3' few.log &&
        ok too_few_steps_to_trace || fail too_few_steps_to_trace "$(tail_of few.log)"
    launch 2 cpu --steps 3 --trace nowhere/trace.json >nowhere.log 2>&1
    [ $? -eq 4 ] && grep -q \
        '^trainer: rank 0 on [^ ]*: --trace nowhere/trace.json: No such file' nowhere.log &&
        ok trace_nowhere || fail trace_nowhere "$(tail_of nowhere.log)"
    launch 2 cpu --steps 1 --compare cpu/trainer >other.log 2>&1
    [ $? -eq 4 ] && grep -q '^trainer: --compare' other.log && ok compare_other_file ||
        fail compare_other_file "$(tail_of other.log)"
else
    fail cpu.build "$(tail_of cpu.build)"
fi

# Wide enough for milliseconds with three decimals.
sed 's/hidden = 32/hidden = 512/' small.plan >wide.plan
if "$planc" build wide.plan -o wide --device cpu --set mesh.fsdp=2 >wide.build 2>&1; then
    launch 2 wide --steps 4 --profile 3 >wide.log 2>&1 &&
        why=$(python3 "$here/look.py" updates wide.log wide/kernels.c 2) && ok cpu.updates ||
        fail cpu.updates "$why $(tail_of wide.log)"
else
    fail wide.build "$(tail_of wide.build)"
fi

# ── cuda, without a GPU ──────────────────────────────────────────────────────
if ! "$top/tests/cuda_on_cpu/libraries/build.sh" "$scratch/libraries" >libraries.log 2>&1; then
    fail libraries "$(tail_of libraries.log)"
    exit 0
fi
standing_in() {
    LD_LIBRARY_PATH=$scratch/libraries/lib timeout 240 "$scratch/cuda/trainer" "$@" </dev/null
}
PLANC_NVRTC=$scratch/libraries/lib/libnvrtc.so.13 "$planc" build "$top/tests/gpu/plans/tiny.plan" \
    -o cuda --device cuda --arch sm_90a --reference --set precision.compute=bf16 --set \
    "data.train=$PWD/tokens.bin" >cuda.build 2>&1 ||
    { fail cuda.build "$(tail_of cuda.build)"; exit 0; }
standing_in --steps 1 --compare cuda/reference.so >cuda.log 2>&1 &&
    grep -q '^compare: \([0-9]*\) of \1 kernels, .* 0 beyond their bounds' cuda.log &&
    ok cuda.compare ||
    fail cuda.compare "$(grep -m 3 '^compare.*BEYOND' cuda.log | tr '\n' '|') $(tail_of cuda.log)"
rm -f trace.json
standing_in --steps 3 --profile 2 --trace trace.json >cuda.seen.log 2>&1 &&
    why=$(python3 "$here/look.py" trace trace.json 1 compute gather reduce &&
    python3 "$here/look.py" profile cuda.seen.log cuda/kernels.c) &&
    ok cuda.watched || fail cuda.watched "$why $(tail_of cuda.seen.log)"

# A kernel that is wrong is found, and only that: in the reference instead of the device, which is
# the same to the comparison.
rm -rf wrong && cp -r cuda wrong &&
    sed \
    -i \
    -E \
    's/^( *)dispatch\((.*), (.*), (dispatch_out.*), ([0-9]+), ([0-9]+), ([0-9]+)\);$/&\n\1((bf16 *)\4)[3] ^= 1;/' \
    wrong/kernels.c
flags="-std=c17 -O2 -march=native -ffp-contract=off -fno-math-errno -fno-trapping-math -fopenmp-simd -fPIC -shared -fvisibility=hidden -Wl,-Bsymbolic"
if cmp -s wrong/kernels.c cuda/kernels.c; then fail wrong_kernel "nothing was changed"
elif ! cc $flags -I wrong -I "$top/runtime/shared" -I "$top/templates" -o wrong/reference.so \
    wrong/kernels.c wrong/arguments.c -lm 2>wrong.build; then
    fail wrong_kernel "$(tail_of wrong.build)"
else
    standing_in --steps 1 --compare wrong/reference.so >wrong.log 2>&1
    status=$?
    found=$(sed -n 's/^compare: \([^ ]*\) .*BEYOND$/\1/p' wrong.log)
    [ $status -eq 4 ] &&
        [ "$(grep -c '^trainer: --compare: .* beyond what rounding may do' wrong.log)" = 1 ] &&
        [ -n "$found" ] && ! grep -qvE '^(grad_)?dispatch(_again)?$' <<<"$found" &&
            ok wrong_kernel ||
        fail wrong_kernel "exit $status: $found $(tail_of wrong.log 1)"
fi

# ── tests/gpu/run.sh, as far as there is no GPU ──────────────────────────────
# Prepared as for another machine, and run from there with what it carries of MPI.
rm -rf gpu gpu.out
export PLANC_GPU_PLACE=$scratch/place
if ARCH=sm_90a PLANC_NVRTC=$scratch/libraries/lib/libnvrtc.so.13 bash "$top/tests/gpu/run.sh" \
    --prepare gpu --only machine >gpu.prepare 2>&1; then
    LD_LIBRARY_PATH=$scratch/libraries/lib bash gpu/run.sh --run gpu --out gpu.out --only \
        machine,compare,nonsense >gpu.log 2>&1
    [ $? -eq 1 ] && grep -q '^| a trainer starts | ok | machine: stand-in device' gpu.out/table.md \
        && grep -q '^| nonsense | FAIL |' gpu.out/table.md &&
        grep -q ' in all; 1 failed |$' gpu.out/table.md && ok gpu_command ||
        fail gpu_command "$(tail_of gpu.log 6)"
else
    fail gpu_command.prepare "$(tail_of gpu.prepare)"
fi
