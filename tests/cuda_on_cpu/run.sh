#!/usr/bin/env bash
# The cuda path without a GPU: kernel text compiled for this processor and executed thread by thread
# (fiber.h), and libraries with the sonames of NVIDIA's. First both by themselves; then every
# templates_*.cc beside this file: programs that launch kernels of templates/cuda and hold them
# against plain loops; then whole trainers (trainers.sh), and what they say when something is
# missing. LONG=1: more of the trainers.
. "$(dirname "$0")/../lib/common.sh"
. "$top/tests/lib/training.sh"
here=$top/tests/cuda_on_cpu
export STANDIN_TAG=cuda_on_cpu.$$
compile() { # compile SOURCE PROGRAM [g++ options]
    local source=$1 program=$2
    shift 2
    g++ -std=c++17 -O2 -march=native -ffp-contract=off -fno-strict-aliasing -fno-gnu-unique -Wall \
        -Wextra -Wno-unknown-pragmas -Wno-unused-function -Wno-psabi \
        -I"$top/templates/cuda" -I"$top" -I"$top/runtime" -I"$top/runtime/shared" \
        -DPLANC_MACHINE="\"$here/fiber.h\"" "$@" -o "$program" "$source" >"$program.log" 2>&1
}
# With the race detector (fiber_race.cc), which is itself not watched.
g++ -std=c++17 -O2 -DFIBER_RACES -c -o race.o "$here/fiber_race.cc" >race.log 2>&1 ||
    fail race.compile "$(tail_of race.log)"
compile_watched() {
    compile "$1" "$2" -DFIBER_RACES -g -fsanitize=thread --param tsan-instrument-func-entry-exit=0 \
        "${@:3}" -c && mv "$2" "$2.o" && g++ -o "$2" "$2.o" race.o
}

# ── the fibers themselves ────────────────────────────────────────────────────
if compile "$here/fibers.cc" fibers && [ ! -s fibers.log ]; then
    ./fibers >fibers.out 2>&1 && ok fibers || fail fibers "$(tail_of fibers.out)"
    # A planted mistake is wrong for some order, or named.
    for mistake in no_barrier no_barrier_before_reuse no_syncwarp no_copy_wait copy_too_early; do
        ./fibers $mistake >planted.out 2>&1
        [ $? = 1 ] && grep -q '^wrong with seed' planted.out && ok "fibers.$mistake" ||
            fail "fibers.$mistake" "not found: $(tail_of planted.out)"
    done
    while read -r mistake words; do
        ./fibers "$mistake" >planted.out 2>&1
        [ $? = 1 ] && grep -q "$words" planted.out && ok "fibers.$mistake" ||
            fail "fibers.$mistake" "not found: $(tail_of planted.out)"
    done <<'WORDS'
divergent a barrier under a condition
conditional deadlock: 127 wait at __syncthreads .*; 1 wait at __syncwarp .* thread 77
lane_missing deadlock: 31 wait at __shfl_xor_sync .* with mask 0xffffffff
not_in_mask is not in its own mask 0x0000ffff
too_far after its 500 bytes
turns_by_index waits for a block that has not begun
WORDS
    ./fibers turns >planted.out 2>&1 && ok fibers.turns ||
        fail fibers.turns "$(tail_of planted.out)"
    if compile_watched "$here/fibers.cc" watched; then
        ./watched >fibers.out 2>&1 && ok watched || fail watched "$(tail_of fibers.out)"
        for mistake in no_barrier no_barrier_before_reuse no_syncwarp no_copy_wait copy_too_early
        do
            ./watched $mistake >planted.out 2>&1
            grep -q 'race at .* (shared memory): thread' planted.out && ok "watched.$mistake" ||
                fail "watched.$mistake" "not found: $(tail_of planted.out)"
        done
        ./watched turns >planted.out 2>&1 && ok watched.turns ||
            fail watched.turns "$(tail_of planted.out)"
        for mistake in turns_no_barrier turns_no_fence turns_no_fence_after; do
            ./watched $mistake >planted.out 2>&1
            grep -q 'race at .*: thread .* of block' planted.out && ok "watched.$mistake" ||
                fail "watched.$mistake" "not found: $(tail_of planted.out)"
        done
    else
        fail watched.compile "$(tail_of watched.log)"
    fi
else
    fail fibers.compile "$(tail_of fibers.log)"
fi

# ── the stand-in libraries ───────────────────────────────────────────────────
libraries=$scratch/libraries
if "$here/libraries/build.sh" "$libraries" >libraries.log 2>&1 && [ ! -s libraries.log ] &&
    "$here/module.sh" "$here/libraries/check.cu" check.so -I"$top/templates/cuda" 2>>libraries.log \
    &&
    cc -std=c17 -O1 -g -Wall -Wextra -I"$top" -I"$top/runtime" -I"$top/runtime/shared" -o check \
    "$here/libraries/check.c" -L"$libraries/lib" -l:libcuda.so.1 -l:libnccl.so.2 \
    -l:libcublasLt.so.13 2>>libraries.log; then
    check() {
        LD_LIBRARY_PATH=$libraries/lib timeout 60 ./check ./check.so "$@" >check.out 2>&1
    }
    for order in first last random; do
        for lazy in 0 1; do
            for name in streams graphs products; do
                STANDIN_ORDER=$order STANDIN_LAZY=$lazy check $name &&
                    ok "libraries.$name.$order.$lazy" ||
                    fail "libraries.$name.$order.$lazy" "$(tail_of check.out)"
            done
        done
    done
    STANDIN_ORDER=random check ranks && ok libraries.ranks ||
        fail libraries.ranks "$(tail_of check.out)"
    check crossing.66 && ok libraries.crossing ||
        fail libraries.crossing "$(tail_of check.out)"
    while read -r name words; do
        STANDIN_NCCL_SECONDS=3 check "$name"
        grep -q "$words" check.out && ok "libraries.$name" ||
            fail "libraries.$name" "not found: $(tail_of check.out)"
    done <<'WORDS'
