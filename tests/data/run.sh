#!/usr/bin/env bash
# Files of tokens, in every layout that is read: what they are, the same training from each, one
# line for what is wrong, files beyond 2^31 tokens, and the files that `planc data pack` writes.
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../lib/common.sh"
rm -rf "${scratch:?}"/* && mkdir files
read -r tokens documents pairs bytes < <(python3 "$here/make.py" files)

# ── what a file is ───────────────────────────────────────────────────────────
# is FILE FORMAT TOKENS DOCUMENTS LARGEST [options]; documents: - when they are not marked
is() {
    local name=is_$1 want="$2|$3|$4|$5" got
    "$planc" data "files/$1" --json "${@:6}" >is.json 2>is.err ||
        { fail "$name" "$(tail_of is.err)"; return; }
    got=$(python3 -c 'import json; f = json.load(open("is.json"))["files"][0]; print(
        f["format"], f["tokens"], f.get("documents", "-"), f["largest_id"], sep="|")')
    [ "$got" = "$want" ] && ok "$name" || fail "$name" "is $got, not $want"
}
is raw2.bin uint16 "$tokens" - 299
is raw4.bin uint32 "$tokens" - 299
is raw1.bin bytes "$tokens" - 250 --format bytes
is olmo.npy uint16 "$tokens" - 299
is raw2.bin uint16 "$tokens" "$documents" 299 --end-token 299
is u2.npy 'NumPy uint16' "$tokens" - 299
is u4.npy 'NumPy uint32' "$tokens" - 299
is i8.npy 'NumPy int64' "$tokens" - 299
is rows.npy 'NumPy int32' 6000 - 299
is gpt2.bin 'llm.c uint16' "$tokens" - 299
is llama3.bin 'llm.c uint32' "$tokens" - 299
is m2_text_document 'Megatron uint16' "$tokens" "$documents" 299
is m4_text_document.bin 'Megatron int32' "$tokens" "$documents" 299
is m8_text_document.idx 'Megatron int64' "$tokens" "$documents" 299
is m_sentences 'Megatron uint16' "$tokens" "$pairs" 299
is lines.jsonl 'JSON lines' "$bytes" 300 240
is marked.jsonl 'JSON lines' "$bytes" 300 240
is lines.txt bytes "$bytes" - 240
is content.jsonl 'JSON lines' "$bytes" 300 240 --field content
# the same ids from each
for file in raw4.bin olmo.npy u2.npy u4.npy i8.npy gpt2.bin llama3.bin m2_text_document \
    m4_text_document m8_text_document; do
    "$planc" data pack files/$file -o same.bin --as uint16 >same.log 2>&1 &&
        cmp -s same.bin files/raw2.bin && ok "ids_$file" || fail "ids_$file" "$(tail_of same.log)"
done
first=$("$planc" data files/u4.npy | awk '$1 == "first" { print $2, $3, $4 }')
[ "$first" = "0 17 299" ] && ok first_tokens || fail first_tokens "$first"

# ── the same training from each ──────────────────────────────────────────────
cat >small.plan <<'PLAN'
use "models/llama.plan"
use "clusters/cpu.plan"

plan "small" {
    model llama { layers = 1;  hidden = 16;  heads = 2;  kv_heads = 1;  ffn = 24;  vocab = 300 }
    cluster cpu { }
    mesh { fsdp = 2 }
    batch { sequence = 16;  local = 2 }
    schedule constant { steps = 3 }
    data { train = "in";  order = shuffled }
}
PLAN
"$planc" build small.plan -o any >any.build 2>&1 || fail build "$(tail_of any.build)"
hashes() { grep -o '"tokens_hash":"[0-9a-f]*"' "$1"; }
# runs NAME FILE...: the plan's data.train is one of these files, by whatever name finds it
runs() {
    local name=$1 file
    shift
    rm -f in in.*
    for file; do
        case $file in
        *.idx) ln -s "files/$file" in.idx ;;
        m*.bin) ln -s "files/$file" in.bin ;;
        *) ln -s "files/$file" in ;;
        esac
    done
    timeout -k 5 60 mpirun -n 2 --oversubscribe --bind-to none ${dir:-any}/trainer --metrics \
        "$name.jsonl" >"$name.log" 2>&1 </dev/null ||
        { fail "$name" "$(grep '^trainer:' "$name.log") $(tail_of "$name.log")"; return; }
    [ -z "${like:-}" ] && { ok "$name"; return; }
    [ "$(hashes "$name.jsonl")" = "$(hashes "$like.jsonl")" ] && ok "$name" ||
        fail "$name" "other samples than of $like: $(hashes "$name.jsonl" | tr '\n' ' ')"
}
runs trains_raw2 raw2.bin
like=trains_raw2
for file in raw4.bin u4.npy gpt2.bin ${LONG:+olmo.npy u2.npy i8.npy llama3.bin}; do
    runs "trains_${file%.*}" $file
done
runs trains_megatron_int64 m8_text_document.bin m8_text_document.idx
grep -q 'data: .*in, Megatron int64, 6,005 tokens' trains_megatron_int64.log && ok said_at_start ||
    fail said_at_start "$(grep data: trains_megatron_int64.log)"
like=
runs trains_text lines.txt
like=trains_text runs trains_json_lines lines.jsonl
"$planc" build small.plan -o field --set data.field=content >field.build 2>&1
dir=field like=trains_text runs trains_field content.jsonl
# pieces of one stream in several layouts
"$planc" data files/raw2.bin >/dev/null
python3 - <<'PY'
raw = open("files/raw2.bin", "rb").read()
import struct
a, b, c = raw[:4002], raw[4002:7000], raw[7000:]
open("s1.bin", "wb").write(a)
text = b"{'descr': '<u2', 'fortran_order': False, 'shape': (%d,), }" % (len(b) // 2)
text += b" " * (117 - len(text)) + b"\n"
open("s2.npy", "wb").write(b"\x93NUMPY\1\0" + struct.pack("<H", len(text)) + text + b)
open("s3.bin", "wb").write(struct.pack("<256i", 20240520, 1, len(c) // 2, *[0] * 253) + c)
PY
sed 's/train = "in"/train = ["s1.bin", "s2.npy", "s3.*"]/' small.plan >several.plan
"$planc" build several.plan -o several >several.build 2>&1
dir=several like=trains_raw2 runs trains_several raw2.bin
grep -q 's1.bin and 2 more, several formats, 6,005 tokens in 3 files' trains_several.log &&
    ok several_said || fail several_said "$(grep data: trains_several.log)"
# prefix* finds .bin and .idx
mkdir -p both && cp files/m2_text_document.* both
"$planc" build small.plan -o both/out --set 'data.train=both/m2*' >both.build 2>&1
dir=both/out like=trains_raw2 runs trains_pattern_of_both raw2.bin

# ── what is wrong ────────────────────────────────────────────────────────────
# wrong NAME PATTERN FILE [options]: one line of `planc data`, status 4, that names the file
wrong() {
    local name=wrong_$1 status
    "$planc" data "files/$3" "${@:4}" >wrong.out 2>wrong.err
    status=$?
    if [ $status -ne 4 ] || [ "$(wc -l <wrong.err)" -ne 1 ]; then
        fail "$name" "status $status: $(tail_of wrong.err)"
    elif ! grep -qE "^planc: files/${3%.*}[a-z.]*: .*$2|^planc: files/$3: $2" wrong.err; then
        fail "$name" "does not say /$2/: $(cat wrong.err)"
    else ok "$name"; fi
}
wrong npy_cut 'counts 6005 ids of 2 bytes, and 12000 bytes follow it at byte 128: .*cut off' \
    w_cut.npy
wrong npy_long 'counts 6000 ids .*one array' w_long.npy
wrong npy_float "type '<f4' at byte [0-9]+; ids are whole numbers.*astype" w_float.npy
wrong npy_big_endian "type '>u2'" w_big.npy
wrong npy_columns 'fortran_order.*ascontiguousarray' w_columns.npy
wrong npy_head 'header is not whole' w_head.npy
wrong llmc_cut "llm.c's header counts 6005 ids of 2 bytes at byte 8, and 12008 .*cut off" \
    w_cut_llmc.bin
wrong llmc_version 'version 2 at byte 4' w_version_llmc.bin
wrong llmc_choices 'multiple choice' w_choices.bin
wrong bin_cut '5995 ids of 2 bytes, and files/w_cut_bin.idx counts 6005: the file is cut off' \
    w_cut_bin
wrong bin_longer 'the index is of another file' w_longer_bin
wrong idx_cut 'at byte 18.*cut off' w_cut_idx
wrong idx_type 'type 7 at byte 17' w_type
wrong idx_version 'version 3 at byte 9' w_version
wrong idx_old 'TNTIDX' w_tnt
wrong idx_swapped 'sequence 5 has .* from byte 4 .*\(byte [0-9]+ of the index\)' w_swapped
wrong idx_documents 'document [0-9]+ begins at sequence 0' w_documents
wrong idx_alone "Megatron's index, and the .bin" w_alone.idx
wrong idx_missing 'format = megatron, and the index files/w_no_index.idx is not there' \
    w_no_index.bin --format megatron
wrong negative 'token id -7 at byte 17284 \(token 4321 of the file\)' w_negative
wrong absent 'No such file' nothing.bin
wrong jsonl_cut 'line 300 \(byte [0-9]+\): it ends within a string' w_cut.jsonl
wrong jsonl_pretty 'line 1 .*every object is one line' w_pretty.jsonl --format jsonl
wrong jsonl_field 'line 2 .*the object has no "text"; data.field names another' w_field.jsonl
wrong jsonl_string 'line 2 .*"text" is no string' w_string.jsonl
wrong jsonl_escape 'line 2 .*an escape that JSON does not have' w_escape.jsonl
# What is no file is not replaced by one, and nothing half-written stays.
mkfifo own.pipe 2>>own.log
ln -sf /dev/null own.null && ln -sf own.pipe own.link
for to in own.pipe own.link own.null .; do
    "$planc" data pack files/raw2.bin -o $to >own.log 2>&1
    [ $? -eq 4 ] && grep -q "^planc: -o wants a file to write, and '$to' is not one" own.log &&
        ok "pack_over_$to" || fail "pack_over_$to" "$(tail_of own.log)"
done
[ -p own.pipe ] && [ -c own.null ] && ok pack_replaces_nothing || fail pack_replaces_nothing "gone"
(ulimit -f 1; exec "$planc" data pack files/raw2.bin -o limited.bin) >own.log 2>&1
[ $? -eq 4 ] && grep -q '^planc: limited.bin.*File too large' own.log &&
    [ -z "$(ls limited.bin* 2>/dev/null)" ] && ok pack_limited ||
    fail pack_limited "$(ls limited.bin*) $(tail_of own.log)"
room=$([ "$BUILD" = build-sanitize ] && echo unlimited || echo 1000000) # ASan maps terabytes
# shellcheck disable=SC2046
(ulimit -v $room; exec "$planc" data pack $(yes files/raw2.bin | head -n 2000) -o many.bin) \
    >own.log 2>&1
[ "$(wc -c <many.bin)" -eq $((2000 * 2 * tokens)) ] && ok pack_many_files ||
    fail pack_many_files "$(tail_of own.log)"
wrong jsonl_joined 'line 1 .*the line goes on behind its object' w_joined.jsonl
wrong jsonl_twice 'line 2 .*the object has "text" twice' w_twice.jsonl
wrong jsonl_behind 'line 2 .*a name in quotes is wanted' w_behind.jsonl
for text in latin log; do
    wrong text_$text 'this is text, not ids of 2 bytes' $text.txt --format uint16
    is $text.txt bytes "$(wc -c <files/$text.txt)" - "$([ $text = log ] && echo 119 || echo 244)"
done
wrong jsonl_array 'line 2 .*every line is a JSON object' w_array.jsonl
for format in uint32 bytes llmc megatron; do
    wrong "named_$format" "a file of NumPy uint16 ids, and the plan says format = $format; .*npy" \
        u2.npy --format $format
done
wrong named_uint16 'files/m4_text_document.idx, and the plan says format = uint16; .*megatron' \
    m4_text_document --format uint16
wrong named_npy 'it has no header of NumPy' raw2.bin --format npy
wrong named_llmc 'it has no header of llm.c' raw2.bin --format llmc
# trains_not NAME PATTERN FILES...: the trainer's one line, status 4
trains_not() {
    local name=trains_not_$1 pattern=$2 file status
    shift 2
    rm -f in in.*
    for file; do case $file in *.idx) ln -s "files/$file" in.idx ;; *.bin) ln -s "files/$file" \
        in.bin ;; *) ln -s "files/$file" in ;; esac; done
    at_once timeout -k 5 60 mpirun -n 2 --oversubscribe --bind-to none any/trainer >"$name.log" \
        2>&1 </dev/null
    status=$?
    [ $status -eq 4 ] && [ "$(grep -c '^trainer:' "$name.log")" -eq 1 ] &&
        grep -qE "^trainer: .*$pattern" "$name.log" && ok "$name" ||
        fail "$name" "exit $status: $(tail_of "$name.log")"
}
trains_not beyond \
    'in: token id 300 at byte 5064 \(token 1234 of the file\); the vocabulary has 300' w_beyond.npy
trains_not swapped 'in.idx: sequence 5' w_swapped.bin w_swapped.idx
trains_not negative 'in.bin: token id -7' w_negative.bin w_negative.idx
trains_not cut 'in: .*cut off' w_cut.npy
cp files/raw2.bin t1.bin && cp files/raw4.bin t2.bin
"$planc" build small.plan -o mixed --set 'data.train=t?.bin' >mixed.build 2>&1
timeout 60 mpirun -n 2 --oversubscribe --bind-to none mixed/trainer >mixed.log 2>&1 </dev/null
grep -q '^trainer: .*t2.bin: looks like uint32, and .*t1.bin like uint16; name the format' \
    mixed.log && ok two_widths || fail two_widths "$(tail_of mixed.log)"

# ── beyond 2^31 tokens ───────────────────────────────────────────────────────
# far files hold 2^31 + 4096 zeros before the ids: their last batches are those of near2.bin
far() { # NAME FILE SKIPPED
    "$planc" build small.plan -o "$1" --set "data.train=files/$2" --set data.order=sequential \
        --set mesh.fsdp=1 --set 'run.skip_batches=[0..'$(($3 - 1))']' ${4:+--set} ${4:-} \
        >"$1.build" 2>&1 &&
        timeout 60 mpirun -n 1 "$1/trainer" --metrics "$1.jsonl" >"$1.log" 2>&1 </dev/null ||
        fail "$1" "$(tail_of "$1.build") $(tail_of "$1.log")"
}
far near near2.bin $((4096 / 32))
for file in far2.bin:uint16 far.npy: ${LONG:+far4.bin:uint32}; do
    name=${file%:*} format=${file#*:}
    far "far_$name" "$name" $((((1 << 31) + 4096) / 32)) ${format:+data.format=$format}
    [ -n "$(hashes near.jsonl)" ] && [ "$(hashes near.jsonl)" = "$(hashes "far_$name.jsonl")" ] &&
        ok "beyond_2_31_$name" || fail "beyond_2_31_$name" "$(tail_of "far_$name.log")"
done

# ── mixtures ─────────────────────────────────────────────────────────────────
if cc -std=c17 -O1 -I"$top/runtime" -I"$top" "$here/mixed.c" \
    "$top"/runtime/shared/{mixture,fail}.c -o mixed_c -lm -lpthread >mixed_c.log 2>&1 &&
    ./mixed_c >mixed_c.log; then
    ok exact_proportions
else
    fail exact_proportions "$(tail_of mixed_c.log)"
fi
sed '/data {/d; $d' small.plan >mixture.plan && cat >>mixture.plan <<'PLAN'
    data {
        source "web"  { files = "files/raw2.bin";  weight = [0.75, 0.5] }
        source "code" { files = ["s1.bin", "s2.npy"];  weight = [0.25, 0.5] }
        stages = [0, 5]
        order = shuffled
    }
}
PLAN
sed -i 's/steps = 3/steps = 9/; s/local = 2/local = 1;  global = 24/' mixture.plan
mixture() { # NAME RANKS WORDS: builds it under these settings
    local word words=()
    for word in $3; do words+=(--set "$word"); done
    "$planc" build mixture.plan -o "$1" "${words[@]}" >"$1.build" 2>&1 ||
        fail "build_$1" "$(tail_of "$1.build")"
}
went() { # NAME DIR RANKS [options]
    timeout -k 5 60 mpirun -n "$3" --oversubscribe --bind-to none "$2/trainer" --metrics \
        "$1.jsonl" "${@:4}" >"$1.log" 2>&1 </dev/null ||
        fail "$1" "$(grep '^trainer:' "$1.log") $(tail_of "$1.log")"
}
mixture mix1 1 mesh.fsdp=1
mixture mix2 2 mesh.fsdp=2
mixture mix4 4 'mesh.fsdp=2 mesh.dp=2 batch.local=3'
went mix1 mix1 1; went mix2 mix2 2; went mix4 mix4 4
for mesh in mix2 mix4; do
    [ -n "$(hashes mix1.jsonl)" ] && [ "$(hashes mix1.jsonl)" = "$(hashes $mesh.jsonl)" ] &&
        ok "same_samples_$mesh" || fail "same_samples_$mesh" "$(tail_of $mesh.log)"
done
grep -q 'data: web: 75 % of the samples, .*raw2.bin, uint16, 6,005 tokens' mix1.log &&
    grep -q 'data: code: 25 % of the samples, .*s1.bin and 1 more, several formats' mix1.log &&
    grep -q 'data: from step 5 on web 50 %, code 50 %' mix1.log && ok mixture_said ||
    fail mixture_said "$(grep data: mix1.log)"
# 218 samples an epoch of code: 5 x 6 + 4 x 12 = 78 of it; 375 of web: 5 x 18 + 4 x 12 = 138
python3 - >epochs.log 2>&1 <<'PY'
import json
last = [json.loads(line) for line in open("mix2.jsonl")][-1]["epochs"]
assert abs(last["web"] - 138 / 375) < 1e-5 and abs(last["code"] - 78 / 218) < 1e-5, last
PY
[ $? -eq 0 ] && ok epochs_of_sources || fail epochs_of_sources "$(tail_of epochs.log)"
# cut behind step 4 and resumed on another mesh
went cut mix1 1 --steps 4 --checkpoint-dir saved
went cut mix2 2 --checkpoint-dir saved
grep -q '"samples_of_sources": \[138, 78\]' saved/step-00000009/manifest.json &&
    [ "$(hashes mix1.jsonl)" = "$(hashes cut.jsonl)" ] && ok mixture_resumed ||
    fail mixture_resumed "$(grep '"data"' saved/*/manifest.json) $(tail_of cut.log)"
