#!/usr/bin/env python3
"""A report says what simulate says: the step, its parts, the peak, what compute waits.
same.py PLANC PLAN FILE.html"""
import json
import re
import subprocess
import sys

planc, plan, page = sys.argv[1:]
said = json.loads(subprocess.run([planc, "simulate", plan, "--json"], capture_output=True, check=True).stdout)
rung, text, bad = said["rungs"][0], open(page, encoding="utf-8").read(), []


def seconds(s):
    return f"{s:.3f} s" if s >= 1 else f"{s * 1e3:.2f} ms" if s >= 1e-3 else f"{s * 1e6:.1f} µs"


wanted = {
    "step": f"A step takes {seconds(rung['step_seconds'])} ",
    "peak": f"It fits: {rung['peak_bytes'] / 2**30:.3f} GiB of",
    "exposed": f"compute waits {seconds(rung['exposed_comm_seconds'])} for collectives",
}
for name, time in rung["parts"].items():
    wanted[name] = f'<td>{name}</td><td class="n">{seconds(time)}</td>'
for name, row in rung["classes"].items():
    if row["seconds"]:
        wanted[name] = f'<td>{name}</td><td class="n">{seconds(row["seconds"])}</td>'
flat = re.sub(r"\s+", " ", text)
bad = [f"{name}: no '{words}'" for name, words in wanted.items() if words not in flat]
print("\n".join(bad))
sys.exit(1 if bad else 0)
