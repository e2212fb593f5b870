#!/usr/bin/env bash
# run.nonfinite = skip: a skipped step has no effect. The row of one token is not a number, and only
# step 0 has that token.
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../lib/common.sh"
cat >skip.plan <<'PLAN'
use "models/llama.plan"
use "clusters/cpu.plan"

plan "a step that is not finite" {
    model llama { layers = 2;  hidden = 16;  heads = 2;  kv_heads = 1;  ffn = 24;  vocab = 64 }
    cluster cpu { }
    mesh { fsdp = 2 }
    batch { sequence = 16;  local = 1 }
    optimizer adamw { lr = 1e-3;  betas = [0.9, 0.95] }
    schedule constant { }
    data { train = "with.bin";  format = uint16 }
    run { nonfinite = skip }
}
PLAN
python3 - <<'PY'
import random, struct
random.seed(3)
def write(name, ids): open(name, "wb").write(struct.pack("<%dH" % len(ids), *ids))
bad = [63] + [random.randrange(63) for _ in range(31)]
good = [random.randrange(63) for _ in range(97)]
write("with.bin", bad + good)
write("without.bin", good)
PY
built() { "$planc" build skip.plan -o "$1" --device cpu "${@:2}" >"$1.build" 2>&1 ||
    fail "build_$1" "$(tail_of "$1.build")"; }
built seeded
launch 2 seeded --steps 0 --final whole.st >seeded.log 2>&1
python3 - <<'PY'
import json, struct
raw = bytearray(open("whole.st", "rb").read())
n = struct.unpack("<Q", raw[:8])[0]
table = json.loads(raw[8:8 + n])["model.embed_tokens.weight"]["data_offsets"][0]
at = 8 + n + table + 63 * 16 * 4
raw[at:at + 4] = struct.pack("<f", float("nan"))
open("broken.st", "wb").write(raw)
PY
built with --set init.from=broken.st
built without --set init.from=broken.st --set data.train=without.bin
launch 2 with --steps 4 --final with.st --metrics with.jsonl >with.log 2>&1 ||
    fail with "$(tail_of with.log)"
launch 2 without --steps 3 --final without.st --metrics without.jsonl >without.log 2>&1 ||
    fail without "$(tail_of without.log)"
grep -q '"skipped":true' with.jsonl && ! grep -q '"skipped":true' without.jsonl &&
    ok one_step_is_skipped || fail one_step_is_skipped "$(cut -c1-80 with.jsonl | tr '\n' '|')"
cmp -s with.st without.st && ok skipped_step_does_not_count ||
    fail skipped_step_does_not_count "$(cmp with.st without.st 2>&1)"
if [ "$(grep -c nan with.log)" -eq 1 ] && grep -q \
    'loss: mean [0-9.]* of the first 3 steps, .* (1 that were not finite do not count)' with.log; \
    then ok means_leave_it_out; else fail means_leave_it_out \
    "$(grep -E 'nan|^loss' with.log | tr '\n' '|')"; fi
mpirun -n 2 --oversubscribe --bind-to none with/trainer --steps 1 --final one.st >one.log 2>&1 \
    </dev/null
status=$?
if [ $status -eq 4 ] && [ "$(grep -c '^trainer: none of the 1 steps was finite' one.log)" -eq \
    1 ] && cmp -s one.st broken.st; then
    ok all_skipped_is_no_success; else fail all_skipped_is_no_success \
    "status $status: $(tail_of one.log)"; fi

