#!/usr/bin/env python3
"""Files of tokens as other tools lay them out, written by their layouts alone:   make.py FOLDER
The same ids in every layout, documents of a few ids each, and files with one thing wrong."""
import json
import os
import struct
import sys

os.chdir(sys.argv[1])
END = 299
ids, lengths = [], []
while len(ids) < 6000:
    n = 3 + (7 * len(lengths)) % 41
    ids += [(17 * i + 5 * len(lengths)) % 298 for i in range(n - 1)] + [END]
    lengths.append(n)
low = [i % 251 for i in ids]  # ids that a byte holds
CODES = {1: "B", 2: "H", 4: "I", 8: "Q", -2: "h", -4: "i", -8: "q"}


def pack(numbers, width):
    return struct.pack(f"<{len(numbers)}{CODES[width]}", *numbers)


def write(name, data):
    with open(name, "wb") as f:
        f.write(data)


def numpy(data, descr, shape, version=1, fortran=False):
    text = ("{'descr': '%s', 'fortran_order': %s, 'shape': %s, }" % (descr, fortran, shape)).encode()
    size = 2 if version == 1 else 4
    text += b" " * (-(8 + size + len(text) + 1) % 64) + b"\n"
    return b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H" if size == 2 else "<I", len(text)) + text + data


def llmc(data, count, magic=20240520, version=1):
    return struct.pack("<256i", magic, version, count, *[0] * 253) + data


def index(lengths, code, width, ends=None, version=1):
    begins = [sum(lengths[:i]) * width for i in range(len(lengths))]
    ends = list(range(len(lengths) + 1)) if ends is None else ends
    return (b"MMIDIDX\0\0" + struct.pack("<QBQQ", version, code, len(lengths), len(ends)) +
            struct.pack(f"<{len(lengths)}i", *lengths) + struct.pack(f"<{len(begins)}q", *begins) +
            struct.pack(f"<{len(ends)}q", *ends))


def megatron(name, data, *args, **more):
    write(name + ".bin", data)
    write(name + ".idx", index(*args, **more))


count = len(ids)
u1, u2, u4 = pack(low, 1), pack(ids, 2), pack(ids, 4)
write("raw1.bin", u1)
write("raw2.bin", u2)
write("raw4.bin", u4)
write("olmo.npy", u2)  # raw ids under the name of an array
write("u2.npy", numpy(u2, "<u2", f"({count},)"))
write("u4.npy", numpy(u4, "<u4", f"({count},)", version=2))
write("i8.npy", numpy(pack(ids, -8), "<i8", f"({count},)", version=3))
write("rows.npy", numpy(pack(ids[:6000], -4), "<i4", "(60, 100)"))
write("gpt2.bin", llmc(u2, count))
write("llama3.bin", llmc(u4, count, 20240801, 7))
for name, code, width in ("m2_text_document", 8, 2), ("m4_text_document", 4, -4), ("m8_text_document", 5, -8):
    megatron(name, pack(ids, width), lengths, code, abs(width))
# sentences: documents of two sequences
twos = list(range(0, len(lengths), 2)) + [len(lengths)]
megatron("m_sentences", u2, lengths, 8, 2, twos)
lines, text = [], ""
for i in range(300):
    part = 'Line %d: "quoted" \\ caf\u00e9 \U0001F600\t end.\n' % i
    text += part
    other = {"id": i, "nested": {"text": "no {", "list": [1, "]", {"a": None}]}, "text": part, "after": [i]}
    lines.append(json.dumps(other, ensure_ascii=i % 2 == 0))
write("lines.jsonl", ("\n".join(lines) + "\n").encode())
write("lines.txt", text.encode())
write("content.jsonl", "".join(json.dumps({"content": t}) + "\n" for t in text.splitlines(True)).encode())

