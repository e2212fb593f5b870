#!/usr/bin/env bash
# data.documents = separate. The oracle is documents alone: samples that hold one document each,
# trained with packed documents, give the loss, gradients and weights of samples that hold four. The
# same documents end at the same places however a file says so. Sources, validation and resumed runs
# keep them apart too. (Documents of all lengths against float64: suite oracle_own; on cuda: suite
# cuda_on_cpu.)
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../lib/common.sh"
. "$top/tests/lib/training.sh"
python3 "$here/make.py" "$scratch" || { fail make "make.py"; exit 0; }
mkdir -p models
sed 's/attention(q, k, v/&, window = i % 2 == 0 ? 7 : 0/' "$top/plans/models/llama.plan" \
    >models/windowed.plan
sed -i 's/^architecture llama/architecture windowed/' models/windowed.plan
plan() { # NAME MODEL: NAME.plan
    cat >"$1.plan" <<PLAN
use "models/$2.plan"
use "clusters/cpu.plan"
plan "$1" {
    model $2 { layers = 2;  hidden = 24;  heads = 2;  ffn = 40;  vocab = 304$3 }
    cluster cpu { }
    mesh { fsdp = 1 }
    batch { sequence = 48;  local = 1;  global = 4 }
    optimizer adamw { lr = 0.01 }
    schedule constant { steps = 4 }
    data { train = "mixed" }
}
PLAN
}
plan llama llama
plan windowed windowed
plan gpt2 gpt2 ";  context = 48"
# go NAME PLAN RANKS [planc options]: builds and runs; NAME.jsonl, .safetensors
go() {
    local name=$1 plan=$2 ranks=$3
    shift 3
    rm -rf "$name" "$name".{jsonl,safetensors}
    "$planc" build "$plan.plan" -o "$name" --device cpu "$@" >"$name.build" 2>&1 ||
        { tail_of "$name.build"; return 1; }
    timeout 120 mpirun -n "$ranks" --oversubscribe --bind-to none "$name/trainer" --metrics \
        "$name.jsonl" --final "$name.safetensors" --probe "$name.probe" >"$name.log" 2>&1 \
        </dev/null || { tail_of "$name.log"; return 1; }
}
near() { # NAME A B: losses, norms, gradients and weights of two runs
    python3 - "$2" "$3" 2>"$1.why" <<'PYTHON' && ok "$1" || fail "$1" "$(tail_of "$1.why" 1)"
import json, math, struct, sys
a, b = sys.argv[1:]
def steps(p): return [json.loads(l) for l in open(p + ".jsonl")]
def weights(p):
    raw = open(p + ".safetensors", "rb").read(); n = struct.unpack("<Q", raw[:8])[0]
    head = json.loads(raw[8:8 + n]); head.pop("__metadata__", None)
    return {k: struct.unpack(f"<{(e['data_offsets'][1] - e['data_offsets'][0]) // 4}f",
                             raw[8 + n + e["data_offsets"][0]:8 + n + e["data_offsets"][1]])
            for k, e in head.items()}
for x, y in zip(steps(a), steps(b), strict=True):
    for key in "loss", "grad_norm":
        assert abs(x[key] - y[key]) <= 2e-6 * abs(x[key]), (x["step"], key, x[key], y[key])
x, y = (json.load(open(p + ".probe"))["grad_norms_step0"] for p in (a, b))
for name in x:
    assert abs(x[name] - y[name]) <= 1e-5 * max(x[name], 1e-3), (name, x[name], y[name])
x, y = weights(a), weights(b)
for name in x:
    far = max(abs(p - q) for p, q in zip(x[name], y[name], strict=True))
    assert far <= 1e-4, (name, far)
PYTHON
}

# ── documents alone ──────────────────────────────────────────────────────────
for family in gpt2 windowed; do
    common=(--set data.train=alone.bin --set data.ignore=0)
    if ! why=$(go $family.alone $family 1 "${common[@]}" --set batch.sequence=12 --set \
        batch.local=4 --set batch.global=16); then
        fail $family.alone "$why"
        continue
    fi
    for mesh in 1.1.none 2.1.full 2.2.none; do
        IFS=. read -r fsdp dp mode <<<"$mesh"
        why=$(go $family.$mesh $family $((fsdp * dp)) "${common[@]}" --set mesh.fsdp="$fsdp" --set \
            mesh.dp="$dp" --set activation_checkpoint.mode="$mode" --set data.documents=separate \
            --set data.end_token=5) && near $family.$mesh $family.alone $family.$mesh ||
            fail $family.$mesh "$why"
    done
    # and it makes a difference
    why=$(go $family.packed $family 1 "${common[@]}") &&
        ! cmp -s <(grep -o '"loss":[0-9.]*' $family.packed.jsonl) \
        <(grep -o '"loss":[0-9.]*' $family.1.1.none.jsonl) && ok $family.differs ||
        fail $family.differs "packed documents train alike $why"
