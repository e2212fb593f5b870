# What is refused, what is allowed key by key, and what is offered instead. Sourced by run.sh;
# trainer: two (steps 12, every 4, keep 2), whole.jsonl and whole.safetensors
# are its uninterrupted run, `saved` its folder.
copy() { rm -rf "$1" && cp -r saved "$1"; }

# ── other plans ──────────────────────────────────────────────────────────────
build longer --set schedule.steps=16
copy other
says plan.steps 4 "schedule.steps was 12 and is 16.*--allow schedule.steps goes on" 2 longer \
    --checkpoint-dir other
says plan.allowed 0 '^resumed: step 12' 2 longer --checkpoint-dir other --allow schedule.steps
build else --set optimizer.lr=2e-3 --set data.seed=3 --set init.seed=4
says plan.several 4 \
    'optimizer.lr was 0.001 and is 0.002.*data.seed was 0 and is 3.*init.seed was 0 and is 4' \
    2 else --checkpoint-dir saved
says plan.some 4 'another plan: data.seed was 0 and is 3, init.seed' 2 else --checkpoint-dir saved \
    --allow optimizer.lr
says plan.unknown_key 4 "allow optimizer.rate: neither" 2 two --checkpoint-dir saved \
    --allow optimizer.rate
build wider --set model.ffn=80
says plan.sizes 4 'model.ffn was 64 and is 80' 2 wider --checkpoint-dir saved
says plan.sizes_allowed 4 'tensor model.layers.0.mlp.* is \[' 2 wider --checkpoint-dir saved \
    --allow model.ffn
sed 's/lr = 1e-3 }/lr = 1e-3;  weights "*norm*" { weight_decay = 0.5 } }/' run.plan \
    >grouped.plan && rm -rf grouped && "$planc" build grouped.plan -o grouped >grouped.build 2>&1
says plan.groups 4 'optimizer.weights.0. was not known and is ...norm.*0.5' 2 grouped \
    --checkpoint-dir saved
sed 's/eps = norm_eps)$/& # as before/' "$top/plans/models/llama.plan" >same_family.plan
sed 's/ffn_norm, eps = norm_eps/ffn_norm, eps = 2 * norm_eps/' "$top/plans/models/llama.plan" \
    >other_family.plan
for family in same other; do
    sed "s#models/llama.plan#${family}_family.plan#" run.plan >"$family.plan"
    rm -rf "family_$family" && "$planc" build "$family.plan" -o "family_$family" \
        >"family_$family.build" 2>&1 || fail "family.$family" "$(tail_of "family_$family.build")"
done
says plan.family_with_comments 0 'nothing is left to do' 2 family_same --checkpoint-dir saved
if cmp -s "$top/plans/models/llama.plan" other_family.plan; then
    fail plan.family "the test changes nothing"
else says plan.family 4 'model.architecture was' 2 family_other --checkpoint-dir saved; fi

# Figures of a machine are no mathematics.
sed 's/cluster cpu { }/cluster cpu { host { launch = 2us }  contention { core = 0.1 } }/' run.plan \
    >elsewhere.plan
rm -rf elsewhere && "$planc" build elsewhere.plan -o elsewhere >elsewhere.build 2>&1
says plan.cluster 0 'with another plan: .*cluster.host.launch was' 2 elsewhere \
    --checkpoint-dir saved

# `planc diff` says it beforehand.
# diff_says NAME PATTERN [settings of B]
diff_says() {
    sed "s#\"tokens.bin\"#\"$scratch/tokens.bin\"#" run.plan >diff_b.plan
    sed -i "$3" diff_b.plan
    "$planc" diff run.plan diff_b.plan >"$1.log" 2>&1
    grep -qE "$2" "$1.log" && ok "$1" || fail "$1" "$(tail_of "$1.log" 6)"
}
diff_says diff.refused 'refused schedule.steps: 12 in A, 16 in B' 's/steps = 12/steps = 16/'
diff_says diff.mesh 'a checkpoint of A resumes under B' \
    's/fsdp = 2/fsdp = 4/; s/local = 2/local = 1/'

