#!/usr/bin/env bash
# Architectures drawn at random from the language (draw.py) compile, or are refused with a place:
# for both devices, with and without pieces of the loss, under every checkpointing mode and several
# meshes, in both element types; and what is laid out is proved. Seeds are fixed, so a failure is
# there again the next time. A few are trained: checkpointing must not change a bit of what comes
# out, and shards and pieces no more than the order of sums does.
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../lib/common.sh"
. "$here/harness.sh"
count=$([ -n "${LONG:-}" ] && echo 5000 || echo 300)
trained=$([ -n "${LONG:-}" ] && echo 40 || echo 2)
harness || { fail harness "does not build: $(tail_of compile.err)"; exit 0; }
if drawn 1 "$count"; then
    fine=$(grep -c '^fine ' said)
    refused=$(grep -c '^refused ' said)
    echo "note drawn: $fine compiled, $refused refused"
    if grep -q '^FAIL' said; then
        fail drawn "$(grep -c '^FAIL' said) of $((2 * count)): $(grep '^FAIL' said | head -2 |
            cut -c1-300 | tr '\n' '|')"
    elif [ "$fine" -lt $((2 * count * 6 / 10)) ]; then
        fail drawn "only $fine of $((2 * count)) are accepted"
    else ok drawn; fi
else
    fail drawn "status $?"
fi

# The gradients of the same architectures against differences of the loss, in double precision.
if derived; then
    fine=$(grep -c '^fine ' slopes)
    if grep -q '^FAIL' slopes; then
        fail derived "$(grep -c '^FAIL' slopes): $(grep '^FAIL' slopes | head -2 | tr '\n' '|')"
    elif [ "$fine" -lt "$count" ]; then fail derived "only $fine of $((2 * count)) can be compared"
    else ok derived; fi
else
    fail derived "status $?"
fi

# What cannot be tried, a repair or a point of a space, is not possible; it never ends the program.
answered=0 wrong=
for seed in $(seq 1 30); do
    sed 's/outside = 1MiB/&;  memory = 2MiB/' "plans/$seed.plan" >small.plan
    for words in small.plan \
        "plans/$seed.plan --set batch.loss_chunks=1|2 --set batch.local=2|4|8"; do
        # shellcheck disable=SC2086
        "$planc" check $words >check.log 2>&1
        status=$?
        [ $status -le 2 ] && answered=$((answered + 1)) ||
            wrong+="$seed: status $status: $(tail_of check.log 1) "
    done
done
[ $answered -eq 60 ] && ok repairs_and_points || fail repairs_and_points "$wrong"

# What shape rules meet at their edges, one plan each.
for plan in "$here"/*.plan; do
    name=$(basename "$plan" .plan)
    ./compile "$plan" >"$name.said" 2>&1
    grep -q '^FAIL' "$name.said" || ! grep -q '^fine' "$name.said" &&
        fail "$name" "$(tail_of "$name.said")" || ok "$name"
done

# ── trained ───────────────────────────────────────────────────────────────────
head -c 20000 /dev/urandom >text.bin
# train NAME RANKS PLAN [settings]: two steps; NAME.jsonl and NAME.safetensors.
train() {
    local name=$1 ranks=$2 plan=$3
    shift 3
    "$planc" build "$plan" -o "$name.out" "$@" >"$name.log" 2>&1 &&
        launch "$ranks" "$scratch/$name.out" --metrics "$name.jsonl" --final "$name.safetensors" \
        >>"$name.log" 2>&1
}
near='
import json, sys
a, b = ([json.loads(line) for line in open(f)] for f in sys.argv[1:3])
a, b = ([(x["loss"], x["grad_norm"]) for x in y if "loss" in x] for y in (a, b))
assert len(a) == len(b) == 2, (len(a), len(b))
for x, y in zip(a, b):
    for p, q in zip(x, y):
        assert abs(p - q) <= 2e-4 * max(1, abs(p)), (a, b)
'
tried=0
for seed in $(seq 1 1000); do
    [ "$tried" -lt "$trained" ] || break
    mkdir -p training && python3 "$here/draw.py" training "$seed" 1 "$scratch/text.bin" || exit 1
    plan=training/$seed.plan
    grep -q 'repeat n_' "$plan" && grep -q 'cross_entropy' "$plan" || continue
    settings=(--set batch.global=8 --set precision.compute=fp32)
    "$planc" check "$plan" "${settings[@]}" --set batch.loss_chunks=2 --set mesh.fsdp=2 >/dev/null \
        2>&1 || continue
    tried=$((tried + 1))
    if ! train none 1 "$plan" "${settings[@]}" ||
        ! train full 1 "$plan" "${settings[@]}" --set activation_checkpoint.mode=full ||
        ! train shards 2 "$plan" "${settings[@]}" --set mesh.fsdp=2 --set batch.loss_chunks=2; then
        fail "trained.$seed" "$(tail_of none.log 2) $(tail_of full.log 2) $(tail_of shards.log 2)"
    elif ! cmp -s none.safetensors full.safetensors; then
        fail "trained.$seed" "checkpointing changes what is trained"
    elif ! why=$(python3 -c "$near" none.jsonl shards.jsonl 2>&1); then
        fail "trained.$seed" "$(tail -n 1 <<<"$why")"
    else ok "trained.$seed"; fi
done
