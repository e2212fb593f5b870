#!/usr/bin/env bash
# Everything that only a GPU can settle, in one command under ten minutes, with one table at the
# end.
#
#   tests/gpu/run.sh
#       prepare and run here
#   tests/gpu/run.sh --prepare DIR [--only STEP,STEP]
#       on any machine: build the trainers of all cases (of those steps) into DIR, with the parts of
#       MPI that they need
#   tests/gpu/run.sh --run DIR [--out FOLDER] [--only STEP,STEP] [--minutes N]
#       on the machine with the GPU: needs DIR and NVIDIA's libraries, no compiler, no MPI
#
# DIR may be copied to another machine. The trainers read their tokens below /tmp/planc-gpu
# (PLANC_GPU_PLACE, the same for both commands), which --run makes. Kernels are compiled for the
# architectures in ARCH (sm_90a,sm_100a). The steps, in this order; each has its own time limit, and
# a failed step does not stop the others:
#   machine     device, driver, libraries
#   compare     every kernel of every family against the same kernel on the host, BF16 and FP32, at
#               sizes that divide well and sizes that do not
#   dense       a dense model of 1.1 billion parameters: op by op against the roofline, then with
#               graphs: tokens/s, memory
#   mixture     a mixture of 3.3 billion parameters, 0.6 billion active, the same way
#   oracle      the reference cases, if they were beside the repository when it was prepared: FP32
#               by the strict checker, BF16 with wider tolerances
#   repeat      one run twice and once op by op: the same bits
#   cudnn       attention and expert products by cuDNN, expert products by cuBLASLt: against the
#               host, and in whole models
#   peer        PyTorch on the dense model
#   trace       a trace of two steps
#   own         dense and mixture with planc's own kernels only; on an H100 or H200 also with
#               mma.sync (built for sm_90): each product, and attention, side by side
#   sanitizer   compute-sanitizer over the smallest plan
#   two, eight  several GPUs of this machine (many.sh), and the bandwidth of each collective beside
#               NCCL's model; skipped where there are fewer. Not among the
#               steps of a run without --only: ask for them, with more --minutes
# The table is printed and written to FOLDER/table.md (default DIR/out); the logs are beside it.
# Exit status: 0 when no step failed.
set -u
here=$(cd "$(dirname "$0")" && pwd)
top=$here/../..
place=${PLANC_GPU_PLACE:-/tmp/planc-gpu}
device=${PLANC_DEVICE:-cuda}          # cpu: to try this script where there is no GPU
arch=${ARCH:-sm_90a,sm_100a}
known_steps() { echo "$all_steps,two,eight"; }
all_steps=machine,compare,dense,mixture,oracle,repeat,cudnn,peer,trace,own,sanitizer

. "$here/many.sh"

usage() { sed -n '2,/^set -u/{/^set -u/d;s/^# \{0,1\}//;p}' "$0"; exit 3; }
prepare=yes run=yes dir= out= only= minutes=9
while [ $# -gt 0 ]; do
    case $1 in
    --prepare | --run) [ $# -ge 2 ] || usage; [ "$1" = --prepare ] && run= ||
        prepare=; dir=$2; shift 2 ;;
    --out | --only | --minutes) [ $# -ge 2 ] || usage; declare "${1#--}=$2"; shift 2 ;;
    *) usage ;;
    esac
done
dir=${dir:-$top/build/gpu}
mkdir -p "$dir" && dir=$(cd "$dir" && pwd) || exit 4

# ── preparing ────────────────────────────────────────────────────────────────
families="llama gpt2 qwen3 qwen3_moe mixtral"
oracle=$top/../shared/oracle

wanted() { case ",$only," in *",$1,"*) return 0 ;; *) return 1 ;; esac; }