# The copy that a checkpoint is written from is held against the memory of a host.
host() { # NAME STATUS PATTERN [settings]
    local status
    "$planc" check "$top/plans/llama-8b.plan" --set checkpoint.directory=x "${@:4}" >"$1.log" 2>&1
    status=$?
    [ $status -eq "$2" ] && grep -qE "$3" "$1.log" && ok "$1" ||
        fail "$1" "exit $status: $(tail_of "$1.log")"
}
host host.fits 0 'host +1.575 GiB'
host host.exceeds 2 'async = off' --set cluster.host_memory=1GiB
host host.none 0 'fits' --set cluster.host_memory=1GiB --set checkpoint.async=off

# ── other data ───────────────────────────────────────────────────────────────
cp tokens.bin kept.bin
printf '\1' | dd of=tokens.bin bs=1 seek=1000 conv=notrunc 2>dd.log
says data.changed 4 'data.train held 1601 tokens.*--allow data.train' 2 two --checkpoint-dir saved
says data.allowed 0 '^resumed: step 12' 2 two --checkpoint-dir saved --allow data.train
mv kept.bin tokens.bin
# More data than is hashed at start. Byte 70000 lies in no block that is looked at, and no step has
# read it; 67590 is of what step 3 has read.
python3 -c 'open("large.bin", "wb").write(bytes(i * 7 % 256 for i in range(65536)) * 1280)'
build large --set data.train=large.bin --set data.format=bytes --set data.order=sequential \
    --set 'run.skip_batches=[0..260]'
rm -rf large.saved
go large 2 large --checkpoint-dir large.saved --steps 5 || fail data.large "$(tail_of large.log)"
change() { printf '\3' | dd of=large.bin bs=1 seek="$1" conv=notrunc 2>dd.log; }
change 70000
says data.unread 0 '^resumed: step 5' 2 large --checkpoint-dir large.saved --steps 7
change 67590
says data.read 4 'what step 3 read, 8 samples from sample 2112 on, is no longer what data.train' \
    2 large --checkpoint-dir large.saved --steps 8
says data.read_allowed 0 '^resumed: step 7' 2 large --checkpoint-dir large.saved --steps 8 \
    --allow data.train
rm -f large.bin

# ── damage ───────────────────────────────────────────────────────────────────
# damaged NAME PATTERN COMMAND…: done to the newest; refused by name, with the one before offered,
# which goes on well
damaged() {
    local name=damaged.$1 pattern=$2
    shift 2
    copy hurt
    "$@"
    says "$name" 4 "hurt/step-00000012/$pattern.*the one before it is of step 8: --resume=8" 2 two \
        --checkpoint-dir hurt
}
flip() { # FILE AT: one bit of it
    python3 - "$@" <<'P'
import sys
data = bytearray(open(sys.argv[1], "rb").read())
data[int(sys.argv[2]) % len(data)] ^= 4
open(sys.argv[1], "wb").write(data)
P
}
damaged header 'part-00000.safetensors is damaged' flip hurt/step-00000012/part-00000.safetensors \
    200
damaged byte 'part-00001.safetensors is damaged' flip hurt/step-00000012/part-00001.safetensors -5
damaged truncated 'part-00001.safetensors has [0-9]+ bytes' truncate -s -4 \
    hurt/step-00000012/part-00001.safetensors
damaged missing 'part-00000.safetensors: is missing' rm hurt/step-00000012/part-00000.safetensors
damaged other_step 'part-00001.safetensors is of step 8' cp \
    saved/step-00000008/part-00001.safetensors hurt/step-00000012/
damaged swapped 'part-0000[01].safetensors' cp saved/step-00000012/part-00000.safetensors \
    hurt/step-00000012/part-00001.safetensors
renamed() { rm -r hurt/step-00000012 && cp -r hurt/step-00000008 hurt/step-00000012; }
damaged renamed 'manifest.json is of step 8 of run 1: its folder was given another name' renamed
size=$(wc -c <saved/step-00000012/manifest.json)
for at in 3 40 $((size / 3)) $((size / 2)) -3 -10 -30; do damaged "manifest.$at" \
    'manifest.json is damaged' flip hurt/step-00000012/manifest.json "$at"; done
