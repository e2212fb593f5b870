#!/usr/bin/env python3
"""fuzz.py PLANC KIND COUNT SEED OUT FILE...: damages each text COUNT times (bytes dropped, doubled,
swapped, words of one text put into another) and hands it to the compiler, which must answer with
one of its own statuses and never with a signal, a sanitizer's report, an internal error or silence.
A text that breaks it is kept in OUT."""
import os
import random
import re
import subprocess
import sys

planc, kind, count, seed, out = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
texts = [open(p, "rb").read() for p in sys.argv[6:]]
rng = random.Random(seed)
words = sorted({w for t in texts for w in re.findall(rb"[A-Za-z_]+|[0-9.]+|\S", t)})
words += [b"-1", b"0", b"1e308", b"9223372036854775807", b"4GiB", b"\xff", b"\xc3\xa9", b"..", b"\"", b"(" * 300, b"{" * 100, b"\x00"]


def damage(text):
    text = bytearray(text)
    for _ in range(rng.choice((1, 1, 1, 2, 4, 8))):
        spans = [m.span() for m in re.finditer(rb"[A-Za-z_]+|[0-9.]+|\S|\n", bytes(text))]
        if not spans:
            break
        a, b = rng.choice(spans)
        action = rng.randrange(6)
        if action == 0:
            del text[a:b]
        elif action == 1:
            text[a:b] = rng.choice(words)
        elif action == 2:
            text[a:a] = rng.choice(words) + b" "
        elif action == 3:
            c, d = rng.choice(spans)
            text[a:b], text[c:d] = text[c:d], text[a:b]
        elif action == 4:
            del text[a:]
        else:
            text[a] = rng.randrange(256)
    return bytes(text)


path = os.path.join(out, "input." + kind)
command = [planc, "check", path] if kind == "plan" else [planc, "dump", "--from", path]
bad = 0
for n in range(count):
    text = damage(rng.choice(texts))
    with open(path, "wb") as f:
        f.write(text)
    try:
        done = subprocess.run(command, capture_output=True, timeout=20)
        said = done.stdout + done.stderr
        wrong = done.returncode not in (0, 1, 2, 3, 4) or (done.returncode and not said) or \
            (kind == "plan" and b"internal" in said.lower()) or b"Sanitizer" in said or b"runtime error" in said
        why = f"status {done.returncode}: {said[-200:]!r}"
    except subprocess.TimeoutExpired:
        wrong, why = True, "no answer in 20 s"
    if wrong:
        bad += 1
        kept = os.path.join(out, f"broken.{seed}.{n}.{kind}")
        os.replace(path, kept)
        if bad <= 3:
            print(f"{kept}: {why}")
sys.exit(1 if bad else 0)
