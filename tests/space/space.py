"""Helpers of the space suite: reads what planc said as JSON and answers one question per call."""
import json
import sys


def points(path):
    return json.load(open(path, encoding="utf-8"))["points"]


def same(path, *singles):
    """Points of a space against the same plans checked alone: files named by the point's index."""
    all_points, bad = points(path), []
    for single in singles:
        index, one = single.split("=", 1)
        alone = json.load(open(one, encoding="utf-8"))
        point = all_points[int(index)]
        if point.get("peak_bytes") != alone["peak_bytes"] or point["verdict"] != alone["verdict"]:
            bad.append(f"{point} alone {alone['peak_bytes']} {alone['verdict']}")
    return bad


def main():
    what, path = sys.argv[1], sys.argv[2]
    if what == "sets":                  # index and settings of every `step`-th possible point, for a shell loop
        step = int(sys.argv[3])
        for i, p in enumerate(points(path)):
            if i % step == 0 and "peak_bytes" in p:
                print(i, *p["set"])
    elif what == "count":
        print(len(points(path)))
    elif what == "reasons":
        print("\n".join(sorted({p["reason"] for p in points(path) if "reason" in p})))
    elif what == "same":
        bad = same(path, *sys.argv[3:])
        print("\n".join(bad[:3]))
        sys.exit(bool(bad))
    elif what == "peak":
        print(json.load(open(path, encoding="utf-8"))["peak_bytes"])


main()