sed 's/0.75, 0.5/0.8, 0.5/' mixture.plan >other.plan
"$planc" build other.plan -o other --set mesh.fsdp=1 >other.build 2>&1
timeout 60 mpirun -n 1 other/trainer --checkpoint-dir saved >other.log 2>&1 </dev/null
[ $? -eq 4 ] && grep -q 'data.source\[0\].weight' other.log && ok other_weights_refused ||
    fail other_weights_refused "$(tail_of other.log)"
went whole mix1 1 --steps 40
grep -q 'data: epoch 1 of code begins in step' whole.log && ok epoch_of_a_source ||
    fail epoch_of_a_source "$(grep data: whole.log)"
# alone, a source is the stream that it is without the others
sed '/source "code"/d; /stages/d; s/\[0.75, 0.5\]/0.3/' mixture.plan >alone.plan
"$planc" build alone.plan -o alone --set mesh.fsdp=1 >alone.build 2>&1
sed '/source "/d; /stages/d' mixture.plan >plain.plan
"$planc" build plain.plan -o plain --set mesh.fsdp=1 --set data.train=files/raw2.bin \
    >plain.build 2>&1
went alone alone 1; went plain plain 1
[ "$(hashes alone.jsonl)" = "$(hashes plain.jsonl)" ] && ok one_source_is_a_stream ||
    fail one_source_is_a_stream "$(tail_of alone.build) $(tail_of plain.build)"

