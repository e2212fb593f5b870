#!/usr/bin/env python3
"""raw.py MODEL.safetensors OUT ORDER.safetensors: the F32 weights of MODEL, one after the other in
the order in which ORDER, a file that the oracle wrote, names them.
raw.py --agree A B [VARIANT]: two expected.json tell the same numbers to eleven digits (variants are
printed with ten)."""
import json
import struct
import sys


def header_of(path):
    raw = open(path, "rb").read()
    length = struct.unpack("<Q", raw[:8])[0]
    return raw[8 + length:], json.loads(raw[8:8 + length])


def flatten(model, out, order):
    data, header = header_of(model)
    names = [k for k in header_of(order)[1] if k != "__metadata__"]
    assert set(names) == set(header) - {"__metadata__"}, sorted(set(names) ^ set(header))
    with open(out, "wb") as f:
        for name in names:
            a, b = header[name]["data_offsets"]
            f.write(data[a:b])


def norm(entry):
    return entry.get("norm_without_key", entry["norm"])


def agree(a, b, variant=None):
    x, y = (json.load(open(p, encoding="utf-8")) for p in (a, b))
    x, y = x["float64"], y["variants"][variant] if variant else y["float64"]
    keys = ("loss", "ce", "aux", "grad_norm", "lr")
    pairs = [(p[k], q[k]) for p, q in zip(x["steps"], y["steps"]) for k in keys if p.get(k) is not None and q.get(k) is not None]
    pairs += [(x["grad_norms_step0"][k], v) for k, v in y.get("grad_norms_step0", {}).items()]
    pairs += [(norm(x["final_params"][k]), norm(v)) for k, v in y["final_params"].items()]
    worst = max(abs(p - q) / abs(q) for p, q in pairs)
    print(f"differ by {worst:.1e}")
    return len(x["steps"]) == len(y["steps"]) and worst < (2e-9 if variant else 1e-11)


if sys.argv[1] == "--agree":
    sys.exit(0 if agree(*sys.argv[2:]) else 1)
flatten(*sys.argv[1:])
