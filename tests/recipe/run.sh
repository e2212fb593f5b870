#!/usr/bin/env bash
# What a plan says about training, on trainers: one mean over all that counts, however a batch is
# cut; one gradient norm; weights that decay by their group; rates; the order of the data; first
# weights; what the metrics say. A small model of sizes that do not divide, so that every cut falls
# inside a tensor.
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../lib/common.sh"
. "$top/tests/lib/training.sh"
holds() { # NAME CHECK...
    local name=$1 why
    shift
    why=$(python3 "$here/check.py" "$@" 2>&1) && ok "$name" ||
        fail "$name" "$(tail -n 1 <<<"$why" | cut -c1-400)"
}
make_tokens() { python3 "$here/make.py" "$@" || fail make_tokens "$*"; }
cat >base.plan <<'PLAN'
use "models/llama.plan"
use "clusters/cpu.plan"

plan "recipe" {
    model llama { layers = 2;  hidden = 36;  heads = 6;  kv_heads = 3;  head_dim = 6
                  ffn = 41;  vocab = 97;  init_std = 0.08 }
    cluster cpu { }
    batch { sequence = 16;  local = 8;  global = 8 }
    optimizer adamw { lr = 1e-2;  clip = 0.05 }
    schedule constant { steps = 6 }
    data { train = "masked.bin";  format = uint16;  ignore = 0 }
}
PLAN
build() { # DIR PLAN [settings]
    local dir=$1 plan=$2
    shift 2
    rm -rf "$dir"
    "$planc" build "$plan" -o "$dir" --device cpu "$@" >"$dir.build" 2>&1
}
go() { # NAME DIR RANKS [options]: NAME.jsonl, NAME.log; false when it failed, which is told
    local name=$1 dir=$2 ranks=$3
    shift 3
    rm -f "$name.jsonl" "$name.safetensors"
    if [ ! -x "$dir/trainer" ]; then
        fail "$name" "build failed: $(tail_of "$dir.build")"
        return 1
    fi
    timeout 120 mpirun -n "$ranks" --oversubscribe --bind-to none "$dir/trainer" --metrics \
        "$name.jsonl" "$@" >"$name.log" 2>&1 </dev/null && return 0
    fail "$name" "$(tail_of "$name.log")"
    return 1
}

# ── one batch, cut in many ways: masks that fall unevenly, a step and a rank without any target,
# clipping ────────────
make_tokens masked masked.bin
: >none
cuts="1.1.1.none.on 1.1.2.none.on 1.1.8.none.on 2.1.1.none.on 2.1.4.none.on 4.1.2.none.on 8.1.1.none.on 1.2.1.none.on 1.2.4.none.on 2.2.1.none.on 2.2.2.none.on"
# shellcheck disable=SC2086
build_all base.plan 8 none $cuts
for cut in $cuts; do
    IFS=. read -r fsdp dp accumulation _ <<<"$cut"
    if ! why=$(variant_run "$cut"); then fail "cut_$cut" "$why"; continue; fi
    [ "$cut" = 1.1.1.none.on ] || holds "cut_$cut" alike 1.1.1.none.on "$cut"
    holds "speed_$cut" speed "$cut.jsonl" $((fsdp * dp))
    grep -qF "batch: global 8 = $((fsdp * dp)) rank$([ $((fsdp * dp)) = 1 ] ||
        echo s) x $((8 / fsdp / dp / accumulation)) local x $accumulation accumulation" "$cut.log" \
        && ok "batch_line_$cut" ||
        fail "batch_line_$cut" "$(grep '^batch' "$cut.log")"
done
if [ "$(sed -n 2p 1.1.1.none.on.jsonl | grep -cE '"loss":0,.*"grad_norm":0,')" = 1 ] &&
    ! grep -qi nan 1.1.1.none.on.jsonl; then
    ok step_without_targets
else
    fail step_without_targets "$(sed -n 2p 1.1.1.none.on.jsonl)"
fi

