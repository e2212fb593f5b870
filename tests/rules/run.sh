#!/usr/bin/env bash
# Rules that trainers elsewhere were found to break: sizes that do not divide, keys that are ignored, rates that are off
# by one, counts that overflow, shards of a vocabulary that is not even. One case a rule, at the command line.
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../lib/common.sh"
. "$top/tests/lib/training.sh"
cat >base.plan <<'PLAN'
use "models/llama.plan"
use "clusters/cpu.plan"

plan "rules" {
    model llama { layers = 2;  hidden = 64;  heads = 8;  kv_heads = 2;  ffn = 96;  vocab = 256 }
    cluster cpu { }
    mesh { fsdp = 2 }
    batch { sequence = 32;  local = 2 }
    schedule constant { steps = 4 }
    data { train = "tokens.bin";  format = uint16 }
}
PLAN
python3 "$here/../faults/make.py" tokens tokens.bin 40001 256

# wrong NAME "WORDS" [settings]: the plan is wrong (exit 1), every word is in the message, and nothing was made
wrong() {
    local name=$1 words=$2 word status
    shift 2
    rm -rf refused
    "$planc" build base.plan -o refused "$@" >"$name.log" 2>&1
    status=$?
    [ $status -eq 1 ] || { fail "$name" "exit $status: $(tail_of "$name.log")"; return; }
    [ ! -e refused/schedule.c ] || { fail "$name" "refused and yet made something"; return; }
    for word in $words; do
        grep -qF -- "$word" "$name.log" || { fail "$name" "does not say $word: $(tail_of "$name.log" 6)"; return; }
    done
    ok "$name"
}
right() { # NAME [settings]
    local name=$1
    shift
    "$planc" check base.plan "$@" >"$name.log" 2>&1 && ok "$name" || fail "$name" "$(tail_of "$name.log")"
}
# Sizes divide or are refused with both numbers.
wrong heads_do_not_divide_hidden "100 8" --set model.hidden=100
wrong kv_heads_do_not_divide_heads "8 3" --set model.kv_heads=3
right kv_heads_2
right kv_heads_1 --set model.kv_heads=1
wrong sequence_0 sequence --set batch.sequence=0
wrong sequence_negative sequence --set batch.sequence=-8
right sequence_odd --set batch.sequence=1023
wrong global_10_of_4 "10 4" --set mesh.fsdp=4 --set batch.local=1 --set batch.global=10
wrong global_12_of_8 "12 8" --set mesh.fsdp=4 --set batch.local=2 --set batch.global=12
right global_16_of_8 --set mesh.fsdp=4 --set batch.local=2 --set batch.global=16
"$planc" check base.plan --set mesh.fsdp=4 --set batch.global=16 --json >json.log 2>&1 && python3 -c '
import json, sys
o = json.load(open("json.log"))
for k in ("plan", "verdict", "devices", "parameters", "limit_bytes", "peak_bytes", "arena_bytes", "outside_bytes", "terms"):
    o[k]
t = o["terms"]
assert all(isinstance(o[k], int) for k in ("devices", "parameters", "limit_bytes", "peak_bytes", "arena_bytes", "outside_bytes"))
assert all(isinstance(x["bytes"], int) for x in t) and sum(x["bytes"] for x in t if x["inside"]) == o["arena_bytes"], "terms do not add up"
' 2>json.err && ok check_json || fail check_json "$(tail_of json.err 1) $(tail_of json.log 1)"

# Nothing is ignored.
wrong misspelt_key "learning_rat" --set optimizer.learning_rat=1
wrong misplaced_key "warmup" --set batch.warmup=10
wrong unknown_section "optimiser" --set optimiser.lr=1
sed 's/local = 2/local = 2;  local = 4/' base.plan >twice.plan
"$planc" check twice.plan >twice.log 2>&1
[ $? -eq 1 ] && grep -q local twice.log && ok key_given_twice || fail key_given_twice "$(tail_of twice.log)"
sed 's/clusters\/cpu/clusters\/b200/; s/cluster cpu/cluster b200/' base.plan >b200.plan
"$planc" check b200.plan --set mesh.fsdp=3 >mesh.log 2>&1
[ $? -eq 1 ] && grep -q 3 mesh.log && grep -q 8 mesh.log && ok impossible_mesh || fail impossible_mesh "$(tail_of mesh.log)"
wrong open_alternatives "mesh.fsdp" --set "mesh.fsdp=1 | 2"
wrong bf16_not_yet "bf16" --set precision.compute=bf16
for command in simulate tune report export calibrate data nonsense; do
    "$planc" "$command" base.plan >command.log 2>&1
    status=$?
    [ $status -eq 3 ] && [ "$(grep -c '^planc:' command.log)" -eq 1 ] && grep -q "$command" command.log && ok "no_$command" || fail "no_$command" "exit $status: $(tail_of command.log)"
