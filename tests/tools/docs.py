#!/usr/bin/env python3
"""Holds the documents against the repository and the programs, so that a reader finds what is
named and sees what is shown. Prints a verdict for each check.
    docs.py TOP PLANC       UPDATE=1: rewrites the outputs that are shown"""
import os
import pathlib
import re
import subprocess
import sys

top, planc = pathlib.Path(sys.argv[1]), sys.argv[2]
docs = [top / "README.md", *sorted((top / "docs").glob("*.md"))]
pages = docs + sorted(top.glob("*/*/README.md")) + sorted(top.glob("*/README.md"))
text = {page: page.read_text() for page in pages}


def verdict(name, wrong):
    print(f"FAIL docs.{name}: {'; '.join(wrong)}" if wrong else f"ok docs.{name}")


def said(*arguments):
    got = subprocess.run([planc, *arguments], capture_output=True, text=True, check=False)
    return got.stdout


def name(page):
    return page.relative_to(top)


# ── what is linked and named is there ────────────────────────────────────────
def anchors(page):
    heads = re.findall(r"^#+ (.*)$", page.read_text(), re.M)
    return {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}


def broken_links():
    for page in pages:
        for link in re.findall(r"\]\(([^)\s]+)\)", text[page]):
            if link.startswith("http"):
                continue
            path, _, anchor = link.partition("#")
            to = page.parent / path if path else page
            if not to.exists() or (anchor and anchor not in anchors(to)):
                yield f"{name(page)}: {link}"


def missing_files():
    parts = "compiler|runtime|templates|tests|formats|grammar|plans|docs"
    for page in docs:
        for path in re.findall(rf"`((?:{parts})/[\w./*-]*)`", text[page]):
            if not re.search("[A-Z]{2}", path) and not any(top.glob(path.rstrip("/"))):
                yield f"{name(page)}: {path}"


def missing_words():
    families = [path.stem for path in (top / "plans/models").glob("*.plan")]
    suites = [path.parent.name for path in (top / "tests").glob("*/run.sh")]
    named = {"README.md": families, "docs/language.md": families, "docs/testing.md": suites}
    for page, words in named.items():
        there = set(re.findall(r"\w+", (top / page).read_text()))
        yield from (f"{page} lacks {word}" for word in sorted(words) if word not in there)


def unknown_names():
    """Names of other trainers that a page translates, and `planc keys NAME` does not."""
    page = top / "docs/coming-from.md"
    tables = text[page][text[page].index("## torchtitan") :]
    for cell in re.findall(r"^\| (.*?) \|", tables, re.M):
        for word in re.findall(r"`-{0,2}(\w[\w.-]{2,})", cell):
            if not said("keys", word):
                yield word


# ── options ──────────────────────────────────────────────────────────────────
OPTION = r"(?<![\w-])--[a-z][a-z-]*"


def commands_of(page):
    """Lines of its examples, those that go on joined; without comments."""
    lines = re.sub(r"\\\n\s*", " ", page.read_text()).split("\n")
    return [re.split(r"\s#|\s&\s", line)[0] for line in lines if line.startswith("    ")]


def options():
    known = {}
    for line in said("help").split("\n"):
        command = re.match(r"  ([a-z]+) ", line)
        if command:
            known[command[1]] = set(re.findall(OPTION, said("help", command[1])))
    trainer = set(re.findall(OPTION, (top / "runtime/shared/options.c").read_text()))
    return known, trainer


def unknown_options(known, trainer):
    for page in docs:
        for line in commands_of(page):
            call, _, behind = line.partition(" -- ")
            command = re.search(r"planc ([a-z]+)(?= |$)", call)
            if command and command[1] not in known:
                yield f"{name(page)}: planc {command[1]}"
            elif command:
                taken = set(re.findall(OPTION, re.sub(r'"[^"]*"', "", call))) - known[command[1]]
                yield from (f"{name(page)}: planc {command[1]} {option}" for option in taken)
                taken = set(re.findall(OPTION, behind)) - trainer
                yield from (f"{name(page)}: trainer {option}" for option in taken)
            elif re.search(r"\btrainer\b", line):
                taken = set(re.findall(OPTION, line[line.index("trainer") :])) - trainer
                yield from (f"{name(page)}: trainer {option}" for option in taken)


def untold_options(known, trainer):
    told = set(re.findall(OPTION, "\n".join(text[page] for page in docs)))
    untold = trainer.union(*known.values()) - told - {"--help"}
    yield from (f"no document has {option}" for option in sorted(untold))


# ── outputs that are shown: under `$ planc …`, with `…` for what is left out ──
def shown_plans(page):
    """The plans of a page, by the name under which it asks to save them."""
    plans = re.findall(r"```\n(use .*?)```(.*?)(?=\n```|\Z)", text[page], re.S)
    for plan, behind in plans:
        saved = re.search(r"[Ss]ave (?:it|the plan)\s+as\s+`([\w.]+)`", behind)
        if saved:
            pathlib.Path(saved[1]).write_text(plan)


def same(line, got):
    parts = re.split("(…)", line)
    return re.fullmatch("".join(".*" if part == "…" else re.escape(part) for part in parts), got)


def found(shown, printed):
    """Whether the lines are printed in this order; those between two without `…` directly."""
    at, free = 0, False
    for line in shown:
        if line.strip() == "…":
            free = True
            continue
        while at < len(printed) and not same(line, printed[at]) and free:
            at += 1
        if at >= len(printed) or not same(line, printed[at]):
            return line.strip()
        at, free = at + 1, False
    return None


def nearest(line, printed):
    """The printed line with most words of a shown one, cut where that one was."""
    words = set(re.findall(r"\w+", line))
    best = max(printed, key=lambda got: len(words & set(re.findall(r"\w+", got))))
    return best[: len(line) - 1] + "…" if line.endswith("…") else best


def shown_outputs():
    for page in docs:
        shown_plans(page)
        blocks = re.findall(r"^    \$ planc ([^\n]*)\n((?:    [^$\n][^\n]*\n)+)", text[page], re.M)
        for block in blocks:
            arguments = block[0].split("#")[0].split()
            if not any(pathlib.Path(a).exists() for a in arguments):
                continue  # of a file that a reader has
            lines = [line[4:] for line in block[1].rstrip("\n").split("\n")]
            printed = said(*arguments).split("\n")
            wrong = found(lines, printed)
            if wrong and os.environ.get("UPDATE"):
                new = [line if line.strip() == "…" else nearest(line, printed) for line in lines]
                text[page] = text[page].replace(block[1], "".join(f"    {line}\n" for line in new))
                page.write_text(text[page])
            elif wrong:
                yield f"{name(page)}: planc {block[0]} does not print: {wrong}"


verdict("links", list(broken_links()))
verdict("files", list(missing_files()))
verdict("words", list(missing_words()))
verdict("names", list(unknown_names()))
known, trainer = options()
verdict("options", sorted(set(unknown_options(known, trainer))))
verdict("untold", list(untold_options(known, trainer)))
if not pathlib.Path("plans").exists():
    pathlib.Path("plans").symlink_to(top / "plans")
verdict("shown", list(shown_outputs()))
