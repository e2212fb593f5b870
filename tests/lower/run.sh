#!/usr/bin/env bash
# From a plan to the first IR, and from a configuration to a plan: counts that follow from the
# architecture alone, one dump that is reviewed when it changes, layers that differ, every refusal
# with the words that a user needs, and an import that is held against weights of our own making.
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../lib/common.sh"

# ── what the architecture says ───────────────────────────────────────────────
"$planc" check "$top/plans/llama-8b.plan" --json >8b.json 2>8b.err
grep -q '"parameters": 8030261248\b' 8b.json && ok llama_8b_parameters ||
    fail llama_8b_parameters "$(grep parameters 8b.json | head -n 1) $(tail_of 8b.err)"

# dump NAME PLAN PASS [settings]
dump() { "$planc" dump "$2" --after "$3" "${@:4}" >"$1.ir" 2>"$1.err"; }
cat >tiny.plan <<'PLAN'
use "models/llama.plan"
use "clusters/cpu.plan"

plan "tiny" {
    model llama { layers = 3;  hidden = 12;  heads = 2;  kv_heads = 1;  head_dim = 6
                  ffn = 20;  vocab = 11;  tied = on }
    cluster cpu { }
    mesh { fsdp = 2 }
    batch { sequence = 5;  local = 2 }
}
PLAN
dump tiny tiny.plan lower
if [ -n "${UPDATE:-}" ]; then cp tiny.ir "$here/tiny.want"; fi
diff "$here/tiny.want" tiny.ir >tiny.diff 2>&1 && ok tiny_dump ||
    fail tiny_dump "$(tail_of tiny.diff 4) $(tail_of tiny.err)"
[ "$(grep -c '^weight ' tiny.ir)" = 11 ] && ! grep -q lm_head tiny.ir && ok tied_is_one_weight ||
    fail tied_is_one_weight "$(grep -c '^weight ' tiny.ir) weights"

# family NAME SETTINGS BODY: a plan with an architecture of its own in the file
family() {
    { printf 'use "clusters/cpu.plan"\narchitecture own {\n%s\n}\n' "$3"
      printf \
          'plan "own" {\n    model own { %s }\n    cluster cpu { }\n    mesh { fsdp = 1 }\n    batch { sequence = 8;  local = 2 }\n}\n' \
          "$2"
      } >"$1.plan"
}
has() { # NAME FILE PATTERN...
    local name=$1 file=$2 pattern
    shift 2
    for pattern in "$@"; do
        grep -qE -- "$pattern" "$file" ||
            { fail "$name" "no /$pattern/ in $(tail_of "$file" 6)"; return; }
    done
    ok "$name"
}

family varied 'layers = 6;  hidden = 8;  vocab = 16;  dense = [0, 3]' '
    hyper { layers; hidden; vocab; dense = [] }
    embed = weight("embed.weight", [vocab, hidden])
    x = embedding(tokens, embed);  seen = zeros([hidden]);  dropped = zeros([3])
    repeat layers "layers.{i}" {
        narrow = contains(dense, i)
        when narrow { w = weight("narrow.weight", [hidden, hidden]);  x = x + linear(x, w) }
        when (not narrow) {
            up = weight("up.weight", [2 * hidden, hidden])
            down = weight("down.weight", [hidden, 2 * hidden])
            x = x + linear(gelu(linear(x, up)), down)
            seen = seen + sum(x, over = rows)
        }
        dropped = dropped + 1
        spare = x * 3
    }
    loss = cross_entropy(linear(x, embed), targets)
    metrics { seen = sum(seen) }'
dump varied varied.plan lower
has layers_that_differ varied.ir '^unit layers\.narrow loop="layers" count=2 variant="narrow"' \
    '^unit layers\.not_narrow loop="layers" count=4 variant="not_narrow"' \
    'body "narrow" keep="none" 0\.\.1 3\.\.4' 'body "not_narrow" keep="none" 1\.\.3 4\.\.6' \
    'tensor="layers\.\{i\}\.narrow\.weight".*unit="layers\.narrow"' '^  carry seen\.[0-9]+' \
    'metric\(.*name="seen"'
