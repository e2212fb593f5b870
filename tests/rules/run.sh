#!/usr/bin/env bash
# Rules that trainers elsewhere were found to break: sizes that do not divide, keys that are
# ignored, rates that are off by one, counts that overflow, shards of a vocabulary that is not even.
# One case a rule, at the command line.
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

# wrong NAME "WORDS" [settings]: the plan is wrong (exit 1), every word is in the message, and
# nothing was made
wrong() {
    local name=$1 words=$2 word status
    shift 2
    rm -rf refused
    "$planc" build base.plan -o refused "$@" >"$name.log" 2>&1
    status=$?
    [ $status -eq 1 ] || { fail "$name" "exit $status: $(tail_of "$name.log")"; return; }
    [ ! -e refused/schedule.c ] || { fail "$name" "refused and yet made something"; return; }
    for word in $words; do
        grep -qF -- "$word" "$name.log" ||
            { fail "$name" "does not say $word: $(tail_of "$name.log" 6)"; return; }
    done
    ok "$name"
}
right() { # NAME [settings]
    local name=$1
    shift
    "$planc" check base.plan "$@" >"$name.log" 2>&1 && ok "$name" ||
        fail "$name" "$(tail_of "$name.log")"
}
# says NAME LINE "WORDS" SED: the same for a plan that sed made of base.plan; the culprit or its
# accomplice is shown at its line
says() {
    local name=$1 line=$2 words=$3 word status
    sed "$4" base.plan >"$name.plan"
    "$planc" build "$name.plan" -o refused >"$name.log" 2>&1
    status=$?
    [ $status -eq 1 ] || { fail "$name" "exit $status: $(tail_of "$name.log")"; return; }
    [ ! -e refused ] || { fail "$name" "refused and yet made something"; rm -rf refused; return; }
    for word in $words "$name.plan:$line:"; do
        grep -qF -- "$word" "$name.log" ||
            { fail "$name" "does not say $word: $(tail_of "$name.log" 6)"; return; }
    done
    ok "$name"
}
# Sizes divide or are refused with both numbers, and the line that holds them.
says hidden_100_of_8_heads 5 "100 8" 's/hidden = 64/hidden = 100/'
says hidden_66_of_8_heads 5 "66 8" 's/hidden = 64/hidden = 66/'
says heads_8_of_3 5 "8 3" 's/kv_heads = 2/kv_heads = 3/'
says heads_8_of_16 5 "8 16" 's/kv_heads = 2/kv_heads = 16/'
says heads_0 5 "heads 0" 's/ heads = 8/ heads = 0/'
says kv_heads_0 5 "kv_heads 0" 's/kv_heads = 2/kv_heads = 0/'
wrong odd_head_for_rope "5 even" --set model.head_dim=5
says fraction_of_ffn 5 "ffn 96.5" 's/ffn = 96/ffn = 96.5/'
wrong heads_do_not_divide_hidden "100 8" --set model.hidden=100
right kv_heads_2
right kv_heads_1 --set model.kv_heads=1
right kv_heads_8 --set model.kv_heads=8
says sequence_0 8 "sequence 0" 's/sequence = 32/sequence = 0/'
says sequence_negative 8 "sequence -8" 's/sequence = 32/sequence = -8/'
says sequence_fraction 8 "sequence 12.5" 's/sequence = 32/sequence = 12.5/'
right sequence_odd --set batch.sequence=1023
right sequence_1 --set batch.sequence=1
says global_10_of_4 8 "10 4" 's/fsdp = 2/fsdp = 4/; s/local = 2/local = 1;  global = 10/'
says global_12_of_8 8 "12 8" 's/fsdp = 2/fsdp = 4/; s/local = 2/local = 2;  global = 12/'
says global_less_than_held 8 "4 8" 's/fsdp = 2/fsdp = 4/; s/local = 2/local = 2;  global = 4/'
says global_with_replicas 8 "12 8" \
    's/fsdp = 2/fsdp = 2;  dp = 2/; s/local = 2/local = 2;  global = 12/'
