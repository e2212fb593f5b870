"""A report of simulate must agree with itself: its parts sum up to the step, in picoseconds.
    report.py REPORT.json"""
import json
import sys

for r in json.load(open(sys.argv[1]))["rungs"]:
    step = r["step_picoseconds"]

    def pico(x):
        return round(x * 1e12)

    classes = sum(pico(c["seconds"]) for c in r["classes"].values())
    other = sum(pico(x) for x in r["other"].values())
    exposed = sum(pico(x) for x in r["exposed"].values())
    assert classes + other + exposed == step, (classes, other, exposed, step)
    parts = sum(pico(x) for x in r["parts"].values())
    assert parts + pico(r["other"]["host"]) + pico(r["other"]["jitter"]) == step
    assert sum(pico(x["seconds"]) for x in r["rates"]) == step
    by_collective = sum(pico(x) for c in r["collectives"] for x in c["exposed"].values())
    assert by_collective == exposed, (by_collective, exposed)
    for c in r["classes"].values():
        assert sum(pico(x) for x in c["bound"].values()) == pico(c["seconds"])
    low, high = r["step_seconds_interval"]
    assert 0 < low <= r["step_seconds"] <= high
    assert 0 <= r["assumed_fraction"] <= 1
    tokens = r["tokens_per_second"] * r["step_seconds"]
    assert abs(tokens - round(tokens)) < 1e-3 * tokens
    if "mfu" in r:
        assert 0 < r["mfu"]["causal"] <= r["mfu"]["full"] <= r["mfu"]["hardware"] < 1
