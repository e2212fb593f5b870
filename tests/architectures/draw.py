#!/usr/bin/env python3
"""Writes random architectures: draw.py FOLDER FIRST COUNT [DATA]. A file is a plan with an
architecture of its own, drawn from its number: expressions over all functions of the language,
weights of one to four dimensions, broadcasts of every kind, repeats whose layers differ, experts,
carried values, several losses. Shapes fit by construction, so nearly all are accepted; the rest
must be refused with a place. Lines "# try" say under which settings each is compiled. With DATA the
plans can be trained: their numbers stay finite, and that file is their text."""
import random
import sys


class Drawing:
    def __init__(self, seed, trained):
        self.r = random.Random(seed)
        self.trained = trained
        r = self.r
        self.sequence, self.local = r.choice([2, 4, 8, 8]), r.choice([2, 4])
        self.T = self.sequence * self.local
        self.d = r.choice([2, 4, 6])
        self.heads = r.choice([1, 2, 3])
        self.hidden = self.heads * self.d
        self.vocab = 256 if trained else r.choice([5, 7, 16])
        self.lines, self.indent, self.names = [], "    ", {}
        self.weights, self.looped, self.count = [], False, 0
        self.tags = set()

    # ── text ──
    def fresh(self, stem):
        self.count += 1
        return f"{stem}{self.count}"

    def say(self, text):
        self.lines.append(self.indent + text)

    def know(self, name, shape):
        self.names[name] = tuple(shape)

    def let(self, stem, shape, text):
        name = self.fresh(stem)
        self.say(f"{name} = {text}")
        self.know(name, shape)
        return name

    def weight(self, shape, stem="w"):
        """A weight of this shape: now and then an old one (tied), mostly a new one."""
        old = [n for n, s in self.weights if s == tuple(shape)]
        if old and self.r.random() < 0.15:
            return self.r.choice(old)
        name = self.fresh(stem)
        init = self.r.choice(["ones", "normal(0.3)", "normal(0.3)"])
        self.say(
            f"{name} = weight(\"{name}.weight\", [{', '.join(map(str, shape))}], init = {init})"
        )
        self.weights.append((name, tuple(shape)))
        return name

    # ── expressions ──
    def number(self):
        return self.r.choice(["2", "0.5", "(1 + hidden) / 3", "0.125", "heads", "sqrt(2)", "1"])

    def broadcast_to(self, shape):
        """The shape of something that spreads to `shape`."""
        r, s = self.r, list(shape)
        kind = r.randrange(7)
        if kind == 0:
            return [1]
        if kind == 1:
            s = s[r.randrange(len(s)) :]
        elif kind == 2 and len(s) > 1:
            parts = [k for k in range(1, s[0]) if s[0] % k == 0]
            s[0] = r.choice(parts) if parts else s[0]
        if kind in (2, 3, 4):
            for i in range(1 if kind == 2 else 0, len(s)):
                if r.random() < 0.4:
                    s[i] = 1
        elif kind == 5:
            s = s[-1:]
        return s

    def partner(self, shape, depth):
        """An operand beside one of `shape`, whose result has that shape."""
        s = self.broadcast_to(shape)
        if s == list(shape):
            return self.value(shape, depth - 1)
        if s == list(shape)[:-1] + [1] and self.r.random() < 0.4:
            return f"sum({self.value(shape, depth - 1)}, over = last)"
        if self.r.random() < 0.15:
            return f"ones([{', '.join(map(str, s))}])"
        return self.weight(s)

    def old(self, shape):
        return [n for n, s in self.names.items() if s == tuple(shape)]

    def leaf(self, shape):
        old = self.old(shape)
        if old and self.r.random() < 0.8:
            return self.r.choice(old)
        if len(shape) == 2 and shape[0] == self.T:
            ids = self.r.choice(["tokens", "tokens", "positions", "targets"])
            rows = self.sequence if ids == "positions" else self.vocab
            return f"embedding({ids}, {self.weight([rows, shape[1]])})"
        if len(shape) == 3 and shape[0] == self.T:
            return f"heads_of({self.leaf([shape[0], shape[1] * shape[2]])}, {shape[2]})"
        return f"({self.weight(shape)} * {self.number()})"

    def safe(self, text):
        """Bounded in what is trained."""
        return f"sigmoid({text})" if self.trained else text

    def value(self, shape, depth):
        """C of a value of this shape."""
        r, shape = self.r, list(shape)
        if depth <= 0:
            return self.leaf(shape)
        ways = ["op", "op", "map", "number", "old", "neg"]
        if len(shape) > 1:
            ways += ["norm", "softmax", "slice", "softcap"]
        if len(shape) == 2 and shape[0] == self.T:
            ways += ["linear", "linear", "embedding", "merge", "experts"]
            if shape[1] == 1:
                ways += ["last", "last", "logsumexp"]
        if len(shape) == 3 and shape[0] == self.T:
            ways += ["heads", "heads", "attention", "rope"]
        if len(shape) == 1:
            ways += ["rows", "rows"]
            if shape[0] == 1:
                ways += ["all", "all"]
        way = r.choice(ways)
        self.tags.add(way)
        less = depth - 1
        if way == "op":
            a, b = self.value(shape, less), self.partner(shape, less)
            if r.random() < 0.3:
                a, b = b, a
            op = r.choice("+-**/")
            if op == "/":
                return f"({a} / ({b} * {b} + 1))" if len(b) < 40 else f"({a} + {b})"
            return f"({a} {op} {b})"
        if way == "map":
            f = r.choice(["silu", "gelu", "gelu_tanh", "sigmoid", "exp", "sqrt", "tanh"])
            x = self.value(shape, less)
            if f == "exp":
                return f"exp({self.safe(x)})"
            return f"sqrt(exp({self.safe(x)}))" if f == "sqrt" else f"{f}({x})"
        if way == "number":
            x = self.value(shape, less)
            return r.choice(
                [
                    f"({x} * {self.number()})",
                    f"({self.number()} - {x})",
                    f"({x} / {self.number()})",
                    f"({self.number()} / (exp({self.safe(x)}) + 1))",
                    f"({x} + {self.number()})",
                ]
            )
        if way == "neg":
            return f"-{self.value(shape, less)}"
        if way == "norm":
            x = self.value(shape, less)
            if r.random() < 0.5:
                offset = r.choice(["", "", ", offset = 1"])
                return f"rms_norm({x}, {self.weight(shape[-1:])}, eps = 1e-3{offset})"
            return (
                f"layer_norm({x}, {self.weight(shape[-1:])}, {self.weight(shape[-1:])}, eps = 1e-3)"
            )
        if way == "softcap":
            return f"softcap({self.value(shape, less)}, {r.choice(['0', '1.5', '3'])})"
        if way == "logsumexp":
            return f"logsumexp({self.value([shape[0], r.choice([1, 3, self.hidden])], less)})"
        if way == "softmax":
            return f"softmax({self.value(shape, less)})"
        if way == "slice":
            before, after = r.choice([(0, 0), (0, 2), (1, 0), (2, 3)])
            wide = shape[:-1] + [before + shape[-1] + after]
            return f"slice({self.value(wide, less)}, {before}, {before + shape[-1]})"
        if way == "linear":
            a = r.choice([1, 2, self.hidden, self.d])
            x = self.value([shape[0], a], less)
            if r.random() < 0.5:
                return f"linear({x}, {self.weight([shape[1], a])})"
            return f"matmul({x}, {self.weight([a, shape[1]])})"
        if way == "embedding":
            return f"embedding(tokens, {self.weight([self.vocab, shape[1]])})"
        if way == "merge":
            parts = [k for k in range(1, shape[1] + 1) if shape[1] % k == 0]
            d = r.choice(parts)
            return f"merge_heads({self.value([shape[0], shape[1] // d, d], less)})"
        if way == "experts":
            return self.experts(shape, less)
        if way == "last":
            return (
                f"sum({self.value([shape[0], r.choice([1, 3, self.hidden])], less)}, over = last)"
            )
        if way == "heads":
            return f"heads_of({self.value([shape[0], shape[1] * shape[2]], less)}, {shape[2]})"
        if way == "attention":
            kv = r.choice([k for k in range(1, shape[1] + 1) if shape[1] % k == 0])
            q, k, v = (self.value([shape[0], n, shape[2]], less) for n in (shape[1], kv, kv))
            more = r.choice(["", "", f", window = {r.randint(1, self.sequence)}", ", softcap = 1.5",
                             f", window = {r.randint(1, 3)}, scale = 0.3, softcap = 2"])
            return f"attention({q}, {k}, {v}{more})"
        if way == "rope":
            if shape[2] % 2:
                return self.value(shape, less)
            more = r.choice(
                ["", "", ", linear = 4", f", width = {2 * r.randint(1, shape[2] // 2)}"]
            )
            return f"rope({self.value(shape, less)}, theta = 10000{more})"
        if way == "rows":
            lead = r.choice([[self.T], [self.T], [self.T, self.heads], [3]])
            return f"sum({self.value(lead + shape, less)}, over = rows)"
        if way == "all":
            T = self.T
            shapes = [[T, self.hidden], [T, 1], [self.d], [T, self.heads, self.d]]
            return f"sum({self.value(r.choice(shapes), less)})"
        return self.leaf(shape)

    def experts(self, shape, depth):
        r = self.r
        experts = r.choice([1, 2, 3, 4])
        k, width, inside = r.randint(1, experts), r.choice([2, self.hidden]), r.choice([2, 3])
        x = self.let("x", [self.T, width], self.value([self.T, width], depth - 1))
        score = r.choice(["softmax", "softmax", "sigmoid"])
        logits = f"f32(linear({x}, {self.weight([experts, width])}))"
        p = self.let("p", [self.T, experts], f"{score}({logits})")
        route, bias = self.fresh("r"), ""
        if r.random() < 0.25:
            name = self.fresh("b")
            self.say(f'{name} = weight("{name}.bias", [{experts}], init = zeros, balance = 0.01)')
            bias = f", bias = {name}"
        self.say(f"{route} = route({p}, {k}, normalize = {r.choice(['on', 'off'])}{bias})")
        z = self.fresh("z")
        self.say(f"{z} = dispatch({x}, {route})")
        rows = self.T * k
        if r.random() < 0.7:
            up = self.expert_weight(experts, inside, width)
            old, width = z, inside
            z = self.fresh("z")
            f = r.choice(["silu(%s)", "%s", "%s * 2", "gelu(%s)"])
            self.say(f"{z} = {f % f'expert_linear({old}, {up}, {route})'}")
        if r.random() < 0.4:
            self.know(self.fresh("load"), [experts])
            name = f"load{self.count}"
            self.say(f"{name} = load({route}) / {rows}")
        down = self.expert_weight(experts, shape[1], width)
        z = f"expert_linear({z}, {down}, {route})"
        if r.random() < 0.3:
            z = f"{z} * 2"
        return f"combine({z}, {route})"

    def expert_weight(self, experts, out, into):
        name = self.fresh("we")
        if self.r.random() < 0.5:
            self.say(f"{name} = weight(\"{name}.{{e}}.weight\", [e = {experts}, {out}, {into}])")
        else:
            self.say(f"{name} = weight(\"{name}.weight\", [{experts}, {out}, {into}])")
        return name

    # ── the program ──
    def repeat(self):
        r = self.r
        layers, name = r.choice([1, 2, 3, 3]), self.fresh("blocks")
        outer, outer_weights = dict(self.names), list(self.weights)
        carried = [n for n, s in outer.items() if r.random() < 0.5][:3] or list(outer)[:1]
        self.say(f"n_{name} = {layers}")
        self.say(f"repeat n_{name} \"{name}.{{i}}\" {{")
        self.indent, self.weights = "        ", []
        if r.random() < 0.15:  # a weight from outside in a loop may be refused: by a line
            self.weights = list(outer_weights)
        for n in carried:
            shape = outer[n]
            if r.random() < 0.8 and len(self.lines) < 120:
                self.statement(r.choice([1, 2]))
            text = self.value(shape, r.choice([1, 2, 3]))
            how = r.random()
            self.say(f"{n} = {n} + {text}" if how < 0.97 else f"{n} = {text}")
            for a in [a for a in self.names if a not in outer]:
                if a.startswith("a") and r.random() < 0.97:
                    self.say(f"{n} = {n} + 1e-3 * {self.one_number(a, self.names[a])}")
            self.names = dict(outer)
            if r.random() < 0.3:
                self.say(
                    "when (%s) {"
                    % r.choice(
                        [
                            "i == 0",
                            "i % 2 == 0",
                            f"i == {layers - 1}",
                            "not contains([1], i)",
                            "heads > 100",
                        ]
                    )
                )
                self.indent += "    "
                kept, weights = dict(self.names), list(self.weights)
                self.say(f"{n} = {n} + {self.value(shape, 2)}")
                self.names, self.weights = kept, weights
                self.indent = self.indent[:-4]
                self.say("}")
        self.indent, self.names, self.weights = "    ", outer, outer_weights
        self.say("}")

    def statement(self, depth):
        r = self.r
        known = [n for n in self.names if n[0] in "ax"]
        if known and r.random() < 0.15:  # another name for the same value
            old = r.choice(known)
            self.let("a", self.names[old], old)
            return
        T, h, n, d = self.T, self.hidden, self.heads, self.d
        shape = r.choice(
            [
                [T, h],
                [T, h],
                [T, h],
                [T, n, d],
                [T, 1],
                [h],
                [1],
                [T, n, 1],
                [d],
                [2, 3],
                [2, 3, 2],
                [2, 1, 3, 2],
            ]
        )
        self.let("a", shape, self.value(shape, depth))

    def one_number(self, name, shape):
        if shape == (1,):
            return name
        return f"sum({name})" if self.r.random() < 0.7 else f"sum({name} * {name})"

    def loss(self):
        r = self.r
        x = r.choice(self.old([self.T, self.hidden]))
        terms = []
        for _ in range(r.choice([1, 1, 1, 2, 0])):
            rows = x if r.random() < 0.6 else self.value([self.T, self.hidden], 2)
            kind = r.randrange(8)
            head = self.weight([self.vocab, self.hidden]) if kind not in (4, 5) else None
            logits = f"linear({rows}, {head})"
            if kind == 0:
                logits = f"{logits} * {self.number()}"
            elif kind == 1:
                logits = f"{logits} + {self.weight([self.vocab])}"
            elif kind == 2:
                logits = f"30 * (2 * sigmoid({logits} / 30) - 1)"
            elif kind == 3:
                other = self.value([self.T, self.d], 1)
                logits = f"{logits} + linear({other}, {self.weight([self.vocab, self.d])})"
            elif kind == 4:
                logits = self.value([self.T, self.vocab], 2)
            elif kind == 5:
                wide = self.weight([self.vocab + 3, self.hidden])
                logits = f"slice(linear({rows}, {wide}), 2, {self.vocab + 2})"
            if r.random() < 0.5:
                logits = self.let("logits", [self.T, self.vocab], logits)
            targets = "targets" if r.random() < 0.9 else "tokens"
            ce = self.fresh("ce")
            self.say(f"{ce} = cross_entropy({logits}, {targets})")
            self.know(ce, [1])
            terms.append(r.choice([ce, ce, f"{self.number()} * {ce}"]))
            if r.random() < 0.3:
                z = self.let("zl", [1], f"z_loss({logits}, {targets})")
                terms.append(f"0.01 * {z}")
        for n, s in self.names.items():
            if n[0] in "axp" and r.random() < 0.98:
                terms.append(f"1e-3 * {self.one_number(n, s)}")
        if not terms:
            terms = [f"sum({x} * {x})"]
        r.shuffle(terms)
        self.say("loss = " + " + ".join(terms))

    def architecture(self):
        r = self.r
        x = "x"
        self.say(f"x = embedding(tokens, {self.weight([self.vocab, self.hidden])})")
        self.know(x, [self.T, self.hidden])
        for _ in range(r.randint(0, 2)):
            self.statement(r.randint(1, 3))
        for _ in range(r.choice([0, 1, 1, 1, 2])):
            self.repeat()
            for _ in range(r.choice([0, 0, 1])):
                self.statement(2)
        for _ in range(r.choice([0, 1])):
            self.statement(2)
        self.loss()
        shown = [n for n in self.names if r.random() < 0.2]
        if shown:
            self.say("metrics { " + ";  ".join(shown) + " }")

    def settings(self):
        r = self.r
        tries = []
        for chunks in (1, 2):
            fsdp, dp = r.choice([(1, 1), (2, 1), (1, 2), (2, 2), (3, 1)])
            local = f"batch.global={self.local * fsdp * dp * r.choice([1, 2])}"
            tries.append(
                [
                    f"batch.loss_chunks={chunks}",
                    f"activation_checkpoint.mode={r.choice(['none', 'selective', 'full'])}",
                    f"mesh.fsdp={fsdp}",
                    f"mesh.dp={dp}",
                    local,
                    f"precision.compute={r.choice(['fp32', 'bf16'])}",
                    f"mesh.prefetch={r.choice([0, 1, 2])}",
                ]
            )
            if r.random() < 0.2:
                tries[-1].append("data.ignore=3")
            if r.random() < 0.2 and "selective" in tries[-1][1]:
                tries[-1].append("activation_checkpoint.every=2")
            if r.random() < 0.5:
                tries[-1].append("cuda")
        return tries