# ── wrong ────────────────────────────────────────────────────────────────────
write("w_cut.npy", numpy(u2, "<u2", f"({count},)")[:-10])
write("w_long.npy", numpy(u2, "<u2", f"({count - 5},)"))
write("w_float.npy", numpy(pack(ids, 4), "<f4", f"({count},)"))
write("w_big.npy", numpy(u2, ">u2", f"({count},)"))
write("w_columns.npy", numpy(pack(ids[:6000], 4), "<u4", "(60, 100)", fortran=True))
write("w_head.npy", numpy(u2, "<u2", f"({count},)")[:40])
write("w_cut_llmc.bin", llmc(u2, count)[:-2])
write("w_version_llmc.bin", llmc(u2, count, version=2))
write("w_choices.bin", llmc(u2, count, magic=20240522))
megatron("w_cut_bin", u2[:-20], lengths, 8, 2)
megatron("w_longer_bin", u2 + b"\0\0", lengths, 8, 2)
write("w_cut_idx.bin", u2)
write("w_cut_idx.idx", index(lengths, 8, 2)[:-9])
megatron("w_type", u2, lengths, 7, 2)
megatron("w_version", u2, lengths, 8, 2, version=3)
write("w_tnt.bin", u2)
write("w_tnt.idx", b"TNTIDX\0\0" + bytes(64))
write("w_swapped.bin", u2)
bad = bytearray(index(lengths, 8, 2))
at = 34 + 4 * len(lengths) + 8 * 5
bad[at:at + 8] = struct.pack("<q", 4)
write("w_swapped.idx", bytes(bad))
bad = bytearray(index(lengths, 8, 2))
bad[-16:-8] = struct.pack("<q", 0)
write("w_documents.bin", u2)
write("w_documents.idx", bytes(bad))
write("w_alone.idx", index(lengths, 8, 2))
write("w_no_index.bin", u2)
negative = list(ids)
negative[4321] = -7
megatron("w_negative", pack(negative, -4), lengths, 4, 4)
beyond = list(ids)
beyond[1234] = 300
write("w_beyond.npy", numpy(pack(beyond, 4), "<u4", f"({count},)"))
wide = [min(x, 65535) * 1 for x in ids]
write("w_cut.jsonl", ("\n".join(lines))[:-20].encode())
write("w_pretty.jsonl", json.dumps({"text": "a" * 80, "b": 1}, indent=1).encode())
write("w_field.jsonl", (lines[0] + "\n" + json.dumps({"id": 1, "body": "x" * 80}) + "\n").encode())
write("w_string.jsonl", (lines[0] + "\n" + json.dumps({"text": 12}) + "\n").encode())
write("w_escape.jsonl", (lines[0] + '\n{"text": "a\\qb"}\n').encode())
write("w_array.jsonl", (lines[0] + '\n[1, 2]\n').encode())
write("w_joined.jsonl", (lines[0] + lines[1] + "\n" + lines[2] + "\n").encode())
write("w_twice.jsonl", (lines[0] + '\n{"text": "a", "b": 1, "text": "c"}\n').encode())
write("w_behind.jsonl", (lines[0] + '\n{"text": "a", 5}\n').encode())
write("marked.jsonl", b"\xEF\xBB\xBF\n \n" + "\n\n".join(lines).encode())
write("latin.txt", "Le caf\xe9 est \xe0 c\xf4t\xe9 de la gare, pas loin d'ici\n".encode("latin-1") * 50)
write("log.txt", b"\x1b[1mwarning\x1b[0m: the lines of a log have colours\n" * 50)

# ── beyond 2^31 tokens: sparse, the end as it is elsewhere ───────────────────
with open("far2.bin", "wb") as f:
    f.seek(2 * ((1 << 31) + 4096))
    f.write(u2)
with open("far4.bin", "wb") as f:
    f.seek(4 * ((1 << 31) + 4096))
    f.write(u4)
begin = 4 * ((1 << 31) + 4096) // 4 + count
far = numpy(b"", "<u4", f"({begin},)")
with open("far.npy", "wb") as f:
    f.write(far)
    f.seek(len(far) + 4 * ((1 << 31) + 4096))
    f.write(u4)
write("near2.bin", bytes(2 * 4096) + u2)
print(count, len(lengths), len(twos) - 1, len(text.encode()))
