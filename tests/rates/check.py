#!/usr/bin/env python3
"""check.py KIND WARMUP FROM TO STEPS FLOOR DECAY SHAPE: 30 rates on stdin, of a peak of 8e-4. Each
is computed by walking there, one step after the other, and not by a formula of the step."""
import math
import sys

kind, shape = sys.argv[1], sys.argv[8]
warmup, low, to, steps, floor, decay = (float(x) for x in sys.argv[2:8])
got = [float(x) for x in sys.stdin]
peak, last, want = 8e-4, steps - 1, []
rate = low * peak
for s in range(30):
    if s < warmup:
        rate += (to - low) * peak / warmup
        want.append(rate)
        continue
    if kind == "constant":
        want.append(peak)
        continue
    begin = last - decay if kind == "wsd" else warmup
    over = 1 if s > last else max(0, s - begin) / (last - begin) if last > begin else 0
    curve = shape if kind == "wsd" else kind
    left = {"linear": 1 - over, "sqrt": 1 - math.sqrt(over),
            "cosine": 0.5 + 0.5 * math.cos(math.pi * over)}[curve]
    want.append(peak * floor + (peak - peak * floor) * left)
assert len(got) == 30
for s, (a, b) in enumerate(zip(got, want)):
    if abs(a - b) > 1e-12 * peak:
        sys.exit(f"step {s}: {a}, not {b}")