says local_0 8 "local 0" 's/local = 2/local = 0/'
says local_fraction 8 "local 1.5" 's/local = 2/local = 3 \/ 2/'
right global_16_of_8 --set mesh.fsdp=4 --set batch.local=2 --set batch.global=16
"$planc" check base.plan --set mesh.fsdp=4 --set batch.global=16 --json >json.log 2>&1 &&
    python3 -c '
import json, sys
o = json.load(open("json.log"))
for k in ("plan", "verdict", "terms"):
    o[k]
t = o["terms"]
for k in ("devices", "parameters", "limit_bytes", "peak_bytes", "arena_bytes", "outside_bytes"):
    assert isinstance(o[k], int), k
assert all(isinstance(x["bytes"], int) for x in t)
assert sum(x["bytes"] for x in t if x["inside"]) == o["arena_bytes"], "terms do not add up"
' 2>json.err && ok check_json || fail check_json "$(tail_of json.err 1) $(tail_of json.log 1)"

# Nothing is ignored: not a misspelling, not a key in the wrong block, not the second of two,
# wherever it stands.
says misspelt_key 10 "learning_rat optimizer" \
    's/constant { steps = 4 }/constant { steps = 4 }\n    optimizer adamw { learning_rat = 1 }/'
says misplaced_key 8 "warmup batch schedule" 's/local = 2/local = 2;  warmup = 10/'
says misspelt_hyper 5 "hiden llama" 's/hidden = 64/hiden = 64/'
says unknown_section 10 "optimiser optimizer" \
    's/constant { steps = 4 }/constant { steps = 4 }\n    optimiser adamw { lr = 1 }/'
says key_given_twice 8 "local twice" 's/local = 2/local = 2;  local = 4/'
says key_given_twice_alike 8 "local twice" 's/local = 2/local = 2;  local = 2/'
says key_given_by_path_too 11 "local twice" \
    's/format = uint16 }/format = uint16 }\n    batch.local = 4/'
wrong misspelt_setting "learning_rat" --set optimizer.learning_rat=1
wrong misplaced_setting "warmup" --set batch.warmup=10
wrong unknown_section_set "optimiser" --set optimiser.lr=1
# A pattern of many stars is tried in the time of its length, not of all its readings.
stars=$(printf '*%.0s' $(seq 40))
sed "s/schedule constant/optimizer adamw { weights \"${stars}x\" { weight_decay = 0 } }\n    &/" \
    base.plan >stars.plan
timeout 60 "$planc" check stars.plan >stars.log 2>&1
status=$?
[ $status -eq 1 ] && grep -q 'no weight of llama is stored under a name like' stars.log &&
    ok pattern_of_stars || fail pattern_of_stars "exit $status: $(tail_of stars.log)"
sed 's/clusters\/cpu/clusters\/b200/; s/cluster cpu/cluster b200/' base.plan >b200.plan
"$planc" check b200.plan --set mesh.fsdp=3 >mesh.log 2>&1
[ $? -eq 1 ] && grep -q 3 mesh.log && grep -q 8 mesh.log && ok impossible_mesh ||
    fail impossible_mesh "$(tail_of mesh.log)"
wrong eps_below_fp32 "optimizer.eps FP32" --set optimizer.eps=1e-60
wrong clip_below_fp32 "optimizer.clip FP32" --set optimizer.clip=1e-60
wrong vocabulary_beyond_32_bits "3,000,000,000 2,147,483,647" --set model.vocab=3000000000
wrong open_alternatives "mesh.fsdp" --set "mesh.fsdp=1 | 2"
for command in report export nonsense; do
    "$planc" "$command" base.plan >command.log 2>&1
    status=$?
    [ $status -eq 3 ] && [ "$(grep -c '^planc:' command.log)" -eq 1 ] &&
        grep -q "$command" command.log && ok "no_$command" ||
        fail "no_$command" "exit $status: $(tail_of command.log)"
done
"$planc" check base.plan --no-such-option >option.log 2>&1
[ $? -eq 3 ] && grep -q -- --no-such-option option.log && ok unknown_option ||
    fail unknown_option "$(tail_of option.log)"
