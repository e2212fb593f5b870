#!/usr/bin/env python3
"""How much of the transfers of a traced step compute hides, and what `planc simulate` says of it.

  overlap.py TRACE [SIMULATED.json]

TRACE: what --trace wrote. Of each rank the time of events on lanes other than compute, and the part
of it during which nothing is computed. Ends with 1 where less is hidden than the prediction says,
by more than a fifth of all.
"""
import json
import sys


def joined(spans):
    """The spans as a list of disjoint ones, in order."""
    out = []
    for begin, end in sorted(spans):
        if out and begin <= out[-1][1]:
            out[-1][1] = max(out[-1][1], end)
        else:
            out.append([begin, end])
    return out


def length(spans):
    return sum(end - begin for begin, end in spans)


def hidden_part(events):
    """Of a trace: the part of the transfers' time beside compute, and that time in microseconds."""
    lane = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    shown = [e for e in events if e["ph"] == "X" and e["args"]["step"] == 2]
    total = beside = 0.0
    for pid in {e["pid"] for e in shown}:
        mine = {True: [], False: []}
        for e in shown:
            if e["pid"] == pid:
                computes = lane[pid, e["tid"]] == "compute"
                mine[computes].append((e["ts"], e["ts"] + e["dur"]))
        compute, transfers = joined(mine[True]), joined(mine[False])
        both = length(joined(mine[True] + mine[False]))
        total += length(transfers)
        beside += length(transfers) + length(compute) - both
    return (beside / total if total else 1.0), total


def main():
    part, total = hidden_part(json.load(open(sys.argv[1]))["traceEvents"])
    if total <= 0:
        sys.exit("the trace has no transfers")
    said = f"{100 * part:.1f} % of {total / 1000:.2f} ms of transfers beside compute"
    if len(sys.argv) > 2:
        rung = json.load(open(sys.argv[2]))["rungs"][0]
        moved = sum(c["count"] * c["seconds"] for c in rung["collectives"])
        want = 1 - rung["exposed_comm_seconds"] / moved
        said += f", predicted {100 * want:.1f} %"
        if part < want - 0.2:
            sys.exit(said)
    print(said)


main()