# build NAME PLAN WORDS...: DIR/NAME, its log beside it; FAILED_BUILDS has a line a failure
build() {
    local name=$1 plan=$2
    shift 2
    local words=(--device "$device")
    case $name in dense* | mixture*) words+=(--set "data.train=$place/tokens.bin") ;; compare.* | \
        tiny.* | cudnn.* | cublaslt.*) words+=(--set "data.train=$place/small.bin") ;; esac
    case $name in
    *.sm_90) words+=(--arch sm_90) ;;
    *) [ "$device" = cuda ] && words+=(--arch "$arch") ;;
    esac
    if "$built/planc" build "$plan" -o "$dir/$name" "${words[@]}" "$@" >"$dir/$name.build" 2>&1
    then
        printf '%s\n' "$(tail -n 1 "$dir/$name.build" | sed 's/^[^:]*trainer: //')"
    else
        echo "$name: $(grep -m 1 -iE 'error|failed|cannot' "$dir/$name.build" ||
            tail -n 1 "$dir/$name.build")" | tee -a "$dir/failed_builds"
    fi
}

# Shared libraries of a program except the C library's own, and Open MPI with the plugins of a
# single process.
carry_mpi() {
    local program=$1 plugins file library
    rm -rf "$dir/lib" "$dir/openmpi" &&
        mkdir -p "$dir/lib" "$dir/openmpi/plugins" "$dir/openmpi/share/openmpi"
    needed() {
        ldd "$1" | awk '$3 ~ /^\// { print $3 }' | \
            grep -vE '/(ld-linux.*|lib(c|m|pthread|dl|rt|util|resolv|gcc_s))\.so'
    }
    for library in $(needed "$program"); do cp -L "$library" "$dir/lib/"; done
    plugins=$(ompi_info --path pkglibdir --parsable 2>/dev/null | sed -n 's/^path:pkglibdir://p')
    [ -d "$plugins" ] || { echo "no Open MPI beside mpicc: its plugins are not carried"; return; }
    # Not those of networks, batch systems, launchers and other programming models: none is for one
    # process by itself.
    for file in "$plugins"/mca_*.so; do
        case $(basename "$file") in
        *ucx* | *ofi* | *openib* | *psm* | *flux* | *slurm* | *ext3x* | *monitoring* | \
            *gridengine* | *simulator* | *orted* | *hnp* | *netlink* | *_crs_* | *_plm_* | \
            *_odls_*) ;;
        mca_memheap_* | mca_spml_* | mca_sshmem_* | mca_scoll_* | mca_rmaps_* | mca_vprotocol_* | \
            mca_io_* | mca_f* | mca_sharedfp_*) ;;
        *) cp -L "$file" "$dir/openmpi/plugins/" ;;
        esac
    done
    for file in "$dir"/openmpi/plugins/*.so; do
        for library in $(needed "$file"); do
            [ -e "$dir/lib/$(basename "$library")" ] || cp -L "$library" "$dir/lib/"
        done
    done
    cp -L "$(dirname "$(ompi_info --path pkgdatadir --parsable | \
        sed -n 's/^path:pkgdatadir://p')")"/openmpi/help-{opal,orte,mpi,mca}*.txt \
        "$dir/openmpi/share/openmpi/" 2>/dev/null
    return 0
}

prepare_all() {
    local name family type kind words reference=() begun=$SECONDS
    rm -f "$dir/failed_builds"
    # Our host code must run on another processor than this one.
    printf '#!/bin/sh\nexec mpicc "$@" -march=x86-64-v3\n' >"$dir/mpicc" &&
        chmod +x "$dir/mpicc" && export MPICC=$dir/mpicc
    printf '#!/bin/sh\nexec cc "$@" -march=x86-64-v3\n' >"$dir/cc" && chmod +x "$dir/cc" &&
        export CC=$dir/cc
    cc -O2 -o "$dir/tokens" "$here/tokens.c" -static -lm 2>/dev/null ||
        cc -O2 -o "$dir/tokens" "$here/tokens.c" -lm || exit 4
    cp "$here"/{run.sh,many.sh,overlap.py,collectives.py,peer.py} "$dir/"
    [ "$device" = cuda ] && reference=(--reference)
    for family in $families wide warpgroups; do
        for type in bf16 fp32; do
            [ $family.$type = warpgroups.fp32 ] && continue
            wanted compare || { [ $type = bf16 ] && [ $family = llama ] && wanted trace; } ||
                { [ $type = bf16 ] && [ $family = qwen3_moe ] && wanted repeat; } || continue
            # the libraries' attention and experts: step cudnn
            build "compare.$family.$type" "$here/plans/$family.plan" --set precision.compute=$type \
                --set run.attention=planc --set run.experts=planc "${reference[@]}"
        done
    done
    if wanted machine || wanted sanitizer; then
        build tiny.bf16 "$here/plans/tiny.plan" --set precision.compute=bf16
    fi
    wanted sanitizer && build tiny.fp32 "$here/plans/tiny.plan" --set precision.compute=fp32
    if wanted cudnn && [ "$device" = cuda ]; then
        build cudnn.wide "$here/plans/wide.plan" --set precision.compute=bf16 --set \
            run.attention=cudnn "${reference[@]}"
        build dense.cudnn "$here/plans/dense.plan" --set run.attention=cudnn
        build cudnn.experts "$here/plans/qwen3_moe.plan" --set precision.compute=bf16 --set \
            run.experts=cudnn "${reference[@]}"
        build mixture.cudnn "$here/plans/mixture.plan" --set run.experts=cudnn
        build cublaslt.experts "$here/plans/qwen3_moe.plan" --set precision.compute=bf16 --set \
            run.experts=cublaslt "${reference[@]}"
        build mixture.cublaslt "$here/plans/mixture.plan" --set run.experts=cublaslt
    fi
    for name in dense mixture; do
        wanted $name && build "$name" "$here/plans/$name.plan"
        for kind in own sm_90; do
            wanted own && [ "$device" = cuda ] &&
                build "$name.$kind" "$here/plans/$name.plan" --set run.gemm=planc --set \
                run.attention=planc --set run.experts=planc
        done
    done
    rm -rf "$dir/oracle"
    for name in llama gpt2 qwen3 qwen3moe; do
        wanted oracle || wanted two || wanted eight || continue
        [ -e "$oracle/${name}_tiny/expected.json" ] || continue
        mkdir -p "$dir/oracle" &&
            cp -r "$oracle/${name}_tiny" "$oracle/check.py" "$dir/oracle/" &&
            chmod -R u+w "$dir/oracle"
        "$built/planc" import "$oracle/${name}_tiny" -o "$dir/oracle/$name.plan" \
            >"$dir/oracle/$name.import" 2>&1
        mapfile -t words < <(python3 "$top/tests/lib/numbers.py" recipe "$oracle/${name}_tiny" | \
            sed "s|=.*/${name}_tiny|=$place/oracle/${name}_tiny|")
        printf '%s\n' "${words[@]}" >"$dir/oracle/$name.words"
        for type in fp32 bf16; do
            wanted oracle || continue
            build "oracle.$name.$type" "$dir/oracle/$name.plan" "${words[@]}" --set batch.local=8 \
                --set precision.compute=$type
        done
    done
    wanted two && prepare_many 2
    wanted eight && prepare_many 8
    for name in "$dir"/*/trainer; do
        [ -x "$name" ] && carry_mpi "$name" && break
    done
    strip -g "$dir"/*/trainer 2>/dev/null
    # Texts were for building; a trainer that finds its cubin does not read them again, one on
    # another architecture does.
    rm -f "$dir"/*/kernels.c "$dir"/*/arguments.c "$dir"/*.build
    echo "prepared $(ls -d "$dir"/*/trainer 2>/dev/null | \
        wc -l) trainers in $dir, $(du -sm "$dir" | cut -f1) MB, $((SECONDS - begun)) s"
    [ ! -s "$dir/failed_builds" ]
}

