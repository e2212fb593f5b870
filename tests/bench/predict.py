#!/usr/bin/env python3
"""Predictions against runs on this processor, in parts that may be stopped and called again; each
goes on where the last call stopped.
    predict.py build PLANC FOLDER            writes plans and builds trainers in FOLDER
    predict.py run FOLDER [SECONDS]          runs them, at most so long. Status 3: runs are missing
    predict.py report PLANC FOLDER CLUSTER   tables: engine, classes, every configuration, order
Configurations were not used by planc calibrate. A run is 5 steps of warm-up and the median of 20.
Everything is run once before anything is run a second time; rows whose two fastest runs differ by
more than 5 %, or which other programs of the host disturbed, are run again, at most ROUNDS times.
Such programs take memory and the last cache, so a copy of 64 MiB before and after a run says
whether one was there. Each configuration is also run once with
--profile-out, for the tables of the engine and of the classes."""
import json, math, os, pathlib, statistics, subprocess, sys, time

ROUNDS = 5
NOISE = 0.05  # pairs that are closer than this, or than their own runs, have no order
SLOW = 1.3    # a copy that takes so many times the shortest one shares memory with another program
PLANS = pathlib.Path(__file__).resolve().parents[2] / "plans"
MODELS = {
    "llama": "layers = {L};  hidden = {H};  heads = {heads};  ffn = {F};  vocab = 256;  tied = on",
    "gpt2": "layers = {L};  hidden = {H};  heads = {heads};  vocab = 256;  context = 1024",
    "qwen3": "layers = {L};  hidden = {H};  heads = {heads};  ffn = {F};  vocab = 256;  tied = on",
    "mixtral": "layers = {L};  hidden = {H};  heads = {heads};  ffn = {F};  vocab = 256;  experts = 4;  top_k = 2",
    "qwen3_moe": "layers = {L};  hidden = {H};  heads = {heads};  head_dim = 32;  ffn = {F};  vocab = 256;  "
                 "experts = 8;  top_k = 2;  expert_width = {E};  dense_layers = [0];  tied = on;  aux_weight = 0.01",
}
# family, compute, layers, hidden, sequence, local, mode, fsdp, dp, accumulation, chunks
TOTAL = [
    ("llama", "fp32", 2, 64, 64, 8, "none", 1, 1, 1, 1), ("gpt2", "fp32", 2, 64, 128, 4, "none", 2, 1, 1, 1),
    ("llama", "fp32", 4, 128, 256, 2, "none", 2, 1, 1, 1), ("llama", "bf16", 4, 128, 256, 2, "selective", 1, 1, 1, 1),
    ("gpt2", "fp32", 3, 192, 256, 2, "full", 1, 1, 2, 1), ("qwen3", "fp32", 2, 256, 128, 2, "none", 1, 1, 1, 1),
    ("qwen3", "bf16", 2, 128, 512, 1, "none", 2, 1, 1, 2), ("mixtral", "fp32", 2, 128, 128, 2, "none", 1, 1, 1, 1),
    ("qwen3_moe", "fp32", 3, 128, 256, 2, "selective", 2, 1, 1, 1), ("mixtral", "bf16", 2, 192, 256, 1, "none", 2, 1, 1, 1),
    ("llama", "fp32", 1, 512, 128, 2, "none", 1, 1, 1, 1), ("llama", "fp32", 8, 64, 128, 4, "full", 2, 1, 1, 1),
    ("gpt2", "bf16", 2, 256, 128, 2, "none", 1, 1, 1, 2), ("qwen3_moe", "bf16", 2, 192, 128, 2, "none", 1, 1, 1, 1),
    ("llama", "fp32", 2, 128, 1024, 1, "none", 1, 1, 1, 4), ("qwen3", "fp32", 4, 96, 192, 4, "selective", 1, 2, 1, 1),
    ("mixtral", "fp32", 3, 96, 256, 2, "full", 1, 2, 1, 1), ("gpt2", "fp32", 6, 96, 64, 8, "none", 1, 2, 1, 1),
    ("llama", "bf16", 2, 320, 192, 2, "none", 2, 1, 1, 1), ("qwen3", "fp32", 1, 384, 64, 4, "none", 2, 1, 2, 1),
    ("qwen3_moe", "fp32", 2, 64, 512, 1, "none", 1, 1, 1, 1), ("gpt2", "bf16", 4, 128, 512, 1, "full", 1, 1, 1, 1),
    ("llama", "fp32", 3, 160, 320, 1, "selective", 2, 1, 2, 1), ("mixtral", "bf16", 1, 256, 64, 8, "none", 1, 1, 1, 1),
    ("qwen3_moe", "fp32", 4, 128, 64, 8, "full", 1, 1, 1, 1), ("qwen3", "bf16", 3, 192, 128, 4, "full", 1, 1, 1, 1),
    ("llama", "fp32", 2, 256, 64, 8, "none", 1, 2, 1, 1), ("gpt2", "fp32", 1, 512, 64, 4, "none", 2, 1, 1, 1),
    ("qwen3", "fp32", 8, 64, 64, 2, "none", 1, 1, 1, 1), ("mixtral", "fp32", 1, 320, 128, 2, "selective", 1, 1, 1, 1),
    ("llama", "bf16", 1, 512, 256, 1, "none", 1, 1, 1, 1), ("qwen3_moe", "bf16", 4, 96, 256, 2, "selective", 1, 2, 1, 1),
    ("gpt2", "fp32", 2, 128, 1024, 1, "selective", 1, 1, 1, 2), ("llama", "fp32", 5, 96, 96, 6, "none", 1, 1, 1, 1),
    ("qwen3", "bf16", 2, 256, 256, 1, "selective", 2, 1, 2, 1), ("mixtral", "fp32", 4, 64, 192, 4, "none", 2, 1, 1, 1),
    ("qwen3_moe", "fp32", 2, 256, 128, 4, "none", 1, 1, 1, 2), ("gpt2", "bf16", 3, 160, 192, 3, "none", 1, 2, 1, 1),
    ("llama", "fp32", 2, 192, 512, 2, "full", 1, 1, 1, 1), ("qwen3", "fp32", 3, 128, 320, 2, "none", 2, 1, 1, 1),
]
# one model and global batch of 8 over meshes, modes and locals
ORDER = [("llama", "fp32", 3, 128, 128, local, mode, fsdp, dp, 8 // (fsdp * dp * local), 1)
         for local in (1, 2, 4) for mode in ("none", "selective", "full") for fsdp, dp in ((1, 1), (2, 1), (1, 2))]

# the engine alone, with measured durations: 1, 2 and 4 ranks, fsdp and dp
ENGINE = [(family, compute, layers, hidden, 256, 2, "none", fsdp, dp, 2, 1)
          for family, compute, layers, hidden in (("llama", "fp32", 4, 192), ("qwen3_moe", "bf16", 3, 128))
          for fsdp, dp in ((1, 1), (2, 1), (1, 2), (4, 1), (1, 4), (2, 2))]


def name(c):
    return "{}-{}-L{}-h{}-s{}-b{}-{}-f{}d{}-a{}-c{}".format(*c)


def everything():
    return list(dict.fromkeys(TOTAL + ORDER + ENGINE))


def text(c, data):
    family, compute, layers, hidden, sequence, local, mode, fsdp, dp, accumulation, chunks = c
    model = MODELS[family].format(L=layers, H=hidden, heads=max(2, hidden // 64), F=hidden * 8 // 3 // 16 * 16, E=hidden)
    return f'''use "{PLANS}/models/{family}.plan"
use "{PLANS}/clusters/cpu.plan"
plan "measured" {{
    model {family} {{ {model} }}
    cluster cpu {{ }}
    mesh {{ fsdp = {fsdp};  dp = {dp} }}
    precision {{ compute = {compute} }}
    activation_checkpoint {{ mode = {mode} }}
    batch {{ sequence = {sequence};  local = {local};  global = {local * fsdp * dp * accumulation};  loss_chunks = {chunks} }}
    optimizer adamw {{ lr = 1e-3;  clip = 1.0 }}
    schedule constant {{ steps = 100 }}
    data {{ train = "{data}";  format = bytes }}
}}
'''


def build(planc, folder):
    folder.mkdir(parents=True, exist_ok=True)
    data = folder / "data.txt"
    data.write_bytes(bytes(32 + (i * 7919 + i // 96) % 95 for i in range(1 << 19)))
    for c in everything():
        at = folder / name(c)
        if (at / "trainer").exists():
            continue
        plan = folder / (name(c) + ".plan")
        plan.write_text(text(c, data))
        done = subprocess.run([planc, "build", plan, "-o", at], capture_output=True, text=True)
        if done.returncode:
            print("build", name(c), done.stderr.strip()[:300])


def launch(folder, c, words):
    """Whether the trainer of a configuration ran with these options."""
    env = {**os.environ, "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_hwloc_base_binding_policy": "none",
           "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    done = subprocess.run(["timeout", "60", "mpirun", "-n", str(c[7] * c[8]), folder / name(c) / "trainer",
                           "--log-every", "100"] + words, env=env, capture_output=True, text=True)
    if done.returncode:
        print("run", name(c), done.stderr.strip()[-300:])
    return done.returncode == 0


COPY = bytearray(1 << 26), memoryview(bytearray(1 << 26))


def copy_seconds():
    """Of 64 MiB, the shortest of three."""
    took = []
    for _ in range(3):
        begin = time.perf_counter()
        COPY[1][:] = COPY[0]
        took.append(time.perf_counter() - begin)
    return min(took)


def median_step(folder, c):
    """Seconds of a step, and of a copy beside it."""
    metrics = folder / "metrics.jsonl"
    copy = copy_seconds()
    if not launch(folder, c, ["--steps", "25", "--metrics", metrics]):
        return None
    steps = [json.loads(line)["step_seconds"] for line in metrics.read_text().splitlines()]
    return statistics.median(steps[5:25]), max(copy, copy_seconds())


def disturbed(have, shortest):
    """Whether of two runs or more fewer than two had the memory to themselves."""
    return len(have) > 1 and sum(copy <= SLOW * shortest for _, copy in have) < 2


def shortest_copy(measured):
    return min((copy for have in measured.values() for _, copy in have), default=1)


def wants_run(c, have, wanted, shortest):
    return c not in ENGINE and len(have) < wanted and (
        wanted <= 2 or apart(have) > 0.05 or disturbed(have, shortest))


def run(folder, seconds):
    out = folder / "runs.json"
    measured = json.loads(out.read_text()) if out.exists() else {}
    end = time.time() + seconds
    missing = 0
    for wanted in range(1, ROUNDS + 1):
        for c in everything():
            have = measured.setdefault(name(c), [])
            profile = folder / (name(c) + ".profile.json")
            if not (folder / name(c) / "trainer").exists():
                continue
            if wanted == 1 and c in TOTAL + ENGINE and not profile.exists():
                missing += time.time() > end or not launch(
                    folder, c, ["--steps", "27", "--profile", "25", "--profile-out", profile])
            if not wants_run(c, have, wanted, shortest_copy(measured)):
                continue
            step = None if time.time() > end else median_step(folder, c)
            if step:
                have.append(step)
                out.write_text(json.dumps(measured))
            elif wanted <= 2 or time.time() > end:
                missing += 1
    print(f"{sum(len(v) >= 2 for v in measured.values())} configurations run twice, {missing} runs are missing")
    sys.exit(3 if missing else 0)


def apart(have):
    """How far the two fastest runs lie from each other; 1 of a single run, whose noise is not
    known."""
    if len(have) < 2:
        return 1.0
    (a, _), (b, _) = sorted(have)[:2]
    return b / a - 1


def simulate(planc, folder, cluster, c, words):
    plan = folder / (name(c) + ".plan")
    done = subprocess.run([planc, "simulate", plan, "--cluster", cluster, "--json"] + words, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"simulate {name(c)}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def percent(x):
    return f"{100 * x:+.1f} %"


def report_engine(planc, folder, cluster):
    """With the durations of a run the step must be that run's; then the model, by class."""
    print("| engine alone | measured, ms | with its durations, ms | error | by rates, ms | error |\n"
          "| --- | --- | --- | --- | --- | --- |")
    errors, classes = [], {}
    for c in ENGINE + TOTAL:
        profile = folder / (name(c) + ".profile.json")
        if not profile.exists():
            continue
        d = simulate(planc, folder, cluster, c, ["--durations", profile])["durations"]
        m, e, r = d["step_seconds"], d["simulated_step_seconds"], d["step_seconds_by_rates"]
        if c in ENGINE:
            errors.append((abs(e / m - 1), name(c)))
            print(f"| {name(c)} | {1e3 * m:.2f} | {1e3 * e:.2f} | {percent(e / m - 1)} | {1e3 * r:.2f} | {percent(r / m - 1)} |")
        for k, v in d["classes"].items():
            if v["measured"] > 0 and v["by_rates"] > 0:
                classes.setdefault((min(c[7] * c[8], 2), k), []).append((v["measured"] / m, v["by_rates"] / v["measured"]))
    if errors:
        worst = max(errors)
        print(f"engine: {sum(e <= 0.03 for e, _ in errors)} of {len(errors)} runs within 3 %, worst {100 * worst[0]:.1f} % ({worst[1]})")
    print("\n| class | ranks | runs | share, median | predicted / measured, median | lowest | highest |\n"
          "| --- | --- | --- | --- | --- | --- | --- |")
    for (ranks, k), all_of in sorted(classes.items()):
        ratios = [r for _, r in all_of]
        print(f"| {k} | {'1' if ranks == 1 else 'several'} | {len(ratios)} | {100 * statistics.median(s for s, _ in all_of):.1f} % | "
              f"{statistics.median(ratios):.2f} | {min(ratios):.2f} | {max(ratios):.2f} |")
    print()


def differ(r):
    return f"{100 * r:.1f} %" if r < 1 else "one run"


def report_total(rows, slow):
    print("| configuration | measured, ms | predicted, ms | error | runs differ |\n| --- | --- | --- | --- | --- |")
    all_of = [c for c in TOTAL if c in rows]
    for c in all_of:
        m, p, r = rows[c]
        print(f"| {name(c)} | {1e3 * m:.2f} | {1e3 * p:.2f} | {percent(p / m - 1)} | {differ(r)} |")
    error = {c: abs(rows[c][1] / rows[c][0] - 1) for c in all_of}
    if error:
        worst = max(all_of, key=lambda c: error[c])
        print(f"total: {len(error)} of {len(TOTAL)} configurations, median error {100 * statistics.median(error.values()):.1f} %, "
              f"worst {100 * error[worst]:.1f} % ({name(worst)})")
        for ranks in (1, 2):
            some = [error[c] for c in all_of if c[7] * c[8] == ranks]
            if some:
                print(f"total, {ranks} rank(s): {len(some)}, median error {100 * statistics.median(some):.1f} %, worst {100 * max(some):.1f} %")
        noise = sorted(rows[c][2] for c in all_of)
        print(f"repeatability: runs differ by {100 * statistics.median(noise):.1f} % in the median; "
              f"{sum(r > 0.05 for r in noise)} of {len(noise)} by more than 5 % after up to {ROUNDS} runs")
        print(f"disturbed: a copy of 64 MiB took more than {SLOW} times the shortest one, in all runs but one: " +
              (", ".join(name(c) for c in all_of if c in slow) or "none"))
        print("beyond 20 %: " + (", ".join(name(c) for c in all_of if error[c] > 0.2) or "none"))
    print()


def report_order(rows):
    points = [c for c in ORDER if c in rows]
    agree = disagree = left = 0
    for i, a in enumerate(points):
        for b in points[:i]:
            (ma, pa, ra), (mb, pb, rb) = rows[a], rows[b]
            if abs(math.log(ma / mb)) < max(0.01, min(max(ra, rb), NOISE)):
                left += 1
            elif (ma - mb) * (pa - pb) > 0:
                agree += 1
            else:
                disagree += 1
    if not agree + disagree:
        return
    best, chosen = min(points, key=lambda c: rows[c][0]), min(points, key=lambda c: rows[c][1])
    print("| point of the order | measured, ms | predicted, ms | error | runs differ |\n| --- | --- | --- | --- | --- |")
    for c in sorted(points, key=lambda c: rows[c][0]):
        m, p, r = rows[c]
        print(f"| {name(c)} | {1e3 * m:.2f} | {1e3 * p:.2f} | {percent(p / m - 1)} | {differ(r)} |")
    print(f"order: {len(points)} points, tau {(agree - disagree) / (agree + disagree):.2f} over {agree + disagree} pairs, "
          f"{left} closer than their noise, which counts as {100 * NOISE:.0f} % at most; regret of the predicted best "
          f"{100 * (rows[chosen][0] / rows[best][0] - 1):.1f} %")


def report(planc, folder, cluster):
    measured = json.loads((folder / "runs.json").read_text())
    report_engine(planc, folder, cluster)
    rows, shortest = {}, shortest_copy(measured)
    for c in TOTAL + ORDER:
        have = measured.get(name(c), [])
        if have:
            rung = simulate(planc, folder, cluster, c, [])["rungs"][0]
            rows[c] = (statistics.mean(step for step, _ in sorted(have)[:2]), rung["step_seconds"], apart(have))
    report_total(rows, {c for c in rows if disturbed(measured[name(c)], shortest)})
    report_order(rows)


what, rest = sys.argv[1], sys.argv[2:]
if what == "build":
    build(rest[0], pathlib.Path(rest[1]))
elif what == "run":
    run(pathlib.Path(rest[0]), float(rest[1]) if len(rest) > 1 else 7200)
else:
    report(rest[0], pathlib.Path(rest[1]), rest[2])