no_wait wrong without the wait
deadlock kernel deadlock, block (0, 0, 0): deadlock: 31 wait at __syncthreads
strays strays touches .*, which is nobody's
host_address argument 0, .*, is no address of the device
too_much_shared cuLaunchKernel gives 1 and 701
ranks.sizes here all-gather 1 of 20000[01] elements, on rank [012] all-gather 1 of 20000[01]
ranks.order here all-[a-z]* 1 of 200001 elements, on rank [012] all-[a-z]* 1 of 200001
ranks.absent a peer does not come
crossing.67 a peer does not come
crossing.0 a peer does not come
WORDS
    check follows && fail libraries.follows "the host follows a device address" ||
        ok libraries.follows
    [ -z "$(ls /dev/shm | grep "^standin-nccl-$STANDIN_TAG-")" ] && ok libraries.nothing_left ||
        fail libraries.nothing_left "in /dev/shm"
else
    fail libraries "$(tail_of libraries.log)"
fi

# ── templates ────────────────────────────────────────────────────────────────
for source in "$here"/templates_*.cc; do
    [ -e "$source" ] || continue
    name=$(basename "$source" .cc)
    compile_watched "$source" "$name" ||
        { fail "$name.compile" "$(tail_of "$name.log")"; continue; }
    FIBER_SEED=2 timeout 300 "./$name" >"$name.out" 2>&1 && ok "$name" ||
        fail "$name" "$(tail_of "$name.out" 4)"
done
[ ! -x templates_wgmma ] || while read -r mistake words; do
    timeout 60 ./templates_wgmma "$mistake" >planted.out 2>&1
    [ $? = 1 ] && grep -q "$words" planted.out && ok "wgmma.$mistake" ||
        fail "wgmma.$mistake" "not found: $(tail_of planted.out)"
done <<'WORDS'
no_written a product of thread .* reads it without wgmma_written
written_too_early a product of thread .* reads it without wgmma_written
no_begin no wgmma_begin since the sums were free
wrong_stride wrong with seed
wrong_leading wrong with seed
wrong_major wrong with seed
no_swizzle wrong with seed
sums_touched the sums of products under way were touched
no_wait race at .* (shared memory)
overwritten race at .* (shared memory)\|deadlock
released_too_early race at .* (shared memory)
no_arrival_awaited race at .* (shared memory)
wrong_parity race at .* (shared memory)
one_warp_less lanes or warps of the warpgroup issue different products
barrier_unordered nothing lies between\|no barrier was begun here
barrier_overwritten the barrier has been overwritten
registers_touched the operand in registers of a product under way was touched
read_too_early wrong with seed
other_box deadlock: .* wait at mbarrier_wait .* a barrier expects 16384 bytes
uncut wrong with seed
one_plane wrong with seed
WORDS
[ ! -x templates_tensor ] || while read -r mistake words; do
    timeout 60 ./templates_tensor "$mistake" >planted.out 2>&1
    [ $? = 1 ] && grep -q "$words" planted.out && ok "tensor.$mistake" ||
        fail "tensor.$mistake" "not found: $(tail_of planted.out)"
done <<'WORDS'
no_expect race at .* (shared memory): a tensor copy
expects_more deadlock: .* wait at mbarrier_wait .* a barrier expects 128 bytes
expects_less race at .* (shared memory): a tensor copy\|deadlock: .* a barrier expects -
no_wait race at .* (shared memory): a tensor copy\|deadlock
overwritten race at .* (shared memory): a tensor copy\|deadlock
no_written a tensor copy overwrites it without wgmma_written between
barrier_unfenced nothing tells tensor copies of the barrier's beginning
misplaced the place is no multiple of 1,024 bytes
outside a box that leaves the block's dynamic shared memory
other_coordinate wrong with seed
other_box deadlock: .* wait at mbarrier_wait .* a barrier expects 2048 bytes
no_map this is no tensor map
nobody_waits ends with .* tensor copies that nobody waited for\|race at .*: a tensor copy
WORDS
# LONG: the products' own text with a line less or another
changed() { # NAME WORDS SED
    mkdir -p "changed.$1" && sed "$3" "$top/templates/cuda/product_wgmma.cuh" \
        >"changed.$1/product_wgmma.cuh"
    cp "$top/templates/cuda/experts_wgmma.cuh" "changed.$1/"
    cmp -s "changed.$1/product_wgmma.cuh" "$top/templates/cuda/product_wgmma.cuh" &&
        { fail "changed.$1" "the text is as it was"; return; }
    compile_watched "$here/templates_wgmma.cc" "changed.$1/all" -iquote "changed.$1" ||
        { fail "changed.$1" "$(tail_of "changed.$1/all.log")"; return; }
    timeout 100 "changed.$1/all" >"changed.$1/out" 2>&1 && fail "changed.$1" "not found" ||
        { grep -q "$2" "changed.$1/out" && ok "changed.$1" ||
            fail "changed.$1" "$(tail_of "changed.$1/out")"; }
}
[ -z "${LONG:-}" ] || while IFS=% read -r mistake words change; do
    changed "$mistake" "$words" "$change"
