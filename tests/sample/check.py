#!/usr/bin/env python3
"""Tokens that --sample wrote.
    check.py data LOG FILE           they begin a file of tokens
    check.py tail LOG TO             a log of the last 21 alone
    check.py greedy LOG PROBE        each is the likeliest by the logits behind the one before it
    check.py last LOG PROBE          the last one is
    check.py warm LOG PROBE T SEED   each is chosen by its probability at temperature T
    check.py text LOG PROMPT N       bytes: the prompt, then N bytes, nothing that a terminal obeys"""
import json
import math
import re
import struct
import sys

MASK = (1 << 64) - 1


def written(path):
    """(all ids, those of the prompt)"""
    lines = open(path, encoding="utf-8").read().split("\n")
    at = next(i for i, x in enumerate(lines) if x.startswith("sample: "))
    n, prompt = map(int, re.match(r"sample: (\d+) tokens after a prompt of (\d+)", lines[at]).groups())
    ids = [int(x) for x in lines[at + 1].split()]
    assert len(ids) == n + prompt, f"{len(ids)} ids, not {n} + {prompt}"
    return ids, prompt


def data(path, to):
    ids, _ = written(path)
    ids = (ids + [0] * 200)[:200]
    open(to, "wb").write(struct.pack(f"<{len(ids)}H", *ids))


def tail(path, to):
    ids, _ = written(path)
    assert ids[0] == 0 and len(ids) == 41
    open(to, "w").write("sample: 1 tokens after a prompt of 20, greedy\n" + " ".join(map(str, ids[-21:])) + "\n")


def logits(path):
    return json.load(open(path, encoding="utf-8"))["logits_step0"]


def greedy(path, probe):
    ids, prompt = written(path)
    for i in range(prompt, min(len(ids), 20)):
        row = logits(probe)[i - 1]
        assert ids[i] == row.index(max(row)), f"token {i} is {ids[i]}, not {row.index(max(row))}"


def last(path, probe):
    ids, _ = written(path)
    row = logits(probe)[19]
    assert ids[20] == row.index(max(row)), f"{ids[20]}, not {row.index(max(row))}"


def mix(x):
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & MASK
    return x ^ (x >> 31)


def key(seed, name):
    h = 0xCBF29CE484222325
    for c in name.encode():
        h = (h ^ c) * 0x100000001B3 & MASK
    h ^= seed * 0x9E3779B97F4A7C15 & MASK
    h = (h ^ (h >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    h = (h ^ (h >> 27)) * 0x94D049BB133111EB & MASK
    return h ^ (h >> 31)


def warm(path, probe, temperature, seed):
    ids, prompt = written(path)
    all_rows = logits(probe)
    chosen = set()
    for i in range(prompt, len(ids)):
        row = all_rows[i - 1]
        p = [math.exp((x - max(row)) / float(temperature)) for x in row]
        u = (mix(key(int(seed), "sample") ^ mix(i)) >> 11) / (1 << 53) * sum(p)
        below = 0
        for k, x in enumerate(p):
            below += x
            if u < below:
                break
        assert ids[i] == k, f"token {i} is {ids[i]}, not {k}"
        chosen.add(k)
    assert len(chosen) > 5, f"only {chosen}: no chance in it"


def text(path, prompt, n):
    raw = open(path, "rb").read()
    head = re.search(rb"sample: (\d+) tokens after a prompt of (\d+), temperature 2\n", raw)
    assert head and head.groups() == (n.encode(), str(len(prompt.encode())).encode()), raw
    shown = raw[head.end():].decode()
    assert all(c == "\n" or c == "\t" or 32 <= ord(c) < 127 or ord(c) >= 160 for c in shown), shown
    assert shown.startswith(prompt)
    back = re.sub(rb"\\x([0-9a-f]{2})", lambda m: bytes([int(m[1], 16)]), raw[head.end():])
    assert len(back) >= len(prompt.encode()) + int(n) + 1, f"{len(back)} bytes"


try:
    {"data": data, "tail": tail, "greedy": greedy, "last": last, "warm": warm, "text": text}[sys.argv[1]](*sys.argv[2:])
except AssertionError as e:
    sys.exit(str(e))