damaged manifest_is_folder 'manifest.json: Is a directory' \
    sh -c 'rm hurt/step-00000012/manifest.json && mkdir hurt/step-00000012/manifest.json'
damaged manifest_link 'manifest.json: No such file or directory' \
    ln -sf nowhere hurt/step-00000012/manifest.json
damaged empty_manifest 'manifest.json is damaged' truncate -s 0 hurt/step-00000012/manifest.json
if [ -n "${LONG:-}" ]; then
    # every bit of a manifest, a few hundred of the parts: the reader alone, without ranks
    for at in $(seq 0 7 "$size"); do damaged "manifest.$at" 'manifest.json is damaged' flip \
        hurt/step-00000012/manifest.json "$at"; done
    for at in $(seq 0 1777 300000); do damaged "part.$at" 'part-00000.safetensors is ' flip \
        hurt/step-00000012/part-00000.safetensors "$at"; done
fi
# What is offered is taken: another run of the folder, which ends with the same weights and is what
# is resumed from then on.
says offered 0 '^resumed: step 8 of hurt/step-00000008' 2 two --checkpoint-dir hurt \
    --resume=8 --final offered.safetensors
cmp -s whole.safetensors offered.safetensors && ok offered.weights ||
    fail offered.weights "$(cmp whole.safetensors offered.safetensors 2>&1)"
says offered.newest 0 '^resumed: step 12 of hurt/step-00000012-run2' 2 two --checkpoint-dir hurt
[ "$(ls hurt | tr '\n' ' ')" = "lock step-00000008 step-00000012 step-00000012-run2 " ] &&
    ok offered.keeps || fail offered.keeps "$(ls hurt | tr '\n' ' ')"

# ── names ────────────────────────────────────────────────────────────────────
copy named
mkdir named/step-00000099 named/step-abc named/step-7 named/step-00000003.partial-00ff00ff00ff00ff \
    named/step-00000004.deleting
touch named/step-00000003.partial-00ff00ff00ff00ff/part-00000.safetensors named/notes.txt
says names 0 'named/step-00000099 has no manifest, so it is not complete' 2 longer \
    --checkpoint-dir named --allow schedule.steps
head -n 1 names.log | grep -q '^resumed: step 12 of named/step-00000012,' &&
    ok names.first_line || fail names.first_line "$(head -n 1 names.log)"
[ "$(ls named | tr '\n' ' ')" = \
    "lock notes.txt step-00000008 step-00000012 step-00000016-run2 step-00000099 step-7 step-abc " \
    ] && ok names.left || fail names.left "$(ls named | tr '\n' ' ')"
rm -rf count
for n in 8 9 10; do go count 2 two --checkpoint-dir count --steps $n ||
    fail count "$(tail_of count.log)"; done
head -n 1 count.log | grep -q 'step 9 ' && ok count.numeric ||
    fail count.numeric "$(head -n 1 count.log)"
# A link to another run's checkpoint: the link goes, not what it leads to. What somebody has put
# into a checkpoint keeps it there.
rm -rf linked && mkdir linked && ln -s ../saved/step-00000008 linked/step-00000008
build single --set checkpoint.keep=1 --set checkpoint.every=2
says names.link 0 '^resumed: step 8' 2 single --checkpoint-dir linked
[ "$(ls linked | tr '\n' ' ')" = "lock step-00000012 " ] && [ -e \
    saved/step-00000008/part-00001.safetensors ] && ok names.link_leads_on || fail \
    names.link_leads_on "$(ls linked saved/step-00000008 | tr '\n' ' ')"
copy guest && rm -r guest/step-00000012 && mkdir guest/step-00000008/model
says names.guest 0 "warning: guest/step-00000008 stays: it holds 'model'" 2 single \
    --checkpoint-dir guest
