#!/usr/bin/env bash
# How a cuda trainer starts, and how it does not: every reason in one line, status 4, nobody left.
# The trainer is the hand-written one of tests/runtime over the cuda runtime; the driver is
# driver.c, or none. Then trainers of two ranks over the stand-in libraries of tests/cuda_on_cpu,
# whose kernels and collectives run: what is said when a rank or a library leaves.
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../lib/common.sh"
tiny=$top/tests/runtime/tiny
flags="-std=c17 -O2 -g -ffp-contract=off -Wall -Wextra -I$top -I$top/runtime -I$top/runtime/shared -I$tiny -pthread"
[ "$BUILD" = build-sanitize ] &&
    flags="$flags -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer"

# shellcheck disable=SC2086
mkdir -p driver && cc $flags -shared -fPIC -Wno-missing-prototypes "$here/driver.c" -o \
    driver/libcuda.so.1 2>driver.log || fail driver "$(tail_of driver.log)"
# a prediction holds for the device of its cluster only
# shellcheck disable=SC2086
cc $flags -ffunction-sections "$here/device_is.c" "$top/runtime/cuda/find.c" -o device_is \
    -Wl,--gc-sections 2>device_is.log && said=$(./device_is 2>&1) &&
    ok device_is || fail device_is "${said:-} $(tail_of device_is.log)"