# ── the machine ──────────────────────────────────────────────────────────────
torch_python() {
    local python
    for python in /opt/torch/.venv/bin/python3 "${VIRTUAL_ENV:-/nowhere}/bin/python3" python3; do
        "$python" -c 'import torch' 2>/dev/null && { echo "$python"; return; }
    done
}

# The folders of NVIDIA's libraries that are not where the loader looks by itself.
library_folders() {
    local soname folder roots=(/usr/local/cuda /usr/local/cuda-1* \
        /opt/torch/.venv/lib/python3*/site-packages/nvidia) found=
    [ -n "$python" ] &&
        roots+=("$("$python" -c 'import nvidia; print(list(nvidia.__path__)[0])' 2>/dev/null)")
    for soname in libcublasLt.so.13 libnccl.so.2 libcudnn.so.9 libnvrtc.so.13; do
        ldconfig -p 2>/dev/null | grep -q "$soname " && continue
        folder=$(for root in "${roots[@]}"; do [ -d "$root" ] &&
            find -L "$root" -name "$soname" -not -path '*/stubs/*' 2>/dev/null; done | head -n 1)
        # what we call of it is the same in 12, under another name
        if [ -z "$folder" ] && [ "$soname" = libcublasLt.so.13 ]; then
            folder=$(for root in "${roots[@]}"; do [ -d "$root" ] &&
                find -L "$root" -name libcublasLt.so.12 -not -path '*/stubs/*' 2>/dev/null; done | \
                head -n 1)
            [ -n "$folder" ] && mkdir -p "$out/older" && ln -sfn "$folder" "$out/older/$soname" &&
                folder=$out/older/$soname
        fi
        [ -n "$folder" ] || { echo "no $soname" >>"$out/missing"; continue; }
        folder=$(dirname "$folder")
        case ":$found:" in *":$folder:"*) ;; *) found=$found:$folder ;; esac
    done
    echo "${found#:}"
}

