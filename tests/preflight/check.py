#!/usr/bin/env python3
"""check.py measured JSON PROGRAM      what was measured, against the tables of the trainer
   check.py parts JSON                  gathers and sums over replicas, of parts of a shard
   check.py cluster JSON SIMULATED      the cluster file predicts what preflight does
   check.py edit JSON TO [RANK KEY VALUE]   all ranks alike but one"""
import json
import re
import sys


def measured(path, program):
    m = json.load(open(path, encoding="utf-8"))
    assert (m["planc_preflight"], m["device"], m["fsdp"], m["dp"]) == (1, "cpu", 2, 2)
    assert [(r["rank"], r["replica"], r["shard"]) for r in m["ranks"]] == [
        (0, 0, 0), (1, 0, 1), (2, 1, 0), (3, 1, 1)]
    for r in m["ranks"]:
        for key in ("host", "device", "driver", "libraries"):
            assert r[key] and isinstance(r[key], str), r
        for key in ("free_bytes", "arena_bytes", "product_flops_per_second",
                    "copy_bytes_per_second", "link_bytes_per_second"):
            assert r[key] > 0, r
    found = {(t["what"], t["unit"]): t for t in m["transfers"]}
    names = {t["unit"] for t in m["transfers"] if t["unit"]}
    assert len(names) >= 2 and len(found) == 3 * len(names) + 1, sorted(found)
    for name in names:
        parts = {what: found[what, name]["part_bytes"] for what in ("gather", "reduce_scatter", "all_reduce")}
        assert len(set(parts.values())) == 1, parts  # FP32: weights and gradients of a shard
        text = open(program, encoding="utf-8").read()
        assert re.search(rf"\b{parts['gather'] // 4}\b", text), f"no shard of {parts['gather'] // 4} elements"
    for t in m["transfers"]:
        assert t["seconds"] > 0 and t["hosts"] == 1
        assert t["ranks"] == (4 if t["what"] == "sum" else 2) and t["fewest_of_a_host"] == t["ranks"]
    assert m["predicted_step_seconds"] > 0 and m["predicted_step_seconds_with_links"] > 0


def parts(path):
    found = {}
    for t in json.load(open(path, encoding="utf-8"))["transfers"]:
        if t["unit"]:
            found.setdefault((t["what"], t["unit"]), []).append(t["part_bytes"])
    names = {unit for _, unit in found}
    assert len(names) >= 2 and {what for what, _ in found} == {"gather", "reduce_scatter"}, found
    for sizes in found.values():  # of a shard over two shards, of half a shard over two replicas
        assert len(sizes) == 2 and sizes[0] == 2 * sizes[1], found


def cluster(path, simulated):
    want = json.load(open(path, encoding="utf-8"))["predicted_step_seconds_with_links"]
    have = json.load(open(simulated, encoding="utf-8"))["rungs"][0]["step_seconds"]
    assert abs(have - want) <= 1e-6 * want, f"{have}, not {want}"


def edit(path, to, rank="0", key="", value=""):
    m = json.load(open(path, encoding="utf-8"))
    for r in m["ranks"]:
        r.update(product_flops_per_second=1e9, copy_bytes_per_second=1e9, link_bytes_per_second=1e9)
    if key:
        m["ranks"][int(rank)][key] = value if key == "driver" else float(value)
    json.dump(m, open(to, "w", encoding="utf-8"))


try:
    {"measured": measured, "parts": parts, "cluster": cluster, "edit": edit}[sys.argv[1]](*sys.argv[2:])
except AssertionError as e:
    sys.exit(str(e))
