#!/usr/bin/env python3
"""Compares what a trainer wrote with what it should have written.

  numbers.py recipe CASE               the --set arguments that make a plan of CASE train by its train.json
  numbers.py expect CASE LOG [--final F] [--probe F] [--tol-loss X] [--tol-norm X]
  numbers.py same LOG LOG              loss and grad_norm equal as text, step by step
  numbers.py near F F TOLERANCE        the same tensors, each within that part of its norm
  numbers.py value LOG STEP KEY        one number of a metrics file

Only the standard library, and safetensors files are read by hand: a mistake of the writer must not
be undone by a reader that shares it. Exit status 0: fine, 1: not, and the reason on one line.
"""
import json
import math
import re
import struct
import sys


def complain(text):
    print(text)
    sys.exit(1)


def steps_of(path):
    rows = {}
    for line in open(path, encoding="utf-8"):
        row = json.loads(line)
        if "step" in row:
            if row["step"] in rows:
                complain(f"step {row['step']} occurs twice in {path}")
            rows[row["step"]] = row
    return rows


def tensors_of(path):
    """name -> (shape, values); strict about everything the format promises"""
    raw = open(path, "rb").read()
    length = struct.unpack("<Q", raw[:8])[0]
    pairs = json.loads(raw[8:8 + length], object_pairs_hook=lambda p: p)
    names = [k for k, _ in pairs]
    if len(set(names)) != len(names):
        complain(f"{path}: a name occurs twice")
    out, spans = {}, []
    for name, entry in pairs:
        if name == "__metadata__":
            continue
        entry = dict(entry)
        a, b = entry["data_offsets"]
        if entry["dtype"] != "F32" or b - a != 4 * math.prod(entry["shape"]):
            complain(f"{path}: {name}: {entry}")
        spans.append((a, b))
        out[name] = (entry["shape"], struct.unpack(f"<{(b - a) // 4}f", raw[8 + length + a:8 + length + b]))
    at = 0
    for a, b in sorted(spans):
        if a != at:
            complain(f"{path}: data is not contiguous at byte {at}")
        at = b
    if 8 + length + at != len(raw):
        complain(f"{path}: {len(raw)} bytes, the header describes {8 + length + at}")
    return out


def relative(got, want, floor=1e-12):
    return abs(got - want) / max(abs(want), floor) if math.isfinite(got) else math.inf


def recipe(case):
    t = json.load(open(case + "/train.json", encoding="utf-8"))
    s, o = t["lr_schedule"], t["optimizer"]
    settings = {
        "batch.sequence": t["seq_len"], "batch.global": t["global_batch"],
        "optimizer.lr": s["peak_lr"], "optimizer.betas": f"[{o['beta1']}, {o['beta2']}]", "optimizer.eps": o["eps"],
        "optimizer.weight_decay": o["weight_decay"], "optimizer.clip": t["grad_clip"]["max_norm"],
        "schedule": "cosine", "schedule.warmup": s["warmup_steps"], "schedule.steps": s["total_steps"],
        "schedule.floor": s["min_lr_ratio"], "data.train": case + "/tokens.bin", "data.format": "uint16",
        "data.order": "sequential", "init.from": case,
    }
    if t.get("ignore", -1) >= 0:
        settings["data.ignore"] = t["ignore"]
    for key, value in settings.items():
        print("--set")
        print(f"{key}={value}")


