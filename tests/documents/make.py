#!/usr/bin/env python3
"""Token files of documents:   make.py FOLDER
alone.bin: documents of 12 ids, the first of which is 0 and the last 5, so that a sample of 12 is
one document. mixed.*: the same documents of 1 to 60 ids, in layouts that mark their ends in
different ways; 299 ends each, and is nowhere else."""
import json
import os
import random
import struct
import sys

os.chdir(sys.argv[1])
draw = random.Random(7)


def raw(name, ids, code="H"):
    with open(name, "wb") as f:
        f.write(struct.pack(f"<{len(ids)}{code}", *ids))


raw("alone.bin", [i for _ in range(400) for i in
                  [0] + [draw.choice([1, 2, 3, 4, 6, 7, 8, 9]) for _ in range(10)] + [5]])

lengths = [draw.choice([1, 2, 3, 9, 20, 33, 60]) for _ in range(400)]
documents = [[draw.randrange(298) for _ in range(n - 1)] + [299] for n in lengths]
ids = [i for d in documents for i in d]
raw("mixed_end.bin", ids)
raw("mixed.bin", ids)
begins = [2 * sum(lengths[:i]) for i in range(len(lengths))]
with open("mixed.idx", "wb") as f:
    f.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, len(lengths), len(lengths) + 1))
    f.write(struct.pack(f"<{len(lengths)}i", *lengths))
    f.write(struct.pack(f"<{len(lengths)}q", *begins))
    f.write(struct.pack(f"<{len(lengths) + 1}q", *range(len(lengths) + 1)))

# a file for each document; JSON lines and the same bytes with an id that ends them
os.makedirs("each", exist_ok=True)
for i, d in enumerate(documents):
    raw("each/%03d.bin" % i, d)
texts = ["".join(draw.choice("abcdef ") for _ in range(n - 1)) + "\n" for n in lengths]
with open("lines.jsonl", "w") as f:
    f.writelines(json.dumps({"text": t}) + "\n" for t in texts)
with open("lines.txt", "w") as f:
    f.write("".join(texts))