tiny() { # NAME -D...: NAME/trainer, with kernels for sm_90a
    local name=$1
    shift
    mkdir -p "$name"
    # shellcheck disable=SC2086
    mpicc $flags '-DDEVICE="cuda"' "$@" "$tiny"/*.c "$here/launch.c" \
        "$top/$BUILD/lib/libtrainer_cuda.a" -o "$name/trainer" -ljansson -lm -ldl -pthread \
        2>"$name.build" || fail "build_$name" "$(tail_of "$name.build")"
    rm -f "$name"/kernels.*
    echo cubin >"$name/kernels.sm_90a.cubin"
}
# went NAME RANKS STATUS PATTERN [options]: in DIR (NAME), with the variables of FAKE; one
# "trainer:" line when it is not 0
went() {
    local name=$1 ranks=$2 want=$3 pattern=$4 dir=${dir:-$1} status
    shift 4
    # shellcheck disable=SC2086
    at_once env $FAKE \
        LD_LIBRARY_PATH="${driver-$scratch/driver}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" \
        timeout -k 5 60 mpirun -n "$ranks" --oversubscribe --bind-to none "$scratch/$dir/trainer" \
        "$@" >"$name.log" 2>&1 </dev/null
    status=$?
    if ! none_left "$scratch/$dir"; then
        fail "$name" "processes left: $(survivors "$scratch/$dir")"
        sweep "$scratch/$dir"
    else judged "$name" "$want" "$pattern"; fi
}
python3 - <<'PY'
import random, struct
random.seed(1)
ids = [random.randrange(257) for _ in range(12 * 8 * 19 + 1)]
open("tokens.bin", "wb").write(struct.pack("<%dH" % len(ids), *ids))
PY

tiny one
tiny two -DFSDP=2
tiny bf16 -DCOMPUTE=TYPE_BF16 -DACCUMULATION=2
tiny timeout -DTIMEOUT=1
dir=two

# ── what a machine may lack ──────────────────────────────────────────────────
if ldconfig -p 2>/dev/null | grep -q 'libcuda\.so\.1 '; then skip no_driver "this machine has one"
else
    driver= FAKE='' went no_driver 2 4 \
        '^trainer: rank 0 on [^ :]+: no NVIDIA driver: libcuda\.so\.1 cannot be loaded \(.+\)$'
fi
for version in 11.8 12.9; do
    FAKE=FAKE_VERSION=${version%.*}0${version#*.}0 went "old_driver_${version%.*}" 2 4 \
        "^trainer: rank 0 on [^ :]+: the NVIDIA driver is of CUDA ${version/./\\.}, the kernels and libraries of this trainer are of CUDA 13 and need 13\.0 or later: update the driver to 580 or newer\$"
done
FAKE=FAKE_INIT=100 went no_gpu 2 4 \
    '^trainer: rank 0 on [^ :]+: no GPU: the NVIDIA driver is there and shows none$'
FAKE='FAKE_DEVICES=0 CUDA_VISIBLE_DEVICES=none' went none_visible 2 4 \
    '^trainer: rank 0 on [^ :]+: no GPU: .* with CUDA_VISIBLE_DEVICES=none$'
FAKE=FAKE_INIT=3 went driver_fails 2 4 \
    '^trainer: rank 0 on [^ :]+: the NVIDIA driver does not start: cuInit: CUDA_ERROR_OTHER'
FAKE=FAKE_DEVICES=1 went one_gpu_for_two 2 4 \
    '^trainer: rank 0 and rank 1, on .+, have the same GPU: one rank per GPU; this host shows one$'
tiny four -DFSDP=4
FAKE=FAKE_DEVICES=2 dir=four went two_gpus_for_four 4 4 \
    '^trainer: rank 0 on [^ :]+: 4 ranks on this host and 2 GPUs: one rank per GPU$'
dir=one
FAKE='FAKE_MAJOR=7 FAKE_MINOR=5' went old_gpu 1 4 \
    '^trainer: rank 0 on .+, GPU 0 \(Fake 0\): compute capability 7\.5; the kernels need 8\.0 or later$'
FAKE=FAKE_MEMORY=100000 went too_little_memory 1 4 \
    '^trainer: rank 0: needs [0-9,]+ bytes; Fake 0 has 100,000 free of 100,000: planc check says what would make it fit$'
FAKE=FAKE_NO_ARENA=1 went no_arena 1 4 \
    '^trainer: rank 0 on .+, GPU 0 \(Fake 0\): no memory for the [0-9]+ bytes of the arena: cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY .*; nvidia-smi shows'
FAKE=FAKE_GRANTS_MORE=2097152 went not_as_predicted 1 4 \
    '^trainer: rank 0: the ledger has [0-9]+ bytes, the system gave [0-9]+$'
FAKE=FAKE_NO_KERNEL=runtime_publish went other_build 1 4 \
    'kernels\.sm_90a\.cubin has no kernel runtime_publish, it is of another build'
echo other >one/kernels.sm_90a.cubin
FAKE='' went bad_cubin 1 4 \
    'GPU 0 \(Fake 0\): .*kernels\.sm_90a\.cubin does not load: cuModuleLoadData: CUDA_ERROR_INVALID_IMAGE \(.+\); it is damaged'
echo cubin >one/kernels.sm_90a.cubin

# ── kernels for another GPU ──────────────────────────────────────────────────
FAKE='FAKE_MAJOR=10' went no_kernels 1 4 'for (Fake 0 \(sm_100a\)|sm_100a)'
echo cubin >one/kernels.sm_80.cubin
FAKE='FAKE_MAJOR=8 FAKE_MINOR=6' went older_of_its_family 1 0 'kernels kernels\.sm_80\.cubin' \
    --steps 1

# Made at start: once, by the lowest rank, under a name that follows everything it is made of.
if ldconfig -p 2>/dev/null | grep -q 'libnvrtc\.so\.13 '; then
    rm -f two/kernels.* && mkdir -p two/cuda
    cp "$top/templates/cuda/"{machine,runtime}.cuh two/cuda/ &&
        cp "$top/runtime/shared/"{op_math,scalar}.h two/
    printf \
        '#include "cuda/machine.cuh"\n#include "op_math.h"\n#include "scalar.h"\n#include "cuda/runtime.cuh"\n' \
        >two/kernels.cu
    kept() { ls two/kernels.sm_90a.*.cubin 2>/dev/null | wc -l; }
    # NCCL, where it is there, finds no such driver
    FAKE=FAKE_DEVICES=2 dir=two went no_nccl_to_talk 2 4 \
        '^trainer: (rank 0 on [^ :]+: 2 ranks, and no NCCL|rank [01] on .*: NCCL does not bring the FSDP group together)'
    [ "$(kept)" -eq 1 ] && grep -q 'kernels: compiled for sm_90a' no_nccl_to_talk.log &&
        ok made_at_start || fail made_at_start "$(kept) kept: $(tail_of no_nccl_to_talk.log)"
    cp -r two/kernels.cu two/cuda two/*.h one/ && rm -f one/kernels.sm_*.cubin &&
        cp two/kernels.sm_90a.*.cubin one/
    FAKE='' dir=one went found_again 1 0 'kernels kernels\.sm_90a\.[0-9a-f]{16}\.cubin' --steps 1
    grep -q 'compiled for' found_again.log && fail not_made_twice "compiled again" ||
        ok not_made_twice
    echo '/* other */' >>one/cuda/runtime.cuh
    FAKE='' dir=one went other_text 1 0 'kernels: compiled for sm_90a' --steps 1
    FAKE='FAKE_MAJOR=10' dir=one went other_gpu 1 0 'kernels: compiled for sm_100a' --steps 1
    echo 'no kernel;' >>one/kernels.cu
    FAKE='' dir=one went broken_text 1 4 \
        'one/kernels\.cu is not compiled for sm_90a: NVRTC_ERROR_COMPILATION: kernels\.cu\(5\): error'
    FAKE='FAKE_MAJOR=42' dir=one went unknown_gpu 1 4 \
        'one/kernels\.cu is not compiled for sm_420a: NVRTC_ERROR_INVALID_OPTION'
    rm -f one/kernels.sm_* && echo cubin >one/kernels.sm_90a.cubin
else
    skip made_at_start "no libnvrtc.so.13"
fi

# ── a run ────────────────────────────────────────────────────────────────────
FAKE='' went trains 1 0 \
    'memory per rank: predicted ([0-9,]+) bytes, mapped \1 bytes \(by the driver\); outside the arena' \
    --metrics cuda.jsonl --final cuda.safetensors --probe cuda.probe
FAKE=FAKE_GROWS=5000000 dir=one went memory_at_the_end 1 0 \
    '^memory per rank: outside the arena at most 5,000,000 bytes after the last step, 0 before the first; 0 assumed$' \
    --steps 2
FAKE='' dir=bf16 went trains_bf16 1 0 'step 11 of 12' --metrics bf16.jsonl --final bf16.safetensors
mkdir -p cpu cpu_bf16
# shellcheck disable=SC2086
for one in cpu: cpu_bf16:'-DCOMPUTE=TYPE_BF16 -DACCUMULATION=2'; do
    mpicc $flags ${one#*:} "$tiny"/*.c "$top/$BUILD/lib/libtrainer_cpu.a" -o "${one%%:*}/trainer" \
        -ljansson -lm -ldnnl -pthread 2>"${one%%:*}.build" ||
        fail "build_${one%%:*}" "$(tail_of "${one%%:*}.build")"
done
FAKE='' dir=cpu went cpu 1 0 'step 11 of 12' --metrics cpu.jsonl --final cpu.safetensors --probe \
    cpu.probe
FAKE='' dir=cpu_bf16 went cpu_bf16 1 0 'step 11 of 12' --final cpu_bf16.safetensors
cmp -s cuda.safetensors cpu.safetensors && cmp -s cuda.probe cpu.probe && ok same_bits_as_cpu ||
    fail same_bits_as_cpu "$(cmp cuda.safetensors cpu.safetensors 2>&1
        cmp cuda.probe cpu.probe 2>&1)"
cmp -s bf16.safetensors cpu_bf16.safetensors && ok same_bits_as_cpu_bf16 ||
    fail same_bits_as_cpu_bf16 "$(cmp bf16.safetensors cpu_bf16.safetensors 2>&1)"
if grep -q '"exposed_comm_seconds":[0-9.e-]*,"memory_peak_bytes":[0-9]*' cuda.jsonl &&
    ! grep -q mfu cuda.jsonl; then
    ok metrics
else
    fail metrics "$(head -n 1 cuda.jsonl)"
fi

# ── a device that stops ──────────────────────────────────────────────────────
FAKE=FAKE_LOST=60 dir=one went lost 1 4 \
    '^trainer: rank 0 on [^ ,]+, GPU 0 \(.+\), the device stopped at step [0-9]+ of the schedule \(.+\) of training step [0-9]+: CUDA_ERROR_ILLEGAL_ADDRESS'
FAKE=FAKE_HANGS=60 dir=timeout went hangs 1 4 \
    '^trainer: rank 0 has not moved for [0-9.]+ s; it is at step [0-9]+ of the schedule \(.+\) of training step [0-9]+$'

# ── two ranks, and what can happen to them ──────────────────────────────────────
libraries=$scratch/libraries
python3 "$here/../faults/make.py" tokens tokens.two 4097 256
cat >pair.plan <<'PLAN'
use "models/llama.plan"
use "clusters/cpu.plan"

plan "pair" {
    model llama { layers = 2;  hidden = 32;  heads = 2;  kv_heads = 2;  ffn = 48;  vocab = 256 }
    cluster cpu { }
    mesh { fsdp = 2 }
    batch { sequence = 16;  local = 1;  global = 24 }
    schedule constant { steps = 100000 }
    data { train = "tokens.two";  format = uint16 }
    run { timeout = 100s }
}
PLAN
pair() { # NAME SETTINGS...
    local name=$1
    shift
    PLANC_NVRTC=$libraries/lib/libnvrtc.so.13 "$planc" build pair.plan -o "$name" --device cuda \
        --arch sm_90a "$@" >"$name.build" 2>&1 || fail "build_$name" "$(tail_of "$name.build")"
}
# signals NAME DIR STATUS LINES PATTERN SIGNAL RANK [options]: the signal when step 1 is done; -:
# none. LINES: 1, or 01: one at most
signals() {
    local name=$1 dir=$2 want=$3 most=$4 pattern=$5 signal=$6 rank=$7 status lines
    shift 7
    : >"$name.log" # the steps of an earlier run are not waited for
    env $FAKE STANDIN_DEVICES=4 LD_LIBRARY_PATH="$libraries/${driver:-lib}" timeout -k 5 95 mpirun \
        -n "${ranks:-2}" --oversubscribe --bind-to none "$scratch/$dir/trainer" \
        --log-every 1 "$@" >"$name.log" 2>&1 </dev/null &
    local run=$!
    if [ "$signal" != - ]; then
        within 60 grep -qE '^step +1 ' "$name.log"
        sleep 0.4   # the line is written between two steps
        kill -"$signal" "$(rank_of "$scratch/$dir" "$rank")"
    fi
    wait $run
    status=$?
    lines=$(grep -c '^trainer:' "$name.log")
    if ! none_left "$scratch/$dir"; then
        fail "$name" "processes left: $(survivors "$scratch/$dir")"
        sweep "$scratch/$dir"
    elif [[ ! $status =~ ^($want)$ ]]; then
        fail "$name" "exit $status, not $want: $(tail_of "$name.log")"
    elif [[ ! $lines =~ ^[$most]$ ]]; then
        fail "$name" "$lines lines begin 'trainer:': $(grep '^trainer:' "$name.log" |
            tr '\n' '|') $(tail_of "$name.log")"
    elif ! grep -qE "$pattern" "$name.log"; then
        fail "$name" "no /$pattern/: $(grep '^trainer:' "$name.log")$(tail_of "$name.log")"
    else ok "$name"; fi
}
if "$here/../cuda_on_cpu/libraries/build.sh" "$libraries" >libraries.log 2>&1; then
    pair quick --set run.timeout=6s
    pair eager --set run.timeout=6s --set run.graph=off
    pair patient
    FAKE=''
    signals stopped quick 4 1 \
        '^trainer: rank 1 has not moved for [0-9.]+ s \(its process is stopped\); it is (at step [0-9]+ of the schedule \(.+\) of|before the schedule of) training step [0-9]+$' \
        STOP 1
    signals stopped_eager eager 4 1 \
        '^trainer: rank 0 has not moved for [0-9.]+ s \(its process is stopped\); it is ' STOP 0
    signals killed patient '[1-9][0-9]*' 01 '^step +1 ' KILL 1
    signals asked_to_stop patient 75 0 '^stopped by SIGTERM after step [0-9]+, as asked$' TERM 1
    FAKE=STANDIN_NCCL_SECONDS=5 signals collective_fails patient 4 1 \
        '^trainer: rank 0 on .+, at step [0-9]+ of the schedule \(.+\) of training step [0-9]+: a collective of the FSDP group failed: ' \
        STOP 1
    signals ends patient 0 0 '^loss: mean' - 0 --steps 2
    grep \
        -qE \
        '^memory per rank: outside the arena at most [0-9,]+ bytes after the last step, [0-9,]+ before the first; [0-9,]+ assumed$' \
        ends.log && ok outside_again || fail outside_again "$(tail_of ends.log)"
    FAKE=STANDIN_NCCL_NO_END=1 signals does_not_end quick 4 1 \
        '^trainer: rank 1 has not moved for [0-9.]+ s; it is after the last step$' - 0 \
        --steps 2
    signals first_weights patient 0 0 '^weights: saved to' - 0 --steps 0 --final first.safetensors
    python3 "$here/../faults/make.py" tensors first.safetensors wild.safetensors nan
    pair wild --set "init.from=$scratch/wild.safetensors"
    signals not_finite wild 4 1 \
        '^trainer: step [0-9]+: (the loss of rank [01] is|loss .* on all ranks:) not finite' - 0
    pair four_ranks --set mesh.dp=2
    FAKE=STANDIN_NCCL_NO_ID=2 ranks=4 signals no_id four_ranks 4 1 \
    '^trainer: rank 2 .+: NCCL does not bring the FSDP group together: unhandled system error; NCCL_DEBUG=WARN in the environment says more$' \
    - 0
    pair narrow --set precision.compute=bf16 --set run.gemm=planc
    FAKE=STANDIN_SHARED=60000 signals little_shared_memory narrow 4 1 \
        '^trainer: rank [01] on .+, GPU [01] \(stand-in device\): kernel f_.* wants 65536 bytes of shared memory per block, there are 60000: a build with --arch sm_90a cuts products smaller$' \
        - 0
    driver=no-libnccl.so.2 signals no_nccl patient 4 1 \
        '^trainer: rank 0 on [^ :]+: 2 ranks, and no NCCL: libnccl\.so\.2 cannot be loaded \(.+\)$' \
        - 0
    driver=no-libcublasLt.so.13 signals no_cublaslt patient 4 1 \
        '^trainer: rank 0 on .+, GPU 0 \(stand-in device\): no cuBLASLt of CUDA 13: libcublasLt\.so\.13 cannot be loaded \(.+\); run\.gemm = planc does without$' \
        - 0
    driver=old signals driver_lacks patient 4 1 \
        '^trainer: rank 0 on [^ :]+: the NVIDIA driver that is installed \(libcuda\.so\.1\) has no cuGraphLaunch: ' \
        - 0
    FAKE=STANDIN_MEMORY=30000000 signals memory_of_two patient 4 1 \
        '^trainer: rank 0: needs [0-9,]+ bytes; .* free of 30,000,000: planc check' - 0
else
    fail stand_ins "$(tail_of libraries.log)"
fi
