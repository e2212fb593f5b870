# Whole cuda trainers without a GPU: built by planc through the NVRTC stand-in, run over the
# stand-in libraries. Sourced by run.sh, after tests/lib/training.sh, with `libraries` set. A
# variant is FSDP.DP.ACCUMULATION.MODE.FUSION as there.
export PLANC_NVRTC=$libraries/lib/libnvrtc.so.13

# cuda_build PLAN GLOBAL VARIANT DIR [planc options]: the log beside it
cuda_build() {
    local plan=$1 variant=$3 dir=$4 settings ranks fusion
    variant_settings "$2" "$variant"
    shift 4
    rm -rf "$dir"
    "$planc" build "$plan" -o "$dir" --device cuda --arch sm_90a "${settings[@]}" "$@" \
        >"$dir.build" 2>&1
}
# cuda_run DIR RANKS OUT [trainer options]: OUT.jsonl, .safetensors, .probe, .log; says why on
# stdout when it fails
cuda_run() {
    local dir=$1 ranks=$2 out=$3 status
    shift 3
    rm -f "$out".{jsonl,safetensors,probe,log}
    [ -x "$dir/trainer" ] || { echo "build failed: $(tail_of "$dir.build" 4)"; return 1; }
    LD_LIBRARY_PATH=$libraries/lib timeout 240 mpirun -n "$ranks" --oversubscribe --bind-to none \
        "$dir/trainer" --metrics "$out.jsonl" --final "$out.safetensors" \
        --probe "$out.probe" "$@" >"$out.log" 2>&1 </dev/null
    status=$?
    [ $status -eq 0 ] ||
        { echo "exit $status: $(grep -m 2 -E '^(trainer|stand-in)' "$out.log" |
        tr '\n' '|') $(tail_of "$out.log")"; return 1; }
}
ranks_of() { local fsdp dp; IFS=. read -r fsdp dp _ <<<"$1"; echo $((fsdp * ${dp%all})); }
same_run() { # NAME A B: no bit may differ
    local why
    if ! why=$(numbers same "$2.jsonl" "$3.jsonl"); then fail "$1" "$why"
    elif ! cmp -s "$2.safetensors" "$3.safetensors"; then fail "$1" "final weights differ"
    else ok "$1"; fi
}

