#!/usr/bin/env python3
"""A report is well-formed, drawn and alone: every element is closed in order, nothing is loaded, no
number is missing.  page.py FILE.html"""
import html.parser
import re
import sys

VOID = {"meta", "line", "path", "rect"}
text = open(sys.argv[1], "rb").read().decode("utf-8")
bad = []


class Reader(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.seen = [], {}

    def handle_starttag(self, tag, attributes):
        self.seen[tag] = self.seen.get(tag, 0) + 1
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attributes:
            if name in ("src", "href", "srcset", "action") or name.startswith("on"):
                bad.append(f"<{tag}> has {name}={value}")
            if name in ("d", "x", "y", "x1", "y1", "x2", "y2", "width", "height", "style"):
                if re.search(r"nan|inf", value or ""):
                    bad.append(f"<{tag}> has {name}={value}")
            if name == "data-tip" and "\n" not in value:
                bad.append(f"a tip is one line: {value}")
            if name in ("width", "height") and value.startswith("-"):
                bad.append(f"<{tag}> has {name}={value}")

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        if tag in VOID or not self.open or self.open.pop() != tag:
            bad.append(f"</{tag}> closes nothing")


reader = Reader()
reader.feed(text)
reader.close()
if reader.open:
    bad.append(f"left open: {reader.open}")
for tag, least in (("svg", 2), ("rect", 20), ("path", 5), ("section", 3), ("title", 1), ("b", 5)):
    if reader.seen.get(tag, 0) < least:
        bad.append(f"{reader.seen.get(tag, 0)} <{tag}>")
if reader.seen.get("script") != 1:
    bad.append(f"{reader.seen.get('script')} scripts")
for word in ("http:", "https:", "url(", "@import"):
    if word in text:
        bad.append(f"the page has {word}")
print("\n".join(bad[:5]))
sys.exit(1 if bad else 0)
