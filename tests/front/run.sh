#!/usr/bin/env bash
# The front end: what it says about mistakes, word for word and caret for caret (tests/errors/NAME.plan beside NAME.want,
# options behind "# " in the first line), how it reckons (numbers.txt), that its answer does not depend on how lines end,
# and how long a plan takes. UPDATE=1 rewrites the wants; the difference is for a person to read.
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
flags=$([ "$BUILD" = build-sanitize ] && echo "-fsanitize=address,undefined -fno-sanitize-recover=undefined")
objects=$(for o in base diagnostics lex ast constant number evaluate; do echo "$top/$BUILD/compiler/$o.o"; done)
# shellcheck disable=SC2086
if ${CC:-cc} -std=c17 -D_POSIX_C_SOURCE=200809L -O1 -g $flags -I"$top/compiler" "$here/numbers.c" $objects "$top/$BUILD"/gen/*.o -lm -o numbers 2>numbers.log; then
    ./numbers "$here/numbers.txt" || failed=1
else
    fail numbers "does not compile: $(tail_of numbers.log)"
    failed=1
fi

# Carriage returns and a byte order mark change nothing.
ends() { # NAME FILE
    if "$planc" check "$2" --set data.train=none >"$1.out" 2>&1 && diff <(grep -v ' ms' plain.out) <(grep -v ' ms' "$1.out") >"$1.diff"; then
        ok "$1"
    else
        fail "$1" "$(tail_of "$1.diff")"
        failed=1
    fi
}
mkdir -p plain crlf
cp "$top/plans/demo.plan" plain/demo.plan
{ printf '\357\273\277'; sed 's/$/\r/' "$top/plans/demo.plan"; } >crlf/demo.plan
"$planc" check plain/demo.plan --set data.train=none >plain.out 2>&1
ends line_ends crlf/demo.plan
printf '%s' "$(cat plain/demo.plan)" >crlf/demo.plan
ends no_last_line_end crlf/demo.plan

# Every key is in the tables, and every section of the language prints.
for section in model cluster mesh precision activation_checkpoint batch optimizer schedule data checkpoint init run; do
    "$planc" keys $section >keys.$section 2>&1 && grep -q "^$section" keys.$section && ok keys_$section || { fail keys_$section "$(tail_of keys.$section)"; failed=1; }
done
exit $failed
