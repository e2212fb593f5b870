#!/usr/bin/env python3
"""groups.py START ALIKE SCALED NAME=FACTOR…: weights whose name has NAME in it moved by FACTOR times
what they move in ALIKE (the last that fits counts), all others by as much as there."""
import json
import struct
import sys


def tensors(path):
    raw = open(path, "rb").read()
    n = struct.unpack("<Q", raw[:8])[0]
    found = {}
    for name, t in json.loads(raw[8:8 + n]).items():
        if name != "__metadata__":
            begin, end = t["data_offsets"]
            found[name] = struct.unpack(f"<{(end - begin) // 4}f", raw[8 + n + begin:8 + n + end])
    return found


start, alike, scaled = (tensors(p) for p in sys.argv[1:4])
seen = set()
for name in start:
    factor = 1.0
    for rule in sys.argv[4:]:
        word, x = rule.split("=")
        if word in name:
            factor = float(x)
            seen.add(word)
    for a, b, c in zip(start[name], alike[name], scaled[name]):
        want = a + factor * (b - a)
        if abs(c - want) > (0 if factor == 0 else 4e-7 * max(1, abs(factor)) * (abs(a) + 1e-2)):
            sys.exit(f"{name}: {c!r}, not {want!r} (from {a!r}, alike {b!r}, factor {factor})")
    if factor and start[name] == scaled[name]:
        sys.exit(f"{name} did not move")
assert len(seen) == len(sys.argv) - 4, seen
