#!/usr/bin/env bash
# What only several nodes with GPUs can settle, with one table at the end: where the ranks are put,
# links between them, a reference case over all of them, and two runs with the same bits.
#
#   tests/gpu/cluster.sh --prepare DIR --nodes N --per-node G
#       build the trainer for N nodes of G GPUs: shards within a node, replicas over nodes. DIR must
#       be a folder that all nodes see under this name
#   tests/gpu/cluster.sh --run DIR --launcher srun|mpirun [--hosts A,B]
#       inside an allocation of N nodes; mpirun takes the hosts from the batch system or --hosts
#
# The trainer is linked with the MPI of the machine where it is prepared. SRUN_MPI: what srun's
# --mpi is to be, where its default does not start MPI. PLANC_DEVICE=cpu: to try this script
# without GPUs.
# Exit status: 0 when nothing failed.
set -u
here=$(cd "$(dirname "$0")" && pwd)
top=$here/../..
device=${PLANC_DEVICE:-cuda} arch=${ARCH:-sm_90a,sm_100a}
oracle=$top/../shared/oracle
usage() { sed -n '2,/^set -u/{/^set -u/d;s/^# \{0,1\}//;p}' "$0"; exit 3; }
action= dir= nodes= each= launcher= hosts=
while [ $# -gt 1 ]; do
    case $1 in
    --prepare | --run) action=${1#--} dir=$2 ;;
    --nodes) nodes=$2 ;;
    --per-node) each=$2 ;;
    --launcher) launcher=$2 ;;
    --hosts) hosts=$2 ;;
    *) usage ;;
    esac
    shift 2
done
[ $# -eq 0 ] && [ -n "$action" ] || usage
mkdir -p "$dir" && dir=$(cd "$dir" && pwd) || exit 4

prepare() {
    local planc=$top/${BUILD:-build}/planc words=() ranks=$((nodes * each)) options=()
    [ "$ranks" -gt 0 ] || usage
    [ $((8 % ranks)) -eq 0 ] ||
        { echo "the reference case has 8 samples a step: N x G must divide 8" >&2; exit 3; }
    [ -e "$oracle/llama_tiny/expected.json" ] ||
        { echo "there is no ../shared/oracle/llama_tiny" >&2; exit 4; }
    rm -rf "$dir/case" && cp -r "$oracle/llama_tiny" "$dir/case" && chmod -R u+w "$dir/case" &&
        cp "$oracle/check.py" "$here/placed.py" "$here/cluster.sh" "$dir/" || exit 4
    mapfile -t words < <(python3 "$top/tests/lib/numbers.py" recipe "$dir/case")
    [ "$device" = cuda ] && options=(--arch "$arch")
    "$planc" import "$dir/case" -o "$dir/case.plan" &&
        "$planc" build "$dir/case.plan" -o "$dir/trainer" --device "$device" "${options[@]}" \
        "${words[@]}" --set precision.compute=fp32 --set batch.local=$((8 / ranks)) --set \
        "mesh.fsdp=$each" --set "mesh.dp=$nodes" && echo "$nodes $each" >"$dir/shape"
}

# all OPTIONS…: the trainer on every rank
all() {
    local ranks=$((nodes * each)) gpus=()
    case $launcher in
    srun)
        [ "$device" = cuda ] && gpus=(--gpus-per-node "$each")
        srun --nodes "$nodes" --ntasks "$ranks" --ntasks-per-node "$each" --distribution block \
            --kill-on-bad-exit=1 --time 5 ${SRUN_MPI:+--mpi "$SRUN_MPI"} "${gpus[@]}" \
            "$dir/trainer/trainer" "$@"
        ;;
    mpirun)
        timeout -k 5 300 mpirun -n "$ranks" --map-by "ppr:$each:node" --bind-to none \
            ${hosts:+--host "${hosts//,/:$each,}:$each"} -x LD_LIBRARY_PATH \
            "$dir/trainer/trainer" "$@"
        ;;
    esac </dev/null
}

failed=0
row() { # WHAT RESULT DETAIL
    [ "$2" = FAIL ] && failed=$((failed + 1))
    printf '| %s | %s | %s |\n' "$1" "$2" "$(printf %s "$3" | tr '|\n' '/ ')" |
        tee -a "$out/table.md"
}
why() { grep -h -m 1 '^trainer:' "$1" 2>/dev/null || tail -n 1 "$1" 2>/dev/null; }

run() {
    local turn said
    read -r nodes each <"$dir/shape" || { echo "$dir was not prepared" >&2; exit 4; }
    case $launcher in srun | mpirun) ;; *) usage ;; esac
    command -v "$launcher" >/dev/null || { echo "there is no $launcher" >&2; exit 4; }
    out=$dir/out.$launcher
    rm -rf "$out" && mkdir -p "$out" || exit 4
    printf '| %s, %s nodes of %s | result | detail |\n| --- | --- | --- |\n' "$launcher" "$nodes" \
        "$each" | tee "$out/table.md"
    if ! all --preflight "$out/preflight.json" >"$out/preflight.log" 2>&1; then
        row preflight FAIL "$(why "$out/preflight.log")"
    else
        row preflight ok "planc preflight $dir/case.plan --from $out/preflight.json shows it"
        said=$(python3 "$dir/placed.py" "$out/preflight.json" "$nodes" "$each" 2>&1) &&
            row placement ok "$said" || row placement FAIL "$said"
    fi
    for turn in first second; do
        if ! all --metrics "$out/$turn.jsonl" --final "$out/$turn.safetensors" \
            >"$out/$turn.log" 2>&1; then
            row "reference case, $turn" FAIL "$(why "$out/$turn.log")"
        elif ! python3 "$dir/check.py" "$dir/case/expected.json" "$out/$turn.jsonl" --strict \
            --final "$out/$turn.safetensors" >"$out/$turn.check" 2>&1; then
            row "reference case, $turn" FAIL "$(grep -m 3 FAIL "$out/$turn.check" | tr '\n' ' ')"
        else
            row "reference case, $turn" ok "$(sed -n \
                's/^\(loss\|grad_norm\) *max rel error \([^ ]*\).*/\1 \2/p' "$out/$turn.check" |
                tr '\n' ' ')"
        fi
    done
    if [ -s "$out/first.safetensors" ] &&
        cmp -s "$out/first.safetensors" "$out/second.safetensors"; then
        row "the same bits" ok "final weights of two runs"
    else row "the same bits" FAIL "final weights of two runs differ, or are missing"; fi
    [ $failed -eq 0 ]
}
"$action"