def draw(seed, trained, data):
    d = Drawing(seed, trained)
    d.architecture()
    text = [f"# try {' '.join(t)}" for t in d.settings()]
    text += [
        f"architecture drawn {{",
        f"    hyper {{ heads = {d.heads};  hidden = {d.hidden} }}",
        "    spare = heads + hidden",
    ]
    text += d.lines + ["}", ""]
    text += [
        "cluster here { elastic = on;  device \"processor\" { kind = cpu;  outside = 1MiB } }",
        "",
    ]
    text += [
        f"plan \"drawn from {seed}\" {{",
        "    model drawn { }",
        "    cluster here { }",
        f"    batch {{ sequence = {d.sequence};  local = {d.local} }}",
    ]
    text += ["    optimizer adamw { lr = 1e-3 }", "    schedule constant { steps = 2 }"]
    documents = "documents = separate;  end_token = 1" if seed % 3 == 0 else ""
    text += [
        f"    data {{ train = \"{data}\";  format = bytes;  {documents} }}" if data
        else f"    data {{ {documents} }}",
        "}",
    ]
    return "\n".join(text) + "\n"


if __name__ == "__main__":
    folder, first, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    data = sys.argv[4] if len(sys.argv) > 4 else None
    for seed in range(first, first + count):
        with open(f"{folder}/{seed}.plan", "w") as f:
            f.write(draw(seed, data is not None, data))
