#!/usr/bin/env python3
"""Published runs against planc's answers: memory, and speed in three tables. A row becomes a plan
and a list of --set; one that cannot be expressed is named with its reason."""
import csv, json, math, os, re, statistics, subprocess, sys, tempfile

planc, table = sys.argv[1], sys.argv[2]
rows = list(csv.DictReader(open(table)))
missed = []


class Unknown(Exception):
    pass


def number(row, key):
    text = (row.get(key) or "").strip()
    if not text:
        raise Unknown(f"{key} is not stated")
    return int(float(text))


FAMILIES = (  # model name, family of the library, its file
    (r"mpt|gpt-?2", "gpt2", "gpt2"),
    (r"mixtral", "mixtral", "mixtral"),
    (r"qwen-?3.*(moe|-a\d+b)", "qwen3_moe", "qwen3_moe"),
    (r"qwen-?3", "qwen3", "qwen3"),
    (r"llama|mistral", "llama", "llama"),
)
MIXTURES = {  # what the columns do not hold: experts, experts per token, beside the name
    "mixtral-8x7b": (8, 2), "mixtral-8x22b": (8, 2), "qwen3-30b-a3b": (128, 8), "qwen3-235b-a22b": (128, 8),
}


def model_of(row):
    name = row["model"].lower()
    for pattern, family, file in FAMILIES:
        if re.search(pattern, name):
            break
    else:
        raise Unknown(f"no family of the library for {row['model']}")
    keys = {k: number(row, k) for k in ("layers", "hidden", "heads", "vocab")}
    ffn = number(row, "ffn_or_expert_ffn")
    if family == "gpt2":
        keys.update(ffn=ffn, context=number(row, "seq"), tied="on")
    else:
        keys.update(kv_heads=number(row, "kv_heads"), head_dim=number(row, "head_dim"))
        if family in ("mixtral", "qwen3_moe"):
            known = [v for k, v in MIXTURES.items() if k in name]
            if not known:
                raise Unknown(f"the experts of {row['model']} are not stated")
            experts, each = known[0]
            keys["experts"] = experts
            keys["top_k"] = each
            keys["expert_width" if family == "qwen3_moe" else "ffn"] = ffn
        else:
            keys["ffn"] = ffn
    return family, file, keys


CLUSTERS = ((r"h100.*(96|500 ?w)", "h100_96gb"), (r"h100", "h100"), (r"a100", "a100"), (r"gb200", "gb200"),
            (r"b200", "b200"), (r"h200", "h200"))


def cluster_of(row):
    if row["trainer"] == "torchtitan" and row["gpu"].strip() == "H100":
        return "h100_96gb"  # what its published runs have where they say it
    for pattern, name in CLUSTERS:
        if re.search(pattern, row["gpu"].lower()):
            return name
    raise Unknown(f"no cluster of the library for {row['gpu']}")


def habits_of(row):
    """What --set says of the trainer beyond its file."""
    sets, notes, trainer = [], row["notes"].lower(), row["trainer"]
    compiled = row["compile"].lower()
    if compiled.startswith("yes"):
        sets.append("trainer.compile=on")
    elif compiled.startswith("no"):
        sets.append("trainer.compile=off")
    if trainer == "torchtitan":
        pull = re.search(r"/pull/(\d+)", row["source"])
        old = pull and int(pull.group(1)) < 1100 or re.search("2024", row["source"])
        if "graph_trainer" in compiled:  # one graph, one pool of memory
            sets += ["trainer.logit_bytes=2", "trainer.streams=off"]
        elif compiled.startswith("yes") and old:
            sets.append("trainer.compile_loss=off")
        if pull and int(pull.group(1)) < 500 or "@0ad75be68" in row["source"]:
            sets.append("trainer.logit_bytes=16")  # before its loss was changed in 2024
    if re.search(r"(?<!un)chunked cross|loss.chunk|chunks of the loss", notes):
        n = re.search(r"(\d+) (?:loss )?chunks", notes)
        sets.append(f"batch.loss_chunks={n.group(1) if n else 8}")
    reshard = re.search(r"reshard(?:_after_forward)?[ =](default|always|never)", notes)
    if reshard:
        sets.append(f"trainer.reshard={reshard.group(1)}")
    network = re.search(r"network stated as (\d+) gbps", notes)
    if network:  # of a node; the library's cards get 0.96 of their rate
        sets.append(f"cluster.link.network.bandwidth={int(network.group(1)) / 8 / 8 * 0.96:.2f}GB/s")
    return sets


