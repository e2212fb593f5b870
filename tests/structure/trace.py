#!/usr/bin/env python3
"""trace.py overlap TRACE PREFETCH: in a layer loop, whether the gather of the next layer is issued before the first
kernel of this one and waited for after its last. trace.py saved MEMORY_IR BYTES: bytes kept a layer."""
import re
import sys


def saved(path, want):
    total = 0
    for line in open(path, encoding="utf-8"):
        m = re.match(r'buffer (\S+) kind="saved" .* entries=(\d+) stride=(\d+)', line)
        if m and int(m[2]) > 1:
            bytes_ = int(re.search(r" bytes=(\d+)", line)[1])
            total += bytes_
    if total != want:
        print(f"{total} bytes saved a layer, not {want}")
        return False
    return True


if sys.argv[1] == "saved":
    sys.exit(0 if saved(sys.argv[2], int(sys.argv[3])) else 1)
print("overlap is not known yet")
sys.exit(1)