grep -qE 'dropped|spare' varied.ir &&
    fail unneeded_is_dropped "$(grep -E 'dropped|spare' varied.ir | head -n 2 | tr '\n' '|')" ||
    ok unneeded_is_dropped
for pass in gradient recompute memory; do
    dump varied.$pass varied.plan $pass && "$planc" dump --from varied.$pass.ir 2>&1 |
        cmp -s - varied.$pass.ir && ok layers_that_differ.$pass ||
        fail layers_that_differ.$pass "$(tail_of varied.$pass.err)"
done

family twice 'first = 2;  second = 3;  hidden = 8;  vocab = 16' '
    hyper { first; second; hidden; vocab }
    embed = weight("embed.weight", [vocab, hidden])
    x = embedding(tokens, embed)
    repeat first "a.{i}" { w = weight("w", [hidden, hidden]);  x = x + linear(x, w) }
    between = weight("between.weight", [hidden], init = ones)
    x = x * between
    repeat second "b.{i}" { w = weight("w", [hidden, hidden]);  x = x + linear(x, w) }
    loss = cross_entropy(linear(x, embed), targets)'
dump twice twice.plan lower
has two_repeats twice.ir '^region first\.forward .*count=2' '^region between\.forward .*run=once' \
    '^region second\.forward .*count=3' '^unit between ' '^region epilogue\.forward'

# ── what is refused, with the words that help ────────────────────────────────
# refuse NAME "WORD|WORD" SETTINGS BODY
refuse() {
    local name=$1 words=$2 word status
    family "$name" "$3" "$4"
    "$planc" check "$name.plan" >"$name.log" 2>&1
    status=$?
    [ $status -eq 1 ] || { fail "$name" "exit $status: $(tail_of "$name.log")"; return; }
    while IFS= read -r word; do
        grep -qF -- "$word" "$name.log" ||
            { fail "$name" "does not say '$word': $(tail_of "$name.log" 8)"; return; }
    done < <(tr '|' '\n' <<<"$words")
    ok "$name"
}
small='layers = 2;  hidden = 16;  vocab = 32'
head='    hyper { layers; hidden; vocab }
    embed = weight("embed.weight", [vocab, hidden])
    x = embedding(tokens, embed)'
layer='    repeat layers "l.{i}" { w = weight("w", [hidden, hidden]);  x = x + linear(x, w) }'
tail='    loss = cross_entropy(linear(x, embed), targets)'
refuse shape_mismatch '[16, 16] against [16, 48]|this weight, [16, 48]' "$small" "$head
    repeat layers \"l.{i}\" { w = weight(\"w\", [hidden, 3 * hidden]);  x = x + linear(x, w) }