# A wrong number of ranks leaves nothing: no metrics, no weights.
at_once timeout 60 mpirun -n 3 --oversubscribe --bind-to none 2.2.1.none.on/trainer \
    --metrics left.jsonl --final left.safetensors >left.log 2>&1 </dev/null
status=$?
[ $status -ne 0 ] && [ ! -e left.jsonl ] && [ ! -e left.safetensors ] &&
    [ ! -e left.safetensors.partial ] && grep -q '^trainer:.*4.*3' left.log &&
    ok wrong_ranks_leave_nothing ||
    fail wrong_ranks_leave_nothing "exit $status, $(ls left* | tr '\n' ' '): $(tail_of left.log)"

# ── first weights: of seed, name and index alone
# ─────────────────────────────────────────────────────────────────────
for cut in 1.1.1.none.on 8.1.1.none.on 2.2.2.none.on 1.2.4.none.on; do
    IFS=. read -r fsdp dp _ <<<"$cut"
    go "first_$cut" "$cut" $((fsdp * dp)) --steps 0 --final "first_$cut.safetensors" || continue
    [ ! -s "first_$cut.jsonl" ] ||
        fail "first_$cut" "no step was asked for, and yet: $(tail_of "first_$cut.jsonl" 1)"
    cmp -s first_1.1.1.none.on.safetensors "first_$cut.safetensors" && ok "first_weights_$cut" ||
        fail "first_weights_$cut" "not those of one rank"
done
holds first_weights_as_declared seeded first_1.1.1.none.on.safetensors 0.08
build seeded base.plan --set init.seed=1 --set mesh.fsdp=3 --set batch.local=1 --set \
    batch.global=3 && go seeded seeded 3 --steps 0 --final seeded.safetensors &&
    holds first_weights_of_a_seed seeded seeded.safetensors 0.08
! cmp -s seeded.safetensors first_1.1.1.none.on.safetensors && ok seeds_differ ||
    fail seeds_differ "init.seed changes nothing"
# What was loaded is saved as it was, cut or whole.
build loaded base.plan --set init.from=first_1.1.1.none.on.safetensors --set mesh.fsdp=3 --set \
    batch.local=1 --set batch.global=3 && go loaded loaded 3 --steps 0 --final loaded.safetensors &&
    { cmp -s loaded.safetensors first_1.1.1.none.on.safetensors && ok round_trip ||
    fail round_trip "loading and saving changed the file"; }
sed '/data {/d' base.plan >no_data.plan
build no_data no_data.plan && go no_data no_data 1 --steps 0 --final no_data.safetensors &&
    { cmp -s no_data.safetensors first_1.1.1.none.on.safetensors &&
    ok first_weights_need_no_data || fail first_weights_need_no_data "differ"; }
sed '/schedule/d' base.plan >no_steps.plan
build no_steps no_steps.plan &&
    timeout 60 mpirun -n 1 --bind-to none no_steps/trainer >no_steps.log 2>&1 </dev/null
[ $? -eq 4 ] && grep -q '^trainer: .*schedule.steps' no_steps.log && ok no_number_of_steps ||
    fail no_number_of_steps "$(tail_of no_steps.log)"

# ── groups of weights: with all targets masked only decay moves them, and that is exact
# ──────────────────────────────
make_tokens all masked_all.bin 200 7
sed \
    's/clip = 0.05/weights "*norm*" { weight_decay = 0.25 }; weights "model.layers.{i}.mlp.*" { weight_decay = 0 }; weights "*down_proj*" { weight_decay = 0.5 }/' \
    base.plan >groups.plan
for fsdp in 1 2 3; do
    build "groups_$fsdp" groups.plan --set "mesh.fsdp=$fsdp" --set batch.local=1 --set \
        "batch.global=$fsdp" --set data.train=masked_all.bin --set data.ignore=7 &&
        go "groups_$fsdp" "groups_$fsdp" "$fsdp" --steps 3 --final "groups_$fsdp.safetensors" &&
        holds "groups_$fsdp" decayed first_1.1.1.none.on.safetensors "groups_$fsdp.safetensors" 3 \
        0.01 '*=0.1' '*norm*=0.25' '*.mlp.*=0' '*down_proj*=0.5'
