#!/usr/bin/env bash
# The runtime by itself: its parts that need no ranks, and a trainer whose generated files were
# written by hand (tiny/), so that what fails here is not the compiler's doing.
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../lib/common.sh"
run=$top/runtime
flags="-std=c17 -O2 -g -ffp-contract=off -Wall -Wextra -Werror=switch -I$top -I$run -I$run/shared -I$here/tiny -pthread"
[ "$BUILD" = build-sanitize ] &&
    flags="$flags -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer"

library=$top/$BUILD/lib/libtrainer_cpu.a

# ── without ranks ────────────────────────────────────────────────────────────
pieces() { # MESH
    # shellcheck disable=SC2086
    cc $flags -DFSDP="$1" -DGLOBAL=24 "$here/pieces.c" "$here/tiny/program.c" \
        "$library" -o "pieces$1" -ljansson -lm 2>"pieces$1.log"
}
for n in 1 2 3 4 8; do
    if pieces $n; then
        "./pieces$n" || fail "pieces_fsdp$n" "status $?"
    else
        fail "pieces_fsdp$n" "$(tail_of "pieces$n.log")"
    fi
done
# order NAME ORDER SEED RANKS ACCUMULATION LOCAL: the samples of all ranks of a mesh, into
# NAME.order
order() {
    # shellcheck disable=SC2086
    cc $flags "-DTRAIN=\"stream-[12].bin\", \"stream-[3].bin\", \"stream-x*\"" -DORDER="$2" \
        -DSEED="$3" -DRANKS="$4" -DACCUMULATION="$5" -DLOCAL="$6" \
        "$here/order.c" "$library" -o "$1" -lm 2>"$1.log" &&
        "./$1" "$1.order" >>"$1.log" || fail "$1" "$(tail_of "$1.log")"
}
python3 - <<'PY'
import struct
ids = [70000 + i for i in range(101 * 7 + 4)]
parts = {"1": ids[:300], "2": ids[300:302], "[3]": ids[302:650], "x10": ids[650:660],
         "x9": ids[660:]}
for name, part in parts.items():
    open(f"stream-{name}.bin", "wb").write(struct.pack("<%dI" % len(part), *part))
open("stream-3.bin", "wb").write(b"never read: the name with brackets is there")
PY
for kind in "sequential 0 0" "shuffled 1 0" "seed_2 1 2"; do
    read -r name order seed <<<"$kind"
    order "${name}_1" "$order" "$seed" 1 1 24
    for mesh in "2 3 4" "4 2 3" "8 1 3" "3 8 1" "1 12 2"; do
        read -r ranks accumulation each <<<"$mesh"
        this=${name}_${ranks}x${accumulation}x$each
        order "$this" "$order" "$seed" "$ranks" "$accumulation" "$each"
        cmp -s "${name}_1.order" "$this.order" && ok "samples_$this" ||
            fail "samples_$this" "other samples than on one rank: $(tail_of "$this.log")"
    done
done
! cmp -s shuffled_1.order seed_2_1.order && ok seed_shuffles ||
    fail seed_shuffles "two seeds, one order"
st() { # KIND WANT: what the reader says contains WANT, on one line, with the file's name
    local said
    python3 "$here/make_st.py" "$1" "$1.safetensors"
    said=$(./pieces1 st "$1.safetensors" 2>&1)
    if [ "$2" != fine ] && [ "$(wc -l <<<"$said")" -ne 1 ]; then fail "st_$1" "not one line: $said"
    elif [ "$2" != fine ] && ! grep -qF "$1.safetensors" <<<"$said"; then
        fail "st_$1" "no file name: $said"
    elif grep -qF "$2" <<<"$said"; then ok "st_$1"; else fail "st_$1" "$said"; fi
}
if [ -x pieces1 ]; then
    st fine fine
    st padded fine
    if [ "$(./pieces1 st fine.safetensors | sort |
        tr '\n' ';')" = 'a F32 [2, 3] 1 2;empty F32 [0, 7] 0 0;fine;w BF16 [4] 1.5 -2;' ]; then
        ok st_values
    else
        fail st_values "$(./pieces1 st fine.safetensors | tr '\n' ';')"
    fi
    st overlap 'tensor w begins at byte 20'
    st gap 'tensor w begins at byte 26'
    st trailing 'its tensors cover 32'
    st truncated 'truncated: tensor w'
    st shape '24 bytes for F32 [2, 4], which takes 32'
    st negative 'is no size'
    st overflow 'is no size'
    st fraction 'is no size'
    st backwards 'no stretch'
    st dtype fine # its place is checked; only reading it is refused
    st key 'tensor a'
    st scalar 'tensor a'
    st metadata '__metadata__'
    st duplicate 'not JSON'
    st json 'not JSON'
    st array 'not a JSON object'
    st huge 'truncated or not a safetensors file'
    st long 'truncated or not a safetensors file'
    st short 'too short'
    st nothing 'too short'
