#!/usr/bin/env python3
"""Folders are layers: a file includes, and its object refers to, only its own folder and folders
below it. Files of one folder do not need each other in a circle, except the groups in TOGETHER.
Compiler and runtime share no header but those of formats/. Every source begins with a paragraph
that says why it exists and has a limited length. Every folder has a README that says what enters
and leaves it.
    layers.py TOP [BUILD]       with BUILD the symbols of the objects are checked too"""
import pathlib
import re
import subprocess
import sys

# From the lowest to the highest. The runtime's devices do not know each other.
COMPILER = ["base", "text", "check", "ir", "passes", "emit", "predict", "analysis", "search", "report", "commands"]
RUNTIME = {"shared": [], "cpu": ["shared"], "cuda": ["shared"], "trace": ["shared"]}
LONGEST = 600
# Files that call each other because they are one recursion or one state, cut to keep files short.
TOGETHER = {
    "compiler/text": [
        {"lex", "lex_braces", "lex_files", "lex_meant", "lex_slips"},  # one scanner state
        {"constant", "number"},  # a value and its text
    ],
    "compiler/check": [
        {"evaluate", "keys", "keys_foreign"},  # defaults are plan text; values may be foreign words
        # a value may depend on any other value, and is evaluated when it is first asked for
        {"check_group", "check_rates", "check_source", "check_training", "collect", "collect_unknown", "derive", "hyper", "value", "value_names"},
    ],
    "compiler/ir": [{"ir", "ir_print", "ops"}],  # shapes, the ops that infer them, their names
}
# Folders in which no other circle is allowed.
WITHOUT_CIRCLES = ["compiler/base", "compiler/text", "compiler/check", "compiler/ir", "compiler/emit", "compiler/analysis", "compiler/search", "runtime/shared"]
top = pathlib.Path(sys.argv[1])
bad = []


def below(part, folder):
    """The folders that a file of this folder may know, its own included; None when the folder is
    unknown."""
    if part == "runtime":
        return RUNTIME[folder] + [folder] if folder in RUNTIME else None
    return COMPILER[: COMPILER.index(folder) + 1] if folder in COMPILER else None


def check_includes(part):
    for path in sorted(top.glob(f"{part}/*/*.[ch]")):
        allowed = below(part, path.parent.name)
        if allowed is None:
            bad.append(f"{path.relative_to(top)} is in a folder that has no place in the order")
            continue
        for name in re.findall(r'^\s*#\s*include\s+"([^"]+)"', path.read_text(), re.M):
            if name.startswith(("plan.tab", "plan.lex")):
                continue
            if name.startswith("formats/") and (top / name).exists():
                continue  # what both sides know of files
            folder = name.split("/")[0] if "/" in name else path.parent.name
            if not (top / part / name).exists() and not (path.parent / name).exists():
                bad.append(f"{path.relative_to(top)} includes {name}, which is not in {part}/")
            elif folder not in allowed:
                bad.append(f"{path.relative_to(top)} includes {name}, which is above it")


def check_symbols(part, build):
    """Undefined symbols of an object must be defined in a folder that its own may know."""
    home, uses = {}, []
    for path in sorted(build.glob(f"{part}/*/*.o")):
        out = subprocess.run(["nm", str(path)], capture_output=True, text=True, check=True).stdout
        for line in out.splitlines():
            kind, name = line.split()[-2:]
            if kind in "TDBRC":
                home.setdefault(name, set()).add(path.parent.name)
            elif kind == "U":
                uses.append((path, name))
    for path, name in uses:
        folders = home.get(name)
        if folders and not folders & set(below(part, path.parent.name) or []):
            bad.append(f"{path.relative_to(build)} needs {name} of {'/'.join(sorted(folders))}, which is above it")


def circles(needs):
    """Groups of files that reach each other: `needs` has the files that each file refers to."""

    def reached(start):
        seen, todo = set(), [start]
        while todo:
            for name in needs.get(todo.pop(), ()):
                if name not in seen:
                    seen.add(name)
                    todo.append(name)
        return seen

    reach = {name: reached(name) for name in needs}
    found = {frozenset(b for b in reach[a] if a in reach.get(b, ())) for a in needs if a in reach[a]}
    return sorted(sorted(group) for group in found)


def check_circles(folder, build):
    home, uses = {}, {}
    for path in sorted(build.glob(f"{folder}/*.o")):
        out = subprocess.run(["nm", str(path)], capture_output=True, text=True, check=True).stdout
        for line in out.splitlines():
            kind, name = line.split()[-2:]
            if kind in "TDBRC":
                home[name] = path.stem
            elif kind == "U":
                uses.setdefault(path.stem, set()).add(name)
    needs = {f: {home[n] for n in names if home.get(n, f) != f} for f, names in uses.items()}
    for group in circles(needs):
        if not any(set(group) <= allowed for allowed in TOGETHER.get(folder, [])):
            bad.append(f"{folder}: {', '.join(group)} need each other in a circle")


for part in ("compiler", "runtime"):
    for stray in sorted(top.glob(f"{part}/*.[ch]")):
        bad.append(f"{stray.relative_to(top)} is in no folder")
    for folder in COMPILER if part == "compiler" else RUNTIME:
        if not (top / part / folder / "README.md").exists():
            bad.append(f"{part}/{folder} has no README.md")
    check_includes(part)
if len(sys.argv) > 2:  # the runtime's devices implement what runtime/shared declares, so its links point both ways
    check_symbols("compiler", pathlib.Path(sys.argv[2]))
    for folder in WITHOUT_CIRCLES:
        check_circles(folder, pathlib.Path(sys.argv[2]))
sources = [*top.glob("formats/*.[ch]"), *top.glob("compiler/*/*.[ch]"), *top.glob("runtime/*/*.[ch]"), *top.glob("templates/**/*.h"), *top.glob("grammar/*")]
for path in sorted(sources):
    text = path.read_text()
    if not text.startswith("/*") and not text.startswith("%{"):
        bad.append(f"{path.relative_to(top)} does not begin by saying why it exists")
    if text.count("\n") > LONGEST:
        bad.append(f"{path.relative_to(top)} has {text.count(chr(10))} lines")
for line in bad:
    print(line)
sys.exit(1 if bad else 0)
