#!/usr/bin/env python3
"""near.py LOG LOG TOLERANCE: losses of two runs step by step, absolute; how near on stdout."""
import json
import sys

a, b = ([json.loads(line) for line in open(path, encoding="utf-8")] for path in sys.argv[1:3])
if not a or [x["step"] for x in a] != [x["step"] for x in b]:
    sys.exit(print("other steps") or 1)
off, step = max((abs(x["loss"] - y["loss"]), x["step"]) for x, y in zip(a, b))
print(f"losses of {len(a)} steps off by at most {off:.2e} (step {step})")
sys.exit(not off <= float(sys.argv[3]))