"$planc" check nowhere.plan >nowhere.log 2>&1
[ $? -eq 4 ] && grep -q nowhere.plan nowhere.log && ok no_such_file ||
    fail no_such_file "$(tail_of nowhere.log)"

# Counts do not overflow: 2^31 elements in one tensor, 8 GiB of it in FP32; an 8-billion model.
sed \
    's/hidden = 64;  heads = 8;  kv_heads = 2;  ffn = 96;  vocab = 256/hidden = 16384;  heads = 128;  kv_heads = 8;  ffn = 256;  vocab = 131072/; s/layers = 2/layers = 1/; s/fsdp = 2/fsdp = 1/' \
    base.plan >huge.plan
"$planc" check huge.plan --json >huge.json 2>huge.err
status=$?
if { [ $status -eq 0 ] || [ $status -eq 2 ]; } && python3 -c '
import json
o = json.load(open("huge.json"))
assert o["parameters"] > 2 * 2147483648, o["parameters"]
assert o["peak_bytes"] > 16 * o["parameters"], o["peak_bytes"]
assert all(t["bytes"] >= 0 for t in o["terms"])
assert o["verdict"] == "exceeds", o["verdict"]
' 2>>huge.err; then ok counts_past_2_31
else fail counts_past_2_31 "exit $status: $(tail_of huge.err)"; fi
"$planc" check "$top/plans/llama-8b.plan" --json >8b.json 2>8b.err
grep -q '"parameters": *8030261248' 8b.json && ok llama_8b_parameters ||
    fail llama_8b_parameters "$(tail_of 8b.err) $(tail_of 8b.json 1)"
sed \
    's/layers = 2;  hidden = 64;  heads = 8;  kv_heads = 2;  ffn = 96;  vocab = 256/layers = 80;  hidden = 8192;  heads = 64;  kv_heads = 8;  ffn = 28672;  vocab = 128256/; s/fsdp = 2/fsdp = 64/; s/sequence = 32/sequence = 8192/' \
    base.plan >70b.plan
"$planc" check 70b.plan --json >70b.json 2>70b.err
grep -q '"parameters": *70553706496' 70b.json && ! grep -qE '"bytes": *-' 70b.json &&
    ok llama_70b_parameters || fail llama_70b_parameters "$(tail_of 70b.err) $(tail_of 70b.json 1)"
# One matrix of 2^31 elements is 4.000 GiB gathered in BF16, and its master, gradient and moments
# are 8.000 GiB each.
sed \
    's/clusters\/cpu/clusters\/b200/; s/cluster cpu/cluster b200/; s/fsdp = 1/fsdp = 8/; s/ffn = 256/ffn = 16384/; s/prefetch = 1/prefetch = 0/' \
    huge.plan >2_31.plan
"$planc" dump 2_31.plan --after memory >2_31.ir 2>2_31.err
python3 -c '
import re
ir = open("2_31.ir").read()
sizes = {m[1]: int(m[2]) for m in re.finditer(r"^buffer (\S+) .*? bytes=(\d+)", ir, re.M)}
table = 2**31
gathered = sizes["gather.prologue.forward.prologue"]
assert gathered == 2 * table, gathered
units = [int(m) for m in re.findall(r"^unit .* elements=(\d+)", ir, re.M)]
assert table in units, units
for state in ("master", "gradient", "moment1", "moment2"):
    assert sizes["state." + state] == 4 * sum(units) // 8, (state, sizes["state." + state], units)
' 2>>2_31.err && ok bytes_past_2_31 || fail bytes_past_2_31 "$(tail_of 2_31.err)"

