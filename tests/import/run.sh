#!/usr/bin/env bash
# Configurations and weights of every family as they are found in the wild: published models have
# their published number of parameters; every layout of the stored tensors is either the
# architecture's or refused by name; and what a configuration says that would change the mathematics
# is never passed over.
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../lib/common.sh"
make="python3 $here/make_family.py"
configs=$here/configs

# published NAME PARAMETERS [ACTIVE]: the configuration alone
published() {
    local want=$2 active=${3:-$2}
    "$planc" import "$configs/$1.json" -o "$1.plan" >"$1.log" 2>&1 ||
        { fail "$1" "$(tail_of "$1.log")"; return; }
    [ ! -s "$1.log" ] || ! grep -q warning "$1.log" || { fail "$1" "$(tail_of "$1.log")"; return; }
    "$planc" check "$1.plan" --set cluster.device.memory=4TB --json >"$1.json" 2>"$1.err" ||
        { fail "$1" "$(tail_of "$1.err")"; return; }
    grep -q "\"parameters\": $want," "$1.json" &&
        grep -q "\"active_parameters\": $active," "$1.json" && ok "$1" ||
        fail "$1" "$(grep parameters\" "$1.json" | tr '\n' ' ')"
}
published gpt2 124439808
published llama-3.1-8b 8030261248
published qwen3-0.6b 596049920
published qwen3-30b-a3b 30532122624 3353032704
published mixtral-8x7b 46702792704 12879925248
published glm-4.5-air 106852251264 13424129664
published qwen2.5-0.5b 494032768
published pythia-160m 162322944
published mistral-7b-v0.1 7241732096
published phi-3-mini-4k 3821079552
published gemma-2-2b 2614341888
published gemma-3-1b 999885952
published olmo-2-1124-7b 7298617344
published olmoe-1b-7b-0924 6919161856 1282017280

# The library's plans are those models.
library() {
    "$planc" check "$top/plans/$1.plan" --json >"$1.lib" 2>"$1.err"
    grep -q "\"parameters\": $2," "$1.lib" && ok "plans/$1" ||
        fail "plans/$1" "$(tail_of "$1.err") $(grep -m 1 parameters "$1.lib")"
}
library gpt2-124m 124439808
library qwen3-30b-a3b 30532122624
# FLOPs per token: heads x head_dim decide about scores, whatever the key heads; the table of the
# input is looked up.
flops() { # NAME FULL CAUSAL PLAN [settings]
    "$planc" check "${@:4}" --json >"$1.json" 2>"$1.err"
    python3 -c '
import json, sys
f = json.load(open(sys.argv[1]))["flops_per_token"]
for k, want in zip(("full", "causal"), map(float, sys.argv[2:])):
    assert abs(f[k] / 1e9 - want) < 0.006, f"{k} is {f[k]}, not {want} GFLOP"
' "$1.json" "$2" "$3" 2>"$1.why" && ok "$1" ||
    fail "$1" "$(tail_of "$1.why" 1) $(tail_of "$1.err" 1)"
}
flops flops_4096 27.91 23.08 "$top/plans/qwen3-30b-a3b.plan"
flops flops_8192 37.58 27.91 "$top/plans/qwen3-30b-a3b.plan" --set batch.sequence=8192 --set \
    batch.local=1

# The same whether the head is the table or not; fewer key heads cost only their own projections: 6
# x 2 x hidden x head_dim a layer and head.
flops_of() {
    "$planc" check "$top/plans/llama-8b.plan" "$@" --json | grep -A 1 flops_per_token |
        grep -oE '[0-9]{6,}'
}
[ "$(flops_of)" = "$(flops_of --set model.tied=on)" ] && ok flops_tied ||
    fail flops_tied "$(flops_of) and $(flops_of --set model.tied=on)"