# A driver older than the libraries: NVIDIA's forward-compatible one, where it was installed.
compatible_driver() {
    local version
    version=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | head -n 1)
    [ -n "$version" ] && [ "${version%%.*}" -lt 580 ] &&
        [ -e /usr/local/cuda/compat/libcuda.so.1 ] && echo /usr/local/cuda/compat
}

# trainer SECONDS NAME OPTIONS...: runs DIR/NAME/trainer alone, without mpirun; its status
trainer() {
    local limit=$1 name=$2
    shift 2
    [ -x "$dir/$name/trainer" ] ||
        { echo "trainer: $name was not built: $(grep -m 1 "^$name:" "$dir/failed_builds" \
        2>/dev/null)" >&2; return 4; }
    timeout -k 5 "$limit" env \
        LD_LIBRARY_PATH="$dir/lib:$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" \
        OPAL_PREFIX="$dir/openmpi" OMPI_MCA_mca_base_component_path="$dir/openmpi/plugins" \
        OMPI_MCA_ess_singleton_isolated=1 OMPI_MCA_btl_vader_single_copy_mechanism=none \
        OMPI_MCA_mca_base_component_show_load_errors=0 OMPI_ALLOW_RUN_AS_ROOT=1 \
        OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 ${wrapper:-} \
        "$dir/$name/trainer" "$@" </dev/null
}

# ── the table ────────────────────────────────────────────────────────────────
failed=0
row() { # WHAT RESULT DETAIL
    [ "$2" = FAIL ] && failed=$((failed + 1))
    printf '| %s | %s | %s |\n' "$1" "$2" "$(printf %s "$3" | tr '|\n' '/ ')" | \
        tee -a "$out/table.md"
}
note() {
    printf '| %s | | %s |\n' "$1" "$(printf %s "$2" | tr '|\n' '/ ')" | tee -a "$out/table.md"
}
# Why a run ended: our own line if there is one, or its last.
why() { grep -h -m 1 '^trainer:' "$1" 2>/dev/null || tail -n 1 "$1" 2>/dev/null; }
left() { echo $((deadline - SECONDS)); }
at_most() { local l; l=$(left); [ "$l" -lt "$1" ] && echo "$((l > 5 ? l : 5))" || echo "$1"; }