# Units: what is labelled GiB is 2^30 bytes, in the table as in the JSON, down to the last digit
# shown.
"$planc" check "$top/plans/llama-8b.plan" >8b.txt 2>>8b.err
python3 -c '
import json, re
unit = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
text, o = open("8b.txt").read(), json.load(open("8b.json"))
o = o[0] if isinstance(o, list) else o
assert not re.search(r"[0-9] *[KMGT]B\b", text), "a decimal unit"
size = r"([0-9.]+) (B|[KMGT]iB)"
terms = re.finditer(r"^ +" + size + r" +(\S+(?: \S+)?) ", text, re.M)
shown = {m[3].strip(): (m[1], m[2]) for m in terms}
sums = re.finditer(r"^  (peak|arena|outside|limit) +" + size, text, re.M)
shown |= {m[1] + "_bytes": (m[2], m[3]) for m in sums}
told = {t["name"]: t["bytes"] for t in o["terms"]}
told |= {k: o[k] for k in ("peak_bytes", "arena_bytes", "outside_bytes", "limit_bytes")}
n = 0
for name, size in told.items():
    if name not in shown: continue
    number, u = shown[name]
    near = abs(float(number) * unit[u] - size) <= 0.00051 * unit[u]
    assert near, f"{name}: {number} {u} is not {size}"
    assert float(number) < 1024 or u == "TiB", f"{name}: {number} {u}"
    n += 1
assert n >= 15, f"only {n} of {len(told)} found"
' 2>>8b.err && ok units || fail units "$(tail_of 8b.err)"
cat >units.c <<'C'
#include "base/base.h"
#include <stdio.h>
int main(void)
{
    static const long long bytes[] = {
        0, 1, 1023, 1024, 1536, 1048576, 1073741823, 1073741824, 1000000000, 8589934592,
        4294967296, 191503392768, 1099511627776};
    for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++)
        printf("%lld=%s;", bytes[i], text_bytes(bytes[i]));
    return 0;
}
C
flags=$([ "$BUILD" = build-sanitize ] && echo "-fsanitize=address,undefined")
# shellcheck disable=SC2086
${CC:-cc} -std=c17 $flags -I"$top/compiler" units.c "$top/$BUILD/compiler/base/base.o" -o units \
    2>units.log && got=$(./units)
want='0=0 B;1=1 B;1023=1023 B;1024=1.000 KiB;1536=1.500 KiB;1048576=1.000 MiB;1073741823=1.000 GiB;1073741824=1.000 GiB;1000000000=953.674 MiB;8589934592=8.000 GiB;4294967296=4.000 GiB;191503392768=178.351 GiB;1099511627776=1.000 TiB;'
[ "$got" = "$want" ] && ok text_of_bytes || fail text_of_bytes "$got $(tail_of units.log)"

# 16 bytes per parameter, divided by the shards, every element type named; nothing that stays is a
# second copy of a weight.
"$planc" dump "$top/plans/llama-8b.plan" --after memory --set mesh.fsdp=8 --set mesh.dp=64 \
    >state.ir 2>state.err
"$planc" check "$top/plans/llama-8b.plan" --json --set mesh.fsdp=8 --set mesh.dp=64 >state.json \
    2>>state.err
"$planc" check "$top/plans/llama-8b.plan" --set mesh.fsdp=8 --set mesh.dp=64 >state.txt 2>>state.err
python3 -c '
import json, re
o = json.load(open("state.json"))
o = o[0] if isinstance(o, list) else o
types = {"compute": "bf16", "master": "fp32", "gradients": "fp32", "moments": "fp32"}
assert o["precision"] == types, o["precision"]
assert o["state_bytes_per_parameter"] == 16
each = 4 * o["parameters"] / 8
for name in ("master", "gradient", "moment1", "moment2"):
    (t,) = [t for t in o["terms"] if t["name"] == name]
    assert each <= t["bytes"] <= each * 1.0001 + 65536, (name, t["bytes"], each)
    assert "fp32" in t["formula"], t["formula"]
ir = open("state.ir").read()
rows = [(m[1], m[2], int(m[3]) * int(m[4]), int(m[5]), int(m[6])) for m in
        re.finditer(r"^buffer (\S+) kind=\"([^\"]*)\" .*? bytes=(\d+) entries=(\d+)"
                    r" .*? live_from=(\d+) live_to=(\d+)", ir, re.M)]
last = max(r[4] for r in rows)
state = ("master", "gradient", "moment1", "moment2", "alias")
stays = [r for r in rows if r[3] == 0 and r[4] == last and r[1] not in state]
assert sum(r[2] for r in stays) < o["parameters"] / 8, stays    # half of a BF16 shard
' 2>>state.err && grep -q \
    'fp32 weights, fp32 gradients, two fp32 moments: 16 B per parameter / 8 shards; computes in bf16' \
    state.txt && ok state_of_16_bytes ||
    fail state_of_16_bytes "$(tail_of state.err) $(sed -n 3p state.txt)"
