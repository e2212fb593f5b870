#!/usr/bin/env python3
"""Metrics of runs that validate.
    check.py unchanged WITH WITHOUT          training is the same digit for digit, except for times and what validation adds
    check.py every METRICS N                 validated after each N-th step and after no other
    check.py near METRICS OTHER              the same steps were validated, losses at most 1e-5 apart
    check.py is METRICS OTHER [RELATIVE]     the last validation of METRICS is the cross-entropy of OTHER's first step"""
import json
import sys

OWN = {"validation_loss", "validation_bits_per_byte", "validation_seconds"}
TIMES = ("seconds", "tokens_per_second", "mfu", "memory", "fraction")


def lines(path):
    return [json.loads(line) for line in open(path, encoding="utf-8")]


def kept(line):
    return {k: v for k, v in line.items() if k not in OWN and not any(t in k for t in TIMES)}


def losses(path):
    return {x["step"]: x["validation_loss"] for x in lines(path) if "validation_loss" in x}


def unchanged(one, other):
    a, b = [kept(x) for x in lines(one)], [kept(x) for x in lines(other)]
    assert a and a == b, f"they differ from step {next((x['step'] for x, y in zip(a, b) if x != y), 'of one file')} on"


def every(path, n):
    have, n = sorted(losses(path)), int(n)
    want = [x["step"] for x in lines(path) if (x["step"] + 1) % n == 0]
    assert have and have == want, f"validated after {have}, not {want}"


def near(one, other):
    a, b = losses(one), losses(other)
    assert a and sorted(a) == sorted(b), f"other steps: {sorted(a)} and {sorted(b)}"
    worst = max(abs(a[k] - b[k]) / abs(b[k]) for k in a)
    assert worst <= 1e-5, f"losses are {worst:.1e} apart"


def is_(path, other, relative="1e-6"):
    have, first = list(losses(path).values())[-1], lines(other)[0]
    want = first.get("ce", first["loss"])
    assert abs(have - want) <= float(relative) * want, f"{have}, not {want}"


try:
    {"unchanged": unchanged, "every": every, "near": near, "is": is_}[sys.argv[1]](*sys.argv[2:])
except AssertionError as e:
    sys.exit(str(e))
