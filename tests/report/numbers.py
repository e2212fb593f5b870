#!/usr/bin/env python3
"""The numbers of `planc report --json`: of a curve and a run, of a trace, of a space."""
import json

curve, trace, space = (json.load(open(f)) for f in ("numbers.json", "trace.json", "space.json"))
assert curve["verdict"] == "fits" and [r["devices"] for r in curve["rungs"]] == [2, 4], curve
assert curve["run"] == {"steps": 4, "first_loss": 8.5, "last_loss": 5.5, "step_seconds": 0.5,
                        "predicted_step_seconds": 0.6, "tokens_per_second": 2000}, curve["run"]
seen = trace["trace"]  # what was predicted, as if it had been measured
assert abs(seen["step_seconds"] / seen["predicted_step_seconds"] - 1) < 0.01, seen
assert seen["gather_seconds"] > 0 and seen["reduce_seconds"] > 0, seen
off = seen["exposed_comm_seconds"] - trace["exposed_comm_seconds"]
assert abs(off) < 0.02 * seen["step_seconds"], (seen, trace["exposed_comm_seconds"])
assert len(space["points"]) == 2 and space["best"] in [p["set"] for p in space["points"]], space
assert all(p["reason"] for p in space["points"]), space