# ── reading ahead ────────────────────────────────────────────────────────────
python3 - >gap.log 2>&1 <<'PY'
import json
steps = [json.loads(line) for line in open("mix2.jsonl")]
assert "gap_seconds" not in steps[0] and all(
    s["gap_seconds"] >= s["data_wait_seconds"] >= 0 for s in steps[1:]), steps
PY
[ $? -eq 0 ] && ok gap_between_steps || fail gap_between_steps "$(tail_of gap.log)"
# a file that becomes short while the run goes on: said by the step that would have read it
cp files/raw4.bin shrinks.bin
"$planc" build small.plan -o shrinks --set data.train=shrinks.bin --set schedule.steps=100000000 \
    >shrinks.build 2>&1
timeout -k 5 60 mpirun -n 2 --oversubscribe --bind-to none shrinks/trainer --metrics shrinks.jsonl \
    >shrinks.log 2>&1 </dev/null &
launcher=$!
within 40 test -s shrinks.jsonl
truncate -s 4000 shrinks.bin
wait $launcher
status=$?
[ $status -eq 4 ] && [ "$(grep -c '^trainer:' shrinks.log)" -eq 1 ] && grep -q \
    '^trainer: rank [01], step [0-9]*: .*shrinks.bin: byte [0-9]*: the file has become shorter' \
    shrinks.log && ok file_that_shrinks ||
    fail file_that_shrinks "exit $status: $(tail_of shrinks.log)"

