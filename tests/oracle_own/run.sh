#!/usr/bin/env bash
# Every family in awkward sizes against an oracle of our own (truth.c, model.c, tape.c) that is
# built and run here, so that the numbers can be checked with nothing but this repository: a llama
# with heads 6 over 3 of width 10, ffn 101, vocab 97, sequence 19, tied, llama3 rope scaling;
# masked, untied and BF16-stored siblings; mixtures of 5 experts of width 37.
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../lib/common.sh"
. "$top/tests/lib/training.sh"
cc -O2 -std=gnu17 -Wall -Wextra -o truth "$here"/*.c -lm 2>truth.log ||
    { fail truth "$(tail_of truth.log)"; exit 0; }

# The oracle itself, compared with the reference where that is there: two implementations that share
# nothing. held CASE VARIANT "TRUTH KEYS"
held() {
    local case=$oracle/$1 variant=$2 keys=$3 why
    [ -e "$case/expected.json" ] || { skip "truth=$1" "there is no ../shared/oracle/$1"; return; }
    mkdir -p held
    # shellcheck disable=SC2086
    ./truth held $keys steps=1 &&
        python3 "$here/raw.py" "$case/model.safetensors" held/weights.raw held/model.safetensors &&
    ./truth held $keys weights=held/weights.raw tokens="$case/tokens.bin" &&
    why=$(python3 "$here/raw.py" --agree held/expected.json "$case/expected.json" $variant 2>&1) \
    && ok "truth=$1$variant" || fail "truth=$1$variant" "$why"
}
mixture="family=qwen3_moe hidden=48 heads=4 kv=2 head_dim=16 ffn=96 vocab=320 experts=8 top_k=2
    width=48 normalize=1 aux=0.001 seq=32 steps=12 warmup=4 lr=0.003 eps=1e-6 theta=1e6
    tied=0 factor=1"
held \
    llama_tiny \
    "" \
    "hidden=64 heads=4 kv=2 head_dim=16 ffn=176 vocab=256 seq=32 steps=20 warmup=4 tied=0 lr=0.005 factor=1"
held \
    gpt2_tiny \
    "" \
    "family=gpt2 hidden=48 heads=4 ffn=192 vocab=256 context=64 seq=32 steps=20 warmup=4 lr=0.005"
held \
    qwen3_tiny \
    "" \
    "family=qwen3 hidden=64 heads=4 kv=2 head_dim=32 ffn=128 vocab=384 seq=32 steps=20 warmup=4 lr=0.003 eps=1e-6 factor=1"
held qwen3moe_tiny "" "$mixture"
for m in 1 2 4; do held qwen3moe_tiny aux_microbatch_$m "$mixture together=$m"; done

# Whether some token's last chosen and first rejected expert are closer than single precision can
# tell, in any of the folders.
between_experts() {
    local folder
    for folder; do
        grep -o '"router_logit_gap_min": [^,]*' "$folder/expected.json" |
            awk '$2 < 5e-6 { found = 1 } END { exit !found }' && return
    done
    return 1
}
is_mixture() { case " $1 " in *" family=qwen3_moe "* | *" family=olmoe "* | \
    *" family=mixtral "* | *" family=glm4_moe "*) ;; *) return 1 ;; esac; }
# truths "KEYS" VARIANT...: ./case, and for a mixture ./case.M for every number M of samples that a
# variant balances together.
truths() {
    local keys=$1 variant m
    shift
    rm -rf case case.*
    mkdir case
    # shellcheck disable=SC2086
    "$scratch/truth" case $keys || return
    is_mixture "$keys" || return 0
    for variant; do
        m=$(samples_together 8 "$variant")
        [ -e "case.$m" ] && continue
        mkdir "case.$m"
        # shellcheck disable=SC2086
        "$scratch/truth" "case.$m" $keys together="$m" || return
    done
}
# The same, from the first of several seeds with which no token lies between two experts: rounding
# would decide there, and a comparison would mean nothing.
truths_apart() {
    local keys=$1 seed try
    shift
    is_mixture "$keys" || { truths "$keys" "$@"; return; }
    seed=$(grep -oE 'seed=[0-9]+' <<<"$keys" | tail -n 1)
    for try in $(seq 0 100 900); do
        truths "$keys seed=$((${seed#seed=} + try))" "$@" || return
        between_experts case case.* || return 0
    done
    echo "ten seeds, and with each a token lies between two experts"
    return 1
}

# train NAME "TRUTH KEYS" "EXTRA SETTINGS" VARIANT...; a mixture's truth depends on how many samples
# are balanced together
train() {
    local name=$1 keys=$2 extra=$3 variant why truth
    shift 3
    # parts of the optimizer in the replicas: one micro-batch, several, and with recomputation
    case ${LONG:-}$extra in
    1*loss_chunks*) set -- "$@" 2.2all.1.none.on ;; # they divide no single sample
    1*) set -- "$@" 2.2all.1.none.on 1.4all.2.full.on 2.2all.2.none.on ;;
    esac
    [ "$BUILD" = build-sanitize ] && set -- "${@:1:2}" # slow there; the numbers are the same
    rm -rf "${scratch:?}/$name"
    mkdir -p "$scratch/$name" && cd "$scratch/$name" || return
    if ! why=$(truths_apart "$keys" "$@" 2>&1); then fail "$name" "$why"; return; fi
    if ! "$planc" import case -o case.plan >import.log 2>&1; then
        fail "$name.import" "$(tail_of import.log)"
        return
    fi
    [ -z "$groups" ] || sed -i "s/optimizer adamw {/& $groups;/" case.plan
    # the family with other attention, beside the plan: there it is found first
    if [ -n "$attention" ]; then
        mkdir models
        for model in $(sed -n 's/^use "\(models.*\)"$/\1/p' case.plan); do
            sed -e "s/attention(q, k, v/&, $attention/" \
                -e "s/\(cross_entropy(\)\(.*\), targets)/\1softcap(\2, $logit_cap), targets)/" \
                "$top/plans/$model" >"$model"
        done
    fi
    numbers recipe "$PWD/case" >settings
    # shellcheck disable=SC2086
    [ -z "$extra" ] || printf '%s\n' $extra >>settings
    build_all case.plan 8 settings "$@"
    for variant in "$@"; do
        if ! why=$(variant_run "$variant"); then fail "$name.$variant" "$why"; continue; fi
        truth=case.$(samples_together 8 "$variant")
        [ -e "$truth" ] || truth=case
        if why=$(numbers expect "$truth" "$variant.jsonl" --final "$variant.safetensors" --probe \
            "$variant.probe"); then
            ok "$name.$variant"
        else fail "$name.$variant" "$why"; fi
    done
}
equal() { [ "$BUILD" = build-sanitize ] || variants_equal "$1 $2=$3" "$2" "$3"; }
groups=   # what stands in the optimizer's block besides
attention= logit_cap=0 # more arguments of attention; a cap on logits

train odd "" "" 1.1.1.none.on 1.1.2.full.on 1.1.1.none.off 1.1.1.full.on 2.1.1.none.on \
    2.2all.1.none.on 1.4all.2.full.on \
    2.1.2.full.on 4.1.1.full.on 2.2.2.none.on 8.1.1.none.on
equal odd 1.1.1.none.on 1.1.1.none.off
equal odd 1.1.1.none.on 1.1.1.full.on
# Other shapes: untied, one kv head, no scaling, three layers; weights stored as BF16 for every
# other tensor.
train plain "tied=0 kv=1 factor=1 layers=3 bf16=1 seed=2 vocab=257" "" 1.1.1.none.on 2.1.1.full.on \
    4.1.1.none.on 8.1.1.none.on
# Valid targets that differ between samples, ranks and micro-batches: one mean over all of them.
train masked "mask=1 ignore=0 seed=3" "" 1.1.1.none.on 1.1.8.none.on 2.1.4.none.on 1.2.2.full.on \
    4.1.2.none.on
# A whole step without targets is a step with gradient zero; ranks without targets weigh nothing.
train masked_step "mask=2 ignore=0 seed=4" "" 1.1.1.none.on 2.1.2.none.on
train masked_rank "mask=3 ignore=0 seed=5" "" 1.1.1.none.on 2.1.1.none.on 1.2.1.none.on
# One layer, where first, middle and last are the same; five, where prefetch has room.
train one_layer "layers=1 seed=6" "" 1.1.1.full.on 2.1.1.none.on
train five_layers "layers=5 seed=7" "--set mesh.prefetch=2" 2.1.1.full.on 2.2.1.none.on
train no_prefetch "layers=3 seed=8" "--set mesh.prefetch=0" 2.1.2.full.on

# GPT-2: heads 3, an inner width of its own, more positions than tokens; the bare model's names; the
# erf form, untied.
gpt2="family=gpt2 heads=3 ffn=53 vocab=61 context=29 seq=13"
train gpt2_odd "$gpt2 layers=3 seed=11" "" 1.1.1.none.on 1.1.1.full.on 1.1.1.none.off \
    2.1.2.full.on 4.1.1.none.on 1.2.1.none.on
equal gpt2_odd 1.1.1.none.on 1.1.1.none.off
equal gpt2_odd 1.1.1.none.on 1.1.1.full.on
train gpt2_bare "$gpt2 bare=1 erf=1 tied=0 seed=12" "" 1.1.1.none.on 2.1.1.full.on
# Where heads are normalised, Adam magnifies what rounding does to gradients near zero: a smaller
# rate keeps that below the tolerance. Qwen3: heads whose width does not follow from the model's.
train qwen3_odd "family=qwen3 head_dim=14 heads=6 kv=2 seed=13 theta=1e6 factor=1 lr=0.003" "" \
    1.1.1.none.on 2.1.2.full.on 2.2.1.none.on
# Mixtures: 5 experts of width 37, 3 a token, weights as they are; layers without experts among
# them; one tensor per expert or two for all; Mixtral's.
moe="family=qwen3_moe kv=2 factor=1 lr=0.003"
train moe_odd "$moe seed=21" "" 1.1.1.none.on 1.1.1.full.on 1.1.1.none.off 2.1.1.full.on \
    2.1.2.none.on 4.1.1.none.on 2.2.2.full.on 8.1.1.none.on
equal moe_odd 1.1.1.none.on 1.1.1.none.off
equal moe_odd 1.1.1.none.on 1.1.1.full.on
train moe_mixed "$moe layers=5 dense=9 normalize=1 seed=22" "" 1.1.1.none.on 1.1.1.full.on \
    2.1.1.none.on 2.1.2.full.on 1.2.1.full.on 4.1.1.full.on
equal moe_mixed 1.1.1.none.on 1.1.1.full.on
train moe_dense_end "$moe layers=4 dense=14 seed=23 tied=0" "--set mesh.prefetch=2" 1.1.1.full.on \
    2.1.1.none.on
train moe_fused "$moe fused=1 seed=24" "" 1.1.1.none.on 2.1.1.full.on
train moe_one_expert "$moe experts=3 top_k=1 seed=25" "" 1.1.1.none.on 2.1.2.full.on
train mixtral_odd "family=mixtral head_dim=6 kv=2 experts=7 top_k=2 seed=26 bare=1 lr=0.003" "" \
    1.1.1.none.on 2.1.1.full.on 2.2.1.none.on

# Qwen2: biases on queries, keys and values.
train qwen2_odd "family=qwen2 kv=2 head_dim=6 heads=4 theta=50 seed=41 lr=0.003 bare=1" "" \
    2.1.1.full.on
# GPT-NeoX: the first 4 columns of heads of 10, or all; attention and the feed-forward layer beside
# each other or not.
neox="family=gpt_neox heads=3 hidden=30 ffn=53 vocab=61 seq=13 tied=0 rotary=0.4 theta=50 lr=0.003"
train gpt_neox_odd "$neox erf=1 seed=42" "" 1.1.1.none.on 2.1.1.full.on
train gpt_neox_serial "$neox rotary=1 parallel=0 attention_bias=0 bare=1 seed=43" "" 1.1.1.full.on

# No balance loss: a bias that only counts in the choice, moved by the load of the whole step. Some
# of its steps are none (the load is the mean), and it crosses no shard.
balance="--set model.balance_rate=0.02"
train moe_bias "$moe balance=0.02 sigmoid=1 normalize=1 aux=0 seed=34" "$balance" 1.1.1.none.on \
    1.1.1.full.on 1.1.1.none.off 2.1.2.full.on 4.1.1.none.on 1.2.2.none.on
equal moe_bias 1.1.1.none.on 1.1.1.none.off
equal moe_bias 1.1.1.none.on 1.1.1.full.on
train moe_bias_aux "$moe balance=0.02 layers=4 dense=5 aux=0.05 experts=4 top_k=2 seed=35" \
    "$balance" 2.1.1.none.on 2.2.1.full.on 2.2all.1.full.on
train mixtral_bias "family=mixtral head_dim=6 kv=2 experts=7 top_k=2 balance=0.02 sigmoid=1 aux=0.03
    seed=36 lr=0.003" "$balance" 1.1.1.none.on 2.1.2.none.on

# GLM-4.5: a bias that balances, experts that every token takes, the result of the others scaled;
# dense layers first; half of each head turned, with biases or norms of queries and keys.
glm="family=glm4_moe kv=2 head_dim=8 heads=4 factor=1 theta=50 lr=0.003 aux=0 balance=0.02"
train glm4_moe_odd "$glm layers=3 dense=1 rotary=0.5 normalize=1 routed_scale=1.8 shared=2
    seed=37" "$balance" 1.1.1.none.on 1.1.1.full.on 1.1.1.none.off 2.1.2.full.on 4.1.1.none.on \
    2.2.1.none.on
equal glm4_moe_odd 1.1.1.none.on 1.1.1.none.off
equal glm4_moe_odd 1.1.1.none.on 1.1.1.full.on
train glm4_moe_norms "$glm rotary=0.8 attention_bias=0 qk_norm=1 shared=0 fused=1 tied=0 seed=38" \
    "$balance" 1.1.1.none.on 2.1.2.full.on
train glm4_moe_aux "$glm rotary=1 qk_norm=1 aux=0.05 dense=1 router_z=0.05 seed=39" \
    "$balance --set model.aux_weight=0.05 --set model.router_z_loss=0.05" 2.1.1.full.on \
    2.2.2.none.on

# Squared log-sum-exps of the logits and of the routers' logits beside the loss, weighed so that
# they move every gradient; some targets masked, the loss in chunks.
z="--set model.z_loss=0.02"
train z_loss "z_loss=0.02 mask=1 ignore=0 seed=27" "$z" 1.1.1.none.on 2.1.2.full.on
train z_loss_chunks "z_loss=0.02 mask=1 ignore=0 seed=27" "$z --set batch.loss_chunks=19" \
    1.1.1.none.on 2.2.1.none.off
train z_loss_moe "$moe z_loss=0.02 router_z=0.05 layers=3 dense=2 mask=1 ignore=0 seed=28" \
    "$z --set model.router_z_loss=0.05" 1.1.1.full.on 2.1.1.none.on 1.2.2.none.off
train z_loss_mixtral "family=mixtral head_dim=6 kv=2 experts=7 top_k=2 z_loss=0.02 router_z=0.05
    seed=29 lr=0.003" "$z --set model.router_z_loss=0.05" 2.1.2.none.on

# A window in every layer, or in some: Mistral; Phi-3 with its fused projections, turning the first
# 4 columns of heads of 6; Gemma 2 with caps on scores and logits; Gemma 3 with angles of its own
# for layers that see everything.
train mistral_odd "family=mistral window=5 head_dim=14 theta=50 seed=44 lr=0.003" "" \
    2.1.1.full.on
train phi3_odd "family=phi3 window=4 hidden=24 heads=4 kv=2 head_dim=6 rotary=0.7 theta=50 tied=0
    seed=45 lr=0.003" "" 1.1.1.none.on
gemma="layers=3 hidden=24 heads=4 kv=2 head_dim=10 ffn=37 vocab=61 window=5 theta=50 lr=0.003"
train gemma2_odd "family=gemma2 $gemma query_width=7 score_cap=2 logit_cap=3 z_loss=0.02 seed=46" \
    "$z --set batch.loss_chunks=2" 2.1.1.full.on
train gemma3_odd "family=gemma3 $gemma local_theta=20 linear=2 query_width=7 seed=47" "" \
    1.1.1.none.on 1.1.1.none.off
equal gemma3_odd 1.1.1.none.on 1.1.1.none.off
# OLMo: norms of queries and keys over all heads; norms behind the layers, or a mixture.
train olmo2_odd "family=olmo2 kv=2 head_dim=6 heads=4 theta=500 seed=44 lr=0.003 tied=0" "" \
    1.1.1.none.on 2.1.1.full.on
train olmoe_odd "family=olmoe kv=2 head_dim=6 heads=4 factor=1 seed=45 lr=0.003 bare=1" "" \
    1.1.1.full.on 2.1.2.none.on

# Positions past the tables of the other cases, where a rotation that pairs the wrong halves is far
# off; norms whose input is as small as their epsilon, for both that are in use: 0.30 or 0.71 of the
# input's own size.
train long_positions "seq=67 layers=1 steps=4 warmup=1 seed=9 factor=1 theta=500" "" 1.1.1.none.on \
    2.1.2.full.on
train small_norms "std=0.001 eps=1e-6 lr=1e-4 seed=10 steps=4 warmup=1" "" 1.1.1.none.on \
    2.1.1.none.on
train small_norms_5 "std=0.001 eps=1e-5 lr=1e-4 seed=10 steps=4 warmup=1" "" 1.1.1.none.on
if why=$(numbers expect "$scratch/small_norms_5/case" "$scratch/small_norms/1.1.1.none.on.jsonl")
then
    fail epsilon_counts "1e-5 and 1e-6 train alike"
else
    ok epsilon_counts
fi
# YaRN: some pairs as they are, some stretched, some between; the whole of a head or a part of it.
train yarn "yarn=4 factor=1 original=16 fast=4 slow=1 theta=100 seq=40 layers=2 steps=4 warmup=1
    seed=51" "" 1.1.1.none.on 1.1.1.full.off 2.1.2.full.on
train yarn_glm "$glm yarn=8 magnitude=1.3 original=32 rotary=0.75 head_dim=16 seq=33 dense=1
    seed=52" "$balance" 2.1.1.full.on
train yarn_documents "$moe yarn=2 original=16 fast=3 theta=50 end=3 seed=53" \
    "--set data.documents=separate --set data.end_token=3" 1.1.1.none.on
# Groups with a decay of their own, on tensors of every rank, in one piece and stacked; the last
# that matches decides.
groups='weights "*norm*" { weight_decay = 0.5 }; weights "model.*" { weight_decay = 0.05 }; weights "*norm*" { weight_decay = 0.3 }; weights "model.layers.{i}.*proj*" { weight_decay = 0.1 }'
train groups "vector_decay=0.3 embed_decay=0.05 seed=31 tied=0" "" 1.1.1.none.on 2.2.1.none.on \
    4.1.2.full.on
# The same where every weight fills whole 64s, so that segments of different decay touch.
train groups_touch "vector_decay=0.3 embed_decay=0.05 seed=33 tied=0 hidden=64 heads=4 kv=2
    head_dim=16 ffn=96" "" 1.1.1.none.on 2.2.1.none.on
groups='weights "*.experts.{e}.*" { weight_decay = 0.4 }'
train groups_of_experts "$moe expert_decay=0.4 seed=32" "" 1.1.1.none.on 4.1.1.full.on
groups=

# Windows in every layer or in every second one, of one key and of nearly all; a scale of its own;
# caps on scores and logits.
attention="window = 5"
train window "window=5 every=1 seed=41 lr=0.003" "" 1.1.1.none.on 1.1.1.full.off 2.1.2.full.on
equal window 1.1.1.none.on 1.1.1.full.off
attention="window = i % 2 == 0 ? 18 : 0, scale = 0.5, softcap = 1.5" logit_cap=2
train window_mixed "layers=3 window=18 scale=0.5 score_cap=1.5 logit_cap=2 seed=42 lr=0.003" \
    "--set batch.loss_chunks=2" 1.1.1.none.on 2.1.1.full.on 4.1.1.full.on
attention="window = 1, softcap = 3" logit_cap=0
train window_of_one "$gpt2 window=1 every=1 score_cap=3 seed=43 lr=0.003" "" 1.1.1.none.on \
    2.1.1.full.on
attention= logit_cap=0

# Separate documents: of every length from one token, with both kinds of positions, with masked
# targets, a window and experts beside them.
separate="--set data.documents=separate --set data.end_token=3"
train documents "end=3 seed=44 lr=0.003" "$separate" 1.1.1.none.on 1.1.1.full.off 2.1.2.full.on \
    4.1.1.none.on
equal documents 1.1.1.none.on 1.1.1.full.off
train documents_gpt2 "$gpt2 end=3 mask=1 ignore=0 seed=45 lr=0.003" "$separate" 1.1.1.full.on \
    2.2.1.none.on
attention="window = i % 2 == 0 ? 4 : 0, softcap = 3"
train documents_window "$moe layers=2 window=4 score_cap=3 end=3 seed=46" "$separate" \
    1.1.1.none.on 2.1.1.full.on
attention=

# Cases that nobody thought of.
[ -n "${LONG:-}" ] && while IFS='|' read -r name keys settings variant; do
    train "$name" "$keys" "$settings" "$variant"
done < <(python3 "$here/random_cases.py" 60 "${SEED:-1}")
exit 0
