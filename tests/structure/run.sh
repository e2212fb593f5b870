#!/usr/bin/env bash
# The shape of what the compiler makes, not its numbers: texts that do not grow with the number of
# layers, dumps that read back to the same bytes, gathers that run ahead of the layers that need
# them, what a checkpointing mode keeps, how many kernels fusion saves, includes that only point
# downward, and the layout of sources.
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../lib/common.sh"
. "$top/tests/lib/training.sh"
why=$(python3 "$here/layers.py" "$top" "$top/$BUILD") && ok layers ||
    fail layers "$(tr '\n' ';' <<<"$why")"
why=$(python3 "$here/columns.py" "$top") && ok columns || fail columns "$(tr '\n' ';' <<<"$why")"
if command -v clang-format >/dev/null; then
    why=$(cd "$top" && find compiler runtime templates tests -name '*.[ch]' -o -name '*.cc' -o \
        -name '*.cu' -o -name '*.cuh' | xargs clang-format --dry-run --Werror 2>&1 |
        grep -m 5 'error:')
    [ -z "$why" ] && ok clang_format || fail clang_format "$(tr '\n' ';' <<<"$why")"
else
    skip clang_format "clang-format is not installed"
fi

cat >shape.plan <<'PLAN'
use "models/llama.plan"
use "clusters/cpu.plan"

plan "shape" {
    model llama { layers = 2;  hidden = 64;  heads = 4;  kv_heads = 2;  ffn = 176;  vocab = 256 }
    cluster cpu { }
    mesh { fsdp = 4 }
    batch { sequence = 32;  local = 2 }
    schedule constant { steps = 2 }
    data { train = "tokens.bin";  format = uint16 }
}
PLAN
python3 "$here/../faults/make.py" tokens tokens.bin 1025 256