# ── files that pack writes ───────────────────────────────────────────────────
# packed NAME OUT FORMAT DOCUMENTS FILES...: the ids are those of raw2.bin
packed() {
    local name=packed_$1 out=$2 format=$3 documents=$4
    shift 4
    "$planc" data pack "$@" -o "$out" >pack.log 2>&1 &&
        grep -q "$format, 6,005 tokens" pack.log ||
        { fail "$name" "$(tail_of pack.log)"; return; }
    "$planc" data pack "$out" -o back.bin --as uint16 >pack.log 2>&1 &&
        cmp -s back.bin files/raw2.bin || { fail "$name" "other ids: $(tail_of pack.log)"; return; }
    "$planc" data "$out" --json >is.json
    [ "$documents" = - ] || grep -q "\"documents\": $documents" is.json &&
        ok "$name" || fail "$name" "$(cat is.json)"
}
packed raw p.bin uint16 - files/m2_text_document
packed npy p.npy 'NumPy uint16' - files/raw4.bin
packed llmc p_llmc.bin 'llm.c uint16' - files/i8.npy --as llmc
packed megatron p_meg 'Megatron uint16' "$documents" files/m8_text_document --as megatron
packed split p_split.bin 'Megatron uint16' "$documents" files/raw2.bin --as megatron --end-token 299
packed joined p_joined.bin uint16 - s1.bin s2.npy s3.bin
cmp -s p_meg.idx <(python3 - <<'PY'
import sys
sys.stdout.buffer.write(open("files/m2_text_document.idx", "rb").read())
PY
) && cmp -s p_meg.bin files/m2_text_document.bin && ok packed_megatron_to_the_byte ||
    fail packed_megatron_to_the_byte "other bytes than Megatron's own layout"
