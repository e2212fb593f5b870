#!/usr/bin/env bash
# What comes from outside is data and nothing else: text that would become code, numbers near the
# ends of 64 bits, files that are no files, plans that would take a year. Each gets an answer, soon,
# and never a crash.
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../lib/common.sh"

# ── text: titles, paths and tensor names are only ever comments, literals and JSON strings ──
rm -rf text && mkdir text
printf '#!/bin/sh\nfor word; do [ "$before" = -o ] && : >"$word"; before=$word; done\n' \
    >no_compiler && chmod +x no_compiler
warnings="-std=c17 -Wall -Wextra -Wcomment -Wtrigraphs -Wbidi-chars=any -Werror -fsyntax-only"
warnings+=" -Wno-missing-field-initializers" # tables leave out fields that are 0

for name in $(python3 "$here/text.py" make text); do
    dir=text/$name
    # most are not compiled and not run: that their texts are C is seen below
    case $name in title_comment | title_control | tensor_* | \
        file_attack) compiler=mpicc ;; *) compiler=$scratch/no_compiler ;; esac
    if ! MPICC=$compiler "$planc" build "$dir/x.plan" -o "$dir/out" >"$dir/log" 2>&1; then
        # a mistake of the plan with its line is an answer too
        grep -q 'x.plan:.*error:\|tiny.plan:.*error:' "$dir/log" && ok "text_$name" ||
            fail "text_$name" "$(tail_of "$dir/log")"
        continue
    fi
    if ! cc $warnings -I"$top/runtime/shared" -I"$top/runtime" -I"$top/templates" -I"$dir/out" \
        "$dir/out/program.c" "$dir/out/schedule.c" >"$dir/cc.log" 2>&1; then
        fail "text_$name" "$(tail_of "$dir/cc.log")"
    elif ! python3 "$here/text.py" json "$dir/out/plan.json" >"$dir/json.log" 2>&1; then
        fail "text_$name" "plan.json: $(tail_of "$dir/json.log")"
    elif [ "$compiler" != mpicc ]; then
        ok "text_$name"
    elif ! launch 1 "$dir/out" --final "$dir/final" --probe "$dir/probe" --metrics "$dir/metrics" \
        >"$dir/run.log" 2>&1; then
        fail "text_$name" "$(tail_of "$dir/run.log")"
    elif ! python3 "$here/text.py" names "$dir/final" "$dir/probe" >"$dir/names" 2>&1; then
        fail "text_$name" "$(tail_of "$dir/names")"
    else
        ok "text_$name"
    fi
    for command in "check --json" "memory --json"; do
        "$planc" $command "$dir/x.plan" >"$dir/${command%% *}.json" 2>"$dir/err" &&
            python3 "$here/text.py" json "$dir/${command%% *}.json" 2>"$dir/err" &&
            ok "text_${name}_${command%% *}" ||
            fail "text_${name}_${command%% *}" "$(tail_of "$dir/err")"
    done
    # what is dumped reads back to the same bytes
    "$planc" dump "$dir/x.plan" --after memory >"$dir/a.ir" 2>"$dir/err" &&
        "$planc" dump --from "$dir/a.ir" >"$dir/b.ir" 2>>"$dir/err"
    [ ! -s "$dir/err" ] && cmp "$dir/a.ir" "$dir/b.ir" >>"$dir/err" 2>&1 ||
        { fail "text_${name}_dump" "$(tail_of "$dir/err")"; continue; }
    ok "text_${name}_dump"
done
# errors of the command line and of the environment are JSON too, and stay a line on stderr
while read -r name words; do
    "$planc" $words --json >error.json 2>error.err
    status=$?
    [ $status -ge 3 ] && [ "$(grep -c '^planc: ' error.err)" = 1 ] &&
        python3 -c 'import json; assert len(json.load(open("error.json"))["errors"]) == 1' \
            2>>error.err && ok "json_error_$name" ||
        fail "json_error_$name" "status $status: $(tail_of error.err)"
done <<WORDS
no_folder build $top/plans/demo.plan
no_plan check
no_option simulate $top/plans/demo.plan --wat
no_run export nowhere -o out
no_config import nowhere -o out.plan
no_place build $top/plans/demo.plan -o /proc/x
no_cluster check $top/plans/demo.plan --cluster nowhere.plan
twice memory $top/plans/demo.plan --device cpu --device cpu
WORDS
# the name of a file need not be UTF-8; JSON is
small_plan named "layers = 1; hidden = 16; heads = 2; ffn = 16; vocab = 64" \
    "sequence = 8; local = 1; global = 2"
