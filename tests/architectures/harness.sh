# Sourced: builds the harness that compiles drawn architectures in one process, and counts what it
# says. harness: builds ./compile in the current folder. Needs top and BUILD.
harness() {
    local objects flags=""
    objects=$(ls "$top/$BUILD"/compiler/*/*.o | grep -v '/commands/')
    [ "$BUILD" = build-sanitize ] &&
        flags="-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer"
    cc -std=c17 -g -O1 -Wall -Wextra $flags -I "$top/compiler" \
        "$top/tests/architectures/compile.c" $objects "$top/$BUILD"/gen/*.o \
        -o compile -ljansson -lm -ldl 2>compile.err
}
# drawn FIRST COUNT: draws and compiles them; what was said lies in ./said.
drawn() {
    rm -rf plans && mkdir plans && python3 "$top/tests/architectures/draw.py" plans "$1" "$2" &&
        (cd plans && ../compile ./*.plan) >said
}
