#!/usr/bin/env bash
# Damaged texts: the compiler answers every one of them, and never by falling over. A few hundred in `make test`, as many
# thousands with LONG=1. Seeds are fixed, so a failure is there again the next time.
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../lib/common.sh"
count=$([ -n "${LONG:-}" ] && echo 30000 || echo 1500)
[ "$BUILD" = build ] || count=$((count / 3))
rm -f broken.*
mkdir -p a b
cp "$top"/plans/*.plan "$top"/plans/models/*.plan "$top"/plans/clusters/*.plan "$top"/tests/golden/*.test . 2>/dev/null
for n in 1 2; do
    dir=$([ $n = 1 ] && echo a || echo b)
    (why=$(python3 "$here/fuzz.py" "$planc" plan $count $n $dir ./*.plan ./*.test) && ok plans_$n || fail plans_$n "$(tr '\n' '|' <<<"$why")") &
done
wait
"$planc" dump "$top/tests/golden/lower_tiny.test" --after lower >lower.ir 2>dump.log && "$planc" dump "$top/tests/golden/lower_tiny.test" --after memory >memory.ir 2>>dump.log ||
    { fail dumps "$(tail_of dump.log)"; exit 0; }
why=$(python3 "$here/fuzz.py" "$planc" ir $count 3 a lower.ir memory.ir) && ok dumps || fail dumps "$(tr '\n' '|' <<<"$why")"
