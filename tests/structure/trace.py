#!/usr/bin/env python3
"""trace.py overlap TRACE PREFETCH: in a layer loop, whether the gather of the next layer is issued
before the first kernel of this one and waited for after its last. trace.py saved MEMORY_IR BYTES:
bytes kept per layer."""
import re
import sys


def saved(path, want):
    total = 0
    for line in open(path, encoding="utf-8"):
        m = re.match(r'buffer (\S+) kind="saved" .* entries=(\d+) stride=(\d+)', line)
        if m and int(m[2]) > 1:
            bytes_ = int(re.search(r" bytes=(\d+)", line)[1])
            total += bytes_
    if total != want:
        print(f"{total} bytes saved a layer, not {want}")
        return False
    return True


def overlap(path, prefetch):
    """lines: number, lane, region[iteration], what the device was asked"""
    rows = []
    for line in open(path, encoding="utf-8"):
        parts = re.split(r"  +", line.strip(), maxsplit=3)
        if len(parts) == 4 and parts[0].isdigit():
            rows.append((parts[1], parts[2], parts[3]))
    looped = sorted({r[1].split("[")[0] for r in rows if "[" in r[1] and r[0] == "compute" and r[2].startswith("run ") and re.search(r"forward|backward", r[1])})
    judged = 0
    for region in looped:
        layers = []
        for _, where, _ in rows:
            m = re.fullmatch(re.escape(region) + r"\[(\d+)\]", where)
            if m and int(m[1]) not in layers:
                layers.append(int(m[1]))
        for here, after in zip(layers, layers[1:]):
            runs = [n for n, r in enumerate(rows) if r[1] == f"{region}[{here}]" and r[2].startswith("run ")]
            # The gather meant is the last one before the next layer computes: forward and backward
            # both gather it.
            begins = next(n for n, r in enumerate(rows) if r[1] == f"{region}[{after}]" and r[2].startswith("run "))
            gathers = [n for n in range(begins) if rows[n][0] == "gather" and re.match(rf"gather \S+\[{after}\] ", rows[n][2])]
            waits = [n for n in range(begins) if re.match(rf"wait for event \d+ \(gather \S+\[{after}\]\)", rows[n][2])]
            if not gathers or not waits:
                print(f"{region}: no gather of layer {after}, or nothing waits for it")
                return False
            ahead = gathers[-1] < runs[0] and waits[-1] > runs[-1]
            if ahead != (prefetch > 0):
                print(f"{region}: layer {after} is gathered at line {gathers[-1]} and waited for at {waits[-1]}, layer {here} runs from {runs[0]} to {runs[-1]}")
                return False
            judged += 1
    if len(looped) < 2 or judged < 4:
        print(f"only {looped} and {judged} pairs of layers to judge")
        return False
    return True


if sys.argv[1] == "saved":
    sys.exit(0 if saved(sys.argv[2], int(sys.argv[3])) else 1)
sys.exit(0 if overlap(sys.argv[2], int(sys.argv[3])) else 1)
