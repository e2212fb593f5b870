#!/usr/bin/env python3
"""What --trace and --profile wrote: `trace FILE RANKS LANE...` and `profile LOG KERNELS_C`. Says
what is wrong and ends with 1."""
import json
import re
import sys


def trace(path, ranks, *lanes):
    events = json.load(open(path))["traceEvents"]
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert set(names.values()) == set(lanes), names
    shown = [e for e in events if e["ph"] == "X"]
    assert {e["pid"] for e in shown} == set(range(int(ranks))), "ranks"
    assert {e["args"]["step"] for e in shown} == {1, 2}, "steps"
    assert all(e["dur"] >= 0 and e["ts"] >= 0 for e in shown), "times"
    for pid in range(int(ranks)):
        for lane in lanes:
            mine = sorted((e for e in shown if e["pid"] == pid and names[pid, e["tid"]] == lane), key=lambda e: (e["ts"], e["ts"] + e["dur"]))
            assert len(mine) > 1, f"{lane} of rank {pid} is empty"
            for a, b in zip(mine, mine[1:]):  # a lane does one thing at a time; a microsecond is what a stamp may be off
                assert b["ts"] >= a["ts"] + a["dur"] - 1, f"{a['name']} and {b['name']} overlap"


def profile(log, kernels):
    lines = [line.split() for line in open(log) if line.startswith("profile:")]
    known = set(re.findall(r"^const struct kernel k_\w+ = \{\"([^\"]+)\"", open(kernels).read(), re.M))
    shown = [w for w in lines if w[1] == "kernel"]
    assert shown and all(w[2] in known or w[2] == "the" for w in shown), [w[2] for w in shown if w[2] not in known]
    for kind in ("class", "kernel"):
        share = sum(float(w[w.index("%") - 1]) for w in lines if w[1] == kind)
        assert abs(share - 100) < 4, f"{kind}: {share} %"
    classes = {w[2] for w in lines if w[1] == "class"}
    assert {"attention", "attention_grad", "update", "fused"} <= classes and any(
        c.startswith("matmul") for c in classes
    ), classes
    total = next(w for w in lines if w[1] == "all")
    assert float(total[5]) > 0, total


def updates(log, kernels, layers):
    """An update is called for each stretch of a shard, and moves the bytes of the shard once."""
    moved = dict(re.findall(r"^const struct kernel k_\w+ = \{\"(update_\w+)\", \w+, \d+, (\d+), ", open(kernels).read(), re.M))
    rows = [w for w in map(str.split, open(log)) if w[:2] == ["profile:", "kernel"] and w[2] in moved]
    assert len(rows) == len(moved) > 0, f"{len(rows)} of {len(moved)} updates are shown"
    for _, _, name, calls, ms, _, _, _, rate, *_ in rows:
        # the table rounds milliseconds to 0.001 and GB/s to 0.1
        low, high = (
            (float(rate) + 0.05 * d) * 1e6 * (float(ms) + 0.0005 * d) / int(moved[name])
            for d in (-1, 1)
        )
        want = int(layers) if "layers" in name else 1
        assert float(calls) > 1 or want == 1, f"{name}: {calls} calls"
        assert low < 1.02 * want and high > 0.98 * want, (
            f"{name}: the bytes of {low:.2f} to {high:.2f} shards, not of {want}"
        )


try:
    {"trace": trace, "profile": profile, "updates": updates}[sys.argv[1]](*sys.argv[2:])
except AssertionError as e:
    print(e)
    sys.exit(1)