# ── steps ────────────────────────────────────────────────────────────────────
step_machine() {
    note "device" "$(nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm \
        --format=csv,noheader 2>/dev/null | head -n 1)"
    note "host" "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | \
        head -n 1), $(nproc) cores; glibc $(ldd --version 2>/dev/null | sed -n '1s/.* //p')"
    note "libraries" "${libraries:-where the loader looks}$([ -e "$out/missing" ] &&
        tr '\n' ' ' <"$out/missing"); $(nvcc --version 2>/dev/null | sed -n 's/.*release/nvcc/p')"
    [ -s "$dir/failed_builds" ] && row "builds" FAIL "$(cat "$dir/failed_builds")"
    if trainer 60 tiny.bf16 --steps 2 >"$out/first.log" 2>&1; then
        row "a trainer starts" ok "$(grep -m 1 '^machine' "$out/first.log")"
    else
        row "a trainer starts" FAIL "$(why "$out/first.log")"
        broken=yes
    fi
}

step_compare() {
    local name waiting=() limit cores
    limit=$(at_most 120) cores=$(nproc)
    for name in "$dir"/compare.*; do
        [ -d "$name" ] || continue
        name=$(basename "$name")
        trainer "$limit" "$name" --steps 1 --compare "$dir/$name/reference.so" >"$out/$name.log" \
            2>&1 &
        waiting+=("$!:$name")
        [ ${#waiting[@]} -ge "$((cores > 8 ? 8 : cores))" ] &&
            { settle "${waiting[0]}"; waiting=("${waiting[@]:1}"); }
    done
    for name in "${waiting[@]}"; do settle "$name"; done
}
settle() { # PID:NAME
    local name=${1#*:} status beyond
    wait "${1%%:*}"
    status=$?
    if [ $status -eq 0 ]; then
        row "${name/./ }" ok "$(grep '^compare:.* beyond their bounds' "$out/$name.log" | \
            sed 's/^compare: //')"
    else
        beyond=$(sed -n \
            's/^compare: \([^ ]*\) .* \([0-9.einf+]*\) *\([^ ]*\)  BEYOND$/\1 (\2 of its bound, in \3)/p' \
            "$out/$name.log" | head -n 12 | tr '\n' ' ')
        row "${name/./ }" FAIL "exit $status: $(why "$out/$name.log"); $beyond"
    fi
}

# Median of a field of the last half of the steps.
median() { # FILE FIELD
    sed -n "s/.*\"$2\":\([0-9.e+-]*\).*/\1/p" "$1" 2>/dev/null | \
        awk \
        '{ a[NR] = $1 } END { print NR ? NR : 0; for (i = int(NR / 2) + 1; i <= NR; i++) print a[i] }' \
        |
        tail -n +2 | sort -g | awk '{ a[NR] = $1 } END { if (NR) print a[int((NR + 1) / 2)] }'
}
# speed NAME SECONDS STEPS OPTIONS...: one run, its speed and memory as rows
speed() {
    local name=$1 limit steps=$3 log=$out/$1.log rate flops peak
    limit=$(at_most "$2")
    shift 3
    if ! trainer "$limit" "$name" --steps "$steps" --metrics "$out/$name.jsonl" "$@" >"$log" 2>&1
    then
        row "$name" FAIL \
            "$(why "$log"); $(grep -c '"step"' "$out/$name.jsonl" 2>/dev/null) steps, $(median \
            "$out/$name.jsonl" tokens_per_second) tokens/s"
        return
    fi
    rate=$(median "$out/$name.jsonl" tokens_per_second)
    flops=$(sed -n 's/.*(\([0-9.e+]*\) MFLOP per token).*/\1/p' "$log" | head -n 1)
    peak=$(sed -n 's/^profile: measured at best.* \([0-9.]*\) TFLOP.s in a product.*/\1/p' "$log" \
        | head -n 1)
    row "$name" ok "$(awk -v r="$rate" -v f="$flops" -v p="$peak" \
        'BEGIN {
            printf "%.0f tokens/s", r
            if (f) printf ", %.1f TFLOP/s", r * f * 1e-6
            if (f) printf ", %.1f %% of 989 (data sheet of an H200)", r * f * 1e-6 / 9.89
            if (f && p) printf ", %.1f %% of the measured %.0f TFLOP/s", 100 * r * f * 1e-6 / p, p
        }'), loss $(sed \
        -n 's/.*"loss":\([0-9.e+-]*\).*/\1/p' "$out/$name.jsonl" | sed -n '1p;$p' | tr '\n' ' ')"
    note "$name, memory" "$(grep -m 1 -i '^memory' "$log"); peak $(median "$out/$name.jsonl" \
        memory_peak_bytes) bytes"
    grep '^profile:' "$log" >"$out/$name.profile"
    [ -s "$out/$name.profile" ] || return
    note "$name, at best" "$(sed -n 's/^profile: measured at best: //p' "$out/$name.profile")"
    note "$name, op by op" "$(sed -n 's/^profile: \([0-9]* steps\)/\1/p' "$out/$name.profile")"
    case $name in *.own | *.sm_90 | *.cudnn | *.cublaslt) return ;; esac
    grep '^profile: class' "$out/$name.profile" | head -n 14 | \
        while read -r _ _ class calls ms share _ tflops gbs part _; do
        note "$name, $class" \
            "$calls calls, $ms ms, $share % of kernels, $tflops TFLOP/s, $gbs GB/s, $part % of the roofline"
    done
}
step_dense() { speed dense 70 16 --profile 3; }
step_mixture() { speed mixture 100 14 --profile 3; }
step_own() {
    local name
    speed dense.own 60 10 --profile 2
    [ "$(left)" -gt 60 ] && speed mixture.own 90 8 --profile 2
    [ "$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | \
        head -n 1)" = 9.0 ] || return 0
    for name in mixture dense; do
        [ "$(left)" -gt 60 ] || return 0
        speed $name.sm_90 90 6 --profile 2
        beside $name.own $name.sm_90
    done
}
# Products and attention of two profiles, one by one: with warpgroups and without.
beside() {
    local kernel first second
    [ -s "$out/$1.profile" ] && [ -s "$out/$2.profile" ] || return
    while read -r kernel first second; do
        note "${1%.*}, $kernel" "$first TFLOP/s by wgmma, $second by mma.sync"
    done < <(awk '$2 != "kernel" { next }
        NR == FNR { rate[$3] = $8; next }
        $3 in rate && $3 ~ /proj|experts|lm_head|attention/ { print $3, rate[$3], $8 }' \
        "$out/$1.profile" "$out/$2.profile")
}

step_cudnn() {
    trainer "$(at_most 90)" cudnn.wide --steps 1 --compare "$dir/cudnn.wide/reference.so" \
        >"$out/cudnn.wide.log" 2>&1 &
    settle "$!:cudnn.wide"
    trainer "$(at_most 90)" cudnn.experts --steps 1 --compare "$dir/cudnn.experts/reference.so" \
        >"$out/cudnn.experts.log" 2>&1 &
    settle "$!:cudnn.experts"
    speed dense.cudnn 60 10 --profile 2
    grep '^profile: kernel *attention' "$out/dense.cudnn.profile" 2>/dev/null | \
        while read -r _ _ kernel calls ms share _ tflops gbs part _; do
        note "dense.cudnn, $kernel" "$calls calls, $ms ms, $tflops TFLOP/s, $part % of the roofline"
    done
    [ "$(left)" -gt 60 ] && speed mixture.cudnn 90 8 --profile 2
    trainer "$(at_most 90)" cublaslt.experts --steps 1 --compare \
        "$dir/cublaslt.experts/reference.so" >"$out/cublaslt.experts.log" 2>&1 &
    settle "$!:cublaslt.experts"
    [ "$(left)" -gt 60 ] && speed mixture.cublaslt 90 8 --profile 2
    note "experts by cuBLASLt" "$(grep -h '^engines\|^experts' "$out/mixture.cublaslt.log" \
        2>/dev/null | sort -u | head -n 4 | tr '\n' ' ')"
}

step_oracle() {
    local name type words log
    [ -d "$dir/oracle" ] || { row oracle skipped "there was no ../shared/oracle"; return; }
    for name in llama gpt2 qwen3 qwen3moe; do
        for type in fp32 bf16; do
            log=$out/oracle.$name.$type
            rm -f "$log.jsonl" "$log.safetensors"
            if ! trainer 60 "oracle.$name.$type" --metrics "$log.jsonl" --final "$log.safetensors" \
                >"$log.log" 2>&1; then
                row "oracle $name $type" FAIL "$(why "$log.log")"
                continue
            fi
            words=(--tol-loss 2e-3 --tol-grad-norm 2e-1)
            [ $type = fp32 ] && words=(--strict --final "$log.safetensors")
            if python3 "$dir/oracle/check.py" "$dir/oracle/${name}_tiny/expected.json" \
                "$log.jsonl" "${words[@]}" >"$log.check" 2>&1; then
                row "oracle $name $type" ok \
                    "$(sed -n 's/^\(loss\|grad_norm\) *max rel error \([^ ]*\).*/\1 \2/p' \
                    "$log.check" | tr '\n' ' ')"
            else row "oracle $name $type" FAIL "$(grep -m 3 FAIL "$log.check" | tr '\n' ' ')"; fi
        done
    done
}

step_repeat() {
    local name=compare.qwen3_moe.bf16 run
    for run in first second; do
        trainer 60 $name --steps 6 --metrics "$out/repeat.$run.jsonl" >"$out/repeat.$run.log" 2>&1 \
            || { row repeat FAIL "$(why "$out/repeat.$run.log")"; return; }
    done
    trainer 60 $name --steps 6 --profile 5 --metrics "$out/repeat.profile.jsonl" \
        >"$out/repeat.profile.log" 2>&1 ||
        { row repeat FAIL "$(why "$out/repeat.profile.log")"; return; }
    numbers() {
        sed -n 's/.*\("step":[0-9]*\).*\("loss":[^,]*\).*\("grad_norm":[^,]*\).*/\1 \2 \3/p' \
            "$out/repeat.$1.jsonl"
    }
    for run in second profile; do
        if [ -n "$(numbers first)" ] && [ "$(numbers first)" = "$(numbers $run)" ]; then
            row "the same bits, $run" ok "6 steps, $(numbers first | tail -n 1)"
        else
            row "the same bits, $run" FAIL "$(diff <(numbers first) <(numbers $run) | head -n 4 | \
                tr '\n' ' ')"
        fi
    done
}

step_trace() {
    if trainer 60 compare.llama.bf16 --steps 3 --trace "$out/trace.json" >"$out/trace.log" 2>&1 &&
        python3 -c "
import json
events = [e for e in json.load(open('$out/trace.json'))['traceEvents'] if e['ph'] == 'X']
assert len(events) > 50 and all(e['dur'] >= 0 for e in events)
print(len(events), 'events,', round(max(e['ts'] + e['dur'] for e in events) / 1000, 2), 'ms')" \
    >"$out/trace.count" 2>&1; then row trace ok "$(cat "$out/trace.count")"
    else row trace FAIL "$(why "$out/trace.log") $(tail -n 1 "$out/trace.count" 2>/dev/null)"; fi
}

step_sanitizer() {
    local sanitizer tool type
    sanitizer=$(command -v compute-sanitizer ||
        ls /usr/local/cuda*/bin/compute-sanitizer 2>/dev/null | head -n 1)
    [ -n "$sanitizer" ] || { row sanitizer skipped "there is no compute-sanitizer"; return; }
    for tool in memcheck racecheck synccheck initcheck; do
        for type in bf16 fp32; do
            [ "$(left)" -gt 20 ] || { row "$tool $type" skipped "no time left"; continue; }
            if wrapper="$sanitizer --tool $tool --error-exitcode 9 --print-limit 20" trainer \
                "$(at_most 45)" tiny.$type --steps 1 >"$out/$tool.$type.log" 2>&1; then
                row "$tool $type" ok \
                    "$(grep -m 1 'ERROR SUMMARY\|RACECHECK SUMMARY' "$out/$tool.$type.log" | \
                    sed 's/=* *//')"
            else
                row "$tool $type" FAIL \
                    "$(grep \
                    -m 2 -E 'Invalid|Race|hazard|Uninit|ERROR SUMMARY|RACECHECK SUMMARY|Error' \
                    "$out/$tool.$type.log" | tr '\n' ' ') $(why "$out/$tool.$type.log")"
            fi
        done
    done
}

step_peer() {
    local mode
    [ -n "$python" ] || { row peer skipped "there is no PyTorch"; return; }
    for mode in eager compile; do
        [ "$(left)" -gt 30 ] || { row "PyTorch $mode" skipped "no time left"; continue; }
        if timeout -k 5 "$(at_most 120)" "$python" "$dir/peer.py" "$place/tokens.bin" --mode $mode \
            --steps 10 >"$out/peer.$mode.log" 2>&1; then
            row "PyTorch $mode" ok \
                "$(sed \
                -n \
                's/^peer: [a-z]* \([0-9]*\) \([0-9]*\) \(.*\)/\1 tokens\/s, \2 bytes reserved, \3/p' \
                "$out/peer.$mode.log"), loss $(sed -n 's/^step [0-9]* loss \([^ ]*\).*/\1/p' \
                "$out/peer.$mode.log" | sed -n '1p;$p' | tr '\n' ' ')"
        else row "PyTorch $mode" FAIL "$(tail -n 1 "$out/peer.$mode.log")"; fi
    done
}

run_all() {
    local step begun took= broken=
    out=${out:-$dir/out}
    mkdir -p "$out" && out=$(cd "$out" && pwd) || exit 4
    rm -f "$out/missing" "$out/table.md"
    deadline=$((SECONDS + 60 * minutes))
    python=$(torch_python)
    libraries=$(library_folders)
    local compat
    compat=$(compatible_driver)
    libraries=${compat:+$compat:}$libraries
    rm -rf "$place" && mkdir -p "$place" || { echo "cannot make $place" >&2; exit 4; }
    "$dir/tokens" 700000 32768 >"$place/tokens.bin" &&
        "$dir/tokens" 100000 700 >"$place/small.bin" || exit 4
    [ -d "$dir/oracle" ] && cp -r "$dir/oracle" "$place/"
    printf '| %s | result | detail |\n| --- | --- | --- |\n' "$(date -u +%Y-%m-%dT%H:%MZ)" | \
        tee "$out/table.md"
    for step in ${only//,/ }; do
        declare -F "step_$step" >/dev/null ||
            { row "$step" FAIL "there is no such step; there are $(known_steps)"; continue; }
        if [ "$(left)" -lt 15 ]; then row "$step" skipped "no time left"; continue; fi
        if [ -n "$broken" ] && [ "$step" != peer ]; then
            row "$step" skipped "no trainer starts"
            continue
        fi
        begun=$SECONDS
        "step_$step"
        took="$took$step $((SECONDS - begun)) s, "
    done
    note "time" "$took$((SECONDS - deadline + 60 * minutes)) s in all; $failed failed"
    echo
    cat "$out/table.md"
    [ $failed -eq 0 ]
}

only=${only:-$all_steps} built=$top/${BUILD:-build}
status=0
if [ -n "$prepare" ]; then
    [ -x "$built/planc" ] || make -C "$top" || exit 4
    prepare_all || status=1
fi
if [ -n "$run" ]; then run_all || status=1; fi
exit $status
