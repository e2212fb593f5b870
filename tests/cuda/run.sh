#!/usr/bin/env bash
# Every kernel of every plan of the library compiled for real, for both architectures that are sold:
# what it takes of a multiprocessor, and that nothing of it lies in local memory unless docs/cuda.md
# says why. Then the command that does it: the same bytes twice, cubins that are kept, words for
# what is missing. Without NVRTC only the texts and the words are tested.
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../lib/common.sh"
doc=$top/docs/cuda.md archs="sm_90a sm_100a"

# ── texts of every plan: no C compiler is needed to look at them ─────────────
of_plan() { # NAME PLAN [option…]: NAME/kernels.cu and NAME/launch.c
    rm -rf "$1"
    texts "$2" "$1" "${@:3}" >"$1.build" 2>&1
}
families() {
    cat <<'PLANS'
mixtral model mixtral { layers = 2;  hidden = 1024;  heads = 16;  kv_heads = 4;  vocab = 32000;  \
experts = 8;  top_k = 2;  ffn = 1792 }
qwen3 model qwen3 { layers = 2;  hidden = 1024;  heads = 16;  kv_heads = 8;  head_dim = 128;  \
ffn = 3072;  vocab = 151936 }
olmoe model olmoe { layers = 2;  hidden = 2048;  heads = 16;  vocab = 50304;  experts = 64;  \
top_k = 8;  expert_width = 1024 }
gemma2 model gemma2 { layers = 2;  hidden = 4608;  heads = 32;  kv_heads = 16;  head_dim = 128;  \
ffn = 9216;  vocab = 32000;  window = 1024 }
odd model mixtral { layers = 2;  hidden = 130;  heads = 13;  kv_heads = 13;  vocab = 320;  \
experts = 3;  top_k = 2;  ffn = 176 }
awkward model qwen3_moe { layers = 2;  hidden = 26;  heads = 6;  kv_heads = 3;  head_dim = 10;  \
vocab = 97;  experts = 5;  top_k = 2;  expert_width = 13;  dense_layers = [1];  ffn = 29 }
PLANS
}
families | while read name model; do # without -r: \ joins lines
    printf \
        'use "models/%s.plan"\nuse "clusters/h200.plan"\nplan "%s" {\n    %s\n    cluster h200 { }\n    mesh { fsdp = 8 }\n    precision { compute = bf16 }\n    batch { sequence = 2048;  local = 2 }\n}\n' \
        "$(sed -E 's/model ([a-z0-9_]+) .*/\1/' <<<"$model")" "$name" "$model" >"$name.plan"
done
folders=()
while read name also plan settings; do # without -r: \ joins lines
    common=()
    for word in $settings; do common+=(--set "$word"); done
    # the number: pieces of the loss
    for variant in none.bf16 full.bf16 selective.bf16.4 ${also%-} \
        ${LONG:+none.fp32 selective.bf16 full.fp32}; do
        folder=$name.$variant
        IFS=. read -r mode compute pieces <<<"$variant"
        options=("${common[@]}" --set "precision.compute=$compute" --set \
            "activation_checkpoint.mode=$mode" ${pieces:+--set batch.loss_chunks=$pieces})
        if of_plan "$folder" "$plan" "${options[@]}"; then
            ok "texts.$folder" && folders+=("$folder")
        else
            fail "texts.$folder" "$(tail_of "$folder.build")"
        fi
    done
done <<PLANS
${LONG:+olmoe - olmoe.plan
gemma2 - gemma2.plan
odd - odd.plan
}30b-a3b-16 - $top/plans/30b-a3b-16.plan model.layers=2
30b-a3b-dense none.fp32 $top/plans/30b-a3b-16.plan model.layers=2 \
model.dense_layers=[0] model.ffn=6144
qwen3-30b-a3b - $top/plans/qwen3-30b-a3b.plan model.layers=2 run.experts=cublaslt
llama-8b none.fp32 $top/plans/llama-8b.plan model.layers=2
gpt2-124m none.fp32 $top/plans/gpt2-124m.plan model.layers=2
demo - $top/plans/demo.plan model.layers=2
moe-small - $top/plans/moe-small.plan model.layers=2
mixtral - mixtral.plan
qwen3 - qwen3.plan
awkward full.fp32 awkward.plan batch.sequence=20
PLANS
of_plan unfused "$top/plans/gpt2-124m.plan" --set model.layers=1 --fusion off &&
    ok texts.unfused && folders+=(unfused) || fail texts.unfused "$(tail_of unfused.build)"