# The passes, from the compiler itself: a new one is under test from the day it exists.
rm -rf all && "$planc" dump shape.plan --all all >all.log 2>&1
mapfile -t passes < <(ls all | sed -E 's/^[0-9]+-//; s/\.ir$//')
[ ${#passes[@]} -ge 8 ] && ok passes || fail passes "only '${passes[*]}': $(tail_of all.log)"

# ── the same text for 2 and for 48 layers, after every pass and in schedule.c ─
without_numbers() { sed -E 's/[0-9]+(\.[0-9]+)?(e[+-]?[0-9]+)?/N/g' "$1"; }
for mode in none full; do
    for fsdp in 1 4; do
        case_name=$mode.fsdp$fsdp
        common=(--set "activation_checkpoint.mode=$mode" --set "mesh.fsdp=$fsdp")
        for pass in "${passes[@]}"; do
            for layers in 2 48; do
                "$planc" dump shape.plan --after "$pass" "${common[@]}" --set \
                    "model.layers=$layers" >"$case_name.$pass.$layers.ir" \
                    2>"$case_name.$pass.$layers.err" ||
                    { fail "dump.$case_name.$pass.$layers" \
                    "$(tail_of "$case_name.$pass.$layers.err")"; continue 2; }
            done
            if diff <(without_numbers "$case_name.$pass.2.ir") \
                <(without_numbers "$case_name.$pass.48.ir") >"$case_name.$pass.diff"; then
                ok "rolled.$case_name.$pass"
            else fail "rolled.$case_name.$pass" "$(tail_of "$case_name.$pass.diff" 4)"; fi
            # Read back: the same bytes; and the next pass over the text gives what the pipeline
            # gave.
            for layers in 2 48; do
                if "$planc" dump --from "$case_name.$pass.$layers.ir" \
                    2>"$case_name.$pass.back.err" | cmp -s - "$case_name.$pass.$layers.ir"; then
                    ok "read_back.$case_name.$pass.$layers"
                else
                    fail "read_back.$case_name.$pass.$layers" \
                        "$(tail_of "$case_name.$pass.back.err")"
                fi
            done
        done
        for i in $(seq $((${#passes[@]} - 1))); do
            from=$case_name.${passes[$((i - 1))]}.2.ir
            if "$planc" dump --from "$from" --pass "${passes[$i]}" 2>pass.err |
                cmp -s - "$case_name.${passes[$i]}.2.ir"; then
                ok "pass.$case_name.${passes[$i]}"
            else fail "pass.$case_name.${passes[$i]}" "$(tail_of pass.err)"; fi
        done
    done
    for layers in 2 48; do
        "$planc" build shape.plan -o "trace.$mode.$layers" --device trace --set \
            "activation_checkpoint.mode=$mode" --set "model.layers=$layers" \
            >"trace.$mode.$layers.build" 2>&1 ||
            fail "build.trace.$mode.$layers" "$(tail_of "trace.$mode.$layers.build")"
    done
    if diff <(without_numbers "trace.$mode.2/schedule.c") \
        <(without_numbers "trace.$mode.48/schedule.c") >"schedule.$mode.diff" 2>&1; then
        ok "rolled.schedule_c.$mode"
    else fail "rolled.schedule_c.$mode" "$(tail_of "schedule.$mode.diff" 4)"; fi
done

# The same for plans that nobody writes: every text is complete, whatever an earlier pass made and
# dropped again.
cat >unusual.plan <<'PLAN'
use "models/qwen3_moe.plan"
use "clusters/cpu.plan"

plan "unusual" {
    model qwen3_moe { layers = 3;  hidden = 24;  heads = 6;  kv_heads = 3;  head_dim = 10
                      vocab = 97;  experts = 5;  top_k = 2;  expert_width = 13
                      dense_layers = [1];  ffn = 29 }
    cluster cpu { }
    batch { sequence = 19;  local = 2 }
    data { train = "tokens.bin";  format = uint16 }
}
PLAN
number=0
while read settings; do # without -r: \ joins lines
    number=$((number + 1)) words=() why=
    for word in $settings; do words+=(--set "$word"); done
    rm -rf unusual
    if "$planc" dump unusual.plan --all unusual "${words[@]}" 2>unusual.err; then
        before=
        for text in unusual/*.ir; do
            pass=$(basename "$text" .ir | cut -d- -f2)
            "$planc" dump --from "$text" 2>>unusual.err | cmp -s - "$text" ||
                why="$why, $pass read back"
            [ -z "$before" ] || "$planc" dump --from "$before" --pass "$pass" 2>>unusual.err |
                cmp -s - "$text" || why="$why, $pass over a text"
            before=$text
        done
    else
        why=", refused"
    fi
    [ -z "$why" ] && ok "unusual_$number" ||
        fail "unusual_$number" "$settings: ${why#, } $(tail_of unusual.err)"
done <<'SETTINGS'
model.layers=1 model.dense_layers=[]
precision.compute=bf16 mesh.fsdp=4 mesh.dp=3
optimizer.clip=off data.ignore=0
model.dense_layers=[] mesh.fsdp=2 mesh.prefetch=3 mesh.reduce_slots=1
activation_checkpoint.mode=selective activation_checkpoint.save=[attention] \
precision.compute=bf16 mesh.dp=2
activation_checkpoint.mode=full activation_checkpoint.every=2 \
batch.loss_chunks=19 mesh.fsdp=3 mesh.prefetch=0
activation_checkpoint.mode=full activation_checkpoint.layers=[0,2] \
batch.loss_chunks=2 precision.compute=bf16 batch.global=8
SETTINGS

# A text that breaks a rule is refused, not believed.
sed 's/^  *x[^ ]* = add(/    x.wrong:f32[3,3] = add(/' none.fsdp1.lower.2.ir >broken.ir
"$planc" dump --from broken.ir >broken.log 2>&1
[ $? -ne 0 ] && ok broken_text_refused || fail broken_text_refused "accepted"

# ── building twice gives the same bytes ──────────────────────────────────────
"$planc" build shape.plan -o twice.a --device cpu >twice.log 2>&1 &&
    "$planc" build shape.plan -o twice.b --device cpu >>twice.log 2>&1
if [ -e twice.a/schedule.c ] && for f in schedule.c kernels.c program.c plan.json; do
    cmp -s "twice.a/$f" "twice.b/$f" || exit 1
done; then
    ok same_bytes_twice
else fail same_bytes_twice "$(tail_of twice.log)"; fi

# A kept object that a full disk cut short is compiled again.
(
    export XDG_CACHE_HOME=$scratch/kept
    rm -rf kept
    "$planc" build shape.plan -o kept.a --device cpu >kept.log 2>&1
    for object in kept/planc/*.o; do truncate -s 1000 "$object"; done
    "$planc" build shape.plan -o kept.a --device cpu >>kept.log 2>&1 &&
        [ "$(stat -c %s "$object")" -gt 1000 ]
) && ok kept_object_cut_short || fail kept_object_cut_short "$(tail_of kept.log)"
# Two builds in one folder wait for each other: what comes out is one of the two, not half of each.
for layers in 2 3; do
    "$planc" build shape.plan -o one_folder --device trace --set model.layers=$layers \
        >one_folder.$layers.log 2>&1 & done
wait
made=$(sed -nE 's/.*"layers": ([0-9]+).*/\1/p' one_folder/plan.json | head -n 1)
"$planc" build shape.plan -o one_folder.alone --device trace --set "model.layers=$made" \
    >one_folder.log 2>&1
if cmp -s <(one_folder/trainer --steps 1 2>&1) <(one_folder.alone/trainer --steps 1 2>&1); then
    ok one_folder
else
    fail one_folder "the trainer is not that of $made layers"
fi

# ── a large plan is checked; how long it takes is said, not tested ───────────
large=("$top/plans/llama-8b.plan" --set model.layers=48 --set cluster.nodes=64)
start=$(date +%s%N)
"$planc" check "${large[@]}" >large.log 2>&1
status=$?
echo "note check of llama-8b, 48 layers, 512 devices: $((($(date +%s%N) - start) / 1000)) us"
[ $status -eq 0 ] || [ $status -eq 2 ] && ok check_512 ||
    fail check_512 "exit $status: $(tail_of large.log)"

# ── gathers run ahead ────────────────────────────────────────────────────────
for prefetch in 1 0; do
    dir=trace.prefetch$prefetch
    if "$planc" build shape.plan -o $dir --device trace --set mesh.prefetch=$prefetch --set \
        model.layers=4 >$dir.build 2>&1 &&
        "$dir/trainer" --steps 1 >$dir.txt 2>$dir.err; then
        why=$(python3 "$here/trace.py" overlap $dir.txt $prefetch) && ok prefetch_$prefetch ||
            fail prefetch_$prefetch "$why"
    else
        fail prefetch_$prefetch "$(tail_of $dir.build) $(tail_of $dir.err)"
    fi
done

# ── what a mode keeps ────────────────────────────────────────────────────────
# mode full: of each layer only its input, tokens x hidden x 4 bytes; the rest is computed again,
# visibly.
tokens=64 hidden=64
why=$(python3 "$here/trace.py" saved full.fsdp4.memory.48.ir $((tokens * hidden * 4))) &&
    ok full_saves_one_input || fail full_saves_one_input "$why"
again=$(grep -cE ' again( |$)' full.fsdp4.recompute.2.ir)
[ "$again" -gt 10 ] && ok full_recomputes_visibly ||
    fail full_recomputes_visibly "$again nodes are marked again"
grep -E ' again( |$)' full.fsdp4.recompute.2.ir | grep -q 'attention(' &&
    ok full_recomputes_attention || fail full_recomputes_attention "no attention among them"

# mode none: no more than a hand-written trainer keeps, for every family, in both element types.
kept() { # FAMILY "hyper-parameters" "numbers of kept.py"
    local why compute bytes
    printf \
        'use "models/%s.plan"\nuse "clusters/cpu.plan"\nplan "kept" {\n    model %s { layers = 5;  %s }\n    cluster cpu { }\n    batch { sequence = 32;  local = 4 }\n}\n' \
        \
        "$1" "$1" "$2" >"kept_$1.plan"
    for compute in fp32 bf16; do
        bytes=$([ $compute = fp32 ] && echo 4 || echo 2)
        "$planc" dump "kept_$1.plan" --after memory --set "precision.compute=$compute" \
            >"kept_$1.ir" 2>"kept_$1.err" &&
            why=$(python3 "$here/kept.py" "kept_$1.ir" 128 5 $bytes $3) &&
            ok "kept_$1.$compute" || fail "kept_$1.$compute" "$why $(tail_of "kept_$1.err")"
    done
}
kept llama 'hidden = 64;  heads = 4;  kv_heads = 2;  head_dim = 24;  ffn = 90;  vocab = 61' \
    'h=64 D=96 K=48 heads=4 f=90 products=2'
kept gpt2 'hidden = 64;  heads = 4;  ffn = 90;  vocab = 61;  context = 32' \
    'h=64 D=64 K=64 heads=4 f=90 products=1'
kept qwen3 'hidden = 64;  heads = 4;  kv_heads = 2;  head_dim = 24;  ffn = 90;  vocab = 61' \
    'h=64 D=96 K=48 heads=4 f=90 products=2 qk=1'
kept \
    qwen3_moe \
    'hidden = 64;  heads = 4;  kv_heads = 2;  head_dim = 24;  experts = 6;  top_k = 3;  expert_width = 34;  vocab = 61' \
    \
    'h=64 D=96 K=48 heads=4 E=6 k=3 e=34 qk=1'
kept \
    mixtral \
    'hidden = 64;  heads = 4;  kv_heads = 2;  experts = 6;  top_k = 2;  ffn = 90;  vocab = 61' \
    'h=64 D=64 K=32 heads=4 E=6 k=2 e=90'

# ── fusion halves the kernels ────────────────────────────────────────────────
"$planc" dump shape.plan --after fuse --fusion off >fuse_off.ir 2>fuse_off.err ||
    "$planc" build shape.plan -o fuse_off --fusion off >fuse_off.build 2>&1
on=$(grep -c '^kernel ' none.fsdp4.fuse.2.ir) off=$(grep -c '^kernel ' fuse_off.ir)
if [ "$off" -gt 0 ] && [ $((on * 2)) -le "$off" ]; then
    ok fusion_halves_kernels
    echo "note kernels: $on fused, $off one an op"
else fail fusion_halves_kernels "$on with fusion, $off without"; fi

# ── kernels are named after layer and role ───────────────────────────────────
# Not after a value of the IR: a number in a name is only ever the second of its kind. Names are
# unique (verify).
named() { # NAME FILE.ir kernels that must be there…
    local want missing=
    for want in "${@:3}"; do
        grep -q "^kernel [0-9]* name=\"$want\"" "$2" || missing="$missing $want"
    done
    grep -oE '^kernel [0-9]+ name="(d|h|x)_[0-9]+"' "$2" | head -n 1 >"$1.bad"
    if [ -z "$missing" ] && [ ! -s "$1.bad" ]; then
        ok "$1"
    else
        fail "$1" "missing:$missing; $(cat "$1.bad")"
    fi
}
named names.none none.fsdp4.fuse.2.ir embedding attn_norm q_proj q_rope attention o_proj \
    residual_ffn_norm gate_proj gate_up_silu \
    down_residual final_norm lm_head lm_head_loss_and_grad lm_head_grad_input lm_head_grad_weight \
    final_norm_grad \
    down_proj_grad_input down_proj_grad_weight gate_up_silu_grad ffn_norm_grad attention_grad \
    q_rope_grad embedding_grad clip update_layers
named names.full full.fsdp4.fuse.2.ir attn_norm_again attention_again q_proj_again gate_up_silu_grad
named names.mixture unusual/*-fuse.ir sparse_attn_norm sparse_q_norm_rope sparse_router_softmax \
    sparse_gate_experts sparse_gate_experts_grad_weight not_sparse_gate_proj
# --profile, --trace and the watchdog read the same name.
grep -q '{"layers.backward", "attn_norm_grad", false}' trace.none.2/program.c &&
    grep -q 'k_attn_norm_grad = {"attn_norm_grad"' trace.none.2/kernels.c &&
    ok names.program || fail names.program "attn_norm_grad is not in program.c and kernels.c"
