#!/usr/bin/env bash
# `planc plot`: what is drawn is in the files, in characters, as SVG and as JSON; input that cannot
# be drawn is one line.
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../lib/common.sh"
rm -rf "${scratch:?}"/*
export COLUMNS=80

python3 "$here/check.py" make
holds() { # NAME CHECK…
    local name=$1 why
    shift
    if why=$(python3 "$here/check.py" "$@" 2>&1); then ok "$name"; else fail "$name" "$why"; fi
}
plot() { # NAME ARGUMENT…: NAME.out
    "$planc" plot "${@:2}" >"$1.out" 2>"$1.err" || fail "$1" "exit $?: $(tail_of "$1.err")"
}
# refused NAME STATUS PATTERN ARGUMENT…: one line, and nothing drawn
refused() {
    rm -f refused.svg
    "$planc" plot "${@:4}" >refused.out 2>refused.err
    local status=$?
    [ $status = "$2" ] && [ ! -s refused.out ] && [ ! -e refused.svg ] &&
        [ "$(wc -l <refused.err)" -eq 1 ] && grep -qE -- "$3" refused.err && ok "$1" ||
        fail "$1" "status $status: $(tail_of refused.err)"
}

plot text falls.jsonl rises.jsonl --key loss,grad_norm
holds text text text.out
plot json falls.jsonl rises.jsonl --key 'loss,load[1]' --json
holds json json json.out
plot svg falls.jsonl rises.jsonl --key loss,lr -o two.svg
holds svg svg two.svg 2 2
plot many falls.jsonl{,,,,,,,,,} -o many.svg && holds many svg many.svg 1 10
plot hostile '<b>&"'\''.jsonl' -o hostile.svg && holds hostile svg hostile.svg 1 1
plot one one.jsonl && plot one_svg one.jsonl --key loss -o one.svg && holds one_step svg one.svg 1 1
plot long long.jsonl && grep -q 'long.jsonl: 5,000 steps, last 3 at step 4999' long.out &&
    ok more_steps_than_columns || fail more_steps_than_columns "$(tail_of long.out)"
plot torn torn.jsonl && grep -q 'torn.jsonl: 2 steps' torn.out && ok torn_last_line ||
    fail torn_last_line "$(tail_of torn.out)"
grep -q $'\033' text.out && fail no_colour_in_a_file "escape codes" || ok no_colour_in_a_file
COLUMNS=1 "$planc" plot one.jsonl >narrow.out 2>&1 && ok narrow || fail narrow "exit $?"

refused absent 4 '^planc: absent.jsonl: No such file' absent.jsonl
refused folder 4 ': Is a directory$' .
refused device 4 ': a device, not the metrics of a run$' /dev/zero
refused second_is_bad 4 '^planc: bad.jsonl: line 2 is no metrics of a step' falls.jsonl bad.jsonl
refused no_metrics 4 'line 1 is no metrics of a step' "$here/run.sh"
refused empty 4 '^planc: empty.jsonl: it holds no step$' empty.jsonl
refused no_key 4 "no step has a number 'los'; did you mean 'loss'\?; there are loss, " \
    falls.jsonl --key los
refused list 4 "'load' is a list of 2 numbers: load\[0\] is the first" falls.jsonl --key load
refused behind_list 4 "no step has a number 'load\[2\]'" falls.jsonl --key 'load[2]'
refused some_key 4 "^planc: one.jsonl: no step has a number 'lr'" falls.jsonl one.jsonl --key lr
refused large 4 'large.jsonl: line 1: a number too large to draw' large.jsonl
refused no_letters 3 "names a key of no letters" falls.jsonl --key loss,
refused no_svg 3 'FILE.svg' falls.jsonl -o refused.png
refused nothing 3 'plot takes 1 to 64 files'
refused cannot_write 4 "cannot write 'none/refused.svg': No such file" falls.jsonl -o \
    none/refused.svg
