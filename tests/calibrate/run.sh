#!/usr/bin/env bash
# planc calibrate: rates that a run's file determines come back exactly, others stay; the file that
# is written is a cluster; bad files are named.
. "$(cd "$(dirname "$0")" && pwd)/../lib/common.sh"
plans=$top/plans

# What kernels take on the assumed cluster, as a run would have measured it on one whose products
# are 1.5 times as fast.
cat >made.py <<'PY'
import json, sys
value, factor = float(sys.argv[1]), float(sys.argv[2])
sides, kernels = [16, 128, 1024], []
for m in sides:
    for n in sides:
        for k in sides:
            rate = value + m / 100 + n / 50 + k / 25
            flops = 2.0 * m * n * k
            kernels.append({"name": f"p{m}_{n}_{k}", "calls": 1, "class": "gemm",
                            "seconds": flops / (1e9 * rate * factor),
                            "engine": "onednn", "type": "fp32", "m": m, "n": n, "k": k,
                            "flops": flops, "bytes": 1.0, "ops": []})
print(json.dumps({"planc_profile": 1, "device": "cpu", "ranks_a_host": 1, "kernels": kernels,
                  "collectives": []}))
PY
python3 made.py 5 1.5 >run.json
"$planc" calibrate --from run.json -o fitted.plan >fit.log 2>&1 && ok fits ||
    fail fits "$(tail_of fit.log)"
cat >same.py <<'PY'
import re, sys
text = open("fitted.plan").read()
row = re.search(r"grid gemm onednn fp32 \{(.*?)\}", text, re.S).group(1)
values = [float(x) for x in re.search(r"gflops = \[(.*?)\]", row, re.S).group(1).split(",")]
at = (16, 128, 1024)
wanted = [1.5 * (5 + m / 100 + n / 50 + k / 25) for m in at for n in at for k in at]
worst = max(abs(a / b - 1) for a, b in zip(values, wanted))
if len(values) != len(wanted) or worst > 1e-6:
    sys.exit(f"{len(values)} values, off by {worst:.3g}")
PY
python3 same.py >same.log 2>&1 && ok known_rates_come_back ||
    fail known_rates_come_back "$(tail_of same.log)"
grep -q 'grid gemm onednn bf16' fitted.plan && grep -q 'round figures' fitted.plan &&
    ok others_stay ||
    fail others_stay "rows that no kernel determines are gone"
"$planc" simulate "$plans/demo.plan" --cluster fitted.plan >simulate.log 2>&1 &&
    ok file_is_a_cluster ||
    fail file_is_a_cluster "$(tail_of simulate.log)"
"$planc" calibrate fitted.plan --from run.json -o again.plan >again.log 2>&1 &&
    mv again.plan fitted.plan &&
    python3 same.py >again.diff 2>&1 && ok base_is_a_cluster ||
    fail base_is_a_cluster "$(tail_of again.log) $(tail_of again.diff)"

# what changed, for every row, as JSON; --metrics gives the jitter and changes nothing else
python3 -c '
import json
for step in range(21):
    seconds = 5.0 if step == 0 else 0.02 if step % 2 else 0.03
    print(json.dumps({"step": step, "step_seconds": seconds}))' >run.jsonl
"$planc" calibrate --from run.json --from run.jsonl -o both.plan --json >both.json 2>both.err
"$planc" calibrate --from run.jsonl -o jitter.plan --json >jitter.json 2>jitter.err
cat >changes.py <<'PY'
import json
both, jitter = json.load(open("both.json")), json.load(open("jitter.json"))
rows = {c["row"]: c for c in both["changes"]}
assert set(rows) == {"jitter", "grid gemm onednn fp32"}, rows
assert rows["grid gemm onednn fp32"]["points"] == 27
low, high = rows["grid gemm onednn fp32"]["ratio_interval"]
assert low < rows["grid gemm onednn fp32"]["ratio"] < high
assert both["file"] == "both.plan" and both["source"] and both["date"]
assert both["rows_measured"] == 1 < both["rows"] and jitter["rows_measured"] == 0
change = jitter["changes"]
assert len(change) == 1 and change[0]["row"] == "jitter" and change[0]["before"] == 0, change
assert abs(change[0]["after"] - 0.2) < 1e-9, change
PY
python3 changes.py >changes.log 2>&1 && ok changes || fail changes \
    "$(tail_of changes.log) $(tail_of both.err) $(tail_of jitter.err)"
grep -qE 'jitter = 0\.(2;|1999)' jitter.plan && ok jitter_is_written || fail jitter_is_written \
    "$(grep jitter jitter.plan)"
