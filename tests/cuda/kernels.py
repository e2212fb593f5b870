#!/usr/bin/env python3
"""What NVRTC makes of all kernels of all plans.

gather OUT FOLDER...   puts the functions of FOLDER/kernels.cu together, each text once however many plans have it, into OUT.0.cu and OUT.1.cu (two
                       compilations that cost about the same) and OUT.json, which says whose each is
                       and how it is launched
table OUT DOC ARCH...  reads OUT.N.ARCH.log, prints a row a function, and complains of local memory
that the table of DOC does not excuse
"""
import collections
import json
import re
import sys

FUNCTION = re.compile(r"^KERNEL(?:_RESIDENT)?\((\d+)(?:, \d+)?\) (\w+)\(.*?^}$", re.S | re.M)
INCLUDE = re.compile(r"^#include .*$", re.M)
SHOT = re.compile(r"\{FUNCTION_(\w+), (.*?)\}", re.S)
# Of a multiprocessor of compute capability 9.0 and 10.0: registers, warps, blocks, shared memory,
# and what of it a block costs beside its own.
REGISTERS, WARPS, BLOCKS, SHARED, SHARED_OF_BLOCK = 65536, 64, 32, 228 * 1024, 1024


def gather(out, folders):
    seen, includes, rows = {}, [], []
    for folder in folders:
        text = open(f"{folder}/kernels.cu").read()
        for line in INCLUDE.findall(text):
            if line not in includes:
                includes.append(line)
        shared = {}
        for name, shot in SHOT.findall(open(f"{folder}/launch.c").read()):
            words = [w.strip() for w in re.split(r",(?![^()]*\))", shot)]
            shared[name] = max(shared.get(name, 0), int(words[4]))
        helpers = FUNCTION.sub("", text)
        left = [line for line in helpers.split("\n") if line and not line.startswith(("#include", "/*", " *", "//"))]
        if left:
            sys.exit(f"{folder}/kernels.cu has text outside its functions: {left[0]}")
        for match in FUNCTION.finditer(text):
            name, body = match.group(2), match.group(0)
            key = body.replace(f" {name}(", " (", 1)
            if key not in seen:
                seen[key] = {"function": f"{name}_{len(seen)}", "kernel": name.removeprefix("f_"), "folders": [], "threads": int(match.group(1)), "shared": 0,
                             "text": body.replace(f" {name}(", f" {name}_{len(seen)}(", 1)}
            row = seen[key]
            if name.removeprefix("f_") not in shared:
                sys.exit(f"{folder}/launch.c never launches {name}")
            row["shared"] = max(row["shared"], shared[name.removeprefix("f_")])
            if folder not in row["folders"]:
                row["folders"].append(folder)
    rows = list(seen.values())
    for part in range(2):
        with open(f"{out}.{part}.cu", "w") as f:
            f.write("\n".join(includes) + "\n\n" + "\n\n".join(row["text"] for row in rows[part::2]) + "\n")
    json.dump(rows, open(f"{out}.json", "w"))
    print(len(rows))


def read_log(path):
    """By function: registers, static shared memory, stack, spills."""
    found, name = {}, None
    for line in open(path, errors="replace"):
        if m := re.search(r"Compiling entry function '(\w+)' for '(\w+)'", line):
            name = m.group(1)
            found[name] = {"registers": 0, "static": 0, "stack": 0, "stores": 0, "loads": 0}
        elif m := re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", line):
            if name:
                found[name].update(stack=int(m.group(1)), stores=int(m.group(2)), loads=int(m.group(3)))
        elif m := re.search(r"Used (\d+) registers", line):
            if name:
                smem = re.search(r"(\d+) bytes smem", line)
                found[name].update(registers=int(m.group(1)), static=int(smem.group(1)) if smem else 0)
    return found


def occupancy(threads, registers, shared):
    """Warps of a multiprocessor that such blocks can have resident, in per cent."""
    warps = (threads + 31) // 32
    of_registers = REGISTERS // (warps * ((registers * 32 + 255) // 256 * 256)) if registers else BLOCKS
    of_shared = SHARED // (shared + SHARED_OF_BLOCK)
    blocks = min(BLOCKS, WARPS // warps, of_registers, of_shared)
    return 100 * blocks * warps // WARPS


def excuses(path):
    """Rows `| pattern | ARCH | bytes | why |` of the document's table under a heading with the word
    "Spills": at most so many stored and loaded."""
    rows, inside = [], False
    for line in open(path):
        if line.startswith("#"):
            inside = "Spills" in line
        cells = [c.strip(" `") for c in line.strip().strip("|").split("|")]
        if inside and line.startswith("|") and len(cells) >= 4 and cells[1].startswith("sm_") and cells[3]:
            rows.append((re.compile(cells[0]), cells[1], int(cells[2])))
    return rows


def table(out, doc, archs):
    rows, bad = json.load(open(f"{out}.json")), []
    known = excuses(doc)
    print(f"{'kernel':<44} {'threads':>7} " + " ".join(f"{a + ':':>9} {'regs':>4} {'shared':>7} {'spill':>6} {'occup':>5}" for a in archs) + "  plans")
    logs = {a: read_log(f"{out}.0.{a}.log") | read_log(f"{out}.1.{a}.log") for a in archs}
    lowest = collections.Counter()
    for row in sorted(rows, key=lambda r: r["kernel"]):
        cells = []
        for a in archs:
            got = logs[a].get(row["function"])
            if not got:
                bad.append(f"{row['kernel']} of {row['folders'][0]} is not in the log of {a}")
                continue
            shared = got["static"] + row["shared"]
            spill = max(got["stores"] + got["loads"], got["stack"])
            part = occupancy(row["threads"], got["registers"], shared)
            cells.append(f"{'':>9} {got['registers']:>4} {shared:>7} {spill:>6} {part:>4}%")
            if spill and not any(p.search(row["kernel"]) and arch == a and got["stores"] + got["loads"] <= most for p, arch, most in known):
                bad.append(f"{row['kernel']} of {row['folders'][0]} on {a}: {got['stack']} B of stack, {got['stores']} B of spills stored, {got['loads']} B loaded")
            if part == 0:
                bad.append(f"{row['kernel']} of {row['folders'][0]} on {a}: no block fits: {row['threads']} threads, {got['registers']} registers, {shared} B of shared memory")
            lowest[part // 10 * 10] += 1
        print(f"{row['kernel']:<44} {row['threads']:>7} " + " ".join(cells) + "  " + " ".join(sorted({f.split(".")[0] for f in row["folders"]})))
    print("occupancy: " + ", ".join(f"{n} at {p} % or a little more" for p, n in sorted(lowest.items())))
    for line in bad:
        print("BAD " + line)
    return 1 if bad else 0


if __name__ == "__main__":
    if sys.argv[1] == "gather":
        gather(sys.argv[2], sys.argv[3:])
    else:
        sys.exit(table(sys.argv[2], sys.argv[3], sys.argv[4:]))