# ── F32, against our own oracle in awkward sizes ─────────────────────────────
cc -O2 -std=gnu17 -o truth "$top"/tests/oracle_own/*.c -lm 2>truth.log ||
    fail truth "$(tail_of truth.log)"
# narrow NAME "TRUTH KEYS" "SETTINGS" VARIANT...
narrow() {
    local name=$1 keys=$2 extra=$3 variant why truth m dir
    shift 3
    rm -rf "${scratch:?}/$name" && mkdir -p "$scratch/$name/case" && cd "$scratch/$name" || return
    # shellcheck disable=SC2086
    if ! why=$("$scratch/truth" case $keys 2>&1); then fail "$name" "$why"; return; fi
    "$planc" import case -o case.plan >import.log 2>&1 ||
        { fail "$name.import" "$(tail_of import.log)"; return; }
    mapfile -t settings < <(numbers recipe "$PWD/case")
    for variant in "$@"; do
        # shellcheck disable=SC2086
        cuda_build case.plan 8 "$variant" "$variant" "${settings[@]}" $extra
        if ! why=$(cuda_run "$variant" "$(ranks_of "$variant")" "$variant"); then
            fail "$name.$variant" "$why"
            continue
        fi
        truth=case m=$(samples_together 8 "$variant")
        case " $keys " in
        *" family=qwen3_moe "* | *" family=mixtral "* | *" family=glm4_moe "*) truth=case.$m ;;
        esac
        # shellcheck disable=SC2086
        [ $truth = case ] || [ -e $truth ] ||
            { mkdir $truth && "$scratch/truth" $truth $keys together=$m; }
        why=$(numbers expect $truth "$variant.jsonl" --final "$variant.safetensors" --probe \
            "$variant.probe") && ok "$name.$variant" || fail "$name.$variant" "$why"
    done
    cd "$scratch" || exit 1
}

# ── F32, against the reference ───────────────────────────────────────────────
# reference NAME VARIANT...
reference() {
    local name=$1 case=$oracle/$1_tiny variant why truth together
    shift
    [ -e "$case/expected.json" ] ||
        { skip "$name" "there is no ../shared/oracle/${name}_tiny"; return; }
    rm -rf "${scratch:?}/$name" && mkdir -p "$scratch/$name" && cd "$scratch/$name" || return
    "$planc" import "$case" -o case.plan >import.log 2>&1 ||
        { fail "$name.import" "$(tail_of import.log)"; return; }
    mapfile -t settings < <(numbers recipe "$case")
    for variant in "$@"; do
        cuda_build case.plan 8 "$variant" "$variant" "${settings[@]}"
        if ! why=$(cuda_run "$variant" "$(ranks_of "$variant")" "$variant"); then
            fail "$name.$variant" "$why"
            continue
        fi
        truth=() together=$(samples_together 8 "$variant")
        [ "$name" = qwen3moe ] && truth=(--tol-aux 1e-5) && [ "$together" -ne 8 ] &&
            truth+=(--variant "aux_microbatch_$together")
        python3 "$oracle/check.py" "$case/expected.json" "$variant.jsonl" --strict --final \
            "$variant.safetensors" "${truth[@]}" >"$variant.check" 2>&1 && ok "$name.$variant" ||
            fail "$name.$variant" "$(tail_of "$variant.check" 6)"
    done
    cd "$scratch" || exit 1
}

# ── the same bits, whatever the device takes first ───────────────────────────
# courses VARIANT: built in this folder; leaves `plain`, four steps of it
courses() {
    local variant=$1 order lazy seed why
    cuda_run "$variant" "$(ranks_of "$variant")" plain --steps 4 >plain.why ||
        { fail "courses.$variant" "$(cat plain.why)"; return; }
    while read -r order lazy seed; do
        if why=$(STANDIN_ORDER=$order STANDIN_LAZY=$lazy STANDIN_SEED=$seed FIBER_SEED=$seed \
            cuda_run "$variant" "$(ranks_of "$variant")" other --steps 4); then
            same_run "course.$variant.$order.$lazy" plain other
        else fail "course.$variant.$order.$lazy" "$why"; fi
    done <<'COURSES'
first 0 2
last 0 3
random 1 4
COURSES
}

# ── a run that is saved and resumed ──────────────────────────────────────────
# resumed NAME VARIANT RANKS [planc options]: cut after every step, against one that is not
resumed() {
    local name=$1 variant=$2 ranks=$3 why k
    shift 3
    cuda_build case.plan 8 "$variant" saving "${settings[@]}" --set run.graph=on "$@" \
        --set "checkpoint.directory=$PWD/checkpoints" --set checkpoint.every=2
    rm -rf checkpoints cut.* cuts
    if ! why=$(cuda_run saving "$ranks" whole --steps 4); then fail "$name" "$why"; return; fi
    for k in 1 3 4; do
        STANDIN_ORDER=last STANDIN_LAZY=1 LD_LIBRARY_PATH=$libraries/lib timeout 240 \
            mpirun -n "$ranks" --oversubscribe --bind-to none saving/trainer --metrics \
                cut.jsonl --final cut.safetensors \
            --steps "$k" --checkpoint-dir cuts >cut.log 2>&1 </dev/null ||
            { fail "$name" "$(tail_of cut.log)"; return; }
    done
    grep -q '^resumed: step 3 ' cut.log || { fail "$name" "$(tail_of cut.log)"; return; }
    same_run "$name" whole cut
    cmp -s checkpoints/step-00000004/part-00000.safetensors \
        cuts/step-00000004/part-00000.safetensors && ok "$name.part" || fail "$name.part" "differs"
}

# ── gate and up in one product ───────────────────────────────────────────────
# joined VARIANT RANKS: both weights keep their names and what the plan gives each alone, in the
# optimizer, in checkpoints and for a trainer that has two products
joined() {
    local variant=$1 ranks=$2 why
    sed 's/clip = 1.0/weights "*.up_proj.*" { weight_decay = 0.7;  lr_scale = 0.5 }/' case.plan \
        >groups.plan
    rm -rf joined.saved apart
    cuda_build groups.plan 8 "$variant" joined "${settings[@]}" \
        --set "checkpoint.directory=$PWD/joined.saved" --set checkpoint.every=2
    why=$(cuda_run joined "$ranks" joined --steps 4) || { fail joined "$why"; return; }
    grep -q 'gate_up_experts' joined/schedule.c && grep -q 'gate_up_proj' joined/schedule.c &&
        ok joined.one_product || fail joined.one_product "gate and up are two products"
    variant_build groups.plan 8 1.1.1.none.on "${settings[@]}" && mv 1.1.1.none.on apart &&
        rm -rf joined.saved/step-00000004 &&
        launch 1 "$PWD/apart" --steps 4 --metrics apart.jsonl --final apart.safetensors \
            --checkpoint-dir joined.saved >apart.log 2>&1 &&
        grep -q '^resumed: step 2 ' apart.log ||
        { fail joined.resumed "$(tail_of apart.build) $(tail_of apart.log)"; return; }
    why=$(numbers near joined.safetensors apart.safetensors 2e-3) && ok joined.resumed ||
        fail joined.resumed "$why"
}

# ── validation ───────────────────────────────────────────────────────────────
# validated NAME VARIANT [planc options]: no bit of training changes; the losses are the cpu's
validated() {
    local name=$1 variant=$2 ranks why
    shift 2
    ranks=$(ranks_of "$variant")
    local every=(--set "data.validation=$PWD/case/tokens.bin" --set run.validate_every=2
                 --set run.validate_steps=1)
    cuda_build case.plan 8 "$variant" "with" "${settings[@]}" "${every[@]}" "$@"
    cuda_build case.plan 8 "$variant" "bare" "${settings[@]}" "$@"
    variant_build case.plan 8 "$variant" "${settings[@]}" "${every[@]}" && rm -rf host &&
        mv "$variant" host
    if ! why=$(cuda_run bare "$ranks" bare --steps 4); then fail "$name" "$why"; return; fi
    if ! why=$(STANDIN_ORDER=last STANDIN_LAZY=1 cuda_run with "$ranks" with --steps 4) ||
        ! why=$(launch "$ranks" "$PWD/host" --steps 4 --metrics host.jsonl 2>&1); then
        fail "$name" "$why"
        return
    fi
    why=$(python3 "$top/tests/validation/check.py" unchanged with.jsonl bare.jsonl 2>&1) &&
        cmp -s with.safetensors bare.safetensors && ok "$name" || fail "$name" "$why"
    why=$(python3 "$top/tests/validation/check.py" every with.jsonl 2 2>&1 &&
        python3 "$top/tests/validation/check.py" near with.jsonl host.jsonl 2>&1) &&
        ok "$name.losses" || fail "$name.losses" "$why"
}

# ── what the model writes; what a preflight measures ─────────────────────────
# writes VARIANT RANKS: the tokens of the cpu's trainer, behind steps that were recorded as graphs
writes() {
    local variant=$1 ranks=$2 settings fusion recipe why
    local sample=(--steps 3 --sample 6 --prompt 1,2,3)
    why=$(cuda_run "$variant" "$ranks" written "${sample[@]}") || { fail writes "$why"; return; }
    variant_settings 8 "$variant"
    mapfile -t recipe < <(numbers recipe "$PWD/case")
    "$planc" build case.plan -o cpu.writes --device cpu "${settings[@]}" "${recipe[@]}" \
        >cpu.writes.log 2>&1 &&
        launch "$ranks" "$PWD/cpu.writes" "${sample[@]}" >cpu.writes.log 2>&1 ||
        { fail writes "$(tail_of cpu.writes.log)"; return; }
    cmp -s <(grep -A1 '^sample:' written.log) <(grep -A1 '^sample:' cpu.writes.log) &&
        ok writes || fail writes "$(grep -A1 '^sample:' written.log | tr '\n' '|')"
}
# measures VARIANT RANKS: a preflight over the stand-ins
measures() {
    rm -f flight.json
    LD_LIBRARY_PATH=$libraries/lib timeout 240 mpirun -n "$2" --oversubscribe --bind-to none \
        "$1/trainer" --preflight flight.json >flight.log 2>&1 </dev/null &&
        python3 - flight.json <<'PYTHON' >flight.why 2>&1 && ok measures || fail measures \
            "$(tail_of flight.log) $(tail_of flight.why)"
import json
import sys
m = json.load(open(sys.argv[1], encoding="utf-8"))
assert m["device"] == "cuda" and len(m["ranks"]) == 2
for r in m["ranks"]:
    assert "CUDA" in r["driver"] and "NCCL" in r["libraries"] and r["free_bytes"] > 0, r
    assert r["copy_bytes_per_second"] > 0 and r["link_bytes_per_second"] > 0, r
assert {t["what"] for t in m["transfers"]} == {"gather", "reduce_scatter", "sum"}, m["transfers"]
assert all(t["seconds"] > 0 for t in m["transfers"])
PYTHON
}

# ── BF16, beside the cpu's ───────────────────────────────────────────────────
# beside NAME VARIANT [planc options]: kernel by kernel in the first step, then the losses of every
# step
beside() {
    local name=$1 variant=$2 why
    shift 2
    cuda_build case.plan 8 "$variant" "bf16.$variant" "${settings[@]}" --set \
        precision.compute=bf16 --reference "$@"
    variant_build case.plan 8 "$variant" "${settings[@]}" --set precision.compute=bf16 "$@" &&
        mv "$variant" "cpu.$variant"
    if why=$(cuda_run "bf16.$variant" "$(ranks_of "$variant")" compared --steps 1 --compare \
        "bf16.$variant/reference.so") &&
        grep -q '^compare: .* kernels, .*, 0 beyond' compared.log; then
        ok "$name.kernels.$variant"
    else fail "$name.kernels.$variant" "$(grep -m 3 BEYOND compared.log | tr '\n' '|') $why"; fi
    if ! why=$(cuda_run "bf16.$variant" "$(ranks_of "$variant")" bf16) ||
        ! why=$(launch "$(ranks_of "$variant")" "$PWD/cpu.$variant" --metrics cpu.jsonl 2>&1); then
        fail "$name.bf16.$variant" "$why"
        return
    fi
    why=$(python3 "$here/near.py" bf16.jsonl cpu.jsonl 2e-3) && ok "$name.bf16.$variant" &&
        echo "note $name.bf16.$variant $why" || fail "$name.bf16.$variant" "$why"
}

# ── parts of the optimizer in the replicas ───────────────────────────────────
# parts: both ways of summing gradients, in every course, as graphs and call by call; a shard that
# is written before the replicas have read it shows; validation, saving, BF16
parts() {
    local why variant
    for variant in 2.2all.1.full.on 2.2all.2.none.on; do
        cuda_build case.plan 8 "$variant" "$variant" "${settings[@]}" --set run.graph=on
        courses "$variant"
    done
    cuda_build case.plan 8 1.4all.1.full.on 1.4all.1.full.on "${settings[@]}" --set run.graph=off \
        --set mesh.reduce_slots=1
    courses 1.4all.1.full.on
    without 1.4all.1.full.on 4 SLOT_LAYERS_BACKWARD_SUMMED reduce_after
    validated validated.parts 2.2all.1.full.on
    resumed resumed.parts 2.2all.1.full.on 4
    beside parts 2.2all.1.full.on
}

# ── waits taken out of a schedule ────────────────────────────────────────────
link_trainer() { # DIR: its program from its texts, as they now are
    mpicc -O1 -w -std=c17 -I"$top/runtime/shared" -I"$1" -o "$1/trainer" "$1/schedule.c" \
        "$1/launch.c" "$1/program.c" "$top/$BUILD/lib/libtrainer_cuda.a" -ljansson -lm -ldl -pthread
}
# without DIR RANKS EVENT [VERB]: the schedule of DIR without its waits for EVENT; found when a
# course gives other bits than `plain`, or an error
without() {
    local dir=$1 ranks=$2 event=$3 verb=${4:-await} order
    rm -rf planted && cp -r "$dir" planted
    sed -i "s/\b$verb(d, [0-9]*, $event[^;]*;/;/" planted/schedule.c
    cmp -s "$dir/schedule.c" planted/schedule.c &&
        { fail "without.$event" "the schedule has no such wait"; return; }
    link_trainer planted >planted.build 2>&1 ||
        { fail "without.$event" "$(tail_of planted.build)"; return; }
    for order in first last random; do
        if ! STANDIN_NCCL_SECONDS=5 STANDIN_ORDER=$order cuda_run planted "$ranks" planted --steps \
            4 >planted.why || ! numbers same plain.jsonl planted.jsonl >planted.why; then
            ok "without.$event"
            return
        fi
    done
    fail "without.$event" "no course shows it"
}
