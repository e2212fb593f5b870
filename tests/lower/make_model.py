#!/usr/bin/env python3
"""Makes a folder with a llama configuration and its weights, or with one of them spoilt.

  make_model.py FOLDER [whole|none|shards|missing|extra|misshaped|truncated|half|index_lies]
  [KEY=JSON | -KEY]...

Only the standard library; the weights are zeros, because only names, shapes and sizes are looked
at.
"""
import json
import math
import pathlib
import struct
import sys

folder, words = pathlib.Path(sys.argv[1]), sys.argv[2:]
kind = words.pop(0) if words and "=" not in words[0] and not words[0].startswith("-") else "whole"
config = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": 24,
    "intermediate_size": 101, "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 3, "head_dim": 10,
    "vocab_size": 97, "max_position_embeddings": 128, "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "attention_bias": False,
    "attention_dropout": 0.0, "mlp_bias": False, "tie_word_embeddings": True, "torch_dtype": "float32", "pretraining_tp": 1,
    "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                     "original_max_position_embeddings": 64},
}
for word in words:
    if word.startswith("-"):
        config.pop(word[1:])
    else:
        key, value = word.split("=", 1)
        config[key] = json.loads(value)
folder.mkdir(parents=True, exist_ok=True)
for old in folder.glob("*"):
    old.unlink()
(folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
if kind == "none":
    sys.exit(0)

h, heads, ffn, vocab = (config[k] for k in ("hidden_size", "num_attention_heads", "intermediate_size", "vocab_size"))
kv, d = config.get("num_key_value_heads", heads), config.get("head_dim", h // heads)
tensors = {"model.embed_tokens.weight": [vocab, h], "model.norm.weight": [h]}
if not config.get("tie_word_embeddings", False):
    tensors["lm_head.weight"] = [vocab, h]
for i in range(config["num_hidden_layers"]):
    p = f"model.layers.{i}."
    tensors |= {p + "input_layernorm.weight": [h], p + "post_attention_layernorm.weight": [h],
                p + "self_attn.q_proj.weight": [heads * d, h], p + "self_attn.k_proj.weight": [kv * d, h],
                p + "self_attn.v_proj.weight": [kv * d, h], p + "self_attn.o_proj.weight": [h, heads * d],
                p + "mlp.gate_proj.weight": [ffn, h], p + "mlp.up_proj.weight": [ffn, h], p + "mlp.down_proj.weight": [h, ffn]}
if kind == "missing":
    del tensors["model.norm.weight"]
if kind == "extra":
    tensors["model.surprise.weight"] = [h]
if kind == "misshaped":
    tensors["model.embed_tokens.weight"] = [vocab + 1, h]


def write(path, names):
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name in names:
        half = kind == "half" and name == "model.norm.weight"
        size = (2 if half else 4) * math.prod(tensors[name])
        header[name] = {"dtype": "F16" if half else "F32", "shape": tensors[name], "data_offsets": [at, at + size]}
        at += size
    raw = json.dumps(header).encode()
    data = bytes(at - 4 if kind == "truncated" else at)
    path.write_bytes(struct.pack("<Q", len(raw)) + raw + data)


names = list(tensors)
if kind in ("shards", "index_lies"):
    parts = {f"model-0000{k + 1}-of-00003.safetensors": names[k::3] for k in range(3)}
    for file, some in parts.items():
        write(folder / file, some)
    index = {name: file for file, some in parts.items() for name in some}
    if kind == "index_lies":
        index["model.nowhere.weight"] = "model-00001-of-00003.safetensors"
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}), encoding="utf-8")
else:
    write(folder / "model.safetensors", names)