done
build default_1 base.plan --set data.train=masked_all.bin --set data.ignore=7 --set batch.local=1 \
    --set batch.global=1 && go default_1 default_1 1 --steps 2 --final default_1.safetensors &&
    holds decay_of_matrices_only decayed first_1.1.1.none.on.safetensors default_1.safetensors 2 \
    0.01 '*=0.1' '*norm*=0'

# ── rates
# ─────────────────────────────────────────────────────────────────────────────
rate() { # NAME KIND WARMUP STEPS FLOOR DECAY RUN
    local settings=(--set "schedule=$2" --set "schedule.warmup=$3" --set "schedule.steps=$4" --set \
        "run.steps=$7" --set optimizer.lr=8e-4)
    [ "$2" = constant ] || settings+=(--set "schedule.floor=$5")
    [ "$2" = wsd ] && settings+=(--set "schedule.decay=$6")
    build "rate_$1" base.plan --set batch.local=1 --set batch.global=1 "${settings[@]}" &&
        go "rate_$1" "rate_$1" 1 &&
        holds "rate_$1" rates "rate_$1.jsonl" "$2" 8e-4 "$3" "$4" "$5" "$6" "$7" ||
        fail "rate_$1" "$(tail_of "rate_$1.build")"
}
rate cosine cosine 5 9 0.1 0 12
rate linear linear 2 7 0.25 0 9
rate wsd wsd 2 10 0.1 3 12
rate wsd_without_decay wsd 0 3 0.5 0 5
rate wsd_all_decay wsd 0 4 0 4 4
rate one_step linear 0 1 0.1 0 2
rate constant constant 2 4 0 0 6

# ── the order of the data
# ────────────────────────────────────────────────────────────────────────────────────────────
make_tokens plain ids16.bin $((21 * 16 + 5)) 97 uint16
python3 -c '
import struct
ids = struct.unpack("<341H", open("ids16.bin", "rb").read())
open("ids32.bin", "wb").write(struct.pack("<341I", *ids))
open("part-a.bin", "wb").write(struct.pack("<100I", *ids[:100]))
open("part-b.bin", "wb").write(struct.pack("<7I", *ids[100:107]))
open("rest.bin", "wb").write(struct.pack("<234I", *ids[107:]))
'
ordered() { # NAME VARIANT [settings]: 8 steps of 8 over 21 samples
    local name=$1 settings ranks fusion
    variant_settings 8 "$2"
    build "$name" base.plan "${settings[@]}" --set data.ignore=off --set schedule.steps=8 "${@:3}" \
        && go "$name" "$name" "$ranks" --final "$name.safetensors"
}
ordered ids16 1.1.1.none.on --set data.train=ids16.bin
ordered ids32 1.1.1.none.on --set data.train=ids32.bin --set data.format=uint32
holds uint32_is_uint16 same ids16.jsonl ids32.jsonl
cmp -s ids16.safetensors ids32.safetensors && ok uint32_same_weights ||
    fail uint32_same_weights "differ"
sed \
    's/data { .*/data { train = ["part-*.bin", "rest.bin"];  format = uint32 }/; s/steps = 6/steps = 8/; s/plan "recipe"/plan "parts"/' \
    base.plan >parts.plan
build parts parts.plan && go parts parts 1 && holds list_of_patterns same ids16.jsonl parts.jsonl
for mesh in 1.1.1 4.1.1 2.2.2 1.1.4; do
    ordered "shuffled_$mesh" "$mesh.none.on" --set data.train=ids32.bin --set data.format=uint32 \
        --set data.order=shuffled --set data.seed=5 || continue
    holds "shuffled_hashes_$mesh" hashes shuffled_1.1.1.jsonl "shuffled_$mesh.jsonl"