for key in master gradients moments; do
    wrong "precision_$key" "precision.$key bf16 fp32" --set "precision.$key=bf16"
done

# Work of a token: products as they are, scores by query heads, the input table looked up and not
# multiplied.
flops() { # NAME [settings]: builds for trace, which is quick, and reads the table of numbers
    local name=$1
    shift
    "$planc" build base.plan -o "flops_$name" --device trace "$@" >"flops_$name.log" 2>&1 &&
        grep -o 'flops_per_token = [0-9]*' "flops_$name/program.c" | grep -o '[0-9]*$'
}
worth() { # NAME WANT [settings]
    local got
    got=$(flops "$1" "${@:3}")
    [ "$got" = "$2" ] && ok "flops_$1" ||
        fail "flops_$1" "$got, not $2: $(tail_of "flops_$1.log" 1)"
}
# 6 (layers (2 h h + 2 h kv d + 3 h f) + h v) + 12 layers heads d S, h = 64, d = 8, f = 96, v = 256,
# S = 32
flops_of() {
    local layer=$((2 * 64 * 64 + 2 * 64 * $1 * 8 + 3 * 64 * 96))
    echo $((6 * (2 * layer + 64 * 256) + 12 * 2 * 8 * 8 * $2))
}
worth kv_8 "$(flops_of 8 32)" --set model.kv_heads=8
worth kv_2 "$(flops_of 2 32)"
worth kv_1 "$(flops_of 1 32)" --set model.kv_heads=1
worth tied "$(flops_of 2 32)" --set model.tied=on
worth sequence_64 "$(flops_of 2 64)" --set batch.sequence=64
worth chunked "$(flops_of 2 32)" --set batch.loss_chunks=4
worth full "$(flops_of 2 32)" --set activation_checkpoint.mode=full
worth accumulated "$(flops_of 2 32)" --set mesh.fsdp=4 --set mesh.dp=2 --set batch.global=64
# Peaks: dense, of the plan's element type, from data sheets.
peak() { # CLUSTER PFLOP/s, where there is such a file
    [ -e "$top/plans/clusters/$1.plan" ] || return 0
    grep -qE "bf16 = $2\b" "$top/plans/clusters/$1.plan" && ok "peak_$1" ||
        fail "peak_$1" "$(grep -h flops "$top/plans/clusters/$1.plan")"
}
peak b200 '2.25PFLOP/s'
peak h100 '989TFLOP/s'
peak h200 '989TFLOP/s'
peak a100 '312TFLOP/s'

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
    timeout 60 mpirun -n "$ranks" --oversubscribe --bind-to none "$dir/trainer" --metrics \
        "$name.jsonl" "$@" >"$name.log" 2>&1 </dev/null
}
# A vocabulary of 257 on 2, 3, 4 and 8 shards is the same training, and stays 257 long.
python3 "$here/../faults/make.py" tokens uneven.bin 40001 257
uneven=(--set model.vocab=257 --set data.train=uneven.bin --set batch.local=24 --set \
    schedule.steps=20)
for fsdp in 1 2 3 4 8; do
    "$planc" build base.plan -o "uneven_$fsdp" "${uneven[@]}" --set "mesh.fsdp=$fsdp" --set \
        "batch.local=$((24 / fsdp))" >"uneven_$fsdp.build" 2>&1 &&
        go "uneven_$fsdp" "uneven_$fsdp" "$fsdp" --final "uneven_$fsdp.safetensors" ||
        fail "vocabulary_257_on_$fsdp" \
        "$(tail_of "uneven_$fsdp.build" 1) $(tail_of "uneven_$fsdp.log")"
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
' uneven_1.jsonl "uneven_$fsdp.jsonl" "uneven_$fsdp.safetensors" 2>uneven.err &&
    ok "vocabulary_257_on_$fsdp" || fail "vocabulary_257_on_$fsdp" "$(tail_of uneven.err 1)"
