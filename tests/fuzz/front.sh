#!/usr/bin/env bash
# front.sh SECONDS FOLDER [option of libFuzzer…]: runs the coverage-guided fuzzer from every plan
# there is, in FOLDER. What breaks the front end is kept there as crash-*, timeout-* or oom-*; what
# reached new code is kept in FOLDER/found and starts the next run.
seconds=$1 folder=$2
top=$(cd "$(dirname "$0")/../.." && pwd)
mkdir -p "$folder/seeds" "$folder/found" && cd "$folder" || exit 4
rm -f crash-* timeout-* oom-* leak-*
for in in "$top"/plans/*.plan "$top"/plans/*/*.plan "$top"/tests/errors/*.plan \
    "$top"/tests/golden/*.test "$top"/tests/tools/*.plan; do
    cp "$in" "seeds/$(basename "$(dirname "$in")")-$(basename "$in")"
done
cat "$top"/plans/*.plan "$top"/plans/*/*.plan "$top"/compiler/check/keys.def |
    grep -oE '[A-Za-z_]{2,24}' | sort -u | sed 's/.*/"&"/' >words
printf '%s\n' '" | "' '".."' '"{ "' '" }"' '"4GiB"' '"= "' '"(("' '"[["' '"9223372036854775807"' \
    '"1e308"' '"--set "' >>words
export ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
exec "$top/build/planc-fuzz" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=3000 \
    -max_len=6000 -dict=words -print_final_stats=1 -verbosity=1 "${@:3}" found seeds