[ $(($(flops_of --set model.kv_heads=32) - $(flops_of --set model.kv_heads=8))) = \
    $((24 * 6 * 2 * 4096 * 128 * 32)) ] && ok flops_key_heads ||
    fail flops_key_heads \
    "$(flops_of --set model.kv_heads=32) and $(flops_of --set model.kv_heads=8)"

# Small models with weights, in the layouts that are found.
tiny() { # FAMILY: the words that make its published configuration small
    case $1 in
    gpt2) echo gpt2.json n_layer=2 n_embd=24 n_head=3 n_positions=16 n_ctx=16 vocab_size=61 \
        n_inner=53 ;;
    qwen3) echo qwen3-0.6b.json num_hidden_layers=2 hidden_size=24 num_attention_heads=4 \
        num_key_value_heads=2 head_dim=10 intermediate_size=37 vocab_size=97 ;;
    qwen3_moe) echo qwen3-30b-a3b.json num_hidden_layers=4 hidden_size=24 num_attention_heads=4 \
        num_key_value_heads=2 head_dim=10 intermediate_size=41 \
        moe_intermediate_size=37 num_experts=5 num_experts_per_tok=3 vocab_size=97 ;;
    mixtral) echo mixtral-8x7b.json num_hidden_layers=2 hidden_size=24 num_attention_heads=4 \
        num_key_value_heads=2 intermediate_size=37 num_local_experts=5 \
        num_experts_per_tok=2 vocab_size=97 ;;
    glm4_moe) echo glm-4.5-air.json num_hidden_layers=4 hidden_size=24 num_attention_heads=4 \
        num_key_value_heads=2 head_dim=12 intermediate_size=41 first_k_dense_replace=2 \
        moe_intermediate_size=37 n_routed_experts=5 num_experts_per_tok=3 vocab_size=97 ;;
    qwen2) echo qwen2.5-0.5b.json num_hidden_layers=2 hidden_size=24 num_attention_heads=4 \
        num_key_value_heads=2 intermediate_size=37 vocab_size=97 ;;
    olmo2) echo olmo-2-1124-7b.json num_hidden_layers=2 hidden_size=24 num_attention_heads=4 \
        num_key_value_heads=2 intermediate_size=37 vocab_size=97 ;;
    olmoe) echo olmoe-1b-7b-0924.json num_hidden_layers=2 hidden_size=24 num_attention_heads=4 \
        num_key_value_heads=2 intermediate_size=37 num_experts=5 num_experts_per_tok=3 \
        vocab_size=97 ;;
    gpt_neox) echo pythia-160m.json num_hidden_layers=2 hidden_size=48 num_attention_heads=3 \
        intermediate_size=53 vocab_size=61 ;;
    mistral) echo mistral-7b-v0.1.json num_hidden_layers=2 hidden_size=24 num_attention_heads=4 \
        num_key_value_heads=2 intermediate_size=37 vocab_size=97 ;;
    phi3) echo phi-3-mini-4k.json num_hidden_layers=2 hidden_size=24 num_attention_heads=4 \
        num_key_value_heads=2 intermediate_size=37 vocab_size=97 ;;
    gemma2 | gemma3) echo "gemma-$([ "$1" = gemma2 ] && echo 2-2b || echo 3-1b).json" \
        num_hidden_layers=7 hidden_size=24 num_attention_heads=4 num_key_value_heads=2 head_dim=10 \
        intermediate_size=37 vocab_size=97 ;;
    esac
}
take() { # NAME FAMILY words...: into NAME/ and NAME.plan
    local name=$1 base words
    read -r base words <<<"$(tiny "$2")"
    # shellcheck disable=SC2086
    $make "$name" "$configs/$base" $words "${@:3}" ||
        { echo "make_family failed" >"$name.log"; return 9; }
    rm -f "$name.plan"
    "$planc" import "$name" -o "$name.plan" >"$name.log" 2>&1
}
taken() { # NAME FAMILY words...: imported, and what came out is a whole plan
    local name=$1
    take "$@" && ! grep -q warning "$name.log" &&
        "$planc" check "$name.plan" >"$name.check" 2>&1 && ok "$name" ||
        fail "$name" "$(tail_of "$name.log") $(tail_of "$name.check" 1)"
}
says() {
    grep -qE -- "$2" "$1.plan" && ok "$1.plan" ||
        fail "$1.plan" "no /$2/ in $(grep -A 6 'model ' "$1.plan" | tr '\n' '|')"
}
for family in gpt2 qwen3 qwen3_moe mixtral glm4_moe qwen2 gpt_neox mistral phi3 gemma2 gemma3 \
    olmo2 olmoe; do
    taken "$family" $family
    taken "${family}_shards" $family shards
    taken "${family}_bare" $family bare
    taken "${family}_no_weights" $family none
