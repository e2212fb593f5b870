#!/usr/bin/env bash
# The front end: what it says about mistakes, word for word and caret for caret
# (tests/errors/NAME.plan beside NAME.want, options after "# " in the first line), how it reckons
# (numbers.txt), that its answer does not depend on how lines end, and how long a plan takes.
# UPDATE=1 rewrites the wants; the difference is for a person to read.
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../lib/common.sh"
errors=$here/../errors

cd "$errors" || exit 1
failed=0
for in in *.plan; do
    name=${in%.plan}
    got=$scratch/$name.got
    options=$(sed -n '1s/^# \(--.*\)/\1/p' "$in")
    # shellcheck disable=SC2086
    "$planc" check "$in" $options >/dev/null 2>"$got.raw"
    echo "exit $?" >>"$got.raw"
    sed -e "s#$top/##g" "$got.raw" >"$got"
    if [ -n "${UPDATE:-}" ]; then
        cp "$got" "$name.want"
    elif ! cmp -s "$name.want" "$got"; then
        fail "$name" "$(diff "$name.want" "$got" 2>&1 | tr '\n' '|' | cut -c1-300)"
        failed=1
        continue
    fi
    ok "$name"
done

cd "$scratch" || exit 1
flags=$([ "$BUILD" = build-sanitize ] &&
    echo "-fsanitize=address,undefined -fno-sanitize-recover=undefined")
objects=$(for o in base/{base,diagnostics,escape} \
    text/{lex,lex_slips,lex_files,lex_meant,lex_order,lex_braces,language,ast,constant,number} \
    check/{evaluate,keys,keys_foreign}; do echo "$top/$BUILD/compiler/$o.o"; done)
# shellcheck disable=SC2086
if ${CC:-cc} -std=c17 -D_POSIX_C_SOURCE=200809L -O1 -g $flags -I"$top/compiler" "$here/numbers.c" \
    $objects "$top/$BUILD"/gen/*.o -lm -o numbers 2>numbers.log; then
    ./numbers "$here/numbers.txt" || failed=1
else
    fail numbers "does not compile: $(tail_of numbers.log)"
    failed=1
fi

# Carriage returns, a byte order mark and a missing last line end change nothing of what a plan
# means.
mkdir -p plain ends
cp "$top/plans/demo.plan" plain/demo.plan
(cd plain && "$planc" dump demo.plan --after lower) >plain.ir 2>&1
same() { # NAME: ends/demo.plan means what plain/demo.plan means
    (cd ends && "$planc" dump demo.plan --after lower) >"$1.ir" 2>&1
    if grep -q . plain.ir && cmp -s plain.ir "$1.ir"; then
        ok "$1"
    else
        fail "$1" "$(diff plain.ir "$1.ir" | tr '\n' '|' | cut -c1-300)"
        failed=1
    fi
}
{ printf '\357\273\277'; sed 's/$/\r/' plain/demo.plan; } >ends/demo.plan
same carriage_returns
printf '%s' "$(cat plain/demo.plan)" >ends/demo.plan
same no_last_line_end

# Every key is in the tables, and every section of the language prints.
for section in model cluster mesh precision activation_checkpoint batch optimizer schedule data \
    checkpoint init run; do
    "$planc" keys $section >keys.$section 2>&1 && grep -q "^$section" keys.$section &&
        ok keys_$section || { fail keys_$section "$(tail_of keys.$section)"; failed=1; }
done
exit $failed
