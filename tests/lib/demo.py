#!/usr/bin/env python3
"""demo.py METRICS TEXT_BYTES: what the demonstration learnt, in bits per byte. Fails at LIMIT and
above, and when the run read some of the text twice."""
import json
import math
import sys

LIMIT = 2.6
rows = [json.loads(line) for line in open(sys.argv[1], encoding="utf-8")]
rows = [r for r in rows if "step" in r]
seen, text_bytes = sum(r["tokens"] for r in rows), int(sys.argv[2])
bits = [r.get("ce", r["loss"]) / math.log(2) for r in rows]
first, last = sum(bits[:20]) / 20, sum(bits[-20:]) / 20
seconds = sum(r["step_seconds"] for r in rows)
print(f"steps       {len(rows)} in {seconds:.0f} s, {seen / seconds:,.0f} tokens/s")
took = sorted(r["step_seconds"] for r in rows)[len(rows) // 2]
predicted = next((r["predicted_step_seconds"] for r in rows if "predicted_step_seconds" in r), 0)
print(f"a step      {1e3 * took:.1f} ms measured (median), {1e3 * predicted:.1f} ms predicted by the "
      "assumed rates of clusters/cpu.plan")
print("            planc calibrate -o here.plan measures this machine; build with --cluster here.plan")
print(f"text        {seen:,} of {text_bytes:,} bytes read" + ("" if seen < text_bytes else ", some twice"))
print(f"result      {last:.3f} bits per byte over the last 20 steps, {first:.3f} over the first 20")
if seen >= text_bytes or not last < LIMIT or len(rows) < 40:
    sys.exit(1)
