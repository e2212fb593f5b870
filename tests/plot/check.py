#!/usr/bin/env python3
"""check.py make | text FILE | json FILE | svg FILE CHARTS RUNS"""
import json
import sys
import xml.etree.ElementTree as tree

N = 40


def make():
    def write(name, rows, end=""):
        with open(name, "w", encoding="utf-8") as f:
            f.write("".join(json.dumps(r) + "\n" for r in rows) + end)
    falls = [{"step": i, "loss": 5 - 0.1 * i, "grad_norm": 1.5, "lr": 1e-3, "load": [0.25, 0.75],
              "tokens_hash": "ab"} for i in range(N)]
    write("falls.jsonl", falls)
    write("<b>&\"'.jsonl", falls)
    write("rises.jsonl", [dict(r, loss=1.1 + 0.1 * r["step"]) for r in falls])
    write("one.jsonl", [{"step": 7, "loss": 2.5}])
    write("long.jsonl", [{"step": i, "loss": 3 + (-1) ** i * (i < 4999)} for i in range(5000)])
    write("torn.jsonl", falls[:2], '{"step":2,"lo')
    write("bad.jsonl", falls[:1], "no metrics\n")
    write("empty.jsonl", [])
    write("large.jsonl", [{"step": 1, "loss": 1e305}])


def text(path):
    charts = open(path, encoding="utf-8").read().split("\n\n")
    assert len(charts) == 2, f"{len(charts)} charts"
    for chart, key in zip(charts, ("loss", "grad_norm")):
        lines = chart.rstrip("\n").split("\n")
        assert lines[0] == key and all(len(x) <= 80 for x in lines), lines
        assert lines[-2].startswith("  * falls.jsonl: 40 steps, last "), lines[-2]
        assert lines[-1].startswith("  o rises.jsonl: 40 steps, last "), lines[-1]
    lines = charts[0].split("\n")
    assert lines[-2].endswith("last 1.1 at step 39, least 1.1 at step 39"), lines[-2]
    rows = [x.split("|", 1) for x in lines[1:19]]
    assert rows[0][0].strip() == "5" and rows[-1][0].strip() == "1.1", rows
    # one falls from the left above to the right below, the other rises
    for mark, up in (("*", False), ("o", True)):
        place = [(r, x) for r, (_, row) in enumerate(rows) for x, c in enumerate(row) if c == mark]
        left, right = min(place, key=lambda p: p[1]), max(place, key=lambda p: p[1])
        assert (left[0], right[0]) == ((17, 0) if up else (0, 17)), (mark, left, right)
    columns = {x for _, row in rows for x, c in enumerate(row) if c in "*o"}
    assert columns == set(range(max(columns) + 1)), "a curve has gaps"


def json_(path):
    curves = json.load(open(path, encoding="utf-8"))["curves"]
    assert [(c["key"], c["file"]) for c in curves] == [
        (k, f) for k in ("loss", "load[1]") for f in ("falls.jsonl", "rises.jsonl")], curves
    assert curves[0]["points"] == [[i, 5 - 0.1 * i] for i in range(N)]
    assert curves[2]["points"] == [[i, 0.75] for i in range(N)]


def svg(path, charts, runs):
    root = tree.parse(path).getroot()
    name = "{http://www.w3.org/2000/svg}"
    assert root.tag == name + "svg"
    high = float(root.get("height"))
    curves = [p for p in root.iter(name + "path") if p.get("stroke-width") == "1.5"]
    assert len(curves) == int(charts) * int(runs), f"{len(curves)} curves"
    for p in curves:
        for point in p.get("d").replace("h3", "").replace("M", "L").split("L")[1:]:
            x, y = map(float, point.split())
            assert 90 <= x <= 940.1 and 0 <= y <= high, point
    assert all(0 <= float(t.get("y")) <= high for t in root.iter(name + "text"))


try:
    {"make": make, "text": text, "json": json_, "svg": svg}[sys.argv[1]](*sys.argv[2:])
except AssertionError as e:
    sys.exit(str(e))
