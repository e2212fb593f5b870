#!/usr/bin/env python3
"""raw.py MODEL.safetensors OUT: the F32 weights of a two-layer llama, one after the other in the order of truth.c.
raw.py --agree A B: two expected.json tell the same numbers to twelve digits."""
import json
import struct
import sys

PARTS = ("input_layernorm", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
         "post_attention_layernorm", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")


def flatten(model, out):
    raw = open(model, "rb").read()
    length = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8:8 + length])
    names = ["model.embed_tokens.weight"] + [f"model.layers.{i}.{p}.weight" for i in range(2) for p in PARTS]
    with open(out, "wb") as f:
        for name in names + ["model.norm.weight", "lm_head.weight"]:
            a, b = header[name]["data_offsets"]
            f.write(raw[8 + length + a:8 + length + b])


def agree(a, b):
    x, y = (json.load(open(p, encoding="utf-8"))["float64"] for p in (a, b))
    pairs = [(p[k], q[k]) for p, q in zip(x["steps"], y["steps"]) for k in ("loss", "grad_norm", "lr")]
    pairs += [(x["grad_norms_step0"][k], v) for k, v in y["grad_norms_step0"].items()]
    pairs += [(x["final_params"][k]["norm"], v["norm"]) for k, v in y["final_params"].items()]
    worst = max(abs(p - q) / abs(q) for p, q in pairs)
    print(f"differ by {worst:.1e}")
    return len(x["steps"]) == len(y["steps"]) and worst < 1e-12


if sys.argv[1] == "--agree":
    sys.exit(0 if agree(sys.argv[2], sys.argv[3]) else 1)
flatten(sys.argv[1], sys.argv[2])
