#!/usr/bin/env python3
"""Holds what planc says of a plan's memory against arithmetic done anew. Prints one line per verdict,
as a suite does.

  ledger.py PLANC add_up NAME PLAN [settings]       terms, holdings, lines and formulas of one plan
  ledger.py PLANC slope PLAN                        state is 16 bytes per parameter, over 8 to 128 devices
  ledger.py PLANC kept DIR                          bytes per token and layer that each family keeps, against the closed forms
  ledger.py PLANC dead HEADER PLAN [settings]       for hooks.c: the ranges of the arena where nobody is, by step
  ledger.py PLANC repairs NAME PLAN [settings]      every repair, tried again as a plan
"""
import json
import re
import subprocess
import sys

planc = sys.argv[1]


def ask(*words, status=(0,)):
    p = subprocess.run([planc, *words, "--json"], capture_output=True, text=True)
    assert p.returncode in status, f"{' '.join(words)}: exit {p.returncode}: {p.stderr[-300:]} {p.stdout[-200:]}"
    return json.loads(p.stdout)


def dump(*words):
    p = subprocess.run([planc, "dump", *words, "--after", "memory"], capture_output=True, text=True)
    assert p.returncode == 0, p.stderr[-300:]
    return p.stdout


IDLE = r"(?: idle=(\d+) idle_from=(\d+) idle_to=(\d+))?$"  # that entry of it, in those steps


def buffers(ir):
    """name, kind, bytes, entries, stride, from, to, idle entry and its steps of every buffer that owns its bytes."""
    row = r'^buffer (\S+) kind="([^"]*)" segment="\w+" offset=\d+ bytes=(\d+) entries=(\d+) stride=(-?\d+) .* live_from=(\d+) live_to=(\d+)' + IDLE
    rows = [(m[1], m[2], *(int(-1 if x is None else x) for x in m.groups()[2:])) for m in re.finditer(row, ir, re.M)]
    return [r for r in rows if r[1] != "alias"]


def entries_at(r, step):
    return r[3] - (r[8] <= step <= r[9]) if r[5] <= step <= r[6] else 0


def extent(r, step):
    n = entries_at(r, step)
    return (n - 1) * abs(r[4]) + r[2] if n else 0


def product(formula):
    """The value of "tokens 16,384 x (heads x head_dim) 4,096 x bf16 2 B x layers 48"; None when it
    is no product."""
    value = 1
    for factor in re.split(r" x (?![^(]*\))", re.sub(r" of [\d,]+ (?=[a-z]+$)", " ", formula)):
        numbers = re.findall(r"(?<![a-z_0-9.])[0-9][0-9,]*(?= |$)", re.sub(r"\([^)]*\)", "", factor))
        if len(numbers) != 1:
            return None
        value *= int(numbers[0].replace(",", ""))
    return value


