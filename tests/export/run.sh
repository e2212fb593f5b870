#!/usr/bin/env bash
# A run of every family is exported and imported again: the same model, the same bits, and training
# goes on from them. Where PyTorch and transformers are (`make deps-peers`), they load the folder,
# compute the same logits and train alike. And what cannot be exported is refused by name and leaves
# nothing.
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../lib/common.sh"
export LC_ALL=C
peers=${PLANC_PEERS:-$top/$BUILD/peers/bin/python}
check() { python3 "$here/check.py" "$@" 2>&1; }
holds() { # NAME CHECK…: a check as a verdict
    local name=$1 why
    shift
    if why=$(check "$@"); then ok "$name"; else fail "$name" "$why"; fi
}
go() { # LOG RANKS DIR [options]: one run, its output in LOG.log
    local log=$1 ranks=$2 dir=$3
    shift 3
    timeout -k 5 120 mpirun -n "$ranks" --oversubscribe --bind-to none "$scratch/$dir/trainer" \
        "$@" >"$log.log" 2>&1 </dev/null
}
plan() { # FAMILY "model keys" [NAME]
    local name=${3:-$1}
    cat >"$name.plan" <<PLAN
use "models/$1.plan"
use "clusters/cpu.plan"

plan "$1 to be exported" {
    model $1 { $2 }
    cluster cpu { }
    mesh { fsdp = 2 }
    batch { sequence = 16;  local = 2;  global = 4 }
    optimizer adamw { lr = 1e-2 }
    schedule constant { steps = 4 }
    data { train = "tokens.bin";  format = uint16 }
    checkpoint { every = 2;  directory = "$name.saved" }
}
PLAN
}
# The keys of the model alone, as `planc build` resolves them.
model_of() { grep -m 1 '"model":' "$1/plan.json"; }

# family FAMILY "model keys" [NAME]: trained, exported, imported, trained on
family() {
    local name=${3:-$1} worst
    rm -rf "$name" "$name".{saved,hf,bf16,again,imported.plan}
    plan "$1" "$2" "$name"
    "$planc" build "$name.plan" -o "$name" --device cpu >"$name.build" 2>&1 &&
        go "$name" 2 "$name" --final "$name.safetensors" ||
        { fail "$name" "$(tail_of "$name.build") $(tail_of "$name.log")"; return; }
    "$planc" export "$name.saved" -o "$name.hf" --dtype fp32 >"$name.export" 2>&1 &&
        "$planc" export "$name.saved/step-00000004" "$name.plan" -o "$name.bf16" --shard 20kB \
            >>"$name.export" 2>&1 ||
        { fail "$name.export" "$(tail_of "$name.export")"; return; }
    holds "$name.weights" weights "$name.hf" "$name.safetensors"
    holds "$name.bf16" weights "$name.bf16" "$name.safetensors" bf16
    holds "$name.shards" shards "$name.bf16" 20000
    "$planc" import "$name.hf" -o "$name.imported.plan" >"$name.import" 2>&1 &&
        ! grep -q warning "$name.import" &&
        "$planc" build "$name.imported.plan" -o "$name.again" --device cpu --set \
            "data.train=$scratch/tokens.bin" --set run.steps=4 --set optimizer.lr=0.01 \
            >"$name.import" 2>&1 ||
        { fail "$name.import" "$(tail_of "$name.import")"; return; }
    [ "$(model_of "$name")" = "$(model_of "$name.again")" ] && ok "$name.import" ||
        fail "$name.import" "$(model_of "$name") became $(model_of "$name.again")"
    rm -f "$name.jsonl"
    go "$name.again" 1 "$name.again" --probe "$name.probe" --metrics "$name.jsonl" ||
        { fail "$name.again" "$(tail_of "$name.again.log")"; return; }
    if [ ! -x "$peers" ]; then
        skip "$name.transformers" "no PyTorch and transformers in $BUILD/peers: make deps-peers"
    elif worst=$("$peers" "$here/check.py" peer "$name.hf" tokens.bin "$name.probe" \
        "$name.jsonl" 2>"$name.peer"); then ok "$name.transformers ($worst)"
    else fail "$name.transformers" "$(tail_of "$name.peer")"; fi
}
python3 "$here/../faults/make.py" tokens tokens.bin 801 257
small="layers = 2;  hidden = 24;  heads = 4;  vocab = 257"
family llama "$small;  kv_heads = 2;  ffn = 40;  rope_factor = 8;  rope_original = 8"
family llama "$small;  kv_heads = 2;  head_dim = 12;  ffn = 40;  rope_yarn = 4;  rope_fast = 3
    rope_original = 8;  rope_theta = 100" llama_yarn
