#!/usr/bin/env python3
"""planc beside PyTorch and transformers, in turns in one run: one line for a model and a type.
    peers.py MODEL TYPE TRAINER KERNELS ROUNDS STEPS [PYTHON]    MODEL: dense, mixture; TYPE: fp32, bf16
    peers.py serve MODEL TYPE SETTING                            the process that trains with PyTorch
A setting of PyTorch is a process (with `ddp` a group of two) that trains one step to compile and to
warm up and then waits; each round runs the trainer, then a few steps of every setting. The best
round of each counts. PYTHON has torch and transformers; without it planc stands alone. Shares come
from one more run with --profile: a kernel's class is that of the call in its C."""
import os
import re
import subprocess
import sys
import time

SEQUENCE, SAMPLES, RANKS = 256, 16, 2
# what was fastest on some machine; each is measured, the best one counts
SETTINGS = {"dense": ["ddp compile", "ddp eager", "threads compile"],
            "mixture": ["ddp eager", "ddp grouped_mm", "threads grouped_mm"]}


# ── PyTorch ───────────────────────────────────────────────────────────────────
def model_of(which, how):
    import transformers as t
    if which == "dense":
        return t.GPT2LMHeadModel(t.GPT2Config(
            n_layer=6, n_embd=384, n_head=6, vocab_size=256, n_positions=SEQUENCE,
            resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, use_cache=False))
    config = t.Qwen3MoeConfig(
        num_hidden_layers=4, hidden_size=256, num_attention_heads=4, num_key_value_heads=2,
        head_dim=64, vocab_size=256, num_experts=8, num_experts_per_tok=2, norm_topk_prob=True,
        moe_intermediate_size=512, intermediate_size=512, decoder_sparse_step=1, tie_word_embeddings=True,
        router_aux_loss_coef=0.01, output_router_logits=True, rope_theta=10000.0, use_cache=False)
    return t.AutoModelForCausalLM.from_config(config, experts_implementation=how)