"$planc" data pack files/lines.jsonl -o p_bytes.txt >pack.log 2>&1
cmp -s p_bytes.txt files/lines.txt && ok packed_text || fail packed_text "$(tail_of pack.log)"
"$planc" data pack files/content.jsonl --field content --end-token 256 --as megatron -o p_end \
    >pack.log 2>&1 && "$planc" data p_end --json >is.json
grep -q "\"tokens\": $((bytes + 300)), \"documents\": 300, \"largest_id\": 256" is.json &&
    ok packed_end_tokens || fail packed_end_tokens "$(cat is.json)"
cp files/m2_text_document.bin own_index.bin && cp files/m2_text_document.idx own_index.idx
# refused NAME STATUS PATTERN words...
refused() {
    local status
    "$planc" data "${@:4}" >refused.log 2>&1
    status=$?
    [ $status -eq "$2" ] && grep -qE -- "$3" refused.log && ok "refused_$1" ||
        fail "refused_$1" "status $status: $(tail_of refused.log)"
}
refused narrow 4 '--as bytes: the files hold the token id 299' pack files/raw2.bin -o x.bin \
    --as bytes
refused own_input 3 "'s1.bin' is what is read" pack s1.bin -o s1.bin
refused own_index 3 'own_index.bin is one of the files that are read' pack own_index \
    --as megatron -o own_index
