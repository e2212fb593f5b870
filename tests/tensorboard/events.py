#!/usr/bin/env python3
"""Reads event files by itself: records, sums, protobuf.
    events.py same DIR METRICS     all scalars and histograms are the numbers of the lines of METRICS
    events.py whole DIR            every file consists of whole records, and has some steps"""
import glob
import json
import math
import struct
import sys

FILES = "/events.out.tfevents.*.planc"


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


assert crc32c(b"123456789") == 0xE3069283  # the check value of CRC-32C


def records(path):
    data, at = open(path, "rb").read(), 0
    while at < len(data):
        head = data[at:at + 8]
        (n,) = struct.unpack("<Q", head)
        assert struct.unpack("<I", data[at + 8:at + 12])[0] == masked(head), f"{path}: sum of a length at {at}"
        body = data[at + 12:at + 12 + n]
        assert len(data) >= at + 16 + n, f"{path}: half a record at {at}"
        assert struct.unpack("<I", data[at + 12 + n:at + 16 + n])[0] == masked(body), f"{path}: sum at {at}"
        yield body
        at += 16 + n


def fields(data):
    at = 0

    def varint():
        nonlocal at
        x, shift = 0, 0
        while True:
            byte = data[at]
            at += 1
            x |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                return x
    while at < len(data):
        key = varint()
        if key & 7 == 0:
            value = varint()
        elif key & 7 == 1:
            value, at = struct.unpack("<d", data[at:at + 8])[0], at + 8
        elif key & 7 == 5:
            value, at = struct.unpack("<f", data[at:at + 4])[0], at + 4
        else:
            n = varint()
            value, at = data[at:at + n], at + n
        yield key >> 3, value
    assert at == len(data), "a message ends in the middle of a field"


def doubles(data):
    return list(struct.unpack(f"<{len(data) // 8}d", data))


def steps(folder):
    """[(step, {tag: number or histogram})] of all files in the order of their names"""
    found = []
    for path in sorted(glob.glob(folder + FILES)):
        events = [dict(fields(x)) for x in records(path)]
        assert events[0][3] == b"brain.Event:2", f"{path}: no version"
        first = events[1][2]
        assert dict(fields(events[1][7])) == {1: 1}, f"{path}: no start of a session"
        for e in events[2:]:
            assert e[1] > 1e9 and e[2] >= first
            values = {}
            for number, value in fields(e[5]):
                value = dict(fields(value))
                assert number == 1 and value[1].decode() not in values
                values[value[1].decode()] = value[2] if 2 in value else dict(fields(value[5]))
            found.append((e[2], values))
    return found


def near(a, b):
    return math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-12)


def same(folder, metrics):
    found = steps(folder)
    lines = [json.loads(x) for x in open(metrics, encoding="utf-8")]
    assert [s for s, _ in found] == [x["step"] for x in lines], f"steps {[s for s, _ in found]}"
    for (step, have), line in zip(found, lines):
        want = {k: v for k, v in line.items() if k not in ("step", "tokens", "tokens_hash")}
        for key in ("loss", "ce", "aux", "load", "grad_norm", "lr", "tokens_per_second", "mfu",
                    "memory_peak_bytes", "exposed_comm_seconds"):
            assert key in want, f"no {key} in {metrics}"
        lists = {k for k, v in want.items() if isinstance(v, list)}
        tags = set(want) | {k + "_by_expert" for k in lists}
        assert set(have) == tags, f"step {step}: {sorted(set(have) ^ tags)}"
        for k, v in want.items():
            if k not in lists:
                assert near(have[k], v), f"step {step}: {k} is {have[k]}, not {v}"
                continue
            h, limit, bucket = have[k], doubles(have[k][6]), doubles(have[k][7])
            assert near(h[1], min(v)) and near(h[2], max(v)) and h[3] == len(v)
            assert near(h[4], sum(v)) and near(h[5], sum(x * x for x in v))
            assert limit == sorted(limit) and limit[-1] == h[2] and sum(bucket) == len(v)
            below = 0
            for right, n in zip(limit, bucket):
                below += n
                slack = 1e-9 * max(v)
                assert sum(x <= right - slack for x in v) <= below <= sum(x <= right + slack for x in v)
            h = have[k + "_by_expert"]
            assert doubles(h[6]) == [i + 1 for i in range(len(v))] and near(h[3], sum(v))
            assert all(near(a, b) for a, b in zip(doubles(h[7]), v)) and (h[1], h[2]) == (0, len(v))
    validated = [s for s, have in found if "validation_loss" in have]
    assert validated == [x["step"] for x in lines if x["step"] % 2 == 1], f"validated after {validated}"


def whole(folder):
    found = steps(folder)
    assert len(found) > 2 and [s for s, _ in found] == list(range(len(found))), [s for s, _ in found]


try:
    {"same": same, "whole": whole}[sys.argv[1]](*sys.argv[2:])
except AssertionError as e:
    sys.exit(str(e))
