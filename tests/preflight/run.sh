#!/usr/bin/env bash
# `planc preflight`: every rank and every transfer of the plan is in the answer, at the plan's
# sizes; the links as measured make a prediction and a cluster file; ranks that are slow or differ
# are marked. Neither data nor checkpoints are needed. No test asks how fast something was.
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../lib/common.sh"
rm -rf "${scratch:?}"/*
cat >small.plan <<'PLAN'
use "models/llama.plan"
use "clusters/cpu.plan"

plan "small" {
    model llama { layers = 3;  hidden = 32;  heads = 2;  kv_heads = 1;  ffn = 48;  vocab = 64 }
    cluster cpu { }
    mesh { fsdp = 2;  dp = 2 }
    batch { sequence = 16;  local = 2 }
    schedule constant { steps = 3 }
    data { train = "absent.bin";  format = uint16 }
    checkpoint { directory = "saved" }
    run { timeout = 60s }
}
PLAN
holds() { # NAME CHECK…
    local name=$1 why
    shift
    if why=$(python3 "$here/check.py" "$@" 2>&1); then ok "$name"; else fail "$name" "$why"; fi
}
timeout 120 "$planc" preflight small.plan --json -o links.plan >small.json 2>small.err </dev/null ||
    fail run "exit $?: $(tail_of small.err)"
"$planc" build small.plan -o shape --device cpu >shape.log 2>&1
holds measured measured small.json shape/program.c
[ ! -e saved ] && ok touches_nothing || fail touches_nothing "a folder for checkpoints was made"
"$planc" simulate small.plan --cluster links.plan --json >simulated.json 2>simulated.err ||
    fail cluster_file "$(tail_of simulated.err)"
holds cluster_file cluster small.json simulated.json

# the trainer by itself, its ranks on two hosts; one rank has no links
timeout 60 mpirun --oversubscribe --bind-to none -n 2 -x PLANC_HOST=east shape/trainer \
    --preflight hosts.json : -n 2 -x PLANC_HOST=west shape/trainer \
    --preflight hosts.json >hosts.log 2>&1 </dev/null || fail hosts "$(tail_of hosts.log)"
"$planc" preflight small.plan --from hosts.json >hosts.out 2>&1 &&
    grep -q '4 ranks on 2 hosts, fsdp 2 x dp 2' hosts.out &&
    grep -qE '^  gather +layers .* 2 +1 ' hosts.out &&
    grep -qE '^  all_reduce +layers .* 2 +2 ' hosts.out && ok hosts ||
    fail hosts "$(tail_of hosts.out 20)"
timeout 120 "$planc" preflight small.plan --set mesh.optimizer=all --json >parts.json 2>parts.err \
    </dev/null || fail parts "exit $?: $(tail_of parts.err)"
holds parts parts parts.json
# in BF16: the sums of its products are F32, and must lie within the arena
timeout 120 "$planc" preflight small.plan --set mesh.fsdp=1 --set mesh.dp=1 \
    --set precision.compute=bf16 >one.out 2>&1 &&
    grep -q '1 rank on 1 host' one.out && grep -q 'one rank has no links' one.out && ok one_rank ||
    fail one_rank "$(tail_of one.out)"

# ── who is marked ────────────────────────────────────────────────────────────
marked() { # NAME PATTERN EDIT…: the table of an edited file
    python3 "$here/check.py" edit small.json edited.json "${@:3}"
    "$planc" preflight small.plan --from edited.json >"$1.out" 2>&1 &&
        [ "$(grep -c '^!' "$1.out")" -eq 1 ] && grep -qE -- "$2" "$1.out" && ok "$1" ||
        fail "$1" "$(tail_of "$1.out" 12)"
}
marked slow_products '^! +2 .* <- products: 50 % below the median$' \
    2 product_flops_per_second 5e8
marked slow_link '^! +1 .* <- the way to the next rank: 60 % below the median$' \
    1 link_bytes_per_second 4e8
marked other_driver '^! +3 .* <- another driver: Linux 2.6$' 3 driver 'Linux 2.6'
marked no_memory '^! +0 .* <- less memory is free than the plan needs$' 0 free_bytes 1000
python3 "$here/check.py" edit small.json edited.json
"$planc" preflight small.plan --from edited.json >even.out 2>&1
grep -q 'no rank is slower than the others' even.out && ! grep -q '^!' even.out && ok even ||
    fail even "$(tail_of even.out)"

# ── refused ──────────────────────────────────────────────────────────────────
refused() { # NAME STATUS PATTERN ARGUMENT…
    "$planc" preflight "${@:4}" >"$1.out" 2>"$1.err" </dev/null
    [ $? -eq "$2" ] && [ ! -s "$1.out" ] && grep -qE -- "$3" "$1.err" && ok "$1" ||
        fail "$1" "$(tail_of "$1.err")"
}
refused absent 4 "cannot read 'absent.json'" small.plan --from absent.json
refused output_nowhere 4 "cannot write 'nowhere/x.plan'" small.plan -o nowhere/x.plan
refused no_file_of_it 4 'is no file of a trainer.s --preflight: line 1' small.plan --from small.plan
refused other_json 4 'no "planc_preflight": 1' small.plan --from simulated.json
refused other_mesh 4 'was measured with fsdp 2 x dp 2, the plan.s mesh is fsdp 4 x dp 1' \
    small.plan --set mesh.fsdp=4 --set mesh.dp=1 --from small.json
timeout 60 mpirun -n 4 --oversubscribe shape/trainer --preflight x.json --final y.st >both.log 2>&1
[ $? -eq 3 ] && grep -q '^trainer: --preflight trains nothing' both.log && ok no_other_option ||
    fail no_other_option "$(tail_of both.log)"