done
"$planc" check base.plan --no-such-option >option.log 2>&1
[ $? -eq 3 ] && grep -q -- --no-such-option option.log && ok unknown_option || fail unknown_option "$(tail_of option.log)"
"$planc" check nowhere.plan >nowhere.log 2>&1
[ $? -eq 4 ] && grep -q nowhere.plan nowhere.log && ok no_such_file || fail no_such_file "$(tail_of nowhere.log)"

# Counts do not overflow: 2^31 elements in one tensor, 8 GiB of it in FP32; an 8-billion model.
sed 's/hidden = 64;  heads = 8;  kv_heads = 2;  ffn = 96;  vocab = 256/hidden = 16384;  heads = 128;  kv_heads = 8;  ffn = 256;  vocab = 131072/; s/layers = 2/layers = 1/; s/fsdp = 2/fsdp = 1/' base.plan >huge.plan
"$planc" check huge.plan --json >huge.json 2>huge.err
status=$?
if { [ $status -eq 0 ] || [ $status -eq 2 ]; } && python3 -c '
import json
o = json.load(open("huge.json"))
assert o["parameters"] > 2 * 2147483648, o["parameters"]
assert o["peak_bytes"] > 16 * o["parameters"], o["peak_bytes"]
assert all(t["bytes"] >= 0 for t in o["terms"])
assert o["verdict"] == "exceeds", o["verdict"]
' 2>>huge.err; then ok counts_past_2_31; else fail counts_past_2_31 "exit $status: $(tail_of huge.err)"; fi
"$planc" check "$top/plans/llama-8b.plan" --json >8b.json 2>8b.err
grep -q '"parameters": *8030261248' 8b.json && ok llama_8b_parameters || fail llama_8b_parameters "$(tail_of 8b.err) $(tail_of 8b.json 1)"

# ── what needs a trainer ─────────────────────────────────────────────────────
build() { # DIR [settings]
    local dir=$1
    shift
    rm -rf "$dir"
    "$planc" build base.plan -o "$dir" --device cpu "$@" >"$dir.build" 2>&1
}
go() { # NAME DIR RANKS [options]
    local name=$1 dir=$2 ranks=$3
    shift 3
    timeout 60 mpirun -n "$ranks" --oversubscribe --bind-to none "$dir/trainer" --metrics "$name.jsonl" "$@" >"$name.log" 2>&1 </dev/null
}
# Rates: (s + 1) / W of the peak in warm-up; the peak at W - 1 and W; the floor at the last step; nothing divides by zero.
rates() { # NAME WARMUP STEPS FLOOR KIND
    build "rate_$1" --set mesh.fsdp=1 --set "schedule=$5" --set "schedule.warmup=$2" --set "schedule.steps=$3" $([ "$5" = cosine ] && echo --set "schedule.floor=$4") --set optimizer.lr=8e-4 &&
        go "rate_$1" "rate_$1" 1 && python3 -c '
import json, math, sys
name, w, n, floor, kind = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]), sys.argv[5]
got = [json.loads(l)["lr"] for l in open(f"rate_{name}.jsonl")]
def want(s):
    if s < w: return 8e-4 * (s + 1) / w
    if kind == "constant" or n - 1 == w: return 8e-4
    return 8e-4 * (floor + (1 - floor) * (1 + math.cos(math.pi * (s - w) / (n - 1 - w))) / 2)
