#!/usr/bin/env python3
"""random_cases.py N [SEED]: N cases that nobody thought of, one per line: NAME | keys of truth |
settings | variant. Sizes, families, layers without experts, layouts, meshes, accumulation,
checkpointing, fusion, prefetch, chunks of the loss."""
import random
import sys

random.seed(int(sys.argv[2]) if len(sys.argv) > 2 else 1)
for number in range(int(sys.argv[1])):
    family = random.choice(["qwen3_moe", "qwen3_moe", "mixtral", "olmoe", "olmo2", "gpt2", "qwen3", "llama"])
    heads = random.choice([1, 2, 3, 4, 6])
    layers = random.randint(1, 5)
    k = {"family": family, "layers": layers, "heads": heads, "kv": random.choice([n for n in (1, 2, 3, 6) if heads % n == 0]),
         "hidden": heads * random.choice([4, 6, 8, 10]), "head_dim": random.choice([4, 6, 10, 14]), "ffn": random.randint(5, 70),
         "vocab": random.randint(30, 130), "seq": random.randint(2, 40), "context": 64, "steps": 4, "warmup": 1, "lr": 0.002,
         "seed": random.randint(1, 999), "tied": random.randint(0, 1), "factor": random.choice([1, 8]), "bf16": random.choice([0, 0, 1])}
    if random.random() < 0.3:
        k |= {"mask": 1, "ignore": 0}
    if family in ("qwen3_moe", "mixtral", "olmoe"):
        experts = random.randint(2, 9)
        k |= {"experts": experts, "top_k": random.randint(1, experts), "width": random.randint(3, 50), "normalize": random.randint(0, 1),
              "aux": random.choice([0, 0.001, 0.05]), "fused": random.choice([0, 0, 1])}
    if family == "qwen3_moe" and random.random() < 0.4:
        k["dense"] = random.randrange(2 ** layers - 1)
    if family == "gpt2":
        k |= {"context": random.randint(k["seq"], 64), "bare": random.randint(0, 1), "erf": random.randint(0, 1)}
    fsdp, dp, accumulation = random.choice([(1, 1, 1), (2, 1, 1), (1, 2, 1), (2, 1, 2), (1, 1, 4), (2, 2, 1), (4, 1, 1)])
    settings = f"--set mesh.prefetch={random.randint(0, 2)}"
    if 8 // fsdp // dp // accumulation * k["seq"] % 2 == 0 and random.random() < 0.3:
        settings += " --set batch.loss_chunks=2"
    if random.random() < 0.3:
        k["z_loss"] = 0.02
        settings += " --set model.z_loss=0.02"
        if family in ("qwen3_moe", "mixtral", "olmoe"):
            k["router_z"] = 0.05
            settings += " --set model.router_z_loss=0.05"
    variant = f"{fsdp}.{dp}.{accumulation}.{random.choice(['none', 'full', 'selective'])}.{random.choice(['on', 'on', 'off'])}"
    print(f"random_{number}|{' '.join(f'{a}={b}' for a, b in k.items())}|{settings}|{variant}")
