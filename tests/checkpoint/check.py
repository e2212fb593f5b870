#!/usr/bin/env python3
"""Looks at checkpoints and at what resumed runs print, with nothing but the standard library.

  check.py same A B [FROM]      every step of A from FROM on is in B with the same text, except times
  check.py near A B TOLERANCE   losses and norms at most that far apart, the same samples in order
  check.py steps FILE FROM TO   the file holds these steps, each once, in order
  check.py state FOLDER FINAL   the master weights of a checkpoint are those of a --final file
  check.py equal FOLDER FOLDER  weights and moments of two checkpoints, however they are cut
  check.py sound FOLDER         manifest and parts are what docs/checkpoints.md says

Exit status 0: fine, 1: not, and the reason on one line.
"""
import json
import os
import struct
import sys

# beside all that ends in "seconds"
TIMES = {"tokens_per_second", "tokens_per_second_per_device", "mfu", "memory_peak_bytes",
         "memory_fraction"}


def complain(text):
    print(text)
    sys.exit(1)


def rows_of(path, number=str):
    rows = {}
    for line in open(path, encoding="utf-8"):
        row = json.loads(line, parse_float=number)
        if row["step"] in rows:
            complain(f"{path}: step {row['step']} occurs twice")
        rows[row["step"]] = {k: v for k, v in row.items()
                             if k not in TIMES and not k.endswith("seconds")}
    return rows


def same(a, b, first=0):
    left, right = rows_of(a), rows_of(b)
    wanted = {s for s in left if s >= int(first)}
    if not wanted:
        complain(f"{a}: no step from {first} on")
    for step in sorted(wanted):
        if step not in right:
            complain(f"{b}: step {step} is missing")
        if left[step] != right[step]:
            key = next(k for k in left[step] if left[step][k] != right[step].get(k))
            complain(f"step {step}: {key} is {left[step][key]} and {right[step].get(key)}")
    if max(right) != max(left):
        complain(f"the last steps are {max(left)} and {max(right)}")


def near(a, b, tolerance):
    left, right = rows_of(a, float), rows_of(b, float)
    if sorted(left) != sorted(right):
        complain(f"steps {min(left)} to {max(left)} and {min(right)} to {max(right)}")
    for step, row in left.items():
        if row["tokens_hash"] != right[step]["tokens_hash"]:
            complain(f"step {step}: other samples")
        for key in ("loss", "grad_norm", "lr"):
            x, y = row[key], right[step][key]
            if abs(x - y) > float(tolerance) * max(abs(x), abs(y)):
                complain(f"step {step}: {key} is {x} and {y}")


def steps(path, first, last):
    have = [json.loads(line)["step"] for line in open(path, encoding="utf-8")]
    want = list(range(int(first), int(last) + 1))
    if have != want:
        complain(f"{path} holds steps {have}")


def manifest_of(folder):
    return json.load(open(os.path.join(folder, "manifest.json"), encoding="utf-8"))


def vectors_of(path):
    """name -> bytes of a part; its metadata"""
    raw = open(path, "rb").read()
    length = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8:8 + length])
    data, reached, vectors = raw[8 + length:], 0, {}
    metadata = header.pop("__metadata__")
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        if begin != reached or entry["dtype"] != "F32" or entry["shape"] != [(end - begin) // 4]:
            complain(f"{path}: {name} is {entry}, what is before it ends at {reached}")
        vectors[name] = data[begin:end]
        reached = end
    if reached != len(data):
        complain(f"{path}: {len(data)} bytes of data, {reached} are named")
    return vectors, metadata, 8 + length


def tensors_of(folder):
    """kind/name -> (shape, bytes), by names alone and once more by offsets"""
    m = manifest_of(folder)
    parts, tensors = [], {}
    for number, part in enumerate(m["parts"]):
        path = os.path.join(folder, part["file"])
        vectors, metadata, begins = vectors_of(path)
        if begins != part["header_bytes"] or os.path.getsize(path) != part["bytes"]:
            complain(f"{path}: header of {begins} bytes, file of {os.path.getsize(path)}: the "
                     f"manifest has {part}")
        place = f"{number} of {len(m['parts'])}"
        if int(metadata["step"]) != m["step"] or metadata["part"] != place:
            complain(f"{path}: {metadata}")
        parts.append((open(path, "rb").read(), vectors))
    for name, t in m["tensors"].items():
        count = 1
        for n in t["shape"]:
            count *= n
        for place, kind in enumerate(("master", "moment1", "moment2")):
            pieces, reached = [], 0
            for part, at, element, n in t["segments"]:
                raw, vectors = parts[part]
                info = m["parts"][part]
                begin = info["header_bytes"] + 4 * (place * info["elements"] + at)
                if element != reached or vectors[f"{kind}/{name}"] != raw[begin:begin + 4 * n]:
                    complain(f"{folder}: {kind}/{name}: segment {[part, at, element, n]}")
                pieces.append(vectors.pop(f"{kind}/{name}"))
                reached += n
            if reached != count:
                complain(f"{folder}: {name} has {reached} of {count} elements")
            tensors[f"{kind}/{name}"] = (t["shape"], b"".join(pieces))
    for number, (_, vectors) in enumerate(parts):
        if vectors:
            complain(f"{folder}: part {number} holds {sorted(vectors)[0]}, which no segment names")
    return tensors


def state(folder, final):
    raw = open(final, "rb").read()
    length = struct.unpack("<Q", raw[:8])[0]
    header, data = json.loads(raw[8:8 + length]), raw[8 + length:]
    header.pop("__metadata__", None)
    ours = {k[7:]: v for k, v in tensors_of(folder).items() if k.startswith("master/")}
    if sorted(ours) != sorted(header):
        complain(f"{folder} and {final} hold other names")
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        if ours[name] != (entry["shape"], data[begin:end]):
            complain(f"{name} differs")


def equal(a, b):
    left, right = tensors_of(a), tensors_of(b)
    if sorted(left) != sorted(right):
        complain(f"{a} and {b} hold other names")
    for name, value in left.items():
        if value != right[name]:
            complain(f"{name} differs")


def sound(folder):
    m = manifest_of(folder)
    if list(m) != ["format", "step", "run", "saved", "counters", "spent", "data", "mesh", "plan", "versions",
                   "parts", "tensors", "hash"]:
        complain(f"{folder}: the manifest has {list(m)}")
    if len(m["parts"]) != m["mesh"]["fsdp"] * m["mesh"]["dp"] or m["counters"]["step"] != m["step"]:
        complain(f"{folder}: {len(m['parts'])} parts, counters {m['counters']}")
    tensors_of(folder)


if __name__ == "__main__":
    commands = (same, near, steps, state, equal, sound)
    {c.__name__: c for c in commands}[sys.argv[1]](*sys.argv[2:])
