#!/usr/bin/env bash
# What comes from outside is data and nothing else: text that would become code, numbers near the ends of 64 bits, files
# that are no files, plans that would take a year. Each gets an answer, soon, and never a crash.
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../lib/common.sh"

# ── text: titles, paths and tensor names are only ever comments, literals and JSON strings ──
rm -rf text && mkdir text
printf '#!/bin/sh\nfor word; do [ "$before" = -o ] && : >"$word"; before=$word; done\n' >no_compiler && chmod +x no_compiler
warnings="-std=c17 -Wall -Wextra -Wcomment -Wtrigraphs -Wbidi-chars=any -Werror -fsyntax-only"
for name in $(python3 "$here/text.py" make text); do
    dir=text/$name
    # most are not compiled and not run: that their texts are C is seen below
    case $name in title_comment | title_control | tensor_* | file_attack) compiler=mpicc ;; *) compiler=$scratch/no_compiler ;; esac
    if ! MPICC=$compiler "$planc" build "$dir/x.plan" -o "$dir/out" >"$dir/log" 2>&1; then
        # a mistake of the plan with its line is an answer too
        grep -q 'x.plan:.*error:\|tiny.plan:.*error:' "$dir/log" && ok "text_$name" || fail "text_$name" "$(tail_of "$dir/log")"
        continue
    fi
    if ! cc $warnings -I"$top/runtime/shared" -I"$top/runtime" -I"$top/templates" -I"$dir/out" \
        "$dir/out/program.c" "$dir/out/schedule.c" >"$dir/cc.log" 2>&1; then
        fail "text_$name" "$(tail_of "$dir/cc.log")"
    elif ! python3 "$here/text.py" json "$dir/out/plan.json" >"$dir/json.log" 2>&1; then
        fail "text_$name" "plan.json: $(tail_of "$dir/json.log")"
    elif [ "$compiler" != mpicc ]; then
        ok "text_$name"
    elif ! launch 1 "$dir/out" --final "$dir/final" --probe "$dir/probe" --metrics "$dir/metrics" >"$dir/run.log" 2>&1; then
        fail "text_$name" "$(tail_of "$dir/run.log")"
    elif ! python3 "$here/text.py" names "$dir/final" "$dir/probe" >"$dir/names" 2>&1; then
        fail "text_$name" "$(tail_of "$dir/names")"
    else
        ok "text_$name"
    fi
    for command in "check --json" "memory --json"; do
        "$planc" $command "$dir/x.plan" >"$dir/${command%% *}.json" 2>"$dir/err" && python3 "$here/text.py" json "$dir/${command%% *}.json" 2>"$dir/err" &&
            ok "text_${name}_${command%% *}" || fail "text_${name}_${command%% *}" "$(tail_of "$dir/err")"
    done
    # what is dumped reads back to the same bytes
    "$planc" dump "$dir/x.plan" --after memory >"$dir/a.ir" 2>"$dir/err" && "$planc" dump --from "$dir/a.ir" >"$dir/b.ir" 2>>"$dir/err"
    [ ! -s "$dir/err" ] && cmp "$dir/a.ir" "$dir/b.ir" >>"$dir/err" 2>&1 || { fail "text_${name}_dump" "$(tail_of "$dir/err")"; continue; }
    ok "text_${name}_dump"
done
# no byte of a title reaches a terminal as a command
LC_ALL=C grep -q $'[\x01-\x08\x0b-\x1f\x7f]' text/title_control/log text/title_control/run.log && fail title_on_a_terminal "control bytes in what is printed" || ok title_on_a_terminal