named=$(printf 'named\xff.plan')
mv named.plan "$named"
for command in check memory simulate tune report "diff $named" "build -o named"; do
    MPICC=$scratch/no_compiler "$planc" $command "$named" --json >named.json 2>named.err &&
        python3 "$here/text.py" json named.json >>named.err 2>&1 && ok "name_${command%% *}" ||
        fail "name_${command%% *}" "$(tail_of named.err)"
done
# no byte of a title reaches a terminal as a command
LC_ALL=C grep -q $'[\x01-\x08\x0b-\x1f\x7f]' text/title_control/log text/title_control/run.log &&
    fail title_on_a_terminal "control bytes in what is printed" || ok title_on_a_terminal

# ── numbers: every key, near the ends of 64 bits ──
cat >numbers.plan <<'P'
use "models/qwen3_moe.plan"
use "clusters/h100.plan"
plan "numbers" {
    model qwen3_moe { layers = 4;  hidden = 64;  vocab = 256;  heads = 4;  kv_heads = 2
                      head_dim = 16;  experts = 4;  top_k = 2;  expert_width = 32 }
    cluster h100 { nodes = 1 }
    mesh { fsdp = 8 }
    batch { sequence = 64;  local = 1 }
}
P
why=$(python3 "$here/numbers.py" "$planc" "$top/compiler/check/keys.def" numbers.plan) &&
    ok numbers || fail numbers "$(cut -c1-400 <<<"$why")"

# refuses NAME STATUS "WORDS" COMMAND…: within ten seconds and 4 GiB, with these words, and never by
# a crash
refuses() {
    local name=$1 want=$2 words=$3 status
    shift 3
    ( [ "$BUILD" = build-sanitize ] ||
        ulimit -v 4000000; timeout 20 "$@" ) >"$name.log" 2>&1 </dev/null
    status=$?
    [ $status -eq "$want" ] || { fail "$name" "exit $status: $(tail_of "$name.log")"; return; }
    grep -qF -- "$words" "$name.log" && ok "$name" ||
        fail "$name" "does not say '$words': $(tail_of "$name.log")"
}
refuses range_of_a_million 1 'a range of more than 100,000 choices' "$planc" check numbers.plan \
    --set batch.local=1..1000000
refuses \
    two_axes 1 'a space of 1,000,000 points (1,000 batch.sequence x 1,000 batch.local)' \
    "$planc" check numbers.plan --set batch.local=1..1000 --set batch.sequence=1..1000
refuses products 1 "at most 1048576" "$planc" check numbers.plan --set batch.local=4294967296 \
    --set mesh.fsdp=4294967296
refuses layers 1 '1000000000 layers are more than planc can count (10000)' "$planc" check \
    numbers.plan --set model.layers=1000000000
refuses heads 1 'query heads cannot share' "$planc" check numbers.plan --set \
    model.kv_heads=1000000000
python3 "$here/plans.py"
refuses chain_forward 1 'a chain of more than 1000 constants' "$planc" check chain_forward.plan
refuses chain_backward 1 'a chain of more than 1000 constants' "$planc" check chain_backward.plan
refuses path_of_100000_names 1 'a path of more than 32 names' "$planc" check path.plan
refuses file_of_100000_folders 1 "there is no file 'a/a/" "$planc" check folders.plan
refuses sum_of_100000 1 'nested too deeply' "$planc" check sum.plan

# ── files that are no files, and files that are not ours to show ──
rm -rf fifo && mkdir fifo && mkfifo fifo/x.plan fifo/config.json fifo/x.ir &&
    ln -s /etc/passwd fifo/link.plan
for use in fifo/x.plan /dev/zero /etc/passwd fifo/link.plan /dev/null; do
    printf 'use "%s"\n' $use >"use_${use//\//_}.plan"
done
refuses use_a_pipe 1 'it is a named pipe' "$planc" check use_fifo_x.plan.plan
refuses use_zeros 1 '/dev/zero is no .plan file' "$planc" check use__dev_zero.plan
refuses use_passwords 1 '/etc/passwd is no .plan file' "$planc" check use__etc_passwd.plan
refuses use_a_link 1 'link.plan is a link to a file that is no .plan' "$planc" check \
    use_fifo_link.plan.plan
grep -q root: use_passwords.log use_a_link.log &&
    fail use_does_not_echo "lines of /etc/passwd are shown" || ok use_does_not_echo
