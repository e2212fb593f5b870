#!/usr/bin/env python3
"""Bandwidth of each collective at the sizes of a plan, beside NCCL's model of it.

  collectives.py PROFILE.json [SIMULATED.json]

PROFILE.json: what --profile-out wrote of a run of several ranks. SIMULATED.json: `planc simulate
--json` of the same plan, whose times are those of NCCL's own model of a ring or a tree. A line for
each kind and unit, with | between its fields: what, then what a rank sends and receives on the wire
(of n ranks (n - 1) / n of the whole buffer, of an all-reduce twice that), the time of a call and
the bandwidth, and the model's. Of instances of a unit (layers) the median counts.
"""
import json
import statistics
import sys

# what the trainer and the simulator call them, and how often the whole buffer is moved
KINDS = {"gather": ("gather", 1), "reduce": ("reduce", 1), "sum over replicas": ("sum", 2)}


def count(n):
    for unit in ("B", "kB", "MB", "GB"):
        if n < 1000 or unit == "GB":
            return f"{n:.4g} {unit}"
        n /= 1000


def modelled(path):
    """Seconds of a call, by kind and unit."""
    times = {}
    for c in json.load(open(path))["rungs"][0]["collectives"]:
        kind, _, rest = c["name"].partition(" ")
        unit = rest.removesuffix(" over replicas")
        # a sum of numbers over ranks, and what mesh.optimizer = all moves between replicas
        if (kind == "sum") == (unit == rest):
            continue
        if c["count"]:
            times.setdefault((kind, unit), []).append((c["seconds"], c["count"]))
    return {k: sum(s for s, _ in v) / sum(n for _, n in v) for k, v in times.items()}


def main():
    run = json.load(open(sys.argv[1]))
    model = modelled(sys.argv[2]) if len(sys.argv) > 2 else {}
    found = {}
    for c in run["collectives"]:
        if c["kind"] in KINDS and c["calls"]:
            at = found.setdefault((c["kind"], c["unit"]), {"part": c["part_bytes"], "seconds": []})
            at["seconds"].append(c["seconds"])
    shown = 0
    for (kind, unit), c in found.items():
        name, times = KINDS[kind]
        ranks = run["dp"] if kind == "sum over replicas" else run["fsdp"]
        if ranks < 2:
            continue
        # the part of a rank is what a gather or a reduction has of it, and all that a sum has
        whole = c["part"] if kind == "sum over replicas" else c["part"] * ranks
        wire = times * whole * (ranks - 1) / ranks
        seconds = statistics.median(c["seconds"])
        said = (f"{count(wire)} of {ranks} ranks in {1e3 * seconds:.3f} ms: "
                f"{1e-9 * wire / seconds:.4g} GB/s")
        want = model.get((name, unit))
        if want:
            said += (f"; NCCL's model {1e3 * want:.3f} ms, {1e-9 * wire / want:.4g} GB/s: "
                     f"{100 * want / seconds:.0f} % of it")
        print(f"{kind}, {unit}|{said}")
        shown += 1
    if not shown:
        sys.exit("the profile has no collective of several ranks")


main()