done

# Which samples are trained on. A step of one sample has a hash that says which one it was: an epoch
# is every sample once, in another order each time when it is shuffled; ranks share one order, and
# data that is shorter than the run begins again.
python3 "$here/../faults/make.py" tokens short.bin $((24 * 32 + 1)) 256
short=(--set data.train=short.bin --set model.layers=1 --set schedule.steps=48)
built=yes
build single "${short[@]}" --set mesh.fsdp=1 --set batch.local=1 &&
    build shuffled "${short[@]}" --set mesh.fsdp=1 --set batch.local=1 --set data.order=shuffled &&
    build dealt "${short[@]}" --set mesh.fsdp=4 --set batch.local=1 --set data.order=shuffled &&
    build gathered "${short[@]}" --set mesh.fsdp=1 --set batch.local=1 --set batch.global=4 \
        --set data.order=shuffled &&
    build half "${short[@]}" --set mesh.fsdp=2 --set batch.local=8 --set schedule.steps=30 || built=
[ -n "$built" ] && go single single 1 && go shuffled shuffled 1 && go dealt dealt 4 --steps 12 &&
    go gathered gathered 1 --steps 12 && go half half 2
python3 - 2>order.err <<'PY' && ok every_sample_once_an_epoch || fail every_sample_once_an_epoch \
    "$(tail_of order.err 1)"
import json
hashes = {n: [json.loads(l)["tokens_hash"] for l in open(n + ".jsonl")]
          for n in ("single", "shuffled", "dealt", "gathered", "half")}
plain, mixed = hashes["single"], hashes["shuffled"]
assert len(set(plain[:24])) == 24 and plain[:24] == plain[24:], "sequential epochs differ"
assert sorted(mixed[:24]) == sorted(mixed[24:]) == sorted(plain[:24]), "a sample twice, or never"
assert mixed[:24] != mixed[24:] and mixed[:24] != plain[:24], "every epoch has one order"
assert hashes["dealt"] == hashes["gathered"], "ranks have orders of their own"
half = hashes["half"]
assert len(half) == 30 and len(set(half[:3])) == 3 and half[3:] == half[:-3], "no rule of wrapping"
PY

# A checkpoint that is kept for ever must have been made, whatever the clock says of the others.
build forever --set checkpoint.directory=forever.saved --set checkpoint.every=1h \
    --set checkpoint.keep=1 --set checkpoint.keep_every=2 --set schedule.steps=5 &&
    rm -rf forever.saved && go forever forever 2
got=$(cd forever.saved && ls -d step-* | tr '\n' ' ')
[ "$got" = 'step-00000002 step-00000004 step-00000005 ' ] && ok kept_for_ever ||
    fail kept_for_ever "there are: $got $(tail_of forever.log)"

# The same trainer twice: the same bits; --steps stops without touching the rate.
build again --set schedule.steps=6 && go again_a again 2 --final again_a.safetensors &&
    go again_b again 2 --final again_b.safetensors
variants_equal same_run_twice again_a again_b
build horizon --set mesh.fsdp=1 --set schedule=cosine --set schedule.steps=10 &&
    go horizon horizon 1 --steps 3 && go horizon_all horizon 1
if [ "$(wc -l <horizon.jsonl)" = 3 ] &&
    numbers same <(head -n 3 horizon_all.jsonl) horizon.jsonl >horizon.err; then
    ok steps_option
else
    fail steps_option "$(tail_of horizon.err 1) $(tail_of horizon.log 1)"
fi

# planc run builds and launches by itself.
"$planc" run base.plan -- --steps 2 --metrics run.jsonl >run.log 2>&1
status=$?
[ $status -eq 0 ] && [ "$(wc -l <run.jsonl)" = 2 ] && ok planc_run ||
    fail planc_run "exit $status: $(tail_of run.log)"
"$planc" run base.plan -n 3 -- --steps 1 >run3.log 2>&1
[ $? -ne 0 ] && ok planc_run_wrong_ranks || fail planc_run_wrong_ranks "exit 0"
