#!/usr/bin/env python3
"""Writes a small plan drawn from a seed: random_plan.py SEED FILE TOKENS. The draw is over everything that moves bytes about:
family, widths, mesh, batch, checkpointing, pieces of the loss, slots, element type. Prints the number of ranks."""
import random
import sys

seed, path, tokens = int(sys.argv[1]), sys.argv[2], sys.argv[3]
r = random.Random(seed)
MIXTURES = ("qwen3_moe", "mixtral", "olmoe", "glm4_moe")
families = ["llama", "gpt2", "qwen3", "qwen3_moe", "qwen3_moe", "mixtral", "mixtral", "olmoe"]
families += ["gemma2", "gemma3", "gpt_neox", "olmo2", "phi3", "mistral", "qwen2", "glm4_moe"]
family = r.choice(families)
layers, vocab = r.randint(1, 5), r.choice([97, 256, 1000, 3001])
kv = r.choice([1, 2, 4])
heads = kv * r.choice([1, 2])
head = r.choice([8, 12, 16])
hidden, width = heads * head, r.choice([24, 56, 130])
sequence = r.choice([17, 32, 64])
words = [f"layers = {layers}", f"hidden = {hidden}", f"heads = {heads}", f"vocab = {vocab}", f"tied = {r.choice(['on', 'off'])}"]
if family == "gpt2":
    words += [f"context = {sequence}"]
elif family != "gpt_neox":
    words += [f"kv_heads = {kv}"]
else:
    words += ["rotary = 0.5"]
if family in ("gemma2", "gemma3"):
    words += [f"head_dim = {head}", "full_every = 2"]
if family in ("gemma2", "gemma3", "mistral", "phi3"):
    words += [f"window = {r.choice([5, 16, 64])}"]
if family in MIXTURES:
    words += [f"experts = {r.choice([3, 4, 8])}", "top_k = 2"]
    words += [f"balance_bias = {r.choice(['on', 'off', 'off'])}"] if family != "glm4_moe" else []
    words += ["router_z_loss = 0.001"] if r.random() < 0.3 else []
words += ["z_loss = 0.001"] if r.random() < 0.3 else []
words += [f"expert_width = {width}"] if family in ("qwen3_moe", "olmoe", "glm4_moe") else [f"ffn = {width}"]
if family == "qwen3_moe" and layers > 2:
    words += ["dense_layers = [0]", f"ffn = {2 * width}"]
if family == "glm4_moe":
    dense = min(r.randint(0, 2), layers - 1)
    words += [f"first_dense = {dense}", f"shared_experts = {r.randint(0, 2)}", f"qk_norm = {r.choice(['on', 'off'])}"]
    words += [f"ffn = {2 * width}"] if dense else []
fsdp, dp = r.choice([(1, 1), (2, 1), (1, 2), (3, 1), (2, 2), (4, 1)])
local, accumulation = r.randint(1, 3), r.choice([1, 1, 2, 3])
chunks = r.choice([c for c in (1, 1, 2, 4, 8) if local * sequence % c == 0])
optimizer = "all" if dp > 1 and seed % 2 else "shard"
mode = r.choice(["none", "selective", "full"])
documents = r.choice(["", "", ";  documents = separate;  end_token = 3"])
some = f";  every = {r.choice([1, 2])}" if mode != "none" else ""
with open(path, "w") as f:
    f.write(f"""use "models/{family}.plan"
use "clusters/cpu.plan"

plan "drawn from {seed}" {{
    model {family} {{ {";  ".join(words)} }}
    cluster cpu {{ }}
    mesh {{ fsdp = {fsdp};  dp = {dp};  prefetch = {r.randint(0, 3)};  reduce_slots = {r.randint(1, 3)};  optimizer = {optimizer} }}
    precision {{ compute = {r.choice(["fp32", "fp32", "bf16"])} }}
    activation_checkpoint {{ mode = {mode}{some} }}
    batch {{ sequence = {sequence};  local = {local};  global = {local * accumulation * fsdp * dp};  loss_chunks = {chunks} }}
    schedule constant {{ steps = 2 }}
    data {{ train = "{tokens}";  format = uint16{documents} }}
}}
""")
print(fsdp * dp)