refused nowhere 4 '/nonexistent/x.bin.[0-9]+.partial: No such file' pack s1.bin \
    -o /nonexistent/x.bin
refused no_output 3 'data pack takes files of tokens, and -o FILE' pack s1.bin
refused no_file 3 'data takes files of tokens' --json
refused output_alone 3 'is of `planc data pack' s1.bin -o x
refused a_format 3 '--format is one of bytes, uint16' s1.bin --format uint64
refused an_id 3 '--end-token is a token id' s1.bin --end-token eot
refused a_layout 3 '--as is raw, bytes' pack s1.bin -o x --as parquet
cp files/raw2.bin linked.to && ln -sf linked.to linked.bin
"$planc" data pack s1.bin -o linked.bin >link.log 2>&1
[ $? -eq 0 ] && [ ! -L linked.bin ] && cmp -s linked.to files/raw2.bin && ok link_is_replaced ||
    fail link_is_replaced "$(tail_of link.log)"
(ulimit -f 1; trap '' XFSZ; "$planc" data pack files/raw4.bin -o full.bin >full.log 2>&1)
[ $? -eq 4 ] && grep -q 'full.bin.[0-9]*.partial: File too large' full.log && ok full_disk ||
    fail full_disk "$(tail_of full.log)"
[ -z "$(ls -- *.partial 2>/dev/null)" ] && ok nothing_partial_left ||
    fail nothing_partial_left "$(ls -- *.partial)"
