#!/usr/bin/env python3
"""demo.py METRICS PLAN_JSON TEXT_BYTES: what the demonstration learnt, in bits per byte; fails at 2.6 and above, and
when the run was longer than the text."""
import json
import math
import sys

LIMIT = 2.6
rows = [json.loads(line) for line in open(sys.argv[1], encoding="utf-8")]
rows = [r for r in rows if "step" in r]
seen = sum(r["tokens"] for r in rows)
text_bytes = int(sys.argv[3])
bits = [r.get("ce", r["loss"]) / math.log(2) for r in rows]
first, last = sum(bits[:20]) / 20, sum(bits[-20:]) / 20
seconds = sum(r["step_seconds"] for r in rows)
print(f"steps       {len(rows)} in {seconds:.1f} s, {seen / seconds:,.0f} tokens/s")
print(f"text        {seen:,} of {text_bytes:,} bytes, none of them twice" if seen < text_bytes else f"text        {seen:,} bytes read of {text_bytes:,}: some twice")
print(f"loss        {first:.3f} bits per byte over the first 20 steps, {last:.3f} over the last 20 (must be under {LIMIT})")
if seen >= text_bytes or not last < LIMIT or len(rows) < 40:
    sys.exit(1)