for folder in twice.a twice.b; do
    of_plan $folder "$top/plans/moe-small.plan" --set model.layers=2
done
cmp -s twice.a/kernels.cu twice.b/kernels.cu && cmp -s twice.a/launch.c twice.b/launch.c &&
    cmp -s twice.a/program.c twice.b/program.c && ok same_bytes_twice ||
    fail same_bytes_twice "$(tail_of twice.b.build)"

# ── what every build for cuda says of the same plan ──────────────────────────
# (a model whose products are the same on both: cuda joins gate and up)
small=("$top/plans/gpt2-124m.plan" --cluster cpu --set model.layers=2 --set mesh.fsdp=2)
of_plan on_cuda "${small[@]}" &&
    "$planc" build "${small[@]}" -o on_cpu --device trace >on_cpu.build 2>&1
# offsets differ by the workspace, and the sums of attention's gradient are those of all heads
moved() {
    sed -E '/^ \* memory: /d; s/^(static const int64_t [A-Z0-9_]+ +=) [0-9]+;/\1 N;/' "$1" |
        sed -E 's/^(.* ATTENTION_GRAD_SUMS .*working,) [0-9]+ bytes/\1 N bytes/'
}
cmp -s <(moved on_cuda/schedule.c) <(moved on_cpu/schedule.c) && ok schedule_is_the_same ||
    fail schedule_is_the_same "$(diff <(moved on_cuda/schedule.c) <(moved on_cpu/schedule.c) |
    head -n 3 | tr '\n' '|')"
for file in cuda/machine.cuh op_math.h; do
    [ -s "on_cuda/$file" ] || fail stands_alone "no $file"
done && ok stands_alone
grep -q '^    .workspace = [1-9][0-9]*, .workspace_bytes = [1-9]' on_cuda/program.c &&
    grep -q '\.device = "cuda"' on_cuda/program.c && ! grep -q workspace on_cpu/program.c &&
    ok tables || fail tables "$(grep -n workspace on_cuda/program.c)"
grep -q "no NVRTC: PLANC_NVRTC is '/nowhere'" on_cuda.build &&
    grep -q 'compiles its kernels when it starts' on_cuda.build && ok without_nvrtc ||
    fail without_nvrtc "$(tail_of on_cuda.build)"
says() { # NAME STATUS PATTERN words…
    PLANC_NVRTC=${nvrtc-} "$planc" "${@:4}" >"$1.log" 2>&1
    local status=$?
    [ $status -eq "$2" ] && grep -qE -- "$3" "$1.log" && ok "$1" ||
        fail "$1" "exit $status: $(tail_of "$1.log")"
}
nvrtc=/nowhere says arch_without_nvrtc 4 \
    "--arch wants kernels compiled, and there is no NVRTC: .*/nowhere" build \
    "$top/plans/moe-small.plan" -o none --device cuda --arch sm_90a
says cuda_plan_on_cpu 0 'cpu, not the cluster.s NVIDIA B200' check "$top/plans/gpt2-124m.plan" \
    --device cpu --set batch.local=1 --set batch.sequence=32 --set batch.global=8 --set \
    model.layers=1 --set model.hidden=48 --set model.vocab=97
says cpu_plan_on_cuda 0 'cluster cpu does not say what a cuda device offers' check \
    "$top/plans/demo.plan" --device cuda --set model.layers=1
grep -q '  workspace ' cpu_plan_on_cuda.log && ! grep -q '  workspace ' cuda_plan_on_cpu.log &&
    ok workspace_of_cuda_only ||
    fail workspace_of_cuda_only "$(grep workspace cpu_plan_on_cuda.log)"
