# Building and running many trainers of one case: meshes, accumulation, checkpointing, fusion.
# Builds go two at a time (one core each), runs one after the other, so that a run has the machine
# to itself. Sourced after common.sh.
#
# A variant is a word of five parts: FSDP.DP.ACCUMULATION.MODE.FUSION, such as 2.1.1.full.off; "all"
# behind DP is mesh.optimizer = all: 2.2all.1.none.on
numbers() { python3 "$top/tests/lib/numbers.py" "$@"; }

# variant_settings GLOBAL VARIANT: sets `settings`, `ranks`, `fusion`.
variant_settings() {
    local fsdp dp accumulation mode
    IFS=. read -r fsdp dp accumulation mode fusion <<<"$2"
    local optimizer=shard
    case $dp in *all) optimizer=all ;; esac
    dp=${dp%all}
    ranks=$((fsdp * dp))
    settings=(--set "mesh.fsdp=$fsdp" --set "mesh.dp=$dp" --set "mesh.optimizer=$optimizer" --set \
        "batch.local=$(($1 / ranks / accumulation))"
              --set "activation_checkpoint.mode=$mode" --fusion "$fusion")
}
# variant_build PLAN GLOBAL VARIANT [--set ...]: into VARIANT/, the log beside it
variant_build() {
    local plan=$1 variant=$3 settings ranks fusion
    variant_settings "$2" "$variant"
    shift 3
    rm -rf "$variant"
    "$planc" build "$plan" -o "$variant" --device cpu "${settings[@]}" "$@" >"$variant.build" 2>&1
}
# build_all PLAN GLOBAL SETTINGS_FILE VARIANT...: those that fail are told later, by their missing
# trainer
build_all() {
    local plan=$1 global=$2 file=$3 extra running=0 variant
    mapfile -t extra <"$file"
    shift 3
    for variant in "$@"; do
        variant_build "$plan" "$global" "$variant" "${extra[@]}" &
        running=$((running + 1))
        if [ $running -ge 2 ]; then wait -n; running=$((running - 1)); fi
    done
    wait
}
# variant_run VARIANT: writes VARIANT.jsonl, .safetensors, .probe; says why on stdout when it fails
variant_run() {
    local variant=$1 settings ranks fusion
    variant_settings 8 "$variant"
    rm -f "$variant".{jsonl,safetensors,probe,log}
    if [ ! -x "$variant/trainer" ]; then
        echo "build failed: $(tail_of "$variant.build")"
        return 1
    fi
    timeout 120 mpirun -n "$ranks" --oversubscribe --bind-to none "$variant/trainer" --metrics \
        "$variant.jsonl" \
        --final "$variant.safetensors" --probe "$variant.probe" >"$variant.log" 2>&1 </dev/null
    local status=$?
    [ $status -eq 0 ] || { echo "exit $status: $(tail_of "$variant.log")"; return 1; }
}
# variants_equal NAME A B: two runs that must not differ by a bit
variants_equal() {
    local why
    if ! why=$(numbers same "$2.jsonl" "$3.jsonl"); then fail "$1" "$why"
    elif ! cmp -s "$2.safetensors" "$3.safetensors"; then fail "$1" "final weights differ"
    else ok "$1"; fi
}
# kernels DIR: how many the generated schedule can call
kernels_of() {
    grep -cE '^[[:space:]]*(static )?(const )?struct kernel |^[[:space:]]*\{ *"' "$1/schedule.c" \
        2>/dev/null
}
# samples_together GLOBAL VARIANT: how many samples a rank sees at a time
samples_together() {
    local fsdp dp accumulation
    IFS=. read -r fsdp dp accumulation _ <<<"$2"
    echo $(($1 / fsdp / ${dp%all} / accumulation))
}
