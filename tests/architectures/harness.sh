# Sourced: builds what compiles drawn architectures in one process, and what runs their graphs.
# harness: builds ./compile and ./derive in the current folder. Needs top and BUILD.
harness() {
    local objects flags="-std=c17 -g -O1 -Wall -Wextra -I $top/compiler"
    objects=$(ls "$top/$BUILD"/compiler/*/*.o "$top/$BUILD"/gen/*.o | grep -v '/commands/')
    [ "$BUILD" = build-sanitize ] &&
        flags+=" -fsanitize=address,undefined -fno-sanitize-recover=undefined"
    # shellcheck disable=SC2086
    cc $flags -I "$top/tests/prove" "$top/tests/architectures/compile.c" \
        "$top"/tests/prove/{bytes,lanes,over,prove}.c $objects -o compile -ljansson -lm -ldl \
        2>compile.err &&
        cc $flags -I "$top/tests/kernels" "$top/tests/architectures/derive.c" \
            "$top/tests/kernels/interpret.c" $objects -o derive -ljansson -lm -ldl 2>>compile.err
}
# drawn FIRST COUNT: draws and compiles them; what was said lies in ./said.
drawn() {
    rm -rf plans && mkdir plans && python3 "$top/tests/architectures/draw.py" plans "$1" "$2" &&
        (cd plans && ../compile ./*.plan) >said
}
# derived: the gradients of the plans that were drawn last; what was said lies in ./slopes.
derived() { (cd plans && ../derive ./*.plan) >slopes; }
