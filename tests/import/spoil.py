#!/usr/bin/env python3
"""Makes a folder that make_family.py wrote into one that is wrong, or unusual, in one way:
  spoil.py FOLDER gap|tail|overlap|huge|head|half|odd|both|dangling|index"""
import json
import os
import pathlib
import struct
import sys

folder, kind = pathlib.Path(sys.argv[1]), sys.argv[2]
path = folder / "model.safetensors"
raw = path.read_bytes()
size = struct.unpack("<Q", raw[:8])[0]
header, data = json.loads(raw[8 : 8 + size]), bytearray(raw[8 + size :])
tensors = [e for n, e in header.items() if n != "__metadata__"]


def write(to=path):
    text = json.dumps(header).encode()
    to.write_bytes(struct.pack("<Q", len(text)) + text + data)


def place(entry, offset):
    entry["data_offsets"] = [at + offset for at in entry["data_offsets"]]


if kind == "gap":
    for entry in tensors[1:]:
        place(entry, 64)
    data += bytes(64)
elif kind == "tail":
    data += bytes(64)
elif kind == "overlap":
    same = {}
    for entry in tensors:  # the second of two that are alike has the place of the first
        first = same.setdefault(str(entry["shape"]), entry)
        if first is not entry:
            entry["data_offsets"] = first["data_offsets"]
            break
elif kind == "huge":
    tensors[-1]["data_offsets"] = [2**63 - 8, 2**63 - 1]
elif kind == "head":  # a head that is no copy
    data[header["lm_head.weight"]["data_offsets"][0] + 3] = 0x3F
elif kind == "half":
    for entry in tensors:
        entry["dtype"], entry["data_offsets"] = "F16", [at // 2 for at in entry["data_offsets"]]
    del data[len(data) // 2 :]
elif kind == "odd":  # a mask of a type that nobody reads
    at = len(data)
    header["transformer.h.0.attn.bias"] = {"dtype": "F4_NEW", "shape": [3],
                                           "data_offsets": [at, at + 2]}
    data += bytes(2)
elif kind == "both":  # an index of other files beside the one that transformers takes
    (folder / "model.safetensors.index.json").write_text('{"weight_map": {"a": "none"}}')
elif kind == "dangling":
    path.unlink()
    os.symlink("nowhere.safetensors", path)
elif kind == "index":
    os.rename(path, folder / "a.safetensors")
    names = [n for n in header if n != "__metadata__"]
    listed = {n: "a.safetensors" for n in names} | {names[0]: "b.safetensors"}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": listed}))
if kind not in ("both", "dangling", "index"):
    write()