def plan_of(row):
    family, file, keys = model_of(row)
    cluster, n = cluster_of(row), number(row, "n_gpus")
    each = min(n, 72 if cluster == "gb200" else 8)
    if n % each:
        raise Unknown(f"{n} devices are no whole nodes")
    fsdp = int(row["fsdp"] or (each if "hsdp" in row["notes"].lower() else n))
    local, accumulation = number(row, "local_batch"), int(row["grad_accum"] or 1)
    ac = re.match(r"(none|selective|full)?", row["ac"]).group(0)
    model = ";  ".join(f"{k} = {v}" for k, v in keys.items())
    every = re.search(r"every (\d+)|\((\d+)\)", row["ac"])
    # where a source does not say what is kept, the most frugal mode is taken
    return f"""use "models/{file}.plan"
use "clusters/{cluster}.plan"
plan "{row['id']}" {{
    model {family} {{ {model} }}
    cluster {cluster} {{ nodes = {n // each};  devices_per_node = {each} }}
    mesh {{ fsdp = {fsdp};  dp = {n // fsdp} }}
    precision {{ compute = bf16 }}
    activation_checkpoint {{ mode = {ac or 'full'}{';  every = %s' % (every.group(1) or every.group(2)) if every else ''} }}
    batch {{ sequence = {number(row, 'seq')};  local = {local};  global = {local * accumulation * n} }}
}}
"""


