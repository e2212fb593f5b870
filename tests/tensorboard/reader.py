#!/usr/bin/env python3
"""reader.py DIR METRICS: what TensorBoard's own reader has of a folder are the lines of METRICS."""
import json
import math
import sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

seen = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0, "histograms": 0})
seen.Reload()
lines = [json.loads(x) for x in open(sys.argv[2], encoding="utf-8")]
tags = seen.Tags()
for key in sorted({k for line in lines for k in line} - {"step", "tokens", "tokens_hash"}):
    want = [(x["step"], x[key]) for x in lines if key in x]
    if isinstance(want[0][1], list):
        assert key in tags["histograms"] and key + "_by_expert" in tags["histograms"], tags
        have = [(e.step, e.histogram_value.sum) for e in seen.Histograms(key)]
        by_expert = [(e.step, list(e.histogram_value.bucket)) for e in seen.Histograms(key + "_by_expert")]
        assert all(s == t and all(math.isclose(p, q, rel_tol=1e-6) for p, q in zip(a, b))
                   for (s, a), (t, b) in zip(by_expert, want)), f"{key}: {by_expert}"
        want = [(s, sum(v)) for s, v in want]
    else:
        assert key in tags["scalars"], f"{key}: not among {tags['scalars']}"
        have = [(e.step, e.value) for e in seen.Scalars(key)]
    assert [s for s, _ in have] == [s for s, _ in want], f"{key}: steps {[s for s, _ in have]}"
    assert all(math.isclose(a, b, rel_tol=1e-6) for (_, a), (_, b) in zip(have, want)), f"{key}: {have} {want}"