refuses check_a_pipe 4 'it is a named pipe' "$planc" check fifo/x.plan
refuses check_zeros 4 'more than 64 MiB' "$planc" check /dev/zero
refuses format_a_pipe 4 'it is a named pipe' "$planc" format fifo/x.plan
refuses dump_a_pipe 4 'it is a named pipe' "$planc" dump --from fifo/x.ir
refuses import_a_pipe 4 'it is a named pipe' "$planc" import fifo -o fifo.plan
"$planc" check <(cat numbers.plan) >process.log 2>&1 && ok plan_of_a_process ||
    fail plan_of_a_process "$(tail_of process.log)"

# ── data: files that are not what the plan says ──
rm -rf data && mkdir data && cat >data/x.plan <<'P'
use "models/gpt2.plan"
use "clusters/cpu.plan"
plan "data" {
    model gpt2 { layers = 1;  hidden = 16;  heads = 2;  vocab = 50257;  context = 64 }
    cluster cpu { }
    batch { sequence = 64;  local = 1 }
    schedule constant { steps = 1 }
    data { train = "raw16.bin";  format = uint16 }
}
P
(cd data && python3 "$here/data.py")
# warns FILE FORMAT "WORDS": check says so; "": check says nothing of the file
warns() {
    local name=data_$1_as_$2 said
    "$planc" check data/x.plan --set data.train="$scratch/data/$1" --set data.format="$2" \
        >data/log 2>&1 || { fail "$name" "$(tail_of data/log)"; return; }
    said=$(grep -F "$1: " data/log | grep warning)
    if [ -z "$3" ]; then [ -z "$said" ] && ok "$name" || fail "$name" "$said"; return; fi
    grep -qF -- "$3" <<<"$said" && ok "$name" || fail "$name" "does not say '$3': $said"
}
for file in raw16.bin raw16.npy even16.bin small16.bin alternating.bin constant.bin zeros.bin; do
    warns $file uint16 ''
done
warns raw32.bin uint32 ''; warns even32.bin uint32 ''; warns text.txt bytes ''
warns raw32.bin uint16 'ids of 4 bytes, and the plan reads uint16; format = uint32'
warns even32.bin uint16 'format = uint32'
warns raw32.bin bytes 'format = uint32'
warns even32.bin bytes 'format = uint32'
warns even16.bin uint32 'ids of 2 bytes, and the plan reads uint32; format = uint16'
warns raw16.bin bytes 'may be ids of 2 bytes, and the plan reads bytes; format = uint16'
warns even16.bin bytes 'format = uint16'
for format in bytes uint16 uint32; do
    warns lines.gz $format 'compressed by gzip'
    warns lines.jsonl $format 'JSON lines'
done
# a header is read, and must agree with the plan
warns header.npy uint16 ''; warns header32.npy uint32 ''; warns llmc.bin uint16 ''
for format in bytes uint32 llmc; do
    warns header.npy $format "NumPy uint16 ids, and the plan says format = $format"
done
warns llmc.bin bytes 'llm.c uint16 ids, and the plan says format = bytes'
warns header32.npy uint16 'format = npy'
warns llama3.bin uint16 'format = llmc'
for format in bytes uint16 uint32; do
    warns wide.bin $format 'ids of 8 bytes'
    warns stream.arrow $format 'an Arrow stream'
    warns shard.mds $format 'MosaicML streaming'
    warns utf16.txt $format 'text in UTF-16'
done
warns ids.lz4 uint16 'compressed by lz4'
warns ids.sqlite uint16 'an SQLite database'
warns fairseq.idx uint16 "fairseq's index"
warns litgpt.bin uint16 'a packed file of lit-gpt'
warns litdata.bin uint16 'a chunk of litdata'
warns index.idx uint16 "Megatron's index"
warns text.txt uint16 'this is text, not ids of 2 bytes; format = bytes'
warns tokens.parquet uint16 'a Parquet table'
warns x.safetensors uint16 'a safetensors file'
warns absent.bin uint16 'No such file'
warns '*.absent' uint16 'no such file'
"$planc" build data/x.plan -o data/out --set data.train="$scratch/data/litgpt.bin" >data/log 2>&1
launch 1 data/out >data/log 2>&1; status=$?
[ $status -eq 4 ] && grep -q '^trainer: .*litgpt.bin: this is a packed file of lit-gpt' data/log &&
    ok trainer_refuses_data || fail trainer_refuses_data "exit $status: $(tail_of data/log)"
"$planc" build data/x.plan -o data/out --set data.train="$scratch/data/raw16.bin" \
    --set data.format=bytes >data/log 2>&1
launch 1 data/out >data/log 2>&1 &&
    grep -q '^warning: .*raw16.bin: these may be ids of 2 bytes' data/log &&
    ok trainer_warns_of_data || fail trainer_warns_of_data "$(tail_of data/log)"
