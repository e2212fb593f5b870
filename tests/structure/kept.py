#!/usr/bin/env python3
"""kept.py MEMORY.ir TOKENS LAYERS BYTES name=number ...: what a layer keeps for its backward pass,
per token, against the count that a hand-written trainer needs. h width, D and K the widths of all
query and of all key heads, heads, f the width of a feed-forward layer; of a mixture E experts, k of
them a token has, e their width; qk = 1: queries and keys are normalised; products = 2 when the
feed-forward layer has a gate. BYTES: of an element. An expert's output and its permuted input are
not kept."""
import re
import sys

path, tokens, layers, size = sys.argv[1], *map(int, sys.argv[2:5])
n = {k: int(v) for k, v in (w.split("=") for w in sys.argv[5:])}
h, d, kv = n["h"], n["D"], n["K"]
# x, both norms' results, the residual between; q, k, v; what attention gives and its statistics
want = size * (4 * h + d + 2 * kv + d) + 4 * n["heads"]
if n.get("qk"):
    want += size * (d + kv)
if "E" in n:
    want += 8 * n["E"] + 28 * n["k"] + size * 3 * n["k"] * n["e"]
else:
    want += size * (n["products"] + 1) * n["f"]
kept = 0
for line in open(path, encoding="utf-8"):
    if line.startswith("buffer ") and 'kind="saved"' in line:
        row = dict(re.findall(r"(\w+)=(\d+)", line))
        if int(row["entries"]) >= layers:
            kept += int(row["bytes"])
slack = 64 / tokens  # where each expert's rows start
if kept / tokens > want + slack:
    print(f"{kept / tokens:.1f} bytes per token and layer, {want} would do")
    sys.exit(1)
if kept / tokens < want / 4:
    print(f"only {kept / tokens:.1f} bytes per token and layer of {want}: is anything kept?")
    sys.exit(1)