done
taken gpt2_buffers gpt2 bare buffers head
taken gpt2_untied gpt2 tie_word_embeddings=false; says gpt2_untied 'tied = off'
taken gpt2_erf gpt2 'activation_function="gelu"'; says gpt2_erf 'erf_gelu = on'
taken gpt2_inner gpt2 n_inner=null
says gpt2_inner 'layers = 2;  hidden = 24;  heads = 3;  vocab = 61'
taken qwen3_head_twice qwen3 head
taken qwen3_untied qwen3 tie_word_embeddings=false
taken qwen3_yarn qwen3 'rope_scaling={"rope_type":"yarn","factor":4.0,
    "original_max_position_embeddings":32768,"truncate":true}'
says qwen3_yarn 'rope_yarn = 4'; says qwen3_yarn 'rope_original = 32768'
taken moe_yarn qwen3_moe 'rope_scaling={"type":"yarn","factor":4.0,"beta_fast":16,"mscale":1.0,
    "mscale_all_dim":0.5}'
says moe_yarn 'rope_fast = 16;  rope_original = 40960'
says moe_yarn 'rope_magnitude = 1.064821'
taken qwen3_window_aside qwen3 sliding_window=4096 use_sliding_window=false
taken qwen3_layer_types qwen3 'layer_types=["full_attention","full_attention"]'
taken qwen3_new_spelling qwen3 -rope_theta -rope_scaling \
    'rope_parameters={"rope_type":"default","rope_theta":1000000.0}' -torch_dtype 'dtype="bfloat16"'
says qwen3_new_spelling 'rope_theta = 1000000'
taken moe_fused qwen3_moe fused; says moe_fused 'fused_experts = on'
taken mixtral_fused mixtral fused; says mixtral_fused 'fused_experts = on'
taken glm_fused glm4_moe fused; says glm_fused 'fused_experts = on'
taken glm_norms glm4_moe use_qk_norm=true attention_bias=false n_shared_experts=2 \
    routed_scaling_factor=2.5 norm_topk_prob=false
says glm_norms 'shared_experts = 2;  normalize = off'
says glm_norms 'routed_scale = 2.5;  attention_bias = off;  qk_norm = on'
taken glm_no_shared glm4_moe n_shared_experts=0 first_k_dense_replace=0 intermediate_size=0
says glm_no_shared 'first_dense = 0;  ffn = 0;  shared_experts = 0'
taken glm_absent glm4_moe none -first_k_dense_replace -n_shared_experts -use_qk_norm \
    -partial_rotary_factor -routed_scaling_factor -norm_topk_prob -attention_bias
says glm_absent 'first_dense = 1;.* shared_experts = 1;  normalize = on'
says glm_absent 'rotary = 0.5'
taken moe_dense_list qwen3_moe 'mlp_only_layers=[0,3]'
says moe_dense_list 'dense_layers = \[0, 3\];  ffn = 41'
taken moe_dense_step qwen3_moe decoder_sparse_step=2; says moe_dense_step 'dense_layers = \[0, 2\]'
taken moe_dense_both qwen3_moe decoder_sparse_step=3 'mlp_only_layers=[2]' num_hidden_layers=6
says moe_dense_both 'dense_layers = \[0\.\.4\]'
taken moe_plain_weights qwen3_moe norm_topk_prob=false router_aux_loss_coef=0
says moe_plain_weights 'normalize = off;  aux_weight = 0;'
taken moe_default_weights qwen3_moe -norm_topk_prob -router_aux_loss_coef
says moe_default_weights 'normalize = off;  aux_weight = 0.001;'