# A cluster that is written again predicts the same: every key comes through. Its jitter is new.
for cluster in cpu a100 h100 b200; do
    plan=$plans/30b-a3b-16.plan blocks=(--set run.nccl_blocks=8)
    [ $cluster != cpu ] || plan=$plans/demo.plan blocks=()
    "$planc" calibrate "$plans/clusters/$cluster.plan" --from run.jsonl -o written.plan >written.log
    for file in "$plans/clusters/$cluster.plan" written.plan; do
        "$planc" simulate "$plan" --cluster "$file" "${blocks[@]}" --set cluster.jitter=0 --json
    done >written.json 2>>written.log
    python3 -c '
import json
text, first = open("written.json").read(), json.JSONDecoder()
a, end = first.raw_decode(text)
b = json.loads(text[end:])
for rung in (a["rungs"][0], b["rungs"][0]): # what is free of a host changes
    rung["limit_bytes"] = rung["memory_fraction"] = 0
other = [k for k in a["rungs"][0] if a["rungs"][0][k] != b["rungs"][0][k]]
assert a["rungs"][0]["step_picoseconds"] > 0 and not other, other' 2>written.why &&
        ok "written_$cluster" ||
        fail "written_$cluster" "$(tail_of written.log) $(tail_of written.why)"
done
head -2 run.jsonl >short.jsonl

# Three runs, one of which was disturbed: updates by their bytes; copies of one rank, 20 us of which
# are no copy (half of handing over and being told); what a step takes outside of its schedule. With
# replicas a gather waits for others.
cat >bytes.py <<'PY'
import json, sys
host, disturbed = float(sys.argv[1]), float(sys.argv[2])
kernels = [{"name": f"u{n}", "calls": 1, "class": "update", "engine": "planc", "type": "fp32",
            "seconds": n * 0.15e-9 / 8 * (disturbed if n == 5 << 20 else 1), "bytes": n, "ops": []}
           for n in (m << 20 for m in (1, 2, 3, 5, 8, 13, 21))]
copies = [{"kind": "reduce", "micro": micro, "part_bytes": m << 20, "calls": 1,
           "seconds": 20e-6 + times * (m << 20) / 40e9}
          for m in (1, 2, 4, 8) for micro, times in (("only", 2), ("last", 3))]
copies += [{"kind": "gather", "micro": "any", "part_bytes": m << 20, "calls": 1,
            "seconds": 20e-6 + 3 * (m << 20) / 40e9} for m in (1, 2, 4)]
copies += [{"kind": "sum over ranks", "micro": "any", "part_bytes": 0, "calls": 1, "seconds": 1}]
print(json.dumps({"planc_profile": 1, "device": "cpu", "ranks_a_host": 1, "fsdp": 1,
                  "dp": int(sys.argv[3]), "compute": "bf16", "kernels": kernels,
                  "mean_step_seconds": 1 + host, "schedule_seconds": 1, "collectives": copies}))
PY
python3 bytes.py 50e-6 3 1 >one.json
python3 bytes.py 60e-6 1 1 >two.json
python3 bytes.py 900e-6 1 1 >three.json
python3 bytes.py 50e-6 1 2 >replicas.json
told='grid gather mpi { bytes = [1024];  microseconds = [40] }'
sed -e 's/some_core/told_core/' -e "s/grid gather mpi { ranks = 2;/$told\n    &/" \
    "$plans/rates/cpu.plan" >told.rates.plan
sed -e 's/some_core/told_core/' -e 's#"../rates/cpu.plan"#"told.rates.plan"#' \
    "$plans/clusters/cpu.plan" >told.plan
"$planc" calibrate told.plan --from one.json --from two.json --from three.json -o bytes.plan \
    >bytes.log 2>&1
"$planc" calibrate told.plan --from replicas.json -o replicas.plan >replicas.log 2>&1
cat >by_bytes.py <<'PY'
import re
def row(file, name):
    text = re.search(r"grid %s \{(.*?)\}" % name, open(file).read(), re.S).group(1)
    return [[float(x) for x in re.search(key + r" = \[(.*?)\]", text, re.S).group(1).split(",")]
            for key in ("bytes", "nanoseconds|gigabytes".split("|")[name.startswith("copy")])]