[ "$(ls guest | tr '\n' ' ')" = "lock step-00000008 step-00000012 " ] && ok names.guest_stays ||
    fail names.guest_stays "$(ls guest | tr '\n' ' ')"
build all --set checkpoint.every=1 --set checkpoint.keep=all
build some --set checkpoint.every=1 --set checkpoint.keep=1 --set checkpoint.keep_every=5
rm -rf keep_all keep_some
go keep_all 2 all --checkpoint-dir keep_all && [ "$(ls keep_all | wc -l)" -eq 13 ] &&
    ok keep.all || fail keep.all "$(ls keep_all | tr '\n' ' ') $(tail_of keep_all.log)"
go keep_some 2 some --checkpoint-dir keep_some &&
    [ "$(ls keep_some | tr '\n' ' ')" = "lock step-00000005 step-00000010 step-00000012 " ] &&
    ok keep.every || fail keep.every "$(ls keep_some | tr '\n' ' ') $(tail_of keep_some.log)"

# ── anew ─────────────────────────────────────────────────────────────────────
copy anew
says fresh 0 'this is run 2 of the folder' 2 two --checkpoint-dir anew --fresh --steps 5
[ "$(ls anew | tr '\n' ' ')" = \
    "lock step-00000004-run2 step-00000005-run2 step-00000008 step-00000012 " ] &&
    ok fresh.deletes_nothing || fail fresh.deletes_nothing "$(ls anew | tr '\n' ' ')"
says fresh.resumed 0 '^resumed: step 5 of anew/step-00000005-run2' 2 two --checkpoint-dir anew \
    --final anew.safetensors
cmp -s whole.safetensors anew.safetensors && ok fresh.weights ||
    fail fresh.weights "$(cmp whole.safetensors anew.safetensors 2>&1)"
rm -rf nothing
says resume.none 4 'no complete checkpoint in nothing' 2 two --checkpoint-dir nothing --resume
says resume.no_such_step 4 'no complete checkpoint of that step in saved' 2 two \
    --checkpoint-dir saved --resume=5
says resume.and_fresh 3 '--fresh starts anew, --resume' 2 two --checkpoint-dir saved \
    --resume --fresh
says resume.no_number 3 '--resume wants a whole number' 2 two --checkpoint-dir saved --resume=last
grep -v 'checkpoint {' run.plan >bare.plan && rm -rf bare &&
    "$planc" build bare.plan -o bare >bare.build 2>&1
says resume.no_folder 4 'no folder of them: checkpoint.directory' 2 bare --resume
rm -rf bare.saved
says bare 0 'written while the run waits' 2 bare --checkpoint-dir bare.saved \
    --final bare.safetensors
cmp -s whole.safetensors bare.safetensors && ok bare.weights ||
    fail bare.weights "$(cmp whole.safetensors bare.safetensors 2>&1)"
grep -v 'directory' run.plan | sed 's/plan "to be resumed" {/&\n    checkpoint { every = 4 }/' \
    >homeless.plan && rm -rf homeless && "$planc" build homeless.plan -o homeless >homeless.build \
    2>&1
says homeless 4 'checkpoint section without checkpoint.directory' 2 homeless
says probe 4 '--probe is of step 0' 2 two --checkpoint-dir saved --probe probe.json
says resume.in_a_checkpoint 4 'step-00000012: is a checkpoint itself: name the folder' \
    2 two --checkpoint-dir saved/step-00000012
mkdir -p model && echo '{}' >model/config.json
says resume.in_a_model 4 'model: is a model .*init.from begins a run with its weights' 2 two \
    --checkpoint-dir model
[ "$(ls model)" = config.json ] && ok resume.in_a_model_stays || fail resume.in_a_model_stays \
    "$(ls model | tr '\n' ' ')"
says resume.from_a_model 3 "--resume wants a whole number" 2 two --checkpoint-dir saved \
    --resume=model
build begun --set "init.from=$scratch/saved/step-00000012"
rm -rf begun.saved
says from_a_checkpoint 4 'step-00000012 is a checkpoint' 2 begun --checkpoint-dir begun.saved