done

# ── where documents end, however that is said ────────────────────────────────
ends() { # NAME OF [planc options]: the bits of run OF
    local name=$1 of=$2 why
    shift 2
    why=$(go "$name" llama 1 --set data.documents=separate "$@") ||
        { fail "ends.$name" "$why"; return; }
    [ -z "$of" ] && return
    why=$(numbers same "$of.jsonl" "$name.jsonl") && cmp -s "$of".safetensors "$name".safetensors &&
        ok "ends.$name" || fail "ends.$name" "not the run of $of: $why"
}
ends megatron ""
ends end_token megatron --set data.train=mixed_end.bin --set data.end_token=299
ends both megatron --set data.end_token=299
ends files megatron --set data.train='each/*.bin' --set data.end_token=303
ends json_lines "" --set data.train=lines.jsonl
ends text json_lines --set data.train=lines.txt --set data.end_token=10
refused() { # NAME PATTERN [planc options]
    local name=$1 pattern=$2 why
    shift 2
    why=$(go "$name" llama 2 --set mesh.fsdp=2 "$@") &&
        { fail "refused.$name" "trained"; return; }
    cat "$name.build" "$name.log" 2>/dev/null | grep -qE "$pattern" && ok "refused.$name" ||
        fail "refused.$name" "$why"
}
refused no_marks \
    'mixed_end.bin: data.documents = separate, and nothing says .* data.end_token = ID' \
    --set data.train=mixed_end.bin --set data.documents=separate
refused packed 'data.end_token has no effect: documents are packed' --set data.end_token=299
refused too_large 'data.end_token = 304 ends nothing: the vocabulary has 304 ids' \
    --set data.documents=separate --set data.end_token=304

# ── sources, validation, resumed runs; the FLOPs of what is there ────────────
sed -e 's/data { .*/data { documents = separate;  end_token = 299;  order = shuffled\n\
    source "a" { files = "mixed";  weight = 3 }\n\
    source "b" { files = "mixed_end.bin";  weight = 1 }\n\
    validation = "mixed_end.bin" }\n    run { validate_every = 2;  validate_steps = 2 }\n\
    checkpoint { directory = "saved";  every = 2 }/' llama.plan >sources.plan
rm -rf saved saved2
if why=$(go sources sources 1) && why=$(go sources2 sources 2 --set mesh.fsdp=2 --set \
    checkpoint.directory=saved2); then
    near sources sources sources2
    python3 -c '
import json
a, b = ([json.loads(l)["validation_loss"] for l in open(f) if "validation_loss" in l]
        for f in ("sources.jsonl", "sources2.jsonl"))
assert len(a) == 2 and all(abs(x - y) < 1e-5 for x, y in zip(a, b)), (a, b)' 2>validation.why &&
        ok validation || fail validation "$(tail_of validation.why 1)"
    cp sources.jsonl whole.jsonl
    rm -rf saved && launch 1 sources --steps 2 >cut.log 2>&1 &&
        launch 1 sources --metrics cut.jsonl --final cut.safetensors >cut.log 2>&1 &&
        grep -q '^resumed: step 2 ' cut.log && cmp -s cut.safetensors sources.safetensors &&
        ok resumed || fail resumed "$(tail_of cut.log)"
else
    fail sources "$why"
fi
# 2 layers x 12 x hidden FLOPs a pair of tokens of one document; packed counts whole samples
python3 - <<'PYTHON' && ok flops || fail flops "$(tail_of flops.why 1)"
import re, struct
ids = struct.unpack("<%dH" % (len(open("mixed_end.bin", "rb").read()) // 2),
                    open("mixed_end.bin", "rb").read())
def said(name): # MFLOP per token, of all steps but the first
    return float(re.search(r"\(([0-9.e+]+) MFLOP per token\)", open(name + ".log").read())[1]) * 1e6
pairs = 0
for sample in range(4, 16):
    length = 0
    for i in range(48 * sample, 48 * sample + 48):
        length += 1
        if ids[i] == 299 or i % 48 == 47: pairs, length = pairs + length * length, 0
packed = float(re.search(r"flops_per_token = ([0-9]+)", open("end_token/program.c").read())[1])
want = packed - 2 * 12 * 24 * 48 + 2 * 12 * 24 * pairs / (12 * 48)
got = said("end_token")
if abs(got / want - 1) > 1e-3:
    open("flops.why", "w").write("%g MFLOP a token, not %g" % (got, want))
    raise SystemExit(1)
PYTHON
"$planc" dump llama.plan --after memory --set data.documents=separate >documents.ir 2>dump.log &&
    grep -q '^input starts:i32\[48\]' documents.ir &&
    "$planc" dump --from documents.ir | cmp -s - documents.ir && ok text ||
    fail text "$(tail_of dump.log)"