def add_up(name, *words):
    o = ask("memory", *words, status=(0, 2))
    c = ask("check", *words, status=(0, 2))
    inside = [t for t in o["terms"] if t["inside"]]
    assert sum(t["bytes"] for t in inside) == o["arena_bytes"], "the terms do not add up to the arena"
    assert sum(t["bytes"] for t in o["terms"]) == o["peak_bytes"], "the terms do not add up to the peak"
    for t in inside:
        if t["holdings"]:
            assert sum(h["bytes"] for h in t["holdings"]) == t["bytes"], f"the holdings of {t['name']} do not add up"
    assert sum(l["bytes"] for l in o["lines"]) == o["peak_bytes"], "the lines do not add up"
    for key in ("plan", "verdict", "devices", "parameters", "active_parameters", "limit_bytes", "peak_bytes", "arena_bytes", "outside_bytes", "peak_at", "repairs"):
        assert key in o, key
        assert key in ("repairs", "limit_bytes") or o[key] == c[key], key    # a cpu's limit is read anew each time
    assert [t["name"] for t in o["terms"]] == [t["name"] for t in c["terms"]]
    # against the layout itself: the peak, every step that is listed
    rows = buffers(dump(*words))
    last = max(r[6] for r in rows)
    live = [sum(extent(r, s) for r in rows) for s in range(last)]
    assert o["fullest_bytes"] == max(live), (o["fullest_bytes"], max(live))
    shown = [i["bytes"] - o["outside_bytes"] for i in o["instants"]]
    assert shown == sorted(shown, reverse=True) and shown[0] == max(live)
    assert all(live[i["step"]] == b for i, b in zip(o["instants"], shown)), "an instant's bytes are not the layout's"
    assert all(f"step {i['step']} of" in i["at"] for i in o["instants"])
    # formulas: names with their numbers, and their product is the bytes
    by_name = {r[0]: r for r in rows}
    explained = 0
    for t in inside:
        for h in t["holdings"]:
            assert h["formula"] and h["from"] <= o["instants"][0]["step"] <= h["to"], h
            value, r = product(h["formula"]), by_name[h["name"]]
            if t["name"] in ("saved", "carried", "working", "tables", "batch", "gathered", "gradient slots", "gradient shards", "metrics", "reduce staging"):
                want = r[2] * entries_at(r, o["instants"][0]["step"])
                assert value == want, f"{h['name']}: {h['formula']} is {value}, not {want}"
                explained += h["bytes"]
            if t["name"] in ("master", "gradient", "moment1", "moment2", "weights"):
                m = re.fullmatch(r"\w+ (\d) B x ([\d,]+) parameters / fsdp (\d+)(?: / dp (\d+))? \+ ([\d,]+) B of padding", h["formula"])
                size, parameters, shards, parts, padding = (int((x or "1").replace(",", "")) for x in m.groups())
                assert -(-size * parameters // (shards * parts)) + padding == h["bytes"] and parameters == o["parameters"], h["formula"]
                assert padding <= h["bytes"] // 1000 + 65536, h["formula"]
                assert size == 4 or t["name"] == "weights", h["formula"]
    # the first instant above a level, just below and just above every instant's bytes
    outside = o["outside_bytes"]
    for level in {max(live) + outside - 1, sorted(live)[len(live) // 2] + outside, max(live) + outside, 1}:
        first = next((s for s in range(last) if live[s] + outside > level), None)
        got = ask("memory", *words, "--at", f"{level}B", status=(0, 2))["first_above"]
        assert (got["step"] if got else None) == first, (level, got and got["step"], first)
        if got:
            assert sum(t["bytes"] for t in got["terms"]) == o["peak_bytes"]
    ratio = o["arena_bytes"] / o["fullest_bytes"]
    assert o["arena_bytes"] < 64 << 20 or ratio <= 1.02, f"arena / live bytes at the peak is {ratio:.4f}"
    assert abs(ratio - float(re.search(r"layout +([\d.]+)", text("check", *words))[1])) < 0.0001
    for command in ("check", "memory"):
        assert not re.search(r"[0-9] *[kKMGT]B\b", re.sub(r"GB is 10\^9", "", text(command, *words))), "a decimal unit"
    print(f"ok add_up.{name}")


def text(*words):
    p = subprocess.run([planc, *words], capture_output=True, text=True)
    assert p.returncode in (0, 2), p.stderr[-300:]
    return p.stdout


def slope(plan):
    """Every figure of the device count: peak(8) - peak(n) is 16 P (1/8 - 1/n)."""
    found = {}
    for n in (8, 16, 32, 64, 128):
        o = ask("memory", plan, "--set", f"cluster.nodes={n // 8}", "--set", f"mesh.fsdp={n}", "--set", f"batch.global={4 * n}", "--set", "batch.loss_chunks=8",
                status=(0, 2))
        state = sum(t["bytes"] for t in o["terms"] if t["name"] in ("master", "gradient", "moment1", "moment2"))
        found[n] = (o["parameters"], state, o["peak_bytes"], sum(t["bytes"] for t in o["terms"] if t["name"] == "reduce staging"))
    for n, (p, state, peak, stage) in found.items():
        per = state * n / p
        print(f"{'ok' if abs(per / 16 - 1) < 1e-3 else 'FAIL'} state_slope.{n}" + ("" if abs(per / 16 - 1) < 1e-3 else f": {per} bytes per parameter"))
    for a, b in ((8, 16), (16, 32), (32, 64), (64, 128)):
        p = found[a][0]
        # the whole peak, less the shard that passes through the staging of a reduction, which
        # shrinks with the mesh too
        drop = (found[a][2] - found[a][3]) - (found[b][2] - found[b][3])
        per = drop / p / (1 / a - 1 / b)
        print(f"{'ok' if abs(per / 16 - 1) < 1e-3 else 'FAIL'} peak_slope.{a}_{b}" + ("" if abs(per / 16 - 1) < 1e-3 else f": {per} bytes per parameter"))


# ── what a layer keeps ───────────────────────────────────────────────────────
h, n, m, d, f, E, k, w = 2048, 16, 4, 128, 5632, 64, 8, 768
FAMILY = {
    "llama": f"model llama {{ layers = 8;  hidden = {h};  heads = {n};  kv_heads = {m};  ffn = {f};  vocab = 32000 }}",
    "qwen3": f"model qwen3 {{ layers = 8;  hidden = {h};  heads = {n};  kv_heads = {m};  head_dim = {d};  ffn = {f};  vocab = 32000 }}",
    "gpt2": f"model gpt2 {{ layers = 8;  hidden = {h};  heads = {n};  ffn = {f};  vocab = 32000;  context = 4096 }}",
    "qwen3_moe": f"model qwen3_moe {{ layers = 8;  hidden = {h};  heads = {n};  kv_heads = {m};  head_dim = {d};  vocab = 32000;  experts = {E};  top_k = {k};  expert_width = {w} }}",
    "mixtral": f"model mixtral {{ layers = 8;  hidden = {h};  heads = {n};  kv_heads = {m};  vocab = 32000;  experts = 8;  top_k = 2;  ffn = {w} }}",
}


def allowed(family, mode):
    """Bytes per token and layer in BF16: what a trainer without recomputation keeps of a pre-norm
    layer, by its parts."""
    if mode == "full":
        return 2 * h
    D, K = n * d, (n if family == "gpt2" else m) * d
    experts, top, width = (8, 2, w) if family == "mixtral" else (E, k, w)
    dense = 8 * h + 2 * D + 4 * K + 2 * D + 4 * n
    if family in ("qwen3", "qwen3_moe"):
        dense += 2 * D + 2 * K
    if family in ("qwen3_moe", "mixtral"):
        return dense + 8 * experts + 12 * top + 16 * top + 2 * top * h + 6 * top * width + 2 * top * h
    return dense + (4 if family == "gpt2" else 6) * f


def kept(folder):
    for family, model in FAMILY.items():
        path = f"{folder}/kept_{family}.plan"
        with open(path, "w") as out:
            out.write(f'use "models/{family}.plan"\nuse "clusters/b200.plan"\nplan "kept" {{\n    {model}\n    cluster b200 {{ }}\n    mesh {{ fsdp = 8 }}\n'
                      f'    precision {{ compute = bf16 }}\n    batch {{ sequence = 4096;  local = 2 }}\n}}\n')
        for mode in ("none", "selective", "full"):
            rows = [r for r in buffers(dump(path, "--set", f"activation_checkpoint.mode={mode}")) if r[1] == "saved"]
            per = {r[0]: r[2] / 8192 * min(r[3], 8) / 8 for r in rows}    # the last entry of a stack is what the layers hand on, not what one keeps
            total, most = sum(per.values()), allowed(family, mode)
            extra = 4 * (8 if family == "mixtral" else E if family == "qwen3_moe" else 0) + 64 if mode == "full" else 0  # routing choices stay, by rule
            if total <= most + extra:
                print(f"ok kept.{family}.{mode}")
                print(f"note kept.{family}.{mode}: {total:.0f} of {most:.0f} bytes per token and layer")
            else:
                print(f"FAIL kept.{family}.{mode}: {total:.0f} of {most:.0f} bytes per token and layer: {', '.join(f'{a} {b:.0f}' for a, b in sorted(per.items(), key=lambda x: -x[1]))}")


def repairs(name, *words):
    o = ask("check", *words, status=(2,))
    assert o["repairs"], "no repair"
    fits = 0
    for r in o["repairs"]:
        assert r["step_seconds"] > 0, "a repair without its predicted step"
        settings = [x for s in r["set"] for x in ("--set", s)]
        again = ask("check", *words, *settings, status=(0, 2))
        assert again["peak_bytes"] == r["peak_bytes"] and again["verdict"] == r["verdict"], (r, again["peak_bytes"], again["verdict"])
        assert r["peak_bytes"] < o["peak_bytes"], r
        flops = again["flops_per_token"]["hardware"] / o["flops_per_token"]["hardware"] - 1
        assert abs(flops - r["flops_more"]) < 1e-6, (r, flops)
        fits += r["verdict"] != "exceeds"
    order = [("fits", "tight", "exceeds").index(r["verdict"]) for r in o["repairs"]]
    assert order == sorted(order), "what does not help stands before what does"
    said = text("check", *words)
    assert "over by" in said and len(re.findall(r"^ +[\d.]+ [KMGT]iB  \S+: .*\(\S+:\d+\)$", said, re.M)) == 3, "three tenants with their lines"
    # what is printed can be pasted
    line = re.search(r"^ +(?:fits|tight|exceeds) .* moved +(--set .*)$", said, re.M)
    assert line, "no repair is printed"
    pasted = subprocess.run(f"{planc} check {' '.join(words)} {line[1]} --json", shell=True, capture_output=True, text=True)
    assert json.loads(pasted.stdout)["peak_bytes"] == o["repairs"][0]["peak_bytes"], line[1]
    print(f"ok repairs.{name}")
    print(f"note repairs.{name}: {fits} of {len(o['repairs'])} are enough; first {' '.join(o['repairs'][0]['set'])}")


def ranges(ir):
    """Every owning buffer, an entry that is idle apart, as (first byte, after its last, from, to,
    name, kind), in addresses of the arena."""
    local, wire = (int(x) for x in re.search(r"^memory local=(\d+) wire=(\d+)", ir, re.M).groups())
    row = r'^buffer (\S+) kind="([^"]*)" segment="(\w+)" offset=(\d+) bytes=(\d+) entries=(\d+) stride=(-?\d+) .* live_from=(\d+) live_to=(\d+)' + IDLE
    all_of_them = []
    for m in re.finditer(row, ir, re.M):
        offset, size, entries, stride, first, last, idle, since, until = (int(-1 if x is None else x) for x in m.groups()[3:])
        at = offset + (local if m[3] == "wire" else 0)
        if m[2] == "alias":
            continue
        alone = at + idle * stride
        at += min(0, (entries - 1) * stride)  # negative: entry 0 lies behind the others
        end = at + (entries - 1) * abs(stride) + size
        between = (alone, min(alone + abs(stride), end)) if idle >= 0 else (end, end)
        for low, high, *steps in ((at, between[0], first, last), (between[1], end, first, last), (*between, first, since - 1), (*between, until + 1, last)):
            if low < high and steps[0] <= steps[1]:
                all_of_them.append((low, high, *steps, m[1], m[2]))
    return local + wire, all_of_them


def dead(header, *words):
    """Steps in text order; a victim for the test of the test: what is saved, in the first kernel
    that goes back over it."""
    ir = dump(*words)
    arena, rows = ranges(ir)
    last = max(r[3] for r in rows)
    out, index = [], []
    for step in range(last + 1):
        index.append(len(out))
        at = 0
        for low, high, *_ in sorted(r for r in rows if r[2] <= step <= r[3]):
            if low > at:
                out.append((step, at, low))
            at = max(at, high)
        if at < arena:
            out.append((step, at, arena))
    index.append(len(out))
    backward = ir[ir.index("region layers.backward"):]
    step = int(re.search(r"kernel \d+ lane compute step (\d+)", backward)[1])
    low, high = max(((r[0], r[1]) for r in rows if r[5] == "saved" and r[2] < step <= r[3]), key=lambda r: r[1] - r[0])
    with open(header, "w") as f:
        f.write("static const struct range dead[] = {" + ", ".join(f"{{{a}, {b}, {c}}}" for a, b, c in out) + "};\n")
        f.write("static const int dead_from[] = {" + ", ".join(map(str, index)) + "};\n")
        f.write(f"static const struct range victim = {{{step}, {low}, {high}}};\n")


def edges(plan):
    """fits below 92 % of the limit, tight up to 97 %, exceeds above; exit 2 for that alone."""
    peak = ask("check", plan, "--set", "batch.loss_chunks=1", status=(0, 2))["peak_bytes"]
    def said(limit):
        p = subprocess.run([planc, "check", plan, "--set", "batch.loss_chunks=1", "--set", f"cluster.device.memory={limit}B", "--json"], capture_output=True, text=True)
        return json.loads(p.stdout)["verdict"], p.returncode, json.loads(p.stdout)["margin_bytes"] == limit - peak
    low, high = int(peak / 0.92), int(peak / 0.97)
    for limit, want in ((low + 2, "fits"), (low - 2, "tight"), (high + 2, "tight"), (high - 2, "exceeds"), (peak - 1, "exceeds"), (10 * peak, "fits")):
        assert said(limit) == (want, 2 if want == "exceeds" else 0, True), (limit, peak, said(limit), want)
    print("ok edges")


def differ(a, b):
    o, one, two = ask("diff", a, b), ask("check", a), ask("check", b)
    for key in ("parameters", "verdict", "peak_bytes", "arena_bytes", "limit_bytes"):
        assert o["a"][key] == one[key] and o["b"][key] == two[key], key
    both = [{t["name"]: t["bytes"] for t in x["terms"]} for x in (one, two)]
    want = {n: (both[0].get(n, 0), both[1].get(n, 0)) for n in set(both[0]) | set(both[1]) if both[0].get(n, 0) != both[1].get(n, 0)}
    assert {r["name"]: (r["a_bytes"], r["b_bytes"]) for r in o["memory"]} == want
    assert ask("diff", a, a)["memory"] == []
    print("ok differ")


# ── what trainers with hooks reported ────────────────────────────────────────
def reports(path, ranks):
    for rank in range(int(ranks)):
        facts, steps = {}, []
        with open(f"{path}.{rank}") as f:
            for line in f:
                word = line.split()
                if word[0] == "step":
                    steps.append({k: int(v) for k, v in zip(word[2::2], word[3::2])})
                else:
                    facts[word[0].rstrip(":")] = word[1] if word[0] == "pages" else int(word[1]) * (1 if word[0] in ("arena", "ranks") else 1024)
        yield rank, facts, steps


def pages(name, path, ranks, *words):
    """Every page of every buffer is touched, and no other; but of what files and reductions pass
    through only as much as passed."""
    arena, rows = ranges(dump(*words))
    for rank, facts, _ in reports(path, ranks):
        seen = facts["pages"]
        assert facts["arena"] == arena and len(seen) == arena // 4096, (facts["arena"], arena, len(seen))
        assert "?" not in seen, "the pages cannot be read"
        owners = {}
        for low, high, _, _, what, _ in rows:
            for page in range(low // 4096, (high - 1) // 4096 + 1):
                owners.setdefault(page, set()).add(what)
        touched = {i for i, c in enumerate(seen) if c == "1"}
        assert touched <= set(owners), f"rank {rank}: {len(touched - set(owners))} pages are touched where nobody is"
        idle = [p for p in owners if p not in touched and owners[p] - {"io", "stage"}]    # files, and reductions go through the first pieces of a shard
        # a shard may end in padding that no weight reaches, a slot in the padding of its unit
        assert len(idle) <= 2 + len(rows) // 50, f"rank {rank}: {len(idle)} pages are never touched: {sorted({w for p in idle for w in owners[p]})[:5]}"
        last = max(p for p in owners if owners[p] - {"io", "stage"})
        assert max(touched) >= last - 1, f"rank {rank}: the highest page touched is {max(touched)}, not {last}"
    print(f"ok pages.{name}")


def resident(name, path, ranks, *words):
    o = ask("check", *words, status=(0, 2))
    most = 0
    for rank, facts, _ in reports(path, ranks):
        assert facts["arena"] == o["arena_bytes"]
        allowed = 1.01 * o["peak_bytes"] + (16 << 20)
        theirs = facts["neighbours"]            # pages of other ranks, which they have
        own = facts["VmHWM"] - theirs
        assert own <= allowed, f"rank {rank}: {own} bytes resident, {o['peak_bytes']} predicted"
        assert own >= o["arena_bytes"], "less than the arena was resident"
        assert (theirs > 0) == (facts["ranks"] > 1), f"rank {rank}: {theirs} bytes of the others were read by {facts['ranks']} ranks"
        assert abs(facts["seen"] - theirs) <= 65536 * (facts["ranks"] - 1), f"rank {rank}: {theirs} bytes of others are resident, not {facts['seen']}"
        most = max(most, own - o["arena_bytes"])
    print(f"ok resident.{name}")
    print(f"note resident.{name}: arena {o['arena_bytes'] / 2**20:.1f} MiB, beside it at most {most / 2**20:.1f} of {o['outside_bytes'] / 2**20:.0f} MiB")


def allocations(name, path, ranks):
    for rank, _, steps in reports(path, ranks):
        assert len(steps) == 24
        assert all(s["ours"] == 0 for s in steps[1:]), f"rank {rank}: we asked for memory: {[s['ours'] for s in steps]}"
        late = steps[-12:]
        assert sum(s["library"] != min(t["library"] for t in late) for s in late) <= 3, f"rank {rank}: calls of libraries per step: {[s['library'] for s in late]}"
        grew = [b["held"] - a["held"] for a, b in zip(late, late[1:]) if b["held"] > a["held"]]   # now and then MPI meets a message early
        assert len(grew) <= 3 and sum(grew) <= 65536, f"rank {rank}: libraries keep more every step: {[s['held'] for s in late]}"
    print(f"ok allocations.{name}")
    print(f"note allocations.{name}: {steps[-1]['library']} calls of libraries per step, {steps[-1]['held'] / 2**20:.1f} MiB on the heap")


def asks_nothing(name, path, ranks):
    for rank, _, steps in reports(path, ranks):
        asked = [s["ours"] for s in steps]
        assert all(n == 0 for n in asked[1:]), f"rank {rank}: we asked for memory: {asked}"
    print(f"ok asks_nothing.{name}")


do = {"dead": dead, "asks_nothing": asks_nothing, "edges": edges, "differ": differ, "pages": pages, "resident": resident, "allocations": allocations, "add_up": add_up, "slope": slope, "kept": kept, "repairs": repairs}[sys.argv[2]]
try:
    do(*sys.argv[3:])
except AssertionError as why:
    print(f"FAIL {'.'.join(sys.argv[2:4]).replace('/', '_')}: {why}")
