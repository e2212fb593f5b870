#!/usr/bin/env bash
# module.sh KERNELS.cu OUT.so [more g++ options]: the kernels of a cuda build as a shared object for
# this processor, with the table by which the stand-in driver finds and launches them. The names are
# read off the preprocessed text (KERNEL(threads) name(…)), the types off the functions themselves.
# FIBER_RACES=1: with the race detector (fiber_race.cc), several times slower.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
text=$(realpath "$1") out=$(realpath -m "$2")
shift 2
options=(-std=c++17 -DPLANC_MACHINE="\"$here/fiber.h\"" -I"$(dirname "$text")" "$@")
table=$(mktemp "${TMPDIR:-/tmp}/moduleXXXXXX.cc")
trap 'rm -f "$table" "$table".*' EXIT
{
    printf '#include "%s"\n' "$text"
    printf \
        'extern "C" __attribute__((visibility("default"))) const fiber_kernel fiber_kernels[] = {\n'
    g++ -E -P -DFIBER_LIST "${options[@]}" -x c++ "$text" | tr '\n' ' ' |
        grep -oE '\bFIBER_KERNEL *\([^)]*\) *[A-Za-z_][A-Za-z_0-9]* *\(' |
        sed \
        -E 's/FIBER_KERNEL *\(([^)]*)\) *([A-Za-z_0-9]+) *\(/    fiber_describe("\2", \2, \1),/' |
        sort -u
    printf '    {0, 0, 0, 0, 0, 0},\n};\n'
    cat <<'DOOR'
extern "C" __attribute__((visibility("default"))) const char *
fiber_module_run(const fiber_kernel *k, const unsigned grid[3], const unsigned block[3],
                 int64_t shared_bytes, void **argument)
{
    bool fine = fiber_run(dim3(grid[0], grid[1], grid[2]), dim3(block[0], block[1], block[2]),
                          shared_bytes, k->call, k->function, argument);
    return fine ? nullptr : fiber_m.error;
}
DOOR
} >"$table"
[ "$(uname -m)" = x86_64 ] && tls=-mtls-dialect=gnu2 || tls=
race=()
[ -z "${FIBER_RACES:-}" ] ||
    race=(-DFIBER_RACES -g -fsanitize=thread --param tsan-instrument-func-entry-exit=0)
if [ ${#race[@]} -gt 0 ]; then # the detector itself is not watched
    g++ -std=c++17 -O2 -fPIC -w -DFIBER_RACES -I"$here" -c -o "$table.o" "$here/fiber_race.cc"
    g++ -O1 -march=native -ffp-contract=off -fno-strict-aliasing -fno-gnu-unique $tls -fPIC -w \
        "${race[@]}" "${options[@]}" -c -o "$table.kernels.o" "$table"
    g++ -shared -o "$out" "$table.kernels.o" "$table.o" -lm
    exit
fi
g++ -O1 -march=native -ffp-contract=off -fno-strict-aliasing -fno-gnu-unique $tls -fPIC -shared -w \
    "${options[@]}" -o "$out" "$table" -lm