fi

# ── a trainer ────────────────────────────────────────────────────────────────
# tiny NAME -D...: builds NAME/trainer. Trainers of one mesh and type share their kernels and their
# schedule.
rm -f *.o
tiny() {
    local name=$1 file word mesh=() key=
    shift
    mkdir -p "$name"
    for word; do
        case $word in
            -DFSDP=* | -DDP=* | -DACCUMULATION=* | -DCOMPUTE=*) mesh+=("$word") key+=${word#-D}. ;;
        esac
    done
    for file in kernels schedule; do
        # shellcheck disable=SC2086
        [ -e "$key$file.o" ] ||
            mpicc $flags "${mesh[@]}" -c "$here/tiny/$file.c" -o "$key$file.o" 2>"$name.build" ||
            fail "build_$name" "$(tail_of "$name.build")"
    done
    # shellcheck disable=SC2086
    mpicc $flags "$@" "$here/tiny/program.c" "$key"{kernels,schedule}.o \
        "$library" -o "$name/trainer" -ljansson -lm -ldl 2>"$name.build" ||
        fail "build_$name" "$(tail_of "$name.build")"
}
# went NAME RANKS STATUS PATTERN [options]: status, at most one "trainer:" line (exactly one when it
# is not 0 or 75), and the output matches PATTERN
went() {
    local name=$1 ranks=$2 want=$3 pattern=$4 dir=${dir:-$1} status
    shift 4
    at_once timeout -k 5 60 mpirun -n "$ranks" --oversubscribe --bind-to none \
        "$scratch/$dir/trainer" "$@" >"$name.log" 2>&1 </dev/null
    status=$?
    if ! none_left "$scratch/$dir"; then
        fail "$name" "processes left: $(survivors "$scratch/$dir")"
        sweep "$scratch/$dir"
    else judged "$name" "$want" "$pattern"; fi
}
same() { local why; why=$(python3 "$here/compare.py" "${@:2}") && ok "$1" || fail "$1" "$why"; }
python3 - <<'PY'
import random, struct
random.seed(1)
def write(path, ids): open(path, "wb").write(struct.pack("<%dH" % len(ids), *ids))
ids = [random.randrange(257) for _ in range(12 * 8 * 19 + 1)]
write("tokens.bin", ids)
write("split-1.bin", ids[:700])
write("split-2.bin", ids[700:705])
write("split-3.bin", ids[705:])
write("high.bin", ids[:-1] + [257])
write("half.bin", ids[:12 * 19])
masked = [7 if (i // 19) % 2 == 0 else x for i, x in enumerate(ids)]
masked[:8 * 19 + 1] = [7] * (8 * 19 + 1)
write("masked.bin", masked)
open("odd.bin", "wb").write(struct.pack("<%dH" % len(ids), *ids) + b"x")
write("short.bin", ids[:19])
PY

tiny mesh_1
tiny mesh_f2 -DFSDP=2
tiny mesh_f4 -DFSDP=4
tiny mesh_d2a2 -DDP=2 -DACCUMULATION=2
tiny mesh_f2d2a2 -DFSDP=2 -DDP=2 -DACCUMULATION=2
for one in mesh_1:1 mesh_f2:2 mesh_f4:4 mesh_d2a2:2 mesh_f2d2a2:4; do
    name=${one%:*}
    went "$name" "${one#*:}" 0 'predicted ([0-9,]+) bytes, mapped \1 bytes' --metrics \
        "$name.jsonl" --final "$name.safetensors" --probe "$name.probe"
    if [ "$name" != mesh_1 ]; then
        same "metrics_$name" near mesh_1.jsonl "$name.jsonl" 1e-6
        same "probe_$name" probe mesh_1.probe "$name.probe" 1e-5
    fi
    same "final_$name" st "$name.safetensors"
    dir=$name went "zero_steps_$name" "${one#*:}" 0 'saved to' --steps 0 --final "$name.initial"
    cmp -s mesh_1.initial "$name.initial" && ok "seeded_alike_$name" ||
        fail "seeded_alike_$name" "$(cmp mesh_1.initial "$name.initial" 2>&1)"
done
dir=mesh_f2 went twice 2 0 'saved to' --metrics twice.jsonl --final twice.safetensors
cmp -s twice.safetensors mesh_f2.safetensors && ok same_bits_twice ||
    fail same_bits_twice "$(cmp twice.safetensors mesh_f2.safetensors 2>&1)"
dir=mesh_f2 went shorter 2 0 'step 4 of 5' --steps 5 --metrics shorter.jsonl --log-every 2
head -n 5 mesh_f2.jsonl >five.jsonl
same rate_of_a_shorter_run near five.jsonl shorter.jsonl 0

tiny bf16 -DFSDP=2 -DCOMPUTE=TYPE_BF16
went bf16 2 0 'step 11 of 12' --metrics bf16.jsonl
same bf16_near_f32 near mesh_f2.jsonl bf16.jsonl 1e-2
tiny from_saved -DFSDP=4 '-DINIT="mesh_1.initial"'
went from_saved 4 0 'weights: mesh_1.initial' --metrics from_saved.jsonl
same from_saved_alike near mesh_1.jsonl from_saved.jsonl 1e-6
# Other names, other types, several files, and what does not belong.
python3 "$here/rewrite.py" mesh_1.initial
head -n 2 mesh_1.jsonl >two.jsonl
loads() { # NAME WANT [TOLERANCE]: how a trainer takes rewritten/NAME
    tiny "load_$1" -DFSDP=2 "-DINIT=\"rewritten/$1\""
    if [ "$2" = fine ]; then
        went "load_$1" 2 0 'step 1 of 2' --steps 2 --metrics "load_$1.jsonl"
        same "load_$1_alike" near two.jsonl "load_$1.jsonl" "${3:-1e-6}"
    else
        went "load_$1" 2 4 "$2"
    fi
}
loads renamed fine
loads buffers fine
loads bf16 fine 1e-2
loads sharded fine
loads missing 'missing/model.safetensors: tensor model.layers.1.mix.weight \[2, 257\] is missing'
loads \
    extra \
    'extra/model.safetensors: tensor model.layers.3.mix.weight \[2, 257\] is not part of this model'
loads \
    misshaped \
    'misshaped/model.safetensors: tensor model.bias.weight is \[1, 257\], the plan.s is \[257\]'
loads half fine 1e-2
loads double 'tensor model.bias.weight is F64: F32, BF16 and F16 are read'
loads truncated 'truncated/model.safetensors: truncated: tensor'
loads unlisted 'two.safetensors: holds tensor .*, which .*index.json does not list there'
loads absent_shard 'absent_shard/two.safetensors: No such file'
loads empty_folder 'empty_folder: neither model.safetensors'

# ── data ─────────────────────────────────────────────────────────────────────
tiny split -DFSDP=2 '-DTRAIN="split-*.bin"'
went split 2 0 '1,825 tokens in 3 files' --metrics split.jsonl
same files_are_one_stream near mesh_f2.jsonl split.jsonl 0
tiny globs -DFSDP=2 '-DTRAIN="split-[12].bin", "split-3*"'
went globs 2 0 'split-\[12\].bin and 1 more, uint16, 1,825 tokens in 3 files' --metrics globs.jsonl
same patterns_are_one_stream near mesh_f2.jsonl globs.jsonl 0
tiny doubled -DFSDP=2 '-DTRAIN="split-2.bin", "split-*.bin"'
went doubled 2 4 'split-2.bin: the same file as split-2.bin'
tiny high -DFSDP=2 '-DTRAIN="high.bin"'
went \
    high \
    2 4 'high.bin: token id 257 at byte 3648 \(token 1824 of the file\); the vocabulary has 257'
# Ids of 32 bits, the largest ones too: none passes as negative, and the last of a vocabulary is
# fine.
python3 - <<'PY'
import struct
ids = list(struct.unpack("<1825H", open("tokens.bin", "rb").read()))
ids[7] = 256
def write(name, change):
    changed = [change.get(i, x) for i, x in enumerate(ids)]
    open(f"wide_{name}.bin", "wb").write(struct.pack("<1825I", *changed))
write("fine", {})
write("257", {1820: 257})
write("65536", {3: 65536})
write("2147483648", {0: 2147483648})
write("4294967295", {1824: 4294967295})
open("wide_odd.bin", "wb").write(open("wide_fine.bin", "rb").read()[:-2])
PY
tiny wide -DFSDP=2 -DFORMAT=2 '-DTRAIN="wide.bin"'
wide() { cp "wide_$1.bin" wide.bin && dir=wide went "wide_$1" 2 "$2" "$3"; }
wide fine 0 'uint32, 1,825 tokens in 1 file'
wide 257 4 'wide.bin: token id 257 at byte 7280 \(token 1820 of the file\); the vocabulary has 257'
wide 65536 4 'wide.bin: token id 65536 at byte 12 '
wide 2147483648 4 'wide.bin: token id 2147483648 at byte 0 '
wide 4294967295 4 'wide.bin: token id 4294967295 at byte 7296 '
wide odd 4 'wide.bin: 7298 bytes are no whole number of tokens of 4 bytes'
tiny mask_of_nobody -DFSDP=2 -DIGNORE=257
went mask_of_nobody 2 4 'data.ignore = 257 masks nothing: the vocabulary has 257 ids'
tiny odd -DFSDP=2 '-DTRAIN="odd.bin"'
went odd 2 4 'odd.bin: 3651 bytes are no whole number'
tiny short -DFSDP=2 '-DTRAIN="short.bin"'
went short 2 4 'short.bin: 19 tokens, one sample of sequence 19 needs 20'
tiny absent -DFSDP=2 '-DTRAIN="absent.bin"'
went absent 2 4 'absent.bin: No such file'
tiny half -DFSDP=2 '-DTRAIN="half.bin"'
went half 2 0 'data: epoch 8 begins in step 11'
tiny masked_1 -DIGNORE=7 '-DTRAIN="masked.bin"'
tiny masked_f2 -DIGNORE=7 -DFSDP=2 -DACCUMULATION=2 '-DTRAIN="masked.bin"'
tiny masked_f4 -DIGNORE=7 -DFSDP=4 -DDP=2 '-DTRAIN="masked.bin"'
went masked_1 1 0 'step +0 of 12  loss +0.0000 ' --metrics masked_1.jsonl
went masked_f2 2 0 'step +0 of 12  loss +0.0000 ' --metrics masked_f2.jsonl
went masked_f4 8 0 'step +0 of 12  loss +0.0000 ' --metrics masked_f4.jsonl
# The means at the end are of the steps that had targets.
python3 - <<'PY' >masked_mean.why 2>&1 && ok masked_mean ||
import json, re
rows = [json.loads(line)["ce"] for line in open("masked_1.jsonl")]
said = re.search(r"^loss: mean ([0-9.]+) of the first 11 steps, ([0-9.]+) of the last 11 \(1 "
                 r"without targets do not count\)$", open("masked_1.log").read(), re.M)
assert said, "the log says: " + str(re.findall("^loss: .*", open("masked_1.log").read(), re.M))
for got in said[1], said[2]:
    assert abs(float(got) - sum(rows[1:]) / 11) < 6e-5, (got, rows)
PY
    fail masked_mean "$(tail_of masked_mean.why)"
same masked_f2_alike near masked_1.jsonl masked_f2.jsonl 1e-6
same masked_f4_alike near masked_1.jsonl masked_f4.jsonl 1e-6

# ── launch, options ──────────────────────────────────────────────────────────
dir=mesh_f2d2a2 went ranks_1 1 4 'built for 4 ranks \(fsdp 2 x dp 2\), started with 1'
dir=mesh_f2d2a2 went ranks_3 3 4 'started with 3'
dir=mesh_f2d2a2 went ranks_8 8 4 'started with 8'
dir=mesh_f2 went unknown_option 2 3 "unknown option '--stepz'" --stepz 3
dir=mesh_f2 went probe_of_none 2 4 'probe looks at step 0' --probe none.json --steps 0
dir=mesh_f2 went compare_of_none 2 4 'compare looks at step 0' --compare none.so --steps 0
dir=mesh_f2 went explain 2 0 'step 20: update, adamw' --explain --steps 0
# An option is given once, as with planc; only --allow gathers (suite checkpoint has it).
wrong=
while read -r option value; do
    words=("$option")
    [ -n "$value" ] && words+=(1)
    mesh_1/trainer "${words[@]}" "${words[@]}" >twice.log 2>&1 </dev/null
    [ $? = 3 ] && [ "$(cat twice.log)" = "trainer: $option is given twice" ] ||
        wrong+=" $option: $(tail_of twice.log)"
done < <(mesh_1/trainer --help | grep -v -- --allow | sed -nE 's/^  (--[-a-z]+)( [A-Z]+)?.*/\1\2/p')
mesh_1/trainer --resume --resume=5 >twice.log 2>&1 </dev/null
grep -qx 'trainer: --resume is given twice' twice.log || wrong+=" --resume=5: $(tail_of twice.log)"
[ -z "$wrong" ] && ok option_twice || fail option_twice "$wrong"
foreign() { # NAME VARIABLES...: outside mpirun
    "${@:2}" "$scratch/mesh_1/trainer" --steps 1 >"$1.log" 2>&1 </dev/null
    local status=$?
    if [ $status -eq 4 ] && [ "$(grep -c '^trainer:.*mpirun of Open MPI' "$1.log")" -eq 1 ]; then
        ok "$1"
    else
        fail "$1" "exit $status: $(tail_of "$1.log")"
    fi
}
foreign foreign_mpirun env PMI_SIZE=4 PMI_RANK=0
foreign foreign_srun env SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=0
tiny features -DFSDP=2 '-DFEATURES="avx9000"'
went features 2 4 'built for a CPU with avx9000'

# ── silence and signals ──────────────────────────────────────────────────────
tiny short_f2d2a2 -DFSDP=2 -DDP=2 -DACCUMULATION=2 -DTIMEOUT=4
tiny short_f2 -DFSDP=2 -DTIMEOUT=4
dir=short_f2d2a2
TINY_HANG=2 went hanging_kernel 4 4 \
    'rank 2 has not moved for [0-9.]+ s; it is at step 5 of the schedule \(prologue, look up\) of training step 0'
unset dir
# during NAME SIGNAL RANK STATUS PATTERN [options]: a slow run, and a signal to one rank (or to all
# but the launcher)
during() {
    local name=$1 signal=$2 rank=$3 want=$4 pattern=$5 status
    shift 5
    : >"$name.log" # the steps of an earlier run are not waited for
    TINY_SLEEP_MS=150 timeout -k 5 120 mpirun -n 2 --oversubscribe --bind-to none \
        "$scratch/short_f2/trainer" --steps 1000 --log-every 1 "$@" >"$name.log" 2>&1 </dev/null &
    within 60 grep -qE '^step +2 ' "$name.log" &&
        kill "-$signal" "$(rank_of "$scratch/short_f2" "$rank")"
    wait $!
    status=$?
    if ! none_left "$scratch/short_f2"; then
        fail "$name" "processes left: $(survivors "$scratch/short_f2")"
        sweep "$scratch/short_f2"
    elif [ $status -ne "$want" ]; then
        fail "$name" "exit $status, not $want: $(tail_of "$name.log")"
    elif ! grep -qE "$pattern" "$name.log"; then
        fail "$name" "no /$pattern/: $(tail_of "$name.log")"
    else ok "$name"; fi
}
during stopped_rank_0 STOP 0 4 \
    '^trainer: rank 0 has not moved .* \(its process is stopped\); it is (at step [0-9]+ of|before) the schedule'
during stopped_rank_1 STOP 1 4 \
    '^trainer: rank 1 has not moved .* \(its process is stopped\); it is (at step [0-9]+ of|before) the schedule'
during killed_rank KILL 1 137 'exited on signal 9'
during terminated TERM 1 75 'stopped by SIGTERM after step' --final terminated.safetensors
same final_when_terminated st terminated.safetensors
during interrupted INT 0 75 'stopped by SIGINT after step'

# ── numbers that are none ────────────────────────────────────────────────────
python3 - <<'PY'
import json, struct
raw = bytearray(open("mesh_1.initial", "rb").read())
ids = struct.unpack("<%dH" % (12 * 8 * 19 + 1), open("tokens.bin", "rb").read())
n = struct.unpack("<Q", raw[:8])[0]
at = 8 + n + json.loads(raw[8:8 + n])["model.table.weight"]["data_offsets"][0]
# a token of step 0 that only the second half of the samples has: on two ranks, only rank 1 sees it
first, second = set(ids[:4 * 19]), ids[4 * 19:8 * 19]
row = next(t for t in second if t not in first)
raw[at + row * 257 * 4:at + row * 257 * 4 + 4] = struct.pack("<f", float("nan"))
open("poisoned", "wb").write(raw)
PY
tiny poisoned_stop -DFSDP=2 '-DINIT="poisoned"'
went poisoned_stop 2 4 'step 0: the loss of rank 1 is not finite' --metrics poisoned_stop.jsonl \
    --final poisoned_stop.safetensors
[ ! -e poisoned_stop.safetensors ] && ok nothing_saved_after_nan ||
    fail nothing_saved_after_nan "a file was written"
tiny poisoned_skip -DFSDP=2 '-DINIT="poisoned"' -DNONFINITE=1
went poisoned_skip 2 4 'none of the 1 steps was finite' --steps 1 --metrics poisoned_skip.jsonl \
    --final poisoned_skip.safetensors
cmp -s poisoned_skip.safetensors poisoned && ok skipped_step_changes_nothing ||
    fail skipped_step_changes_nothing "$(cmp poisoned_skip.safetensors poisoned 2>&1)"
if \
    python3 \
    -c \
    'import json; r = json.loads(open("poisoned_skip.jsonl").read()); assert "loss" not in r and r["skipped"] and r["lr"] > 0'
then
    ok unknown_values_are_absent
else
    fail unknown_values_are_absent "$(cat poisoned_skip.jsonl)"
fi

# ── files that cannot be written ─────────────────────────────────────────────
dir=mesh_f2 went final_nowhere 2 4 'final /nonexistent/x: /nonexistent: No such file' --final \
    /nonexistent/x
dir=mesh_f2 went metrics_nowhere 2 4 'metrics /nonexistent/x: No such file' --metrics /nonexistent/x
dir=mesh_f2 went metrics_full 2 4 'metrics /dev/full: No space left' --metrics /dev/full
if [ "$BUILD" = build-sanitize ]; then
    skip disk_full "a preloaded library must come after the sanitizer"
elif cc -shared -fPIC -O1 -o faults.so "$here/faults.c" -ldl; then
    # close:0 is that of the file that is tried at the start
    for call in write:0 write:1 write:2 write:9 fsync:0 close:1; do
        rm -f full.safetensors*
        export FAULT_CALL=${call%:*} FAULT_AT=${call#*:} FAULT_FILE=.partial
        dir=mesh_f2 LD_PRELOAD=$scratch/faults.so went "disk_full_$call" 2 4 \
            "final full.safetensors: ${call%:*} full.safetensors.[0-9]+-0.partial: No space left" \
            --steps 1 \
            --final full.safetensors
        unset FAULT_CALL FAULT_AT FAULT_FILE
        [ -z "$(ls full.safetensors* 2>/dev/null)" ] && ok "nothing_left_$call" ||
            fail "nothing_left_$call" "$(ls full.safetensors*)"
    done
    export FAULT_CALL=rename FAULT_AT=0 FAULT_FILE=.partial
    dir=mesh_f2 LD_PRELOAD=$scratch/faults.so went disk_full_rename 2 4 \
        'final full.safetensors: rename: No space left on device; the file is whole, as full' \
        --steps 1 --final full.safetensors
    unset FAULT_CALL FAULT_AT FAULT_FILE
    left=$(ls full.safetensors*)
    dir=mesh_f2 went straight 2 0 'saved to' --steps 1 --final straight.safetensors
    cmp -s "$left" straight.safetensors && ok kept_without_its_name ||
        fail kept_without_its_name "there is: $left"
else
    fail disk_full "faults.c does not compile"
fi

# ── nothing of ours is allocated after start ─────────────────────────────────
if [ "$BUILD" = build-sanitize ]; then
    skip allocations "the sanitizer has its own malloc"
else
    wrap="-Wl,--wrap=malloc -Wl,--wrap=calloc -Wl,--wrap=realloc -Wl,--wrap=position_phase"
    # shellcheck disable=SC2086
    tiny allocations -DFSDP=2 -DIGNORE=7 -DACCUMULATION=2 "$here/allocations.c" $wrap
    went allocations 2 0 'step 11 of 12' --metrics allocations.jsonl --final \
        allocations.safetensors --probe allocations.probe
    export TINY_ALLOCATE=1
    dir=allocations went allocations_are_seen 2 4 'calloc of [0-9]+ bytes after'
    unset TINY_ALLOCATE
fi