def train(which, dtype, setting, rank, ranks):
    """A step at every line of input; says how long it took."""
    import torch
    torch.manual_seed(1)
    torch.set_num_threads(RANKS // ranks)
    how = setting.split()[1]
    model = model_of(which, "eager" if how == "compile" else how)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    run = model
    if ranks > 1:
        import torch.distributed as dist
        dist.init_process_group("gloo", rank=rank, world_size=ranks)
        run = torch.nn.parallel.DistributedDataParallel(model, find_unused_parameters=which == "mixture")
    if how == "compile":
        run = torch.compile(run)
    tokens = torch.randint(0, 256, (SAMPLES // ranks, SEQUENCE))
    go = torch.zeros(1, dtype=torch.int64)

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bf16"):
            loss = run(input_ids=tokens, labels=tokens).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    step()
    step()
    if rank == 0:
        print("ready", flush=True)
    while True:
        if rank == 0:
            line = sys.stdin.readline()
            go[0] = int(line) if line.strip() else 0
        if ranks > 1:
            dist.broadcast(go, 0)
        if not int(go[0]):
            break
        begun = time.monotonic()
        for _ in range(int(go[0])):
            step()
        if rank == 0:
            print((time.monotonic() - begun) / int(go[0]), flush=True)


def serve(which, dtype, setting):
    ranks = RANKS if setting.startswith("ddp") else 1
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(20000 + os.getpid() % 20000), OMP_NUM_THREADS=str(RANKS // ranks))
    others = []
    for rank in range(1, ranks):
        pid = os.fork()
        if pid == 0:
            train(which, dtype, setting, rank, ranks)
            os._exit(0)
        others.append(pid)
    train(which, dtype, setting, 0, ranks)
    for pid in others:
        os.waitpid(pid, 0)


class Peer:
    def __init__(self, python, which, dtype, setting):
        self.setting, self.best = setting, 1e9
        self.process = subprocess.Popen([python, __file__, "serve", which, dtype, setting], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, text=True, start_new_session=True)

    def line(self):
        while True:
            line = self.process.stdout.readline()
            if not line:
                return None
            if line.startswith("ready") or re.match(r"[0-9.e-]+$", line):
                return line

    def steps(self, n):
        try:
            print(n, file=self.process.stdin, flush=True)
        except OSError:
            return
        line = self.line()
        if line:
            self.best = min(self.best, float(line))

    def close(self):
        try:
            self.process.stdin.close()
        except OSError:
            pass
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, 9)
            self.process.wait()


# ── planc ─────────────────────────────────────────────────────────────────────
def run_trainer(trainer, steps, *more):
    command = ["timeout", "300", "mpirun", "-n", str(RANKS), "--oversubscribe", "--bind-to", "none", trainer,
               "--steps", str(steps), "--log-every", "1000", *more]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    if done.returncode:
        sys.exit(f"peers.py: {trainer}: {done.stdout[-400:]} {done.stderr[-400:]}")
    return done.stdout


def classes(kernels):
    """Class of every kernel, by what its function calls."""
    text = open(kernels).read()
    body = dict(re.findall(r"^static void f_(\w+)\(.*?\)\n\{\n(.*?)^\}", text, re.M | re.S))
    called = re.findall(r'^const struct kernel k_(\w+) = \{"[^"]*", call_(\w+),', text, re.M)
    calls = {"product": "products", "expert_matmul": "products", "expert_matmul_grad": "products",
             "attention": "attention", "attention_grad": "attention", "dispatch": "routing",
             "collect": "routing", "to_rows": "routing", "from_rows": "routing", "top_k": "routing",
             "route_plan": "routing", "load": "routing"}
    kinds = {}
    for name, function in called:
        first = re.match(r"\s*(\w+)\(", body[function])
        kinds[name] = calls.get(first.group(1), "element-wise") if first else "element-wise"
    return kinds


def shares(trainer, kernels, steps):
    text, kinds, ms = run_trainer(trainer, steps, "--profile", str(steps - 1)), classes(kernels), {}
    for name, value in re.findall(r"^profile: kernel\s+(\S+)\s+\d+\s+([0-9.]+)", text, re.M):
        kind = "update" if name.startswith("update_") else kinds.get(name, "element-wise")
        ms[kind] = ms.get(kind, 0) + float(value)
    inside, whole = re.search(r"op by op: ([0-9.]+) ms per step in kernels of ([0-9.]+) ms", text).groups()
    ms["outside kernels"] = float(whole) - float(inside)
    return ", ".join(f"{kind} {100 * value / float(whole):.1f} %" for kind, value in sorted(ms.items(), key=lambda x: -x[1]))


def main(which, dtype, trainer, kernels, rounds, steps, python=None):
    rounds, steps = int(rounds), int(steps)
    peers = []
    for setting in SETTINGS[which] if python else []:
        peer = Peer(python, which, dtype, setting)
        if peer.line():
            peers.append(peer)
        else:
            print(f"  {which} {dtype}: PyTorch does not run as \"{setting}\"", file=sys.stderr)
            peer.close()
    best, peak, flops = 0.0, 0.0, 0.0
    for _ in range(rounds):
        out = run_trainer(trainer, steps + 1)
        best = max(best, float(re.search(r"^speed: ([0-9.]+) tokens/s", out, re.M).group(1)))
        said = re.search(r"FMA peak of ([0-9.]+) GFLOP/s \(([0-9.]+) MFLOP per token\)", out)
        peak, flops = max(peak, float(said.group(1)) * 1e9), float(said.group(2)) * 1e6
        for peer in peers:
            peer.steps(steps)
    for peer in peers:
        peer.close()
    of_peak = lambda speed: 100 * speed * flops / peak
    line = f"{which} {dtype}: planc {best:.0f} tokens/s, {of_peak(best):.1f} % of the FMA peak of {peak * 1e-9:.1f} GFLOP/s"
    ran = [peer for peer in peers if peer.best < 1e9]
    if ran:
        fastest = min(ran, key=lambda peer: peer.best)
        speed = SAMPLES * SEQUENCE / fastest.best
        line += f"; PyTorch {speed:.0f} tokens/s ({fastest.setting}), {of_peak(speed):.1f} %; ratio {best / speed:.2f}"
    print(line)
    for peer in ran:
        print(f"  PyTorch, {peer.setting}: {SAMPLES * SEQUENCE / peer.best:.0f} tokens/s")
    print(f"  planc's step: {shares(trainer, kernels, steps + 1)}", flush=True)


if __name__ == "__main__":
    serve(*sys.argv[2:]) if sys.argv[1] == "serve" else main(*sys.argv[1:])
