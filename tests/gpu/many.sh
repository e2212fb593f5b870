# Steps of tests/gpu/run.sh for several GPUs of one machine, sourced by it: reference cases over a
# mesh, two equal runs, overlap of transfers with compute against the prediction, ranks that are
# killed and stopped, and HSDP over nodes that are only said to be several. They need an mpirun and
# the MPI that the trainers were linked with, so prepare them on this machine or on one like it.
#
# GPUS: how many there are, where nvidia-smi does not say. MANY_CASES: the reference cases, llama
# and qwen3moe.

gpus() { echo "${GPUS:-$(nvidia-smi -L 2>/dev/null | grep -c '^GPU')}"; }

# as_nodes RANKS COMMAND…: every so many ranks are a node, for us and for NCCL, with GPUs of its own
write_as_nodes() {
    cat >"$dir/as_nodes" <<'NODES'
#!/bin/bash
each=$1 node=$((OMPI_COMM_WORLD_RANK / $1))
shift
export PLANC_HOST=node$node NCCL_HOSTID=node$node
CUDA_VISIBLE_DEVICES=$(seq -s , $((node * each)) $((node * each + each - 1))) exec "$@"
NODES
    chmod +x "$dir/as_nodes"
}

prepare_many() { # RANKS
    local n=$1 name mesh words=() halves sizes
    sizes=(--set "cluster.devices_per_node=$n" --set "mesh.fsdp=$n")
    write_as_nodes
    build "tiny.many.$n" "$here/plans/tiny.plan" "${sizes[@]}" --set schedule.steps=1000000
    # with the shards of half of the ranks, and their sums over two replicas
    halves=(--set "cluster.devices_per_node=$n" --set "mesh.fsdp=$((n / 2))" --set mesh.dp=2)
    if [ "$device" = cuda ]; then
        build "dense.$n" "$here/plans/dense.plan" "${sizes[@]}"
        "$built/planc" simulate "$here/plans/dense.plan" "${sizes[@]}" --json \
            >"$dir/dense.$n.json" 2>"$dir/dense.$n.simulated"
        build "dense.halves.$n" "$here/plans/dense.plan" "${halves[@]}"
        "$built/planc" simulate "$here/plans/dense.plan" "${halves[@]}" --json \
            >"$dir/dense.halves.$n.json" 2>"$dir/dense.halves.$n.simulated"
    else
        build "tiny.halves.$n" "$here/plans/tiny.plan" "${halves[@]}" --set schedule.steps=1000000
    fi
    for name in ${MANY_CASES:-llama qwen3moe}; do
        [ -e "$dir/oracle/$name.plan" ] || continue
        mapfile -t words <"$dir/oracle/$name.words"
        for mesh in "$n.1" "$((n / 2)).2"; do
            build "many.$n.$name.$mesh" "$dir/oracle/$name.plan" "${words[@]}" --set \
                batch.local=$((8 / n)) --set "mesh.fsdp=${mesh%.*}" --set "mesh.dp=${mesh#*.}"
        done
    done
}

# together SECONDS RANKS NAME OPTIONS…: its status. `nodes`: how many nodes they are said to be
together() {
    local limit=$1 ranks=$2 name=$3 apart=()
    shift 3
    [ -x "$dir/$name/trainer" ] || { echo "trainer: $name was not built" >&2; return 4; }
    [ "${nodes:-1}" = 1 ] || apart=("$dir/as_nodes" $((ranks / nodes)))
    timeout -k 5 "$limit" env OMPI_ALLOW_RUN_AS_ROOT=1 \
        OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_btl_vader_single_copy_mechanism=none \
        LD_LIBRARY_PATH="$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" \
        mpirun -n "$ranks" --oversubscribe --bind-to none "${apart[@]}" "$dir/$name/trainer" "$@" \
        </dev/null
}

# over_mesh RANKS NAME MESH: the reference case by the strict checker; LOG.jsonl, LOG.safetensors
over_mesh() {
    local n=$1 name=$2 mesh=$3 log words=()
    log=$out/many.$n.$name.$mesh${nodes:+.$nodes}
    rm -f "$log".{jsonl,safetensors}
    [ "$name" = qwen3moe ] && words=(--tol-aux 1e-5 --variant "aux_microbatch_$((8 / n))")
    if ! together "$(at_most 60)" "$n" "many.$n.$name.$mesh" --metrics "$log.jsonl" --final \
        "$log.safetensors" >"$log.log" 2>&1; then
        row "$n GPUs, $name $mesh${nodes:+, $nodes nodes}" FAIL "$(why "$log.log")"
    elif python3 "$dir/oracle/check.py" "$dir/oracle/${name}_tiny/expected.json" "$log.jsonl" \
        --strict --final "$log.safetensors" "${words[@]}" >"$log.check" 2>&1; then
        row "$n GPUs, $name $mesh${nodes:+, $nodes nodes}" ok "$(sed -n \
            's/^\(loss\|grad_norm\) *max rel error \([^ ]*\).*/\1 \2/p' "$log.check" | tr '\n' ' ')"
    else
        row "$n GPUs, $name $mesh${nodes:+, $nodes nodes}" FAIL \
            "$(grep -m 3 FAIL "$log.check" | tr '\n' ' ')"
    fi
}
numbers_of() {
    sed -n 's/.*\("step":[0-9]*\).*\("loss":[^,]*\).*\("grad_norm":[^,]*\).*/\1 \2 \3/p' "$1"
}
same_bits() { # WHAT A B
    if [ -n "$(numbers_of "$2.jsonl")" ] && cmp -s "$2.safetensors" "$3.safetensors" &&
        [ "$(numbers_of "$2.jsonl")" = "$(numbers_of "$3.jsonl")" ]; then
        row "$1" ok "$(numbers_of "$2.jsonl" | tail -n 1)"
    else
        row "$1" FAIL "$(diff <(numbers_of "$2.jsonl") <(numbers_of "$3.jsonl") | head -n 4 |
            tr '\n' ' ')"
    fi
}