family gpt2 "$small;  context = 16;  erf_gelu = on"
family qwen3 "$small;  kv_heads = 2;  head_dim = 10;  ffn = 37;  tied = on"
family qwen3_moe "layers = 4;  hidden = 24;  heads = 4;  vocab = 257;  kv_heads = 2;  experts = 5
    top_k = 2;  expert_width = 12;  dense_layers = [0..1, 3];  ffn = 20"
family glm4_moe "layers = 4;  hidden = 24;  heads = 4;  vocab = 257;  kv_heads = 2;  head_dim = 12
    experts = 5;  top_k = 2;  expert_width = 12;  first_dense = 2;  ffn = 20;  shared_experts = 2
    routed_scale = 2.5;  attention_bias = on;  qk_norm = on;  rotary = 0.7"
family glm4_moe "layers = 2;  hidden = 32;  heads = 4;  vocab = 257;  experts = 5;  top_k = 3
    expert_width = 12;  first_dense = 0;  normalize = off;  rope_yarn = 2;  rope_original = 12
    rope_theta = 50;  rope_fast = 2;  rope_magnitude = 1.5;  head_dim = 16" glm4_moe_plain
family qwen2 "$small;  kv_heads = 2;  ffn = 37;  tied = on"
family qwen2 "layers = 3;  hidden = 24;  heads = 4;  vocab = 257;  kv_heads = 2;  ffn = 37
    window = 5;  full_layers = 1" qwen2_window
family qwen3 "$small;  kv_heads = 2;  head_dim = 10;  ffn = 37;  window = 6" qwen3_window
family gpt_neox "$small;  ffn = 37;  rotary = 0.4"
family mistral "$small;  kv_heads = 2;  ffn = 37;  window = 5"
family phi3 "$small;  kv_heads = 2;  ffn = 37;  window = 6;  rotary = 0.7"
gemma="layers = 3;  hidden = 24;  heads = 4;  vocab = 257;  kv_heads = 2;  head_dim = 10;  ffn = 37
    query_width = 7;  window = 5"
family gemma2 "$gemma;  score_cap = 2;  logit_cap = 3"
family gemma3 "$gemma;  full_every = 3;  rope_theta = 500;  rope_linear = 4
    rope_local_theta = 100"
family olmo2 "$small;  kv_heads = 2;  ffn = 37"
family olmoe "$small;  kv_heads = 2;  experts = 5;  top_k = 2;  expert_width = 12"
family mixtral "$small;  kv_heads = 2;  experts = 5;  top_k = 2;  ffn = 12"

rm -rf final.hf full.hf
# ── other ways in ────────────────────────────────────────────────────────────
"$planc" export llama.safetensors llama.plan -o final.hf --dtype fp32 >final.log 2>&1 &&
    cmp -s final.hf/config.json llama.hf/config.json || fail final "$(tail_of final.log)"
holds final.weights weights final.hf llama.safetensors
# Keys that have no effect: a period that ends after the last layer, turns of a yarn of 1.
plan gemma3 "$gemma;  full_every = 6;  rope_theta = 500;  rope_linear = 4
    rope_local_theta = 100" short_of_a_period
plan llama "$small;  kv_heads = 2;  ffn = 40;  rope_factor = 8;  rope_original = 8
    rope_fast = 16;  rope_slow = 2;  rope_magnitude = 3" idle_yarn
for pair in "gemma3 short_of_a_period" "llama idle_yarn"; do
    read -r from name <<<"$pair"
    rm -rf "$name.hf"
    "$planc" export "$from.safetensors" "$name.plan" -o "$name.hf" >"$name.log" 2>&1 &&
        [ -s "$name.hf/config.json" ] && ok "$name" || fail "$name" "$(tail_of "$name.log")"
done
mkdir -p words && echo '{}' >words/tokenizer.json &&
    echo '{"max_position_embeddings": 99, "eos_token_id": [7, 8]}' >words/config.json