done <<'CHANGES'
bytes_more%deadlock: .* a barrier expects%s/expect(at, wgmma_tile::stage_bytes/& + 16/
bytes_less%race at\|deadlock%s/expect(at, wgmma_tile::stage_bytes/expect(at, wgmma_tile::a_bytes/
no_expect%race at\|deadlock%s/mbarrier_expect(at, wgmma_tile::stage_bytes)/mbarrier_arrive(at)/
overwrites%race at\|had all arrivals%/mbarrier_wait(r.empty/d
reads_early%race at\|deadlock%/mbarrier_wait(r.full/d
clears_early%race at\|deadlock%/mbarrier_wait(r.landed/d
clears_unfenced%without wgmma_written%/ chunk.p + c/,/__syncwarp/{/wgmma_written();/d}
clears_unmet%race at\|without wgmma_written%/__syncwarp();/d
clears_less%others are not left out%/int p = 0/s/stage_bytes/a_bytes/
clears_late%others are not left out%s/int c = deep/int c = (deep + 1)/
from_elsewhere%element .* is%s/w.column, w.from + k,/w.column, k,/
unfenced%nothing tells tensor copies%/mbarrier_begin(r.landed/,/__syncthreads/{/wgmma_written();/d}
CHANGES
# Attention for warpgroups with one line changed: NAME|FILE|HOW, for sed|WORDS of what is found.
[ -z "${LONG:-}" ] || while IFS='|' read -r mistake file change words; do
    rm -rf changed && cp -r "$top/templates/cuda" changed && sed -i "$change" "changed/$file"
    cmp -s "changed/$file" "$top/templates/cuda/$file" && fail "attention.$mistake" "no change"
    compile_watched "$here/templates_attention.cc" changed_attention -DONLY_WGMMA -iquote changed ||
        { fail "attention.$mistake" "$(tail_of changed_attention.log)"; continue; }
    timeout 300 ./changed_attention >planted.out 2>&1
    [ $? = 1 ] && grep -q "$words" planted.out && ok "attention.$mistake" ||
        fail "attention.$mistake" "not found: $(tail_of planted.out)"
done <"$here/attention.changes"

# ── whole trainers, two at a time ────────────────────────────────────────────
[ -e "$libraries/old/libcuda.so.1" ] || exit 0 # told above
. "$here/trainers.sh"
small() { # NAME CASE's keys: how a case is made for `beside`
    rm -rf "${scratch:?}/$1" && mkdir -p "$scratch/$1/case" && cd "$scratch/$1" || return
    # shellcheck disable=SC2086
    "$scratch/truth" case $2 >truth.log 2>&1 &&
        "$planc" import case -o case.plan >import.log 2>&1 ||
        fail "$1.import" "$(tail_of truth.log)$(tail_of import.log)"
    mapfile -t settings < <(numbers recipe "$PWD/case")
}
moe="family=qwen3_moe kv=2 factor=1 lr=0.003 layers=5 dense=9 normalize=1 seed=22 steps=4"
gpt2="family=gpt2 heads=3 ffn=53 vocab=61 context=29 seq=13 layers=3 erf=1 tied=0 seed=11 steps=4"
glm="family=glm4_moe kv=2 head_dim=8 heads=4 factor=1 theta=50 lr=0.003 aux=0 balance=0.02
    layers=3 dense=1 rotary=0.5 normalize=1 routed_scale=1.8 shared=2 seed=37 steps=4"
losses="--set model.z_loss=0.02 --set model.router_z_loss=0.05"
mixtral="family=mixtral head_dim=6 kv=2 experts=7 top_k=2 seed=26 bare=1 lr=0.003 steps=4"
neox="family=gpt_neox heads=3 hidden=30 ffn=53 vocab=61 seq=13 tied=0 rotary=0.4 theta=50 lr=0.003
    erf=1 seed=42 steps=4"
gemma="layers=3 hidden=24 heads=4 kv=2 head_dim=10 ffn=37 vocab=61 window=5 theta=50 lr=0.003
    query_width=7 steps=4"

single_precision() {
    narrow odd "layers=3 steps=4" "" 2.1.2.full.on 2.2all.1.full.on ${LONG:+2.2all.2.none.on \
        1.2all.1.none.on 1.4all.2.full.on}
    narrow documents "steps=4 end=3 seed=44" \
        "--set data.documents=separate --set data.end_token=3" 2.1.2.full.on
    cd "$scratch/odd" && mapfile -t settings < <(numbers recipe "$PWD/case")
    courses 2.1.2.full.on
    writes 2.1.2.full.on 2
    measures 2.1.2.full.on 2
    resumed resumed 2.1.2.full.on 2
    resumed resumed.waiting 1.1.1.none.on 1 --set checkpoint.async=off
    validated validated.graphs 2.1.2.full.on
    validated validated.eager 2.1.1.none.on --set run.graph=off
    # issued call by call instead of as graphs: the same bits; there each wait stands for itself,
    # and one that is gone shows
    cuda_build case.plan 8 2.1.2.full.on eager "${settings[@]}" --set run.graph=off
    why=$(cuda_run eager 2 eager --steps 4) && same_run graph.off plain eager ||
        fail graph.off "$why"
    for event in GATHER_LAYERS_FORWARD_DONE GATHER_EPILOGUE_DONE; do without eager 2 $event; done
    # that collectives follow one another hides a slot written too early; without shards it does not
    cuda_build case.plan 8 1.2.2.full.on replicas "${settings[@]}" --set run.graph=off
    why=$(cuda_run replicas 2 plain --steps 4) || fail replicas "$why"
    without replicas 2 SLOT_LAYERS_BACKWARD_DONE
    # shards and replicas: two lanes of collectives at a time
    cuda_build case.plan 8 2.2.1.full.on 2.2.1.full.on "${settings[@]}" --set run.graph=on
    courses 2.2.1.full.on
    cuda_build case.plan 8 2.2.1.full.on both "${settings[@]}" --set run.graph=off
    # its sum is the last on the lane
    without both 4 SLOT_PROLOGUE_BACKWARD_SUMMED
    narrow moe_mixed "$moe z_loss=0.02 router_z=0.05" "$losses" 2.1.1.none.on
    narrow moe_bias "$moe balance=0.02 seed=37" "--set model.balance_rate=0.02" 2.1.2.none.on
    narrow glm4_moe_odd "$glm" "--set model.balance_rate=0.02" 2.1.2.full.on
    cd "$scratch/moe_mixed" && mapfile -t settings < <(numbers recipe "$PWD/case")
    joined 2.1.1.full.on 2
    cd "$scratch" || exit 1
    narrow gpt2_odd "$gpt2" "--set run.gemm=planc" 1.2.2.selective.off
    reference llama 2.2.1.selective.on
    reference qwen3moe 1.1.1.none.on
    [ -n "${LONG:-}" ] || return
    cd "$scratch/odd" && mapfile -t settings < <(numbers recipe "$PWD/case")
    parts
    cd "$scratch" || exit 1
    narrow moe_bias "$moe balance=0.02 seed=37" "--set model.balance_rate=0.02" 2.2all.1.none.on
    narrow gpt_neox_odd "$neox" "" 1.1.1.none.on
    narrow gemma2_odd "family=gemma2 $gemma score_cap=2 logit_cap=3 seed=46" "" 2.1.1.full.on
    narrow gemma3_odd "family=gemma3 $gemma local_theta=20 linear=2 seed=47" "" 1.1.1.none.on
    narrow mixtral_odd "$mixtral" "" 1.1.1.full.on 4.1.1.none.on 2.1.2.full.off
    reference gpt2 1.1.1.none.on 2.2.2.full.on 4.1.1.selective.on
    reference qwen3 1.1.1.full.off 2.1.4.none.on 1.4.1.selective.on
    for variant in 1.1.1.none.off 1.1.4.full.on 4.1.2.selective.on; do
        reference llama $variant
        reference qwen3moe $variant
    done
}
# grouped products through cuDNN; where it has no plan, ours
by_cudnn() {
    local why
    if [ ! -e "$oracle/qwen3moe_tiny/expected.json" ]; then
        skip by_cudnn "there is no ../shared/oracle/qwen3moe_tiny"
        return
    fi
    rm -rf "$scratch/by_cudnn" && mkdir -p "$scratch/by_cudnn" && cd "$scratch/by_cudnn" || return
    "$planc" import "$oracle/qwen3moe_tiny" -o case.plan >import.log 2>&1
    mapfile -t settings < <(numbers recipe "$oracle/qwen3moe_tiny")
    beside by_cudnn 1.1.1.none.on --set run.experts=cudnn
    grep -q '^stand-in cuDNN: grouped products' bf16.log && ok by_cudnn.asked ||
        fail by_cudnn.asked "the library was not asked: $(tail_of bf16.log)"
    if ! why=$(STANDIN_CUDNN_WORKSPACE=1000000000 cuda_run bf16.1.1.1.none.on 1 large --steps 1 \
        --compare bf16.1.1.1.none.on/reference.so); then
        fail by_cudnn.no_plan "$why"
    else
        grep -q '^stand-in cuDNN' large.log &&
            fail by_cudnn.no_plan "a plan beyond the workspace was run" || ok by_cudnn.no_plan
    fi
}
# grouped products through cuBLASLt, most experts without tokens; what it cannot, or gives otherwise
by_cublaslt() {
    local why
    rm -rf "$scratch/by_cublaslt" && mkdir -p "$scratch/by_cublaslt" &&
        cd "$scratch/by_cublaslt" || return
    cat >few.plan <<'PLAN'
use "models/qwen3_moe.plan"
use "clusters/h200.plan"
plan "few" {
    model qwen3_moe { layers = 2;  hidden = 48;  heads = 4;  kv_heads = 2;  head_dim = 16
                      vocab = 64;  experts = 64;  top_k = 2;  expert_width = 24 }
    cluster h200 { devices_per_node = 1 }
    precision { compute = bf16 }
    batch { sequence = 16;  local = 2 }
    optimizer adamw { lr = 1e-2 }
    data { train = "tokens.bin";  format = bytes }
    run { steps = 3;  experts = cublaslt }
}
PLAN
    python3 -c 'open("tokens.bin", "wb").write(bytes(i * i % 61 for i in range(999)))'
    "$planc" build few.plan -o few --arch sm_90a --reference >few.build 2>&1
    why=$(cuda_run few 1 compared --steps 1 --compare few/reference.so) &&
        grep -q '^compare: .* kernels, .*, 0 beyond' compared.log && ok by_cublaslt.kernels ||
        fail by_cublaslt.kernels "$(grep -m 3 BEYOND compared.log | tr '\n' '|') $why"
    grep -q '^engines: .*experts cuBLASLt' compared.log && ! grep -q '^experts:' compared.log &&
        ok by_cublaslt.asked || fail by_cublaslt.asked "$(grep -E '^e' compared.log | head -n 2)"
    why=$(cuda_run few 1 plain) && why=$(STANDIN_ORDER=last STANDIN_LAZY=1 cuda_run few 1 late) &&
        same_run by_cublaslt.graphs plain late || fail by_cublaslt.graphs "$why"
    STANDIN_CUBLASLT_UNSTEADY=1 cuda_run few 1 unsteady >why &&
        fail by_cublaslt.unsteady "other bits are not seen"
    grep -q 'other bits the second time; run.experts = planc' unsteady.log &&
        ok by_cublaslt.unsteady || fail by_cublaslt.unsteady "$(tail_of unsteady.log)"
    why=$(STANDIN_CUBLASLT_NO_GROUPS=1 cuda_run few 1 none) &&
        [ "$(grep -c '^experts: rank 0 on .*, GPU 0 (.*): cuBLASLt has no way .* planc.s kernel' \
            none.log)" = 6 ] &&
        ok by_cublaslt.without ||
        fail by_cublaslt.without "$(grep '^exp' none.log | head -n 1) $why"
    # where cuDNN has no attention within the workspace ours does it, which is said of both passes
    "$planc" build few.plan -o attends --arch sm_90a,sm_100a --set run.attention=cudnn --set \
        run.experts=planc --reference >attends.build 2>&1
    "$planc" build few.plan -o ours --arch sm_90a --set run.attention=planc --set \
        run.experts=planc >ours.build 2>&1
    why=$(cuda_run ours 1 ours) || fail attention.planc "$why"
    why=$(STANDIN_CUDNN_WORKSPACE=1000000000 cuda_run attends 1 attends) &&
        same_run attention.ours ours attends &&
        [ "$(grep -cE '^attention: rank 0 on .*, GPU 0 \(.*\): cuDNN has no way for .* 2 x 16 tok' \
            attends.log)" = 2 ] && ok attention.told ||
        fail attention.told "$(grep '^att' attends.log | head -n 3) $why"
    # cuDNN's attention: its graphs, executed. 9.19 on a Hopper keeps all slopes; later ones have
    # engines with ordered sums, each of its architecture
    while read -r version compute; do
        name=attends.$version.$compute
        why=$(STANDIN_CUDNN=$version STANDIN_COMPUTE=$compute cuda_run attends 1 "$name" --steps 1 \
            --compare attends/reference.so) && grep -q '^compare: .*, 0 beyond' "$name.log" &&
            grep -q '^stand-in cuDNN: attention' "$name.log" &&
            grep -qE '^engines: .*attention cuDNN 9\.[0-9]+\.[0-9]+, experts' "$name.log" &&
            ! grep -q '^attention:' "$name.log" && ok "attention.kernels.$version.$compute" ||
            fail "attention.kernels.$version.$compute" \
                "$(grep -E -m 3 'BEYOND|^att|^eng' "$name.log" | tr '\n' '|') $why"
    done <<'CASES'
91900 9.0
92500 9.0
92800 10.0
CASES
    why=$(STANDIN_CUDNN=92800 cuda_run attends 1 once) && why=$(STANDIN_ORDER=last STANDIN_LAZY=1 \
        STANDIN_CUDNN=92800 cuda_run attends 1 again) && same_run attention.graphs once again ||
        fail attention.graphs "$why"
    "$planc" build few.plan -o alone --arch sm_90a --set run.nccl=on >alone.build 2>&1
    why=$(cuda_run alone 1 alone) && same_run alone.same_bits plain alone &&
        grep -q '^memory per rank: .* (by NCCL)' alone.log && ok alone.by_nccl ||
        fail alone.by_nccl "$(grep '^memory' alone.log | head -n 1) $why"
    LD_LIBRARY_PATH=$libraries/no-libnccl.so.2 timeout 60 mpirun -n 1 alone/trainer >none.log 2>&1 \
        </dev/null
    grep -q 'run.nccl = on with 1 rank, and no NCCL' none.log && ok alone.without ||
        fail alone.without "$(tail_of none.log)"
    LD_LIBRARY_PATH=$libraries/ungrouped timeout 60 mpirun -n 1 few/trainer >old.log 2>&1 </dev/null
    grep -q 'has no cublasLtGroupedMatrixLayoutCreate: it is too old.*run.experts = planc' \
        old.log &&
        ok by_cublaslt.old || fail by_cublaslt.old "$(tail_of old.log)"
}
# products of warpgroups, cut for a device of one multiprocessor, so that small ones take them; the
# maps of their tensors refused. LONG: larger ones under the race detector, and the same build on a
# device without
by_wgmma() {
    local why kind
    rm -rf "$scratch/by_wgmma" && mkdir -p "$scratch/by_wgmma" && cd "$scratch/by_wgmma" || return
    cat >small.plan <<'PLAN'
use "models/qwen3_moe.plan"
use "clusters/h200.plan"
plan "small" {
    model qwen3_moe { layers = 1;  hidden = 136;  heads = 2;  kv_heads = 1;  head_dim = 64
                      vocab = 256;  experts = 3;  top_k = 2;  expert_width = 72 }
    cluster h200 { devices_per_node = 1;  device { multiprocessors = 1 } }
    precision { compute = bf16 }
    batch { sequence = 48;  local = 2 }
    optimizer adamw { lr = 1e-2 }
    data { train = "tokens.bin";  format = bytes }
    run { steps = 2;  gemm = planc;  attention = planc;  experts = planc }
}
PLAN
    python3 -c 'open("tokens.bin", "wb").write(bytes(i * i % 251 for i in range(999)))'
    "$planc" build small.plan -o small --arch sm_90a --reference >small.build 2>&1
    for kind in product_wgmma expert_product_wgmma expert_product_grad_wgmma \
        attention_forward_wgmma attention_gradient_wgmma; do
        grep -q "$kind" small/kernels.cu || fail by_wgmma.chosen "no $kind"
    done
    why=$(cuda_run small 1 compared --compare small/reference.so) &&
        grep -q '^compare: .* kernels, .*, 0 beyond' compared.log && ok by_wgmma.kernels ||
        fail by_wgmma.kernels "$(grep -m 3 BEYOND compared.log | tr '\n' '|') $why"
    why=$(cuda_run small 1 graphs) && same_run by_wgmma.graphs compared graphs ||
        fail by_wgmma.graphs "$why"
    STANDIN_NO_TENSORS=1 cuda_run small 1 refused >why && fail by_wgmma.refused "trains"
    grep '^trainer: rank 0 on .*, GPU 0 (.*): kernel f_.*_wgmma: no tensor copies of ' refused.log |
        grep -q 'INVALID_VALUE .*; a build with --arch sm_90 does without$' &&
        ok by_wgmma.refused || fail by_wgmma.refused "$(tail_of refused.log)"
    LD_LIBRARY_PATH=$libraries/untensored timeout 60 mpirun -n 1 small/trainer >older.log 2>&1 \
        </dev/null
    grep '^trainer: rank 0 on .*: kernel f_.*_wgmma reads by tensor copies, and the ' older.log |
        grep -q 'has no cuTensorMapEncodeTiled: .*; a build with --arch sm_90 does without$' &&
        ok by_wgmma.older || fail by_wgmma.older "$(tail_of older.log)"
    [ -n "${LONG:-}" ] || return
    # keys that are values too are one argument, which cannot be two maps
    sed '/ wv = weight/,/init_std))$/d; / v = heads_of/d
        s/attention(q, k, v)/attention(q, k, k)/' "$top/plans/models/llama.plan" >llama.plan
    sed 's#models/qwen3_moe#llama#; s/qwen3_moe/llama/; s/experts = 3.*/ffn = 72 }/
        s/experts = planc//' small.plan >shared.plan
    "$planc" build shared.plan -o shared --arch sm_90a --reference >shared.build 2>&1
    why=$(cuda_run shared 1 shared --compare shared/reference.so) &&
        grep -q '^compare: .* kernels, .*, 0 beyond' shared.log &&
        grep -q 'attention_gradient<64>' shared/kernels.cu &&
        ! grep -q 'attention_[a-z]*_wgmma<' shared/kernels.cu && ok by_wgmma.shared ||
        fail by_wgmma.shared "$(grep -m 3 BEYOND shared.log | tr '\n' '|') $why"
    sed 's/hidden = 136/hidden = 264/; s/heads = 2/heads = 4/; s/width = 72/width = 136/
        s/= 48/= 80/; s/processors = 1/processors = 2/' small.plan >wide.plan
    FIBER_RACES=1 XDG_CACHE_HOME=$scratch/watched.kept "$planc" build wide.plan -o wide --arch \
        sm_90a,sm_100a --reference >wide.build 2>&1
    why=$(cuda_run wide 1 with --compare wide/reference.so) &&
        grep -q '^compare: .* kernels, .*, 0 beyond' with.log && ok by_wgmma.wide ||
        fail by_wgmma.wide "$(grep -m 3 BEYOND with.log | tr '\n' '|') $why"
    why=$(STANDIN_COMPUTE=10.0 cuda_run wide 1 without --compare wide/reference.so) &&
        grep -q '^compare: .* kernels, .*, 0 beyond' without.log && ok by_wgmma.without ||
        fail by_wgmma.without "$(grep -m 3 BEYOND without.log | tr '\n' '|') $why"
}
# what a plan leaves to the host: libraries where every rank has the same, else planc's kernels,
# which is said once
by_auto() {
    local why name setting words
    rm -rf "$scratch/by_auto" && mkdir -p "$scratch/by_auto" && cd "$scratch/by_auto" || return
    sed 's/experts = cublaslt/gemm = planc/; s/devices_per_node = 1/devices_per_node = 2/' \
        "$scratch/by_cublaslt/few.plan" >few.plan
    cp "$scratch/by_cublaslt/tokens.bin" .
    "$planc" build few.plan -o auto --arch sm_90a --set mesh.fsdp=2 >auto.build 2>&1
    "$planc" build few.plan -o planc --arch sm_90a --set mesh.fsdp=2 --set run.attention=planc \
        --set run.experts=planc >planc.build 2>&1
    why=$(cuda_run planc 2 planc) || fail by_auto.planc "$why"
    why=$(cuda_run auto 2 auto) &&
        [ "$(grep -cE '^attention: rank 0 on .*, GPU 0 \(.*\): cuDNN 9.19.0 is too old, .* 9.25' \
            auto.log)" = 1 ] && grep -q \
        '^engines: dense products planc, attention planc, experts cuBLASLt 13.3.0$' auto.log &&
        ! grep -q '^experts:' auto.log && ok by_auto.versions ||
        fail by_auto.versions "$(grep -E '^(att|exp|eng)' auto.log | tr '\n' '|') $why"
    # without cuBLASLt, cuDNN, grouped layouts; another GPU: planc's numbers to the last bit
    while IFS='|' read -r name path setting words; do
        # shellcheck disable=SC2086
        env LD_LIBRARY_PATH="$libraries/$path" $setting timeout 100 mpirun -n 2 --oversubscribe \
            --bind-to none auto/trainer --metrics "$name.jsonl" --final "$name.safetensors" \
            >"$name.log" 2>&1 </dev/null || why="exit $?"
        [ "$(grep -c "^\(experts\|attention\): rank 0 on .*: .*$words.*: planc.s kernels do it" \
            "$name.log")" = 1 ] && grep -q '^engines: .*attention planc, experts planc$' \
            "$name.log" && same_run "by_auto.$name" planc "$name" ||
            fail "by_auto.$name" "$(grep -E '^(att|exp|eng|tra)' "$name.log" | tr '\n' '|') $why"
    done <<'CASES'
no_cublaslt|no-libcublasLt.so.13|A=|no cuBLASLt of CUDA 13: libcublasLt.so.13 cannot be loaded
ungrouped|ungrouped|A=|has no cublasLtGroupedMatrixLayoutCreate
old_cublaslt|lib|STANDIN_CUBLASLT=130200|13.2.0 is too old, products by experts need 13.3 or later
CASES
    LD_LIBRARY_PATH=$libraries/no-libcudnn.so.9 timeout 100 mpirun -n 2 --oversubscribe --bind-to \
        none auto/trainer --steps 1 >none.log 2>&1 </dev/null &&
        [ "$(grep -c '^attention: .*no cuDNN 9: libcudnn.so.9 cannot be loaded .*planc.s kernels' \
            none.log)" = 1 ] && ok by_auto.no_cudnn ||
        fail by_auto.no_cudnn "$(tail_of none.log)"
    # a library that only one rank has, or in another version, is nobody's
    mixed() { # NAME "SETTINGS OF RANK 0" "OF RANK 1" WORDS
        # shellcheck disable=SC2086
        LD_LIBRARY_PATH=$libraries/lib timeout 100 mpirun --oversubscribe --bind-to none -n 1 env \
            $2 auto/trainer --metrics "$1.jsonl" --final "$1.safetensors" : -n 1 env $3 \
            auto/trainer --metrics "$1.jsonl" --final "$1.safetensors" >"$1.log" 2>&1 </dev/null
        grep -q "^$4: planc.s kernels do it on all ranks" "$1.log" &&
            same_run "by_auto.$1" planc "$1" ||
            fail "by_auto.$1" "$(grep -E '^(att|exp|eng|tra)' "$1.log" | tr '\n' '|')"
    }
    mixed one_is_old "A=" "STANDIN_CUBLASLT=130200" \
        "experts: rank 1 on .*, GPU 1 (.*): cuBLASLt 13.2.0 is too old.*"
    mixed one_is_other "STANDIN_CUBLASLT=130400" "STANDIN_CUBLASLT=130300" \
        "experts: rank 1 has another cuBLASLt than rank 0"
    # NCCL: what is pinned and registered, what the environment may say
    told() { # NAME WORDS: in the log
        grep -qE "$2" "$1.log" && ok "by_nccl.$1" ||
            fail "by_nccl.$1" "$(grep -E '^(NCCL|coll|tra)' "$1.log" | tr '\n' '|')"
    }
    told auto '^NCCL 2.28.9: .*, NCCL_ALGO=Ring,Tree NCCL_PROTO=Simple NCCL_NVLS_ENABLE=0 NCCL_COLL'
    told auto '^collectives: as many blocks as NCCL likes; .* registered as symmetric windows$'
    told auto '^stand-in NCCL: window of [0-9]+ bytes at [0-9]+, 2 ranks$'
    NCCL_PROTO=LL cuda_run auto 2 proto --steps 1 >why || fail by_nccl.proto "$(cat why)"
    told proto ' NCCL_PROTO=LL .of the environment. '
    STANDIN_NCCL_NO_WINDOWS=1 cuda_run auto 2 buffers >why &&
        same_run by_nccl.buffers.bits auto buffers
    told buffers 'registered as buffers: between these GPUs NCCL has no symmetric windows$'
    LD_LIBRARY_PATH=$libraries/unwindowed timeout 100 mpirun -n 2 --oversubscribe --bind-to none \
        auto/trainer --steps 1 >older.log 2>&1 </dev/null || fail by_nccl.older "exit $?"
    told older 'registered as buffers: NCCL has symmetric windows from 2.27 on$'
    NCCL_ALGO='Ring;allreduce:NVLS' cuda_run auto 2 switches --steps 1 >why
    told switches '^trainer: rank 0 on .*: NCCL_ALGO=Ring;allreduce:NVLS of the environment lets'
    NCCL_NVLS_ENABLE=1 cuda_run auto 2 nvls --steps 1 >why
    told nvls '^trainer: rank 0 on .*: NCCL_NVLS_ENABLE=1 of the environment lets switches add'
    NCCL_ALGO='^NVLS,CollnetDirect' cuda_run auto 2 excluded --steps 1 >why ||
        fail by_nccl.excluded "$(cat why)"
    told excluded ' NCCL_ALGO=.NVLS,CollnetDirect .of the environment. '
    LD_LIBRARY_PATH=$libraries/lib timeout 100 mpirun --oversubscribe --bind-to none -n 1 env A= \
        auto/trainer --steps 1 : -n 1 env NCCL_PROTO=LL auto/trainer --steps 1 >differ.log 2>&1 \
        </dev/null
    told differ '^trainer: rank 1 has another NCCL_PROTO in its environment than rank 0: .*-x NCCL'
    "$planc" build few.plan -o blocks --arch sm_90a --set mesh.fsdp=2 --set run.nccl_blocks=8 \
        >blocks.build 2>&1 && cuda_run blocks 2 blocks --steps 1 >why ||
        fail by_nccl.blocks "$(cat why)"
    told blocks '^collectives: at most 8 blocks each; '
    # a plan that names the library is strict
    "$planc" build few.plan -o strict --arch sm_90a --set mesh.fsdp=2 --set run.experts=cublaslt \
        >strict.build 2>&1
    STANDIN_CUBLASLT=130200 cuda_run strict 2 strict >why
    grep -q '^trainer: rank 0 on .*13.2.0 is too old.*; run.experts = planc does without' \
        strict.log && ok by_auto.strict || fail by_auto.strict "$(tail_of strict.log)"
}
half_precision() {
    # shellcheck disable=SC2086
    # the router's z-loss is 10 to 20 here: a weight of 0.05 would show a row that BF16 sends
    # elsewhere as 1e-3 of loss
    small bf16_moe "$moe balance=0.02 sigmoid=1" && beside bf16_moe 1.1.1.full.on $losses \
        --set model.router_z_loss=0.01 --set model.balance_rate=0.02
    # every kernel of a step under the race detector
    FIBER_RACES=1 XDG_CACHE_HOME=$scratch/watched.kept cuda_build case.plan 8 1.1.1.full.on raced \
        "${settings[@]}" --set precision.compute=bf16 --set run.gemm=planc
    why=$(cuda_run raced 1 raced --steps 1) && ok bf16_moe.no_race || fail bf16_moe.no_race "$why"
    small bf16_gpt2 "$gpt2" && beside bf16_gpt2 1.1.1.none.off --set run.gemm=planc
    for name in llama ${LONG:+gpt2 qwen3 qwen3moe}; do
        if [ ! -e "$oracle/${name}_tiny/expected.json" ]; then
            skip "bf16_$name" "there is no ../shared/oracle/${name}_tiny"
            continue
        fi
        rm -rf "${scratch:?}/bf16_$name" && mkdir -p "$scratch/bf16_$name" &&
            cd "$scratch/bf16_$name" || continue
        "$planc" import "$oracle/${name}_tiny" -o case.plan >import.log 2>&1
        mapfile -t settings < <(numbers recipe "$oracle/${name}_tiny")
        beside "bf16_$name" 1.1.1.none.on
        [ -z "${LONG:-}" ] || beside "bf16_$name" 2.1.2.full.on --set run.gemm=planc
    done
    by_cudnn
    by_cublaslt
    by_auto
    by_wgmma
    . "$here/refusals.sh"
}
(single_precision) >single.out 2>&1 &
(half_precision) >half.out 2>&1 &
wait
cat single.out half.out
[ -z "$(ls /dev/shm | grep "^standin-nccl-$STANDIN_TAG-")" ] && ok nothing_left ||
    fail nothing_left "in /dev/shm"