ranks_left() { pgrep -f "^$dir/$1/trainer" | tr '\n' ' '; }
# ended RANKS KILL|TERM: what a run does when that happens to its last rank
ended() {
    local n=$1 name=tiny.many.$1 log=$out/many.$1.$2 launcher status=none i rank
    rm -f "$log".{jsonl,safetensors}
    together 90 "$n" "$name" --metrics "$log.jsonl" --final "$log.safetensors" >"$log.log" 2>&1 &
    launcher=$!
    for i in $(seq 300); do
        [ -s "$log.jsonl" ] && [ "$(grep -c '"step"' "$log.jsonl")" -gt 2 ] && break
        kill -0 $launcher 2>/dev/null || break
        sleep 0.1
    done
    rank=$(ranks_left "$name")
    [ -n "$rank" ] && rank=${rank% } && kill "-$2" "${rank##* }"
    wait $launcher
    status=$?
    for i in $(seq 50); do [ -z "$(ranks_left "$name")" ] && break; sleep 0.1; done
    if [ -n "$(ranks_left "$name")" ]; then
        row "$n GPUs, $2" FAIL "ranks are left"
        # shellcheck disable=SC2046
        kill -KILL $(ranks_left "$name") 2>/dev/null
    elif [ -z "$rank" ] || [ $status -eq 124 ] || [ $status -eq 0 ] ||
        { [ "$2" = TERM ] && { [ $status -ne 75 ] || [ ! -s "$log.safetensors" ]; }; }; then
        row "$n GPUs, $2" FAIL "status $status: $(why "$log.log")"
    else row "$n GPUs, $2" ok "status $status: $(grep -m 1 -E '^(trainer:|stopped)|on signal' \
        "$log.log")"; fi
}

overlap() { # RANKS
    local n=$1 log=$out/dense.$1 said
    [ "$device" = cuda ] || { row "$n GPUs, overlap" skipped "the dense model wants GPUs"; return; }
    if together "$(at_most 100)" "$n" "dense.$n" --steps 6 --metrics "$log.jsonl" --trace \
        "$log.trace" >"$log.log" 2>&1 &&
        said=$(python3 "$dir/overlap.py" "$log.trace" "$dir/dense.$n.json" 2>&1); then
        row "$n GPUs, overlap" ok "$said; exposed $(median "$log.jsonl" exposed_comm_seconds) s"
    else row "$n GPUs, overlap" FAIL "$said $(why "$log.log")"; fi
}

# bandwidths RANKS NAME: of every collective of a plan, measured op by op, beside NCCL's model; on
# cpu, where there is no model, only measured
bandwidths() {
    local n=$1 name=$2 log=$out/$2.bandwidth said model=() line
    [ -s "$dir/$name.json" ] && model=("$dir/$name.json")
    if together "$(at_most 100)" "$n" "$name" --steps 4 --profile 3 --profile-out "$log.json" \
        >"$log.log" 2>&1 &&
        said=$(python3 "$dir/collectives.py" "$log.json" "${model[@]}" 2>&1); then
        while IFS='|' read -r line said; do
            row "$n GPUs, $line" ok "$said"
        done <<<"$said"
    else row "$n GPUs, bandwidth of $name" FAIL "$said $(why "$log.log")"; fi
}

step_many() { # RANKS
    local n=$1 name mesh nodes=
    if [ "$(gpus)" -lt "$n" ]; then row "$n GPUs" skipped "this machine has $(gpus)"; return; fi
    command -v mpirun >/dev/null || { row "$n GPUs" skipped "there is no mpirun"; return; }
    if [ -d "$dir/many.$n.llama.$n.1" ]; then
        for name in ${MANY_CASES:-llama qwen3moe}; do
            for mesh in "$n.1" "$((n / 2)).2"; do over_mesh "$n" $name "$mesh"; done
        done
        for mesh in "$n.1" "$((n / 2)).2"; do
            for file in jsonl safetensors; do
                cp "$out/many.$n.llama.$mesh.$file" "$out/many.$n.first.$mesh.$file" 2>/dev/null
            done
        done
        over_mesh "$n" llama "$n.1"
        same_bits "$n GPUs, the same bits" "$out/many.$n.first.$n.1" "$out/many.$n.llama.$n.1"
        nodes=2 mesh=$((n / 2)).2
        over_mesh "$n" llama $mesh
        same_bits "$n GPUs, 2 nodes, the same bits" "$out/many.$n.first.$mesh" \
            "$out/many.$n.llama.$mesh.2"
        nodes=
    else row "$n GPUs, oracle" skipped "there was no ../shared/oracle"; fi
    ended "$n" KILL
    ended "$n" TERM
    overlap "$n"
    if [ "$device" = cuda ]; then
        bandwidths "$n" "dense.$n"
        bandwidths "$n" "dense.halves.$n"
    else
        bandwidths "$n" "tiny.many.$n"
        bandwidths "$n" "tiny.halves.$n"
    fi
}
step_two() { step_many 2; }
step_eight() { step_many 8; }
