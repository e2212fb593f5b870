#!/usr/bin/env python3
"""The dense model of plans/dense.plan in PyTorch, for a number to stand beside ours: the same
sizes, batch and optimizer; FP32 master weights, BF16 by autocast, scaled_dot_product_attention
(flash), fused AdamW, clipping. `peer.py TOKENS --mode eager|compile --steps N` prints one line per
step and, last, `peer: MODE TOKENS_PER_SECOND PEAK_BYTES`."""
import argparse
import math
import time

import torch
import torch.nn.functional as F
from torch import nn

LAYERS, HIDDEN, HEADS, KV_HEADS, FFN, VOCAB, THETA = 16, 2048, 16, 8, 8192, 32768, 500000.0
SEQUENCE, LOCAL = 4096, 4
WIDTH = HIDDEN // HEADS


class Norm(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(n))

    def forward(self, x):
        return F.rms_norm(x, (x.shape[-1],), self.weight.to(x.dtype), 1e-5)


def linear(inner, outer):
    layer = nn.Linear(inner, outer, bias=False)
    nn.init.normal_(layer.weight, std=0.02)
    return layer


def rotate(x, cos, sin):
    low, high = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-high, low), dim=-1) * sin


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = Norm(HIDDEN), Norm(HIDDEN)
        self.q, self.k, self.v, self.o = linear(HIDDEN, HEADS * WIDTH), linear(HIDDEN, KV_HEADS * WIDTH), linear(HIDDEN, KV_HEADS * WIDTH), linear(HEADS * WIDTH, HIDDEN)
        self.gate, self.up, self.down = linear(HIDDEN, FFN), linear(HIDDEN, FFN), linear(FFN, HIDDEN)

    def forward(self, x, cos, sin):
        b, s, _ = x.shape
        h = self.norm1(x)
        q, k, v = (p(h).view(b, s, -1, WIDTH).transpose(1, 2) for p in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(rotate(q, cos, sin), rotate(k, cos, sin), v, is_causal=True, enable_gqa=True)
        x = x + self.o(y.transpose(1, 2).reshape(b, s, -1))
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, HIDDEN)
        nn.init.normal_(self.embed.weight, std=0.02)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm, self.head = Norm(HIDDEN), linear(HIDDEN, VOCAB)
        angle = torch.outer(torch.arange(SEQUENCE).float(), THETA ** (-torch.arange(0, WIDTH, 2).float() / WIDTH))
        self.register_buffer("cos", torch.cat((angle, angle), -1).cos().to(torch.bfloat16))
        self.register_buffer("sin", torch.cat((angle, angle), -1).sin().to(torch.bfloat16))

    def forward(self, ids, targets):
        x = self.embed(ids).to(torch.bfloat16)
        for layer in self.layers:
            x = layer(x, self.cos, self.sin)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1).float(), targets.flatten())


def main():
    options = argparse.ArgumentParser()
    options.add_argument("tokens")
    options.add_argument("--mode", choices=("eager", "compile"), default="eager")
    options.add_argument("--steps", type=int, default=10)
    o = options.parse_args()
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    data = torch.frombuffer(bytearray(open(o.tokens, "rb").read()), dtype=torch.uint16).to(torch.int64)
    with torch.device("cuda"):
        model = Model()
    print(f"parameters {sum(p.numel() for p in model.parameters()):,}", flush=True)
    step_of = torch.compile(model) if o.mode == "compile" else model
    decayed = [p for p in model.parameters() if p.dim() > 1]
    plain = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}], lr=3e-4, betas=(0.9, 0.95), eps=1e-8, fused=True)
    took = []
    for step in range(o.steps):
        at = step * LOCAL * SEQUENCE
        ids = data[at:at + LOCAL * SEQUENCE].view(LOCAL, SEQUENCE).cuda(non_blocking=True)
        targets = data[at + 1:at + 1 + LOCAL * SEQUENCE].view(LOCAL, SEQUENCE).cuda(non_blocking=True)
        torch.cuda.synchronize()
        begun = time.perf_counter()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = step_of(ids, targets)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        value = loss.item()
        took.append(time.perf_counter() - begun)
        print(f"step {step} loss {value:.6f} norm {norm.item():.6f} {LOCAL * SEQUENCE / took[-1]:.0f} tokens/s", flush=True)
        assert math.isfinite(value)
    late = sorted(took[len(took) // 2:])
    print(f"peer: {o.mode} {LOCAL * SEQUENCE / late[len(late) // 2]:.0f} {torch.cuda.max_memory_reserved()} torch {torch.__version__}", flush=True)


if __name__ == "__main__":
    main()
