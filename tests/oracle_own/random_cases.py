#!/usr/bin/env python3
"""random_cases.py N [SEED]: N cases that nobody thought of, one per line: NAME | keys of truth |
settings | variant. Every family; sizes, windows, caps, layers without experts, routers balanced by
a loss or by biases, z-losses, masks, separate documents, layouts, meshes, accumulation,
checkpointing, fusion, prefetch, chunks of the loss."""
import random
import sys

MIXTURES = ("qwen3_moe", "mixtral", "olmoe", "glm4_moe")
EARLIER = ("llama", "gpt2", "qwen3", *MIXTURES)
FAMILIES = (*EARLIER, "qwen3_moe", "qwen2", "gpt_neox", "phi3", "mistral", "gemma2", "gemma3", "olmo2")
random.seed(int(sys.argv[2]) if len(sys.argv) > 2 else 1)


def maybe(part):
    return random.random() < part


for number in range(int(sys.argv[1])):
    family = random.choice(FAMILIES)
    heads = random.choice([1, 2, 3, 4, 6])
    layers = random.randint(1, 5)
    width = random.choice([4, 6, 8, 10])
    k = {"family": family, "layers": layers, "heads": heads, "kv": random.choice([n for n in (1, 2, 3, 6) if heads % n == 0]),
         "hidden": heads * width, "head_dim": width if family == "phi3" else random.choice([4, 6, 10, 14]),
         "ffn": random.randint(5, 70), "vocab": random.randint(30, 130), "seq": random.randint(2, 40), "context": 64, "steps": 4,
         "warmup": 1, "lr": 0.002, "seed": random.randint(1, 999), "tied": random.randint(0, 1),
         "factor": random.choice([1, 8]) if family in EARLIER else 1, "theta": random.choice([50, 10000]),
         "bf16": random.choice([0, 0, 1])}
    settings = [f"mesh.prefetch={random.randint(0, 2)}"]
    if maybe(0.3):
        k |= {"mask": 1, "ignore": 0}
    if family in MIXTURES:
        experts = random.randint(2, 9)
        k |= {"experts": experts, "top_k": random.randint(1, experts), "width": random.randint(3, 50), "normalize": random.randint(0, 1),
              "aux": random.choice([0, 0.001, 0.05]), "fused": random.choice([0, 0, 1]), "sigmoid": random.choice([0, 0, 1])}
        if maybe(0.3):
            k["balance"] = 0.02
            settings.append("model.balance_rate=0.02")
        if family == "glm4_moe":
            k |= {"factor": 1, "dense": 2 ** random.randrange(layers) - 1, "shared": random.randint(0, 2), "attention_bias": random.randint(0, 1),
                  "qk_norm": random.randint(0, 1), "routed_scale": random.choice([1, 2.5]), "balance": k.get("balance", 0), "head_dim": random.choice([8, 12]),
                  "rotary": random.choice([0.5, 1])}
            settings += [] if k["balance"] else ["model.balance_rate=0"]
            settings.append(f"model.aux_weight={k['aux']}")
    if family == "qwen3_moe" and maybe(0.4):
        k["dense"] = random.randrange(2 ** layers - 1)
    if family == "gpt2":
        k |= {"context": random.randint(k["seq"], 64), "bare": random.randint(0, 1)}
    if family in ("gpt2", "gpt_neox"):
        k["erf"] = random.randint(0, 1)
    if family == "gpt_neox":
        k |= {"parallel": random.randint(0, 1), "attention_bias": random.randint(0, 1)}
    if family in ("gpt_neox", "phi3"):  # an even number of columns turns; a little more, for it is rounded down
        k["rotary"] = random.choice([1, *((turned + 0.5) / width for turned in range(2, width, 2))])
    if family in ("mistral", "phi3", "gemma2", "gemma3"):
        # a window of one key gives queries and keys no gradient but rounding, which Adam magnifies
        k["window"] = max(2, random.randint(1, 12)) if family.startswith("gemma") or maybe(0.8) else 0
    if family.startswith("gemma"):
        k |= {"query_width": random.randint(4, 20), "every": random.randint(1, 3)}
    if family == "gemma2":
        k |= {"score_cap": random.choice([0, 2]), "logit_cap": random.choice([0, 3])}
    if family == "gemma3":
        k |= {"local_theta": random.choice([20, 100]), "linear": random.choice([1, 2])}
    if maybe(0.25):
        k["end"] = 3
        settings += ["data.documents=separate", "data.end_token=3"]
    fsdp, dp, accumulation = random.choice([(1, 1, 1), (2, 1, 1), (1, 2, 1), (2, 1, 2), (1, 1, 4), (2, 2, 1), (4, 1, 1)])
    if 8 // fsdp // dp // accumulation * k["seq"] % 2 == 0 and maybe(0.3):
        settings.append("batch.loss_chunks=2")
    if maybe(0.3):
        k["z_loss"] = 0.02
        settings.append("model.z_loss=0.02")
        if family in MIXTURES:
            k["router_z"] = 0.05
            settings.append("model.router_z_loss=0.05")
    variant = f"{fsdp}.{dp}.{accumulation}.{random.choice(['none', 'full', 'selective'])}.{random.choice(['on', 'on', 'off'])}"
    print(f"random_{number}|{' '.join(f'{a}={b}' for a, b in k.items())}|{' '.join(f'--set {s}' for s in settings)}|{variant}")