# ── a run that is resumed ────────────────────────────────────────────────────
# Steps 2, 5 and 6 are not finite: the scale of their loss is none. Wherever the run is cut, and
# where a process sees nothing but such steps, it ends as it does in one piece.
cat >scale.c <<'C'
#include <math.h>
#include <stdint.h>
#include <string.h>
#include "runtime/shared/scalar.h"
struct device;
void __real_device_write(struct device *d, void *to, const void *from, int64_t bytes);
void __wrap_device_write(struct device *d, void *to, const void *from, int64_t bytes)
{
    float s[SCALAR_COUNT];
    if (bytes == sizeof s) {
        memcpy(s, from, sizeof s);
        const long step = lround(s[SCALAR_LR] / 1e-5) - 1;
        if (step == 2 || step == 5 || step == 6) s[SCALAR_LOSS_SCALE] = INFINITY;
        from = s;
    }
    __real_device_write(d, to, from, bytes);
}
C
cat >mpicc.sh <<'M'
#!/bin/sh
case " $* " in *" -c "*|*" -E "*) exec mpicc "$@" ;; esac
exec mpicc "$SCALE" "$@" -Wl,--wrap=device_write
M
chmod +x mpicc.sh
cc -O1 -I"$top" -c scale.c -o scale.o
sed 's/schedule constant { }/schedule constant { warmup = 100;  steps = 100 }/' skip.plan \
    >cut.plan
SCALE=$scratch/scale.o MPICC=$scratch/mpicc.sh "$planc" build cut.plan -o cut --device cpu \
    --set data.train=without.bin --set mesh.fsdp=1 >cut.build 2>&1 ||
    fail build_cut "$(tail_of cut.build)"
lines() { sed -E 's/,"tokens_hash.*//' "$1"; }
rm -f one_piece.jsonl
cut/trainer --steps 9 --metrics one_piece.jsonl --final one_piece.st >one_piece.log 2>&1
for at in 3 5 6; do
    rm -rf cut.saved cut.jsonl
    cut/trainer --checkpoint-dir cut.saved --steps $at --metrics cut.jsonl >cut.log 2>&1 &&
        cut/trainer --checkpoint-dir cut.saved --steps 9 --metrics cut.jsonl --final cut.st \
            >cut.log 2>&1
    if [ "$(lines cut.jsonl)" != "$(lines one_piece.jsonl)" ] || ! cmp -s cut.st one_piece.st
    then fail resumed_at_$at "$(cmp cut.st one_piece.st 2>&1) $(tail_of cut.log)"
    else ok resumed_at_$at; fi
done
[ "$(grep -c '"skipped":true' one_piece.jsonl)" -eq 3 ] && ok three_are_skipped ||
    fail three_are_skipped "$(lines one_piece.jsonl | tail -n 3)"
rm -rf cut.saved
cut/trainer --checkpoint-dir cut.saved --steps 5 >cut.log 2>&1
cut/trainer --checkpoint-dir cut.saved --steps 7 >cut.log 2>&1
[ $? -eq 4 ] && grep -q '^trainer: none of the 2 steps since the run was resumed was finite' \
    cut.log && ok all_skipped_since_a_resume ||
    fail all_skipped_since_a_resume "$(tail_of cut.log)"

# ── what a person sees ───────────────────────────────────────────────────────
launch 2 without --steps 25 >console.log 2>&1
[ "$(grep -c '^step' console.log)" -eq 4 ] && ok one_line_in_ten ||
    fail one_line_in_ten "$(grep -c '^step' console.log) lines"
line='^step [ 0-9]{2} of 25  loss  [0-9]\.[0-9]{4}  norm +[0-9]+\.[0-9]{4}  lr 1\.000e-03 '
line+=' +[0-9.]+ [ kM] tokens/s  MFU +[0-9.]+ %  memory +[0-9.]+ %  0:00:[0-9]{2} left$'
[ "$(grep -cE "$line" console.log)" -eq 4 ] && ok columns ||
    fail columns "$(grep '^step' console.log)"
launch 2 without --steps 5 --log-every 1 >every.log 2>&1
[ "$(grep -c '^step' every.log)" -eq 5 ] && ok every_line || fail every_line "$(tail_of every.log)"
# mpirun's own words come after those of the trainer: `planc run` repeats it at the end.
"$planc" run skip.plan -- --steps 1 --metrics nowhere/x >last.log 2>&1 </dev/null
[ $? -eq 4 ] && tail -n 1 last.log | grep -q '^planc: .*--metrics nowhere/x: No such file' &&
    [ "$(grep -c '^trainer:' last.log)" -eq 1 ] && ok failure_is_said_last ||
    fail failure_is_said_last "$(tail_of last.log)"
