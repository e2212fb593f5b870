#!/usr/bin/env python3
"""make_st.py KIND FILE: a safetensors file that is right ("fine") or wrong in one way."""
import json
import struct
import sys

kind, path = sys.argv[1:3]
f = lambda v: struct.pack("<%df" % len(v), *v)
b = lambda v: b"".join(struct.pack("<f", x)[2:] for x in v)   # exact for these values
a, w, e = f([1, 2, 3, 4, 5, 6]), b([1.5, -2, 0.25, 8]), b""
data = a + w + e
header = {
    "__metadata__": {"format": "pt"},
    "a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
    "w": {"dtype": "BF16", "shape": [4], "data_offsets": [24, 32]},
    "empty": {"dtype": "F32", "shape": [0, 7], "data_offsets": [24, 24]},
}
if kind == "overlap": header["w"]["data_offsets"] = [20, 28]
if kind == "gap": header["w"]["data_offsets"] = [26, 34]; data += b"xx"
if kind == "trailing": data += b"xxxx"
if kind == "truncated": data = data[:-1]
if kind == "shape": header["a"]["shape"] = [2, 4]
if kind == "negative": header["a"]["shape"] = [-2, -3]
if kind == "overflow": header["a"]["shape"] = [1 << 62, 1 << 62, 1 << 62]
if kind == "fraction": header["a"]["shape"] = [2.0, 3]
if kind == "backwards": header["a"]["data_offsets"] = [24, 0]
if kind == "dtype": header["a"]["dtype"] = "F31"
if kind == "key": header["a"]["colour"] = 1
if kind == "scalar": header["a"] = 1
if kind == "metadata": header["__metadata__"] = []
text = json.dumps(header).encode()
if kind == "duplicate": text = text[:-1] + b', "a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}}'
if kind == "json": text = text[:-1]
if kind == "array": text = b"[]"; data = b""
if kind == "padded": text += b" " * (-len(text) % 8)
length = len(text)
if kind == "huge": length = 1 << 60
if kind == "long": length = len(text) + len(data) + 1
raw = struct.pack("<Q", length) + text + data
if kind == "short": raw = raw[:7]
if kind == "nothing": raw = b""
open(path, "wb").write(raw)