assert len(got) == n, f"{len(got)} steps"
for s, x in enumerate(got): assert abs(x - want(s)) <= 1e-6 * want(s) + 1e-300, f"step {s}: {x} not {want(s)}"
' "$@" 2>"rate_$1.err" && ok "rate_$1" || fail "rate_$1" "$(tail_of "rate_$1.build" 1) $(tail_of "rate_$1.log" 1) $(tail_of "rate_$1.err" 1)"
}
rates warmup_5 5 8 0.1 cosine
rates warmup_0 0 4 0 cosine
rates decay_of_length_0 3 4 0.1 cosine
rates constant_with_warmup 2 4 0 constant

# A vocabulary of 257 on 2, 3, 4 and 8 shards is the same training, and stays 257 long.
python3 "$here/../faults/make.py" tokens uneven.bin 40001 257
uneven=(--set model.vocab=257 --set data.train=uneven.bin --set batch.local=24 --set schedule.steps=20)
for fsdp in 1 2 3 4 8; do
    "$planc" build base.plan -o "uneven_$fsdp" "${uneven[@]}" --set "mesh.fsdp=$fsdp" --set "batch.local=$((24 / fsdp))" >"uneven_$fsdp.build" 2>&1 &&
        go "uneven_$fsdp" "uneven_$fsdp" "$fsdp" --final "uneven_$fsdp.safetensors" || fail "vocabulary_257_on_$fsdp" "$(tail_of "uneven_$fsdp.build" 1) $(tail_of "uneven_$fsdp.log")"
    [ $fsdp -eq 1 ] && continue
    [ -e "uneven_$fsdp.safetensors" ] || continue
    python3 -c '
import json, sys
a, b = ([json.loads(l) for l in open(p)] for p in sys.argv[1:3])
assert len(a) == len(b) == 20, f"{len(a)} and {len(b)} steps"
for s, (x, y) in enumerate(zip(a, b)):
    for k, limit in (("loss", 1e-5 if s else 1e-6), ("grad_norm", 3e-4 if s else 1e-6)):
        assert abs(x[k] - y[k]) <= limit * abs(x[k]), f"step {s}: {k} {x[k]} and {y[k]}"
import struct
raw = open(sys.argv[3], "rb").read()
h = json.loads(raw[8:8 + struct.unpack("<Q", raw[:8])[0]])
assert h["model.embed_tokens.weight"]["shape"] == [257, 64], h["model.embed_tokens.weight"]
' uneven_1.jsonl "uneven_$fsdp.jsonl" "uneven_$fsdp.safetensors" 2>uneven.err && ok "vocabulary_257_on_$fsdp" || fail "vocabulary_257_on_$fsdp" "$(tail_of uneven.err 1)"
done

# The same trainer twice: the same bits; initial weights do not depend on the mesh; --steps stops without touching the rate.
build again --set schedule.steps=6 && go again_a again 2 --final again_a.safetensors && go again_b again 2 --final again_b.safetensors
variants_equal same_run_twice again_a again_b
build seeded_1 --set mesh.fsdp=1 --set batch.local=4 --set schedule.steps=6 && go seeded_1 seeded_1 1 --steps 0 --final seeded_1.safetensors && go seeded_2 again 2 --steps 0 --final seeded_2.safetensors
cmp -s seeded_1.safetensors seeded_2.safetensors && ok initial_weights_by_seed || fail initial_weights_by_seed "differ between meshes: $(tail_of seeded_1.build 1) $(tail_of seeded_1.log 1)"
build horizon --set mesh.fsdp=1 --set schedule=cosine --set schedule.steps=10 && go horizon horizon 1 --steps 3 && go horizon_all horizon 1
if [ "$(wc -l <horizon.jsonl)" = 3 ] && numbers same <(head -n 3 horizon_all.jsonl) horizon.jsonl >horizon.err; then ok steps_option; else fail steps_option "$(tail_of horizon.err 1) $(tail_of horizon.log 1)"; fi

# planc run builds and launches by itself.
"$planc" run base.plan -- --steps 2 --metrics run.jsonl >run.log 2>&1
status=$?
[ $status -eq 0 ] && [ "$(wc -l <run.jsonl)" = 2 ] && ok planc_run || fail planc_run "exit $status: $(tail_of run.log)"
"$planc" run base.plan -n 3 -- --steps 1 >run3.log 2>&1
[ $? -ne 0 ] && ok planc_run_wrong_ranks || fail planc_run_wrong_ranks "exit 0"