done
if grep -q 'shuffled with seed 5' shuffled_4.1.1.log &&
    grep -q 'begins again, in another order' shuffled_4.1.1.log &&
    grep -q 'epoch 1 begins in step 2' shuffled_4.1.1.log &&
    grep -q 'epoch 3 begins in step 7' shuffled_4.1.1.log
then ok shuffled_log; else fail shuffled_log "$(grep '^data' shuffled_4.1.1.log | tr '\n' '|')"; fi
ordered shuffled_other 1.1.1.none.on --set data.train=ids32.bin --set data.format=uint32 --set \
    data.order=shuffled --set data.seed=6
for other in ids16 shuffled_other; do
    python3 "$here/check.py" hashes shuffled_1.1.1.jsonl $other.jsonl >/dev/null &&
        fail "order_unlike_$other" "the same samples in the same order" || ok "order_unlike_$other"
done
# A byte is a token id too, and may be too large for the vocabulary.
{ head -c 300 /dev/zero | tr '\0' '\140'; printf '\310'; head -c 100 /dev/zero |
    tr '\0' '\1'; } >high_byte.txt
build high_byte base.plan --set data.train=high_byte.txt --set data.format=bytes --set mesh.fsdp=2 \
    --set batch.local=4
at_once timeout 60 mpirun -n 2 --oversubscribe --bind-to none high_byte/trainer \
    >high_byte.log 2>&1 </dev/null
[ $? -eq 4 ] && [ "$(grep -c '^trainer:.*high_byte.txt: token id 200 at byte 300 .*97 ids' \
    high_byte.log)" = 1 ] && ok byte_past_the_vocabulary ||
    fail byte_past_the_vocabulary "$(tail_of high_byte.log)"
# One and a half batches, a hundred steps: the second pass is the first again, at a place that three
# steps share.
make_tokens plain short.bin $((12 * 16 + 1)) 97 uint16
ordered short 2.1.1.none.on --set data.train=short.bin --set run.steps=100 &&
    [ "$(wc -l <short.jsonl)" = 100 ] && holds one_and_a_half_batches period short.jsonl 3

# ── a vocabulary is as long as the plan says: nothing is padded, in the loss or in the file
# ──────────────────────────
sed \
    's/architecture llama/architecture llama_zero/; s/weight("lm_head.weight", \[vocab, hidden\], init = normal([a-z_0.]*))/weight("lm_head.weight", [vocab, hidden], init = zeros)/' \
    "$top/plans/models/llama.plan" >zero_head.plan
sed \
    's/models\/llama.plan/zero_head.plan/; s/model llama/model llama_zero/; s/ignore = 0/ignore = off/' \
    base.plan >zero.plan
for case in 97:1:4.574710978503383 97:4:4.574710978503383 101:3:4.61512051684126 \
    50257:2:10.824905; do
    IFS=: read -r vocab fsdp want <<<"$case"
    make_tokens plain "vocab.bin" 2000 "$vocab" uint16
    build "vocab_$vocab.$fsdp" zero.plan --set "model.vocab=$vocab" --set "mesh.fsdp=$fsdp" --set \
        batch.local=1 --set "batch.global=$fsdp" --set data.train=vocab.bin &&
        go "vocab_$vocab.$fsdp" "vocab_$vocab.$fsdp" "$fsdp" --steps 1 --final vocab.safetensors \
        --probe vocab.probe || continue
    holds "loss_of_zero_head_$vocab.$fsdp" loss "vocab_$vocab.$fsdp.jsonl" "$want"
    python3 -c '
import json, struct, sys
raw = open("vocab.safetensors", "rb").read()
header = json.loads(raw[8:8 + struct.unpack("<Q", raw[:8])[0]])
want = [int(sys.argv[1]), 36]
shapes = [header[k]["shape"] for k in ("model.embed_tokens.weight", "lm_head.weight")]
sys.exit(0 if shapes == [want, want] else 1)' \
    "$vocab" && ok "shape_of_vocabulary_$vocab.$fsdp" ||
    fail "shape_of_vocabulary_$vocab.$fsdp" "padded"
done