rm -rf with_words
"$planc" export llama.saved -o with_words --tokenizer words >words.log 2>&1 &&
    cmp -s words/tokenizer.json with_words/tokenizer.json &&
    grep -q '"max_position_embeddings": 99' with_words/config.json &&
    grep -q '"eos_token_id": \[7,8\]' with_words/config.json && ok tokenizer ||
    fail tokenizer "$(tail_of words.log)"
"$planc" checkpoint llama.saved >list.log 2>&1 && "$planc" checkpoint llama.saved --json |
    python3 -c '
import json, sys
c = json.load(sys.stdin)["checkpoints"]
have = [(x["step"], x["complete"], x["fsdp"], x["dp"]) for x in c]
assert have == [(4, True, 2, 1), (2, True, 2, 1)], c
' 2>list.why && grep -qE '^step-00000004 +4 +20[0-9T:Z-]+ .* 2x1 +llama to be exported' list.log &&
    ok list || fail list "$(tail_of list.why) $(tail_of list.log)"

# ── refused ──────────────────────────────────────────────────────────────────
# refused NAME STATUS PATTERN words of export…: that status, those words in one line, nothing left
refused() {
    local name=$1 want=$2 pattern=$3 status
    shift 3
    rm -rf refused.hf
    "$planc" export "$@" -o refused.hf >"$name.log" 2>&1
    status=$?
    if [ $status -ne "$want" ]; then fail "$name" "status $status: $(tail_of "$name.log")"
    elif ! grep -qE -- "$pattern" "$name.log"; then fail "$name" "$(tail_of "$name.log")"
    elif compgen -G 'refused.hf*' >/dev/null; then fail "$name" "it left $(echo refused.hf*)"
    else ok "$name"; fi
}
ruin() { rm -rf ruined && cp -r llama.saved ruined; }
ruin && rm ruined/step-00000004/manifest.json
refused incomplete 4 'step-00000004 is not complete: it has no manifest' ruined/step-00000004
"$planc" export ruined -o older.hf >older.log 2>&1 && grep -q 'step 2 of' older.log && ok older ||
    fail older "$(tail_of older.log)"
rm -rf older.hf
ruin && printf x | dd of=ruined/step-00000004/part-00001.safetensors bs=1 seek=30000 conv=notrunc \
    2>/dev/null
refused flipped 4 'part-00001.safetensors.* is damaged' ruined
ruin && truncate -s -1 ruined/step-00000004/part-00000.safetensors
refused truncated 4 'part-00000.safetensors has [0-9]+ bytes, the manifest says' ruined
ruin && rm ruined/step-00000004/part-00000.safetensors
refused missing 4 'part-00000.safetensors is missing' ruined
ruin && sed -i 's/"step": 4/"step": 5/' ruined/step-00000004/manifest.json
refused manifest 4 'does not hash' ruined
refused other_plan 1 'is of another plan: model' llama.saved gpt2.plan
refused no_plan 3 'does not say its plan' llama.safetensors
refused wrong_plan 4 '^planc: llama.safetensors: .*q_proj.weight. is stored as' \
    llama.safetensors qwen3.plan
refused dtype 3 'bf16 or fp32, not .fp16.' llama.saved --dtype fp16
refused shard 3 '^planc: --shard takes a number of bytes, .* not .many.$' llama.saved --shard many
refused set_without_plan 3 '--set' llama.saved --set model.layers=3
mkdir -p empty
refused empty 4 'no complete checkpoint' empty
refused absent 4 'No such file' nowhere
"$planc" export llama.saved -o llama.hf >exists.log 2>&1
[ $? -eq 4 ] && grep -q "'llama.hf' exists" exists.log && ok exists ||
    fail exists "$(tail_of exists.log)"
# a disk that is full: a limit on the size of files stands for it
(trap '' XFSZ; ulimit -f 8; "$planc" export llama.saved -o full.hf) >full.log 2>&1
[ $? -eq 4 ] && grep -q 'cannot write .*model.safetensors.: File too large' full.log &&
    ! compgen -G 'full.hf*' >/dev/null && ok full || fail full "$(tail_of full.log)"
