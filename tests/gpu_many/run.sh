#!/usr/bin/env bash
# What tests/gpu asks of several GPUs and several nodes, tried where there are none: ranks of the
# cpu in the place of GPUs, and launchers that only say that they have several nodes.
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../lib/common.sh"
gpu=$top/tests/gpu
export PLANC_DEVICE=cpu PLANC_GPU_PLACE=$scratch/place GPUS=2
rm -rf "${scratch:?}"/*

# ── how much of the transfers compute hides ──────────────────────────────────
# a trace of one rank: compute from 0 to 10 and from 12 to 16, a transfer from BEGIN to END
traced() {
    python3 - "$1" "$2" <<'PY'
import json, sys
def lane(tid, name):
    return {"ph": "M", "name": "thread_name", "pid": 0, "tid": tid, "args": {"name": name}}
def event(tid, a, b):
    where = {"ph": "X", "name": "e", "pid": 0, "tid": tid, "args": {"step": 2}}
    return {**where, "ts": a, "dur": b - a}
events = [lane(0, "compute"), lane(1, "gather"), event(0, 0, 10), event(0, 12, 16)]
events.append(event(1, *map(float, sys.argv[1:])))
json.dump({"traceEvents": events}, open("trace.json", "w"))
PY
    python3 "$gpu/overlap.py" trace.json said.json 2>&1
}
echo '{"rungs": [{"exposed_comm_seconds": 0.1, "collectives": [{"count": 2, "seconds": 0.5}]}]}' \
    >said.json
said=$(traced 3 13) && grep -q '^80.0 % of 0.01 ms .* predicted 90.0 %' <<<"$said" &&
    ok overlap || fail overlap "$said"
said=$(traced 8 14) && fail overlap_too_little "$said" || ok overlap_too_little

# ── several GPUs of a machine ────────────────────────────────────────────────
if [ ! -e "$oracle/llama_tiny/expected.json" ]; then
    skip many "there is no ../shared/oracle/llama_tiny"
    skip cluster "there is no ../shared/oracle/llama_tiny"
    exit 0
fi
export MANY_CASES=llama
if bash "$gpu/run.sh" --prepare many --only two >many.prepare 2>&1; then
    bash many/run.sh --run many --out many.out --only two,eight >many.log 2>&1
    status=$?
    [ $status -eq 0 ] && grep -q ' in all; 0 failed |$' many.out/table.md &&
        grep -q '^| 8 GPUs | skipped | this machine has 2 |$' many.out/table.md &&
        [ "$(grep '^| 2 GPUs, .*| ok |' many.out/table.md |
            grep -vcE ', (gather|reduce|sum)')" = 8 ] && ok many ||
        fail many "exit $status: $(grep '^|' many.log | tail_of /dev/stdin 12)"
else
    fail many.prepare "$(tail_of many.prepare)"
fi

# ── bandwidth of collectives ─────────────────────────────────────────────────
for row in 'gather, layers' 'reduce, layers' 'sum over replicas, layers'; do
    words="[0-9.]+ [kM]?B of 2 ranks in [0-9.]+ ms: [0-9.e+-]+ GB/s"
    grep -qE "^\| 2 GPUs, $row \| ok \| $words \|" many.out/table.md &&
        ok "bandwidth.${row// /_}" ||
        fail "bandwidth.${row// /_}" "$(grep '^| 2 GPUs, [grs]' many.out/table.md | head -n 3)"
done
# one of 100 MB a rank in 1 ms over 4 ranks moves 300 MB; the model says 0.6 ms
python3 - <<'PY'
import json
one = {"kind": "gather", "unit": "layers", "part_bytes": 100000000, "calls": 1, "seconds": 1e-3}
twice = {**one, "kind": "sum over replicas", "part_bytes": 40000000, "seconds": 2e-3}
json.dump({"fsdp": 4, "dp": 2, "collectives": [one, twice]}, open("profile.json", "w"))
json.dump({"rungs": [{"collectives": [
    {"name": "gather layers", "count": 2, "seconds": 12e-4},
    {"name": "sum layers over replicas", "count": 1, "seconds": 1e-3},
    {"name": "sum over world", "count": 1, "seconds": 1}]}]}, open("model.json", "w"))
PY
said=$(python3 "$gpu/collectives.py" profile.json model.json)
want='gather, layers|300 MB of 4 ranks in 1.000 ms: 300 GB/s; '
want+="NCCL's model 0.600 ms, 500 GB/s: 60 % of it"
want+=$'\nsum over replicas, layers|40 MB of 2 ranks in 2.000 ms: 20 GB/s; '
want+="NCCL's model 1.000 ms, 40 GB/s: 50 % of it"
[ "$said" = "$want" ] && ok bandwidth_arithmetic || fail bandwidth_arithmetic "$said"

# ── several nodes ────────────────────────────────────────────────────────────
# Launchers of two nodes: block by block, or (DEAL=round) rank by rank in turn.
real=$(command -v mpirun)
mkdir -p launchers
cat >launchers/srun <<LAUNCHER
#!/bin/bash
# what it is asked for, then the program
echo "\$(basename "\$0") \$*" >>"$scratch/asked"
while [ "\${1#/}" = "\$1" ]; do shift; done
deal=(0 0 1 1)
[ "\${DEAL:-}" = round ] && deal=(0 1 0 1)
for node in "\${deal[@]}"; do
    words+=(\${words:+:} -n 1 -x PLANC_HOST=node\$node "\$@")
done
exec timeout -k 5 60 "$real" --oversubscribe --bind-to none "\${words[@]}"
LAUNCHER
chmod +x launchers/srun && cp launchers/srun launchers/mpirun
if bash "$gpu/cluster.sh" --prepare nodes --nodes 2 --per-node 2 >nodes.prepare 2>&1; then
    for launcher in srun mpirun; do
        rm -f asked
        PATH=$scratch/launchers:$PATH bash nodes/cluster.sh --run nodes --launcher $launcher \
            --hosts a,b >cluster.$launcher.log 2>&1
        status=$?
        words='--nodes 2 --ntasks 4 --ntasks-per-node 2 --distribution block'
        [ $launcher = mpirun ] && words='-n 4 --map-by ppr:2:node --bind-to none --host a:2,b:2'
        [ $status -eq 0 ] && grep -q "^$launcher $words" asked &&
            grep -q '^| placement | ok | 2 neighbouring ranks on each of node0, node1; ' \
                nodes/out.$launcher/table.md &&
            [ "$(grep -c '| ok |' nodes/out.$launcher/table.md)" = 5 ] && ok cluster.$launcher ||
            fail cluster.$launcher "exit $status: $(tail_of cluster.$launcher.log 8)"
    done
    # ranks in turn, and a reference that is another: both are found
    python3 - nodes/case/expected.json <<'PY'
import json, sys
case = json.load(open(sys.argv[1]))
for kind in ("float64", "float32"):
    case[kind]["steps"][1]["loss"] += 0.01
json.dump(case, open(sys.argv[1], "w"))
PY
    DEAL=round PATH=$scratch/launchers:$PATH bash nodes/cluster.sh --run nodes --launcher srun \
        >round.log 2>&1
    [ $? -eq 1 ] && grep -q '^| placement | FAIL | ranks 0 to 1 lie on node0, node1 |' round.log &&
        grep -q '^| reference case, second | FAIL | .*loss' round.log &&
        ok cluster.dealt_in_turn || fail cluster.dealt_in_turn "$(tail_of round.log 8)"
else
    fail cluster.prepare "$(tail_of nodes.prepare)"
fi
