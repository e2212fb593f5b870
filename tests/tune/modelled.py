#!/usr/bin/env python3
"""Stands in for mpirun where `planc tune --measure` starts a trainer: a machine with a modelled link
and clock. It is the one of the plan's cluster, but that products over many rows take SLOWER times
as long. Links and all else are as `planc simulate` has them. It writes what --metrics and
--profile-out of a trainer write.
    mpirun -n RANKS DIR/trainer OPTIONS…      (PLANC, PLAN, ROWS, SLOWER in the environment)"""
import json
import os
import re
import subprocess
import sys

ranks, trainer, options = int(sys.argv[2]), sys.argv[3], sys.argv[4:]
folder = os.path.dirname(trainer)
option = dict(zip(options[1::2], options[2::2]))
assert options[0] == "--fresh" and int(option["--steps"]) > int(option["--profile"])
plan = json.load(open(f"{folder}/plan.json"))
assert ranks == plan["mesh"]["fsdp"] * plan["mesh"]["dp"]
wanted = [f"mesh.fsdp={plan['mesh']['fsdp']}", f"mesh.dp={plan['mesh']['dp']}",
          f"activation_checkpoint.mode={plan['activation_checkpoint']['mode']}",
          f"batch.local={plan['batch']['local']}", f"batch.global={plan['batch']['global']}"]
command = [os.environ["PLANC"], "simulate", os.environ["PLAN"], "--json", "--trace",
           f"{folder}/step.json"]
for word in wanted:
    command += ["--set", word]
rung = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["rungs"][0]
step = rung["step_seconds"]
kernels = {}
for event in json.load(open(f"{folder}/step.json"))["traceEvents"]:
    if event["ph"] == "X" and event["tid"] == 0:
        kernels.setdefault(event["name"], []).append(event["dur"] * 1e-6)
table = open(f"{folder}/program.c").read().split("predicted_kernels[] = {")[1]
rows = re.findall(r'^    \{("(?:[^"\\]|\\.)*"), ("(?:[^"\\]|\\.)*"), ([^}]*)\},$', table, re.M)
profile = []
for name, shape, predicted in rows:
    name, shape = json.loads(name), json.loads("{" + json.loads(shape) + "}")
    calls = kernels.get(name)
    if not calls:
        continue  # of the set-up
    seconds = min(calls)  # what nothing disturbs
    if shape["class"] == "gemm" and max(shape["m"], shape["k"]) > float(os.environ["ROWS"]):
        step += len(calls) * seconds * (float(os.environ["SLOWER"]) - 1)
        seconds *= float(os.environ["SLOWER"])
    profile.append({"name": name, "calls": len(calls), "seconds": seconds, "mean_seconds": seconds,
                    "predicted_seconds": float(predicted), **shape})
json.dump({"planc_profile": 1, "device": "cpu", "ranks_a_host": ranks, "kernels": profile,
           "collectives": []}, open(option["--profile-out"], "w"))
with open(option["--metrics"], "w") as metrics:
    for i in range(int(option["--steps"])):
        late = 3 if i == 0 else 1
        metrics.write(json.dumps({"step": i, "loss": 5.0, "step_seconds": late * step}) + "\n")
