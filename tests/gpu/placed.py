#!/usr/bin/env python3
"""Whether a launcher put neighbouring ranks on one node: placed.py PREFLIGHT.json NODES EACH.

PREFLIGHT.json is what a trainer's --preflight wrote. Ends with 1 and a reason where the ranks are
not NODES x EACH, where those of a node are not neighbours, or where devices differ.
"""
import json
import sys

path, nodes, each = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
ranks = sorted(json.load(open(path))["ranks"], key=lambda r: r["rank"])
if len(ranks) != nodes * each:
    sys.exit(f"{len(ranks)} ranks, not {nodes} x {each}")
hosts = []
for first in range(0, len(ranks), each):
    here = {r["host"] for r in ranks[first : first + each]}
    if len(here) != 1:
        sys.exit(f"ranks {first} to {first + each - 1} lie on {', '.join(sorted(here))}")
    hosts += here
if len(set(hosts)) != nodes:
    sys.exit(f"{nodes} nodes were asked for, the ranks lie on {', '.join(sorted(set(hosts)))}")
for what in ("device", "driver", "libraries"):
    kinds = {r[what] for r in ranks}
    if len(kinds) != 1:
        sys.exit(f"more than one {what}: {', '.join(sorted(kinds))}")
print(f"{each} neighbouring ranks on each of {', '.join(hosts)}; {ranks[0]['device']}")