def expect(case, log, options):
    truth = json.load(open(case + "/expected.json", encoding="utf-8"))["float64"]
    tolerance = {"loss": float(options.get("--tol-loss", 1e-5)), "grad_norm": float(options.get("--tol-norm", 3e-4)), "lr": 1e-6}
    bad = []
    if log != "-":
        rows = steps_of(log)
        if sorted(rows) != [t["step"] for t in truth["steps"]]:
            bad.append(f"steps {sorted(rows)}")
        for t in truth["steps"]:
            for key, limit in tolerance.items():
                got = rows.get(t["step"], {}).get(key, math.nan)
                # A step without valid targets has loss and gradient 0: nothing to be relative to.
                error = abs(got) if t[key] == 0 and got == got else relative(got, t[key])
                if not error <= limit:
                    bad.append(f"step {t['step']}: {key} {got} not {t[key]:.9g} ({error:.1e})")
            for key in ("ce", "z", "aux", "router_z", "load"):  # a mixture's: how often each expert was chosen is exact
                got, want = (x[key] if isinstance(x.get(key), list) else [x.get(key, math.nan)] for x in (rows.get(t["step"], {}), t))
                error = max(map(relative, got, want)) if key in t and len(got) == len(want) else 0 if key not in t else math.inf
                if not error <= (1e-6 if key == "load" else tolerance["loss"]):
                    bad.append(f"step {t['step']}: {key} {got} not {want}")
    if "--final" in options:
        got = tensors_of(options["--final"])
        want = truth["final_params"]
        if set(got) != set(want):
            bad.append(f"tensors differ: {sorted(set(got) ^ set(want))[:4]}")
        for name in sorted(set(got) & set(want)):
            values, n = got[name][1], len(got[name][1])
            first, count, period = 0, 0, n
            if "norm_without_key" in want[name]:  # rounding alone moves the bias of keys that are not turned
                first, count, period = want[name].get("key", [n // 3, n // 3, n])
            counts = [not first <= j % period < first + count for j in range(n)]
            counted = [x for x, it in zip(values, counts) if it]
            error = relative(math.sqrt(math.fsum(x * x for x in counted)), want[name].get("norm_without_key", want[name]["norm"]))
            scale = max(abs(x) for x in want[name]["first8"])
            error = max(error, max(abs(a - b) * it for a, b, it in zip(values, want[name]["first8"], counts)) / max(scale, 1e-12))
            if not error <= 5e-4:
                bad.append(f"final {name}: off by {error:.1e}")
    if "--probe" in options:
        probe = json.load(open(options["--probe"], encoding="utf-8"))
        norms, logits = probe["grad_norms_step0"], probe["logits_step0"]
        want = truth["grad_norms_step0"]
        if set(norms) != set(want):
            bad.append(f"probe has other tensors: {sorted(set(norms) ^ set(want))[:4]}")
        for name in sorted(set(norms) & set(want)):
            if not relative(norms[name], want[name]) <= 1e-5:
                bad.append(f"probe: gradient norm of {name} {norms[name]} not {want[name]:.9g}")
        scale = max(abs(x) for row in truth["logits_step0"] for x in row)
        worst = max(abs(a - b) for row, full in zip(truth["logits_step0"], logits) for b, a in zip(row, full)) / scale
        if not worst <= 1e-5 or len(logits) < len(truth["logits_step0"]):
            bad.append(f"probe: logits off by {worst:.1e}")
    if bad:
        complain("; ".join(bad[:3]) + (f" and {len(bad) - 3} more" if len(bad) > 3 else ""))


def texts(path):
    rows = {}
    for line in open(path, encoding="utf-8"):
        step = re.search(r'"step"\s*:\s*(\d+)', line)
        if step:
            rows[int(step[1])] = [re.search(rf'"{k}"\s*:\s*([^,}}\s]+)', line)[1] for k in ("loss", "grad_norm")]
    return rows


def same(a, b):
    x, y = texts(a), texts(b)
    if not x or x != y:
        step = next((s for s in sorted(set(x) | set(y)) if x.get(s) != y.get(s)), "none")
        complain(f"step {step}: {x.get(step)} against {y.get(step)}")


def near(a, b, tolerance):
    x, y = tensors_of(a), tensors_of(b)
    if x.keys() != y.keys():
        complain(f"{a} and {b} have other tensors")
    for name, (shape, values) in x.items():
        if shape != y[name][0]:
            complain(f"{name}: {shape} and {y[name][0]}")
        off = math.dist(values, y[name][1]) / max(math.hypot(*y[name][1]), 1e-12)
        if not off <= tolerance:
            complain(f"{name}: off by {off:.1e} of its norm")


def main():
    command, rest = sys.argv[1], sys.argv[2:]
    try:
        if command == "recipe":
            recipe(rest[0])
        elif command == "expect":
            expect(rest[0], rest[1], dict(zip(rest[2::2], rest[3::2])))
        elif command == "same":
            same(rest[0], rest[1])
        elif command == "near":
            near(rest[0], rest[1], float(rest[2]))
        elif command == "value":
            print(steps_of(rest[0])[int(rest[1])][rest[2]])
    except (OSError, ValueError, KeyError, struct.error) as error:
        complain(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
