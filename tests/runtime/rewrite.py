#!/usr/bin/env python3
"""rewrite.py FILE: the weights of FILE in rewritten/, once in every way that a trainer must take or
refuse."""
import json
import os
import struct
import sys

raw = open(sys.argv[1], "rb").read()
n = struct.unpack("<Q", raw[:8])[0]
header = json.loads(raw[8:8 + n])
header.pop("__metadata__")
weights = {k: ("F32", t["shape"], raw[8 + n + t["data_offsets"][0]:8 + n + t["data_offsets"][1]]) for k, t in header.items()}


def save(folder, tensors, name="model.safetensors", cut=0):
    os.makedirs(f"rewritten/{folder}", exist_ok=True)
    head, data = {}, b""
    for key, (dtype, shape, values) in tensors.items():
        head[key] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    text = json.dumps(head).encode()
    open(f"rewritten/{folder}/{name}", "wb").write(struct.pack("<Q", len(text)) + text + data[:len(data) - cut])


def index(folder, names):
    json.dump({"metadata": {}, "weight_map": names}, open(f"rewritten/{folder}/model.safetensors.index.json", "w"))


def bf16(values):   # to nearest is not needed: the test allows for it
    return b"".join(values[i + 2:i + 4] for i in range(0, len(values), 4))


save("renamed", {k.removeprefix("model."): t for k, t in weights.items()})
save("buffers", dict(reversed(weights.items())) | {"model.layers.1.buffer": ("I64", [1], b"8" * 8), "layers.0.buffer": ("U8", [3], b"abc"),
                                                   "model.layers.2.attn.rotary.inv_freq": ("F32", [1], b"1234")})
save("bf16", {k: ("BF16", s, bf16(v)) for k, (_, s, v) in weights.items()})
names = sorted(weights)
save("sharded", {k: weights[k] for k in names[:3]}, "one.safetensors")
save("sharded", {k: weights[k] for k in names[3:]}, "two.safetensors")
index("sharded", {k: "one.safetensors" if k in names[:3] else "two.safetensors" for k in names})
save("unlisted", {k: weights[k] for k in names[:3]}, "one.safetensors")
save("unlisted", {k: weights[k] for k in names[3:]}, "two.safetensors")
index("unlisted", {k: "one.safetensors" if k in names[:3] else "two.safetensors" for k in names[:-1]})
save("absent_shard", {k: weights[k] for k in names[:3]}, "one.safetensors")
index("absent_shard", {k: "one.safetensors" if k in names[:3] else "two.safetensors" for k in names})
save("missing", {k: t for k, t in weights.items() if k != "model.layers.1.mix.weight"})
save("extra", weights | {"model.layers.3.mix.weight": weights["model.layers.2.mix.weight"]})
save("misshaped", weights | {"model.bias.weight": ("F32", [1, 257], weights["model.bias.weight"][2])})
def half(values):
    n = len(values) // 4
    return struct.pack(f"<{n}e", *struct.unpack(f"<{n}f", values))


save("half", {k: ("F16", s, half(v)) for k, (_, s, v) in weights.items()})
save("double", weights | {"model.bias.weight": ("F64", [257], bytes(8 * 257))})
save("truncated", weights, cut=1)
os.makedirs("rewritten/empty_folder", exist_ok=True)
