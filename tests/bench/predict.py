#!/usr/bin/env python3
"""Predictions against runs on this processor.
    predict.py build PLANC FOLDER CLUSTER    writes plans and builds trainers in FOLDER
    predict.py run FOLDER [SECONDS]          runs them, at most so long; may be called again
    predict.py report PLANC FOLDER CLUSTER   tables: every configuration, order, regret
Configurations were not used by planc calibrate. A run is 5 steps of warm-up and the median of 20;
each is run twice, all once before any the second time; rows that differ by more than 5 % are run
again."""
import json, math, os, pathlib, statistics, subprocess, sys, time

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


def name(c):
    return "{}-{}-L{}-h{}-s{}-b{}-{}-f{}d{}-a{}-c{}".format(*c)


def everything():
    return list(dict.fromkeys(TOTAL + ORDER))


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


def build(planc, folder, cluster):
    folder.mkdir(parents=True, exist_ok=True)
    data = folder / "data.txt"
    data.write_bytes(bytes(32 + (i * 7919 + i // 96) % 95 for i in range(1 << 19)))
    for c in everything():
        at = folder / name(c)
        if (at / "trainer").exists():
            continue
        plan = folder / (name(c) + ".plan")
        plan.write_text(text(c, data))
        done = subprocess.run([planc, "build", plan, "-o", at, "--cluster", cluster], capture_output=True, text=True)
        if done.returncode:
            print("build", name(c), done.stderr.strip()[:300])


def median_step(folder, c):
    metrics = folder / "metrics.jsonl"
    env = {**os.environ, "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_hwloc_base_binding_policy": "none",
           "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    done = subprocess.run(["timeout", "60", "mpirun", "-n", str(c[7] * c[8]), folder / name(c) / "trainer", "--steps", "25",
                           "--metrics", metrics, "--log-every", "100"], env=env, capture_output=True, text=True)
    if done.returncode:
        print("run", name(c), done.stderr.strip()[-300:])
        return None
    steps = [json.loads(line)["step_seconds"] for line in metrics.read_text().splitlines()]
    return statistics.median(steps[5:25])


def run(folder, seconds):
    out = folder / "measured.json"
    measured = json.loads(out.read_text()) if out.exists() else {}
    end = time.time() + seconds
    for wanted in (1, 2, 3, 4):
        for c in everything():
            have = measured.setdefault(name(c), [])
            if time.time() > end or not (folder / name(c) / "trainer").exists():
                continue
            if len(have) >= wanted or (wanted > 2 and apart(have) <= 0.05):
                continue
            step = median_step(folder, c)
            if step:
                have.append(step)
    out.write_text(json.dumps(measured))
    print(sum(len(v) >= 1 for v in measured.values()), "measured once,", sum(len(v) >= 2 for v in measured.values()), "twice")


def apart(have):
    """How far the two fastest runs lie from each other; 1 of a single run, whose noise is not known."""
    if len(have) < 2:
        return 1.0
    a, b = sorted(have)[:2]
    return b / a - 1


def report(planc, folder, cluster):
    measured = json.loads((folder / "measured.json").read_text())
    rows = {}
    for c in everything():
        have = measured.get(name(c), [])
        if not have:
            continue
        plan = folder / (name(c) + ".plan")
        done = subprocess.run([planc, "simulate", plan, "--cluster", cluster, "--json"], capture_output=True, text=True)
        rung = json.loads(done.stdout)["rungs"][0]
        rows[c] = (statistics.mean(sorted(have)[:2]), rung["step_seconds"], apart(have))
    print("| configuration | measured, ms | predicted, ms | error | runs differ |\n| --- | --- | --- | --- | --- |")
    for c in TOTAL:
        if c in rows:
            m, p, r = rows[c]
            print(f"| {name(c)} | {1e3 * m:.2f} | {1e3 * p:.2f} | {100 * (p / m - 1):+.1f} % | {f'{100 * r:.1f} %' if r < 1 else 'one run'} |")
    errors = [abs(rows[c][1] / rows[c][0] - 1) for c in TOTAL if c in rows]
    close = [abs(rows[c][1] / rows[c][0] - 1) for c in TOTAL if c in rows and rows[c][2] <= 0.05]
    if errors:
        worst = max((c for c in TOTAL if c in rows), key=lambda c: abs(rows[c][1] / rows[c][0] - 1))
        print(f"total: {len(errors)} of {len(TOTAL)} configurations, median error {100 * statistics.median(errors):.1f} %, "
              f"worst {100 * max(errors):.1f} % ({name(worst)}); of {len(close)} whose runs agree within 5 %, "
              f"median {100 * statistics.median(close) if close else 0:.1f} %")
    points = [c for c in ORDER if c in rows]
    agree = disagree = left = 0
    for i, a in enumerate(points):
        for b in points[:i]:
            (ma, pa, ra), (mb, pb, rb) = rows[a], rows[b]
            if abs(math.log(ma / mb)) < min(max(ra, rb, 0.01), 0.15):
                left += 1
            elif (ma - mb) * (pa - pb) > 0:
                agree += 1
            else:
                disagree += 1
    if agree + disagree:
        best, chosen = min(points, key=lambda c: rows[c][0]), min(points, key=lambda c: rows[c][1])
        print("| point of the order | measured, ms | predicted, ms | runs differ |\n| --- | --- | --- | --- |")
        for c in sorted(points, key=lambda c: rows[c][0]):
            print(f"| {name(c)} | {1e3 * rows[c][0]:.2f} | {1e3 * rows[c][1]:.2f} | {f'{100 * rows[c][2]:.1f} %' if rows[c][2] < 1 else 'one run'} |")
        print(f"order: {len(points)} points, tau {(agree - disagree) / (agree + disagree):.2f} over {agree + disagree} pairs, "
              f"{left} closer than the noise; regret of the predicted best "
              f"{100 * (rows[chosen][0] / rows[best][0] - 1):.1f} %")


what, rest = sys.argv[1], sys.argv[2:]
if what == "build":
    build(rest[0], pathlib.Path(rest[1]), rest[2])
elif what == "run":
    run(pathlib.Path(rest[0]), float(rest[1]) if len(rest) > 1 else 700)
else:
    report(rest[0], pathlib.Path(rest[1]), rest[2])
