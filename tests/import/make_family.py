#!/usr/bin/env python3
"""Makes a folder as Hugging Face transformers would write it: a configuration of one family and its
weights.

  make_family.py FOLDER CONFIG.json [whole|none|shards] [WORD]... [KEY=JSON | -KEY]...

Words: bare (the model's prefix left out), buffers (GPT-2's masks), head (a tied head stored as
well), fused (two tensors for all experts), missing, extra, misshaped (of the first tensor of a
layer). The weights are zeros: only names, shapes and sizes are looked at. The list of tensors is
that of the families' implementations, written without a look at the plans."""
import json
import math
import pathlib
import struct
import sys

folder, words = pathlib.Path(sys.argv[1]), sys.argv[3:]
config = json.loads(pathlib.Path(sys.argv[2]).read_text(encoding="utf-8"))
flags = {w for w in words if "=" not in w and not w.startswith("-")}
for word in words:
    if "=" in word:
        key, value = word.split("=", 1)
        config[key] = json.loads(value)
    elif word.startswith("-"):
        config.pop(word[1:])
folder.mkdir(parents=True, exist_ok=True)
for old in folder.glob("*"):
    old.unlink()
(folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
if "none" in flags:
    sys.exit(0)


def gpt2(c):
    h, f = c["n_embd"], c.get("n_inner") or 4 * c["n_embd"]
    out = {"transformer.wte.weight": [c["vocab_size"], h], "transformer.wpe.weight": [c["n_positions"], h]}
    for i in range(c["n_layer"]):
        p = f"transformer.h.{i}."
        out |= {p + "ln_1.weight": [h], p + "ln_1.bias": [h], p + "attn.c_attn.weight": [h, 3 * h], p + "attn.c_attn.bias": [3 * h],
                p + "attn.c_proj.weight": [h, h], p + "attn.c_proj.bias": [h], p + "ln_2.weight": [h], p + "ln_2.bias": [h],
                p + "mlp.c_fc.weight": [h, f], p + "mlp.c_fc.bias": [f], p + "mlp.c_proj.weight": [f, h], p + "mlp.c_proj.bias": [h]}
        if "buffers" in flags:
            out |= {p + "attn.bias": [1, 1, c["n_positions"], c["n_positions"]], p + "attn.masked_bias": [1]}
    return out | {"transformer.ln_f.weight": [h], "transformer.ln_f.bias": [h]}


def experts(c, p, n, f, h, names, block):
    if "fused" in flags:
        return {p + "mlp.gate.weight": [n, h], p + "mlp.experts.gate_up_proj": [n, 2 * f, h], p + "mlp.experts.down_proj": [n, h, f]}
    out = {p + block + "gate.weight": [n, h]}
    for e in range(n):
        out |= {f"{p}{block}experts.{e}.{names[0]}.weight": [f, h], f"{p}{block}experts.{e}.{names[1]}.weight": [f, h], f"{p}{block}experts.{e}.{names[2]}.weight": [h, f]}
    return out


def gpt_neox(c):
    h, f = c["hidden_size"], c["intermediate_size"]
    out = {"gpt_neox.embed_in.weight": [c["vocab_size"], h]}
    shapes = {"input_layernorm": [h], "post_attention_layernorm": [h], "attention.query_key_value": [3 * h, h], "attention.dense": [h, h],
              "mlp.dense_h_to_4h": [f, h], "mlp.dense_4h_to_h": [h, f]}
    for i in range(c["num_hidden_layers"]):
        for name, shape in shapes.items():
            out[f"gpt_neox.layers.{i}.{name}.weight"] = shape
            if c.get("attention_bias", True) or not name.startswith("attention"):
                out[f"gpt_neox.layers.{i}.{name}.bias"] = shape[:1]
        if "buffers" in flags:
            p = f"gpt_neox.layers.{i}.attention."
            out |= {p + "bias": [1, 1, 9, 9], p + "masked_bias": [1], p + "rotary_emb.inv_freq": [3]}
    return out | {"gpt_neox.final_layer_norm.weight": [h], "gpt_neox.final_layer_norm.bias": [h]}


def llama(c):
    h, heads = c["hidden_size"], c["num_attention_heads"]
    kv, d = c.get("num_key_value_heads") or heads, c.get("head_dim") or h // heads
    out = {"model.embed_tokens.weight": [c["vocab_size"], h]}
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        out |= {p + "input_layernorm.weight": [h], p + "post_attention_layernorm.weight": [h], p + "self_attn.q_proj.weight": [heads * d, h],
                p + "self_attn.k_proj.weight": [kv * d, h], p + "self_attn.v_proj.weight": [kv * d, h], p + "self_attn.o_proj.weight": [h, heads * d]}
        if c["model_type"] == "qwen2" or (c["model_type"] == "glm4_moe" and c.get("attention_bias")):
            out |= {p + "self_attn.q_proj.bias": [heads * d], p + "self_attn.k_proj.bias": [kv * d], p + "self_attn.v_proj.bias": [kv * d]}
        if c["model_type"] == "phi3":
            for name in "qkv":
                del out[f"{p}self_attn.{name}_proj.weight"]
            out |= {p + "self_attn.qkv_proj.weight": [(heads + 2 * kv) * d, h], p + "mlp.gate_up_proj.weight": [2 * c["intermediate_size"], h],
                    p + "mlp.down_proj.weight": [h, c["intermediate_size"]]}
            continue
        if c["model_type"].startswith("gemma"):
            out |= {p + "pre_feedforward_layernorm.weight": [h], p + "post_feedforward_layernorm.weight": [h]}
        if c["model_type"].startswith("olmo"):
            out |= {p + "self_attn.q_norm.weight": [heads * d], p + "self_attn.k_norm.weight": [kv * d]}
        if c["model_type"] == "olmo2":
            out[p + "post_feedforward_layernorm.weight"] = out.pop(p + "input_layernorm.weight")
        if c["model_type"].startswith(("qwen3", "gemma3")) or c.get("use_qk_norm"):
            out |= {p + "self_attn.q_norm.weight": [d], p + "self_attn.k_norm.weight": [d]}
        sparse = i not in (c.get("mlp_only_layers") or []) and (i + 1) % (c.get("decoder_sparse_step") or 1) == 0
        if c["model_type"] == "mixtral":
            out |= experts(c, p, c["num_local_experts"], c["intermediate_size"], h, ("w1", "w3", "w2"), "block_sparse_moe.")
        elif c["model_type"] == "olmoe":
            out |= experts(c, p, c["num_experts"], c["intermediate_size"], h, ("gate_proj", "up_proj", "down_proj"), "mlp.")
        elif c["model_type"] == "glm4_moe" and i >= c["first_k_dense_replace"]:
            f, shared = c["moe_intermediate_size"], c["n_shared_experts"] * c["moe_intermediate_size"]
            out |= experts(c, p, c["n_routed_experts"], f, h, ("gate_proj", "up_proj", "down_proj"), "mlp.")
            out[p + "mlp.gate.e_score_correction_bias"] = [c["n_routed_experts"]]
            if shared:
                out |= {p + "mlp.shared_experts.gate_proj.weight": [shared, h], p + "mlp.shared_experts.up_proj.weight": [shared, h],
                        p + "mlp.shared_experts.down_proj.weight": [h, shared]}
        elif c["model_type"] == "qwen3_moe" and sparse:
            out |= experts(c, p, c["num_experts"], c["moe_intermediate_size"], h, ("gate_proj", "up_proj", "down_proj"), "mlp.")
        else:
            f = c["intermediate_size"]
            out |= {p + "mlp.gate_proj.weight": [f, h], p + "mlp.up_proj.weight": [f, h], p + "mlp.down_proj.weight": [h, f]}
    return out | {"model.norm.weight": [h]}


is_gpt2 = config["model_type"] == "gpt2"
is_neox = config["model_type"] == "gpt_neox"
tied = is_gpt2 or config["model_type"].startswith("gemma")
tensors = gpt2(config) if is_gpt2 else gpt_neox(config) if is_neox else llama(config)
if not config.get("tie_word_embeddings", tied) or "head" in flags:
    tensors["embed_out.weight" if is_neox else "lm_head.weight"] = list(tensors.values())[0]
first = next(name for name in tensors if ".0." in name)
if "missing" in flags:
    del tensors[first]
if "extra" in flags:
    tensors[first.replace(".0.", ".9.")] = tensors[first]
if "misshaped" in flags:
    tensors[first] = [tensors[first][0] + 1]
if "bare" in flags:
    tensors = {name.split(".", 1)[1] if name.startswith(("transformer.", "model.", "gpt_neox.")) else name: shape for name, shape in tensors.items()}


def write(path, names):
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name in names:
        size = 4 * math.prod(tensors[name])
        header[name] = {"dtype": "F32", "shape": tensors[name], "data_offsets": [at, at + size]}
        at += size
    raw = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(raw)) + raw + bytes(at))


names = list(tensors)
if "shards" in flags:
    parts = {f"model-0000{k + 1}-of-00003.safetensors": names[k::3] for k in range(3)}
    for file, some in parts.items():
        write(folder / file, some)
    index = {name: file for file, some in parts.items() for name in some}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": index}), encoding="utf-8")
else:
    write(folder / "model.safetensors", names)