says too_many_experts 1 'on cuda up to 1024 experts can be counted, not 2,000' check \
    "$top/plans/30b-a3b-16.plan" --set model.experts=2000
says keys_of_cuda 0 'run.gemm is of cuda devices alone: without effect on cpu' check \
    "$top/plans/demo.plan" --set run.gemm=planc
says experts_of_none 0 'run.experts has no effect: gpt2 has no experts' check \
    "$top/plans/gpt2-124m.plan" --set run.experts=planc
says nccl_of_many 0 'run.nccl has no effect: 8 ranks always use NCCL' check \
    "$top/plans/gpt2-124m.plan" --set run.nccl=on
one_gpu="--set cluster.nodes=1 --set cluster.devices_per_node=1 --set batch.global=auto"
says blocks_of_one 0 'run.nccl_blocks has no effect: one rank has no NCCL' check \
    "$top/plans/gpt2-124m.plan" $one_gpu --set run.nccl_blocks=8
says nccl_of_one 0 'gpt2-124m.plan: fits' check "$top/plans/gpt2-124m.plan" $one_gpu \
    --set run.nccl=on --set run.nccl_blocks=8
says engines_of_a_mixture 0 'plan: [a-z]' check "$top/plans/30b-a3b-512-best.plan" \
    --set run.experts=planc --set run.attention=planc
cat nccl_of_one.log engines_of_a_mixture.log | grep -q 'no effect' &&
    fail engines_in_effect "$(cat nccl_of_one.log engines_of_a_mixture.log | grep 'no effect')" ||
    ok engines_in_effect
says too_many_blocks 1 'nccl_blocks = 74' check "$top/plans/30b-a3b-512-best.plan" --set \
    run.nccl_blocks=75
grep -q '75 blocks for the shards and as many for the replicas do not fit on 148' \
    too_many_blocks.log && ok blocks_of_two || fail blocks_of_two "$(tail_of too_many_blocks.log)"
"$planc" dump "$top/plans/demo.plan" --after schedule --device cuda >demo.ir 2>&1 &&
    grep -q '^facts .* device="cuda" attention="library" experts="cublaslt" wgmma=1$' demo.ir &&
    "$planc" dump --from demo.ir | cmp -s - demo.ir &&
    "$planc" dump --from demo.ir --pass memory | grep -q '^buffer workspace kind="workspace"' &&
    ok device_in_the_text || fail device_in_the_text "$(head -n 2 demo.ir | tail_of /dev/stdin)"

# ── kernels of warpgroups: written where one architecture has them, and told in the text ──
for one in sm_90a:yes sm_90:no sm_100a:no; do
    arch=${one%:*} folder=warpgroups.${one%:*}
    of_plan $folder "$top/plans/qwen3-30b-a3b.plan" --set model.layers=1 \
        --set cluster.device.arch=$arch || fail $folder "$(tail_of $folder.build)"
    "$planc" dump "$top/plans/qwen3-30b-a3b.plan" --after schedule --set model.layers=1 \
        --set cluster.device.arch=$arch >$folder.ir 2>&1
    forms=$(grep -cE '^    [a-z_]+_wgmma[<(]' $folder/kernels.cu)
    told=$(grep -c '^facts .* wgmma=1' $folder.ir)
    if [ $arch = sm_90a ]; then
        [ "$forms" -gt 9 ] && [ "$told" = 1 ] &&
            [ "$(grep -c 'launch_wgmma()' $folder/launch.c)" = "$forms" ]
    else
        [ "$forms$told" = 00 ] && ! grep -q wgmma $folder/launch.c
    fi && "$planc" dump --from $folder.ir | cmp -s - $folder.ir && ok $folder ||
        fail $folder "$forms functions, told: $told"
done