size, update = row("bytes.plan", "update planc fp32")
assert len(size) == 7 and all(abs(x / 0.15 - 1) < 1e-6 for x in update), update
size, copy = row("bytes.plan", "copy planc")
assert all(abs(x / 40 - 1) < 1e-6 for x in copy) and size[0] == 2 << 20, (size, copy)
assert row("replicas.plan", "copy planc") == [[16384, 524288, 67108864], [60, 30, 10]]
step = float(re.search(r"step = ([0-9.]+)us", open("bytes.plan").read()).group(1))
assert abs(step - 60) < 0.01, step
PY
python3 by_bytes.py >by_bytes.log 2>&1 && ok by_bytes || fail by_bytes \
    "$(tail_of by_bytes.log) $(tail_of bytes.log) $(tail_of replicas.log)"

# refused NAME STATUS PATTERN ARGUMENT…
refused() {
    local said status
    said=$("$planc" calibrate "${@:4}" 2>&1)
    status=$?
    [ $status = "$2" ] && grep -qE -- "$3" <<<"$said" && ok "$1" ||
        fail "$1" "status $status: $said"
}
echo '{"planc_profile": 2}' >other.json
echo 'no json' >words.json
sed 's/"cpu"/"cuda"/' run.json >device.json
refused no_output 3 "-o FILE" --from run.json
refused absent 4 "absent.json" --from absent.json -o x.plan
refused no_base 4 "absent.plan" absent.plan -o x.plan
refused output_nowhere 4 "nowhere/x.plan" -o nowhere/x.plan
refused not_json 4 "words.json.*line 1" --from words.json -o x.plan
refused other_version 4 "other.json.*planc_profile" --from other.json -o x.plan
refused few_steps 4 "short.jsonl.*fewer than four steps" --from short.jsonl -o x.plan
refused other_device 4 "device.json.*cuda" --from device.json -o x.plan
refused cuda_is_not_measured 3 "measures cpu only" "$plans/clusters/h200.plan" -o x.plan
[ ! -e x.plan ] && ok nothing_is_written || fail nothing_is_written "x.plan is there"

# What measures compiles as it is, and its collectives are those of a trainer: ranks of one host
# read each other's memory.
measure() { # NAME FSDP DP: NAME.txt are its collectives on such a mesh
    printf '#include "program.h"\nconst struct program program = {%s, .timeout_seconds = 60};\n' \
        ".fsdp = $2, .dp = $3" >mesh.c
    # shellcheck disable=SC2086
    mpicc -std=c17 -O0 -march=native ${SANITIZE_FLAGS:-} -I "$top/runtime" -I \
        "$top/runtime/shared" -I "$top/templates" -o measure "$top/templates/cpu/measure.c" \
        mesh.c "$top/$BUILD/lib/libtrainer_cpu.a" -ljansson -ldnnl -lgomp -lm -pthread \
        2>measure.log || { fail "measure_compiles.$1" "$(tail_of measure.log)"; return 1; }
    OMP_NUM_THREADS=1 timeout 120 mpirun -n $(($2 * $3)) --oversubscribe --bind-to none \
        ./measure collectives 1e-9 >"$1.txt" 2>"$1.err"
}
measure shards 2 1 && [ "$(grep -c '^gather mpi any' shards.txt)" = 8 ] &&
    grep -q '^sum mpi any - any 2 512' shards.txt && ok collectives.shards ||
    fail collectives.shards "$(tail_of shards.err)"
measure replicas 1 2 && [ "$(grep -c '^all_reduce mpi any' replicas.txt)" = 8 ] &&
    ok collectives.replicas || fail collectives.replicas "$(tail_of replicas.err)"
measure alone 1 1 && grep -q '^gather mpi any' alone.txt && grep -q '^host issue' alone.txt &&
    ok collectives.alone || fail collectives.alone "$(tail_of alone.err)"

# All of it, which takes 80 seconds: nothing that a plan of one rank or of two needs stays assumed.
whole() {
    "$planc" calibrate -o whole.plan >whole.log 2>&1 || return 1
    for ranks in 1 2; do
        "$planc" simulate "$plans/demo.plan" --cluster whole.plan --set mesh.fsdp=$ranks --json
    done >whole.json 2>>whole.log
    python3 -c '
import json
text, first = open("whole.json").read(), json.JSONDecoder()
a, end = first.raw_decode(text)
for rung in a["rungs"] + json.loads(text[end:])["rungs"]:
    assert rung["assumed_fraction"] == 0, [r for r in rung["rates"] if r["basis"] != "measured"]
    assert 0 < rung["other"]["host"] < rung["step_seconds"] / 2, rung["other"]' 2>>whole.log
}
if [ -n "${LONG:-}" ]; then
    whole && ok whole || fail whole "$(tail_of whole.log)"
fi
