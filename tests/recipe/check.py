#!/usr/bin/env python3
"""Holds what a trainer wrote against what the plan says; prints why not, and then ends with 1.

  check.py alike A B              the same training on two meshes or accumulations: A.jsonl, A.probe, A.safetensors and B's
  check.py speed LOG RANKS        tokens, seconds and rates of every line agree, and all ranks count once
  check.py same LOG LOG           loss, grad_norm, lr and tokens_hash equal as text
  check.py hashes LOG LOG         tokens_hash equal as text
  check.py period LOG N           tokens_hash of step s + N is that of step s, and no sooner
  check.py decayed A B STEPS LR NAME=DECAY...   B is A after STEPS updates with zero gradient, to the bit
  check.py seeded FILE STD        weights as the architecture says: ones, or normal with that deviation
  check.py loss LOG VALUE         of step 0
  check.py rates LOG KIND LR WARMUP STEPS FLOOR DECAY RUN
"""
import fnmatch
import importlib.util
import json
import math
import pathlib
import re
import struct
import sys

# tests/lib/numbers.py; its name is that of a standard module.
spec = importlib.util.spec_from_file_location("lib_numbers", pathlib.Path(__file__).parent.parent / "lib" / "numbers.py")
lib = importlib.util.module_from_spec(spec)
spec.loader.exec_module(lib)
tensors_of = lib.tensors_of
# These say how fast it went or how much room it took, not what was trained.
MEASURED = re.compile(r"seconds|per_second|mfu|memory")


def lines(path):
    rows = [json.loads(line) for line in open(path, encoding="utf-8")]
    assert [r["step"] for r in rows] == list(range(len(rows))) and rows, f"{path}: steps {[r.get('step') for r in rows]}"
    return rows


def near(a, b, limit, what):
    assert math.isfinite(b) and abs(a - b) <= limit * max(abs(a), 1e-30), f"{what}: {a!r} and {b!r}"


def alike(a, b):
    for x, y in zip(lines(a + ".jsonl"), lines(b + ".jsonl"), strict=True):
        assert set(x) == set(y), f"other keys: {set(x) ^ set(y)}"
        for key in x:
            if MEASURED.search(key):
                continue
            at = f"step {x['step']}: {key}"
            if isinstance(x[key], float) and key != "lr":
                near(x[key], y[key], 1e-6 if x["step"] == 0 else 3e-4 if key == "grad_norm" else 1e-5, at)
            else:
                assert x[key] == y[key], f"{at}: {x[key]} and {y[key]}"
    p, q = (json.load(open(n + ".probe", encoding="utf-8")) for n in (a, b))
    assert set(p["grad_norms_step0"]) == set(q["grad_norms_step0"]), "other tensors"
    for name, norm in p["grad_norms_step0"].items():
        near(norm, q["grad_norms_step0"][name], 1e-5, f"gradient norm of {name}")
    near(math.sqrt(math.fsum(n * n for n in p["grad_norms_step0"].values())), lines(b + ".jsonl")[0]["grad_norm"], 1e-5, "the norm of all is not that of its parts")
    u, v = tensors_of(a + ".safetensors"), tensors_of(b + ".safetensors")
    assert set(u) == set(v), f"tensors differ: {set(u) ^ set(v)}"
    for name in u:
        assert u[name][0] == v[name][0], f"{name}: {u[name][0]} and {v[name][0]}"
        size = math.sqrt(math.fsum(x * x for x in u[name][1]))
        apart = math.sqrt(math.fsum((x - y) ** 2 for x, y in zip(u[name][1], v[name][1])))
        assert apart <= 1e-3 * size, f"{name}: final weights are {apart / size:.1e} apart"


def speed(log, ranks):
    for r in lines(log):
        near(r["tokens"], r["tokens_per_second"] * r["step_seconds"], 1e-9, "tokens per second x seconds")
        near(r["tokens_per_second"], r["tokens_per_second_per_device"] * ranks, 1e-9, "a device's rate x devices")
        assert r["step_seconds"] > 0 and r["exposed_comm_seconds"] >= 0