# ── what a block may have of shared memory, where that is less than on those that are sold ──
most_shared() {
    grep -oE 'FUNCTION_.*, [0-9]+\}' "$1/launch.c" | grep -oE '[0-9]+\}$' | tr -d '}' | sort -n |
        tail -n 1
}
for one in 80:166912 87:166912 86:101376 120:101376 103a:232448; do
    arch=sm_${one%:*} folder=shared.${one%:*}
    for width in 128 256; do
        printf \
            'use "models/qwen3_moe.plan"\nuse "clusters/a100.plan"\nplan "shared" {\n    %s\n    cluster a100 { device { arch = "%s" } }\n    mesh { fsdp = 8 }\n    precision { compute = bf16 }\n    batch { sequence = 2048;  local = 4 }\n}\n' \
            "model qwen3_moe { layers = 2;  hidden = 4096;  heads = 16;  kv_heads = 4;  head_dim = $width;  vocab = 32000;  experts = 8;  top_k = 2;  expert_width = 4096 }" \
            "$arch" >$folder.plan
        of_plan $folder.$width $folder.plan ||
            { fail shared.$arch.$width "$(tail_of $folder.$width.build)"; continue; }
        most=$(most_shared $folder.$width) limit=${one#*:} form='attention_forward<'
        [ $((384 * (2 * width + 16))) -gt "$limit" ] && form='attention_forward_simt<'
        if [ "$most" -gt "$limit" ]; then
            fail shared.$arch.$width "a block of $most bytes, $arch offers $limit"
        elif ! grep -q "$form" $folder.$width/kernels.cu; then fail shared.$arch.$width "no $form"
        elif [ "$limit" = 232448 ] && [ "$most" -lt 196608 ]; then
            fail shared.$arch.$width "no large product"
        else ok shared.$arch.$width; fi
    done
done
"$planc" dump shared.80.plan --after schedule >shared.ir 2>&1 &&
    grep -q '^facts .* device="cuda" shared=166912 multiprocessors=[0-9]*$' shared.ir &&
    "$planc" dump --from shared.ir | cmp -s - shared.ir && ok shared_in_the_text ||
    fail shared_in_the_text "$(head -n 2 shared.ir | tail_of /dev/stdin)"

# ── grids and sums are cut for the multiprocessors of the cluster ──
for count in 132 148 66 none; do
    if [ $count = none ]; then cluster=cpu said="cluster cpu { }"
    else
        cluster=h200
        said="cluster h200 { devices_per_node = 1;  device { multiprocessors = $count } }"
    fi
    printf \
        'use "models/gpt2.plan"\nuse "clusters/%s.plan"\nplan "grid" {\n    model gpt2 { layers = 1;  hidden = 2048;  heads = 16;  vocab = 97;  context = 4096 }\n    %s\n    precision { compute = bf16 }\n    batch { sequence = 4096;  local = 4 }\n}\n' \
        $cluster "$said" >grid.$count.plan
    of_plan grid.$count grid.$count.plan || fail grid.$count "$(tail_of grid.$count.build)"
done
pieces() { # of the gains' sums over 16384 rows: at most four a multiprocessor, of as many rows
    grep -oE 'add_chunks<[0-9]+' "grid.$1/kernels.cu" | grep -oE '[0-9]+$' | sort -un | tr '\n' ' '
}
[ "$(pieces 132)" = "261 512 " ] && [ "$(pieces 148)" = "293 586 " ] &&
    [ "$(pieces 66)" = "132 261 " ] &&
    cmp -s grid.132/kernels.cu grid.none/kernels.cu && ok grid_of_the_cluster ||
    fail grid_of_the_cluster "$(for n in 132 148 66 none; do pieces $n; done)"

# ── compiled ─────────────────────────────────────────────────────────────────
sanitizers=()
[ "$BUILD" = build-sanitize ] && sanitizers=(-fsanitize=address,undefined)
cc -std=c17 "${sanitizers[@]}" -I "$top/compiler" "$here/compile.c" \
    "$top/$BUILD"/compiler/{commands/nvrtc,base/base}.o -o compile -ldl -lm >compile.build 2>&1 ||
    { fail compile "$(tail_of compile.build)"; exit 0; }
mkdir -p include && rm -rf include/cuda && cp -r "$top/templates/cuda" include/ &&
    cp "$top"/runtime/shared/{op_math,scalar}.h include/
missing=$(./compile)
if [ $? -eq 77 ]; then
    for name in cubins spills kept arch_unknown; do skip $name "$missing"; done
    exit 0
fi
count=$(python3 "$here/kernels.py" gather all "${folders[@]}" 2>gather.err) && ok gathered ||
    fail gathered "$(tail_of gather.err)"
# What was compiled before, from the same text by the same compiler, is not compiled again.
compiled() { # PART ARCH
    local now
    now=$(cat "all.$1.cu" include/cuda/* include/*.h compile | sha256sum) now="$now $(./compile)"
    [ "$(cat "all.$1.$2.done" 2>/dev/null)" = "$now" ] && return
    rm -f "all.$1.$2.done"
    ./compile include "$2" "all.$1.cu" "all.$1.$2.log" && echo "$now" >"all.$1.$2.done" ||
        echo "$1.$2" >>failed
}
rm -f failed
for part in 0 1; do
    for arch in $archs; do compiled $part $arch; done &
done
wait
if [ -e failed ]; then
    fail cubins "$(tr '\n' ' ' <failed) $(grep -hm2 error all.*.log | tr '\n' '|')"
else
    ok cubins
fi
# also where products of warpgroups wait for each other: the compiler calls it a loss, no warning
grep -haE 'warning|\(C75[0-9]+\)' all.*.log >warnings
[ -s warnings ] && fail no_warnings "$(tail_of warnings)" || ok no_warnings
python3 "$here/kernels.py" table all "$doc" $archs >table.txt 2>table.err && ok spills ||
    fail spills "$(grep ^BAD table.txt | head -n 5 | tr '\n' '|')$(tail_of table.err)"
echo "note $count kernels of ${#folders[@]} builds, $(grep occupancy: \
    table.txt); build/tests/cuda/table.txt has them all"

# ── the command ──────────────────────────────────────────────────────────────
(
    export XDG_CACHE_HOME=$scratch/kept
    rm -rf kept kept.a kept.b
    small=("$top/plans/moe-small.plan" --device cuda --arch sm_90a --set model.layers=2 --set \
        batch.global=4)
    "$planc" build "${small[@]}" -o kept.a >kept.log 2>&1 || exit 1
    cp kept.a/kernels.sm_90a.cubin first.cubin
    for cubin in kept/planc/*.cubin; do [ -s "$cubin" ] || exit 1; done
    start=$(date +%s%N)
    # another mesh of the same batch: the same kernels
    "$planc" build "${small[@]}" -o kept.b --set mesh.fsdp=1 >>kept.log 2>&1 || exit 1
    [ "$(ls kept/planc/*.cubin | wc -l)" = 1 ] &&
        cmp -s kept.b/kernels.sm_90a.cubin first.cubin && [ -s kept.b/kernels.sm_90a.log ] || exit 1
    truncate -s 1000 "$cubin"
    # and the same bytes per second time
    "$planc" build "${small[@]}" -o kept.a >>kept.log 2>&1 &&
        cmp -s kept.a/kernels.sm_90a.cubin first.cubin || exit 1
    "$planc" build "$top/plans/moe-small.plan" -o kept.a --device trace --set model.layers=2 \
        >>kept.log 2>&1
    [ ! -e kept.a/kernels.sm_90a.cubin ] && [ ! -e kept.a/kernels.cu ] && [ ! -e kept.a/launch.c ]
) && ok kept || fail kept "$(tail_of kept.log)"
says arch_unknown 4 'NVRTC .* compiles for sm_.* to sm_.*, not for sm_999: ' build \
    "$top/plans/moe-small.plan" -o none --device cuda --arch sm_999
says reference 0 'on cuda \(sm_90a\)' build "$top/plans/moe-small.plan" -o reference --device cuda \
    --arch sm_90a --reference --set model.layers=2
[ -s reference/reference.so ] && ok reference_so || fail reference_so "$(tail_of reference.log)"