def ask(row, folder):
    path = os.path.join(folder, "run.plan")
    open(path, "w").write(plan_of(row))
    sets = [f"trainer={row['trainer']}"] + habits_of(row)
    command = [planc, "simulate", path, "--json"] + [w for s in sets for w in ("--set", s)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode not in (0, 2) or not done.stdout.startswith("{"):
        raise Unknown("; ".join((done.stderr or done.stdout).strip().split("\n")[:2]))
    return json.loads(done.stdout)["rungs"][0]


def bound(what, got, limit):
    fine = got <= limit
    print(f"  {what}: {100 * got:.1f} %, bound {100 * limit:.0f} %: {'met' if fine else 'MISSED'}")
    if not fine:
        missed.append(what)


answers = {}
with tempfile.TemporaryDirectory() as folder:
    for row in rows:
        try:
            answers[row["id"]] = ask(row, folder)
        except Unknown as why:
            print(f"not expressed: {row['id']}: {why}")
known = [r for r in rows if r["id"] in answers]


def inputs(row):
    return tuple(v for k, v in row.items() if k in (
        "trainer model gpu n_gpus fsdp dp_replicate seq local_batch grad_accum ac compile".split())) + tuple(
        habits_of(row))


def same(row):  # names of one device, of modes
    return tuple(re.sub(r"\(.*?\)|hbm2e|500w", "", str(v).lower()).strip() for v in inputs(row) if
                 v != "trainer.reshard=default")


# ── memory ──
print("memory, GiB reserved")
errors = []
for row in known:
    got = answers[row["id"]]["reserved_bytes"] / 2**30
    if re.search("oom|out of memory", row["notes"].lower()):
        called = answers[row["id"]]["verdict"] == "exceeds"
        print(f"  {row['id']:<24} out of memory; predicted {got:7.2f}: {'called' if called else 'NOT CALLED'}")
        if not called:
            missed.append(f"out of memory of {row['id']}")
    elif row["peak_mem_GiB"]:
        truth = float(row["peak_mem_GiB"])
        error = got / truth - 1
        print(f"  {row['id']:<24} {truth:7.2f} predicted {got:7.2f}  {100 * error:+6.1f} %  {row['memory'] or '-'}")
        if row["memory"] != "fit":
            errors.append(abs(error))
if errors:
    bound("memory, median of rows not fitted", statistics.median(errors), 0.03)
    bound("memory, worst of rows not fitted", max(errors), 0.08)

# ── speed ──
groups = {}
for row in known:
    if row["tok_s_gpu"]:
        groups.setdefault(same(row), []).append(row)
runs = []
for members in groups.values():
    truth = math.exp(statistics.mean(math.log(float(r["tok_s_gpu"])) for r in members))
    fit = [r for r in members if r["speed"] == "fit"]
    first = (fit or members)[0]
    a = answers[first["id"]]
    tokens = a["tokens_per_second_per_device"] * a["step_seconds"]
    low, high = (tokens / s for s in reversed(a["step_seconds_interval"]))
    runs.append(dict(row=first, members=members, truth=truth, got=tokens / a["step_seconds"], low=low, high=high,
                     fit=bool(fit)))

print("\nspeed (i), tokens/s per device: no constant of any row")
inside = 0
for r in runs:
    fine = r["low"] <= r["truth"] <= r["high"]
    inside += fine
    print(f"  {r['row']['id']:<24} {r['truth']:7.0f} predicted {r['got']:7.0f} [{r['low']:.0f}, {r['high']:.0f}] "
          f"{100 * (r['got'] / r['truth'] - 1):+6.1f} %  {'inside' if fine else 'OUTSIDE'}"
          + (f"  ({len(r['members'])} rows)" if len(r["members"]) > 1 else ""))
if runs:
    print(f"  inside: {inside} of {len(runs)}")
    bound("speed (i), rows outside the interval", 1 - inside / len(runs), 0.2)

print("\nspeed (ii): one factor a trainer and GPU, from the row marked fit")
errors = []
for r in runs:
    kin = [f for f in runs if f["fit"] and f["row"]["trainer"] == r["row"]["trainer"]
           and cluster_of(f["row"])[:4] == cluster_of(r["row"])[:4]]
    if not kin or r["fit"]:
        print(f"  {r['row']['id']:<24} {'fitted' if r['fit'] else 'no row to fit'}")
        continue
    error = r["got"] * kin[0]["truth"] / kin[0]["got"] / r["truth"] - 1
    errors.append(abs(error))
    print(f"  {r['row']['id']:<24} {100 * error:+6.1f} %")
if errors:
    bound("speed (ii), median", statistics.median(errors), 0.08)
    bound("speed (ii), worst", max(errors), 0.20)

print("\nspeed (iii): ratios of two rows of one source and model")
errors, wrong = [], []


def of_source(run, shared):
    """What a source says itself: equal runs of other sources are another day's."""
    return math.exp(statistics.mean(math.log(float(m["tok_s_gpu"])) for m in run["members"] if m["source"] in shared))


for i, a in enumerate(runs):
    for b in runs[i + 1:]:
        shared = {m["source"] for m in a["members"]} & {m["source"] for m in b["members"]}
        if not shared or a["row"]["model"] != b["row"]["model"] or a["row"]["gpu"] != b["row"]["gpu"]:
            continue
        truth, got = of_source(a, shared) / of_source(b, shared), a["got"] / b["got"]
        errors.append(abs(got / truth - 1))
        order = abs(math.log(truth)) <= math.log(1.05) or (truth > 1) == (got > 1)
        if not order:
            wrong.append(f"{a['row']['id']} / {b['row']['id']}")
        print(f"  {a['row']['id'] + ' / ' + b['row']['id']:<50} {truth:6.3f} predicted {got:6.3f} "
              f"{100 * (got / truth - 1):+6.1f} %{'' if order else '  WRONG ORDER'}")
if errors:
    bound("speed (iii), median", statistics.median(errors), 0.06)
    bound("speed (iii), pairs in the wrong order", len(wrong) / len(errors), 0)
print(f"\n{len(known)} of {len(rows)} rows expressed; missed: {', '.join(missed) or 'none'}")
sys.exit(1 if missed else 0)