# What a process leaves that is killed goes when the next one starts; what another one still writes
# and what has such a name by chance stays.
truncate -s 2G zeros.bin # not on the disk; enough to be still packed when the kill comes
for as in raw megatron; do
    "$planc" data pack zeros.bin --format uint16 -o left.bin --as $as >left.log 2>&1 &
    writer=$!
    within 60 test -e left.bin.$writer.partial
    kill -KILL $writer
    wait $writer 2>>left.log
    killed=$? before=$(ls left.bin.*.partial | wc -l)
    : >left.bin.1.partial && : >left.bin.x1.partial && ln -sf left.log left.bin.2.partial
    flock left.bin.1.partial "$planc" data pack files/raw4.bin -o left.bin --as $as >left.log 2>&1
    after=$(ls left.* | grep '\.partial$' | tr '\n' ' ')
    [ $killed -eq 137 ] && [ "$before" -eq 1 ] &&
        [ "$after" = 'left.bin.1.partial left.bin.2.partial left.bin.x1.partial ' ] &&
        ok "leftovers_are_swept.$as" ||
        fail "leftovers_are_swept.$as" "exit $killed, $before left, then $after$(tail_of left.log)"
    rm -f left.*
done
rm zeros.bin

# ── from text to tokens ──────────────────────────────────────────────────────
peers=${PLANC_PEERS:-$top/$BUILD/peers/bin/python}
if [ -x "$peers" ] && "$peers" -c 'import tokenizers, numpy' 2>/dev/null; then
    sed -n '/^```python/,/^```/p' "$top/docs/data.md" | sed '/^```/d' >tokens.py
    "$peers" - >tokenizer.log 2>&1 <<'PY'
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
tokenizer = Tokenizer(models.BPE())
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
trainer = trainers.BpeTrainer(vocab_size=290, special_tokens=["<|endoftext|>"],
                              initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
tokenizer.train_from_iterator(open("files/lines.txt", encoding="utf-8"), trainer)
tokenizer.save("tokenizer.json")
PY
    "$peers" tokens.py tokenizer.json hf.bin files/lines.jsonl >>tokenizer.log 2>&1
    "$planc" data hf.bin --end-token 0 --json >is.json 2>>tokenizer.log
    grep -q '"format": "uint16".*"documents": 300, "largest_id": 289' is.json &&
        grep -q '^model.vocab = 290 or more, documents end with 0' tokenizer.log &&
        ok script_for_tokenizers ||
        fail script_for_tokenizers "$(cat is.json) $(tail_of tokenizer.log)"
    "$planc" check small.plan --set data.tokenizer=tokenizer.json >fits.log 2>&1 &&
        ok tokenizer_fits || fail tokenizer_fits "$(tail_of fits.log)"
    "$planc" check small.plan --set data.tokenizer=tokenizer.json --set model.vocab=289 \
        >beyond.log 2>&1
    [ $? -eq 1 ] && grep -q 'tokenizer.json has 290 ids, model.vocab holds 289' beyond.log &&
        ok tokenizer_is_larger || fail tokenizer_is_larger "$(tail_of beyond.log)"
else
    skip script_for_tokenizers "no tokenizers (make deps-peers)"
fi
"$planc" data tokenize files/lines.jsonl --model files/raw2.bin -o x.bin >spm.log 2>&1
status=$?
if grep -q 'apt-get install libsentencepiece0' spm.log; then
    [ $status -eq 4 ] && ok library_is_named || fail library_is_named "status $status"
    skip sentencepiece "libsentencepiece0 is not installed"
elif ! command -v spm_train >/dev/null; then
    skip sentencepiece "sentencepiece is not installed"
else
    [ $status -eq 4 ] && grep -q '^planc: files/raw2.bin: ' spm.log && ok model_of_nothing ||
        fail model_of_nothing "status $status: $(tail_of spm.log)"
    for model in . own.pipe /dev/zero; do
        timeout 20 "$planc" data tokenize files/lines.jsonl --model $model -o x.bin >spm.log 2>&1
        [ $? -eq 4 ] && grep -q "^planc: $model: no file that" spm.log && ok "model_$model" ||
            fail "model_$model" "$(tail_of spm.log)"
    done
    spm_train --input=files/lines.txt --model_prefix=spm --vocab_size=120 --character_coverage=1 \
        --hard_vocab_limit=false >spm.log 2>&1
    size=$(wc -l <spm.vocab)
    "$planc" data tokenize files/lines.txt --model spm.model -o spm.npy >spm.log 2>&1
    "$planc" data pack spm.npy -o spm.bin >>spm.log 2>&1
    { spm_encode --model=spm.model --output_format=id <files/lines.txt; echo 2; } | tr '\n' ' ' |
        python3 -c 'import struct, sys; ids = [int(i) for i in sys.stdin.read().split()]
open("spm.want", "wb").write(struct.pack("<%dH" % len(ids), *ids))'
    grep -q "the vocabulary has $size ids" spm.log && cmp -s spm.bin spm.want &&
        ok sentencepiece || fail sentencepiece "$(tail_of spm.log)"
    "$planc" data tokenize files/content.jsonl --field content --model spm.model --as megatron \
        -o spm_documents >spm.log 2>&1
    "$planc" data spm_documents --json >is.json
    grep -q '"format": "Megatron uint16".*"documents": 300' is.json && ok sentencepiece_documents ||
        fail sentencepiece_documents "$(tail_of spm.log) $(cat is.json)"
    "$planc" check small.plan --set data.tokenizer=spm.model --set model.vocab=$((size - 1)) \
        >beyond.log 2>&1
    [ $? -eq 1 ] && grep -q "spm.model has $size ids" beyond.log && ok sentencepiece_is_larger ||
        fail sentencepiece_is_larger "$(tail_of beyond.log)"
fi
refused no_model 3 'data tokenize wants --model FILE' tokenize files/lines.txt -o x
refused model_alone 3 '--model is of `planc data tokenize' files/lines.txt --model x
