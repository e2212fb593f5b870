# Every family, in FP32 and BF16, with accumulation and shuffled data: a run that is cut and resumed
# against one that is not, to the last digit; in `make test-long` at every step and on meshes of 1
# to 8 ranks too. Sourced by run.sh.
family_plan() { # FAMILY "model keys" TYPE
    cat >"$1.$3.plan" <<PLAN
use "models/$1.plan"
use "clusters/cpu.plan"

plan "$1 to be resumed" {
    model $1 { $2 }
    cluster cpu { }
    mesh { fsdp = 2 }
    precision { compute = $3 }
    batch { sequence = 16;  local = 1;  global = 8 }
    optimizer adamw { lr = 2e-3 }
    schedule wsd { steps = 6;  warmup = 2;  decay = 2 }
    data { train = "tokens.bin";  format = uint16;  order = shuffled;  seed = 5 }
    checkpoint { every = 2;  directory = "unused" }
}
PLAN
}
# family FAMILY "model keys" TYPE: whole, then cut
family() {
    local name=$1.$3 cuts="3 6" k
    [ -n "${LONG:-}" ] && cuts="1 2 3 4 5 6"
    family_plan "$@"
    rm -rf "$name" "$name.a" "$name.b" "$name.jsonl"
    "$planc" build "$name.plan" -o "$name" --device cpu >"$name.build" 2>&1
    go "$name.whole" 2 "$name" --checkpoint-dir "$name.a" --metrics "$name.whole.jsonl" ||
        { fail "family.$name" "$(tail_of "$name.build") $(tail_of "$name.whole.log")"; return; }
    for k in $cuts; do
        go "$name.cut" 2 "$name" --checkpoint-dir "$name.b" --metrics "$name.jsonl" --steps "$k" ||
            { fail "family.$name" "$(tail_of "$name.cut.log")"; return; }
    done
    holds "family.$name" same "$name.whole.jsonl" "$name.jsonl"
    holds "family.$name.equal" equal "$name.a/step-00000006" "$name.b/step-00000006"
    [ -z "${LONG:-}" ] || family_meshes "$name" "$3"
}
# family_meshes NAME TYPE: three steps on two ranks, three on others
family_meshes() {
    local mesh fsdp dp
    [ "$2" = fp32 ] || return
    for mesh in 1.1 3.1 4.1 8.1 2.2 4.2 1.4; do
        fsdp=${mesh%.*} dp=${mesh#*.}
        local settings=(--set "mesh.fsdp=$fsdp" --set "mesh.dp=$dp" --set batch.local=1)
        [ "$fsdp" -eq 3 ] && continue # eight samples per step: the meshes of run.sh have three
        rm -rf "$1.mesh" "$1.m" && cp -r "$1.b" "$1.m" && rm -rf "$1.m"/step-0000000[56]
        "$planc" build "$1.plan" -o "$1.mesh" --device cpu "${settings[@]}" >"$1.build" 2>&1
        head -n 4 "$1.whole.jsonl" >"$1.m.jsonl"
        go "$1.mesh" $((fsdp * dp)) "$1.mesh" --checkpoint-dir "$1.m" --metrics "$1.m.jsonl" ||
            { fail "family.$1.$mesh" "$(tail_of "$1.mesh.log")"; continue; }
        holds "family.$1.$mesh" near "$1.whole.jsonl" "$1.m.jsonl" 1e-5
    done
}
common="layers = 2;  hidden = 24;  heads = 4;  vocab = 257"
moe="kv_heads = 2;  head_dim = 8;  experts = 5;  top_k = 2;  expert_width = 12
        balance_bias = on;  balance_rate = 0.01"
family qwen3_moe "$common;  $moe" bf16
family gpt2 "$common;  context = 16" fp32
if [ -n "${LONG:-}" ]; then
    family gpt2 "$common;  context = 16" bf16
    family qwen3_moe "$common;  $moe" fp32
    for type in fp32 bf16; do
        family llama "$common;  kv_heads = 2;  ffn = 40" $type
        family qwen3 "$common;  kv_heads = 2;  head_dim = 8;  ffn = 40" $type
        family mixtral "$common;  kv_heads = 2;  experts = 5;  top_k = 2;  ffn = 12" $type
    done
fi
