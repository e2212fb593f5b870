#!/usr/bin/env python3
"""tail.py JSON: what nothing can hide counts as exposed. Of a step with one micro-batch these are
the first gather, and after the last kernel of the backward pass the reduction of the prologue, its
sum over replicas, and the sum for the norm; the update comes after them. Their times are recomputed
here from sizes and NCCL's model of a ring."""
import json
import sys

HIDDEN, VOCAB = 4096, 128256  # plans/llama-8b.plan, on plans/clusters/b200.plan
NODE, NETWORK, BASE, HOP, FAR = 722e9, 48e9, 6.6e-6, 3.4e-6, 14e-6


def ring(ranks, nodes, each, number, rounds=1):
    """seconds; `each` members of a ring lie on a node"""
    bandwidth = min(NODE, NETWORK * each) if nodes > 1 else NODE
    latency = rounds * ((ranks - nodes) * HOP + (nodes - 1) * FAR)
    return BASE + latency + rounds * number * (ranks - 1) / ranks / bandwidth


rung = json.load(open(sys.argv[1]))["rungs"][0]
fsdp, dp = rung["mesh"]["fsdp"], rung["mesh"]["dp"]
assert (fsdp, dp, rung["accumulation"]) == (8, 2, 1)
embedding = VOCAB * HIDDEN
want = {
    ("gather prologue", "prologue.forward"): ring(8, 1, 8, 2 * embedding),
    ("reduce prologue", "prologue.backward"): ring(8, 1, 8, 4 * embedding),
    ("sum prologue over replicas", "prologue.backward"): ring(2, 2, 1, 4 * embedding / 8, 2),
}
found, counted = {}, 0
for c in rung["collectives"]:
    counted += sum(c["exposed"].values())
    found[c["name"], c["region"]] = c
assert abs(counted - rung["exposed_comm_seconds"]) < 1e-12
tail = 0
for key, seconds in want.items():
    c = found[key]
    shown = sum(c["exposed"].values())
    # a gather begins with the cast of the own shard
    assert c["count"] == 1 and 0.99 < c["seconds"] / seconds < 1.1, (key, c, seconds)
    assert shown >= 0.98 * seconds, (key, shown, seconds)
    tail += shown
norm = found["sum over world", "clip"]
assert norm["seconds"] > 0 and sum(norm["exposed"].values()) >= 0.98 * norm["seconds"], norm
tail += sum(norm["exposed"].values())
assert rung["exposed_comm_seconds"] >= tail > 0
parts = sum(c["seconds"] for c in rung["classes"].values()) + sum(rung["other"].values())
assert abs((parts + rung["exposed_comm_seconds"]) / rung["step_seconds"] - 1) < 1e-6
