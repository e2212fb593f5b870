#!/usr/bin/env python3
"""Makes token files whose masks are known to the token.

  make.py masked FILE      uint16, 6 steps of 8 samples of 16: targets with id 0 are masked
      step 0: one target counts in the first half of the samples, seven in the second
      step 1: none counts          step 2: none counts in the first half          steps 3 to 5: a third is masked
  make.py all FILE N ID    uint16, N times one id
  make.py plain FILE N VOCAB FORMAT    a sequence with something to learn, as uint16 or uint32
"""
import random
import struct
import sys

random.seed(7)


def write(path, ids, form="H"):
    with open(path, "wb") as f:
        f.write(struct.pack(f"<{len(ids)}{form}", *ids))


def masked(path):
    seq, batch, vocab = 16, 8, 97
    step = seq * batch
    ids = [random.randrange(1, vocab) for _ in range(6 * step + 1)]
    counts = set(random.sample(range(step // 2), 1)) | set(random.sample(range(step // 2, step), 7))
    for i in range(6 * step):
        at, place = i // step, i % step
        keep = (place in counts, False, place >= step // 2, random.random() > 1 / 3)[min(at, 3)]
        if not keep:
            ids[i + 1] = 0
    write(path, ids)


def plain(path, count, vocab, form):
    ids = [random.randrange(vocab)]
    while len(ids) < count:
        ids.append((ids[-1] * 5 + 3) % vocab if random.random() < 0.8 else random.randrange(vocab))
    write(path, ids, {"uint16": "H", "uint32": "I"}[form])


if sys.argv[1] == "masked":
    masked(sys.argv[2])
elif sys.argv[1] == "all":
    write(sys.argv[2], [int(sys.argv[4])] * int(sys.argv[3]))
else:
    plain(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5])