# warned NAME REGEX FAMILY words...: imported, with these words
warned() {
    take "$1" "$3" none "${@:4}" && grep -qE -- "$2" "$1.log" &&
        "$planc" check "$1.plan" >"$1.check" 2>&1 && ok "$1" || fail "$1" "$(tail_of "$1.log")"
}
taken moe_local_experts qwen3_moe none -num_experts num_local_experts=5
says moe_local_experts 'experts = 5'
warned glm_next_tokens 'num_nextn_predict_layers = 1: the layers that predict further' glm4_moe \
    num_nextn_predict_layers=1
warned moe_balance 'would train without it.*--set model.aux_weight=0' qwen3_moe \
    output_router_logits=false
take moe_balanced qwen3_moe none output_router_logits=true &&
    ! grep -q 'would train without' moe_balanced.log && ok moe_balanced ||
    fail moe_balanced "$(tail_of moe_balanced.log)"
take qwen3_width qwen3 none -head_dim && ok qwen3_width ||
    fail qwen3_width "$(tail_of qwen3_width.log)"
says qwen3_width 'head_dim = 128'
grep -q 'as transformers has it: head_dim = 128' qwen3_width.log && ok qwen3_width_is_said ||
    fail qwen3_width_is_said "$(tail_of qwen3_width.log)"
