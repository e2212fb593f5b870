#!/usr/bin/env python3
"""What BF16 compute may change, and what must be F32 all the same.

  check.py truth CASE LOG [PROBE] [--variant NAME]   training against the float64 numbers, within the tolerances below
  check.py types DUMP                                a dump after memory: what is kept in which type
  check.py text LOG LOG                              loss and gradient norm of step 0 equal as text

Exit status 0: fine, 1: not, and the reason on one line."""
import json
import math
import re
import sys

# Relative to float64. The worst seen is in brackets.
LOSS = 2e-3         # of every step (8.4e-4)
NORM = 5e-3         # gradient norm of step 0 (1.9e-3); later steps have other weights
TENSOR = 2e-2       # gradient norm of each tensor at step 0 (6.1e-3)
ROUTED = 2e-1       # ... in a mixture: between experts that are all but equal another one is chosen (6.4e-2)
LOGITS = 2e-2       # of the largest logit (1.2e-2)


def complain(text):
    print(text)
    sys.exit(1)


def rows_of(path):
    rows = (json.loads(line) for line in open(path, encoding="utf-8"))
    return {r["step"]: r for r in rows if "step" in r}


def off(got, want):
    return abs(got - want) / abs(want) if math.isfinite(got) else math.inf


def truth(case, log, probe, variant):
    expected = json.load(open(case + "/expected.json", encoding="utf-8"))
    steps = expected["variants"][variant]["steps"] if variant else expected["float64"]["steps"]
    rows = rows_of(log)
    if sorted(rows) != [s["step"] for s in steps]:
        complain(f"steps {sorted(rows)}")
    worst = max((off(rows[s["step"]]["loss"], s["loss"]), s["step"]) for s in steps)
    if worst[0] > LOSS:
        complain(f"loss of step {worst[1]} is off by {worst[0]:.1e}")
    norm = off(rows[0]["grad_norm"], steps[0]["grad_norm"])
    if norm > NORM:
        complain(f"gradient norm of step 0 is off by {norm:.1e}")
    said = f"loss {worst[0]:.1e}, gradient norm {norm:.1e}"
    if probe:
        got = json.load(open(probe, encoding="utf-8"))
        want = expected["float64"]
        scale = max(abs(x) for row in want["logits_step0"] for x in row)
        logits = max(abs(a - b) for row, full in zip(want["logits_step0"], got["logits_step0"]) for a, b in zip(row, full)) / scale
        if logits > LOGITS:
            complain(f"logits are off by {logits:.1e}")
        tensors = [(off(got["grad_norms_step0"][n], x), n) for n, x in want["grad_norms_step0"].items()]
        limit = ROUTED if any(".experts." in name for _, name in tensors) else TENSOR
        for error, name in tensors:
            if error > limit:
                complain(f"gradient norm of {name} is off by {error:.1e}")
        said += f", logits {logits:.1e}, tensors {max(tensors)[0]:.1e}"
    print(said)


def types(path):
    """Sums, statistics, router logits, losses, gradients of weights: F32. Nothing of a weight in
    BF16 outside gather slots."""
    width, mixture = {}, False
    type_of, weights, products, gradients, state, shard, choices = {}, set(), [], [], 0, 0, 0
    for line in open(path, encoding="utf-8"):
        node = re.match(r"\s+(\S.*?) = (\w+)\((.*?)\)", line)
        weight = re.match(r"weight (\S+?):(\w+)", line)
        unit = re.match(r"unit .* count=(\d+) .* shard_elements=(\d+)", line)
        buffer = re.match(r'buffer (\S+) kind="([^"]*)".*? bytes=(\d+)', line)
        gradient = re.match(r"\s+gradient (\S+) = (\S+)", line)
        if unit:
            shard += int(unit[1]) * int(unit[2])
        elif weight:
            type_of[weight[1]] = weight[2]
            weights.add(weight[1])
            mixture |= "{e}" in line
            if weight[2] != "bf16":
                complain(f"weight {weight[1]} is {weight[2]}")
        elif gradient:
            gradients.append((gradient[1], type_of.get(gradient[2])))
        elif buffer and buffer[1].startswith("state."):
            state += int(buffer[3])
        elif buffer and buffer[1] in weights:
            complain(f"weight {buffer[1]} has a buffer of its own")
        elif node or re.match(r"\s+carry ", line):
            for name, kind, columns in re.findall(r"(\S+?):(\w+)\[(?:\d+,)*(\d+)\]", line):
                type_of[name] = kind
                width[name] = columns
            if not node:
                continue
            op, operands = node[2], [o.strip() for o in node[3].split(",") if o.strip()]
            first = type_of.get(operands[0], "f32") if operands else "f32"
            if op in ("sum_last", "sum_rows", "max_last", "top_k", "exp", "rsqrt", "sigmoid", "tanh", "erf") and first != "f32":
                complain(f"{op} of {first}: {line.strip()}")
            if op == "sum_all" and first not in ("f32", "f64"):
                complain(f"{op} of {first}: {line.strip()}")
            if op == "matmul":
                products.append((node[1].split(":")[0], first))
            if op == "top_k":  # router logits: the last product with as many columns as there are experts
                choices += 1
                logits = [p for p in products if width[p[0]] == width[operands[0]]][-1]
                if type_of[logits[0]] != "f32" or logits[1] != "bf16":
                    complain(f"router logits {logits[0]} are {type_of[logits[0]]} of {logits[1]}")
    for name, kind in gradients:
        if kind != "f32":
            complain(f"the gradient of {name} is {kind}")
    if mixture and not choices:
        complain("a mixture that chooses nothing")
    if not gradients or state != 16 * shard:
        complain(f"{state} bytes of state for {shard} parameters of the shard, {len(gradients)} gradients")


def text(a, b):
    x, y = ([repr(rows_of(p)[0][k]) for k in ("loss", "grad_norm")] for p in (a, b))
    if x != y:
        complain(f"step 0: {x} against {y}")


def main():
    command, rest = sys.argv[1], sys.argv[2:]
    variant = None
    if "--variant" in rest:
        variant = rest[rest.index("--variant") + 1]
        rest = rest[:rest.index("--variant")]
    try:
        if command == "truth":
            truth(rest[0], rest[1], rest[2] if len(rest) > 2 else None, variant)
        elif command == "types":
            types(rest[0])
        elif command == "text":
            text(rest[0], rest[1])
    except (OSError, ValueError, KeyError) as error:
        complain(f"{type(error).__name__}: {error}")


main()
