"""The trace of a simulated step says what the report says.
    trace.py REPORT.json TRACE.json"""
import collections
import json
import sys

r = json.load(open(sys.argv[1]))["rungs"][0]
events = json.load(open(sys.argv[2]))["traceEvents"]
lanes = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
assert lanes == {0: "compute", 1: "gather", 2: "reduce", 3: "replicas"}, lanes
spans = collections.defaultdict(list)
for e in events:
    if e["ph"] == "X":
        spans[e["tid"]].append((e["ts"], e["ts"] + e["dur"], e["name"]))
end = max(b for lane in spans.values() for _, b, _ in lane)
step = r["step_seconds"] - r["other"]["host"] - r["other"]["jitter"]
assert abs(end - step * 1e6) < 1e-3, (end, step * 1e6)
for lane in spans.values():  # one thing at a time on a lane
    lane.sort()
    for (_, a, x), (b, _, y) in zip(lane, lane[1:]):
        assert a <= b + 1e-6, (x, y)
collectives = sorted(spans[1] + spans[2])
for (_, a, x), (b, _, y) in zip(collectives, collectives[1:]):  # one order over both
    assert a <= b + 1e-6, (x, y)
collectives += spans[3]  # these have a lane and an order of their own
busy = sum(b - a for a, b, _ in spans[0])
seconds = sum(c["seconds"] for c in r["classes"].values()) + r["other"]["slowest_device"] + r["other"]["contention"]
assert abs(busy - seconds * 1e6) < 1e-6 * busy + 1, (busy, seconds * 1e6)
count = sum(c["count"] for c in r["collectives"])
assert count <= len(collectives), (count, len(collectives))