for config in "$configs"/defaults/*.json; do # as transformers writes out every default
    name=defaults_$(basename "$config" .json)
    "$planc" import "$config" -o "$name.plan" >"$name.log" 2>&1 &&
        ! grep warning "$name.log" | grep -qv dropout &&
        "$planc" check "$name.plan" --set cluster.device.memory=4TB >"$name.check" 2>&1 &&
        ok "$name" || fail "$name" "$(tail_of "$name.log")"
done

# spoilt KIND STATUS WORD FAMILY words...: the folder made so, imported again
spoilt() {
    local kind=$1 want=$2 word=$3 name=spoilt_$1 status
    take "$name" "${@:4}" && python3 "$here/spoil.py" "$name" "$kind" || {
        fail "$name" "$(tail_of "$name.log")"
        return
    }
    "$planc" import "$name" -o "$name.plan" >"$name.log" 2>&1
    status=$?
    [ $status -eq "$want" ] && grep -qF -- "$word" "$name.log" && ok "$name" ||
        fail "$name" "exit $status: $(tail_of "$name.log")"
}
spoilt gap 4 'the one before it ends at' qwen3
spoilt tail 4 'its tensors cover' qwen3
spoilt overlap 4 'the one before it ends at' qwen3
spoilt huge 4 'bytes for F32' qwen3
spoilt head 4 'no copy of another tensor' qwen3 head
spoilt half 0 'are its weights, every one' qwen3
spoilt odd 0 'are its weights, every one' gpt2
spoilt both 0 'are its weights, every one' qwen3
spoilt dangling 4 'No such file' qwen3
spoilt index 4 'b.safetensors: No such file' qwen3
# What is missing is named, not what is then left over.
take no_table qwen3 && python3 - no_table/model.safetensors <<'P'
import json, pathlib, struct, sys
p = pathlib.Path(sys.argv[1]); raw = p.read_bytes(); n, = struct.unpack("<Q", raw[:8])
header = json.loads(raw[8:8 + n]); header["other"] = header.pop("model.embed_tokens.weight")
text = json.dumps(header).encode(); p.write_bytes(struct.pack("<Q", len(text)) + text + raw[8 + n:])
P
"$planc" import no_table -o no_table.plan >no_table.log 2>&1
grep -q "the tensor 'model.embed_tokens.weight' is missing, and 'other' is stored" no_table.log &&
    ok no_table || fail no_table "$(tail_of no_table.log)"

# refused NAME "WORD|WORD" STATUS FAMILY words...
refused() {
    local name=$1 words=$2 want=$3 word status
    take "$name" "${@:4}"
    status=$?
    [ $status -eq "$want" ] && [ ! -e "$name.plan" ] ||
        { fail "$name" "exit $status: $(tail_of "$name.log")"; return; }
    while IFS= read -r word; do
        grep -qF -- "$word" "$name.log" ||
            { fail "$name" "does not say '$word': $(tail_of "$name.log" 8)"; return; }
    done < <(tr '|' '\n' <<<"$words")
    ok "$name"
}
taken gpt_neox_buffers gpt_neox buffers
taken gpt_neox_plain gpt_neox attention_bias=false use_parallel_residual=false rotary_pct=1 \
    rotary_emb_base=500
says gpt_neox_plain 'parallel = off;  attention_bias = off'
says gpt_neox_plain '^ *rotary = 1$'
taken gpt_neox_new_spelling gpt_neox -rotary_pct -rotary_emb_base \
    'rope_parameters={"rope_type":"default","rope_theta":900.0,"partial_rotary_factor":0.5}' \
    'hidden_act="gelu_fast"'
says gpt_neox_new_spelling 'tanh_gelu = on'
says gpt_neox_new_spelling 'rope_theta = 900'
says gpt_neox_new_spelling '^ *rotary = 0.5$'
taken gpt_neox_defaults gpt_neox -rotary_pct -rotary_emb_base -use_parallel_residual
says gpt_neox_defaults '^ *rotary = 0.25$'
refused gpt_neox_odd 'rotary positions turn pairs' 1 gpt_neox none rotary_pct=0.19
refused gpt_neox_more 'more of a head cannot be turned' 1 gpt_neox none rotary_pct=1.5
refused gpt_neox_activation 'hidden_act = "relu"' 1 gpt_neox none 'hidden_act="relu"'
refused gpt_neox_linear 'rope_scaling of type "linear"|planc knows default only' 1 gpt_neox none \
    'rope_scaling={"type":"linear","factor":2.0}'
says mistral 'window = 4096'
taken mistral_all mistral none sliding_window=null; says mistral_all 'window = 0'
taken mistral_default mistral none -sliding_window; says mistral_default 'window = 4096'
refused mistral_layers 'layer_types' 1 mistral none \
    'layer_types=["full_attention","full_attention"]'
refused mistral_bias 'attention_bias = true' 1 mistral none attention_bias=true
says phi3 'window = 2047'
taken phi3_part phi3 none partial_rotary_factor=0.75 -sliding_window
says phi3_part 'rope_theta = 10000;  rotary = 0.75$'
says phi3_part 'window = 0'
refused phi3_long 'rope_scaling of type "longrope"' 1 phi3 none \
    'rope_scaling={"type":"longrope","short_factor":[1.0],"long_factor":[2.0]}'
says gemma2 'score_cap = 50;  logit_cap = 30'
says gemma2 'full_every = 2'
taken gemma2_uncapped gemma2 none attn_logit_softcapping=null final_logit_softcapping=null \
    query_pre_attn_scalar=144 'layer_types=["full_attention","full_attention","full_attention",
    "full_attention","full_attention","full_attention","full_attention"]'
says gemma2_uncapped 'score_cap = 0;  logit_cap = 0'
says gemma2_uncapped 'full_every = 1'
says gemma2_uncapped 'query_width = 144'
refused gemma2_layers 'layer_types cannot be imported' 1 gemma2 none num_hidden_layers=3 \
    'layer_types=["sliding_attention","full_attention","full_attention"]'
refused gemma2_kind 'layer_types cannot be imported' 1 gemma2 none num_hidden_layers=1 \
    'layer_types=["chunked_attention"]'
refused gemma2_both_ways 'use_bidirectional_attention = true' 1 gemma2 none \
    use_bidirectional_attention=true
refused gemma2_activation 'hidden_activation = "gelu"' 1 gemma2 none 'hidden_activation="gelu"'
refused gemma2_linear 'rope_scaling of type "linear"' 1 gemma2 none \
    'rope_scaling={"type":"linear","factor":2.0}'
says gemma3 'full_every = 6'
says gemma3 'rope_theta = 1000000'
says gemma3 'rope_local_theta = 10000'
taken gemma3_linear gemma3 none 'rope_scaling={"rope_type":"linear","factor":8.0}'
says gemma3_linear 'rope_linear = 8'
taken gemma3_new_spelling gemma3 none -rope_theta -rope_local_base_freq -rope_scaling \
    'rope_parameters={"full_attention":{"rope_type":"linear","factor":8.0,"rope_theta":70.0},
    "sliding_attention":{"rope_type":"default","rope_theta":80.0}}' -sliding_window_pattern
says gemma3_new_spelling 'rope_linear = 8'
says gemma3_new_spelling 'rope_theta = 70'
says gemma3_new_spelling 'rope_local_theta = 80'
refused gemma3_yarn 'sliding_attention of type "yarn"|planc knows default only' 1 gemma3 none \
    'rope_parameters={"sliding_attention":{"rope_type":"yarn","factor":8.0}}'
# Two spellings at once: releases of transformers take one or the other, so they must say the same.
refused rope_two_scalings 'rope_scaling (yarn) and rope_parameters (default) are not' 1 qwen3 none \
    'rope_scaling={"rope_type":"yarn","factor":4.0}' -rope_theta \
    'rope_parameters={"rope_type":"default","rope_theta":1000000.0}'
refused rope_two_factors 'rope_scaling (yarn) and rope_parameters (yarn) are not' 1 qwen3 none \
    'rope_scaling={"rope_type":"yarn","factor":4.0}' \
    'rope_parameters={"rope_type":"yarn","factor":8.0,"rope_theta":1000000.0}'
refused rope_two_of_a_kind 'rope_scaling (linear) and rope_parameters (default) are not' 1 gemma3 \
    none 'rope_scaling={"rope_type":"linear","factor":8.0}' 'rope_parameters={
    "full_attention":{"rope_type":"default"},"sliding_attention":{"rope_type":"default"}}'
refused rope_two_thetas 'rope_theta = 1000000, and the object of rotary positions' 1 qwen3 none \
    rope_theta=1000000 'rope_parameters={"rope_type":"default","rope_theta":500.0}'
refused rope_two_parts 'partial_rotary_factor = 0.75, and the object' 1 phi3 none \
    partial_rotary_factor=0.75 'rope_parameters={"rope_type":"default","partial_rotary_factor":0.5}'
taken rope_twice qwen3 none 'rope_scaling={"type":"yarn","factor":4}' rope_theta=1000000 \
    'rope_parameters={"rope_type":"yarn","factor":4.0,"rope_theta":1000000.0}'
says rope_twice 'rope_yarn = 4'
refused gemma3_capped 'attn_logit_softcapping = 50' 1 gemma3 none attn_logit_softcapping=50
taken olmoe_balance olmoe none -router_aux_loss_coef
says olmoe_balance 'aux_weight = 0.01;'
grep -qF 'balance loss, router_aux_loss_coef = 0.01:' olmoe_balance.log && ok olmoe_balance_note ||
    fail olmoe_balance_note "$(grep router olmoe_balance.log)"
refused olmoe_clip 'clip_qkv = 8' 1 olmoe none clip_qkv=8
# Of a Qwen2 or a Qwen3 all layers but the first ones may have a window.
for family in qwen2 qwen3; do
    taken ${family}_window $family none use_sliding_window=true sliding_window=7 max_window_layers=1
    says ${family}_window 'window = 7;  full_layers = 1'
    taken ${family}_window_of_list $family none use_sliding_window=true sliding_window=7 \
        'layer_types=["sliding_attention","sliding_attention"]'
    says ${family}_window_of_list 'window = 7;  full_layers = 0'
    taken ${family}_few_layers $family none use_sliding_window=true sliding_window=7
    ! grep -q 'window' ${family}_few_layers.plan && ok ${family}_few_layers.none ||
        fail ${family}_few_layers.none "$(grep window ${family}_few_layers.plan)"
    refused ${family}_window_first 'layer_types = ' 1 $family none use_sliding_window=true \
        'layer_types=["sliding_attention","full_attention"]'
    refused ${family}_window_off 'use_sliding_window says that there is none' 1 $family none \
        'layer_types=["full_attention","sliding_attention"]'
    refused ${family}_window_zero 'sliding_window = 0' 1 $family none use_sliding_window=true \
        sliding_window=0
    refused ${family}_window_word 'use_sliding_window = "yes"' 1 $family none \
        'use_sliding_window="yes"'
done
refused qwen2_mrope 'use_mrope = true' 1 qwen2 none use_mrope=true
refused qwen2_missing 'is missing' 4 qwen2 missing
for words in 'decoder_sparse_step=2' 'mlp_only_layers=[0,3]' 'num_experts=4'; do
    SECONDS=0
    refused "moe_layers_${words%%=*}" '1000000000000000000 layers are more than planc can count' 1 \
        qwen3_moe none num_hidden_layers=1000000000000000000 "$words"
    [ $SECONDS -lt 5 ] && [ "$(grep -c error: "moe_layers_${words%%=*}.log")" -eq 1 ] &&
        ok "moe_layers_${words%%=*}.at_once" ||
        fail "moe_layers_${words%%=*}.at_once" \
            "$SECONDS s, $(tail_of "moe_layers_${words%%=*}.log")"
done
for family in qwen3 qwen3_moe mixtral; do
    refused ${family}_attention_bias 'attention_bias = true' 1 $family none attention_bias=true
    refused ${family}_activation 'hidden_act = "gelu"' 1 $family none 'hidden_act="gelu"'
    refused ${family}_longrope 'rope_scaling of type "longrope"' 1 $family none \
        'rope_scaling={"rope_type":"longrope","factor":4.0}'
    refused ${family}_linear 'rope_scaling of type "linear"' 1 $family none \
        'rope_scaling={"type":"linear","factor":4.0}'
    warned ${family}_dropout 'trains without dropout.*attention_dropout = 0.1' $family \
        attention_dropout=0.1
    refused ${family}_missing 'is missing' 4 $family missing
    refused ${family}_extra '.9.' 4 $family extra
    refused ${family}_misshaped '[25]|[24]' 4 $family misshaped
done
# A list is no number, whatever is in it.
refused qwen3_part_list 'partial_rotary_factor = [1]' 1 qwen3 none 'partial_rotary_factor=[1]'
refused qwen3_bias_list 'attention_bias = [false]' 1 qwen3 none 'attention_bias=[false]'
refused qwen3_split_list 'pretraining_tp = []' 1 qwen3 none 'pretraining_tp=[]'
refused qwen3_types_word 'layer_types = "full_attention"' 1 qwen3 none \
    'layer_types="full_attention"'
refused qwen3_class 'Qwen3ForSequenceClassification' 1 qwen3 none \
    'architectures=["Qwen3ForSequenceClassification"]'
refused glm_groups 'n_group = 8' 1 glm4_moe none n_group=8
refused glm_softmax 'scoring_func = "softmax"' 1 glm4_moe none 'scoring_func="softmax"'
refused glm_no_sparse 'without a layer that has experts' 1 glm4_moe none first_k_dense_replace=4
refused glm_part_of_a_layer 'first_k_dense_replace = 1.5' 1 glm4_moe none first_k_dense_replace=1.5
refused glm_rope 'of type "llama3"' 1 glm4_moe none 'rope_scaling={"type":"llama3","factor":4.0}'
refused yarn_cut 'truncate = false' 1 qwen3 none \
    'rope_scaling={"rope_type":"yarn","factor":4.0,"truncate":false}'
refused yarn_word 'beta_fast = "32"' 1 qwen3 none \
    'rope_scaling={"rope_type":"yarn","factor":4.0,"beta_fast":"32"}'
refused yarn_no_factor 'of type yarn lacks factor' 1 qwen3 none 'rope_scaling={"rope_type":"yarn"}'
refused yarn_below_1 'rope_yarn must be at least 1' 1 qwen3 none \
    'rope_scaling={"rope_type":"yarn","factor":0.5}'
refused moe_window 'use_sliding_window = true' 1 qwen3_moe none use_sliding_window=true
refused moe_shared 'shared_expert_intermediate_size = 64' 1 qwen3_moe none \
    shared_expert_intermediate_size=64
refused moe_no_sparse 'no layer of the mixture would have experts' 1 qwen3_moe none \
    decoder_sparse_step=9
refused moe_step_0 'decoder_sparse_step = 0' 1 qwen3_moe none decoder_sparse_step=0
refused moe_scoring 'scoring_func = "tanh"' 1 qwen3_moe none 'scoring_func="tanh"'
refused moe_too_many_choices 'more experts than there are|top_k is 9' 1 qwen3_moe none \
    num_experts_per_tok=9
refused mixtral_window 'sliding_window = 4096' 1 mixtral none sliding_window=4096
refused mixtral_jitter 'router_jitter_noise = 0.1' 1 mixtral none router_jitter_noise=0.1
refused mixtral_no_experts 'lacks num_local_experts' 1 mixtral none -num_local_experts
refused gpt2_activation 'activation_function = "relu"|gelu_new' 1 gpt2 none \
    'activation_function="relu"'
refused gpt2_by_layer 'scale_attn_by_inverse_layer_idx = true' 1 gpt2 none \
    scale_attn_by_inverse_layer_idx=true
refused gpt2_reordered 'reorder_and_upcast_attn = true' 1 gpt2 none reorder_and_upcast_attn=true
refused gpt2_unscaled 'scale_attn_weights = false' 1 gpt2 none scale_attn_weights=false
warned gpt2_dropout 'without dropout.*resid_pdrop = 0.1, embd_pdrop = 0.2, attn_pdrop = 0.1' \
    gpt2 resid_pdrop=0.1 attn_pdrop=0.1 embd_pdrop=0.2
refused gpt2_missing 'is missing' 4 gpt2 missing
refused gpt2_extra '.9.' 4 gpt2 extra
plan_refused() { # NAME WORD PLAN settings...
    "$planc" check "$3" "${@:4}" >"$1.log" 2>&1
    [ $? -eq 1 ] && grep -qF -- "$2" "$1.log" && ok "$1" || fail "$1" "$(tail_of "$1.log")"
}
plan_refused all_layers_dense 'a mixture without a layer that has experts' \
    "$top/plans/moe-small.plan" --set 'model.dense_layers=[0..3]'
plan_refused dense_without_width 'and ffn, the width of these layers, is not given' \
    "$top/plans/qwen3-30b-a3b.plan" --set 'model.dense_layers=[0]'
plan_refused positions_run_out 'longer than the table of positions' "$top/plans/gpt2-124m.plan" \
    --set batch.sequence=2048
take unknown_key qwen3 none attention_flavour=3
[ $? -eq 0 ] && grep -q 'warning: attention_flavour = 3' unknown_key.log && ok unknown_key ||
    fail unknown_key "$(tail_of unknown_key.log)"
