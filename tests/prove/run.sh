#!/usr/bin/env bash
# Laid-out schedules run over addresses: every reader must find the very value it means
# (prove.c). All kinds of plans are proved; then a proved text is broken by hand,
# one property at a time, and each break must be caught.
. "$(cd "$(dirname "$0")" && pwd)/../lib/common.sh"
[ "$BUILD" = build-sanitize ] &&
    flags="-fsanitize=address,undefined -fno-sanitize-recover=undefined"
objects=$(cd "$top" && ls compiler/*/*.c | grep -vE 'compiler/(commands|analysis|search|report)/' |
    sed "s,^,$top/$BUILD/,; s,c$,o,")
if ! cc -std=c17 -g -O1 -Wall -Wextra ${flags:-} -I "$top/compiler" "$top"/tests/prove/*.c \
    $objects "$top/$BUILD"/gen/*.o -o prove -ljansson -lm -ldl 2>build.err; then
    fail build "$(tail_of build.err)"
    exit 0
fi

# proved NAME FILE
proved() { local said; said=$(./prove "$2" 2>&1) && ok "$1" || fail "$1" "${said:-died}"; }
# caught NAME FILE PATTERN: the text must still be read, and be refused for the reason
caught() {
    local said
    if cmp -s "$2" whole.ir; then fail "$1" "nothing was broken"; return; fi
    if said=$(./prove "$2" 2>&1); then fail "$1" "went unnoticed"; return; fi
    grep -qE -- "$3" <<<"$said" && ok "$1" || fail "$1" "$said"
}

for text in "$top"/tests/ir/*.ir; do proved "$(basename "$text" .ir)" "$text"; done

cat >tiny.plan <<'P'
use "models/llama.plan"
use "clusters/cpu.plan"
plan "tiny" {
    model llama { layers = 5;  hidden = 32;  heads = 4;  kv_heads = 2;  ffn = 48;  vocab = 96 }
    cluster cpu { }
    mesh { fsdp = 2 }
    batch { sequence = 16;  local = 2 }
}
P
# point NAME --set …: the tiny plan at one point of the settings
point() {
    local name=$1
    shift
    "$planc" dump tiny.plan --after memory "$@" >"$name.ir" 2>"$name.err" &&
        proved "$name" "$name.ir" ||
        { [ -s "$name.err" ] && fail "$name" "$(tail_of "$name.err")"; }
}
for fsdp in 1 2 3 8; do for mode in none selective full; do
    point "fsdp$fsdp.$mode" --set "mesh.fsdp=$fsdp" --set "activation_checkpoint.mode=$mode"
done; done
for prefetch in 0 1 2 3 9; do for slots in 1 2 3; do
    point "prefetch$prefetch.slots$slots" --set "mesh.prefetch=$prefetch" --set \
        "mesh.reduce_slots=$slots"
done; done
# What one micro-batch leaves in slots for the next.
for prefetch in 0 1 2 3 4 9; do for vocab in 96 960; do
    point "micro.prefetch$prefetch.vocab$vocab" --set "mesh.prefetch=$prefetch" --set \
        batch.global=16 --set "model.vocab=$vocab"
done; done
for tied in on off; do for mode in selective full; do
    point "micro.tied_$tied.$mode" --set batch.global=16 --set "model.tied=$tied" --set \
        "activation_checkpoint.mode=$mode" --set batch.loss_chunks=2 --set mesh.prefetch=2
done; done
for layers in 1 2 3; do
    point "layers$layers.prefetch2" --set "model.layers=$layers" --set mesh.prefetch=2
done
for chunks in 2 4 32; do for tied in on off; do for fsdp in 1 2; do
    point "chunks$chunks.tied_$tied.fsdp$fsdp" --set "batch.loss_chunks=$chunks" --set \
        "model.tied=$tied" --set "mesh.fsdp=$fsdp"
done; done; done
for mode in backward step; do for fsdp in 2 8; do for tied in on off; do
    point "reshard_$mode.fsdp$fsdp.tied_$tied" --set "mesh.reshard=$mode" --set "mesh.fsdp=$fsdp" \
        --set "model.tied=$tied" --set batch.loss_chunks=2
done; done; done
point reshard_backward.prefetch0 --set mesh.reshard=backward --set mesh.prefetch=0
point reshard_step.prefetch9 --set mesh.reshard=step --set mesh.prefetch=9
point dp_accumulated --set mesh.dp=2 --set batch.global=16 --set model.tied=on
point bf16 --set precision.compute=bf16 --set mesh.fsdp=1
for reshard in forward step; do for fsdp in 1 2; do for global in 4 16; do for slots in 1 2; do
    point "all_$reshard.fsdp$fsdp.global$global.slots$slots" --set mesh.optimizer=all \
        --set mesh.dp=2 --set "mesh.fsdp=$fsdp" --set "batch.global=$((global * fsdp))" --set \
        "mesh.reduce_slots=$slots" --set "mesh.reshard=$reshard" --set model.tied=on
done; done; done; done
point every2 --set activation_checkpoint.mode=full --set activation_checkpoint.every=2
point some_layers --set activation_checkpoint.mode=selective --set \
    'activation_checkpoint.layers=[0, 3..4]' --set mesh.prefetch=2
"$planc" dump tiny.plan --after memory --fusion off >unfused.ir 2>/dev/null &&
    proved unfused unfused.ir || fail unfused "no dump"
for plan in "$top"/plans/*.plan; do
    name=$(basename "$plan" .plan)
    point=() # one of a plan that leaves keys open
    grep -qE '[0-9a-z] \| [0-9a-z]' "$plan" &&
        point=(--set mesh.fsdp=16 --set batch.local=2 --set activation_checkpoint.mode=selective)
    "$planc" dump "$plan" --after memory --set model.layers=3 "${point[@]}" >"$name.ir" \
        2>"$name.err" && proved "library.$name" "$name.ir" ||
        fail "library.$name" "$(tail_of "$name.err")"
done
# The bias of a router learns from counts, one row for all tokens: a gradient that nothing reads.
"$planc" dump "$top/plans/30b-a3b-16.plan" --after memory --set model.layers=3 --set \
    model.balance_bias=on --set model.balance_rate=0.01 >balanced.ir 2>balanced.err &&
    proved balanced balanced.ir || fail balanced "$(tail_of balanced.err)"

# Two loops: what runs ahead of the second is gathered in the first, in every micro-batch.
cat >loops.plan <<'P'
architecture two_loops {
    hyper { hidden;  vocab;  first = 2;  second = 3 }
    embed = weight("embed", [vocab, hidden], init = normal(0.02))
    x = embedding(tokens, embed)
    repeat first "a.{i}" {
        w = weight("w", [hidden, hidden], init = normal(0.02))
        x = x + linear(x, w)
    }
    repeat second "b.{i}" {
        v = weight("v", [hidden, hidden], init = normal(0.02))
        x = x + linear(x, v)
    }
    head = weight("head", [vocab, hidden], init = normal(0.02))
    ce = cross_entropy(linear(x, head), targets)
    loss = ce
    metrics { ce }
}
use "clusters/cpu.plan"
plan "two loops" {
    model two_loops { hidden = 16;  vocab = 32 }
    cluster cpu { }
    mesh { fsdp = 2 }
    batch { sequence = 8;  local = 2;  global = 8 }
}
P
for prefetch in 0 1 2 3 9; do for mode in none full; do
    "$planc" dump loops.plan --after memory --set "mesh.prefetch=$prefetch" --set \
        "activation_checkpoint.mode=$mode" >loops.ir 2>loops.err &&
        proved "loops.prefetch$prefetch.$mode" loops.ir || fail loops "$(tail_of loops.err)"
done; done

# ── broken by hand ──
cp fsdp2.none.ir whole.ir
offset() { grep -E "^buffer $1 " whole.ir | grep -oE 'offset=[0-9]+'; }
event() { grep -E "^    $1\(\) .*\"$2\"" whole.ir | grep -oE 'event=[0-9]+' | head -n 1; }
forward=$(event gather gather.layers.forward.layers)
slot=$(event reduce slot.layers.backward.layers)
saved=$(grep -E '^buffer .* kind="saved"' whole.ir | awk '{print $2}' | sed -n 2p)
other=$(grep -E '^buffer .* kind="saved"' whole.ir | awk '{print $2}' | sed -n 3p)
grep -vE "^    wait\(\) $forward .*all=0" whole.ir >no_gather_wait.ir
caught a_gather_nobody_waits_for no_gather_wait.ir 'read before event|never waited|still under way'
grep -vE "^    wait\(\) $slot " whole.ir >no_slot_wait.ir
caught a_slot_nobody_waits_for no_slot_wait.ir 'still under way|never waited'
sed -E "s/^(buffer $saved .*) offset=[0-9]+/\1 $(offset "$other")/" whole.ir >overlap.ir
caught two_in_one_place overlap.ir 'something else was written|written over what its kernel reads'
sed \
    -E \
    "/^buffer $saved /s/ entries=[0-9]+ stride=[0-9]+ index=\"i\"/ entries=1 stride=0 index=\"\"/" \
    whole.ir >one_entry.ir
caught one_entry_for_all_layers one_entry.ir 'something else was written'
sed -E '/^buffer .*index="n\+1"/s/index="n\+1"/index="n"/' whole.ir >ring.ir
caught a_ring_that_does_not_turn ring.ir \
    'something else was written|written over|nothing was written'
sed -E "/^    gather.*gather.layers.forward.layers.* shift=1/s/shift=1/shift=2/" whole.ir >shift.ir
caught a_layer_that_is_not_gathered shift.ir 'never gathered|something else was written|under way'
sed \
    -E \
    "s/^(buffer gather.layers.forward.layers .*) entries=2/\1 entries=1/; /^    gather.*gather.layers.forward.layers/s/ring=2/ring=1/" \
    whole.ir >short.ir
caught a_ring_one_entry_short short.ir 'something else was written|under way|read before event'
twice=$(event gather gather.layers.backward.layers)
sed -E "/^    gather.*gather.layers.backward.layers/s/$twice/$forward/" whole.ir >event.ir
caught an_event_of_two_owners event.ir \
    'recorded again|nobody has recorded|read before event|still under way'
sed -E "/^    gather.*gather.epilogue/d" whole.ir >no_gather.ir
caught a_wait_before_its_event no_gather.ir 'nobody has recorded|never gathered'
# Sums over replicas: two replicas, three layers.
"$planc" dump tiny.plan --after memory --set mesh.dp=2 --set batch.global=16 >whole.ir
summed=$(grep -E '^    reduce\(\) .*slot.layers.backward.layers' whole.ir |
    grep -oE 'summed=[0-9]+')
sed -E "/^    wait\(\) .*$summed/s/ $summed//" whole.ir >no_sum_wait.ir
caught a_sum_nobody_waits_for no_sum_wait.ir 'gradient of .* is read before event'
slot=$(event reduce slot.layers.backward.layers)
sed -E "/^    wait\(\) $slot .*$summed/s/$slot/event=999/" whole.ir >no_reduce_wait.ir
caught a_reduction_nobody_waits_for no_reduce_wait.ir 'gradient of .* is read before event'
sed -E "/^    reduce\(\) .*$summed/s/$summed/summed=${slot#event=}/" whole.ir >one_event.ir
caught an_event_of_a_slot_and_a_sum one_event.ir 'of a slot and of a sum'
# The embedding of the next micro-batch.
cp micro.prefetch1.vocab96.ir whole.ir
sed -E '/^    gather\(\) .* next=1/d' whole.ir >no_next.ir
caught no_gather_for_the_next no_next.ir 'nobody has recorded|something else was written'
sed -E '/^    gather\(\) .*gather.prologue/s/ once=1//' whole.ir >always.ir
caught a_gather_for_the_next_and_one_more always.ir 'recorded again|under way'
sed -E 's/ next=1//' whole.ir >too_late.ir
caught a_gather_for_a_step_that_has_other_weights too_late.ir 'never waited'
first=$(grep -E '^buffer gather.layers.forward.layers ' whole.ir | grep -oE ' offset=[0-9]+')
sed -E "s/^(buffer gather.prologue.forward.prologue .*) offset=[0-9]+/\1$first/" whole.ir >kept.ir
caught a_gather_over_what_is_kept kept.ir 'something else was written|under way'
# Parts of the replicas, one micro-batch: shards of gradients pass through a ring.
cp all_forward.fsdp2.global4.slots2.ir whole.ir
summed=$(grep -E '^    reduce\(\) .*slot.layers.backward.layers' whole.ir |
    grep -oE 'summed=[0-9]+')
sed -E "/^    wait\(\) .*$summed/s/ sums=2/ sums=1/" whole.ir >one_sum.ir
caught a_shard_nobody_waits_for one_sum.ir 'gradient of .* is read before event|never waited'
sed -E '/^    gather\(\) .*gather.layers.forward/s/ parts=1//' whole.ir >not_together.ir
caught a_shard_not_put_together not_together.ir 'before its shard was put together'
sed -E "s/^(buffer shards.layers .*) offset=[0-9]+/\1 $(offset "$(grep -E \
    '^buffer .* kind="working"' whole.ir | awk '{print $2}' | tail -n 1)")/" whole.ir >shards.ir
caught a_shard_over_what_is_read shards.ir 'something else was written|under way|written over'
cp fsdp2.none.ir whole.ir

# A result in the place of an operand that its kernel reads at other elements.
turned=$(sed -nE 's/^    d_k:.* = mul\(([a-z0-9_.]+), rope_sin\).*/\1/p' whole.ir)
made=$(sed -nE 's/^    ([a-z0-9_.]+):.* = add\(d_k[0-9.]*, d_k[0-9.]*\).*/\1/p' whole.ir |
    head -n 1)
there=$(grep -E "^buffer $turned " whole.ir | grep -oE 'segment=.* live_from')
sed -E "s/^(buffer $made .*)segment=.* live_from(.*)/\1$there\2 over=\"$turned\"/" whole.ir >over.ir
caught a_result_over_what_is_turned over.ir 'read at other elements'
sed -E "s/^(buffer $saved .*) offset=[0-9]+/\1 offset=999999999/" whole.ir >outside.ir
caught bytes_outside_the_segment outside.ir 'outside its segment'
