#!/usr/bin/env python3
"""What an exported folder must be, told by reading its files.
    check.py weights FOLDER FINAL [bf16]    its tensors are those of a trainer's --final: names, shapes, bits
    check.py shards FOLDER BYTES            several files, none with more than BYTES of tensors, and an index of all
    check.py peer FOLDER TOKENS PROBE METRICS   transformers loads it, misses and ignores no tensor, and computes the
                                            logits of the probe from the first tokens, in FP32 to 1e-5
                                            of the largest. From these weights it takes the steps of
                                            the run of the metrics, of one sample of 16 tokens each:
                                            the same losses, to 1e-5
The first two need only the standard library; the last needs PyTorch and transformers."""
import json
import pathlib
import struct
import sys


def read(path):
    raw = pathlib.Path(path).read_bytes()
    n = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8 : 8 + n])
    header.pop("__metadata__")
    return {name: (t["dtype"], t["shape"], raw[8 + n + t["data_offsets"][0] : 8 + n + t["data_offsets"][1]])
            for name, t in header.items()}


def read_folder(folder):
    index = folder / "model.safetensors.index.json"
    if not index.exists():
        return read(folder / "model.safetensors")
    return {name: t for file in set(json.loads(index.read_text())["weight_map"].values()) for name, t in read(folder / file).items()}


def rounded(raw):
    """F32 to BF16, to the nearest, ties to even."""
    out = bytearray()
    for (bits,) in struct.iter_unpack("<I", raw):
        out += struct.pack("<H", (bits + 0x7FFF + (bits >> 16 & 1)) >> 16 & 0xFFFF)
    return bytes(out)


def weights(folder, final, *dtype):
    ours, want = read_folder(pathlib.Path(folder)), read(final)
    assert sorted(ours) == sorted(want), f"other tensors: {sorted(set(ours) ^ set(want))[:4]}"
    for name, (_, shape, raw) in want.items():
        narrow = dtype and not name.endswith(".e_score_correction_bias")  # the bias of routers keeps its type
        expected = ("BF16", shape, rounded(raw)) if narrow else ("F32", shape, raw)
        assert ours[name] == expected, f"{name} differs"


def shards(folder, most):
    folder = pathlib.Path(folder)
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    files = sorted(folder.glob("model-*.safetensors"))
    assert len(files) > 1 and not (folder / "model.safetensors").exists(), f"{len(files)} files"
    place, total = {}, 0
    for file in files:
        some = read(file)
        size = sum(len(raw) for _, _, raw in some.values())
        assert size <= int(most) or len(some) == 1, f"{file.name} has {size} bytes"
        total += size
        place |= {name: file.name for name in some}
    assert place == index["weight_map"] and total == index["metadata"]["total_size"], "the index is another"


def load(folder):
    import torch
    import transformers

    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
    for what in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        assert not info[what], f"{what}: {sorted(info[what])[:4]}"
    return model


def read_ids(tokens):
    import torch

    return torch.frombuffer(bytearray(pathlib.Path(tokens).read_bytes()), dtype=torch.uint16).long()


def trains(model, ids, metrics):
    import torch

    rows = [row for row in map(json.loads, pathlib.Path(metrics).read_text().splitlines()) if "step" in row]
    assert len(rows) > 2, f"{len(rows)} steps"
    if "aux" in rows[0]:  # the balance loss of a mixture is another one there
        return ""
    model.train()
    groups = [{"params": [p for p in model.parameters() if (p.ndim > 1) == matrix], "weight_decay": 0.1 * matrix} for matrix in (True, False)]
    optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.95), eps=1e-8)
    worst = 0
    for n, row in enumerate(rows):
        for group in optimizer.param_groups:
            group["lr"] = row["lr"]
        sample = ids[16 * n : 16 * n + 17]
        loss = torch.nn.functional.cross_entropy(model(sample[None, :-1]).logits[0], sample[1:])
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        worst = max(worst, abs(loss.item() - row["loss"]) / loss.item())
    assert worst < 1e-5, f"losses off by {worst:.1e}"
    return f", steps {worst:.1e}"


def peer(folder, tokens, probe, metrics):
    import torch

    want = torch.tensor(json.loads(pathlib.Path(probe).read_text())["logits_step0"], dtype=torch.float32)
    all_ids, model = read_ids(tokens), load(folder)
    ids = all_ids[: len(want)]
    with torch.no_grad():
        have = model(ids[None]).logits[0]
    assert have.shape == want.shape, f"{list(have.shape)}, not {list(want.shape)}"
    worst = ((have - want).abs().max() / want.abs().max()).item()
    assert worst < 1e-5, f"logits off by {worst:.1e}"
    print(f"logits {worst:.1e}{trains(model, all_ids, metrics)}")


try:
    {"weights": weights, "shards": shards, "peer": peer}[sys.argv[1]](*sys.argv[2:])
except AssertionError as e:
    sys.exit(str(e))
