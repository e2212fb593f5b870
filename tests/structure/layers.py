#!/usr/bin/env python3
"""Includes point downward only, compiler and runtime share no header, and every file belongs to a layer. A file that
the table does not know is an error on purpose: whoever adds one says where it stands. Also: every source begins with
a paragraph that says why it exists, and none outgrows its size."""
import pathlib
import re
import sys

# First match wins; the layers are those of docs/tour.md.
LAYERS = [
    (0, r"(base|diagnostics)"),
    (1, r"(ast|lex\w*|format|number|evaluate|collect\w*|load|value\w*|derive|hyper|constant\w*|keys\w*|check\w*|resolve\w*|plan\w*|cluster\w*|space\w*|json\w*)"),
    (2, r"(ir\w*|ops\w*|verify|cost\w*)"),
    (3, r"layers\w*"),
    (4, r"strategy\w*"),
    (5, r"(lower\w*|gradient\w*|optimizer\w*|recompute\w*|shard\w*|fuse\w*|schedule\w*|memory\w*|pipeline|passes|sweep\w*|split\w*|prove\w*|chunk\w*|kernel\w*|layout\w*|budget|family|liveness\w*|workspace|pass_\w*)"),
    (6, r"emit\w*"),
    (7, r"(simulate|tune|report)\w*"),
    (8, r"(main|command\w*|import\w*|build\w*|nvrtc)"),
]
LONGEST = 700
top = pathlib.Path(sys.argv[1])
bad = []


def layer_of(name):
    stem = name.rsplit(".", 1)[0]
    return next((n for n, pattern in LAYERS if re.fullmatch(pattern, stem)), None)


for path in sorted(top.glob("compiler/*.[ch]")):
    here = layer_of(path.name)
    if here is None:
        bad.append(f"{path.name} is in no layer")
        continue
    for name in re.findall(r'^\s*#\s*include\s+"([^"]+)"', path.read_text(), re.M):
        if name.endswith(".def") or name.startswith("plan.tab") or name.startswith("plan.lex"):
            continue
        if not (top / "compiler" / name).exists():
            bad.append(f"{path.name} includes {name}, which is not the compiler's")
        elif layer_of(name) is None or layer_of(name) > here:
            bad.append(f"{path.name} (layer {here}) includes {name} (layer {layer_of(name)})")
for path in sorted(top.glob("runtime/*.[ch]")):
    for name in re.findall(r'^\s*#\s*include\s+"([^"]+)"', path.read_text(), re.M):
        if not (top / "runtime" / name).exists() and not (top / "templates" / name).exists():
            bad.append(f"runtime/{path.name} includes {name}, which is not the runtime's")
for path in sorted([*top.glob("compiler/*.[ch]"), *top.glob("runtime/*.[ch]"), *top.glob("templates/**/*.h"), *top.glob("grammar/*")]):
    text = path.read_text()
    if not text.startswith("/*") and not text.startswith("%{"):
        bad.append(f"{path.relative_to(top)} does not begin by saying why it exists")
    if text.count("\n") > LONGEST:
        bad.append(f"{path.relative_to(top)} has {text.count(chr(10))} lines")
for line in bad:
    print(line)
sys.exit(1 if bad else 0)