$tail"
refuse heads_over_key_heads '8 query heads|3 key heads|heads is 8|key_value_heads is 3' \
    "$small;  heads = 8;  key_value_heads = 3" \
    "    hyper { layers; hidden; vocab; heads; key_value_heads }
    embed = weight(\"embed.weight\", [vocab, hidden])
    x = embedding(tokens, embed)
    repeat layers \"l.{i}\" {
        wq = weight(\"q\", [heads * 4, hidden]);  wk = weight(\"k\", [key_value_heads * 4, hidden])
        wo = weight(\"o\", [hidden, heads * 4])
        k = heads_of(linear(x, wk), 4)
        x = x + linear(merge_heads(attention(heads_of(linear(x, wq), 4), k, k)), wo)
    }
$tail"
refuse fraction_of_a_dimension '16/3|hidden is 16' "$small" "$head
    w = weight(\"w\", [hidden / 3, hidden])
$layer
$tail"
refuse dimension_of_nothing 'at least 1, this is 0' "$small" "$head
    w = weight(\"w\", [hidden - 16, hidden])
$layer
$tail"
refuse too_many_elements '63 bits' "$small" "$head
    w = weight(\"w\", [4000000000, 4000000000])
$layer
$tail"
refuse weight_that_trains_nothing "'dead' does not reach the loss" "$small" "$head
    dead = weight(\"dead\", [hidden])
    unread = x * dead
$layer
$tail"
refuse hyper_that_is_not_read "never reads its hyper-parameter 'spare'" "$small;  spare = 3" \
    "    hyper { layers; hidden; vocab; spare }
    embed = weight(\"embed.weight\", [vocab, hidden])
    x = embedding(tokens, embed)
$layer
$tail"
refuse weight_assigned_again "'embed' is a weight and stays one" "$small" "$head
    embed = x
$layer
$tail"
refuse hyper_assigned_again "'hidden' is a hyper-parameter" "$small" "$head
    hidden = 3
$layer
$tail"
refuse layer_number_as_a_value 'differs from layer to layer' "$small" "$head
    repeat layers \"l.{i}\" { w = weight(\"w\", [hidden, hidden]);  x = x + linear(x, w) * i }
$tail"
refuse local_name_behind_its_repeat "nothing here is called 'y'|first assigned inside a repeat" \
    "$small" "$head
    repeat layers \"l.{i}\" { w = weight(\"w\", [hidden, hidden]);  y = linear(x, w);  x = x + y }
    loss = cross_entropy(linear(y, embed), targets)"
refuse carried_in_another_shape 'carried from layer to layer as [16, 16]|[16, 32]' "$small" "$head
    repeat layers \"l.{i}\" { w = weight(\"w\", [2 * hidden, hidden]);  x = linear(x, w) }
$tail"
refuse no_place_for_the_layer 'has no {i}' "$small" "$head
    repeat layers \"l\" { w = weight(\"w\", [hidden, hidden]);  x = x + linear(x, w) }
$tail"
refuse stored_twice_with_numbers "two weights are stored as 'l.0.w'|the other one" "$small" "$head
    first = weight(\"l.0.w\", [hidden, hidden])
    x = x + linear(x, first)
$layer
$tail"
refuse stored_without_a_name "a tensor name must not be empty" "$small" "$head
    w = weight(\"\", [hidden, hidden])
    x = x + linear(x, w)
$tail"
refuse stored_as_metadata "'__metadata__' for something that is no tensor" "$small" "$head
    w = weight(\"__metadata__\", [hidden, hidden])
    x = x + linear(x, w)
$tail"
refuse stored_under_no_text "must be UTF-8 without control characters" "$small" "$head
    w = weight(\"a$(printf '\377')b\", [hidden, hidden])
    x = x + linear(x, w)
$tail"
refuse stored_twice "two weights are stored as 'embed.weight'" "$small" "$head
    other = weight(\"embed.weight\", [vocab, hidden])
    x = x + embedding(tokens, other)
$layer
$tail"
refuse requirement 'too wide|hidden is 16|batch.sequence is 8' "$small" "$head
    require (hidden <= batch.sequence) \"too wide\"
$layer
$tail"
refuse unknown_function "no function 'liner'|did you mean 'linear'" "$small" "$head
$layer
    x = liner(x, embed)
$tail"
refuse unknown_name "nothing here is called 'embd'|did you mean 'embed'" "$small" "$head
$layer
    loss = cross_entropy(linear(x, embd), targets)"
refuse condition_on_a_value 'decides when the plan is compiled' "$small" "$head
$layer
    x = sum(x) ? x : embed
$tail"
refuse no_loss "assigns no 'loss'" "$small" "$head
$layer"
refuse loss_of_many_numbers 'loss must be one number' "$small" "$head
$layer
    loss = linear(x, embed)"

# ── import ───────────────────────────────────────────────────────────────────
# import NAME FOLDER: into NAME.plan, the log beside it
import() { rm -f "$1.plan"; "$planc" import "$2" -o "$1.plan" >"$1.log" 2>&1; }
imported() { # NAME [settings]: the plan is whole
    local name=$1
    shift
    "$planc" check "$name.plan" "$@" >"$name.check" 2>&1 && ok "$name" ||
        fail "$name" "$(tail_of "$name.log") $(tail_of "$name.check")"
}
not_imported() { # NAME STATUS "WORD|WORD"
    local status=$? word
    [ $status -eq "$2" ] || { fail "$1" "exit $status: $(tail_of "$1.log")"; return; }
    [ ! -e "$1.plan" ] || { fail "$1" "refused and yet written"; return; }
    while IFS= read -r word; do
        grep -qF -- "$word" "$1.log" ||
            { fail "$1" "does not say '$word': $(tail_of "$1.log" 8)"; return; }
    done < <(tr '|' '\n' <<<"$3")
    [ "$2" -ne 4 ] || [ "$(grep -c '^planc:' "$1.log")" -eq 1 ] ||
        { fail "$1" "not one line: $(tail_of "$1.log")"; return; }
    ok "$1"
}
make="python3 $here/make_model.py"
$make whole && import whole whole
imported whole --set data.train=tokens.bin --set mesh.fsdp=2 --set batch.sequence=19
has whole_plan whole.plan 'layers = 2;  hidden = 24;  heads = 6;  kv_heads = 3' \
    'head_dim = 10;  ffn = 101;  vocab = 97' 'tied = on' 'rope_theta = 10000' 'rope_factor = 8' \
    'init \{ from = "'
$make sharded shards && import sharded sharded; imported sharded
$make \
    spelt_old \
    'rope_scaling={"type":"llama3","factor":8.0,"low_freq_factor":1,"high_freq_factor":4,"original_max_position_embeddings":64}' \
    && import spelt_old spelt_old
imported spelt_old
$make spelt_new '-rope_scaling' '-rope_theta' \
    'rope_parameters={"rope_type":"llama3","rope_theta":500000.0,"factor":8.0,"low_freq_factor":1,"high_freq_factor":4,"original_max_position_embeddings":64}' \
    &&
    import spelt_new spelt_new; imported spelt_new
has spelt_new_theta spelt_new.plan 'rope_theta = 500000' 'rope_factor = 8'
$make few -num_key_value_heads -head_dim -rope_theta -rms_norm_eps -tie_word_embeddings \
    -rope_scaling && import few few
imported few
has few_defaults few.plan 'norm_eps = 1e-6' 'tied = off' 'rope_theta = 10000'
mkdir -p bare && cp whole/config.json bare/ && import bare bare/config.json; imported bare
has bare_starts_from_a_seed bare.plan 'init \{ seed = 0 \}'
cp whole.plan first.plan && import whole whole && cmp -s first.plan whole.plan &&
    ok same_plan_twice || fail same_plan_twice "differs"

config_refused() { # NAME "WORD|WORD" KEY=VALUE...
    $make "$1" none "${@:3}" && import "$1" "$1"
    not_imported "$1" 1 "$2"
}
config_refused biased 'attention_bias = true' attention_bias=true
config_refused biased_mlp 'mlp_bias = true' mlp_bias=true
config_refused activated 'hidden_act = "gelu"' 'hidden_act="gelu"'
config_refused scaled 'type "longrope"|default, llama3, yarn' \
    'rope_scaling={"rope_type":"longrope","factor":4.0}'
config_refused scaled_partly 'lacks high_freq_factor' \
    'rope_scaling={"rope_type":"llama3","factor":8.0,"low_freq_factor":1,"original_max_position_embeddings":64}'
config_refused windowed 'sliding_window = 4096' sliding_window=4096
config_refused split 'pretraining_tp = 2' pretraining_tp=2
config_refused quantized quantization_config 'quantization_config={"bits":4}'
$make dropped none attention_dropout=0.1 && import dropped dropped
imported dropped
grep -qi 'warning.*dropout' dropped.log && ok dropped_is_told ||
    fail dropped_is_told "$(tail_of dropped.log)"
config_refused turned_partly 'partial_rotary_factor = 0.5' partial_rotary_factor=0.5
config_refused unknown_family 'model_type "bloom"|planc imports' 'model_type="bloom"'
config_refused other_class 'LlamaForSequenceClassification' \
    'architectures=["LlamaForSequenceClassification"]'
config_refused no_size 'lacks hidden_size' -hidden_size
config_refused all_at_once 'attention_bias|sliding_window|hidden_act' attention_bias=true \
    sliding_window=8 'hidden_act="relu"'
config_refused heads_apart '6 query heads|4 key heads' num_key_value_heads=4
mkdir -p no_json && echo '{"model_type": "llama",,}' >no_json/config.json && import no_json no_json
not_imported no_json 1 'not JSON'
import nowhere nowhere; not_imported nowhere 4 nowhere

weights_refused() { # NAME "WORD|WORD" KIND
    $make "$1" "$3" && import "$1" "$1"
    not_imported "$1" 4 "$2"
}
weights_refused tensor_missing "'model.norm.weight' is missing" missing
weights_refused tensor_extra "'model.surprise.weight' is stored" extra
weights_refused tensor_misshaped '[98, 24]|[97, 24]' misshaped
weights_refused tensor_truncated truncated truncated
weights_refused index_of_nothing 'lists tensor model.nowhere.weight|does not hold' index_lies
$make tensor_half half && import tensor_half tensor_half
imported tensor_half

# ── the command line ─────────────────────────────────────────────────────────
"$planc" dump tiny.plan --after lower --set model.layers=2 >two.ir 2>&1
"$planc" dump --from two.ir --pass gradient >two.gradient.ir 2>&1 &&
    "$planc" dump tiny.plan --after gradient --set model.layers=2 | cmp -s - two.gradient.ir &&
    ok pass_of_a_text || fail pass_of_a_text "$(tail_of two.gradient.ir)"
"$planc" dump --from two.ir --pass fuse >fuse.ir 2>&1 &&
    "$planc" dump tiny.plan --after fuse --set model.layers=2 | cmp -s - fuse.ir &&
    ok passes_up_to_one || fail passes_up_to_one "$(tail_of fuse.ir)"
for at in 18446744073709551615 0 -1; do # a shape that no array has
    sed -E "s/(reshape\\([^)]*\\) d0=[0-9]+ d1=)[0-9]+/\\1$at/" two.ir >shape.ir
    "$planc" dump --from shape.ir >shape.log 2>&1
    [ $? -eq 1 ] && grep -q 'line [0-9]*: reshape' shape.log || break
done
[ "$at" = -1 ] && grep -q 'line [0-9]*: reshape' shape.log && ok shape_of_a_text ||
    fail shape_of_a_text "$at: $(tail_of shape.log)"
"$planc" dump --from fuse.ir --pass gradient >back.log 2>&1
[ $? -ne 0 ] && grep -q "after 'fuse'" back.log && ok pass_that_is_past ||
    fail pass_that_is_past "$(tail_of back.log)"
rm -rf all && "$planc" dump tiny.plan --all all >all.log 2>&1 &&
    [ "$(ls all | tr '\n' ' ')" = \
    "00-lower.ir 01-join.ir 02-split.ir 03-gradient.ir 04-chunk.ir 05-optimizer.ir 06-recompute.ir 07-shard.ir 08-fuse.ir 09-schedule.ir 10-memory.ir " \
    ] && ok dump_all || fail dump_all "$(ls all 2>&1 | tr '\n' ' ')"

# ── what is kept in the place of a product's result, and what no kernel stores ─
# small NAME FAMILY HYPER [settings]: NAME.ir, laid out
small() {
    cat >"$1.plan" <<PLAN
use "models/$2.plan"
use "clusters/cpu.plan"
plan "$1" {
    model $2 { layers = 3;  hidden = 12;  heads = 2;  vocab = 11;  $3 }
    cluster cpu { }
    mesh { fsdp = 2 }
    batch { sequence = 5;  local = 2 }
}
PLAN
    dump "$1" "$1.plan" memory "${@:4}"
}
# without NAME FILE PATTERN...
without() {
    local name=$1 file=$2 pattern
    shift 2
    [ -s "$file" ] || { fail "$name" "$file is empty"; return; }
    for pattern in "$@"; do
        ! grep -qE -- "$pattern" "$file" ||
            { fail "$name" "/$pattern/: $(grep -m 1 -E -- "$pattern" "$file")"; return; }
    done
    ok "$name"
}
for type in fp32 bf16; do
    selective=(--set activation_checkpoint.mode=selective --set precision.compute=$type)
    full=(--set activation_checkpoint.mode=full --set precision.compute=$type)
    # attention reads columns of a product with a bias
    small columns gpt2 'context = 8' "${selective[@]}"
    has columns_kept.$type columns.ir '^buffer qkv_bias_[qkv] kind="saved"' \
        '^buffer qkv_proj_out kind="working"' '^buffer o_residual kind="saved"' \
        '^buffer o_proj_out kind="working"' '^buffer fc_proj_out kind="saved"'
    without columns_once.$type columns.ir '(slice\(.*|b_qkv\)|b_o\)) again' \
        '^kernel .*name="[^"]*(slice|_bias_again|residual_again)'
    # what the gradient of a norm has of its gain is made where it is read, and sums over the same
    # rows are made together
    without gain_apart.$type columns.ir '^buffer ln_2_grad_input'
    # the norm that one product reads is made again in the kernel of its gradient
    without norm_apart.$type columns.ir '^kernel .*name="ln_[12]_again"'
    sums=$(sed -nE 's/^ *grad\.(b_proj|ln_2|ln_2_bias|b_o):.*( kernel [0-9]+) .*/\2/p' columns.ir)
    [ "$(wc -l <<<"$sums") $(sort -u <<<"$sums" | wc -l)" = "4 1" ] && ok sums_together.$type ||
        fail sums_together.$type "$(tr '\n' ' ' <<<"$sums")"
    small columns_full gpt2 'context = 8' "${full[@]}"
    has columns_again.$type columns_full.ir '^kernel .*name="qkv_bias_again"'
    without columns_together.$type columns_full.ir '^kernel .*name="[^"]*slice'
    # a rotation is kept; the norm of a query needs what it is made of
    small turned llama 'ffn = 20' "${selective[@]}"
    has turned_kept.$type turned.ir '^buffer [qk]_rope kind="saved"' \
        '^buffer q_proj_out kind="working"'
    without turned_once.$type turned.ir 'rotate\(.* again'
    small normed qwen3 'ffn = 20;  head_dim = 6' "${selective[@]}"
    has normed_kept.$type normed.ir '^buffer q_proj_out kind="saved"' \
        '^buffer v_proj_out kind="saved"' '^buffer o_residual kind="saved"'
done
# what others read too is stored, and cut by another kernel
dump whole "$top/tests/architectures/columns.plan" memory
has read_whole whole.ir '^buffer both_q kind="saved"' '^buffer n_h kind="working"'
without read_in_parts whole.ir '^buffer both(\.[0-9]+)? '

# ── two products of one input are one, on cuda alone ─────────────────────────
# joint NAME PLAN EXPECTED [settings]: weights that hold two, results beside each other, products
joint() {
    dump "$1" "$2" fuse "${@:4}"
    local got
    got="$(grep -c '^weight .* beside=' "$1.ir") $(grep -c '= beside(' "$1.ir")"
    got+=" $(grep -cE '= (expert_)?matmul(_grad)?\(' "$1.ir")"
    [ "$got" = "$3" ] && ok "$1" || fail "$1" "$got: $(tail_of "$1.err")"
}
# pair NAME LAYER [settings of the plan]: two products of h, as LAYER uses them
pair() {
    cat >"$1.plan" <<PLAN
use "clusters/h100.plan"
architecture own {
    hyper { layers; hidden; vocab }
    embed = weight("embed.weight", [vocab, hidden])
    x = embedding(tokens, embed)
    repeat layers "layers.{i}" {
        a = weight("a.weight", [2 * hidden, hidden])
        b = weight("b.weight", [2 * hidden, hidden])
        c = weight("c.weight", [hidden, 2 * hidden])
        one = linear(x, a)
        $2
    }
    loss = cross_entropy(linear(x, embed), targets)
}
plan "pair" {
    model own { layers = 3;  hidden = 16;  vocab = 32 }
    cluster h100 { devices_per_node = 1 }
    precision { compute = bf16 }
    batch { sequence = 8;  local = 2 }
    ${3:-}
}
PLAN
}
pair gated 'x = x + linear(silu(one) * linear(x, b), c)'
joint joined gated.plan '1 1 9'
sed 's/h100/cpu/; s/{ devices_per_node = 1 }/{ }/' gated.plan >gated_cpu.plan
joint joined_not_on_cpu gated_cpu.plan '0 0 12'
grep '^weight w_a_b' joined.ir >joined.weight
has joined_weight joined.weight \
    '\[64,16\] tensor="layers..i..a.weight" stack=0 beside="layers..i..b.weight"'
"$planc" memory gated.plan --json >joined.memory 2>&1
has joined_ledger joined.memory 'a_b_proj_out: tokens 16 x \(2 x 2 x hidden\) 64'
pair kept 'x = x + linear(silu(one) * linear(x, b), c)' \
    'activation_checkpoint { mode = selective;  save = [one] }'
joint kept_by_name_stays_apart kept.plan '0 0 13'
pair heads 'x = x + linear(merge_heads(heads_of(one, 8)) * linear(x, b), c)'
joint read_as_heads_stays_apart heads.plan '0 0 12'
pair tied 'x = x + linear(silu(one) * linear(x, b), c) + linear(linear(x, b), c)'
joint used_twice_stays_apart tied.plan '0 0 18'
usage() { # NAME PATTERN words...
    "$planc" "${@:3}" >usage.log 2>&1
    local status=$?
    [ $status -eq 3 ] && [ "$(wc -l <usage.log)" -eq 1 ] && grep -qE -- "$2" usage.log &&
        ok "$1" || fail "$1" "exit $status: $(tail_of usage.log)"
}
usage misspelt_command "did you mean 'check'" chek tiny.plan
usage option_of_another "check has no option '--after'" check tiny.plan --after lower
usage option_without_value '--after wants a pass' dump tiny.plan --after
usage unknown_pass "no pass 'fuze'; did you mean 'fuse'" dump tiny.plan --after fuze
usage unknown_device "no device 'gpu'; --device of build is cpu, cuda or trace" build tiny.plan -o \
    gpu --device gpu
usage device_of_check "no device 'trace'; --device of check is cpu or cuda" check tiny.plan \
    --device trace
usage arch_of_cpu '--arch is of cuda devices, and this trainer is for cpu' build tiny.plan -o arch \
    --arch sm_90a
usage arch_misspelt "'90a' is no architecture such as sm_90a" build tiny.plan -o arch --device \
    cuda --arch sm_100a,90a
usage arch_twice "'sm_90a' is given twice" build tiny.plan -o arch --device cuda --arch \
    sm_90a,sm_90a
usage reference_of_trace 'this trainer is for trace' build tiny.plan -o reference --device trace \
    --reference
usage arch_too_old 'kernels need sm_80 or later' build tiny.plan -o arch --device cuda --arch sm_75
usage wrong_ranks 'runs on 2 ranks, not on 3' run tiny.plan -n 3

# Every family has the weight of a z-loss, and every mixture that of its routers.
lacking=$(cd "$top/plans/models" && grep -LE '\bz_loss = 0' *.plan
    grep -l 'route(' *.plan | xargs grep -L 'router_z_loss = 0')
[ -z "$lacking" ] && ok z_loss || fail z_loss "none in $lacking"

# ── values that a family divides by are refused at the user's line ───────────
printf 'use "models/gemma2.plan"\nuse "clusters/cpu.plan"\nplan "zero" {
    model gemma2 { layers = 2;  hidden = 32;  heads = 2;  head_dim = 16;  ffn = 64;  vocab = 256 }
    cluster cpu { }\n    batch { sequence = 16;  local = 1 }\n    optimizer adamw { lr = 1e-3 }
    schedule constant { steps = 2 }\n}\n' >zero.plan
for key in full_every query_width; do
    "$planc" check zero.plan --set "model.$key=0" >zero.log 2>&1
    [ $? -eq 1 ] && grep -q "model.$key=0" zero.log && ok "zero.$key" ||
        fail "zero.$key" "$(tail_of zero.log)"
done
