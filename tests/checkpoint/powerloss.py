#!/usr/bin/env python3
"""What a disk may hold after the power fails, from what faults.c has written down.

  powerloss.py RECORD START FOLDER OUT [--forget KIND]

writes OUT/state.N for every different folder, and OUT/least, one line a state: the step that it
must at least resume.

START is a copy of FOLDER as it was, on the disk, before the record began. The model of the disk is
the weakest that fsync promises anything about: what is written to a file is there for certain once
the file was flushed, until then it may be there, not be there, or be there in half; an entry of a
folder (a file that was made, a name that was changed or removed) is there for certain once that
folder was flushed, until then any of the changes may have arrived without the others, but a rename
happens as a whole. Power fails after every call.

--forget file|folder takes the flushes of files or folders out of the record: then some state must
be one that nothing resumes from, or the test shows nothing."""
import hashlib
import itertools
import os
import re
import shutil
import sys


class Disk:
    """A node is a file {"now", "sure": bytes} or a folder {"sure": entries, "later": [change]}."""

    def __init__(self, start, folder):
        self.folder = folder
        self.root = self.read(start)

    def read(self, path):
        if os.path.isdir(path):
            names = sorted(os.listdir(path))
            return {"sure": {n: self.read(os.path.join(path, n)) for n in names}, "later": []}
        data = open(path, "rb").read()
        return {"now": data, "sure": data}

    @staticmethod
    def entries(node, changes):
        """What a folder holds when just these changes have arrived."""
        held = dict(node["sure"])
        for change in changes:
            if change[0] == "link":
                held[change[1]] = change[2]
            elif change[0] == "unlink":
                held.pop(change[1], None)
            elif change[1] in held:
                held[change[2]] = held.pop(change[1])
        return held

    def find(self, path):
        node = self.root
        rest = os.path.relpath(path, self.folder)
        for name in [] if rest == "." else rest.split("/"):
            node = self.entries(node, node["later"])[name]
        return node

    def change(self, path, kind, *more):
        self.find(os.path.dirname(path))["later"].append((kind, os.path.basename(path), *more))

    def apply(self, words, forget):
        call, path = words[0], words[1]
        if call == "mkdir":
            self.change(path, "link", {"sure": {}, "later": []})
        elif call == "create":
            self.change(path, "link", {"now": b"", "sure": b""})
        elif call in ("unlink", "rmdir"):
            self.change(path, "unlink")
        elif call == "rename":
            self.change(path, "rename", os.path.basename(words[2]))
        elif call == "write":
            node, at, data = self.find(path), int(words[2]), open(words[3], "rb").read()
            node["now"] = node["now"][:at].ljust(at, b"\0") + data + node["now"][at + len(data):]
        elif call == "truncate":
            node = self.find(path)
            node["now"] = node["now"][:int(words[2])]
        elif call == "fsync":
            node = self.find(path)
            if "later" in node and forget != "folder":
                node["sure"], node["later"] = self.entries(node, node["later"]), []
            elif "now" in node and forget != "file":
                node["sure"] = node["now"]

    def states(self, node):
        """Every tree that may be found: bytes of a file, or a sorted tuple of (name, tree)."""
        if "now" in node:
            half = len(node["now"]) // 2
            flushed = node["now"] == node["sure"]
            return sorted({node["now"], node["sure"], node["now"][:None if flushed else half]})
        found = {}
        for n in range(len(node["later"]) + 1):
            for some in itertools.combinations(node["later"], n):
                held = self.entries(node, some)
                names = sorted(held)
                for trees in itertools.product(*(self.states(held[name]) for name in names)):
                    found[tuple(zip(names, trees))] = True
        return list(found)


def is_whole(name):
    """Whether what lies below may be resumed from."""
    return ".partial-" not in name and not name.endswith(".deleting")


def digest(tree, whole=True):
    """One for trees that are alike; what is being made or goes away is told by its names."""
    if isinstance(tree, bytes):
        return hashlib.sha1(b"f" + tree).hexdigest() if whole else "f"
    text = "d"
    for name, below in tree:
        shown = "partial" if ".partial-" in name else name
        text += f"{shown}={digest(below, whole and is_whole(name))};"
    return hashlib.sha1(text.encode()).hexdigest()


def write(tree, path):
    if isinstance(tree, bytes):
        with open(path, "wb") as f:
            f.write(tree)
        return
    os.mkdir(path)
    for name, below in tree:
        write(below, os.path.join(path, name))


def main():
    record, start, folder, out = sys.argv[1:5]
    forget = sys.argv[6] if len(sys.argv) > 6 else ""
    disk = Disk(start, folder)
    shutil.rmtree(out, ignore_errors=True)
    os.makedirs(out)
    seen, least, published, calls = {}, 0, None, 0
    for name in os.listdir(start):
        if re.fullmatch(r"step-\d+", name):
            least = max(least, int(name[5:]))
    for line in open(os.path.join(record, "log"), encoding="utf-8"):
        words = line.split()
        if words[1].endswith("/lock"):
            continue
        disk.apply(words, forget)
        calls += 1
        # from the flush after the name on, the new one must be found
        if words[0] == "rename" and re.search(r"/step-\d+$", words[2]):
            published = int(words[2].rsplit("-", 1)[1])
        elif words[0] == "fsync" and published and words[1].rstrip("/") == folder.rstrip("/"):
            least, published = max(least, published), None
        for tree in disk.states(disk.root):
            key = digest(tree)
            if key not in seen:
                seen[key] = len(seen)
                write(tree, os.path.join(out, f"state.{seen[key]}"))
                with open(os.path.join(out, "least"), "a", encoding="utf-8") as f:
                    f.write(f"{least}\n")
    print(f"{calls} calls, {len(seen)} states")


main()
