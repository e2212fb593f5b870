#!/usr/bin/env bash
# Golden cases: tests/golden/NAME.test is an input whose first line, behind "# ", is a command
# (`planc` is the compiler just built, `$in` the file itself, so a plan needs no second file);
# NAME.want holds what it prints, both streams in order, and its exit status. UPDATE=1 rewrites the
# wants; the difference is for a person to read.
cases=$(cd "$(dirname "$0")" && pwd)
. "$(dirname "$0")/../lib/common.sh"
cd "$cases" || exit 1
planc() { "$planc" "$@"; }
out=$scratch
for in in *.test; do
    [ -e "$in" ] || continue
    name=${in%.test}
    command=$(head -n 1 "$in")
    got=$scratch/$name.got
    (eval "${command#\# }") >"$got.raw" 2>&1
    echo "exit $?" >>"$got.raw"
    sed -e "s#$top/##g" -e "s#$BUILD/#build/#g" "$got.raw" >"$got"
    if [ -n "${UPDATE:-}" ]; then
        cp "$got" "$name.want" && ok "$name"
    elif [ ! -e "$name.want" ]; then
        fail "$name" "there is no $name.want (make test UPDATE=1 writes it)"
    elif diff -u "$name.want" "$got" >"$scratch/$name.diff"; then
        ok "$name"
    else
        fail "$name" "output differs: $scratch/$name.diff"
        cat "$scratch/$name.diff"
    fi
done
