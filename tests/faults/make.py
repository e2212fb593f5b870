#!/usr/bin/env python3
"""Makes the inputs that a trainer must refuse, or just accept.

  make.py tokens FILE COUNT VOCAB [INDEX=ID]...   uint16 ids, some replaced
  make.py tensors IN OUT KIND                     a safetensors file with one thing wrong
"""
import json
import struct
import sys


def tokens(path, count, vocab, changes):
    ids = [(i * 7 + i // 13) % vocab for i in range(count)]
    for change in changes:
        index, value = change.split("=")
        ids[int(index)] = int(value)
    with open(path, "wb") as f:
        f.write(struct.pack(f"<{count}H", *ids))


def tensors(source, target, kind):
    raw = open(source, "rb").read()
    length = struct.unpack("<Q", raw[:8])[0]
    header, data = json.loads(raw[8:8 + length]), raw[8 + length:]
    names = [n for n in header if n != "__metadata__"]
    last = max(names, key=lambda n: header[n]["data_offsets"][1])
    norm = "model.norm.weight"
    if kind == "missing":                       # the last one, so that nothing else shifts
        data = data[:header[last]["data_offsets"][0]]
        del header[last]
    elif kind == "extra":
        header["model.surprise.weight"] = {"dtype": "F32", "shape": [2], "data_offsets": [len(data), len(data) + 8]}
        data += bytes(8)
    elif kind == "misshaped":                   # as many elements, other dimensions
        rows, columns = header["model.embed_tokens.weight"]["shape"]
        header["model.embed_tokens.weight"]["shape"] = [columns, rows]
    elif kind == "truncated":
        data = data[:-100]
    elif kind == "dtype":
        header[norm]["dtype"] = "I64"
    elif kind == "overlap":                     # two tensors in one place
        header[last]["data_offsets"] = [0, header[last]["data_offsets"][1] - header[last]["data_offsets"][0]]
    elif kind == "nan":
        at = header[norm]["data_offsets"][0]
        data = data[:at] + struct.pack("<f", float("nan")) + data[at + 4:]
    text = json.dumps(header).encode()
    if kind == "not_json":
        text = b"{" + text
    if kind == "duplicate":
        text = text[:-1] + b", " + json.dumps({norm: header[norm]}).encode()[1:]
    count = len(text) if kind != "huge_header" else 1 << 60
    with open(target, "wb") as f:
        f.write(struct.pack("<Q", count) + text + data)


if sys.argv[1] == "tokens":
    tokens(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5:])
else:
    tensors(sys.argv[2], sys.argv[3], sys.argv[4])