def texts(path, keys):
    return [[re.search(rf'"{k}":([^,}}]+)', line)[1] for k in keys] for line in open(path, encoding="utf-8")]


def same(a, b, keys):
    x, y = texts(a, keys), texts(b, keys)
    assert x and len(x) == len(y), f"{len(x)} and {len(y)} steps"
    for s, (p, q) in enumerate(zip(x, y)):
        assert p == q, f"step {s}: {p} and {q}"


def period(log, n):
    hashes = [h for h, in texts(log, ["tokens_hash"])]
    assert len(set(hashes[:n])) == n, "a step repeats within the period"
    for s in range(n, len(hashes)):
        assert hashes[s] == hashes[s - n], f"step {s} is not step {s - n} again"


def f32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def decayed(before, after, steps, lr, groups):
    u, v = tensors_of(before), tensors_of(after)
    for name, (shape, values) in u.items():
        decay = [float(d) for pattern, d in groups if fnmatch.fnmatchcase(name, pattern)][-1]
        kept = f32(1 - f32(f32(lr) * f32(decay)))
        for i, (x, y) in enumerate(zip(values, v[name][1], strict=True)):
            for _ in range(steps):
                x = f32(x * kept)
            assert x == y, f"{name}[{i}]: {y!r} is not {x!r} (decay {decay})"


def seeded(path, std):
    for name, (shape, values) in tensors_of(path).items():
        if len(shape) == 1:
            assert all(x == 1 for x in values), f"{name} is not ones"
            continue
        n = len(values)
        mean, deviation = math.fsum(values) / n, math.sqrt(math.fsum(x * x for x in values) / n)
        assert abs(mean) < 5 * std / math.sqrt(n), f"{name}: mean {mean}"
        assert abs(deviation / std - 1) < 5 / math.sqrt(2 * n), f"{name}: deviation {deviation}"
        assert len(set(values)) > 0.95 * n, f"{name}: values repeat"


def rates(log, kind, lr, warmup, steps, floor, decay, run):
    got = [r["lr"] for r in lines(log)]
    assert len(got) == run, f"{len(got)} steps, not {run}"

    def left(s):
        last = steps - 1
        if kind == "constant":
            return 1
        if s > last:
            return 0
        if kind == "wsd":
            return 1 if s <= last - decay else (last - s) / decay
        t = 0 if last == warmup else (s - warmup) / (last - warmup)
        return (1 + math.cos(math.pi * t)) / 2 if kind == "cosine" else 1 - t

    for s, x in enumerate(got):
        want = lr * (s + 1) / warmup if s < warmup else lr if kind == "constant" else lr * (floor + (1 - floor) * left(s))
        assert abs(x - want) <= 1e-12 * lr, f"step {s}: {x} not {want}"


def main(command, a):
    if command == "alike":
        alike(*a)
    elif command == "speed":
        speed(a[0], int(a[1]))
    elif command == "same":
        same(a[0], a[1], ["loss", "grad_norm", "lr", "tokens_hash"])
    elif command == "hashes":
        same(a[0], a[1], ["tokens_hash"])
    elif command == "period":
        period(a[0], int(a[1]))
    elif command == "decayed":
        decayed(a[0], a[1], int(a[2]), float(a[3]), [g.split("=") for g in a[4:]])
    elif command == "seeded":
        seeded(a[0], float(a[1]))
    elif command == "loss":
        near(float(a[1]), lines(a[0])[0]["loss"], 1e-6, "loss of step 0")
    elif command == "rates":
        rates(a[0], a[1], float(a[2]), int(a[3]), int(a[4]), float(a[5]), int(a[6]), int(a[7]))
    else:
        raise AssertionError(f"no check {command}")


try:
    main(sys.argv[1], sys.argv[2:])
except (AssertionError, OSError, KeyError, ValueError, TypeError) as error:
    print(f"{type(error).__name__ if not isinstance(error, AssertionError) else ''} {error}".strip())
    sys.exit(1)