# ── what a killed or stopped export leaves ──────────────────────────────────
# A folder that nobody fills any more goes; one that somebody fills, and what is none of ours, stay.
rm -rf left.hf* && mkdir left.hf.11.part left.hf.12.part left.hf.x.part && touch left.hf.11.part/a
locked left.hf.12.part
"$planc" export llama.saved -o left.hf >left.log 2>&1 || fail left "$(tail_of left.log)"
kill $holder && wait $holder 2>/dev/null
[ "$(echo left.hf*)" = "left.hf left.hf.12.part left.hf.x.part" ] && ok left ||
    fail left "$(echo left.hf*)"
# A file of 4 GB that are not on the disk, so that there is time to stop its export.
sed 's/vocab = 257/vocab = 20000000/' llama.plan >wide.plan
python3 - <<'P'
import json, struct
raw = open("llama.safetensors", "rb").read()
n = struct.unpack("<Q", raw[:8])[0]
header, at = json.loads(raw[8:8 + n]), 0
header.pop("__metadata__", None)
for t in header.values():
    t["shape"] = [20000000 if d == 257 else d for d in t["shape"]]
    size = 4
    for d in t["shape"]:
        size *= d
    t["data_offsets"] = [at, at + size]
    at += size
text = json.dumps(header).encode()
with open("wide.safetensors", "wb") as f:
    f.write(struct.pack("<Q", len(text)) + text)
    f.truncate(8 + len(text) + at)
P
rm -rf stopped.hf*
"$planc" export wide.safetensors wide.plan -o stopped.hf >stopped.log 2>&1 &
exporter=$!
is_exporting() { compgen -G 'stopped.hf.*.part/model*' >/dev/null; }
within 60 is_exporting
kill -TERM $exporter
wait $exporter
status=$?
if [ $status -eq 143 ] && grep -q 'stopped by SIGTERM' stopped.log &&
    ! compgen -G 'stopped.hf*' >/dev/null; then ok stopped
else fail stopped "status $status: $(tail_of stopped.log) $(echo stopped.hf*)"; fi
rm -rf wide.safetensors stopped.hf*

# the bias of routers keeps its name and its type, and comes back
plan qwen3_moe "layers = 2;  hidden = 16;  heads = 2;  vocab = 257;  experts = 4;  top_k = 2
    expert_width = 8;  balance_bias = on;  balance_rate = 0.01"
sed -i 's/qwen3_moe.saved/bias.saved/' qwen3_moe.plan && mv qwen3_moe.plan bias.plan
rm -rf bias bias.hf bias.saved
if "$planc" build bias.plan -o bias --device cpu >bias.log 2>&1 &&
    go bias 2 bias --final bias.safetensors &&
    "$planc" export bias.safetensors bias.plan -o bias.hf >bias.log 2>&1 &&
    grep -q 'does not read e_score_correction_bias' bias.log &&
    head -c 4096 bias.hf/model.safetensors |
    grep -aq 'layers.1.mlp.gate.e_score_correction_bias":{"dtype":"F32","shape":\[4\]' &&
    "$planc" import bias.hf -o bias.imported.plan >bias.log 2>&1 &&
    grep -q 'balance_bias = on' bias.imported.plan
then ok bias; else fail bias "$(tail_of bias.log)"; fi

# and may be missing where a run begins
"$planc" build qwen3_moe.imported.plan -o unbiased --device cpu --set \
    "data.train=$scratch/tokens.bin" --set run.steps=1 --set model.balance_bias=on \
    >unbiased.log 2>&1 && go unbiased 1 unbiased && ok unbiased ||
    fail unbiased "$(tail_of unbiased.log)"

# what counts in training only is in no configuration, and refuses no export
sed 's/vocab = 257/&;  z_loss = 0.01/' llama.plan >z_loss.plan
rm -rf z_loss.hf
"$planc" export llama.safetensors z_loss.plan -o z_loss.hf >z_loss.log 2>&1 && ok z_loss ||
    fail z_loss "$(tail_of z_loss.log)"

# an architecture that is not the library's
sed 's/h = rms_norm(x, attn_norm, eps = norm_eps)/h = rms_norm(x + x, attn_norm, eps = norm_eps)/' \
    "$top/plans/models/llama.plan" >own.plan
sed 's,models/llama.plan,own.plan,; s,llama.saved,own.saved,' llama.plan >of_own.plan
refused own_architecture 1 'is not the one of planc.s library' llama.safetensors of_own.plan
