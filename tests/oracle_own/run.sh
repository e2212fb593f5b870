#!/usr/bin/env bash
# A llama of awkward sizes (heads 6 over 3, head_dim 10, ffn 101, vocab 97, sequence 19, tied, llama3 rope scaling), and
# masked, untied and BF16-stored siblings, against truth.c: an oracle of our own that is built and run here, so that the
# numbers can be checked with nothing but this repository.
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../lib/common.sh"
. "$top/tests/lib/training.sh"
cc -O2 -std=gnu17 -Wall -Wextra -o truth "$here/truth.c" -lm 2>truth.log || { fail truth "$(tail_of truth.log)"; exit 0; }

# The oracle itself, held against the reference where that is there: two implementations that share nothing.
if [ -e "$oracle/llama_tiny/expected.json" ]; then
    mkdir -p held && python3 "$here/raw.py" "$oracle/llama_tiny/model.safetensors" held/weights.raw &&
    ./truth held layers=2 hidden=64 heads=4 kv=2 head_dim=16 ffn=176 vocab=256 seq=32 global=8 steps=20 warmup=4 tied=0 lr=0.005 \
        factor=1 weights=held/weights.raw tokens="$oracle/llama_tiny/tokens.bin" &&
    why=$(python3 "$here/raw.py" --agree held/expected.json "$oracle/llama_tiny/expected.json") && ok truth=reference || fail truth=reference "$why"
else
    skip truth=reference "there is no ../shared/oracle/llama_tiny"
fi

# train NAME "TRUTH KEYS" "EXTRA SETTINGS" VARIANT...
train() {
    local name=$1 keys=$2 extra=$3 variant why
    shift 3
    mkdir -p "$scratch/$name/case" && cd "$scratch/$name" || return
    # shellcheck disable=SC2086
    if ! why=$("$scratch/truth" case $keys 2>&1); then fail "$name" "$why"; return; fi
    if ! "$planc" import case -o case.plan >import.log 2>&1; then fail "$name.import" "$(tail_of import.log)"; return; fi
    numbers recipe "$PWD/case" >settings
    # shellcheck disable=SC2086
    [ -z "$extra" ] || printf '%s\n' $extra >>settings
    build_all case.plan 8 settings "$@"
    for variant in "$@"; do
        if ! why=$(variant_run "$variant"); then fail "$name.$variant" "$why"; continue; fi
        why=$(numbers expect case "$variant.jsonl" --final "$variant.safetensors" --probe "$variant.probe") && ok "$name.$variant" || fail "$name.$variant" "$why"
    done
}
equal() { variants_equal "$1 $2=$3" "$2" "$3"; }

train odd "" "" 1.1.1.none.on 1.1.2.full.on 1.1.1.none.off 1.1.1.full.on 2.1.1.none.on 2.1.2.full.on 4.1.1.full.on 2.2.2.none.on 8.1.1.none.on
equal odd 1.1.1.none.on 1.1.1.none.off
equal odd 1.1.1.none.on 1.1.1.full.on
# Other shapes: untied, one kv head, no scaling, three layers; weights stored as BF16 for every other tensor.
train plain "tied=0 kv=1 factor=1 layers=3 bf16=1 seed=2 vocab=257" "" 1.1.1.none.on 2.1.1.full.on 4.1.1.none.on 8.1.1.none.on
# Valid targets that differ between samples, ranks and micro-batches: one mean over all of them.
train masked "mask=1 ignore=0 seed=3" "" 1.1.1.none.on 1.1.8.none.on 2.1.4.none.on 1.2.2.full.on 4.1.2.none.on
# A whole step without targets is a step with gradient zero; ranks without targets weigh nothing.
train masked_step "mask=2 ignore=0 seed=4" "" 1.1.1.none.on 2.1.2.none.on
train masked_rank "mask=3 ignore=0 seed=5" "" 1.1.1.none.on 2.1.1.none.on 1.2.1.none.on
# One layer, where first, middle and last are the same; five, where prefetch has room.
train one_layer "layers=1 seed=6" "" 1.1.1.full.on 2.1.1.none.on
train five_layers "layers=5 seed=7" "--set mesh.prefetch=2" 2.1.1.full.on 2.2.1.none.on
train no_prefetch "layers=3 seed=8" "--set mesh.prefetch=0" 2.1.2.full.on
