#!/usr/bin/env python3
"""compare.py near A.jsonl B.jsonl TOLERANCE: loss, grad_norm and lr of two runs. compare.py probe A
B TOLERANCE: step-0 norms and logits. compare.py st FILE: a strict look at a written file. Prints
why, status 1, when something is wrong."""
import json
import struct
import sys


def die(why):
    print(why)
    sys.exit(1)


def near(a, b, tolerance, what):
    if not abs(a - b) <= tolerance * max(abs(a), abs(b), 1e-6):
        die(f"{what}: {a!r} and {b!r}")


def rows(path):
    return [json.loads(line) for line in open(path)]


what = sys.argv[1]
if what == "near":
    a, b, tolerance = rows(sys.argv[2]), rows(sys.argv[3]), float(sys.argv[4])
    if not a or len(a) != len(b):
        die(f"{len(a)} and {len(b)} steps")
    for x, y in zip(a, b):
        if x["step"] != y["step"] or x["lr"] != y["lr"]:
            die(f"step or lr: {x} {y}")
        for key in ("loss", "grad_norm"):
            near(x[key], y[key], tolerance, f"step {x['step']} {key}")
if what == "probe":
    a, b, tolerance = json.load(open(sys.argv[2])), json.load(open(sys.argv[3])), float(sys.argv[4])
    if a["grad_norms_step0"].keys() != b["grad_norms_step0"].keys() or len(a["logits_step0"]) != len(b["logits_step0"]):
        die("other tensors, or other rows")
    for key in a["grad_norms_step0"]:
        near(a["grad_norms_step0"][key], b["grad_norms_step0"][key], tolerance, key)
    total = sum(v * v for v in a["grad_norms_step0"].values()) ** 0.5
    near(total, a["grad_norm"], 1e-6, "norm of all tensors")
    for r, s in zip(a["logits_step0"], b["logits_step0"]):
        for x, y in zip(r, s):
            near(x, y, tolerance, "logit")
if what == "st":
    raw = open(sys.argv[2], "rb").read()
    n = struct.unpack("<Q", raw[:8])[0]
    pairs = []
    header = json.loads(raw[8:8 + n], object_pairs_hook=lambda p: pairs.append([k for k, _ in p]) or dict(p))
    if any(len(set(p)) != len(p) for p in pairs):
        die("a key twice")
    if n % 8:
        die("header not padded")
    header.pop("__metadata__")
    at = 0
    for name, t in sorted(header.items(), key=lambda x: x[1]["data_offsets"]):
        size = 4
        for d in t["shape"]:
            size *= d
        if t["dtype"] != "F32" or t["data_offsets"] != [at, at + size]:
            die(f"{name}: {t}")
        at += size
    if len(raw) != 8 + n + at:
        die("length")
    if header["model.table.weight"]["shape"] != [257, 257] or header["model.layers.2.mix.weight"]["shape"] != [2, 257] or len(header) != 8:
        die("shapes")
